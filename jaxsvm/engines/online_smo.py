"""Online SMO: steps on pairs of a set of rows that grows and shrinks, with cached kernel rows."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from ..numerics import (
    count,
    fast_max,
    fast_min,
    gather,
    index_row,
    top_k_index,
    two_sum,
)
from ..recipe import register
from ..types import Array
from . import kernel_cache
from .dual_qp import Dual, DualState, add_l2, gain_down, gain_up, violation
from .smo_step import STEPS

# relative tolerance of ties, in units of the violation: far above the rounding of float32
TIE = 1e-4
# rows of one kernel product; the rows that are likely to be needed next fill it up
PRODUCT = 16


@register("LasvmState")
class LasvmState(NamedTuple):
    """The dual, the set S, and the position within the passes.

    S is the set of rows whose coefficients may change.
    """

    dual: DualState
    in_set: Array  # (n,)  bool, S; other coefficients are 0
    stamp: Array  # (n,)  int32, the pass of the last visit of a row
    passes: Array  # ()  int32, number of the current pass
    visited: Array  # ()  int32, distinct rows visited in this pass


class Pair(NamedTuple):
    """The most violating pair of S."""

    i: Array  # ()  int32, the row of `max_up`
    j: Array  # ()  int32, the row of `min_down`; i without a bias
    max_up: Array  # ()  largest gain_up; 0 without a bias
    min_down: Array  # ()  smallest gain_down; 0 without a bias
    violation: Array  # ()  as of `dual_qp.violation`


class Progress(NamedTuple):
    """What one update carries from step to step."""

    state: LasvmState
    pair: Pair  # the most violating one of S
    rows: kernel_cache.Rows  # the kernel rows in memory
    visit: Array  # ()  int32, number of visits made
    processed: Array  # ()  bool, the row of this visit has joined S
    steps: Array  # ()  int32, steps made


# steps that one update may make after its visits, to reach its tolerance
FINISHING = 2**16


def max_rows_computed(visits: int) -> int:
    """An upper bound of the kernel rows that an update of so many visits computes."""
    return (2 * visits + FINISHING) * (PRODUCT if visits >= PRODUCT else 2)


@functools.cache
def make_visits(bias: str, labels: bool, passes: int, memory: int | None) -> Callable:
    """The function that visits rows one after the other, each by PROCESS and then REPROCESS.

    Args:
        bias: "free" or "none".
        labels: whether the targets are labels; 0 is then a bound of every coefficient.
        passes: number of passes that make PROCESS steps.
        memory: bytes of the cache of kernel rows; None: 1 GiB.

    Returns:
        A function qp, tol, state, x, y, index -> state, violation on S after the last step, number
        of computed kernel rows. After the passes it ends once the violation is at most `tol`, and
        makes up to `FINISHING` more steps until it is; with a negative `tol` it makes the visits
        only. Under `vmap` runs are sequential.
    """
    width = 2 if bias == "free" else 1  # rows that one step changes

    @jax.custom_batching.sequential_vmap
    def visit_all(qp, tol, state, x, y, index):
        n, b = y.shape[0], index.shape[0]
        dual_at_start, rows_of_data = qp.dual(state.dual, x, y), lax.iota(jnp.int32, n)
        order, n_visits = kernel_cache.first(index >= 0)
        visited_rows = index[order]
        sizes = (PRODUCT,) if b >= PRODUCT else (1,)
        # Few visits use hardly any row twice: their rows are not kept.
        slots = width + 2
        if b >= PRODUCT:
            spare = 3 * PRODUCT
            slots = kernel_cache.num_slots(x, 2**30 if memory is None else memory, 2 * spare)
            slots = min(slots, max_rows_computed(b) + 2 * spare)

        def next_rows(at, dual):
            """The rows that a product may compute beside those needed now, and which to compute.

            They are rows that will probably join S at one of the next visits, or, if there are
            none, the rows of S with the largest violation.
            """
            ahead = jnp.minimum(at.visit + 1 + lax.iota(jnp.int32, 4 * PRODUCT), b - 1)
            upcoming = gather(visited_rows, ahead)
            up, down = gain_up(dual), gain_down(dual)
            joins = (
                (ahead < n_visits)
                & (at.state.passes <= passes)
                & ~gather(at.state.in_set, upcoming)
                & (gather(at.rows.slot, upcoming) < 0)
                & (
                    (gather(up, upcoming) >= at.pair.min_down)
                    | (gather(down, upcoming) <= at.pair.max_up)
                )
            )
            first_ahead, n_ahead = kernel_cache.first(joins)
            size = PRODUCT - width
            upcoming = upcoming[first_ahead[:size]]
            missing = at.state.in_set & (at.rows.slot < 0)
            gains = jnp.maximum(up - at.pair.min_down, at.pair.max_up - down)
            in_set = top_k_index(jnp.where(missing, gains, -jnp.inf), min(size, n))
            in_set = jnp.pad(in_set, (0, size - in_set.shape[0]))
            use_ahead = n_ahead > 0
            index = jnp.where(use_ahead, upcoming, in_set)
            wanted = jnp.where(
                use_ahead, lax.iota(jnp.int32, size) < n_ahead, gather(missing, in_set)
            )
            first_time = lax.iota(jnp.int32, size) < min(size, n)
            return index, wanted & (use_ahead | first_time)

        def with_rows(at, dual, index, moves):
            """The cache with the kernel rows `index`, if there is a step to make."""
            cached = kernel_cache.is_cached(at.rows, index, max(width, sizes[0]), sizes)
            missing = moves & ~jnp.all(cached)
            wanted = jnp.broadcast_to(moves, index.shape)
            if width == 2:  # a pair may be one row twice
                wanted = jnp.stack([moves, moves & (index[1] != index[0])])
            if b >= PRODUCT:
                # A branch, since XLA would compute the operands of a loop in any case.
                index, wanted = lax.cond(
                    missing,
                    lambda: with_next_rows(at, dual, index, wanted),
                    lambda: (jnp.zeros(PRODUCT, jnp.int32), jnp.zeros(PRODUCT, bool)),
                )
            compute = lambda _, rows: kernel_cache.ensure_rows(
                rows, qp.kernel, x, index, wanted, sizes
            )
            # a loop of one round or none, which, other than a branch, copies no cache
            return lax.fori_loop(0, missing.astype(jnp.int32), compute, at.rows)

        def with_next_rows(at, dual, index, wanted):
            """The rows of a step with those of `next_rows`."""
            more, more_wanted = next_rows(at, dual)
            more_wanted &= ~jnp.any(more[:, None] == index[None, :], axis=1)
            return jnp.concatenate([index, more]), jnp.concatenate([wanted, more_wanted])

        def step(at):
            """A step of PROCESS, if the row of this visit joins S, or a REPROCESS step."""
            k, solver_state = index_row(visited_rows, at.visit), at.state
            dual = dual_at_start.at_state(solver_state.dual)
            own = rows_of(dual, k[None])
            up, down = gain_up(own)[0], gain_down(own)[0]
            finishes = at.visit >= n_visits
            active = finishes | (index_row(solver_state.dual.weight, k) > 0)
            online = active & ~finishes & (solver_state.passes <= passes)
            # The paper discards k only if S has a violating pair; otherwise k could not move and
            # REPROCESS would remove it.
            joins = (
                online
                & ~at.processed
                & ~index_row(solver_state.in_set, k)
                & ((up >= at.pair.min_down) | (down <= at.pair.max_up))
            )

            def with_k():
                if bias != "free":
                    return k, k
                i, j, max_up, min_down, _ = most_violating(
                    restrict(dual, solver_state.in_set), bias, up, down
                )
                is_upper = up - min_down >= max_up - down
                return jnp.where(is_upper, k, i), jnp.where(is_upper, j, k)

            index = jnp.stack(lax.cond(joins, with_k, lambda: (at.pair.i, at.pair.j))[:width])
            in_set = solver_state.in_set | (joins & (rows_of_data == k))
            step_dual = restrict(rows_of(dual, index), gather(in_set, index) & active)
            moves = violation(step_dual, bias) > 0
            rows = with_rows(at, dual, index, moves)
            kernel_rows = [
                index_row(rows.value, jnp.maximum(index_row(rows.slot, index[u]), 0))
                for u in range(width)
            ]
            gram = jnp.diag(step_dual.diag)
            if width == 2:
                product = jnp.where(moves, index_row(kernel_rows[0], index[1]), 0)
                gram = gram + product * (1 - jnp.eye(2, dtype=gram.dtype))
            new, sum_error, _ = STEPS[bias](
                lambda u: index_row(gram, u), step_dual, solver_state.dual.sum_error
            )
            by = jnp.where(moves, new.coef - step_dual.coef, 0)
            change = -sum(by[u] * add_l2(kernel_rows[u], dual, index[u]) for u in range(width))
            grad, compensation = two_sum(
                solver_state.dual.grad,
                solver_state.dual.compensation,
                jnp.where(moves, change, jnp.zeros_like(change)),
            )
            coef = solver_state.dual.coef
            for u in range(width):
                coef = lax.dynamic_update_index_in_dim(coef, step_dual.coef[u] + by[u], index[u], 0)
            sum_error = jnp.where(moves, sum_error, solver_state.dual.sum_error)
            new_state = DualState(coef, grad, compensation, sum_error, solver_state.dual.weight)
            dual = dual_at_start.at_state(new_state)
            pair = most_violating(restrict(dual, in_set), bias)
            leaves = (
                active
                & ~joins
                & in_set
                & (coef == 0)
                & (gain_up(dual) <= pair.min_down)
                & (gain_down(dual) >= pair.max_up)
            )
            # 0 is inside the bounds of real targets, so that all rows might leave: the extremes
            # stay
            if not labels:
                leaves = leaves & (rows_of_data != pair.i) & (rows_of_data != pair.j)
            in_set = in_set & ~leaves
            # Rows of a violating pair do not leave, so that the pair is that of the smaller S.
            if bias == "free":
                pair = lax.cond(
                    pair.max_up > pair.min_down,
                    lambda: pair,
                    lambda: most_violating(restrict(dual, in_set), bias),
                )
            new_state = count_visit(
                solver_state._replace(dual=new_state, in_set=in_set), k, online & ~joins
            )
            return Progress(
                new_state, pair, rows, at.visit + (~joins).astype(jnp.int32), joins, at.steps + 1
            )

        def count_visit(state, k, online):
            """The state after a visit of row k, which may end a pass."""
            first_visit = online & (index_row(state.stamp, k) < state.passes)
            visited = state.visited + first_visit.astype(jnp.int32)
            pass_ends = visited >= n_positive
            return state._replace(
                stamp=jnp.where(first_visit & (rows_of_data == k), state.passes, state.stamp),
                passes=state.passes + pass_ends.astype(jnp.int32),
                visited=jnp.where(pass_ends, 0, visited),
            )

        n_positive, zero = count(state.dual.weight > 0), jnp.zeros((), jnp.int32)
        start = Progress(
            state,
            most_violating(restrict(dual_at_start, state.in_set), bias),
            kernel_cache.empty(x, slots),
            visit=zero,
            processed=jnp.zeros((), bool),
            steps=zero,
        )

        def should_continue(at):
            is_done = (at.state.passes > passes) & (at.pair.violation <= tol)
            more = (tol >= 0) & (at.state.passes > passes) & (at.visit < n_visits + FINISHING)
            return ~is_done & ((at.visit < n_visits) | more)

        end = lax.while_loop(should_continue, step, start)
        return end.state, end.pair.violation, end.rows.n_computed

    return visit_all


def rows_of(dual: Dual, index: Array) -> Dual:
    """The dual of a few rows (q,)."""
    return jax.tree.map(
        lambda a: jnp.stack([index_row(a, index[u]) for u in range(index.shape[0])]), dual
    )


def restrict(dual: Dual, rows: Array) -> Dual:
    """The dual in which only the coefficients of a mask (n,) may change.

    The bounds of the others are their values.

    Reference: A. Bordes et al., JMLR 6, 2005, section 3, where the search for a pair goes over S
        alone.
    """
    bound_or_coef = lambda bound: jnp.where(rows, bound, dual.coef)
    return dual._replace(
        bounds=dual.bounds._replace(
            low=bound_or_coef(dual.bounds.low), high=bound_or_coef(dual.bounds.high)
        )
    )


def most_violating(
    dual: Dual, bias: str, up_k: Array | float = -jnp.inf, down_k: Array | float = jnp.inf
) -> Pair:
    """The most violating pair of rows.

    Without a bias the result is one row twice, with zeros as its gains. A step within the bounds
    makes two rows tie, up to rounding. Rows within `TIE` of the violation count as tied, and the
    first is selected. The violation may be that with one more row, of `up_k` and `down_k`. If no
    row can move, the result is index 0 and infinities.
    """
    up, down = gain_up(dual), -gain_down(dual)
    if bias != "free":
        up, zero = jnp.maximum(up, down), jnp.zeros_like(up[0])
        top = fast_max(up)
        gap = jnp.maximum(top, 0)
        i = _first_maximum(up, top, gap)
        return Pair(i, i, zero, zero, gap)
    max_up, min_down = fast_max(up), -fast_max(down)
    gap = jnp.maximum(jnp.maximum(max_up, up_k) - jnp.minimum(min_down, down_k), 0)
    i, j = _first_maximum(up, max_up, gap), _first_maximum(down, -min_down, gap)
    return Pair(i, j, max_up, min_down, gap)


def _first_maximum(gain: Array, top: Array, gap: Array) -> Array:
    """The first index within `TIE` gap of the maximum `top`."""
    n = gain.shape[0]
    return fast_min(jnp.where(gain >= top - TIE * gap, lax.iota(jnp.int32, n), n - 1))
