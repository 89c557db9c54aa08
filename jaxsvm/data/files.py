"""Files of rows: svmlight, NumPy arrays and CSV, read with the names of their classes, and written."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import lzma
import os
import re
import warnings
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import jax
import numpy as np

from ..recipe import choice
from ..types import Batch
from .labels import encode
from .rows import dataset

REST = "rest"  # the name of all classes that `positive` leaves out, where they are several


class Rows(NamedTuple):
    """What a file holds, as it stands there, on the host."""

    x: Any  # (n, d)  array, or CSR matrix
    y: np.ndarray | None = None  # (n,)  class names or targets; None: the file has none
    weight: np.ndarray | None = None  # (n,)


class Loaded(tuple):
    """Data sets in the order of the files, and `classes`, the names that their labels stand for.

    Two classes: the second is +1. More: y holds places in `classes`. Real targets: no names. A model predicts in these
    names as `jaxsvm.models.Classifier(model, loaded.classes)`.
    """

    classes: tuple

    def __new__(cls, parts: Sequence[Batch] = (), classes: tuple = ()):
        """Keep the parts as a tuple does."""
        self = super().__new__(cls, parts)
        self.classes = tuple(classes)
        return self


jax.tree_util.register_pytree_node(Loaded, lambda node: (tuple(node), node.classes), lambda names, parts: Loaded(parts, names))


# From names to labels


def label(y: Any, classes: Sequence) -> np.ndarray:
    """The labels of class names: -1 and +1 for two classes, places in `classes` for more.

    Args:
        y: (n,) names.
        classes: as `Loaded.classes` has them, groups that `positive` made included.

    Raises:
        ValueError: a name that is not among them.

    Example:
        >>> label([3, 8, 1], ("rest", "8")).tolist(), label(["b"], ("a", "b")).tolist()
        ([-1, 1, -1], [1])
    """
    y, known = np.asarray(y), np.asarray(classes)
    if len(classes) == 2 and known.dtype.kind in "US" and not np.isin(y.astype(str), known).all():  # groups of `positive`
        first, second = (np.isin(y.astype(str), name.split("|")) for name in known)
        if (first | second | (known[0] == REST)).all():
            return np.where(second, 1, -1)
    if known.dtype.kind in "US" and y.dtype.kind not in "US":
        y = y.astype(str)
    if known.dtype.kind not in "US" and y.dtype.kind in "US":
        y = tidy(y)
    return encode(y, names=classes)[0]


def tidy(y: Any) -> np.ndarray:
    """Class names: numbers where all are numbers, whole ones where all are whole, else strings."""
    y = np.asarray(y)
    if y.dtype.kind in "US":
        try:
            y = y.astype(np.float64)
        except ValueError:
            return y.astype(str)
    if y.dtype.kind == "f" and np.isfinite(y).all() and (y == np.round(y)).all() and (np.abs(y) < 2**53).all():
        return y.astype(np.int64)
    return y


def _grouped(found: tuple, positive: Any) -> tuple:
    """The two names of `positive` against the rest."""
    wanted = np.atleast_1d(np.asarray(list(positive) if isinstance(positive, set | range) else positive))
    shown = ", ".join(map(str, found[:12])) + (", ..." if len(found) > 12 else "")
    texts, wanted = [str(name) for name in found], [str(name) for name in tidy(wanted)]
    strange = [name for name in wanted if name not in texts]
    if strange or not 0 < len(set(wanted)) < len(found):
        raise ValueError(f"positive must be one or several, not all, of the classes {shown}; got {', '.join(wanted)}")
    if len(found) == 2:
        return tuple(sorted(found, key=lambda name: str(name) in wanted))
    rest = [name for name in texts if name not in wanted]
    return (rest[0] if len(rest) == 1 else REST, "|".join(name for name in texts if name in wanted))


def assemble(parts: Sequence[Rows], *, task: str | None = None, positive: Any = None, classes: Any = None) -> Loaded:
    """Rows as they stand in files to data sets with labels; the first part says which classes there are.

    Args:
        parts: each with targets.
        task: "binary", "multiclass", "regression"; None: the first for two classes, the second for more.
        positive: the class, or several, that are +1 against the rest; None: the last of two.
        classes: names of an earlier call, kept; None: those of the first part.

    Raises:
        ValueError: one class only, more than two with task="binary", a later part with a class that the first lacks.
    """
    if task is not None:
        choice("task", task, ("binary", "multiclass", "regression"))
    if any(part.y is None for part in parts):
        raise ValueError("there are no labels beside the rows")
    names = [tidy(part.y) for part in parts]
    if task == "regression":
        if positive is not None:
            raise ValueError("positive is a class, and task='regression' has none: give one of the two")
        for y in (y for y in names if y.dtype.kind in "US"):
            raise ValueError(f"targets must be numbers with task='regression', got {y[0]!r} and others")
        return Loaded([_batch(part, y, "regression", not i) for i, (part, y) in enumerate(zip(parts, names, strict=True))])
    if classes is None:
        live = names[0] if parts[0].weight is None else names[0][parts[0].weight > 0]
        classes = encode(live)[1]
        classes = classes if positive is None else _grouped(classes, positive)
        first = task or ("binary" if len(classes) == 2 else "multiclass")
        if first == "binary" and len(classes) > 2:
            shown = ", ".join(map(str, classes[:12])) + (", ..." if len(classes) > 12 else "")
            raise ValueError(f"there are {len(classes)} classes, {shown}: say which is +1, positive={classes[-1]!r}")
    else:
        first = "regression"  # rows that need not hold every class
    made = []
    for i, (part, y) in enumerate(zip(parts, names, strict=True)):
        numbers = label(y, classes)
        numbers = (numbers + 1) // 2 if len(classes) == 2 and task == "multiclass" else numbers
        made.append(_batch(part, numbers, "regression" if i else first, not i))
    return Loaded(made, classes)


def _batch(part: Rows, y: np.ndarray, task: str, warn: bool) -> Batch:
    with warnings.catch_warnings():
        if not warn:  # once is enough
            warnings.simplefilter("ignore")
        return dataset(part.x, y, part.weight, task=task)


# svmlight


def load_svmlight(
    *paths: str | os.PathLike,
    task: str | None = None,
    positive: Any = None,
    classes: Any = None,
    columns: int | None = None,
    zero_based: bool | str = "auto",
) -> Loaded:
    r"""Read svmlight (LIBSVM) files, `.gz` and `.bz2` too, as `SparseRows`, one data set for each file.

    All files get the number of columns of the widest and the classes of the first. Needs scikit-learn.

    Args:
        *paths: one or more.
        task: "binary", "multiclass" or "regression"; None: the first for two classes, the second for more.
        positive: the class, or several, that are +1 against the rest; None: the last of two.
        classes: names to keep, of an earlier call, such as `train.classes`; None: those of the first file.
        columns: of the rows; None: the largest index in the files.
        zero_based: whether the first column has index 0; "auto": where an index 0 occurs in any of the files.

    Returns:
        `Loaded`: a tuple of data sets with `classes`.

    Raises:
        ValueError: a line that is not svmlight, with the file, the number of the line and what is wrong there; labels
            that do not fit the task.
        FileNotFoundError, ImportError: no such file, no scikit-learn.

    Example:
        >>> import os, tempfile
        >>> path = os.path.join(tempfile.mkdtemp(), "a.svm")
        >>> with open(path, "w") as file:
        ...     _ = file.write("3 1:0.5 4:1\n7 2:2\n")
        >>> (train,) = loaded = load_svmlight(path)
        >>> train.x.shape, train.y.tolist(), loaded.classes
        ((2, 4), [-1.0, 1.0], (3, 7))
    """
    rows = read_svmlight(*paths, columns=columns, zero_based=zero_based)
    return _named(paths, lambda: assemble(rows, task=task, positive=positive, classes=classes))


def read_svmlight(
    *paths: str | os.PathLike, columns: int | None = None, zero_based: bool | str = "auto", dtype: Any = None
) -> list[Rows]:
    """The rows of svmlight files as CSR matrices, with their labels as they stand there."""
    try:
        from sklearn.datasets import load_svmlight_files
    except ImportError as error:
        raise ImportError("svmlight files are read through scikit-learn: pip install 'jaxsvm[sklearn]'") from error
    paths = _checked(paths)
    dtype = dtype or _floats()
    try:
        with np.errstate(over="ignore"):
            made = load_svmlight_files(paths, n_features=columns, dtype=dtype, zero_based=zero_based)
    except (ValueError, OverflowError, EOFError, OSError) as error:
        for path in paths:
            _find_bad_line(path, dtype, columns, zero_based)
        raise ValueError(f"{', '.join(paths)} cannot be read as svmlight: {error}") from error
    parts = [Rows(x, y) for x, y in zip(made[::2], made[1::2], strict=True)]
    for path, part in zip(paths, parts, strict=True):
        if not part.x.shape[0]:
            raise ValueError(f"{path} holds no rows")
        if not (np.isfinite(part.x.data).all() and np.isfinite(part.y).all()):
            _find_bad_line(path, dtype, columns, zero_based)
    return parts


def _find_bad_line(path: str, dtype: Any, columns: int | None, zero_based: bool | str) -> None:
    """Raise ValueError for the first line that is not svmlight, as scikit-learn does not say which one it is."""
    most = float(np.finfo(dtype).max)
    try:
        with open_any(path, "rb") as file:
            for number, line in enumerate(file, 1):
                fault = _fault(line.split(b"#")[0].split(), most, columns, zero_based)
                if fault:
                    raise ValueError(f"{path}, line {number}: {fault}")
    except (EOFError, OSError, zlib.error) as error:
        raise ValueError(f"{path} is damaged: {error}") from error


def _fault(words: list[bytes], most: float, columns: int | None, zero_based: bool | str) -> str | None:
    """What is wrong with a line of svmlight."""
    if not words:
        return None
    show = lambda word: repr(word[:40].decode("utf-8", "replace"))  # noqa: E731
    fault = _number_fault(words[0], most)
    if fault:
        return f"the label {show(words[0])} {fault}"
    before = -1
    for place, word in enumerate(words[1:]):
        index, colon, value = word.partition(b":")
        if not colon:
            return f"{show(word)} has no colon, expected index:value"
        if index == b"qid" and place == 0:
            continue
        if not re.fullmatch(rb"[+-]?\d+", index):
            return f"the index {show(index)} is no whole number"
        if int(index) < (1 if zero_based is False else 0):
            return f"the index {int(index)} is below {'1' if zero_based is False else '0'}"
        if int(index) >= 2**31 - 1:
            return f"the index {show(index)} is above {2**31 - 2}; hash the columns to fewer"
        if columns is not None and int(index) >= columns + (zero_based is not True):
            return f"the index {int(index)} is beyond the {columns} columns"
        if int(index) <= before:
            return f"the index {int(index)} comes after {before}, indices must rise"
        fault = _number_fault(value, most)
        if fault:
            return f"the value {show(value)} of index {int(index)} {fault}"
        before = int(index)
    return None


def _number_fault(text: bytes | str, most: float) -> str | None:
    try:
        value = float(text)
    except ValueError:
        return "is no number"
    if np.isnan(value):
        return "is no finite number: drop or fill in such rows"
    if abs(value) > most:
        return "is no finite number" if np.isinf(value) else "is too large for float32"
    return None


# NumPy files


def memory_map(path: str | os.PathLike) -> dict[str, np.ndarray]:
    """The arrays of a `.npy` or `.npz` file without reading them: they lie in the file until they are asked for.

    Compressed members of a `.npz` file (`np.savez_compressed`) and those without numbers are read. The sums that a
    `.npz` file keeps of its bytes are not checked.

    Args:
        path: the file.

    Returns:
        name -> array, read-only; a `.npy` file has the one name "x".

    Raises:
        ValueError: a damaged file, or arrays of Python objects.
        FileNotFoundError: no such file.

    Example:
        >>> import os, tempfile
        >>> path = os.path.join(tempfile.mkdtemp(), "a.npz")
        >>> np.savez(path, x=np.eye(2))
        >>> type(memory_map(path)["x"]).__name__
        'memmap'
    """
    (path,) = _checked((path,))
    with _whole_arrays(path), open(path, "rb") as file:
        if file.read(6) == b"\x93NUMPY":
            return {"x": _mapped(path, file, 0, os.path.getsize(path))}
        with zipfile.ZipFile(file) as members:
            return {info.filename.removesuffix(".npy"): _member(path, file, members, info) for info in members.infolist()}


def _member(path: str, file: Any, members: zipfile.ZipFile, info: zipfile.ZipInfo) -> np.ndarray:
    if info.compress_type == zipfile.ZIP_STORED:
        file.seek(info.header_offset)
        head = file.read(30)
        if head[:4] != b"PK\x03\x04":
            raise ValueError(f"{info.filename} is not where the file says")
        start = info.header_offset + 30 + int.from_bytes(head[26:28], "little") + int.from_bytes(head[28:30], "little")
        return _mapped(path, file, start, start + info.file_size)
    return np.lib.format.read_array(io.BytesIO(members.read(info)), allow_pickle=False)


def _mapped(path: str, file: Any, start: int, end: int) -> np.ndarray:
    """The array whose `.npy` bytes go from `start` to `end` of the file."""
    file.seek(start)
    version = np.lib.format.read_magic(file)
    if version not in ((1, 0), (2, 0)):
        raise ValueError(f"an array of format {version}")
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, by_columns, dtype = read(file)
    if dtype.hasobject:
        raise ValueError("an array holds Python objects, which are never read")
    if file.tell() + int(np.prod(shape, dtype=object)) * dtype.itemsize > end:
        raise ValueError("an array is shorter than it says")
    if not shape or 0 in shape:
        file.seek(start)
        return np.lib.format.read_array(io.BytesIO(file.read(end - start)), allow_pickle=False)
    return np.memmap(file, dtype, "r", file.tell(), shape, "F" if by_columns else "C")


@contextmanager
def _whole_arrays(path: str) -> Iterator[None]:
    """Whatever a damaged byte leads to becomes a sentence."""
    try:
        yield
    except (FileNotFoundError, PermissionError, MemoryError):
        raise
    except Exception as error:
        raise ValueError(f"{path} is damaged or no file of NumPy arrays ({error})") from error


def load_npz(*paths: Any, task: str | None = None, positive: Any = None, classes: Any = None) -> Loaded:
    """Read data sets from `.npz` files, or from `.npy` files given as tuples. Nothing is unpickled.

    A `.npz` file holds the arrays x and y (or X and y), and weight where there are weights; or several parts, as
    x_train, y_train, x_test, y_test; a sparse matrix is x_data, x_indices, x_indptr, x_shape. An array class_names
    gives names to class numbers.

    Args:
        *paths: one or more; ("x.npy", "y.npy") or ("x.npy", "y.npy", "weight.npy") is one of `.npy` files.
        task: as for `load_svmlight`.
        positive: as for `load_svmlight`.
        classes: as for `load_svmlight`.

    Returns:
        `Loaded`: a tuple of data sets, the parts of the first file before those of the next, with `classes`.

    Raises:
        ValueError: a damaged file, arrays that are missing or do not fit, labels that do not fit the task.
        FileNotFoundError: no such file.

    Example:
        >>> import os, tempfile
        >>> path = os.path.join(tempfile.mkdtemp(), "a.npz")
        >>> np.savez(path, x=np.eye(2), y=["ham", "spam"])
        >>> load_npz(path).classes
        ('ham', 'spam')
    """
    parts = [part for path in paths for part in read_npz(path)]
    return _named(paths, lambda: assemble(parts, task=task, positive=positive, classes=classes))


def read_npz(path: Any) -> list[Rows]:
    """The parts of a `.npz` file, training rows first; or of a tuple of `.npy` files."""
    if isinstance(path, tuple | list):
        if not 1 <= len(path) <= 3:
            raise ValueError(f"rows, labels and weights are three .npy files at most, got {len(path)}")
        arrays = dict(zip(("x", "y", "weight"), (_read_npy(each) for each in path), strict=False))
        return [_part(arrays, "x", "")]
    (path,) = _checked((path,))
    with open(path, "rb") as file:
        if file.read(6) == b"\x93NUMPY":
            return [Rows(_read_npy(path))]
    with _whole_arrays(path), zipfile.ZipFile(path) as file:
        members = {
            name.removesuffix(".npy"): np.lib.format.read_array(io.BytesIO(file.read(name)), allow_pickle=False)
            for name in file.namelist()
        }
    found = [re.fullmatch(r"([xX])(_\w+)?", name.removesuffix("_data")) for name in members]
    heads = list(dict.fromkeys((match[1], match[2] or "") for match in found if match))
    heads = [(x, part) for x, part in heads if not part.endswith(("_indices", "_indptr", "_shape"))]
    heads.sort(key=lambda head: ("", "_train", "_test", head[1]).index(head[1]))
    if not heads:
        raise ValueError(f"{path} holds no array x, only {', '.join(members) or 'nothing'}")
    try:
        return [_part(members, x, part) for x, part in heads]
    except (ValueError, TypeError, IndexError) as error:
        raise ValueError(f"{path}: {error}") from error


def _read_npy(path: str | os.PathLike) -> np.ndarray:
    (path,) = _checked((path,))
    with _whole_arrays(path), open(path, "rb") as file:
        return np.lib.format.read_array(file, allow_pickle=False)


def _part(arrays: dict, x: str, part: str) -> Rows:
    """One data set among the arrays of a file: x_part, y_part, weight_part."""
    rows, names = arrays.get(x + part), arrays.get("class_names")
    if rows is None:
        import scipy.sparse

        missing = [end for end in ("indices", "indptr", "shape") if f"{x}{part}_{end}" not in arrays]
        if missing:
            raise ValueError(f"beside {x}{part}_data there is no {x}{part}_{missing[0]}")
        data, indices, indptr, shape = (arrays[f"{x}{part}_{end}"] for end in ("data", "indices", "indptr", "shape"))
        rows = scipy.sparse.csr_matrix((data, indices, indptr), shape=tuple(int(k) for k in shape))
        rows.check_format(full_check=True)
    y = arrays.get("y" + part)
    if rows.ndim != 2:
        raise ValueError(f"{x}{part} must be a matrix with a row for each example, got shape {rows.shape}")
    if y is not None and y.shape != rows.shape[:1]:
        raise ValueError(f"y{part} must hold one label for each of the {rows.shape[0]} rows, got shape {y.shape}")
    weight = arrays.get("weight" + part)
    if weight is not None and weight.shape != rows.shape[:1]:
        raise ValueError(f"weight{part} must hold one number for each of the {rows.shape[0]} rows, got shape {weight.shape}")
    if y is not None and names is not None and y.dtype.kind in "iu" and y.size and 0 <= y.min() and y.max() < len(names):
        y = names[y]
    return Rows(rows, y, weight)


# CSV


def load_csv(
    *paths: str | os.PathLike,
    label: int | str | None = -1,
    delimiter: str = ",",
    header: bool | str = "auto",
    task: str | None = None,
    positive: Any = None,
    classes: Any = None,
) -> Loaded:
    r"""Read CSV files, `.gz`, `.bz2` and `.xz` too: numbers, and a column of labels, which may be words.

    Args:
        *paths: one or more, with the same columns.
        label: the column of labels by number (-1 the last, 0 the first) or by its name in the header.
        delimiter: between the cells.
        header: whether the first line names the columns; "auto": where it holds a cell, the label apart, that is no number.
        task: as for `load_svmlight`.
        positive: as for `load_svmlight`.
        classes: as for `load_svmlight`.

    Returns:
        `Loaded`: a tuple of data sets with `classes`.

    Raises:
        ValueError: a cell that is no finite number, a line with another number of cells, a file without rows, each with
            the number of the line; labels that do not fit the task.
        FileNotFoundError: no such file.

    Example:
        >>> import os, tempfile
        >>> path = os.path.join(tempfile.mkdtemp(), "a.csv")
        >>> with open(path, "w") as file:
        ...     _ = file.write("length,kind\n1.5,cat\n2,dog\n")
        >>> load_csv(path).classes
        ('cat', 'dog')
    """
    parts = [read_csv(path, label=label, delimiter=delimiter, header=header) for path in paths]
    for path, part in zip(paths, parts, strict=True):
        if part.x.shape[1] != parts[0].x.shape[1]:
            raise ValueError(f"{path} has {part.x.shape[1]} columns beside the label, {paths[0]} has {parts[0].x.shape[1]}")
    return _named(paths, lambda: assemble(parts, task=task, positive=positive, classes=classes))


def read_csv(
    path: str | os.PathLike,
    *,
    label: int | str | None = -1,
    delimiter: str = ",",
    header: bool | str = "auto",
    columns: int | None = None,
) -> Rows:
    """The rows of a CSV file with its labels as they stand there; label=None, or just `columns` cells a line: it has none."""
    choice("header", header, (True, False, "auto"))
    (path,) = _checked((path,))
    try:
        with open_any(path) as file:
            first = next((cells for cells in csv.reader(file, delimiter=delimiter) if any(map(str.strip, cells))), None)
        if first is None:
            raise ValueError(f"{path} holds no rows")
        width, head = len(first), [cell.strip() for cell in first]
        label = None if width == columns else label
        named = isinstance(label, str)
        if named and label not in head:
            raise ValueError(f"{path} has no column named {label!r}, its first line holds {', '.join(head[:12])}")
        place = None if label is None else head.index(label) if named else _column(path, label, width)
        if width == 1 and label is not None:
            raise ValueError(f"{path}, line 1 has a single cell, {head[0][:40]!r}: is {delimiter!r} what stands between cells?")
        cells = [cell for i, cell in enumerate(head) if i != place]
        skip = header if header != "auto" else named or any(_number_fault(cell, np.inf) == "is no number" for cell in cells)
        names: dict[str, int] = {}
        kept = {} if place is None else {place: lambda cell: names.setdefault(cell.strip(), len(names))}
        with open_any(path) as file, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a file without rows is told of below
            for _ in range(_lines_before(path, delimiter) + 1 if skip else 0):
                next(file)
            table = np.loadtxt(file, delimiter=delimiter, comments=None, quotechar='"', ndmin=2, converters=kept or None)
        most = float(np.finfo(_floats()).max)
        if table.size and table.shape[1] != width:
            raise ValueError("cells")
        if not (np.abs(table) <= most).all():
            raise ValueError("numbers")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is no text in UTF-8: {error.reason} at byte {error.start}") from error
    except (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile) as error:
        raise ValueError(f"{path} is damaged: {error}") from error
    except (ValueError, csv.Error) as error:
        if str(error).startswith(path):
            raise
        _find_bad_cell(path, width, place, bool(skip), delimiter)
        raise ValueError(f"{path} cannot be read as CSV: {error}") from error
    if not table.size:
        raise ValueError(f"{path} holds no rows")
    if place is None:
        return Rows(table)
    if "" in names:
        _find_bad_cell(path, width, place, bool(skip), delimiter)
    return Rows(np.delete(table, place, axis=1), np.asarray(list(names))[table[:, place].astype(int)])


def _column(path: str, label: int, width: int) -> int:
    if not -width <= label < width:
        raise ValueError(f"{path} has {width} columns, the label cannot stand in column {label}")
    return label % width


def _lines_before(path: str, delimiter: str) -> int:
    """Lines before the first that is not blank."""
    with open_any(path) as file:
        return next(number for number, line in enumerate(file) if line.strip())


def _find_bad_cell(path: str, width: int, place: int | None, skip: bool, delimiter: str) -> None:
    """Raise ValueError for the first line that does not fit, as NumPy counts rows, not lines."""
    most = float(np.finfo(_floats()).max)
    with open_any(path) as file:
        reader = csv.reader(file, delimiter=delimiter)
        for cells in reader:
            if not any(map(str.strip, cells)):
                continue
            if skip:
                skip = False
                continue
            if len(cells) != width:
                raise ValueError(f"{path}, line {reader.line_num} has {len(cells)} cells, expected {width} as in the first")
            for i, cell in enumerate(cells):
                fault = (None if cell.strip() else "is empty") if i == place else _number_fault(cell, most)
                if fault:
                    raise ValueError(f"{path}, line {reader.line_num}: the cell {cell[:40]!r} in column {i + 1} {fault}")


# Any of them


def kind_of(path: Any) -> str:
    """The format of a file, by its name, else by its first lines: "svmlight", "npz" or "csv".

    Example:
        >>> kind_of("rows.svm.gz"), kind_of("rows.npz"), kind_of("rows.csv")
        ('svmlight', 'npz', 'csv')
    """
    if isinstance(path, tuple | list):
        return "npz"
    end = os.path.splitext(re.sub(r"\.(gz|bz2|xz)$", "", os.fspath(path)))[1].lower()
    known = {".npz": "npz", ".npy": "npz", ".csv": "csv", ".tsv": "csv", ".svm": "svmlight", ".svmlight": "svmlight"}
    known |= {".libsvm": "svmlight"}
    if end in known or not os.path.isfile(path):
        return known.get(end, "svmlight")
    with open_any(os.fspath(path), "rb") as file:
        line = next((line for line in file if line.strip() and not line.startswith(b"#")), b"")
    return "csv" if b"," in line.split(b":")[0] else "svmlight"


def read_files(*paths: Any, kind: str | None = None, columns: int | None = None, dtype: Any = None, **how: Any) -> list[Rows]:
    """The rows of files of any kind, as they stand there; `how` is for CSV, `dtype` for svmlight."""
    paths = [tuple(path.split(",")) if isinstance(path, str) and re.search(r"\.npy,", path) else path for path in paths]
    kinds = [kind or kind_of(path) for path in paths]
    for name in kinds:
        choice("kind", name, ("svmlight", "npz", "csv"))
    if set(kinds) == {"svmlight"}:
        return read_svmlight(*paths, columns=columns, dtype=dtype)
    made: list[Rows] = []
    for path, name in zip(paths, kinds, strict=True):
        if name == "svmlight":
            made += read_svmlight(path, columns=columns or (made[0].x.shape[1] if made else None), dtype=dtype)
        elif name == "csv":
            between = {"delimiter": "\t"} if re.search(r"\.tsv(\.|$)", os.fspath(path)) else {}
            made.append(read_csv(path, columns=columns, **(between | how)))
        else:
            made += read_npz(path)
    return made


def load_file(
    *paths: Any, kind: str | None = None, task: str | None = None, positive: Any = None, classes: Any = None, **how: Any
) -> Loaded:
    """Read data sets from files of any kind that is known, told by their names, else by their first lines.

    Args:
        *paths: svmlight, `.npz`, `.npy` ("x.npy,y.npy") or CSV files.
        kind: "svmlight", "npz" or "csv"; None: `.npz` and `.npy`; `.csv` and `.tsv`; any other is CSV where a comma
            stands in its first line, else svmlight.
        task: as for `load_svmlight`.
        positive: as for `load_svmlight`.
        classes: as for `load_svmlight`.
        **how: label, delimiter, header of CSV files, columns of svmlight files.

    Returns:
        `Loaded`: a tuple of data sets with `classes`.

    Raises:
        ValueError, FileNotFoundError, ImportError: as the readers of each kind.
    """
    parts = read_files(*paths, kind=kind, **how)
    for part in parts:
        if part.x.shape[1] != parts[0].x.shape[1]:
            raise ValueError(f"the files differ in columns: {parts[0].x.shape[1]} and {part.x.shape[1]}")
    return _named(paths, lambda: assemble(parts, task=task, positive=positive, classes=classes))


def _named(paths: Sequence, make: Callable[[], Loaded]) -> Loaded:
    """What is wrong with the rows is said with the names of the files."""
    try:
        return make()
    except ValueError as error:
        raise ValueError(f"{', '.join(map(str, paths))}: {error}") from error


def _checked(paths: Sequence) -> list[str]:
    if not paths:
        raise ValueError("give the path of at least one file")
    paths = [os.fspath(path) for path in paths]
    for path in paths:
        if os.path.isdir(path):
            raise IsADirectoryError(f"{path} is a folder, expected a file")
        if not os.path.exists(path):
            raise FileNotFoundError(f"there is no file {path}")
    return paths


def _floats() -> Any:
    """The widest numbers that a run can have."""
    return np.float64 if jax.config.jax_enable_x64 else np.float32


def open_any(path: str, mode: str = "r") -> Any:
    """A text file in UTF-8, or bytes, unpacked where the name ends in .gz, .bz2 or .xz."""
    opener = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}.get(os.path.splitext(path)[1], open)
    if "b" in mode:
        return opener(path, mode)
    return opener(path, mode + "t", encoding="utf-8-sig" if mode == "r" else "utf-8", newline="")


# Writing


@contextmanager
def beside(path: str | os.PathLike) -> Iterator[str]:
    """A name beside `path` to write to, renamed into place in the end: `path` is never a part of a file."""
    path = os.fspath(path)
    folder, name = os.path.split(path)
    other = os.path.join(folder, f".{os.getpid()}.part.{name}")  # the end of the name says how to pack
    try:
        yield other
        os.replace(other, path)
    finally:
        if os.path.exists(other):
            os.unlink(other)


def save_npz(path: str | os.PathLike, x: Any, y: Any = None, weight: Any = None) -> None:
    """Write rows to an uncompressed `.npz` file, which `load_npz` reads and `memory_map` maps.

    Args:
        path: the file, in a folder that exists.
        x: (n, d) array, or a sparse matrix of SciPy.
        y: (n,) class names or targets; None: none.
        weight: (n,); None: none.

    Raises:
        ValueError: arrays of Python objects.

    Example:
        >>> import os, tempfile
        >>> path = os.path.join(tempfile.mkdtemp(), "a.npz")
        >>> save_npz(path, np.eye(2), [0, 1])
        >>> sorted(memory_map(path))
        ['x', 'y']
    """
    arrays = {"x": x} if not hasattr(x, "tocsr") else {f"x_{a}": getattr(x.tocsr(), a) for a in ("data", "indices", "indptr")}
    arrays |= {"x_shape": np.asarray(x.shape, np.int64)} if hasattr(x, "tocsr") else {}
    arrays |= {name: a for name, a in (("y", y), ("weight", weight)) if a is not None}
    arrays = {name: np.asarray(a) for name, a in arrays.items()}
    for name, a in arrays.items():
        if a.dtype.hasobject:
            raise ValueError(f"{name} holds Python objects, which are never written: convert it first")
    with beside(path) as other, open(other, "wb") as file:
        np.savez(file, **arrays)


def save_svmlight(path: str | os.PathLike, x: Any, y: Any) -> None:
    """Write rows as svmlight, indices from 1, numbers in full; packed where the name ends in .gz or .bz2.

    Args:
        path: the file, in a folder that exists.
        x: (n, d) array, or a sparse matrix of SciPy.
        y: (n,) numbers.

    Raises:
        ValueError: labels that are no numbers.
    """
    y = tidy(y)
    if y.dtype.kind not in "biuf":
        raise ValueError(f"labels in svmlight files are numbers, got {y[0]!r}: number the classes, or write .npz or .csv")
    show = _show(x.dtype)
    rows = x.tocsr() if hasattr(x, "tocsr") else None
    with beside(path) as other, open_any(other, "w") as file:
        for i, name in enumerate(y.tolist()):
            if rows is None:
                places = np.flatnonzero(x[i])
                values = x[i][places]
            else:
                part = slice(rows.indptr[i], rows.indptr[i + 1])
                order = np.argsort(rows.indices[part], kind="stable")
                places, values = rows.indices[part][order], rows.data[part][order]
            cells = [f"{c + 1}:{show(v)}" for c, v in zip(places.tolist(), values.tolist(), strict=True)]
            file.write(" ".join([repr(name) if isinstance(name, float) else str(int(name)), *cells]) + "\n")


def save_csv(path: str | os.PathLike, x: Any, y: Any = None, *, delimiter: str = ",") -> None:
    """Write rows as CSV with a header, x1, x2, ..., and the labels as the last column, y; numbers in full.

    Args:
        path: the file, in a folder that exists; packed where it ends in .gz, .bz2 or .xz.
        x: (n, d) array, or a sparse matrix of SciPy, whose zeros are written out.
        y: (n,) class names or targets; None: none.
        delimiter: between the cells.
    """
    show, names = _show(x.dtype), None if y is None else tidy(y).tolist()
    with beside(path) as other, open_any(other, "w") as file:
        writer = csv.writer(file, delimiter=delimiter, lineterminator="\n")
        writer.writerow([f"x{c + 1}" for c in range(x.shape[1])] + ([] if y is None else ["y"]))
        for start in range(0, x.shape[0], 1024):
            rows = x[start : start + 1024]
            for i, row in enumerate(rows.toarray() if hasattr(rows, "toarray") else np.asarray(rows), start):
                writer.writerow([show(v) for v in row.tolist()] + ([] if names is None else [names[i]]))


def _show(dtype: Any) -> Callable[[Any], str]:
    """Numbers as text that reads back as the same number."""
    dtype = np.dtype(dtype)
    if dtype.kind in "biu":
        return lambda v: str(int(v))
    return (lambda v: f"{v:.9g}") if dtype.itemsize <= 4 else (lambda v: f"{v:.17g}")
