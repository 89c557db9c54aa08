"""Budget maintenance by merging: two points are replaced by one between them (Gaussian kernel)."""

from __future__ import annotations

import functools
from dataclasses import KW_ONLY
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from .._node import between, node
from ..kernels import Kernel
from ..numerics import argmax_value, dot, golden_section, hash32, index_row, multiply_high
from ..types import Array, State
from .base import Change, Maintenance, Points
from .removal import remove

GRID = 400  # entries of the table along each axis
# golden section steps, to 0.01 and to 0.001, and Newton steps after the fine search
COARSE, FINE, POLISH = 10, 15, 2


@node
class merge(Maintenance):
    """Replace two points x_i, x_j of one sign by one point z between them (Gaussian kernel).

    Of the points between them, z is the one that changes the function least.

        L = gamma |x_i - x_j|^2;   m = coef_i / (coef_i + coef_j);   z = h x_i + (1 - h) x_j
        s(h) = m exp(-L (1 - h)^2) + (1 - m) exp(-L h^2);   coef_z = (coef_i + coef_j) max_h s(h)
        |w - w'|^2 = (coef_i + coef_j)^2 (m^2 + (1 - m)^2 + 2 m (1 - m) exp(-L) - max_h s(h)^2)

    Point i has the smallest |coef| among points that share their sign with another point, the
    oldest in a tie. Partner j is the candidate whose merge changes the function least. The new
    point is a candidate for both. The h of the chosen pair comes from golden section, Newton's
    method and a comparison with h = 0 and h = 1. So a merge never changes the function more than
    the removal of i.

    Args:
        partners: number of candidates for j, >= 1, drawn without replacement among the points of
            the same sign, one from each stratum of almost equal size; None: all points of that
            sign; structure. With 59, the best candidate is among the best 5 % of all with 95 %
            confidence.
        search: "lookup" reads the change of each pair from a table over (m, exp(-L)); "golden"
            searches h for each pair by golden section to 0.01; structure.

    Returns:
        A maintenance for `jaxsvm.bsgd` and other budgeted solvers.

    Raises:
        ValueError: partners below 1, another search; from the solver, a kernel that is neither
            Gaussian nor a multiple of one.

    Differs from the papers: candidates share the sign of the coefficient, not the label. The table
        is symmetric in m and covers m <= 1/2 only, so that its kink lies on an edge: errors stay
        below 4e-5 instead of 1e-3. h = 0 and h = 1 are candidates; without them distant points
        would cancel each other.

    Example:
        >>> import jax, jaxsvm
        >>> merge = jaxsvm.budget.merge()
        >>> solver = jaxsvm.bsgd(0.1, jaxsvm.kernels.rbf(1.0), budget=2, maintain=merge)
        >>> result = jaxsvm.fit(solver, jaxsvm.dataset([[1.0], [0.9], [-1.0]], [1, 1, -1]),
        ...     jax.random.key(0), steps=20)
        >>> [len(result.model.coef), bool(result.finite)]
        [2, True]

    Reference: Z. Wang, K. Crammer, S. Vucetic, Breaking the curse of kernelization, JMLR 13, 2012,
        section 4.3; T. Glasmachers, S. Qaadan, Speeding up budgeted stochastic gradient descent SVM
        training with precomputed golden section search, LOD 2018, https://arxiv.org/abs/1806.10180;
        A. Smola, B. Schoelkopf, Sparse greedy matrix approximation, ICML 2000, for 59.
    """

    _: KW_ONLY
    partners: int | None = between(1, default=None)
    search: Literal["lookup", "golden"] = "lookup"

    @jax.named_scope("merge")
    def change(self, kernel: Kernel, points: Points, state: State) -> tuple[Change, Any]:
        coef, place = points.coef, lax.iota(jnp.int32, points.budget + 1)
        i, side = _smallest(points)
        row_i, coef_i = points.at(i), index_row(coef, i)
        if self.partners is None:
            j, allowed = all_partners(points, i, side)
            coef_j, sqdist = coef, _sqdist(points, row_i)
        else:
            j, allowed = sample_partners(self.partners, points, i, side)
            coef_j = coef.at[j].get(mode="promise_in_bounds")
            sqdist = _some_sqdist(points, row_i, j)
        scaled_sqdist = width(kernel) * sqdist
        degradation = from_table if self.search == "lookup" else by_search
        sq_change = (coef_i + coef_j) ** 2 * degradation(_share(coef_i, coef_j), scaled_sqdist)
        best, _ = argmax_value(jnp.where(allowed, -sq_change, -jnp.inf))
        j, scaled_sqdist, coef_j = (index_row(a, best) for a in (j, scaled_sqdist, coef_j))
        h, max_s = merge_position(_share(coef_i, coef_j), scaled_sqdist, FINE, POLISH)
        coef = jnp.where(place == j, (coef_i + coef_j) * max_s, coef)
        return Change(coef, i, j, h * row_i + (1 - h) * points.at(j)), state

    def evals(self, budget: int) -> int:
        return budget if self.partners is None else min(self.partners, budget)

    def check_kernel(self, kernel: Kernel) -> None:
        if not mergeable(kernel):
            raise ValueError(
                f"points can be merged under a Gaussian kernel only, got {kernel!r}: take "
                "kernels.rbf, or maintain=budget.remove() or budget.project()"
            )


