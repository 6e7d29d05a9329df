"""Files of fitted estimators: the same bits, whole or not at all, nothing pickled."""

import json
import pickle

import numpy as np
import pytest
import torch

pytest.importorskip("sklearn", reason="needs lpunits[sklearn]")

from safetensors import safe_open
from safetensors.torch import save_file
from sklearn.datasets import load_iris

from lpunits import sealed
from lpunits.sklearn import LpClassifier, LpRegressor, load, storage

X, Y = load_iris(return_X_y=True)
SMALL = {"hidden_layer_sizes": (8,), "max_iter": 3, "random_state": 0}


@pytest.mark.parametrize(
    ("options", "labels"),
    [
        ({}, None),
        ({"order": (1.5, 4.0), "class_weight": {"b": 2.5}}, ["a", "b", "c"]),
        ({"order": [2.0, float("inf"), 3, 3, 3, 3, 3, 3]}, [2.0, 3.0, 5.0]),
        ({"activation": "maxout", "filters": np.int64(3), "early_stopping": True}, [-1, 5, 7]),
        ({"order": np.full(8, 2.5), "standardize": False}, np.array(["x", "y", "z"], object)),
    ],
)
@pytest.mark.parametrize("rows", [slice(None), slice(None, None, 2)])  # float32 and float64
def test_a_classifier_comes_back(tmp_path, options, labels, rows):
    y = Y if labels is None else np.asarray(labels)[Y]
    model = LpClassifier(**SMALL | options).fit(X[rows], y[rows])
    model.save(tmp_path / "model.safetensors")
    found = LpClassifier.load(tmp_path / "model.safetensors")
    assert (found.predict_proba(X) == model.predict_proba(X)).all()
    assert (found.predict(X) == model.predict(X)).all()
    assert found.classes_.dtype == model.classes_.dtype
    assert found.loss_curve_ == model.loss_curve_
    assert found.validation_scores_ == model.validation_scores_
    assert found.n_iter_ == 3
    for name, value in model.get_params().items():
        assert np.all(found.get_params()[name] == value), name
    assert type(found.get_params()["hidden_layer_sizes"]) is tuple


def test_a_regressor_comes_back_and_continues(tmp_path):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(X, columns=["a", "b", "c", "d"])
    for y in (X[:, 0], X[:, :2]):
        model = LpRegressor(**SMALL).fit(frame, y)
        model.save(tmp_path / "model")
        found = load(tmp_path / "model")
        assert (found.predict(frame) == model.predict(frame)).all()
        assert found.predict(frame).shape == y.shape
        assert found.feature_names_in_.tolist() == ["a", "b", "c", "d"]
        found.partial_fit(frame, y)
        assert found.n_iter_ == 4


def test_a_model_of_another_device_is_loaded_on_the_cpu(tmp_path):
    model = LpRegressor(**SMALL).fit(X, Y)
    model.set_params(device="cuda:99").save(tmp_path / "model")
    found = load(tmp_path / "model")
    assert found.device == "cpu"
    assert (found.predict(X) == model.predict(X)).all()


def test_a_damaged_file_is_noticed(tmp_path):
    path = tmp_path / "model.safetensors"
    LpRegressor(**SMALL).fit(X, Y).save(path)
    content = path.read_bytes()
    size = int.from_bytes(content[:8], "little")
    at = content.index(b"max_iter")
    places = (0, 20, at, at + 12, 8 + size + 3, len(content) - 1)
    for place in places:
        broken = bytearray(content)
        broken[place] ^= 1
        path.write_bytes(broken)
        with pytest.raises(ValueError, match="damaged") as caught:
            load(path)
        assert str(path) in str(caught.value)
    for length in (0, 5, 100, len(content) - 1):
        path.write_bytes(content[:length])
        with pytest.raises(ValueError, match="damaged"):
            load(path)


def test_files_of_something_else(tmp_path, monkeypatch):
    path = tmp_path / "model"
    with pytest.raises(FileNotFoundError, match="path must be a file that save"):
        load(path)
    with pytest.raises(FileNotFoundError, match="path must be a file that save"):
        load(tmp_path)
    path.write_bytes(pickle.dumps({"a": 1}))
    with pytest.raises(ValueError, match="not a file that lpunits has written"):
        load(path)
    save_file({"a": torch.ones(2)}, path)
    with pytest.raises(ValueError, match="not a file that lpunits has written"):
        load(path)
    for facts in ({}, {"kind": "Music"}, {"format": 1, "class": "LpClassifier", "parameters": [1]}):
        sealed.write(path, {}, facts)
        with pytest.raises(ValueError, match=r"model: not a file that save\(\) wrote"):
            load(path)
    model = LpRegressor(**SMALL).fit(X, Y)
    model.save(path)
    with pytest.raises(ValueError, match=r"holds a LpRegressor, load it with LpRegressor\.load"):
        LpClassifier.load(path)
    monkeypatch.setattr(storage, "FORMAT", 2)
    with pytest.raises(ValueError, match=r"written by lpunits .* in format 1, this lpunits"):
        load(path)


def test_what_is_in_the_head_is_json_and_what_cannot_be_is_refused(tmp_path):
    path = tmp_path / "model"
    model = LpClassifier(**SMALL).fit(X, Y)
    model.save(path)
    with safe_open(path, "pt") as file:
        facts = json.loads(file.metadata()["json"])
    assert facts["class"] == "LpClassifier"
    assert facts["parameters"]["hidden_layer_sizes"] == {"tuple": [8]}
    before = path.read_bytes()
    model.set_params(class_weight={0: 1 + 2j})
    with pytest.raises(TypeError, match="class_weight must be a number, text or a list"):
        model.save(path)
    assert path.read_bytes() == before
    model.set_params(class_weight=None, random_state=np.random.RandomState(0)).save(path)
    assert load(path).random_state is None
