"""Text files of models of LIBSVM (kernels) and LIBLINEAR (linear models)."""

from __future__ import annotations

import dataclasses
import numbers
import os
import warnings
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ..checks import as_path, integer, shown
from ..files import atomic_path
from ..kernels import Kernel, by_name, linear, polynomial, precomputed, rbf, sigmoid
from ..names import KERNELS
from ..numerics import pad_rows
from ..recipe import check_choice
from ..types import Array, SparseRows, all_finite
from .functions import Expansion, Linear, make_expansion, on_training_rows
from .multiclass import MultiOutput, OneVsOne, OneVsRest, pair_coef, stack_pairs
from .predictions import Classifier, MultiLabel
from .text import TextFile, run_dtype

TASKS = ("classification", "regression", "one_class")
ACCURACY = 1e-3  # of decision values, LIBSVM's tolerance
# numbers of the largest dense matrix of support vectors that is made unasked
_DENSE = 2**28
_SMALL = 2**24  # of a file of a few bytes; of longer ones _PER_BYTE more for each byte
_PER_BYTE = 64

_SVM_TYPE = {"classification": "c_svc", "regression": "epsilon_svr", "one_class": "one_class"}
_SOLVER_TYPE = {
    "classification": "L2R_L1LOSS_SVC_DUAL",
    "regression": "L2R_L1LOSS_SVR_DUAL",
    "one_class": "ONECLASS_SVM",
}
_SVM_TYPES = ("c_svc", "nu_svc", "one_class", "epsilon_svr", "nu_svr")
_KERNEL_TYPES = ("linear", "polynomial", "rbf", "sigmoid", "precomputed")
_LIBSVM_KEYS = (
    *("svm_type", "kernel_type", "degree", "gamma", "coef0", "nr_class", "total_sv", "rho"),
    *("label", "probA", "probB", "prob_density_marks", "nr_sv"),
)
_LIBLINEAR_KEYS = ("solver_type", "nr_class", "label", "nr_feature", "bias", "rho")
_CLASSIFIERS = (
    *("L2R_LR", "L2R_L2LOSS_SVC_DUAL", "L2R_L2LOSS_SVC", "L2R_L1LOSS_SVC_DUAL", "MCSVM_CS"),
    *("L1R_L2LOSS_SVC", "L1R_LR", "L2R_LR_DUAL"),
)
_REGRESSORS = ("L2R_L2LOSS_SVR", "L2R_L2LOSS_SVR_DUAL", "L2R_L1LOSS_SVR_DUAL")

_OTHERWISE = "write it with models.save or models.export"


def to_libsvm(model: Any, path: str | bytes | os.PathLike, *, task: str | None = None) -> None:
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

    Example:
        >>> import tempfile, os
        >>> path = os.path.join(tempfile.mkdtemp(), "a.model")
        >>> to_libsvm(Classifier(Linear(jnp.array([2.0, -1.0]), jnp.array(0.5)), (-1, 1)), path)
        >>> model = from_libsvm(path)
        >>> model(jnp.ones((1, 2))).tolist(), model.predict(jnp.ones((1, 2))).tolist()
        ([1.5], [1])

    Reference: C.-C. Chang, C.-J. Lin, LIBSVM: a library for support vector machines, ACM TIST 2,
        2011; R.-E. Fan et al., LIBLINEAR: a library for large linear classification, JMLR 9, 2008.
    """
    inner, names, task = described("to_libsvm", model, task)
    labels = _labels(inner, names) if task == "classification" else []
    if isinstance(inner, Linear | OneVsRest):
        text = _liblinear_text(inner, labels, task)
    else:
        text = _libsvm_text(inner, labels, task)
    with atomic_path(path) as temporary, open(temporary, "w", encoding="ascii") as file:
        file.writelines(line + "\n" for line in text)


def from_libsvm(
    path: str | bytes | os.PathLike, *, columns: int | None = None, sparse: bool = False
) -> Any:
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
        >>> import tempfile, os
        >>> path = os.path.join(tempfile.mkdtemp(), "a.model")
        >>> lines = ["svm_type epsilon_svr", "kernel_type rbf", "gamma 0.5", "nr_class 2",
        ...     "total_sv 1", "rho -1", "SV", "2 1:1 3:1"]
        >>> with open(path, "w") as file:
        ...     _ = file.write(chr(10).join(lines))
        >>> from_libsvm(path)(jnp.array([[1.0, 0.0, 1.0]])).tolist()
        [3.0]
    """
    path = as_path("path", path)
    columns = None if columns is None else integer("columns", columns, 1)
    file = TextFile(path)
    first = file.first()
    if first not in ("svm_type", "solver_type"):
        raise ValueError(
            f"{path}, line 1: expected 'svm_type' (LIBSVM) or 'solver_type' (LIBLINEAR), got "
            f"{first!r}: this is no file of a model of theirs"
        )
    with np.errstate(over="ignore", invalid="ignore"):  # checked below
        if first == "svm_type":
            model = _read_libsvm(file, columns, sparse)
        else:
            model = _read_liblinear(file, columns)
    if not all_finite(model):  # products and sums of numbers that are
        raise ValueError(
            f"{path} holds numbers whose products or sums are too large for {run_dtype()}: switch "
            "on 64-bit numbers, jax.config.update('jax_enable_x64', True), or scale the model"
        )
    return model