def width(kernel: Kernel) -> Array:
    """gamma of exp(-gamma |x - z|^2), of a Gaussian kernel or a multiple of one."""
    return kernel.spectrum[1]() ** 2 / 2


def mergeable(kernel: Kernel) -> bool:
    """Whether the kernel is Gaussian, or a multiple of one."""
    spectrum = kernel.spectrum
    return spectrum is not None and spectrum[0] is jax.random.normal


def default_for(kernel: Kernel, *, partners: int | None = 59) -> Maintenance:
    """The default maintenance for a kernel: `merge` where it is Gaussian, `remove` otherwise."""
    return merge(partners=partners) if mergeable(kernel) else remove()


class _Side(NamedTuple):
    """The points of one sign: consecutive places, followed by the new point if it has that sign."""

    first: Array  # ()  int32, the first place
    stored: Array  # ()  int32, the number of stored points
    count: Array  # type: ignore[assignment]  # ()  int32, the number of points, the new one included


def _smallest(points: Points) -> tuple[Array, _Side]:
    """The point of smallest |coef|, and the points of its sign.

    Only points that share their sign with another are considered.
    """
    m, zero = points.budget, jnp.zeros((), jnp.int32)
    place, new_positive = lax.iota(jnp.int32, m + 1), points.coef[m] > 0
    front = points.front + new_positive.astype(jnp.int32)
    back = points.back + (~new_positive).astype(jnp.int32)
    in_front = jnp.where(place < m, place < points.front, new_positive)
    # Of three points two share a sign. A point of coefficient 0 needs no partner: its share is 0
    # and the partner is unchanged.
    has_partner = (jnp.where(in_front, front, back) > 1) | (points.coef == 0)
    i = points.oldest_of(jnp.where(has_partner, -jnp.abs(points.coef), -jnp.inf))
    side = index_row(in_front, i)
    pairs = (zero, m - points.back), (points.front, points.back), (front, back)
    return i, _Side(*(jnp.where(side, *pair) for pair in pairs))


def all_partners(points: Points, i: Array, side: _Side) -> tuple[Array, Array]:
    """All places (m + 1,), and which of them are candidates for the partner of i, (m + 1,) bool."""
    place = lax.iota(jnp.int32, points.budget + 1)
    stored = (place >= side.first) & (place < side.first + side.stored)
    return place, (stored | ((place == points.budget) & (side.count > side.stored))) & (place != i)


def sample_partners(partners: int, points: Points, i: Array, side: _Side) -> tuple[Array, Array]:
    """Candidates for the partner of i (k,), and which of them exist (k,) bool.

    There is one place per stratum.
    """
    k, others = lax.iota(jnp.int32, partners), side.count - 1

    def random_below(bits, below):
        return multiply_high(bits, below.astype(jnp.uint32)).astype(jnp.int32)

    first, last = k * others // partners, (k + 1) * others // partners
    rank = first + random_below(hash32(hash32(k.astype(jnp.uint32)) ^ points.bits), last - first)
    # Strata differ in size by one: a random rotation makes every point equally likely.
    rotation = random_below(hash32(points.bits + jnp.uint32(1)), others)
    rank = (rank + rotation) % jnp.maximum(others, 1)
    rank = jnp.where(others > partners, rank, jnp.minimum(k, others - 1))
    rank_of_i = jnp.where(i < points.budget, i - side.first, side.stored)
    rank = rank + (rank >= rank_of_i).astype(jnp.int32)
    return jnp.where(rank < side.stored, side.first + rank, points.budget), k < others


def _sqdist(points: Points, row: Array) -> Array:
    """|x_j - row|^2 at all places, (m + 1,)."""
    stored = jnp.maximum(points.sqnorm + dot(row, row) - 2 * dot(points.x, row), 0)
    difference = row - points.row
    return jnp.append(stored, dot(difference, difference))


