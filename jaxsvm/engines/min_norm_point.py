"""The point of least norm in a convex hull."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from ..numerics import argmax_value, dot
from ..types import Array

COMPACT = 128  # the system of at most so many active vectors, of more than twice as many, is small


@jax.named_scope("nearest_point")
def nearest_point(
    gram: Array,
    live: Array,
    gain: Array | None = None,
    start: tuple[Array, Array] | None = None,
) -> Array:
    """The convex weights of the minimum norm point of m vectors.

        argmin_w w' gram w / 2 - gain' w,   w >= 0 of sum 1

    For two vectors h, g in closed form: h has weight clip(<g, g - h> / |g - h|^2, 0, 1), 0 where
    they are equal. For more by an active set method, one linear system per cycle. A cycle aims at
    the minimum over the affine hull of the active vectors. If that lies outside of their convex
    hull, it stops at the boundary and drops one vector. Otherwise the vector of the steepest
    descent joins, until none is left.

    Args:
        gram: (m, m) inner products of the vectors.
        live: (m,) bool, the vectors that exist; at least one.
        gain: (m,) linear term; None: 0.
        start: convex weights (m,), and the vectors (m,) bool that are active at first: at least
            those of positive weight. None: the last live vector. Two vectors need no start.

    Returns:
        (m,) weights, 0 where there is no vector; without a start, with their derivatives.

    Reference: P. Wolfe, Finding the nearest point in a polytope, Mathematical Programming 11, 1976;
        of two: D. Zhang, S. Sen, A stochastic conjugate subgradient algorithm for kernelized
        support vector machines, algorithm 1.
    """
    m = gram.shape[0]
    gain = jnp.zeros(m, gram.dtype) if gain is None else gain
    if m == 2:
        lead, scale = gram[1, 1] - gram[0, 1] + gain[0] - gain[1], gram[0, 0] + gram[1, 1]
        # 0 for equal vectors
        curve = jnp.maximum(scale - 2 * gram[0, 1], 4 * jnp.finfo(gram.dtype).eps * scale)
        equal = curve <= 0
        inner = jnp.clip(lead / jnp.where(equal, 1, curve), 0, 1)
        h = jnp.where(equal, (lead > 0).astype(gram.dtype), inner)
        h = jnp.where(live[0], jnp.where(live[1], h, 1), 0)
        return jnp.stack([h, 1 - h])
    # a constant of the search, whose loop has no reverse mode
    scale = lax.stop_gradient(jnp.max(jnp.where(live, jnp.diagonal(gram), 0)))
    # keeps the system regular for equal vectors
    least_square = 4 * jnp.finfo(gram.dtype).eps * jnp.where(scale > 0, scale, 1)

    def on_plane(gram, gain, active):
        if m <= 2 * COMPACT:
            return on_plane_of(gram, gain, active)

        def compact():
            index = lax.top_k(active.astype(jnp.int32), COMPACT)[1]
            weight = on_plane_of(gram[index][:, index], gain[index], active[index])
            return jnp.zeros_like(gain).at[index].set(weight)

        # most vectors are not active as a rule
        is_small = jnp.sum(active.astype(jnp.int32), dtype=jnp.int32) <= COMPACT
        return lax.cond(is_small, compact, lambda: on_plane_of(gram, gain, active))

    def on_plane_of(gram, gain, active):
        size, active_float = gain.shape[0], active.astype(gram.dtype)
        active_gram = jnp.where(active[:, None] & active[None, :], gram, 0)
        active_gram = active_gram + jnp.diag(jnp.where(active, least_square, 1))
        last = [active_float[None, :], jnp.zeros((1, 1), gram.dtype)]
        system = jnp.block([[active_gram, active_float[:, None]], last])
        solution = jnp.linalg.solve(system, jnp.append(jnp.where(active, gain, 0), 1))
        return jnp.where(active, solution[:size], 0)

    def cycle(carry):
        weight, active, cycles, _ = carry
        target = on_plane(fixed[0], fixed[1], active)
        in_hull = jnp.all(target >= 0)
        ratio = jnp.where(target < 0, weight / jnp.where(target < 0, weight - target, 1), jnp.inf)
        dropped, _ = argmax_value(-ratio)
        boundary = weight + jnp.where(in_hull, 0, ratio[dropped]) * (target - weight)
        boundary = jnp.maximum(boundary, 0).at[dropped].set(0)
        weight = jnp.where(in_hull, target, boundary)
        slope = jnp.where(live, fixed[1] - dot(fixed[0], weight), -jnp.inf)
        joining, steepest = argmax_value(slope)
        gap = steepest - dot(weight, jnp.where(live, slope, 0))
        done = in_hull & ((gap <= 2 * least_square) | active[joining])
        more, fewer = active.at[joining].set(True), active.at[dropped].set(False)
        next_active = jnp.where(in_hull, more, fewer)
        return weight, jnp.where(done, active, next_active), cycles + 1, done

    fixed = lax.stop_gradient((gram, gain))
    entry = jnp.arange(m, dtype=jnp.int32) == m - 1 - argmax_value(live[::-1].astype(jnp.int32))[0]
    first = (entry.astype(gram.dtype), entry) if start is None else start
    initial = (*first, jnp.zeros((), jnp.int32), jnp.zeros((), bool))
    goes_on = lambda carry: ~carry[3] & (carry[2] < 5 * m)
    weight, active, _, done = lax.while_loop(goes_on, cycle, initial)
    if start is not None:
        return weight / jnp.sum(weight)
    # Solve once more outside of the loop: while loops have no reverse-mode derivative.
    weight = jnp.where(done, jnp.maximum(on_plane(gram, gain, active), 0), weight)
    return weight / jnp.sum(weight)
