"""What arguments must be, each refusal with a sentence: one number, a truth value, an array."""

from __future__ import annotations

import contextlib
import decimal
import inspect
import numbers
import os
import re
import reprlib
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

_REAL = numbers.Real | decimal.Decimal

MOST_COUNT = 2**31 - 1  # what is counted, or sets a size, fits in 32 bits

SCALARS = ("number", "integer", "one")  # what a rule asks for where arrays with axes are refused


class Rule(NamedTuple):
    """What a factory expects of one argument, read off its signature."""

    name: str
    asks: str  # "number"; "integer"; "one": a number or a pytree; else the annotation, as "bool", "Loss"; "any": several
    optional: bool  # None is allowed
    text: bool  # strings are allowed
    to_float: bool  # integers become floats


def rule_of(parameter: inspect.Parameter, to_float: bool) -> Rule:
    """The rule of one parameter: `float`, `int` and no annotation ask for one number, others allow arrays."""
    name, default, written = parameter.name, parameter.default, parameter.annotation
    if written is inspect.Parameter.empty:
        choice = parameter.kind is inspect.Parameter.KEYWORD_ONLY and not isinstance(default, int | float)
        return Rule(name, "one", True, choice or isinstance(default, str), to_float)
    words = written if isinstance(written, str) else written.__name__ if isinstance(written, type) else str(written)
    words = words.replace("typing.", "")
    if words.startswith("Optional["):
        words = words[len("Optional[") : -1] + " | None"
    words = re.sub(r"\[.*\]", "", words)  # Callable[[Array], Array]
    parts = {part.strip().rpartition(".")[2] for part in words.split("|")}
    optional = "None" in parts or default is None
    parts -= {"None"}
    asks = "number" if parts == {"float", "int"} else parts.pop() if len(parts) == 1 else "any"
    asks = {"float": "number", "int": "integer"}.get(asks, asks)
    return Rule(name, asks, optional, True, to_float)


def as_argument(rule: Rule, value: Any) -> Any:
    """A value as the factory takes it: numbers of other libraries as Python's, strings and the like refused.

    Raises:
        TypeError: for what is no number where one is expected, no truth value where one is.
        ValueError: for a number that no float can hold.
    """
    value = _plain(rule, value)
    if value is None and rule.optional:
        return None
    if rule.asks == "number":
        if isinstance(value, bool):
            raise TypeError(f"{rule.name} must be a number, got {value!r}")
        _check_real(rule.name, value)
    elif rule.asks == "one":
        if isinstance(value, bytes | complex) or _is_array(value) or (isinstance(value, str) and not rule.text):
            _check_real(rule.name, value)
    elif rule.asks == "Array":
        return _as_array(rule.name, value)
    elif rule.asks == "bool" and not isinstance(value, bool):
        raise TypeError(f"{rule.name} must be True or False, got {shown(value)}")
    return value


def _as_array(name: str, value: Any) -> Any:
    """An array, or one number, as it is; lists and tuples as an array, which is one leaf."""
    if isinstance(value, list | tuple):
        leaves = jax.tree.leaves(value)
        if leaves and all(isinstance(leaf, _REAL) or _is_array(leaf) for leaf in leaves):
            try:
                return jnp.asarray(value) if any(isinstance(leaf, jax.Array) for leaf in leaves) else np.asarray(value, float)
            except (TypeError, ValueError):  # rows that differ in length
                pass
    elif isinstance(value, float | int) or (_is_array(value) and is_numeric(value.dtype)):
        return value
    raise TypeError(f"{name} must be an array of numbers, got {shown(value)}")


def _plain(rule: Rule, value: Any) -> Any:
    if isinstance(value, np.bool_ | np.str_):
        return value.item()
    if isinstance(value, bool) or not isinstance(value, _REAL):
        return value
    if isinstance(value, numbers.Integral) and not rule.to_float:
        value = int(value)
        if value.bit_length() > 64:
            raise ValueError(f"{rule.name} is too large: {shown(value)}")
        if rule.asks != "number" or abs(value) <= MOST_COUNT:  # beyond that JAX has no integers
            return value
    return _float(rule.name, value)


def number(name: str, value: Any) -> float | None:
    """One number as a float; None where it is not known, inside a transformation.

    Raises:
        TypeError: if it is no number.
        ValueError: if it has a shape, with what to do instead, or if no float can hold it.
    """
    if has_shape(value) or (type(value) in (list, tuple) and np.shape(value)):
        refuse_shape(name, value)
    _check_real(name, value)
    return None if isinstance(value, jax.core.Tracer | jax.ShapeDtypeStruct) else _float(name, value)


