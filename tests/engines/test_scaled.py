"""Pegasos on sparse rows, whose weights are a scale times a vector, against NumPy in float64 and
against dense rows."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse

import jaxsvm
from jaxsvm import losses, samplers
from jaxsvm.solvers.primal import scaled

N, D, LAM = 60, 30, 1e-3
RNG = np.random.default_rng(3)
CSR = scipy.sparse.random(
    N, D, 0.15, format="csr", random_state=1, data_rvs=lambda size: RNG.normal(size=size)
)
X = CSR.toarray()
Y = np.where(X @ RNG.normal(size=D) + 0.3 * RNG.normal(size=N) > 0, 1.0, -1.0)
WEIGHT = np.where(np.arange(N) % 7 == 3, 0.0, 1.0 + np.arange(N) % 3)
KEY = jax.random.key(4)


def dataset(dense=False, dtype=np.float64):
    return jaxsvm.dataset((X if dense else CSR).astype(dtype), Y, WEIGHT)


def late(t):
    return t + 1


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


def random_rows(b, t=400):
    return jnp.asarray(np.random.default_rng(b).integers(0, N, (t, b)), jnp.int32)


def by_hand(rows, *, bias="none", project=True, offset=0.0, advance=False):
    """All iterates (t, d + 1) of the paper's steps with the hinge, the bias last."""
    w, count, iterates = np.zeros(D + 1), 0, []
    z = np.column_stack([X, np.full(N, 0.0 if bias == "none" else 1.0)])
    own = np.arange(D + 1) < D + (bias == "feature")  # what is shrunk and projected
    for index in np.asarray(rows):
        weight = WEIGHT[index]
        slope = (
            np.where(Y[index] * (z[index] @ w) < 1, -Y[index], 0.0)
            * weight
            / max(np.sum(weight > 0), 1)
        )
        gradient = slope @ z[index]
        eta = 1 / (LAM * (count + 1 + offset))
        free = w[D] - gradient[D] / np.sqrt(count + 1)
        w = w - eta * (LAM * w + gradient)
        w[D] = free if bias == "free" else w[D]
        norm = np.linalg.norm(w[own])
        if project and norm > LAM**-0.5:
            w[own] *= LAM**-0.5 / norm
        count += 1 if not advance else int(np.any(slope != 0))
        iterates.append(w.copy())
    return np.array(iterates)


CHOICES = {
    "as printed": {},
    "no projection": {"project": False},
    "feature": {"bias": "feature"},
    "free": {"bias": "free"},
    "offset": {"offset": 25.5},
    "variant A": {"advance": True},
}


@pytest.mark.long(but=2)
@pytest.mark.parametrize("b", [1, 4])
@pytest.mark.parametrize("choice", CHOICES)
def test_iterates_and_their_mean_are_those_of_the_paper(choice, b, x64):
    """At each of 400 steps, many of them in the first phase, where the projection shrinks the scale
    by 1e-80 in all."""
    options = CHOICES[choice]
    rows, expected = random_rows(b), by_hand(random_rows(b), **options)
    options = {
        "advance_on_violation" if name == "advance" else name: value
        for name, value in options.items()
    }
    solver, data = jaxsvm.pegasos(LAM, **options), dataset()
    size = np.abs(expected).max()
    np.testing.assert_allclose(run(solver, data, rows)[0], expected, rtol=0, atol=1e-11 * size)
    weights = np.arange(1.0, 381.0)
    mean = np.cumsum(weights[:, None] * expected[20:], axis=0) / np.cumsum(weights)[:, None]
    found, _ = run(jaxsvm.averaged(solver, start=20, weights=late), data, rows)
    # until then the iterate
    np.testing.assert_allclose(found[:20], expected[:20], rtol=0, atol=1e-11 * size)
    np.testing.assert_allclose(found[20:], mean, rtol=0, atol=1e-11 * size)
    equal, _ = run(jaxsvm.averaged(solver), data, rows)
    plain = np.cumsum(expected, axis=0) / np.arange(1.0, 401.0)[:, None]
    np.testing.assert_allclose(equal, plain, rtol=0, atol=1e-11 * size)


