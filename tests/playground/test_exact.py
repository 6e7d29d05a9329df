"""The JavaScript of the playground against the library, in double precision."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy

from lpunits import MLP, geometry, lp_pool, param_groups
from lpunits.optim import NaturalConjugateGradient
from lpunits.paper import data as datasets

KINDS = ("lp", "l2", "maxout", "relu", "sigmoid")
GROUPED = ("lp", "l2", "maxout")
GROUPS = [
    [0.0, 0.0],
    [0.0, 3.0],
    [-2.0, 2.0],
    [1.0, 1.0, 1.0],
    [1.0, -1.0, 0.5],
    [0.3, -1.7],
    [1e-30, 2e30],
    [1e-200, -3e-200],
    [1.0, 1.0 - 1e-12],
    [5.0],
    [0.1, -0.2, 0.3, -0.4],
    [1e-310, 1.0],
]
ORDERS = [1.0, 1.0 + 1e-9, 1.1, 1.5, 2.0, 3.0, 7.3, 40.0, 1e4, math.inf]


def close(found: Any, expected: Any, tolerance: float = 1e-9) -> None:
    """Agreement to 1e-9 of the largest value, or of 1 where all are smaller."""
    a, b = (np.asarray(torch.as_tensor(x, dtype=torch.float64)).ravel() for x in (found, expected))
    assert a.shape == b.shape
    assert np.isfinite(b[np.isfinite(a)]).all()
    scale = max(1.0, np.abs(b[np.isfinite(b)]).max(initial=0.0))
    np.testing.assert_allclose(a, b, rtol=0, atol=tolerance * scale)


@pytest.mark.parametrize("p", ORDERS)
def test_the_unit_and_its_slopes(javascript, p):
    script = """
    const { pool } = use("unit");
    return given.groups.map((group) => {
      const slopes = new Float64Array(group.length + 1);
      const u = pool(Float64Array.from(group), 0, group.length, given.p, slopes, group.length);
      return { u, slopes };
    });
    """
    for group, found in zip(GROUPS, javascript(script, groups=GROUPS, p=p), strict=True):
        z = torch.tensor(group, dtype=torch.float64, requires_grad=True)
        order = torch.tensor(p, dtype=torch.float64, requires_grad=True)
        u = lp_pool(z, order)
        dz, dp = torch.autograd.grad(u, (z, order))
        assert found["u"] == pytest.approx(u.item(), rel=1e-12)
        close(found["slopes"][:-1], dz)
        assert found["slopes"][-1] == pytest.approx(dp.item(), rel=1e-9, abs=1e-9 * max(group))


def test_logarithm_and_exponential(javascript):
    script = """
    const { log, exp } = use("unit");
    return [given.x.map((x) => log(x)), given.y.map((y) => exp(y))];
    """
    x = np.exp(-np.random.default_rng(0).exponential(40.0, 5000)).clip(1e-307)
    y = -np.random.default_rng(1).exponential(40.0, 5000).clip(max=700)
    x[:3], y[:3] = (1.0, 1.0 - 2**-53, 0.5), (0.0, -1e-300, -700.0)
    log, exp = javascript(script, x=x.tolist(), y=y.tolist())
    np.testing.assert_allclose(log, np.log(x), rtol=4e-16, atol=2.3e-16)
    np.testing.assert_allclose(exp, np.exp(y), rtol=1e-15)


def test_orders_and_what_they_are_learned_by(javascript):
    orders = [1.0, 1.000001, 1.5, 2.0, 3.0, 30.0, 1000.0]
    script = "const u = use('unit'); return given.p.map((p) => u.orderOf(u.rhoOf(p)));"
    np.testing.assert_allclose(javascript(script, p=orders), orders, rtol=1e-15)
    script = "return given.p.map((p) => use('unit').dual(p));"
    assert javascript(script, p=[1.0, 2.0, 3.0, math.inf]) == [math.inf, 2, 1.5, 1]


def network(kind: str, classes: int, orders: list[float] | None = None) -> MLP:
    """A net of each kind; orders given are fixed."""
    options: dict[str, Any] = {"bias": False} if kind in ("lp", "l2") else {}
    if orders:
        options |= {"order": orders, "learn_order": False}
    outputs = 1 if classes == 2 else classes
    filters = 3 if kind in GROUPED else 1
    return MLP(2, [4], outputs, activation=kind, filters=filters, dtype=torch.float64, **options)


def shape(kind: str, classes: int, orders: list[float] | None = None) -> dict[str, Any]:
    return {
        "kind": kind,
        "units": 4,
        "filters": 3 if kind in GROUPED else 1,
        "classes": classes,
        "orders": orders or [3.0] * 4,
        "learned": [orders is None] * 4,
    }


def places(net: MLP, of: Any = lambda p: p) -> list[float]:
    """Parameters (or their gradients) as one vector in the order of the playground."""
    parts = []
    for layer in (net[0], net[-1]):
        if (rho := getattr(layer, "rho", None)) is not None:
            parts.append(of(rho) if isinstance(rho, torch.nn.Parameter) else 0 * rho.nan_to_num())
        parts.append(of(layer.weight))
        shift = getattr(layer, "center", None)
        parts.append(of(layer.bias if shift is None else shift))
    return torch.cat([part.detach().flatten() for part in parts]).tolist()


def theta(net: MLP) -> list[float]:
    values = places(net)
    if (rho := getattr(net[0], "rho", None)) is not None:
        values[: len(rho)] = rho.tolist()
    return values


def points(net: MLP, classes: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Random points, and some where projections are zero or tie.

    Weights and points are multiples of 1/64, so that both sides see exactly these zeros and ties.
    """
    x = (64 * torch.randn(60, 2, dtype=torch.float64)).round() / 64
    x[0] = 0
    with torch.no_grad():
        net[0].weight.mul_(64).round_().div_(64)
        if getattr(net[0], "center", None) is not None:
            weight, center = net[0].weight, net[0].center
            center[:2, 0] = weight[:2, 0] @ x[1]  # two projections of the first unit are zero
            center[:, 1] = weight[:, 1] @ x[2]  # all of the second
            center[:, 2] = weight[:, 2] @ x[3] - torch.tensor([1.0, -1.0, 1.0])  # these tie
        elif hasattr(net[0], "filters"):
            net[0].bias[:, 0] = 1 - net[0].weight[:, 0] @ x[1]
        else:
            net[0].bias[0] = -net[0].weight[0] @ x[1]
    return x, torch.randint(classes, (60,))


