"""Regularised least squares for many strengths at once, with exact leave-one-out errors."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..._node import static, struct
from ...checks import check_choice, integer, is_array, is_class_number
from ...engines.linear_dual import check_columns
from ...engines.moments import LIMIT, add_joint, joint_rows, no_moments
from ...models import Linear, OneVsRest
from ...numerics import accum_dtype, dot, fold_rows, in_double, is_traced, tangents_of
from ...types import Array, Batch, SparseRows, check_weights

BLOCK = 4096  # rows whose errors are computed at once


@struct
class RidgePath:
    """The solutions of regularised least squares for m values of lam.

    Of k classes, `w` is (m, k, p) and `b` (m, k); objectives and squared errors are sums over the
    classes.
    """

    lam: Array  # (m,)
    w: Array  # (m, p)
    b: Array  # (m,)  0 without a bias
    objective: Array  # (m,)  lam/2 |w|^2 + mean of (f - y)^2 / 2
    loo_error: Array  # (m,)  mean of (y_i - f_i)^2, where f_i is fitted to all other rows
    # (m,)  share of rows whose label or class is not that of f_i; for real targets it says nothing
    loo_mistakes: Array
    bias: str = static(default="free")

    @property
    def best(self) -> int:
        """The index of the least `loo_error`; for classes `loo_mistakes.argmin()` may differ."""
        return int(np.argmin(np.asarray(self.loo_error)))

    def model(self, i: int) -> Linear | OneVsRest:
        """The model of lam[i]: `Linear`, of several classes `OneVsRest`."""
        run = lambda a: jnp.asarray(a, jnp.result_type(float))
        linear = Linear(run(self.w[i]), run(self.b[i]), self.bias)
        return linear if linear.w.ndim == 1 else OneVsRest(linear, (True, True))


def ridge_path(
    data: Batch,
    *,
    lam: Array | None = None,
    bias: str = "free",
    classes: int | None = None,
) -> RidgePath:
    """Minimise lam/2 |w|^2 + mean_i (<w, x_i> + b - y_i)^2 / 2 for many lam by one decomposition.

    With the sums n, m, G and c of `least_squares`, and Y = sum_i k_i (y_i - m_y)^2:

        G / n = U diag(e) U',   z = U' c / n
        w(lam) = U z / (e + lam),   b = m_y - <w, m_x>
        P(lam) = Y / (2 n) - sum_j z_j^2 / (e_j + lam) / 2
        q_i = sum_j (U' (x_i - m_x))_j^2 / (e_j + lam) / n  [+ 1/n with a free bias]
        y_i - f_-i(x_i) = (y_i - f(x_i)) / (1 - q_i)

    f_-i is the exact solution without row i, at the same total penalty n lam. That is a fit of the
    other rows with C unchanged, where lam = 1/(C n). Of a row of weight k, which stands for k
    copies, one copy is left out, and the error counts k times; a weight below 1 is left out as a
    whole. It takes O(n p^2 + p^3) operations, and O(n p) for each lam.

    For a kernel machine, take features: `data._replace(x=phi(data.x))`.

    Args:
        data: n rows; y real targets, labels -1 and +1, or with `classes` class numbers.
        lam: (m,) regularisation, > 0; None: 17 values from 1e-8 to 1.
        bias: "free" (not regularised), "none" or "feature" (regularised).
        classes: k, >= 2, for class numbers 0 .. k-1: each class against the rest. None: one target.

    Returns:
        `RidgePath`: NumPy arrays of float64. Inside of a transformation they are computed in
        float64, too, and returned in the dtype of the rows; derivatives are computed in that, and
        `vmap` is sequential. Choose lam by `loo_error` for real targets, and by `loo_mistakes` for
        classes.

    Raises:
        TypeError: data is not a `Batch`.
        ValueError: lam not a vector of positive numbers, another bias, classes below 2 or not those
            of y, no row of positive weight, rows of more than 16,384 columns.

    Differs from the paper: the lambda form, weights, and several targets.

    Example:
        >>> import jaxsvm
        >>> data = jaxsvm.dataset([[0.0], [1.0], [2.0]], [0.0, 1.0, 2.0], task="regression")
        >>> path = jaxsvm.ridge_path(data, lam=[1e-6, 1.0])
        >>> path.best, path.w[:, 0].round(2).tolist()
        (0, [1.0, 0.4])

    Reference: A. Rahimi, B. Recht, Weighted sums of random kitchen sinks, NIPS 2008; D. Allen, The
        relationship between variable selection and data augmentation and a method for prediction,
        Technometrics 16, 1974; G. Golub, M. Heath, G. Wahba, Generalized cross-validation as a
        method for choosing a good ridge parameter, Technometrics 21, 1979.
    """
    check_weights("data", data)
    check_choice("bias", bias, ("free", "none", "feature"))
    if classes is not None:
        integer("classes", classes, 2)
    check_columns("ridge_path", data.x.shape[-1], *LIMIT)
    strengths = _strengths(lam)
    x, y, weight = data.x, data.y, data.weight
    if is_traced(x, y, weight, strengths):
        dtype = accum_dtype(x)
        numbers = (jnp.asarray(a).astype(dtype) for a in (y, weight, strengths))
        plain = functools.partial(_path, bias=bias, classes=classes)
        in_float64 = lambda *rows: in_double(plain)(dtype, *rows)
        return tangents_of(plain)(in_float64)(x, *numbers)
    values = np.unique(np.asarray(y, np.float64)[np.asarray(weight) > 0])
    if classes is not None and not is_class_number(values, classes).all():
        wrong = values[~is_class_number(values, classes)][0]
        raise ValueError(f"y must hold class numbers 0 .. {classes - 1}, got {wrong:g}")
    with jax.enable_x64(True):
        vectors = (np.asarray(a, np.float64) for a in (y, weight, strengths))
        path = _path(x, *map(jnp.asarray, vectors), bias, classes)
        return jax.tree.map(np.asarray, path)


def _strengths(lam: object) -> Any:
    """The values of lam (m,), checked."""
    if lam is None:
        return np.logspace(-8, 0, 17)
    lam = lam if is_array(lam) else np.asarray(lam, np.float64)
    if len(lam.shape) != 1 or not lam.shape[0]:
        raise ValueError(f"lam must be a vector of numbers, got shape {tuple(lam.shape)}")
    if not is_traced(lam):
        known = np.asarray(lam, np.float64)
        wrong = known[~((known > 0) & (known < np.inf))]
        if wrong.size:
            raise ValueError(f"lam must hold finite numbers above 0, got {wrong[0]:g}")
    return lam


@functools.partial(jax.jit, static_argnames=("bias", "classes"))
def _path(
    x: Array | SparseRows, y: Array, weight: Array, lam: Array, bias: str, classes: int | None
) -> RidgePath:
    """The path in the dtype of y; the blocks of rows are cast to it."""
    k = 1 if classes is None else classes
    p = x.shape[-1] + (bias == "feature")
    # Rounding is relative to the distance from the first row: columns may be far from 0.
    shift = jnp.zeros(p + k, y.dtype)
    if bias == "free":
        shift = joint_rows((x[:1], y[:1], weight[:1]), classes, False)[0]
    moments = add_joint(no_moments(p + k, y.dtype), (x, y, weight), shift, classes, bias)
    n, mean = moments.weight, moments.mean + shift
    gram, cross, square = moments.inputs(p)
    values, vectors = jnp.linalg.eigh((gram + gram.T) / (2 * n))
    factor = 1 / (jnp.maximum(values, 0)[:, None] + lam[None, :])  # (p, m)
    z = dot(vectors.T, cross / n)
    shrunk = factor[:, :, None] * z[:, None, :]  # (p, m, k)
    w = dot(vectors, shrunk.reshape(p, -1)).reshape(p, lam.shape[0], k)
    explained = dot(factor.T, z * z)  # (m, k)
    objective = jnp.sum(square[None, :] / n - explained, axis=1) / 2

    def add(sums, part, is_new):
        x, y, weight = part
        weight = jnp.where(is_new, weight, 0)
        rows = joint_rows((x, y, weight), classes, bias == "feature", mean[None, :])
        rotated = dot(rows[:, :p], vectors)
        fitted = dot(rotated, shrunk.reshape(p, -1)).reshape(-1, lam.shape[0], k)
        leverage = dot(rotated * rotated, factor) / n + (1 / n if bias == "free" else 0)
        left = 1 - jnp.minimum(weight, 1)[:, None] * leverage  # (b, m)
        target = rows[:, None, p:]
        error = (target - fitted) / left[:, :, None]
        # without rows other than this one nothing is known
        error = jnp.where((left > 0)[:, :, None], error, jnp.inf)
        score = target + mean[None, None, p:] - error
        if classes is None:
            wrong = y[:, None] * score[:, :, 0] <= 0
        else:
            wrong = jnp.argmax(score, axis=2).astype(y.dtype) != y[:, None]
        squared = jnp.where((weight > 0)[:, None], jnp.sum(error * error, axis=2), 0)
        mistakes = jnp.where(wrong, weight[:, None], 0)
        return sums[0] + dot(weight, squared), sums[1] + jnp.sum(mistakes, axis=0)

    zero = jnp.zeros_like(lam)
    squared, mistakes = fold_rows(add, (zero, zero), (x, y, weight), BLOCK)
    b = jnp.zeros((lam.shape[0], k), y.dtype)
    if bias == "feature":
        w, b = w[:-1], w[-1]
    if bias == "free":
        b = mean[None, p:] - dot(mean[:p], w.reshape(p, -1)).reshape(b.shape)
    w = jnp.moveaxis(w, 0, -1)  # (m, k, p)
    if classes is None:
        w, b = w[:, 0], b[:, 0]
    return RidgePath(lam, w, b, objective, squared / n, mistakes / n, bias)
