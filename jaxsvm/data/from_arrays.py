"""A checked `Batch` from arrays on the host."""

from __future__ import annotations

import dataclasses
import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..checks import (
    caller_stacklevel,
    check_choice,
    check_rows,
    is_sparse,
    jax_dtype,
    refuse_masked,
    x64_enabled,
)
from ..models import Classes, Labels
from ..models.frames import column_names, frame_numbers, is_frame
from ..numerics import pack_lists, pad_rows, series_size, widened, with_zero_columns
from ..ranking import check_grades, signed_times
from ..types import LANE_WIDTH, Batch, SparseRows
from .class_numbers import encode
from .fold_numbers import group_numbers
from .from_scipy import csr, is_mostly_zeros, sparsify, stored_range
from .target_columns import has_columns, target_columns
from .traced_rows import is_traced_array, traced_batch

TASKS = ("binary", "multiclass", "multilabel", "regression", "ranking", "survival")


def dataset(
    x: object,
    y: object = None,
    weight: object = None,
    *,
    query: object = None,
    task: str | None = None,
    classes: object = None,
    sparse: bool | str = False,
    pad: bool = False,
) -> Batch:
    """A data set of rows, targets and weights, which are checked on the host.

    Inside of `jit`, `vmap` and `grad` traced arrays are checked for their shapes and dtypes only. A
    traced y of task "binary" may be booleans, 0 and 1, or -1 and +1; other labels become nan.

    Integers and booleans become float32; y and weight are converted to the dtype of x, at least
    float32. A sparse matrix becomes `SparseRows`, padded to the longest row; it stays sparse.

    Args:
        x: (n, d) numbers, n >= 1, d >= 1; finite. An array, a sparse matrix of SciPy, or a data
            frame of pandas or polars, whose names of columns are kept.
        y: (n,) labels, -1 and +1 or any two names, both present; class numbers 0 .. k-1 with
            task="multiclass", all of them present, or strings; real targets with
            task="regression"; grades with task="ranking", of which a larger one is to have a
            higher score; signed times with task="survival", +time where the event was observed and
            -time where it was censored, or a structured array of booleans (observed) and times, as
            of scikit-survival. Of two other names, which may be numbers, strings or booleans, the
            first in order becomes -1 and the second +1. The field `classes` holds the names, which
            `Fit.predict` gives back.
        weight: (n,) example weights, >= 0, not all 0; None: all 1. Weight k equals k copies.
        query: (n,) a number or name of the query of each row, for ranking; rows are compared
            within a query. None: all rows are of one query.
        task: "binary", "multiclass", "multilabel", "regression", "ranking" or "survival", which is
            for `losses.pairwise(censored=True)`; None: "ranking" with `query`, "multiclass" for
            strings of more than two names, "multilabel" for y (n, k), else "binary".
        classes: the names of the classes in order, as `train.classes.names`: for rows of a test
            set, in which some may be missing. None: those in y, sorted. Of y (n, k) the names of
            the columns; None: those of a data frame, else 0 .. k-1.
        sparse: True: a dense x becomes sparse; "auto": it does so where linear solvers are faster
            on sparse rows, with more than 64 columns and less than a tenth of the numbers nonzero.
        pad: add rows of weight 0 behind the others, and columns of zeros, up to 512, 2,048, 4,096,
            8,192, ... rows and 64, 128, 256, ... columns. Then data sets of many shapes share the
            programs of `fit`. Samplers draw, and `passes` count, the other rows only. Results are
            those without padding to rounding, and to its tolerance of a solver that chooses its
            method by the shape. A model has the columns of zeros too; `result.predict` and
            `result.classifier` take rows with and without them.

    Raises:
        ValueError: shapes or dtypes that do not match, numbers of three or more values as labels, a
            single class, a name that is not among `classes`,
            no two rows of one query with different grades, no event before the time of another
            row, times of 0 or below, grades or times that differ by little more than rounding, NaN,
            infinity, no rows, a sum of squares (of weights: a sum) that overflows.

    Warns:
        UserWarning: the ranges of the columns differ by more than a factor of 1,000; rounding to
            float32 moves a column, or real targets, by more than 1e-4 of their distance from the
            median; the range of a column is so small that its squares underflow; a column of a
            sparse matrix is so far from 0 that distances lose digits.

    Example:
        >>> import jaxsvm
        >>> jaxsvm.dataset([[1, 2], [3, 4]], [1, -1]).x.dtype.name
        'float32'
        >>> jaxsvm.dataset([[1, 2], [3, 4]], ["spam", "ham"])
        Batch of 2 rows of 2 columns, float32; classes ham as -1 (1), spam as 1 (1)
    """
    if task is not None:
        check_choice("task", task, TASKS)
    y = signed_times(y) if task == "survival" else y
    check_choice("sparse", sparse, (False, True, "auto"))
    if y is None:
        raise ValueError("y is missing: give the targets")
    columns = column_names(x)
    x = frame_numbers(x) if is_frame(x) else x
    check_choice("pad", pad, (False, True))
    if sparse and not is_sparse(x) and not is_traced_array(x):
        x = numbers("x", x)
        x = x.astype(np.float32) if x.dtype.itemsize < 4 else x
        x = sparsify(x) if x.ndim == 2 and (sparse is True or is_mostly_zeros(x)) else x
    data = checked_batch(x, y, weight, query=query, task=task, classes=classes, columns=columns)
    return padded(data) if pad else data


