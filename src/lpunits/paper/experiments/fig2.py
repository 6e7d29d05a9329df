"""Fig. 2: two Gaussian classes, one hidden unit: how each kind of unit divides the plane."""

import math
from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from lpunits import geometry
from lpunits.paper.experiments.plane import (
    Plane,
    around,
    choose,
    compact,
    draw,
    playground_link,
    trained,
)
from lpunits.paper.report.figures import panels
from lpunits.paper.report.section import Experiment, Picture, Section, Table
from lpunits.paper.report.summary import Headline, holds
from lpunits.paper.training.trial import Result, Scale, Trial

PANELS = {
    "L2 unit": Plane("two-gaussians", "lp", 2, (2.0,), points=1000, loss=0.01),
    "L∞ unit": Plane("two-gaussians", "lp", 2, (math.inf,), points=1000, loss=0.01),
    "rectifier": Plane("two-gaussians", "relu", 1, points=1000, loss=0.01),
}
NAMES = {config: name for name, config in PANELS.items()}


def trials(scale: Scale) -> list[Trial]:
    """Several seeds of each unit; the report shows the best."""
    seeds = {"smoke": 1, "quick": 5, "paper": 20}[scale]
    return [Trial(config, seed) for config in PANELS.values() for seed in range(seeds)]


def section(results: Sequence[Result]) -> Section:
    """The errors of the best net of each unit, and what it encloses."""
    shown = choose(results, PANELS.values())
    rows, ratios, wrong = [], [], {}
    for r in shown:
        name, errors = NAMES[r.config], [r.outcome["train_errors"], r.outcome["test_errors"]]
        ratio = ""
        if r.config.activation == "lp":
            ratio = f"{elongation(r):.3g}"
            ratios.append(f"{elongation(r):.2g} ({name})")
            wrong[name] = errors[0]
        count = sum(other.config == r.config for other in results)
        rows.append([name, *map(str, errors), ratio, str(count)])
    sentences = [f"the {row[0]} {row[1]} and {row[2]}" for row in rows]
    points = f"{shown[0].config.points:,}"
    verdict = f"Errors on {points} training points and on {points} new ones: "
    verdict += f"{', '.join(sentences)}. "
    if ratios:
        verdict += "As in the paper an Lp unit encloses one class, where a rectifier cuts with a "
        verdict += f"line; its shape is longer than wide by a factor of {' and '.join(ratios)}."
    drawn = [compact(results, r) for r in shown]
    head = ["", "training errors", "test errors", "length / width of the shape", "seeds"]
    caption = "The net with the fewest training errors, then the lowest loss, of each unit."
    return Section(
        verdict.strip(),
        [Table(head, rows, caption)],
        [
            Picture(
                "fig2",
                figure(drawn),
                "Two classes of points in three panels: an L2 unit draws an ellipse around one "
                "class, an L∞ unit a box, a rectifier a line between the two",
                "Shaded: the two classes, as the net divides the plane. Purple: the centre and the "
                "axes of the unit; along an axis one of its two projections stays constant. Of the "
                "nets with the fewest training errors, the one with the smallest shape is drawn.",
                {NAMES[r.config]: playground_link(r) for r in drawn},
            )
        ],
        ["The paper does not define its Gaussians; ours are `two-gaussians` of `lpunits data`."],
        [
            Headline(
                "Fig. 2: one Lp unit encloses a class",
                "an ellipse (p = 2), a box (p = ∞)",
                f"{' and '.join(map(str, wrong.values()))} errors on {points} points",
                holds(max(wrong.values()) <= 0.01 * shown[0].config.points),
                "criterion: at most 1 % training errors",
            )
        ]
        if len(wrong) == 2
        else [],
    )


def elongation(result: Result) -> float:
    """The length of the shape of a net's only Lp unit, divided by its width."""
    (unit,) = geometry.units(trained(result))
    return float(np.linalg.cond(unit.filters))


def figure(shown: Sequence[Result]) -> Figure:
    """A panel per unit; all show the same part of the plane, with the whole of every shape."""
    extent = around(shown, 2)
    height = 3.4 * (extent[3] - extent[2]) / (extent[1] - extent[0])
    fig, drawn = panels(1, len(shown), 3.5, height + 0.4, frame=True)
    for axes, result in zip(drawn, shown, strict=True):
        draw(axes, result, extent, 400, shapes=False)
        errors = result.outcome["train_errors"]
        name = NAMES[result.config]
        axes.set_title(f"one {name}: {errors} error{'s' * (errors != 1)}", fontsize=10)
    return fig


EXPERIMENT = Experiment(
    name="fig2",
    title="Fig. 2: two classes, one unit",
    about="Two Gaussian classes and a single hidden unit: an Lp unit encloses one class, in an "
    "ellipse at p = 2 and in a box at p = ∞; a rectifier (ReLU) cuts with a line.",
    trials=trials,
    section=section,
    minutes={"smoke": 0.1, "quick": 0.2, "paper": 0.5},
)
