"""Fig. 3: three Gaussian classes, two Lp units of the orders (2, 2) and (2, inf)."""

import math
from collections.abc import Sequence
from functools import partial

from lpunits.paper.experiments import plane
from lpunits.paper.experiments.plane import Plane, order_name
from lpunits.paper.report.section import Experiment, Picture, Section, Table, grouped
from lpunits.paper.report.summary import Headline, holds
from lpunits.paper.training.trial import Result

PANELS = tuple(
    Plane("three-gaussians", "lp", 4, orders, points=1500, loss=0.01)
    for orders in ((2.0, 2.0), (2.0, math.inf))
)


def section(results: Sequence[Result]) -> Section:
    """The best net of each pair of orders, drawn."""
    rows, drawn = [], {}
    for orders, found in grouped(results, lambda config: config.orders).items():
        name, r = f"orders {', '.join(map(order_name, orders))}", plane.best(found)
        rows.append([name, str(r.outcome["train_errors"]), str(r.outcome["test_errors"])])
        drawn[name] = plane.compact(found)
    points = results[0].config.points
    counts = "; ".join(f"{name}: {train} and {test}" for name, train, test in rows)
    enough = max(int(row[1]) for row in rows) <= 0.01 * points
    extent = plane.around(drawn.values(), 1.7)
    size = 4.6, 4.4 * (extent[3] - extent[2]) / (extent[1] - extent[0]) + 0.8
    panels = {f"two units, {name}": r for name, r in drawn.items()}
    return Section(
        f"Two units are {'enough' if enough else 'not enough'} for three classes: errors on "
        f"{points:,} training points and on {points:,} new ones are, with {counts}. The class "
        "boundaries combine an ellipse with an ellipse, or an ellipse with a box, as in the paper.",
        [Table(["", "training errors", "test errors"], rows, "The best of all seeds.")],
        [
            Picture(
                "fig3",
                plane.figure(panels, extent, size, 600),
                "Three classes of points in two panels, with the boundaries between the classes "
                "and the superellipses, centres and axes of two units",
                "Shaded: the classes. Dashed: the superellipse of a unit, at its median value on "
                "the boundary. Of the nets with the fewest training errors, the one with the "
                "smallest shapes is drawn.",
                {name: plane.playground_link(r) for name, r in drawn.items()},
            )
        ],
        ["The paper does not define its Gaussians; ours are `three-gaussians` of `lpunits data`."],
        [
            Headline(
                "Fig. 3: two Lp units separate three classes",
                "they do",
                f"{' and '.join(row[1] for row in rows)} errors on {points:,} points",
                holds(enough),
                "criterion: at most 1 % training errors",
            )
        ],
    )


EXPERIMENT = Experiment(
    name="fig3",
    title="Fig. 3: three classes, two units",
    about="Three Gaussian classes and two Lp units with fixed orders, 2 and 2 or 2 and ∞: the "
    "boundaries between the classes are made of their superellipses.",
    trials=partial(plane.gaussian_trials, PANELS),
    section=section,
    minutes={"smoke": 0.1, "quick": 1, "paper": 1},
)
