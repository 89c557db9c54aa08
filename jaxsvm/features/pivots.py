"""Pivots of a kernel matrix: columns of its Cholesky factor, and random pivots in blocks."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from ..checks import check_bytes, integer
from ..kernels import Kernel
from ..numerics import accum_dtype, dot, is_traced, sample_proportional, sqnorms, top_k_index
from ..types import Array, Batch, Rows

PROPOSALS = 2  # rows drawn for each pivot of a block; a rejected one takes no kernel column


class Factor(NamedTuple):
    """An incomplete factorisation F F' of a kernel matrix."""

    rank: Array  # ()  int32, columns made
    columns: Array  # (r, n)  F', rows beyond `rank` are 0
    residual: Array  # (n,)  the diagonal of K - F F', >= 0
    pivots: Array  # (r,)  int32; -1 beyond `rank`


def empty_factor(diagonal: Array, rank: int) -> Factor:
    """A factor without columns of a matrix with this diagonal (n,), with space for `rank`."""
    columns = jnp.zeros((rank, diagonal.shape[0]), diagonal.dtype)
    return Factor(jnp.zeros((), jnp.int32), columns, diagonal, jnp.full(rank, -1, jnp.int32))


def add_column(factor: Factor, p: Array, values: Array) -> Factor:
    """The factor with the column of the pivot p, of which `values` (n,) are the kernel values."""
    column = values - dot(factor.columns[:, p], factor.columns)
    column = column / jnp.sqrt(factor.residual[p])
    residual = jnp.maximum(factor.residual - column * column, 0).at[p].set(0)
    columns = factor.columns.at[factor.rank].set(column)
    return Factor(factor.rank + 1, columns, residual, factor.pivots.at[factor.rank].set(p))


def laid_out(kernel: Kernel, x: Any) -> Any:
    """The rows in the layout of the kernel."""
    ones = jnp.ones(x.shape[0], x.dtype)
    return kernel.layout(Batch(x, ones, jnp.arange(x.shape[0], dtype=jnp.int32), ones)).x


def random_pivots(block: int = 128) -> Callable:
    """Rows drawn one after the other in proportion to what the rows before leave of k(x_i, x_i).

        d = diag K;  until there are s pivots:
            propose 2 b rows, with probabilities d / sum d each
            in turn: accept row i with probability (d_i given all pivots so far) / d_i
            F = [F, (K_.P - F F_P') L^-T],  L L' = K_PP - F_P F_P';   d = diag(K - F F')

    P are the pivots accepted in this round, at most b. Their distribution is that of b = 1, where
    each pivot takes a pass over F. Here a round is a product of matrices.

    A choice takes n s kernel values and O(n s^2) operations, as the features of the rows do. Memory
    is n (s + b) numbers in the dtype of the rows.

    No row is drawn twice. Rows with d_i <= s eps k(x_i, x_i), such as copies of pivots, are
    explained up to rounding and are no pivots. Where only such rows are left, the others are drawn
    at once, in proportion to d without replacement. They hardly add to the map.

    Args:
        block: b, pivots of a round, >= 1.

    Returns:
        (key, kernel, x (n, d), s) -> (s, d), for `nystrom(choose=)`.

    Raises:
        ValueError: block below 1; when called, F larger than `jaxsvm.checks.MOST_BYTES`.

    Differs from the paper: a round ends with its b-th pivot; rows that are explained up to rounding
        are left out.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from jaxsvm import features, kernels
        >>> x = jnp.array([[0.0], [0.0], [1.0], [1.0], [5.0]])
        >>> rows = features.random_pivots()(jax.random.key(0), kernels.rbf(1.0), x, 3)
        >>> sorted(rows[:, 0].tolist())
        [0.0, 1.0, 5.0]

    Reference: E. Epperly, J. Tropp, R. Webber, Embrace rejection: kernel matrix approximation by
        accelerated randomly pivoted Cholesky, 2024, arXiv:2410.03969; Y. Chen, E. Epperly, J.
        Tropp, R. Webber, Randomly pivoted Cholesky, CPAM 2024.
    """
    integer("block", block, 1)
    return functools.partial(_random_pivots, block=block)


def _random_pivots(key: Array, kernel: Kernel, x: Array, count: int, *, block: int) -> Array:
    rows: Rows = x.astype(accum_dtype(x))
    block = min(block, count)
    check_bytes(
        f"the factor of {x.shape[0]:,} rows and {count:,} pivots",
        x.shape[0] * (count + block) * rows.dtype.itemsize,
        "lower landmarks, draw from some of the rows, take features.leverage_scores()",
    )
    known = None if is_traced(key, kernel, rows) else laid_out(kernel, rows)
    constant = jax.tree.map(lax.stop_gradient, (kernel, rows))
    return x[_pivots(key, *constant, known, count, block)]


