"""Solvers for two classes, made into solvers for many."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Literal

from .checks import integer, matrix
from .engines.coordinate import CoordinateState
from .files import shape_of
from .models import Mapped
from .numerics import blocked, dot, sum_counts
from .recipe import register, replace, solver, static, struct
from .types import Array, Batch, Info, Solver, State, take


@struct
class OneVsRest:
    """f(x) = (f_1(x), ..., f_k(x)), one model for each class: the class is the place of the largest value.

    `model[c]` is f_c alone, for a certificate, say. What the k models have in common, such as the rows of an expansion,
    is held once.
    """

    inner: Any  # a model; the leaves that are named in `stacked` have an axis (k,) in front
    stacked: tuple = static()  # of truth values, one for each leaf of `inner`

    def __call__(self, x: Array) -> Array:
        """Decision values, (n, d) -> (n, k)."""
        return _each(self, lambda model: model(x), out_axes=1)

    def __getitem__(self, c: int) -> Any:
        return _alone(self, c)

    def sqnorm(self) -> Array:
        """sum_c |w_c|^2, as the k objectives have them."""
        return jnp.sum(_each(self, lambda model: model.sqnorm()))

    @property
    def scores(self) -> int:
        """k, the values for each row."""
        return _front(self)

    def __check__(self) -> None:
        _front(self)


@struct
class OneVsOne:
    """One model for each pair of classes, which vote: the class with the most votes is the place of the largest value.

    `pairs(x)` are the decision values of the models, in the order (0, 1), (0, 2), ..., (1, 2), ..., (k-2, k-1);
    `model[a, b]` is the one of classes a < b alone, for a certificate, say. What they have in common is held once.
    """

    inner: Any  # a model; the leaves that are named in `stacked` have an axis (k(k-1)/2,) in front
    stacked: tuple = static()  # of truth values, one for each leaf of `inner`
    classes: int = static()  # k

    def pairs(self, x: Array) -> Array:
        """Decision values, (n, d) -> (n, k(k-1)/2): above 0 for a, below 0 for b, at 0 for a."""
        return _each(self, lambda model: model(x), out_axes=1)

    def __call__(self, x: Array, *, block: int = 4096) -> Array:
        """Votes, (n, d) -> (n, k), `block` rows at a time: temporaries are (block, k(k-1)/2).

            votes_c + s_c / (3 (|s_c| + 1)),   s_c = sum of the values for c less those against c

        The second part is within (-1/3, 1/3): among classes with as many votes the larger s_c decides.
        """
        x = matrix("x", x)
        return blocked(lambda rows: _votes(self.pairs(rows), self.classes), x, block)

    def __getitem__(self, pair: tuple[int, int]) -> Any:
        k = self.classes
        two = isinstance(pair, tuple) and len(pair) == 2 and all(isinstance(c, int | np.integer) for c in pair)
        if not two or not 0 <= pair[0] < pair[1] < k:
            raise ValueError(f"model[a, b] takes two class numbers 0 <= a < b <= {k - 1}, got {pair!r}")
        a, b = map(int, pair)
        return _alone(self, a * (2 * k - a - 1) // 2 + b - a - 1)

    def sqnorm(self) -> Array:
        """sum_ab |w_ab|^2, as the objectives of the pairs have them."""
        return jnp.sum(_each(self, lambda model: model.sqnorm()))

    @property
    def scores(self) -> int:
        """k, the values for each row."""
        return self.classes

    def __check__(self) -> None:
        _check(self.classes)
        _front(self)
        k = self.classes
        if not any(k * (k - 1) // 2 in shape_of(leaf) for leaf in jax.tree.leaves(self.inner)):
            raise ValueError(f"{k} classes have {k * (k - 1) // 2} pairs, but inner holds {_front(self)} models")


def _front(model: OneVsRest | OneVsOne) -> int:
    """How many models are held as one: the first axis of the leaves that are named in `stacked`."""
    leaves, own = jax.tree.leaves(model.inner), model.stacked
    if not isinstance(own, tuple) or len(own) != len(leaves) or not all(isinstance(each, bool) for each in own) or not any(own):
        raise ValueError(f"stacked must hold a truth value for each of the {len(leaves)} arrays of inner, got {own!r}")
    fronts = {shape_of(leaf)[:1] for leaf, each in zip(leaves, own, strict=True) if each}
    if len(fronts) != 1 or fronts == {()}:
        raise ValueError(f"the stacked arrays of inner must have one first axis, got {sorted(fronts)}")
    return fronts.pop()[0]


def _each(model: OneVsRest | OneVsOne, fn: Callable, out_axes: int = 0) -> Array:
    """`fn` of each of the models that are held as one."""
    axes = jax.tree.unflatten(jax.tree.structure(model.inner), [0 if own else None for own in model.stacked])
    return jax.vmap(fn, in_axes=(axes,), out_axes=out_axes)(model.inner)


def _alone(model: OneVsRest | OneVsOne, place: int) -> Any:
    """One of the models that are held as one."""
    leaves, tree = jax.tree.flatten(model.inner)
    return jax.tree.unflatten(tree, [leaf[place] if own else leaf for leaf, own in zip(leaves, model.stacked, strict=True)])


def _votes(score: Array, k: int) -> Array:
    """What `OneVsOne` makes of the values of the pairs, (n, k(k-1)/2) -> (n, k)."""
    first, second = (jnp.asarray(np.eye(k)[c], score.dtype) for c in np.triu_indices(k, 1))  # (k(k-1)/2, k)
    sign = first - second
    votes = jnp.sum(second, 0)[None, :] + dot((score >= 0).astype(score.dtype), sign)
    total = dot(score, sign)
    return votes + total / (3 * (jnp.abs(total) + 1))


@solver
def one_vs_rest(inner: Solver, *, classes: int) -> Solver:
    """Minimise the sum of k problems, the rows of one class (+1) against all others (-1).

        P_c(f) = lam/2 |f|^2 + mean_i loss(f(x_i), +1 where y_i = c, else -1),   c = 0 .. k-1

    All k see the same rows at every step; features and kernel rows are worked out once for them. The curve holds the mean
    of the k losses, the largest residual, and the sums of the coefficients in use and of the evaluations, which are
    counted as if each class made its own.

    Args:
        inner: a solver for labels -1, +1. `averaged` and others that look at the model go inside; `on_features` may stand
            inside or outside, and shares the features in both places.
        classes: k, >= 2; structure.

    Returns:
        A solver on rows whose y are class numbers 0 .. k-1 (`jaxsvm.dataset(..., task="multiclass")`), fed as `inner`;
        model `OneVsRest`, (n, d) -> (n, k), inside `Mapped` where there is a feature map.

    Raises:
        ValueError: classes no whole number of at least 2.

    Example:
        >>> import jax, jaxsvm
        >>> data = jaxsvm.dataset([[1.0, 0.0], [0.0, 1.0], [-1.0, -1.0]], [0, 1, 2], task="multiclass")
        >>> run = jaxsvm.fit(one_vs_rest(jaxsvm.sdca(10.0), classes=3), data, jax.random.key(0), steps=300)
        >>> jnp.argmax(run.model(data.x), axis=1).tolist()
        [0, 1, 2]

    Reference: R. Rifkin, A. Klautau, In defense of one-vs-all classification, JMLR 5, 2004.
    """
    _check(classes)

    def labels(y):
        """(n,) class numbers -> (k, n) labels."""
        one = jnp.ones((), y.dtype)
        return jnp.where(y[None, :] == jnp.arange(classes, dtype=y.dtype)[:, None], one, -one)

    def init(key, data):
        return jax.vmap(lambda y: inner.init(key, data._replace(y=y)))(labels(data.y))

    def update(state, batch):
        state, info = jax.vmap(lambda state, y: inner.update(state, batch._replace(y=y)))(state, labels(batch.y))
        return state, _of_all(info, jnp.mean(info.loss))

    def model(state, data=None):
        targets = None if data is None else {"y": labels(data.y)}
        return _joined(inner, state, data, targets, OneVsRest)

    wrapper = lambda other: one_vs_rest(other, classes=classes)  # noqa: E731
    return replace(inner, wrapper, init=init, update=update, model=model, targets=classes)


@register("OneVsOneState")
class OneVsOneState(NamedTuple):
    """The states of all pairs, and what turns weights relative to all rows into weights relative to those of a pair."""

    inner: State  # leaves (k(k-1)/2, ...)
    scale: Array  # (k(k-1)/2,)  mean positive weight of all rows / that of the pair's rows
    flat: Array  # ()  bool, all rows that steps have seen were handed weight 1: drawn by weight, or all weigh the same


@solver
def one_vs_one(inner: Solver, *, classes: int) -> Solver:
    """Minimise a problem for each pair of classes, the rows of one (+1) against those of the other (-1).

        P_ab(f) = lam/2 |f|^2 + mean_{i: y_i = a or b} loss(f(x_i), +1 where y_i = a, else -1),   0 <= a < b <= k-1

    The mean is by weight; in terms of C, 1/2 |f|^2 + C sum_i w_i loss, C is the same for all pairs (lam = 1/(C n_ab), n_ab
    the weight of the pair's rows).

    All pairs see the same rows at every step, and features and kernel rows are worked out once for them; to a pair the rows
    of other classes are padding. A pair that a step has no row of stays as it is, its clock too: it makes the steps that
    `inner` makes on its rows alone, with one row a step about 2/k of all steps. Weights that samplers hand relative to the
    mean of all rows are put relative to that of the pair's rows, as far as `init` sees them. The curve holds the mean of the
    losses over the pairs that the step has rows of, the largest residual, and the sums of the coefficients in use and of the
    evaluations, counted as if each pair made its own.

    Args:
        inner: as of `one_vs_rest`.
        classes: k, >= 2; structure.

    Returns:
        A solver on rows whose y are class numbers 0 .. k-1 (`jaxsvm.dataset(..., task="multiclass")`), fed as `inner`;
        model `OneVsOne`, (n, d) -> (n, k), inside `Mapped` where there is a feature map. An `inner` with a state for each
        row (dual methods) must see all rows in `init`, which says what pairs they count for: use `fit`, not `stream`.

    Raises:
        ValueError: classes no whole number of at least 2.

    Example:
        >>> import jax, jaxsvm
        >>> data = jaxsvm.dataset([[1.0, 0.0], [0.0, 1.0], [-1.0, -1.0]], [0, 1, 2], task="multiclass")
        >>> run = jaxsvm.fit(one_vs_one(jaxsvm.sdca(10.0), classes=3), data, jax.random.key(0), steps=300)
        >>> jnp.argmax(run.model(data.x), axis=1).tolist()
        [0, 1, 2]

    Reference: S. Knerr, L. Personnaz, G. Dreyfus, Single-layer learning revisited: a stepwise procedure for building and
        training a neural network, Neurocomputing, NATO ASI F 68, 1990; C.-W. Hsu, C.-J. Lin, A comparison of methods for
        multiclass support vector machines, IEEE Trans. Neural Networks 13, 2002; the votes as in scikit-learn's `SVC`.
    """
    _check(classes)
    first, second = np.triu_indices(classes, 1)

    def of_pairs(y, weight):
        """(n,) class numbers and weights -> (k(k-1)/2, n) labels and weights, 0 where a row is of another class."""
        one = jnp.ones((), y.dtype)
        mine, other = (y[None, :] == jnp.asarray(c, y.dtype)[:, None] for c in (first, second))
        return jnp.where(mine, one, -one), jnp.where(mine | other, weight, jnp.zeros_like(weight))

    def mean(weight):
        """Of the positive weights, (m, n) -> (m,)."""
        return jnp.sum(weight, 1) / jnp.maximum(jnp.sum((weight > 0).astype(weight.dtype), 1), 1)

    def init(key, data):
        label, weight = of_pairs(data.y, data.weight[None, :])
        made = jax.vmap(lambda y, weight: inner.init(key, data._replace(y=y, weight=weight)))(label, weight)
        own = mean(weight)
        scale = jnp.where(own > 0, mean(data.weight[None, :]) / jnp.where(own > 0, own, 1), 1)
        return OneVsOneState(made, scale, jnp.ones((), bool))

    def update(state, batch):
        seen = _seen(batch, inner.reads)
        flat = state.flat & jnp.all((seen == 0) | (seen == 1))
        label, weight = of_pairs(batch.y, jnp.where(flat, 1, state.scale)[:, None] * batch.weight[None, :])

        def one(old, y, weight):
            own = batch._replace(y=y, weight=weight)
            new, info = inner.update(old, own)
            live = jnp.any(_seen(own, inner.reads, info.index) > 0)
            return _where(live, new, old), info, live

        made, info, live = jax.vmap(one)(state.inner, label, weight)
        share = live.astype(info.loss.dtype) / jnp.maximum(jnp.sum(live.astype(info.loss.dtype)), 1)
        loss = jnp.sum(jnp.where(live, share * info.loss, jnp.zeros_like(share)))
        return OneVsOneState(made, state.scale, flat), _of_all(info, loss)

    def model(state, data=None):
        targets = None if data is None else dict(zip(("y", "weight"), of_pairs(data.y, data.weight[None, :]), strict=True))
        return _joined(inner, state.inner, data, targets, lambda made, own: OneVsOne(made, own, classes))

    wrapper = lambda other: one_vs_one(other, classes=classes)  # noqa: E731
    return replace(inner, wrapper, init=init, update=update, model=model, targets=classes)


def _of_all(info: Info, loss: Array) -> Info:
    """What several problems (k, ...) say together."""
    return Info(
        loss=loss,
        residual=jnp.max(info.residual),
        progress=jnp.mean(info.progress, axis=0),
        index=info.index[0],
        support=jnp.sum(info.support, dtype=jnp.int32),
        evals=sum_counts(info.evals),
    )


def _check(classes: int) -> None:
    integer("classes", classes, 2)


def _seen(batch: Batch, reads: str, touched: Array | None = None) -> Array:
    """The weights of the rows of a step; of those, too, that a solver which reads all rows has chosen itself (`touched`)."""
    if reads == "rows":
        return batch.weight
    index = batch.index if touched is None else jnp.concatenate([batch.index, touched])
    return take(batch._replace(x=batch.y), index).weight


def _where(live: Array, new: State, old: State) -> State:
    """The state after a step if it had a row, else the one before.

    Coordinate ascent passes by padding itself; a choice here would copy its numbers of each row at every step.
    """
    passes = lambda node: isinstance(node, CoordinateState)  # noqa: E731
    choose = lambda new, old: new if passes(new) else jnp.where(live, new, old)  # noqa: E731
    return jax.tree.map(choose, new, old, is_leaf=passes)


def _joined(inner: Solver, state: State, data: Batch | None, targets: dict | None, made_of: Callable) -> Any:
    """The models of stacked states as one; leaves that are the same in all of them are held once.

    `targets` are the fields of `data` in which the problems differ, stacked as the states are.
    """

    def one(own, data):
        state, targets = own
        return inner.model(state, data if data is None else data._replace(**targets))

    stacked = state, targets
    made = jax.vmap(one, in_axes=(0, None))(stacked, data)
    own = depends_on(one, jax.tree.map(lambda a: a[0], stacked), data)
    leaves, tree = jax.tree.flatten(made)
    made = jax.tree.unflatten(tree, [leaf if mine else leaf[0] for leaf, mine in zip(leaves, own, strict=True)])
    return _outward(made, own, made_of)


def depends_on(fn, state: Any, *rest: Any) -> tuple[bool, ...]:
    """For each leaf that `fn(state, *rest)` returns, whether it is worked out from `state`."""
    jaxpr = jax.make_jaxpr(lambda state: jax.tree.leaves(fn(state, *rest)))(state).jaxpr
    found = set(jaxpr.invars)
    touched = lambda v: not isinstance(v, Literal) and v in found  # noqa: E731
    for equation in jaxpr.eqns:
        if any(map(touched, equation.invars)):
            found.update(equation.outvars)
    return tuple(map(touched, jaxpr.outvars))


def _outward(made: Any, own: tuple[bool, ...], made_of: Callable) -> Any:
    """Many models as one; a feature map that they share comes before all of them."""
    if isinstance(made, Mapped):
        of_map = len(jax.tree.leaves(made.phi))
        if not any(own[:of_map]):
            return Mapped(made.phi, _outward(made.inner, own[of_map:], made_of))
    return made_of(made, own)
