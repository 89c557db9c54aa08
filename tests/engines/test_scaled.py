"""Pegasos on sparse rows, whose weights are a scale times a vector, against NumPy in float64 and
against dense rows."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse
from compiling import as_users

import jaxsvm
from jaxsvm import losses
from jaxsvm.solvers.primal import scaled

N, D, LAM = 60, 30, 1e-3
RNG = np.random.default_rng(3)
CSR = scipy.sparse.random(
    N, D, 0.15, format="csr", random_state=1, data_rvs=lambda size: RNG.normal(size=size)
)
X = CSR.toarray()
Y = np.where(X @ RNG.normal(size=D) + 0.3 * RNG.normal(size=N) > 0, 1.0, -1.0)
WEIGHT = np.where(np.arange(N) % 7 == 3, 0.0, 1.0 + np.arange(N) % 3)
KEY, late = jax.random.key(4), lambda t: t + 1


def dataset(dense=False, dtype=np.float64):
    return jaxsvm.dataset((X if dense else CSR).astype(dtype), Y, WEIGHT)


@jax.jit
def steps(solver, state, data, rows):
    """The models after steps on given rows (t, b), -1 marks padding; and the infos."""

    def step(state, index):
        batch = jaxsvm.take(data, index, copy=False)
        state, info = solver.update(state, batch)
        return state, (solver.model(state), info)

    return jax.lax.scan(step, state, rows)[1]


def run(solver, data, rows):
    model, info = steps(solver, solver.init(KEY, data), data, rows)
    return np.column_stack([model.w, model.b]), info


@jax.jit
def walk(solver, state, data, rows):
    """The state after steps on given rows, without the models on the way."""
    advance = lambda state, i: (solver.update(state, jaxsvm.take(data, i, copy=False))[0], None)
    return jax.lax.scan(advance, state, rows)[0]


def close(found, want, room):
    """Within so much of the largest number."""
    np.testing.assert_allclose(found, want, rtol=0, atol=room * np.abs(want).max())


def random_rows(b, t=400):
    return jnp.asarray(np.random.default_rng(b).integers(0, N, (t, b)), jnp.int32)


def by_hand(rows, *, bias="none", project=True, offset=0.0, advance_on_violation=False):
    """All iterates (t, d + 1) of the paper's steps with the hinge, the bias last."""
    w, count, iterates = np.zeros(D + 1), 0, []
    z = np.column_stack([X, np.full(N, 0.0 if bias == "none" else 1.0)])
    own = np.arange(D + 1) < D + (bias == "feature")  # what is shrunk and projected
    for index in np.asarray(rows):
        weight = WEIGHT[index]
        slope = np.where(Y[index] * (z[index] @ w) < 1, -Y[index] * weight, 0.0)
        gradient = slope @ z[index] / max(np.sum(weight > 0), 1)
        eta = 1 / (LAM * (count + 1 + offset))
        free = w[D] - gradient[D] / np.sqrt(count + 1)
        w = w - eta * (LAM * w + gradient)
        w[D] = free if bias == "free" else w[D]
        norm = np.linalg.norm(w[own])
        if project and norm > LAM**-0.5:
            w[own] *= LAM**-0.5 / norm
        count += 1 if not advance_on_violation else int(np.any(slope != 0))
        iterates.append(w.copy())
    return np.array(iterates)


CHOICES = {
    "as printed": {},
    "no projection": {"project": False},
    "feature": {"bias": "feature"},
    "free": {"bias": "free"},
    "offset": {"offset": 25.5},
    "variant A": {"advance_on_violation": True},
}


@pytest.mark.long(but=1)
@pytest.mark.parametrize("b", [1, 4])
@pytest.mark.parametrize("choice", CHOICES)
def test_iterates_and_their_mean_are_those_of_the_paper(choice, b, x64):
    """At each of 400 steps, many of them in the first phase, where the projection shrinks the scale
    by 1e-80 in all."""
    options = CHOICES[choice]
    rows, expected = random_rows(b), by_hand(random_rows(b), **options)
    solver, data = jaxsvm.pegasos(LAM, **options), dataset()
    near = functools.partial(np.testing.assert_allclose, atol=1e-11 * np.abs(expected).max())
    near(run(solver, data, rows)[0], expected, rtol=0)
    weights = np.arange(1.0, 381.0)
    mean = np.cumsum(weights[:, None] * expected[20:], axis=0) / np.cumsum(weights)[:, None]
    found, _ = run(jaxsvm.averaged(solver, start=20, weights=late), data, rows)
    # until then the iterate
    near(found[:20], expected[:20], rtol=0)
    near(found[20:], mean, rtol=0)
    equal, _ = run(jaxsvm.averaged(solver), data, rows)
    plain = np.cumsum(expected, axis=0) / np.arange(1.0, 401.0)[:, None]
    near(equal, plain, rtol=0)


