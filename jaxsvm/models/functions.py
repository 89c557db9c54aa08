"""Decision functions as callable pytrees."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from .._node import static, struct
from ..checks import integer, matrix
from ..kernels import Kernel, holds_precomputed, matvec
from ..numerics import blocked, dot, is_traced, rounding_of_sums
from ..types import Array, Batch


@struct
class Linear:
    """f(x) = <w, x> + b.

    `bias` is the kind of b: "none" (b = 0), "feature" (the weight of a constant feature 1,
    regularised with the others) or "free" (not regularised).
    """

    w: Array  # (p,)
    b: Array  # ()
    bias: str = static(default="none")

    def __call__(self, x: Array) -> Array:
        """Decision values, (n, p) -> (n,)."""
        x = matrix("x", x, self.w.shape[-1])
        return dot(x, self.w) + self.b

    def sqnorm(self) -> Array:
        """|w|^2 in the objective, plus b^2 if the bias is a feature."""
        return dot(self.w, self.w) + (self.b * self.b if self.bias == "feature" else 0)

    def scaled(self, factor: Array) -> Linear:
        """factor f, for solvers that store f and a scalar factor."""
        return dataclasses.replace(self, w=factor * self.w, b=factor * self.b)


@struct
class Expansion:
    """f(x) = sum_i coef_i k(x_i, x) + b.

    `index` holds the training row of each x_i, or -1; `certificate` uses it to recover the dual
    variables.
    """

    kernel: Kernel
    x: Array  # (m, d)
    coef: Array  # (m,)
    b: Array  # ()
    index: Array  # (m,)  int32
    bias: str = static(default="none")

    def __call__(self, x: Array, *, block: int = 1024) -> Array:
        """Decision values, (n, d) -> (n,), `block` rows at a time: temporaries are (block, m)."""
        x = matrix("x", x, None if holds_precomputed(self.kernel) else self.x.shape[-1])
        integer("block", block, 1)
        return matvec(self.kernel, x, self.x, self.coef, block) + self.b

    def sqnorm(self, *, block: int = 1024) -> Array:
        """|w|^2 = coef' K coef in the objective; plus b^2 if the bias is a feature.

        It is computed in blocks of rows.
        """
        square = dot(self.coef, matvec(self.kernel, self.x, self.x, self.coef, block))
        return square + (self.b * self.b if self.bias == "feature" else 0)

    def scaled(self, factor: Array) -> Expansion:
        """factor f, for solvers that store f and a scalar factor."""
        return dataclasses.replace(self, coef=factor * self.coef, b=factor * self.b)

    def rounding(self) -> float:
        """The rounding error of decision values that is to be expected at the points of the model.

        Of stacked models it is the largest one; 0 where the values k(x_i, x_i) are not known.
        """
        m, columns = self.x.shape[-2:]
        stacked = self.coef.ndim > 1
        if (holds_precomputed(self.kernel) and m != columns) or (
            stacked and any(map(np.ndim, jax.tree.leaves(self.kernel)))
        ):
            return 0.0
        diag = jax.vmap(self.kernel.diag) if len(self.x.shape) > 2 else self.kernel.diag
        diag_of = jnp.broadcast_to(diag(self.x), self.coef.shape)
        of_each = jnp.vectorize(rounding_of_sums, signature="(n),(n)->()")
        return float(jnp.max(of_each(self.coef, diag_of)))

    def support(self) -> Support:
        """The rows with a nonzero coefficient, on the host, as their number determines the shapes.

        Raises:
            TypeError: called inside a transformation.
        """
        if is_traced(self.coef):
            raise TypeError(
                "support() needs the coefficients' values: call it outside of jit, vmap and grad"
            )
        index, coef = np.asarray(self.index), np.asarray(self.coef)
        support = np.flatnonzero(coef)
        return Support(index[support], coef[support], float(self.b))


class Support(NamedTuple):
    """Support vectors: f(x) = sum_i coef_i k(x_index_i, x) + b."""

    index: np.ndarray  # type: ignore[assignment]  # (s,)  training rows, or -1
    coef: np.ndarray  # (s,)  signed, y_i alpha_i for classification
    b: float


@struct
class Mapped:
    """f(x) = inner(phi(x)): a model on features, as a function of raw rows."""

    phi: Any  # a callable tree, as `carried` makes it
    inner: Any

    def features(self, x: Array) -> Array:
        """phi(x), (n, d) -> (n, p)."""
        return self.phi(x)

    def __call__(self, x: Array, *, block: int = 4096) -> Array:
        """Decision values, (n, d) -> (n,), `block` rows at a time: temporaries are (block, p)."""
        x = matrix("x", x)
        integer("block", block, 1)
        return blocked(lambda rows: self.inner(self.features(rows)), x, block)

    def sqnorm(self) -> Array:
        """|w|^2 in feature space, as in the objective."""
        return self.inner.sqnorm()


def support_index(model: Expansion) -> np.ndarray:
    """The indices of the points with a nonzero coefficient, in any of the stacked models."""
    return np.flatnonzero((np.atleast_2d(model.coef) != 0).any(axis=0))


def expansion(kernel: Kernel, coef: Array, data: Batch | None, bias: str = "none") -> Expansion:
    """The expansion over all training rows.

    Raises:
        ValueError: `data` is None; the state of a solver does not hold the rows.
    """
    if data is None:
        raise ValueError(
            "this model is an expansion over the training rows: call solver.model(state, data)"
        )
    b, index = jnp.zeros((), coef.dtype), jnp.arange(coef.shape[0], dtype=jnp.int32)
    return Expansion(kernel, data.x, coef, b, index, bias)
