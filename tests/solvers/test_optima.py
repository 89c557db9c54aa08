"""The optimum of each solver is that of another program, however it is asked."""

from __future__ import annotations

import collections
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse
from optima import OPTIMA, wide_rows
from oracles import cost, formula

import jaxsvm
from jaxsvm import losses

KEY = jax.random.key(0)
NEW = np.random.default_rng(2).normal(size=(7, 4))


LONGEST = ("lasvm", "one_vs_one", "cocoa")  # whose short tests are transcriptions


def marked(entries, short=None, most=None):
    """At most so many lines of a solver; long, but for the first of those named `short`."""
    seen, found = collections.Counter(), []
    for entry in entries:
        name = type(entry.solver).__name__
        late = seen[name] or name in LONGEST or name not in (short or name)
        long = pytest.mark.long if late else ()
        if most is None or seen[name] < most:
            found.append(pytest.param(entry, marks=long, id=repr(entry.solver)))
        seen[name] += 1
    return found


def asked(kind, short=""):
    """Two lines of a kind for each solver; short is the first of those that are named."""
    entries = [e for e in OPTIMA if kind in e.kinds]
    return pytest.mark.parametrize("entry", marked(entries, short.split(), 2))


def dataset(entry, dtype=np.float64, form=np.asarray):
    x, y, weight, _ = wide_rows(entry.targets)
    task = {"labels": "binary", "real": "regression", "classes": "multiclass"}[entry.targets]
    return jaxsvm.dataset(form(x.astype(dtype)), y, weight, task=task)


def fit(entry, data, solver=None, **options):
    given = {"steps": 3, "key": None if "state" in options else KEY} | entry.options | options
    return jaxsvm.fit(entry.solver if solver is None else solver, data, **given)


@functools.cache
def found_by(reference, targets, solver):
    """What another program finds on the rows written out: weight k is k of them, 0 none."""
    rows = wide_rows(targets).copied()
    return reference(rows.x, rows.y, solver)


def peer(entry, solver=None):
    return found_by(entry.reference, entry.targets, entry.solver if solver is None else solver)


NUMBERS = ("nu", "lam", "C")


def number_of(entry):
    return next(name for name in NUMBERS if name in vars(entry.solver))


def values(model, x):
    """Of pairs of classes the functions, not the votes."""
    return (model.pairs if hasattr(model, "pairs") else model)(x)


def near(entry, model, solver=None, rtol=0):
    found = values(model, jnp.asarray(NEW))
    np.testing.assert_allclose(found, peer(entry, solver).f(NEW), rtol=rtol, atol=entry.atol)


def objective(entry, f, square):
    """lam/2 |w|^2 + mean loss, in NumPy."""
    rows, n = wide_rows(entry.targets), wide_rows(entry.targets).weight.sum()
    risk = np.average(formula(entry.solver.loss)[0](f, rows.y), weights=rows.weight)
    return square / (2 * n * cost(entry.solver, n)) + risk


def objective_of(entry, model):
    """Of a model of any precision, in float64."""
    wide = jax.tree.map(lambda a: jnp.asarray(a, float) if a.dtype.kind == "f" else a, model)
    return objective(entry, np.asarray(wide(wide_rows(entry.targets).x)), float(wide.sqnorm()))


def least(entry):
    found = peer(entry)
    return objective(entry, found.f(wide_rows(entry.targets).x), found.square)


@pytest.mark.parametrize("entry", marked(OPTIMA))
def test_the_optimum_of_another_program(entry, x64):
    """Weight k is k copies of a row and weight 0 is absence, in float64."""
    run = fit(entry, dataset(entry))
    assert run.converged
    near(entry, run.model)
    if "loss" in vars(entry.solver) and entry.targets != "classes":
        # LIBSVM's objective is a little above the least
        assert -1e-5 <= objective_of(entry, run.model) / least(entry) - 1 <= 1e-8
    if vars(entry.solver).get("bias") == "none" and hasattr(run.model, "b"):
        assert float(run.model.b) == 0
    absent = wide_rows(entry.targets).weight == 0
    assert not hasattr(run.model, "coef") or not np.any(np.asarray(run.model.coef)[absent])


@asked("sparse", "newton")
def test_sparse_rows_have_the_same_optimum(entry, x64):
    """Outside and inside of a program."""
    data, dense = dataset(entry, form=scipy.sparse.csr_matrix), fit(entry, dataset(entry)).model
    for model in (fit(entry, data).model, jax.jit(lambda data: fit(entry, data).model)(data)):
        near(entry, model)
        # runs of many steps end at their tolerance
        close = {"rtol": 0, "atol": entry.atol / (1 if entry.options else 100)}
        np.testing.assert_allclose(values(model, NEW), values(dense, NEW), **close)


