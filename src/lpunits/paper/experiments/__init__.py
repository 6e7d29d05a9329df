"""One file per figure or table of the paper, and this register of them."""

import difflib
import importlib
from typing import cast

from lpunits.paper.report.section import Experiment

# Name -> the module that holds its EXPERIMENT, in the order of the paper; then what is beyond it.
EXPERIMENTS = {
    "fig1": "fig1",
    "fig2": "fig2",
    "fig3": "fig3",
    "fig4ab": "fig4ab",
    "fig4c": "fig4c",
    "toy": "toy",
    "table1": "table1",
    "fixed-p": "fixed_p",
    "table2": "table2",
    "table3": "table3",
    "table4": "table4",
    "mnist5": "mnist5",
    "mnist": "mnist",
    "modern": "modern",
    "gem": "gem",
    "learned-p": "learned_p",
}


def get(name: str) -> Experiment:
    """The experiment of that name.

    >>> get("fig1").title
    'Fig. 1b: the shape of a unit'
    """
    if name not in EXPERIMENTS:
        close = difflib.get_close_matches(name.lower(), EXPERIMENTS, n=1, cutoff=0.5)
        hint = f"did you mean {close[0]!r}?" if close else f"there are {', '.join(EXPERIMENTS)}"
        raise ValueError(f"unknown experiment {name!r}: {hint}")
    module = importlib.import_module(f"{__name__}.{EXPERIMENTS[name]}")
    return cast(Experiment, module.EXPERIMENT)


def chosen(names: tuple[str, ...]) -> list[Experiment]:
    """The experiments of these names, each once; ``all`` means every one."""
    wanted = [name for n in names for name in (EXPERIMENTS if n == "all" else (n,))]
    return [get(name) for name in dict.fromkeys(wanted)]