def as_number(name: str, value: Any) -> Any:
    """One number as JAX takes it: those of other libraries as floats.

    Raises:
        TypeError, ValueError: as `number`.
    """
    number(name, value)
    known = isinstance(value, np.generic | np.ndarray) and value.dtype != jax_dtype(value.dtype)
    return value if _is_array(value) and value.dtype != bool and not known else _float(name, value)


def refuse_shape(name: str, value: Any) -> None:
    """Raise ValueError for several numbers where one is expected."""
    raise ValueError(f"{name} has shape {tuple(np.shape(value))}; sweep it with jax.vmap or jaxsvm.sweep")


def is_whole(value: Any, least: int, most: int = MOST_COUNT) -> bool:
    """Whether this is a Python or NumPy integer within the limits."""
    return isinstance(value, numbers.Integral) and not isinstance(value, bool) and least <= value <= most


def integer(name: str, value: Any, least: int, most: int = MOST_COUNT, note: str = "") -> int:
    """A Python or NumPy integer within the limits.

    Args:
        name: of the argument.
        value: what came.
        least: the lowest value allowed.
        most: the highest value allowed.
        note: what the number stands for, in the sentence of the refusal.

    Raises:
        ValueError: for anything else.
    """
    if not is_whole(value, least, most):
        high = most < MOST_COUNT or is_whole(value, most + 1, np.inf)
        limits = f"from {least} to {most}" if high else f"of at least {least}"
        raise ValueError(f"{name} must be a whole number {limits}{note}, got {shown(value)}")
    return int(value)


def key(name: str, value: Any) -> None:
    """Refuse what is not one key.

    Raises:
        TypeError: for anything else, such as a seed or several keys.
    """
    typed = _is_array(value) and jnp.issubdtype(value.dtype, jax.dtypes.prng_key) and value.shape == ()
    raw = _is_array(value) and value.dtype == np.uint32 and value.shape in ((2,), (4,))
    if not typed and not raw:
        raise TypeError(f"{name} must be one key, such as jax.random.key(0), got {shown(value)}")


def matrix(name: str, value: Any, columns: int | None = None, *, rank: int | None = 2) -> Any:
    """Rows as JAX takes them: an (n, d) array of numbers, or sparse rows; rank=None: (..., d).

    Truth values and whole numbers become float32, as in `dataset`, and arrays of NumPy get the byte order of the machine.

    Raises:
        TypeError: for no array.
        ValueError: for an array of another rank, or of another number of columns; for masked entries.
    """
    refuse_masked(name, value)
    if hasattr(value, "tocsr"):
        raise TypeError(f"{name} is a sparse matrix of SciPy: pass jaxsvm.dataset(x, y).x, which holds it as SparseRows")
    if not _is_array(value) or hasattr(value, "_fields"):
        how = f": pass its rows, {name}.x" if hasattr(value, "_fields") and hasattr(value, "x") else ""
        raise TypeError(f"{name} must be an array with a row for each example, got {shown(value)}{how}")
    _check_real(name, value)
    if (rank is not None or not value.shape) and len(value.shape) != 2:
        raise ValueError(f"{name} must be a matrix with a row for each example, got shape {tuple(value.shape)}")
    if columns is not None and value.shape[1] != columns:
        raise ValueError(f"{name} must have {columns} columns, as the training rows had, got shape {tuple(value.shape)}")
    if isinstance(value, np.ndarray):
        value = np.asarray(value).astype(jax_dtype(value.dtype), copy=False)
    whole = isinstance(value, np.ndarray | jax.Array) and (value.dtype == bool or jnp.issubdtype(value.dtype, np.integer))
    return value.astype(np.float32) if whole else value


def refuse_masked(name: str, value: Any) -> None:
    """Raise ValueError for an array of NumPy with masked entries."""
    if np.ma.is_masked(value):
        raise ValueError(f"{name} has masked entries, which are no numbers: drop such rows or fill them in, {name}.filled(0)")


def jax_dtype(dtype: np.dtype) -> np.dtype:
    """The dtype that JAX has for these numbers: in the byte order of the machine, at most 64 bits."""
    if dtype.kind == "f" and dtype.itemsize > 8:
        return np.dtype(np.float64)
    return dtype if dtype.isnative else dtype.newbyteorder("=")


def as_path(name: str, path: Any) -> str:
    """A path as a string.

    Raises:
        TypeError: for what is no path.
        ValueError: for one that no file can have.
    """
    if not isinstance(path, str | bytes | os.PathLike):
        raise TypeError(f"{name} must be the path of a file, got {shown(path)}")
    path = os.fsdecode(path)
    if "\0" in path:
        raise ValueError(f"{name} must be the path of a file, which holds no null character, got {shown(path)}")
    return path


def brief(quoted: Exception | str) -> str:
    """What an error says, or any text, on one line and cut short, to be quoted in a sentence."""
    text = " ".join(str(quoted).split())
    return text if len(text) <= 160 else f"{text[:120]} ..."


