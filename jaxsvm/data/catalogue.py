"""The data set that is part of the package."""

from __future__ import annotations

import importlib.resources
import warnings
from collections.abc import Sequence

import numpy as np

from ..types import Batch
from .from_arrays import dataset


def breast_cancer(columns: Sequence[int] | None = None) -> Batch:
    """Breast Cancer Wisconsin (Diagnostic): 569 rows, 30 columns.

    The labels are +1 = malignant (212) and -1 = benign (357).

    Part of the package, with the values of the source: standardise them.

    Args:
        columns: indices among the 30; None: all.

    Example:
        >>> import jaxsvm
        >>> jaxsvm.data.breast_cancer(columns=[0, 1]).x.shape
        (569, 2)

    Reference: W. Wolberg, O. Mangasarian, N. Street, W. Street, UCI Machine Learning Repository,
        1995, CC BY 4.0, https://doi.org/10.24432/C5DW2B.
    """
    path = importlib.resources.files("jaxsvm") / "datasets" / "breast_cancer_wdbc.npz"
    with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
        x, y = arrays["X_train"], arrays["y_train"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the docstring says that the columns are unscaled
        return dataset(x if columns is None else x[:, list(columns)], y)
