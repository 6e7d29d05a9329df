import gzip
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from lpunits.paper.data import load, verify
from lpunits.paper.data.mnist import CONTENT, read_idx
from lpunits.paper.data.sources import DataError, sha256
from paper.data.damage import bit_flips, outcome, truncations

IMAGES = np.arange(5 * 28 * 28, dtype=np.uint8).reshape(5, 28, 28)
LABELS = np.array([3, 1, 4, 1, 9], np.uint8)


def idx(array: np.ndarray) -> bytes:
    sizes = np.array(array.shape, ">u4").tobytes()
    return bytes([0, 0, 8, array.ndim]) + sizes + array.tobytes()


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
@pytest.mark.parametrize("array", [IMAGES, LABELS])
def test_plain_and_gzip(tmp_path: Path, pack: Callable[[bytes], bytes], array: np.ndarray) -> None:
    (tmp_path / "a").write_bytes(pack(idx(array)))
    found = read_idx(tmp_path / "a", array.shape, sha256(idx(array)))
    np.testing.assert_array_equal(found, array)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "the content has the sha256"),
        (idx(IMAGES[:4]), "the content has the sha256"),
        (idx(IMAGES) + b"!", "holds more than the 3936 bytes"),
        (gzip.compress(bytes(10**7)), "holds more than the 3936 bytes"),
    ],
)
def test_another_file(tmp_path: Path, data: bytes, reason: str) -> None:
    path = tmp_path / "images"
    path.write_bytes(data)
    with pytest.raises(DataError, match=f"images: .*{reason}"):
        read_idx(path, IMAGES.shape, sha256(idx(IMAGES)))


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_no_damage_goes_unnoticed(tmp_path: Path, pack: Callable[[bytes], bytes]) -> None:
    path, good = tmp_path / "a", pack(idx(IMAGES))
    for spoiled in [*truncations(good), *bit_flips(good)]:
        path.write_bytes(spoiled)
        found = outcome(lambda path: read_idx(path, IMAGES.shape, sha256(idx(IMAGES))), path)
        if isinstance(found, str):
            assert found.startswith(f"{path}: ")
        else:  # a bit of the gzip header that means nothing
            np.testing.assert_array_equal(found, IMAGES)


def test_missing() -> None:
    with pytest.raises(DataError, match="run `lpunits data fetch mnist`, or download https://"):
        load("mnist")


# The real files

NEEDS = [f"mnist/{name}.gz" for name in CONTENT]


def test_splits(real: Path) -> None:
    found = load("mnist")
    for split, count in ((found.train, 50_000), (found.valid, 10_000), (found.test, 10_000)):
        assert split.features.shape == (count, 784)
        assert split.features.dtype == torch.float32
        assert (split.features.min(), split.features.max()) == (0, 1)
        assert split.targets.dtype == torch.int64
    counts = [torch.bincount(s.targets).tolist() for s in (found.train, found.valid, found.test)]
    assert counts[0] == [4932, 5678, 4968, 5101, 4859, 4506, 4951, 5175, 4842, 4988]
    assert counts[1] == [991, 1064, 990, 1030, 983, 915, 967, 1090, 1009, 961]
    assert counts[2] == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]


def test_last_stage_mean_and_deviation(real: Path) -> None:
    found = load("mnist", last_stage=True)
    assert found.train.features.shape == (60_000, 784)
    assert found.train.features.double().mean().item() == pytest.approx(0.1307, abs=5e-5)
    assert found.train.features.double().std().item() == pytest.approx(0.3081, abs=5e-5)
    assert torch.equal(found.valid.features, found.train.features[50_000:])
    assert torch.equal(found.valid.targets, found.train.targets[50_000:])


def test_repacked_files_pass_and_flipped_ones_do_not(
    real: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LPUNITS_DATA", str(folder))
    for name in CONTENT:
        shutil.copy(real / "mnist" / f"{name}.gz", folder)
    labels = folder / "t10k-labels-idx1-ubyte.gz"
    plain = gzip.decompress(labels.read_bytes())
    labels.write_bytes(gzip.compress(plain, 1))
    assert load("mnist").test.targets[0] == 7
    assert set(verify("mnist").values()) == {None}
    flipped = bytearray(plain)
    flipped[1234] ^= 1  # a valid label, but a wrong one
    labels.write_bytes(gzip.compress(flipped))
    with pytest.raises(DataError, match=r"t10k-labels.*the content has the sha256"):
        load("mnist")
    assert [error is None for error in verify("mnist").values()] == [True, True, True, False]
