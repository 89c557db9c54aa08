"""Feature maps as transformers of scikit-learn."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import field
from typing import Any, Self

import jax
import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from .. import features
from ..checks import caller_stacklevel, check_choice, integer, is_sparse
from ..data import dataset
from ..features.landmarks import choice
from ..kernels import Kernel
from ..names import LANDMARKS
from .compact import apply
from .parameters import KernelParameters, estimator, kernel_of, parameters
from .preprocess import make_seed, to_train_dtype, validate


@parameters
class Map(KernelParameters, ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """A transformer of checked rows to features."""

    kernel: str | Callable = field(default="rbf", kw_only=False)
    n_components: int = 100
    random_state: int | np.random.RandomState | None = None

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = ["float32"]
        return tags

    def fit(self, X: ArrayLike, y: ArrayLike | None = None) -> Self:
        """Draw the map for rows like X, (n, d); y is ignored."""
        integer("n_components", self.n_components, 1)
        x = to_train_dtype(validate(self, X))
        kernel = kernel_of(self.kernel, self.gamma, self.degree, self.coef0, x)
        self.phi_ = self._map(jax.random.key(make_seed(self.random_state)), kernel, x)
        row = jax.ShapeDtypeStruct((1, x.shape[1]), x.dtype)
        self._n_features_out = jax.eval_shape(self.phi_, row).shape[1]
        return self

    def transform(self, X: ArrayLike) -> np.ndarray:
        """Features, (n, d) -> (n, n_components)."""
        check_is_fitted(self, "phi_")
        return apply(self.phi_, validate(self, X, reset=False))


@estimator("kernel gamma degree coef0 n_components choose random_state")
class NystromFeatures(Map):
    """Nystrom features of a kernel, whose inner products approximate kernel values.

    At the landmarks they are exact.

    Args:
        kernel: "rbf", "linear", "poly", "sigmoid", "laplacian", "matern12", "matern32", "matern52",
            "rational_quadratic", "cosine", "chi2" or "additive_chi2", a kernel of jaxsvm, or a
            function (n, d), (m, d) -> (n, m) that JAX can trace.
        n_components: landmarks, >= 1; at most as many as rows.
        choose: "uniform", "k_means", "leverage_scores" or "random_pivots", how landmarks are
            chosen; or a function such as `jaxsvm.features.k_means(steps=3)`.
        random_state: int, `RandomState` or None; the seed of the key.

    Attributes:
        phi_: the map, see `jaxsvm.features.nystrom`.

    Example:
        >>> from jaxsvm.estimators import NystromFeatures
        >>> NystromFeatures(gamma=1.0, n_components=2, random_state=0).fit_transform([[0.0], [1.0],
        ...     [2.0]]).shape
        (3, 2)
    """

    choose: str | Callable = "uniform"

    def _map(self, key: jax.Array, kernel: Kernel, x: Any) -> Callable:
        if isinstance(self.choose, str):
            check_choice("choose", self.choose, LANDMARKS)
        size = min(self.n_components, x.shape[0])
        if size < self.n_components:
            text = f"n_components={self.n_components} landmarks, but only {size} rows"
            warnings.warn(f"{text}: all are taken", stacklevel=caller_stacklevel())
        # drawn on the host, so that the other rows are not copied to the device
        is_drawn = self.choose == "uniform"
        if is_drawn:
            random = np.random.default_rng(np.asarray(jax.random.key_data(key)))
            x = x[random.choice(x.shape[0], size, replace=False)]
        with warnings.catch_warnings():
            # warnings about the scale of the columns, which matters to solvers only
            warnings.simplefilter("ignore")
            rows = dataset(x, np.zeros(x.shape[0]), task="regression").x
        if is_drawn:
            return features.nystrom(None, kernel, landmarks=rows)
        choose = choice(self.choose) if isinstance(self.choose, str) else self.choose
        return features.nystrom(key, kernel, rows, landmarks=size, choose=choose)


@estimator("kernel gamma n_components form random_state")
class FourierFeatures(Map):
    """Random Fourier features of a kernel: inner products are kernel values in expectation.

    Args:
        kernel: "rbf", "laplacian", "matern12", "matern32", "matern52", "rational_quadratic", or
            such a kernel of jaxsvm.
        n_components: features, >= 1; even with form "paired".
        form: "paired", cosines and sines of the same frequencies; "phase"; "auto": "paired" where
            n_components is even.
        random_state: int, `RandomState` or None; the seed of the key.

    Attributes:
        phi_: the map, see `jaxsvm.features.fourier`.

    Example:
        >>> from jaxsvm.estimators import FourierFeatures
        >>> FourierFeatures(gamma=1.0, n_components=4, random_state=0).fit_transform([[0.0], [1.0],
        ...     [2.0]]).shape
        (3, 4)
    """

    form: str = "auto"

    def _map(self, key: jax.Array, kernel: Kernel, x: Any) -> Callable:
        size, form = self.n_components, self.form
        if form == "auto":
            form = "phase" if size % 2 else "paired"
        rows = None if is_sparse(x) else x
        return features.fourier(key, kernel, dim=x.shape[1], features=size, form=form, x=rows)
