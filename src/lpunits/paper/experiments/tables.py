"""Beyond the paper: small tables, and five models after the same small search."""

import statistics
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from lpunits.paper import data
from lpunits.paper.report.figures import COLORS, NAMES, panels
from lpunits.paper.report.section import Experiment, Picture, Section, Table, grouped
from lpunits.paper.statistics import compare, spread
from lpunits.paper.training.job import Job
from lpunits.paper.training.trial import Result, Scale, Trial, check_at_least, check_choice

Arrays = tuple[npt.NDArray[Any], npt.NDArray[Any]]
TABLES = {  # whether the targets are classes
    "wine": True,
    "breast cancer": True,
    "digits": True,
    "Gaussian quantiles": True,
    "Hastie 10.2": True,
    "clusters": True,
    "diabetes": False,
    "Friedman 1": False,
    "Friedman 2": False,
    "Friedman 3": False,
    "covertype": True,
}
GENERATED: dict[str, tuple[str, dict[str, Any]]] = {  # by which function of scikit-learn
    "Gaussian quantiles": ("make_gaussian_quantiles", {"n_features": 8, "n_classes": 3}),
    "Hastie 10.2": ("make_hastie_10_2", {}),
    "clusters": (
        "make_classification",
        {"n_features": 20, "n_informative": 8, "n_classes": 4, "flip_y": 0.05},
    ),
    "Friedman 1": ("make_friedman1", {"noise": 1.0}),
    "Friedman 2": ("make_friedman2", {"noise": 100.0}),
    "Friedman 3": ("make_friedman3", {"noise": 0.1}),
}
OURS = ("lp", "relu", "maxout")
MODELS = {
    **{name: NAMES[name] for name in OURS},
    "mlp": "scikit-learn's MLP",
    "boosting": "gradient boosting",
}
MODEL_COLORS = {**COLORS, "mlp": COLORS["tanh"], "boosting": COLORS["sigmoid"]}
HIDDEN = ((32,), (64,), (32, 32), (64, 64))


def table(name: str, rows: int, seed: int) -> Arrays:
    """Inputs and targets: a random part of a table that comes with scikit-learn, or generated."""
    from sklearn import datasets as ready

    if name in GENERATED:
        make, options = GENERATED[name]
        made: Arrays = getattr(ready, make)(n_samples=rows, random_state=seed, **options)
        return made
    if name == "covertype":
        train = data.load("covertype", components=None).train
        X, y = np.asarray(train.features), np.asarray(train.targets)
    else:
        X, y = getattr(ready, f"load_{name.replace(' ', '_')}")(return_X_y=True)
    some = np.random.default_rng(seed).permutation(len(y))[:rows]
    return X[some], y[some]


def draw(model: str, rng: np.random.Generator) -> dict[str, Any]:
    """Random parameters of a model."""

    def between(low: float, high: float) -> float:
        return float(f"{np.exp(rng.uniform(np.log(low), np.log(high))):.3g}")

    if model == "boosting":
        return {
            "learning_rate": between(0.03, 0.3),
            "max_leaf_nodes": int(between(4, 32)),
            "min_samples_leaf": int(between(2, 30)),
            "l2_regularization": between(1e-3, 10),
        }
    decay = {"alpha": between(1e-5, 1)} if model == "mlp" else {"weight_decay": between(1e-3, 1)}
    hidden = HIDDEN[rng.integers(len(HIDDEN))]
    return {"hidden_layer_sizes": hidden, "learning_rate_init": between(1e-3, 2e-2), **decay}


def build(config: "Tabular", seed: int, chosen: Mapping[str, Any]) -> Any:
    """An estimator that is not fitted yet; inputs and targets are scaled for every network."""
    from sklearn import ensemble, neural_network
    from sklearn.compose import TransformedTargetRegressor
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    from lpunits.sklearn import LpClassifier, LpRegressor

    classes = TABLES[config.table]
    if config.model in OURS:
        kind: Any = LpClassifier if classes else LpRegressor
        fixed = {"activation": config.model, "max_iter": config.epochs, "early_stopping": False}
        return kind(random_state=seed).set_params(**fixed, **chosen)
    ending = "Classifier" if classes else "Regressor"
    if config.model == "boosting":
        boosted = getattr(ensemble, f"HistGradientBoosting{ending}")
        fixed = {"max_iter": config.trees, "early_stopping": False}
        return boosted(random_state=seed, **fixed, **chosen)
    kind = getattr(neural_network, f"MLP{ending}")
    net = kind(max_iter=config.epochs, random_state=seed, **chosen)
    scaled = make_pipeline(StandardScaler(), net)
    return scaled if classes else TransformedTargetRegressor(scaled, transformer=StandardScaler())


