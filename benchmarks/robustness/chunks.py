"""Part `chunks`: generators that fill the same arrays again for each chunk, or that only one thread may use.

Right: the model, bit for bit, of the same chunks in arrays of their own.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np

import jaxsvm
from jaxsvm import features, kernels
from jaxsvm.types import SparseRows

from .cases import Case, same_leaves

D = 4
KEY = jax.random.key(0)
Parts = list[tuple[np.ndarray, ...]]


def solvers() -> dict[str, Callable[[int], tuple[Any, dict[str, Any]]]]:
    """Solvers of streams, and their options, by the number of rows."""
    rbf = kernels.rbf(1.0)
    phi = features.nystrom(None, rbf, landmarks=np.eye(D, dtype="f"))
    return {
        "pegasos": lambda n: (jaxsvm.pegasos(0.1), {}),
        "asset": lambda n: (jaxsvm.asset(0.1, average_from=5), {}),
        "sdca": lambda n: (jaxsvm.sdca(1.0), {"rows": n}),
        "bsgd": lambda n: (jaxsvm.bsgd(0.1, rbf, budget=6), {}),
        "features": lambda n: (jaxsvm.on_features(phi, jaxsvm.pegasos(0.1)), {}),
        "least_squares": lambda n: (jaxsvm.least_squares(0.1), {}),
    }


def sizes(case: Case) -> list[int]:
    """Rows of the chunks: equal, but perhaps the last."""
    size = case.one((1, 5, 20, 64))
    return [size] * int(case.random.integers(2, 12)) + case.one(([], [max(size // 2, 1)]))


def refilled(parts: Parts, spoil: bool) -> Iterator[tuple]:
    """The parts in arrays that are filled again, and perhaps spoilt as soon as the next part is asked for."""
    buffers = tuple(np.empty_like(a) for a in parts[0])
    for part in parts:
        size = len(part[0])
        for buffer, values in zip(buffers, part, strict=True):
            buffer[:size] = values
        yield tuple(buffer[:size] for buffer in buffers)
        if spoil:
            for buffer in buffers:
                buffer[:] = 7


def in_one_block(parts: Parts) -> Iterator[tuple]:
    """Rows and targets are columns of one block."""
    block = np.empty((len(parts[0][0]), D + 2), parts[0][0].dtype)
    for x, y, *weight in parts:
        size = len(x)
        block[:size, :D], block[:size, D] = x, y
        if weight:
            block[:size, D + 1] = weight[0]
        yield (block[:size, :D], block[:size, D], *([block[:size, D + 1]] if weight else []))


def sparse(parts: Parts) -> Iterator[tuple]:
    """Sparse rows whose numbers and columns are filled again."""
    value, index = np.empty_like(parts[0][0]), np.empty(parts[0][0].shape, np.int32)
    for x, *others in parts:
        value[: len(x)], index[: len(x)] = x[:, ::-1], np.arange(D)[::-1]
        yield (SparseRows(index[: len(x)], value[: len(x)], np.full(len(x), D, np.int32), D), *others)
        index[:] = 0


def of_jax(parts: Parts) -> Iterator[tuple]:
    """Rows of JAX that share the memory of a buffer of NumPy."""
    buffer = np.empty_like(parts[0][0])
    for x, *others in parts:
        buffer[: len(x)] = x
        yield (jax.numpy.asarray(buffer[: len(x)]), *others)


def of_database(parts: Parts) -> Iterator[tuple]:
    """Rows of a database that is opened where the first chunk is asked for, whose cursor belongs to a thread."""
    database = sqlite3.connect(":memory:")
    database.execute(f"create table r (chunk integer, {', '.join(f'c{j} real' for j in range(D + len(parts[0]) - 1))})")
    for k, part in enumerate(parts):
        table = np.c_[part].tolist() if part[0].ndim == 1 else np.c_[(part[0], *part[1:])].tolist()
        database.executemany(f"insert into r values ({', '.join('?' * (D + len(part)))})", [(k, *row) for row in table])
    for k in range(len(parts)):
        rows = np.array(database.execute("select * from r where chunk = ?", (k,)).fetchall())[:, 1:].astype("f4")
        yield (rows[:, :D], *rows[:, D:].T)


WAYS: dict[str, Callable[[Parts], Iterator[tuple]]] = {
    "filled again": lambda parts: refilled(parts, False),
    "spoilt": lambda parts: refilled(parts, True),
    "one block": in_one_block,
    "sparse": sparse,
    "of JAX": of_jax,
    "a database": of_database,
}


def run(case: Case) -> None:
    """One case of the part."""
    random, way = case.random, list(WAYS)[case.seed % len(WAYS)]
    name = case.one(list(solvers()))
    lengths = sizes(case)
    dtype = case.one(("f4", "f4", "f8")) if way in ("filled again", "spoilt", "one block") else "f4"
    parts: Parts = []
    for size in lengths:
        x = random.normal(size=(size, D)).astype("f4").astype(dtype)
        y = np.where(x[:, 0] + 0.3 * random.normal(size=size) > 0, 1, -1).astype(dtype)
        parts.append((x, y, random.choice([1.0, 2.0], size).astype(dtype)) if case.seed % 4 == 3 and name != "sdca" else (x, y))
    parts[0][1][:2] = [1, -1][: len(parts[0][1])]
    batch = case.one((None, 1, 7, 50))
    solver, options = solvers()[name](sum(lengths))
    text = f"stream({name}, {way}, chunks of {lengths[0]} rows, batch_size={batch}, {len(parts[0])} arrays)"
    call = lambda chunks: jaxsvm.stream(solver, chunks, KEY, batch_size=batch, task="binary", **options)
    found = case.attempt(text, lambda: call(WAYS[way](parts)), must=True)
    # of sparse rows the same in fresh arrays, as their sums have another order than those of dense rows
    wanted = call([jax.tree.map(np.copy, part) for part in (sparse(parts) if way == "sparse" else parts)])
    case.compare(same_leaves((found.model, found.state), (wanted.model, wanted.state)), "another model than that of own arrays")
