"""What the commands of scripts/tools share: they take arguments, not Hydra's overrides."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

from audiolm.cli.loading import end_loading
from audiolm.generation.sampling import Sampling

CACHE = Path.home() / ".cache" / "audiolm"
"""Where tools keep what takes long to make anew."""


def run_tool(parser: argparse.ArgumentParser, run: Callable[[argparse.Namespace], None]) -> None:
    """Run a tool on the arguments of the command line.

    What the user can mend is said in one line, and the exit code is 2.
    """
    end_loading()
    options = parser.parse_args()
    try:
        run(options)
    except (ValueError, OSError) as error:
        parser.exit(2, f"{error}\n")


def add_sampling_options(parser: argparse.ArgumentParser) -> None:
    """The options of a command that `samplings_of` reads."""
    parser.add_argument("--guidance", type=float, nargs="+", default=[1.0, 2.0, 3.0])
    parser.add_argument(
        "--temperature", type=float, nargs="+", default=[1.0], help="one, or one a codebook"
    )
    parser.add_argument("--top-k", type=int)
    parser.add_argument("--top-p", type=float)
    parser.add_argument("--min-p", type=float)
    parser.add_argument("--repetition-window", type=int)
    parser.add_argument("--best-of", type=int, default=1, help="see generate.py")
    parser.add_argument("--seed", type=int, default=0, help="of the first sample")


def samplings_of(options: argparse.Namespace) -> dict[str, Sampling]:
    """The settings that the command line names, by what a table calls them; guidance 1 is off.

    Raises:
        ValueError: one is out of range.
    """
    given = options.temperature
    return {
        f"guidance {guidance:g}": Sampling(
            temperature=given[0] if len(given) == 1 else given,
            top_k=options.top_k,
            top_p=options.top_p,
            min_p=options.min_p,
            repetition_window=options.repetition_window,
            guidance=guidance,
        )
        for guidance in options.guidance
    }
