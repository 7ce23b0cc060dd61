"""Every option of the model by every engine: the model's own logits, or refused by name."""

import inspect
import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from audiolm.generation import generate
from audiolm.generation.engines import compiled
from audiolm.generation.engines.compiled import decode_step
from audiolm.generation.engines.engine import Engine, choose_engine
from audiolm.model import AudioLM, make_pattern
from audiolm.model.attention import KERNELS
from audiolm.model.conditioning import Conditioner, Conditions
from audiolm.model.feedforward import FEEDFORWARDS, GatedFeedForward
from audiolm.model.norm import NORMS, RMSNorm
from audiolm.model.transformer import POSITIONS

K, V, STEPS, D, BATCH = 2, 13, 9, 16, 3
CONDITIONERS: dict[str, dict[str, Any] | None] = {
    "none": None,
    "labels": {"label_sizes": [3, 2]},
    "vector": {"vector_size": 5},
    "text": {"num_characters": 4, "max_text_len": 6},
    "sequence": {"sequence_size": 5, "max_sequence_len": 7},
}
# The values of each argument that is an option. A new one must be written here, or no test passes.
OPTIONS: dict[str, tuple[Any, ...]] = {
    "positions": POSITIONS,
    "norm": tuple(NORMS),
    "feedforward": tuple(FEEDFORWARDS),
    "end_token": (False, True),
    "conditioner": tuple(CONDITIONERS),
    "kernel": tuple(KERNELS),
    "feedforward_dim": (None, 11),
    "gradient_checkpointing": (False, True),
    "dropout": (0.0, 0.5),
    "attn_dropout": (0.0, 0.5),
}
SIZES = {"num_codebooks", "codebook_size", "max_seq_len", "embed_dim", "num_layers", "num_heads"}
WALKED_TOGETHER = ("positions", "norm", "feedforward", "end_token", "conditioner")
ENGINES = ("eager", "native", "compiled")


@pytest.fixture(autouse=True)
def not_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """The compiled step as it is written: compiling takes minutes, and is tested elsewhere."""
    monkeypatch.setattr(compiled, "_compiled", lambda: decode_step)


def make(**options: Any) -> AudioLM:
    torch.manual_seed(0)
    settings = CONDITIONERS[options.pop("conditioner", "none")]
    conditioner = None if settings is None else Conditioner(D, num_heads=4, **settings)
    model = AudioLM(K, V, STEPS, D, 2, 4, conditioner=conditioner, **options).eval()
    with torch.no_grad():
        for weight in model.parameters():  # far from where training starts: all parts count
            weight.mul_(4) if weight.ndim >= 2 else weight.add_(torch.randn_like(weight) / 4)
    return model


def conditions_for(model: AudioLM) -> Conditions | None:
    """Of `BATCH` rows: some given, one shorter than the others, one null."""
    if model.conditioner is None:
        return None
    nan = float("nan")
    sequence, text = torch.randn(BATCH, 7, 5), torch.randint(2, 6, (BATCH, 7))
    text[:, 0] = 1
    sequence[1, 4:], text[1, 4:] = nan, 0
    sequence[2], text[2, 1:] = nan, 0
    vector = torch.randn(BATCH, 5)
    vector[2] = nan
    every = {
        "labels": torch.tensor([[1, 2], [3, 0], [0, 0]]),
        "vector": vector,
        "text": text,
        "sequence": sequence,
    }
    wanted = model.conditioner.nothing(1)
    return model.condition({name: every[name] for name in wanted})


def steps_for(model: AudioLM) -> Tensor:
    inputs = torch.randint(0, model.codebook_size, (BATCH, K, STEPS))
    inputs[:, :, 0] = model.special
    return inputs


def check(engine: str, model: AudioLM) -> None:
    """The engine's logits, step by step and behind a prefill, are the model's, or it is refused."""
    torch.manual_seed(1)
    with torch.inference_mode():
        inputs, given = steps_for(model), conditions_for(model)
        expected = model.extend(inputs, conditions=given)
        try:
            ready = Engine(engine, model, "float32", STEPS)
        except ValueError as error:
            assert f"engine={engine}" in str(error) and "pass engine=eager" in str(error)
            assert choose_engine("auto", model, None) != engine
            return
        for first in (1, 4):
            decoder = ready.decoder(BATCH, STEPS, False, given)
            found = [decoder.extend(inputs[:, :, :first])]
            found += [decoder.extend(inputs[:, :, s : s + 1]) for s in range(first, STEPS)]
            ours = torch.stack(found, dim=2)
            limit = 1e-5 * expected.abs().max().item()
            torch.testing.assert_close(ours, expected[:, :, first - 1 :], rtol=0, atol=limit)


