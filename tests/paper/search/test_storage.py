"""A full disk and a read-only folder: a clear error, no damaged record, a later run resumes."""

import os
import subprocess
import sys

import pytest

from lpunits.paper.search import claims

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
    """Leave one page free: enough for a part of a record, not for all of it."""
    room = os.statvfs(folder)
    with (folder / "filler").open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, (room.f_bavail - 1) * room.f_frsize)


class Place:
    """Runs of the command line, with their records and their checkpoints in two folders."""

    def __init__(self, forks, records, work, output, *options):
        self.forks, self.records, self.work, self.output = forks, records, work, output
        self.options = options

    def run(self, only=ALL, jobs=1):
        """The exit code and the lines of the output."""
        return self.call(*COMMAND, only, "--jobs", str(jobs))

    def call(self, *tokens):
        """The same for another command."""
        folders = ["--records", str(self.records), "--work", str(self.work)]
        code = self.forks.run(*tokens, *folders, *self.options, output=self.output)
        return code, self.output.read_text().splitlines()

    def files(self):
        """Every file of both folders, hidden ones too, but for the claims of runs."""
        every = [*self.records.rglob("*"), *self.work.rglob("*")]
        files = [path for path in every if path.is_file() and claims.FILE not in path.name]
        return {path: path.read_bytes() for path in files}


@pytest.mark.parametrize("full", ["records", "work"])
def test_a_full_disk(full, forks, disk, tmp_path):
    folders = {"records": tmp_path / "records", "work": tmp_path / "work", full: disk / full}
    long = ("--set", "epochs=20")  # a record of more than a page
    place = Place(forks, folders["records"], folders["work"], tmp_path / "output", *long)
    assert place.run(FIRST)[0] == 0
    before = place.files()
    fill(disk)
    code, lines = place.run()
    assert code == 1
    *_, sentence = lines
    assert not [line for line in lines if line.startswith("[")]  # the second trial did not end
    assert sentence.startswith(f"lpunits: {folders[full]}")
    assert sentence.endswith(("No space left on device", " (0 bytes are free on that disk)"))
    after = place.files()
    assert before.items() <= after.items()
    # What was trained so far is kept where there is room for it.
    assert {path.name for path in after.keys() - before.keys()} <= {
        "checkpoint.safetensors",
        "model.safetensors",
    }
    (disk / "filler").unlink()
    code, lines = place.run()
    assert code == 0
    assert any(line.startswith("1 trial run, 1 had a record; ") for line in lines)
    assert before.items() <= place.files().items()
    assert len(list(place.records.glob("*.json"))) == 2


@pytest.mark.parametrize("closed", ["records", "work"])
def test_a_read_only_folder(closed, forks, disk, tmp_path):
    folders = {"records": tmp_path / "records", "work": tmp_path / "work", closed: disk / closed}
    place = Place(forks, folders["records"], folders["work"], tmp_path / "output")
    assert place.run(FIRST)[0] == 0
    before = place.files()
    mount("-o", "remount,ro", disk)
    sentence = f"lpunits: the folder {folders[closed]} is read-only: nothing can be written to it"
    for jobs in 1, 2:
        assert place.run(jobs=jobs) == (1, [sentence])
    assert place.files() == before  # the error came before any training
    mount("-o", "remount,rw", disk)
    assert place.run()[0] == 0
    assert len(list(place.records.glob("*.json"))) == 2


def test_a_full_disk_with_two_processes(forks, disk, tmp_path):
    place = Place(forks, tmp_path / "records", disk / "work", tmp_path / "output")
    (disk / "work").mkdir()
    fill(disk)
    code, lines = place.run(jobs=2)
    assert code == 1
    assert lines[-1].startswith(f"lpunits: {disk / 'work'}")
    assert lines[-1].endswith("cannot be written: No space left on device")
    assert not [line for line in lines if "Traceback" in line]
    left = [path for path in place.work.rglob("*") if path.is_file()]
    assert {path.suffix for path in left} <= {".safetensors"}  # no half of a file
    (disk / "filler").unlink()
    code, lines = place.run(jobs=2)
    assert code == 0
    assert any(line.startswith("2 trials run; ") for line in lines)


def test_a_folder_that_cannot_be_made(forks, disk, tmp_path):
    mount("-o", "remount,ro", disk)
    place = Place(forks, disk / "new", tmp_path / "work", tmp_path / "output")
    sentence = f"lpunits: the folder {disk / 'new'} cannot be made: Read-only file system"
    assert place.run() == (1, [sentence])


@pytest.mark.parametrize("closed", [False, True], ids=["full", "read-only"])
def test_a_search_resumes_when_there_is_room_again(closed, forks, disk, tmp_path):
    place = Place(forks, disk / "records", tmp_path / "work", tmp_path / "output")
    search = ("search", "mnist", "--scale", "smoke", "--set", "epochs=1", "--jobs", "1")
    assert place.call(*search, "--trials", "2")[0] == 0
    before = {path: path.read_bytes() for path in disk.rglob("*.json")}
    assert before
    if closed:
        mount("-o", "remount,ro", disk)
    else:
        fill(disk)
    code, lines = place.call(*search, "--trials", "4")
    assert code == 1
    assert lines[-1].startswith("lpunits: ")
    assert any(word in lines[-1] for word in ("bytes are free", "No space left", "read-only")), (
        lines
    )
    assert not [line for line in lines if "Traceback" in line]
    assert {path: path.read_bytes() for path in disk.rglob("*.json")}.items() >= before.items()
    if closed:
        mount("-o", "remount,rw", disk)
    else:
        (disk / "filler").unlink()
    code, lines = place.call(*search, "--trials", "4")
    assert code == 0
    assert any("4 trials, 0 failed" in line for line in lines)
