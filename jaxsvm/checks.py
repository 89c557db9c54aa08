"""Checks of arguments: numbers, booleans, arrays, keys, paths, class names."""

from __future__ import annotations

import contextlib
import decimal
import functools
import inspect
import numbers
import os
import reprlib
import sys
from collections.abc import Iterator
from typing import Any, TypeGuard

import jax
import jax.numpy as jnp
import numpy as np

from .flags import flag

_REAL = numbers.Real | decimal.Decimal

MOST_COUNT = 2**31 - 1  # largest count or size, as these are int32


def as_array(name: str, value: Any) -> jax.Array | np.ndarray:
    """An array or a number, unchanged; a list or tuple of numbers as an array.

    The array is one leaf.
    """
    leaves = jax.tree.leaves(value) if isinstance(value, list | tuple) else []
    if leaves and all(isinstance(leaf, _REAL) or is_array(leaf) for leaf in leaves):
        of_jax = any(isinstance(leaf, jax.Array) for leaf in leaves)
        with contextlib.suppress(TypeError, ValueError):  # rows that differ in length
            return jnp.asarray(value) if of_jax else np.asarray(value, float)
    is_number = isinstance(value, float | int) and not isinstance(value, bool)
    if is_number or (is_array(value) and is_numeric(value.dtype)):
        return value
    raise TypeError(f"{name} must be an array of numbers, got {shown(value)}")


def number(name: str, value: Any) -> float | None:
    """One number as a float; None inside a transformation, where its value is not known.

    Raises:
        TypeError: not a number.
        ValueError: an array with axes, or a number that overflows a float.
    """
    if has_shape(value) or (type(value) in (list, tuple) and np.shape(value)):
        refuse_shape(name, value)
    _check_real(name, value)
    is_unknown = isinstance(value, jax.core.Tracer | jax.ShapeDtypeStruct)
    return None if is_unknown else _float(name, value)


def check_limit(name: str, value: object, signed: bool = False) -> None:
    """Raise unless this is a number, >= 0 unless it is `signed`.

    Infinity and None stand for no limit.
    """
    known = None if value is None else number(name, value)
    if known is not None and (np.isnan(known) or (known < 0 and not signed)):
        raise ValueError(
            f"{name} must be a number{'' if signed else ' of at least 0'}, got {known:g}"
        )


def as_number(name: str, value: object) -> Any:
    """One number as an argument of JAX: those of other libraries are converted to floats.

    Raises:
        TypeError, ValueError: as `number`.
    """
    number(name, value)
    known = isinstance(value, np.generic | np.ndarray) and value.dtype != jax_dtype(value.dtype)
    return value if is_array(value) and value.dtype != bool and not known else _float(name, value)


def refuse_shape(name: str, value: Any) -> None:
    """Raise ValueError for several numbers where one is expected."""
    raise ValueError(
        f"{name} has shape {tuple(np.shape(value))}; sweep it with jax.vmap or jaxsvm.sweep"
    )


def is_whole(value: Any, least: float, most: float = MOST_COUNT) -> bool:
    """Whether this is a Python or NumPy integer from `least` to `most`."""
    is_integer = isinstance(value, numbers.Integral) and not isinstance(value, bool)
    return is_integer and least <= int(value) <= most


def integer(name: str, value: Any, least: int, most: int = MOST_COUNT, note: str = "") -> int:
    """A Python or NumPy integer from `least` to `most`.

    Args:
        name: of the argument.
        value: what came.
        least: the lowest value allowed.
        most: the highest value allowed.
        note: meaning of the number, for the message.

    Raises:
        ValueError: for anything else.
    """
    if not is_whole(value, least, most):
        high = most < MOST_COUNT or is_whole(value, most + 1, np.inf)
        limits = f"from {least} to {most}" if high else f"of at least {least}"
        raise ValueError(f"{name} must be a whole number {limits}{note}, got {shown(value)}")
    return int(value)


def check_whole(name: str, value: object, most: float = np.inf) -> None:
    """Raise unless a number from 1 to `most` is whole; one whose value is not known passes.

    Raises:
        TypeError: not a number.
        ValueError: a number that is not whole, or outside of the limits.
    """
    known = number(name, value)
    if known is not None and not (known % 1 == 0 and 1 <= known <= most):
        raise ValueError(f"{name} must be a whole number from 1 to {most:g}, got {known:g}")


def key(name: str, value: Any) -> None:
    """Raise unless this is a single key.

    Raises:
        TypeError: for anything else, such as a seed or several keys.
    """
    raw = is_array(value) and value.dtype == np.uint32 and value.shape in ((2,), (4,))
    if not (is_key(value) and value.shape == ()) and not raw:
        raise TypeError(f"{name} must be one key, such as jax.random.key(0), got {shown(value)}")