def checked_batch(
    x: Any,
    y: Any,
    weight: Any,
    *,
    query: object = None,
    task: str | None = None,
    classes: object = None,
    columns: tuple = (),
    packed: bool = False,
) -> Batch:
    """As `dataset`; with `packed` x is a matrix as of `csr`, which is packed and not padded.

    `columns` are the names of the columns of x; () where they have none.
    """
    task = task if task or query is None else "ranking"
    if is_traced_array(x, y, weight, query):
        names: Any = ()
        if not is_traced_array(y):  # it is numbered as outside
            y, names, task = _numbered(y, classes, task)
            y = numbers("y", y)
            y, names = _named(y, names, task, np.ones(y.shape, bool))
        elif classes is not None:
            raise ValueError("classes number a y that is known: number a traced y by jnp.where")
        named = Classes(names, columns) if names or columns else None
        return traced_batch(x, y, weight, query, task or "binary", named)
    sparse = is_sparse(x)
    weight = weight if weight is None else numbers("weight", weight)
    several: Any = None  # the names of labels, where rows have several targets
    if has_columns(y, task):
        y, weight, several = target_columns(y, weight, task, classes)
        names, task = several, task or "multilabel"
    elif task == "multilabel":
        raise ValueError(
            f"task 'multilabel' takes y (n, k), a column for each label, got shape {np.shape(y)}"
        )
    else:
        y, names, task = _numbered(y, classes, task)
    y = numbers("y", y)
    if not packed:
        x = csr(x) if sparse else numbers("x", x)
    check_rows(x, y=y, weight=weight, columns=None if several is None else y.shape[1])
    weight = np.ones(len(y)) if weight is None else weight
    # the dtype of all sums
    dtype = np.dtype(np.float64 if x.dtype == np.float64 and x64_enabled() else np.float32)
    for name, a in (("x", x.data if sparse else x), ("y", y), ("weight", weight)):
        check_finite(name, a, dtype, x.indptr if sparse and name == "x" else None)
    cast_weight = weight.astype(dtype)  # as solvers read it
    if (cast_weight < 0).any() or not (cast_weight > 0).any():
        raise ValueError(
            "weight must be at least 0 everywhere and above 0 somewhere; 0 leaves a row out"
        )
    y, names = _named(y, names, task, cast_weight > 0)
    groups = None if query is None else group_numbers(query, len(y), "query").astype(np.int32)
    if task in ("ranking", "survival"):
        check_grades(y, cast_weight, groups, task == "survival")
        _rounded_grades(y, cast_weight, groups, dtype, task == "survival")
    if task == "regression":
        present = np.broadcast_to(cast_weight.T > 0, y.T.shape)
        for target, live in zip(np.atleast_2d(y.T), np.atleast_2d(present), strict=True):
            check_target_digits(target[live], dtype)
    _check_columns(x, dtype)
    x = x if np.issubdtype(x.dtype, np.floating) or x.dtype.kind == "V" else x.astype(np.float32)
    # put on the device as they are: no program is compiled
    if packed:
        x = pack_lists(x.indices, x.data, np.diff(x.indptr), int(x.shape[1]))
    else:
        x = pad_rows(x) if sparse else np.array(x, jax_dtype(x.dtype))
    index = np.arange(x.shape[0], dtype=np.int32)
    y, weight = y.astype(np.float64).astype(dtype), weight.astype(np.float64).astype(dtype)
    x, y, index, weight, groups = jax.device_put((x, y, index, weight, groups))
    kind = Labels if several else Classes
    return Batch(x, y, index, weight, groups, kind(names, columns) if names or columns else None)


