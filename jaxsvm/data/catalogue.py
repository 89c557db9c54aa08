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
from .from_arrays import dataset
from .npz import read_npz
from .splits import split


class Source(NamedTuple):
    """A data set at OpenML."""

    number: int  # of the data set and its version
    name: str  # at OpenML
    # size of the standard training part, the first rows; None: there is none
    train: int | None = None


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
LOCAL = ("breast_cancer", "breast_cancer_wdbc")


def load(
    name: str,
    *,
    key: Array | None = None,
    positive: Any = None,
    home: str | bytes | os.PathLike | None = None,
) -> Loaded:
    """A data set by name, as `train, test`.

    It is read from a folder of `.npz` files, else from OpenML through scikit-learn.

    Values are not scaled: use `standardize` or `scale`. scikit-learn caches data from OpenML in its
    own folder (`SCIKIT_LEARN_DATA`). Class names are those of the source, and may differ between
    the two.

    Args:
        name: of `<name>.npz` in the folder, or of a data set at OpenML; "breast_cancer" is part of
            the package.
        key: draws one row in five as test rows; required for a data set without a standard test
            part, else unused.
        positive: the class, or several, that are +1 against the rest; None: the second of two
            classes, or class numbers for more.
        home: the folder; None: that of the environment variable `JAXSVM_DATA`.

    Returns:
        `Loaded`: (train, test) with `classes`.

    Raises:
        ValueError: an unknown name, no key where one is required, a damaged file.
        ImportError: scikit-learn is not installed.
        OSError: OpenML cannot be reached.

    Warns:
        UserWarning: the ranges of the columns differ much, as in `dataset`.

    Example:
        >>> import jax
        >>> train, test = load("breast_cancer", key=jax.random.key(0))
        >>> train.x.shape, test.x.shape
        ((455, 30), (114, 30))
    """
    if not isinstance(name, str):
        raise TypeError(
            f"name must be the name of a data set, such as 'breast_cancer', got {shown(name)}"
        )
    home = os.environ.get("JAXSVM_DATA") if home is None else os.fsdecode(home)
    path = os.path.join(home, f"{name}.npz") if home else None
    if path and os.sep not in name and os.path.isfile(path):
        parts = read_npz(path)[:2]
    elif name in LOCAL:
        parts = [_breast_cancer()]
    elif name in OPENML:
        parts = _fetch(name, OPENML[name])
    else:
        files = (
            sorted(file[:-4] for file in os.listdir(home) if file.endswith(".npz"))
            if home and os.path.isdir(home)
            else []
        )
        where = f"in {home}: {', '.join(files) or 'nothing'}; " if home else ""
        unset = "" if home else "; JAXSVM_DATA, which may name a folder with others, is not set"
        raise ValueError(
            f"no data set is named {name!r}; known are {where}in the package: {LOCAL[0]}; at "
            f"OpenML: {', '.join(OPENML)}{unset}"
        )
    if len(parts) == 1 and key is None:
        raise ValueError(
            f"{name} has no standard test part: give a key, such as jax.random.key(0), to draw "
            "one row in five for it"
        )
    loaded = assemble(parts, positive=positive)
    return (
        loaded
        if key is None or len(parts) > 1
        else Loaded(split(key, loaded[0], 4, 1), loaded.classes)
    )


def _fetch(name: str, source: Source) -> list[Rows]:
    try:
        from sklearn.datasets import fetch_openml
    except ImportError as error:
        raise ImportError(
            "data sets are fetched through scikit-learn: pip install 'jaxsvm[sklearn]'"
        ) from error
    parser = "auto" if importlib.util.find_spec("pandas") else "liac-arff"
    try:
        fetched = fetch_openml(data_id=source.number, as_frame=False, parser=parser)
    except OSError as error:
        raise OSError(
            f"{name} could not be fetched from OpenML ({error}): put {name}.npz into the folder "
            "JAXSVM_DATA names"
        ) from error
    if fetched.details["name"] != source.name:
        raise ValueError(
            f"OpenML has {fetched.details['name']} as number {source.number}, "
            f"expected {source.name}"
        )
    y = np.asarray(fetched.target).astype(str)
    n_train = source.train or len(y)
    parts = [(fetched.data[rows], y[rows]) for rows in (slice(n_train), slice(n_train, None))]
    return [Rows(x, labels) for x, labels in parts if len(labels)]


def _breast_cancer() -> Rows:
    path = importlib.resources.files("jaxsvm") / "datasets" / "breast_cancer_wdbc.npz"
    with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
        return Rows(arrays["X_train"], arrays["y_train"])


def breast_cancer(columns: Sequence[int] | None = None) -> Batch:
    """Breast Cancer Wisconsin (Diagnostic): 569 rows, 30 columns.

    The labels are +1 = malignant (212) and -1 = benign (357).

    Part of the package, with the values of the source: standardise them.

    Args:
        columns: indices among the 30; None: all.

    Example:
        >>> breast_cancer(columns=[0, 1]).x.shape
        (569, 2)

    Reference: W. Wolberg, O. Mangasarian, N. Street, W. Street, UCI Machine Learning Repository,
        1995, CC BY 4.0, https://doi.org/10.24432/C5DW2B.
    """
    x, y = _breast_cancer()[:2]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the docstring says that the columns are unscaled
        return dataset(x if columns is None else x[:, list(columns)], y)
