"""Fig. 3: three Gaussian classes, two Lp units of the orders (2, 2) and (2, inf)."""

import math
from collections.abc import Sequence

from matplotlib.figure import Figure

from lpunits import geometry
from lpunits.paper import data
from lpunits.paper.experiments.plane import (
    POINTS,
    UNITS,
    Plane,
    best,
    order_name,
    playground_link,
    trained,
)
from lpunits.paper.report.section import Experiment, Picture, Section, Table
from lpunits.paper.training.trial import Result, Scale, Trial

EXTENT = (-4.2, 4.2, -3.6, 3.8)
PANELS = tuple(
    Plane("three-gaussians", "lp", 4, orders, points=1500, loss=0.01)
    for orders in ((2.0, 2.0), (2.0, math.inf))
)


def trials(scale: Scale) -> list[Trial]:
    """A few starts of each pair of orders; the figure shows the best."""
    starts = {"smoke": 1, "quick": 5, "paper": 20}[scale]
    return [Trial(config, seed) for config in PANELS for seed in range(starts)]


def section(results: Sequence[Result]) -> Section:
    """The best start of each pair of orders, drawn."""
    shown = [
        best(r for r in results if r.config == config)
        for config in PANELS
        if any(r.config == config for r in results)
    ]
    names = [f"orders {', '.join(map(order_name, r.config.orders))}" for r in shown]
    said = [
        f"{name}: {r.outcome['train_errors']} errors on {r.config.points:,} training points, "
        f"{r.outcome['test_errors']} on as many new ones"
        for name, r in zip(names, shown, strict=True)
    ]
    rows = [
        [name, str(r.outcome["train_errors"]), str(r.outcome["test_errors"])]
        for name, r in zip(names, shown, strict=True)
    ]
    return Section(
        f"Two units are enough for three classes, as in the paper ({'; '.join(said)}). The class "
        "boundaries combine an ellipse with an ellipse, and an ellipse with a box.",
        [Table(["", "training errors", "test errors"], rows, "The best of the starts.")],
        [
            Picture(
                "fig3",
                figure(shown),
                "Three classes of points in two panels, with the lines between the classes and "
                "the superellipses, centres and axes of two units",
                "Dashed: where a unit has the value that is typical of it on the boundary.",
                {name: playground_link(r) for name, r in zip(names, shown, strict=True)},
            )
        ],
        ["The paper does not define its Gaussians; ours are `three-gaussians` of `lpunits data`."],
    )


def figure(shown: Sequence[Result]) -> Figure:
    """A panel per pair: the points, the lines between the classes, the superellipses."""
    fig = Figure(figsize=(4.6 * len(shown), 4.2), layout="constrained")
    panels = fig.subplots(1, len(shown), squeeze=False)[0]
    for axes, result in zip(panels, shown, strict=True):
        axes.set(aspect="equal", xticks=[], yticks=[], xlim=EXTENT[:2], ylim=EXTENT[2:])
        train = data.load("three-gaussians", points=1500).train
        geometry.draw_points(axes, train.features, train.targets, POINTS, 600)
        net = trained(result)
        geometry.draw_boundary(axes, net, EXTENT)
        found = zip(geometry.units(net), geometry.levels(net, EXTENT), strict=True)
        for (unit, level), color in zip(found, UNITS, strict=True):
            label = f"p = {order_name(unit.order)}"
            geometry.draw_unit(axes, unit, level, color=color, label=label)
        errors = result.outcome["train_errors"]
        title = ", ".join(map(order_name, result.config.orders))
        axes.set_title(f"two units, orders {title}: {errors} errors", fontsize=10)
    return fig


EXPERIMENT = Experiment(
    name="fig3",
    title="Fig. 3: three classes, two units",
    about="Three Gaussian classes and two Lp units whose orders stay 2 and 2, or 2 and ∞: the "
    "lines between the classes are made of their superellipses.",
    trials=trials,
    section=section,
    minutes={"smoke": 0.1, "quick": 0.2, "paper": 1},
)
