"""`step` in loops that a user writes: the bits of a jitted update, few programs, nothing kept."""

import gc
import weakref

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from compiling import listen

import jaxsvm
from jaxsvm.loops import stepping

DATA = jaxsvm.dataset(np.random.default_rng(0).normal(size=(20, 3)), np.arange(20) % 2 * 2 - 1)
KEY = jax.random.key(0)


def rows(k):
    return jaxsvm.take(DATA, jnp.array([k]))


@pytest.mark.long
def test_loops_compile_one_program_each():
    """Solvers made anew, other numbers, another order: structure decides."""
    weights = lambda t: t + 1
    for make in (
        lambda k: jaxsvm.pegasos(0.1),
        lambda k: jaxsvm.averaged(jaxsvm.pegasos(0.1), weights=weights),
        lambda k: jaxsvm.pegasos(jnp.asarray(0.5 + k)),
        lambda k: jaxsvm.perceptron(),
        lambda k: jaxsvm.pegasos(0.1 + k, loss=jaxsvm.losses.smooth_hinge(0.5 + k)),
    ):
        before = stepping._update._cache_size()
        state = make(0).init(KEY, DATA)
        for k in range(4):
            state, _ = jaxsvm.step(make(k), state, rows(k))
        assert stepping._update._cache_size() - before <= 1
        events = listen()
        jaxsvm.step(make(3), state, rows(4))
        assert not [event for event in events if "backend_compile" in event]


def test_solvers_in_turns_keep_their_numbers():
    solvers = [jaxsvm.pegasos(lam) for lam in (0.1, 1.0)]
    state, _ = jaxsvm.step(solvers[0], solvers[0].init(KEY, DATA), rows(0))
    found = [np.asarray(jaxsvm.step(s, state, rows(1))[0].params.w) for s in (*solvers, *solvers)]
    np.testing.assert_array_equal(found[:2], found[2:])
    assert not np.array_equal(found[0], found[1])


@pytest.mark.long
def test_derivatives_and_traces_go_through_and_leave_nothing():
    state = jaxsvm.pegasos(0.1).init(KEY, DATA)
    state, _ = jaxsvm.step(jaxsvm.pegasos(0.1), state, rows(0))
    after = lambda lam: jnp.sum(jaxsvm.step(jaxsvm.pegasos(lam), state, rows(1))[0].params.w)
    slope = (after(0.101) - after(0.099)) / 2e-3
    assert float(jax.grad(after)(0.1)) == pytest.approx(float(slope), rel=1e-2)
    many = jax.vmap(after)(jnp.array([0.1, 0.2]))
    np.testing.assert_allclose(many[0], after(0.1), rtol=1e-5)
    with jax.checking_leaks():
        jax.jit(after)(0.1)
    kept = [solver for solver, _ in stepping._arguments.values()]
    assert not any(isinstance(a, jax.core.Tracer) for a in jax.tree.leaves(kept))
    assert len(kept) <= stepping.MOST_ARGUMENTS


@pytest.mark.long  # emptying all caches of a long process takes seconds
def test_a_solver_of_closures_is_released():
    held = {0}
    weights = lambda t, held=held: t + 1
    solver = jaxsvm.averaged(jaxsvm.pegasos(0.1), weights=weights)
    state = solver.init(KEY, DATA)
    jaxsvm.step(solver, state, rows(0))
    reference = weakref.ref(held)
    state = jaxsvm.pegasos(0.1).init(KEY, DATA)
    del solver, held, weights
    for k in range(stepping.MOST_ARGUMENTS + 1):
        jaxsvm.step(jaxsvm.pegasos(0.1 + k), state, rows(0))
    stepping._update.clear_cache()
    jax.clear_caches()
    gc.collect()
    assert reference() is None
