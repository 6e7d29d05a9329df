"""Every experiment: its scales, its trials, and a section from whatever records there are."""

from pathlib import Path

import pytest

from lpunits.paper import data, experiments
from lpunits.paper.training.records import Records
from lpunits.paper.training.trial import SCALES

RESULTS = Path(__file__).parents[3] / "results"
ALL = experiments.chosen(("all",))


@pytest.mark.parametrize("experiment", ALL, ids=lambda e: e.name)
def test_it_says_what_it_is(experiment):
    assert experiment.name in experiments.EXPERIMENTS
    assert experiment.title
    assert experiment.about.endswith(".")
    assert set(experiment.minutes) == set(SCALES)
    assert experiment.minutes["smoke"] < 1


@pytest.mark.parametrize("experiment", ALL, ids=lambda e: e.name)
@pytest.mark.parametrize("scale", SCALES)
def test_its_trials_can_be_told_apart_and_quick_needs_no_download(experiment, scale):
    trials = experiment.trials(scale)
    assert len({trial.key for trial in trials}) == len({trial.label for trial in trials})
    needed = {name for trial in trials for name in trial.config.datasets}
    if scale != "paper":
        assert not [name for name in needed if data.info(name).files]


@pytest.mark.parametrize("experiment", ALL, ids=lambda e: e.name)
@pytest.mark.parametrize("scale", ["smoke", "paper"])
def test_its_section_survives_partial_results(experiment, scale, smoke):
    """The committed records at the scale paper are partial themselves: TFD was not run."""
    trials = experiment.trials(scale)
    trials = trials if scale == "smoke" else trials[:: 1 + len(trials) // 40]
    results = Records(smoke / "records" if scale == "smoke" else RESULTS).results(trials)
    assert len(results) == len(trials) or scale == "paper"
    configs = list(dict.fromkeys(r.config for r in results))
    alone = [
        [r for r in results if r.config == config] for config in configs[:: 1 + len(configs) // 6]
    ]
    for some in (results, results[:1], results[-1:], results[::2], *alone):
        if not some and trials:
            continue  # there is no section without a result
        section = experiment.section(some)
        assert section.verdict.endswith((".", ")"))
        assert all(len(row) == len(table.head) for table in section.tables for row in table.rows)
        assert all(picture.alt for picture in section.pictures)


def test_unknown_names():
    with pytest.raises(ValueError, match=r"unknown experiment .tabel2.: did you mean .table2.\?"):
        experiments.get("tabel2")
    with pytest.raises(ValueError, match="unknown experiment 'zzz': there are fig1, "):
        experiments.chosen(("fig1", "zzz"))
    assert [e.name for e in experiments.chosen(("toy", "toy", "fig1"))] == ["toy", "fig1"]
