"""Write a trained model with all that it needs to a folder of its own.

config.json  model.safetensors          the model (see `audiolm.model.folder`)
codec.safetensors  codec.json           its codec, where that is one of one's own
codec.md                                of the codec that comes with the package
text_encoder/                           of a model that reads texts by one
evaluation.json                         metrics, where it was evaluated at this step
samples/sample_000.wav, .png            what it sounds like
README.md                               the model card
"""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from audiolm.codec import EncodecCodec, load_codec
from audiolm.codec.load import BUNDLED
from audiolm.codec.local import read_pair
from audiolm.export.card import Card
from audiolm.export.samples import ExportedSample, save_samples
from audiolm.export.settings import Export
from audiolm.files import atomic_file, new_folder
from audiolm.model.checkpoint import read_checkpoint, restore_model, weights_to_use
from audiolm.model.folder import read_config, write_model_folder
from audiolm.run_folder import MODEL_WEIGHTS, TEXT_ENCODER, RunFolder, codec_folders
from audiolm.synthesis.conditions import load_text_encoder
from audiolm.synthesis.synthesizer import Synthesizer
from audiolm.text_encoder import copy_text_encoder

SAMPLES, CARD, EVALUATION, CODEC_CARD = "samples", "README.md", "evaluation.json", "codec.md"


def export_model(checkpoint: Path, out: Path, export: Export) -> list[str]:
    """Write the folder `out`, which appears whole or not at all; what there is to say, in lines.

    It is read back before it gets its name, and the samples are of what was read: the same
    checkpoint and settings give the same bytes.

    Args:
        checkpoint: as `run_folder.find_checkpoint` gives it.
        out: of the new folder.
        export: what it is to be.

    Raises:
        FileNotFoundError: no checkpoint, or no codec.
        FileExistsError: something is at `out` already.
        ValueError: a damaged checkpoint, a license that the base model's does not allow.
        OSError: it cannot be written.
    """
    contents = read_checkpoint(checkpoint)
    trained = restore_model(contents, checkpoint)
    settings = dict(contents["hyper_parameters"])
    settings["origin"] = _origin(settings.get("origin") or {}, export.license)
    codec = None
    if trained.codec.get("kind") == "local" or export.num_samples:
        codec = load_codec(trained.codec, codec_folders(checkpoint), export.codec_repository)
    evaluation, said = read_evaluation(RunFolder.of(checkpoint), trained.step)
    with new_folder(out) as folder:
        write_model_folder(
            folder,
            settings,
            weights_to_use(contents),
            step=trained.step,
            sampling=dataclasses.asdict(export.sampling),
            averaged=_is_averaged(contents, checkpoint),
            dtype=export.dtype,
        )
        del contents  # as large as the model
        bundled = codec is not None and save_codec(codec, folder)
        encoder = load_text_encoder(trained.vocabulary, checkpoint)
        if encoder is not None:
            copy_text_encoder(encoder.folder, folder / TEXT_ENCODER)
        if evaluation is not None:
            _write_json(folder / EVALUATION, evaluation)
        samples: list[ExportedSample] = []
        if export.num_samples:
            synthesizer = Synthesizer.load(
                folder / MODEL_WEIGHTS, codec_repository=export.codec_repository
            )
            samples = save_samples(synthesizer, export, folder / SAMPLES)
        card = Card(
            config=read_config(folder),
            parameters=sum(weight.numel() for weight in trained.model.parameters()),
            samples=samples,
            evaluation=evaluation,
            plan=_read_json(RunFolder.of(checkpoint).plan),
            has_bundled_codec=bundled,
            export=export,
        )
        with atomic_file(folder / CARD) as file:
            file.write(card.text().encode("utf-8"))
    return said


def save_codec(codec: EncodecCodec, folder: Path) -> bool:
    """Put a local codec beside the model; whether it is the one that comes with the package."""
    if codec.identity()["kind"] != "local":
        return False
    codec.save(folder)
    if read_pair(BUNDLED).fingerprint != codec.fingerprint:
        return False
    shutil.copyfile(BUNDLED / "MODEL_CARD.md", folder / CODEC_CARD)  # names whose recordings
    return True


def read_evaluation(run: RunFolder, step: int) -> tuple[dict[str, Any] | None, list[str]]:
    """What evaluate.py measured of the model at this step, and why it is left out if it is.

    Without the paths of this machine.
    """
    metrics = _read_json(run.evaluation)
    if metrics is None:
        return None, [
            f"without metrics: {run.evaluation} is not there; scripts/evaluate.py writes it"
        ]
    if metrics.get("step") != step:
        return None, [
            f"without metrics: {run.evaluation} is of step {metrics.get('step')}, the model of "
            f"{step}; run scripts/evaluate.py again"
        ]
    return {k: v for k, v in metrics.items() if k not in ("checkpoint", "stores")}, []


def _origin(origin: Mapping[str, Any], wanted: str | None) -> dict[str, Any]:
    """The license and the base model, once it is known that they go together."""
    base = origin.get("license")
    if wanted is not None and base is not None and "-nc" in base and "-nc" not in wanted:
        raise ValueError(
            f"license={wanted}: the weights were made from {origin.get('base_model')}, whose "
            f"license {base} allows no commercial use and goes on with them; omit license"
        )
    return {"license": wanted or base, "base_model": origin.get("base_model")}


def _is_averaged(contents: Mapping[str, Any], checkpoint: Path) -> bool:
    if checkpoint.name == MODEL_WEIGHTS:
        return bool(read_config(checkpoint.parent)["weights"].get("averaged"))
    return "ema_state_dict" in contents


def _read_json(path: Path) -> dict[str, Any] | None:
    """The object in a file that a run may have; None where it has none, or a damaged one."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def _write_json(path: Path, data: Mapping[str, Any]) -> None:
    with atomic_file(path) as file:
        file.write(json.dumps(data, indent=2).encode("ascii") + b"\n")
