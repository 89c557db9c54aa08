"""What became of a run: whether it is finite, why it ended, and where counters end."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from counted import DATA, KEY, count, fresh, inside

import jaxsvm
from jaxsvm import fit, kernels
from jaxsvm.models import Linear, class_places
from jaxsvm.types import Curve, Fit, RunState

LAMS = jnp.array([0.1, 1.0])
RAN = "are not finite after 5 steps: look at the scale of the data"
ROWS = ([[1.0], [2.0]], [1, -1])


def ended(w=1.0, step=5, done=False, residual=0.25, tol=np.nan, rows=2, evals=3):
    """A Fit made by hand."""
    column = lambda value: jnp.full(rows, value, jnp.float32)
    steps = jnp.full(rows, step, jnp.int32)
    curve = Curve(steps, column(0), column(residual), column(1), column(evals), None)
    run = RunState((), (), jnp.int32(step), jnp.array(done))
    model = Linear(jnp.full(2, w, jnp.float32), jnp.zeros(()), "none")
    return Fit(model, run, curve, jnp.float32(tol))


SCALE = "the model is not finite after 5 steps: look at the scale of the data and at the step size"
HIDDEN = ended(done=True, tol=1.0)._replace(values_finite=jnp.array(False))
MADE = [  # runs by hand, whether they are finite, the reason, the status
    *(
        (ended(w=w, done=done, tol=1.0), False, "diverged", SCALE)
        for w in (np.nan, np.inf, -np.inf)
        for done in (True, False)
    ),
    (HIDDEN, False, "diverged", "the decision values of the model, or its losses, " + RAN),
    (ended(w=3e38), True, "steps", "stopped after 5 steps; residual 2.5e-01"),
    (ended(residual=np.inf), True, "steps", "stopped after 5 steps; residual inf"),
    (ended(done=True), True, "tolerance", "converged after 5 steps"),
    (ended(done=True)._replace(ended=jnp.int32(2)), True, "interrupted", "interrupted: "),
    (ended()._replace(ended=jnp.int32(1)), True, "seconds", "out of time: stopped after 5 steps"),
]


@pytest.mark.parametrize(("run", "finite", "reason", "status"), MADE)
def test_the_outcome_of_a_run(run, finite, reason, status):
    assert run.finite == finite and run.reason == reason and run.status.startswith(status)
    assert reason != "diverged" or not run.converged
    leaves, structure = jax.tree.flatten(run)
    assert jax.tree.unflatten(structure, leaves).status == run.status


def test_the_outcomes_of_several_runs():
    runs = [
        run._replace(ended=jnp.int32(0)) for run in (ended(), ended(done=True), ended(w=np.inf))
    ]
    several = jax.tree.map(lambda *a: jnp.stack(a), *runs)
    assert several.reason.tolist() == ["steps", "tolerance", "diverged"]
    assert several.status.startswith("3 runs, 1 converged")
    assert ended(evals=2**40, rows=3).evals == 3 * 2**40
    mixed = {"k": KEY, "i": jnp.arange(2), "b": jnp.ones(2, jnp.bfloat16)}
    assert ended()._replace(model=mixed).finite
    assert not ended()._replace(model={**mixed, "b": jnp.array([1, jnp.inf], jnp.bfloat16)}).finite


@pytest.mark.long
def test_the_reason_in_one_word():
    """Each word once, of a run that ended so; of several runs an array."""
    assert count(4).reason == "steps"
    assert count(40, seconds=1e-9).reason == "seconds"
    assert count(4, seconds=1e-9).reason == "steps", "all steps were made"
    assert count(400, jaxsvm.sdca(1.0), tol=1e-3).reason == "tolerance"
    assert inside(400, solver=jaxsvm.sdca(1.0), tol=1e-3).reason == "tolerance"
    runs = jax.vmap(lambda lam: fit(jaxsvm.pegasos(lam), DATA, KEY, steps=10, every=4))(LAMS)
    assert runs.model.w.shape == (2, 1) and runs.info.step.shape == (2, 3) and runs.evals == 20
    assert runs.reason.tolist() == ["steps", "steps"] and runs.finite and not runs.converged
    assert runs.status == "2 runs, 0 converged, after 10 to 10 steps"
    broken = runs._replace(model=jax.tree.map(lambda a: a.at[1].set(jnp.nan), runs.model))
    assert broken.status == runs.status + "; some hold numbers that are not finite"
    assert not broken.finite


@pytest.mark.long
def test_decision_values_that_are_not_finite_are_no_finite_run():
    """The coefficients are finite, what is predicted is not: so say `finite` and `status`, inside
    transformations, too."""
    nowhere = kernels.custom(lambda x, z: jnp.full((x.shape[0], z.shape[0]), jnp.nan, x.dtype))
    # for which a score that is not a number is no mistake: its coefficients stay 0; outside this
    # is no kernel
    run = inside(4, solver=jaxsvm.perceptron(nowhere))
    assert np.all(np.isfinite(run.model.coef)) and np.isnan(run.model(DATA.x)).all()
    assert not run.finite and "decision values" in run.status
    solve = lambda lam: fit(jaxsvm.kernel_pegasos(lam, nowhere), DATA, KEY, steps=4)
    several = jax.vmap(solve)(LAMS)
    assert several.values_finite.tolist() == [False, False] and "not finite" in several.status
    half = DATA._replace(weight=DATA.weight.at[0].set(0), x=DATA.x.at[0].set(jnp.nan))
    assert count(4, jaxsvm.pegasos(0.1), data=half).finite, "a row of weight 0 is not looked at"
    with pytest.raises(ValueError, match="not finite"):
        class_places(np.asarray(run.model(DATA.x)))


@pytest.mark.long
def test_a_run_that_overflows():
    """Its weights, or of a stream its decision values alone."""
    data = DATA._replace(x=1e38 * DATA.x)  # which dataset refuses
    run = count(4, jaxsvm.pegasos(1e-3, project=False), data=data)
    assert not run.finite and "not finite after 4 steps" in run.status
    solver, large = jaxsvm.pegasos(1e-18, project=False), ([[1e18]], [1])
    run = jaxsvm.stream(solver, iter([large]), KEY)
    assert np.all(np.isfinite(run.model.w)) and not run.finite and "decision values" in run.status
    assert jaxsvm.stream(jaxsvm.pegasos(0.1), iter([ROWS]), KEY).finite


@pytest.mark.long
def test_a_run_of_values_that_are_not_finite_has_not_converged():
    run = count(None, jaxsvm.decomposition(1.0, kernels.rbf(1.0)), every=None)
    assert run.converged
    assert not run._replace(values_finite=jnp.bool_(False)).converged
    spoilt = lambda a: a * np.float32(np.nan) if a.dtype == np.float32 else a
    assert not run._replace(model=jax.tree.map(spoilt, run.model)).converged
    two = jax.tree.map(lambda a: jnp.stack([a, a]), run)
    assert two.converged and not two._replace(values_finite=jnp.array([True, False])).converged


@pytest.mark.long
def test_steps_end_where_the_counter_does():
    most = 2**31 - 1
    state = count(1).state._replace(step=jnp.int32(most - 3))
    sentence = f"the run stands at step {most - 3}, 4 more would pass {most}, .*: make fewer"
    with pytest.raises(ValueError, match=sentence):
        count(4, state=state)
    assert count(3, state=state).status.startswith(f"stopped after {most} steps")
    program = jax.jit(lambda state: count(4, state=state))(state)
    assert int(program.state.step) == most, "not below 0"
    flow = jaxsvm.stream(jaxsvm.pegasos(0.1), iter([ROWS, ROWS]), KEY).state
    flow = flow._replace(step=jnp.int32(most - 3))
    with pytest.warns(RuntimeWarning, match=f"no step passes {most}: begin a new stream"):
        end = jaxsvm.stream(jaxsvm.pegasos(0.1), iter([ROWS, ROWS]), state=flow)
    assert int(end.state.step) == most - 1 and int(end.state.chunks) == 3


@pytest.mark.long
def test_data_of_many_sizes_leave_no_memory():
    """What `jax.clear_caches()` does not give back is the allocator's: freed memory that it keeps
    until asked."""
    found = fresh(
        """
        import ctypes, gc
        import jax, numpy as np
        import jaxsvm
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)

        def size(n):
            data = jaxsvm.dataset(np.ones((n, 2), np.float32), np.arange(n) % 2 * 2 - 1)
            key = jax.random.key(0)
            jaxsvm.fit(jaxsvm.pegasos(0.1), data, key, steps=10, every=10).model(data.x)

        def left():
            jax.clear_caches()
            gc.collect()
            if trim is None:
                raise SystemExit
            trim(0)
            return int(open("/proc/self/statm").read().split()[1]) * 4096 / 1e6

        size(10), size(11)
        before = left()
        for n in range(20, 26):
            size(n)
        print(left() - before)
        """
    )
    assert not found or float(found) < 30  # six programs of each kind take 150
