"""A metric of the rows that the machine itself learns: recursive feature machines."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..checks import integer, matrix, shown
from ..files import check_field
from ..models import Mapped, OneVsOne
from ..numerics import accum_dtype, dot
from ..recipe import as_static, struct, unwrap_static
from ..types import Array, Batch, SparseRows, row_weights
from .fitting import fit
from .select_checks import check_single
from .selecting import select
from .selection import Scores
from .threads import Progress

MOST_ROUNDS = 20
BLOCK = 256  # rows whose gradients are worked out at once


@struct
class Metric:
    """The map of rows x -> A x, A = M^(1/2): distances of its values are those of the metric M."""

    root: Array  # A, (d, d) symmetric; (d,): its diagonal

    def __call__(self, x: Array) -> Array:
        """(n, d) -> (n, d)."""
        x = matrix("x", x, self.root.shape[0])
        if isinstance(x, SparseRows):
            raise ValueError("a metric is for dense rows: pass x.toarray()")
        root = self.root.astype(x.dtype)
        return x * root[None, :] if root.ndim == 1 else dot(x, root)

    @property
    def features(self) -> int:
        """The number of columns d of the values."""
        return self.root.shape[0]

    def __check__(self) -> None:
        d = self.root.shape[0]
        check_field("root", self.root, "real", (d,) * self.root.ndim)


@struct
class MetricSearch:
    """The result of `metric_search`: the machine on the learned metric, and how it was chosen."""

    model: Any  # of the rows as they are: `Mapped` of a `Metric`, after the first round
    metric: np.ndarray  # M, (d, d), or (d,) its diagonal
    tables: tuple  # (rounds + 1,) the `Scores` of each round, out of fold; the first: M = I
    chosen: dict  # the numbers of the axes in the chosen round
    classes: Any = None  # what `predict` gives, `models.Classes`

    @property
    def errors(self) -> np.ndarray:
        """The least mean score of each round, (rounds + 1,)."""
        return np.array([table.mean[table.place] for table in self.tables])

    @property
    def round(self) -> int:
        """The number of the chosen round, that of the least score; 0: without a metric."""
        return int(np.argmin(self.errors))

    @property
    def importances(self) -> np.ndarray:
        """The diagonal of M, (d,), with sum 1: what the function depends on; equal at round 0."""
        diagonal = self.metric if self.metric.ndim == 1 else np.diag(self.metric)
        return diagonal / diagonal.sum()

    def predict(self, x: Any) -> Any:
        """As `Fit.predict`."""
        return self.classes.predict(self.model, x)

    @property
    def classifier(self) -> Any:
        """As `Fit.classifier`."""
        return self.classes.classifier(self.model)


def metric_search(
    maker: Callable,
    data: Batch,
    key: Array,
    *,
    rounds: int = 4,
    diagonal: bool = False,
    folds: Any = 5,
    groups: Any = None,
    score: str | Callable = "error",
    progress: bool = True,
    **axes: Any,
) -> MetricSearch:
    """Learn a metric by the gradients of kernel machines, as recursive feature machines do.

        f_r = the machine on rows A_r x,  A_0 = I,  with the numbers of round r
        M_{r+1} = A_r (mean_i grad f_r(A_r x_i) grad f_r(A_r x_i)') A_r / c
        A_{r+1} = M_{r+1}^(1/2)

    Columns, or directions, on which f does not depend lose their weight. The factor c keeps the
    mean squared distance of two rows, so that all rounds have the same grid. Of k values f is each
    of them, of `one_vs_one` the value of each pair, and the products are summed. Rounds end where
    a machine is a constant function.

    The score of a round is out of fold, metric included: each fold has metrics of its own, learned
    without its rows but for the choice of the numbers. The first round is the whole grid. Later
    ones look at the numbers of the least mean score in the round before, and at their neighbours
    on the grid. The round of the least score is chosen, and its machine is trained on all rows.

    Args:
        maker: (one number of each axis by name) -> solver of a kernel machine, as of `select`.
        data: n dense rows of columns of like scale, see `jaxsvm.data.standardize`.
        key: a key of `jax.random.key`, for the folds and all fits.
        rounds: from 1 to 20; three to five are common.
        diagonal: whether M is diagonal: a weight for each column.
        folds: as of `select`.
        groups: as of `select`.
        score: as of `select`, but for those of probabilities.
        progress: a bar on the standard error stream.
        **axes: of numbers, as of `select` with a grid.

    Returns:
        `MetricSearch`: its `model` takes rows as they are; `importances` are the shares of the
        columns.

    Raises:
        ValueError: rounds out of range, sparse rows, and as `select`. TypeError: as `select`.

    Differs from the papers: any machine, such as the hinge loss, in place of the kernel ridge; the
    choice of the numbers and of the round is by folds that learn their own metrics.

    Example:
        >>> import jax, jaxsvm, numpy as np
        >>> from jaxsvm import kernels
        >>> x = np.random.default_rng(0).normal(size=(80, 4))
        >>> data = jaxsvm.dataset(x, x[:, 1] ** 2 > 0.5)
        >>> maker = lambda C: jaxsvm.decomposition(C, kernels.matern12(3.0))
        >>> found = metric_search(maker, data, jax.random.key(0), rounds=2, diagonal=True,
        ...     C=np.array([1.0, 10.0]), progress=False)
        >>> int(found.importances.argmax())
        1

    Reference: A. Radhakrishnan, D. Beaglehole, P. Pandit, M. Belkin, Mechanism for feature learning
        in neural networks and backpropagation-free machine learning models, Science 383, 2024,
        algorithm 1; D. Beaglehole, D. Holzmueller, A. Radhakrishnan, M. Belkin, xRFM: accurate,
        scalable, and interpretable feature learning models for tabular data, 2025.
    """
    rounds = integer("rounds", rounds, 1, MOST_ROUNDS)
    if not isinstance(diagonal, bool):
        raise TypeError(f"diagonal must be True or False, got {shown(diagonal)}")
    if isinstance(getattr(data, "x", None), SparseRows):
        raise ValueError("metric_search takes dense rows: make them so with x.toarray()")
    check_single(1, score)
    options: dict[str, Any] = {"score": score, "progress": False}
    first = select(maker, data, key, folds=folds, groups=groups, **options, **axes)
    fold, tables = first.fold, [first.table]
    whole = _identity(data, diagonal)
    roots = [whole] * (int(fold.max()) + 1)
    bar = Progress(rounds * len(roots), 0, "folds", progress)
    try:
        for _ in range(rounds):
            last, scores = tables[-1], []
            solver, near = maker(**last.at(last.place)), _neighbours(first.table, last)
            for k, root in enumerate(roots):
                held_out = (fold == k).reshape(-1, *[1] * (data.weight.ndim - 1))
                left = data._replace(weight=jnp.where(jnp.asarray(held_out), 0, data.weight))
                root = _next_root(solver, left, key, root)
                if root is None:
                    break
                roots[k], rows = root, data._replace(x=Metric(root)(data.x))
                held = select(maker, rows, key, folds=np.where(fold == k, 0, -1), **options, **near)
                scores.append(held.table)
                bar.add(1)
            if len(scores) < len(roots):
                break
            tables.append(_joined(scores))
    finally:
        bar.close()
    numbers = [table.at(table.place) for table in tables]
    result = MetricSearch(first.model, np.asarray(whole), tuple(tables), numbers[0], first.classes)
    for chosen in numbers[: result.round]:
        whole = _next_root(maker(**chosen), data, key, whole)
        if whole is None:
            raise ValueError("the machine on all rows is a constant function: give a larger C")
    model, chosen = first.model, numbers[result.round]
    if result.round:
        rows = data._replace(x=Metric(whole)(data.x))
        model = Mapped(Metric(whole), fit(maker(**chosen), rows, key).model)
    metric = np.asarray(whole, np.float64)
    metric = metric**2 if diagonal else metric @ metric
    return dataclasses.replace(result, model=model, metric=metric, chosen=chosen)


def _identity(data: Batch, diagonal: bool) -> Array:
    """The root of the metric of the first round."""
    dtype, d = accum_dtype(data.x), data.x.shape[1]
    return jnp.ones(d, dtype) if diagonal else jnp.eye(d, dtype=dtype)


def _neighbours(grid: Scores, last: Scores) -> dict[str, Any]:
    """The numbers of the grid beside those of the least score of the last round, and these."""
    chosen = last.at(last.place)
    axes = {name: np.sort(numbers) for name, numbers in grid.axes.items()}
    places = {name: int(np.argmax(a == chosen[name])) for name, a in axes.items()}
    return {name: a[max(places[name] - 1, 0) : places[name] + 2] for name, a in axes.items()}


def _joined(tables: list[Scores]) -> Scores:
    """One table of folds that were left out in runs of their own."""
    names = ("folds", "gap", "primal", "support", "seconds")
    fields: Any = {name: np.concatenate([getattr(t, name) for t in tables], -1) for name in names}
    return dataclasses.replace(tables[0], **fields)


def _next_root(solver: Any, data: Batch, key: Array, root: Array) -> Any:
    """The root of the next metric, by the machine on the rows of this one; None: it is constant."""
    rows = data._replace(x=Metric(root)(data.x))
    model = as_static(fit(solver, rows, key).model)
    weight = row_weights(data).weight
    outer = np.asarray(_outer(model, rows.x, weight), np.float64)
    old, x = np.asarray(root, np.float64), np.asarray(data.x, np.float64)
    share = np.asarray(weight, np.float64) / np.sum(np.asarray(weight, np.float64))
    x = x - (share @ x)[None, :]
    if old.ndim == 1:
        metric, spread = old**2 * np.diag(outer), share @ x**2
        new = np.sqrt(metric)
    else:
        metric, spread = old @ outer @ old, (share[:, None] * x).T @ x
        values, vectors = np.linalg.eigh((metric + metric.T) / 2)
        new = (vectors * np.sqrt(np.maximum(values, 0))[None, :]) @ vectors.T
    before, after = np.sum(spread if old.ndim == 1 else np.diag(spread)), np.sum(metric * spread)
    if not after > 0:
        return None
    return jnp.asarray(new * np.sqrt(before / after), data.x.dtype)


def _values(model: Any, x: Array) -> Array:
    """The values of a model, of votes those of the pairs."""
    if isinstance(model, Mapped):
        return _values(model.inner, unwrap_static(model.phi)(x))
    return model.pairs(x) if isinstance(model, OneVsOne) else model(x)


@jax.jit
def _outer(model: Any, x: Array, weight: Array) -> Array:
    """The mean outer product of the gradients of a model's values, (d, d)."""
    model, (n, d) = unwrap_static(model), x.shape
    gradient = jax.vmap(jax.jacrev(lambda row: _values(model, row[None, :]).reshape(-1)))
    count = -(-n // BLOCK)
    padding = count * BLOCK - n
    x = jnp.pad(x, ((0, padding), (0, 0))).reshape(count, BLOCK, d)
    share = jnp.pad(weight / jnp.sum(weight), (0, padding)).reshape(count, BLOCK)

    def add(total, block):
        rows, share = block
        slopes = gradient(rows)  # (BLOCK, values, d)
        slopes *= jnp.sqrt(share).astype(slopes.dtype)[:, None, None]
        flat = slopes.reshape(-1, d)
        return total + dot(flat.T, flat), None

    return jax.lax.scan(add, jnp.zeros((d, d), x.dtype), (x, share))[0]