def padded(data: Batch) -> Batch:
    """The data set with rows and columns up to sizes of a series, see `dataset`.

    Rows behind the others are copies of the first, with weight 0 and index -1.
    """
    (n, d), xp = data.x.shape, jnp if is_traced_array(data) else np  # which compiles nothing
    place = np.arange(series_size(n, 512 if n <= 512 else 2048))  # few, as each has programs
    rows = jax.tree.map(lambda a: xp.asarray(a)[np.where(place < n, place, 0)], data)
    x, index = with_zero_columns(rows.x, d), xp.where(place < n, rows.index, -1)
    if isinstance(x, SparseRows):
        x = widened(x, series_size(x.value.shape[1], LANE_WIDTH))
    weight = xp.where(place < n, rows.weight.T, 0).T.astype(rows.weight.dtype)
    named = dataclasses.replace(data.classes or Classes(), width=d)
    return jax.device_put(rows._replace(x=x, index=index, weight=weight, classes=named))


def _numbered(y: object, classes: object, task: str | None) -> tuple[Any, tuple, str]:
    """Labels or class numbers of names that are strings, or given by `classes`; and the task.

    Other targets are unchanged, without names.
    """
    holds_strings = not is_sparse(y) and _holds_strings(y)
    if task in ("regression", "ranking", "survival") or (classes is None and not holds_strings):
        if classes is not None:
            raise ValueError(f"classes are of task 'binary' or 'multiclass', got {task!r}")
        return y, (), task or "binary"
    labels, names = encode(y, classes)
    if task == "binary" and len(names) > 2:
        raise ValueError(f"y holds {len(names)} classes, {names[:5]}...: take task='multiclass'")
    task = task or ("binary" if len(names) == 2 else "multiclass")
    return (labels > 0) * 1 if task == "multiclass" and len(names) == 2 else labels, names, task


def _named(y: np.ndarray, names: tuple, task: str, present: np.ndarray) -> tuple[np.ndarray, tuple]:
    """Labels or class numbers of numbers that have no names yet, and their names."""
    if not names and task == "binary":
        return _labels(y, present)
    return y, _class_numbers(y[present]) if not names and task == "multiclass" else names


def numbers(name: str, a: object) -> np.ndarray:
    """An array of real numbers with a dtype of JAX."""
    if is_sparse(a):
        raise ValueError(
            f"{name} is a sparse matrix, which is taken for x only: make it dense "
            f"with {name}.toarray()"
        )
    refuse_masked(name, a)
    try:
        a = np.asarray(a)
    except ValueError as error:
        raise ValueError(
            f"{name} must be an array of numbers; its rows differ in length"
        ) from error
    if a.dtype.kind not in "biufV" or (a.dtype.kind == "V" and a.dtype.name != "bfloat16"):
        raise ValueError(
            f"{name} must be an array of real numbers, got dtype {a.dtype}; convert it first"
        )
    with np.errstate(over="ignore"):  # overflows become infinities, which are rejected
        return a.astype(jax_dtype(a.dtype), copy=False)