# Writing


def described(caller: str, model: Any, task: str | None) -> tuple[Any, tuple | None, str]:
    """The model without names of classes, these, and its task, for `to_libsvm` and its kin.

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
        what = "a model on features" if hasattr(inner, "features") else shown(inner)
        kind = ValueError if hasattr(inner, "features") else TypeError
        raise kind(
            f"{caller} takes Expansion, Linear, OneVsOne, OneVsRest or a Classifier of these, got "
            f"{what}: {_OTHERWISE}"
        )
    if not all_finite(inner):
        raise ValueError(
            "the model holds numbers that are not finite: its training diverged; train it again"
        )
    votes = isinstance(inner, OneVsOne | OneVsRest)
    if task is None:
        task = "classification" if votes or names is not None else "regression"
    if task != "classification" and (votes or names is not None):
        raise ValueError(f"task is {task!r}, but the model has classes: leave task out")
    return inner, names, task


def _numbers(values: Any) -> str:
    """Numbers with all their digits."""
    return " ".join(f"{value:.17g}" for value in np.ravel(np.asarray(values, np.float64)))


def _labels(model: Any, names: tuple | None) -> list[int]:
    """The class names as integers, in the order of the classes."""
    if names is None:
        names = tuple(range(model.scores)) if isinstance(model, OneVsOne | OneVsRest) else (-1, 1)
    for name in names:
        whole = isinstance(name, numbers.Integral | np.bool_) or (
            isinstance(name, numbers.Real) and float(name).is_integer()
        )
        if not whole or not -(2**31) <= int(name) < 2**31:
            raise ValueError(
                "labels of LIBSVM are integers of 32 bits, but the model has the class "
                f"{name!r}: give it integers, Classifier(model.inner, {tuple(range(len(names)))})"
            )
    return [int(name) for name in names]


def linear_weights(model: Linear | OneVsRest) -> tuple[np.ndarray, np.ndarray, str]:
    """The weights (models, d) and biases (models,), and the kind of bias."""
    inner = model.inner if isinstance(model, OneVsRest) else model
    if not isinstance(inner, Linear):
        raise ValueError(
            "LIBSVM holds no models of one class against the rest with kernels: train with "
            f"one_vs_one, or {_OTHERWISE}"
        )
    w, b = np.asarray(inner.w, np.float64), np.asarray(inner.b, np.float64)
    if isinstance(model, Linear):
        _check_single(w)
        return w[None], b[None], inner.bias
    w = np.broadcast_to(w, (model.scores, w.shape[-1]))
    b = np.broadcast_to(b, (model.scores,))
    if model.scores == 2:
        w, b = w[1:] - w[:1], b[1:] - b[:1]
    return w, b, inner.bias


def _check_single(values: np.ndarray) -> None:
    """Raise for the stacked models of a sweep."""
    if values.ndim != 1:
        raise ValueError(
            f"expected one model, got stacked ones, with weights of shape {values.shape}: select "
            "one with jax.tree.map(lambda leaf: leaf[i], model)"
        )


def _liblinear_text(model: Linear | OneVsRest, labels: list[int], task: str) -> Iterator[str]:
    """The lines of a file of LIBLINEAR."""
    w, b, bias = linear_weights(model)
    has_feature = task != "one_class" and (bias != "none" or b.any())
    yield f"solver_type {_SOLVER_TYPE[task]}"
    yield f"nr_class {max(len(w), 2)}"
    if labels:
        # of two classes, values > 0 are for the first label there and the second name here
        yield f"label {' '.join(map(str, labels if len(w) > 1 else labels[::-1]))}"
    yield f"nr_feature {w.shape[1]}"
    yield f"bias {1 if has_feature else -1}"
    if task == "one_class":
        yield f"rho {_numbers(0 - b)}"
    yield "w"
    for weights in np.vstack([w.T, b[None]] if has_feature else [w.T]):
        yield _numbers(weights)


class _Points(NamedTuple):
    """Support vectors that the models of all pairs share."""

    kernel: Kernel
    x: Any  # (m, d), or SparseRows
    coef: np.ndarray  # (pairs, m)
    b: np.ndarray  # (pairs,)
    index: np.ndarray  # type: ignore[assignment]  # (m,)


def points_of(model: Expansion | OneVsOne) -> _Points:
    """The support vectors of a kernel model, and their coefficients in the models of all pairs."""
    if isinstance(model, Expansion):
        coef = np.asarray(model.coef, np.float64)
        _check_single(coef)
        b = np.asarray(model.b, np.float64)[None]
        return _Points(model.kernel, model.x, coef[None], b, np.asarray(model.index))
    inner, pairs = model.inner, model.classes * (model.classes - 1) // 2
    if isinstance(inner, Linear):  # a weight vector is a support vector of the linear kernel
        w = np.broadcast_to(np.asarray(inner.w, np.float64), (pairs, jnp.shape(inner.w)[-1]))
        b = np.broadcast_to(np.asarray(inner.b, np.float64), (pairs,))
        return _Points(linear(), w, np.eye(pairs), b, np.full(pairs, -1))
    if not isinstance(inner, Expansion):
        raise ValueError(
            f"LIBSVM holds pairs of Expansion or Linear, got {shown(inner)}: {_OTHERWISE}"
        )
    if any(np.ndim(number) for number in inner.kernel.numbers):
        raise ValueError(f"LIBSVM holds one kernel, but each pair has its own: {_OTHERWISE}")
    coef = np.asarray(inner.coef, np.float64)
    b = np.broadcast_to(np.asarray(inner.b, np.float64), (pairs,))
    x, index = inner.x, np.asarray(inner.index)
    if len(x.shape) == 2 and index.ndim == 1:
        return _Points(inner.kernel, x, np.broadcast_to(coef, (pairs, coef.shape[-1])), b, index)
    # each pair has points of its own
    m = coef.shape[-1]
    if len(x.shape) == 2:
        x = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (pairs, *leaf.shape)), x)
    own = np.zeros((pairs, pairs, m))
    own[np.arange(pairs), np.arange(pairs)] = coef
    x = jax.tree.map(lambda leaf: leaf.reshape((pairs * m, *leaf.shape[2:])), x)
    index = np.broadcast_to(index, (pairs, m)).reshape(-1)
    return _Points(inner.kernel, x, own.reshape(pairs, pairs * m), b, index)


def check_index(points: _Points, rows: np.ndarray) -> None:
    """Raise where a precomputed kernel needs numbers of training rows that are not known."""
    if points.kernel.call()[0] is precomputed and (points.index[rows] < 0).any():
        raise ValueError(
            "the model does not say of which training rows its precomputed kernel values are: "
            f"index is -1; {_OTHERWISE}"
        )


def kernel_lines_of(kernel: Kernel) -> Iterator[str]:
    """The lines of the header that describe the kernel."""
    factory, args, kwargs = kernel.call()
    if factory is rbf:
        sigma, gamma = args[0], kwargs["gamma"]
        if np.ndim(gamma):
            raise ValueError(
                f"LIBSVM's rbf has one gamma for all columns, got {kernel!r}: {_OTHERWISE}"
            )
        yield "kernel_type rbf"
        # as LIBSVM computes: in float64
        yield f"gamma {_numbers(gamma if sigma is None else 0.5 / np.float64(sigma) ** 2)}"
    elif factory is polynomial:
        yield "kernel_type polynomial"
        yield f"degree {kwargs['degree']}"
        yield f"gamma {_numbers(args[0])}"
        yield f"coef0 {_numbers(args[1])}"
    elif factory is sigmoid:
        yield "kernel_type sigmoid"
        yield f"gamma {_numbers(args[0])}"
        yield f"coef0 {_numbers(args[1])}"
    elif factory in (linear, precomputed):
        yield f"kernel_type {factory.__name__}"
    else:
        raise ValueError(
            f"LIBSVM holds {', '.join(_KERNEL_TYPES)} kernels, got {kernel!r}: {_OTHERWISE}"
        )


def _home_classes(coef: np.ndarray, k: int) -> np.ndarray:
    """The class (m,) of each support vector; -1 for one that belongs to several.

    LIBSVM stores a support vector with its class, and a coefficient for each other class. Its
    nonzero coefficients are then those of pairs with this class. Signs decide between two classes.
    """
    first, second = np.triu_indices(k, 1)
    is_nonzero = coef != 0
    of_class = lambda c: (first == c) | (second == c)
    covered = np.array([is_nonzero[of_class(c)].sum(0) for c in range(k)])
    signs = np.array(
        [(coef[first == c] > 0).sum(0) + (coef[second == c] < 0).sum(0) for c in range(k)]
    )
    home = np.argmax(np.where(covered == is_nonzero.sum(0), signs, -1), axis=0)
    return np.where(covered.max(0) == is_nonzero.sum(0), home, -1)


def class_blocks(coef: np.ndarray, k: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """For each class, its support vectors (s,) and their coefficients (s, k-1).

    A support vector of several classes is in the block of each.
    """
    first, second = np.triu_indices(k, 1)
    home = _home_classes(coef, k)
    for c in range(k):
        block = np.zeros((coef.shape[1], k - 1))
        for other in (d for d in range(k) if d != c):
            pair = int(np.flatnonzero((first == min(c, other)) & (second == max(c, other)))[0])
            sign = 1 if c < other else -1
            here = (home == c) | ((home == -1) & (sign * coef[pair] > 0))
            block[:, other - (other > c)] = np.where(here, coef[pair], 0)
        points = np.flatnonzero(block.any(axis=1))
        yield points, block[points]


def _libsvm_text(model: Expansion | OneVsOne, labels: list[int], task: str) -> Iterator[str]:
    """The lines of a file of LIBSVM."""
    points = points_of(model)
    kernel_lines = list(kernel_lines_of(points.kernel))
    if isinstance(model, OneVsOne):
        blocks = list(class_blocks(points.coef, model.classes))
    elif labels:  # values > 0 are for the first label there and the second name here
        labels, blocks = labels[::-1], list(class_blocks(points.coef, 2))
    else:
        support = np.flatnonzero(points.coef[0])
        blocks = [(support, points.coef[0][support, None])]
    rows = np.concatenate([block[0] for block in blocks])
    coef = np.concatenate([block[1] for block in blocks])
    check_index(points, rows)
    yield f"svm_type {_SVM_TYPE[task]}"
    yield from kernel_lines
    yield f"nr_class {len(labels) or 2}"
    yield f"total_sv {len(rows)}"
    yield f"rho {_numbers(0 - points.b)}"
    if labels:
        yield f"label {' '.join(map(str, labels))}"
        yield f"nr_sv {' '.join(str(len(block[0])) for block in blocks)}"
    yield "SV"
    for row, values in zip(_row_texts(points, rows), coef, strict=True):
        yield f"{_numbers(values)} {row}"


def _row_texts(points: _Points, rows: np.ndarray) -> Iterator[str]:
    """The support vectors `rows` as index:value."""
    if points.kernel.call()[0] is precomputed:
        yield from (f"0:{number + 1}" for number in points.index[rows])
        return
    x = points.x
    if isinstance(x, SparseRows):
        x = x.materialize()
        index, value = np.asarray(x.index), np.asarray(x.value, np.float64)
        for row in rows:
            columns = np.flatnonzero(value[row])
            columns = columns[np.argsort(index[row, columns])]
            yield _pairs_text(index[row, columns], value[row, columns])
        return
    dense = np.asarray(x)
    for row in rows:
        values = dense[row].astype(np.float64)
        columns = np.flatnonzero(values)
        yield _pairs_text(columns, values[columns])


def _pairs_text(columns: np.ndarray, values: np.ndarray) -> str:
    pairs = zip((columns + 1).tolist(), values.tolist(), strict=True)
    return " ".join(f"{column}:{value:.17g}" for column, value in pairs)


# Reading


class _Csr(NamedTuple):
    """Sparse rows with the fields of SciPy's."""

    indptr: np.ndarray
    indices: np.ndarray
    data: np.ndarray
    shape: tuple[int, int]

    @property
    def dtype(self) -> np.dtype:
        return self.data.dtype


