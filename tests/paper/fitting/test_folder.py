"""The folder of a model: what is kept predicts the same, and damage is a sentence."""

import contextlib
import copy
import json
import os
import shutil

import pytest

from lpunits.paper.fitting import folder
from lpunits.paper.fitting.reading import Table, read


@pytest.fixture
def saved(fitted, facts, tmp_path):
    folder.save(tmp_path / "model", fitted, facts, "a card")
    return tmp_path / "model"


def test_a_kept_model_predicts_the_same(saved, fitted, source, task):
    model = folder.load(saved)
    table = read(source)
    head, rows, notes = model.predict(table)
    X = model.encode(table)[0]
    expected = fitted.estimator.predict(X)
    assert notes == ["14 values of number missing"]
    if task == "regression":
        assert head == ["prediction"]
        assert [float(row[0]) for row in rows] == expected.tolist()
    else:
        assert head == ["prediction", *(f"probability of {c}" for c in model.target.classes)]
        assert [row[0] for row in rows] == expected.tolist()
        proba = [[float(p) for p in row[1:]] for row in rows]
        assert proba == fitted.estimator.predict_proba(X).tolist()
    assert model.facts["split"]["test"] == 24


def test_a_test_row_is_encoded_as_it_was_for_the_scores(saved, fitted, source):
    X = folder.load(saved).encode(read(source))[0]
    rows = {tuple(row) for row in X}
    assert {tuple(row) for row in fitted.prepared.split.X_test} <= rows


def test_columns_that_are_missing_or_unexpected_are_named(saved, source):
    model, table = folder.load(saved), read(source)
    some = dict(table.columns)
    del some["id"], some["y"]  # an id was left out, the target is not needed
    notes = model.predict(Table(source, {**some, "new": some["city"]}))[2]
    assert notes[0] == "not used: the column 'new', unknown to the model"
    del some["city"], some["number"]
    with pytest.raises(ValueError, match=r"lacks the columns 'number', 'city' that the model was"):
        model.predict(Table(source, some))
    with pytest.raises(ValueError, match="'number' has text among numbers: 'x' in row 1"):
        model.predict(Table(source, {**table.columns, "number": ["x"] * 120}))


def test_only_a_model_is_replaced_and_only_on_request(saved, fitted, facts, tmp_path):
    with pytest.raises(ValueError, match="holds a model: choose another folder, or --replace it"):
        folder.check(saved, replace=False)
    folder.check(saved, replace=True)
    folder.check(tmp_path / "new", replace=False)
    (tmp_path / "empty").mkdir()
    folder.check(tmp_path / "empty", replace=False)
    with pytest.raises(ValueError, match="is not empty, it has 'empty': choose another"):
        folder.check(tmp_path, replace=True)
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match="is a file, a folder for the model is expected"):
        folder.check(tmp_path / "file", replace=True)


def other(fitted):
    """The same model with other weights."""
    changed = copy.deepcopy(fitted)
    for p in changed.estimator.model_.parameters():
        p.data.mul_(0.5)
    return changed


def test_replacing_leaves_no_weights_behind(saved, fitted, facts, source):
    before = folder.load(saved).predict(read(source))[1]
    folder.save(saved, other(fitted), facts, "another card")
    assert folder.load(saved).predict(read(source))[1] != before
    assert len(list(saved.iterdir())) == 3
    assert (saved / "card.html").read_text() == "another card"


def test_at_every_moment_of_a_replacement_the_folder_predicts(
    saved, fitted, facts, source, monkeypatch
):
    """The process ends before each of its changes of files, one after the other."""

    class Ended(BaseException):
        pass

    rows = read(source)
    old = folder.load(saved).predict(rows)[1]
    changed = other(fitted)
    seen = []
    replace = os.replace
    for steps in range(5):
        place = saved.with_name(f"copy {steps}")
        shutil.copytree(saved, place)
        left = [steps]

        def count(a, b, left=left):
            if not left[0]:
                raise Ended
            left[0] -= 1
            replace(a, b)

        monkeypatch.setattr("os.replace", count)
        with contextlib.suppress(Ended):
            folder.save(place, changed, facts, "a card")
        monkeypatch.setattr("os.replace", replace)
        seen.append(folder.load(place).predict(rows)[1] == old)
        folder.check(place, replace=True)
    assert seen == [True, True, True, True, False]


def edited(path, change):
    text = json.loads(path.read_text())
    change(text)
    path.write_text(json.dumps(text))


def test_damage_is_a_sentence(saved, tmp_path):
    path = saved / "model.json"
    good = path.read_bytes()
    for damage, sentence in (
        (lambda t: t["content"]["columns"][0].update(fill=7.0), "checksum"),
        (lambda t: t.update(format=99, lpunits="9.9"), "lpunits 9.9 in format 99, this"),
        (lambda t: t.update(content=[]), "cannot be used"),
        (lambda t: t.pop("check"), "cannot be used"),
    ):
        edited(path, damage)
        with pytest.raises(ValueError, match=sentence):
            folder.load(saved)
        path.write_bytes(good)
    for text in (b"", b"[1]", b"{", b"\xff\xfe", b"[" * 100_000):
        path.write_bytes(text)
        with pytest.raises(ValueError, match="cannot be used"):
            folder.load(saved)
    path.write_bytes(good)
    (weights,) = saved.glob("*.safetensors")
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(data)
    with pytest.raises(ValueError, match="damaged: its checksum is not that of"):
        folder.load(saved)
    weights.unlink()
    with pytest.raises(ValueError, match="is missing"):
        folder.load(saved)
    with pytest.raises(ValueError, match="is not the folder of a model"):
        folder.load(tmp_path)


def test_weights_elsewhere_are_not_read(saved):
    def elsewhere(text):
        text["content"]["weights"] = "../../secret.safetensors"
        text["check"] = folder._check(text["content"])

    edited(saved / "model.json", elsewhere)
    with pytest.raises(ValueError, match="cannot be used"):
        folder.load(saved)


def test_nothing_is_pickled(saved):
    kinds = {path.suffix for path in saved.iterdir()}
    assert kinds == {".json", ".html", ".safetensors"}
    assert all(b"pickle" not in path.read_bytes() for path in saved.iterdir())
