"""A full disk and a read-only folder, real ones: a sentence, the records intact, a later run."""

import json
import os
import subprocess
import sys

import pytest

COMMAND = ["run", "table1", "--scale", "smoke", "--only"]
ALL, FIRST = "digits", "digits, lp 12 x 6, seed 0"

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="mounts file systems")


@pytest.fixture
def disk(tmp_path):
    """A folder with a small file system of its own."""
    folder = tmp_path / "disk"
    folder.mkdir()
    try:
        mount("-t", "tmpfs", "-o", "size=8m", "tmpfs", folder)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("needs the right to mount a file system")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def mount(*options):
    subprocess.run(["mount", *map(str, options)], check=True, capture_output=True)


def fill(folder):
    """Leave one page: enough for the beginning of a record, not for all of it."""
    room = os.statvfs(folder)
    with (folder / "filler").open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, (room.f_bavail - 1) * room.f_frsize)


class Place:
    """Runs of the command line, with their records and their checkpoints in two folders."""

    def __init__(self, nursery, records, work, said, *options):
        self.nursery, self.records, self.work, self.said = nursery, records, work, said
        self.options = options

    def run(self, only=ALL):
        """Exit code, and the lines that were said."""
        return self.say(*COMMAND, only)

    def say(self, *tokens):
        """The same for another command."""
        folders = ["--records", str(self.records), "--work", str(self.work)]
        line = json.dumps([[*tokens, *folders, *self.options], str(self.said)])
        self.nursery.stdin.write(line.encode() + b"\n")
        self.nursery.stdout.readline()
        return int(self.nursery.stdout.readline()), self.said.read_text().splitlines()

    def files(self):
        """Every file of both folders, hidden ones too."""
        every = [*self.records.rglob("*"), *self.work.rglob("*")]
        return {path: path.read_bytes() for path in every if path.is_file()}


@pytest.mark.parametrize("full", ["records", "work"])
def test_a_full_disk(full, nursery, disk, tmp_path):
    folders = {"records": tmp_path / "records", "work": tmp_path / "work", full: disk / full}
    long = ("--set", "epochs=20")  # a record of more than a page
    place = Place(nursery, folders["records"], folders["work"], tmp_path / "said", *long)
    assert place.run(FIRST)[0] == 0
    before = place.files()
    fill(disk)
    code, said = place.run()
    assert code == 1
    (sentence,) = said  # the second trial has no line of its own: it did not end
    assert sentence.startswith(f"lpunits: {folders[full]}")
    assert sentence.endswith("cannot be written: No space left on device")
    after = place.files()
    assert before.items() <= after.items()
    # What was trained so far is kept where there is room for it.
    assert {path.name for path in after.keys() - before.keys()} <= {
        "checkpoint.safetensors",
        "model.safetensors",
    }
    (disk / "filler").unlink()
    code, said = place.run()
    assert (code, said[-1].partition(";")[0]) == (
        0,
        "1 trials run, 1 had a record, 0 failed, 0 left out",
    )
    assert before.items() <= place.files().items()
    assert len(list(place.records.iterdir())) == 2


@pytest.mark.parametrize("closed", ["records", "work"])
def test_a_read_only_folder(closed, nursery, disk, tmp_path):
    folders = {"records": tmp_path / "records", "work": tmp_path / "work", closed: disk / closed}
    place = Place(nursery, folders["records"], folders["work"], tmp_path / "said")
    assert place.run(FIRST)[0] == 0
    before = place.files()
    mount("-o", "remount,ro", disk)
    sentence = f"lpunits: the folder {folders[closed]} is read-only: nothing can be written to it"
    assert place.run() == (1, [sentence])
    assert place.files() == before  # told before anything was trained
    mount("-o", "remount,rw", disk)
    assert place.run()[0] == 0
    assert len(list(place.records.iterdir())) == 2


def test_a_folder_that_cannot_be_made(nursery, disk, tmp_path):
    mount("-o", "remount,ro", disk)
    place = Place(nursery, disk / "new", tmp_path / "work", tmp_path / "said")
    sentence = f"lpunits: the folder {disk / 'new'} cannot be made: Read-only file system"
    assert place.run() == (1, [sentence])


@pytest.mark.parametrize("closed", [False, True], ids=["full", "read-only"])
def test_a_search_goes_on_when_there_is_room_again(closed, nursery, disk, tmp_path):
    place = Place(nursery, disk / "records", tmp_path / "work", tmp_path / "said")
    search = ("search", "mnist", "--scale", "smoke", "--set", "epochs=1")
    assert place.say(*search, "--trials", "2")[0] == 0
    before = {path: path.read_bytes() for path in disk.rglob("*.json")}
    assert before
    if closed:
        mount("-o", "remount,ro", disk)
    else:
        fill(disk)
    code, said = place.say(*search, "--trials", "4")
    assert code == 1
    assert said[-1].startswith("lpunits: ")
    assert any(word in said[-1] for word in ("bytes are free", "No space left", "read-only")), said
    assert not [line for line in said if "Traceback" in line]
    assert {path: path.read_bytes() for path in disk.rglob("*.json")}.items() >= before.items()
    if closed:
        mount("-o", "remount,rw", disk)
    else:
        (disk / "filler").unlink()
    code, said = place.say(*search, "--trials", "4")
    assert code == 0
    assert "4 trials, 0 failed" in said[-1]
