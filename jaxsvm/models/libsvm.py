"""Text files of models of LIBSVM (kernels) and LIBLINEAR (linear models)."""

from __future__ import annotations

import numbers
import os
import warnings
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..checks import (
    MOST_COUNT,
    as_path,
    brief,
    caller_stacklevel,
    check_choice,
    integer,
    is_sparse,
    shown,
    x64_enabled,
)
from ..files import atomic_path, refuse_special
from ..kernels import Kernel, by_name, linear, polynomial, precomputed, rbf, sigmoid
from ..names import KERNELS
from ..numerics import listed_entries, pad_rows
from ..types import Model, SparseRows, all_finite
from .functions import Expansion, Linear, Mapped
from .multiclass import MultiOutput, OneVsOne, OneVsRest, pair_coef
from .predictions import Classifier, MultiLabel

TASKS = ("classification", "regression", "one_class")
ACCURACY = 1e-3  # of decision values, LIBSVM's tolerance
_DENSE = 2**28  # numbers of the largest matrix that is made unasked

_KERNELS = {kernel.__name__: kernel for kernel in (linear, polynomial, rbf, sigmoid, precomputed)}
# The lines before the body in the order in which they are written: the type of their values, or
# the words that may stand there; and how many values there are, "k" for classes.
_LINES: dict[str, tuple[Any, Any]] = {
    "svm_type": ("c_svc nu_svc epsilon_svr nu_svr one_class", 1),
    "solver_type": (
        "L2R_L1LOSS_SVC_DUAL L2R_L2LOSS_SVC_DUAL L2R_L2LOSS_SVC MCSVM_CS L1R_L2LOSS_SVC L2R_LR "
        "L2R_LR_DUAL L1R_LR L2R_L1LOSS_SVR_DUAL L2R_L2LOSS_SVR_DUAL L2R_L2LOSS_SVR ONECLASS_SVM",
        1,
    ),
    "kernel_type": (" ".join(_KERNELS), 1),
    "degree": (int, 1),
    "gamma": (float, 1),
    "coef0": (float, 1),
    "nr_class": (int, 1),
    "total_sv": (int, 1),
    "rho": (float, "pairs"),
    "label": (int, "k"),
    "probA": (float, "pairs"),  # probabilities are not read
    "probB": (float, "pairs"),
    "prob_density_marks": (float, 10),
    "nr_sv": (int, "k"),
    "nr_feature": (int, 1),
    "bias": (float, 1),
}

_OTHERWISE = "write it with models.save or models.export"
_WIDER = "switch on 64-bit numbers, jax.config.update('jax_enable_x64', True)"


def to_libsvm(model: object, path: str | bytes | os.PathLike, *, task: str | None = None) -> None:
    """Write a model to a text file that LIBSVM or LIBLINEAR reads.

    `Expansion`, and `OneVsOne` of any models, are written for LIBSVM (`svm-predict`). `Linear`, and
    `OneVsRest` of it, are written for LIBLINEAR (`predict`). Their decision values are those of the
    model. Numbers have 17 digits, so that none is rounded.

    Probabilities, which are those of an estimator and not of its model, are not written:
    `svm-predict -b 1` refuses the file.

    LIBLINEAR's solver type is written as that of the hinge loss, as the model does not tell its
    loss. A bias becomes the weight of a feature with value 1. Of `OneVsRest` with two classes the
    difference of the values is written. Where two classes have equally many
    votes, LIBSVM predicts the first of `label`; here the sum of the values decides.

    Args:
        model: `Expansion`, `Linear`, `OneVsOne`, `OneVsRest`, or a `Classifier` of one of these. Of
            a precomputed kernel, `model.index` names the training rows.
        path: the file, in a folder that exists.
        task: what the file says that the model is: "classification", "regression" or "one_class".
            None: "classification" for a `Classifier` and for more than two classes, else
            "regression". Without class names, classes are -1 and +1, or 0 .. k-1.

    Raises:
        TypeError: not a model.
        ValueError: the formats cannot hold the model: other kernels, feature maps, class names that
            are not integers, models that are not finite.
        OSError: the file cannot be written.

    Warns:
        UserWarning: as `to_sklearn`.

    Example:
        >>> import os, tempfile, jax.numpy as jnp
        >>> from jaxsvm.models import Classifier, Linear, from_libsvm, to_libsvm
        >>> path = os.path.join(tempfile.mkdtemp(), "a.model")
        >>> to_libsvm(Classifier(Linear(jnp.array([2.0, -1.0]), jnp.array(0.5)), (-1, 1)), path)
        >>> model = from_libsvm(path)
        >>> model(jnp.ones((1, 2))).tolist(), model.predict(jnp.ones((1, 2))).tolist()
        ([1.5], [1])

    Reference: C.-C. Chang, C.-J. Lin, LIBSVM: a library for support vector machines, ACM TIST 2,
        2011; R.-E. Fan et al., LIBLINEAR: a library for large linear classification, JMLR 9, 2008.
    """
    inner, names, task = described("to_libsvm", model, task)
    is_linear, labels = isinstance(inner, Linear | OneVsRest), _labels(names or ())
    if len(labels) == 2 and not isinstance(inner, OneVsOne):
        labels.reverse()  # values > 0 are for the first label there, the second name here
    first, end = ("solver_type", "w") if is_linear else ("svm_type", "SV")
    header, body = (_linear_parts if is_linear else _kernel_parts)(inner, task)
    header[first] = next(name for name in _LINES[first][0].split() if _task_of(name) == task)
    header |= {"nr_class": len(labels) or 2, "label": labels}
    lines = [f"{key} {_text(header[key])}" for key in _LINES if np.size(header.get(key, []))]
    with atomic_path(path) as temporary, open(temporary, "w", encoding="ascii") as file:
        file.writelines(f"{line}\n" for line in (*lines, end, *body))


