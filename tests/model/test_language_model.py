"""The model and its loss: nothing from the future, cached = uncached, known losses."""

import math

import pytest
import torch
import torch.nn.functional as F

from audiolm.model import PATTERNS, AudioLM, count_parameters, interleave, make_pattern
from audiolm.model.loss import bits_per_second, codebook_nats, mean_nats, scored_cells
from audiolm.model.patterns import num_steps, occupied_cells
from audiolm.model.transformer import POSITIONS

K, V, T = 3, 17, 8


def make_model(pattern: str, **overrides: object) -> AudioLM:
    torch.manual_seed(0)
    steps = num_steps(make_pattern(pattern, K).positions(T))
    settings = {"embed_dim": 24, "num_layers": 2, "num_heads": 4} | overrides
    model = AudioLM(K, V, steps, **settings).eval()
    with torch.no_grad():
        for weight in model.parameters():
            if weight.ndim >= 2:  # away from the near-uniform start, so that errors show
                weight.mul_(8)
    return model


def random_steps(pattern: str, batch: int = 2) -> torch.Tensor:
    codes = torch.randint(0, V, (batch, K, T), generator=torch.Generator().manual_seed(1))
    return interleave(codes, make_pattern(pattern, K).positions(T), special=V)


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("kernel", ["from_scratch", "fused", "blocked"])
@pytest.mark.parametrize("positions", POSITIONS)
def test_nothing_from_the_future(pattern: str, kernel: str, positions: str) -> None:
    model = make_model(pattern, kernel=kernel, positions=positions)
    steps = random_steps(pattern, batch=1)
    embedded: list[torch.Tensor] = []

    def keep(module: object, inputs: object, output: torch.Tensor) -> torch.Tensor:
        output = output.detach().requires_grad_()
        embedded.append(output)
        return output

    model.embedding.register_forward_hook(keep)
    logits = model(steps)
    assert logits.shape == (1, K, steps.shape[2], V)
    for s in range(steps.shape[2]):
        (gradient,) = torch.autograd.grad(logits[0, :, s].sum(), embedded[0], retain_graph=True)
        # Input s is the content of step s - 1, so inputs after s hold step s and later ones.
        assert (gradient[0, :, s + 1 :] == 0).all()
        assert (gradient[0, :, : s + 1] != 0).any(dim=-1).all()


