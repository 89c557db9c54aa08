"""`python -m benchmarks.trust.composition`: every solver inside every transformation of JAX.

A cell is a solver and something that its user does with it. It is right if its values are those of runs outside of
transformations, and its derivatives those of differences of such runs, in float64. Or it is refused, by one sentence of
this package. Or it does not apply, by one of the rules:

    no number       a solver without a number cannot be mapped over one, and has no derivative in it
    no function     a solver that takes no kernel, loss or feature map holds no closure
    no weights      the loss couples rows, whose weights have no derivatives

Any other cell ends the command with status 1. Solvers are those of the contract test, and some with wrappers; exact ones
run to their optimum, others 8 steps. `--only TEXT` takes the solvers whose call holds the text, `--column NAME` one column;
neither writes the table.
"""

from __future__ import annotations

import argparse
import functools
import multiprocessing
import os
import pathlib
import pickle
import sys
import traceback
from collections.abc import Callable
from typing import Any, NamedTuple

if __name__ == "__main__":  # before JAX starts
    os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=4"

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import jaxsvm
from jaxsvm import kernels

from .. import common

TESTS = pathlib.Path(__file__).resolve().parents[2] / "tests"
STEPS = 8  # of a run whose derivatives are those of its steps
TO_THE_END = 5000  # steps of an exact run at most
TOLERANCE = 1e-6  # between two programs in float64, and of derivatives beside differences
QUICK = {"xla_backend_optimization_level": 0}  # for programs that run once


class DoesNotApply(Exception):
    """The rule by which a cell does not apply."""


class Subject(NamedTuple):
    """A solver, and how it is run."""

    text: str
    at: Callable  # number -> solver
    number: float | None
    targets: str  # "labels", "real", "grades" or "classes"
    exact: bool
    tol: float
    sampler: Any  # None: that of the solver


@functools.cache
def subjects() -> tuple[Subject, ...]:
    """The first case of each factory of the contract test, and solvers with wrappers."""
    if str(TESTS) not in sys.path:
        sys.path.insert(0, str(TESTS))
    from cases import CASES

    kind = lambda case: (case.text.split("(")[0], case.kernel, case.targets)
    first = {kind(case): case for case in reversed(CASES)}
    of_cases = [
        Subject(case.text, case.at, case.number, case.targets, case.exact, case.tol, case.feed())
        for case in list(first.values())[::-1]
    ]
    exact = lambda C: jaxsvm.decomposition(C, kernels.rbf(1.0), tol=1e-12)
    wrapped = {
        "one_vs_rest(pegasos(0.1))": (lambda lam: jaxsvm.one_vs_rest(jaxsvm.pegasos(lam), classes=3), False),
        "one_vs_rest(decomposition(1.0, rbf(1.0), tol=1e-12))": (lambda C: jaxsvm.one_vs_rest(exact(C), classes=3), True),
        "one_vs_one(decomposition(1.0, rbf(1.0), tol=1e-12))": (lambda C: jaxsvm.one_vs_one(exact(C), classes=3), True),
    }
    others = [
        Subject(text, make, 0.1 if "pegasos" in text else 1.0, "classes", is_exact, 1e-12, None)
        for text, (make, is_exact) in wrapped.items()
    ]
    return (*of_cases, *others)


@functools.cache
def data_for(targets: str) -> jaxsvm.Batch:
    """24 rows of 3 columns in float64."""
    import cases

    with jax.ensure_compile_time_eval():
        return cases.rows("plain", targets).batch("float64")


def new_rows() -> np.ndarray:
    return np.random.default_rng(11).normal(size=(6, 3))


def fitted(subject: Subject, solver: Any, data: Any = None, key: Any = None) -> jaxsvm.Fit:
    """A run of the solver."""
    data = data_for(subject.targets) if data is None else data
    length = {"steps": TO_THE_END, "tol": subject.tol} if subject.exact else {"steps": STEPS}
    key = jax.random.key(3) if key is None else key
    return jaxsvm.fit(solver, data, key, sampler=subject.sampler, every=4, **length)