def from_libsvm(
    path: str | bytes | os.PathLike, *, columns: int | None = None, sparse: bool = False
) -> Model:
    """The model in a text file of LIBSVM or LIBLINEAR.

    Its decision values are those of `svm-predict` or `predict`. Where large coefficients of a
    linear kernel would lose their digits in float32, the points of the model are the weight
    vectors. With other kernels there is a warning. Probabilities, which the file may hold, are not
    read. Where classes have equally many votes, `svm-predict` takes the first of `label`; here the
    sum of the values decides.

    Args:
        path: the file.
        columns: number of columns d of the rows, or of training rows of a precomputed kernel. None:
            the largest index in the file; LIBSVM does not write columns of zeros.
        sparse: whether support vectors are held as `SparseRows`.

    Returns:
        `Classifier` of `Expansion` or `Linear` for two classes. Its names are those of `label` in
        reverse, as values > 0 are for the first of `label`. `Classifier` of `OneVsOne` (LIBSVM) or
        `OneVsRest` (LIBLINEAR) for more. `Expansion` or `Linear` for regression and one class.
        `index` is -1, as the file does not name training rows, but for precomputed kernels. `bias`
        of a linear model is "feature" if the file says 1.

    Raises:
        ValueError: the file is damaged, with the line; or the model cannot be held.
        FileNotFoundError, PermissionError, OSError: the file cannot be read.

    Example:
        >>> import os, tempfile, jax.numpy as jnp, jaxsvm
        >>> path = os.path.join(tempfile.mkdtemp(), "a.model")
        >>> lines = ["svm_type epsilon_svr", "kernel_type rbf", "gamma 0.5", "nr_class 2",
        ...     "total_sv 1", "rho -1", "SV", "2 1:1 3:1"]
        >>> with open(path, "w") as file:
        ...     _ = file.write(chr(10).join(lines))
        >>> jaxsvm.models.from_libsvm(path)(jnp.array([[1.0, 0.0, 1.0]])).tolist()
        [3.0]
    """
    path = as_path("path", path)
    columns = None if columns is None else integer("columns", columns, 1)
    refuse_special(path)
    try:
        with open(path, encoding="ascii", errors="replace") as file, np.errstate(all="ignore"):
            model = _read(file, columns, sparse)
    except KeyError as error:
        raise ValueError(f"{path}: its header has no line {error}") from error
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    if not all_finite(model):  # products and sums of numbers that are
        raise ValueError(
            f"{path}: its numbers, their products or sums are too large for {run_dtype()}: "
            f"{_WIDER}, or scale the model"
        )
    return model


def run_dtype() -> np.dtype:
    """The dtype of the numbers of a model that is read."""
    return np.dtype(np.float64 if x64_enabled() else np.float32)


def _task_of(name: str) -> str:
    """The one of `TASKS` that a type of LIBSVM or LIBLINEAR is for."""
    name = name.lower()
    return "regression" if "svr" in name else "one_class" if "one" in name else "classification"


