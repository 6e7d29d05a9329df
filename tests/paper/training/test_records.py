"""Records: found by config and seed, whole or not there, with all that a reader may ask for."""

import json
import platform
import subprocess
from dataclasses import make_dataclass
from pathlib import Path

import pytest
import torch
from configs import Sum

from lpunits.paper.training import records
from lpunits.paper.training.records import Records
from lpunits.paper.training.trial import Trial


def finished(trial, **outcome):
    return records.make(trial, "finished", outcome, seconds=1.5)


def test_a_record_is_found_by_its_trial_alone(tmp_path):
    store = Records(tmp_path / "new" / "folder")
    store.write(finished(Trial(Sum(), 0), sum=1.0))
    assert store.find(Trial(Sum(), 0))["outcome"] == {"sum": 1.0}
    assert store.find(Trial(Sum(), 1)) is None
    assert store.find(Trial(Sum(2.0), 0)) is None


def test_a_record_says_how_it_came_about(tmp_path):
    record = finished(Trial(Sum(), 3), sum=1.0)
    assert record["config"] == {"number": 1.0, "mode": "add", "seconds": 0.0, "needs": []}
    assert (record["seed"], record["seconds"]) == (3, 1.5)
    assert record["versions"]["python"] == platform.python_version()
    assert torch.__version__.startswith(record["versions"]["torch"].split("+")[0])
    assert record["threads"] == torch.get_num_threads()
    assert record["cpu"]
    folder = Path(records.__file__).parents[1]
    command = ["git", "-C", str(folder), "rev-parse", "HEAD"]
    head = subprocess.run(command, capture_output=True, text=True).stdout.strip()
    assert (record["commit"] or "").rstrip("+") == head


def test_all_folders_are_read_and_the_first_is_written(tmp_path):
    Records(tmp_path / "b").write(finished(Trial(Sum(), 0)))
    Records(tmp_path / "b" / "inside").write(finished(Trial(Sum(), 2)))
    store = Records(tmp_path / "a", tmp_path / "b")
    store.write(finished(Trial(Sum(), 1)))
    assert [r.trial.seed for r in store.results(Trial(Sum(), s) for s in range(4))] == [0, 1, 2]
    assert len(list((tmp_path / "a").iterdir())) == 1
    assert len(list((tmp_path / "b").iterdir())) == 2


def test_missing_is_what_has_no_record_or_failed(tmp_path):
    store = Records(tmp_path)
    trials = [Trial(Sum(), seed) for seed in range(4)]
    for trial, status in zip(trials, ("finished", "diverged", "failed"), strict=False):
        store.write(records.make(trial, status, {}, seconds=0))
    assert store.missing([*trials, trials[3]]) == trials[2:]
    assert [r.trial for r in store.results(trials)] == trials[:1]


def test_a_default_that_has_changed_makes_old_records_void(tmp_path):
    old = make_dataclass("Net", [("lr", float, 0.1)], frozen=True)
    new = make_dataclass("Net", [("lr", float, 0.2)], frozen=True)
    more = make_dataclass("Net", [("lr", float, 0.1), ("decay", str, "none")], frozen=True)
    for kind in (old, new, more):
        kind.label = "a net"
    store = Records(tmp_path)
    store.write(finished(Trial(old(), 0)))
    assert Trial(old(), 0).key == Trial(new(), 0).key
    assert store.find(Trial(old(), 0)) is not None
    assert store.find(Trial(new(), 0)) is None
    assert store.find(Trial(more(), 0)) is not None


def test_the_file_is_strict_json_with_a_row_of_a_list_to_a_line(tmp_path):
    orders = [{"layer": "0", "final": [2.0, 2.5]}, {"layer": "2", "final": []}]
    outcome = {"orders": orders, "curve": [1.0, 2.0], "empty": {}, "text": 'a "b"\n'}
    path = Records(tmp_path).write(finished(Trial(Sum(), 0), **outcome))
    assert json.loads(path.read_text())["outcome"] == outcome
    assert '{"layer": "0", "final": [2.0, 2.5]},' in [
        s.strip() for s in path.read_text().split("\n")
    ]
    with pytest.raises(ValueError, match="not JSON compliant"):
        Records(tmp_path).write(finished(Trial(Sum(), 1), loss=float("nan")))
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"format": 1}'])
def test_a_damaged_record_is_told(text, tmp_path):
    trial = Trial(Sum(), 0)
    (tmp_path / f"{trial.key}.json").write_text(text)
    with pytest.raises(ValueError, match=rf"{trial.key}\.json: a damaged record"):
        Records(tmp_path).find(trial)