def loss_of(net: MLP, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    scores = net(x)
    if scores.shape[1] == 1:
        return binary_cross_entropy_with_logits(scores[:, 0], y.double())
    return cross_entropy(scores, y)


def as_set(x: torch.Tensor, y: torch.Tensor, classes: int) -> dict[str, Any]:
    return {"x": x.flatten().tolist(), "y": y.tolist(), "classes": classes}


CASES = [(kind, classes, None) for kind in KINDS for classes in (2, 3)]
CASES += [("lp", 2, [1.0, 2.0, math.inf, 1.7]), ("lp", 3, [math.inf] * 4)]


@pytest.mark.parametrize(("kind", "classes", "orders"), CASES)
def test_scores_loss_and_gradients(javascript, kind, classes, orders):
    net = network(kind, classes, orders)
    x, y = points(net, classes)
    loss = loss_of(net, x, y)
    loss.backward()
    script = """
    const { Network } = use("network");
    const network = new Network(given.shape, Float64Array.from(given.theta));
    const gradient = new Float64Array(given.theta.length);
    const wrong = new Uint8Array(given.set.y.length);
    const { loss, mistakes } = network.measure(given.set, gradient, wrong);
    const { x, y } = given.set;
    const scores = y.map((_, i) => [...network.score(x[2 * i], x[2 * i + 1])]);
    return { loss, mistakes, gradient, wrong, scores };
    """
    found = javascript(
        script, shape=shape(kind, classes, orders), theta=theta(net), set=as_set(x, y, classes)
    )
    scores = net(x).detach()
    close(found["scores"], scores, 1e-12)
    close(found["loss"], loss.detach(), 1e-12)
    close(found["gradient"], places(net, lambda p: p.grad))
    guess = (scores[:, 0] > 0).long() if classes == 2 else scores.argmax(1)
    assert found["wrong"] == (guess != y).int().tolist()
    assert found["mistakes"] == int((guess != y).sum())


STEPS = """
const { Network } = use("network");
const { Trainer } = use("trainer");
const task = { shape: given.shape, optimiser: given.by, rate: 0.1, orderRate: 4, seed: 0 };
const trainer = new Trainer(task, given.set, { theta: given.theta, steps: 0, memory: null });
const seen = [];
for (let k = 0; k < given.steps; k++) {
  trainer.step();
  seen.push({ theta: [...trainer.network.theta], memory: { ...trainer.optimiser.memory } });
}
return seen;
"""


@pytest.mark.parametrize(("kind", "classes", "orders"), CASES)
def test_natural_conjugate_gradient(javascript, kind, classes, orders):
    net = network(kind, classes, orders)
    x, y = points(net, classes)
    start = theta(net)
    optimizer = NaturalConjugateGradient(net, loss="logistic" if classes == 2 else "softmax")
    given = {"shape": shape(kind, classes, orders), "theta": start, "by": "natural"}
    found = javascript(STEPS, set=as_set(x, y, classes), steps=3, **given)
    targets = y.unsqueeze(1).double() if classes == 2 else y
    for k, step in enumerate(found):
        optimizer.step(x, targets)
        # What a step adds to rounding grows with every step: the first is held to 1e-9.
        after = theta(net)
        finite = np.isfinite(after)
        assert not np.allclose(np.array(after)[finite], np.array(start)[finite])
        close(np.array(step["theta"])[finite], np.array(after)[finite], 1e-9 if k == 0 else 1e-6)
        assert step["memory"]["damping"] == pytest.approx(optimizer.damping)


@pytest.mark.parametrize("by", ["sgd", "adam"])
def test_first_order_steps(javascript, by):
    net = network("lp", 2)
    x, y = points(net, 2)
    groups = param_groups(net, lr=0.1, order_scale=4)
    found = javascript(
        STEPS, shape=shape("lp", 2), theta=theta(net), by=by, steps=5, set=as_set(x, y, 2)
    )
    optimizer = torch.optim.SGD(groups, momentum=0.9) if by == "sgd" else torch.optim.Adam(groups)
    for step in found:
        optimizer.zero_grad()
        loss_of(net, x, y).backward()
        optimizer.step()
        close(step["theta"], theta(net))


@pytest.mark.parametrize("name", ["two-gaussians", "three-gaussians", "curve", "teacher"])
@pytest.mark.parametrize("seed", [0, 7])
def test_the_data_sets_of_the_paper(javascript, name, seed):
    script = "return use('data').make(given.name, 2500, given.seed);"
    found = javascript(script, name=name, seed=seed)
    expected = datasets.load(name, points=2500, seed=seed).train
    assert found["y"] == expected.targets.tolist()
    points = np.array(found["x"]).reshape(-1, 2)
    # The last digit of a float32 may depend on whose cosine it is.
    np.testing.assert_allclose(points, expected.features.numpy(), rtol=2e-7, atol=2e-7)


def test_every_data_set_has_its_points_and_the_seed_matters(javascript):
    script = """
    const { SETS, make, extent } = use("data");
    return Object.keys(SETS).map((name) => {
      const [set, same, other] = [make(name, 300, 1), make(name, 300, 1), make(name, 300, 2)];
      const more = { same: same.x, other: other.x, extent: extent(set) };
      return { name, x: set.x, y: set.y, classes: set.classes, ...more };
    });
    """
    for found in javascript(script):
        x = np.array(found["x"]).reshape(-1, 2)
        assert len(x) == 300
        assert set(found["y"]) == set(range(found["classes"]))
        assert found["x"] == found["same"] != found["other"]
        left, right, bottom, top = found["extent"]
        assert (x > (left, bottom)).all()
        assert (x < (right, top)).all()


@pytest.mark.parametrize("filters", [1, 2, 3, 5])
@pytest.mark.parametrize("p", [1.0, 1.4, 2.0, 3.3, math.inf])
def test_geometry(javascript, filters, p):
    net = MLP(
        2, [1], 1, filters=filters, order=p, learn_order=False, bias=False, dtype=torch.float64
    )
    (unit,) = geometry.units(net)
    level = unit.lowest + 0.7
    script = """
    const geometry = use("geometry");
    const { center, axes } = geometry.frame(given.unit);
    const lines = geometry.levelSet(given.unit, given.level, [-3, 3, -3, 3]);
    return { center, axes, lines, low: geometry.value(given.unit, ...center) };
    """
    given = {"filters": unit.filters.tolist(), "offsets": unit.offsets.tolist(), "p": p}
    found = javascript(script, unit=given, level=level)
    close(found["axes"], unit.axes)
    assert found["low"] == pytest.approx(unit.lowest, abs=1e-9)
    if filters < 3 or 1 < p < math.inf:  # elsewhere it may be lowest on a whole line
        close(found["center"], unit.center, 1e-6)
    assert len(found["lines"]) == len(unit.curve(level)) == (2 if filters == 1 else 1)
    for line in found["lines"]:
        close(unit(np.array(line).reshape(-1, 2)), np.full(len(line) // 2, level))


def test_contours_lie_on_the_curve(javascript):
    script = """
    const f = (x, y) => x * x + 2 * y * y - 1 + 0.3 * x * y;
    return use("geometry").contours(f, [-2, 2, -2, 2], 24);
    """
    (line,) = javascript(script)
    x, y = np.array(line).reshape(-1, 2).T
    assert (x[0], y[0]) == (x[-1], y[-1])
    np.testing.assert_allclose(x * x + 2 * y * y + 0.3 * x * y, 1, atol=1e-9)
    assert np.abs(np.diff(x)).max() < 0.25
    script = "return use('geometry').contours((x, y) => x * y, [-1, 1.1, -1, 1.2], 9);"
    assert len(javascript(script)) == 2  # a saddle: two lines that do not cross


def test_below_one_the_lines_are_on_the_level(javascript):
    script = """
    const geometry = use("geometry");
    const units = [
      { filters: [[1, 0.2], [0.1, 1]], offsets: [0.3, 0.1], p: 0.5 },
      { filters: [[1, 0.2], [0.1, 1], [0.7, -0.7]], offsets: [0, 0, 0], p: 0.6 },
    ];
    return units.map((unit) =>
      geometry.levelSet(unit, 0.8, [-3, 3, -3, 3]).map((line) => {
        const values = [];
        for (let i = 0; i < line.length; i += 2)
          values.push(geometry.value(unit, line[i], line[i + 1]));
        return values;
      }),
    );
    """
    for lines in javascript(script):
        assert lines
        for values in lines:
            assert len(values) > 8
            close(values, [0.8] * len(values), 1e-7)  # the root of a rounding error counts