def matrix(name: str, value: object, columns: int | None = None, *, rank: int | None = 2) -> Any:
    """Rows as an argument of JAX: an (n, d) array of numbers, or sparse rows; rank=None: (..., d).

    Booleans and integers become float32, as in `dataset`; arrays of NumPy are converted to the
    native byte order. Those that the caller may fill again are copied: JAX may read them later.

    Raises:
        TypeError: not an array.
        ValueError: an array of another rank or number of columns, or with masked entries.
    """
    refuse_masked(name, value)
    if is_sparse(value):
        raise TypeError(
            f"{name} is a sparse matrix of SciPy: pass jaxsvm.dataset(x, y).x, which "
            "holds it as SparseRows"
        )
    if not is_array(value) or isinstance(value, tuple):
        is_batch = isinstance(value, tuple) and hasattr(value, "x")
        how = f": pass its rows, {name}.x" if is_batch else ""
        raise TypeError(
            f"{name} must be an array with a row for each example, got {shown(value)}{how}"
        )
    _check_real(name, value)
    if (rank is not None or not value.shape) and len(value.shape) != 2:
        raise ValueError(
            f"{name} must be a matrix with a row for each example, got shape {tuple(value.shape)}"
        )
    if columns is not None and value.shape[-1] != columns:
        raise ValueError(
            f"{name} must have {columns} columns, as many as it was made for, got "
            f"shape {tuple(value.shape)}"
        )
    if isinstance(value, np.ndarray):
        given = np.asarray(value)
        value = given.astype(jax_dtype(given.dtype), copy=False)
        # JAX copies small ones within the call
        late = value is given and given.flags.writeable and given.nbytes > 2**16
        value = value.copy() if late else value
    is_real = jnp.issubdtype(value.dtype, jnp.floating)
    is_kept = is_real or not isinstance(value, np.ndarray | jax.Array)
    return value if is_kept else value.astype(np.float32)


def check_rows(x: Any, *, columns: int | None = None, **others: Any) -> None:
    """Raise unless x (n, d) has rows and columns, and each of `others` a number for each row.

    None among the others is left out. With `columns` they may have that many numbers for each row.

    Raises:
        ValueError: another shape.
    """
    shape = np.shape(x)
    if len(shape) != 2:
        raise ValueError(
            f"x must be a matrix with a row for each example, got shape {shape}; "
            "use x.reshape(len(x), -1)"
        )
    if not shape[0] or not shape[1]:
        raise ValueError(f"x has shape {shape}: there must be at least one row and one column")
    for name, a in others.items():
        if a is not None and np.shape(a) not in (shape[:1], (shape[0], columns)):
            how = f"; use np.ravel({name})" if np.shape(a) == (shape[0], 1) else ""
            raise ValueError(
                f"{name} must hold one number for each of the {shape[0]} rows of x, got shape "
                f"{np.shape(a)}{how}"
            )


def refuse_masked(name: str, value: object) -> None:
    """Raise ValueError for an array of NumPy with masked entries."""
    if np.ma.is_masked(value):
        raise ValueError(
            f"{name} has masked entries, which are no numbers: drop such rows or "
            f"fill them in, {name}.filled(0)"
        )


def jax_dtype(dtype: np.dtype) -> np.dtype:
    """The dtype of these numbers in JAX: native byte order, at most 64 bits."""
    if dtype.kind == "f" and dtype.itemsize > 8:
        return np.dtype(np.float64)
    return dtype if dtype.isnative else dtype.newbyteorder("=")


def x64_enabled() -> bool:
    """Whether 64-bit types are enabled in JAX, here and now."""
    return bool(flag("enable_x64"))


def as_path(name: str, path: object) -> str:
    """A path as a string.

    Raises:
        TypeError: not a path.
        ValueError: the path holds a null character.
    """
    if not isinstance(path, str | bytes | os.PathLike):
        raise TypeError(f"{name} must be the path of a file, got {shown(path)}")
    path = os.fsdecode(path)
    if "\0" in path:
        raise ValueError(
            f"{name} must be the path of a file, which holds no null character, got {shown(path)}"
        )
    return path


def brief(quoted: Exception | str) -> str:
    """A message on one line, truncated, for quotation in another message."""
    text = " ".join(str(quoted).split())
    return text if len(text) <= 160 else f"{text[:120]} ..."


