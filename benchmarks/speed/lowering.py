"""`python -m benchmarks.speed.lowering`: what the CUDA programs of the main solvers hold. It needs no GPU, and times nothing.

Each update is lowered for CUDA by JAX, and its StableHLO is counted, with calls written out. `jax.export` takes them all, too.
XLA fuses operations later. It launches more kernels than a round has reductions as a rule, and fewer than it has operations.
A launch takes some 5 to 10 microseconds, which is not measured here. Writes benchmarks/results/lowering.csv:

loops, depth       while loops of the update, and how deep they are nested
update             what an update is; around one step there is the loop of `fit`
round_ops          operations of a round of the innermost loop, of several the longest, with its condition; else of the update.
                   Constants, reshapes and broadcasts are not counted
round_reductions   those of them that end a fusion: reductions, products, scatters, sorts, factorisations and other calls
round_reads        those of them that read at a single place: dynamic slices, and gathers of one row or number
gathers, scatters, sorts, custom_calls   of the whole update, each call counted
dots               products of the whole update, as depth of loops: shapes
kernels            what XLA compiles for this CPU, of the whole update: fusions and other operations, a small loop as one.
                   Compilation takes some 12 milliseconds for each

A program that calls the host cannot be lowered so, and ends the script with an error.
"""

from __future__ import annotations

import collections
import re
from collections.abc import Iterator
from typing import Any
from unittest import mock

import jax
import numpy as np
import scipy.sparse

import jaxsvm
from jaxsvm import features, kernels
from jaxsvm._node import cast
from jaxsvm.loops.fitting import placed, run_once

from .. import common

KEY, RBF = jax.random.key(0), kernels.rbf(gamma=0.05)
COLUMNS = 20
FREE = {"constant", "return", "reshape", "broadcast_in_dim", "iota", "optimization_barrier"}
SORTS = {"sort", "top_k"}
COMPILED_FREE = {"parameter", "constant", "get-tuple-element", "bitcast", "tuple", "copy", "custom-call", "while", "conditional"}
ENDS = SORTS | {"reduce", "reduce_window", "dot_general", "scatter", "cholesky", "triangular_solve", "custom_call"}
BRANCHES = {"stablehlo.case", "stablehlo.if"}


