"""Merging: two points become one between them (Gaussian kernel)."""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax

from ..checks import integer
from ..kernels import Kernel
from ..numerics import argmax_value, dot, golden_section, hash32, index_row, multiply_high
from ..recipe import check_choice
from ..types import Array
from .base import Change, Maintenance, Points, maintenance
from .remove import remove

GRID = 400  # of the table, each way
COARSE, FINE, POLISH = 10, 15, 2  # steps of golden section, to 0.01 and to 0.001, and of Newton's method after these


@maintenance
def merge(*, partners: int | None = None, search: str = "lookup") -> Maintenance:
    """Replace two points x_i, x_j of one sign by one between them, so that the function changes least (Gaussian kernel).

        L = gamma |x_i - x_j|^2;   m = coef_i / (coef_i + coef_j);   z = h x_i + (1 - h) x_j
        s(h) = m exp(-L (1 - h)^2) + (1 - m) exp(-L h^2);   coef_z = (coef_i + coef_j) max_h s(h)
        |w - w'|^2 = (coef_i + coef_j)^2 (m^2 + (1 - m)^2 + 2 m (1 - m) exp(-L) - max_h s(h)^2)

    i has the smallest |coef| among points that share their sign with another (the oldest of several), j is the partner that
    changes the function least. The newcomer is one of the points. Then h by golden section, Newton's method and the ends, so
    that a merge never changes the function more than leaving i out would.

    Args:
        partners: how many are looked at, drawn without replacement among the points of the same sign, one from each of so many
            strata as equal as whole numbers allow; None: all of them; structure. With 59 the best is among the best 5 % with
            95 % confidence.
        search: "lookup" reads the change of a pair from a table over (m, exp(-L)), "golden" finds h for every pair by golden
            section to 0.01; structure.

    Raises:
        ValueError: partners below 1, another search; from the solver for kernels that are not Gaussian (a multiple of one
            will do).

    Differs from the papers: candidates have the sign of the coefficient, not of the label; the table covers m <= 1/2 only
        (it is symmetric), so that its kink lies on an edge: errors stay below 4e-5 instead of 1e-3; the ends of h are looked
        at, without which far points erase each other.

    Example:
        >>> import jax, jaxsvm
        >>> solver = jaxsvm.bsgd(0.1, jaxsvm.kernels.rbf(1.0), budget=2, maintain=merge())
        >>> run = jaxsvm.fit(solver, jaxsvm.dataset([[1.0], [0.9], [-1.0]], [1, 1, -1]), jax.random.key(0), steps=20)
        >>> [len(run.model.coef), bool(run.finite)]
        [2, True]

    Reference: Z. Wang, K. Crammer, S. Vucetic, Breaking the curse of kernelization, JMLR 13, 2012, section 4.3; T. Glasmachers,
        S. Qaadan, Speeding up budgeted stochastic gradient descent SVM training with precomputed golden section search,
        LOD 2018, https://arxiv.org/abs/1806.10180; A. Smola, B. Schoelkopf, Sparse greedy matrix approximation, ICML 2000,
        for 59.
    """
    check_choice("search", search, ("lookup", "golden"))
    if partners is not None:
        integer("partners", partners, 1, note=", or None for all")
    degradation = from_table if search == "lookup" else by_search

    def change(kernel, points, memo):
        coef, place = points.coef, lax.iota(jnp.int32, points.budget + 1)
        i, side = _smallest(points)
        j, allowed = all_partners(points, i, side) if partners is None else sample_partners(partners, points, i, side)
        own, a = points.at(i), index_row(coef, i)
        if partners is None:
            b, length = coef, width(kernel) * _sqdist(points, own)
        else:
            b, length = coef.at[j].get(mode="promise_in_bounds"), width(kernel) * _some_sqdist(points, own, j)
        degraded = (a + b) ** 2 * degradation(_share(a, b), length)
        best, _ = argmax_value(jnp.where(allowed, -degraded, -jnp.inf))
        j, length, b = index_row(j, best), index_row(length, best), index_row(b, best)
        h, peak = merge_position(_share(a, b), length, FINE, POLISH)
        coef = jnp.where(place == j, (a + b) * peak, coef)
        return Change(coef, i, j, h * own + (1 - h) * points.at(j)), memo

    return Maintenance(change, evals=lambda budget: budget if partners is None else min(partners, budget), check=width)


