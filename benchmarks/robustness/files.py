"""Part `files`: damaged files of models and runs. Loaded is what was saved, or nothing."""

from __future__ import annotations

import io
import json
import pathlib
import struct
import tracemalloc
import warnings
import zipfile
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse

import jaxsvm
from jaxsvm import features, kernels, models, samplers

from .cases import Case, Different, same_leaves

ROWS = np.random.default_rng(0).normal(size=(12, 3)).astype("f4")
LABELS = np.where(ROWS[:, 0] > 0, 1, -1)
CLASSES = np.arange(12) % 3
MOST = 64 * 2**20  # bytes that loading a file of a few kilobytes may take
_whole: dict[str, tuple[Any, bytes]] = {}


def trees() -> dict[str, Callable[[], Any]]:
    """What is saved, by name."""
    key, rbf = jax.random.key(0), kernels.rbf(1.5)
    data = jaxsvm.dataset(ROWS, LABELS)
    many = jaxsvm.dataset(ROWS, CLASSES, task="multiclass")
    fit = lambda solver, data=data, **how: jaxsvm.fit(solver, data, key, steps=6, **how)
    expansion = lambda: models.Expansion(rbf, data.x, jnp.ones(12), jnp.float32(0.5), jnp.arange(12, dtype=jnp.int32), "free")
    phi = features.fourier(key, rbf, dim=3, features=8)
    return {
        "linear": lambda: models.Linear(jnp.arange(3.0), jnp.float32(1), "feature"),
        "classifier": lambda: models.Classifier(expansion(), ("ham", "spam")),
        "mapped": lambda: models.Mapped(phi, models.Linear(jnp.ones(8), jnp.float32(0))),
        "one_vs_rest": lambda: fit(jaxsvm.one_vs_rest(jaxsvm.pegasos(0.1), classes=3), many).model,
        "run": lambda: fit(jaxsvm.pegasos(0.1, bias="free"), sampler=samplers.epochs(2)).state,
        "dual_run": lambda: fit(jaxsvm.sdca(1.0, rbf)).state,
        "stream": lambda: jaxsvm.stream(jaxsvm.pegasos(0.1), [(ROWS, LABELS)], key).state,
        "batch": lambda: data,
        "sparse": lambda: jaxsvm.dataset(scipy.sparse.csr_matrix(np.where(ROWS > 0, ROWS, 0)), LABELS),
        "kernel": lambda: 0.5 * rbf + kernels.polynomial(1.0, 1.0, degree=2),
        "dict": lambda: {"a": jnp.ones(3), "b": [1, 2.5, "word", None, True], "c": (jnp.zeros((), bool), key)},
    }


def whole(case: Case, name: str) -> tuple[Any, bytes]:
    """A tree and the bytes of its file, made once in a process."""
    if name not in _whole:
        tree = trees()[name]()
        path = case.folder / "whole.npz"
        models.save(path, tree)
        _whole[name] = tree, path.read_bytes()
    return _whole[name]


def damage(case: Case, text: bytes) -> tuple[bytes, str]:
    """Bytes of a file after an accident, and what it was."""
    random, made = case.random, bytearray(text)
    how = case.one(("cut", "flip", "flip", "flips", "lose", "insert", "zeros", "ones", "swap", "append", "prepend", "repeat"))
    place = int(random.integers(max(len(made), 1)))
    size = int(random.integers(1, 40))
    if how == "cut":
        del made[place:]
    if how in ("flip", "flips"):
        for _ in range(1 if how == "flip" else 8):
            made[int(random.integers(len(made)))] ^= 1 << int(random.integers(8))
    if how == "lose":
        del made[place : place + size]
    if how == "insert":
        made[place:place] = random.bytes(size)
    if how in ("zeros", "ones"):
        end = min(place + size, len(made))
        made[place:end] = (b"\0" if how == "zeros" else b"\xff") * (end - place)
    if how == "swap":
        other = int(random.integers(len(made)))
        a, b = made[place : place + size], made[other : other + size]
        made[other : other + size], made[place : place + size] = a, b
    if how == "append":
        made += random.bytes(size)
    if how == "prepend":
        made[:0] = random.bytes(size)
    if how == "repeat":
        made[place:place] = made[max(place - size, 0) : place]
    return bytes(made), f"{how} at {place}"