@dataclass(frozen=True)
class Tabular:
    """A model on a table, by nested cross-validation.

    In each outer fold, parameters are drawn at random, the first being those that the estimator has
    by itself but for the size; those with the best mean score over the inner folds are
    fitted to all rows but the fold's, which are used for the score alone.

    Args:
        table: The table.
        model: The model.
        rows: Of the table, at most.
        trials: How many parameters are drawn in each outer fold.
        inner: The number of inner folds.
        folds: The number of outer folds.
        epochs: Of the networks.
        trees: Of gradient boosting, for each class.
    """

    table: str
    model: str
    rows: int = 300
    trials: int = 2
    inner: int = 2
    folds: int = 5
    epochs: int = 20
    trees: int = 50

    multiplications = 0  # the nets are so small that one thread is fastest

    def __post_init__(self) -> None:
        check_choice(self, table=TABLES, model=MODELS)
        check_at_least(self, 50, "rows")
        check_at_least(self, 2, "inner", "folds")
        check_at_least(self, 1, "trials", "epochs", "trees")

    @property
    def datasets(self) -> tuple[str, ...]:
        """Nothing has to be fetched but Covertype."""
        return ("covertype",) if self.table == "covertype" else ()

    @property
    def label(self) -> str:
        """The table, the model and the size of the search."""
        return f"{self.table}, {self.model}, {self.rows} rows, {self.trials} trials"

    def run(self, seed: int, job: Job) -> dict[str, Any]:
        """Error and chosen parameters in each fold; the error of a regression is 1 - R²."""
        from sklearn.model_selection import KFold, StratifiedKFold
        from threadpoolctl import threadpool_limits

        classes = TABLES[self.table]
        kind = StratifiedKFold if classes else KFold
        X, y = table(self.table, self.rows, seed)
        found: dict[str, list[Any]] = {"errors": [], "inner_errors": [], "chosen": []}

        def error(chosen: Mapping[str, Any], train: Any, test: Any) -> float:
            estimator = build(self, seed, chosen)
            estimator.fit(X[train], y[train])
            return 1.0 - float(estimator.score(X[test], y[test]))

        with warnings.catch_warnings(), threadpool_limits(1):
            warnings.simplefilter("ignore")  # the epochs are few: MLPs have not converged
            outer = kind(self.folds, shuffle=True, random_state=seed).split(X, y)
            for fold, (rows, test) in enumerate(outer):
                rng = np.random.default_rng([seed, fold])
                first = {} if self.model == "boosting" else {"hidden_layer_sizes": HIDDEN[-1]}
                drawn = [first] + [draw(self.model, rng) for _ in range(self.trials - 1)]
                splits = kind(self.inner, shuffle=True, random_state=seed)
                pairs = list(splits.split(X[rows], y[rows]))
                means = [
                    statistics.fmean(error(chosen, rows[a], rows[b]) for a, b in pairs)
                    for chosen in drawn
                ]
                best = int(np.argmin(means))
                found["errors"].append(error(drawn[best], rows, test))
                found["inner_errors"].append(means[best])
                found["chosen"].append(drawn[best])
                job.epoch(fold + 1, self.folds, {"test_error": found["errors"][-1]}, {})
        if not np.isfinite(found["errors"]).all():
            return {"diverged": f"the errors are {found['errors']}"}
        sizes = {"rows": len(y), "columns": X.shape[1], "scikit_learn": version("scikit-learn")}
        return {"test_error": statistics.fmean(found["errors"]), **found, **sizes}


def trials(scale: Scale) -> list[Trial]:
    """Every model on every table."""
    config = {
        "smoke": Tabular("wine", "lp", rows=60, trials=1, folds=2, epochs=2, trees=5),
        "quick": Tabular("wine", "lp"),
        "paper": Tabular("wine", "lp", rows=1000, trials=5, epochs=40, trees=100),
    }[scale]
    quick = [name for name in TABLES if name != "covertype"]
    names = {"smoke": ["wine", "Friedman 1"], "quick": quick, "paper": list(TABLES)}[scale]
    return [Trial(replace(config, table=name, model=m), 0) for name in names for m in MODELS]


