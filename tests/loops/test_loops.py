"""The loops: how many steps, the rows of the curve, when they stop, samplers that adapt, and that
cutting a run changes nothing."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from counted import DATA, FITTING, KEY, SAMPLE, WHOLE, both, count, counter, fresh, minus_t
from oracles import assert_same_bits as same
from plain import plain

import jaxsvm
from jaxsvm import fit, kernels, samplers, step
from jaxsvm.loops.fitting import add_info, curve_row, empty_sums
from jaxsvm.types import Info, Sampler

# Steps and the curve


@pytest.mark.parametrize(
    ("options", "steps"),
    [
        ({"sampler": samplers.uniform(1)}, 60),  # ten passes
        ({"sampler": samplers.whole()}, 10),
        ({"sampler": samplers.epochs(4)}, 20),  # a pass is two steps, the second padded
        ({"sampler": samplers.epochs(4), "passes": 2}, 3),
        ({"passes": 0.5}, 3),
        ({"steps": np.int64(4), "every": 4.0}, 4),
        # more rows than are drawn at once
        ({"steps": 6, "every": 3, "sampler": samplers.uniform(2**16)}, 6),
    ],
)
def test_the_number_of_steps(options, steps):
    run = count(**{"steps": None, "every": 10} | options)
    assert [float(run.model.w[0]), int(run.state.step)] == [steps, steps]


@pytest.mark.long
@pytest.mark.parametrize(("n", "updates"), [(99_999, 10), (100_000, 20), (210_000, 40)])
def test_more_updates_to_a_tolerance_of_more_rows(n, updates):
    data = jaxsvm.dataset(np.zeros((n, 1), np.float32), np.arange(n) % 2)
    data = data._replace(index=jnp.zeros(n, jnp.int32))
    never = WHOLE.replace(sampler=samplers.whole(), tol=-1e9)
    assert int(fit(never, data, KEY).state.step) == updates
    assert int(fit(never, data, KEY, steps=3).state.step) == 3
    for none in (None, np.nan):  # nothing to stop at
        assert int(fit(never.replace(tol=none), data, KEY).state.step) == 10


@pytest.mark.long
def test_no_steps():
    run, program = both(0, probe=minus_t)
    assert int(run.state.step) == 0 and run.evals == 0 and not run.converged
    assert [field.shape for field in run.info] == [(0,)] * 6
    assert run.status == "no step was made; the run stands at step 0"
    some = count(4, probe=minus_t)
    assert [field.dtype for field in run.info] == [field.dtype for field in some.info]
    same(count(0, state=some.state).state, some.state)
    same(program, run)


def test_rows_of_the_curve():
    run = count(10, probe=minus_t)
    np.testing.assert_array_equal(run.info.step, [4, 8, 10])
    np.testing.assert_array_equal(run.info.loss, [1.5, 5.5, 8.5])  # means over the pieces
    np.testing.assert_array_equal(run.info.residual, [6, 2, 0])  # at their ends
    np.testing.assert_array_equal(run.info.support, [8, 16, 20])
    np.testing.assert_array_equal(run.info.evals, [4, 4, 2])
    np.testing.assert_array_equal(run.info.probe, [-4, -8, -10])
    assert run.evals == 10 and isinstance(run.evals, int)
    assert run.info.step.dtype == jnp.int32
    assert run.status == "stopped after 10 steps; residual 0.0e+00"
    second = count(6, state=count(4).state)
    np.testing.assert_array_equal(second.info.step, [8, 10])
    assert second.evals == 6, "of this call alone"
    same(second.state, run.state)


@jax.jit
def seven_inside(key, data):
    return count(7, key=key, data=data)


LARGE = [(2**30, 7), (2**24 + 1, 3), (1_999_999_999, 7), (2**31 - 1, 5)]


@pytest.mark.parametrize(("evals", "steps"), LARGE)
def test_evaluations_are_summed_beyond_32_bits(evals, steps):
    """To the digits of float32; outside and inside."""
    data = DATA._replace(index=DATA.index.at[0].set(evals - 1))
    assert count(steps, data=data).evals == pytest.approx(steps * evals, rel=2e-7)
    assert seven_inside(KEY, data).evals == pytest.approx(7 * evals, rel=2e-7)


@pytest.mark.long
def test_small_counts_of_evaluations_are_not_lost_in_a_long_chunk():
    """2^24 + 1 times 1 is 2^24 in a plain sum of float32."""
    zero, rows = jnp.zeros(()), (jnp.zeros(1), jnp.zeros(1, jnp.int32))
    one = Info(zero, zero, *rows, jnp.int32(0), jnp.int32(1))
    sums = empty_sums(one)
    sums = sums[0].at[2].set(2.0**24), sums[1]
    end = jax.jit(lambda sums: jax.lax.fori_loop(0, 100, lambda _, s: add_info(s, one), sums))(sums)
    assert float(curve_row(end, jnp.int32(0), 100, None).evals) == 2**24 + 100


MANY, RBF = 60_000, kernels.rbf(1.0)
COUNTED = {
    "wolfe": (jaxsvm.wolfe(0.1, RBF), MANY * MANY),
    "sbp": (jaxsvm.sbp(0.1, RBF, bound_every=1), MANY * MANY + MANY),
    "scs": (jaxsvm.scs(0.1, RBF, capacity=MANY, first=MANY // 2, growth=MANY // 2), MANY * MANY),
}


@pytest.mark.parametrize("name", COUNTED)
def test_evaluations_of_a_step_on_many_rows(name):
    """More than an int32 holds. XLA leaves out all of the step that the count does not need."""
    solver, want = COUNTED[name]
    rows = jnp.arange(MANY, dtype=jnp.int32)
    data = jaxsvm.types.Batch(jnp.zeros((MANY, 1)), jnp.ones(MANY), rows, jnp.ones(MANY))
    batch = data._replace(index=jnp.zeros(1, jnp.int32)) if name == "sbp" else data
    evals = jax.jit(lambda key: solver.update(solver.init(key, data), batch)[1].evals)(KEY)
    assert float(evals) == pytest.approx(want, rel=1e-7)
    space = jaxsvm.spaces.expansion(RBF)
    evals = jax.jit(lambda coef: space.evals(coef, data))(jnp.ones(MANY))
    assert int(np.asarray(evals)) == MANY * MANY


@pytest.mark.long
def test_probes_may_return_trees():
    grid = jnp.ones((2, 3), int)
    probe = lambda m: {"pair": (m.w[0], m.w), "whole": grid, "one": 1, "none": None}
    run = count(10, probe=probe)
    shapes = jax.tree.map(jnp.shape, run.info.probe)
    assert shapes == {"pair": ((3,), (3, 2)), "whole": (3, 2, 3), "one": (3,), "none": None}
    np.testing.assert_array_equal(run.info.probe["pair"][0], [4, 8, 10])
    assert run.info.probe["whole"].dtype == jnp.int32 and run.info.probe["one"].tolist() == [1] * 3


@pytest.mark.long
def test_probes_of_the_package_and_none():
    solver = jaxsvm.pegasos(0.1)
    run = count(4, solver, every=2, probe=jaxsvm.error_on(DATA))
    assert run.info.probe.shape == (2,)
    assert float(run.info.probe[-1]) == float(jaxsvm.error_on(DATA)(run.model))
    assert count(4, solver).info.probe is None
    keys = count(4, solver, every=2, probe=lambda m: {"w": m.w, "key": KEY}).info.probe
    assert keys["w"].shape == (2, 1) and keys["key"].shape == (2,)
    assert count(1, jaxsvm.sdca(1.0, kernels.linear())).evals == 6


@pytest.mark.long
def test_the_step_of_a_loop_of_ones_own():
    state, run = WHOLE.init(KEY, DATA), count(2, sampler=samplers.epochs(1, shuffle=False))
    for k in range(2):
        state, info = step(WHOLE, state, jaxsvm.take(DATA, jnp.array([k])))
    same(state, run.state.solver)
    assert float(info.residual) == 8.0


# tol


MET = "converged after {} steps: tolerance {} met, residual {}"
NOT_MET = "stopped after {} steps; residual {}, tolerance {} not met; go on with state=run.state"
PROBED = {"probe": minus_t, "solver": SAMPLE}
STOPS = [  # options, the last step, the status
    ({"tol": 3.0}, 8, MET.format(8, "3.0e+00", "2.0e+00")),
    ({"tol": 6.0}, 4, MET.format(4, "6.0e+00", "6.0e+00")),
    ({"tol": 3.0, "probe": minus_t}, 8, "converged after 8"),  # the residual goes first
    (PROBED | {"tol": -7.0}, 8, "converged after 8 steps"),
    (PROBED | {"tol": 0.5, "probe": lambda m: 0}, 4, "converged after 4 steps"),
    ({"tol": 1.0, "steps": 4}, 4, NOT_MET.format(4, "6.0e+00", "1.0e+00")),
    ({"tol": -1.0, "steps": 10, "every": 10}, 10, NOT_MET.format(10, "0.0e+00", "-1.0e+00")),
]


@pytest.mark.parametrize(("options", "steps", "status"), STOPS)
def test_where_a_tolerance_stops(options, steps, status):
    run = count(**options)
    assert run.converged == status.startswith("converged") and run.status.startswith(status)
    assert int(run.state.step) == run.evals == run.info.step[-1] == float(run.model.w[0]) == steps
    assert float(run.tol) == options["tol"]


@pytest.mark.long
@pytest.mark.parametrize(("solver", "tol"), [(WHOLE, 3.0), (SAMPLE, -7.0)])
def test_tol_stops_inside_and_rows_repeat(solver, tol):
    outside, program = both(solver=solver, tol=tol, probe=minus_t)
    np.testing.assert_array_equal(outside.info.step, [4, 8])
    np.testing.assert_array_equal(program.info.step, [4, 8] + [8] * 6)
    np.testing.assert_array_equal(program.info.residual, [6, 2] + [2] * 6)
    np.testing.assert_array_equal(program.info.loss, [1.5, 5.5] + [5.5] * 6)
    np.testing.assert_array_equal(program.info.probe, [-4, -8] + [-8] * 6)
    np.testing.assert_array_equal(program.info.evals, [4, 4] + [0] * 6)
    same((program.model, program.state, program.tol), (outside.model, outside.state, outside.tol))
    assert program.status == outside.status and program.evals == outside.evals == 8


def test_a_run_that_converged_goes_on():
    run = count(tol=3.0)
    further = count(4, state=run.state)
    assert int(further.state.step) == 12 and not further.converged
    assert int(count(state=run.state, tol=-10.0).state.step) == 20


@pytest.mark.long
def test_tol_of_a_real_solver_inside_vmap():
    solve = lambda C: fit(jaxsvm.sdca(C), DATA, KEY, steps=60, every=6, tol=1e-3)
    runs = jax.vmap(solve)(jnp.array([0.01, 0.1]))
    assert runs.converged
    lowest, highest = (int(f(np.asarray(runs.state.step))) for f in (np.min, np.max))
    assert runs.status == f"2 runs, 2 converged, after {lowest} to {highest} steps" and highest < 60


@pytest.mark.long
def test_a_run_is_judged_by_the_tolerance_of_its_solver():
    solver = jaxsvm.decomposition(1.0, kernels.linear(), tol=0.25)
    run, program = both(3, solver=solver)
    assert int(run.state.step) == 3 and float(run.tol) == 0.25 and run.converged
    assert run.status.startswith("decomposition converged after 3 steps: tolerance 2.5e-01 met")
    assert program.converged and program.status == run.status
    short = count(1, solver.replace(tol=1e-30, rounds=1, working_set=4))
    assert not short.converged and "tolerance 1.0e-30 not met" in short.status


# Plain solvers, samplers that adapt


def test_plain_solvers_are_compiled_once():
    before, solver = FITTING.run_chunk._cache_size(), counter()
    for seed in range(3):
        count(8, solver, key=jax.random.key(seed), probe=minus_t)
    assert FITTING.run_chunk._cache_size() == before + 1


@jaxsvm.node
class adaptive(Sampler):
    """Draws depend on all feedback of the periods before; the feedback is folded in one by one."""

    every: int

    def period(self, n):
        return self.every

    def init(self, key, data):
        zero, none = jnp.zeros((), jnp.uint32), jnp.zeros((), bool)
        return {"active": zero, "pending": zero, "seen": jnp.int32(0), "crossed": none}

    def draw(self, s, t, count):
        place = (t + jnp.arange(count, dtype=jnp.int32)).astype(jnp.uint32)
        mixed = (place + s["active"]) * jnp.uint32(2654435761)
        return ((mixed >> 16) % jnp.uint32(6)).astype(jnp.int32)[:, None]

    def feedback(self, s, index, progress):
        def one(s, row):
            made = row[0][0] >= 0
            pending = s["pending"] * jnp.uint32(31) + (row[0][0] + 2).astype(jnp.uint32)
            seen = s["seen"] + 1
            active = jnp.where(seen % self.every == 0, pending, s["active"])
            new = {**s, "pending": pending, "seen": seen, "active": active}
            return jax.tree.map(lambda a, b: jnp.where(made, a, b), new, s), None

        after, _ = jax.lax.scan(one, s, (index, progress))
        crossed = s["seen"] // self.every != (after["seen"] - 1) // self.every
        return {**after, "crossed": after["crossed"] | crossed}


ADAPTIVE = adaptive(4)


ENDS = [(3, [3, 4, 7, 8]), (2, [2, 4, 6, 8, 10]), (4, [4, 8]), (100, [4, 8])]


@pytest.mark.parametrize(("every", "ends"), ENDS)
def test_pieces_never_cross_a_period(every, ends):
    run, whole = (count(11, every=n, sampler=ADAPTIVE) for n in (every, None))
    assert run.info.step.tolist() == [*ends, 11] and whole.info.step.tolist() == [4, 8, 11]
    assert not run.state.sampler["crossed"] and int(run.state.sampler["seen"]) == 11
    same(run.state, whole.state)
    # The solver keeps the same trace of its rows as the sampler of the feedback.
    assert int(run.state.sampler["active"]) != 0
    assert int(run.state.sampler["pending"]) == int(run.state.solver[1])


@pytest.mark.parametrize("cuts", [(3,), (4,), (1, 2, 9), (5, 6, 7, 8)])
def test_adaptive_runs_cut_anywhere_are_the_whole_run(cuts):
    whole, run, steps = count(11, sampler=ADAPTIVE), None, []
    for start, end in zip((0, *cuts), (*cuts, 11), strict=True):
        state = {} if run is None else {"state": run.state}
        run = count(end - start, sampler=ADAPTIVE, **state)
        steps += run.info.step.tolist()
    same((run.state, run.model), (whole.state, whole.model))
    assert set(steps) >= {4, 8, 11} | set(cuts), "a piece ends at every period"


def test_adaptive_runs_inside():
    outside, program = both(11, every=2, sampler=ADAPTIVE)
    same(program, outside)
    words = "an adaptive sampler cannot go on from a state inside a transformation; go on outside"
    with pytest.raises(ValueError, match=words):
        jax.jit(lambda state: count(1, state=state, sampler=ADAPTIVE))(outside.state)


@pytest.mark.long
@pytest.mark.parametrize("reads_all", [False, True])
def test_padding_is_handed_on(reads_all):
    """-1 in a draw: a row of weight 0, whichever way the solver is fed."""
    seen = []

    def update(state, batch):
        assert batch.index.shape == (4,)
        zero, live = jnp.zeros(()), batch.index >= 0 if reads_all else batch.weight > 0
        seen.append(batch.x.shape)
        info = Info(zero, zero, jnp.zeros(4), batch.index, jnp.int32(0), jnp.int32(0))
        return state + jnp.sum(live.astype(jnp.int32)), info

    init, model = lambda key, data: jnp.zeros((), jnp.int32), lambda s, data=None: s
    solver = plain(init, update, model, samplers.epochs(4), reads_all, residual_of="data")
    assert int(count(4, solver).model) == 12, "two passes of six rows"
    assert seen[-1] == ((6, 1) if reads_all else (4, 1))


def test_the_length_of_a_chunk():
    """A pass of at least 100 steps, 10 in a short one; at most 100 where a step reads all rows; a
    divisor if one is near."""
    cases = {(1000, 50, False): 100, (1000, 300, False): 250, (1000, 10, False): 10}
    cases |= {(1000, 11, False): 100, (1000, 300, True): 100, (7, 50, False): 7}
    cases |= {(0, 50, False): 1, (1009, 300, False): 300, (1009, 50, False): 100}
    cases |= {(100, 50, False): 100}
    assert {call: FITTING.default_every(*call) for call in cases} == cases


@pytest.mark.long
def test_importing_starts_nothing_and_sets_nothing():
    out = fresh(
        """
        import os
        before = dict(os.environ)
        import jaxsvm
        from jax._src import xla_bridge
        print(xla_bridge.backends_are_initialized(), os.environ.get("XLA_FLAGS"))
        import jax
        new = {k: v for k, v in os.environ.items() if "XLA" in k and before.get(k) != v}
        print(jax.config.jax_enable_x64, new)
        """
    )
    assert out.splitlines() == ["False None", "False {}"]


@pytest.mark.long
@pytest.mark.parametrize("name", ["rbg", "unsafe_rbg"])
def test_runs_and_maps_under_other_generators(name):
    with jax.default_prng_impl(name):
        key, x = jax.random.key(0), DATA.x
        assert count(6, jaxsvm.bsgd(0.1, RBF, budget=3), key=key).finite
        assert count(6, jaxsvm.sdca(1.0), key=key, sampler=samplers.acf()).finite
        assert np.isfinite(jaxsvm.features.fourier(key, RBF, dim=1, features=4)(x)).all()
        assert np.isfinite(jaxsvm.features.nystrom(key, RBF, x, landmarks=2)(x)).all()
