"""What scripts/import_model.py reads of its config, and what it says."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path

from omegaconf import DictConfig

from audiolm.export.card import Card
from audiolm.export.settings import Export
from audiolm.files import check_writable, user_path
from audiolm.hub import FILES, HubName, hub_folder, is_hub_name
from audiolm.importing import ImportedModel
from audiolm.importing.audiocraft import CODEC_FILE, MODEL_FILE
from audiolm.importing.convert import SAMPLING
from audiolm.model.folder import read_config
from audiolm.published_files import WHOLE


def source_folder(path: str) -> Path:
    """The folder of the model to import, downloaded where it is a name on the hub.

    Raises:
        FileNotFoundError: there is no such folder.
    """
    if is_hub_name(path):
        folder = hub_folder(path, (*FILES, f"{WHOLE[1]}*"))
        if not (folder / "config.json").is_file():  # audiocraft's alone
            folder = hub_folder(path, (*FILES, MODEL_FILE, CODEC_FILE))
        return folder
    folder = user_path(path)
    if not folder.is_dir():
        raise FileNotFoundError(f"path={path}: no such folder; give that of a MusicGen or AudioGen")
    return folder


def new_out(out: str) -> Path:
    """The folder to write.

    Raises:
        ValueError: it is there.
        OSError: it cannot be made.
    """
    path = user_path(out)
    check_writable(path, "out", folder=True)
    if path.exists():
        raise ValueError(f"out={out} is there; give a new folder, or remove it first")
    return path


def base_model(cfg: DictConfig) -> str | None:
    """The name of what is imported, where it is known."""
    named: str | None = cfg.base_model
    if named is None and is_hub_name(cfg.path):
        return HubName.parse(cfg.path).repository
    return named


def make_card(folder: Path, model: ImportedModel, dtype: str) -> str:
    """The model card of what was written to `folder`."""
    base = model.settings["origin"]["base_model"]
    export = Export(dtype=dtype, sampling=SAMPLING, num_samples=0, title=base or "Imported model")
    return Card(
        config=read_config(folder),
        parameters=sum(weight.numel() for weight in model.weights.values()),
        samples=[],
        evaluation=None,
        plan=None,
        has_bundled_codec=False,
        export=export,
    ).text()


def describe_import(model: ImportedModel, out: Path) -> Iterator[str]:
    """What was imported, under which terms, and what to run next."""
    settings, codec = model.settings, model.codec
    count = sum(weight.numel() for weight in model.weights.values())
    yield (
        f"imported  {count:,} parameters, {codec.num_codebooks} codebooks of "
        f"{codec.codebook_size} codes, {codec.sample_rate} Hz, "
        f"{'stereo' if codec.channels == 2 else 'mono'}, context "
        f"{settings['context_frames'] / codec.frame_rate:g} s"
    )
    origin = settings["origin"]
    yield f"license   {origin['license']} of the weights{_meaning(origin['license'])}"
    yield f"folder    {out}"
    yield (
        f"next      python scripts/generate.py ckpt_path={shlex.quote(str(out))} "
        f"conditioning.text='calm piano' sampling.top_k=250 sampling.guidance=3 duration=10"
    )


def _meaning(license: str) -> str:
    if "-nc" not in license.lower():
        return ""
    return ": not for commercial use, which holds for what is fine-tuned from them too"
