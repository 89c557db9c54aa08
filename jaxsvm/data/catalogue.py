"""Data sets by name."""

from __future__ import annotations

import importlib.resources
import importlib.util
import os
import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ..checks import shown
from ..types import Array, Batch
from .assemble import Loaded, Rows, assemble
from .dataset import dataset
from .npz import read_npz
from .splits import split


class Source(NamedTuple):
    """Where OpenML has a data set."""

    number: int  # of the data set there, which fixes its version
    name: str  # there
    train: int | None = None  # rows of the standard training part, the first ones; None: there is no such part


OPENML = {
    "covtype": Source(1596, "covertype"),
    "diabetes": Source(37, "diabetes"),
    "fashion_mnist": Source(40996, "Fashion-MNIST", 60_000),
    "ionosphere": Source(59, "ionosphere"),
    "letter": Source(6, "letter"),
    "magic04": Source(1120, "MagicTelescope"),
    "mnist": Source(554, "mnist_784", 60_000),
    "phoneme": Source(1489, "phoneme"),
    "skin_nonskin": Source(1502, "skin-segmentation"),
    "sonar": Source(40, "sonar"),
    "spambase": Source(44, "spambase"),
    "winequality_red": Source(40691, "wine-quality-red"),
    "winequality_white": Source(40498, "wine-quality-white"),
}
OWN = ("breast_cancer", "breast_cancer_wdbc")


def load(name: str, *, key: Array | None = None, positive: Any = None, home: str | bytes | os.PathLike | None = None) -> Loaded:
    """A data set by name, as `train, test`: from a folder of `.npz` files, else from OpenML through scikit-learn.

    Values stay as in the source: scale them (`standardize`, `scale`). What comes from OpenML is kept by scikit-learn in
    its own folder (`SCIKIT_LEARN_DATA`). The names of the classes are those of the source, which may differ between
    the two.

    Args:
        name: of `<name>.npz` in the folder, or of a set known at OpenML; "breast_cancer" comes with the package.
        key: draws the test rows, one in five, of a set without a standard test part; needed there and not read elsewhere.
        positive: the class, or several, that are +1 against the rest; None: the last of two, and the number of its class
            for each row of a set with more.
        home: the folder; None: the one that the environment variable `JAXSVM_DATA` names.

    Returns:
        `Loaded`: (train, test) with `classes`.

    Raises:
        ValueError: an unknown name, with those that are known; no key where one is needed; a damaged file.
        ImportError, OSError: no scikit-learn, no way to OpenML.

    Warns:
        UserWarning: as `dataset`, if the ranges of the columns differ much.

    Example:
        >>> import jax
        >>> train, test = load("breast_cancer", key=jax.random.key(0))
        >>> train.x.shape, test.x.shape
        ((455, 30), (114, 30))
    """
    if not isinstance(name, str):
        raise TypeError(f"name must be the name of a data set, such as 'breast_cancer', got {shown(name)}")
    home = os.environ.get("JAXSVM_DATA") if home is None else os.fsdecode(home)
    path = os.path.join(home, f"{name}.npz") if home else None
    if path and os.sep not in name and os.path.isfile(path):
        parts = read_npz(path)[:2]
    elif name in OWN:
        parts = [_own()]
    elif name in OPENML:
        parts = _fetch(name, OPENML[name])
    else:
        there = sorted(file[:-4] for file in os.listdir(home) if file.endswith(".npz")) if home and os.path.isdir(home) else []
        where = f"in {home}: {', '.join(there) or 'nothing'}; " if home else ""
        unset = "" if home else "; JAXSVM_DATA, which may name a folder with others, is not set"
        raise ValueError(
            f"no data set is named {name!r}; known are {where}in the package: {OWN[0]}; at OpenML: {', '.join(OPENML)}{unset}"
        )
    if len(parts) == 1 and key is None:
        raise ValueError(
            f"{name} has no standard test part: give a key, such as jax.random.key(0), to draw one row in five for it"
        )
    loaded = assemble(parts, positive=positive)
    return Loaded(split(key, loaded[0], 4, 1), loaded.classes) if len(parts) == 1 else loaded


def _fetch(name: str, source: Source) -> list[Rows]:
    try:
        from sklearn.datasets import fetch_openml
    except ImportError as error:
        raise ImportError("data sets are fetched through scikit-learn: pip install 'jaxsvm[sklearn]'") from error
    parser = "auto" if importlib.util.find_spec("pandas") else "liac-arff"
    try:
        found = fetch_openml(data_id=source.number, as_frame=False, parser=parser)
    except OSError as error:
        raise OSError(
            f"{name} could not be fetched from OpenML ({error}): put {name}.npz into the folder JAXSVM_DATA names"
        ) from error
    if found.details["name"] != source.name:
        raise ValueError(f"OpenML has {found.details['name']} as number {source.number}, expected {source.name}")
    y = np.asarray(found.target).astype(str)
    cut = source.train or len(y)
    parts = [Rows(found.data[rows], y[rows]) for rows in (slice(cut), slice(cut, None))]
    return [part for part in parts if len(part.y)]


def _own() -> Rows:
    path = importlib.resources.files("jaxsvm") / "datasets" / "breast_cancer_wdbc.npz"
    with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
        return Rows(arrays["X_train"], arrays["y_train"])


def breast_cancer(columns: Sequence[int] | None = None) -> Batch:
    """Breast Cancer Wisconsin (Diagnostic): 569 rows, 30 columns, +1 = malignant (212), -1 = benign (357).

    Comes with the package, as in the source: unscaled, so standardise it.

    Args:
        columns: which of the 30; None: all.

    Example:
        >>> breast_cancer(columns=[0, 1]).x.shape
        (569, 2)

    Reference: W. Wolberg, O. Mangasarian, N. Street, W. Street, UCI Machine Learning Repository, 1995, CC BY 4.0,
        https://doi.org/10.24432/C5DW2B.
    """
    x, y, _ = _own()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the docstring says that the columns are unscaled
        return dataset(x if columns is None else x[:, list(columns)], y)
