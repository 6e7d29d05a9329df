"""The estimators for tables: what they take, what they give, and how they train."""

import pickle
import sys

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

pytest.importorskip("sklearn", reason="needs lpunits[sklearn]")

import joblib
from scipy.sparse import csr_array, csr_matrix
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_iris, make_regression
from sklearn.impute import SimpleImputer
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import GridSearchCV, cross_val_score, train_test_split
from sklearn.pipeline import make_pipeline

from lpunits import MLP, param_groups
from lpunits.sklearn import LpClassifier, LpRegressor, tables, training
from lpunits.sklearn.backpropagation import Backpropagation
from lpunits.units import ACTIVATIONS

SMALL = {"hidden_layer_sizes": (8,), "max_iter": 5, "random_state": 0}


@pytest.fixture(scope="module")
def iris():
    return load_iris(return_X_y=True)


def weights_of(model):
    return {name: t.clone() for name, t in model.model_.state_dict().items()}


def same(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[k], other[k]) for k in one)


# ---------------------------------------------------------------- one step


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("classes", [True, False])
@pytest.mark.parametrize("weighted", [True, False])
def test_the_gradients_are_those_of_autograd(activation, classes, weighted):
    net = MLP(5, [7, 6], 3, activation=activation, dtype=torch.float64)
    x = torch.randn(11, 5, dtype=torch.float64)
    y = torch.randint(3, (11,)) if classes else torch.randn(11, 3, dtype=torch.float64)
    weight = torch.rand(11, dtype=torch.float64) if weighted else None
    expected = training.by_autograd(net)(x, y, weight)
    gradients = {name: p.grad.clone() for name, p in net.named_parameters()}
    torch.testing.assert_close(Backpropagation(net, activation)(x, y, weight), expected)
    for name, p in net.named_parameters():
        torch.testing.assert_close(p.grad, gradients[name])


def test_orders_that_are_infinite_or_fixed_stay():
    net = MLP(5, [4, 4], 2, order=[[2.0, float("inf"), 3.0, 1.5], [3.0] * 4])
    net[1].rho.requires_grad_(False)
    x, y = torch.randn(9, 5), torch.randint(2, (9,))
    Backpropagation(net, "lp")(x, y, None)
    by_hand = net[0].rho.grad.clone()
    net.zero_grad()
    cross_entropy(net(x), y).backward()
    torch.testing.assert_close(by_hand, net[0].rho.grad)
    assert by_hand[1] == 0
    fixed = MLP(5, [4], 2, learn_order=False)
    Backpropagation(fixed, "lp")(x, y, None)
    assert fixed[0].rho.grad is None


def test_the_lean_adamw_is_that_of_torch():
    nets = [MLP(5, [7], 3, order=2.0) for _ in range(2)]
    nets[1].load_state_dict(nets[0].state_dict())
    lean = training.make_optimizer("adamw", nets[0], 1e-2, 5.0, 0.5)
    groups = param_groups(nets[1], 1e-2, order_scale=5.0, weight_decay=0.5)
    expected = torch.optim.AdamW(groups, 1e-2, fused=True)
    steps = [training.by_autograd(net) for net in nets]
    for number in range(20):
        x, y = torch.randn(11, 5), torch.randint(3, (11,))
        for optimizer, step in ((lean, steps[0]), (expected, steps[1])):
            optimizer.param_groups[0]["lr"] = 1e-2 / (1 + number)
            step(x, y, None)
            optimizer.step()
    assert same(nets[0].state_dict(), nets[1].state_dict())


# ---------------------------------------------------------------- training


@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_the_same_seed_gives_the_same_bits_and_torch_is_left_alone(iris, dropout):
    state, threads = torch.get_rng_state(), torch.get_num_threads()
    options = SMALL | {"order": (1.5, 4.0), "dropout": dropout, "batch_size": 32}
    first = LpClassifier(**options).fit(*iris)
    torch.rand(3)
    torch.set_rng_state(state)
    second = LpClassifier(**options).fit(*iris)
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.get_num_threads() == threads
    assert same(weights_of(first), weights_of(second))
    torch.manual_seed(1)
    assert same(weights_of(first), weights_of(LpClassifier(**options).fit(*iris)))
    other = LpClassifier(**options | {"random_state": 1}).fit(*iris)
    assert not same(weights_of(first), weights_of(other))