def row_numbers(name: str, value: object, n: int) -> Any:
    """A vector of row numbers as an integer array; -1 is padding.

    Raises:
        TypeError: not a vector of integers.
        ValueError: known row numbers are not from -1 to n - 1.
    """
    if isinstance(value, list | tuple | range) and all(is_whole(i, -np.inf, np.inf) for i in value):
        value = np.asarray(value, np.int64)
    if not (is_array(value) and len(value.shape) == 1 and jnp.issubdtype(value.dtype, np.integer)):
        raise TypeError(
            f"{name} must be a vector of row numbers, such as jnp.array([0, 3]), got {shown(value)}"
        )
    if isinstance(value, jax.core.Tracer):
        return value
    host = np.asarray(value)
    if host.size and not -1 <= host.min() <= host.max() < n:
        out_of_range = host[(host < -1) | (host >= n)][0]
        raise ValueError(
            f"{name} must hold row numbers from 0 to {n - 1}, or -1 for padding, got {out_of_range}"
        )
    return jnp.asarray(value, value.dtype if isinstance(value, jax.Array) else jnp.int32)


def is_class_number(values: np.ndarray, classes: int) -> np.ndarray:
    """Which values are integers from 0 to `classes` - 1."""
    return (values >= 0) & (values < classes) & (values == np.floor(values))


MOST_BYTES = 2**34  # of one array or state whose size follows from arguments


def check_bytes(what: str, size: float, advice: str) -> None:
    """Raise for arrays of more than `MOST_BYTES`, before they are made.

    Args:
        what: what takes them, in the plural.
        size: number of bytes.
        advice: what to do.

    Raises:
        ValueError: with the number of bytes.
    """
    if size > MOST_BYTES:
        raise ValueError(
            f"{what} would take {int(size):,} bytes, more than {MOST_BYTES:,}: {advice}, or raise "
            "jaxsvm.checks.MOST_BYTES"
        )


def class_names(value: object) -> tuple:
    """Class names as a tuple: two or more, without repetition.

    Raises:
        ValueError: for anything else.
    """
    names = () if isinstance(value, str | bytes | dict) or not np.iterable(value) else tuple(value)
    valid = all(isinstance(name, str | bool | np.bool_ | numbers.Real) for name in names)
    valid = valid and all(name == name for name in names)  # nan is no name
    if not valid or len(names) < 2 or len(set(map(str, names))) < len(names):
        raise ValueError(
            f"classes must be the names of two classes or more, each once, got {shown(value)}"
        )
    return names


# errors of JAX where a function asks for values that are not known while it is traced
UNKNOWN_VALUES = (
    jax.errors.ConcretizationTypeError,
    jax.errors.TracerArrayConversionError,
    jax.errors.TracerIntegerConversionError,
    jax.errors.NonConcreteBooleanIndexError,
)


# errors, beside TypeError and ValueError, of functions that meet other values than they expect
FAULTS = (AttributeError, LookupError, ArithmeticError, AssertionError, NotImplementedError)


@contextlib.contextmanager
def calling(name: str, fn: object, form: str, *args: object) -> Iterator[None]:
    """Add the expected form of a user's function to the errors that it raises for `args`.

    Raises:
        TypeError, ValueError: with the message of the function quoted; one of this package, whose
            sentences say what is wrong, raises its own.
    """
    module = getattr(fn.func if isinstance(fn, functools.partial) else fn, "__module__", None)
    if (module or "").partition(".")[0] == __package__:
        yield
        return
    try:
        yield
    except UNKNOWN_VALUES as error:
        raise TypeError(
            f"{name}, {shown(fn)}, asks for the values of its arguments: write it with jax.numpy, "
            "without NumPy, float() and if"
        ) from error
    except jax.errors.JAXTypeError:  # which JAX explains
        raise
    except (*FAULTS, TypeError, ValueError) as error:
        shapes = " and ".join(str(tuple(np.shape(leaf))) for leaf in jax.tree.leaves(args))
        where = f" for shapes {shapes}" if args else ""
        kind = TypeError if isinstance(error, TypeError | AttributeError) else ValueError
        raise kind(
            f"{name}, {shown(fn)}, fails{where}, expected a function {form}: {brief(error)}"
        ) from error


def has_shape(value: object) -> bool:
    """Whether the value is an array with axes, traced or not."""
    return is_array(value) and len(value.shape) > 0


def on_host(x: object) -> Any:
    """The numbers of an array as NumPy reads them without a copy.

    None for anything else: a tracer, sparse rows, an array in parts on several devices or on a
    device that is no CPU, a key.
    """
    if isinstance(x, np.ndarray):
        return x
    if isinstance(x, jax.core.Tracer) or not isinstance(x, jax.Array) or is_key(x):
        return None
    if not (x.is_fully_replicated and x.is_fully_addressable):
        return None
    return np.asarray(x) if {device.platform for device in x.devices()} == {"cpu"} else None


def has_values(*trees: object) -> bool:
    """Whether this process has the values of all leaves.

    None is traced, a shape, or in parts on devices of other processes.
    """
    unknown = jax.core.Tracer | jax.ShapeDtypeStruct
    is_here = lambda a: a.is_fully_addressable or a.is_fully_replicated
    is_known = lambda leaf: not isinstance(leaf, jax.Array) or is_here(leaf)
    return all(not isinstance(leaf, unknown) and is_known(leaf) for leaf in jax.tree.leaves(trees))


