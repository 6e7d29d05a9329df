"""Checkpoints put everything back, bit by bit, and are whole or not there."""

import pytest
import torch
from torch import nn

from lpunits import MLP
from lpunits.optim import SGD
from lpunits.paper.training.checkpoint import restore, save


def make(kind, seed=0):
    torch.manual_seed(seed)
    model = MLP(6, [5], 3, filters=2, dropout=0.5)
    optimizer = (
        SGD(model.parameters(), 0.1, momentum=0.9)
        if kind == "sgd"
        else torch.optim.Adam(model.parameters(), lr=0.01)
    )
    batches = torch.Generator().manual_seed(seed)
    best: dict[str, torch.Tensor] = {}
    return {
        "model": model,
        "optimizer": optimizer,
        "batches": batches,
        "dropout": torch.default_generator,
        "best": best,
    }


def steps(parts, count):
    for _ in range(count):
        x = torch.randn(7, 6, generator=parts["batches"])
        parts["optimizer"].zero_grad()
        parts["model"](x).square().mean().backward()
        parts["optimizer"].step()
        parts["optimizer"].param_groups[0]["lr"] *= 0.9
    parts["best"]["first"] = next(parts["model"].parameters()).detach().clone()


@pytest.mark.parametrize("kind", ["sgd", "adam"])
def test_what_is_restored_goes_on_as_if_nothing_had_happened(kind, tmp_path):
    path = tmp_path / "a.safetensors"
    through = make(kind)
    steps(through, 3)
    save(path, through, {"epoch": 3, "curve": [0.1, 1 / 3]})
    steps(through, 4)
    again = make(kind, seed=1)
    again["best"]["stale"] = torch.zeros(1)
    assert restore(path, again) == {"epoch": 3, "curve": [0.1, 1 / 3]}
    assert list(again["best"]) == ["first"]
    steps(again, 4)
    for name, value in through["model"].state_dict().items():
        assert value.isfinite().all()
        assert torch.equal(value, again["model"].state_dict()[name])
    assert again["optimizer"].param_groups[0]["lr"] == through["optimizer"].param_groups[0]["lr"]
    assert torch.equal(again["batches"].get_state(), through["batches"].get_state())


def test_tied_weights_are_saved(tmp_path):
    first = nn.Linear(3, 3)
    net = nn.Sequential(first, nn.Linear(3, 3))
    net[1].weight = first.weight
    save(tmp_path / "a", {"net": net}, {})
    expected = first.weight.detach().clone()
    nn.init.zeros_(first.weight)
    restore(tmp_path / "a", {"net": net})
    assert torch.equal(net[1].weight, expected)


def test_no_file_is_no_checkpoint(tmp_path):
    assert restore(tmp_path / "none", {}) is None


@pytest.mark.parametrize("damage", [b"", b"\x80\x04K\x01.", b"x" * 100])
def test_a_damaged_file_is_told_and_never_unpickled(damage, tmp_path):
    path = tmp_path / "a"
    path.write_bytes(damage)
    with pytest.raises(ValueError, match=r"a: a damaged checkpoint \(.*remove it to start"):
        restore(path, {"net": nn.Linear(2, 2)})


def test_a_checkpoint_of_something_else_is_told(tmp_path):
    save(tmp_path / "a", {"net": nn.Linear(2, 2)}, {})
    with pytest.raises(ValueError, match="a checkpoint of model is expected, got one of net"):
        restore(tmp_path / "a", {"model": nn.Linear(2, 2)})
    with pytest.raises(ValueError, match=r"a checkpoint of another net .*size mismatch"):
        restore(tmp_path / "a", {"net": nn.Linear(2, 3)})


def test_a_checkpoint_that_belongs_to_something_else_is_left_alone(tmp_path):
    net = nn.Linear(2, 2)
    save(tmp_path / "a", {"net": net}, {"epoch": 1}, identity={"lr": 0.1})
    assert restore(tmp_path / "a", {"net": nn.Linear(3, 3)}, identity={"lr": 0.2}) is None
    assert restore(tmp_path / "a", {"net": net}, identity={"lr": 0.1}) == {"epoch": 1}


def test_a_write_that_fails_leaves_the_old_checkpoint(tmp_path):
    path = tmp_path / "a"
    save(path, {"net": nn.Linear(2, 2)}, {"epoch": 1})
    with pytest.raises(TypeError):
        save(path, {"net": nn.Linear(2, 2)}, {"epoch": torch.ones(1)})
    assert restore(path, {"net": nn.Linear(2, 2)}) == {"epoch": 1}
    assert [p.name for p in tmp_path.iterdir()] == ["a"]