def test_what_is_known_after_a_fit(iris):
    model = LpClassifier((8, 6), max_iter=7, early_stopping=True, random_state=0).fit(*iris)
    assert [p.shape for p in model.orders_] == [(8,), (6,)]
    assert (model.orders_[0] != 3).any()
    assert model.n_iter_ == 7 == len(model.loss_curve_) == len(model.validation_scores_)
    assert model.loss_curve_[-1] < model.loss_curve_[0]
    assert model.best_validation_score_ == max(model.validation_scores_)
    assert model.classes_.tolist() == [0, 1, 2]
    assert isinstance(model.model_, torch.nn.Module)
    scores = model.model_(torch.from_numpy(iris[0]))
    assert torch.equal(scores.argmax(1), torch.from_numpy(model.predict(iris[0])))
    proba = model.predict_proba(iris[0])
    np.testing.assert_allclose(proba.sum(1), 1)
    np.testing.assert_allclose(np.log(proba), model.predict_log_proba(iris[0]), rtol=1e-9)
    assert LpClassifier((8,), "relu", max_iter=1).fit(*iris).orders_ == []
    assert LpClassifier(**SMALL).fit(*iris).validation_scores_ is None


def test_the_best_epoch_is_kept(iris, monkeypatch):
    options = SMALL | {"early_stopping": True, "learning_rate": "constant"}
    one = LpClassifier(**options | {"max_iter": 1}).fit(*iris)
    losses = iter([1.0, 2.0, 3.0, 0.5, 4.0])
    with monkeypatch.context() as patch:
        patch.setattr(training, "mean_loss", lambda found, examples: next(losses))
        fourth = LpClassifier(**options).fit(*iris)
        assert fourth.n_iter_ == 5
    assert not same(weights_of(one), weights_of(fourth))
    losses = iter([1.0, 2.0, 3.0, 0.5])
    monkeypatch.setattr(training, "mean_loss", lambda found, examples: next(losses))
    stopped = LpClassifier(**options, n_iter_no_change=2).fit(*iris)
    assert stopped.n_iter_ == 3
    assert same(weights_of(one), weights_of(stopped))


def test_warm_start_continues(iris):
    model = LpClassifier(**SMALL | {"max_iter": 30, "warm_start": True}).fit(*iris)
    before = model.loss_curve_[-1]
    model.set_params(max_iter=1, learning_rate="constant").fit(*iris)
    assert model.n_iter_ == 31
    assert model.loss_curve_[-1] < 1.2 * before
    with pytest.raises(ValueError, match=r"the classes \[0, 1, 2\] as before, got also \[3\]"):
        model.fit(iris[0], iris[1] + 1)
    with pytest.raises(ValueError, match="4 features as input"):
        model.fit(iris[0][:, :2], iris[1])


def test_partial_fit_learns_and_a_copy_continues_with_the_same_bits(iris):
    X, y = iris
    order = np.random.default_rng(0).permutation(len(X))
    X, y = X[order], y[order]
    model = LpClassifier((16,), random_state=0)
    with pytest.raises(ValueError, match="classes must be given in the first call"):
        model.partial_fit(X, y)
    for _ in range(100):
        for part in np.split(np.arange(150), 3):
            model.partial_fit(X[part], y[part], classes=[0, 1, 2])
    assert model.score(X, y) > 0.9
    assert model.n_iter_ == 300
    copy = pickle.loads(pickle.dumps(model))
    for each in (model, copy):
        each.partial_fit(X, y)
    assert same(weights_of(model), weights_of(copy))
    with pytest.raises(ValueError, match="classes must be the same in every call"):
        model.partial_fit(X, y, classes=[0, 1])
    few = LpRegressor(**SMALL).partial_fit(X, X[:, :2])
    with pytest.raises(ValueError, match="y must have 2 targets as before, got 1"):
        few.partial_fit(X, y)


def test_weights_of_rows_and_classes_count():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(400, 2)), rng.integers(0, 2, 400)
    plain = LpClassifier((8,), max_iter=60, random_state=0).fit(X, y)
    assert 0.4 < plain.predict_proba(X)[:, 1].mean() < 0.6
    by_class = clone(plain).set_params(class_weight={1: 9}).fit(X, y)
    by_row = clone(plain).fit(X, y, sample_weight=np.where(y == 1, 9.0, 1.0))
    for model in (by_class, by_row):
        assert 0.85 < model.predict_proba(X)[:, 1].mean() < 0.95
    rare = rng.random(400) < 0.1
    balanced = clone(plain).set_params(class_weight="balanced").fit(X, rare)
    assert 0.35 < balanced.predict_proba(X)[:, 1].mean() < 0.65
    with pytest.raises(ValueError, match=r"class_weight must name classes of y, \[0, 1\], got"):
        clone(plain).set_params(class_weight={"yes": 2}).fit(X, y)


# ---------------------------------------------------------------- tables


