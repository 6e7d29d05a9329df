"""The Fisher matrix against its definition, and the products against the matrix."""

import pytest
import torch
from torch import nn
from torch.nn.functional import one_hot

from lpunits import MLP
from lpunits.optim import fisher as module
from lpunits.optim.fisher import LOSSES, Fisher

X = torch.randn(40, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def targets(loss: str, outputs: torch.Tensor) -> torch.Tensor:
    return torch.arange(len(X)) % 3 if loss == "softmax" else torch.rand_like(outputs)


def flat_gradient(value: torch.Tensor, model: nn.Module) -> torch.Tensor:
    grads = torch.autograd.grad(value, list(model.parameters()), retain_graph=True)
    return torch.cat([g.flatten() for g in grads])


def by_definition(loss: str, model: nn.Module) -> torch.Tensor:
    """The mean of J' H J, one row of J and one autograd Hessian at a time."""
    outputs = model(X)
    rows = [[flat_gradient(y, model) for y in sample] for sample in outputs]
    total = torch.zeros(2 * rows[0][0].shape, dtype=torch.float64)
    for y, j, t in zip(outputs.detach(), rows, targets(loss, outputs.detach()), strict=True):
        one = lambda y, t=t: LOSSES[loss].value(y[None], t[None])  # noqa: E731
        H = torch.autograd.functional.hessian(one, y)
        total += torch.stack(j).T @ H @ torch.stack(j)
    return total / len(X)  # the loss of one sample is already a mean over its outputs


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("activation", ["lp", "sigmoid"])
def test_dense_is_the_definition_and_products_are_the_matrix(loss, activation, monkeypatch):
    model = MLP(3, [4], 3, activation=activation, dtype=torch.float64)
    fisher = Fisher(model, LOSSES[loss], X)
    F = fisher.dense()
    torch.testing.assert_close(F, by_definition(loss, model), atol=1e-12, rtol=1e-10)
    v = torch.randn(5, len(F), dtype=torch.float64)
    products = torch.stack([fisher.product(row) for row in v])
    torch.testing.assert_close(products, v @ F, atol=1e-12, rtol=1e-10)
    monkeypatch.setattr(module, "HELD", 7 * len(F) * 3)  # chunks of seven samples
    torch.testing.assert_close(fisher.dense(), F, atol=1e-14, rtol=1e-12)


def test_it_is_the_expected_square_of_the_gradient_of_the_log_probability():
    model = MLP(3, [2], 3, dtype=torch.float64)
    F = torch.zeros(()).double()
    for y in model(X):
        log_p = y.log_softmax(-1)
        for c in range(3):
            g = flat_gradient(log_p[c], model)
            F = F + log_p[c].exp().detach() * torch.outer(g, g) / len(X)
    fisher = Fisher(model, LOSSES["softmax"], X)
    torch.testing.assert_close(fisher.dense(), F, atol=1e-12, rtol=1e-10)


def test_for_a_linear_model_it_is_the_hessian_of_the_loss():
    model = nn.Linear(3, 3, bias=False, dtype=torch.float64)
    t = targets("softmax", X)
    H = torch.autograd.functional.hessian(
        lambda w: LOSSES["softmax"].value(X @ w.reshape(3, 3).T, t), model.weight.detach().flatten()
    )
    F = Fisher(model, LOSSES["softmax"], X).dense()
    torch.testing.assert_close(F, H, atol=1e-12, rtol=1e-10)


def test_the_fisher_of_an_lp_net_is_singular():
    """Scaling a unit's filters and centres up, and its output weight down, changes nothing."""
    model = MLP(3, [4], 3, dtype=torch.float64)
    values = torch.linalg.eigvalsh(Fisher(model, LOSSES["softmax"], X).dense())
    assert (values < 1e-12 * values[-1]).sum() >= 4


def test_frozen_and_shared_parameters():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = self.b = nn.Linear(3, 3, dtype=torch.float64)
            self.c = nn.Linear(3, 2, dtype=torch.float64).requires_grad_(False)

        def forward(self, x):
            return self.c(self.b(self.a(x).tanh()))

    fisher = Fisher(Twice(), LOSSES["softmax"], X)
    F = fisher.dense()
    assert F.shape == (12, 12)
    v = torch.randn(12, dtype=torch.float64)
    torch.testing.assert_close(fisher.product(v), F @ v, atol=1e-12, rtol=1e-10)


def test_saturated_log_odds_keep_their_curvature():
    y = torch.tensor([40.0, -40.0], dtype=torch.float32)
    curvature = LOSSES["logistic"].curvature(y, torch.ones(2))
    torch.testing.assert_close(curvature, torch.exp(torch.tensor([-40.0, -40.0])))


def test_the_losses_are_those_of_torch():
    y = torch.randn(5, 3)
    t = torch.tensor([0, 1, 2, 0, 1])
    torch.testing.assert_close(
        LOSSES["softmax"].value(y, t), -(one_hot(t) * y.log_softmax(1)).sum(1).mean()
    )
    torch.testing.assert_close(LOSSES["squared"].value(y, y + 2), torch.tensor(2.0))
