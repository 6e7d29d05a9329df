"""The command line: its output, its answers to mistakes, and its exit codes."""

import json
import re
import shlex
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

pytest.importorskip("cyclopts", reason="needs lpunits[paper]")

import lpunits_cli
from lpunits.paper import experiments
from lpunits.paper.cli import tables
from lpunits.paper.report import summary
from lpunits.paper.training.records import Records

RESULTS = Path(__file__).parents[3] / "results"


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tables.console, "_width", 80)
    return tmp_path


def main(*tokens):
    """The exit code, or the sentence with which the program ends."""
    with pytest.raises(SystemExit) as end:
        lpunits_cli.main(list(tokens))
    return end.value.code


def test_list_fits_a_screen_and_names_every_experiment_with_its_times(capsys):
    assert not main("list")
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) < 24
    assert max(map(len, lines)) <= 80
    for experiment in experiments.chosen(("all",)):
        time = "none" if experiment.name == "fig1" else r"[\d.]+ (s|min|h)"
        assert any(re.match(rf" *{experiment.name} .* {time} +{time} *$", x) for x in lines)


def test_show_counts_records_and_shows_what_they_say(capsys):
    assert not main("show", "mnist")
    assert re.search(r"smoke +1 +0 +6.0 s +digits", capsys.readouterr().out)
    assert main("run", "mnist", "--scale", "smoke") == 0
    capsys.readouterr()
    assert not main("show", "mnist")
    out = capsys.readouterr().out
    assert re.search(r"smoke +1 +1 +6.0 s +digits", out)
    assert out.startswith("MNIST in minutes")
    assert out.splitlines()[-1] == "report: lpunits report mnist"


SUMMARY = """[{"what": "error on MNIST", "paper": "0.97%", "ours": "0.81% (n = 5)", "verdict":
"better", "why": "", "command": "lpunits run table2 --scale paper"}]"""


def test_without_records_the_summary_of_the_package_is_shown(capsys, folder, monkeypatch):
    (folder / "package").mkdir()
    (folder / "package" / "summary.json").write_text(SUMMARY)
    monkeypatch.setattr(summary.resources, "files", lambda package: folder / "package")
    row = r"error on MNIST +0.97% +0.81% \(n = 5\) +better"
    for tokens in (["show", "table2"], ["report", "table2"]):
        assert not main(*tokens)
        assert re.search(row, capsys.readouterr().out)
    assert not main("show", "table3")
    assert "MNIST" not in capsys.readouterr().out
    assert main("run", "table2", "--scale", "smoke", "--set", "epochs=1", "--only", "seed 0") == 0
    out = capsys.readouterr().out
    assert re.search(row, out.partition("The project's own results at --scale paper")[2])


@pytest.mark.skipif(not RESULTS.is_dir(), reason="needs the repository's results")
def test_a_repetition_is_compared_with_the_committed_results(capsys, folder):
    trials = [t for t in experiments.get("modern").trials("paper") if t.config.data == "mnist"]
    again = Records(folder / "again")
    for trial in trials:
        again.write(Records(RESULTS).find(trial))
    check = ("report", "modern", "--scale", "paper", "--records", "again", "--check")
    assert main(*check) == 0
    assert re.search(
        r"^3 of \d+ committed rows are here: 3 identical$", capsys.readouterr().out, re.M
    )
    for seed in range(5):
        path = again.path(trials[seed])
        record = json.loads(path.read_text())
        record["outcome"]["last_stage"]["test"]["error"] = 0.02 + 0.001 * seed
        path.write_text(json.dumps(record))
    assert main(*check) == 1
    out = capsys.readouterr().out
    assert "2.20% ± 0.16%" in out
    assert out.endswith("committed rows are here: 1 differs, 2 identical\n")
    assert main("report", "modern", "--records", "none", "--check") == 0
    assert capsys.readouterr().out.endswith("committed rows are here: none\n")


