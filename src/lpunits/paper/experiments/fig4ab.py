"""Fig. 4a, b: the boundary that two Lp units draw, and the one that four rectifiers draw."""

from collections.abc import Sequence

import torch
from matplotlib.figure import Figure

from lpunits.paper import data
from lpunits.paper.experiments.plane import (
    best,
    curve_net,
    draw,
    order_name,
    playground_link,
    trained,
)
from lpunits.paper.report.figures import panels
from lpunits.paper.report.section import Experiment, Picture, Section, Table
from lpunits.paper.report.summary import Headline, holds
from lpunits.paper.training.trial import Result, Scale, Trial

EXTENT = (-1.5, 1.5, -1.5, 1.5)
PAPER_ERRORS = {"lp": 0, "relu": 64}
NAMES = {"lp": "two Lp units", "relu": "four rectifiers"}
WHY = {"lp": "curved boundaries fit", "relu": "a polygon with so few sides does not fit"}


def trials(scale: Scale) -> list[Trial]:
    """The trials of Fig. 4c with four projections; records are shared."""
    seeds = 1 if scale == "smoke" else 10
    return [Trial(curve_net(kind, 4, scale), seed) for kind in NAMES for seed in range(seeds)]


def section(results: Sequence[Result]) -> Section:
    """The best run of each, drawn, with its errors counted."""
    runs = {kind: [r for r in results if r.config.activation == kind] for kind in NAMES}
    shown = {kind: best(found) for kind, found in runs.items() if found}
    clauses, rows, summary = [], [], []
    for kind, r in shown.items():
        errors = [x.outcome["train_errors"] for x in runs[kind]]
        least, paper = min(errors), str(PAPER_ERRORS[kind])
        clauses.append(
            f"the best of {len(errors)} runs with {NAMES[kind]} has {least} training errors on "
            f"{r.config.points:,} points (the paper's example: {paper})"
        )
        orders = ", ".join(order_name(float(p)) for p in r.outcome["orders"]["final"])
        rows.append([NAMES[kind], paper, str(least), f"{least} to {max(errors)}", orders])
        what = f"Fig. 4{'ab'[kind == 'relu']}: errors of {NAMES[kind]}, best of {len(errors)} runs"
        same = (least == 0) == (PAPER_ERRORS[kind] == 0)
        summary.append(Headline(what, paper, str(least), holds(same), WHY[kind] if same else ""))
    sentence = "; ".join(clauses)
    return Section(
        f"{sentence[0].upper()}{sentence[1:]}.",
        [Table(["", "paper", "best", "all runs", "learned orders"], rows, "Training errors.")],
        [
            Picture(
                "fig4ab",
                figure(shown),
                "Points inside and outside a closed curve, in two panels: the smooth boundary "
                "drawn by two Lp units with their superellipses, and the polygon drawn by four "
                "rectifiers with its errors",
                "Solid: the boundary. Dashed: the superellipses of the units. Rings: errors.",
                {" against ".join(NAMES[kind] for kind in shown): playground_link(*shown.values())},
            )
        ],
        headlines=summary,
    )


def figure(shown: dict[str, Result]) -> Figure:
    """A panel per net: some of the points, the boundary, the shapes, and every error."""
    fig, drawn = panels(1, len(shown), 4.6, 4.9, frame=True)
    for axes, (kind, result) in zip(drawn, shown.items(), strict=True):
        draw(axes, result, EXTENT, 1000)
        config = result.config
        train = data.load(config.data, points=config.points, seed=config.data_seed).train
        with torch.no_grad():
            wrong = (trained(result)(train.features)[:, 0] > 0).long() != train.targets
        x, y = train.features[wrong].numpy().T
        axes.plot(x, y, "o", ms=6, mfc="none", mec="black", mew=0.8)
        errors = result.outcome["train_errors"]
        axes.set_title(f"{NAMES[kind]}: {errors} errors", fontsize=10)
    return fig


EXPERIMENT = Experiment(
    name="fig4ab",
    title="Fig. 4a, b: a boundary of changing curvature",
    about="5000 points inside and outside a closed curve whose curvature changes: two Lp units, "
    "four projections in all, against four rectifiers.",
    trials=trials,
    section=section,
    minutes={"smoke": 0.1, "quick": 0.5, "paper": 1},
)
