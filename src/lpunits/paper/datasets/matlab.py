"""MATLAB files, which hold no code but come from anywhere: every failure is one clear error."""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from lpunits.paper.datasets.files import DataError


def read_mat(path: Path, keys: tuple[str, ...], limit: int) -> dict[str, npt.NDArray[Any]]:
    """The arrays of these names in a MATLAB file (up to version 7) of at most ``limit`` bytes."""
    from scipy.io import loadmat

    if path.stat().st_size > limit:
        raise DataError(f"{path}: a file of at most {limit} bytes is expected")
    try:
        found = loadmat(path, variable_names=keys, appendmat=False)
    except NotImplementedError as error:
        raise DataError(
            f"{path}: MATLAB files of version 7.3 are not supported, save it with -v7"
        ) from error
    except Exception as error:  # scipy's parser fails in as many ways as files can be damaged
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise DataError(f"{path}: not a sound MATLAB file ({reason})") from error
    missing = [key for key in keys if not isinstance(found.get(key), np.ndarray)]
    if missing:
        raise DataError(f"{path}: the MATLAB file has no array named {', '.join(missing)}")
    return {key: found[key] for key in keys}