# Writing


def described(caller: str, model: object, task: str | None) -> tuple[Any, tuple | None, str]:
    """The model without names of classes, these where it has classes, and its task.

    Raises:
        TypeError: not a model.
        ValueError: a model on features, one whose numbers are not finite, or classes with a task
            that has none.
    """
    if task is not None:
        check_choice("task", task, TASKS)
    names = model.classes if isinstance(model, Classifier) else None
    inner = model.inner if isinstance(model, Classifier | MultiLabel) else model
    if hasattr(model, "model_"):
        lost = ", without its probabilities" if np.size(getattr(model, "probA_", ())) else ""
        raise TypeError(
            f"{caller} takes the model of an estimator, got {shown(model)}: pass its model_{lost}"
        )
    if isinstance(inner, MultiOutput):
        raise ValueError(
            f"{caller} takes a model of one target, and this one has {inner.scores}: pass "
            f"model[c] for each c from 0 to {inner.scores - 1}"
        )
    if not isinstance(inner, Expansion | Linear | OneVsOne | OneVsRest):
        mapped = isinstance(inner, Mapped)
        raise (ValueError if mapped else TypeError)(
            f"{caller} takes Expansion, Linear, OneVsOne, OneVsRest or a Classifier of these, got "
            f"{'a model on features' if mapped else shown(inner)}: {_OTHERWISE}"
        )
    if not all_finite(inner):
        raise ValueError(
            "the model holds numbers that are not finite: its training diverged; train it again"
        )
    w = inner.w if isinstance(inner, Linear) else inner.coef if isinstance(inner, Expansion) else 0
    if np.ndim(w) > 1:
        raise ValueError(
            "expected one model, got stacked ones, as of a sweep: select one with "
            "jax.tree.map(lambda leaf: leaf[i], model)"
        )
    names = names or tuple(range(inner.scores if isinstance(inner, OneVsOne | OneVsRest) else 0))
    if not task and not names:
        how = "is taken for a regression: say task=, or pass result.classifier of a classifier"
        warnings.warn(f"a model without names of classes {how}", stacklevel=caller_stacklevel())
    task = task or ("classification" if names else "regression")
    if task != "classification" and names:
        raise ValueError(f"task is {task!r}, but the model has classes: leave task out")
    return inner, names or ((-1, 1) if task == "classification" else None), task


def _labels(names: tuple) -> list[int]:
    """The class names as integers, in the order of the classes."""
    for name in names:
        real = isinstance(name, numbers.Real | np.bool_)
        if not real or not -(2**31) <= name < 2**31 or int(name) != name:
            raise ValueError(
                "labels of LIBSVM are integers of 32 bits, but the model has the class "
                f"{name!r}: give it integers by models.Classifier(model.inner, "
                f"{tuple(range(len(names)))})"
            )
    return [int(name) for name in names]


def _text(values: object) -> str:
    """A word, or numbers with all their digits."""
    if isinstance(values, str):
        return values
    return " ".join(f"{value:.17g}" for value in np.ravel(np.asarray(values, np.float64)))


def linear_weights(model: Linear | OneVsRest) -> tuple[np.ndarray, np.ndarray, str]:
    """The weights (models, d) and biases (models,), and the kind of bias."""
    inner, models = (model, 1) if isinstance(model, Linear) else (model.inner, model.scores)
    if not isinstance(inner, Linear):
        raise ValueError(
            "one class against the rest is held of Linear only, and this model is of "
            f"{type(inner).__name__}: train with one_vs_one, or {_OTHERWISE}"
        )
    w, b = np.asarray(inner.w, np.float64), np.asarray(inner.b, np.float64)
    w, b = np.broadcast_to(w, (models, w.shape[-1])), np.broadcast_to(b, models)
    return *((w[1:] - w[:1], b[1:] - b[:1]) if models == 2 else (w, b)), inner.bias


def _linear_parts(model: Linear | OneVsRest, task: str) -> tuple[dict, Iterator[str]]:
    """The header and the body of a file of LIBLINEAR."""
    w, b, bias = linear_weights(model)
    has_feature = task != "one_class" and (bias != "none" or b.any())
    header = {"nr_feature": w.shape[1], "bias": 1 if has_feature else -1}
    header["rho"] = 0 - b if task == "one_class" else []
    return header, map(_text, np.vstack([w.T, b[None]] if has_feature else [w.T]))