def _read_libsvm(file: TextFile, columns: int | None, sparse: bool) -> Any:
    file.read_header(_LIBSVM_KEYS, "SV")
    svm_type = file.choice("svm_type", _SVM_TYPES)
    classification = svm_type in ("c_svc", "nu_svc")
    kernel = _read_kernel(file)
    k = file.integers("nr_class", 1, 1)[0]
    if not classification:
        k = 2  # as LIBSVM writes it
    elif k < 2:
        file.refuse(
            file.line_of("nr_class"), "a model of one class decides nothing: train it again"
        )
    pairs = k * (k - 1) // 2
    total = file.integers("total_sv", 1, 0)[0]
    b = -file.numbers("rho", pairs)
    by_row = kernel.call()[0] is precomputed
    sv_coef, csr = _readpoints_of(file, total, k - 1, by_row, columns)
    if not classification:
        return _expansion(kernel, csr, sv_coef[:, 0], b[0], by_row, sparse, file)
    labels = _read_labels(file, k)
    nr_sv = file.integers("nr_sv", k, 0)
    if sum(nr_sv) != total:
        file.refuse(file.line_of("nr_sv"), f"nr_sv must sum to total_sv, {total}, got {sum(nr_sv)}")
    coef = pair_coef(sv_coef, nr_sv)
    if k == 2:
        model = _expansion(kernel, csr, coef[0], b[0], by_row, sparse, file)
        return Classifier(model, labels[::-1])
    model = _expansion(kernel, csr, coef, b, by_row, sparse, file)
    return Classifier(stack_pairs(model, k), labels)


