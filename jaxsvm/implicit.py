"""Derivatives of the exact solution of a kernel SVM.

They follow from implicit differentiation of its optimality conditions.

With C_i = C weight_i and k the kernel, the signed coefficients maximise

    sum_i (y_i coef_i - l1_i |coef_i| - l2_i/2 coef_i^2) - 1/2 coef' K coef,
        low_i <= coef_i <= high_i,

and sum_i coef_i = 0 where the bias is free. The solution is f(x) = sum_i coef_i k(x_i, x) + b, with
b = 0 without a bias. Let F be the rows whose coefficient is strictly between low and high and,
where l1 > 0, not 0. On F

    y - K coef - l2 coef - l1 sign(coef) - b = 0.

The other coefficients equal low, high or 0, and change with these. While F does not change, this
holds for all values of the parameters p: C, those of the kernel and of the loss, x, y, weight. So
the derivatives solve

    [K_FF + l2  1] [d coef_F]   [d/dp (y - K coef - l2 coef - l1 sign(coef))_F, coef_F constant]
    [1'         0] [d b     ] = [- sum of d coef outside F                                      ]

where the bias is free, and the same without the last row and column where there is none. If F is
empty, b is the midpoint of the interval that the optimality conditions of the other rows leave for
it, and its derivative is that of the midpoint.

Reference: O. Chapelle, V. Vapnik, O. Bousquet, S. Mukherjee, Choosing multiple parameters for
    support vector machines, Machine Learning 46, 2002, https://doi.org/10.1023/A:1012450327387; Q.
    Bertrand, Q. Klopfenstein, M. Massias, M. Blondel, S. Vaiter, A. Gramfort, J. Salmon, Implicit
    differentiation for fast hyperparameter selection in non-smooth convex learning, JMLR 23, 2022,
    https://arxiv.org/abs/2105.01637.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import chex
import jax
import jax.numpy as jnp
from jax import lax
from jax.custom_derivatives import SymbolicZero
from jax.typing import DTypeLike

from ._node import cast, holds_functions
from .checks import check_choice, check_scalars, integer
from .kernels import Kernel, as_kernel, matvec
from .numerics import (
    affine,
    affine_transpose,
    blocked,
    check_open,
    cholesky,
    count,
    dot,
    preconditioner,
    symmetric,
    system_for,
    tangents_of,
    weighted_gram,
)
from .objectives.nu_problems import Parts
from .risks import couples_rows, is_smooth, second_order_of
from .types import AnyLoss, Array, Batch, Loss, Quadratic, Scalar, State

FREE = 2048  # default limit for the rows of the linear system: 16 MiB in float32, 32 MiB in float64
BLOCK = 512  # rows per block of the kernel; reverse mode holds several blocks at once


def solution(
    coef: Array,
    b: Scalar,
    kernel: Kernel,
    data: Batch,
    C: Scalar,
    loss: Loss,
    bias: str = "free",
    *,
    free: int | None = None,
) -> tuple[Array, Array]:
    """A given solution (coef, b) with the derivatives of the exact solution attached.

    The values are those passed. The derivatives with respect to `kernel`, `data`, C and `loss`
    solve the system in the module's docstring at these values, in forward and reverse mode, of any
    order. They are as exact as the solution. They cost the kernel between F and all rows and a
    factorisation for F; without differentiation nothing is computed. A row of weight 0 is ignored,
    and its weight has no derivative. Where rows of F are equal, the coefficients are not unique,
    but f is. The derivatives of f are then right, and those of the coefficients are close to the
    ones of minimum norm.

    Args:
        coef: (n,) the coefficients, exactly or up to rounding on their bounds.
        b: () the bias; no derivative depends on it.
        kernel: positive semi-definite.
        data: the n rows. Derivatives with respect to sparse rows are with respect to their stored
            values.
        C: () > 0.
        loss: one with a quadratic dual.
        bias: "free" or "none".
        free: largest size of F, at most n; structure. Derivatives are nan where F is larger. None:
            the smaller of 2048 and n.

    Returns:
        coef (n,) and b ().

    Raises:
        ValueError: a loss without a quadratic dual; a shape that does not match; C not a scalar; an
            invalid `bias` or `free`.

    Example: two points at -1 and 1, linear kernel, C above 1/2: f(x) = x whatever C is
        >>> import jax, jax.numpy as jnp, jaxsvm
        >>> from jaxsvm import implicit, kernels, losses
        >>> data = jaxsvm.dataset([[-1.0], [1.0]], [-1, 1])
        >>> width = lambda x: implicit.solution(jnp.array([-0.5, 0.5]), 0.0, kernels.linear(),
        ...     data._replace(x=x), 1.0, losses.hinge)[0]
        >>> jnp.round(jax.jit(jax.jacobian(width))(data.x)[1, :, 0], 3).tolist()
        [0.5, -0.5]
    """
    check_choice("bias", bias, ("free", "none"))
    check_scalars(C=C, b=b)
    coef = jnp.asarray(coef)
    n = data.x.shape[0]
    if coef.shape != (n,):
        raise ValueError(
            f"coef must hold one number for each of the {n} rows, got shape {coef.shape}"
        )
    if free is not None:
        integer("free", free, 1)
    if loss.quadratic is None:
        raise ValueError(
            f"the dual of {loss!r} is not quadratic: its solution has no such "
            "derivatives, take another loss"
        )
    chex.assert_shape([data.y, data.weight], (n,))
    kernel, y, weight, C, loss, b = cast(
        (as_kernel(kernel), data.y, data.weight, C, loss, b), coef.dtype
    )
    x = jax.tree.map(jnp.asarray, data.x)
    kernel.refuse_open(x)
    box = lambda parts: parts[0].quadratic(parts[1], parts[2] * parts[3])
    if holds_functions(loss):
        check_open(box, (loss, y, C, weight))
    bounds: Any = box((loss, jnp.asarray(y), C, weight))
    l1, l2 = (jnp.zeros_like(bounds.low) if a is None else a for a in (bounds.l1, bounds.l2))
    parts = Parts(y, bounds.low[None], bounds.high[None], jnp.zeros(1, coef.dtype))
    choices, values = (bias == "free", min(n, free or FREE)), (coef[None], jnp.asarray(b)[None])
    parameters = x, kernel, parts, l1, l2
    values = _attached(_of_parts, choices, lax.stop_gradient(values), parameters)
    return values[0][0], values[1][0]


@functools.partial(jax.custom_jvp, nondiff_argnums=(0, 1))
def _attached(rule: Callable, choices: tuple, values: State, parameters: tuple) -> State:
    """The values of a solution, with its derivatives in the parameters.

    Args:
        rule: (choices, values, parameters) -> the conditions of the solution, a function of the
            parameters, and the map from tangents of these conditions to tangents of the values.
        choices: structure.
        values: those of the solution.
        parameters: those of the problem.
    """
    return values


@functools.partial(_attached.defjvp, symbolic_zeros=True)
def _derivative(rule: Callable, choices: tuple, primals: tuple, tangents: tuple) -> tuple:
    # with derivatives, for derivatives of higher order
    values, parameters = _attached(rule, choices, *primals), primals[1]
    conditions, solve = rule(choices, values, parameters)
    return values, solve(_jvp(conditions, parameters, tangents[1]))


def at_bound(coef: Array, bounds: Quadratic) -> tuple[Array, Array, Array]:
    """Which coefficients are at their lower bound, upper bound, or a kink at 0: three masks (n,).

    Solvers set bounds exactly, 0 in particular. C weight may be rounded differently elsewhere, by a
    relative error of less than 1e-6 in float32 and 5e-14 in float64.
    """
    eps = jnp.finfo(coef.dtype).eps ** 0.85
    tolerance = lambda end: jnp.where(jnp.isfinite(end), eps * jnp.abs(end), 0)
    kinked = jnp.zeros(coef.shape, bool) if bounds.l1 is None else (bounds.l1 > 0) & (coef == 0)
    on_low = coef - bounds.low <= tolerance(bounds.low)
    return on_low, bounds.high - coef <= tolerance(bounds.high), kinked


def _free_places(is_free: Array, free: int) -> tuple[Array, Array, Array]:
    """The places of the first `free` free coefficients, which of them exist, and how many do."""
    num_free = count(is_free)
    places = jnp.nonzero(is_free.reshape(-1), size=free, fill_value=0)[0].astype(jnp.int32)
    return places, jnp.arange(free, dtype=jnp.int32) < num_free, num_free


def _system(gram: Array, is_used: Array, num_free: Array, dtype: DTypeLike, l2: Any = 0.0) -> tuple:
    """The matrix of the free coefficients, padded by rows of the identity, and its scale.

    And what the tangents are multiplied by: nan where there are more of them than rows.
    """
    gram = jnp.where(is_used[:, None] & is_used[None, :], gram, 0)
    scale = lax.stop_gradient(jnp.max(jnp.abs(jnp.diagonal(gram))))
    scale = jnp.where(scale > 0, scale, jnp.ones_like(scale))
    # Rounding perturbs the eigenvalues of K_FF for m rows by about sqrt(m) eps: the ridge bounds
    # them from below.
    ridge = 4 * float(jnp.finfo(dtype).eps) * scale * jnp.sqrt(num_free.astype(scale.dtype))
    matrix = gram + jnp.diag(jnp.where(is_used, l2 + ridge, scale))
    return matrix, scale, jnp.where(num_free > len(gram), jnp.nan, jnp.ones_like(scale))


def _scores_at(at: Array, x: Array, kernel: Kernel, coef: Array) -> Array:
    """K coef at the rows `at`; reverse mode computes the blocks again instead of storing them."""
    return blocked(jax.checkpoint(lambda rows: dot(kernel(rows, x), coef)), x[at], BLOCK)


def parts_solution(
    coef: Array, level: Array, kernel: Kernel, x: object, parts: Parts, *, free: int | None = None
) -> tuple[Array, Array]:
    """A given solution of a dual in parts, with the derivatives of the exact solution attached.

    With c_i = sum_k coef_ki the coefficients maximise

        linear' c - 1/2 c' K c,   low_ki <= coef_ki <= high_ki,   sum_i coef_ki = total_k,

    and level_k are the multipliers of the sums: linear_i - (K c)_i = level_k for every free
    coefficient. The derivatives solve the system of the module's docstring with a border of a
    column for each part. A part without free coefficients has as level the midpoint of its
    interval.

    Args:
        coef: (k, n) the coefficients, exactly or up to rounding on their bounds.
        level: (k,) the multipliers.
        kernel: positive semi-definite.
        x: (n, d) the rows.
        parts: with its derivatives in other parameters.
        free: as of `solution`.

    Returns:
        coef (k, n) and level (k,).
    """
    kernel = cast(kernel, coef.dtype)
    kernel.refuse_open(x)
    none = jnp.zeros_like(parts.linear)
    parameters = jax.tree.map(jnp.asarray, x), kernel, parts, none, none
    choices, values = (True, min(coef.size, free or FREE)), lax.stop_gradient((coef, level))
    return _attached(_of_parts, choices, values, parameters)


def _of_parts(choices: tuple, values: tuple, parameters: tuple) -> tuple[Callable, Callable]:
    """The rule of a dual in parts with l1 and l2; the parts have sums, or are one without."""
    (has_sums, free), (coef, level) = choices, values
    x, kernel, parts, _, l2 = parameters
    n_parts, n = coef.shape
    fixed, (_, low, high, _), l1 = lax.stop_gradient((coef, parts, parameters[3]))
    on_low, on_high, on_zero = at_bound(fixed, Quadratic(low, high, l1[None]))
    is_free = ~(on_low | on_high | on_zero)
    side = jnp.where(on_zero, jnp.zeros_like(fixed), jnp.sign(fixed))
    place, is_used, num_free = _free_places(is_free, free)
    index, has_free = place % n, jnp.any(is_free, axis=1)
    each = jnp.arange(n_parts, dtype=jnp.int32)[None, :]

    def extremes():
        """The places, and the sides of 0, of the two rows that bound the level of each part.

        From below it is one that may increase, from above one that may decrease.
        """
        x, kernel, parts, l1, l2 = lax.stop_gradient(parameters)
        pull = parts.linear - matvec(kernel, x, x, jnp.sum(fixed, axis=0), BLOCK)
        pull = pull[None, :] - l2[None, :] * fixed
        sides = jnp.stack([jnp.where(side < 0, -1, 1), jnp.where(side > 0, 1, -1)])
        sides = sides.astype(fixed.dtype)
        levels = jnp.stack([pull - l1[None, :] * sides[0], l1[None, :] * sides[1] - pull])
        levels = jnp.where(jnp.stack([on_high, on_low]), -jnp.inf, levels)
        best = jnp.argmax(levels, axis=2)
        # bounded from one side only: the same bound twice
        first = jnp.arange(2)[:, None]
        choice = jnp.where(jnp.max(levels, axis=2) > -jnp.inf, first, 1 - first)
        row = best[choice, each].astype(jnp.int32)
        return (each * n + row).reshape(-1), sides[choice, each, row].reshape(-1)

    places, sides = place, side.reshape(-1)[place]
    if has_sums:
        no_rows = lambda: (jnp.zeros(2 * n_parts, jnp.int32), jnp.zeros(2 * n_parts, fixed.dtype))
        ends, of_ends = lax.cond(jnp.all(has_free), no_rows, extremes)
        places, sides = jnp.concatenate([places, ends]), jnp.concatenate([sides, of_ends])
    at = places % n

    def conditions(parameters):
        x, kernel, parts, l1, l2 = parameters
        # At neither bound: free, or at 0. At both bounds: of weight 0.
        bound = jnp.where(on_low, parts.low, parts.high)
        bound = jnp.where(on_low == on_high, jnp.zeros_like(fixed), bound)
        moved = jnp.where(is_free, coef, bound)
        pull = jnp.asarray(parts.linear)[at] - _scores_at(at, x, kernel, jnp.sum(moved, axis=0))
        pull = pull - l2[at] * moved.reshape(-1)[places] - l1[at] * sides
        return bound, pull, parts.total

    def solve(tangent):
        d_bound, d_pull, d_total = tangent
        gram = kernel.gram(x, index)
        matrix, scale, validity = _system(gram, is_used, num_free, coef.dtype, l2[index])
        rhs = jnp.where(is_used, d_pull[:free], 0)
        if has_sums:  # the border is scaled to the size of K
            border = jnp.where(is_used[None, :] & (place[None, :] // n == each.T), scale, 0)
            # A part without free coefficients: its level follows the pulls of its two rows.
            coupling = jnp.mean(kernel(x[at[free:]], x[index]).reshape(2, n_parts, free), axis=0)
            lower = jnp.where(is_used[None, :], coupling, 0)
            lower = jnp.where(has_free[:, None], border, lower)
            corner = jnp.diag(jnp.where(has_free, 0, scale))
            matrix = jnp.block([[matrix, border.T], [lower, corner]])
            of_sums = scale * (d_total - jnp.sum(d_bound, axis=1))
            of_ends = jnp.mean(d_pull[free:].reshape(2, n_parts), axis=0)
            rhs = jnp.concatenate([rhs, jnp.where(has_free, of_sums, of_ends)])
        step = jnp.linalg.solve(matrix, rhs)
        d_coef = d_bound.reshape(-1).at[place].add(jnp.where(is_used, step[:free], 0))
        d_level = validity * scale * step[free:] if has_sums else jnp.zeros_like(level)
        return validity * d_coef.reshape(coef.shape), d_level

    return conditions, solve


def simplex_solution(
    coef: Array, kernel: Kernel, data: Batch, C: Scalar, *, free: int | None = None
) -> Array:
    """A given solution of Crammer and Singer's dual, with derivatives of the exact one attached.

    With C_i = C weight_i and e_m a unit vector the coefficients maximise

        sum_i coef_iy_i - 1/2 sum_m coef_m' K coef_m,
        coef_i = C_i (e_y_i - p_i),   p_i in the probability simplex

    Let S_i be the classes with p_im > 0 and r_i one of them. Then coef_i = C_i (e_y_i - e_r_i) +
    sum over the other m in S_i of t_im u_im, u_im = e_m - e_r_i, and at all these (i, m)

        <u_im, e_y_i - sum_j K_ij coef_j> = 0.

    While the sets do not change, this holds for all values of the parameters p, so that

        sum_jl K_ij <u_im, u_jl> d t_jl = d/dp <u_im, e_y_i - sum_j K_ij coef_j>, t constant.

    Args:
        coef: (n, k) the coefficients, exactly or up to rounding.
        kernel: positive semi-definite.
        data: the n rows, with class numbers as targets.
        C: () > 0.
        free: largest number of t_im; structure. Derivatives are nan where there are more. None: the
            smaller of 2048 and n (k - 1).

    Returns:
        coef (n, k).

    Example: two orthogonal points, C above 1/2: coef_00 = 1 / (2 |x_0|^2)
        >>> import jax, jax.numpy as jnp, jaxsvm
        >>> from jaxsvm import implicit, kernels
        >>> data = jaxsvm.dataset([[1.0, 0.0], [0.0, 1.0]], [0, 1], task="multiclass")
        >>> coef = jnp.array([[0.5, -0.5], [-0.5, 0.5]])
        >>> of_rows = lambda x: implicit.simplex_solution(coef, kernels.linear(),
        ...     data._replace(x=x), 1.0)
        >>> jnp.round(jax.jit(jax.jacobian(of_rows))(data.x)[0, 0, 0], 3).tolist()
        [-1.0, 0.5]
    """
    n, k = coef.shape
    y, weight, C, kernel = cast((data.y, data.weight, C, as_kernel(kernel)), coef.dtype)
    parameters = jax.tree.map(jnp.asarray, data.x), kernel, y, jnp.asarray(weight), C
    kernel.refuse_open(data.x)
    limit = min(n * (k - 1), free or FREE)
    return _attached(_of_simplex, (limit,), lax.stop_gradient(coef), parameters)


def _of_simplex(choices: tuple, coef: Array, parameters: tuple) -> tuple[Callable, Callable]:
    """The rule by the linear system in `simplex_solution`'s docstring."""
    (free,), (x, kernel, y, weight, C) = choices, parameters
    n, k = coef.shape
    one_hot = jax.nn.one_hot(y.astype(jnp.int32), k, dtype=coef.dtype)
    fixed, bound = lax.stop_gradient((coef, (C * weight)[:, None]))
    p = one_hot - fixed / jnp.where(bound > 0, bound, 1)
    reference = jnp.argmax(p, axis=1)  # r_i
    at_reference = jax.nn.one_hot(reference, k, dtype=coef.dtype)
    is_free = (p > float(jnp.finfo(coef.dtype).eps) ** 0.85) & (bound > 0) & (at_reference == 0)
    flat, is_used, num_free = _free_places(is_free, free)
    row, column = flat // k, flat % k
    u = jax.nn.one_hot(column, k, dtype=coef.dtype) - at_reference[row]
    # with its derivatives, for those of higher order
    t = jnp.where(is_free, coef - (C * weight)[:, None] * one_hot, 0)

    def conditions(parameters):
        x, kernel, _, weight, C = parameters
        moved = t - at_reference * jnp.sum(t, axis=1, keepdims=True)
        fixed = (C * weight)[:, None] * (one_hot - at_reference) + moved
        return fixed, jnp.sum(u * (one_hot[row] - _scores_at(row, x, kernel, fixed)), axis=1)

    def solve(tangent):
        d_fixed, d_grad = tangent
        gram = kernel.gram(x, row) * dot(u, u.T)
        matrix, _, validity = _system(gram, is_used, num_free, coef.dtype)
        step = jnp.linalg.solve(matrix, jnp.where(is_used, d_grad, 0))
        moves = jnp.where(is_used, step, 0)[:, None] * u
        return validity * d_fixed.at[row].add(moves)

    return conditions, solve


