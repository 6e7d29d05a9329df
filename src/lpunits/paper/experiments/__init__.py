"""One file per figure or table of the paper, and the register of all experiments."""

import difflib
import importlib.metadata
import pkgutil

from lpunits.paper.report.section import Experiment

# Name -> the experiment, or where it is defined: a module is imported when it is first used. First
# those of the paper, in its order.
EXPERIMENTS: dict[str, str | Experiment] = {
    name: f"{__name__}.{module}:EXPERIMENT"
    for name, module in {
        "fig1": "fig1",
        "fig2": "fig2",
        "fig3": "fig3",
        "fig4ab": "fig4ab",
        "fig4c": "fig4c",
        "table1": "table1",
        "fixed-p": "fixed_p",
        "table2": "table2",
        "table3": "table3",
        "mnist5": "mnist5",
        "table4": "table4",
        "toy": "toy",
        "mnist": "mnist",
        "modern": "modern",
        "gem": "gem",
        "bags": "bags",
        "graphs": "graphs",
        "learned-p": "learned_p",
    }.items()
}
# Installed packages add theirs by entry points. They cannot replace those above.
for _entry in importlib.metadata.entry_points(group="lpunits.experiments"):
    EXPERIMENTS.setdefault(_entry.name, _entry.value)


def register(experiment: Experiment) -> None:
    """Add an experiment of your own, for this process.

    An installed package adds one to every process by an entry point in the group
    ``lpunits.experiments``, see ``docs/howto/add_experiment.md``.
    """
    if isinstance(EXPERIMENTS.get(experiment.name), str):
        raise ValueError(f"there is an experiment {experiment.name!r} already: choose another name")
    EXPERIMENTS[experiment.name] = experiment


def get(name: str) -> Experiment:
    """The experiment of that name.

    >>> get("fig1").title
    'Fig. 1b: the shape of a unit'
    """
    if name not in EXPERIMENTS:
        close = difflib.get_close_matches(name.lower(), EXPERIMENTS, n=1, cutoff=0.5)
        hint = f"did you mean {close[0]!r}?" if close else f"there are {', '.join(EXPERIMENTS)}"
        raise ValueError(f"unknown experiment {name!r}: {hint}")
    place = found = EXPERIMENTS[name]
    if isinstance(place, str):
        try:
            found = pkgutil.resolve_name(place)
        except (ImportError, AttributeError) as error:
            raise ValueError(f"the experiment {name!r} cannot be imported: {error}") from error
    if not isinstance(found, Experiment) or found.name != name:
        raise ValueError(f"{place} must be an Experiment with the name {name!r}, got {found!r}")
    return found


def chosen(names: tuple[str, ...]) -> list[Experiment]:
    """The experiments of these names, each once; ``all`` means every one."""
    wanted = [name for n in names for name in (EXPERIMENTS if n == "all" else (n,))]
    return [get(name) for name in dict.fromkeys(wanted)]