def _read_labels(file: TextFile, k: int) -> tuple[int, ...]:
    labels = tuple(file.integers("label", k, -(2**31)))
    if len(set(labels)) < k:
        file.refuse(file.line_of("label"), "a class has the same label as another one")
    return labels


def _read_kernel(file: TextFile) -> Kernel:
    name = file.choice("kernel_type", _KERNEL_TYPES)
    keys = [key for key in KERNELS[name] if key != "degree"]
    numbers: dict[str, Any] = {key: float(file.numbers(key, 1)[0]) for key in keys}
    if "degree" in KERNELS[name]:
        numbers["degree"] = file.integers("degree", 1, 1)[0]
    try:
        return by_name(name, **numbers)
    except ValueError as error:
        file.refuse(file.line_of("gamma"), str(error))


def _readpoints_of(
    file: TextFile, total: int, outputs: int, by_row: bool, columns: int | None
) -> tuple[np.ndarray, _Csr]:
    """The coefficients (total, outputs) and the support vectors.

    Of a precomputed kernel these have one entry each, in the column of their training row.
    """
    lines = file.body(total, "support vectors")
    sv_coef: list[np.ndarray] = []
    indices: list[np.ndarray] = [np.zeros(0, np.int64)]
    values: list[np.ndarray] = [np.zeros(0)]
    for line, text in lines:
        words = text.split()
        if len(words) < outputs:
            file.refuse(line, f"expected {outputs} coefficients, got {len(words)}")
        sv_coef.append(file.parse(line, words[:outputs]))
        index, value = _read_pairs(file, line, words[outputs:], by_row)
        if columns is not None and len(index) and index[-1] > columns:
            file.refuse(line, f"the index {index[-1]} is beyond the {columns} columns")
        indices.append(index - 1)
        values.append(value)
    columns_of_entries = np.concatenate(indices)
    width = columns or int(columns_of_entries.max(initial=0)) + 1
    indptr = np.cumsum([*map(len, indices)])
    points = _Csr(indptr, columns_of_entries, np.concatenate(values), (total, width))
    return np.array(sv_coef).reshape(total, outputs), points


