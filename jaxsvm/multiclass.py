"""Solvers for two classes, made into solvers for many."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import Literal

from .models import Mapped
from .recipe import solver, static, struct
from .types import Array, Info, Solver


@struct
class OneVsRest:
    """f(x) = (f_1(x), ..., f_k(x)), one model for each class: the class is the place of the largest value.

    `model[c]` is f_c alone, for a certificate, say. What the k models have in common, such as the rows of an expansion,
    is held once.
    """

    inner: Any  # a model; the leaves that are named in `stacked` have an axis (k,) in front
    stacked: tuple = static()  # of truth values, one for each leaf of `inner`

    def _axes(self) -> Any:
        tree = jax.tree.structure(self.inner)
        return jax.tree.unflatten(tree, [0 if own else None for own in self.stacked])

    def __call__(self, x: Array) -> Array:
        """Decision values, (n, d) -> (n, k)."""
        return jax.vmap(lambda model: model(x), in_axes=(self._axes(),), out_axes=1)(self.inner)

    def __getitem__(self, c: int) -> Any:
        leaves, tree = jax.tree.flatten(self.inner)
        return jax.tree.unflatten(tree, [leaf[c] if own else leaf for leaf, own in zip(leaves, self.stacked, strict=True)])

    def sqnorm(self) -> Array:
        """sum_c |w_c|^2, as the k objectives have them."""
        return jnp.sum(jax.vmap(lambda model: model.sqnorm(), in_axes=(self._axes(),))(self.inner))


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
    if not isinstance(classes, int) or isinstance(classes, bool) or classes < 2:
        raise ValueError(f"classes must be a whole number of at least 2, got {classes!r}")

    def labels(y):
        """(n,) class numbers -> (k, n) labels."""
        one = jnp.ones((), y.dtype)
        return jnp.where(y[None, :] == jnp.arange(classes, dtype=y.dtype)[:, None], one, -one)

    def init(key, data):
        return jax.vmap(lambda y: inner.init(key, data._replace(y=y)))(labels(data.y))

    def update(state, batch):
        state, info = jax.vmap(lambda state, y: inner.update(state, batch._replace(y=y)))(state, labels(batch.y))
        info = Info(
            loss=jnp.mean(info.loss),
            residual=jnp.max(info.residual),
            progress=jnp.mean(info.progress, axis=0),
            index=info.index[0],
            support=jnp.sum(info.support, dtype=jnp.int32),
            evals=jnp.sum(info.evals, dtype=jnp.int32),
        )
        return state, info

    def model(state, data=None):
        def one(state, data):
            return inner.model(state, data)

        made = jax.vmap(one, in_axes=(0, None))(state, data)
        own = _depend(one, jax.tree.map(lambda a: a[0], state), data)
        leaves, tree = jax.tree.flatten(made)
        made = jax.tree.unflatten(tree, [leaf if mine else leaf[0] for leaf, mine in zip(leaves, own, strict=True)])
        return _outward(made, own)

    return Solver(init, update, model, inner.sampler, inner.reads, inner.prepare, inner.residual, classes)


def _depend(fn, state: Any, *rest: Any) -> tuple[bool, ...]:
    """For each leaf that `fn(state, *rest)` returns, whether it is worked out from `state`."""
    jaxpr = jax.make_jaxpr(lambda state: jax.tree.leaves(fn(state, *rest)))(state).jaxpr
    found = set(jaxpr.invars)
    touched = lambda v: not isinstance(v, Literal) and v in found  # noqa: E731
    for equation in jaxpr.eqns:
        if any(map(touched, equation.invars)):
            found.update(equation.outvars)
    return tuple(map(touched, jaxpr.outvars))


def _outward(made: Any, own: tuple[bool, ...]) -> Any:
    """k models as one; a feature map that they share comes before all of them."""
    if isinstance(made, Mapped):
        of_map = len(jax.tree.leaves(made.phi))
        if not any(own[:of_map]):
            return Mapped(made.phi, _outward(made.inner, own[of_map:]))
    return OneVsRest(made, own)