def test_all_options_are_listed() -> None:
    arguments = set(inspect.signature(AudioLM.__init__).parameters) - {"self"}
    assert arguments == SIZES | set(OPTIONS)
    assert set(inspect.signature(Conditioner.__init__).parameters) - {"self"} == {
        *("embed_dim", "num_heads", "text_layers", "dropout"),
        *(name for settings in CONDITIONERS.values() for name in settings or ()),
    }


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("positions", OPTIONS["positions"])
def test_options_together(engine: str, positions: str) -> None:
    others = [name for name in WALKED_TOGETHER if name != "positions"]
    for values in itertools.product(*(OPTIONS[name] for name in others)):
        check(engine, make(positions=positions, **dict(zip(others, values, strict=True))))


@pytest.mark.parametrize("engine", ENGINES)
def test_options_alone(engine: str) -> None:
    for name in OPTIONS.keys() - set(WALKED_TOGETHER):
        for value in OPTIONS[name]:
            check(engine, make(conditioner="text", **{name: value}))


@pytest.mark.parametrize("name", OPTIONS)
def test_options_change_the_model(name: str) -> None:
    """Else the walk above would be over options that are not looked at."""
    if name in ("kernel", "gradient_checkpointing", "dropout", "attn_dropout"):
        pytest.skip("changes how it is computed, or its training")
    seen = []
    for value in OPTIONS[name]:
        model = make(**{name: value})
        torch.manual_seed(1)
        given, inputs = conditions_for(model), torch.randint(0, V, (BATCH, K, STEPS))
        seen.append(model.extend(inputs, conditions=given)[:, :, :, :V])
    for one, two in itertools.combinations(seen, 2):
        assert (one - two).abs().max() > 0.01 * one.abs().max()


class TanhGate(GatedFeedForward):
    def forward(self, x: Tensor) -> Tensor:
        gate, value = self.in_proj(x).chunk(2, dim=-1)
        return self.out_proj(gate.tanh() * value)


def other_norm(model: AudioLM) -> None:
    model.transformer.last_norm = nn.LayerNorm(D)


def other_eps(model: AudioLM) -> None:
    model.transformer.blocks[1].attention_norm = RMSNorm(D, eps=0.1)


def other_norm_class(model: AudioLM) -> None:
    model.transformer.last_norm = nn.RMSNorm(D)


def other_feedforward(model: AudioLM) -> None:
    model.transformer.blocks[0].feedforward = TanhGate(D, 11, 0.0)


def mixed_feedforward(model: AudioLM) -> None:
    model.transformer.blocks[1].feedforward = FEEDFORWARDS["gelu"](D, 64, 0.0)


def bias(model: AudioLM) -> None:
    model.transformer.blocks[0].attention.o_proj.bias = nn.Parameter(torch.ones(D))


def bias_of_heads(model: AudioLM) -> None:
    model.heads.bias = nn.Parameter(torch.randn(K * V))


def more_in_front(model: AudioLM) -> None:
    model.dropout = nn.Sequential(nn.Tanh())


def hook(model: AudioLM) -> None:
    model.transformer.blocks[0].register_forward_hook(lambda module, given, out: 2 * out)


def forward_of_its_own(model: AudioLM) -> None:
    model.transformer.last_norm.forward = lambda x: 2 * x  # type: ignore[method-assign]


@pytest.mark.parametrize("engine", ["native", "compiled"])
@pytest.mark.parametrize(
    "change",
    [
        other_norm,
        other_eps,
        other_norm_class,
        other_feedforward,
        mixed_feedforward,
        bias,
        bias_of_heads,
        more_in_front,
        hook,
        forward_of_its_own,
    ],
)
def test_what_an_engine_does_not_know_is_refused(
    engine: str, change: Callable[[AudioLM], None]
) -> None:
    model = make().eval()
    change(model)
    with pytest.raises(ValueError, match=f"engine={engine}.* pass engine=eager"):
        generate(model, make_pattern("delay", K), 3, 6, [0], engine=engine)
    assert choose_engine("auto", model, None) == "eager"
    check("eager", model)


def test_auto_on_a_gpu_does_not_choose_what_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    model = make()
    monkeypatch.setattr(
        torch.Tensor, "device", property(lambda self: torch.device("cuda")), raising=False
    )
    assert choose_engine("auto", model, None) == "compiled"
    bias(model)
    assert choose_engine("auto", model, None) == "eager"