@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_changed_code_changes_no_earlier_logit(pattern: str) -> None:
    model = make_model(pattern)
    steps = random_steps(pattern)
    logits = model(steps)
    for s in range(steps.shape[2]):
        changed = steps.clone()
        changed[:, :, s] = (changed[:, :, s] + 1) % V
        assert torch.equal(model(changed)[:, :, : s + 1], logits[:, :, : s + 1])


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize("prompt", [1, 2, 5])
def test_cached_equals_uncached(pattern: str, positions: str, prompt: int) -> None:
    model = make_model(pattern, positions=positions)
    steps = random_steps(pattern)
    inputs = torch.cat([torch.full_like(steps[:, :, :1], V), steps[:, :, :-1]], dim=2)
    caches = model.make_caches(2)
    pieces = [inputs[:, :, :prompt], *inputs[:, :, prompt:].split(1, dim=2)]
    cached = torch.cat([model.extend(piece, caches) for piece in pieces], dim=2)
    torch.testing.assert_close(cached, model(steps), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("size", [16, 256, 1024])
def test_random_weights_start_at_the_uniform_loss(size: int) -> None:
    torch.manual_seed(0)
    model = AudioLM(4, size, 40, embed_dim=64, num_layers=2, num_heads=4)
    codes = torch.randint(0, size, (4, 4, 30))
    positions = make_pattern("delay", 4).positions(30)
    steps = interleave(codes, positions, size)
    mask = scored_cells(positions, torch.tensor([30] * 4), 30)
    loss = mean_nats(*codebook_nats(model(steps), steps, mask)).item()
    assert loss == pytest.approx(math.log(size), rel=0.02)


@pytest.mark.parametrize("pattern", PATTERNS)
def test_loss_against_brute_force(pattern: str) -> None:
    model = make_model(pattern)
    positions = make_pattern(pattern, K).positions(T)
    codes = torch.randint(0, V, (3, K, T))
    lengths = torch.tensor([T, 1, 5])
    mask = scored_cells(positions, lengths, T)
    steps = interleave(codes, positions, V).masked_fill(~mask, V)
    logits = model(steps)
    nats, counts = codebook_nats(logits, steps, mask)
    for k in range(K):
        expected, count = 0.0, 0
        for b in range(3):
            for t in range(int(lengths[b])):
                row = logits[b, k, positions[k, t]].log_softmax(-1)
                expected -= row[codes[b, k, t]].item()
                count += 1
        assert counts[k] == count
        assert nats[k].item() == pytest.approx(expected, rel=1e-5)
    per_frame = sum((nats[k] / counts[k]).item() for k in range(K))
    assert bits_per_second(nats, counts[0], 50.0).item() == pytest.approx(
        50 * per_frame / math.log(2), rel=1e-5
    )
    assert mean_nats(nats, counts).item() == pytest.approx(
        nats.sum().item() / counts.sum().item(), rel=1e-6
    )


@pytest.mark.parametrize("pattern", PATTERNS)
def test_padding_carries_no_loss_and_no_gradient(pattern: str) -> None:
    model = make_model(pattern)
    positions = make_pattern(pattern, K).positions(T)
    lengths = torch.tensor([3, 6])
    mask = scored_cells(positions, lengths, T)
    losses, gradients = [], []
    for filling in (0, 5):
        codes = torch.randint(0, V, (2, K, T), generator=torch.Generator().manual_seed(2))
        for b, n in enumerate(lengths):
            codes[b, :, n:] = filling
        steps = interleave(codes, positions, V).masked_fill(~mask, V)
        model.zero_grad()
        loss = mean_nats(*codebook_nats(model(steps), steps, mask))
        loss.backward()
        losses.append(loss.item())
        gradients.append(model.heads.weight.grad.clone())
    assert losses[0] == losses[1] and torch.equal(*gradients)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("chunk", [V, 5 * V, 2**19])
def test_the_loss_and_its_gradient_are_those_of_torch(
    dtype: torch.dtype, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("audiolm.model.loss.CHUNK", chunk)
    torch.manual_seed(0)
    logits = (3 * torch.randn(2, K, T, V)).to(dtype).requires_grad_()
    steps = torch.randint(0, V, (2, K, T))
    mask = torch.rand(2, K, T) < 0.7
    steps = steps.masked_fill(~mask, V)  # the special id, which has no logit
    weights = torch.rand(K)
    nats, counts = codebook_nats(logits, steps, mask)
    (gradient,) = torch.autograd.grad((nats * weights).sum(), logits)
    expected = torch.stack(
        [
            F.cross_entropy(logits[:, k][mask[:, k]].float(), steps[:, k][mask[:, k]])
            * mask[:, k].sum()
            for k in range(K)
        ]
    )
    (expected_gradient,) = torch.autograd.grad((expected * weights).sum(), logits)
    torch.testing.assert_close(nats, expected, rtol=1e-5, atol=1e-5)
    assert torch.equal(counts, mask.sum(dim=(0, 2)))
    # Rounded to the type of the logits twice rather than once.
    tolerance = 2 * torch.finfo(dtype).eps if dtype == torch.bfloat16 else 1e-6
    torch.testing.assert_close(gradient, expected_gradient, rtol=tolerance, atol=tolerance)


def test_checkpointing_changes_no_gradient() -> None:
    steps = random_steps("delay")
    gradients = []
    for checkpointing in (False, True):
        model = make_model("delay", gradient_checkpointing=checkpointing, dropout=0.2).train()
        torch.manual_seed(3)
        logits = model(steps)
        logits.square().sum().backward()
        gradients.append([p.grad for p in model.parameters()])
    for without, with_it in zip(*gradients, strict=True):
        assert torch.equal(without, with_it)


def test_checkpointing_keeps_less() -> None:
    kept = {}
    for checkpointing in (False, True):
        model = make_model("delay", gradient_checkpointing=checkpointing)
        sizes: list[int] = []

        def pack(tensor: torch.Tensor, sizes: list[int] = sizes) -> torch.Tensor:
            sizes.append(tensor.numel())
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            model(random_steps("delay"))
        kept[checkpointing] = sum(sizes)
    assert kept[True] < kept[False] / 2


def test_special_cells_are_never_scored() -> None:
    for pattern in PATTERNS:
        positions = make_pattern(pattern, K).positions(T)
        full = scored_cells(positions, torch.tensor([T]), T)[0]
        assert torch.equal(full, occupied_cells(positions))


@pytest.mark.parametrize("pattern", PATTERNS)
def test_one_batch_is_learnt_to_near_zero(pattern: str) -> None:
    torch.manual_seed(0)
    positions = make_pattern(pattern, K).positions(T)
    model = AudioLM(K, V, num_steps(positions), embed_dim=48, num_layers=2, num_heads=4)
    # The first codes of a clip come from nothing, so the clips start alike.
    codes = torch.randint(0, V, (4, K, T))
    codes[:, :, :2] = codes[:1, :, :2]
    codes[1:] = codes[:1]
    steps = interleave(codes, positions, V)
    mask = scored_cells(positions, torch.tensor([T] * 4), T)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for _ in range(150):
        loss = mean_nats(*codebook_nats(model(steps), steps, mask))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert loss.item() < 0.05


def test_shared_tables_are_k_embeddings_and_k_heads() -> None:
    model = make_model("delay")
    inputs = torch.randint(0, V + 1, (2, K, 5))
    rows = model.embedding.weight.view(K, V + 1, -1)
    summed = sum(rows[k][inputs[:, k]] for k in range(K))
    x = model.transformer(summed)
    heads = model.heads.weight.view(K, V, -1)
    expected = torch.stack([x @ heads[k].T for k in range(K)], dim=1)
    torch.testing.assert_close(model.extend(inputs), expected, rtol=1e-5, atol=1e-5)
    assert count_parameters(model) == sum(p.numel() for p in model.parameters())


@pytest.mark.parametrize("positions", POSITIONS)
def test_too_long_a_sequence_is_refused(positions: str) -> None:
    model = make_model("parallel", positions=positions)
    with pytest.raises(ValueError, match=f"{T + 1} steps exceeds max_seq_len={T}"):
        model(torch.zeros(1, K, T + 1, dtype=torch.long))


def test_bad_settings() -> None:
    with pytest.raises(ValueError, match=r"feedforward_dim=1\.5"):
        make_model("delay", feedforward_dim=1.5)
    with pytest.raises(ValueError, match=r"embed_dim=24 .* num_heads=5"):
        make_model("delay", num_heads=5)
    with pytest.raises(ValueError, match="positions='absolute'"):
        make_model("delay", positions="absolute")