def _jvp(fn: Callable, primal: object, tangent: object) -> State:
    """The tangent of `fn`, differentiated only with respect to leaves with a nonzero tangent."""
    tree: Any
    leaves, tree = jax.tree.flatten(primal)
    tangents = tree.flatten_up_to(tangent)
    nonzero = [i for i, slope in enumerate(tangents) if not isinstance(slope, SymbolicZero)]

    def of_nonzero(*numbers):
        replaced = dict(zip(nonzero, numbers, strict=True))
        return fn(tree.unflatten([replaced.get(i, leaf) for i, leaf in enumerate(leaves)]))

    return jax.jvp(of_nonzero, [leaves[i] for i in nonzero], [tangents[i] for i in nonzero])[1]


def linear_solution(
    w: Array,
    b: Any,
    data: Batch,
    lam: Scalar,
    loss: AnyLoss,
    bias: str = "none",
    *,
    l1_ratio: Scalar = 0.0,
) -> tuple[Array, Array]:
    """A given minimiser (w, b) of a smooth risk with a penalty, with its derivatives attached.

    (w, b) minimises lam/2 |w|^2 + mean_i loss(<w, x_i> + b, y_i), so that its gradient g is 0. The
    derivatives in the parameters p are those of the exact minimiser, in forward and reverse mode,
    of any order:

        H d(w, b) = - dg/dp,   H = lam I + sum_i share_i curvature_i x_i x_i'

    For a ranking loss the Hessian of its risk takes the place of the shares and curvatures.

    With l1_ratio > 0 the penalty is lam (l1_ratio |w|_1 + (1 - l1_ratio)/2 |w|^2). The weights that
    are not 0 then have the derivatives of that system among them, with g for their signs, and the
    others none.

    The values are those passed. Without differentiation nothing is computed.

    Args:
        w: (d,) the weights.
        b: () the bias; 0 without one.
        data: the n rows. Derivatives with respect to sparse rows are with respect to their stored
            values. For a ranking loss there are none with respect to the weights of rows.
        lam: () > 0.
        loss: one with a continuous slope (`Loss.curvature`, or a ranking loss).
        bias: "none", "feature" or "free".
        l1_ratio: share of the L1 norm in the penalty, from 0 to 1.

    Returns:
        w (d,) and b ().

    Raises:
        ValueError: a loss whose slope is not continuous; another bias; lam or l1_ratio not a
            scalar; a shape that does not match.

    Example: one point at 1 with target 1, squared loss: w = 1 / (1 + lam)
        >>> import jax, jax.numpy as jnp, jaxsvm
        >>> from jaxsvm import implicit, losses
        >>> data = jaxsvm.dataset([[1.0]], [1.0], task="regression")
        >>> weights = lambda lam: implicit.linear_solution(jnp.array([0.5]), 0.0, data, lam,
        ...     losses.squared)[0]
        >>> jax.jit(jax.jacobian(weights))(1.0).tolist()
        [-0.25]
    """
    check_choice("bias", bias, ("none", "feature", "free"))
    check_scalars(lam=lam, b=b, l1_ratio=l1_ratio)
    if not is_smooth(loss):
        raise ValueError(
            f"the slope of {loss!r} is not continuous: its solution has no such derivatives, take "
            "another loss"
        )
    w = jnp.asarray(w)
    chex.assert_shape(w, (data.x.shape[1],))
    chex.assert_shape([data.y, data.weight], (data.x.shape[0],))
    has_zeros = isinstance(l1_ratio, jax.core.Tracer) or float(l1_ratio) > 0
    y, weight, *parameters, b = cast((data.y, data.weight, lam, l1_ratio, loss, b), w.dtype)
    data = data._replace(x=jax.tree.map(jnp.asarray, data.x), y=y, weight=weight)
    if holds_functions(loss):
        second_order = lambda parts: _second_order(parts[1], parts[0], parts[0].y)[::2]
        check_open(second_order, (data, parameters[-1]))
    v = w if bias == "none" else jnp.concatenate([w, b[None]])
    v = _attached(_of_linear, (bias, has_zeros), lax.stop_gradient(v), (data, *parameters))
    return (v, b) if bias == "none" else (v[:-1], v[-1])


