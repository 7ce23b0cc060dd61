"""RMSNorm against torch's own, values and gradients."""

import pytest
import torch
import torch.nn.functional as F

from audiolm.model.norm import RMSNorm


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", [(7,), (2, 5, 24), (1, 1, 2)])
def test_equals_torch_and_so_does_its_gradient(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    norm = RMSNorm(shape[-1]).to(dtype)
    with torch.no_grad():
        norm.weight.uniform_(0.5, 2)
    x = (5 * torch.randn(shape)).to(dtype).requires_grad_()
    wide = torch.float64  # what both round
    exact_x, exact_weight = (t.detach().to(wide).requires_grad_() for t in (x, norm.weight))
    direction = torch.randn(shape).to(dtype)
    y = norm(x)
    exact = F.rms_norm(exact_x, norm.normalized_shape, exact_weight, norm.eps)
    assert y.dtype == dtype
    found = torch.autograd.grad(y, (x, norm.weight), direction)
    expected = torch.autograd.grad(exact, (exact_x, exact_weight), direction.to(wide))
    tolerance = 8 * torch.finfo(dtype).eps
    for mine, true in zip((y, *found), (exact, *expected), strict=True):
        scale = true.abs().max().item()
        torch.testing.assert_close(mine.to(wide), true, rtol=0, atol=tolerance * scale)


def test_under_autocast_the_result_is_what_the_next_product_takes() -> None:
    norm = RMSNorm(16)
    x = torch.randn(3, 16, requires_grad=True)
    with torch.autocast("cpu", torch.bfloat16):
        y = norm(x)
    assert y.dtype == torch.bfloat16
    assert torch.equal(y, norm(x).bfloat16())
    y.float().sum().backward()
    assert x.grad is not None and x.grad.dtype == torch.float32
    assert norm.weight.grad is not None and norm.weight.grad.dtype == torch.float32


def test_its_state_is_that_of_torch() -> None:
    assert set(RMSNorm(4).state_dict()) == set(torch.nn.RMSNorm(4).state_dict()) == {"weight"}
