"""Write a trained model as a folder to share: python scripts/export.py [ckpt_path=FILE] [out=DIR]

Weights, codec, samples, metrics and a model card, all of it data. Where ckpt_path=FILE stands, the
folder may stand too, and train.py begins with it by init_from=DIR. push=OWNER/NAME puts it on the
Hugging Face hub, where hf://OWNER/NAME stands for it.
"""

from __future__ import annotations

from audiolm.cli.loading import start_loading

if __name__ == "__main__":
    start_loading()  # the other imports take seconds

from omegaconf import DictConfig

from audiolm.cli.app import start
from audiolm.cli.export import export_folder, is_export_to_push, make_export
from audiolm.export.export import export_model
from audiolm.export.push import check_pushable, push_folder
from audiolm.run_folder import find_checkpoint


def main(cfg: DictConfig) -> None:
    if cfg.push is not None:
        check_pushable(cfg.push)
    checkpoint = find_checkpoint(cfg.ckpt_path)
    if is_export_to_push(cfg, checkpoint):
        folder = checkpoint.parent
    else:
        folder = export_folder(cfg, checkpoint)
        print("\n".join(export_model(checkpoint, folder, make_export(cfg, checkpoint))))
        print(f"exported  {folder}, of {checkpoint}")
    if cfg.push is not None:
        print(f"pushed    {push_folder(folder, cfg.push, cfg.private)}")


if __name__ == "__main__":
    start("export", main)
