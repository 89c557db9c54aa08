"""Reductions of multiclass problems to binary ones: one against the rest, and one against one."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from ..checks import check_bytes, integer
from ..models import OneVsOne, OneVsRest
from ..recipe import fields_of, replace, solver
from ..types import Solver
from .problems import MaskedProblems, combine, stack_models

MOST_CLASSES = 2**20


@solver
def one_vs_rest(inner: Solver, *, classes: int) -> Solver:
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
        ValueError: classes is not an integer from 2 to `MOST_CLASSES`.

    Example:
        >>> import jax, jaxsvm
        >>> data = jaxsvm.dataset([[1.0, 0.0], [0.0, 1.0], [-1.0, -1.0]], [0, 1, 2],
        ...     task="multiclass")
        >>> result = jaxsvm.fit(one_vs_rest(jaxsvm.sdca(10.0), classes=3), data, jax.random.key(0),
        ...     steps=300)
        >>> jnp.argmax(result.model(data.x), axis=1).tolist()
        [0, 1, 2]

    Reference: R. Rifkin, A. Klautau, In defense of one-vs-all classification, JMLR 5, 2004.
    """
    _check_classes(classes)

    def labels(y):
        """(n,) class numbers -> (k, n) labels -1, +1."""
        one = jnp.ones((), y.dtype)
        return jnp.where(y[None, :] == jnp.arange(classes, dtype=y.dtype)[:, None], one, -one)

    def init(key, data):
        size = classes * data.y.shape[0] * data.y.dtype.itemsize
        what = f"labels of {data.y.shape[0]:,} rows in {classes:,} classes"
        check_bytes(what, size, "take as many classes as the rows have")
        return jax.vmap(lambda y: inner.init(key, data._replace(y=y)))(labels(data.y))

    def update(state, batch):
        state, info = jax.vmap(lambda state, y: inner.update(state, batch._replace(y=y)))(
            state, labels(batch.y)
        )
        return state, combine(info, jnp.mean(info.loss))

    def model(state, data=None):
        targets = None if data is None else {"y": labels(data.y)}
        return stack_models(inner, state, data, targets, OneVsRest)

    return replace(
        inner,
        init=init,
        update=update,
        model=model,
        targets=classes,
    )


@solver
def one_vs_one(inner: Solver, *, classes: int) -> Solver:
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
        ValueError: classes is not an integer from 2 to `MOST_CLASSES`.

    Example:
        >>> import jax, jaxsvm
        >>> data = jaxsvm.dataset([[1.0, 0.0], [0.0, 1.0], [-1.0, -1.0]], [0, 1, 2],
        ...     task="multiclass")
        >>> result = jaxsvm.fit(one_vs_one(jaxsvm.sdca(10.0), classes=3), data, jax.random.key(0),
        ...     steps=300)
        >>> jnp.argmax(result.model(data.x), axis=1).tolist()
        [0, 1, 2]

    Reference: S. Knerr, L. Personnaz, G. Dreyfus, Single-layer learning revisited: a stepwise
        procedure for building and training a neural network, Neurocomputing, NATO ASI F 68, 1990;
        C.-W. Hsu, C.-J. Lin, A comparison of methods for multiclass support vector machines, IEEE
        Trans. Neural Networks 13, 2002; the votes as in scikit-learn's `SVC`.
    """
    _check_classes(classes)
    num_pairs = classes * (classes - 1) // 2
    advice = f"take one_vs_rest(inner, classes={classes}), or fewer classes"
    size = 12 * classes * num_pairs  # three arrays (pairs, classes) of the votes
    check_bytes(f"the votes of the {num_pairs:,} pairs of classes", size, advice)
    first, second = np.triu_indices(classes, 1)

    def pair_targets(y, weight):
        """The labels and weights of all pairs, (k(k-1)/2, n) each.

        Arguments are (n,) class numbers and weights. Weights are 0 where a row is of another class.
        """
        one = jnp.ones((), y.dtype)
        in_first, in_second = (
            y[None, :] == jnp.asarray(c, y.dtype)[:, None] for c in (first, second)
        )
        return jnp.where(in_first, one, -one), jnp.where(
            in_first | in_second, weight[None, :], jnp.zeros_like(weight)[None, :]
        )

    problems = MaskedProblems(
        fields_of(inner), pair_targets, lambda model, stacked: OneVsOne(model, stacked, classes)
    )

    def init(key, data):
        n = data.y.shape[0]
        size = num_pairs * n * (data.y.dtype.itemsize + data.weight.dtype.itemsize)
        check_bytes(f"labels and weights of {n:,} rows in {num_pairs:,} pairs", size, advice)
        return problems.init(key, data)

    return replace(inner, init=init, update=problems.update, model=problems.model, targets=classes)


def _check_classes(classes: int) -> None:
    integer("classes", classes, 2, MOST_CLASSES)