def score(subject: Subject, solver: Any, **more: Any) -> Any:
    """A smooth function of the model that a run leads to, ()."""
    return jnp.sum(jnp.tanh(fitted(subject, solver, **more).model(new_rows())))


def number_of(subject: Subject) -> float:
    if subject.number is None:
        raise DoesNotApply("no number")
    return subject.number


def close(found: Any, expected: Any, tolerance: float = TOLERANCE) -> None:
    found, expected = np.asarray(found), np.asarray(expected)
    assert np.isfinite(expected).all(), f"the run outside is not finite: {expected}"
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)


@functools.cache
def outside(subject: Subject, factor: float = 1.0) -> float:
    """The score of a run outside of transformations, at a multiple of its number."""
    return float(score(subject, subject.at(None if subject.number is None else factor * subject.number)))


def compiled(fn: Callable) -> Callable:
    return jax.jit(fn, compiler_options=QUICK)


# values


def scan_by_hand(subject: Subject) -> None:
    """`lax.scan` of `update`, against one update after the other."""
    solver, data = subject.at(subject.number), data_for(subject.targets)
    index = jnp.array([[5], [0], [17], [2]], jnp.int32)
    if solver.sampler is not None and solver.sampler.full_batch:
        index = jnp.tile(jnp.arange(24, dtype=jnp.int32), (2, 1))
    batch = lambda i: data._replace(index=i) if solver.needs_all_rows else jaxsvm.take(data, i)
    start = solver.init(jax.random.key(3), data)
    scanned, _ = compiled(lambda s: lax.scan(lambda s, i: solver.update(s, batch(i)), s, index))(start)
    state = start
    for i in index:
        state, _ = jaxsvm.step(solver, state, batch(i))
    close(solver.model(scanned, data)(new_rows()), solver.model(state, data)(new_rows()))


def jit_of_fit(subject: Subject) -> None:
    close(compiled(lambda: score(subject, subject.at(subject.number)))(), outside(subject))


def vmap_over_numbers(subject: Subject) -> None:
    number = number_of(subject)
    close(
        compiled(jax.vmap(lambda t: score(subject, subject.at(t))))(number * jnp.array([1.0, 0.5])),
        [outside(subject), outside(subject, 0.5)],
    )


def lax_map_over_numbers(subject: Subject) -> None:
    number = number_of(subject)
    run = compiled(lambda t: lax.map(lambda t: score(subject, subject.at(t)), t))
    close(run(number * jnp.array([1.0, 0.5])), [outside(subject), outside(subject, 0.5)])


def shard_map_over_numbers(subject: Subject) -> None:
    """As many numbers as devices, one on each."""
    number, mesh = number_of(subject), jax.sharding.Mesh(np.array(jax.devices()), ("i",))
    factors = np.where(np.arange(jax.device_count()) % 2, 0.5, 1.0)
    spec = jax.sharding.PartitionSpec("i")
    local = lambda t: score(subject, subject.at(t[0]))[None]
    run = jax.jit(jax.shard_map(local, mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False))
    close(run(number * factors), [outside(subject, f) for f in factors])


def vmap_over_keys(subject: Subject) -> None:
    solver, keys = subject.at(subject.number), jax.random.split(jax.random.key(3), 2)
    loop = [score(subject, solver, key=key) for key in keys]
    close(compiled(jax.vmap(lambda key: score(subject, solver, key=key)))(keys), loop)


def other_data(subject: Subject, t: Any) -> jaxsvm.Batch:
    """The data with rows moved by t times fixed directions."""
    data = data_for(subject.targets)
    return data._replace(x=data.x + t * np.random.default_rng(5).normal(size=data.x.shape))


def vmap_over_data_sets(subject: Subject) -> None:
    solver = subject.at(subject.number)
    run = lambda t: score(subject, solver, data=other_data(subject, t))
    close(compiled(jax.vmap(run))(jnp.array([0.0, 0.02])), [run(0.0), run(0.02)])


