"""An imported MusicGen is the one of transformers: logits, guidance, greedy codes, loss."""

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from audiolm.generation import Sampling, generate
from audiolm.generation.engines import compiled
from audiolm.generation.engines.compiled import decode_step
from audiolm.generation.engines.engine import Engine
from audiolm.importing import import_model, write_imported
from audiolm.model.attention import KERNELS
from audiolm.model.checkpoint import TrainedModel, build_model, load_checkpoint, load_weights
from audiolm.model.condition_vocabulary import ConditionVocabulary
from audiolm.model.conditioning import null_conditions
from audiolm.model.language_model import AudioLM, shift_right
from audiolm.model.likelihood import predict
from audiolm.model.patterns import interleave, make_pattern
from audiolm.run_folder import find_checkpoint
from audiolm.text_encoder import TextEncoder

from .conftest import CODES, SAVE, hf_musicgen

TEXTS = ["calm piano", "loud drums and a piano"]  # of unlike lengths
FRAMES = 9


@pytest.fixture(scope="module")
def theirs() -> dict[bool, Any]:
    """By whether it is stereo."""
    return {stereo: hf_musicgen(stereo) for stereo in (False, True)}


@pytest.fixture(scope="module")
def folders(theirs: dict[bool, Any], tmp_path_factory: pytest.TempPathFactory) -> dict[Any, Path]:
    """Imported models, by format and whether they are stereo."""
    made = {}
    for kind, save in SAVE.items():
        for stereo, model in theirs.items():
            folder = tmp_path_factory.mktemp("imported") / "from"
            imported = import_model(save(model, folder), context_seconds=0.2, max_tokens=8)
            write_imported(imported, folder.parent / "to")
            made[kind, stereo] = folder.parent / "to"
    return made


