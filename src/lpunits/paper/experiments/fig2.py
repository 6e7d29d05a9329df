"""Fig. 2: two Gaussian classes, one hidden unit: how each kind of unit divides the plane."""

import math
from collections.abc import Sequence
from functools import partial

import numpy as np

from lpunits import geometry
from lpunits.paper.experiments import plane
from lpunits.paper.experiments.plane import Plane
from lpunits.paper.report.section import Experiment, Picture, Section, Table, grouped
from lpunits.paper.report.summary import Headline, holds
from lpunits.paper.training.trial import Result

PANELS = {
    "L2 unit": Plane("two-gaussians", "lp", 2, (2.0,), points=1000, loss=0.01),
    "L∞ unit": Plane("two-gaussians", "lp", 2, (math.inf,), points=1000, loss=0.01),
    "rectifier": Plane("two-gaussians", "relu", 1, points=1000, loss=0.01),
}
NAMES = {config: name for name, config in PANELS.items()}


def section(results: Sequence[Result]) -> Section:
    """The errors of the best net of each unit, and what it encloses."""
    rows, drawn, ratios, wrong = [], {}, [], []
    for name, found in grouped(results, lambda config: NAMES[config]).items():
        r, ratio = plane.best(found), ""
        errors = [r.outcome["train_errors"], r.outcome["test_errors"]]
        if r.config.activation == "lp":
            ratio = f"{elongation(r):.3g}"
            ratios.append(f"{elongation(r):.2g} ({name})")
            wrong.append(errors[0])
        rows.append([name, *map(str, errors), ratio, str(len(found))])
        drawn[name] = plane.compact(found)
    counts = ", ".join(f"the {name} {train} and {test}" for name, train, test, *_ in rows)
    points = results[0].config.points
    verdict = f"Errors on {points:,} training points and on {points:,} new ones: {counts}."
    if ratios:
        verdict += " As in the paper an Lp unit encloses one class, where a rectifier cuts with a "
        verdict += f"line; its shape is longer than wide by a factor of {' and '.join(ratios)}."
    extent = plane.around(drawn.values(), 2)
    size = 3.5, 3.4 * (extent[3] - extent[2]) / (extent[1] - extent[0]) + 0.4
    panels = {f"one {name}": r for name, r in drawn.items()}
    head = ["", "training errors", "test errors", "length / width of the shape", "seeds"]
    caption = "The net with the fewest training errors, then the lowest loss, of each unit."
    both = Headline(
        "Fig. 2: one Lp unit encloses a class",
        "an ellipse (p = 2), a box (p = ∞)",
        f"{' and '.join(map(str, wrong))} errors on {points:,} points",
        holds(max(wrong, default=0) <= 0.01 * points),
        "criterion: at most 1 % training errors",
    )
    return Section(
        verdict,
        [Table(head, rows, caption)],
        [
            Picture(
                "fig2",
                plane.figure(panels, extent, size, 400, shapes=False),
                "Two classes of points in three panels: an L2 unit draws an ellipse around one "
                "class, an L∞ unit a box, a rectifier a line between the two",
                "Shaded: the two classes, as the net divides the plane. Purple: the centre and the "
                "axes of the unit; along an axis one of its two projections stays constant. Of the "
                "nets with the fewest training errors, the one with the smallest shape is drawn.",
                {name: plane.playground_link(r) for name, r in drawn.items()},
            )
        ],
        ["The paper does not define its Gaussians; ours are `two-gaussians` of `lpunits data`."],
        [both] if len(wrong) == 2 else [],
    )


def elongation(result: Result) -> float:
    """The length of the shape of a net's only Lp unit, divided by its width."""
    (unit,) = geometry.units(plane.trained(result))
    return float(np.linalg.cond(unit.filters))


EXPERIMENT = Experiment(
    name="fig2",
    title="Fig. 2: two classes, one unit",
    about="Two Gaussian classes and a single hidden unit: an Lp unit encloses one class, in an "
    "ellipse at p = 2 and in a box at p = ∞; a rectifier (ReLU) cuts with a line.",
    trials=partial(plane.gaussian_trials, PANELS.values()),
    section=section,
    minutes={"smoke": 0.1, "quick": 0.5, "paper": 0.5},
)
