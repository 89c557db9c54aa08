"""Exact counts of kernel evaluations beyond the range of int32."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from ..types import EVALS_BITS, Array, Count

_LOW = 2**EVALS_BITS - 1


def split_count(number: int | Array | Count) -> Count:
    """A count as a `Count` of two int32 parts.

    Args:
        number: a Python integer below 2^51, an int32, or a `Count`; >= 0.

    Example:
        >>> count = split_count(50_000**2)
        >>> int(count.high) * 2**EVALS_BITS + int(count.low)
        2500000000
    """
    if isinstance(number, Count):
        return number
    if isinstance(number, int):
        return Count(
            jnp.asarray(number >> EVALS_BITS, jnp.int32), jnp.asarray(number & _LOW, jnp.int32)
        )
    number = jnp.asarray(number, jnp.int32)
    return Count(number >> EVALS_BITS, number & _LOW)


def add_counts(first: int | Array | Count, second: int | Array | Count) -> Count:
    """The sum of two counts."""
    first, second = split_count(first), split_count(second)
    low = first.low + second.low
    return Count(first.high + second.high + (low >> EVALS_BITS), low & _LOW)


def sum_counts(counts: Array | Count) -> Count:
    """The sum of (k,) counts, k <= 2,048."""
    counts = split_count(counts)
    low = jnp.sum(counts.low, dtype=jnp.int32)
    return Count(jnp.sum(counts.high, dtype=jnp.int32) + (low >> EVALS_BITS), low & _LOW)


def multiply_counts(first: int | Array, second: int | Array) -> Count:
    """The product of two integers in [0, 2^30), exact below 2^51."""
    a, b = (_digits(number) for number in (first, second))
    # in units of 2^(10 k)
    terms: list[Any] = [sum(a[i] * b[k - i] for i in range(3) if 0 <= k - i < 3) for k in range(5)]
    low = terms[0] + ((terms[1] & 1023) << 10)
    high = terms[2] + (terms[1] >> 10) + (terms[3] << 10) + (terms[4] << 20)
    return Count(high + (low >> EVALS_BITS), low & _LOW)


def _digits(number: int | Array) -> tuple[Array, Array, Array]:
    """The three digits in base 2^10, least significant first."""
    number = jnp.asarray(number, jnp.int32)
    return number & 1023, (number >> 10) & 1023, number >> 20


def narrow_count(count: Count, most: int) -> Array | Count:
    """The count as an int32 if its upper bound `most` fits into one, else unchanged."""
    return (count.high << EVALS_BITS) + count.low if most < 2**31 else count


def times_count(times: Array, each: int, most: int) -> Array | Count:
    """The product of `times` and `each`: an int32 if most * each fits into one, else a `Count`.

    Args:
        times: () int32, in [0, most].
        each: in [0, 2^30).
        most: upper bound of `times`, below 2^30.
    """
    return times * each if most * each < 2**31 else multiply_counts(times, each)