def support_of(model: Expansion | OneVsOne, sign: float = 1.0) -> tuple:
    """The support vectors of a kernel model by their classes, as LIBSVM holds them.

    The signs of coefficients tell the classes. A support vector has one class and a coefficient for
    each other one. A point with coefficients of several classes comes once for each.

    Args:
        model: the model.
        sign: -1 for values > 0 that are for the first class.

    Returns:
        The header's lines of the kernel; the points, a CSR matrix (m, d); their training rows (m,);
        coefficients (m, k-1); the number of points of each class; biases.
    """
    import scipy.sparse

    k, inner = (2, model) if isinstance(model, Expansion) else (model.classes, model.inner)
    pairs = k * (k - 1) // 2
    if isinstance(inner, Linear):  # a weight vector is a support vector of the linear kernel
        w = jnp.broadcast_to(inner.w, (pairs, inner.w.shape[-1]))[:, None]
        inner = Expansion(linear(), w, jnp.ones((pairs, 1)), inner.b, jnp.full(1, -1))
    if not isinstance(inner, Expansion):
        raise ValueError(
            f"LIBSVM holds pairs of Expansion or Linear, got {shown(inner)}: {_OTHERWISE}"
        )
    kernel, x, index = kernel_lines_of(inner.kernel), inner.x, np.asarray(inner.index)
    coef, b = (sign * np.asarray(leaf, np.float64) for leaf in (inner.coef, inner.b))
    m = coef.shape[-1]
    coef = np.broadcast_to(coef, (pairs, m))
    if len(x.shape) > 2 or index.ndim > 1:  # each pair has points of its own
        coef = (np.eye(pairs)[:, :, None] * coef).reshape(pairs, pairs * m)
    if len(x.shape) > 2:
        x = jax.tree.map(lambda leaf: leaf.reshape((-1, *leaf.shape[2:])), x)
    blocks, (first, second) = [], np.triu_indices(k, 1)
    for c in range(k):
        is_for = (first == c).astype(int) - (second == c)
        block = np.where(is_for[:, None] * coef > 0, coef, 0)[is_for != 0].T
        rows = np.flatnonzero(block.any(axis=1))
        blocks.append((rows, block[rows]))
    rows, coef = (np.concatenate(parts) for parts in zip(*blocks, strict=True))
    index = np.broadcast_to(index, (pairs, m)).reshape(-1)[rows]
    if kernel["kernel_type"] == "precomputed" and (index < 0).any():
        raise ValueError(
            "the model does not say of which training rows its precomputed kernel values are: "
            f"index is -1; {_OTHERWISE}"
        )
    x = x[rows % x.shape[0]]
    if isinstance(x, SparseRows):
        place, value, length = listed_entries(x)
        x = scipy.sparse.csr_matrix((value, place, np.append(0, np.cumsum(length))), x.shape)
    x = scipy.sparse.csr_matrix(x, dtype=np.float64)
    x.eliminate_zeros()
    x.sort_indices()
    return kernel, x, index, coef, [len(block[0]) for block in blocks], np.broadcast_to(b, pairs)


def kernel_lines_of(kernel: Kernel) -> dict[str, Any]:
    """The lines of the header that describe the kernel."""
    name = type(kernel).__name__
    if _KERNELS.get(name) is not type(kernel):
        raise ValueError(
            f"LIBSVM holds {', '.join(_KERNELS)} kernels, got {kernel!r}: {_OTHERWISE}"
        )
    values = {key: getattr(kernel, key) for key in KERNELS[name]}
    if isinstance(kernel, rbf) and kernel.gamma is None:  # as LIBSVM computes: in float64
        values["gamma"] = 0.5 / np.asarray(kernel.sigma, np.float64) ** 2
    if any(map(np.ndim, values.values())):
        raise ValueError(
            f"LIBSVM's {name} has one gamma for all columns and pairs, got {kernel!r}: {_OTHERWISE}"
        )
    return {"kernel_type": name, **values}


def _kernel_parts(model: Expansion | OneVsOne, task: str) -> tuple[dict, Iterator[str]]:
    """The header and the body of a file of LIBSVM."""
    kernel, x, index, coef, n_support, b = support_of(model)
    n_support = n_support if task == "classification" else []
    header = {**kernel, "total_sv": len(coef), "rho": 0 - b, "nr_sv": n_support}
    if kernel["kernel_type"] == "precomputed":
        points = [f"0:{row + 1}" for row in index]
    else:
        words = [f"{j + 1}:{v:.17g}" for j, v in zip(x.indices, x.data, strict=True)]
        points = [" ".join(words[start:end]) for start, end in pairwise(x.indptr)]
    return header, (f"{_text(c)} {point}" for c, point in zip(coef, points, strict=True))


