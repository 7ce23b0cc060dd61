"""A published model, whole: the language model, its codec and its text encoder, as one folder."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from audiolm.codec import EncodecCodec
from audiolm.codec.transformers import from_transformers
from audiolm.files import atomic_file, new_folder
from audiolm.generation.sampling import Sampling
from audiolm.importing.audiocraft import CODEC_FILE, MODEL_FILE, read_audiocraft
from audiolm.importing.encodec import read_codec
from audiolm.importing.musicgen import MusicGen, read_transformers_config, take_decoder
from audiolm.importing.tensors import Weights
from audiolm.model.checkpoint import build_model, check_weights
from audiolm.model.condition_vocabulary import ConditionVocabulary
from audiolm.model.folder import write_model_folder
from audiolm.published_files import WHOLE, read_json, read_weights
from audiolm.run_folder import TEXT_ENCODER
from audiolm.text_encoder import encoder_weights, write_text_encoder

LICENSE = "cc-by-nc-4.0"
"""Of the weights of MusicGen and AudioGen, by their pages."""
SECONDS = 30.0
"""Of the clips that MusicGen was trained on."""
MAX_TOKENS = 128
"""Of a text: about a hundred words. Every one of them is a key that each block looks at."""
SAMPLING = Sampling(top_k=250, guidance=3.0)
"""As these models are used by those who made them."""


@dataclass(frozen=True)
class ImportedModel:
    """What a folder is written of.

    Attributes:
        settings: of a checkpoint: model, pattern, context_frames, codec, conditioning, origin.
        weights: by the names of `AudioLM`'s state dict, float32.
        codec: whose codes it models.
        text_config: the config.json of its text encoder, a T5.
        text_weights: by transformers' names for a `T5EncoderModel`.
        tokenizer: the text encoder's tokenizer.json.
    """

    settings: dict[str, Any]
    weights: dict[str, Tensor]
    codec: EncodecCodec
    text_config: dict[str, Any]
    text_weights: dict[str, Tensor]
    tokenizer: Path


def import_model(
    path: Path,
    *,
    codec_path: Path | None = None,
    text_encoder_path: Path | None = None,
    context_seconds: float | None = None,
    max_tokens: int = MAX_TOKENS,
    license: str = LICENSE,
    base_model: str | None = None,
) -> ImportedModel:
    """Read a MusicGen or an AudioGen.

    Args:
        path: its folder, of transformers' or of audiocraft's files.
        codec_path: folder of its EnCodec, where that is not in `path`.
        text_encoder_path: folder of its T5 in transformers' format, where that is not in `path`.
        context_seconds: that it generates as one; None for what it was trained on.
        max_tokens: of the longest text.
        license: of the weights, which what is made with them must keep to.
        base_model: its name, such as facebook/musicgen-small.

    Raises:
        FileNotFoundError: a file is not there, or a part that only another folder has.
        ValueError: a file is damaged, or of another kind of model; one line.
    """
    if is_audiocraft(path):
        model, weights, config = read_audiocraft(path / MODEL_FILE)
        seconds = config.get("dataset.segment_duration", SECONDS)
        drop = config.get("classifier_free_guidance.training_dropout", 0.1)
        own_codec = read_codec(
            _named(codec_path, path, CODEC_FILE, "codec_path"), dual_mono=model.is_stereo
        )
        text_folder = _named(text_encoder_path, path, "text_encoder", "text_encoder_path")
        text_config, text_weights = _read_t5(text_folder, model)
    else:
        described = read_json(path / "config.json")
        model = read_transformers_config(described, path / "config.json")
        weights = Weights(read_weights(path), path)
        seconds, drop = SECONDS, 0.1
        given = weights.below("audio_encoder.")
        if codec_path is not None:
            own_codec = read_codec(codec_path, dual_mono=model.is_stereo)
        else:
            audio = described.get("audio_encoder")
            own_codec = from_transformers(
                audio if isinstance(audio, dict) else {}, given, path, dual_mono=model.is_stereo
            )
        text_config = dict(described["text_encoder"])
        text_weights = encoder_weights(weights.below("text_encoder."))
        text_folder = path
        if text_encoder_path is not None:
            text_folder = text_encoder_path
            text_config, text_weights = _read_t5(text_folder, model)
    converted = take_decoder(weights, model)
    weights.check_all_taken()
    _check_codec(model, own_codec, path)
    settings = _settings(model, own_codec, context_seconds or seconds, max_tokens, drop) | {
        "origin": {"license": license, "base_model": base_model}
    }
    _check_fits(settings, converted, path)
    return ImportedModel(
        settings, converted, own_codec, text_config, text_weights, _tokenizer(text_folder)
    )


def is_audiocraft(path: Path) -> bool:
    """Whether a folder is of audiocraft's files; one that has transformers' too is of these."""
    described = any((path / name).is_file() for name in ("config.json", *WHOLE))
    return (path / MODEL_FILE).is_file() and not described


def write_imported(
    model: ImportedModel,
    out: Path,
    dtype: str = "float32",
    card: Callable[[Path], str] | None = None,
) -> None:
    """Write the folder of an imported model, which appears whole or not at all.

    Args:
        model: that was imported.
        out: the new folder.
        dtype: of the model's weights on disk.
        card: gives the text of README.md for the folder, once all else is in it.

    Raises:
        ValueError: `out` is there, or for an unknown dtype.
        OSError: it cannot be written.
    """
    with new_folder(out) as folder:
        write_model_folder(
            folder,
            model.settings,
            model.weights,
            step=0,
            sampling=dataclasses.asdict(SAMPLING),
            dtype=dtype,
        )
        model.codec.save(folder)
        write_text_encoder(
            folder / TEXT_ENCODER, model.text_config, model.text_weights, model.tokenizer
        )
        if card is not None:
            with atomic_file(folder / "README.md") as file:
                file.write(card(folder).encode())


def _named(given: Path | None, path: Path, name: str, setting: str) -> Path:
    if given is not None:
        return given
    if not (path / name).exists():
        raise FileNotFoundError(f"{path / name}: no such file; pass {setting}=DIR, where it is")
    return path / name


def _read_t5(folder: Path, model: MusicGen) -> tuple[dict[str, Any], dict[str, Tensor]]:
    config = read_json(folder / "config.json")
    width = config.get("d_model")
    if config.get("model_type") != "t5" or width != model.text_dim:
        raise ValueError(
            f"{folder} is of type {config.get('model_type')} with d_model={width}; this model was "
            f"trained with a T5 of {model.text_dim}: t5-base has 768, t5-large 1024"
        )
    return config, encoder_weights(read_weights(folder))


def _tokenizer(folder: Path) -> Path:
    file = folder / "tokenizer.json"
    if not file.is_file():
        raise FileNotFoundError(
            f"{file}: no such file; put that of the T5 (google-t5/t5-base) there, or pass "
            f"text_encoder_path=DIR with a T5 that has one"
        )
    return file


def _check_codec(model: MusicGen, codec: EncodecCodec, where: Path) -> None:
    wanted, found = (
        (model.num_codebooks, model.codebook_size),
        (codec.num_codebooks, codec.codebook_size),
    )
    if wanted != found:
        raise ValueError(
            f"{where}: the model is of {wanted[0]} codebooks of {wanted[1]} codes, the codec has "
            f"{found[0]} of {found[1]}; pass codec_path=DIR, with the one that it was trained with"
        )


def _settings(
    model: MusicGen, codec: EncodecCodec, seconds: float, max_tokens: int, drop: float
) -> dict[str, Any]:
    if not seconds > 0 or max_tokens < 1:
        raise ValueError(f"context_seconds={seconds} and max_tokens={max_tokens} must be above 0")
    vocabulary = ConditionVocabulary(
        labels={},
        drop=float(drop),
        sequence="text",
        sequence_size=model.text_dim,
        max_sequence=max_tokens,
        text_encoder="t5",
    )
    return {
        "model": model.model_settings(),
        "pattern": model.pattern(),
        "context_frames": round(seconds * codec.frame_rate),
        "codec": codec.identity(),
        "conditioning": vocabulary.settings(),
    }


def _check_fits(settings: Mapping[str, Any], weights: dict[str, Tensor], where: Path) -> None:
    """Compare the weights with the model that the settings describe, which is not built for it."""
    vocabulary = ConditionVocabulary.from_settings(settings["conditioning"])
    model, _ = build_model(
        settings["model"],
        settings["pattern"],
        settings["codec"],
        settings["context_frames"],
        vocabulary,
        device="meta",
    )
    check_weights(model, weights, where)