def section(results: Sequence[Result]) -> Section:
    """The errors of all models on all tables, and their ranks on those where all were run."""
    models = [m for m in MODELS if any(r.config.model == m for r in results)]
    errors, rows = {}, []
    for name, found in grouped(results, lambda config: config.table).items():
        size = "{rows:,} x {columns}".format(**found[0].outcome)
        some = {r.config.model: r.outcome["errors"] for r in found}
        shown = {m: spread(e, ".2%").partition(" (n")[0] for m, e in some.items()}
        rows.append([f"{name} ({size})", *(shown.get(m, "") for m in models)])
        errors[name] = some
    complete = {name: some for name, some in errors.items() if set(some) == set(models)}
    caption = (
        "Test error over five folds, mean ± standard deviation: the part of wrong classes, or "
        "1 - R². The last row has the mean rank; 1 is best."
    )
    ranks = mean_ranks(complete, models)
    if ranks:
        rows.append(["mean rank", *(f"{ranks[m]:.2f}" for m in models)])
    tables = [Table(["table", *(MODELS[m] for m in models)], rows, caption)]
    if not ranks or "lp" not in models or len(models) < 2:
        return Section("No table has the results of all models yet.", tables, notes=NOTES)
    order = sorted(models, key=lambda m: ranks[m])
    places = ", ".join(f"{MODELS[m]} {ranks[m]:.2f}" for m in order)
    counts = [against(complete, m) for m in models if m != "lp"]
    first = f"Mean ranks over {len(complete)} tables, the best first: {places}."
    alt = "The error of each model on each table, relative to the best of them"
    picture = Picture("tables", figure(complete, models), alt, "1 is the best model of a table.")
    return Section(
        " ".join([first, *counts]), tables, [picture], NOTES, details=[chosen_defaults(results)]
    )


NOTES = (
    "Every model has as many random trials in each outer fold, judged on inner folds; the first "
    "trial is the estimator's own defaults, with the largest of the networks here. Networks have "
    "the same widths and epochs; with two filters for each unit, Lp and maxout nets have about "
    "twice the weights of ReLU nets.",
    "The budgets are small: a few epochs, at most a thousand rows, a handful of trials. More of "
    "any may change the order.",
    "Folds share rows to train on, so the standard deviations over folds say little about other "
    "tables of the same kind.",
)


def mean_ranks(
    errors: Mapping[str, Mapping[str, Sequence[float]]], models: Sequence[str]
) -> dict[str, float]:
    """The rank of each model by its mean error, averaged over tables; equal errors share a rank.

    >>> mean_ranks({"a": {"lp": [0.1], "relu": [0.2]}, "b": {"lp": [0.3], "relu": [0.3]}},
    ...            ["lp", "relu"])
    {'lp': 1.25, 'relu': 1.75}
    """
    from scipy.stats import rankdata

    ranks = [rankdata([statistics.fmean(some[m]) for m in models]) for some in errors.values()]
    return dict(zip(models, np.mean(ranks, axis=0).tolist(), strict=True)) if ranks else {}


def against(errors: Mapping[str, Mapping[str, Sequence[float]]], model: str) -> str:
    """On how many tables the error of Lp is lower than that of another model."""
    found = [compare(some["lp"], some[model]) for some in errors.values()]
    counts = (found.count(how) for how in ("lower", "higher", "not significantly different"))
    return (
        "Against {}, Lp's error is lower on {}, higher on {} and not significantly different on {}."
    ).format(MODELS[model], *counts)


def chosen_defaults(results: Sequence[Result]) -> Table:
    """How often the defaults won the search."""
    rows = []
    for model, name in MODELS.items():
        some = [r.outcome["chosen"] for r in results if r.config.model == model]
        if chosen := [c for folds in some for c in folds]:
            won = sum(not any(key.startswith("learning_rate") for key in c) for c in chosen)
            rows.append([name, f"{won} of {len(chosen)}"])
    return Table(["model", "folds in which the defaults won"], rows)


def figure(errors: Mapping[str, Mapping[str, Sequence[float]]], models: Sequence[str]) -> Figure:
    """A row for each table, a point for each model."""
    fig, (axes,) = panels(1, 1, 8, 1.2 + 0.3 * len(errors))
    for place, model in enumerate(models):
        means = [statistics.fmean(some[model]) for some in errors.values()]
        best = [min(map(statistics.fmean, some.values())) for some in errors.values()]
        relative = [(m + 1e-3) / (b + 1e-3) for m, b in zip(means, best, strict=True)]
        apart = 0.12 * (place - (len(models) - 1) / 2)  # so that equal ones are visible
        rows = np.arange(len(errors)) + apart
        axes.plot(relative, rows, "o", ms=5, color=MODEL_COLORS[model], label=MODELS[model])
    axes.set(xscale="log", xlabel="error relative to the best")
    axes.set_yticks(range(len(errors)), list(errors))
    axes.invert_yaxis()
    highest = axes.get_xlim()[1]
    axes.set_xticks([x for x in (1, 1.2, 1.5, 2, 3, 5, 10, 20, 50, 100) if x <= max(highest, 1.2)])
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5))
    return fig


EXPERIMENT = Experiment(
    name="tables",
    title="Beyond the paper: small tables",
    about="Tables that come with scikit-learn or are generated: networks of Lp units against ReLU "
    "and maxout, scikit-learn's MLP and gradient boosting, after searches of the same size.",
    trials=trials,
    section=section,
    minutes={"smoke": 0.1, "quick": 1, "paper": 20},
)