# Reading


def _read(file: Iterable[str], columns: int | None, sparse: bool) -> Any:
    """The model of the lines of a file."""
    lines = ((number, line.split()) for number, line in enumerate(file, 1) if line.strip())
    header: dict[str, Any] = {}
    rows: list[tuple[np.ndarray, ...]] = []
    try:
        for line in lines:
            if line[1] in (["SV"], ["w"]):
                break
            _put(header, *line[1])
        is_linear = "solver_type" in header
        task = _task_of(header["solver_type" if is_linear else "svm_type"])
        k = header["nr_class"] if task == "classification" else 2
        if is_linear:
            outputs = k if k > 2 or header["solver_type"] == "MCSVM_CS" else 1
            total, most, by_row = header["nr_feature"] + (header["bias"] >= 0), 0, False
        else:
            outputs, total, most = k - 1, header["total_sv"], columns or MOST_COUNT
            by_row = header["kernel_type"] == "precomputed"
        for line in lines:
            rows.append(_row(line[1], outputs, most, by_row))
    except ValueError as error:
        raise ValueError(f"line {line[0]}: {error}, got {brief(' '.join(line[1]))!r}") from error
    if len(rows) != total:
        raise ValueError(f"expected {total} lines after the header, got {len(rows)}")
    coef = np.array([row[0] for row in rows]).reshape(total, outputs)
    if is_linear:
        model = _linear(header, coef if k > 2 else coef[:, :1], columns)
    else:
        model = _expansion(header, coef, rows, columns, sparse)
    if task != "classification":
        return model
    labels = header["label"]  # values > 0 are for the first one there, the second name here
    return Classifier(model, tuple(labels if k > 2 else labels[::-1]))


def _values(words: list[str], kind: Any = float) -> np.ndarray:
    """Words as integers of 32 bits, or as numbers that a model holds."""
    values = np.array([kind(word) for word in words])
    most = 2**31 if kind is int else float(np.finfo(run_dtype()).max)
    if "_" in "".join(words) or not (np.abs(values) <= most).all():  # Python takes 1_0
        raise ValueError(
            "expected integers of 32 bits"
            if kind is int
            else f"expected finite numbers of {run_dtype()}; for larger ones {_WIDER}"
        )
    return values