def _read_pairs(
    file: TextFile, line: int, words: list[bytes], by_row: bool
) -> tuple[np.ndarray, np.ndarray]:
    """The indices, from 1, and values of one support vector."""
    parts = b" ".join(words).replace(b":", b" ").split()
    heads, tails = parts[::2], parts[1::2]
    # the fast way: all words at once
    if (
        list(map(b":".join, zip(heads, tails, strict=False))) != words
        or not (b"".join(heads) or b"0").isdigit()
    ):
        for word in words:
            before, _, after = word.partition(b":")
            if not before.isdigit() or not after or b":" in after:
                shown_word = word[:40].decode("ascii", "replace")
                file.refuse(line, f"expected index:value, got {shown_word!r}")
    index = np.array([int(head[:12]) for head in heads], np.int64)
    if by_row:
        if len(words) != 1 or index[0] != 0:
            file.refuse(line, "expected 0:number, the number of a training row, and nothing else")
        number = file.integer(line, "the number of a training row", words[0][2:], 1)
        return np.array([number]), np.ones(1)
    value = file.parse(line, tails)
    before_each = np.concatenate([[0], index[:-1]])
    if len(index) and not (index > before_each).all():
        place = int(np.argmax(index <= before_each))
        where = f"after {index[place - 1]}" if place else "first"
        file.refuse(line, f"the index {index[place]} comes {where}: indices rise and start at 1")
    if len(index) and index[-1] >= 2**31:
        file.refuse(line, f"the index {index[-1]} is above {2**31 - 1}")
    return index, value