def draw_rows(key: Array, share: Array, count: int) -> Array:
    """Rows (count,) drawn without replacement, with probabilities proportional to `share` (n,).

    Rows of share 0 come after all others, those below 0 last.
    """
    size = jnp.log(jnp.maximum(share, jnp.finfo(share.dtype).tiny))
    perturbed = size + jax.random.gumbel(key, share.shape, share.dtype)  # Gumbel top-k
    return top_k_index(jnp.where(share < 0, -jnp.inf, perturbed), count)


class _Round(NamedTuple):
    """Loop state of random pivots."""

    number: Array  # ()  int32
    rank: Array  # ()  int32, pivots
    columns: Array  # (blocks, n, b)  F in blocks of columns, the free ones 0
    residual: Array  # (n,)  the diagonal of K - F F', >= 0
    pivots: Array  # (blocks, b)  int32; n where there is none


@functools.partial(jax.jit, static_argnames=("count", "block"))
def _pivots(key: Array, kernel: Kernel, x: Array, rows: Array, count: int, block: int) -> Array:
    """The pivots (count,) int32.

    `rows` are those of x in the layout of the kernel; None: not known yet.
    """
    rows = laid_out(kernel, x) if rows is None else rows
    for_pivots, for_others = jax.random.split(key)
    diagonal = kernel.diag(x)
    n, dtype = diagonal.shape[0], diagonal.dtype
    floor = count * float(jnp.finfo(dtype).eps) * diagonal
    should_continue = lambda state: (state.rank < count) & jnp.any(state.residual > floor)

    def fill_block(state):
        """Add pivots to the first block of columns that is not full."""
        j, residual = state.rank // block, state.residual
        round_key = jax.random.fold_in(for_pivots, state.number)
        u = jax.random.uniform(round_key, (2, PROPOSALS * block), dtype)
        drawn = sample_proportional(jnp.where(residual > floor, residual, 0), u[0])
        own, own_columns = rows[drawn], jnp.moveaxis(state.columns[:, drawn], 0, 1)
        flat = own_columns.reshape(drawn.shape[0], -1)
        among, left = kernel(own, own) - dot(flat, flat.T), residual[drawn]
        least = jnp.maximum(u[1] * left, floor[drawn])
        factor, inverse = _accept(drawn, among, left, least, state.rank - j * block, block)
        place = jnp.maximum(factor.pivots, 0)
        new = jnp.where(factor.pivots >= 0, drawn[place], n)
        rank = j * block + factor.rank

        def add_columns(columns, residual):
            explain = lambda i, left: left - dot(columns[i], own_columns[place, i].T)
            left = lax.fori_loop(0, j + 1, explain, kernel(rows, own[place]))
            added = dot(left, inverse.T)
            residual = jnp.maximum(residual - sqnorms(added), 0).at[new].set(0, mode="drop")
            return columns.at[j].add(added), residual

        # the last columns are not needed
        keep = lambda *unchanged: unchanged
        columns, residual = lax.cond(rank < count, add_columns, keep, state.columns, residual)
        return _Round(state.number + 1, rank, columns, residual, state.pivots.at[j].min(new))

    zero, blocks = jnp.zeros((), jnp.int32), -(-count // block)
    none = jnp.full((blocks, block), n, jnp.int32)
    start = _Round(zero, zero, jnp.zeros((blocks, n, block), dtype), diagonal, none)
    end = lax.while_loop(should_continue, fill_block, start)
    pivots = end.pivots.reshape(-1)[:count]
    others = draw_rows(for_others, end.residual.at[pivots].set(-1, mode="drop"), count)
    i = lax.iota(jnp.int32, count)
    return jnp.where(i < end.rank, pivots, others[jnp.maximum(i - end.rank, 0)])


def _accept(
    drawn: Array, among: Array, residual: Array, least: Array, rank: Array, block: int
) -> tuple[Factor, Array]:
    """Accept drawn rows, in turn, of which more than `least` is left, until the block is full.

    What is left of a row only falls, so that a rejected row stays so.

    Args:
        drawn: (q,) int32 rows, with repetitions.
        among: (q, q) what the pivots so far leave of their kernel matrix.
        residual: (q,) its diagonal.
        least: (q,) thresholds.
        rank: () int32, the place of the first column.
        block: b, the end of the places.

    Returns:
        The factor of `among`, and the inverse L^-1 (b, b) of its rows of the accepted, with zeros
        in other places.
    """
    # to the q columns of `among` come b of the identity: the same steps make L^-1 of them
    q, one = drawn.shape[0], jnp.eye(block, dtype=among.dtype)
    extend = lambda a, value: jnp.pad(a, (0, block), constant_values=value)
    drawn, least = extend(drawn, -1), extend(least, jnp.inf)
    start = empty_factor(extend(residual, 0), block)._replace(rank=rank)
    has_next = lambda factor: (factor.rank < block) & jnp.any(factor.residual > least)

    def add_next(factor):
        p = jnp.argmax(factor.residual > least).astype(jnp.int32)
        factor = add_column(factor, p, jnp.concatenate([among[p], one[factor.rank]]))
        return factor._replace(residual=jnp.where(drawn == drawn[p], 0, factor.residual))

    factor = lax.while_loop(has_next, add_next, start)
    return factor, factor.columns[:, q:]
