"""Environments that lack something: a home, a name of the user, UTF-8, an extra."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

LPUNITS = """
import json, os, sys
import lpunits_cli
for tokens, missing in json.loads(sys.argv[1]):
    process = os.fork()
    if process == 0:
        sys.modules |= dict.fromkeys(missing)
        try:
            lpunits_cli.main(tokens)
        except SystemExit as end:
            if not isinstance(end.code, int | None):
                print(end.code, file=sys.stderr, flush=True)
                os._exit(1)
            sys.stdout.flush()
            os._exit(end.code or 0)
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    print(f"{tokens[0]} ended with {code}", file=sys.stderr, flush=True)
"""
NOBODY = 54321


def lpunits(folder, *commands, prefix=(), **environment):
    """The output of command lines, each with the modules that are missing."""
    kept = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
    call = [*prefix, sys.executable, "-c", LPUNITS, json.dumps(commands)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    return subprocess.run(call, env=kept | environment, cwd=folder, **pipes, check=True).stdout


@pytest.fixture
def someone(tmp_path_factory):
    """What to put before a command for a user without a name, who may read the files of root."""
    if sys.platform != "linux" or os.geteuid() != 0 or not shutil.which("setpriv"):
        pytest.skip("needs root and setpriv")
    caps = "+dac_override,+dac_read_search"
    prefix = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
    prefix += [f"--inh-caps={caps}", f"--ambient-caps={caps}"]
    if subprocess.run([*prefix, "true"], capture_output=True).returncode:
        pytest.skip("needs the right to change the user")
    return prefix


def test_a_user_without_a_name_a_home_and_utf_8(someone, tmp_path):
    os.chown(tmp_path, NOBODY, NOBODY)
    train = ["run", "mnist", "--scale", "smoke", "--set", "epochs=1"]
    output = lpunits(
        tmp_path,
        [train, []],
        [["report", "mnist", "--scale", "smoke", "--set", "epochs=1"], []],
        [["data"], []],
        [["data", "show", "curve"], []],
        [["list"], []],
        prefix=someone,
        TMPDIR=str(tmp_path),
        OMP_NUM_THREADS="1",
        LC_ALL="C",
        PYTHONUTF8="0",
        PYTHONCOERCECLOCALE="0",
        PYTHONDONTWRITEBYTECODE="1",
    ).decode("ascii")
    for name in ("run", "report", "data", "list"):
        assert f"{name} ended with 0" in output
    assert output.count("ended with 0") == 5, output
    assert "Traceback" not in output
    (record,) = tmp_path.glob("reproduction/records/*.json")
    assert record.stat().st_uid == NOBODY
    assert "\u00b1".encode() in (tmp_path / "reproduction" / "index.html").read_bytes()
    assert (tmp_path / f"lpunits-{NOBODY}").is_dir()
    assert not (tmp_path / "~").exists()


def test_every_command_names_the_extra_that_it_needs(tmp_path):
    search = ["search", "mnist", "--scale", "smoke", "--trials", "1"]
    server = "postgresql://127.0.0.1:1/none"
    output = lpunits(
        tmp_path,
        [["report"], ["jinja2"]],
        [["list"], ["matplotlib"]],
        [search, ["optuna"]],
        [["run", "toy", "--scale", "smoke"], ["sqlalchemy"]],
        [["run", "toy", "--scale", "smoke", "--ray", "local"], ["ray"]],
        [[*search, "--storage", server], ["psycopg"]],
        [["music", "sample", "none", "-o", "out.mid"], ["safetensors"]],
    ).decode()
    assert output.count("ended with 1") == 7
    sentences = [line for line in output.splitlines() if line.startswith("lpunits: ")]
    assert [line.partition("needs ")[2].split(", which")[0] for line in sentences] == [
        *(
            "jinja2",
            "matplotlib",
            "optuna",
            "sqlalchemy",
            "ray",
            "psycopg",
            "safetensors",
        )
    ]
    extras = ["paper"] * 4 + ["ray", "postgresql", "paper"]
    for sentence, extra in zip(sentences, extras, strict=True):
        assert sentence.endswith(f", which is not installed: pip install 'lpunits[{extra}]'")
    assert "Traceback" not in output


def test_without_the_command_line_the_extra_is_named():
    code = "import sys; sys.modules['cyclopts'] = None; import lpunits_cli"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (ended.returncode, ended.stderr) == (
        1,
        "lpunits: the command line needs lpunits[paper]\n",
    )


@pytest.mark.parametrize(
    ("xdg", "home", "expected"),
    [
        ("/there", "/home/me", "/there/lpunits"),
        ("", "/home/me", "/home/me/.cache/lpunits"),
        ("not/absolute", "/home/me", "/home/me/.cache/lpunits"),
        (None, "/home/me", "/home/me/.cache/lpunits"),
    ],
)
@pytest.mark.skipif(sys.platform != "linux", reason="other systems have other folders")
def test_the_cache_folder(xdg, home, expected, monkeypatch):
    from lpunits.paper.data.sources import cache_folder

    monkeypatch.delenv("LPUNITS_CACHE", raising=False)
    monkeypatch.setenv("HOME", home)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    if xdg is not None:
        monkeypatch.setenv("XDG_CACHE_HOME", xdg)
    assert cache_folder() == Path(expected)