def _some_sqdist(points: Points, row: Array, j: Array) -> Array:
    """|x_j - row|^2 at places j, (k,)."""
    place, difference = jnp.minimum(j, points.budget - 1), row - points.row
    x, sqnorm = (a.at[place].get(mode="promise_in_bounds") for a in (points.x, points.sqnorm))
    stored = jnp.maximum(sqnorm + dot(row, row) - 2 * dot(x, row), 0)
    return jnp.where(j < points.budget, stored, dot(difference, difference))


def _share(a: Array, b: Array) -> Array:
    """a / (a + b) for a and b of one sign; 0 where both are 0."""
    return a / jnp.where(a + b == 0, 1, a + b)


def merge_position(share: Array, length: Array, steps: int, polish: int = 0) -> tuple[Array, Array]:
    """The maximiser h of s over [0, 1] and s(h), by golden section and a comparison with both ends.

    Args:
        share: m in [0, 1], any shape.
        length: L >= 0, the same shape.
        steps: golden section steps; the last interval has length 0.618^steps.
        polish: Newton steps on s'(h) = 0 after them; s itself is flat at its maximum, which limits
            golden section.
    """
    s = lambda h: share * jnp.exp(-length * (1 - h) ** 2) + (1 - share) * jnp.exp(-length * h * h)
    h = golden_section(s, jnp.zeros_like(length), jnp.ones_like(length), steps)

    def newton(_, h):
        part_i = share * jnp.exp(-length * (1 - h) ** 2)
        part_j = (1 - share) * jnp.exp(-length * h * h)
        slope = part_i * (1 - h) - part_j * h
        curve = part_j * (1 - 2 * length * h * h) + part_i * (1 - 2 * length * (1 - h) ** 2)
        step = slope / jnp.where(curve > 0, curve, 1)
        return jnp.where((curve > 0) & (jnp.abs(step) < 1e-2), jnp.clip(h + step, 0, 1), h)

    h = lax.fori_loop(0, polish, newton, h) if polish else h
    best = s(h)
    for end in (jnp.zeros_like(h), jnp.ones_like(h)):
        h, best = jnp.where(s(end) > best, end, h), jnp.maximum(s(end), best)
    return h, best


def by_search(share: Array, length: Array) -> Array:
    """The change by a merge, |w - w'|^2 / (coef_i + coef_j)^2, by golden section to 0.01."""
    _, best = merge_position(share, length, COARSE)
    square = share**2 + (1 - share) ** 2 + 2 * share * (1 - share) * jnp.exp(-length)
    return jnp.maximum(square - best * best, 0)


def from_table(share: Array, length: Array) -> Array:
    """The change by a merge, by bilinear interpolation in the table.

    The change is |w - w'|^2 / (coef_i + coef_j)^2.
    """
    entries = jnp.asarray(table(), length.dtype).reshape(-1)
    a, e = 2 * (GRID - 1) * jnp.minimum(share, 1 - share), (GRID - 1) * jnp.exp(-length)
    row, column = (jnp.clip(v.astype(jnp.int32), 0, GRID - 2) for v in (a, e))
    down, right = a - row.astype(a.dtype), e - column.astype(e.dtype)
    entry = lambda offset: entries.at[row * GRID + column + offset].get(mode="promise_in_bounds")
    upper = (1 - right) * entry(0) + right * entry(1)
    lower = (1 - right) * entry(GRID) + right * entry(GRID + 1)
    return (1 - down) * upper + down * lower


@functools.cache
def table() -> np.ndarray:
    """The change by a merge over m (rows) and exp(-L) (columns), (GRID, GRID) float64.

    m is in [0, 1/2] and exp(-L) in [0, 1].
    """
    m, kappa = np.meshgrid(np.linspace(0, 0.5, GRID), np.linspace(0, 1, GRID), indexing="ij")
    length = -np.log(np.maximum(kappa, np.exp(-700)))  # exp(-700) is negligible for every m
    s = lambda h: m * np.exp(-length * (1 - h) ** 2) + (1 - m) * np.exp(-length * h**2)
    low, high, ratio = np.zeros_like(m), np.ones_like(m), (5**0.5 - 1) / 2
    for _ in range(48):  # to 1e-10
        left, right = high - ratio * (high - low), low + ratio * (high - low)
        go_left = s(left) >= s(right)
        low, high = np.where(go_left, low, left), np.where(go_left, right, high)
    # as m <= 1/2, `low` stays 0 where that is the maximiser
    return np.maximum(m**2 + (1 - m) ** 2 + 2 * m * (1 - m) * kappa - s(low) ** 2, 0)