def proof_of(entry, model, data):
    n = float(data.weight.sum())
    return jaxsvm.certificate(model, data, 1 / (n * cost(entry.solver, n)), entry.solver.loss)


@asked("float32", "newton")
def test_rows_of_float32_at_the_usual_tolerance(entry):
    """One update, of hinges at three numbers; a certificate is a bound there, too."""
    hinges = (losses.hinge, losses.squared_hinge)
    for scale in (0.005, 1.0, 50.0) if entry.solver.loss in hinges else (1.0,):
        number = {number_of(entry): scale * getattr(entry.solver, number_of(entry))}
        scaled = entry._replace(solver=entry.solver.replace(**number, tol=None))
        for form in (np.asarray, *([scipy.sparse.csr_matrix] if "sparse" in entry.kinds else ())):
            data = dataset(entry, np.float32, form)
            run = jaxsvm.fit(scaled.solver, data, KEY)
            assert run.converged and int(run.state.step) == 1
            assert all(a.dtype != np.float64 for a in jax.tree.leaves(run.model))
            with jax.enable_x64(True):
                above = objective_of(scaled, run.model) / least(scaled) - 1
            assert -1e-4 <= above <= entry.excess  # LIBSVM's objective is that much above
            if "certificate" in entry.kinds and form is np.asarray:
                proof, free = proof_of(scaled, run.model, data), entry.solver.bias == "free"
                assert proof.gap <= (1e-4 if free else 3e-6) * proof.primal


@asked("certificate", "newton")
def test_a_certificate_is_a_bound(entry, x64):
    model = fit(entry, dataset(entry)).model
    proof, best = proof_of(entry, model, dataset(entry)), least(entry)
    assert proof.primal == pytest.approx(objective_of(entry, model), rel=1e-9)
    assert proof.dual <= best * (1 + 1e-8) and 0 <= proof.gap <= 1e-4 * proof.primal


@asked("several", "interior_point")
def test_vmap_over_numbers_finds_each_optimum(entry, x64):
    name, data = number_of(entry), dataset(entry)
    scale = [0.5, 1.0, 1.2] if name == "nu" else [0.1, 1.0, 4.0]
    numbers = getattr(entry.solver, name) * np.array(scale)
    at = lambda number: fit(entry, data, entry.solver.replace(**{name: number})).model
    models = jax.jit(jax.vmap(at))(jnp.asarray(numbers))
    for k, number in enumerate(numbers):
        solver = entry.solver.replace(**{name: float(number)})
        near(entry, jax.tree.map(lambda a, k=k: a[k], models), solver, rtol=1e-5)


@asked("grad", "least_squares")
def test_derivatives_are_differences_of_solutions(entry, x64):
    """In the numbers, the rows, the weights and real targets; forward and reverse."""
    data, random = dataset(entry), np.random.default_rng(5)
    numbers = {name: getattr(entry.solver, name) for name in NUMBERS if name in vars(entry.solver)}
    if "kernel" in vars(entry.solver):
        numbers["sigma"] = entry.solver.kernel.sigma
    move, shift = random.normal(size=data.x.shape), random.normal(size=(2, len(data.y)))
    moves = 2 + (entry.targets == "real") + len(numbers)

    def value(t):
        weight, y = data.weight * (1 + t[1] * shift[0]), data.y
        y = y + t[2] * shift[1] if entry.targets == "real" else y
        rows = data._replace(x=data.x + t[0] * move, weight=weight, y=y)
        own = zip(numbers.items(), t[moves - len(numbers) :], strict=True)
        solver = entry.solver.replace(**{name: at * jnp.exp(s) for (name, at), s in own})
        model = fit(entry, rows, solver).model
        return jnp.sum(jnp.tanh(model(NEW))) + jnp.sum(jnp.sin(getattr(model, "coef", 0.0)))

    at, h, plain = jnp.zeros(moves), 1e-5, jax.jit(value)
    steps = h * np.eye(moves)
    differences = [float(plain(at + step) - plain(at - step)) / (2 * h) for step in steps]
    for slopes in (jax.jit(jax.grad(value))(at), jax.jit(jax.jacfwd(value))(at)):
        np.testing.assert_allclose(slopes, differences, rtol=1e-4, atol=1e-6)


@asked("resumed", "nu_svc")
def test_a_run_goes_on_from_another_number(entry, x64):
    name = number_of(entry)
    other = entry.solver.replace(**{name: 0.4 * getattr(entry.solver, name)})
    run = fit(entry, dataset(entry), state=fit(entry, dataset(entry), other).state)
    assert run.converged
    near(entry, run.model)
