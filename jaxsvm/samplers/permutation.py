"""All rows in random order, epoch after epoch."""

from __future__ import annotations

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp

from .._node import between, node, register
from ..numerics import hash32
from ..types import Array, Batch
from .base import Batches, positive_rows


@register("EpochsState")
class EpochsState(NamedTuple):
    """A key, and the rows of positive weight; of `uniform` without replacement, too."""

    key: Array  # ()
    rows: Array  # (n,)  int32, rows of positive weight first, in order
    count: Array  # type: ignore[assignment]  # ()   int32, how many they are


ROUNDS = 16  # 8 leave the orders of 4 to 6 rows measurably uneven


def shuffled(position: Array, count: Array, words: Array, n: int) -> Array:
    """The image of each position under a keyed permutation of 0 .. count-1.

    A Feistel network permutes a grid slightly larger than `count`; it is applied again until the
    image is below `count` (cycle walking). This shuffle needs no memory, and any position can be
    evaluated alone. A position is (row, column); each round rotates the row by a hash of the
    column, or the column by a hash of the row.

    Args:
        position: (b,) integers.
        count: () integer, >= 1.
        words: (r,) uint32, the key, r even; or (r, b), one for each position. `ROUNDS` of them make
            any order as likely as another.
        n: at least `count`; structure.

    Returns:
        (b,) int32.

    Reference: J. Black, P. Rogaway, Ciphers with arbitrary finite domains, CT-RSA 2002.
    """
    position, count = position.astype(jnp.uint32), count.astype(jnp.uint32)
    rows = jnp.sqrt(count.astype(jnp.float32)).astype(jnp.uint32) + 1
    columns = (count + rows - 1) // rows

    def rounds(x):
        row = x // columns
        column = x - row * columns
        for word in range(0, words.shape[0], 2):
            row = _rotate(row, column, rows, words[word])
            column = _rotate(column, row, columns, words[word + 1])
            # JAX 0.12 would compile all rounds as one loop, whose vectorisation does not end.
            row, column = jax.lax.optimization_barrier((row, column))
        return row * columns + column

    def walk(start):
        """The first image below `count`, or `start` for a cycle that never goes below."""
        is_extra = lambda x: (x >= count) & (x != start)

        # the first pass is made here, too, as the rounds are most of what is compiled
        def body(carry):
            x, is_first = carry
            return jnp.where(is_first | is_extra(x), rounds(x), x), jnp.zeros((), bool)

        goes_on = lambda carry: carry[1] | jnp.any(is_extra(carry[0]))
        return jax.lax.while_loop(goes_on, body, (start, jnp.ones((), bool)))[0]

    extra = math.isqrt(n) + 2  # an upper bound on the grid cells at or above `count`
    if words.ndim > 1 or position.shape[0] < extra:
        return walk(position).astype(jnp.int32)
    # At most `extra` cells lie outside: each of them is walked once, and the images of all
    # positions are looked up.
    behind = jnp.minimum(count + jnp.arange(extra, dtype=jnp.uint32), rows * columns - 1)
    image, image_of_extra = rounds(position), walk(behind)
    outside = image >= count
    image = jnp.where(outside, image_of_extra[jnp.where(outside, image - count, 0)], image)
    return image.astype(jnp.int32)


def in_rounds(key: Array, position: Array, size: Array, words: int, n: int) -> Array:
    """As `shuffled`, of positions that pass over 0 .. size-1 several times, in new orders."""
    bits = jax.random.bits(key, (words, 1), jnp.uint32)
    bits = bits + hash32((position // size).astype(jnp.uint32))[None, :]
    return shuffled(position % size, size, bits, n)


@jax.jit  # traced once for all rounds
def _rotate(index: Array, key_part: Array, size: Array, word: Array) -> Array:
    """Index + hash(key_part + word) mod size, (b,), for size below 2^16."""
    bits = hash32(key_part + word)
    index = index + ((bits >> 16) * size + ((bits & 0xFFFF) * size >> 16) >> 16)  # multiply_high
    return jnp.where(index >= size, index - size, index)


@node
class epochs(Batches):
    """Passes over the rows of positive weight, each in a new random order.

    The last batch of a pass is padded. A row has weight w_i / (mean positive weight) in the batch.

    Args:
        batch_size: rows per step, >= 1; structure.
        shuffle: False keeps the stored order; structure.

    Returns:
        A sampler.

    Raises:
        ValueError: batch_size below 1 or not an integer.

    Example:
        >>> import jax, jaxsvm
        >>> s = jaxsvm.samplers.epochs(2); data = jaxsvm.dataset([[0.0], [1.0], [2.0]], [1, -1, 1])
        >>> first_pass = jax.jit(lambda key: s.draw(s.init(key, data), 0, 2))(jax.random.key(0))
        >>> sorted(first_pass.ravel().tolist())
        [-1, 0, 1, 2]
    """

    batch_size: int = between(1, default=1)
    shuffle: bool = True

    def init(self, key: Array, data: Batch) -> EpochsState:
        return EpochsState(key, *positive_rows(data))

    def draw_one(self, s: EpochsState, t: Array) -> Array:
        b = self.batch_size
        steps_per_pass = jnp.maximum(-(-s.count // b), 1)  # steps in a pass
        position = t % steps_per_pass * b + jnp.arange(b, dtype=jnp.int32)
        is_row = position < s.count
        position = jnp.where(is_row, position, jnp.zeros_like(position))
        if self.shuffle:
            key = jax.random.fold_in(s.key, t // steps_per_pass)
            words = jax.random.bits(key, (ROUNDS,), jnp.uint32)
            position = shuffled(position, s.count, words, s.rows.shape[0])
        return jnp.where(is_row, s.rows[position], -1)
