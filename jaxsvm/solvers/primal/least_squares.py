"""Regularised least squares from streamed sums."""

from __future__ import annotations

from dataclasses import KW_ONLY
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from ..._node import between, cast, node, positive
from ...engines.linear_dual import check_columns
from ...engines.moments import LIMIT, Moments, add_joint, joint_rows, no_moments
from ...models import Linear, OneVsRest
from ...numerics import accum_dtype, count, dot, in_double
from ...samplers import EpochsState, epochs
from ...types import Array, Batch, Info, Sampler, Solver, SparseRows, state_class

ROWS = 4096  # of a step, at most
PASSES = epochs(ROWS, shuffle=False)


@state_class("LeastSquaresState", sums_of=("rows", "numbers"))
class LeastSquaresState(NamedTuple):
    """The sums over the rows so far, of p inputs and k targets."""

    moments: Moments  # of the rows less `shift`
    shift: Array  # (p + k,)  the mean of the rows of `init`; 0 without a free bias
    rows: Array  # ()  int32, rows of positive weight of `init`
    read: Array  # ()  int32, how many were read, at most `rows`


@node
class in_order(Sampler):
    """Passes over the rows in their order, up to 4,096 rows a step; all where there are fewer."""

    def init(self, key: Array, data: Batch) -> EpochsState:
        return PASSES.init(key, data)

    def draw(self, state: EpochsState, t: object, count: int) -> Array:
        return PASSES.draw(state, t, count)[:, : state.rows.shape[0]]

    def rows(self, n: int) -> int:
        return min(ROWS, n)


@node
class least_squares(Solver):
    """Minimise lam/2 |w|^2 + mean_i (<w, x_i> + b - y_i)^2 / 2 from sums over the rows.

    An update adds the moments of its rows; `model` solves one system. With weights k_i of sum n,

        n, m = mean (x, y),   G = sum_i k_i (x_i - m_x)(x_i - m_x)',
        c = sum_i k_i (x_i - m_x)(y_i - m_y)
        (G / n + lam I) w = c / n,   b = m_y - <w, m_x>

    so that one pass over the rows gives the optimum, whatever their order. The model is the optimum
    on the rows read so far. It is ridge regression, and for labels the least squares SVM.

    Args:
        lam: regularisation, > 0; the penalty of scikit-learn's `Ridge` is n lam.
        bias: "free" (not regularised), "none" or "feature" (regularised).
        classes: k, >= 2, for class numbers 0 .. k-1: one machine for each class against the rest,
            with targets +1 and -1. All share one factorisation. None: real targets, or labels
            -1 and +1.

    Returns:
        A solver on single batches of rows, for `fit` and `stream`; model `Linear`, with `classes`
        `OneVsRest`. The residual is the share of the rows of `init` that were not read yet, so that
        `fit` ends after one pass if `steps` is not given. No weights exist before the end, so the
        loss of a step is that of f = 0 on its rows. The state has p^2 numbers. Sums are
        compensated, and the system is solved in float64, also where 64-bit types are off. The model
        has the derivatives of the solution in lam and in the rows.

    In `stream` a batch has as many rows as the first chunk, up to 4,096. Rows at the end that do
    not fill a batch are not in the model. Take a `batch_size` that divides their number, or 1.

    Raises:
        ValueError: lam not a single positive number, another bias, classes below 2, rows of more
            than 16,384 columns.

    Differs from the paper: the penalty is lam/2 |w|^2 instead of a bound on the largest weight;
        real targets; a bias.

    Example:
        >>> import jax, jaxsvm
        >>> data = jaxsvm.dataset([[1.0], [-1.0]], [1, -1])
        >>> result = jaxsvm.fit(jaxsvm.least_squares(1.0), data, jax.random.key(0))
        >>> result.model.w.tolist(), int(result.state.step)
        ([0.5], 1)

    Reference: A. Rahimi, B. Recht, Weighted sums of random kitchen sinks, NIPS 2008; T. Chan, G.
        Golub, R. LeVeque, Updating formulae and a pairwise algorithm for computing sample
        variances, 1979, for the sums; J. Suykens, J. Vandewalle, Least squares support vector
        machine classifiers, Neural Processing Letters 9, 1999.
    """

    lam: float = positive()
    _: KW_ONLY
    bias: Literal["free", "none", "feature"] = "free"
    classes: int | None = between(2, default=None)

    sampler = in_order()
    iterates_to = 0.0

    @property
    def targets(self) -> Any:
        return "real" if self.classes is None else self.classes

    @property
    def outputs(self) -> int:
        """The number of targets of a row."""
        return 1 if self.classes is None else self.classes

    def init(self, key: Array, data: Batch) -> LeastSquaresState:
        check_columns("least_squares", data.x.shape[-1], *LIMIT)
        dtype = accum_dtype(data.x)
        q = data.x.shape[-1] + (self.bias == "feature") + self.outputs
        is_free = self.bias == "free"
        shift = _mean(data, dtype, self.classes) if is_free else jnp.zeros(q, dtype)
        zero = jnp.zeros((), jnp.int32)
        return LeastSquaresState(no_moments(q, dtype), shift, count(data.weight > 0), zero)

    def update(self, state: LeastSquaresState, batch: Batch) -> tuple[LeastSquaresState, Info]:
        dtype, how = state.shift.dtype, (self.classes, self.bias)
        y, weight = batch.y.astype(dtype), batch.weight.astype(dtype)
        moments = add_joint(state.moments, (batch.x, y, weight), state.shift, *how)
        live = count(weight > 0)
        read = state.read + jnp.minimum(live, state.rows - state.read)
        left = (state.rows - read).astype(dtype) / jnp.maximum(state.rows, 1).astype(dtype)
        square = jnp.ones_like(y) if self.classes else jnp.where(weight > 0, y * y, 0)
        info = Info(
            loss=dot(weight, square) / 2 / jnp.maximum(live, 1).astype(dtype),
            residual=left,
            progress=jnp.zeros_like(y),
            index=batch.index,
            support=jnp.full((), batch.x.shape[-1] * self.outputs, jnp.int32),
            evals=live.astype(dtype) * state.shift.shape[0],
        )
        return LeastSquaresState(moments, state.shift, state.rows, read), info

    def model(self, state: LeastSquaresState, data: Batch | None = None) -> Linear | OneVsRest:
        p, dtype = state.shift.shape[0] - self.outputs, state.shift.dtype
        w = _solution(state.moments, p, jnp.asarray(cast(self.lam, dtype)))  # (p, k)
        mean = state.moments.mean + state.shift
        b = jnp.zeros(self.outputs, w.dtype)
        if self.bias == "feature":
            w, b = w[:-1], w[-1]
        if self.bias == "free":
            b = mean[p:] - dot(mean[:p], w)
        if self.classes is None:
            return Linear(w[:, 0], b[0], self.bias)
        return OneVsRest(Linear(w.T, b, self.bias), (True, True))


