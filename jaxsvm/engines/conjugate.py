"""Functions by their coefficients and values at all rows, and the subgradient of the objective.

f(w) = lam/2 |w|^2 + sum_i share_i max(0, 1 - y_i <w, phi(x_i)>),   share_i = weight_i / sum weight
lam w - z is a subgradient,   z = sum_i share_i a_i y_i phi(x_i),
    a_i = 1 below margin 1, 0 above, between at it
D(a) = sum_i share_i a_i - |z|^2 / (2 lam) <= min f   for every a in [0, 1]
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from .._node import register
from ..kernels import Kernel, matvec
from ..numerics import any_under_vmap, dot
from ..types import Array, Scalar, State

REFRESH = 64  # steps between two computations of a function's values from its coefficients


ROUNDINGS = 256  # in units of eps of its terms: a vector below this size is rounding error only


@register("FunctionValues")
class FunctionValues(NamedTuple):
    """A function by its coefficients and its values at the rows."""

    coef: Array  # (n,) of an expansion over the rows, or (d,) weights
    response: Array  # (n,)


class InnerProductSpace(NamedTuple):
    """An inner product space of functions: kernel expansions over rows, or linear weights."""

    kernel: Kernel | None  # None: linear weights
    x: Any  # (n, d) rows
    gram: Array | None = None  # (n, n) the kernel matrix of the rows, if it is available

    def function(self, coef: Array) -> FunctionValues:
        """The function of the coefficients of rows (n,)."""
        coef = dot(coef, self.x) if self.kernel is None else coef
        return FunctionValues(coef, self.values(coef))

    def values(self, coef: Array) -> Array:
        """The values at the rows (n,), from the coefficients of a function."""
        if self.kernel is None:
            return dot(self.x, coef)
        if self.gram is None:
            return matvec(self.kernel, self.x, self.x, coef)
        return dot(self.gram, coef)

    def inner(self, a: FunctionValues, b: FunctionValues) -> Array:
        """The inner product of two functions, ()."""
        return dot(a.coef, b.coef if self.kernel is None else b.response)


def recompute_values(
    space: InnerProductSpace, w: FunctionValues, steps: Array
) -> tuple[FunctionValues, Array]:
    """w, and whether its values were recomputed from its coefficients, () bool.

    They are at every REFRESH-th step.
    """
    is_due = any_under_vmap(steps % REFRESH == 0)
    response = lax.cond(is_due, lambda: space.values(w.coef), lambda: w.response)
    return FunctionValues(w.coef, response), is_due


def combined(weights: Array, elements: object) -> State:
    """sum_j weights_j elements_j over the leading axis of each array of a tree."""
    return jax.tree.map(lambda a: dot(weights, a), elements)


def add_scaled(a: FunctionValues, t: Scalar, b: FunctionValues) -> FunctionValues:
    """a + t b."""
    return jax.tree.map(lambda u, v: u + t * v, a, b)


def scale(t: Scalar, a: FunctionValues) -> FunctionValues:
    """t a."""
    return jax.tree.map(lambda u: t * u, a)


def subgradient(lam: Scalar, w: FunctionValues, z: FunctionValues) -> FunctionValues:
    """lam w - z."""
    return add_scaled(scale(lam, w), -1.0, z)


def above_rounding(square: Array, lam: Scalar, w: Array, z: Array) -> Array:
    """Whether a vector exceeds the rounding error of lam w - z, () bool.

    Args:
        square: () squared norm of the vector.
        lam: ().
        w: () squared norm of w.
        z: () squared norm of z.
    """
    unit = ROUNDINGS * jnp.finfo(square.dtype).eps
    return square > unit**2 * (lam**2 * w + z)
