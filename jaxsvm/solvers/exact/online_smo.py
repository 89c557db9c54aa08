"""Online SMO: steps on pairs of a set of rows that grows and shrinks, with cached kernel rows."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from ..._node import register
from ...engines import kernel_cache
from ...engines.dual_qp import Dual, DualState, add_l2, gain_down, gain_up, violation
from ...engines.smo_step import STEPS
from ...kernels import Kernel
from ...numerics import count, fast_max, fast_min, gather, index_row, top_k_index, two_sum
from ...types import Array

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


class Visits(NamedTuple):
    """What one update reads and does not change: its problem, and the rows that it visits."""

    bias: str  # "free" or "none"
    labels: bool  # whether the targets are labels
    passes: int  # passes that make PROCESS steps
    kernel: Kernel
    x: Array  # (n, d)
    dual: Dual  # at the start of the update
    row_numbers: Array  # (n,)  int32, 0 .. n - 1
    rows: Array  # (b,)  int32, in the order of their visits
    number: Array  # ()  int32, number of visits; what follows in `rows` is padding
    n_positive: Array  # ()  int32, rows of positive weight

    @property
    def width(self) -> int:
        """Rows that one step changes."""
        return 2 if self.bias == "free" else 1

    @property
    def product_size(self) -> int:
        """Rows of a kernel product; few visits compute those of their step alone."""
        return PRODUCT if self.rows.shape[0] >= PRODUCT else 1


class Progress(NamedTuple):
    """What one update carries from step to step."""

    state: LasvmState
    pair: Pair  # the most violating one of S
    rows: kernel_cache.Rows  # the kernel rows in memory
    visit: Array  # ()  int32, number of complete visits
    processed: Array  # ()  bool, the row of this visit has joined S


class Candidate(NamedTuple):
    """The row of a visit, and whether PROCESS adds it to S."""

    row: Array  # ()  int32
    gain_up: Array  # ()
    gain_down: Array  # ()
    active: Array  # ()  bool, there is a step: the weight is positive, or the visits are over
    online: Array  # ()  bool, the visit belongs to one of the passes
    joins: Array  # ()  bool, the step is that of PROCESS


# steps that one update may make after its visits, to reach its tolerance
FINISHING = 2**16


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

    @jax.custom_batching.sequential_vmap
    def visit_all(qp, tol, state, x, y, index):
        dual, row_numbers = qp.dual(state.dual, x, y), lax.iota(jnp.int32, y.shape[0])
        order, number = kernel_cache.first(index >= 0)
        constant = bias, labels, passes, qp.kernel, x, dual, row_numbers
        visits = Visits(*constant, index[order], number, count(state.dual.weight > 0))
        pair = most_violating(restrict(dual, state.in_set), bias)
        rows = kernel_cache.empty(x, _num_slots(visits, memory))
        begin = Progress(state, pair, rows, jnp.zeros((), jnp.int32), jnp.zeros((), bool))

        def should_continue(progress):
            visit, n_passes = progress.visit, progress.state.passes
            is_done = (n_passes > passes) & (progress.pair.violation <= tol)
            finishes = (tol >= 0) & (n_passes > passes) & (visit < number + FINISHING)
            return ~is_done & ((visit < number) | finishes)

        step = functools.partial(_step, visits)
        end = lax.while_loop(should_continue, step, begin)
        return end.state, end.pair.violation, end.rows.n_computed

    return visit_all


def _num_slots(visits: Visits, memory: int | None) -> int:
    """The number of slots for kernel rows.

    Few visits use hardly any row twice: their rows are not kept.
    """
    b, spare = visits.rows.shape[0], 6 * PRODUCT
    if b < PRODUCT:
        return visits.width + 2
    slots = kernel_cache.num_slots(visits.x, 2**30 if memory is None else memory, spare)
    most = (2 * b + FINISHING) * PRODUCT  # rows that the update computes
    return min(slots, most + spare)


def _step(visits: Visits, progress: Progress) -> Progress:
    """A step of PROCESS, if the row of this visit joins S, or a REPROCESS step."""
    state = progress.state
    row = index_row(visits.rows, progress.visit)
    dual = visits.dual.at_state(state.dual)
    candidate = _candidate(visits, progress, dual, row)
    index = _rows_to_change(visits, progress, dual, candidate)
    in_set = state.in_set | (candidate.joins & (visits.row_numbers == row))
    step_dual = restrict(rows_of(dual, index), gather(in_set, index) & candidate.active)
    moves = violation(step_dual, visits.bias) > 0
    rows = _cache_rows(visits, progress, dual, index, moves)
    new_dual = _change_coef(visits, state.dual, rows, index, step_dual, moves)
    in_set, pair = _discard(visits, candidate, visits.dual.at_state(new_dual), in_set)
    new_state = state._replace(dual=new_dual, in_set=in_set)
    new_state = _count_visit(visits, new_state, row, candidate.online & ~candidate.joins)
    return Progress(
        new_state,
        pair,
        rows,
        visit=progress.visit + (~candidate.joins).astype(jnp.int32),
        processed=candidate.joins,
    )


def _candidate(visits: Visits, progress: Progress, dual: Dual, row: Array) -> Candidate:
    """The row of a visit: PROCESS adds it to S unless it forms no violating pair."""
    state = progress.state
    row_dual = rows_of(dual, row[None])
    up, down = gain_up(row_dual)[0], gain_down(row_dual)[0]
    finishes = progress.visit >= visits.number
    active = finishes | (index_row(state.dual.weight, row) > 0)
    online = active & ~finishes & (state.passes <= visits.passes)
    # The paper discards the row only if S has a violating pair; otherwise it could not move and
    # REPROCESS would remove it.
    joins = (
        online
        & ~progress.processed
        & ~index_row(state.in_set, row)
        & ((up >= progress.pair.min_down) | (down <= progress.pair.max_up))
    )
    return Candidate(row, up, down, active, online, joins)


def _rows_to_change(visits: Visits, progress: Progress, dual: Dual, candidate: Candidate) -> Array:
    """The rows of a step, (1,) or (2,): the most violating pair of S, or that of PROCESS."""

    def pair_of_candidate():
        row = candidate.row
        if visits.bias != "free":
            return row, row
        up, down = candidate.gain_up, candidate.gain_down
        on_set = restrict(dual, progress.state.in_set)
        i, j, max_up, min_down, _ = most_violating(on_set, visits.bias, up, down)
        is_upper = up - min_down >= max_up - down
        return jnp.where(is_upper, row, i), jnp.where(is_upper, j, row)

    pair_of_set = lambda: (progress.pair.i, progress.pair.j)
    return jnp.stack(lax.cond(candidate.joins, pair_of_candidate, pair_of_set)[: visits.width])


def _cache_rows(
    visits: Visits, progress: Progress, dual: Dual, index: Array, moves: Array
) -> kernel_cache.Rows:
    """The cache with the kernel rows of a step, if its coefficients can change."""
    width, size = visits.width, visits.product_size
    cached = kernel_cache.is_cached(progress.rows, index, max(width, size), size)
    missing = moves & ~jnp.all(cached)
    wanted = moves & jnp.append(True, index[1:] != index[0])  # a pair may be one row twice
    if visits.product_size == PRODUCT:
        # A branch, since XLA would compute the operands of a loop in any case.
        index, wanted = lax.cond(
            missing,
            lambda: _next_rows(visits, progress, dual, index, wanted),
            lambda: (jnp.zeros(PRODUCT, jnp.int32), jnp.zeros(PRODUCT, bool)),
        )
    how = visits.kernel, visits.x, index, wanted, size
    compute = lambda _, rows: kernel_cache.ensure_rows(rows, *how)
    # a loop of one round or none, which, other than a branch, copies no cache
    return lax.fori_loop(0, missing.astype(jnp.int32), compute, progress.rows)


def _next_rows(
    visits: Visits, progress: Progress, dual: Dual, index: Array, wanted: Array
) -> tuple[Array, Array]:
    """The rows of a step, with others that its product may compute, and which to compute.

    The others are rows that will probably join S at one of the next visits, or, if there are none,
    the rows of S with the largest violation.
    """
    state, pair, slot = progress.state, progress.pair, progress.rows.slot
    b, n = visits.rows.shape[0], slot.shape[0]
    position = jnp.minimum(progress.visit + 1 + lax.iota(jnp.int32, 4 * PRODUCT), b - 1)
    next_visits = gather(visits.rows, position)
    up, down = gain_up(dual), gain_down(dual)
    joins = (
        (position < visits.number)
        & (state.passes <= visits.passes)
        & ~gather(state.in_set, next_visits)
        & (gather(slot, next_visits) < 0)
        & ((gather(up, next_visits) >= pair.min_down) | (gather(down, next_visits) <= pair.max_up))
    )
    order, n_joins = kernel_cache.first(joins)
    size = PRODUCT - visits.width
    next_visits = next_visits[order[:size]]
    missing = state.in_set & (slot < 0)
    gains = jnp.maximum(up - pair.min_down, pair.max_up - down)
    in_set = top_k_index(jnp.where(missing, gains, -jnp.inf), min(size, n))
    in_set = jnp.pad(in_set, (0, size - in_set.shape[0]))
    any_joins = n_joins > 0
    other = jnp.where(any_joins, next_visits, in_set)
    place = lax.iota(jnp.int32, size)
    is_row = jnp.where(any_joins, place < n_joins, gather(missing, in_set) & (place < min(size, n)))
    is_row &= ~jnp.any(other[:, None] == index[None, :], axis=1)
    return jnp.concatenate([index, other]), jnp.concatenate([wanted, is_row])


def _change_coef(
    visits: Visits, state: DualState, rows: kernel_cache.Rows, index: Array, own: Dual, moves: Array
) -> DualState:
    """The state after a step on the rows `index`, of the dual `own`, if their coefficients move."""
    width = visits.width
    slot_of = lambda i: jnp.maximum(index_row(rows.slot, i), 0)
    kernel_rows = [index_row(rows.value, slot_of(index[u])) for u in range(width)]
    gram = jnp.diag(own.diag)
    if width == 2:
        product = jnp.where(moves, index_row(kernel_rows[0], index[1]), 0)
        gram = gram + product * (1 - jnp.eye(2, dtype=gram.dtype))
    new, sum_error, _ = STEPS[visits.bias](lambda u: index_row(gram, u), own, state.sum_error)
    change = jnp.where(moves, new.coef - own.coef, 0)
    row = lambda u: add_l2(kernel_rows[u], visits.dual, index[u])
    grad_change = -sum(change[u] * row(u) for u in range(width))
    grad_change = jnp.where(moves, grad_change, jnp.zeros_like(grad_change))
    grad, compensation = two_sum(state.grad, state.compensation, grad_change)
    coef = state.coef
    for u in range(width):
        coef = lax.dynamic_update_index_in_dim(coef, own.coef[u] + change[u], index[u], 0)
    sum_error = jnp.where(moves, sum_error, state.sum_error)
    return DualState(coef, grad, compensation, sum_error, state.weight)


def _discard(visits: Visits, candidate: Candidate, dual: Dual, in_set: Array) -> tuple[Array, Pair]:
    """S after REPROCESS, which removes rows in no violating pair, and its most violating pair."""
    pair = most_violating(restrict(dual, in_set), visits.bias)
    leaves = (
        candidate.active
        & ~candidate.joins
        & in_set
        & (dual.coef == 0)
        & (gain_up(dual) <= pair.min_down)
        & (gain_down(dual) >= pair.max_up)
    )
    # 0 is inside the bounds of real targets, so that all rows might leave: the extremes stay
    if not visits.labels:
        leaves = leaves & (visits.row_numbers != pair.i) & (visits.row_numbers != pair.j)
    in_set = in_set & ~leaves
    # Rows of a violating pair do not leave, so that the pair is that of the smaller S.
    if visits.bias == "free":
        pair = lax.cond(
            pair.max_up > pair.min_down,
            lambda: pair,
            lambda: most_violating(restrict(dual, in_set), visits.bias),
        )
    return in_set, pair


def _count_visit(visits: Visits, state: LasvmState, row: Array, online: Array) -> LasvmState:
    """The state after a visit of a row, which may end a pass."""
    first_visit = online & (index_row(state.stamp, row) < state.passes)
    visited = state.visited + first_visit.astype(jnp.int32)
    pass_ends = visited >= visits.n_positive
    return state._replace(
        stamp=jnp.where(first_visit & (visits.row_numbers == row), state.passes, state.stamp),
        passes=state.passes + pass_ends.astype(jnp.int32),
        visited=jnp.where(pass_ends, 0, visited),
    )


def rows_of(dual: Dual, index: Array) -> Dual:
    """The dual of the rows `index` (q,)."""
    rows = lambda a: jnp.stack([index_row(a, index[u]) for u in range(index.shape[0])])
    return jax.tree.map(rows, dual)


def restrict(dual: Dual, rows: Array) -> Dual:
    """The dual in which only the coefficients of a mask (n,) may change.

    The bounds of the others are their values.

    Reference: A. Bordes et al., JMLR 6, 2005, section 3, where the search for a pair goes over S
        alone.
    """
    low, high = (jnp.where(rows, bound, dual.coef) for bound in dual.bounds[:2])
    return dual._replace(bounds=dual.bounds._replace(low=low, high=high))


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