def _mean(data: Batch, dtype: jnp.dtype, classes: int | None) -> Array:
    """The mean of the rows, by which all are shifted: sums of small numbers round less.

    Sparse rows are not shifted. Rows of weight 0 may hold anything.
    """
    weight = data.weight.astype(dtype)
    x = jnp.zeros(data.x.shape, dtype) if isinstance(data.x, SparseRows) else data.x
    rows = joint_rows((x, data.y.astype(dtype), weight), classes, False)
    total = jnp.maximum(jnp.sum(weight), jnp.finfo(dtype).tiny)
    return lax.stop_gradient(dot(weight, rows) / total)


def _solution(moments: Moments, p: int, lam: Array) -> Array:
    """The weights (p, k) of all targets, with derivatives in the moments and in lam."""
    gram, cross, _ = moments.inputs(p)
    weight = jnp.where(moments.weight > 0, moments.weight, 1)
    matrix = gram / weight

    def solve(_, rhs):
        exact = moments.gram[:p, :p], moments.compensation[:p, :p]
        return in_double(_solve)(rhs.dtype, *exact, weight, lam, rhs)

    matvec = lambda v: dot(matrix, v) + lam * v
    return lax.custom_linear_solve(matvec, cross / weight, solve, symmetric=True)


def _solve(gram: Array, compensation: Array, weight: Array, lam: Array, rhs: Array) -> Array:
    """The solution of ((gram + compensation) / weight + lam I) w = rhs, (p, k).

    Rounding of the sums may make the matrix indefinite. Its negative eigenvalues are then taken as
    0.
    """
    matrix = (gram + compensation) / weight
    ridge = lam * jnp.eye(matrix.shape[0], dtype=matrix.dtype)
    factor = lax.linalg.cholesky(matrix + ridge, symmetrize_input=False)
    solution = jax.scipy.linalg.cho_solve((factor, True), rhs)

    def by_eigenvalues(_):
        values, vectors = jnp.linalg.eigh((matrix + matrix.T) / 2)
        shrunk = dot(vectors.T, rhs) / (jnp.maximum(values, 0) + lam)[:, None]
        return dot(vectors, shrunk)

    return lax.cond(jnp.all(jnp.isfinite(factor)), lambda w: w, by_eigenvalues, solution)
