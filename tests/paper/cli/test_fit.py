"""``lpunits fit`` and ``lpunits predict``: from a csv file to predictions."""

import csv
import io
import os
import re
import shlex
import subprocess
import sys

import numpy as np
import pytest

pytest.importorskip("cyclopts", reason="needs lpunits[paper]")

import lpunits_cli
from lpunits.paper.cli import tables
from lpunits.paper.fitting import folder
from lpunits.paper.fitting.reading import read

FAST = ("--set", "max_iter=3", "--set", "hidden_layer_sizes=(8,)")


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tables.console, "_width", 80)
    rng = np.random.default_rng(0)
    lines = ["area,[/bold],city,price,kind"]
    for _ in range(80):
        area, z = rng.uniform(30, 200), rng.normal()
        city = rng.choice(["Rome", "Oslo"])
        price = area * (2 if city == "Rome" else 1) + 0.01 * z
        lines.append(f"{area:.1f},{z:.3f},{city},{price:.3f},{'dear' if price > 150 else 'cheap'}")
    (tmp_path / "data.csv").write_text("\n".join(lines) + "\n")
    return tmp_path


def main(*tokens):
    """The exit code, or the sentence with which the program ends."""
    with pytest.raises(SystemExit) as end:
        lpunits_cli.main(list(tokens))
    return end.value.code


def test_fit_then_predict(here, capsys):
    assert not main("fit", "data.csv", "--target", "price", "-o", "model", *FAST)
    out = capsys.readouterr().out
    assert out.startswith("data.csv: 80 rows, 5 columns\ntarget price: numbers with 80 values, ")
    assert "columns: 2 numbers, 2 categories, 0 left out\n" in out
    assert "split: 64 rows to train, 16 to test; seed 0\n" in out
    for row in ("Lp units ", "the mean ", "HistGradientBoosting ", "MLP of scikit-learn "):
        assert re.search(rf"^ {row}.* [\d.]+ ", out, re.MULTILINE)
    assert max(map(len, out.splitlines()[:-2])) <= 94
    *_, card, after = out.splitlines()
    assert card == f"card: {(here / 'model' / 'card.html').as_uri()}"
    assert after == "next: lpunits predict model new.csv"

    assert not main("predict", "model", "data.csv")
    captured = capsys.readouterr()
    head, *rows = csv.reader(io.StringIO(captured.out))
    assert head == ["prediction"]
    model = folder.load(here / "model")
    expected = model.estimator.predict(model.encode(read(here / "data.csv"))[0])
    assert [float(row[0]) for row in rows] == expected.tolist()
    assert re.match(r"lpunits: the table has the target: R² -?[\d.]+, RMSE", captured.err)
    assert model.facts["command"] == (
        "lpunits fit data.csv --target price -o model --seed 0 --set max_iter=3 "
        "--set 'hidden_layer_sizes=(8,)'"
    )


def test_the_command_of_the_card_makes_the_same_model(here, capsys):
    options = ("--seed", "3", "--test", "0.3", "--column", "city=out", "--no-compare", *FAST)
    assert not main("fit", "data.csv", "--target", "kind", *options)
    first = folder.load(here / "model")
    assert "accuracy" in capsys.readouterr().out
    assert not main(*shlex.split(first.facts["command"])[1:], "--replace")
    again = folder.load(here / "model")
    table = read(here / "data.csv")
    assert again.predict(table) == first.predict(table)
    assert again.facts["command"] == first.facts["command"]


def test_classes_and_their_probabilities_go_to_a_file(here, capsys):
    assert not main("fit", "data.csv", "--target", "kind", "--no-compare", *FAST)
    capsys.readouterr()
    (here / "new.csv").write_text("extra,city,area,[/bold],price\n1,Bern,50,,90\n1,Oslo,70,1,9\n")
    (here / "found.csv").write_text("old")
    assert not main("predict", "model", "new.csv", "-o", "found.csv")
    captured = capsys.readouterr()
    assert captured.out == "2 predictions: found.csv\n"
    assert captured.err == (
        "lpunits: not used: the column 'extra', unknown to the model\n"
        "lpunits: 1 value of [/bold] missing\n"
        "lpunits: 1 value of city rare or new\n"
    )
    head, *rows = csv.reader((here / "found.csv").read_text().splitlines())
    assert head == ["prediction", "probability of cheap", "probability of dear"]
    for label, *probabilities in rows:
        assert sum(map(float, probabilities)) == pytest.approx(1)
        assert label == ["cheap", "dear"][int(np.argmax([float(p) for p in probabilities]))]


