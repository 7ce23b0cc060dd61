"""Check and encode recordings: python scripts/prepare.py data=folder data.path=DIR codec=...

check=true stops after the check. part=0 num_parts=4 does the first of four parts of the work.
"""

from __future__ import annotations

from audiolm.cli.loading import start_loading

if __name__ == "__main__":
    start_loading()  # the other imports take seconds

from omegaconf import DictConfig

from audiolm.cli.app import start
from audiolm.cli.build import make_codec
from audiolm.cli.store import check, encode
from audiolm.parallel import Part, check_part


def main(cfg: DictConfig) -> None:
    part = Part(cfg.part, cfg.num_parts)
    check_part(part)
    if cfg.data.source is None:
        raise ValueError(
            "a store holds codes already, and there is nothing to prepare; pass data=folder "
            "data.path=DIR, or another source of recordings"
        )
    if cfg.check:
        check(cfg, part=part)
        print("next: the same command without check=true encodes what is kept")
        return
    codec = make_codec(cfg)
    summary = encode(cfg, codec, part)
    if not summary.missing_parts:
        print("next: python scripts/train.py with the same data and codec")


if __name__ == "__main__":
    start("prepare", main)