def test_frames_with_names_and_labels_of_text(iris):
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    names = ["a", "b", "c", "d"]
    labels = np.array(["setosa", "versicolor", "virginica"])[iris[1]]
    expected = LpClassifier(**SMALL).fit(iris[0], labels)
    assert set(expected.predict(iris[0])) <= set(labels)
    for frame, column in (
        (pandas.DataFrame(iris[0], columns=names), pandas.Series(labels)),
        (polars.DataFrame(iris[0], schema=names), polars.Series(labels)),
    ):
        model = LpClassifier(**SMALL).fit(frame, column)
        assert model.feature_names_in_.tolist() == names
        assert (model.predict_proba(frame) == expected.predict_proba(iris[0])).all()
        with pytest.raises(ValueError, match="feature names should match"):
            model.predict(frame[["b", "a", "c", "d"]])


@pytest.mark.parametrize("container", [csr_array, csr_matrix])
def test_a_sparse_table_is_the_same_table(container):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 20)) * (rng.random((300, 20)) < 0.2)
    y = X[:, 0] + X[:, 1] ** 2
    dense, sparse = (LpRegressor(**SMALL).fit(T, y) for T in (X, container(X)))
    assert same(weights_of(dense), weights_of(sparse))
    assert (dense.predict(X) == sparse.predict(container(X))).all()


def test_several_targets():
    X, y = make_regression(400, 5, n_targets=3, random_state=0)
    y *= [1, 1e6, 1e-6]
    model = LpRegressor((32,), max_iter=60, random_state=0).fit(X, y)
    assert model.predict(X).shape == (400, 3)
    assert model.score(X, y) > 0.95
    assert LpRegressor(**SMALL).fit(X, y[:, :1]).predict(X).shape == (400, 1)
    assert LpRegressor(**SMALL).fit(X, y[:, 0]).predict(X).shape == (400,)


def test_wild_columns_do_no_harm():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 3))
    y = X[:, 0] * X[:, 1]
    plain = LpRegressor((32,), max_iter=40, random_state=0).fit(X, y).score(X, y)
    wild = X * [1e200, 1e-200, 1] + [0, 0, 1.7e9]
    wild = np.column_stack([wild, np.full(600, 7.0)])
    model = LpRegressor((32,), max_iter=40, random_state=0).fit(wild, y)
    assert model.score(wild, y) > plain - 0.05
    changed = wild.copy()
    changed[:, 3] = 1e30  # it was constant: no effect, whatever comes
    assert (model.predict(wild) == model.predict(changed)).all()
    outliers = X.copy()
    outliers[::100] = -999_999
    assert LpRegressor((32,), max_iter=40, random_state=0).fit(outliers, y).score(X, y) > 0.6
    constant = LpRegressor(**SMALL).fit(X, np.full(600, 7.0))
    assert (constant.predict(X) == 7).all()


def test_the_scaling_of_a_part_weighs_its_rows():
    X = np.column_stack([np.arange(8.0), np.repeat([0.0, 1.0], [7, 1]), np.ones(8)])
    once = tables.scaling(X, np.arange(8), np.array([1.0, 2, 1, 0, 3, 1, 1, 1]), torch.float64)
    rows = np.repeat(np.arange(8), [1, 2, 1, 0, 3, 1, 1, 1])
    again = tables.scaling(X, rows, np.ones(10), torch.float64)
    torch.testing.assert_close(once.mean, again.mean)
    torch.testing.assert_close(once.scale, again.scale)
    assert again.mean.tolist() == [4.0, 0.1, 1.0]
    assert again.scale[0] == (5 - 1) / tables.NORMAL_RANGE
    assert again.scale[1].item() == pytest.approx(0.3)
    assert again.scale[2] == torch.inf


def test_rows_to_judge_by_keep_the_shares_of_classes():
    y = np.repeat([0, 1, 2, 3], [500, 300, 199, 1])
    held = tables.hold_out(y, 0.1, np.random.default_rng(0), classes=True)
    assert np.bincount(y[held], minlength=4).tolist()[:2] == [50, 30]
    assert 18 <= held[y == 2].sum() <= 20
    assert not held[y == 3].any()
    numbers = np.random.default_rng(1).normal(size=1000)
    held = tables.hold_out(numbers, 0.2, np.random.default_rng(0), classes=False)
    assert held.sum() == 200
    assert abs(np.median(numbers[held]) - np.median(numbers)) < 0.05


# ---------------------------------------------------------------- what is refused


