"""Fig. 4a, b: the boundary that two Lp units draw, and the one that four rectifiers draw."""

from collections.abc import Sequence

import torch
from matplotlib.figure import Figure

from lpunits import geometry
from lpunits.paper import data
from lpunits.paper.experiments.plane import (
    POINTS,
    UNITS,
    best,
    curve_net,
    order_name,
    playground_link,
    trained,
)
from lpunits.paper.report.section import Experiment, Headline, Picture, Section, Table
from lpunits.paper.training.trial import Result, Scale, Trial

EXTENT = (-1.5, 1.5, -1.5, 1.5)
PAPER_ERRORS = {"lp": 0, "relu": 64}
NAMES = {"lp": "two Lp units", "relu": "four rectifiers"}


def trials(scale: Scale) -> list[Trial]:
    """The trials of Fig. 4c with four projections; records are shared."""
    starts = 1 if scale == "smoke" else 10
    return [Trial(curve_net(kind, 4, scale), seed) for kind in NAMES for seed in range(starts)]


def section(results: Sequence[Result]) -> Section:
    """The best run of each, drawn, with its mistakes counted."""
    of = {kind: [r for r in results if r.config.activation == kind] for kind in NAMES}
    shown = {kind: best(found) for kind, found in of.items() if found}
    said, rows, short = [], [], []
    for kind, r in shown.items():
        errors = [x.outcome["train_errors"] for x in of[kind]]
        said.append(
            f"the best of {len(errors)} runs with {NAMES[kind]} ends with {min(errors)} mistakes "
            f"on {r.config.points:,} points (the paper's example: {PAPER_ERRORS[kind]})"
        )
        orders = ", ".join(order_name(float(p)) for p in r.outcome["orders"]["final"])
        spread = f"{min(errors)} to {max(errors)}"
        rows.append([NAMES[kind], str(PAPER_ERRORS[kind]), str(min(errors)), spread, orders])
        what = f"mistakes of {NAMES[kind]} on the curve, the best of {len(errors)} runs"
        short.append(Headline(what, str(PAPER_ERRORS[kind]), str(min(errors))))
    sentence = "; ".join(said)
    return Section(
        f"{sentence[0].upper()}{sentence[1:]}.",
        [Table(["", "paper", "best", "all runs", "learned orders"], rows, "Training errors.")],
        [
            Picture(
                "fig4ab",
                figure(shown),
                "Points inside and outside a closed curve, in two panels: the smooth boundary "
                "drawn by two Lp units with their superellipses, and the polygon drawn by four "
                "rectifiers with its mistakes",
                "Black: the boundary. Dashed: the superellipses of the units. Rings: mistakes.",
                {" against ".join(NAMES[kind] for kind in shown): playground_link(*shown.values())},
            )
        ],
        headlines=short,
    )


def figure(shown: dict[str, Result]) -> Figure:
    """A panel per net: some of the points, the boundary, the shapes, and every mistake."""
    fig = Figure(figsize=(4.6 * len(shown), 4.7), layout="constrained")
    panels = fig.subplots(1, len(shown), squeeze=False)[0]
    for axes, (kind, result) in zip(panels, shown.items(), strict=True):
        axes.set(aspect="equal", xticks=[], yticks=[], xlim=EXTENT[:2], ylim=EXTENT[2:])
        config = result.config
        train = data.load(config.data, points=config.points, seed=config.data_seed).train
        geometry.draw_points(axes, train.features, train.targets, POINTS[:2], 1200)
        net = trained(result)
        geometry.draw_boundary(axes, net, EXTENT)
        if kind == "lp":
            found = zip(geometry.units(net), geometry.levels(net, EXTENT), strict=True)
            for (unit, level), color in zip(found, UNITS, strict=True):
                label = f"p = {order_name(unit.order)}"
                geometry.draw_unit(axes, unit, level, color=color, label=label)
        with torch.no_grad():
            wrong = (net(train.features)[:, 0] > 0).long() != train.targets
        x, y = train.features[wrong].numpy().T
        axes.scatter(x, y, s=34, facecolors="none", edgecolors="black", lw=0.8)
        errors = result.outcome["train_errors"]
        axes.set_title(f"{NAMES[kind]}: {errors} mistakes", fontsize=10)
    return fig


EXPERIMENT = Experiment(
    name="fig4ab",
    title="Fig. 4a, b: a boundary of changing curvature",
    about="5000 points inside and outside a closed curve whose curvature changes. Two Lp units, "
    "four projections in all, against four rectifiers.",
    trials=trials,
    section=section,
    minutes={"smoke": 0.1, "quick": 0.5, "paper": 1},
)
