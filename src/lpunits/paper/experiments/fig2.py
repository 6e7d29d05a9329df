"""Fig. 2: two Gaussian classes, one hidden unit: how each kind of unit divides the plane."""

import math
from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from lpunits import geometry
from lpunits.paper import data
from lpunits.paper.experiments.plane import POINTS, Plane, best, playground_link, trained
from lpunits.paper.report.figures import COLORS, NAMES
from lpunits.paper.report.section import Experiment, Picture, Section, Table
from lpunits.paper.training.trial import Result, Scale, Trial

EXTENT = (-4.0, 4.0, -2.6, 2.6)
PANELS = {
    "L2 unit": Plane("two-gaussians", "lp", 2, (2.0,), points=1000, loss=0.01),
    "L∞ unit": Plane("two-gaussians", "lp", 2, (math.inf,), points=1000, loss=0.01),
    "rectifier": Plane("two-gaussians", "relu", 1, points=1000, loss=0.01),
}


def trials(scale: Scale) -> list[Trial]:
    """A few starts of each unit; the figure shows the best."""
    starts = {"smoke": 1, "quick": 5, "paper": 20}[scale]
    return [Trial(config, seed) for config in PANELS.values() for seed in range(starts)]


def section(results: Sequence[Result]) -> Section:
    """The best start of each unit, drawn."""
    shown = {
        name: best(r for r in results if r.config == config)
        for name, config in PANELS.items()
        if any(r.config == config for r in results)
    }
    mistakes = [
        f"the {name} misses {r.outcome['train_errors']} of {r.config.points:,} training points and "
        f"{r.outcome['test_errors']} of as many new ones"
        for name, r in shown.items()
    ]
    head = ["", "training errors", "test errors", "length / width of the shape", "starts"]
    rows, long = [], {}
    for name, r in shown.items():
        if r.config.activation == "lp":
            (unit,) = geometry.units(trained(r))
            long[name] = np.linalg.cond(unit.filters)
        errors = [str(r.outcome[split]) for split in ("train_errors", "test_errors")]
        starts = sum(other.config == r.config for other in results)
        rows.append([name, *errors, f"{long[name]:.3g}" if name in long else "", str(starts)])
    shapes = " and ".join(f"{ratio:.2g} times ({name})" for name, ratio in long.items())
    sentence = "; ".join(mistakes)
    return Section(
        f"{sentence[0].upper()}{sentence[1:]}. As in the paper, an Lp unit encloses one class and "
        "the rectifier cuts with a line. What encloses is degenerate, as the paper says of its "
        f"L∞ unit: {shapes} as long as wide.",
        [Table(head, rows, "The best of the starts by training errors, then by loss.")],
        [
            Picture(
                "fig2",
                figure(shown),
                "Two classes of points in three panels: an L2 unit draws a long ellipse around "
                "one class, an L∞ unit a long box, a rectifier a line between the two",
                "Lines from the centre of a unit are its axes: along one of them only one of its "
                "two projections changes.",
                {name: playground_link(r) for name, r in shown.items()},
            )
        ],
        ["The paper does not define its Gaussians; ours are `two-gaussians` of `lpunits data`."],
    )


def figure(shown: dict[str, Result]) -> Figure:
    """A panel per unit: the points, the line between the classes, and the unit's axes."""
    fig = Figure(figsize=(3.6 * len(shown), 2.8), layout="constrained")
    for axes, (name, result) in zip(
        fig.subplots(1, len(shown), squeeze=False)[0], shown.items(), strict=True
    ):
        axes.set(aspect="equal", xticks=[], yticks=[], xlim=EXTENT[:2], ylim=EXTENT[2:])
        train = data.load("two-gaussians", points=1000).train
        geometry.draw_points(axes, train.features, train.targets, POINTS[:2], 400)
        net = trained(result)
        geometry.draw_boundary(axes, net, EXTENT)
        if result.config.activation == "lp":
            (unit,) = geometry.units(net)
            (level,) = geometry.levels(net, EXTENT)
            geometry.draw_unit(axes, unit, level, color=COLORS["lp"], shape=False)
        errors = result.outcome["train_errors"]
        axes.set_title(f"one {name}: {errors} {'error' if errors == 1 else 'errors'}", fontsize=10)
    return fig


EXPERIMENT = Experiment(
    name="fig2",
    title="Fig. 2: two classes, one unit",
    about="Two Gaussian classes and a single hidden unit: an Lp unit encloses one class, in an "
    f"ellipse at p = 2 and in a box at p = ∞; a rectifier ({NAMES['relu']}) cuts with a line.",
    trials=trials,
    section=section,
    minutes={"smoke": 0.1, "quick": 0.2, "paper": 0.5},
)