def row_numbers(name: str, value: Any, n: int) -> Any:
    """A vector of row numbers as an integer array; -1 stands for no row.

    Raises:
        TypeError: for no vector of integers.
        ValueError: for row numbers that are not from -1 to n - 1, where they are known.
    """
    if isinstance(value, list | tuple | range) and all(
        isinstance(i, numbers.Integral) and not isinstance(i, bool) for i in value
    ):
        value = np.asarray(value, np.int64)
    if not (_is_array(value) and len(value.shape) == 1 and jnp.issubdtype(value.dtype, np.integer)):
        raise TypeError(f"{name} must be a vector of row numbers, such as jnp.array([0, 3]), got {shown(value)}")
    if isinstance(value, jax.core.Tracer):
        return value
    host = np.asarray(value)
    if host.size and not -1 <= host.min() <= host.max() < n:
        bad = host[(host < -1) | (host >= n)][0]
        raise ValueError(f"{name} must hold row numbers from 0 to {n - 1}, or -1 for padding, got {bad}")
    return jnp.asarray(value, value.dtype if isinstance(value, jax.Array) else jnp.int32)


def class_names(value: Any) -> tuple:
    """Names of classes as a tuple: two or more, each once.

    Raises:
        ValueError: for anything else.
    """
    given = () if isinstance(value, str | bytes | dict) or not np.iterable(value) else tuple(value)
    named = all(isinstance(name, str | bool | np.bool_ | numbers.Real) for name in given)
    if not named or len(given) < 2 or len(set(map(str, given))) < len(given):
        raise ValueError(f"classes must be the names of two classes or more, each once, got {shown(value)}")
    return given


@contextlib.contextmanager
def calling(name: str, fn: Any, form: str, *given: Any) -> Iterator[None]:
    """Say of a function that was given, and that fails for arrays of these shapes, what it is expected to be.

    Raises:
        TypeError, ValueError: as the function does, with a sentence around its words.
    """
    try:
        yield
    except jax.errors.TracerArrayConversionError as error:
        raise TypeError(f"{name}, {shown(fn)}, asks for the values of its rows: write it with jax.numpy, not NumPy") from error
    except (jax.errors.JAXTypeError, jax.errors.ConcretizationTypeError):  # values that are not known while tracing
        raise
    except (TypeError, ValueError) as error:
        shapes = " and ".join(str(tuple(np.shape(leaf))) for leaf in jax.tree.leaves(given))
        kind = TypeError if isinstance(error, TypeError) else ValueError
        raise kind(f"{name}, {shown(fn)}, fails for shapes {shapes}, expected a function {form}: {brief(error)}") from error


def has_shape(value: Any) -> bool:
    """Whether the value is an array with axes, traced or not."""
    return _is_array(value) and len(value.shape) > 0


def is_known(leaf: Any) -> bool:
    """Whether a leaf is a single number, or a single key, whose value is known here and now."""
    if isinstance(leaf, jax.core.Tracer):
        return False
    return isinstance(leaf, float | complex) or (isinstance(leaf, jax.Array | np.ndarray | np.generic) and not leaf.shape)


def shown(value: Any) -> str:
    """A value in a sentence: arrays by their shapes, functions by their names, all else shortened."""
    if _is_array(value):
        return f"an array of {value.dtype} of shape {tuple(value.shape)}"
    if isinstance(value, int) and value.bit_length() > 128:
        return f"an integer of {value.bit_length()} bits"
    if inspect.isroutine(value) or inspect.isclass(value):
        return f"the {'class' if inspect.isclass(value) else 'function'} {value.__name__}"
    return reprlib.repr(value)


def _is_array(value: Any) -> bool:
    return hasattr(value, "dtype") and hasattr(value, "shape") and not inspect.isclass(value)


def is_numeric(dtype: Any) -> bool:
    """Whether arrays of this dtype hold real numbers or truth values."""
    if jnp.issubdtype(dtype, jax.dtypes.prng_key) or jnp.issubdtype(dtype, np.complexfloating):
        return False
    return jnp.issubdtype(dtype, np.number) or jnp.issubdtype(dtype, np.bool_)


def _check_real(name: str, value: Any) -> None:
    """Raise TypeError for what is neither a real number nor an array of real numbers."""
    is_key = _is_array(value) and jnp.issubdtype(value.dtype, jax.dtypes.prng_key)
    if not (is_key or is_numeric(value.dtype) if _is_array(value) else isinstance(value, _REAL)):
        raise TypeError(f"{name} must be a number, got {shown(value)}")


def _float(name: str, value: Any) -> float:
    try:
        return float(value)
    except (OverflowError, ValueError, TypeError) as error:
        raise ValueError(f"{name} is no number that a float can hold: {shown(value)}") from error