def damaged(case: Case) -> None:
    """`models.load` of a file with damaged bytes."""
    name = case.one(list(trees()))
    tree, text = whole(case, name)
    changed, how = damage(case, text)
    path = case.folder / "model.npz"
    path.write_bytes(changed)
    like = {"like": tree} if case.rarely(4) else {}
    case.twin = lambda: intact(case, text, tree, like)
    found = limited(case, f"models.load({name}, {how}{', like=' if like else ''})", models.load, path, **like)
    case.judged = True
    if not same_leaves(found, tree):
        raise Different(f"the file of {name} was damaged ({how}) and loaded as something else")


def intact(case: Case, text: bytes, tree: Any, like: dict[str, Any]) -> None:
    """Load the file before it was damaged: it holds what was saved."""
    path = case.folder / "intact.npz"
    path.write_bytes(text)
    if not same_leaves(models.load(path, **like), tree):
        raise Different("an intact file was loaded as something else")


def limited(case: Case, text: str, fn: Callable, *args: Any, **kwargs: Any) -> Any:
    """`case.attempt` with a bound on the memory that is taken."""
    tracemalloc.start()
    try:
        return case.attempt(text, fn, *args, **kwargs)
    finally:
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        case.expect(most <= MOST, f"reading a small file took {most / 2**20:.0f} MiB of memory")


# Files of valid structure that say what cannot be


def members(text: bytes) -> dict[str, np.ndarray]:
    """The arrays of a file."""
    with np.load(io.BytesIO(text)) as file:
        return {name: file[name] for name in file.files}


def npy(array: np.ndarray) -> bytes:
    """An array as the bytes of a `.npy` file."""
    file = io.BytesIO()
    np.lib.format.write_array(file, array, allow_pickle=True)
    return file.getvalue()


def packed(parts: list[tuple[str, bytes]], compress: bool = False) -> bytes:
    """A zip file of these members."""
    file = io.BytesIO()
    kind = zipfile.ZIP_DEFLATED if compress else zipfile.ZIP_STORED
    with warnings.catch_warnings(), zipfile.ZipFile(file, "w", kind) as target:
        warnings.simplefilter("ignore")  # of duplicate names
        for name, text in parts:
            target.writestr(name, text)
    return file.getvalue()


