"""Systems (diag(ridge) + X' S X) v = r over rows, by preconditioned conjugate gradients.

S >= 0 is a matrix over the rows, most often diagonal with entries s. X are the rows x, with a
constant column 1 behind the others where `constant` is true.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from ..types import Array, SparseRows
from .double import in_double
from .products import accum_dtype, dot, fold_rows

FEW = 512  # columns up to which the matrix of a system is formed and factorised
GATHERED = 256  # rows that are gathered at once
BLOCK = 2**17  # numbers of the rows of a block, which stay in the cache of a processor: 512 KiB


def affine(x: Array | SparseRows, v: Array, constant: bool) -> Array:
    """X v, (n, d), (d,) or (d + 1,) -> (n,)."""
    return dot(x, v[:-1]) + v[-1] if constant else dot(x, v)


def affine_transpose(u: Array, x: Array | SparseRows, constant: bool) -> Array:
    """X' u, (n,), (n, d) -> (d,) or (d + 1,)."""
    combined = dot(u, x)
    return jnp.concatenate([combined, jnp.sum(u)[None]]) if constant else combined


def split_constant(v: Array, constant: bool) -> tuple[Array, Array]:
    """The weights (..., d), and that of the constant (...), 0 where there is none."""
    return (v[..., :-1], v[..., -1]) if constant else (v, jnp.zeros(v.shape[:-1], v.dtype))


def symmetric(product: Callable) -> Callable:
    """A symmetric linear map (n,) -> (n,), with its derivatives and its transpose: itself.

    `product` may be written in operations that have none. What else it reads is constant in them.
    """
    # As the solution of a system with the inverse map, which is never needed.
    inverse = lambda u: u
    solve = lambda _, u: product(u)
    return lambda u: lax.custom_linear_solve(inverse, u, solve, symmetric=True)