@pytest.mark.long
@pytest.mark.parametrize(("wrap", "advance"), [(lambda s: s, True), (jaxsvm.averaged, False)])
def test_a_run_goes_on_with_another_offset(wrap, advance, x64):
    """From the weights where it stood, as on dense rows, to a larger offset and back."""
    solver = lambda offset: wrap(
        jaxsvm.pegasos(LAM, offset=offset, bias="feature", advance_on_violation=advance)
    )
    for before, after in ((None, 500.0), (500.0, 0.0), (0.25, 500.0)):
        for begun, steps in ((0, 20), (50, 0), (50, 20)):
            found = []
            for data in (dataset(), dataset(dense=True)):
                run = jaxsvm.fit(solver(before), data, KEY, steps=begun)
                more = jaxsvm.fit(solver(after), data, state=run.state, steps=steps)
                found += [np.append(fitted.model.w, fitted.model.b) for fitted in (run, more)]
            if steps == 0:
                np.testing.assert_array_equal(found[1], found[0])
            close(found[1], found[3], 1e-11)


@pytest.mark.long
def test_a_mean_over_blocks_of_steps_keeps_its_precision(monkeypatch, x64):
    """In float32, with blocks of 64 steps, the mean of 60,000 iterates is that of float64 in one
    block, to 60 roundings."""
    rows = random_rows(1, 60_000)
    solver = jaxsvm.averaged(jaxsvm.pegasos(LAM, loss=losses.smooth_hinge(0.5), offset=2e4))
    last = lambda data: walk(solver, solver.init(KEY, data), data, rows)
    expected = np.asarray(solver.model(last(dataset())).w)
    monkeypatch.setattr(scaled, "BLOCK", 64)
    blocks = last(dataset(dtype=np.float32))
    assert float(blocks.inner.mean.sums[1]) == 60_000 and blocks.inner.table.dtype == jnp.float32
    close(solver.model(blocks).w, expected, 60 * np.finfo(np.float32).eps)


@pytest.mark.long
def test_lanes_of_lambda_are_single_runs(x64):
    """Also where one of them multiplies its scale in, and others do not."""
    data, rows = dataset(), random_rows(1, 60)
    lams = jnp.asarray([1e-4, 1e-2, 1.0])
    one = lambda lam: run_of(jaxsvm.averaged(jaxsvm.pegasos(lam)), data, rows)
    together = jax.vmap(one)(lams)
    for k, lam in enumerate(lams):
        np.testing.assert_allclose(together[k], one(lam), rtol=1e-10)


def run_of(solver, data, rows):
    return steps(solver, solver.init(KEY, data), data, rows)[0].w[-1]


@pytest.mark.long
@pytest.mark.parametrize("wrap", [lambda s: s, jaxsvm.averaged])
def test_derivatives_are_those_of_dense_rows(wrap, x64):
    """Forward and backward, in lambda, for a smooth loss."""
    rows = random_rows(1, 30)

    def value(lam, dense):
        solver = wrap(jaxsvm.pegasos(lam, loss=losses.logistic))
        return jnp.sum(jnp.sin(run_of(solver, dataset(dense), rows)))

    want = jax.grad(value)(0.1, True)
    for derivative in (jax.grad, jax.jacfwd):
        np.testing.assert_allclose(derivative(value)(0.1, False), want, rtol=1e-8)


@pytest.mark.long
def test_a_step_copies_no_weights():
    """The program of a run holds no copy of them inside its loops, and no array of them but the
    table."""
    data = dataset(dtype=np.float32)
    data = data._replace(x=data.x.packed)
    solver = jaxsvm.pegasos(LAM)
    lowered = walk.lower(solver, solver.init(KEY, data), data, random_rows(1))
    program = lowered.compile(as_users()).as_text()
    assert f"f32[{D},1]" in program
    inside = program[: program.index("\nENTRY ")]
    assert not [line for line in inside.splitlines() if f"f32[{D},1]" in line and " copy(" in line]
    assert f"f32[{D}]" not in inside
