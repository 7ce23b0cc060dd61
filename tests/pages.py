"""The Python of a page of documentation, run as a reader would: block after block."""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

BLOCK = re.compile(r"^```(?P<language>\w*)\n(?P<text>.*?)^```$", flags=re.S | re.M)


class Example(NamedTuple):
    """A block of Python, the line it begins at, and what the page says that it prints."""

    code: str
    line: int
    output: str | None


def examples(page: Path) -> Iterator[Example]:
    """The ```python blocks of a page; a ```text block that follows one at once is its output."""
    text = page.read_text(encoding="utf-8")
    blocks = list(BLOCK.finditer(text))
    for i, block in enumerate(blocks):
        following = blocks[i + 1] if i + 1 < len(blocks) else None
        if block["language"] != "python":
            continue
        output = None
        if (
            following is not None
            and following["language"] == "text"
            and not text[block.end() : following.start()].strip()
        ):
            output = following["text"]
        yield Example(block["text"], text[: block.start()].count("\n") + 2, output)


def run_page(page: Path, names: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Run all blocks of a page in one namespace, that begins with `names`, and return it.

    Raises:
        AssertionError: a block prints something else than the page says, with both.
    """
    namespace: dict[str, Any] = {"__name__": "__main__", **(names or {})}
    for code, line, output in examples(page):
        # Blank lines in front, so that a traceback names the line of the page.
        compiled = compile("\n" * (line - 1) + code, str(page), "exec")
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(compiled, namespace)
        if output is not None and printed.getvalue() != output:
            raise AssertionError(
                f"{page.name}, line {line}, prints\n{printed.getvalue()}\nnot\n{output}"
            )
    return namespace