def rows(n: int, d: int = COLUMNS, sparse: bool = False) -> jaxsvm.Batch:
    """Normal rows, or sparse ones with a tenth of the numbers."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(n, d)).astype(np.float32)
    y = np.where(x[:, 0] + rng.normal(size=n) > 0, 1, -1)
    return jaxsvm.dataset(scipy.sparse.csr_matrix(x * (rng.random(x.shape) < 0.1)) if sparse else x, y)


def update(solver: Any, data: jaxsvm.Batch, batch: int | None = None) -> tuple:
    """The update of a solver and its arguments; the batch of `fit` is all rows, or so many."""
    data = solver.layout(data)
    state = solver.init(KEY, data)
    if batch is None:
        return solver.update, state, data
    index = np.arange(batch, dtype=np.int32)
    return solver.update, state, data._replace(index=index) if solver.needs_all_rows else jaxsvm.take(data, index)


def problems(n: int, count: int) -> tuple:
    """Updates of so many exact machines of one kernel at once, as in a grid over C."""
    data = rows(n)

    def solve(C, data):
        solver = jaxsvm.decomposition(C, RBF)
        return solver.update(solver.init(KEY, data), data)

    return jax.vmap(solve, (0, None)), np.logspace(-2, 2, count).astype(np.float32), data


def one_fit(solver: Any, data: jaxsvm.Batch) -> tuple:
    """The whole fit of an estimator."""
    solver = cast(solver, np.float32)
    return run_once, placed(solver, solver.sampler, None, data, False), KEY


def machine(data: jaxsvm.Batch) -> Any:
    """A kernel machine, not trained."""
    solver = jaxsvm.decomposition(1.0, RBF)
    return solver.model(solver.init(KEY, data), data)


def landmarks() -> tuple:
    """The map of 512 landmarks, and a block of rows."""
    phi = features.nystrom(KEY, RBF, rows(1024).x, landmarks=512)
    return (lambda phi, x: phi(x)), phi, rows(4096).x


WHOLE, ONE = "to the tolerance", "one step"
PROGRAMS = {
    "decomposition, blocks": (4096, WHOLE, lambda n: update(jaxsvm.decomposition(1.0, RBF), rows(n))),
    "decomposition, whole matrix": (1024, WHOLE, lambda n: update(jaxsvm.decomposition(1.0, RBF), rows(n))),
    "decomposition, 64 problems": (512, WHOLE, lambda n: problems(n, 64)),
    "SVC": (512, WHOLE, lambda n: one_fit(jaxsvm.decomposition(1.0, RBF), rows(n))),
    "SVC, blocks": (3072, WHOLE, lambda n: one_fit(jaxsvm.decomposition(1.0, RBF), rows(n))),
    "LinearSVC": (512, WHOLE, lambda n: one_fit(jaxsvm.machines.newton_by_C(1.0, bias="feature"), rows(n))),
    "prediction": (256, "all rows", lambda n: (lambda model, x: model(x), machine(rows(n)), rows(n).x)),
    "smo": (4096, ONE, lambda n: update(jaxsvm.smo(1.0, RBF), rows(n), 1)),
    "sdca, kernel": (4096, ONE, lambda n: update(jaxsvm.sdca(1.0, RBF), rows(n), 1)),
    "dual_descent, dense": (4096, WHOLE, lambda n: update(jaxsvm.dual_descent(1.0), rows(n))),
    "dual_descent, sparse": (4096, WHOLE, lambda n: update(jaxsvm.dual_descent(1.0), rows(n, 2000, sparse=True))),
    "interior_point": (4096, WHOLE, lambda n: update(jaxsvm.interior_point(1.0), rows(n))),
    "augmented_lagrangian": (4096, WHOLE, lambda n: update(jaxsvm.augmented_lagrangian(1.0), rows(n))),
    "newton": (4096, WHOLE, lambda n: update(jaxsvm.newton(1e-3), rows(n))),
    "pegasos, 256 rows": (4096, ONE, lambda n: update(jaxsvm.pegasos(1e-3), rows(n), 256)),
    "bsca, 100 points": (4096, ONE, lambda n: update(jaxsvm.bsca(1.0, RBF, budget=100), rows(n), 1)),
    "nystrom, 512 landmarks": (4096, "one block", lambda n: landmarks()),
}


def operations(region: Any, functions: dict[str, Any]) -> Iterator[Any]:
    """The operations of a region, calls and branches written out, without the bodies of loops."""
    for block in region.blocks:
        for view in block.operations:
            op = view.operation
            if op.name == "func.call":
                for inner in functions[op.attributes["callee"].value].regions:
                    yield from operations(inner, functions)
                continue
            yield op
            for inner in op.regions if op.name in BRANCHES else ():
                yield from operations(inner, functions)


def levels(ops: list, functions: dict[str, Any], depth: int = 0) -> Iterator[tuple[int, list]]:
    """The operations outside of loops with depth 0, and those of a round of each loop with its depth."""
    yield depth, ops
    for op in ops:
        if op.name == "stablehlo.while":
            inner = [o for region in op.regions for o in operations(region, functions)]
            yield from levels(inner, functions, depth + 1)


def kind(op: Any) -> str:
    """The name of an operation without its dialect."""
    return op.name.rsplit(".", 1)[-1]


def shape(value: Any) -> str:
    """Such as 4096x20."""
    return "x".join(map(str, value.type.shape)) or "1"


def reads_one_place(op: Any) -> bool:
    """Whether an operation is a dynamic slice, or a gather of a single slice."""
    if kind(op) != "gather":
        return kind(op) == "dynamic_slice"
    return np.prod(op.results[0].type.shape) == np.prod(op.attributes["slice_sizes"])


def count(function: Any, *arguments: Any) -> dict[str, Any]:
    """The row of a program."""
    # solvers that ask which device there is shall find a GPU
    with mock.patch.object(jax, "default_backend", lambda: "gpu"):
        module = jax.jit(function).trace(*arguments).lower(lowering_platforms=("cuda",)).compiler_ir()
    functions = {op.attributes["sym_name"].value: op.operation for op in module.body.operations}
    (region,) = functions["main"].regions
    found = list(levels(list(operations(region, functions)), functions))
    depth = max(depth for depth, _ in found)
    work = lambda ops: [op for op in ops if kind(op) not in FREE]
    inner = max((work(ops) for at, ops in found if at == depth), key=len)
    everything = [op for _, ops in found for op in ops]
    kinds = collections.Counter(map(kind, everything))
    targets = collections.Counter(op.attributes["call_target_name"].value for op in everything if kind(op) == "custom_call")
    dots = collections.Counter(
        f"{at}: {' by '.join(map(shape, op.operands))}" for at, ops in found for op in ops if kind(op) == "dot_general"
    )
    listed = lambda counter: "; ".join(f"{name} ({number})" if number > 1 else name for name, number in counter.items())
    return {
        "loops": kinds["while"],
        "depth": depth,
        "round_ops": len(inner),
        "round_reductions": sum(kind(op) in ENDS for op in inner),
        "round_reads": sum(map(reads_one_place, inner)),
        "gathers": kinds["gather"],
        "scatters": kinds["scatter"],
        "sorts": sum(kinds[name] for name in SORTS),
        "custom_calls": listed(targets),
        "dots": listed(dots),
    }


def count_kernels(function: Any, *arguments: Any, options: dict | None = None) -> int:
    """The column "kernels" of a program, compiled with these options."""
    text = jax.jit(function).lower(*arguments).compile(options).as_text()
    lines = {}
    for name, body in re.findall(r"^(?:ENTRY )?%([\w.\-]+) .*{\n((?: .*\n)*)", text, re.MULTILINE):
        lines[name] = body.splitlines()

    def of(name: str) -> int:
        total = 0
        for line in lines[name]:
            (operation,) = re.findall(r" = (?:\(.*?\)|\S+) ([\w\-]+)\(", line)[:1] or [""]
            inner = re.findall(r"(?:body|condition|(?:true|false)_computation)=%([\w.\-]+)", line)
            for branches in re.findall(r"branch_computations={(.*?)}", line):
                inner += re.findall(r"%([\w.\-]+)", branches)
            total += (operation not in COMPILED_FREE) + sum(map(of, inner))
        return total

    return of(re.search(r"^ENTRY %([\w.\-]+)", text, re.MULTILINE)[1])


def main() -> None:
    """The table."""
    table = []
    for name, (n, steps, make) in PROGRAMS.items():
        made = make(n)
        row = {"program": name, "rows": n, "update": steps, **count(*made), "kernels": count_kernels(*made)}
        table.append(row | {"jax": jax.__version__})
    common.write("lowering", table)


if __name__ == "__main__":
    main()
