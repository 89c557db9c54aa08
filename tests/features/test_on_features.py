"""Solvers on features: the runs of their inner solvers on rows that are mapped by hand."""

import importlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from feature_maps import KEY, LAND, SIGMA, X32, X, Y, apply, equal, mapped, train
from oracles import assert_same_bits as same

import jaxsvm
from jaxsvm import Lifted, fit, kernels, losses, models, objectives, on_features, samplers
from jaxsvm.features import fourier, nystrom
from jaxsvm.models import Linear, Mapped

FITTING = importlib.import_module("jaxsvm.loops.fitting")
SOLVER = jaxsvm.pegasos(0.1, loss=losses.logistic)  # smooth: a rounding never changes a side


def run_of(solver, data, **options):
    return fit(solver, data, **{"key": KEY, "steps": 60, "every": 20} | options)


def float64(values):
    return np.asarray(values, np.float64)


def close_trees(have, want):
    compare = lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)
    jax.tree.map(compare, have, want)


@jax.tree_util.register_static
class Double:
    """x -> 2 x, which keeps a list of the row numbers it is traced for."""

    def __init__(self):
        self.seen = []

    def __call__(self, x):
        self.seen.append(x.shape[0])
        return 2 * x


@pytest.mark.long
def test_an_update_is_that_of_the_inner_solver_on_features():
    data, phi = train(), mapped()
    solver, batch = on_features(phi, SOLVER), jaxsvm.take(data, jnp.array([2, 7, 7, -1], jnp.int32))
    state, rows = solver.init(KEY, data), apply(phi, data.x)
    by_hand = batch._replace(x=apply(phi, batch.x))
    same(state, SOLVER.init(KEY, data._replace(x=rows)))
    # slope -y/2 at 0, step 1/lam
    pull = (Y[[2, 7, 7]] / 2) @ np.asarray(rows)[[2, 7, 7]] / 3 / 0.1
    w = jaxsvm.step(solver, state, batch)[0].params.w
    close_trees(w, pull * min(1, 0.1**-0.5 / np.linalg.norm(pull)))
    for _ in range(2):
        want, raw = jaxsvm.step(SOLVER, state, by_hand), jaxsvm.step(solver, state, batch)
        close_trees(raw, want)
        close_trees(jaxsvm.step(solver, state, solver.prepare(batch)), want)
        state = raw[0]


@pytest.mark.long
def test_prepared_rows_are_marked_by_their_type_and_never_lifted_twice():
    data, phi = train(), mapped()
    solver = on_features(phi, SOLVER)
    ready = solver.prepare(data)
    assert type(ready) is Lifted and type(data) is jaxsvm.Batch
    assert solver.prepare(ready) is ready
    np.testing.assert_allclose(ready.x, apply(phi, data.x), atol=1e-6)
    for field in ("y", "index", "weight"):
        equal(getattr(ready, field), getattr(data, field))
    assert type(jaxsvm.take(ready, jnp.array([1, -1], jnp.int32))) is Lifted
    assert repr(on_features(phi, jaxsvm.sdca(1.0)).sampler) == "epochs()"
    assert on_features(phi, jaxsvm.sdca(1.0, kernels.linear())).needs_all_rows
    assert solver.residual_of == "batch"


@pytest.mark.long
def test_maps_inside_maps():
    data, phi = train(), mapped()
    solver = on_features(Double(), on_features(phi, SOLVER))
    ready, want = solver.prepare(data), apply(phi, 2 * data.x)
    assert type(ready) is Lifted
    np.testing.assert_allclose(ready.x, want, atol=1e-5)
    got = run_of(solver, data).model
    inner = run_of(SOLVER, data._replace(x=want)).model
    kinds = [type(model) for model in (got, got.inner, got.inner.inner)]
    assert kinds == [Mapped, Mapped, Linear]
    np.testing.assert_allclose(got(data.x), inner(want), atol=1e-5)  # of scores around 1
    risk = np.logaddexp(0, -Y * np.asarray(inner(want))).mean()
    for rows in (data, ready):
        np.testing.assert_allclose(jaxsvm.risk_on(rows, losses.logistic)(got), risk, rtol=1e-5)


@pytest.mark.long
def test_features_made_at_once_and_in_each_step_make_the_same_run(monkeypatch, tmp_path):
    """A run with features of each step, cut and gone on with from a file, is the whole run."""
    data, solver = train(), on_features(mapped(), SOLVER)
    inner = run_of(SOLVER, data._replace(x=apply(mapped(), data.x)))
    runs = [run_of(solver, data), run_of(solver, solver.prepare(data))]
    monkeypatch.setattr(FITTING, "MEMORY", 0)
    jax.clear_caches()
    runs.append(run_of(solver, data))
    want = np.asarray(inner.model.w)
    size = np.abs(want).max()
    for run in runs:
        assert isinstance(run.model, Mapped)
        # 60 steps of a few roundings
        np.testing.assert_allclose(run.model.inner.w, want, rtol=2e-5, atol=2e-5 * size)
        np.testing.assert_allclose(run.info.loss, inner.info.loss, rtol=2e-5)
        same(run.state.sampler, inner.state.sampler)
    scores = apply(mapped(), data.x) @ want
    np.testing.assert_allclose(runs[-1].model(data.x), scores, atol=6e-5 * size)
    for cut in (20, 13):
        models.save(tmp_path / "run.npz", run_of(solver, data, steps=cut).state)
        loaded = models.load(tmp_path / "run.npz")
        rest = run_of(solver, data, key=None, steps=60 - cut, state=loaded)
        same((rest.state, rest.model), (runs[-1].state, runs[-1].model))


