"""A published MusicGen or AudioGen as a model of ours: scripts/import_model.py path=DIR out=DIR

path is a folder of transformers' or of audiocraft's files, or hf://OWNER/NAME.
"""

from __future__ import annotations

from audiolm.cli.loading import start_loading

if __name__ == "__main__":
    start_loading()  # the other imports take seconds

from omegaconf import DictConfig

from audiolm.cli.app import start
from audiolm.cli.import_model import (
    base_model,
    describe_import,
    make_card,
    new_out,
    source_folder,
)
from audiolm.files import user_path
from audiolm.importing import import_model, write_imported


def main(cfg: DictConfig) -> None:
    out = new_out(cfg.out)
    model = import_model(
        source_folder(cfg.path),
        codec_path=None if cfg.codec_path is None else user_path(cfg.codec_path),
        text_encoder_path=None
        if cfg.text_encoder_path is None
        else user_path(cfg.text_encoder_path),
        context_seconds=cfg.context_seconds,
        max_tokens=cfg.max_tokens,
        license=cfg.license,
        base_model=base_model(cfg),
    )
    write_imported(model, out, cfg.dtype, lambda folder: make_card(folder, model, cfg.dtype))
    for line in describe_import(model, out):
        print(line)


if __name__ == "__main__":
    start("import_model", main)