def _put(header: dict, key: str, *words: str) -> None:
    """Add a line to the header."""
    if key not in _LINES or key in header:
        raise ValueError(f"expected one of {', '.join(_LINES)}, each once")
    (kind, size), k = _LINES[key], header.get("nr_class", 2)
    count = {"k": k, "pairs": k * (k - 1) // 2}.get(size, size)
    if len(words) != count:
        raise ValueError(f"expected {key} and {count} values")
    if isinstance(kind, str) and words[0] not in kind.split():
        raise ValueError(f"expected {key} and one of {kind}")
    values: Any = words if isinstance(kind, str) else _values(list(words), kind).tolist()
    least = {"label": -np.inf, "nr_class": 2}.get(key, 0)
    if kind is int and min(values) < least:
        raise ValueError(f"expected {key} of at least {least}")
    header[key] = values[0] if size == 1 else values


def _row(words: list[str], outputs: int, most: int, by_row: bool) -> tuple[np.ndarray, ...]:
    """The first numbers of a line of the body, and the indices and the values behind them."""
    pairs = [word.partition(":")[::2] for word in words[outputs:]]
    if by_row:
        pairs = [(row, "1") for zero, row in pairs if zero == "0"]
    places = _values([place for place, _ in pairs], int)
    steps = np.diff([0, *places, most + 1])
    if len(words) < outputs or (steps < 1).any() or (by_row and len(pairs) != 1):
        entry = "0:index" if by_row else "index:value ..."
        rest = f" and {entry}, where indices rise from 1 to {most}" if most else ""
        raise ValueError(f"expected {outputs} numbers{rest}")
    return _values(words[:outputs]), places, _values([value for _, value in pairs])


def _expansion(
    header: dict, coef: np.ndarray, rows: list, columns: int | None, sparse: bool
) -> Any:
    """The expansion of a file of LIBSVM, or those of all pairs."""
    import scipy.sparse

    name, m, k = header["kernel_type"], len(coef), coef.shape[1] + 1
    kernel = by_name(name, **{key: header[key] for key in KERNELS[name]})
    counts = header.get("nr_sv", [m, 0])
    if sum(counts) != m:
        raise ValueError(f"nr_sv must sum to total_sv, {m}, got {sum(counts)}")
    coef = pair_coef(coef, counts)
    places, values = ([value for row in rows for value in row[at]] for at in (1, 2))
    start = np.cumsum([0, *(len(row[1]) for row in rows)])
    width = columns or int(max(places, default=1))
    x = scipy.sparse.csr_matrix((values, np.array(places, int) - 1, start), (m, width))
    if name == "linear":  # coefficients that cancel lose their digits, and weights do not
        size = np.sqrt(x.multiply(x).sum(axis=1)).A1
        largest = size.max(initial=0) * np.linalg.norm(coef * size, axis=1).max()
        if largest * np.finfo(run_dtype()).eps > ACCURACY / 100:
            x, coef = scipy.sparse.csr_matrix(coef @ x), np.eye(len(coef))
    by_row = name == "precomputed"
    if (len(coef) if by_row else 0 if sparse else x.shape[0]) * width > _DENSE:
        raise ValueError(
            f"{x.shape[0]} support vectors of {width} columns are too many numbers for a dense "
            f"matrix{'' if by_row else ': pass sparse=True'}"
        )
    index = x.indices if by_row else np.full(x.shape[0], -1)
    x = x if sparse or by_row else x.toarray()
    model = expansion_of(kernel, x, index, coef, -np.array(header["rho"]), width, k)
    points = model.inner if isinstance(model, OneVsOne) else model
    if np.abs(coef).max(initial=0) > 1e3 and (error := points.rounding()) > ACCURACY:
        sentence = f"{run_dtype()} rounds decision values by about {error:.1e}: {_WIDER}"
        warnings.warn(f"coefficients are large, and {sentence}", stacklevel=caller_stacklevel())
    return model


def expansion_of(kernel: Kernel, x: Any, index: Any, coef: Any, b: Any, n: int, k: int) -> Any:
    """The model with coefficients (pairs, m) of the m points `x`, an array or a CSR matrix.

    Of a precomputed kernel x is not read: the points are the training rows `index` of n.
    """
    dtype = run_dtype()
    coef, b = (coef, b) if k > 2 else (coef[0], b[0])
    if isinstance(kernel, precomputed):  # whose values among the rows, and norm, are not known
        of_points, coef = coef, np.zeros((*coef.shape[:-1], n))
        np.add.at(coef.T, index, of_points.T)  # a row may come twice
        x, index = np.zeros((n, 0)), np.arange(n)
    x = pad_rows(x.tocsr().astype(dtype)) if is_sparse(x) else jnp.asarray(x, dtype)
    coef, b = (jnp.asarray(np.asarray(values, dtype)) for values in (coef, b))
    model = Expansion(kernel, x, coef, b, jnp.asarray(np.asarray(index, np.int32)), "free")
    stacked = (leaf is coef or leaf is b for leaf in jax.tree.leaves(model))
    return OneVsOne(model, tuple(stacked), k) if k > 2 else model


def _linear(header: dict, rows: np.ndarray, columns: int | None) -> Any:
    """The linear model of a file of LIBLINEAR, or those of all classes."""
    d, bias = header["nr_feature"], header["bias"]
    if columns is not None and columns < d:
        raise ValueError(f"nr_feature is {d}, but columns={columns}")
    w = np.pad(rows[:d].T, ((0, 0), (0, (columns or d) - d)))
    b = bias * rows[d] if bias >= 0 else np.zeros(len(w))
    b = b - header["rho"] if header["solver_type"] == "ONECLASS_SVM" else b
    return linear_of(w, b, "feature" if bias == 1 else "free" if b.any() or bias >= 0 else "none")


def linear_of(w: Any, b: Any, bias: str) -> Any:
    """`Linear` of weights (1, d), or `OneVsRest` of it."""
    w, b = (jnp.asarray(values, run_dtype()) for values in (w, np.broadcast_to(b, len(w))))
    return OneVsRest(Linear(w, b, bias), (True, True)) if len(w) > 1 else Linear(w[0], b[0], bias)