def _expansion(
    kernel: Kernel,
    csr: _Csr,
    coef: np.ndarray,
    b: Any,
    by_row: bool,
    sparse: bool,
    file: TextFile,
) -> Expansion:
    """The model with coefficients (m,), or (pairs, m) with m shared support vectors."""
    dtype, most = run_dtype(), min(_DENSE, _SMALL + _PER_BYTE * file.size)
    if kernel.call()[0] is linear:
        csr, coef = _mergepoints_of(csr, coef, dtype, most)
    total, width = csr.shape
    x: Array | SparseRows
    if by_row:
        if len(np.atleast_2d(coef)) * width > most:
            raise ValueError(
                f"{file.path} names training row {width}, which is too many for a file of "
                f"{file.size} bytes"
            )
        return on_training_rows(csr.indices, coef, b, width, dtype)
    if sparse:
        x = pad_rows(csr._replace(data=csr.data.astype(dtype)))
    elif total * width > most:
        raise ValueError(
            f"{file.path} holds {total} support vectors of {width} columns, which are too many "
            "numbers for a dense matrix: pass sparse=True"
        )
    else:
        dense = np.zeros((total, width), dtype)
        dense[np.repeat(np.arange(total), np.diff(csr.indptr)), csr.indices] = csr.data
        x = jnp.asarray(dense)
    model = make_expansion(kernel, x, coef, b, np.full(total, -1), dtype)
    if np.abs(coef).max(initial=0) > 1e3 and (rounding := model.rounding()) > ACCURACY:
        warnings.warn(
            f"the coefficients in {file.path} are so large that {dtype} rounds decision values by "
            f"about {rounding:.1e}: switch on 64-bit numbers, "
            "jax.config.update('jax_enable_x64', True)",
            UserWarning,
            stacklevel=4,
        )
    return model


