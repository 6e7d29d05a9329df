"""The progress of trials: a live view on a terminal, otherwise lines."""

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from lpunits.paper.training import ranks
from lpunits.paper.training.job import Progress, numbers
from lpunits.paper.training.records import Record
from lpunits.paper.training.trial import Trial

console = Console(stderr=True, highlight=False, quiet=ranks.rank() > 0)
SILENCE = 25.0  # seconds without a line, after which the status is printed
RECENT = 8  # finished trials in the live view


def duration(seconds: float) -> str:
    """A time for people.

    >>> duration(0.31), duration(75), duration(600), duration(8000)
    ('0.3 s', '75 s', '10 min', '2.2 h')
    """
    if seconds < 90:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def counted(trials: int) -> str:
    """A number of trials.

    >>> counted(1), counted(12)
    ('1 trial', '12 trials')
    """
    return f"{trials} trial{'s' * (trials != 1)}"


def outcome_text(trial: Trial, record: Record) -> str:
    """The outcome of a trial in one line: its score, or the numbers of its outcome."""
    if record["status"] != "finished":
        return f"{record['status']}: {record['error']}"
    config, outcome = trial.config, record["outcome"]
    if hasattr(config, "score"):
        split = "test" if config.test else "valid"
        metric = config.watched.replace("valid", split)
        return numbers({metric: config.score(outcome, split)})
    return numbers({n: v for n, v in outcome.items() if isinstance(v, int | float)})


class Display:
    """A live view on a terminal; elsewhere lines, and the status after every 25 s of silence."""

    def __init__(self, view: Callable[[], RenderableType], status: Callable[[], str]) -> None:
        self._status, self._last_line = status, time.monotonic()
        self._live: Live | None = None
        if console.is_terminal:
            self._live = Live(get_renderable=view, console=console, refresh_per_second=2)
        self._ended = threading.Event()

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        else:
            threading.Thread(target=self._heartbeat, daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        if self._live is not None:
            self._live.stop()

    @property
    def is_live(self) -> bool:
        """Whether there is a terminal."""
        return self._live is not None

    def line(self, text: str) -> None:
        """Print a line that stays."""
        self._last_line = time.monotonic()
        console.print(text, markup=False, soft_wrap=not self.is_live)

    def _heartbeat(self) -> None:
        while not self._ended.wait(min(1.0, SILENCE)):
            if time.monotonic() - self._last_line > SILENCE:
                self.line(self._status())


@dataclass
class _Running:
    trial: Trial
    since: float = field(default_factory=time.monotonic)
    progress: Progress | None = None


class RunDisplay(Display):
    """The progress of :func:`lpunits.paper.search.run.run`.

    Args:
        trials: What is to be run.
        jobs: How many at a time.
        expected: About how many seconds each trial takes, by its key.
    """

    def __init__(self, trials: Sequence[Trial], jobs: int, expected: Mapping[str, float]) -> None:
        self.total, self.done, self.jobs = len(trials), 0, jobs
        self._expected = {t.key: expected.get(t.key, 1.0) for t in trials}
        self._known = bool(expected)
        self._finished = 0.0  # expected seconds of finished trials
        self._running: dict[str, _Running] = {}
        self._recent: deque[tuple[str, str, str]] = deque(maxlen=RECENT)
        self._begin = time.monotonic()
        super().__init__(self._view, self._status_line)

    def show(self, trial: Trial, progress: Progress) -> None:
        """Take the progress of a running trial."""
        if progress.note:
            self.line(f"{trial.label}: {progress.note}")
        self._running.setdefault(trial.key, _Running(trial)).progress = progress

    def finish(self, trial: Trial, record: Record, *, by_another: bool = False) -> None:
        """Take the record of a finished trial, which another run may have made."""
        self.done += 1
        self._running.pop(trial.key, None)
        self._finished += self._expected[trial.key]
        text, seconds = outcome_text(trial, record), duration(record["seconds"])
        text = f"by another run: {text}" if by_another else text
        self._recent.append((trial.label, text, seconds))
        if not self.is_live or record["status"] != "finished":
            self.line(f"[{self.done}/{self.total}] {trial.label}: {text}, {seconds}")

    def seconds_left(self) -> float | None:
        """About how long the rest takes. None if nothing is known yet."""
        parts = [(self._expected[k], r.progress) for k, r in list(self._running.items())]
        done = self._finished + sum(e * p.done / max(p.total, 1) for e, p in parts if p)
        total, elapsed = sum(self._expected.values()), time.monotonic() - self._begin
        if not self._known and not self.done:
            return None
        # The expectation counts as much as 20 s of measurement.
        prior = min(20.0 * self.jobs, total) if self._known else 0.0
        return (total - done) / self.jobs * (elapsed * self.jobs + prior) / max(done + prior, 1e-9)

    def _status_line(self) -> str:
        left, so_far = self.seconds_left(), duration(time.monotonic() - self._begin)
        rest = "" if left is None or self.done == self.total else f", about {duration(left)} left"
        running = [
            f"{r.trial.label}, {r.progress.done}/{r.progress.total} {r.progress.text}".strip()
            for r in list(self._running.values())
            if r.progress
        ]
        what = "" if self.is_live or not running else f"; running: {'; '.join(running)}"
        return f"{self.done} of {self.total} trials in {so_far}{rest}{what}"

    def _view(self) -> RenderableType:
        head = Table.grid(padding=(0, 1))
        head.add_row(ProgressBar(self.total, self.done, width=20), Text(self._status_line()))
        rows = Table.grid(padding=(0, 1), expand=True)
        for ratio in (0, 5, 5, 0):
            rows.add_column(ratio=ratio or None, no_wrap=True, overflow="ellipsis")
        for label, text, seconds in list(self._recent):
            rows.add_row("✓", Text(label), Text(text), Text(seconds), style="dim")
        for running in list(self._running.values()):
            p = running.progress
            text = f"{p.done}/{p.total}  {p.text}" if p and p.text else ""
            seconds = duration(time.monotonic() - running.since)
            rows.add_row("▶", Text(running.trial.label), Text(text), Text(seconds))
        return Group(rows, head)
