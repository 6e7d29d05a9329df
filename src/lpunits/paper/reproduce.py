"""The main job: every experiment that needs no download, then one page that shows the results."""

import platform
import statistics
from collections.abc import Callable
from pathlib import Path

import torch

import lpunits
from lpunits.paper.experiments import fig1, toy
from lpunits.paper.report import Section, write


def reproduce(folder: Path, say: Callable[[str], None] = print) -> Path:
    """Run everything, write ``folder/index.html`` and return its path."""
    folder.mkdir(parents=True, exist_ok=True)  # first of all: a bad folder should not cost minutes
    say("==> Fig. 1b: the shapes of different orders")
    sections = [
        Section(
            "The unit (paper, Fig. 1b)",
            "An Lp unit is a normalised norm of a group of projections. Its order p shapes the "
            "region that it cuts out of the input: a diamond at p = 1, an ellipse at p = 2, a box "
            "at p = ∞, where it is max pooling. lpunits learns the order of every unit.",
            fig1.figure(),
            alt="Superellipses of orders from 1, a diamond, to infinity, a square; and the "
            "response of a unit along one projection",
        )
    ]
    settings = toy.Toy()
    results = []
    for order in settings.orders:
        say(f"==> learning the order of a norm from 2000 points; the truth is {order:g}")
        results += [toy.run(settings, order, seed) for seed in settings.seeds]
    table = [["true order", "learned (mean ± std)", "training errors", "test error"]]
    for order in settings.orders:
        found = [r for r in results if r.true_order == order]
        orders = [r.learned_order for r in found]
        table.append(
            [
                f"{order:g}",
                f"{statistics.mean(orders):.2f} ± {statistics.stdev(orders):.2f}",
                " ".join(str(r.train_errors) for r in found),
                f"{statistics.mean(r.test_error for r in found):.2%}",
            ]
        )
    sections.append(
        Section(
            "Learning the order",
            "Two classes, inside and outside a turned, stretched and shifted superellipse. One Lp "
            f"unit with two filters starts at p = {settings.start_order:g} and learns axes, centre "
            f"and order from {settings.points} points. {len(settings.seeds)} data sets for each "
            f"order; the best of {settings.starts} starts by training loss; the test error is "
            f"measured on {settings.test_points:,} new points.",
            toy.figure(settings, results),
            alt="Four data sets, each with the curved boundary found by one Lp unit",
            table=table,
        )
    )
    for row in table:
        say("    " + "".join(f"{cell:>24}" for cell in row))
    page = folder / "index.html"
    versions = f"lpunits {lpunits.__version__}, torch {torch.__version__}, Python"
    footer = f"{versions} {platform.python_version()}. Repeat: make reproduce"
    write(page, "lpunits: learned-norm pooling", sections, footer)
    return page
