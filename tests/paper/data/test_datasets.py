"""The interface: lpunits.paper.data."""

import dataclasses
import subprocess
import sys
from pathlib import Path

import pytest

from lpunits.paper import data
from lpunits.paper.data import DATASETS, fetch, info, load, verify

BUILT_IN = ("digits", "pentomino", "chords", "two-gaussians", "three-gaussians", "curve", "teacher")


@pytest.mark.parametrize("name", DATASETS)
def test_every_dataset_is_described(name: str) -> None:
    entry = info(name)
    assert entry.name == name
    assert all((entry.about, entry.size, entry.licence, entry.source, entry.how))
    assert entry.present == (name in BUILT_IN)  # the data folder of this test is empty
    for source in entry.files:
        assert source.dataset == name
        assert (source.url is None) == (source.known_hash is None)


@pytest.mark.parametrize("name", ["two-gaussians", "digits"])
def test_a_dataset_carries_what_is_known_of_it(name: str) -> None:
    found, entry = load(name), info(name)
    assert (found.name, found.about, found.licence, found.source) == (
        name,
        entry.about,
        entry.licence,
        entry.source,
    )
    assert len(found.checksum) == 64
    assert len(found.train) == len(found.train.targets)
    with pytest.raises(dataclasses.FrozenInstanceError):
        found.name = "another"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("minst", "unknown dataset 'minst': did you mean 'mnist'?"),
        ("MNIST", "unknown dataset 'MNIST': did you mean 'mnist'?"),
        ("covtype", "unknown dataset 'covtype': did you mean 'covertype'?"),
        ("imagenet!", f"unknown dataset 'imagenet!': there are {', '.join(DATASETS)}"),
    ],
)
def test_unknown_names(name: str, message: str) -> None:
    for function in (load, fetch, verify, info):
        with pytest.raises(ValueError, match="unknown dataset") as caught:
            function(name)
        assert str(caught.value) == message


def test_unknown_options() -> None:
    with pytest.raises(ValueError, match="curve has no option 'point': it has points, seed"):
        load("curve", point=3)
    with pytest.raises(ValueError, match="jsb has no option 'seed': it has none"):
        load("jsb", seed=3)


def test_built_in_sets_have_nothing_to_fetch_or_verify() -> None:
    for name in BUILT_IN:
        assert fetch(name) == []
        assert verify(name) == {}


def test_verify_reads_every_file_that_is_there(folder: Path) -> None:
    for name in ("JSB_Chorales.mat", "jsb_chorales.pickle"):
        (folder / name).write_bytes(b"damaged")
    found = verify("jsb")
    assert list(found) == [folder / "JSB_Chorales.mat", folder / "jsb_chorales.pickle"]
    for path, error in found.items():
        assert error is not None
        assert error.startswith(f"{path}: not a ")


def test_a_dataset_is_imported_when_it_is_asked_for() -> None:
    code = (
        "import sys, lpunits.paper.data\n"
        "print([m for m in ('sklearn', 'scipy', 'matplotlib', 'pooch') if m in sys.modules],"
        " 'lpunits.paper.data.music' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[] False"


def test_the_public_names_are_there() -> None:
    assert all(hasattr(data, name) for name in data.__all__)
