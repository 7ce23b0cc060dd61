"""The from-scratch attention against the textbook, and its kernels against each other."""

import math

import pytest
import torch
from torch import Tensor, nn

from audiolm.model.attention import (
    KERNELS,
    CausalSelfAttention,
    MultiHeadAttention,
    SingleHeadAttention,
    blocked_attention,
    scaled_dot_product_attention,
)
from audiolm.model.cache import KeyValueCache
from audiolm.model.positions import (
    CosineSinePositions,
    LearnedPositions,
    RotaryPositions,
    SinusoidalPositions,
)


class Textbook(nn.Module):
    """Causal attention as the textbooks print it, with loops instead of reshapes."""

    def __init__(self, embed_dim: int, num_heads: int, max_seq_len: int, bias: bool) -> None:
        super().__init__()
        self.num_heads, self.head_dim = num_heads, embed_dim // num_heads
        self.qkv_proj = nn.Linear(embed_dim, 3 * embed_dim, bias=bias)
        self.o_proj = nn.Linear(embed_dim, embed_dim, bias=bias)
        mask = torch.triu(torch.ones(max_seq_len, max_seq_len), diagonal=1).bool()
        self.register_buffer("causal_mask", mask)

    def forward(self, x: Tensor) -> Tensor:
        qkv = self.qkv_proj(x)
        heads = []
        for h in range(self.num_heads):
            rows = qkv[..., h * 3 * self.head_dim : (h + 1) * 3 * self.head_dim]
            q, k, v = rows.split(self.head_dim, dim=-1)
            scores = q @ k.transpose(-1, -2) / math.sqrt(self.head_dim)
            steps = x.shape[1]
            scores[:, self.causal_mask[:steps, :steps]] = float("-inf")
            heads.append(torch.softmax(scores, dim=-1) @ v)
        return self.o_proj(torch.cat(heads, dim=-1))


@pytest.mark.parametrize("kernel", sorted(KERNELS))
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("steps", [1, 2, 13, 63, 64])
def test_equals_the_textbook_with_its_weights(kernel: str, bias: bool, steps: int) -> None:
    torch.manual_seed(steps)
    textbook = Textbook(48, 6, 64, bias)
    ours = CausalSelfAttention(48, 6, 64, bias=bias, kernel=kernel).eval()
    ours.load_state_dict(textbook.state_dict())  # its mask comes along, and is accepted
    x = torch.randn(3, steps, 48)
    torch.testing.assert_close(ours(x), textbook(x), rtol=0, atol=1e-6)


def test_the_mask_need_not_be_in_a_state_dict_and_is_as_promised() -> None:
    attention = CausalSelfAttention(8, 2, 5)
    assert set(attention.state_dict()) == {"qkv_proj.weight", "o_proj.weight"}
    assert attention.causal_mask.dtype == torch.bool
    rows, columns = torch.meshgrid(torch.arange(5), torch.arange(5), indexing="ij")
    assert torch.equal(attention.causal_mask, columns > rows)
    assert "causal_mask" in dict(attention.named_buffers())
    assert attention.attn_dropout.p == attention.resid_dropout.p == 0.1


def test_shape_of_a_usual_size() -> None:
    assert CausalSelfAttention(512, 8, 1024)(torch.randn(4, 50, 512)).shape == (4, 50, 512)


def test_too_long_is_an_error_that_names_both_numbers() -> None:
    attention = CausalSelfAttention(8, 2, 5)
    attention(torch.randn(1, 5, 8))
    with pytest.raises(ValueError, match=r"6 steps exceeds max_seq_len=5"):
        attention(torch.randn(1, 6, 8))
    cache = KeyValueCache.allocate(1, 2, 8, 4)
    attention(torch.randn(1, 4, 8), cache)
    with pytest.raises(ValueError, match=r"6 steps exceeds max_seq_len=5"):
        attention(torch.randn(1, 2, 8), cache)


@pytest.mark.parametrize("width, heads", [(10, 3), (8, 0), (4, 8)])
def test_heads_must_divide_the_width(width: int, heads: int) -> None:
    with pytest.raises(ValueError, match=f"embed_dim={width}.*num_heads={heads}"):
        CausalSelfAttention(width, heads, 16)


def test_unknown_kernel() -> None:
    with pytest.raises(ValueError, match="from_scratch"):
        CausalSelfAttention(8, 2, 5, kernel="fast")


