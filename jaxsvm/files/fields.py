"""Checks of fields for the method `__check__` of a class.

`models.load` calls this method on its instances.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from ..checks import has_values

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
    """Raise unless an array or a number with known values is valid.

    Args:
        name: of the field.
        value: of the field.
        kind: "real", "whole" (integers) or "truth" (booleans).
        shape: required shape; None: any.
        least: the lowest value allowed.
        most: the highest value allowed.

    Raises:
        ValueError: another dtype or shape, or values out of range.
    """
    try:
        value_shape, dtype = shape_of(value), jnp.result_type(value)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must be an array, got {value!r}") from error
    if not any(jnp.issubdtype(dtype, each) for each in KINDS[kind]):
        what = {"real": "real numbers", "whole": "whole numbers", "truth": "truth values"}[kind]
        raise ValueError(f"{name} must hold {what}, got dtype {dtype}")
    if shape is not None and value_shape != shape:
        raise ValueError(f"{name} must have shape {shape}, got {value_shape}")
    if (least is None and most is None) or not has_values(value):
        return
    numbers = np.asarray(value)
    if least is not None and (numbers < least).any():
        raise ValueError(f"{name} must be at least {least}, got {numbers[numbers < least].flat[0]}")
    if most is not None and (numbers > most).any():
        raise ValueError(f"{name} must be at most {most}, got {numbers[numbers > most].flat[0]}")


def shape_of(value: Any) -> tuple[int, ...]:
    """The shape of an array, or of a number.

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
    """Raise unless the leading axes of a field of stacked models fit those of `whole`.

    They must be the first ones of `whole`, or none.

    Raises:
        ValueError: other axes.
    """
    if front != whole[: len(front)]:
        raise ValueError(
            f"{name} has the axes {front} in front, expected those of the whole, "
            f"{whole}, or the first of them"
        )