def _mergepoints_of(csr: _Csr, coef: np.ndarray, dtype: Any, most: int) -> tuple[_Csr, np.ndarray]:
    """Points and coefficients of a linear kernel, whose decision values rounding leaves accurate.

    Large coefficients that cancel lose their digits in the precision of a run. Then the only point
    of each model is its weight vector, a sum in float64, of at most `most` numbers in all.
    """
    total, width = csr.shape
    row = np.repeat(np.arange(total), np.diff(csr.indptr))
    size = np.sqrt(np.bincount(row, csr.data**2, total))
    norms = np.linalg.norm(np.atleast_2d(coef) * size, axis=1)
    rounding = np.finfo(dtype).eps * size.max(initial=0) * norms.max(initial=0)
    if rounding <= ACCURACY / 100 or len(norms) * width > most:
        return csr, coef
    weights = np.zeros((width, len(norms)))
    np.add.at(weights, csr.indices, (np.atleast_2d(coef)[:, row] * csr.data).T)
    indptr, indices = np.arange(len(norms) + 1) * width, np.tile(np.arange(width), len(norms))
    points = _Csr(indptr, indices, weights.T.ravel(), (len(norms), width))
    return points, np.eye(len(norms)) if coef.ndim > 1 else np.ones(1)


def _read_liblinear(file: TextFile, columns: int | None) -> Any:
    file.read_header(_LIBLINEAR_KEYS, "w")
    solver_type = file.choice("solver_type", (*_CLASSIFIERS, *_REGRESSORS, "ONECLASS_SVM"))
    classification = solver_type in _CLASSIFIERS
    is_given = classification or file.has("nr_class")
    k = file.integers("nr_class", 1, 1)[0] if is_given else 2
    k = k if classification else 2
    if k < 2:
        file.refuse(
            file.line_of("nr_class"), "a model of one class decides nothing: train it again"
        )
    labels = _read_labels(file, k) if classification else ()
    d = file.integers("nr_feature", 1, 0)[0]
    if columns is not None and columns < d:
        file.refuse(file.line_of("nr_feature"), f"nr_feature is {d}, but columns={columns}")
    bias = float(file.numbers("bias", 1)[0])
    outputs = 1 if k == 2 and solver_type != "MCSVM_CS" else k
    n_models = 1 if k == 2 else k  # LIBLINEAR predicts two classes from the first value
    rows = [
        _read_weights(file, line, text, outputs)
        for line, text in file.body(d + (bias >= 0), "weights")
    ]
    weights = np.array(rows).reshape(-1, outputs).T[:n_models]
    w, b = np.zeros((n_models, columns or d)), np.zeros(n_models)
    w[:, :d] = weights[:, :d]
    if bias >= 0:
        b = bias * weights[:, d]
    if solver_type == "ONECLASS_SVM":
        b = b - file.numbers("rho", 1)
    kind = "none" if not b.any() and bias < 0 else "feature" if bias == 1 else "free"
    dtype = run_dtype()
    model = Linear(jnp.asarray(w, dtype), jnp.asarray(b, dtype), kind)
    if n_models > 1:
        return Classifier(OneVsRest(model, (True, True)), labels)
    model = dataclasses.replace(model, w=model.w[0], b=model.b[0])
    return Classifier(model, labels[::-1]) if classification else model


def _read_weights(file: TextFile, line: int, text: bytes, outputs: int) -> np.ndarray:
    words = text.split()
    if len(words) != outputs:
        file.refuse(line, f"expected {outputs} weights, got {len(words)}")
    return file.parse(line, words)
