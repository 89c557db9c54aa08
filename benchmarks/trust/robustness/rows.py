"""Part `data`: hostile arrays for `dataset`. The oracle is NumPy."""

from __future__ import annotations

import warnings
from typing import Any

import jax.numpy as jnp
import numpy as np
import scipy.sparse

import jaxsvm
from jaxsvm.types import SparseRows

from .cases import FLOAT32, ArrayLike, Case, hostile_numbers, show

USUAL = (0, 1, -1, 2, 0.5, -0.25, 3, 7, 1e-3, 1e3)
WILD = (0, 1, -1, 1e-45, 1e-300, 1e19, 1e38, -3e38, 1e39, 1e300, 2**53 + 1, 1e6 + 1e-4, 1e6, 1e6 + 2e-4, 16777217, 16777216)
DTYPES = ("f8", "f4", "f2", ">f8", ">f4", "i8", "i4", "u1", "u8", "i2", "?", "g", "bfloat16", ">i4")
LABELS = ((-1, 1),) * 12 + (
    (0, 1), (1, 2), (-1, 0, 1), (1,), (0, 1, 2), (0.5, 1.5), (-1, 1, np.nan), (-1, 1e300), (1, 2, 4), (False, True),
)  # fmt: skip


def quietly(fn: Any, *args: Any, **kwargs: Any) -> Any:
    """A call of NumPy without its warnings."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        return fn(*args, **kwargs)


def matrix(case: Case) -> tuple[Any, np.ndarray | None, bool]:
    """Something like an array of rows, what NumPy says it is (None: no array of numbers), and whether it is usual."""
    random = case.random
    if case.rarely(16):
        thing = case.one(not_arrays())
        return thing, None, False
    n = 0 if case.rarely(20) else int(random.integers(2, 9))
    d = 0 if case.rarely(20) else int(random.integers(1, 5))
    dtype = case.one(DTYPES)
    dtype = jnp.dtype("bfloat16") if dtype == "bfloat16" else np.dtype(dtype)
    wild = case.rarely(4)
    cells = random.choice(np.array(WILD if wild else USUAL, np.longdouble), (n, d))
    odd = cells.size and case.rarely(10)
    if odd:
        cells[random.integers(n), random.integers(d)] = case.one((np.nan, np.inf, -np.inf))
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        cells = np.array([[int(np.nan_to_num(c, posinf=9, neginf=-9)) for c in row] for row in cells], object).reshape(n, d)
        cells = np.clip(cells, max(limits.min, -(2**62)), min(limits.max, 2**62)) if cells.size else cells
    a = quietly(lambda: cells.astype(dtype))
    layout = case.one(("C", "F", "view", "flipped", "list", "matrix", "readonly", "masked", "memory", "like", "jax", "object"))
    if layout == "view":
        a = np.repeat(a, 2, axis=1)[:, ::2]
    if layout == "flipped":
        a = a[::-1, ::-1]
    plain = np.array(a, copy=True)
    if layout == "readonly":
        a.setflags(write=False)
    if layout == "masked":
        mask = np.zeros(a.shape, bool)
        if a.size and case.rarely(2):
            mask.flat[0] = True
        given, plain = np.ma.masked_array(a, mask), None if mask.any() else plain
        return given, plain, False
    if layout == "memory" and a.size and dtype.kind != "V":
        a = np.lib.format.open_memmap(case.folder / "x.npy", "w+", dtype, a.shape)
        a[:] = plain
    if layout == "object":
        return a.astype(object), None, False
    if layout == "jax" and dtype.itemsize <= 4 and dtype.isnative:
        return jnp.asarray(a), plain, not wild and not odd
    usual = not wild and not odd and plain.size > 0
    given = {"F": np.asfortranarray(a), "list": a.tolist() or a, "matrix": np.asmatrix(a), "like": ArrayLike(a)}.get(layout, a)
    if layout == "list" and n:
        plain = quietly(np.asarray, given)
        plain = plain if plain.dtype.kind in "biuf" else None
    return given, plain, usual


def not_arrays() -> list[Any]:
    """Things that are no matrix of numbers."""
    return [
        *hostile_numbers(), np.array([[1, None]], object), np.ones((2, 2), complex), np.array([["1", "2"], ["3", "4"]]),
        np.array([[b"1", b"2"]]), np.zeros((2, 2), "M8[s]"), np.zeros((2, 2), "m8[s]"), np.zeros(2, [("a", "f4")]),
        np.zeros((2, 2), "V4"), np.ones((2, 2, 2)), np.ones(3), [[1, 2], [3]], [[1, 2], [3, "a"]], iter([1, 2]), "x.npy",
        scipy.sparse.coo_array([1.0, 2.0]), np.rec.array([(1, 2.0)]), np.array([["a"]]), [[10**400]], [[1 << 70]],
        memoryview(b"abc"), {"x": [1]}, [{}], [[1.0, 2.0], None], np.array([[np.timedelta64(1)]]), [b"ab", b"cd"],
    ]  # fmt: skip


def task_of(case: Case) -> str:
    """What the targets are for."""
    return case.one(("binary", "binary", "multiclass", "regression"))


def targets(case: Case, n: int, task: str = "binary") -> Any:
    """Labels, or real targets; few are of another length."""
    n = case.one((n + 1, max(n - 1, 0))) if case.rarely(20) else n
    names = tuple(range(int(case.random.integers(2, 4)))) if task == "multiclass" and not case.rarely(4) else case.one(LABELS)
    y = case.random.choice(np.array(names), n)
    y[: len(names)] = np.array(names)[: len(y)]
    if case.rarely(15):
        return case.one((y[:, None], y.astype(str), y.astype(object), ArrayLike(y), y[None], np.ma.masked_array(y), "y", None))
    kind = case.one(("f8", "f4", "i8", "list", "f2", ">f4"))
    if kind == "list":
        return y.tolist()
    exact = kind != "i8" or (y.dtype.kind != "f" or (np.isfinite(y).all() and (np.abs(y) < 2**53).all()))
    return quietly(y.astype, kind) if exact else y


def weights(case: Case, n: int) -> Any:
    """None, or numbers from 0 on; few are negative, not finite, or no numbers."""
    if case.random.integers(2):
        return None
    n += case.rarely(20)
    w = case.random.choice(np.array([0, 1, 2, 0.5, 1e-3, 1e30 if case.rarely(3) else 1, 1e-45 if case.rarely(3) else 1]), n)
    if n and case.rarely(6):
        w[case.random.integers(n)] = case.one((-1, np.nan, np.inf, 1e39, -1e-300))
    if case.rarely(20):
        return case.one((w.astype(str), w[:, None], w + 0j, "w", w.astype(object)))
    return w.tolist() if case.rarely(4) else w.astype(case.one(("f8", "f4")))


def as_seen(a: Any) -> np.ndarray:
    """Numbers as solvers see them: float64 and whole numbers in float32, as the documentation of `dataset` has it."""
    a = np.asarray(a)
    keeps = (a.dtype.kind == "f" and a.dtype.itemsize <= 4) or a.dtype.kind == "V"
    return quietly(lambda: a.astype(a.dtype.newbyteorder("=") if keeps else np.float32))


def acceptable(x: np.ndarray, y: Any, weight: Any, task: str) -> bool:
    """What `dataset` promises to take, said once more with NumPy."""
    if np.ma.is_masked(y) or np.ma.is_masked(weight):
        return False
    y, weight = quietly(np.asarray, y), np.ones(len(x)) if weight is None else quietly(np.asarray, weight)
    if x.ndim != 2 or 0 in x.shape or y.shape != x.shape[:1] or weight.shape != y.shape:
        return False
    named = task != "regression" and y.dtype.kind in "SU"
    if any(a.dtype.kind not in "biufV" for a in (x, weight, *(() if named else (y,)))):
        return False
    held = as_seen(weight)
    if numbered(y, weight, task) is None:
        return False
    y = np.zeros(y.shape) if named else y
    totals = [quietly(lambda a=a: np.sum(as_seen(a).astype(np.float64) ** 2)) for a in (x, y)]
    totals.append(quietly(lambda: np.sum(np.abs(held), dtype=np.float64)))
    if not all(total <= float(FLOAT32.max) for total in totals):
        return False
    if (held < 0).any() or not (held > 0).any():
        return False
    return True


def numbered(y: np.ndarray, weight: np.ndarray, task: str) -> np.ndarray | None:
    """The targets that `dataset` makes of y: labels of two names, numbers of the classes; None: it refuses them."""
    if task == "regression":
        return y
    if y.dtype.kind in "SU":
        names, place = np.unique(y, return_inverse=True)
        right = len(names) == 2 or (task == "multiclass" and len(names) > 1)
        return (place if task == "multiclass" else 2 * place - 1) if right else None
    found = sorted(set(y[quietly(as_seen, weight) > 0].tolist()))
    if task == "multiclass":
        return y if len(found) > 1 and found == list(range(len(found))) else None
    if len(found) != 2:
        return None
    return y if found == [-1, 1] else np.where(y == found[1], 1, -1)


def mended(case: Case, x: Any, y: Any, weight: Any, task: str, whole: Any) -> tuple[Any, Any, Any]:
    """The arguments of a call of `dataset` with as few of them as possible replaced by ordinary ones.

    `whole` is what NumPy says of x; None: no array of rows of numbers, or one that is not usual.
    """
    shape = np.shape(whole) if whole is not None and np.ndim(whole) == 2 and np.size(whole) else (5, 2)
    n, d = max(shape[0], 3), shape[1]
    plain_x = np.arange(n * d, dtype=np.float32).reshape(n, d) % 7
    plain_y = {"binary": 2 * (np.arange(n) % 2) - 1, "multiclass": np.arange(n) % 3, "regression": np.linspace(-1, 1, n)}[task]
    plain_weight = None if weight is None else np.ones(n)
    for keeps in ((1, 0, 1), (0, 1, 1), (1, 1, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1)):
        have = [x if keeps[0] else plain_x, y if keeps[1] else plain_y, weight if keeps[2] else plain_weight]
        seen = whole if keeps[0] else plain_x
        if seen is not None and of_usual_size(seen) and acceptable(np.asarray(seen), *have[1:], task):
            return tuple(have)
    return plain_x, plain_y, plain_weight


def of_usual_size(x: Any) -> bool:
    """Whether numbers are 0, or neither so small nor so large that float32 or its squares do not hold them."""
    size = quietly(lambda: np.abs(np.asarray(x).astype(np.float64)))
    return bool(((size == 0) | ((size > 1e-12) & (size < 1e9))).all())


def check_batch(case: Case, data: Any, x: np.ndarray, y: Any, weight: Any, task: str) -> None:
    """Whether a `Batch` holds these rows, targets and weights."""
    ones = np.ones(np.shape(y)) if weight is None else quietly(np.asarray, weight)
    y = numbered(quietly(np.asarray, y), ones, task)
    seen = as_seen(x)
    wide = np.dtype(np.promote_types(seen.dtype, np.float32)) if seen.dtype.kind == "f" else np.dtype(np.float32)
    weight = np.ones(len(seen)) if weight is None else quietly(np.asarray, weight)
    have = np.asarray(data.x.toarray() if isinstance(data.x, SparseRows) else data.x)
    case.judged = True
    case.expect(have.dtype == seen.dtype, f"x has dtype {have.dtype}, expected {seen.dtype}")
    case.expect(have.shape == seen.shape and (have == seen).all(), "x does not hold the rows that were given")
    for name, a, given in (("y", data.y, y), ("weight", data.weight, weight)):
        wanted = quietly(lambda given=given: np.asarray(given).astype(np.float64).astype(wide))
        case.expect(np.array_equal(np.asarray(a), wanted) and a.dtype == wide, f"{name} does not hold what was given")
    case.expect(np.array_equal(np.asarray(data.index), np.arange(len(seen))), "index is not 0, 1, ...")
    # A column that varies as given and no longer varies as solvers see it is gone without a trace, if nobody says so.
    live = as_seen(weight) > 0
    if x.dtype.kind in "iuf" and x.dtype.itemsize == 8:
        lost = [j for j in range(x.shape[1]) if np.ptp(x[live, j].astype(np.longdouble)) > 0 and np.ptp(seen[live, j]) == 0]
        case.expect(not lost or case.warnings, f"column {lost} has lost all of its variation in float32 and nothing said so")


def dense(case: Case) -> None:
    """`dataset` of something like an array."""
    x, plain, usual = matrix(case)
    n = len(plain) if plain is not None and plain.ndim else 2
    task = task_of(case)
    y, weight = targets(case, n, task), weights(case, n)
    right = plain is not None and acceptable(plain, y, weight, task)
    before = plain.copy() if plain is not None else None
    kind = f"{type(x).__name__} {getattr(x, 'dtype', '')}{list(np.shape(plain)) if plain is not None else show(x)}"
    text = f"dataset({kind}, y={show(y)}, weight={show(weight)}, task={task!r})"
    must = right and usual and weight is None
    case.twin = lambda: jaxsvm.dataset(*mended(case, x, y, weight, task, plain if usual else None), task=task)
    data = case.attempt(text, jaxsvm.dataset, x, y, weight, task=task, must=must)
    case.expect(right, "took rows, labels or weights that the documentation rules out")
    check_batch(case, data, plain, y, weight, task)
    if isinstance(x, np.ndarray) and x.dtype.kind != "V":
        case.expect(np.array_equal(x, before, equal_nan=x.dtype.kind == "f"), "dataset has changed the array that it was given")


def sparse(case: Case) -> None:
    """`dataset` of a sparse matrix of any format, with duplicates, stored zeros, unsorted or broken indices."""
    random = case.random
    n, d = int(random.integers(2, 7)), int(random.integers(1, 6))
    size = int(random.integers(0, 13))
    dtype = case.one(("f8", "f4", "i8", "i4", "?", "u1", "f2", "c16", "O"))
    values = random.choice(np.array([0, 1, 1, 2, 0.5, 1e-3, 3e38 if case.rarely(6) else 3]), size)
    odd = size and dtype == "f8" and case.rarely(5)
    if odd:
        values[0] = case.one((np.nan, np.inf, 1e39, -1e300))
    values = quietly(values.astype, "f8" if dtype in ("f2", "O") else dtype)
    places = random.integers(0, n, size), random.integers(0, d, size)
    made = scipy.sparse.coo_matrix((values, places), (n, d))
    form = case.one(("coo", "csr", "csc", "lil", "dok", "bsr", "dia", "csr_array", "stored"))
    plain = quietly(made.toarray)
    broken = False
    if form == "stored":  # SciPy sums duplicates on the way to CSR: here they are stored
        order = np.argsort(places[0], kind="stable")
        made = scipy.sparse.csr_matrix((n, d), dtype=values.dtype)
        made.data, made.indices = values[order], places[1][order].astype(np.int64)
        made.indptr = np.searchsorted(places[0][order], np.arange(n + 1)).astype(np.int64)
        plain = quietly(made.toarray)
        broken = bool(size) and case.rarely(4)
        if broken:
            fault = case.one(("column", "pointer", "length"))
            if fault == "column":
                made.indices[random.integers(size)] = case.one((-1, d, d + 7, 2**40))
            elif fault == "pointer":
                made.indptr[random.integers(1, n + 1)] = case.one((-1, size + 3, 2**40))
            else:
                made.data = made.data[:-1]
    elif form == "csr_array":
        made = scipy.sparse.csr_array(made)
    else:
        made = quietly(made.asformat, form)
    task = task_of(case)
    y, weight = targets(case, n, task), weights(case, n)
    text = f"dataset({form} {dtype}{[n, d]}{' broken' if broken else ''}, y={show(y)}, weight={show(weight)}, task={task!r})"
    plain_rows = scipy.sparse.random(n, d, 0.5, "csr", random_state=0)

    def twin():
        fine = not (broken or odd) and dtype not in ("c16", "O") and of_usual_size(plain)
        rows, names, numbers = mended(case, made, y, weight, task, plain if fine else None)
        jaxsvm.dataset(rows if hasattr(rows, "tocsr") or len(rows) != n else plain_rows, names, numbers, task=task)

    case.twin = twin
    data = case.attempt(text, jaxsvm.dataset, made, y, weight, task=task)
    case.expect(not broken, "took a sparse matrix whose indices or pointers are broken")
    case.expect(acceptable(plain, y, weight, task), "took rows, labels or weights that the documentation rules out")
    check_batch(case, data, plain, y, weight, task)


def run(case: Case) -> None:
    """One case of the part."""
    case.one((dense,) * 10 + (sparse,) * 4 + (dense,) * 7)(case)