def npy_of_shape(array: np.ndarray, shape: tuple, dtype: str = "<f4") -> bytes:
    """A `.npy` file whose header says another shape than its data have."""
    head = str({"descr": dtype, "fortran_order": False, "shape": shape})
    head = head.ljust(-(-(len(head) + 11) // 64) * 64 - 11) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode() + array.tobytes()


def walk(node: Any, path: tuple = ()) -> list[tuple]:
    """The places of all entries of a header."""
    found = [path] if isinstance(node, dict) else []
    pairs = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    return found + [place for key, value in pairs for place in walk(value, (*path, key))]


def at(node: Any, path: tuple) -> Any:
    """The entry at a place of a header."""
    for key in path:
        node = node[key]
    return node


def invalid(case: Case) -> None:
    """`models.load` of a file of valid structure with members or a header that cannot be right: refused, or the same."""
    name = case.one(("linear", "classifier", "mapped", "run", "dual_run", "batch", "sparse", "one_vs_rest", "stream"))
    tree, saved = whole(case, name)
    arrays = members(saved)
    header = json.loads(bytes(arrays.pop("header")))
    numbered = [k for k in arrays if arrays[k].ndim and arrays[k].size]
    parts = None
    how = case.one(INVALID)
    victim = case.one(numbered)
    if how == "longer":
        arrays[victim] = np.concatenate([arrays[victim], arrays[victim][:1]])
    elif how == "dimension":
        arrays[victim] = arrays[victim][None]
    elif how == "dtype":
        arrays[victim] = arrays[victim].astype("i2" if arrays[victim].dtype.kind == "f" else "f8")
    elif how == "strings":
        arrays[victim] = np.full(arrays[victim].shape, "a")
    elif how == "objects":
        arrays[victim] = np.full(arrays[victim].shape, None, object)
    elif how == "missing":
        del arrays[victim]
    elif how == "extra":
        arrays[f"a{len(arrays)}"] = np.ones(3)
    elif how == "other_name":
        arrays["../evil"] = arrays.pop(victim)
    elif how == "not_finite":
        floats = [k for k in arrays if arrays[k].dtype.kind == "f"]
        if name not in ("linear", "classifier", "mapped") or not floats:
            arrays["../evil"] = arrays.pop(victim)  # in a run NaN may be right
        else:
            victim = case.one(floats)
            arrays[victim] = np.full_like(arrays[victim], np.nan)
    elif how == "header":
        place = case.one([p for p in walk(header["tree"]) if p] or [()])
        entry = at(header["tree"], place)
        change_entry(case, entry)
        how = f"header: {'.'.join(map(str, place))} = {json.dumps(entry)[:120]}"
    elif how == "specific":
        how = specific(case, name, header, arrays)
    listed = [("header.npy", npy(np.frombuffer(json.dumps(header).encode(), np.uint8)))]
    listed += [(f"{k}.npy", npy(a)) for k, a in arrays.items()]
    if how == "duplicate":
        listed.append((f"{victim}.npy", npy(arrays[victim] + 1 if arrays[victim].dtype != bool else ~arrays[victim])))
        listed = listed if case.rarely(2) else [listed[-1], *listed[:-1]]
    if how == "shape_says":
        listed = [(n, npy_of_shape(arrays[victim], case.one(((10**6,), (2**62,), (-1,), (2, 2**40), (0,), (1,
        1)))) if n == f"{victim}.npy"
                   else t) for n, t in listed]  # fmt: skip
    if how == "bomb":
        where = case.one(("extra.npy", f"{victim}.npy", "header.npy"))
        big = npy(np.zeros(2**27, np.uint8))
        parts = packed([(n, t) for n, t in listed if n != where] + [(where, big)], compress=True)
    if how == "header_text":
        wrong = case.one((b"", b"{", b"[]", b"null", b"\xff\xfe", b'{"format": 1}', b'{"format": 99, "tree": {}}', b'{"tree": 1}',
                          b"[" * 5000, b'{"format": 1, "tree": ' + b'{"list": [' * 3000,
                          b'{"format": 1, "tree": {"evil": 1}}'))  # fmt: skip
        listed[0] = ("header.npy", npy(np.frombuffer(wrong, np.uint8)))
    path = case.folder / "model.npz"
    path.write_bytes(parts or packed(listed, compress=case.rarely(4)))
    like = {"like": tree} if case.rarely(5) else {}
    text = f"models.load({name}, {how} {victim if not how.startswith(('header', 'specific')) else ''}{' like=' if like else ''})"
    case.twin = lambda: intact(case, saved, tree, like)
    found = limited(case, text, models.load, path, **like)
    if same_leaves(found, tree):
        case.judged = True
        return
    if how.startswith(FREE) and goes_on(case, name, found):
        raise Different(f"a run of another shape or step ({how}) was loaded, and went on")
    if not how.startswith(FREE) or not well_formed(found):
        raise Different(f"a file that cannot be right ({how}) was loaded: {found!r}"[:300])


INVALID = (
    "longer", "dimension", "dtype", "strings", "objects", "missing", "extra", "other_name", "not_finite", "header", "header",
    "header",
    "duplicate", "shape_says", "bomb", "header_text", "specific", "specific", "specific", "specific",
)  # fmt: skip


def change_entry(case: Case, entry: dict) -> None:
    """One entry of a header replaced, lost or renamed."""
    if not entry:
        entry["x"] = None
    key = case.one(list(entry))
    value = case.one((None, -1, 0.5, 10**30, "evil", [], {}, True, "Batch", "jaxsvm", 1, float("nan"), "open", "os.system"))
    how = case.one(("value", "value", "lose", "rename", "add"))
    if how == "value":
        entry[key] = value
    if how == "lose":
        del entry[key]
    if how == "rename":
        entry[case.one(("call", "named", "function", "array", "value", "key", "tuple", "x"))] = entry.pop(key)
    if how == "add":
        entry[case.one(("call", "named", "evil", "array", "value"))] = value


FREE = (
    "longer",
    "dimension",
    "header:",
    "specific",
    "shape_says",
)  # changes that may give another tree that could have been saved


def goes_on(case: Case, name: str, state: Any) -> bool:
    """Whether a loop takes a state that was changed."""
    key, data = jax.random.key(0), jaxsvm.dataset(ROWS, LABELS)
    rbf = kernels.rbf(1.5)
    if name == "run":
        case.attempt("fit(state=loaded)", jaxsvm.fit, jaxsvm.pegasos(0.1, bias="free"), data, steps=2, state=state,
                     sampler=samplers.epochs(2))  # fmt: skip
    elif name == "dual_run":
        case.attempt("fit(state=loaded)", jaxsvm.fit, jaxsvm.sdca(1.0, rbf), data, steps=2, state=state)
    elif name == "stream":
        case.attempt("stream(state=loaded)", jaxsvm.stream, jaxsvm.pegasos(0.1), [(ROWS, LABELS)], key, state=state)
    return name in ("run", "dual_run", "stream")


def is_key(a: Any) -> bool:
    """Whether a leaf is an array of keys, which NumPy does not read."""
    return hasattr(a, "dtype") and jax.dtypes.issubdtype(a.dtype, jax.dtypes.prng_key)


def well_formed(tree: Any) -> bool:
    """Whether a tree could have been saved: shapes, dtypes and ranges are those of its class."""
    shape = lambda *arrays: [np.shape(a) for a in arrays]
    numbers = [np.asarray(a) for a in jax.tree.leaves(tree) if not is_key(a)]
    finite = all(np.isfinite(a.astype(np.float64)).all() for a in numbers if a.dtype.kind == "f")
    if isinstance(tree, models.Linear):
        right = np.ndim(tree.w) == 1 and np.shape(tree.b) == () and tree.bias in ("none", "feature", "free")
        return finite and right and tree.w.dtype.kind == tree.b.dtype.kind == "f"
    if isinstance(tree, models.Expansion):
        m = len(tree.coef) if np.ndim(tree.coef) == 1 else -1
        right = np.ndim(tree.x) == 2 and shape(tree.coef, tree.index, tree.x[:, 0], tree.b) == [(m,), (m,), (m,), ()]
        right = right and tree.index.dtype == np.int32 and int(np.min(tree.index, initial=0)) >= -1
        try:
            tree.kernel(tree.x[:1], tree.x[:1])
        except Exception:
            return False
        return finite and right and tree.bias in ("none", "feature", "free")
    if isinstance(tree, models.Classifier):
        names = tree.classes
        known = all(isinstance(c, str | int | float) for c in names)
        return known and len(set(names)) == len(names) >= 2 and well_formed(tree.inner)
    if isinstance(tree, models.Mapped):
        right = np.ndim(tree.phi.frequencies) == 2 and shape(tree.phi.scale, tree.phi.amplitude) == [(), ()]
        return right and well_formed(tree.inner) and tree.inner.w.shape == (2 * tree.phi.frequencies.shape[1],)
    if isinstance(tree, jaxsvm.OneVsRest):
        return finite and np.ndim(tree.inner.w) == 2 and np.shape(tree.inner.b) in ((), tree.inner.w.shape[:1])
    if isinstance(tree, jaxsvm.Batch):
        x = tree.x
        if isinstance(x, jaxsvm.SparseRows):
            n, r = np.shape(x.index) if np.ndim(x.index) == 2 else (-1, -1)
            right = shape(x.value, x.length) == [(n, r), (n,)] and int(np.max(x.length)) <= r and int(np.min(x.length)) >= 0
            right = right and 0 <= int(np.min(x.index)) and int(np.max(x.index)) < x.columns
        else:
            n, right = len(x), np.ndim(x) == 2
        return finite and right and shape(tree.y, tree.index, tree.weight) == [(n,)] * 3 and tree.index.dtype == np.int32
    return False


def specific(case: Case, name: str, header: dict, arrays: dict) -> str:
    """A member or an entry that the class rules out."""
    text = json.dumps(header)
    choices = {
        "linear": [('"feature"', '"evil"'), ('"feature"', "3"), ("b", np.ones(2, "f4")), ("w", np.ones((3, 3), "f4"))],
        "classifier": [('"free"', '"evil"'), ('"spam"', '"ham"'), ('"spam"', "null"), ("1.5", "-1.0"), ("1.5", '"1.5"'),
        ("1.5", "NaN"),
                       ("coef", np.ones(7, "f4")), ("index", np.full(12, -5, "i4")), ("index", np.full(12, 2**31 - 1, "i4")),
                       ("x", np.ones((7, 3), "f4")), ("kernels.rbf", "solvers.pegasos.pegasos"), ("kernels.rbf",
                       "kernels.linear")],
        "mapped": [('"none"', '"evil"'), ("w", np.ones(5, "f4")), ("frequencies", np.ones((3, 7), "f4"))],
        "run": [("step", np.int32(-4)), ("step", np.float32(1.5)), ("step", np.array([1, 2], "i4")), ("done", np.array([True,
        False]))],
        "dual_run": [("step", np.int32(-1)), ("coef", np.ones(5, "f4")), ("done", np.float32(1))],
        "stream": [("step", np.int32(-4)), ("held", np.int32(-1)), ("held", np.int32(50)), ("chunks", np.int32(-1))],
        "batch": [("y", np.ones(5, "f4")), ("x", np.ones((5, 3), "f4")), ("index", np.ones(12, "f4")), ("weight", np.ones((12,
        1), "f4"))],
        "sparse": [("index", np.full((12, 8), 99, "i4")), ("index", np.full((12, 8), -1, "i4")), ("length", np.full(12, 99,
        "i4")),
                   ('"columns": {"value": 3}', '"columns": {"value": -3}'), ('"columns": {"value": 3}',
                   '"columns": {"value": 1}')],
        "one_vs_rest": [("w", np.ones((2, 3), "f4")), ("b", np.ones(7, "f4"))],
    }[name]  # fmt: skip
    what, value = case.one(choices)
    if isinstance(value, str):
        changed = json.loads(text.replace(what, value, 1))
        header.clear()
        header.update(changed)
        return f"specific: {what} -> {value}"
    places = [p for p in walk(header["tree"]) if p and p[-1] == what and "array" in at(header["tree"], p)]
    places = places or [p for p in walk(header["tree"]) if p and "array" in at(header["tree"], p)]
    entry = at(header["tree"], places[0])
    arrays[f"a{entry['array']}"] = np.asarray(value)
    entry["dtype"] = np.asarray(value).dtype.name
    return f"specific: {what} = {np.asarray(value).dtype}{list(np.shape(value))}"


def untouched(case: Case) -> None:
    """Files that were packed anew, in another order, are the same; and what is saved comes back."""
    name = case.one(list(trees()))
    tree, text = whole(case, name)
    with zipfile.ZipFile(io.BytesIO(text)) as file:
        parts = [(n, file.read(n)) for n in file.namelist()]
    case.random.shuffle(parts)
    path = pathlib.Path(case.one((str(case.folder / "m.npz"), str(case.folder / "a b\u00e9.model"), str(case.folder / "x"))))
    path.write_bytes(packed(parts, compress=case.rarely(2)))
    given = case.one((path, str(path), bytes(path)))
    case.twin = lambda: intact(case, text, tree, {})
    found = case.attempt(f"models.load({name} packed anew, path of type {type(given).__name__})", models.load, given)
    case.judged = True
    if not same_leaves(found, tree):
        raise Different("a file that is as it was written was loaded as something else")
    case.attempt(f"models.save({name}, path of type {type(given).__name__})", models.save, given, tree, must=True)
    again = case.attempt(f"models.load({name})", models.load, given, must=True)
    if not same_leaves(again, tree):
        raise Different("what was saved did not come back")
    case.expect(
        [p for p in path.parent.iterdir() if p != path and p.name not in ("whole.npz", "intact.npz")] == [],
        "saving left a second file behind",
    )


def run(case: Case) -> None:
    """One case of the part."""
    case.one((damaged,) * 5 + (invalid,) * 5 + (untouched,) * 4)(case)
