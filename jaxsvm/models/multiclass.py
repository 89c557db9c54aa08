"""Models of more than two classes: stacked binary models, one against the rest or in pairs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .._node import static, struct
from ..checks import matrix
from ..numerics import blocked, dot
from ..types import Array, Model


@struct
class StackedModels:
    """Models in one, of which each leaf that all share is stored once."""

    inner: Any  # a model; leaves for which `stacked` is True have a leading axis
    stacked: tuple = static()  # of booleans, one for each leaf of `inner`

    def of_each(self, fn: Callable, out_axes: int = 0) -> Array:
        """`fn` of each of the models."""
        axes = [0 if flag else None for flag in self.stacked]
        axes_of = jax.tree.unflatten(jax.tree.structure(self.inner), axes)
        return jax.vmap(fn, in_axes=(axes_of,), out_axes=out_axes)(self.inner)

    def one(self, position: int) -> Model:
        """One of the models."""
        leaves, tree = jax.tree.flatten(self.inner)
        pairs = zip(leaves, self.stacked, strict=True)
        return jax.tree.unflatten(tree, [leaf[position] if flag else leaf for leaf, flag in pairs])

    def sqnorm(self) -> Array:
        """The sum of |w|^2 of the models, the norms in their objectives."""
        return jnp.sum(self.of_each(lambda model: model.sqnorm()))


@struct
class OneVsRest(StackedModels):
    """The model f(x) = (f_1(x), ..., f_k(x)), one for each class.

    The class is the index of the largest value. `model[c]` is f_c alone, as `certificate` takes it.
    Leaves that the k models share, such as the rows of an expansion, are stored once.
    """

    def __call__(self, x: Array) -> Array:
        """Decision values, (n, d) -> (n, k)."""
        return self.of_each(lambda model: model(x), out_axes=1)

    def __getitem__(self, c: int) -> Model:
        if isinstance(c, int | np.integer) and not -self.scores <= c < self.scores:
            raise IndexError(f"there is no model[{c}], there are {self.scores}")
        return self.one(c)

    @property
    def scores(self) -> int:
        """k, the number of values for each row."""
        pairs = zip(jax.tree.leaves(self.inner), self.stacked, strict=True)
        return next(np.shape(leaf)[0] for leaf, is_stacked in pairs if is_stacked)


@struct
class MultiOutput(OneVsRest):
    """The model f(x) = (f_1(x), ..., f_k(x)), one for each of k targets; not of classes."""


@struct
class OneVsOne(StackedModels):
    """Votes of one model for each pair of classes: the class is the index of the largest value.

    `pairs(x)` are the decision values of the models, in the order (0, 1), (0, 2), ..., (1, 2), ...,
    (k-2, k-1). `model[a, b]` is the model of classes a < b alone, as `certificate` takes it. Leaves
    that the models share are stored once.
    """

    classes: int = static()  # k

    def pairs(self, x: Array) -> Array:
        """Decision values, (n, d) -> (n, k(k-1)/2): a vote for a where >= 0, else for b."""
        return self.of_each(lambda model: model(x), out_axes=1)

    def __call__(self, x: Array, *, block: int = 4096) -> Array:
        """Votes, (n, d) -> (n, k), `block` rows at a time: temporaries are (block, k(k-1)/2).

            votes_c + s_c / (3 (|s_c| + 1)),
                s_c = sum of the values of the pairs with c, signed so that > 0 is for c

        The second term is within (-1/3, 1/3), so that it breaks ties between classes with equally
        many votes.
        """
        x = matrix("x", x)
        return blocked(lambda rows: votes(self.pairs(rows), self.classes), x, block)

    def __getitem__(self, pair: tuple[int, int]) -> Model:
        k = self.classes
        whole = isinstance(pair, tuple) and all(isinstance(c, int | np.integer) for c in pair)
        if not whole or len(pair) != 2 or not 0 <= pair[0] < pair[1] < k:
            raise ValueError(
                f"model[a, b] takes two class numbers 0 <= a < b <= {k - 1}, got {pair!r}"
            )
        a, b = map(int, pair)
        return self.one(a * (2 * k - a - 1) // 2 + b - a - 1)

    @property
    def scores(self) -> int:
        """k, the number of values for each row."""
        return self.classes


def votes(score: Array, k: int) -> Array:
    """The votes of `OneVsOne` from the values of the pairs, (n, k(k-1)/2) -> (n, k)."""
    # (k(k-1)/2, k)
    rows = (np.eye(k, dtype=bool)[c] for c in np.triu_indices(k, 1))
    first, second = (jnp.asarray(row, score.dtype) for row in rows)
    sign = first - second
    votes = jnp.sum(second, 0)[None, :] + dot((score >= 0).astype(score.dtype), sign)
    total = dot(score, sign)
    return votes + total / (3 * (jnp.abs(total) + 1))


def pair_coef(sv_coef: np.ndarray, n_support: np.ndarray) -> np.ndarray:
    """The coefficients (k(k-1)/2, m) of all pairs, from those of LIBSVM, (m, k-1).

    Support vectors are sorted by class, `n_support` (k,) of each. Each has one coefficient for each
    other class, in order.
    """
    k = len(n_support)
    owner, coef = np.repeat(np.arange(k), n_support), np.zeros((k * (k - 1) // 2, len(sv_coef)))
    for pair, (first, second) in enumerate(zip(*np.triu_indices(k, 1), strict=True)):
        of_first, of_second = owner == first, owner == second
        coef[pair, of_first] = sv_coef[of_first, int(second) - 1]
        coef[pair, of_second] = sv_coef[of_second, int(first)]
    return coef
