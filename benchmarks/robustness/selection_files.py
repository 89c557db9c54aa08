"""Part `selection files`: a file of `select` that another call meets, or that was edited or cut.

Right: the table of the call itself, which it makes once more without a file; or a refusal in a sentence, whose twin is the
same call without the file.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxsvm
from jaxsvm import kernels, losses

from . import oracles
from .cases import Case

N, D = 24, 2
KEY = jax.random.key(0)


def scaled(gammas: Any) -> Callable:
    """Machines on columns of different scales."""
    return lambda C: jaxsvm.decomposition(C, kernels.rbf(gamma=jnp.array(gammas, "f")))


def chosen(**choice: Any) -> Callable:
    """Machines of a choice."""
    return lambda C: jaxsvm.decomposition(C, kernels.rbf(1.0), **choice)


def called(fn: Callable) -> Callable:
    """Machines of a kernel function."""
    return lambda C: jaxsvm.decomposition(C, kernels.custom(fn))


def squared(x: Any, z: Any) -> Any:
    """A kernel function, which counts by its name."""
    return (x @ z.T + 1) ** 2


def cubed(x: Any, z: Any) -> Any:
    """Another one."""
    return (x @ z.T + 1) ** 3


def makers(case: Case) -> tuple[Callable, Callable]:
    """Two makers, which often differ."""
    number = lambda: float(case.one((0.1, 0.5, 1.0, 50.0)))
    kinds: list[Callable[[], Callable]] = [
        lambda: scaled([number(), number()]),
        lambda: called(case.one((squared, cubed))),
        lambda: called(functools.partial(lambda s, x, z: jnp.exp(s * (x @ z.T)), np.float32(number() / 50))),
        lambda: functools.partial(jaxsvm.decomposition, kernel=kernels.rbf(gamma=number())),
        lambda: chosen(loss=case.one((losses.hinge, losses.squared_hinge, losses.squared_hinge))),
        lambda: chosen(bias=case.one(("none", "free"))),
    ]
    kind = case.one(kinds)
    return fixed(kind()), fixed(kind())


def fixed(maker: Callable) -> Callable:
    """The maker, each of its machines made once: what it draws stays."""
    return functools.cache(lambda C: maker(C))


def edited(case: Case, path: Any) -> None:
    """Change the file: other arrays, members that are none of its own, bytes, its length."""
    random, text = case.random, path.read_bytes()
    how = case.one(("bytes", "cut", "empty", "array", "array", "array", "names", "text"))
    case.text += f", {how} of the file"
    if how == "bytes":
        place = int(random.integers(len(text)))
        path.write_bytes(text[:place] + bytes([text[place] ^ (1 << int(random.integers(8)))]) + text[place + 1 :])
        return
    if how in ("cut", "empty"):
        path.write_bytes(text[: int(random.integers(len(text)))] if how == "cut" else b"")
        return
    if how == "text":
        path.write_bytes(case.one((b"x", b"PK\x03\x04", text * 2, b"\0" * 100)))
        return
    with np.load(path) as file:
        arrays = dict(file)
    if how == "array":
        name = case.one([name for name in arrays if name not in ("format", "call")])
        a = arrays[name]
        arrays[name] = case.one((
            a[:1] if a.ndim else a[None], a.T, a[None], np.zeros(()), np.asarray(a, str), np.asarray(a, np.complex64),
            np.zeros((3, 2, 2)), np.zeros(0), a.ravel(), np.full(a.shape, "x"), a.astype(np.int8), np.array(2.5),
        ))  # fmt: skip
    if how == "names":
        for name in case.random.choice(list(arrays), 2):
            arrays.pop(name, None)
    np.savez(path, **arrays)


def run(case: Case) -> None:
    """One case of the part."""
    random, path = case.random, case.folder / "found.npz"
    x = random.normal(size=(N, D)).astype("f4")
    y = np.where((x**2).sum(1) > 1.2, 1, -1)
    y[:6] = [1, -1] * 3
    data = oracles.batch(x, y)
    options: dict[str, Any] = {
        "C": np.array([0.3, 10.0], "f"), "folds": np.arange(N) // 2 % 2, "tol": 1e-3, "progress": False, "threads": 1,
    }  # fmt: skip
    first, second = makers(case)
    changes: list[dict[str, Any]] = [
        {"C": np.array([0.3, 1.0], "f")}, {"folds": np.arange(N) % 2}, {"tol": 1e-2}, {"score": "risk"}, {"rule": "one_se"},
        {"data": oracles.batch(-x, y)}, {"data": oracles.batch(x, -y)}, {"data": oracles.batch(x, y, 1 + (y > 0))},
        {"key": jax.random.key(1)}, {},
    ]  # fmt: skip
    kind = case.seed % 3
    change = case.one(changes) if kind == 1 else {}
    case.text = f"select: {('other makers', 'other arguments', 'an edited file')[kind]} {sorted(change)}"
    call = lambda maker, rows=data, key=KEY, **how: jaxsvm.select(maker, how.pop("data", rows), key, **options | how)
    call(first, save=path)
    second = second if kind == 0 else first
    if kind == 2:
        edited(case, path)
    alone = lambda: call(second, **{name: value for name, value in change.items()})
    case.twin = alone
    found = case.attempt(case.text, lambda: call(second, save=path, **change), must=kind == 1 and not change)
    case.compare(np.array_equal(found.table.folds, alone().table.folds, equal_nan=True), "the table is that of another call")
