from pathlib import Path

import numpy as np
import pytest
import torch
from matplotlib.image import imread

from lpunits.paper.data import load
from lpunits.paper.data.dataset import Dataset, Split
from lpunits.paper.data.sheet import draw


def image(path: Path) -> np.ndarray:
    assert path.read_bytes().startswith(b"\x89PNG")
    return imread(path)[..., :3]


OPTIONS = {"pentomino": {"train": 200, "valid": 1, "test": 1}}


@pytest.mark.parametrize(
    "name", ["digits", "pentomino", "two-gaussians", "three-gaussians", "curve"]
)
def test_sheets(tmp_path: Path, name: str) -> None:
    found = load(name, **OPTIONS.get(name, {}))
    path = draw(found, tmp_path / "new folder" / "sheet.png")
    picture = image(path)
    assert min(picture.shape[:2]) > 500
    assert picture.std() > 0.05
    np.testing.assert_array_equal(image(draw(found, tmp_path / "again.png")), picture)
    assert not np.array_equal(image(draw(found, tmp_path / "other.png", seed=1)), picture)


@pytest.mark.parametrize("count", [1, 5])
def test_piano_rolls(tmp_path: Path, count: int) -> None:
    rolls = [torch.eye(88)[: 40 + i] for i in range(count)]
    part = Split(rolls, rolls)
    music = Dataset("mine", part, part, part, (), (88,), "rolls", "", "", "")
    assert image(draw(music, tmp_path / "a.png")).std() > 0.05


def test_few_examples_and_flat_images(tmp_path: Path) -> None:
    part = Split(torch.zeros(3, 16), torch.tensor([0, 0, 2]))
    three = Dataset("three", part, part, part, ("a", "b", "c"), (4, 4), "grey", "", "", "")
    assert image(draw(three, tmp_path / "a.png")).std() > 0.05
