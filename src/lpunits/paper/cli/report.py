"""The commands ``lpunits list``, ``lpunits show`` and ``lpunits report``: they never train."""

import webbrowser
from collections import Counter
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from lpunits.paper import data, experiments
from lpunits.paper.cli import tables
from lpunits.paper.cli.folders import OUT, RESULTS, Settings, records_of
from lpunits.paper.report import markdown as document
from lpunits.paper.report import page, summary
from lpunits.paper.report.parts import collect
from lpunits.paper.search.display import duration
from lpunits.paper.training.records import Records
from lpunits.paper.training.trial import SCALES, Scale

REPORTED: tuple[Scale, ...] = ("paper", "quick")


def list_all() -> None:
    """List the experiments."""
    rows = []
    for experiment in experiments.chosen(("all",)):
        minutes = [experiment.minutes[scale] for scale in ("quick", "paper")]
        times = [duration(60 * m) if m else "none" for m in minutes]
        rows.append([experiment.name, experiment.title, *times])
    what = "experiment; its time on two cores"
    head = ["name", what, "quick", "paper"]
    # Without a rule all of them fit a screen of 24 lines.
    tables.print_rows(head, rows, shrinks=what, wraps=False, rule=False)
    verdicts = Counter(headline.verdict for headline in summary.read())
    counts = ", ".join(f"{count} {verdict}" for verdict, count in verdicts.items())
    print(f"{counts}. Next: lpunits show NAME")


def show(name: str) -> None:
    """Show one experiment.

    Args:
        name: The experiment, as `lpunits list` names it.
    """
    experiment = experiments.get(name)
    tables.console.print(f"[bold]{experiment.title}[/]\n{experiment.about}")
    rows = []
    for scale in SCALES:
        trials = list({t.key: t for t in experiment.trials(scale)}.values())
        done = len(records_of(scale).results(trials))
        used = dict.fromkeys(name for t in trials for name in t.config.datasets)
        missing = [name for name in used if not data.info(name).present]
        state = f"{', '.join(used)}" + f" (not here: {', '.join(missing)})" * bool(missing)
        time = duration(60 * experiment.minutes[scale])
        rows.append([scale, str(len(trials)), str(done), time, state])
    tables.print_rows(["scale", "trials", "records", "time", "data"], rows, shrinks="data")
    parts = collect([experiment], Records(RESULTS, OUT / "records"), REPORTED)
    tables.print_parts(parts[:1])
    if not parts:
        tables.print_shipped([experiment])
    print(f"run: lpunits run {name} [--scale {'|'.join(SCALES)}]\nreport: lpunits report {name}")


def report(
    *names: str,
    scale: Scale | None = None,
    set_: Settings | None = None,
    storage: str | None = None,
    records: Path | None = None,
    out: Path = OUT,
    open_: Annotated[bool, Parameter(name="--open", negative="")] = False,
    markdown: Path | None = None,
    check: Annotated[bool, Parameter(negative="")] = False,
) -> int:
    """Write the report from the records.

    Args:
        names: The experiments to report; by default all.
        scale: Report this scale alone; by default paper and quick.
        set_: Report the trials that were run with this --set; can be repeated.
        storage: The storage of the searches to report, if they had a --storage.
        records: The folder of the records; by default results/ and reproduction/records/.
        out: The folder for index.html and figures/.
        open_: Open the page in the browser.
        markdown: Write this page of the documentation instead, from the records of the scale paper
            alone; its figures go to a folder of images/ beside it.
        check: Compare the summary with that of the committed records; exit code 1 if a row differs.
    """
    wanted = experiments.chosen(names or ("all",))
    if markdown is None:
        scales = (scale,) if scale else REPORTED
        folders = [
            path for each in ("quick", *scales) for path in records_of(each, records).folders
        ]
        store = Records(*dict.fromkeys(folders))
    else:
        store, scales = Records(records or RESULTS), (scale or "paper",)
    parts = collect(wanted, store, scales, set_ or ())
    files = [folder / "search" / "studies.db" for folder in store.folders]
    urls = [storage] if storage else [f"sqlite:///{path}" for path in files if path.exists()]
    if urls:
        from lpunits.paper.report import searches
        from lpunits.paper.search.study import open_storage

        for url in urls:
            with open_storage(url) as opened:
                parts += [p for p in searches.collect(opened, store) if p.scale in scales]
    shown = {part.experiment.name for part in parts}
    missing = [e for e in wanted if e.name not in shown]
    if markdown is not None:
        print(f"results: {document.write(markdown, parts, store, missing)}")
        return 0
    path = page.write(out, parts, missing, store.findings()).resolve()
    if not any(part.results for part in parts):
        print("There are no records here: see `lpunits run`.")
        tables.print_shipped(wanted)
    print(f"report: {path.as_uri()}")
    if open_:
        webbrowser.open(path.as_uri())
    if not check:
        return 0
    rows = [row for part in parts if part.scale == "paper" for row in part.section.headlines]
    return 1 if tables.print_agreement(rows) else 0