def test_run_then_report(capsys, folder, monkeypatch):
    assert main("run", "mnist", "fig1", "--scale", "smoke") == 0
    out = capsys.readouterr().out
    assert "test error on digits (8 x 8)" in out  # what it found
    *_, counts, models, command = out.splitlines()
    assert counts == "1 trial run; records: reproduction/records"
    assert models.startswith("trained models: reproduction/trials/feedforward-")
    assert command == "report: lpunits report mnist fig1 --scale smoke"
    assert main("run", "mnist", "--scale", "smoke") == 0
    assert "0 trials run, 1 had a record; " in capsys.readouterr().out
    opened = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    assert not main(*shlex.split(command)[2:], "--open")
    page = folder / "reproduction" / "index.html"
    assert capsys.readouterr().out == f"report: {page.as_uri()}\n"
    assert opened == [page.as_uri()]
    text = page.read_text()
    assert 'id="mnist"' in text


def test_records_of_the_scale_paper_go_to_results(folder, monkeypatch):
    monkeypatch.setenv("LPUNITS_DATA", str(folder))
    settings = ("--set", "data=digits", "--set", "epochs=1", "--set", "hidden=(4,)")
    assert main("run", "mnist", "--scale", "paper", *settings) == 0
    assert len(list((folder / "results").glob("*.json"))) == 2
    assert not main("report", "mnist", "--scale", "paper", *settings)
    assert "--set data=digits" in (folder / "reproduction" / "index.html").read_text()


def test_small_scales_do_not_use_the_records_of_the_repository(folder, capsys):
    assert main("run", "mnist", "--scale", "smoke", "--records", "results") == 0
    assert main("run", "mnist", "--scale", "smoke") == 0
    assert "had a record" not in capsys.readouterr().out


def test_a_trial_that_fails_gives_the_exit_code_1(folder, capsys):
    # A convolution is told so when it is made, in the trial.
    assert main("run", "gem", "--scale", "smoke", "--set", "sparse_inputs=true", "--jobs", "1") == 1
    assert re.search(r"^(\d+) trials? run, \1 failed; ", capsys.readouterr().out)


def test_no_data_at_all_gives_the_exit_code_1(folder, monkeypatch, capsys):
    monkeypatch.setenv("LPUNITS_DATA", str(folder))
    monkeypatch.setenv("LPUNITS_CACHE", str(folder))
    assert main("run", "mnist", "--scale", "paper") == 1
    captured = capsys.readouterr()
    assert "2 left out" in captured.out
    assert "lpunits data fetch mnist" in captured.err


def test_a_dry_run_lists_trials_and_times_and_runs_nothing(folder, capsys):
    assert main("run", "toy", "table2", "--scale", "smoke", "--dry-run", "--jobs", "2") == 0
    out = capsys.readouterr().out
    assert re.search(r"a norm of order 4, seeds 0-1 +6.0 s", out)
    assert re.search(r"digits, relu 16-16.* seed 0 +4.5 s", out)
    assert out.splitlines()[-1] == "12 of 12 trials have no record: 2 at a time, about 24 s"
    assert not list(folder.iterdir())


def test_an_only_that_matches_nothing_lists_the_labels_and_other_scales():
    first, *labels = main("run", "table4", "--only", "jsb, gru").splitlines()
    assert first == (
        "lpunits: --only 'jsb, gru' matches no label at --scale quick. It matches 6 at --scale "
        "paper. The labels are"
    )
    assert labels[0] == "  chords, lp, seeds 0-1"
    assert len(labels) == 6
    *_, last = main("run", "fig4c", "--only", "nothing").splitlines()
    assert re.fullmatch("  and [0-9]+ more", last)


