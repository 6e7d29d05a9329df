import io
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse
from scipy.io import loadmat, savemat

from lpunits.paper.data.matlab import read_mat
from lpunits.paper.data.sources import DataError
from paper.data.damage import bit_flips, outcome, truncations

NEEDS = ["music/JSB_Chorales.mat"]


def mat(compressed: bool, **arrays: object) -> bytes:
    buffer = io.BytesIO()
    savemat(buffer, arrays, do_compression=compressed)
    return buffer.getvalue()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a.mat"


@pytest.mark.parametrize("compressed", [False, True])
def test_reads_the_named_arrays(path: Path, compressed: bool) -> None:
    x = np.arange(60, dtype=np.uint8).reshape(3, 20)
    path.write_bytes(mat(compressed, x=x, y=x.T, other="text"))
    found = read_mat(path, ("x", "y"), 10_000)
    assert found.keys() == {"x", "y"}
    np.testing.assert_array_equal(found["x"], x)
    np.testing.assert_array_equal(found["y"], x.T)


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("code", "bBhHiIqQfd?")
def test_every_type_of_numbers(path: Path, code: str, compressed: bool) -> None:
    x = np.arange(24).reshape(2, 3, 4).astype(code)
    cells = np.empty((2, 2), object)
    cells[:] = [[x, x[:0]], [x[0], np.array([[5]], code)]]
    path.write_bytes(mat(compressed, x=x, cells=cells))
    ours, theirs = read_mat(path, ("x", "cells"), 10_000), loadmat(path)
    np.testing.assert_array_equal(ours["x"], theirs["x"])
    assert ours["cells"].shape == (2, 2)
    for own, other in zip(ours["cells"].flat, theirs["cells"].flat, strict=True):
        assert (own.shape, own.dtype) == (other.shape, other.dtype)
        np.testing.assert_array_equal(own, other)


@pytest.mark.parametrize("thing", ["text", {"a": 1}, np.eye(3) * 1j, sparse.eye(3)])
def test_what_is_no_array_of_real_numbers(path: Path, thing: object) -> None:
    path.write_bytes(mat(True, x=thing, y=np.eye(2)))
    assert read_mat(path, ("y",), 10_000).keys() == {"y"}
    with pytest.raises(DataError, match="x is no array of real numbers"):
        read_mat(path, ("x", "y"), 10_000)


def test_the_real_files_are_read_as_scipy_reads_them(real: Path) -> None:
    keys = "traindata", "validdata", "testdata"
    for path in (real / "music").glob("*.mat"):
        ours, theirs = read_mat(path, keys, 2**28), loadmat(path)
        for key in keys:
            assert ours[key].shape == theirs[key].shape
            for own, other in zip(ours[key].flat, theirs[key].flat, strict=True):
                assert own.dtype == other.dtype
                np.testing.assert_array_equal(own, other)


def test_missing_arrays_are_named(path: Path) -> None:
    path.write_bytes(mat(True, x=np.zeros(3)))
    with pytest.raises(DataError, match=r"a\.mat: the MATLAB file has no array named y, z"):
        read_mat(path, ("x", "y", "z"), 10_000)


@pytest.mark.parametrize("compressed", [False, True])
def test_damage(path: Path, compressed: bool) -> None:
    cells = np.empty((1, 2), object)
    cells[0, :] = [np.eye(5), np.ones((3, 4))]
    good = mat(compressed, x=cells)
    for spoiled in truncations(good):
        path.write_bytes(spoiled)
        with pytest.raises(DataError, match=r"a\.mat: "):
            read_mat(path, ("x",), 10_000)
    for spoiled in bit_flips(good, 150):
        path.write_bytes(spoiled)
        result = outcome(lambda path: read_mat(path, ("x",), 10_000), path)
        assert isinstance(result, dict) or result.startswith(f"{path}: ")
        # zlib has a checksum, which scipy does not look at: nothing wrong may come out.
        if compressed and isinstance(result, dict):
            np.testing.assert_array_equal(result["x"][0, 0], np.eye(5))
            np.testing.assert_array_equal(result["x"][0, 1], np.ones((3, 4)))


def test_a_bomb_is_not_unpacked(path: Path) -> None:
    bomb = zlib.compress(bytes(10**8))
    path.write_bytes(mat(True, x=np.eye(2))[:128] + struct.pack("<II", 15, len(bomb)) + bomb)
    with pytest.raises(DataError, match="it unpacks to more than expected"):
        read_mat(path, ("x",), 10**6)
    path.write_bytes(bytes(2000))
    with pytest.raises(DataError, match="a file of at most 1000 bytes"):
        read_mat(path, ("x",), 1000)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "no header of version 5 to 7"),
        (b"not a MATLAB file" * 20, "no header of version 5 to 7"),
        (b"MATLAB 7.3 MAT-file, Platform: GLNXA64".ljust(512), "save it with -v7"),
    ],
)
def test_other_files(path: Path, data: bytes, reason: str) -> None:
    path.write_bytes(data)
    with pytest.raises(DataError, match=reason):
        read_mat(path, ("x",), 10_000)
