"""The card of a model: one HTML page with its scores, its training and its columns."""

import math
import shlex
from collections import Counter
from collections.abc import Sequence
from itertools import count
from typing import Any

import jinja2
import numpy as np
from matplotlib.figure import Figure

from lpunits.paper.fitting.columns import Column
from lpunits.paper.fitting.fit import Fitted
from lpunits.paper.fitting.reading import shown
from lpunits.paper.fitting.scores import number
from lpunits.paper.report.figures import COLORS, QUIET, panels
from lpunits.paper.report.page import TEMPLATES as REPORT
from lpunits.paper.report.page import inline_svg
from lpunits.paper.report.section import Picture, Table

TEMPLATES = jinja2.ChoiceLoader([jinja2.PackageLoader(__package__), REPORT])
MOST_CLASSES = 8  # in the table of confusions
MOST_POINTS = 1000  # in a figure


def render(fitted: Fitted, command: str, facts: dict[str, Any]) -> str:
    """The page. Every name of the table is escaped, and nothing is loaded from elsewhere.

    Args:
        fitted: What to show.
        command: What repeats it.
        facts: As the JSON file has them.
    """
    prepared = fitted.prepared
    environment = jinja2.Environment(
        loader=TEMPLATES, autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    numbers = count(1)
    environment.filters["inline"] = lambda picture: inline_svg(picture, f"f{next(numbers)}-")
    environment.filters["shown"] = shown
    split = facts["split"]
    return environment.get_template("card.html").render(
        target=prepared.target,
        file=prepared.table.source.name,
        verdict=verdict(fitted),
        scores=score_table(fitted),
        note=margin(fitted),
        pictures=pictures(fitted),
        confusions=confusions(fitted),
        columns=column_table(prepared.columns),
        facts={
            "data": f"{prepared.table.source.name}, {len(prepared.table):,} rows, sha256 "
            f"{facts['data']['sha256'][:16]}…",
            "task": f"{prepared.target.task} ({prepared.target.why})",
            "split": f"{split['train']:,} rows to train, {split['test']:,} to test, seed "
            f"{split['seed']}; validation: {split['validation']}",
            "network": network(fitted),
            "made": f"{facts['made']}, " + ", ".join(f"{n} {v}" for n, v in versions(facts)),
        },
        command=command,
        apply=shlex.join(["lpunits", "predict", facts["folder"], "new.csv"]),
    )


def versions(facts: dict[str, Any]) -> list[tuple[str, str]]:
    """Software and its versions."""
    return list(facts["versions"].items())


def network(fitted: Fitted) -> str:
    """The network in a few words."""
    estimator = fitted.estimator
    weights = sum(p.numel() for p in estimator.model_.parameters())
    sizes = np.atleast_1d(estimator.hidden_layer_sizes)
    hidden = ", ".join(str(size) for size in sizes)
    return (
        f"{len(fitted.prepared.features)} inputs, hidden layers of {hidden} {estimator.activation} "
        f"units, {weights:,} parameters, {estimator.n_iter_} epochs"
    )


def first_score(fitted: Fitted) -> tuple[str, str]:
    """The name of the first score, and the form of its value."""
    name = next(iter(fitted.scores[0].values))
    return name, ".1%" if fitted.prepared.target.task == "classification" else "z.3f"


def verdict(fitted: Fitted) -> str:
    """One sentence: our score beside the others."""
    name, form = first_score(fitted)
    ours, *others = fitted.scores
    score = f"{name[0].upper()}{name[1:]} {ours.values[name]:{form}}"
    text = f"{score} on {len(fitted.predicted):,} test rows"
    known = [f"{s.name} {s.values[name]:{form}}" for s in others if s.values]
    return f"{text}. For comparison: {', '.join(known)}." if known else f"{text}."


def margin(fitted: Fitted) -> str:
    """How far the scores can be trusted."""
    tested = len(fitted.predicted)
    text = f"All models were trained on the same rows and scored on the same {tested:,} test rows"
    if fitted.prepared.target.task == "classification":
        right = tested * fitted.scores[0].values["accuracy"]
        share = (right + 2) / (tested + 4)  # Agresti and Coull: also right where all are right
        error = math.sqrt(share * (1 - share) / (tested + 4))
        text += f"; with so few, an accuracy has a standard error of about {100 * error:.1f} points"
        loss = "wrong classes"
    else:
        loss = "squared errors"
    against = f" Against Lp: by {loss}, row by row; undecided is within two standard errors."
    return f"{text}.{against}" if len(fitted.scores) > 1 else f"{text}."


def score_table(fitted: Fitted) -> Table:
    """All scores."""
    names = list(fitted.scores[0].values)
    several = len(fitted.scores) > 1
    rows = []
    for score in fitted.scores:
        cells = [number(score.values[name], name) if score.values else "" for name in names]
        against = score.failed or score.against
        rows.append([score.name, *cells, f"{score.seconds:.1f} s", against][: len(names) + 3])
    head = ["model", *names, "training", "against Lp"]
    if not several:
        head, rows = head[:-1], [row[:-1] for row in rows]
    return Table(head, rows)


def column_table(columns: Sequence[Column]) -> Table:
    """What the columns became."""
    rows = [[c.name, c.kind if c.kind != "out" else "left out", became(c), c.why] for c in columns]
    return Table(["column", "taken as", "became", "remark"], rows)


def became(column: Column) -> str:
    """The features of a column in a few words."""
    if column.kind == "out":
        return ""
    if column.kind == "number":
        return "itself, and whether it is missing" if column.flagged else "itself"
    names = ["missing" if level is None else shown(level) for level in column.levels]
    more = f" and {len(names) - 6} more" if len(names) > 6 else ""
    return f"{len(names)} of 0 and 1: {', '.join(names[:6])}{more}"


def summary(columns: Sequence[Column]) -> str:
    """How many columns became what.

    >>> summary([Column("a", "number"), Column("b", "out")])
    '1 number, 0 categories, 1 left out'
    """
    kinds = Counter(column.kind for column in columns)
    numbers, categories, out = (kinds[kind] for kind in ("number", "category", "out"))
    return (
        f"{numbers} number{'s' * (numbers != 1)}, "
        f"{categories} categor{'y' if categories == 1 else 'ies'}, {out} left out"
    )


def pictures(fitted: Fitted) -> list[Picture]:
    """The training, the orders, and predictions against the truth. No name of the table is here."""
    estimator = fitted.estimator
    fig, (axes,) = panels(1, 1, 5, 3.2)
    estimator.plot_loss(axes)
    text = "The training, epoch by epoch: the loss" + (
        "." if estimator.validation_scores_ is None else ", and the score on the validation rows."
    )
    found = [Picture("loss", fig, "The loss of each epoch", text)]
    if estimator.orders_:
        fig, (axes,) = panels(1, 1, 5, 3.2)
        estimator.plot_orders(axes)
        text = "The learned orders of the units, sorted, layer by layer."
        found.append(Picture("orders", fig, "The learned orders of each layer", text))
    if fitted.prepared.target.task == "regression":
        found.append(scatter(fitted))
    return found


def scatter(fitted: Fitted) -> Picture:
    """Predicted against true values of the test rows."""
    true, predicted = fitted.prepared.split.y_test[:MOST_POINTS], fitted.predicted[:MOST_POINTS]
    fig: Figure
    fig, (axes,) = panels(1, 1, 5, 3.2)
    axes.axline((float(true[0]), float(true[0])), slope=1, color=QUIET, lw=1)
    axes.plot(true, predicted, "o", ms=3, alpha=0.6, color=COLORS["lp"])
    axes.set(xlabel="true", ylabel="predicted")
    rows = f"the first {MOST_POINTS:,} test rows" if len(fitted.predicted) > MOST_POINTS else ""
    text = f"Predicted against true values of {rows or 'the test rows'}."
    return Picture("scatter", fig, "Predicted against true values", text)


def confusions(fitted: Fitted) -> Table | None:
    """How often each class was taken for which."""
    classes = fitted.prepared.target.classes
    if not 0 < len(classes) <= MOST_CLASSES:
        return None
    pairs = Counter(zip(fitted.prepared.split.y_test, fitted.predicted, strict=True))
    names = [shown(label) for label in classes]
    rows = [
        [name, *(str(pairs[true, guess]) for guess in classes)]
        for name, true in zip(names, classes, strict=True)
    ]
    return Table(["true class", *(f"predicted {name}" for name in names)], rows)
