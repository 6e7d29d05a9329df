"""What a running trial has at hand."""

import pytest
import torch
from torch import nn

from lpunits import sealed
from lpunits.paper.training.job import Job


def test_time_is_counted_over_all_processes(tmp_path):
    net = nn.Linear(2, 2)
    first = Job(tmp_path)
    first.seconds_before = 100.0
    first.save({"net": net}, {"epoch": 1})
    second = Job(tmp_path)
    assert second.load({"net": net}) == {"epoch": 1}
    assert 100 < second.seconds < 110


def test_the_progress_shows_losses_errors_and_orders(tmp_path):
    shown = []
    job = Job(tmp_path, show=shown.append)
    orders = {"0": torch.tensor([2.0, 3.0]), "2": torch.tensor([4.0])}
    job.epoch(3, 10, {"loss": 0.123456, "valid_error": 0.0123}, orders)
    assert (shown[0].done, shown[0].total) == (3, 10)
    assert shown[0].text == "loss 0.1235, valid error 1.23%, p 3 (2..4)"


def test_curves_and_histograms_for_tensorboard(tmp_path):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    job = Job(tmp_path / "job", tensorboard=tmp_path / "curves")
    for epoch in (1, 2):
        job.epoch(epoch, 2, {"loss": 1 / epoch}, {"0": torch.tensor([2.0, 3.0, 4.0])})
    job.close()
    # A run that was killed after its second epoch, but before the checkpoint, repeats that epoch.
    again = Job(tmp_path / "job", tensorboard=tmp_path / "curves")
    again.epoch(2, 2, {"loss": 0.25})
    again.close()
    events = accumulator.EventAccumulator(str(tmp_path / "curves"), {"histograms": 0})
    events.Reload()
    assert [(e.step, e.value) for e in events.Scalars("loss")] == [(1, 1.0), (2, 0.25)]
    (histogram,) = (e.histogram_value for e in events.Histograms("orders/0"))
    assert (histogram.min, histogram.max, histogram.num) == (2.0, 4.0, 3.0)


def test_the_model_is_kept_with_its_config(tmp_path):
    net = nn.Linear(2, 2)
    job = Job(tmp_path / "job", identity={"config": {"lr": 0.1}, "seed": 3})
    job.save({"net": net}, {})
    job.save_model(net, {"classes": ["a", "b"]})
    job.close()
    assert [path.name for path in (tmp_path / "job").iterdir()] == ["model.safetensors"]
    tensors, facts = sealed.read(job.model)
    assert facts == {"config": {"lr": 0.1}, "seed": 3, "classes": ["a", "b"]}
    assert torch.equal(tensors["weight"], net.weight)


def test_a_job_that_left_nothing_leaves_no_folder(tmp_path):
    job = Job(tmp_path / "job")
    job.save({}, {})
    job.close()
    assert not (tmp_path / "job").exists()
