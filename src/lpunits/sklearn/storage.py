"""Fitted estimators in files: safetensors, with the rest as JSON in its head."""

from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lpunits import sealed
from lpunits.sklearn.tables import unscaled
from lpunits.sklearn.training import History

FORMAT = 1
DTYPES = {"float32": torch.float32, "float64": torch.float64}


def save(estimator: Any, path: Path) -> None:
    """Write a fitted estimator; see :meth:`LpClassifier.save`."""
    model = estimator.model_
    history: History = estimator._history
    facts = {
        "format": FORMAT,
        "class": type(estimator).__name__,
        "lpunits": _version(),
        "parameters": {
            name: _plain(name, value) for name, value in estimator.get_params(deep=False).items()
        },
        "dtype": str(model[0].dtype).removeprefix("torch."),
        "bound": model[0].bound,
        "columns": len(model[0].mean),
        "names": _listed(getattr(estimator, "feature_names_in_", None)),
        "classes": _classes(getattr(estimator, "classes_", None)),
        "targets": None if hasattr(estimator, "classes_") else len(model[2].mean),
        "flat": getattr(estimator, "_flat", None),
        "history": [history.loss, history.scores, history.orders],
    }
    sealed.write(path, model.state_dict(), facts)


def load(path: str | Path, kind: type | None = None) -> Any:
    """The estimator of a file, whichever of the two it is.

    >>> import tempfile
    >>> from lpunits.sklearn import LpRegressor
    >>> X = np.random.default_rng(0).random((50, 3))
    >>> path = Path(tempfile.mkdtemp()) / "model.safetensors"
    >>> LpRegressor(max_iter=2, random_state=0).fit(X, X[:, 0]).save(path)
    >>> load(path)
    LpRegressor(max_iter=2, random_state=0)

    Args:
        path: What ``save`` wrote.
        kind: The class that is expected, if one is.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"path must be a file that save() wrote, got {path}")
    tensors, facts = sealed.read(path)
    try:
        return _restored(path, tensors, facts, kind)
    except (KeyError, TypeError, AttributeError, RuntimeError) as error:
        reason = " ".join(str(error).split())
        raise ValueError(f"{path}: not a file that save() wrote ({reason})") from error


def _restored(path: Path, tensors: dict[str, Tensor], facts: dict[str, Any], kind: Any) -> Any:
    from lpunits.sklearn.estimators import LpClassifier, LpRegressor

    if facts["format"] != FORMAT:
        raise ValueError(
            f"{path}: written by lpunits {facts['lpunits']} in format {facts['format']}, "
            f"this lpunits {_version()} reads format {FORMAT}"
        )
    classes = {c.__name__: c for c in (LpClassifier, LpRegressor)}
    found = classes[facts["class"]]
    if kind is not None and found is not kind:
        raise ValueError(f"{path}: holds a {found.__name__}, load it with {found.__name__}.load")
    parameters = {name: _unplain(value) for name, value in facts["parameters"].items()}
    estimator: Any = found(**parameters)
    estimator._history = History(*facts["history"])
    estimator.n_features_in_ = facts["columns"]
    if facts["names"] is not None:
        estimator.feature_names_in_ = np.array(facts["names"], dtype=object)
    if facts["classes"] is not None:
        estimator.classes_ = np.array(facts["classes"]["values"], dtype=facts["classes"]["dtype"])
    else:
        estimator._flat = facts["flat"]
    dtype = DTYPES[facts["dtype"]]
    inputs = unscaled(facts["columns"], dtype)
    inputs.bound = facts["bound"]
    targets = None if facts["targets"] is None else unscaled(facts["targets"], dtype)
    estimator._assemble(inputs, targets, np.random.default_rng(0))
    estimator.model_.load_state_dict(tensors)
    return estimator._publish()


def _version() -> str:
    try:
        return version("lpunits")
    except PackageNotFoundError:
        return "from source"


def _listed(names: Any) -> list[str] | None:
    return None if names is None else [str(name) for name in names]


def _classes(classes: Any) -> dict[str, Any] | None:
    if classes is None:
        return None
    if classes.dtype.kind not in "biufU" and not all(isinstance(c, str) for c in classes):
        raise TypeError(
            f"classes must be numbers or text to be saved, got the dtype {classes.dtype}"
        )
    return {
        "dtype": classes.dtype.str if classes.dtype != object else "O",
        "values": classes.tolist(),
    }


def _plain(name: str, value: Any) -> Any:
    """A parameter as JSON has it; tuples and dicts are marked, as both are lists there."""
    if isinstance(value, tuple):
        return {"tuple": [_plain(name, v) for v in value]}
    if isinstance(value, dict):
        return {"dict": [[_plain(name, k), _plain(name, v)] for k, v in value.items()]}
    if isinstance(value, list):
        return [_plain(name, v) for v in value]
    if isinstance(value, np.generic | np.ndarray | Tensor):
        return value.tolist()
    if isinstance(value, torch.device):
        return str(value)
    if isinstance(value, np.random.RandomState | np.random.Generator):
        return None
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(f"{name} must be a number, text or a list of them to be saved, got {value!r}")


def _unplain(value: Any) -> Any:
    if isinstance(value, dict):
        if "tuple" in value:
            return tuple(_unplain(v) for v in value["tuple"])
        return {_unplain(k): _unplain(v) for k, v in value["dict"]}
    return [_unplain(v) for v in value] if isinstance(value, list) else value
