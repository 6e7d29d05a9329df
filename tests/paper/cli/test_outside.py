"""An experiment of another package: its entry point is all that the command line needs."""

import os
import subprocess
import sys
from copy import copy

import pytest

from lpunits.paper import experiments
from lpunits.paper.report.section import Experiment, Section

COIN = """
from dataclasses import dataclass
import torch
from lpunits.paper.report.section import Experiment, Section, Table
from lpunits.paper.statistics import spread
from lpunits.paper.training.trial import Trial

@dataclass(frozen=True)
class Coin:
    throws: int = 100
    label, datasets = "a coin", ()

    def run(self, seed, job):
        generator = torch.Generator().manual_seed(seed)
        return {"heads": torch.rand(self.throws, generator=generator).round().mean().item()}

def section(results):
    heads = [r.outcome["heads"] for r in results]
    return Section(f"Heads: {spread(heads)}.", [Table(["heads"], [[spread(heads)]])])

EXPERIMENT = Experiment(
    "coin", "A coin", "How often it shows heads.",
    trials=lambda scale: [Trial(Coin(), seed) for seed in range(4)],
    section=section, minutes={"smoke": 0.1, "quick": 0.1, "paper": 0.1},
)
"""


def test_an_installed_package_adds_an_experiment(tmp_path):
    package = tmp_path / "package"
    (package / "coin_experiment-1.0.dist-info").mkdir(parents=True)
    (package / "coin_experiment.py").write_text(COIN)
    (package / "coin_experiment-1.0.dist-info" / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: coin-experiment\nVersion: 1.0\n"
    )
    (package / "coin_experiment-1.0.dist-info" / "entry_points.txt").write_text(
        "[lpunits.experiments]\ncoin = coin_experiment:EXPERIMENT\n"
    )
    path = os.pathsep.join([str(package), os.environ.get("PYTHONPATH", "")])

    def lpunits(*tokens):
        command = [sys.executable, "-m", "lpunits", *tokens]
        ended = subprocess.run(
            command, env={**os.environ, "PYTHONPATH": path}, cwd=tmp_path, capture_output=True
        )
        assert ended.returncode == 0, ended.stderr.decode()
        return ended.stdout.decode()

    run = lpunits("run", "coin", "--jobs", "2")  # in worker processes, too
    assert "coin: Heads: 0." in run
    assert "4 trials run; " in run
    lpunits("report", "coin")
    assert "A coin" in (tmp_path / "reproduction" / "index.html").read_text()


def test_register_for_this_process(monkeypatch):
    monkeypatch.setattr(experiments, "EXPERIMENTS", copy(experiments.EXPERIMENTS))
    own = Experiment("own", "Own", "", lambda scale: [], lambda results: Section(""), {})
    experiments.register(own)
    experiments.register(own)  # a notebook runs its cells again
    assert experiments.chosen(("fig1", "own"))[-1] is own
    assert experiments.chosen(("all",))[-1] is own
    with pytest.raises(ValueError, match="the name 'fig1' belongs to another experiment"):
        experiments.register(Experiment("fig1", "", "", own.trials, own.section, {}))
    experiments.EXPERIMENTS["gone"] = "nowhere:EXPERIMENT"
    with pytest.raises(ValueError, match="'gone' cannot be imported: No module named 'nowhere'"):
        experiments.get("gone")