def weighted_gram(x: Array | SparseRows, s: Array, constant: bool) -> Array:
    """X' diag(s) X in blocks of rows, (n, d), (n,) -> (d, d) or (d + 1, d + 1).

    Under `vmap` over `s` each block is one product for all of them.
    """
    columns, dtype = x.shape[1], accum_dtype(x)

    def add(total, part, is_new):
        rows, s = part
        rows = (rows.toarray() if isinstance(rows, SparseRows) else rows).astype(dtype)
        rows = jnp.pad(rows, ((0, 0), (0, int(constant))), constant_values=1)
        return total + dot((rows * jnp.where(is_new, s, 0)[:, None]).T, rows)

    size = columns + constant
    return fold_rows(add, jnp.zeros((size, size), dtype), (x, s), max(256, BLOCK // columns))


def sparsely_weighted_gram(x: Array, s: Array, constant: bool) -> Array:
    """X' diag(s) X, (n, d), (n,) -> (d, d) or (d + 1, d + 1), from the rows with s_i != 0 alone."""
    n, columns = x.shape
    is_used = s != 0
    used = jnp.sum(is_used, dtype=jnp.int32)
    place = jnp.nonzero(is_used, size=n, fill_value=0)[0].astype(jnp.int32)
    place = jnp.concatenate([place, jnp.zeros(GATHERED, jnp.int32)])

    def add(k, total):
        start = k * GATHERED
        index = lax.dynamic_slice_in_dim(place, start, GATHERED)
        rows = jnp.pad(x[index].astype(s.dtype), ((0, 0), (0, int(constant))), constant_values=1)
        is_row = start + jnp.arange(GATHERED, dtype=jnp.int32) < used
        return total + dot((rows * jnp.where(is_row, s[index], 0)[:, None]).T, rows)

    size = columns + constant
    return lax.fori_loop(0, -(-used // GATHERED), add, jnp.zeros((size, size), s.dtype))


def cholesky(ridge: Array, gram: Array) -> Callable:
    """The map r -> v with (diag(ridge) + gram) v = r, up to rounding; positive definite.

    The diagonal is raised by the rounding error of its sums. So the factor exists for any `gram` of
    rows.
    """
    eps, size = float(jnp.finfo(gram.dtype).eps), gram.shape[0]
    # a slice: a gather, as of `jnp.diagonal`, compiles slowly
    diagonal = lax.slice(gram.reshape(-1), (0,), (size * size,), (size + 1,)) + ridge
    raised = ridge + jnp.where(diagonal > 0, diagonal * (4 * eps * size**0.5), 1)
    matrix = gram + jnp.where(jnp.eye(size, dtype=bool), raised, 0)
    factor = lax.linalg.cholesky(matrix, symmetrize_input=False)

    def solve(r):
        half = lax.linalg.triangular_solve(factor, r[:, None], left_side=True, lower=True)
        whole = lax.linalg.triangular_solve(
            factor, half, left_side=True, lower=True, transpose_a=True
        )
        return whole[:, 0]

    return solve


def exact_solution(x: object, s: Array, ridge: Array, r: Array) -> Array:
    """v with (diag(ridge) + X' diag(s) X) v = r of rows in float32, by a factor in float64.

    It is as accurate as conjugate gradients, without their loop, and without derivatives. X has a
    constant column where r has a number more than x has columns.
    """

    def solve(x: Array, s: Array, ridge: Array, r: Array) -> Array:
        x = jnp.pad(x, ((0, 0), (0, r.shape[0] - x.shape[1])), constant_values=1)
        rows = jnp.sqrt(s)[:, None] * x
        return cholesky(ridge, dot(rows.T, rows))(r)

    return in_double(solve)(r.dtype, x, s, ridge, r)


def system_for(x: Array | SparseRows) -> str:
    """The default system: "cholesky" for dense rows of at most `FEW` columns, else "cg"."""
    return "cholesky" if not isinstance(x, SparseRows) and x.shape[1] <= FEW else "cg"


def preconditioner(x: Array | SparseRows, system: str, constant: bool) -> Callable:
    """The map (s, ridge) -> preconditioner of the system, a map of residuals r; s = diag(S).

    It is the inverse of the matrix ("cholesky"); the inverse of its diagonal ("cg"); or the inverse
    of max(ridge) I + sum(s) X'X / n ("eigen"). The last takes one eigendecomposition, also under
    `vmap` over s and ridge, whose maps are then products with one matrix.

    "centred" is for matrices S that are not diagonal, with S 1 = 0: the inverse of the diagonal
    where S is diag(s) - s s' / sum(s).
    """
    if system == "cholesky":
        return lambda s, ridge: cholesky(ridge, weighted_gram(x, s, constant))
    if system in ("cg", "centred"):
        is_entry = lambda a: jnp.issubdtype(a.dtype, jnp.floating)  # and no place of one
        squared = jax.tree.map(lambda a: a * a if is_entry(a) else a, x)

        def by_diagonal(s: Array, ridge: Array) -> Callable:
            diagonal = affine_transpose(s, squared, constant)
            if system == "centred":
                total = jnp.sum(s)
                sums = affine_transpose(s, x, constant)
                diagonal = jnp.maximum(diagonal - sums**2 / jnp.where(total > 0, total, 1), 0)
            inverse = 1 / jnp.where(ridge + diagonal > 0, ridge + diagonal, 1)
            return lambda r: inverse * r

        return by_diagonal
    mean = jnp.full(x.shape[0], 1 / x.shape[0], accum_dtype(x))
    values, vectors = jnp.linalg.eigh(weighted_gram(x, mean, constant))
    values = jnp.maximum(values, 0)

    def by_eigenvalues(s: Array, ridge: Array) -> Callable:
        scale = 1 / (jnp.max(ridge) + jnp.sum(s) * values)
        return lambda r: dot(vectors, scale * dot(r, vectors))

    return by_eigenvalues


class Solution(NamedTuple):
    """An approximate solution v, X v, and the number of products with X and X' that it took."""

    v: Array  # (d,) or (d + 1,)
    response: Array  # (n,)
    products: Array  # ()  int32


def solve_normal(
    x: Array | SparseRows,
    weigh: Callable,
    ridge: Array,
    r: Array,
    precondition: Callable,
    rtol: Any,
    limit: int,
    constant: bool,
) -> Solution:
    """v with |r - (diag(ridge) + X' S X) v| <= rtol |r|, in the norm of the preconditioner.

    Args:
        x: (n, d) rows.
        weigh: the map u -> S u of (n,), symmetric and positive semi-definite.
        ridge: (d,) or (d + 1,) >= 0.
        r: as `ridge`.
        precondition: a symmetric positive definite map of residuals, `cholesky` or `jacobi`.
        rtol: () the tolerance.
        limit: maximum number of steps.
        constant: whether X has a constant column.

    Reference: M. Hestenes, E. Stiefel, Methods of conjugate gradients for solving linear systems,
        1952.
    """
    preconditioned = precondition(r)
    square = dot(r, preconditioned)
    goal = rtol**2 * square
    should_continue = lambda carry: (carry[0] < limit) & (carry[-1] > goal)

    def step(carry):
        k, v, response, residual, direction, square = carry
        rate = affine(x, direction, constant)
        weighted = weigh(rate)
        energy = dot(ridge * direction, direction) + dot(weighted, rate)
        length = jnp.where(energy > 0, square / jnp.where(energy > 0, energy, 1), 0)
        v, response = v + length * direction, response + length * rate
        residual = residual - length * (ridge * direction + affine_transpose(weighted, x, constant))
        preconditioned = precondition(residual)
        new_square = dot(residual, preconditioned)
        direction = preconditioned + new_square / square * direction
        return k + 1, v, response, residual, direction, jnp.where(energy > 0, new_square, 0)

    start = jnp.zeros((), jnp.int32), jnp.zeros_like(r), jnp.zeros(x.shape[0], r.dtype)
    k, v, response, *_ = lax.while_loop(should_continue, step, (*start, r, preconditioned, square))
    return Solution(v, response, k)
