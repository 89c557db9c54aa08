"""Derivatives of the exact solution of a kernel SVM, by implicit differentiation of its optimality conditions.

With C_i = C weight_i and k the kernel, the signed coefficients maximise

    sum_i (y_i coef_i - kink_i |coef_i| - soft_i/2 coef_i^2) - 1/2 coef' K coef,   low_i <= coef_i <= high_i,

and sum_i coef_i = 0 where the bias is free; then f(x) = sum_i coef_i k(x_i, x) + b, and b = 0 where there is no bias.
Let F be the rows whose coefficient is strictly between low and high and, where kink > 0, not 0. On F

    y - K coef - soft coef - kink sign(coef) - b = 0;

the other coefficients rest on low, high or 0 and move with these. As long as nothing enters or leaves F, this holds for all
values of the parameters p: C, those of the kernel and of the loss, x, y, weight. So the derivatives solve

    [K_FF + soft  1] [d coef_F]   [d/dp (y - K coef - soft coef - kink sign(coef))_F, coef_F held]
    [1'           0] [d b     ] = [- sum of d coef outside F                                      ]

where the bias is free, and the same without the border where there is none. If F is empty, b is the midpoint of the two
extremes that the conditions of the other rows leave to it, and moves with these.

Reference: O. Chapelle, V. Vapnik, O. Bousquet, S. Mukherjee, Choosing multiple parameters for support vector machines,
    Machine Learning 46, 2002, https://doi.org/10.1023/A:1012450327387; Q. Bertrand, Q. Klopfenstein, M. Massias,
    M. Blondel, S. Vaiter, A. Gramfort, J. Salmon, Implicit differentiation for fast hyperparameter selection in non-smooth
    convex learning, JMLR 23, 2022, https://arxiv.org/abs/2105.01637.
"""

from __future__ import annotations

import functools
from typing import Any

import chex
import jax
import jax.numpy as jnp
from jax import lax
from jax.custom_derivatives import SymbolicZero

from .checks import integer
from .kernels import Kernel, as_kernel, matvec
from .numerics import blocked, count, dot
from .recipe import as_static, cast, check_choice, check_scalars, unwrap_static
from .types import Array, Batch, Loss, Quadratic

FREE = 2048  # rows of the linear system at most, where nothing else is said: 16 MiB in float32, 32 MiB in float64
BLOCK = 512  # rows of the kernel at a time; several blocks are alive at once in reverse mode


def solution(
    coef: Array, b: Array, kernel: Kernel, data: Batch, C: Array, loss: Loss, bias: str = "free", *, free: int | None = None
) -> tuple[Array, Array]:
    """A solution found elsewhere, with the derivatives of the exact solution attached.

    The values are those given. The derivatives with respect to `kernel`, `data`, C and `loss` are the ones of the module's
    text at these values, forward and reverse, of any order; they are as exact as the solution. They cost the kernel between
    F and all rows and a factorisation for F, and nothing is computed where none are taken. A row of weight 0 counts as
    absent: nothing depends on it, nor on its weight. Where rows of F are alike, coefficients are not unique, but f is: their
    derivatives are close to the shortest ones, those of f are right.

    Args:
        coef: (n,) the coefficients, on their ends exactly or to within rounding.
        b: () the bias; no derivative depends on it.
        kernel: positive semi-definite.
        data: the n rows. Derivatives with respect to sparse rows are those with respect to the numbers that they hold.
        C: () > 0.
        loss: one whose part of the dual is quadratic.
        bias: "free" or "none".
        free: rows that F may hold, at most n; structure. Derivatives are nan where it holds more. By default 2048 or n.

    Returns:
        coef (n,) and b ().

    Raises:
        ValueError: if the loss has no quadratic dual, a shape does not fit, C is not one number, or `bias` or `free` is none
            of the above.

    Example: two points at -1 and 1, linear kernel, C above 1/2: f(x) = x whatever C is
        >>> import jaxsvm
        >>> from jaxsvm import kernels, losses
        >>> data = jaxsvm.dataset([[-1.0], [1.0]], [-1, 1])
        >>> width = lambda x: solution(jnp.array([-0.5, 0.5]), 0.0, kernels.linear(), data._replace(x=x), 1.0, losses.hinge)[0]
        >>> jnp.round(jax.jacobian(width)(data.x)[1, :, 0], 3).tolist()
        [0.5, -0.5]
    """
    check_choice("bias", bias, ("free", "none"))
    check_scalars(C=C, b=b)
    coef = jnp.asarray(coef)
    n = data.x.shape[0]
    if coef.shape != (n,):
        raise ValueError(f"coef must hold one number for each of the {n} rows, got shape {coef.shape}")
    if free is not None:
        integer("free", free, 1)
    if loss.quadratic is None:
        raise ValueError(f"the dual of {loss!r} is not quadratic: its solution has no such derivatives, take another loss")
    chex.assert_shape([data.y, data.weight], (n,))
    *given, b = cast((as_kernel(kernel), data.y, data.weight, C, as_static(loss), b), coef.dtype)
    x = jax.tree.map(jnp.asarray, data.x)
    return _attached(bias, min(n, free or FREE), *lax.stop_gradient((coef, b)), (x, *given))


