"""Projection as a step of an optax chain, and projections that optax lacks."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax

from .checks import as_number, calling, check_nonnegative, shown
from .numerics import bisect, dot
from .types import Array, Scalar

__all__ = ["ball", "box_section", "keep", "product", "shorten"]


def keep(projection: Callable[[Any], Any]) -> optax.GradientTransformation:
    """A transformation that keeps the parameters in a set.

    The update u at parameters p becomes projection(p + u) - p. It is the last step of a chain; only
    `average_iterates` may follow.

    Args:
        projection: parameters -> parameters, such as `lambda w:
            optax.projections.projection_l2_ball(w, 10.0)`.

    Example:
        >>> import jax.numpy as jnp, jaxsvm, optax
        >>> tx = optax.chain(optax.sgd(1.0), jaxsvm.keep(lambda w: jnp.clip(w, -1, 1)))
        >>> params = jnp.zeros(2)
        >>> updates, _ = tx.update(jnp.array([-5.0, 0.5]), tx.init(params), params)
        >>> optax.apply_updates(params, updates).tolist()
        [1.0, -0.5]
    """
    if not callable(projection):
        raise TypeError(f"projection must be a function of the parameters, got {shown(projection)}")

    def update(updates, params=None):
        if params is None:
            raise ValueError("keep needs the parameters: call update(updates, state, params)")
        unprojected = jax.tree.map(lambda p, u: p + u, params, updates)
        with calling("projection", projection, "of the parameters to parameters", unprojected):
            projected = projection(unprojected)
        expected, actual = (jax.tree.map(jnp.shape, tree) for tree in (params, projected))
        if expected != actual:  # broadcasting would hide the error
            raise ValueError(
                "projection must return parameters of the shapes it was given, "
                f"{expected}, got {actual}"
            )
        return jax.tree.map(lambda q, p: q - p, projected, params)

    return optax.stateless(update)


def shorten(square: Array, radius: Scalar) -> Array:
    """The factor min(1, radius / sqrt(square)) of the projection onto a ball.

    It is that of a vector of squared norm `square`.
    """
    outside = square > radius * radius
    safe = jnp.where(outside, square, jnp.ones_like(square))
    return jnp.where(outside, radius * jax.lax.rsqrt(safe), jnp.ones_like(square))


def ball(radius: Scalar) -> Callable[[Any], Any]:
    """The projection onto the Euclidean ball, w min(1, radius / |w|).

    The same map as `optax.projections.projection_l2_ball`: |w| is the norm of all numbers of an
    array of any shape, or of a tree of arrays. Of a vector it is a dot product, which halves the
    time of loops over single rows.

    Args:
        radius: >= 0.

    Raises:
        ValueError: radius below 0, or not a scalar.
    """
    check_nonnegative(radius=radius)
    radius = as_number("radius", radius)

    def project(w):
        flat = [jnp.ravel(leaf) for leaf in jax.tree.leaves(w)]
        if not flat:
            return w
        factor = shorten(functools.reduce(jnp.add, [dot(leaf, leaf) for leaf in flat]), radius)
        return jax.tree.map(lambda leaf: leaf * factor.astype(jnp.result_type(leaf)), w)

    return project


def product(sets: dict[str, Callable]) -> Callable[[Any], Any]:
    """The projection onto a product of sets, one per named part of the parameters.

    Other parts are unchanged.

    Args:
        sets: part name -> projection, for parameters that are a dict or a named tuple.

    Raises:
        TypeError: sets is not such a dict.

    Example:
        >>> import jax.numpy as jnp, jaxsvm
        >>> ball, interval = jaxsvm.projections.ball(1.0), lambda b: jnp.clip(b, -2, 2)
        >>> both = jaxsvm.projections.product({"w": ball, "b": interval})
        >>> {k: v.tolist() for k, v in both({"w": jnp.array([3.0, 4.0]),
        ...     "b": jnp.array(9.0)}).items()}
        {'w': [0.6000000238418579, 0.800000011920929], 'b': 2.0}
    """
    if not isinstance(sets, dict) or not all(map(callable, sets.values())):
        raise TypeError(f"sets must be a dict, part name -> projection, got {shown(sets)}")

    def project(params):
        if isinstance(params, dict):
            if set(sets) - set(params):
                raise ValueError(
                    f"no parameters named {sorted(set(sets) - set(params))}, there "
                    f"are {sorted(params)}"
                )
            return {name: sets.get(name, lambda p: p)(part) for name, part in params.items()}
        return params._replace(**{name: fn(getattr(params, name)) for name, fn in sets.items()})

    return project


def box_section(
    x: Array, low: Array, high: Array, normal: Array, offset: float = 0.0, steps: int = 100
) -> Array:
    """The projection onto {v: low <= v <= high, <normal, v> = offset}.

    This is the feasible set of an SVM dual with bias.

    v = clip(x - t normal, low, high) for the t with <normal, v> = offset. <normal, v> decreases in
    t, and t is bisected.

    Args:
        x: (n,), or an array of another shape, which `normal` has, too.
        low: (n,) or (), finite.
        high: (n,) or (), >= low; inf for no bound.
        normal: (n,), without zeros.
        offset: a value that <normal, v> attains in the box.
        steps: number of bisections.

    Returns:
        The nearest point, of the shape of x.

    Reference: P. Pardalos, N. Kovoor, An algorithm for a singly constrained class of quadratic
        programs subject to upper and lower bounds, Mathematical Programming 46, 1990.
    """
    point_at = lambda t: jnp.clip(x - t * normal, low, high)
    # Without an upper bound, an entry is at most the value at which it alone offsets all others at
    # their lower bounds.
    slack = jnp.abs(offset - jnp.vdot(normal, jnp.broadcast_to(low, x.shape))) / jnp.abs(normal)
    high_end = jnp.where(jnp.isfinite(high), high, low + slack)
    ends = jnp.stack([(x - low) / normal, (x - high_end) / normal])
    is_below = lambda t: ~(jnp.vdot(normal, point_at(t)) > offset)
    left, right = bisect(is_below, jnp.min(ends), jnp.max(ends), steps)
    return point_at((left + right) / 2)