@pytest.mark.parametrize("kernel", sorted(KERNELS))
@pytest.mark.parametrize("rotary", [False, True])
def test_no_step_sees_a_later_one(kernel: str, rotary: bool) -> None:
    positions = RotaryPositions(4, 16) if rotary else None
    attention = CausalSelfAttention(16, 4, 16, dropout=0.0, kernel=kernel, rotary=positions)
    x = torch.randn(1, 11, 16, requires_grad=True)
    output = attention(x)
    for step in range(11):
        (gradient,) = torch.autograd.grad(output[0, step].sum(), x, retain_graph=True)
        assert (gradient[0, step + 1 :] == 0).all()
        assert (gradient[0, : step + 1] != 0).any(dim=1).all()


@pytest.mark.parametrize("kernel", sorted(KERNELS))
@pytest.mark.parametrize("pieces", [[1] * 12, [5, 1, 1, 5], [12], [3, 9]])
def test_cached_equals_uncached(kernel: str, pieces: list[int]) -> None:
    rotary = RotaryPositions(4, 12)
    attention = CausalSelfAttention(16, 4, 12, kernel=kernel, rotary=rotary).eval()
    x = torch.randn(2, 12, 16)
    cache = KeyValueCache.allocate(2, 4, 12, 4)
    outputs = [attention(piece, cache) for piece in x.split(pieces, dim=1)]
    torch.testing.assert_close(torch.cat(outputs, dim=1), attention(x), rtol=0, atol=1e-6)


