"""Weighted sums over the entries of a range whose keys are below or above a bound."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jax import lax

from ..types import Array


class Ranges(NamedTuple):
    """Ranges of positions, from `start` up to but not including `end`."""

    start: Array  # (q,)  int32
    end: Array  # (q,)  int32


def key_bits(keys: Array) -> Array:
    """The number of bits of the largest of integer keys >= 0, () int32."""
    return 32 - lax.clz(jnp.max(keys).astype(jnp.int32))


def sums_by_key(
    keys: Array, values: Array, bits: Array, bound: Array, below: Ranges, above: Ranges
) -> tuple[Array, Array]:
    """Sums over the entries with keys < bound in one range, and > bound in another.

    The wavelet matrix: the sequence is partitioned by one bit of the keys after the other, first
    the highest. Ranges stay ranges, and one level takes prefix sums and a few reads for each range:
    O((n + q) log(largest key)) in all.

    Args:
        keys: (n,) int32, >= 0.
        values: (m, n) m numbers of each entry.
        bits: () int32, from `key_bits`.
        bound: (q,) int32, >= 0, a key for each pair of ranges.
        below: q ranges, for keys below the bound.
        above: q ranges, for keys above the bound.

    Returns:
        (m, q) and (m, q).

    Reference: F. Claude, G. Navarro, A. Ordonez, The wavelet matrix: an efficient wavelet tree for
        large alphabets, Information Systems 47, 2015.
    """
    n, q = keys.shape[0], bound.shape[0]
    place = lax.iota(jnp.int32, n)

    def level(k, carry):
        keys, values, below, above, sum_below, sum_above = carry
        shift = bits - 1 - k
        is_one = (keys >> shift) & 1
        wants_one = ((bound >> shift) & 1) == 1
        ones = _prefix_sums(is_one)
        n_zeros = n - ones[-1]
        # a stable partition: the zeros first
        target = jnp.where(is_one == 1, n_zeros + ones[:-1], place - ones[:-1])
        order = jnp.zeros_like(place).at[target].set(place, unique_indices=True)
        keys, values = keys[order], values[:, order]
        totals = _prefix_sums(values)

        def split(ranges):
            """Where the zeros and the ones of the ranges are now."""
            first, last = ones[ranges.start], ones[ranges.end]
            zeros = Ranges(ranges.start - first, ranges.end - last)
            return zeros, Ranges(n_zeros + first, n_zeros + last)

        total = lambda ranges: totals[:, ranges.end] - totals[:, ranges.start]

        def choose(zeros, ones):
            return Ranges(*(jnp.where(wants_one, b, a) for a, b in zip(zeros, ones, strict=True)))

        zeros_below, ones_below = split(below)
        zeros_above, ones_above = split(above)
        sum_below += jnp.where(wants_one, total(zeros_below), 0)
        sum_above += jnp.where(wants_one, 0, total(ones_above))
        below, above = choose(zeros_below, ones_below), choose(zeros_above, ones_above)
        return keys, values, below, above, sum_below, sum_above

    zero = jnp.zeros((values.shape[0], q), values.dtype)
    return lax.fori_loop(0, bits, level, (keys, values, below, above, zero, zero))[-2:]


def _prefix_sums(a: Array) -> Array:
    """Sums of the first 0 .. n entries along the last axis."""
    zero = jnp.zeros((*a.shape[:-1], 1), a.dtype)
    return jnp.concatenate([zero, jnp.cumsum(a, axis=-1, dtype=a.dtype)], axis=-1)