def test_verbose_shows_every_epoch(capsys):
    assert not main("fit", "data.csv", "--target", "kind", "--no-compare", "--verbose", *FAST)
    out = capsys.readouterr().out
    assert all(f"epoch {n}/3: loss" in out for n in (1, 2, 3))
    assert not main("fit", "data.csv", "--target", "kind", "--no-compare", "--replace", *FAST)
    assert "epoch 1" not in capsys.readouterr().out


FIT = ("fit", "data.csv", "--target", "price")


@pytest.mark.parametrize(
    ("tokens", "sentence"),
    [
        ((*FIT[:3], "prize"), "the target 'prize' is no column, there are area, [/bold], city,"),
        (("fit", "no.csv", "--target", "y"), "there is no file no.csv"),
        (("fit", ".", "--target", "y"), ". is a folder, a csv or parquet file is expected"),
        ((*FIT, "-o", "."), ". is not empty, it has 'data.csv': choose another"),
        ((*FIT, "-o", "data.csv"), "data.csv is a file, a folder for the model is expected"),
        ((*FIT, "--test", "2"), "test must be a fraction between 0 and 1, got 2.0"),
        ((*FIT, "--set", "max_iter"), "--set must be name=value, got 'max_iter'"),
        ((*FIT, "--set", "epochs=3"), "--set: LpRegressor has no parameter 'epochs': there are"),
        ((*FIT, "--set", "max_iter=-3"), "max_iter"),
        ((*FIT, "--column", "city"), "--column must be NAME=KIND, got 'city'"),
        ((*FIT, "--column", "town=out"), "--column: there is no column 'town' to learn from"),
        ((*FIT, "--column", "city=number"), "the column 'city' has text among numbers: "),
        ((*FIT, "--task", "classification"), "looks like an identifier or a free text"),
        (("predict", ".", "data.csv"), ". is not the folder of a model: there is no model.json"),
        (("predict", ".", "data.csv", "-o", "data.csv"), "data.csv is the table itself"),
        (("predict", ".", "data.csv", "-o", "."), ". is a folder, another file for the result"),
    ],
)
def test_mistakes_are_answered_by_one_sentence(tokens, sentence, here):
    found = main(*tokens)
    assert isinstance(found, str)
    assert found.startswith("lpunits: ")
    assert sentence in found
    assert "\n" not in found
    assert not (here / "model" / "model.json").exists()


def test_what_is_not_a_task(capsys):
    assert main(*FIT, "--task", "guessing") == 2
    assert "Choose from" in capsys.readouterr().err


def test_predict_names_what_is_missing(here, capsys):
    assert not main("fit", "data.csv", "--target", "kind", "--no-compare", *FAST)
    (here / "new.csv").write_text("area,[/bold]\n50,1\n")
    assert main("predict", "model", "new.csv") == (
        "lpunits: new.csv lacks the columns 'city', 'price' that the model was fitted on"
    )
    (here / "new.csv").write_text("area,[/bold],city,price,kind\n50,1,Rome,9,new\n")
    capsys.readouterr()
    assert not main("predict", "model", "new.csv")  # a target without values is no obstacle
    assert capsys.readouterr().err == ""
    (here / "new.csv").write_text("area,[/bold],city,price\n50,1,Rome,much\n")
    assert main("predict", "model", "new.csv") == (
        "lpunits: new.csv: the column 'price' has text among numbers: 'much' in line 2"
    )


def test_a_reader_that_has_enough_is_no_error():
    assert not main("fit", "data.csv", "--target", "kind", "--no-compare", *FAST)
    program = [sys.executable, "-m", "lpunits", "predict", "model", "data.csv"]
    reading, writing = os.pipe()
    os.close(reading)
    ended = subprocess.run(program, stdout=writing, stderr=subprocess.PIPE, text=True)
    os.close(writing)
    assert ended.returncode == 0
    assert re.fullmatch("lpunits: the table has the target: accuracy .*\n", ended.stderr)