def test_kernels_have_the_same_gradients() -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 9, 16)
    gradients = []
    for kernel in KERNELS:
        torch.manual_seed(1)
        attention = CausalSelfAttention(16, 4, 16, dropout=0.0, kernel=kernel)
        attention(x).square().sum().backward()
        gradients.append(attention.qkv_proj.weight.grad)
    for gradient in gradients[1:]:
        torch.testing.assert_close(gradient, gradients[0], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("steps", [1, 2, 191, 192, 193, 577])
@pytest.mark.parametrize("shape", [(1, 1, 4), (2, 3, 10)])
def test_blocks_equal_the_whole(steps: int, shape: tuple[int, int, int]) -> None:
    batch, heads, width = shape
    torch.manual_seed(steps)
    # Not in one piece of memory, as heads split off a projection.
    qkv = torch.randn(batch, steps, heads, 3 * width, dtype=torch.float64, requires_grad=True)
    future = torch.ones(steps, steps, dtype=torch.bool).triu(1)
    direction = torch.randn(batch, heads, steps, width, dtype=torch.float64)
    results = []
    for kernel in ("blocked", "from_scratch"):
        q, k, v = qkv.transpose(1, 2).chunk(3, dim=-1)
        if kernel == "blocked":
            out = blocked_attention(q, k, v, is_causal=True)
        else:
            out = scaled_dot_product_attention(q, k, v, future)
        (gradient,) = torch.autograd.grad(out, qkv, direction)
        results.append((out, gradient))
    torch.testing.assert_close(results[0], results[1], rtol=0, atol=1e-12)


def test_a_second_derivative_is_refused_not_wrong() -> None:
    x = torch.randn(1, 3, 8, requires_grad=True)
    attention = CausalSelfAttention(8, 2, 3, dropout=0.0, kernel="blocked")
    (gradient,) = torch.autograd.grad(attention(x).square().sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        gradient.sum().backward()


def test_blocks_under_autocast_are_as_exact_as_the_whole() -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 200, 32)
    exact = CausalSelfAttention(32, 4, 200, dropout=0.0).double()
    errors = {}
    for kernel in ("from_scratch", "blocked"):
        rounded = CausalSelfAttention(32, 4, 200, dropout=0.0, kernel=kernel)
        rounded.load_state_dict(exact.state_dict())
        for module, inputs in ((exact, x.double()), (rounded, x)):
            module.zero_grad()
            enabled = module is rounded
            with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
                out = module(inputs)
            out.float().square().sum().backward()
        difference = rounded.qkv_proj.weight.grad - exact.qkv_proj.weight.grad
        errors[kernel] = (difference.norm() / exact.qkv_proj.weight.grad.norm()).item()
    assert errors["blocked"] < 1.2 * errors["from_scratch"] < 0.05


@pytest.mark.parametrize("kernel", sorted(KERNELS))
def test_dropout_works_in_training_only(kernel: str) -> None:
    attention = CausalSelfAttention(16, 4, 16, dropout=0.5, kernel=kernel)
    x = torch.randn(1, 9, 16)
    assert not torch.equal(attention(x), attention(x))
    attention.eval()
    assert torch.equal(attention(x), attention(x))


def test_many_heads_are_single_heads_side_by_side() -> None:
    many = MultiHeadAttention(12, 3, dropout=0.0)
    x = torch.randn(2, 7, 12)
    singles = []
    for h in range(3):
        single = SingleHeadAttention(12, 4)
        q, k, v = many.qkv_proj.weight[h * 12 : (h + 1) * 12].split(4)
        with torch.no_grad():
            for layer, weight in ((single.q_proj, q), (single.k_proj, k), (single.v_proj, v)):
                layer.weight.copy_(weight)
        singles.append(single(x))
    expected = many.o_proj(torch.cat(singles, dim=-1))
    torch.testing.assert_close(many(x), expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("kernel", sorted(KERNELS))
def test_every_kernel_can_be_causal_without_a_mask(kernel: str) -> None:
    q, k, v = torch.randn(3, 2, 3, 200, 8)
    future = torch.ones(200, 200, dtype=torch.bool).triu(1)
    expected = scaled_dot_product_attention(q, k, v, future)
    assert torch.allclose(KERNELS[kernel](q, k, v, is_causal=True), expected, atol=1e-5)


def test_without_a_mask_every_step_sees_every_other() -> None:
    many = MultiHeadAttention(12, 3, dropout=0.0)
    x = torch.randn(1, 5, 12, requires_grad=True)
    (gradient,) = torch.autograd.grad(many(x)[0, 0].sum(), x)
    assert (gradient[0] != 0).any(dim=1).all()
    hidden = torch.tensor([False, False, True, False, True])
    (gradient,) = torch.autograd.grad(many(x, hidden)[0, 0].sum(), x)
    assert (gradient[0, hidden] == 0).all() and (gradient[0, ~hidden] != 0).any(dim=1).all()


def test_attention_by_hand() -> None:
    q = torch.tensor([[2.0, 0.0]])
    k = torch.tensor([[math.sqrt(2) * math.log(3) / 2, 5.0], [0.0, 7.0]])
    v = torch.tensor([[4.0], [8.0]])
    # Scores ln 3 and 0, so weights 3/4 and 1/4.
    assert scaled_dot_product_attention(q, k, v).item() == pytest.approx(5.0, abs=1e-5)


def test_rotary_products_depend_on_the_distance_only() -> None:
    rotary = RotaryPositions(8, 100)
    q, k = torch.randn(1, 1, 1, 8), torch.randn(1, 1, 1, 8)
    near = [(rotary(q, i) * rotary(k, i + 3)).sum().item() for i in (0, 17, 90)]
    assert near == pytest.approx([near[0]] * 3, abs=1e-4)
    assert rotary(q, 40).norm().item() == pytest.approx(q.norm().item(), abs=1e-5)
    assert torch.equal(rotary(q, 0), q)


def test_rotary_wants_pairs() -> None:
    with pytest.raises(ValueError, match="even head width, not 3"):
        RotaryPositions(3, 10)


@pytest.mark.parametrize(
    ("kind", "width"),
    [
        *[(SinusoidalPositions, width) for width in (6, 7)],
        *[(LearnedPositions, width) for width in (6, 7)],
        *[(CosineSinePositions, width) for width in (4, 6)],
    ],
)
def test_added_positions_go_on_where_they_stopped(kind: type[nn.Module], width: int) -> None:
    positions = kind(width, 10)
    x = torch.zeros(2, 10, width)
    whole = positions(x)
    assert torch.equal(torch.cat([positions(x[:, :4]), positions(x[:, 4:], 4)], dim=1), whole)
    assert len(whole[0].unique(dim=0)) == 10


def test_cosine_sine_positions_are_the_formula() -> None:
    added = CosineSinePositions(6, 50)(torch.zeros(1, 50, 6))[0]
    for position in (0, 1, 7, 49):
        angles = [position * 10_000 ** (-i / 2) for i in range(3)]
        expected = [*map(math.cos, angles), *map(math.sin, angles)]
        assert added[position].tolist() == pytest.approx(expected, abs=1e-5)
    for width in (2, 7):
        with pytest.raises(ValueError, match=f"even width of at least 4, not {width}"):
            CosineSinePositions(width, 50)
