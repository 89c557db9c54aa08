"""Reductions of multiclass problems to binary ones: one against the rest, and one against one."""

from __future__ import annotations

from dataclasses import KW_ONLY

import jax.numpy as jnp
import numpy as np

from .._node import between, node
from ..checks import check_bytes
from ..models import OneVsOne, OneVsRest
from ..types import Array, Batch, Solver
from .problems import Problems


@node
class one_vs_rest(Problems):
    """Minimise k separate problems, the rows of one class (+1) against all others (-1).

        P_c(f) = lam/2 |f|^2 + mean_i loss(f(x_i), +1 where y_i = c, else -1),   c = 0 .. k-1

    All k problems read the same rows at every step, so that features and kernel rows are computed
    once. The curve holds the mean of the k losses, the largest residual, and the sums of support
    and kernel evaluations. Evaluations are counted as if each problem computed its own.

    Args:
        inner: a solver for labels -1, +1. Wrappers that read the model, such as `averaged`, go
            inside. `on_features` may go inside or outside; the features are shared either way.
        classes: k, >= 2; structure.

    Returns:
        A solver for rows whose y are class numbers 0 .. k-1 (`jaxsvm.dataset(...,
        task="multiclass")`), with the sampler of `inner`; model `OneVsRest`, (n, d) ->
        (n, k), inside `Mapped` if there is a feature map.

    Raises:
        ValueError: classes is not an integer from 2 to 2^20.

    Example:
        >>> import jax, jaxsvm
        >>> data = jaxsvm.dataset([[1.0, 0.0], [0.0, 1.0], [-1.0, -1.0]], [0, 1, 2],
        ...     task="multiclass")
        >>> solver = jaxsvm.one_vs_rest(jaxsvm.sdca(10.0), classes=3)
        >>> result = jaxsvm.fit(solver, data, jax.random.key(0), steps=300)
        >>> result.predict(data.x).tolist()
        [0, 1, 2]

    Reference: R. Rifkin, A. Klautau, In defense of one-vs-all classification, JMLR 5, 2004.
    """

    inner: Solver
    _: KW_ONLY
    classes: int = between(2, 2**20)

    join = OneVsRest

    @property
    def targets(self) -> int:
        return self.classes

    def parts(self, data: Batch) -> dict[str, Array]:
        """The labels -1, +1 of all problems."""
        n, k, dtype = data.y.shape[0], self.classes, data.y.dtype
        what = f"labels of {n:,} rows in {k:,} classes"
        check_bytes(what, k * n * dtype.itemsize, "take as many classes as the rows have")
        one = jnp.ones((), dtype)
        return {"y": jnp.where(data.y[None] == jnp.arange(k, dtype=dtype)[:, None], one, -one)}


@node
class one_vs_one(Problems):
    """Minimise one problem for each pair of classes.

    The rows of one class are +1, those of the other -1:

        P_ab(f) = lam/2 |f|^2 + mean_{i: y_i = a or b} loss(f(x_i), +1 where y_i = a, else -1),
            0 <= a < b <= k-1

    The mean is by weight. In terms of C, 1/2 |f|^2 + C sum_i w_i loss, all pairs have the same C:
    lam = 1/(C n_ab), where n_ab is the weight of the pair's rows.

    All pairs read the same rows at every step, so that features and kernel rows are computed once.
    Rows of other classes are padding for a pair. A step without rows of a pair leaves its state
    unchanged, the step counter included. With one row a step, a pair therefore makes about 2/k of
    all steps, the same steps as `inner` on the pair's rows alone.

    Samplers scale weights by the mean weight of all rows; here they are rescaled to the mean over
    the pair's rows, which is computed from the data of `init`. The curve holds the mean loss over
    the pairs that have rows in the step, the largest residual, and the sums of support and kernel
    evaluations. Evaluations are counted as if each pair computed its own.

    Args:
        inner: as of `one_vs_rest`.
        classes: k, >= 2; structure.

    Returns:
        A solver for rows whose y are class numbers 0 .. k-1 (`jaxsvm.dataset(...,
        task="multiclass")`), with the sampler of `inner`; model `OneVsOne`, (n, d) ->
        (n, k), inside `Mapped` if there is a feature map. If the state of `inner` has an entry for
        each row (dual methods), `init` needs all rows, as it determines the pairs of each: use
        `fit`, not `stream`.

    Raises:
        ValueError: classes is not an integer from 2 to 2^20.

    Example:
        >>> import jax, jaxsvm
        >>> data = jaxsvm.dataset([[1.0, 0.0], [0.0, 1.0], [-1.0, -1.0]], [0, 1, 2],
        ...     task="multiclass")
        >>> solver = jaxsvm.one_vs_one(jaxsvm.sdca(10.0), classes=3)
        >>> result = jaxsvm.fit(solver, data, jax.random.key(0), steps=300)
        >>> result.predict(data.x).tolist()
        [0, 1, 2]

    Reference: S. Knerr, L. Personnaz, G. Dreyfus, Single-layer learning revisited: a stepwise
        procedure for building and training a neural network, Neurocomputing, NATO ASI F 68, 1990;
        C.-W. Hsu, C.-J. Lin, A comparison of methods for multiclass support vector machines, IEEE
        Trans. Neural Networks 13, 2002; the votes as in scikit-learn's `SVC`.
    """

    inner: Solver
    _: KW_ONLY
    classes: int = between(2, 2**20)

    def check(self) -> None:
        self._check_pairs("the votes of", 12 * self.classes)  # three arrays (pairs, classes)

    def _check_pairs(self, what: str, size: int) -> None:
        """Raise where something of so many bytes for each pair does not fit into memory."""
        pairs = self.classes * (self.classes - 1) // 2
        advice = f"take one_vs_rest(inner, classes={self.classes}), or fewer classes"
        check_bytes(f"{what} {pairs:,} pairs", size * pairs, advice)

    @property
    def targets(self) -> int:
        return self.classes

    def parts(self, data: Batch) -> dict[str, Array]:
        """The labels and weights of all pairs; weights are 0 where a row is of another class."""
        n, dtype = data.y.shape[0], data.y.dtype
        size = n * (dtype.itemsize + data.weight.dtype.itemsize)
        self._check_pairs(f"labels and weights of {n:,} rows in", size)
        one, places = jnp.ones((), dtype), np.triu_indices(self.classes, 1)
        first, second = (data.y[None] == jnp.asarray(c, dtype)[:, None] for c in places)
        weight = jnp.where(first | second, data.weight[None], 0)
        return {"y": jnp.where(first, one, -one), "weight": weight}

    def join(self, models: object, stacked: tuple[bool, ...]) -> OneVsOne:
        return OneVsOne(models, stacked, self.classes)
