"""Projection as a step of an optax chain, and the sets that optax lacks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax

from .checks import calling, shown
from .numerics import dot
from .recipe import check_nonnegative
from .types import Array

__all__ = ["ball", "box_section", "keep", "product", "shorten"]


def keep(projection: Callable[[Any], Any]) -> optax.GradientTransformation:
    """Keep the parameters in a set: the update u at parameters p becomes projection(p + u) - p.

    Put it last in a chain, before `average_iterates` only.

    Args:
        projection: parameters -> parameters, such as `lambda w: optax.projections.projection_l2_ball(w, 10.0)`.

    Example:
        >>> import jax.numpy as jnp, optax
        >>> tx = optax.chain(optax.sgd(1.0), keep(lambda w: jnp.clip(w, -1, 1)))
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
        moved = jax.tree.map(lambda p, u: p + u, params, updates)
        with calling("projection", projection, "of the parameters to parameters", moved):
            inside = projection(moved)
        want, got = (jax.tree.map(jnp.shape, tree) for tree in (params, inside))
        if want != got:  # which NumPy's rules would broadcast
            raise ValueError(f"projection must return parameters of the shapes it was given, {want}, got {got}")
        return jax.tree.map(lambda q, p: q - p, inside, params)

    return optax.stateless(update)


def shorten(square: Array, radius: float) -> Array:
    """The factor min(1, radius / sqrt(square)) that brings a vector of squared norm `square` into a ball."""
    outside = square > radius * radius
    safe = jnp.where(outside, square, jnp.ones_like(square))
    return jnp.where(outside, radius * jax.lax.rsqrt(safe), jnp.ones_like(square))


def ball(radius: float) -> Callable[[Array], Array]:
    """Projection of a vector onto the Euclidean ball, w min(1, radius / |w|).

    The same map as `optax.projections.projection_l2_ball`, with the norm by a product: half the time in loops over
    single rows.

    Args:
        radius: >= 0.

    Raises:
        ValueError: radius below 0, or not one number.
    """
    check_nonnegative(radius=radius)

    def project(w):
        return w * shorten(dot(w, w), radius)

    return project


def product(sets: dict[str, Callable]) -> Callable[[Any], Any]:
    """Projection onto a product of sets, one for each named part of the parameters; parts not named stay as they are.

    Args:
        sets: part name -> projection, for parameters that are a dict or a named tuple.

    Raises:
        TypeError: no such dict.

    Example:
        >>> import jax.numpy as jnp
        >>> both = product({"w": ball(1.0), "b": lambda b: jnp.clip(b, -2, 2)})
        >>> {k: v.tolist() for k, v in both({"w": jnp.array([3.0, 4.0]), "b": jnp.array(9.0)}).items()}
        {'w': [0.6000000238418579, 0.800000011920929], 'b': 2.0}
    """
    if not isinstance(sets, dict) or not all(map(callable, sets.values())):
        raise TypeError(f"sets must be a dict, part name -> projection, got {shown(sets)}")

    def project(params):
        if isinstance(params, dict):
            if set(sets) - set(params):
                raise ValueError(f"no parameters named {sorted(set(sets) - set(params))}, there are {sorted(params)}")
            return {name: sets.get(name, lambda p: p)(part) for name, part in params.items()}
        return params._replace(**{name: fn(getattr(params, name)) for name, fn in sets.items()})

    return project


def box_section(x: Array, low: Array, high: Array, normal: Array, offset: float = 0.0, steps: int = 100) -> Array:
    """The nearest point of {v: low <= v <= high, <normal, v> = offset}: the feasible set of an SVM dual with bias.

    v = clip(x - t normal, low, high) for the t at which <normal, v> = offset; <normal, v> falls in t, so t is bisected.

    Args:
        x: (n,).
        low: (n,) or (), finite.
        high: (n,) or (), >= low; inf where there is no bound.
        normal: (n,), nowhere 0.
        offset: must be attainable in the box.
        steps: bisections.

    Reference: P. Pardalos, N. Kovoor, An algorithm for a singly constrained class of quadratic programs subject to
        upper and lower bounds, Mathematical Programming 46, 1990.
    """
    at = lambda t: jnp.clip(x - t * normal, low, high)  # noqa: E731
    # An entry without an upper bound need not pass the point where it alone makes up for all others at their lower ends.
    slack = jnp.abs(offset - jnp.dot(normal, jnp.broadcast_to(low, x.shape))) / jnp.abs(normal)
    high_end = jnp.where(jnp.isfinite(high), high, low + slack)
    ends = jnp.stack([(x - low) / normal, (x - high_end) / normal])

    def halve(_, bracket):
        left, right = bracket
        middle = (left + right) / 2
        above = jnp.dot(normal, at(middle)) > offset
        return jnp.where(above, middle, left), jnp.where(above, right, middle)

    left, right = jax.lax.fori_loop(0, steps, halve, (jnp.min(ends), jnp.max(ends)))
    return at((left + right) / 2)