def test_missing_values_are_refused_in_a_sentence(iris):
    pandas = pytest.importorskip("pandas")
    X = iris[0].copy()
    X[3, 2] = X[9, 2] = np.nan
    sentence = (
        r"^X must have no missing values, got NaN in 2 places, the first in column {}: put an "
        r"imputer in front, as in make_pipeline\(SimpleImputer\(\), LpClassifier\(\)\)$"
    )
    model = LpClassifier(**SMALL)
    with pytest.raises(ValueError, match=sentence.format(2)):
        model.fit(X, iris[1])
    with pytest.raises(ValueError, match=sentence.format(2)):
        model.fit(csr_array(X), iris[1])
    frame = pandas.DataFrame(X, columns=list("abcd"))
    with pytest.raises(ValueError, match=sentence.format("'c'")):
        model.fit(frame, iris[1])
    model.fit(*iris)
    with pytest.raises(ValueError, match=sentence.format(2)):
        model.predict(X)
    X[0, 0] = np.inf
    X[3, 2] = X[9, 2] = 0
    with pytest.raises(ValueError, match="X must be finite, got inf in 1 places, the first in co"):
        model.predict(X)
    assert make_pipeline(SimpleImputer(), model).fit(X[1:], iris[1][1:]).score(*iris) > 0.3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"activation": "gelu"}, "The 'activation' parameter of LpClassifier must be"),
        ({"max_iter": 0}, "The 'max_iter' parameter of LpClassifier must be"),
        ({"hidden_layer_sizes": (8, 0)}, "hidden must be a positive integer, got 0"),
        ({"order": 0.5}, "order must be from 1 to inf, got 0.5"),
        (
            {"solver": "sgd", "learning_rate_init": 1e9},
            "learning_rate_init or weight_decay must be lower",
        ),
    ],
)
def test_wrong_parameters(iris, options, message):
    with pytest.raises(ValueError, match=message):
        LpClassifier(**SMALL | options).fit(*iris)


def test_wrong_tables(iris):
    pandas = pytest.importorskip("pandas")
    model = LpClassifier(**SMALL)
    frame = pandas.DataFrame({"colour": ["red", "green"] * 20, "size": range(40)})
    with pytest.raises(
        ValueError, match=r"X must have numbers only, got others \(.*'red'\): encode"
    ):
        model.fit(frame, [0, 1] * 20)
    with pytest.raises(ValueError, match=r"at least two classes, got one class: \[1.0\]"):
        model.fit(iris[0], np.ones(150))
    with pytest.raises(ValueError, match=r"[wW]eights.* zero|non-zero"):
        model.fit(*iris, sample_weight=np.zeros(150))


# ---------------------------------------------------------------- with the rest of scikit-learn


def test_searches_scores_and_copies():
    X, y = load_breast_cancer(return_X_y=True)
    model = LpClassifier((16,), max_iter=10, random_state=0)
    X_train, X_test, y_train, y_test = train_test_split(X, y, random_state=0)
    found = GridSearchCV(model, {"filters": [1, 2]}, n_jobs=2, cv=2).fit(X_train, y_train)
    assert roc_auc_score(y_test, found.predict_proba(X_test)[:, 1]) > 0.97
    assert cross_val_score(model, X, y, cv=3, scoring="roc_auc").min() > 0.95
    best = found.best_estimator_
    copy = pickle.loads(pickle.dumps(best))
    assert (copy.predict_proba(X) == best.predict_proba(X)).all()
    assert clone(best).get_params() == best.get_params()


def test_joblib(iris, tmp_path):
    model = LpClassifier(**SMALL).fit(*iris)
    joblib.dump(model, tmp_path / "model.joblib")
    copy = joblib.load(tmp_path / "model.joblib")
    assert (copy.predict_proba(iris[0]) == model.predict_proba(iris[0])).all()


def test_a_training_can_be_watched(iris, capsys):
    LpClassifier(**SMALL | {"max_iter": 2, "early_stopping": True, "verbose": True}).fit(*iris)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2
    assert lines[1].startswith("epoch 2/2: loss ")
    assert ", validation 0." in lines[1]
    assert ", orders " in lines[1]


def test_plots(iris, monkeypatch):
    pyplot = pytest.importorskip("matplotlib.pyplot", reason="needs matplotlib")
    model = LpClassifier((8, 6), max_iter=3, early_stopping=True, random_state=0).fit(*iris)
    losses = model.plot_loss().lines[0]
    assert losses.get_ydata().tolist() == model.loss_curve_
    right = model.partial_fit(*iris).plot_loss().figure.axes[1].lines[0]
    assert right.get_xdata().tolist() == [1, 2, 3]  # the fourth epoch was not judged
    axes = model.plot_orders(pyplot.subplots()[1])
    assert [len(line.get_ydata()) for line in axes.lines] == [8, 6]
    pyplot.close("all")
    with pytest.raises(ValueError, match="plot_orders needs units with orders"):
        LpClassifier((8,), "relu", max_iter=1).fit(*iris).plot_orders()
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(ImportError, match="plot_loss needs matplotlib: pip install matplotlib"):
        model.plot_loss()
