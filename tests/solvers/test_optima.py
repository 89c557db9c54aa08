"""The optimum of each solver is that of another program, however it is asked."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse
from cases import OPTIMA, wide_rows
from oracles import cost, formula

import jaxsvm
from jaxsvm.types import Wrapper

KEY = jax.random.key(0)
NEW = np.random.default_rng(2).normal(size=(7, 4))


def marked(entries):
    """Long, but for the first line of a solver."""
    seen, found = set(), []
    for entry in entries:
        name = type(entry.solver).__name__
        long = pytest.mark.long if name in seen else ()
        found.append(pytest.param(entry, marks=long, id=repr(entry.solver)))
        seen.add(name)
    return found


def asked(kind):
    return pytest.mark.parametrize("entry", marked([e for e in OPTIMA if kind in e.kinds]))


def dataset(entry, dtype=np.float64, form=np.asarray):
    x, y, weight, _ = wide_rows(entry.targets)
    task = {"labels": "binary", "real": "regression", "classes": "multiclass"}[entry.targets]
    return jaxsvm.dataset(form(x.astype(dtype)), y, weight, task=task)


def fit(entry, data, solver=None, **options):
    given = {"steps": 3, "key": None if "state" in options else KEY} | entry.options | options
    return jaxsvm.fit(entry.solver if solver is None else solver, data, **given)


def peer(entry, solver=None):
    """What the other program finds on the rows written out: weight k is k of them, 0 none."""
    rows = wide_rows(entry.targets).copied()
    return entry.reference(rows.x, rows.y, entry.solver if solver is None else solver)


def values(model, x):
    """Of pairs of classes the functions, not the votes."""
    return (model.pairs if hasattr(model, "pairs") else model)(x)


def near(entry, model, solver=None, x=NEW):
    np.testing.assert_allclose(
        values(model, jnp.asarray(x)), peer(entry, solver).f(x), rtol=0, atol=entry.atol
    )


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
    if isinstance(entry.solver, Wrapper):
        return
    if getattr(entry.solver, "bias", "none") == "none":
        assert float(run.model.b) == 0
    absent = wide_rows(entry.targets).weight == 0
    assert not hasattr(run.model, "coef") or not np.any(np.asarray(run.model.coef)[absent])


@asked("sparse")
def test_sparse_rows_have_the_same_optimum(entry, x64):
    """Outside and inside of a program."""
    data = dataset(entry, form=scipy.sparse.csr_matrix)
    near(entry, fit(entry, data).model)
    inside = jax.jit(lambda data: fit(entry, data).model)(data)
    near(entry, inside)


@asked("float32")
def test_rows_of_float32_at_the_usual_tolerance(entry):
    solver = entry.solver.replace(tol=None)
    run = fit(entry, dataset(entry, np.float32), solver, tol=None)
    assert run.converged and {
        a.dtype.name for a in jax.tree.leaves(run.model) if a.dtype.kind == "f"
    } == {"float32"}
    with jax.enable_x64(True):
        above = objective_of(entry, run.model) / least(entry) - 1
    assert -1e-7 <= above <= entry.excess


@asked("certificate")
def test_a_certificate_is_a_bound(entry, x64):
    data, lam = (
        dataset(entry),
        1 / (cost(entry.solver, dataset(entry).weight.sum()) * dataset(entry).weight.sum()),
    )
    run = fit(entry, data)
    proof = jaxsvm.certificate(run.model, data, float(lam), entry.solver.loss)
    best = least(entry)
    assert proof.primal == pytest.approx(objective_of(entry, run.model), rel=1e-9)
    assert proof.dual <= best * (1 + 1e-8) and 0 <= proof.gap <= 1e-4 * proof.primal


@asked("several")
def test_vmap_over_numbers_finds_each_optimum(entry, x64):
    name = next(name for name in ("lam", "C", "nu") if hasattr(entry.solver, name))
    data, numbers = dataset(entry), getattr(entry.solver, name) * np.array([0.1, 1.0, 4.0])
    at = lambda number: fit(entry, data, entry.solver.replace(**{name: number})).model
    models = jax.jit(jax.vmap(at))(jnp.asarray(numbers))
    for k, number in enumerate(numbers):
        solver = entry.solver.replace(**{name: float(number)})
        near(entry, jax.tree.map(lambda a, k=k: a[k], models), solver)


@asked("grad")
def test_derivatives_are_differences_of_solutions(entry, x64):
    """In the number, the rows, the weights and real targets; forward and reverse."""
    data, random = dataset(entry), np.random.default_rng(5)
    name = next(name for name in ("lam", "C", "nu") if hasattr(entry.solver, name))
    move, shift = random.normal(size=data.x.shape), random.normal(size=(2, len(data.y)))
    real = entry.targets == "real"

    def value(t):
        rows = data._replace(
            x=data.x + t[1] * move,
            weight=data.weight * (1 + t[2] * shift[0]),
            y=data.y + t[3] * shift[1] if real else data.y,
        )
        number = getattr(entry.solver, name) * jnp.exp(t[0])
        run = fit(entry, rows, entry.solver.replace(**{name: number}))
        return jnp.sum(jnp.tanh(run.model(NEW)))

    at, h, plain = jnp.zeros(4), 1e-5, jax.jit(value)
    steps = h * np.eye(4)[: 3 + real]
    differences = [float(plain(at + step) - plain(at - step)) / (2 * h) for step in steps]
    for slopes in (jax.jit(jax.grad(value))(at), jax.jit(jax.jacfwd(value))(at)):
        np.testing.assert_allclose(slopes[: 3 + real], differences, rtol=1e-4, atol=1e-6)


@asked("resumed")
def test_a_run_goes_on_from_another_number(entry, x64):
    name = next(name for name in ("lam", "C", "nu") if hasattr(entry.solver, name))
    other = entry.solver.replace(**{name: 0.4 * getattr(entry.solver, name)})
    run = fit(entry, dataset(entry), state=fit(entry, dataset(entry), other).state)
    assert run.converged
    near(entry, run.model)