def nested_vmap(subject: Subject) -> None:
    number, keys = number_of(subject), jax.random.split(jax.random.key(3), 2)
    run = lambda t, key: score(subject, subject.at(t), key=key)
    numbers = number * jnp.array([1.0, 0.5])
    both = compiled(jax.vmap(jax.vmap(run, (None, 0)), (0, None)))(numbers, keys)
    close(both, [[run(float(t), key) for key in keys] for t in numbers])


def cond(subject: Subject) -> None:
    solver = subject.at(subject.number)
    run = compiled(lambda yes: lax.cond(yes, lambda: score(subject, solver), lambda: jnp.zeros(())))
    close([run(True), run(False)], [outside(subject), 0.0])


def while_loop(subject: Subject) -> None:
    """Runs in a loop of unknown length."""
    solver = subject.at(subject.number)
    body = lambda carry: (carry[0] + 1, carry[1] + score(subject, solver))
    run = compiled(lambda n: lax.while_loop(lambda carry: carry[0] < n, body, (0, jnp.zeros(())))[1])
    close(run(2), 2 * outside(subject))


def eval_shape(subject: Subject) -> None:
    solver = subject.at(subject.number)
    shape = jax.eval_shape(lambda: fitted(subject, solver).model)
    model = fitted(subject, solver).model
    of = lambda tree: [(jnp.shape(leaf), jnp.result_type(leaf)) for leaf in jax.tree.leaves(tree)]
    assert of(shape) == of(model), f"{of(shape)} is not {of(model)}"


def export(subject: Subject) -> None:
    """Saved as a program and read again."""
    solver = subject.at(subject.number)
    run = jax.jit(lambda x: score(subject, solver, data=data_for(subject.targets)._replace(x=x)))
    x = data_for(subject.targets).x
    saved = jax.export.export(run)(jax.ShapeDtypeStruct(x.shape, x.dtype)).serialize()
    close(jax.export.deserialize(saved).call(x), outside(subject))


def donate(subject: Subject) -> None:
    solver, data = subject.at(subject.number), data_for(subject.targets)
    state = jax.tree.map(jnp.asarray, fitted(subject, solver).state.solver)
    index = jnp.arange(24, dtype=jnp.int32)
    batch = data._replace(index=index) if solver.needs_all_rows else jaxsvm.take(data, index[:1])
    update = jax.jit(solver.update, donate_argnums=0)
    expected, _ = jax.jit(solver.update)(state, batch)
    found, _ = update(state, batch)
    close(solver.model(found, data)(new_rows()), solver.model(expected, data)(new_rows()))
    assert not any(leaf.is_deleted() for leaf in jax.tree.leaves(data)), "the data were deleted"


def tree_round_trip(subject: Subject) -> None:
    trip = lambda tree: jax.tree.unflatten(jax.tree.structure(tree), jax.tree.leaves(tree))
    solver = subject.at(subject.number)
    close(score(subject, trip(solver)), outside(subject))
    run = fitted(subject, solver)
    close(trip(run).model(new_rows()), run.model(new_rows()))


def pickled(subject: Subject) -> None:
    trip = lambda thing: pickle.loads(pickle.dumps(thing))
    solver = subject.at(subject.number)
    close(score(subject, trip(solver)), outside(subject))
    run = fitted(subject, solver)
    close(trip(run).model(new_rows()), run.model(new_rows()))


def equal_and_hashed(subject: Subject) -> None:
    """Equal calls are equal, and one static argument of `jit`; another number is another solver."""
    one, other = subject.at(subject.number), subject.at(subject.number)
    assert one == other and hash(one) == hash(other), "equal calls are not equal"
    traces = []
    run = jax.jit(lambda solver: traces.append(solver), static_argnums=0)
    run(one), run(other)
    assert len(traces) == 1, "an equal solver is traced again"
    if subject.number is not None:
        assert one != subject.at(2 * subject.number), "another number makes an equal solver"


# derivatives


def slope(fn: Callable, t: float, h: float = 1e-6) -> float:
    """The central difference of runs outside of transformations."""
    return float((fn(t + h) - fn(t - h)) / (2 * h))