@pytest.mark.long
def test_a_kernel_solver_on_features_lifts_all_rows_in_every_step():
    data, inner = train(), jaxsvm.sdca(1.0, kernels.linear())
    rows = apply(mapped(), data.x)
    have = run_of(on_features(mapped(), inner), data).model
    want = run_of(inner, data._replace(x=rows)).model
    assert np.abs(want.coef).max() > 0.1
    close_trees(have.inner.coef, want.coef)
    np.testing.assert_allclose(have(data.x), rows @ (want.coef @ rows), atol=1e-4)


@pytest.mark.parametrize(
    ("rows", "batch", "seen"),
    [
        (24, 1, {24}),  # once
        (23, 1, {24, 23, 1}),  # 23 in init, one in each step
        (5, 2, {24, 5, 2}),
        (2, 4, {24, 2, 4}),
    ],
)
def test_memory_decides_when_features_are_made(rows, batch, seen, monkeypatch):
    spy = Double()  # 3 float32 a row
    monkeypatch.setattr(FITTING, "MEMORY", rows * 12)
    sampler = samplers.uniform(batch)
    run = lambda data, key: fit(on_features(spy, SOLVER), data, key, steps=10, sampler=sampler)
    assert jax.eval_shape(run, train(), KEY).info.loss.shape == (1,)
    assert set(spy.seen) - {64} == seen - {64}


@pytest.mark.long
def test_objectives_and_probes_on_prepared_rows_are_those_on_raw_rows():
    data, solver, loss = train(), on_features(mapped(), SOLVER), losses.logistic
    ready, model = solver.prepare(data), run_of(solver, data).model
    score, close = float64(model(data.x)), np.testing.assert_allclose
    risk = np.logaddexp(0, -Y * score).mean()
    primal = 0.05 * np.sum(float64(model.inner.w) ** 2) + risk
    for rows in (data, ready):  # features in float32: a few roundings
        close(jaxsvm.error_on(rows)(model), np.mean(np.sign(score) != Y), rtol=1e-6)
        close(jaxsvm.risk_on(rows, loss)(model), risk, rtol=2e-5)
        close(jaxsvm.certificate(model, rows, 0.1, loss).primal, primal, rtol=2e-5)
    close(objectives.primal(model, ready, 0.1, loss), primal, rtol=2e-5)
    raw, prepared = (jaxsvm.certificate(model, rows, 0.1, loss).gap for rows in (data, ready))
    close(raw, prepared, atol=2e-5)
    assert float(raw) > 1e-3


def build(kind, sigma, dtype="f"):
    if kind == "nystrom":
        return nystrom(None, kernels.rbf(sigma), landmarks=LAND.astype(dtype))
    paired = kind == "paired"
    kernel = kernels.rbf(sigma) if paired else 2.0 * kernels.laplacian(1.0)
    return fourier(KEY, kernel, dim=3, features=8 if paired else 6, form=kind)


@pytest.mark.long
@pytest.mark.parametrize("kind", ["paired", "nystrom"])
def test_a_sweep_of_fits_equals_a_loop_and_its_differences_are_the_gradient(kind, x64):
    held_out, data = (jaxsvm.dataset(x, y) for x, y in ((X[::2] + 0.1, Y[::2]), (X[1::2], Y[1::2])))

    def risk(lam, sigma):
        solver = on_features(build(kind, sigma, "d"), jaxsvm.pegasos(lam, loss=losses.logistic))
        return jaxsvm.risk_on(held_out, losses.logistic)(run_of(solver, data, steps=20).model)

    h = 1e-5
    lams = 0.3 + np.array([0, h, -h, 0, 0, -0.25, 0])
    sigmas = SIGMA + np.array([0, 0, 0, h, -h, 0, 1])
    value, slope = jax.jit(jax.vmap(jax.value_and_grad(risk, (0, 1))))(lams, sigmas)
    central = np.array([value[1] - value[2], value[3] - value[4]]) / (2 * h)
    assert np.abs(central).min() > 1e-3 and np.ptp(np.asarray(value)[[0, 5, 6]]) > 1e-2
    # h^2, and rounding over h
    np.testing.assert_allclose([slope[0][0], slope[1][0]], central, rtol=1e-6)
    if kind == "nystrom":
        alone = jax.jit(risk)
        loop = [alone(*at) for at in zip(lams, sigmas, strict=True)]
        np.testing.assert_allclose(value, loop, rtol=1e-11)


@pytest.mark.long
@pytest.mark.parametrize("kind", ["nystrom", "paired", "phase"])
def test_a_model_on_features_is_saved_and_loaded(kind, tmp_path):
    w = jnp.linspace(-1.0, 1.0, 8 if kind == "paired" else 6)
    model = Mapped(build(kind, SIGMA), Linear(w, jnp.asarray(0.5)))
    models.save(tmp_path / "model.npz", model)
    loaded = models.load(tmp_path / "model.npz")
    same(loaded, model)
    equal(loaded(X32), model(X32))


@pytest.mark.long
def test_a_plain_function_is_a_feature_map():
    data = jaxsvm.dataset(X32, np.tile([1, -1], 12))
    model = jaxsvm.fit(on_features(lambda x: 2 * x, jaxsvm.pegasos(0.1)), data, KEY, steps=5).model
    np.testing.assert_allclose(model(data.x), 2 * data.x @ model.inner.w, rtol=1e-5)
    proof = jaxsvm.certificate(model, data, 0.1)
    assert float(proof.gap) >= 0
    primal = float(objectives.primal(model, data, 0.1))
    np.testing.assert_allclose(primal, float(proof.primal), rtol=1e-12)
