"""The command line: what it prints, what it answers to mistakes, and its exit codes."""

import re
import shlex
import subprocess
import sys

import pytest

pytest.importorskip("cyclopts", reason="needs lpunits[paper]")

from lpunits.paper import cli, experiments


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    return tmp_path


def main(*tokens):
    """The exit code, or the sentence with which the program ends."""
    with pytest.raises(SystemExit) as end:
        cli.main(list(tokens))
    return end.value.code


def test_list_names_every_experiment_its_time_and_its_records(capsys):
    assert not main("list")
    out = capsys.readouterr().out
    for experiment in experiments.chosen(("all",)):
        assert re.search(rf"^ *{experiment.name} +smoke ", out, re.MULTILINE)
    assert "0 of 40" in out
    assert main("run", "toy", "--scale", "smoke", "--set", "iterations=3") == 0
    assert main("run", "mnist", "--scale", "smoke") == 0
    capsys.readouterr()
    assert not main("list")
    row = capsys.readouterr().out.split(" mnist ")[1]
    assert "1 of 1" in row.splitlines()[0]


def test_run_then_report(capsys, folder, monkeypatch):
    assert main("run", "mnist", "fig1", "--scale", "smoke") == 0
    expected = "1 trials run, 0 had a record, 0 failed, 0 left out; records: reproduction/records"
    assert capsys.readouterr().out.strip() == expected
    assert main("run", "mnist", "--scale", "smoke") == 0
    assert capsys.readouterr().out.startswith("0 trials run, 1 had a record")
    opened = []
    monkeypatch.setattr(cli.webbrowser, "open", opened.append)
    assert not main("report", "--scale", "smoke", "--open")
    page = folder / "reproduction" / "index.html"
    assert capsys.readouterr().out == f"report: {page.as_uri()}\n"
    assert opened == [page.as_uri()]
    text = page.read_text()
    assert 'id="mnist"' in text
    assert "<code>lpunits run table3</code>" in text  # not run yet


def test_records_of_the_scale_paper_go_to_results(folder, monkeypatch):
    monkeypatch.setenv("LPUNITS_DATA", str(folder))
    settings = ("--set", "data=digits", "--set", "epochs=1", "--set", "hidden=(4,)")
    assert main("run", "mnist", "--scale", "paper", *settings) == 0
    assert len(list((folder / "results").glob("*.json"))) == 2
    assert not main("report", "mnist", "--scale", "paper", *settings)
    assert "--set data=digits" in (folder / "reproduction" / "index.html").read_text()


def test_what_is_quick_is_run_though_results_have_its_record(folder, capsys):
    assert main("run", "toy", "--scale", "smoke", "--records", "results") == 0
    assert main("run", "toy", "--scale", "smoke") == 0
    assert "0 had a record" in capsys.readouterr().out.splitlines()[-1]


def test_a_trial_that_fails_gives_the_exit_code_1(folder, capsys):
    assert main("run", "toy", "--scale", "smoke", "--set", "starts=0") == 1
    assert "4 failed" in capsys.readouterr().out


def test_no_data_at_all_gives_the_exit_code_1(folder, monkeypatch, capsys):
    monkeypatch.setenv("LPUNITS_DATA", str(folder))
    monkeypatch.setenv("LPUNITS_CACHE", str(folder))
    assert main("run", "mnist", "--scale", "paper") == 1
    captured = capsys.readouterr()
    assert "2 left out" in captured.out
    assert "lpunits data fetch mnist" in captured.err


@pytest.mark.parametrize(
    ("tokens", "sentence"),
    [
        (["run"], "lpunits: run needs the name of an experiment, or all: see `lpunits list`"),
        (["run", "tabel2"], "lpunits: unknown experiment 'tabel2': did you mean 'table2'?"),
        (["report", "tabel2"], "lpunits: unknown experiment 'tabel2': did you mean 'table2'?"),
        (["run", "toy", "--jobs", "0"], "lpunits: jobs must be a number of at least 1, got 0"),
        (["search"], "lpunits: search needs the name of an experiment, such as mnist, or --resume"),
        (["search", "mnit"], "lpunits: there is no search for 'mnit': did you mean 'mnist'?"),
        (["search", "mnist", "--jobs", "0"], "lpunits: jobs must be a number of at least 1, got 0"),
        (
            ["run", "toy", "--ray", "local", "--cpus", "0"],
            "lpunits: cpus must be a number of at least 1, got 0",
        ),
        (
            ["run", "mnist", "--set", "epoch=3"],
            "lpunits: --set: no trial has a field 'epoch': did you mean 'epochs'?",
        ),
    ],
)
def test_mistakes_are_answered_by_one_sentence(tokens, sentence):
    assert main(*tokens) == sentence


def test_search_then_run_from_it_then_report(capsys, folder):
    settings = (
        "--scale",
        "smoke",
        "--set",
        "data=curve",
        "--set",
        "data_options=(('points',100),)",
    )
    assert main("run", "mnist", *settings, "--from-search") == (
        "lpunits: --from-search: there is no finished search, run `lpunits search mnist "
        f"{shlex.join(settings)}` first"
    )
    assert main("search", "mnist", *settings, "--trials", "4", "--sampler", "tpe") == 0
    out = capsys.readouterr().out
    assert re.search(
        r"4 trials, 0 failed, 0 pruned; trial \d wins: .* on test; records: repro", out
    )
    assert (
        main("search", "--resume") == "lpunits: --resume: there is no search here that is not over"
    )
    assert main("run", "mnist", *settings, "--from-search", "--seeds", "2") == 0
    assert capsys.readouterr().out.startswith("1 trials run, 1 had a record, 0 failed")
    assert not main("report", "mnist", "--scale", "smoke")
    text = (folder / "reproduction" / "index.html").read_text()
    assert "Search: mnist, 4 trials" in text
    assert len(list((folder / "reproduction" / "figures").glob("search-*-importance-*.svg"))) == 1
    assert "(n = 2) on test over seeds" in text


@pytest.mark.parametrize("tokens", [["rum", "toy"], ["run", "toy", "--scale", "huge"]])
def test_what_cannot_be_parsed_is_answered_with_a_hint(tokens, capsys):
    assert main(*tokens) == 2
    assert re.search(r'Did you mean "run"|Choose from: "smoke"', capsys.readouterr().err)


def test_help_names_every_option(capsys):
    assert not main("run", "--help")
    out = capsys.readouterr().out
    for option in ("--scale", "--jobs", "--set", "--records", "--work", "--tensorboard"):
        assert option in out


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_for_the_shell(shell):
    assert "lpunits" in cli.app.generate_completion(shell=shell)


def test_bench_passes_its_arguments_on(capfd):
    assert main("bench", "--quick", "--threads", "0") == 2
    assert "--threads must be at least 1, got 0" in capfd.readouterr().err


def test_the_program_itself():
    command = [sys.executable, "-m", "lpunits", "run", "toi"]
    ended = subprocess.run(command, capture_output=True, text=True)
    assert ended.returncode == 1
    assert ended.stderr == "lpunits: unknown experiment 'toi': did you mean 'toy'?\n"
