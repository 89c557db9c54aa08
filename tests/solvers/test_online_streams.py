"""Online methods on a budget over passes and streams: mistakes, files, bounded models."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import sklearn.datasets
from online_by_hand import BUDGET, KEY, METHODS, D, at, batches
from oracles import gaussian
from test_online import each
from test_online_points import numbers

import jaxsvm
from jaxsvm import models, samplers

# the rate

ORDERS = [np.random.default_rng(seed).permutation(1000) for seed in range(10)]


@functools.cache
def moons(noise):
    """Two half moons, with a column of zeros."""
    x, y = sklearn.datasets.make_moons(1000, noise=noise, random_state=0)
    return np.pad(2 * x, ((0, 0), (0, 1))).astype(np.float32), (2 * y - 1).astype(np.float32)


@jax.jit
def mistakes(solver, state, steps):
    """How many rows are on the wrong side when they come: their loss is 1 at least, counted or
    hinge."""

    def step(state, batch):
        state, info = solver.update(state, batch)
        return state, info.loss >= 1

    return jnp.sum(jax.lax.scan(step, state, steps)[1])


def rate(solver, noise):
    """The mean over orders of the share of mistakes in a pass."""
    (x, y), counts = moons(noise), []
    for seed, order in enumerate(ORDERS):
        steps = batches(x[order], y[order])
        state = solver.init(jax.random.key(seed), at(steps, 0))
        counts.append(int(mistakes(solver, state, steps)))
    return np.mean(counts) / 1000


@functools.cache
def rate_of_the_perceptron(noise):
    (x, y), wrong = moons(noise), 0
    gram = gaussian(*[x.astype(float)] * 2)
    for order in ORDERS:
        coef = np.zeros(1000)
        for i in order:
            if y[i] * (gram[i] @ coef) <= 0:
                coef[i], wrong = y[i], wrong + 1
    return wrong / (1000 * len(ORDERS))


# Times the rate of the perceptron, whose hundred points and more are cut to 40. Steps on the hinge
# do better than it.
# Crammer's rule keeps the points on the wrong side: it is for classes that a function separates.
WITHIN = {name: 1.25 for name in METHODS} | {
    "bpas": 0.9,
    "projectron++": 1.0,
    "nogd": 0.9,
    "fixed": 3.0,
}


@pytest.mark.long
@each
def test_rate_of_mistakes_over_a_pass(name):
    """The last function of a pass is a lottery; the rate over it is not."""
    reference = rate_of_the_perceptron(0.3)
    assert 0.12 < reference < 0.16
    assert rate(METHODS[name](40), 0.3) < min(WITHIN[name] * reference, 0.4)  # chance is 0.5


@pytest.mark.long
def test_rate_of_crammers_rule_where_classes_do_not_overlap():
    reference = rate_of_the_perceptron(0.1)
    assert reference < 0.03
    assert rate(METHODS["fixed"](40), 0.1) < 1.25 * reference


# streams

ROWS, CHUNK = 1000, 100
STREAM_X = np.random.default_rng(1).normal(size=(ROWS, D)).astype(np.float32)
STREAM_Y = np.sign(STREAM_X[:, 0] * STREAM_X[:, 1] + 0.5 * STREAM_X[::-1, 2]).astype(np.int8)


@pytest.fixture(scope="module")
def mapped(tmp_path_factory):
    """Chunks of rows that are read from files."""
    folder = tmp_path_factory.mktemp("online")
    np.save(folder / "x.npy", STREAM_X)
    np.save(folder / "y.npy", STREAM_Y)
    x, y = (np.load(folder / f"{name}.npy", mmap_mode="r") for name in "xy")
    assert isinstance(x, np.memmap)
    return jaxsvm.data.chunks(x, y, rows=CHUNK)


def same(a, b):
    assert jax.tree.structure(a) == jax.tree.structure(b)
    return all(
        np.asarray(x).tobytes() == np.asarray(y).tobytes()
        for x, y in zip(*map(jax.tree.leaves, (a, b)), strict=True)
    )


@pytest.mark.long
@pytest.mark.parametrize("name", ["stoptron", "random", "projectron++", "bogd", "fogd", "nogd"])
def test_a_stream_from_files_is_fit_and_goes_on_to_the_bit(name, mapped, tmp_path):
    solver, path = METHODS[name](BUDGET), tmp_path / "run.npz"
    whole = jaxsvm.stream(solver, mapped, KEY)
    fit = jaxsvm.fit(
        solver,
        jaxsvm.dataset(STREAM_X, STREAM_Y),
        KEY,
        steps=ROWS,
        sampler=samplers.epochs(1, shuffle=False),
    )
    assert jax.tree.structure(whole.state.solver) == jax.tree.structure(fit.state.solver)
    for a, b in zip(
        *(jax.tree.leaves((run.model, run.state.solver)) for run in (whole, fit)), strict=True
    ):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)  # the same steps in another program
    jaxsvm.stream(solver, [mapped[k] for k in range(4)], KEY, save=path)
    state = models.load(path)
    rest = jaxsvm.stream(solver, mapped[int(state.chunks) :], state=state)
    assert (
        int(state.chunks) == 4 and same(rest.model, whole.model) and same(rest.state, whole.state)
    )


@pytest.mark.long
@each
def test_a_saved_model_is_bounded_by_the_budget(name, mapped, tmp_path):
    solver = METHODS[name](BUDGET)
    for k, rows in enumerate(([mapped[0]], mapped)):
        run = jaxsvm.stream(solver, rows, KEY)
        models.save(tmp_path / f"{k}", run.model)
        assert same(models.load(tmp_path / f"{k}"), run.model)
    assert (tmp_path / "0").stat().st_size == (tmp_path / "1").stat().st_size
    if name != "fogd":
        assert run.model.x.shape == (BUDGET, D) and len(numbers(run.model.x, STREAM_X)) == BUDGET


@pytest.mark.long(but=2)
@each
def test_a_stream_that_ends_early_keeps_what_was_reached(name, mapped, tmp_path):
    solver, path = METHODS[name](BUDGET), tmp_path / "run.npz"

    def torn():
        yield from (mapped[k] for k in range(3))
        raise OSError("the other end is gone")

    with pytest.raises(OSError, match="the other end is gone"):
        jaxsvm.stream(solver, torn(), KEY, save=path)
    short = jaxsvm.stream(solver, (mapped[k] for k in range(3)), KEY)
    assert (
        same(models.load(path), short.state) and short.finite and int(short.state.step) == 3 * CHUNK
    )