def check_finite(
    name: str, a: np.ndarray, dtype: np.dtype, indptr: np.ndarray | None = None
) -> None:
    """Raise for NaN, infinity and sums that overflow.

    With `indptr`, `a` holds the entries of a CSR matrix.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        cast = a.astype(dtype, copy=False)
        # A finite sum of squares implies finite numbers, without a temporary of their size.
        if np.vdot(cast, cast) < np.finfo(dtype).max / 2:
            return
        values = cast.astype(np.float64, copy=False)
        not_finite = ~np.isfinite(values)
    if not_finite.any():
        row = int(np.argwhere(not_finite)[0][0])
        row = row if indptr is None else int(np.searchsorted(indptr, row, side="right")) - 1
        kind = f"an infinity, or a number too large for {dtype}"
        kind = "a NaN" if np.isnan(values[not_finite]).any() else kind
        raise ValueError(
            f"{name} holds {kind}, first in row {row}: drop or fill in such rows "
            f"({int(not_finite.sum())} numbers)"
        )
    with np.errstate(over="ignore"):
        total = np.sum(np.abs(values)) if name == "weight" else np.vdot(values, values)
    if total > np.finfo(dtype).max:  # norms would overflow, and models be wrong without an error
        what = "sum is" if name == "weight" else "squares sum up to what is"
        raise ValueError(
            f"{name} holds numbers up to {np.abs(values).max():.3g}, whose {what} too large for "
            f"{dtype}: divide {name}, column by column, by its largest number"
        )


def _holds_strings(y: object) -> bool:
    try:
        return np.asarray(y).dtype.kind in "SU" or isinstance(np.asarray(y).flat[0], str)
    except (ValueError, IndexError):  # of no array, or an empty one
        return False


def _labels(y: np.ndarray, present: np.ndarray) -> tuple[np.ndarray, tuple]:
    """Labels -1 and +1 of any two numbers or booleans, and these in order."""
    values = np.unique(y[present])
    if len(values) == 1:
        raise ValueError(
            f"all labels are {float(values[0]):g}: a classifier needs rows of both classes"
        )
    if len(values) == 2:
        names = tuple(values.tolist())
        return (y, (-1, 1)) if names == (-1, 1) else (np.where(y == values[1], 1, -1), names)
    is_range = np.array_equal(values, np.arange(len(values)))
    many = ", or task='multiclass' for class numbers" if is_range else ""
    raise ValueError(
        f"labels must be of two values, such as -1 and +1, got {_first(values)}; use one class "
        f"against the rest: np.where(y == c, 1, -1), or task='regression' for real targets{many}"
    )


def _first(values: np.ndarray) -> str:
    """The first of many numbers in words."""
    return ", ".join(f"{float(v):g}" for v in values[:5]) + (", ..." if len(values) > 5 else "")


def _rounded_grades(
    y: np.ndarray, weight: np.ndarray, query: np.ndarray | None, dtype: np.dtype, signed: bool
) -> None:
    """Raise where rounding makes more than a hundredth of the grades of queries equal to others.

    `signed` are times, of which the magnitudes count.
    """
    exact = np.abs(y.astype(np.float64)) if signed else y.astype(np.float64)
    cast, group = exact.astype(dtype), np.zeros(len(y)) if query is None else query
    kinds = lambda grade: len(np.unique(np.stack([group, grade], 1)[weight > 0], axis=0))
    if (cast != exact).any() and kinds(cast) < 0.99 * kinds(exact):
        kind, first = ("time", "1 + ") if signed else ("grade", "")
        raise ValueError(
            f"rounding to {dtype} moves a {kind} by {np.abs(exact - cast)[weight > 0].max():.2g} "
            f"and makes different {kind}s of a query equal: number them from {int(signed)} on, "
            f"{first}np.unique({'time' if signed else 'y'}, return_inverse=True)[1]"
        )


def check_target_digits(y: np.ndarray, dtype: np.dtype, name: str = "y") -> bool:
    """Warn of numbers whose differences are lost when they are rounded to `dtype`.

    It compares the largest, and the median, rounding error and deviation from the median.

    Returns:
        Whether there was a warning.
    """
    if not y.size or y.dtype.kind == "V" or np.can_cast(y.dtype, dtype):
        return False
    exact = y.astype(np.float64)
    error, deviation = np.abs(exact - exact.astype(dtype)), np.abs(exact - np.median(exact))
    for measure in (np.max, np.median):
        lost, width = measure(error), measure(deviation)
        if width > 0 and lost > 1e-4 * width:
            _warn(
                f"rounding to {dtype} moves {name} by {lost:.2g}, but its numbers lie {width:.2g} "
                f"from their median {np.median(exact):.9g} only: subtract it beforehand, in "
                "float64 (and add that of targets to predictions), or switch on 64-bit numbers, "
                "jax.config.update('jax_enable_x64', True)"
            )
            return True
    return False


def _class_numbers(y: np.ndarray) -> tuple:
    """The class numbers 0 .. k-1, all of which are present."""
    values = np.unique(y)
    if len(values) < 2 or not np.array_equal(values, np.arange(len(values))):
        raise ValueError(
            "class numbers must be 0 .. k-1, k >= 2, each of them present, got "
            f"{_first(values)}; use np.unique(y, return_inverse=True)[1]"
        )
    return tuple(range(len(values)))


def check_digits(x: Any, dtype: np.dtype, ranges: tuple | None = None) -> None:
    """Warn of the first column whose variation is lost when rows are rounded to `dtype`.

    The rows (n, d) are dense or CSR; `ranges` is what `_range` gives, if it is known.
    """
    if not x.shape[0] or x.dtype.kind not in "iuf" or np.can_cast(x.dtype, dtype):
        return
    columns, low, high = ranges or stored_range(x)
    bound = np.finfo(dtype).eps / 2 * np.maximum(np.abs(low), np.abs(high))
    for k in np.flatnonzero((high > low) & (bound > 1e-4 * (high - low))):
        column = x.data[x.indices == columns[k]] if is_sparse(x) else x[:, k]
        if check_target_digits(column, dtype, f"column {columns[k]}"):
            return


def _check_columns(x: object, dtype: np.dtype) -> None:
    """Warn of columns of other scales, that underflow when squared, or that lose digits."""
    columns, low, high = stored_range(x)
    ranges = high - low
    large = ranges[ranges > 0]
    if large.size and large.max() > 1000 * large.min():
        _warn(
            f"the ranges of the columns go from {large.min():.2g} to {large.max():.2g}: solvers "
            "converge slowly on such rows; scale them, first or by on_features, for example with "
            f"jaxsvm.data.{'scale' if is_sparse(x) else 'standardize'}"
        )
    small = np.flatnonzero((ranges > 0) & (ranges < 100 * np.finfo(dtype).tiny ** 0.5))
    if small.size:
        least = ranges[small].min()
        _warn(
            f"the numbers of column {columns[small[ranges[small].argmin()]]} differ by {least:.2g} "
            f"at most, and squares of such numbers underflow in {dtype}: multiply its numbers, for "
            f"example by {2.0 ** -np.floor(np.log2(least)):.2g}"
        )
    check_digits(x, dtype, (columns, low, high))
    # kernels do not shift sparse rows; |x|^2 loses 1e-2 of the squared width
    far = np.flatnonzero((ranges > 0) & (np.abs(low + high) > 300 * ranges))
    if is_sparse(x) and far.size:
        k = far[0]
        _warn(
            f"column {columns[k]} of the sparse x lies far from 0 ({low[k]:.9g} to "
            f"{high[k]:.9g}): kernels lose its digits, as sparse rows are not shifted; subtract "
            "its mean from the stored numbers, which are all of that column"
        )


def _warn(message: str) -> None:
    warnings.warn(message, stacklevel=caller_stacklevel())