@pytest.fixture(params=[False, True], ids=["mono", "stereo"])
def stereo(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture(params=SAVE)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def load(folder: Path) -> TrainedModel:
    return load_checkpoint(find_checkpoint(folder))


def with_kernel(folder: Path, kernel: str) -> AudioLM:
    trained = load(folder)
    from audiolm.model.checkpoint import read_checkpoint, weights_to_use

    checkpoint = read_checkpoint(find_checkpoint(folder))
    settings = checkpoint["hyper_parameters"]
    model, _ = build_model(
        {**settings["model"], "kernel": kernel},
        settings["pattern"],
        settings["codec"],
        settings["context_frames"],
        trained.vocabulary,
    )
    load_weights(model, weights_to_use(checkpoint), folder)
    return model.eval().requires_grad_(False)


def states_of(model: Any, folder: Path) -> list[Tensor]:
    """Of each text, by transformers' own T5."""
    encoder = TextEncoder(folder / "text_encoder")
    encoder("calm")
    tokenizer = encoder._loaded[1]
    ids = [torch.tensor([tokenizer.encode(text).ids]) for text in TEXTS]
    return [model.text_encoder(i).last_hidden_state[0].detach() for i in ids]


def padded(states: list[Tensor]) -> dict[str, Tensor]:
    nan = float("nan")
    rows = torch.nn.utils.rnn.pad_sequence(states, batch_first=True, padding_value=nan)
    return {"sequence": rows}


def steps_of(stereo: bool, model: AudioLM, batch: int = 2) -> Tensor:
    torch.manual_seed(1)
    pattern = make_pattern([k // 2 for k in range(8)] if stereo else "delay", 8 if stereo else 4)
    codes = torch.randint(CODES, (batch, pattern.num_codebooks, FRAMES))
    return interleave(codes, pattern.positions(FRAMES), model.special)


@torch.inference_mode()
def their_logits(model: Any, inputs: Tensor, states: list[Tensor] | None) -> Tensor:
    """(B, K, S, V) after inputs (B, K, S), whose first are special."""
    given: dict[str, Any] = {}
    if states is not None:
        from transformers.modeling_outputs import BaseModelOutput

        rows = torch.nn.utils.rnn.pad_sequence(states, batch_first=True)
        mask = torch.stack([torch.arange(rows.shape[1]) < len(s) for s in states]).long()
        given = {"encoder_outputs": BaseModelOutput(rows), "attention_mask": mask}
    else:
        uncond = model.get_unconditional_inputs(len(inputs))
        given = {
            "encoder_outputs": uncond.encoder_outputs,
            "attention_mask": uncond.attention_mask,
        }
        first = given["encoder_outputs"][0].to(next(model.parameters()).dtype)
        from transformers.modeling_outputs import BaseModelOutput

        given["encoder_outputs"] = BaseModelOutput(first)
    out = model(decoder_input_ids=inputs.flatten(0, 1), use_cache=False, **given).logits
    return out.view(*inputs.shape, -1)


def test_the_folder_says_what_it_is(folders: dict[Any, Path], kind: str, stereo: bool) -> None:
    trained = load(folders[kind, stereo])
    assert trained.codec["channels"] == 1 + stereo
    assert trained.model.num_codebooks == (8 if stereo else 4)
    assert trained.pattern == make_pattern(
        [0, 0, 1, 1, 2, 2, 3, 3] if stereo else "delay", trained.model.num_codebooks
    )
    assert trained.context_frames == 40
    assert trained.vocabulary is not None and trained.vocabulary.columns == ["text"]


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize(("dtype", "limit"), [(torch.float32, 1e-5), (torch.float64, 1e-10)])
def test_logits_by_every_kernel(
    theirs: dict[bool, Any],
    folders: dict[Any, Path],
    kind: str,
    stereo: bool,
    kernel: str,
    dtype: torch.dtype,
    limit: float,
) -> None:
    model, their = with_kernel(folders[kind, stereo], kernel).to(dtype), theirs[stereo].to(dtype)
    states = states_of(their, folders[kind, stereo])
    inputs = shift_right(steps_of(stereo, model), model.special)
    for given, conditions in (
        (states, padded(states)),
        (None, null_conditions(padded(states))),
    ):
        expected = their_logits(their, inputs, given)
        read = model.condition(conditions)
        found = model.extend(inputs, conditions=read)
        torch.testing.assert_close(found, expected, rtol=0, atol=limit)
        # A padded batch is its rows alone.
        if given is not None:
            for b, own in enumerate(states):
                alone = model.extend(inputs[b : b + 1], conditions=model.condition(padded([own])))
                torch.testing.assert_close(alone[0], expected[b], rtol=0, atol=limit)
        # Step by step with a cache.
        caches = model.make_caches(len(inputs))
        steps = [model.extend(inputs[:, :, s : s + 1], caches, read) for s in range(FRAMES)]
        torch.testing.assert_close(
            torch.cat(steps, dim=2), expected[:, :, :FRAMES], rtol=0, atol=limit
        )
    theirs[stereo].float()


@pytest.mark.parametrize("engine", ["eager", "native", "compiled"])
def test_logits_by_every_engine(
    theirs: dict[bool, Any],
    folders: dict[Any, Path],
    stereo: bool,
    engine: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(compiled, "_compiled", lambda: decode_step)
    folder = folders["transformers", stereo]
    model = load(folder).model
    states = states_of(theirs[stereo], folder)
    inputs = shift_right(steps_of(stereo, model), model.special)
    expected = their_logits(theirs[stereo], inputs, states)
    with torch.inference_mode():
        read = model.condition(padded(states))
        decoder = Engine(engine, model, "float32", FRAMES).decoder(2, FRAMES, False, read)
        found = [decoder.extend(inputs[:, :, s : s + 1]) for s in range(FRAMES)]
    torch.testing.assert_close(
        torch.stack(found, dim=2), expected[:, :, :FRAMES], rtol=0, atol=1e-5
    )


@pytest.mark.parametrize("change", ["tanh", "eps"])
def test_the_tolerance_sees_small_mistakes(
    theirs: dict[bool, Any],
    folders: dict[Any, Path],
    change: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = load(folders["transformers", False]).model
    states = states_of(theirs[False], folders["transformers", False])
    inputs = shift_right(steps_of(False, model), model.special)
    expected = their_logits(theirs[False], inputs, states)
    if change == "tanh":
        plain = F.gelu
        monkeypatch.setattr(F, "gelu", lambda x: plain(x, approximate="tanh"))
    else:
        for module in model.modules():
            if isinstance(module, torch.nn.LayerNorm):
                module.eps = 1e-6
    found = model.extend(inputs, conditions=model.condition(padded(states)))
    assert (found - expected).abs().max() > 2e-5


@pytest.mark.parametrize("guidance", [1.0, 3.0])
@pytest.mark.parametrize("engine", ["eager", "native"])
def test_greedy_codes_are_those_of_generate(
    theirs: dict[bool, Any],
    folders: dict[Any, Path],
    stereo: bool,
    guidance: float,
    engine: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    their, folder = theirs[stereo], folders["transformers", stereo]
    trained = load(folder)
    encoder = TextEncoder(folder / "text_encoder")
    encoder("calm")
    ids = [torch.tensor(encoder._loaded[1].encode(text).ids) for text in TEXTS]
    rows = torch.nn.utils.rnn.pad_sequence(ids, batch_first=True)
    mask = torch.stack([torch.arange(rows.shape[1]) < len(i) for i in ids]).long()
    decoded: list[Tensor] = []
    decode = their.audio_encoder.decode

    def recorded(audio_codes: Tensor, *args: Any, **named: Any) -> Any:
        decoded.append(audio_codes[0])
        return decode(audio_codes, *args, **named)

    monkeypatch.setattr(their.audio_encoder, "decode", recorded)
    their.generate(
        input_ids=rows,
        attention_mask=mask,
        do_sample=False,
        guidance_scale=guidance,
        max_new_tokens=FRAMES + 4 - 1,
        decoder_start_token_id=CODES,
        num_return_sequences=1,
        num_beams=1,
    )
    if stereo:
        left, right = decoded
        expected = torch.stack([left, right], dim=2).flatten(1, 2)
    else:
        (expected,) = decoded
    assert trained.vocabulary is not None
    found = generate(
        trained.model,
        trained.pattern,
        expected.shape[2],
        trained.context_frames,
        [0, 1],
        sampling=Sampling(greedy=True, guidance=guidance),
        conditions=trained.vocabulary.encode([{"text": encoder(text)} for text in TEXTS]),
        engine=engine,
    )
    assert expected.shape[2] >= FRAMES
    assert torch.equal(found, expected)


def test_training_starts_at_their_loss(
    theirs: dict[bool, Any], folders: dict[Any, Path], stereo: bool
) -> None:
    folder = folders["transformers", stereo]
    trained = load(folder)
    model, pattern = trained.model.requires_grad_(True), trained.pattern
    torch.manual_seed(2)
    codes = torch.randint(CODES, (2, model.num_codebooks, FRAMES))
    states = states_of(theirs[stereo], folder)
    lengths = torch.tensor([FRAMES, FRAMES])
    prediction = predict(
        model,
        pattern,
        trained.context_frames,
        codes,
        lengths,
        torch.zeros(2, dtype=torch.bool),
        padded(states),
    )
    nats, counts = prediction.nats()
    rows = torch.nn.utils.rnn.pad_sequence(states, batch_first=True)
    mask = torch.stack([torch.arange(rows.shape[1]) < len(s) for s in states]).long()
    from transformers.modeling_outputs import BaseModelOutput

    labels = prediction.steps.transpose(1, 2).masked_fill(~prediction.mask.transpose(1, 2), CODES)
    their = theirs[stereo](
        labels=labels,
        decoder_input_ids=shift_right(prediction.steps, CODES).flatten(0, 1),
        encoder_outputs=BaseModelOutput(rows),
        attention_mask=mask,
        use_cache=False,
    )
    assert float(nats.sum() / counts.sum()) == pytest.approx(float(their.loss), abs=1e-5)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    (nats.sum() / counts.sum()).backward()
    assert all(p.grad is not None and bool(p.grad.any()) for p in model.parameters())
    optimizer.step()


def test_a_vocabulary_of_a_sequence() -> None:
    vocabulary = ConditionVocabulary({}, sequence="text", sequence_size=2, max_sequence=3)
    encoded = vocabulary.encode([{"text": [[1, 2], [3, 4]]}, {}])["sequence"]
    assert encoded[0].tolist() == [[1, 2], [3, 4]] and bool(encoded[1].isnan().all())
    for wrong, message in (
        ([[1, 2]] * 4, "has 4 vectors, this model looks at 3 at most"),
        ([[1, 2, 3]], "vectors of 3 numbers, this model wants 2"),
        ([[1, float("nan")]], "not a sequence of finite vectors"),
        ("loud", "not a sequence of finite vectors"),
        ([], "not a sequence of finite vectors"),
    ):
        with pytest.raises(ValueError, match=message):
            vocabulary.encode([{"text": wrong}])
