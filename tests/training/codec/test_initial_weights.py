from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from audiolm.codec import save_local
from audiolm.training.codec.initial_weights import load_initial_weights
from audiolm.training.codec.module import CODEC_FORMAT, CodecTraining
from audiolm.training.codec.quantizer import initialise_codebooks

from ...conftest import TINY


def module(seed: int, **settings: Any) -> CodecTraining:
    return CodecTraining(
        settings=TINY | settings,
        losses={},
        quantization={},
        adversarial={},
        optim={"lr": 1e-3},
        seed=seed,
    )


@pytest.fixture
def trained() -> CodecTraining:
    made = module(seed=1)
    latents = torch.randn(200, TINY["dimension"], generator=torch.Generator().manual_seed(0))
    initialise_codebooks(made.model.quantizer, latents, seed=0)
    return made


def write(trained: CodecTraining, folder: Path) -> dict[str, Path]:
    """A run's folder, a checkpoint, a codec's folder."""
    run = folder / "run"
    (run / "checkpoints").mkdir(parents=True)
    checkpoint = {
        "audiolm_codec_format": CODEC_FORMAT,
        "hyper_parameters": dict(trained.hparams),
        "state_dict": trained.state_dict(),
    }
    torch.save(checkpoint, run / "checkpoints" / "last.ckpt")
    weights = {k.removeprefix("model."): v for k, v in trained.model.state_dict().items()}
    save_local(trained.settings, weights, folder / "codec" / "codec")
    return {"run": run, "file": run / "checkpoints" / "last.ckpt", "codec": folder / "codec"}


@pytest.mark.parametrize("source", ["run", "file", "codec"])
def test_all_is_taken_that_is_there(source: str, trained: CodecTraining, tmp_path: Path) -> None:
    path = write(trained, tmp_path)[source]
    begun = module(seed=2)
    said = load_initial_weights(begun, path)
    assert ("spectral head" in said) == (source != "codec")
    assert begun.begins_with_weights and begun.quantizes
    averages = (".cluster_size", ".embed_avg")
    for name, weight in trained.state_dict().items():
        if name.startswith("model.") and not name.endswith(averages):
            assert torch.equal(begun.state_dict()[name], weight), name
    head = torch.equal(begun.spectral_head.linear.weight, trained.spectral_head.linear.weight)
    assert head == (source != "codec")


def test_codes_of_a_file_move_from_where_they_are(trained: CodecTraining, tmp_path: Path) -> None:
    begun = module(seed=2)
    load_initial_weights(begun, write(trained, tmp_path)["codec"])
    codebook = begun.model.quantizer.vq.layers[0]._codebook
    assert torch.equal(codebook.embed_avg / codebook.cluster_size[:, None], codebook.embed)


@pytest.mark.parametrize("source", ["file", "codec"])
@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"n_filters": 8}, ["n_filters=4", "has 8", "pass codec_model.n_filters=4"]),
        ({"bins": 64}, ["bins=32", "pass"]),
        ({"decoder_filters": 6}, ["multiple"]),
    ],
)
def test_other_settings_are_refused(
    settings: dict[str, int], words: list[str], source: str, trained: CodecTraining, tmp_path: Path
) -> None:
    path = write(trained, tmp_path)[source]
    with pytest.raises(ValueError) as error:
        load_initial_weights(module(seed=2, **settings), path)
    assert all(word in str(error.value) for word in [f"init_from={path}", *words])


def test_what_is_no_codec_is_refused(tmp_path: Path) -> None:
    torch.save({"state_dict": {}}, tmp_path / "other.ckpt")
    with pytest.raises(ValueError, match="no checkpoint of a codec"):
        load_initial_weights(module(seed=2), tmp_path / "other.ckpt")
    with pytest.raises(OSError):
        load_initial_weights(module(seed=2), tmp_path / "nowhere")
