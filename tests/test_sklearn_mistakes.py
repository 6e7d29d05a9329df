"""Parameters and tables that cannot serve an estimator are answered by a sentence."""

import datetime

import numpy as np
import pytest
import torch

pytest.importorskip("sklearn", reason="needs lpunits[sklearn]")

from sklearn.datasets import load_iris

from lpunits.sklearn import LpClassifier, LpRegressor, base

X, Y = load_iris(return_X_y=True)
SMALL = {"hidden_layer_sizes": (8,), "max_iter": 3, "random_state": 0}


@pytest.mark.parametrize(
    ("factor", "sentence"),
    [
        (-3, "class_weight must be numbers of at least 0, got -3 for 0"),
        (np.nan, "class_weight must be numbers of at least 0, got nan for 0"),
        ("much", "class_weight must be numbers of at least 0, got 'much' for 0"),
    ],
)
def test_weights_of_classes_that_are_none(factor, sentence):
    with pytest.raises(ValueError, match=sentence):
        LpClassifier(**SMALL, class_weight={0: factor}).fit(X, Y)


def test_weights_that_leave_nothing():
    with pytest.raises(ValueError, match="class_weight must leave a row a weight above 0"):
        LpClassifier(**SMALL, class_weight=dict.fromkeys(range(3), 0)).fit(X, Y)


@pytest.mark.parametrize(("rows", "fraction"), [(150, 0.999), (1, 0.1)])
def test_all_rows_held_out(rows, fraction):
    model = LpRegressor(**SMALL, early_stopping=True, validation_fraction=fraction)
    with pytest.raises(ValueError, match=rf"leave rows to train on, got {fraction} of {rows} rows"):
        model.fit(X[:rows], Y[:rows])


@pytest.mark.parametrize("device", ["gpu7", "cuda:99"])
def test_devices_that_are_not_there(device):
    with pytest.raises(ValueError, match=f"device must be usable, got '{device}'") as caught:
        LpClassifier(**SMALL, device=device).fit(X, Y)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("changes", [{"hidden_layer_sizes": (9,)}, {"activation": "relu"}])
def test_a_network_keeps_what_it_is_made_of(changes, tmp_path):
    model = LpClassifier(**SMALL, warm_start=True).fit(X, Y)
    sentence = rf"{next(iter(changes))} must stay what the network was made of, .*, got"
    model.set_params(**changes)
    for use in (model.fit, model.partial_fit):
        with pytest.raises(ValueError, match=sentence):
            use(X, Y)
    with pytest.raises(ValueError, match=sentence):
        model.save(tmp_path / "model")  # it could not be loaded
    assert not (tmp_path / "model").exists()
    assert model.set_params(warm_start=False).fit(X, Y).n_iter_ == 3


def test_a_refused_fit_leaves_the_classes():
    model = LpClassifier(**SMALL).fit(X, Y)
    before = model.predict(X)
    with pytest.raises(ValueError, match="at least two classes"):
        model.fit(X, np.ones(150))
    assert (model.predict(X) == before).all()


def test_a_stream_of_one_class():
    with pytest.raises(ValueError, match=r"classes must be at least two, got \[0\]"):
        LpClassifier(**SMALL).partial_fit(X, 0 * Y, classes=[0])


@pytest.mark.parametrize("dtype", [object, str])
def test_targets_of_text_are_no_numbers(dtype):
    with pytest.raises(ValueError, match=r"^y must be numbers, got others \(.*'a'"):
        LpRegressor(**SMALL).fit(X, np.array(["a", "b", "c"], dtype)[Y])
    numbers = np.array([1.0, np.inf, 2.0], object)[Y]
    with pytest.raises(ValueError, match="y contains infinity"):
        LpRegressor(**SMALL).fit(X, numbers)


def test_columns_of_dates_are_no_numbers():
    pandas = pytest.importorskip("pandas")
    days = [datetime.datetime(2020, 1, 1 + day % 28) for day in range(150)]
    frame = pandas.DataFrame({"day": days, "size": X[:, 0]})
    with pytest.raises(ValueError, match="X must have numbers only, got others"):
        LpClassifier(**SMALL).fit(frame, Y)


def test_numbers_whose_sum_overflows_are_no_mistake():
    assert (
        LpClassifier(**SMALL | {"max_iter": 60}).fit(X / 8 * 1.7e308, Y).score(X * 2e307, Y) > 0.5
    )


def test_predictions_are_made_where_the_network_is():
    model = LpClassifier(**SMALL).fit(X, Y)
    before = model.predict(X)
    assert (model.set_params(device="cuda:99").predict(X) == before).all()


@pytest.mark.parametrize(("rows", "decay"), [(150, 1.0), (2000, 1.0), (8000, 0.25)])
def test_the_decay_falls_with_the_rows(rows, decay, monkeypatch):
    seen = []
    make = base.make_optimizer
    monkeypatch.setattr(base, "make_optimizer", lambda *a: seen.append(a[-1]) or make(*a))
    x = torch.rand(rows, 2).numpy()
    LpRegressor((2,), max_iter=1, early_stopping=False).fit(x, x[:, 0])
    LpRegressor((2,)).partial_fit(x, x[:, 0])
    LpRegressor((2,), max_iter=1, weight_decay=0.3).fit(x, x[:, 0])
    assert seen == [decay, decay, 0.3]
