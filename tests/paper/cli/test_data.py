"""The commands ``lpunits data ...``, called as the main command calls them."""

import re
from pathlib import Path

import pytest

from lpunits.paper.cli.data import app
from lpunits.paper.data import DATASETS, DataError, info


@pytest.fixture(autouse=True)
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LPUNITS_DATA", str(tmp_path))
    monkeypatch.setenv("LPUNITS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*arguments: str) -> None:
    app(arguments, exit_on_error=False, result_action="return_value")


def test_list(capsys: pytest.CaptureFixture[str]) -> None:
    run()
    out = capsys.readouterr().out
    for name in DATASETS:
        entry = info(name)
        here = "yes" if entry.present else "no"
        assert re.search(rf"^ *{name} +{here} ", out, re.MULTILINE)
        assert all(text in out for text in (entry.about, entry.size, entry.licence, entry.how))


def test_list_in_a_narrow_window(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    run()
    out = capsys.readouterr().out
    assert all(name in out for name in DATASETS)
    assert max(map(len, out.splitlines())) <= 80


def test_show(capsys: pytest.CaptureFixture[str], data: Path) -> None:
    run("show", "curve")
    assert capsys.readouterr().out == "curve.png\n"
    assert (data / "curve.png").read_bytes().startswith(b"\x89PNG")
    run("show", "curve", "--out", "a/b.png", "--seed", "3")
    assert (data / "a" / "b.png").exists()


def test_verify(capsys: pytest.CaptureFixture[str], data: Path) -> None:
    run("verify")
    assert capsys.readouterr().out == "there is no file to verify: see `lpunits data`\n"
    (data / "JSB_Chorales.mat").write_bytes(b"damaged")
    with pytest.raises(DataError, match="1 of 1 files are damaged"):
        run("verify")
    assert capsys.readouterr().out.startswith(f"{data}/JSB_Chorales.mat: not a MATLAB file")
    run("verify", "mnist", "tfd")


def test_fetch(capsys: pytest.CaptureFixture[str]) -> None:
    run("fetch", "digits")
    assert capsys.readouterr().out == "digits: nothing to fetch, it is part of lpunits\n"
    with pytest.raises(DataError, match=r"tfd: TFD_48x48\.mat cannot be downloaded freely: ask"):
        run("fetch", "tfd")
    with pytest.raises(ValueError, match="did you mean 'mnist'"):
        run("fetch", "mnits")