def at_bound(coef: Array, part: Quadratic) -> tuple[Array, Array, Array]:
    """Which coefficients rest on their lower end, on their upper end, on a kink at 0; three masks (n,).

    Solvers set ends exactly, 0 above all; C weight may have been rounded otherwise, by less than 1e-6 of itself in float32,
    5e-14 in float64.
    """
    eps = jnp.finfo(coef.dtype).eps ** 0.85
    near = lambda end: jnp.where(jnp.isfinite(end), eps * jnp.abs(end), 0)  # noqa: E731
    kinked = jnp.zeros(coef.shape, bool) if part.l1 is None else (part.l1 > 0) & (coef == 0)
    return coef - part.low <= near(part.low), part.high - coef <= near(part.high), kinked


@functools.partial(jax.custom_jvp, nondiff_argnums=(0, 1))
def _attached(bias: str, free: int, coef: Array, b: Array, given: tuple) -> tuple[Array, Array]:
    return coef, b


def _quadratic(given: tuple) -> Quadratic:
    """The part of the dual of each row, nothing of it None."""
    _, _, y, weight, C, loss = given
    part = unwrap_static(loss).quadratic(y, C * weight)
    return Quadratic(*(jnp.zeros_like(part.low) if field is None else field for field in part))


def _pull(given: tuple, coef: Array, at: Array, side: Array) -> Array:
    """y - K coef - soft coef - kink side of the rows `at`: reverse mode works blocks out again instead of keeping them."""
    x, kernel, y, *_ = given
    part = _quadratic(given)
    score = blocked(jax.checkpoint(lambda rows: dot(kernel(rows, x), coef)), x[at], BLOCK)
    return y[at] - score - part.l2[at] * coef[at] - part.l1[at] * side


