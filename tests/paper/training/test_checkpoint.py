"""Checkpoints put everything back, bit by bit, and are whole or not there."""

import tempfile
from pathlib import Path

import pytest
import torch
from torch import nn

from lpunits import MLP, sealed
from lpunits.optim import SGD
from lpunits.paper.training.checkpoint import restore, save
from lpunits.sealed import DamagedError


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
    with pytest.raises(
        DamagedError, match=r"a: damaged: it is not a file that lpunits has written"
    ):
        restore(path, {"net": nn.Linear(2, 2)})


def test_every_50th_byte_of_a_real_checkpoint(tmp_path):
    path = tmp_path / "a"
    parts = make("adam")
    steps(parts, 2)
    save(path, parts, {"epoch": 2})
    whole = path.read_bytes()
    other = make("adam", seed=1)
    before = contents(other)
    for place in range(0, len(whole), 50):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << place % 8
        path.write_bytes(damaged)
        with pytest.raises(DamagedError, match="a: damaged: "):
            restore(path, other)
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DamagedError, match="a: damaged: "):
        restore(path, other)
    assert contents(other) == before


def contents(parts):
    """All that a checkpoint of the parts would hold."""
    with tempfile.TemporaryDirectory() as folder:
        save(Path(folder) / "a", parts, {})
        return (Path(folder) / "a").read_bytes()


def test_a_checkpoint_of_something_else_is_told_and_changes_nothing(tmp_path):
    path, parts = tmp_path / "a", make("sgd")
    steps(parts, 2)

    def refused(sentence, changed=parts, change=lambda tensors, facts: None, **options):
        save(path, changed, {"epoch": 3})
        tensors, facts = sealed.read(path)
        change(tensors, facts)
        sealed.write(path, tensors, facts)
        mine = make("sgd", seed=1)
        before = contents(mine)
        with pytest.raises(DamagedError, match=f"a: a checkpoint of another run: .*{sentence}"):
            restore(path, mine, **options)
        assert contents(mine) == before

    def other_momentum(tensors, facts):
        tensors["optimizer/0/momentum_buffer"] = torch.zeros(3)

    def other_options(tensors, facts):
        del facts["parts"]["optimizer"]["groups"][0]["lr"]

    def no_parts(tensors, facts):
        facts["parts"] = [1, 2]

    def short_generator(tensors, facts):
        tensors["dropout/state"] = tensors["dropout/state"][:9]

    def no(state):
        raise ValueError(f"epoch {state['epoch']}")

    refused("it is one of model, expected is one of batches, best", {"model": parts["model"]})
    refused("size mismatch", parts | {"model": MLP(6, [4], 3, filters=2)})
    refused(r"momentum_buffer of the optimizer has the shape \(3,\)", change=other_momentum)
    refused("its optimizer has other options", change=other_options)
    refused("'list' object has no", change=no_parts)
    refused("RNG state", change=short_generator)
    refused("epoch 3", check=no)


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
