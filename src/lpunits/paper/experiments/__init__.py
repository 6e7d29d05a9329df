"""One file per figure or table of the paper, and the register of all experiments."""

from lpunits.paper.register import Register
from lpunits.paper.report.section import Experiment

# Those of the paper first, in its order. Each is in the module of its name.
NAMES = (
    *("fig1", "fig2", "fig3", "fig4ab", "fig4c", "table1", "fixed-p", "table2", "table3", "mnist5"),
    *("table4", "toy", "mnist", "pentomino-orders", "modern", "gem", "bags", "graphs", "tables"),
    "music",
    "learned-p",
)
EXPERIMENTS = Register(
    "experiment",
    Experiment,
    {name: f"{__name__}.{name.replace('-', '_')}:EXPERIMENT" for name in NAMES},
)


def register(experiment: Experiment) -> None:
    """Add an experiment of your own, for this process.

    An installed package adds one to every process by an entry point in the group
    ``lpunits.experiments``, see ``docs/howto/add_experiment.md``.
    """
    EXPERIMENTS.add(experiment)


def get(name: str) -> Experiment:
    """The experiment of that name.

    >>> get("fig1").title
    'Fig. 1b: the shape of a unit'
    """
    return EXPERIMENTS.find(name)


def chosen(names: tuple[str, ...]) -> list[Experiment]:
    """The experiments of these names, each once; ``all`` means every one."""
    wanted = [name for n in names for name in (EXPERIMENTS if n == "all" else (n,))]
    return [get(name) for name in dict.fromkeys(wanted)]