def close_slopes(found: Any, expected: float) -> None:
    assert np.isfinite(found), f"the derivative is {found}, differences say {expected}"
    close(found, expected, 2e-5)


def in_numbers(subject: Subject) -> tuple[Callable, float]:
    number = number_of(subject)
    return lambda t: score(subject, subject.at(number * (1 + t))), 0.0


def in_rows(subject: Subject) -> tuple[Callable, float]:
    solver = subject.at(subject.number)
    return lambda t: score(subject, solver, data=other_data(subject, t)), 0.0


def in_weights(subject: Subject) -> tuple[Callable, float]:
    if subject.targets == "grades":
        raise DoesNotApply("no weights")
    solver, data = subject.at(subject.number), data_for(subject.targets)
    # with equal weights all coefficients may be at their bounds: the bias jumps there
    direction, weight = np.random.default_rng(6).normal(size=24), data.weight * (1 + 0.2 * np.sin(np.arange(24)))
    return lambda t: score(subject, solver, data=data._replace(weight=weight * (1 + t * direction))), 0.0


def scaled_loss(loss: Any, s: Any) -> Any:
    """s times a loss, by functions of s."""
    changed = {
        "value": lambda f, y, s: s * loss.value(f, y),
        "slope": lambda f, y, s: s * loss.slope(f, y),
        "conjugate": lambda u, y, s: s * loss.conjugate(u / s, y),
        "dual_step": lambda coef, f, y, q, C, s: loss.dual_step(coef, f, y, q, s * C),
        "quadratic": lambda y, C, s: loss.quadratic(y, s * C),
        "curvature": lambda f, y, s: s * loss.curvature(f, y),
    }
    known = {f"{name}_fn": fn for name, fn in changed.items() if getattr(loss, name) is not None}
    return jaxsvm.losses.custom(**known, params=s, labels=loss.labels, multiclass=loss.multiclass)


def in_a_closure(subject: Subject) -> tuple[Callable, float]:
    """In what a function among the arguments closes over: a kernel, a loss or a feature map."""
    solver = subject.at(subject.number)
    arguments = vars(solver)
    inner = arguments.get("inner")
    holder, wrap = (solver, lambda new: new) if inner is None else (inner, lambda new: solver.replace(inner=new))
    held = vars(holder)
    if held.get("kernel") is not None:

        def at(s: Any) -> Any:
            kernel = kernels.custom(lambda x, z: jnp.exp(-s / 2 * jnp.sum((x[:, None] - z[None]) ** 2, -1)))
            return wrap(holder.replace(kernel=kernel))

    elif "phi" in arguments:
        at = lambda s: solver.replace(phi=lambda x: s * jnp.tanh(x))
    elif held.get("loss") is not None and subject.targets != "grades":
        at = lambda s: wrap(holder.replace(loss=scaled_loss(held["loss"], s)))
    else:
        raise DoesNotApply("no function")
    return lambda s: score(subject, at(s)), 1.3


def reverse(make: Callable) -> Callable:
    def column(subject: Subject) -> None:
        fn, at = make(subject)
        found = compiled(jax.grad(fn))(jnp.asarray(at))
        close_slopes(found, slope(fn, at))

    return column


def forward(make: Callable) -> Callable:
    def column(subject: Subject) -> None:
        fn, at = make(subject)
        found = compiled(lambda t: jax.jvp(fn, (t,), (jnp.ones(()),))[1])(jnp.asarray(at))
        close_slopes(found, slope(fn, at))

    return column


def checkpoint(subject: Subject) -> None:
    fn, at = in_rows(subject)
    close_slopes(compiled(jax.grad(jax.checkpoint(fn)))(jnp.asarray(at)), slope(fn, at))


def vmap_of_grad(subject: Subject) -> None:
    """Derivatives of several runs at once, as in few-shot learning."""
    fn, _ = in_rows(subject)
    at = jnp.array([0.0, 0.02])
    found = compiled(jax.vmap(jax.grad(fn)))(at)
    for one, t in zip(found, at, strict=True):
        close_slopes(one, slope(fn, float(t)))


