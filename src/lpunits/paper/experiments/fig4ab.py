"""Fig. 4a, b: the boundary that two Lp units draw, and the one that four rectifiers draw."""

from collections.abc import Sequence

from lpunits.paper.experiments import plane
from lpunits.paper.experiments.plane import curve_net, order_name, playground_link
from lpunits.paper.report.section import Experiment, Picture, Section, Table, grouped
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
    shown, clauses, rows, summary = {}, [], [], []
    for kind, found in grouped(results, lambda config: config.activation).items():
        name, paper, r = NAMES[kind], PAPER_ERRORS[kind], plane.best(found)
        shown[name] = r
        errors = [x.outcome["train_errors"] for x in found]
        best = min(errors)
        clauses.append(
            f"the best of {len(errors)} runs with {name} has {best} training errors on "
            f"{r.config.points:,} points (the paper's example: {paper})"
        )
        orders = ", ".join(order_name(float(p)) for p in r.outcome["orders"]["final"])
        rows.append([name, str(paper), str(best), f"{best} to {max(errors)}", orders])
        what = f"Fig. 4{'ab'[kind == 'relu']}: errors of {name}, best of {len(errors)} runs"
        same = (best == 0) == (paper == 0)
        why = WHY[kind] if same else ""
        summary.append(Headline(what, str(paper), str(best), holds(same), why))
    sentence = "; ".join(clauses)
    return Section(
        f"{sentence[0].upper()}{sentence[1:]}.",
        [Table(["", "paper", "best", "all runs", "learned orders"], rows, "Training errors.")],
        [
            Picture(
                "fig4ab",
                plane.figure(shown, EXTENT, (4.6, 4.9), 1000, rings=True),
                "Points inside and outside a closed curve, in two panels: the smooth boundary "
                "drawn by two Lp units with their superellipses, and the polygon drawn by four "
                "rectifiers with its errors",
                "Solid: the boundary. Dashed: the superellipses of the units. Rings: errors.",
                {" against ".join(shown): playground_link(*shown.values())},
            )
        ],
        headlines=summary,
    )


EXPERIMENT = Experiment(
    name="fig4ab",
    title="Fig. 4a, b: a boundary of changing curvature",
    about="5000 points inside and outside a closed curve whose curvature changes: two Lp units, "
    "four projections in all, against four rectifiers.",
    trials=trials,
    section=section,
    minutes={"smoke": 0.1, "quick": 0.5, "paper": 1},
)