@pytest.mark.long
@pytest.mark.parametrize("wrap", [lambda s: s, jaxsvm.averaged])
def test_sparse_rows_make_the_run_of_dense_rows_in_float32(wrap):
    """With another loss and minibatches through `fit`; steps so short that they contract: 600
    roundings, 6e-8 each."""
    solver = wrap(jaxsvm.pegasos(LAM, loss=losses.smooth_hinge(0.5), bias="feature", offset=2e4))
    for b in (1, 8):
        fit = lambda data, b=b: jaxsvm.fit(
            solver, data, KEY, steps=600, every=200, sampler=samplers.epochs(b)
        )
        sparse, dense = fit(dataset(dtype=np.float32)), fit(dataset(dense=True, dtype=np.float32))
        np.testing.assert_allclose(
            sparse.model.w, dense.model.w, rtol=0, atol=3e-5 * np.abs(dense.model.w).max()
        )
        np.testing.assert_allclose(sparse.info.loss, dense.info.loss, rtol=1e-5)
        np.testing.assert_array_equal(sparse.info.evals, dense.info.evals)


@pytest.mark.parametrize("advance", [False, True])
@pytest.mark.parametrize("wrap", [lambda s: s, jaxsvm.averaged])
def test_a_run_goes_on_with_another_offset(wrap, advance, x64):
    """From the weights where it stood, as on dense rows, to a larger offset and back."""
    solver = lambda offset: wrap(
        jaxsvm.pegasos(LAM, offset=offset, bias="feature", advance_on_violation=advance)
    )
    for before, after in ((None, 500.0), (500.0, 0.0), (0.25, 500.0)):
        for begun, steps in ((0, 20), (50, 0), (50, 1), (50, 20)):
            found = []
            for data in (dataset(), dataset(dense=True)):
                run = jaxsvm.fit(solver(before), data, KEY, steps=begun)
                more = jaxsvm.fit(solver(after), data, state=run.state, steps=steps)
                found += [np.append(fitted.model.w, fitted.model.b) for fitted in (run, more)]
            if steps == 0:
                np.testing.assert_array_equal(found[1], found[0])
            atol = 1e-11 * np.abs(found[3]).max()
            np.testing.assert_allclose(found[1], found[3], rtol=0, atol=atol)


@pytest.mark.long
def test_a_mean_over_blocks_of_steps_keeps_its_precision(monkeypatch, x64):
    """In float32, with blocks of 64 steps, the mean of 60,000 iterates is that of float64 in one
    block, to 60 roundings."""
    rows = random_rows(1, 60_000)
    solver = jaxsvm.averaged(jaxsvm.pegasos(LAM, loss=losses.smooth_hinge(0.5), offset=2e4))

    def last(dtype):
        data = dataset(dtype=dtype)
        advance = lambda state, index: (
            solver.update(state, jaxsvm.take(data, index, copy=False))[0],
            None,
        )
        return jax.jit(lambda state, rows: jax.lax.scan(advance, state, rows)[0])(
            solver.init(KEY, data), rows
        )

    expected = np.asarray(solver.model(last(np.float64)).w)
    monkeypatch.setattr(scaled, "BLOCK", 64)
    blocks = last(np.float32)
    assert float(blocks.inner.mean.sums[1]) == 60_000 and blocks.inner.table.dtype == jnp.float32
    bound = 60 * np.finfo(np.float32).eps * np.abs(expected).max()
    np.testing.assert_allclose(solver.model(blocks).w, expected, rtol=0, atol=bound)


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
        return jnp.sum(
            jnp.sin(run_of(wrap(jaxsvm.pegasos(lam, loss=losses.logistic)), dataset(dense), rows))
        )

    for derivative in (jax.grad, jax.jacfwd):
        np.testing.assert_allclose(
            derivative(value)(0.1, False), jax.grad(value)(0.1, True), rtol=1e-8
        )


@pytest.mark.long
def test_a_step_copies_no_weights():
    """The program of a run holds no copy of them inside its loops, and no array of them but the
    table."""
    from compiling import as_users

    data = dataset(dtype=np.float32)
    data = data._replace(x=data.x.packed)
    solver = jaxsvm.pegasos(LAM)
    state = solver.init(KEY, data)
    advance = lambda state, index: (
        solver.update(state, jaxsvm.take(data, index, copy=False))[0],
        None,
    )
    loop = jax.jit(lambda state, rows: jax.lax.scan(advance, state, rows)[0])
    program = loop.lower(state, random_rows(1)).compile(as_users()).as_text()
    assert f"f32[{D},1]" in program
    inside = program[: program.index("\nENTRY ")]
    assert not [line for line in inside.splitlines() if f"f32[{D},1]" in line and " copy(" in line]
    assert f"f32[{D}]" not in inside
