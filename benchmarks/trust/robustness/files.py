"""Part `files`: damaged files of models and runs. Loaded is what was saved, or nothing."""

from __future__ import annotations

import io
import tracemalloc
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
    case.twin = lambda: intact(case, text, tree)
    found = limited(case, f"models.load({name}, {how})", models.load, path)
    case.judged = True
    if not same_leaves(found, tree):
        raise Different(f"the file of {name} was damaged ({how}) and loaded as something else")


def intact(case: Case, text: bytes, tree: Any) -> None:
    """Load the file before it was damaged: it holds what was saved."""
    path = case.folder / "intact.npz"
    path.write_bytes(text)
    if not same_leaves(models.load(path), tree):
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


def repacked(case: Case) -> None:
    """A file whose members were packed anew, in another order, is the same."""
    name = case.one(list(trees()))
    tree, text = whole(case, name)
    with zipfile.ZipFile(io.BytesIO(text)) as file:
        parts = [(member, file.read(member)) for member in file.namelist()]
    case.random.shuffle(parts)
    path = case.folder / "model.npz"
    with zipfile.ZipFile(path, "w", case.one((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))) as file:
        for part in parts:
            file.writestr(*part)
    case.twin = lambda: intact(case, text, tree)
    found = case.attempt(f"models.load({name} packed anew)", models.load, path)
    case.judged = True
    if not same_leaves(found, tree):
        raise Different("a file that is as it was written was loaded as something else")


def run(case: Case) -> None:
    """One case of the part."""
    case.one((damaged,) * 5 + (repacked,) * 2)(case)