def _of_linear(choices: tuple, v: Array, parameters: tuple) -> tuple[Callable, Callable]:
    """The rule by the linear system in `linear_solution`'s docstring."""
    bias, has_zeros = choices
    constant = bias != "none"
    is_regularised = jnp.ones_like(v).at[-1].set(0) if bias == "free" else jnp.ones_like(v)
    # A weight of 0 under an L1 norm stays: its column of the system is one of the identity.
    is_in = jnp.ones(v.shape, bool)
    if has_zeros:
        _, lam, l1_ratio, _ = lax.stop_gradient(parameters)
        is_in = (lax.stop_gradient(v) != 0) | (lam * l1_ratio * is_regularised == 0)
    transposed = lambda u, x: jnp.where(is_in, affine_transpose(u, x, constant), 0)

    def terms(parameters):
        """The slopes of the rows, the map by their Hessian, its diagonal, and the regulariser."""
        data, lam, l1_ratio, loss = parameters
        score = affine(data.x, v, constant)
        ridge = jnp.where(is_in, lam * (1 - l1_ratio) * is_regularised, 1)
        return *_second_order(loss, data, score), ridge

    def grad(parameters):
        slope, _, _, ridge = terms(parameters)
        data, lam, l1_ratio, _ = parameters
        smooth = ridge * v + transposed(slope, data.x)
        return smooth + lam * l1_ratio * is_regularised * jnp.sign(v) if has_zeros else smooth

    x = parameters[0].x
    _, weigh, _, ridge = terms(parameters)

    def product(p):
        return ridge * p + transposed(weigh(affine(x, jnp.where(is_in, p, 0), constant)), x)

    def solve(matvec, r):
        data, *_, loss = fixed = lax.stop_gradient(parameters)
        _, _, s, ridge = terms(fixed)
        system = "centred" if couples_rows(loss) else system_for(data.x)
        if system == "cholesky":
            gram = weighted_gram(data.x, s, constant)
            inverse = cholesky(ridge, jnp.where(is_in[:, None] & is_in[None, :], gram, 0))
        else:
            inverse = preconditioner(data.x, system, constant)(s, ridge)
        rtol, most = 10 * float(jnp.finfo(r.dtype).eps), 2 * r.shape[0] + 10
        return jax.scipy.sparse.linalg.cg(matvec, r, tol=rtol, maxiter=most, M=inverse)[0]

    return grad, lambda d: lax.custom_linear_solve(product, -d, solve, symmetric=True)


def _second_order(loss: Loss, data: Batch, score: Array) -> tuple[Array, Callable, Array]:
    """The slopes of a risk (n,), the map by its Hessian, and the diagonal of that (n,)."""
    if not couples_rows(loss):
        share = data.weight / jnp.sum(data.weight)
        s = share * loss.curvature(score, data.y)
        return share * loss.slope(score, data.y), lambda u: s * u, s
    fixed = lax.stop_gradient(score)
    _, slope, hessian = second_order_of(loss, data)(fixed)
    weigh = symmetric(hessian.product)
    return slope + weigh(score - fixed), weigh, hessian.diagonal


def without_derivatives(method: str, tree: object) -> Any:
    """The tree itself; its derivatives are refused, as those of runs of the method."""

    def refuse(tree):
        raise TypeError(
            f"runs of {method} have no derivatives: take newton, interior_point, dual_descent, or "
            "of several classes crammer_singer, whose models have those of the exact solution"
        )

    return tangents_of(refuse)(lambda tree: tree)(tree)