def width(kernel: Kernel) -> Array:
    """gamma of exp(-gamma |x - z|^2).

    Raises:
        ValueError: the kernel is not Gaussian.
    """
    if not mergeable(kernel):
        raise ValueError(
            f"points can be merged under a Gaussian kernel only, got {kernel!r}: take kernels.rbf, or maintain=budget.remove() "
            "or budget.project()"
        )
    return kernel.spectrum[1] ** 2 / 2


def mergeable(kernel: Kernel) -> bool:
    """Whether the kernel is Gaussian, or a multiple of one."""
    law = kernel.spectrum
    return law is not None and law[0] == "normal"


def default_for(kernel: Kernel, *, partners: int | None = 59) -> Maintenance:
    """Maintenance for a kernel that is not known beforehand: merging where it is Gaussian, removal elsewhere."""
    return merge(partners=partners) if mergeable(kernel) else remove()


class _Side(NamedTuple):
    """The points of one sign: consecutive places, and maybe the newcomer after them."""

    first: Array  # ()  int32, the first place
    stored: Array  # ()  int32, how many places
    count: Array  # ()  int32, the newcomer with them


def _smallest(points: Points) -> tuple[Array, _Side]:
    """The point to go, of two at least that share its sign, and the points of this sign."""
    m, zero = points.budget, jnp.zeros((), jnp.int32)
    place, ahead = lax.iota(jnp.int32, m + 1), points.coef[m] > 0
    front, back = points.front + ahead.astype(jnp.int32), points.back + (~ahead).astype(jnp.int32)
    in_front = jnp.where(place < m, place < points.front, ahead)
    # Of three points two share a sign. One that counts nothing goes alone: its share is 0, and its partner stays as it is.
    paired = (jnp.where(in_front, front, back) > 1) | (points.coef == 0)
    i = points.oldest_of(jnp.where(paired, -jnp.abs(points.coef), -jnp.inf))
    side = index_row(in_front, i)
    pick = functools.partial(jnp.where, side)
    return i, _Side(pick(zero, m - points.back), pick(points.front, points.back), pick(front, back))


def all_partners(points: Points, i: Array, side: _Side) -> tuple[Array, Array]:
    """All places, and which of them are partners."""
    place = lax.iota(jnp.int32, points.budget + 1)
    stored = (place >= side.first) & (place < side.first + side.stored)
    return place, (stored | ((place == points.budget) & (side.count > side.stored))) & (place != i)


def sample_partners(partners: int, points: Points, i: Array, side: _Side) -> tuple[Array, Array]:
    """Places of partners, one of each stratum, and which of them count: fewer where there are no more."""
    k, others = lax.iota(jnp.int32, partners), side.count - 1
    drawn = lambda bits, below: multiply_high(bits, below.astype(jnp.uint32)).astype(jnp.int32)  # noqa: E731
    first, after = k * others // partners, (k + 1) * others // partners
    rank = first + drawn(hash32(hash32(k.astype(jnp.uint32)) ^ points.bits), after - first)
    # Strata differ in size by one: from a random beginning on, each is as likely.
    rank = (rank + drawn(hash32(points.bits + jnp.uint32(1)), others)) % jnp.maximum(others, 1)
    rank = jnp.where(others > partners, rank, jnp.minimum(k, others - 1))
    own = jnp.where(i < points.budget, i - side.first, side.stored)
    rank = rank + (rank >= own).astype(jnp.int32)
    return jnp.where(rank < side.stored, side.first + rank, points.budget), k < others


def _sqdist(points: Points, own: Array) -> Array:
    """|x_j - own|^2 at all places, (m + 1,)."""
    stored = jnp.maximum(points.sqnorm + dot(own, own) - 2 * dot(points.x, own), 0)
    apart = own - points.row
    return jnp.append(stored, dot(apart, apart))


def _some_sqdist(points: Points, own: Array, j: Array) -> Array:
    """|x_j - own|^2 at some places, (k,)."""
    place, apart = jnp.minimum(j, points.budget - 1), own - points.row
    x, sqnorm = (a.at[place].get(mode="promise_in_bounds") for a in (points.x, points.sqnorm))
    stored = jnp.maximum(sqnorm + dot(own, own) - 2 * dot(x, own), 0)
    return jnp.where(j < points.budget, stored, dot(apart, apart))