@functools.partial(_attached.defjvp, symbolic_zeros=True)
def _derivative(bias: str, free: int, primals: tuple, tangents: tuple) -> tuple:
    """Values, and their tangents by the linear system of the module's text."""
    coef, b = _attached(bias, free, *primals)  # with derivatives, so that these have derivatives too
    given, part = primals[2], _quadratic(primals[2])
    now, (low, high, l1, l2) = lax.stop_gradient((coef, part))
    eps = float(jnp.finfo(coef.dtype).eps)
    on_low, on_high, on_zero = at_bound(now, Quadratic(low, high, l1))
    inside = ~(on_low | on_high | on_zero)
    side = jnp.where(on_zero, jnp.zeros_like(now), jnp.sign(now))
    held = count(inside)
    index = jnp.nonzero(inside, size=free, fill_value=0)[0].astype(jnp.int32)
    used = jnp.arange(free, dtype=jnp.int32) < held

    def extremes():
        """The two rows that bound b, from below as they may still rise and from above as they may still fall."""
        x, kernel, y, *_ = lax.stop_gradient(given)
        pull = y - matvec(kernel, x, x, now, BLOCK) - l2 * now
        sides = jnp.stack([jnp.where(side < 0, -1, 1), jnp.where(side > 0, 1, -1)]).astype(now.dtype)
        levels = jnp.stack([pull - l1 * sides[0], l1 * sides[1] - pull])
        levels = jnp.where(jnp.stack([on_high, on_low]), -jnp.inf, levels)
        best = jnp.argmax(levels, axis=1)
        bounded = jnp.max(levels, axis=1) > -jnp.inf
        which = jnp.where(bounded, jnp.arange(2), 1 - jnp.arange(2))  # one class only: the other bound twice
        return best[which].astype(jnp.int32), sides[which, best[which]]

    at, sides = index, side[index]
    if bias == "free":
        idle = lambda: (jnp.zeros(2, jnp.int32), jnp.zeros(2, now.dtype))  # noqa: E731
        ends = lax.cond(held > 0, idle, extremes)
        at, sides = jnp.concatenate([at, ends[0]]), jnp.concatenate([sides, ends[1]])

    def moved_by(given):
        part = _quadratic(given)
        # On neither end: inside, or on 0; on both: of weight 0.
        rest = jnp.where(on_low == on_high, jnp.zeros_like(now), jnp.where(on_low, part.low, part.high))
        return rest, _pull(given, jnp.where(inside, coef, rest), at, sides)

    d_rest, d_pull = _jvp(moved_by, given, tangents[2])

    # The system, with rows of the identity where fewer than `free` rows are inside. The border is put on the scale of K.
    x, kernel = given[:2]
    gram = jnp.where(used[:, None] & used[None, :], kernel.gram(x, index), 0)
    scale = lax.stop_gradient(jnp.max(jnp.abs(jnp.diagonal(gram))))
    scale = jnp.where(scale > 0, scale, jnp.ones_like(scale))
    # Rounding moves the eigenvalues of K_FF by some sqrt(m) eps for m rows: those below are not to be divided by.
    ridge = 4 * eps * scale * jnp.sqrt(held.astype(scale.dtype))
    matrix = gram + jnp.diag(jnp.where(used, part.l2[index] + ridge, scale))
    right = jnp.where(used, d_pull[:free], 0)
    if bias == "free":
        border = jnp.where(used, scale, 0)
        last = jnp.where(held > 0, -scale * jnp.sum(d_rest), jnp.mean(d_pull[free:]) / scale)
        corner = jnp.where(held > 0, jnp.zeros_like(scale), jnp.ones_like(scale))
        matrix = jnp.block([[matrix, border[:, None]], [border[None, :], corner[None, None]]])
        right = jnp.concatenate([right, last[None]])
    step = jnp.linalg.solve(matrix, right)
    known = jnp.where(held > free, jnp.nan, jnp.ones_like(scale))
    d_coef = known * d_rest.at[index].add(jnp.where(used, step[:free], 0))
    d_b = known * scale * step[free] if bias == "free" else jnp.zeros_like(b)
    return (coef, b), (d_coef, d_b)


def _jvp(fn: Any, primal: Any, tangent: Any) -> Any:
    """The tangent of `fn`, by the leaves alone that move."""
    leaves, tree = jax.tree.flatten(primal)
    slopes = tree.flatten_up_to(tangent)
    moving = [i for i, slope in enumerate(slopes) if not isinstance(slope, SymbolicZero)]

    def of_moving(*numbers):
        placed = dict(zip(moving, numbers, strict=True))
        return fn(tree.unflatten([placed.get(i, leaf) for i, leaf in enumerate(leaves)]))

    return jax.jvp(of_moving, [leaves[i] for i in moving], [slopes[i] for i in moving])[1]
