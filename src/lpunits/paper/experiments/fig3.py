"""Fig. 3: three Gaussian classes, two Lp units of the orders (2, 2) and (2, inf)."""

import math
from collections.abc import Sequence

from matplotlib.figure import Figure

from lpunits.paper.experiments.plane import (
    Plane,
    around,
    choose,
    compact,
    draw,
    order_name,
    playground_link,
)
from lpunits.paper.report.figures import panels
from lpunits.paper.report.section import Experiment, Picture, Section, Table
from lpunits.paper.report.summary import Headline, holds
from lpunits.paper.training.trial import Result, Scale, Trial

PANELS = tuple(
    Plane("three-gaussians", "lp", 4, orders, points=1500, loss=0.01)
    for orders in ((2.0, 2.0), (2.0, math.inf))
)


def trials(scale: Scale) -> list[Trial]:
    """Several seeds of each pair of orders; the report shows the best."""
    seeds = {"smoke": 1, "quick": 5, "paper": 20}[scale]
    return [Trial(config, seed) for config in PANELS for seed in range(seeds)]


def section(results: Sequence[Result]) -> Section:
    """The best net of each pair of orders, drawn."""
    shown = choose(results, PANELS)
    rows = [
        [f"orders {_orders(r)}", str(r.outcome["train_errors"]), str(r.outcome["test_errors"])]
        for r in shown
    ]
    points = f"{shown[0].config.points:,}"
    counts = "; ".join(f"{name}: {train} and {test}" for name, train, test in rows)
    drawn = [compact(results, r) for r in shown]
    most = max(r.outcome["train_errors"] for r in shown)
    enough = most <= 0.01 * shown[0].config.points
    return Section(
        f"Two units are {'enough' if enough else 'not enough'} for three classes: errors on "
        f"{points} training points and on {points} new ones are, with {counts}. The class "
        "boundaries combine an ellipse with an ellipse, or an ellipse with a box, as in the paper.",
        [Table(["", "training errors", "test errors"], rows, "The best of all seeds.")],
        [
            Picture(
                "fig3",
                figure(drawn),
                "Three classes of points in two panels, with the boundaries between the classes "
                "and the superellipses, centres and axes of two units",
                "Shaded: the classes. Dashed: the superellipse of a unit, at its median value on "
                "the boundary. Of the nets with the fewest training errors, the one with the "
                "smallest shapes is drawn.",
                {f"orders {_orders(r)}": playground_link(r) for r in drawn},
            )
        ],
        ["The paper does not define its Gaussians; ours are `three-gaussians` of `lpunits data`."],
        [
            Headline(
                "Fig. 3: two Lp units separate three classes",
                "they do",
                f"{' and '.join(row[1] for row in rows)} errors on {points} points",
                holds(enough),
                "criterion: at most 1 % training errors",
            )
        ],
    )


def _orders(result: Result) -> str:
    return ", ".join(map(order_name, result.config.orders))


def figure(shown: Sequence[Result]) -> Figure:
    """A panel per pair of orders."""
    extent = around(shown, 1.5)
    height = 4.4 * (extent[3] - extent[2]) / (extent[1] - extent[0])
    fig, drawn = panels(1, len(shown), 4.6, height + 0.8, frame=True)
    for axes, result in zip(drawn, shown, strict=True):
        draw(axes, result, extent, 600)
        errors = result.outcome["train_errors"]
        axes.set_title(f"two units, orders {_orders(result)}: {errors} errors", fontsize=10)
    return fig


EXPERIMENT = Experiment(
    name="fig3",
    title="Fig. 3: three classes, two units",
    about="Three Gaussian classes and two Lp units with fixed orders, 2 and 2 or 2 and ∞: the "
    "boundaries between the classes are made of their superellipses.",
    trials=trials,
    section=section,
    minutes={"smoke": 0.1, "quick": 0.2, "paper": 1},
)