def _share(a: Array, b: Array) -> Array:
    """a / (a + b) of numbers of one sign, 0 where both are 0."""
    return a / jnp.where(a + b == 0, 1, a + b)


def merge_position(share: Array, length: Array, steps: int, polish: int = 0) -> tuple[Array, Array]:
    """h in [0, 1] and s(h), by golden section and the two ends.

    Args:
        share: m in [0, 1], any shape.
        length: L >= 0, the same shape.
        steps: of golden section; the interval is 0.618^steps long in the end.
        polish: steps of Newton's method on s'(h) = 0 from there, which is flat where golden section looks.
    """
    s = lambda h: share * jnp.exp(-length * (1 - h) ** 2) + (1 - share) * jnp.exp(-length * h * h)  # noqa: E731
    h = golden_section(s, jnp.zeros_like(length), jnp.ones_like(length), steps)

    def newton(_, h):
        near, far = share * jnp.exp(-length * (1 - h) ** 2), (1 - share) * jnp.exp(-length * h * h)
        slope, bend = near * (1 - h) - far * h, far * (1 - 2 * length * h * h) + near * (1 - 2 * length * (1 - h) ** 2)
        step = slope / jnp.where(bend > 0, bend, 1)
        return jnp.where((bend > 0) & (jnp.abs(step) < 1e-2), jnp.clip(h + step, 0, 1), h)

    h = lax.fori_loop(0, polish, newton, h) if polish else h
    best = s(h)
    for end in (jnp.zeros_like(h), jnp.ones_like(h)):
        h, best = jnp.where(s(end) > best, end, h), jnp.maximum(s(end), best)
    return h, best


def by_search(share: Array, length: Array) -> Array:
    """What a merge changes, |w - w'|^2 / (coef_i + coef_j)^2, by golden section to 0.01."""
    _, best = merge_position(share, length, COARSE)
    return jnp.maximum(share**2 + (1 - share) ** 2 + 2 * share * (1 - share) * jnp.exp(-length) - best * best, 0)


def from_table(share: Array, length: Array) -> Array:
    """What a merge changes, |w - w'|^2 / (coef_i + coef_j)^2, read from the table between its four nearest entries."""
    entries = jnp.asarray(table(), length.dtype).reshape(-1)
    a, e = 2 * (GRID - 1) * jnp.minimum(share, 1 - share), (GRID - 1) * jnp.exp(-length)
    row, column = (jnp.clip(v.astype(jnp.int32), 0, GRID - 2) for v in (a, e))
    down, right = a - row.astype(a.dtype), e - column.astype(e.dtype)
    entry = lambda offset: entries.at[row * GRID + column + offset].get(mode="promise_in_bounds")  # noqa: E731
    upper = (1 - right) * entry(0) + right * entry(1)
    lower = (1 - right) * entry(GRID) + right * entry(GRID + 1)
    return (1 - down) * upper + down * lower


@functools.cache
def table() -> np.ndarray:
    """What a merge changes, over m in [0, 1/2] (rows) and exp(-L) in [0, 1] (columns), (GRID, GRID), in float64."""
    m, kappa = np.meshgrid(np.linspace(0, 0.5, GRID), np.linspace(0, 1, GRID), indexing="ij")
    length = -np.log(np.maximum(kappa, np.exp(-700)))  # exp(-700) is 0 beside any m
    s = lambda h: m * np.exp(-length * (1 - h) ** 2) + (1 - m) * np.exp(-length * h**2)  # noqa: E731
    low, high, ratio = np.zeros_like(m), np.ones_like(m), (5**0.5 - 1) / 2
    for _ in range(48):  # to 1e-10
        left, right = high - ratio * (high - low), low + ratio * (high - low)
        leftwards = s(left) >= s(right)
        low, high = np.where(leftwards, low, left), np.where(leftwards, right, high)
    best = np.maximum(np.maximum(s(low), s(high)), np.maximum(s(0.0), s(1.0)))
    return np.maximum(m**2 + (1 - m) ** 2 + 2 * m * (1 - m) * kappa - best**2, 0)
