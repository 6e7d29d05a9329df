"""The records of the repository: none is lost when configs, recipes or ranges change."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from lpunits.paper import experiments
from lpunits.paper.search.study import TRIAL_SEED, open_storage, studies
from lpunits.paper.training.records import Records
from lpunits.paper.training.settings import with_settings
from lpunits.paper.training.trial import SCALES, Trial

RESULTS = Path(__file__).parents[3] / "results"
SEEDS = 10  # of a winner that is run again
SIDE_RUNS = {  # `lpunits run table1 --scale paper --set ...`
    "table1": [["activation=relu", f"weight_decay={d}"] for d in (0.003, 0.0024, 0.0013)],
    "table4": [["weight_decay=0.3", "epochs=400"]],
}
NOT_RECORDS = ("bench.json", "estimators.json", "scale.json", "start.json")


def known(storage) -> Iterator[Trial]:
    """The trials of all experiments and searches, and the winners with several seeds."""
    for experiment in experiments.chosen(("all",)):
        for scale in SCALES:
            yield from experiment.trials(scale)
        for settings in SIDE_RUNS.get(experiment.name, ()):
            yield from with_settings(experiment.trials("paper"), settings)
    for study in studies(storage):
        for trial in study.finished():
            config = study.space.config(trial.params)
            yield Trial(config.untested(), TRIAL_SEED)
        winner = study.winner()
        yield from (Trial(winner.config, seed) for seed in range(SEEDS))


@pytest.mark.skipif(not RESULTS.is_dir(), reason="needs the repository's results")
def test_every_record_is_found_by_an_experiment_or_a_search(tmp_path):
    shutil.copy(RESULTS / "search" / "studies.db", tmp_path)
    with open_storage(f"sqlite:///{tmp_path / 'studies.db'}") as storage:
        trials = {trial.key: trial for trial in known(storage)}
    paths = [path for path in RESULTS.rglob("*.json") if path.name not in NOT_RECORDS]
    assert len(paths) > 2000
    lost = [
        path.name
        for path in paths
        if path.stem not in trials or Records(path.parent).find(trials[path.stem]) is None
    ]
    assert not lost
