"""A sealed file is read as it was written, or not at all."""

import json

import pytest
import torch
from safetensors.torch import save_file

from lpunits.sealed import DamagedError, read, write

TENSORS = {
    "a/b": torch.arange(12.0).reshape(3, 4),
    "half": torch.ones(3, dtype=torch.bfloat16),
    "none": torch.empty(0, 5),
    "flags": torch.tensor([True, False]),
}


def test_what_was_written_is_read(tmp_path):
    path = tmp_path / "folder" / "a.safetensors"
    facts = {"text": '"sha256": "' + "0" * 64, "nested": [1, {"a": None}], "x": 1 / 3}
    write(path, TENSORS | {"tied": TENSORS["half"], "0" * 64: TENSORS["half"]}, facts)
    tensors, found = read(path)
    assert found == facts
    assert tensors.keys() - {"tied", "0" * 64} == TENSORS.keys()
    for name, tensor in TENSORS.items():
        assert tensors[name].dtype == tensor.dtype
        assert torch.equal(tensors[name], tensor)


def test_the_same_content_gives_the_same_bytes(tmp_path):
    for name in "ab":
        write(tmp_path / name, TENSORS, {"x": 1})
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_every_bit_counts_and_every_length(tmp_path):
    path = tmp_path / "a.safetensors"
    write(path, TENSORS, {"x": 1, "y": "é"})
    whole = path.read_bytes()
    for place in range(len(whole)):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << place % 8
        path.write_bytes(damaged)
        with pytest.raises(DamagedError, match=r"a\.safetensors: damaged"):
            read(path)
        path.write_bytes(whole[:place])
        with pytest.raises(DamagedError, match=r"a\.safetensors: damaged"):
            read(path)
    path.write_bytes(whole + b"\0")
    with pytest.raises(DamagedError):
        read(path)
    path.write_bytes(whole)
    assert read(path)[1] == {"x": 1, "y": "é"}


@pytest.mark.parametrize(
    "header",
    [
        None,
        {"json": "[]"},
        {"json": "{}"},
        {"json": '{"sha256": 3}'},
        {"json": '{"sha256": "123"}'},
        {"json": "[" * 100_000},
        {"json": "9" * 10_000},
        {"other": json.dumps({"sha256": "0" * 64})},
    ],
)
def test_files_of_other_programs_are_refused(header, tmp_path):
    save_file({"a": torch.zeros(1)}, tmp_path / "a", header)
    with pytest.raises(DamagedError, match="a: damaged: ") as caught:
        read(tmp_path / "a")
    assert "\n" not in str(caught.value)


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(DamagedError, match="none: there is no such file"):
        read(tmp_path / "none")
    with pytest.raises(DamagedError, match="cannot be read: Is a directory"):
        read(tmp_path)