def vmap_of_a_closure(subject: Subject) -> None:
    fn, _ = in_a_closure(subject)
    at = jnp.array([1.3, 0.9])
    close(compiled(jax.vmap(fn))(at), [fn(float(t)) for t in at])


COLUMNS: dict[str, Callable] = {
    "scan by hand": scan_by_hand,
    "jit": jit_of_fit,
    "vmap, numbers": vmap_over_numbers,
    "vmap, keys": vmap_over_keys,
    "vmap, data": vmap_over_data_sets,
    "vmap, nested": nested_vmap,
    "vmap, closure": vmap_of_a_closure,
    "lax.map": lax_map_over_numbers,
    "shard_map": shard_map_over_numbers,
    "cond": cond,
    "while_loop": while_loop,
    "eval_shape": eval_shape,
    "export": export,
    "donate": donate,
    "tree": tree_round_trip,
    "pickle": pickled,
    "equal": equal_and_hashed,
    "grad, number": reverse(in_numbers),
    "jvp, number": forward(in_numbers),
    "grad, rows": reverse(in_rows),
    "jvp, rows": forward(in_rows),
    "grad, weights": reverse(in_weights),
    "grad, closure": reverse(in_a_closure),
    "jvp, closure": forward(in_a_closure),
    "checkpoint": checkpoint,
    "vmap of grad": vmap_of_grad,
}


def result_of(subject: Subject, column: str) -> tuple[str, str]:
    """The result of a cell, "right", "refused", "-", "wrong" or "error", and what was said."""
    try:
        COLUMNS[column](subject)
    except DoesNotApply as rule:
        return "-", str(rule)
    except AssertionError as error:
        return "wrong", " ".join(str(error).split())[:200]
    except Exception as error:
        sentence = str(error)
        raised_at = traceback.extract_tb(error.__traceback__)[-1].filename
        is_ours = pathlib.Path(jaxsvm.__file__).parent in pathlib.Path(raised_at).parents
        if is_ours and isinstance(error, TypeError | ValueError) and "\n" not in sentence:
            return "refused", sentence
        return "error", f"{type(error).__name__}: {' '.join(sentence.split())[:200]}"
    return "right", ""


def row_of(columns: tuple[str, ...], text: str) -> list[dict[str, str]]:
    """The cells of a solver."""
    jax.config.update("jax_enable_x64", True)
    (subject,) = (one for one in subjects() if one.text == text)
    cells = []
    for column in columns:
        result, said = result_of(subject, column)
        cells.append({"solver": text, "with": column, "result": result, "said": said})
    jax.clear_caches()
    return cells


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="")
    parser.add_argument("--column", choices=COLUMNS)
    parser.add_argument("--jobs", type=int, default=2, help="processes at once")
    args = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    texts = [subject.text for subject in subjects() if args.only in subject.text]
    columns = (args.column,) if args.column else tuple(COLUMNS)
    rows: list[dict[str, str]] = []
    # a process holds all that it has compiled
    with multiprocessing.get_context("spawn").Pool(args.jobs, maxtasksperchild=6) as pool:
        for cells in pool.imap(functools.partial(row_of, columns), texts):
            rows += cells
            count = lambda what, cells=cells: sum(cell["result"] == what for cell in cells)
            print(
                f"{count('right')} right, {count('refused')} refused, {count('-')} do not apply: {cells[0]['solver']}", flush=True
            )
            for cell in cells:
                if cell["result"] in ("wrong", "error"):
                    print(f"    {cell['with']}: {cell['result']}: {cell['said']}", flush=True)
    if not args.only and not args.column:
        table = [{"solver": text} | {row["with"]: row["result"] for row in rows if row["solver"] == text} for text in texts]
        common.write("composition", table)
    for sentence in sorted({row["said"] for row in rows if row["result"] == "refused"}):
        print(f"refused: {sentence}")
    bad = [row for row in rows if row["result"] in ("wrong", "error")]
    print(f"{len(rows)} cells, {len(bad)} neither right, refused nor without meaning")
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
