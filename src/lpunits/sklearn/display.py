"""The display of a training: a progress bar, and two plots. All of it is optional."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from lpunits.sklearn.training import History

Show = Callable[[int, History], None]


def line(history: History) -> str:
    """The last epoch in one line."""
    parts = [f"loss {history.loss[-1]:.4g}"]
    if history.judged[-1:] == [len(history.loss)]:
        parts.append(f"validation {history.scores[-1]:.4f}")
    if history.orders[-1]:
        parts.append("orders " + " ".join(f"{p:.2f}" for p in history.orders[-1]))
    return ", ".join(parts)


@contextmanager
def progress(verbose: bool | int, epochs: int) -> Iterator[Show]:
    """A function to call after each epoch: a bar on a terminal with rich, otherwise lines."""
    if not verbose:
        yield lambda done, history: None
        return
    try:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
    except ImportError:
        terminal = False
    else:
        terminal = sys.stderr.isatty()
    if not terminal:
        yield lambda done, history: print(f"epoch {done}/{epochs}: {line(history)}", flush=True)
        return
    from rich.console import Console

    text = TextColumn("{task.description}")
    columns = BarColumn(), MofNCompleteColumn(), text
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("", total=epochs)
        yield lambda done, history: bar.update(task, completed=done, description=line(history))


def _axes(what: str, ax: Any) -> Any:
    if ax is not None:
        return ax
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError(f"{what} needs matplotlib: pip install matplotlib") from error
    return plt.subplots(layout="constrained")[1]


def plot_loss(estimator: Any, ax: Any) -> Any:
    """The loss of each epoch; on the right, the validation score."""
    ax = _axes("plot_loss", ax)
    history: History = estimator._history
    epochs = range(1, len(history.loss) + 1)
    ax.plot(epochs, history.loss, color="#2e86ab", label="training loss")
    ax.set(xlabel="epoch", ylabel="training loss", yscale="log")
    if history.scores:
        name = "accuracy" if hasattr(estimator, "classes_") else "R²"
        right = ax.twinx()
        right.plot(history.judged, history.scores, color="#d1495b")
        right.set_ylabel(f"validation {name}", color="#d1495b")
    return ax


def plot_orders(estimator: Any, ax: Any) -> Any:
    """The orders of each layer, sorted."""
    found = estimator.orders_
    if not found:
        raise ValueError(
            f"plot_orders needs units with orders, activation='lp', got {estimator.activation!r}"
        )
    ax = _axes("plot_orders", ax)
    for number, p in enumerate(found, 1):
        places = [(i + 0.5) / len(p) for i in range(len(p))]
        ax.plot(places, sorted(p), ".-", ms=3, lw=1, label=f"layer {number}")
    ax.set(xlabel="units, sorted", ylabel="order p", xlim=(0, 1))
    ax.legend(frameon=False)
    return ax