@pytest.mark.parametrize(
    ("tokens", "sentence"),
    [
        (["run"], "lpunits: run needs the name of an experiment, or all: see `lpunits list`"),
        (["run", "tabel2"], "lpunits: unknown experiment 'tabel2': did you mean 'table2'?"),
        (["report", "tabel2"], "lpunits: unknown experiment 'tabel2': did you mean 'table2'?"),
        (["run", "toy", "--jobs", "0"], "lpunits: jobs must be a positive integer, got 0"),
        (["search"], "lpunits: search needs the name of an experiment, such as mnist, or --resume"),
        (["search", "mnit"], "lpunits: there is no search for 'mnit': did you mean 'mnist'?"),
        (["search", "mnist", "--jobs", "0"], "lpunits: jobs must be a positive integer, got 0"),
        (
            ["run", "toy", "--ray", "local", "--cpus", "0"],
            "lpunits: cpus must be a positive integer, got 0",
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
    assert main("search", "--resume") == "lpunits: --resume: there is no unfinished search here"
    assert main("run", "mnist", *settings, "--from-search", "--seeds", "2") == 0
    out = capsys.readouterr().out
    assert re.search(r"seeds 0-1: [\d.]+% ± [\d.]+% \(n = 2\) on test", out)
    assert "1 trial run, 1 had a record; " in out
    assert not main("report", "mnist", "--scale", "smoke")
    text = (folder / "reproduction" / "index.html").read_text()
    assert "Search: mnist, 4 trials" in text
    assert len(list((folder / "reproduction" / "figures").glob("search-*-importance-*.svg"))) == 1
    assert "(n = 2) on test" in text


@pytest.mark.parametrize("tokens", [["rum", "toy"], ["run", "toy", "--scale", "huge"]])
def test_what_cannot_be_parsed_is_answered_with_a_hint(tokens, capsys):
    assert main(*tokens) == 2
    assert re.search(r'Did you mean "run"|Choose from: "smoke"', capsys.readouterr().err)


def test_help_names_every_option(capsys):
    assert not main("run", "--help")
    out = capsys.readouterr().out
    for option in (
        "--scale",
        "--jobs",
        "--set",
        "--records",
        "--work",
        "--tensorboard",
        "--dry-run",
    ):
        assert option in out


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_for_the_shell(shell):
    assert "lpunits" in lpunits_cli.app.generate_completion(shell=shell)


def test_bench_passes_its_arguments_on(capfd):
    assert main("bench", "--quick", "--threads", "0") == 2
    assert "--threads must be at least 1, got 0" in capfd.readouterr().err


def test_the_program_itself():
    command = [sys.executable, "-m", "lpunits", "run", "toi"]
    ended = subprocess.run(command, capture_output=True, text=True)
    assert ended.returncode == 1
    assert ended.stderr == "lpunits: unknown experiment 'toi': did you mean 'toy'?\n"


@pytest.mark.parametrize("option", ["--version", "--help"])
def test_version_and_help_do_not_import_torch(option):
    code = f"""
import sys, lpunits_cli
try:
    lpunits_cli.main([{option!r}])
finally:
    print(*sys.modules, file=sys.stderr)
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert not {"torch", "lpunits", "numpy"} & set(ended.stderr.split())
    expected = f"{version('lpunits')}\n" if option == "--version" else "Usage: lpunits COMMAND"
    assert ended.stdout.startswith(expected)


def test_music_of_ones_own(folder, capsys):
    from lpunits.paper.data import load
    from lpunits.paper.data.midi import write_midi

    (folder / "tunes").mkdir()
    for i, roll in enumerate(load("chords", train=4, valid=1, test=1).train.features):
        write_midi(folder / "tunes" / f"{i}.mid", roll)
    command = ("run", "music", "--scale", "smoke", "--only", "lp", "--data", "tunes")
    assert main(*command) == 0
    out = capsys.readouterr().out
    assert "tunes: 2 / 1 / 1 pieces to train, validate and test" in out
    assert main(*command) == 0
    assert "1 had a record" in capsys.readouterr().out
    (folder / "tunes" / "1.mid").unlink()
    write_midi(folder / "tunes" / "4.mid", roll)
    assert main(*command) == 0
    assert "1 trial run" in capsys.readouterr().out, "other music is another trial"
    assert "got 'jbs': did you mean 'jsb'?" in main("run", "music", "--data", "jbs")
    assert "no trial has a field 'checksum'" in main("run", "mnist", "--data", "tunes")