def shown(value: object) -> str:
    """A value in a message: shape of an array, name of a function, else a short representation."""
    if is_array(value):
        return f"an array of {value.dtype} of shape {tuple(value.shape)}"
    if isinstance(value, int) and value.bit_length() > 128:
        return f"an integer of {value.bit_length()} bits"
    if isinstance(value, jax.tree_util.Partial) and not jax.tree.leaves(value):
        value = value.func
    if inspect.isroutine(value) or inspect.isclass(value):
        return f"the {'class' if inspect.isclass(value) else 'function'} {value.__name__}"
    return reprlib.repr(value)


def is_array(value: object) -> TypeGuard[Any]:
    """Whether this is an array of any library: it has a dtype and a shape."""
    return hasattr(value, "dtype") and hasattr(value, "shape") and not inspect.isclass(value)


def is_sparse(x: object) -> TypeGuard[Any]:
    """Whether this is a sparse matrix of SciPy."""
    return hasattr(x, "tocsr")


def is_key(value: object) -> bool:
    """Whether this is an array of typed keys."""
    return is_array(value) and jnp.issubdtype(value.dtype, jax.dtypes.prng_key)


def is_numeric(dtype: np.dtype) -> bool:
    """Whether arrays of this dtype hold real numbers or booleans."""
    if jnp.issubdtype(dtype, jax.dtypes.prng_key) or jnp.issubdtype(dtype, np.complexfloating):
        return False
    return jnp.issubdtype(dtype, np.number) or jnp.issubdtype(dtype, np.bool_)


def _check_real(name: str, value: object) -> None:
    """Raise TypeError unless this is a real number or an array of real numbers."""
    is_number = is_numeric(value.dtype) if is_array(value) else isinstance(value, _REAL)
    if not is_number and not is_key(value):
        raise TypeError(f"{name} must be a number, got {shown(value)}")


def _float(name: str, value: Any) -> float:
    try:
        return float(value)
    except (OverflowError, ValueError, TypeError) as error:
        raise ValueError(f"{name} is no number that a float can hold: {shown(value)}") from error


def caller_stacklevel() -> int:
    """The `stacklevel` of the first caller outside of this package.

    It is for a warning in the calling function.
    """
    level, frame = 1, sys._getframe(1)
    inner = f"{__name__.split('.')[0]}."
    while frame.f_back and f"{frame.f_globals.get('__name__', '')}.".startswith(inner):
        level, frame = level + 1, frame.f_back
    return level


def check_scalars(**numbers: object) -> None:
    """Check that each is one number.

    Raises:
        TypeError: if one is no number.
        ValueError: if one has a shape, with what to do instead.
    """
    for name, value in numbers.items():
        number(name, value)


def check_nonnegative(**numbers: object) -> None:
    """Check that each is one number and, where its value is known, that it is not below 0.

    Raises:
        TypeError: if one is no number.
        ValueError: with the name, what was expected and what came.
    """
    for name, value in numbers.items():
        known = number(name, value)
        if known is not None and not 0 <= known < np.inf:
            raise ValueError(f"{name} must be a finite number of at least 0, got {known:g}")


def check_positive(**numbers: object) -> None:
    """Check that each is one number and, where its value is known, that it is above 0.

    Subnormal numbers are refused, too, as programs of XLA take them for 0.

    Raises:
        TypeError: if one is no number.
        ValueError: with the name, what was expected and what came.
    """
    for name, value in numbers.items():
        known = number(name, value)
        if known is None or 2.0**-126 <= known < np.inf:  # the least of float32
            continue
        dtype = np.promote_types(value.dtype if is_array(value) else np.float64, np.float32)
        least = float(np.finfo(dtype).tiny)
        if not least <= known < np.inf:
            goal = f"of at least {least:.3g}" if 0 < known < least else "above 0"
            raise ValueError(f"{name} must be a finite number {goal}, got {known:g}")


def positive_number(name: str, value: object) -> Any:
    """One number above 0 as an argument of JAX, as `as_number`; nan where a traced one is not.

    Raises:
        TypeError, ValueError: as `check_positive`.
    """
    check_positive(**{name: value})
    known = as_number(name, value)
    return jnp.where(known > 0, known, jnp.nan) if isinstance(known, jax.core.Tracer) else known


def check_choice(name: str, value: object, allowed: tuple) -> None:
    """Check that `value` is one of `allowed`.

    Raises:
        ValueError: with the name, the choices and what came.
    """
    if not isinstance(value, str | bool | np.bool_) or value not in allowed:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, allowed))}, got {value!r}")
