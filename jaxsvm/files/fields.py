"""Checks of what a class holds, for its method `__check__`, which `models.load` calls on all that it makes."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

KINDS = {"real": (jnp.floating, jnp.integer), "whole": (jnp.integer,), "truth": (jnp.bool_,)}


def check_field(
    name: str,
    value: Any,
    kind: str = "real",
    shape: tuple[int, ...] | None = None,
    *,
    least: float | None = None,
    most: float | None = None,
) -> None:
    """Check an array, or a number, whose values are known.

    Args:
        name: of the field.
        value: what it holds.
        kind: "real", "whole" (integers) or "truth" (truth values).
        shape: that it must have; None: any.
        least: the lowest value allowed.
        most: the highest value allowed.

    Raises:
        ValueError: with the name, what was expected and what came.
    """
    try:
        found, dtype = shape_of(value), jnp.result_type(value)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must be an array, got {value!r}") from error
    if not any(jnp.issubdtype(dtype, each) for each in KINDS[kind]):
        what = {"real": "real numbers", "whole": "whole numbers", "truth": "truth values"}[kind]
        raise ValueError(f"{name} must hold {what}, got dtype {dtype}")
    if shape is not None and found != shape:
        raise ValueError(f"{name} must have shape {shape}, got {found}")
    if least is None and most is None:
        return
    numbers = np.asarray(value)
    if least is not None and (numbers < least).any():
        raise ValueError(f"{name} must be at least {least}, got {numbers[numbers < least].flat[0]}")
    if most is not None and (numbers > most).any():
        raise ValueError(f"{name} must be at most {most}, got {numbers[numbers > most].flat[0]}")


def shape_of(value: Any) -> tuple[int, ...]:
    """The shape of anything that has one, or of a number.

    Raises:
        ValueError: anything else.
    """
    if isinstance(value, bool | int | float):
        return ()
    shape = getattr(value, "shape", None)
    if shape is None:
        raise ValueError(f"expected an array, got {value!r}")
    return tuple(shape)


def check_front(name: str, front: tuple[int, ...], whole: tuple[int, ...]) -> None:
    """Check the axes in front of those of one model, where many are held as one: the first of those of the whole, or none.

    Raises:
        ValueError: any others.
    """
    if front != whole[: len(front)]:
        raise ValueError(f"{name} has the axes {front} in front, expected those of the whole, {whole}, or the first of them")
