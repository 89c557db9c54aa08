"""Hashing and multiplication of 32-bit integers."""

from __future__ import annotations

import numpy as np

from ..types import Array


def hash32(bits: Array) -> Array:
    """A 32-bit integer hash: the finaliser of MurmurHash3.

    Every input bit affects every output bit.
    """
    bits = (bits ^ (bits >> 16)) * np.uint32(0x85EBCA6B)
    bits = (bits ^ (bits >> 13)) * np.uint32(0xC2B2AE35)
    return bits ^ (bits >> 16)


def multiply_high(a: Array, b: Array) -> Array:
    """The upper 32 bits of the 64-bit product of two uint32 arrays, without 64-bit integers."""
    a_high, a_low, b_high, b_low = a >> 16, a & 0xFFFF, b >> 16, b & 0xFFFF
    middle = a_high * b_low + (a_low * b_low >> 16)
    return a_high * b_high + (middle >> 16) + ((middle & 0xFFFF) + a_low * b_high >> 16)
