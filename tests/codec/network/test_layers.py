from __future__ import annotations

import torch
from torch import nn

from audiolm.codec import build_model
from audiolm.codec.network.layers import FastELU, use_fast_elu

from ...conftest import TINY


def test_values_and_gradients_are_those_of_torch() -> None:
    edges = torch.tensor([-100.0, -20, -1, -1e-4, -1e-8, 0, 1e-8, 1e-4, 1, 20, 1e4])
    x = torch.cat([edges, torch.randn(1000, generator=torch.Generator().manual_seed(0)) * 3])
    ours, theirs = (x.clone().requires_grad_() for _ in range(2))
    y, z = FastELU()(ours), nn.ELU()(theirs)
    torch.testing.assert_close(y, z, atol=1e-6, rtol=1e-6)
    weights = torch.randn(len(x), generator=torch.Generator().manual_seed(1))
    (y * weights).sum().backward()
    (z * weights).sum().backward()
    torch.testing.assert_close(ours.grad, theirs.grad, atol=1e-5, rtol=1e-5)


def test_the_derivative_is_right_by_differences_and_the_input_untouched() -> None:
    x = torch.tensor([-3.0, -0.5, 0.25, 2.0], dtype=torch.float64, requires_grad=True)
    before = x.detach().clone()
    assert torch.autograd.gradcheck(FastELU(), (x,))
    assert torch.equal(x.detach(), before)


def test_nan_is_not_hidden() -> None:
    assert bool(FastELU()(torch.tensor([float("nan")])).isnan().all())


def test_all_of_a_codec_are_replaced_and_its_state_stays() -> None:
    model = build_model(TINY)
    names = list(model.state_dict())
    count = sum(isinstance(m, nn.ELU) for m in model.modules())
    use_fast_elu(model)
    kinds = [type(m) for m in model.modules()]
    assert kinds.count(FastELU) == count > 0 and nn.ELU not in kinds
    assert list(model.state_dict()) == names
