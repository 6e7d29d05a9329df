from pathlib import Path

import numpy as np
import pytest
import torch

from lpunits.paper.data import covertype, load
from lpunits.paper.data.covertype import INDICATORS, principal_axes, read
from lpunits.paper.data.sources import DataError, sha256

ROWS = 300
RNG = np.random.default_rng(0)
KIND = RNG.integers(0, 160, ROWS)
CONTINUOUS = RNG.integers(-100, 7000, (ROWS, 10))
COVER = RNG.integers(1, 8, ROWS)
TABLE = np.concatenate([CONTINUOUS, INDICATORS[KIND].astype(int), COVER[:, None]], 1)


def text(table: np.ndarray) -> str:
    return "".join(",".join(map(str, row)) + "\n" for row in table)


def test_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(covertype, "CONTENT", sha256(text(TABLE).encode()))
    (tmp_path / "covtype.data").write_text(text(TABLE))
    found = read(tmp_path / "covtype.data")
    np.testing.assert_array_equal(found["continuous"], CONTINUOUS)
    np.testing.assert_array_equal(found["kind"], KIND)
    np.testing.assert_array_equal(found["cover"], COVER)


def test_a_file_with_another_checksum_is_refused(folder: Path) -> None:
    (folder / "covtype.data").write_text(text(TABLE))
    with pytest.raises(DataError, match=rf"covtype\.data: .*expected {covertype.CONTENT}"):
        load("covertype")


def test_principal_axes_are_those_of_the_54_columns() -> None:
    kinds = np.where(KIND % 40 < 30, KIND, 0).astype(np.uint8)
    continuous = ((CONTINUOUS - CONTINUOUS.mean(0)) / CONTINUOUS.std(0)).astype(np.float32)
    columns = np.concatenate([continuous, INDICATORS[kinds]], 1).astype(np.float64)
    mean, axes = principal_axes(continuous, kinds, 16)
    np.testing.assert_allclose(mean, columns.mean(0), atol=1e-12)
    np.testing.assert_allclose(axes.T @ axes, np.eye(16), atol=1e-12)
    scores = np.linalg.svd(columns - columns.mean(0), compute_uv=False)[:16] ** 2 / ROWS
    np.testing.assert_allclose(((columns - mean) @ axes).var(0), scores, rtol=1e-10)
    assert (axes[abs(axes).argmax(0), np.arange(16)] > 0).all()


@pytest.mark.parametrize("components", [0, 55, -1, 1.5, "16"])
def test_wrong_components(components: object) -> None:
    with pytest.raises(ValueError, match="components must be a number from 1 to 54, or None"):
        load("covertype", components=components)


# The real file

NEEDS = ["covtype/covtype.data.gz"]

COUNTS = [211_840, 283_301, 35_754, 2_747, 9_493, 17_367, 20_510]


def test_splits_and_classes(real: Path) -> None:
    found = load("covertype")
    splits = found.train, found.valid, found.test
    assert [tuple(s.features.shape) for s in splits] == [(501_012, 16), (40_000, 16), (40_000, 16)]
    assert sum(torch.bincount(s.targets, minlength=7) for s in splits).tolist() == COUNTS
    assert len(found.classes) == 7
    for split in splits:  # each split has its share of each class
        share = torch.bincount(split.targets, minlength=7) / len(split)
        torch.testing.assert_close(share, torch.tensor(COUNTS) / 581_012, atol=0.01, rtol=0)


def test_the_sizes_of_tabr(real: Path) -> None:
    found = load("covertype", components=None, tabr=True)
    splits = found.train, found.valid, found.test
    assert [len(s) for s in splits] == [371_847, 92_962, 116_203]
    assert sum(torch.bincount(s.targets, minlength=7) for s in splits).tolist() == COUNTS
    assert found.train.features[:, :10].double().mean(0).abs().max() < 1e-5


def test_components_are_fitted_on_the_training_rows(real: Path) -> None:
    found, columns = load("covertype"), load("covertype", components=None)
    assert columns.train.features.shape == (501_012, 54)
    assert torch.equal(columns.train.targets, found.train.targets)
    x, z = columns.train.features, found.train.features.double()
    ten, indicators = x[:, :10].double(), x[:, 10:]
    assert ten.mean(0).abs().max() < 1e-5
    assert (ten.std(0) - 1).abs().max() < 1e-5
    assert ((indicators == 0) | (indicators == 1)).all()
    assert (indicators[:, :4].sum(1) == 1).all()
    assert (indicators[:, 4:].sum(1) == 1).all()
    assert z.mean(0).abs().max() < 1e-5
    kept = z.var(0)
    assert (kept[:-1] > kept[1:]).all()
    shares = indicators.mean(0, dtype=torch.float64)
    whole = ten.var(0).sum() + (shares * (1 - shares)).sum()
    assert (kept.sum() / whole).item() == pytest.approx(0.965, abs=1e-3)
    covariance = z.T @ z / len(z)
    torch.testing.assert_close(covariance, covariance.diag().diag(), atol=1e-5, rtol=0)
    # The same rotation takes the rows of the test set, which had no part in it.
    mean = x.mean(0, dtype=torch.float64)
    some = x[:20_000].double() - mean
    rotation = torch.linalg.lstsq(some, z[:20_000], driver="gelsd").solution
    torch.testing.assert_close(
        (columns.test.features.double() - mean) @ rotation,
        found.test.features.double(),
        atol=1e-4,
        rtol=0,
    )


def test_class_2_against_the_rest(real: Path) -> None:
    seven, two = load("covertype", seed=1), load("covertype", binary=True, seed=1)
    assert two.classes == ("the rest", "lodgepole pine")
    assert torch.equal(two.train.targets, (seven.train.targets == 1).long())
    positive = sum(s.targets.sum() for s in (two.train, two.valid, two.test)) / 581_012
    assert positive.item() == pytest.approx(0.488, abs=5e-4)


def test_whitened_components(real: Path) -> None:
    plain, white = load("covertype"), load("covertype", whiten=True)
    scales = plain.train.features.double().std(0, correction=0)
    for found, expected in ((white.train, plain.train), (white.test, plain.test)):
        torch.testing.assert_close(found.features.double() * scales, expected.features.double())
    with pytest.raises(ValueError, match="whiten must be False without components, got True"):
        load("covertype", components=None, whiten=True)
