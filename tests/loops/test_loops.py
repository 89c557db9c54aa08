"""The loops: what they refuse, when they stop, what they return, and that cutting a run changes
nothing."""

import importlib
import itertools
import os
import pickle
import re
import signal
import subprocess
import sys
import textwrap
import time
import warnings
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from oracles import assert_same_bits as same
from plain import plain

import jaxsvm
from jaxsvm import fit, kernels, models, samplers, step
from jaxsvm.loops import program_cache, saving
from jaxsvm.loops.fitting import add_info, curve_row, empty_sums
from jaxsvm.models import Linear
from jaxsvm.types import Curve, Fit, Info, RunState, Sampler

loops = importlib.import_module("jaxsvm.loops.fitting")  # the package has a function of this name

DATA = jaxsvm.dataset([[1.0], [-1.0], [2.0], [-2.0], [0.5], [-3.0]], [1, -1, 1, -1, -1, 1])
KEY = jax.random.key(0)


def counter(residual="data"):
    """A plain solver whose state is the step t, a trace of the rows and what a step costs (1 on
    `DATA`).

    Loss t - 1, residual 10 - t, model w = (t, trace).
    """

    def init(key, data):
        return jnp.zeros((), jnp.int32), jnp.zeros((), jnp.uint32), data.index[0] + 1

    def update(state, batch):
        t, trace, evals = state
        trace = trace * jnp.uint32(31) + (batch.index[0] + 2).astype(jnp.uint32)
        loss, t = t.astype(jnp.float32), t + 1
        info = Info(loss, 10 - t.astype(jnp.float32), jnp.ones(1), batch.index[:1], 2 * t, evals)
        return (t, trace, evals), info

    def model(state, data=None):
        return Linear(
            jnp.stack([state[0], (state[1] % 65536).astype(jnp.int32)]).astype(jnp.float32),
            jnp.zeros(()),
        )

    return plain(init, update, model, samplers.epochs(1), residual_of=residual)


WHOLE, SAMPLE = counter(), counter("batch")


def minus_t(model):
    return -model.w[0]


# What is refused

NOTHING = (
    r"tol has nothing to stop on: .* give a probe to stop on "
    r"\(probe=jaxsvm\.error_on\(held_out\)\), or steps$"
)
COUNTS = {"steps": (0, [-1, 2.5, True, np.nan, np.inf, "3", "many"]),
          "every": (1, [0, -3, 1.5, False, np.inf, [1]])}  # fmt: skip
REFUSED = [
    ({"key": None}, r"fit needs a key, such as jax\.random\.key\(0\), or a state to go on from$"),
    *(({"data": data}, rf"data must be a Batch, such as jaxsvm\.dataset\(x, y\), got {came}: ")
      for data, came in (((np.ones((2, 1)), np.ones(2)), "tuple"), (np.ones((2, 1)), "ndarray"),
                         (None, "NoneType"))),
    ({"data": (DATA, DATA)}, ".* got tuple: take one of those in it, train, test = loaded$"),
    *(({"solver": wrong}, "solver ") for wrong in (jaxsvm.pegasos, 3, None)),
    *(({name: wrong}, f"{name} must be a whole number of at least {least}, got "
                      f"{re.escape(repr(wrong))}$")
      for name, (least, many) in COUNTS.items() for wrong in many),
    ({"steps": 10**400}, "steps must be a whole number"),
    ({"passes": 1}, "steps and passes say the same: give one of them$"),
    *(({"steps": None, "passes": wrong}, "passes (must be|has shape)")
      for wrong in (0, -1.0, np.nan, np.inf, np.ones(2))),
    *(({"solver": solver, "tol": 0.1}, NOTHING) for solver in (SAMPLE, jaxsvm.pegasos(0.1))),
    ({"tol": "0.1", "probe": len}, "tol must be a number, got '0.1'"),
    ({"tol": np.nan, "probe": len}, "tol must be a number, got nan"),
    ({"tol": jnp.ones(2), "probe": len}, r"tol has shape \(2,\)"),
    *(({"sampler": wrong}, r"sampler must be one such as jaxsvm\.samplers\.epochs\(64\), got ")
      for wrong in ("epochs", samplers.epochs, 64)),
    *(({"probe": wrong}, "probe must be a function of the model")
      for wrong in (1.0, jaxsvm.pegasos(0.1))),
    ({"seconds": -1}, "seconds must be a number of at least 0, got -1"),
    ({"save": 5}, "save must be the path of a file, got 5"),
    ({"progress": "yes"}, "progress must be True or False, got 'yes'"),
]  # fmt: skip


@pytest.mark.parametrize(("option", "message"), REFUSED)
def test_wrong_options_of_fit(option, message):
    with pytest.raises((TypeError, ValueError), match=f"^{message}"):
        fit(**({"solver": WHOLE, "data": DATA, "key": KEY, "steps": 2} | option))


def test_state_that_is_no_run():
    run = fit(WHOLE, DATA, KEY, steps=0)
    for state, came in ((run, "Fit"), (run.state.solver, "tuple"), ("file.npz", "str")):
        with pytest.raises(
            TypeError,
            match=f"^state must be the RunState of an earlier call, got {came}: pass run.state$",
        ):
            fit(WHOLE, DATA, steps=1, state=state)


@pytest.mark.long
def test_whole_numbers_of_other_types():
    assert int(fit(WHOLE, DATA, KEY, steps=np.int64(4), every=4.0).state.step) == 4


@pytest.mark.parametrize("option", [{"seconds": 1.0}, {"save": "never.npz"}, {"progress": True}])
def test_seconds_and_save_inside_jit(option, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(
        ValueError, match="^seconds, save and progress work outside of jit, vmap and grad only"
    ):
        jax.jit(lambda key: fit(WHOLE, DATA, key, steps=2, **option))(KEY)
    assert os.listdir(tmp_path) == []


def test_lam_is_a_vector_inside_jit():
    message = r"^lam has shape \(8,\); sweep it with jax\.vmap or jaxsvm\.sweep"
    solver = jax.vmap(jaxsvm.pegasos)(jnp.ones(8))
    with pytest.raises(ValueError, match=message):
        jax.jit(lambda solver: fit(solver, DATA, KEY, steps=1))(solver)


def test_a_start_of_another_length():
    with pytest.raises(
        ValueError, match=r"^start has shape \(3,\), expected one number for each of the 6 rows"
    ):
        fit(jaxsvm.sdca(1.0, start=jnp.zeros(3)), DATA, KEY, steps=1)


# Steps and the curve


@pytest.mark.parametrize(
    ("sampler", "steps"),
    [
        (samplers.uniform(1), 60),
        (samplers.epochs(3), 20),
        (samplers.whole(), 10),
        (samplers.epochs(4), 20),
    ],
)
def test_ten_passes_by_default(sampler, steps):
    """A pass of `epochs(4)` over six rows is two steps, the second padded."""
    assert int(fit(WHOLE, DATA, KEY, sampler=sampler, every=10).state.step) == steps


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
@pytest.mark.parametrize(
    ("sampler", "passes", "steps"),
    [(samplers.epochs(1), 2, 12), (samplers.epochs(4), 2, 3), (None, 0.5, 3)],
)
def test_passes_in_place_of_steps(sampler, passes, steps):
    assert int(fit(WHOLE, DATA, KEY, passes=passes, sampler=sampler).state.step) == steps


def test_no_steps():
    run = fit(WHOLE, DATA, KEY, steps=0, every=4, probe=minus_t)
    assert int(run.state.step) == 0 and run.evals == 0 and not run.converged
    assert [field.shape for field in run.info] == [(0,)] * 6
    assert run.info.evals.shape == (0,)
    assert run.status == "no step was made; the run stands at step 0"
    some = fit(WHOLE, DATA, KEY, steps=4, every=4, probe=minus_t)
    assert [field.dtype for field in run.info] == [field.dtype for field in some.info]
    same(fit(WHOLE, DATA, steps=0, state=some.state).state, some.state)
    same(jax.jit(lambda key: fit(WHOLE, DATA, key, steps=0, every=4, probe=minus_t))(KEY), run)


def test_rows_of_the_curve():
    run = fit(WHOLE, DATA, KEY, steps=10, every=4, probe=minus_t)
    np.testing.assert_array_equal(run.info.step, [4, 8, 10])
    np.testing.assert_array_equal(run.info.loss, [1.5, 5.5, 8.5])  # means over the pieces
    np.testing.assert_array_equal(run.info.residual, [6, 2, 0])  # at their ends
    np.testing.assert_array_equal(run.info.support, [8, 16, 20])
    np.testing.assert_array_equal(run.info.evals, [4, 4, 2])
    np.testing.assert_array_equal(run.info.probe, [-4, -8, -10])
    assert run.evals == 10 and isinstance(run.evals, int)
    assert run.info.step.dtype == jnp.int32
    assert run.status == "stopped after 10 steps; residual 0.0e+00"


def test_the_curve_of_a_run_that_goes_on():
    first = fit(WHOLE, DATA, KEY, steps=4, every=4)
    second = fit(WHOLE, DATA, steps=6, every=4, state=first.state)
    np.testing.assert_array_equal(second.info.step, [8, 10])
    assert second.evals == 6, "of this call alone"
    same(second.state, fit(WHOLE, DATA, KEY, steps=10, every=4).state)


@jax.jit
def seven_inside(key, data):
    return fit(WHOLE, data, key, steps=7, every=4)


@pytest.mark.parametrize(
    ("evals", "steps"), [(2**30, 7), (2**24 + 1, 3), (1_999_999_999, 7), (2**31 - 1, 5)]
)
def test_evaluations_are_summed_beyond_32_bits(evals, steps):
    """To the digits of float32; outside and inside."""
    data = DATA._replace(index=DATA.index.at[0].set(evals - 1))
    assert fit(WHOLE, data, KEY, steps=steps, every=4).evals == pytest.approx(
        steps * evals, rel=2e-7
    )
    assert seven_inside(KEY, data).evals == pytest.approx(7 * evals, rel=2e-7)


def test_small_counts_of_evaluations_are_not_lost_in_a_long_chunk():
    """2^24 + 1 times 1 is 2^24 in a plain sum of float32."""
    one = Info(
        jnp.zeros(()),
        jnp.zeros(()),
        jnp.zeros(1),
        jnp.zeros(1, jnp.int32),
        jnp.int32(0),
        jnp.int32(1),
    )
    sums = empty_sums(one)
    sums = sums[0].at[2].set(2.0**24), sums[1]
    end = jax.jit(lambda sums: jax.lax.fori_loop(0, 100, lambda _, s: add_info(s, one), sums))(sums)
    assert float(curve_row(end, jnp.int32(0), 100, None).evals) == 2**24 + 100


@pytest.mark.long
def test_evaluations_of_a_real_solver():
    run = fit(jaxsvm.sdca(1.0, kernels.linear()), DATA, KEY, steps=1, every=1)
    assert run.evals == 6


def test_probes_may_return_trees():
    def probe(model):
        return {"pair": (model.w[0], model.w), "whole": jnp.ones((2, 3), jnp.int32)}

    run = fit(WHOLE, DATA, KEY, steps=10, every=4, probe=probe)
    shapes = jax.tree.map(jnp.shape, run.info.probe)
    assert shapes == {"pair": ((3,), (3, 2)), "whole": (3, 2, 3)}
    np.testing.assert_array_equal(run.info.probe["pair"][0], [4, 8, 10])
    assert run.info.probe["whole"].dtype == jnp.int32


@pytest.mark.long
def test_probes_of_the_package_and_none():
    solver = jaxsvm.pegasos(0.1)
    run = fit(solver, DATA, KEY, steps=4, every=2, probe=jaxsvm.error_on(DATA))
    assert run.info.probe.shape == (2,)
    assert float(run.info.probe[-1]) == float(jaxsvm.error_on(DATA)(run.model))
    assert fit(solver, DATA, KEY, steps=4, every=2).info.probe is None


def test_the_step_of_a_loop_of_ones_own():
    state, run = (
        WHOLE.init(KEY, DATA),
        fit(WHOLE, DATA, KEY, steps=2, every=4, sampler=samplers.epochs(1, shuffle=False)),
    )
    for k in range(2):
        state, info = step(WHOLE, state, jaxsvm.take(DATA, jnp.array([k])))
    same(state, run.state.solver)
    assert float(info.residual) == 8.0


# tol


def test_tol_stops_outside():
    run = fit(WHOLE, DATA, KEY, steps=30, every=4, tol=3.0)
    np.testing.assert_array_equal(run.info.step, [4, 8])
    assert run.converged and int(run.state.step) == 8 and float(run.model.w[0]) == 8
    assert run.status == "converged after 8 steps: tolerance 3.0e+00 met, residual 2.0e+00"
    assert run.evals == 8 and float(run.tol) == 3.0


@pytest.mark.long
def test_tol_stops_inside_and_rows_repeat():
    inside = jax.jit(lambda key: fit(WHOLE, DATA, key, steps=30, every=4, tol=3.0, probe=minus_t))(
        KEY
    )
    np.testing.assert_array_equal(inside.info.step, [4, 8] + [8] * 6)
    np.testing.assert_array_equal(inside.info.residual, [6, 2] + [2] * 6)
    np.testing.assert_array_equal(inside.info.loss, [1.5, 5.5] + [5.5] * 6)
    np.testing.assert_array_equal(inside.info.probe, [-4, -8] + [-8] * 6)
    np.testing.assert_array_equal(inside.info.evals, [4, 4] + [0] * 6)
    outside = fit(WHOLE, DATA, KEY, steps=30, every=4, tol=3.0, probe=minus_t)
    same((inside.model, inside.state, inside.tol), (outside.model, outside.state, outside.tol))
    assert inside.status == outside.status and inside.evals == outside.evals == 8


def test_tol_that_is_exactly_met():
    assert int(fit(WHOLE, DATA, KEY, steps=30, every=4, tol=6.0).state.step) == 4


def test_tol_that_is_not_met():
    run = fit(WHOLE, DATA, KEY, steps=4, every=4, tol=1.0)
    assert not run.converged
    assert run.status == (
        "stopped after 4 steps; residual 6.0e+00, tolerance 1.0e+00 "
        "not met; go on with state=run.state"
    )
    exact = fit(WHOLE, DATA, KEY, steps=10, every=10, tol=-1.0)
    assert exact.status == (
        "stopped after 10 steps; residual 0.0e+00, tolerance -1.0e+00 "
        "not met; go on with state=run.state"
    )


def test_a_run_that_converged_goes_on():
    run = fit(WHOLE, DATA, KEY, steps=30, every=4, tol=3.0)
    further = fit(WHOLE, DATA, steps=4, every=4, state=run.state)
    assert int(further.state.step) == 12 and not further.converged
    assert int(fit(WHOLE, DATA, steps=30, every=4, state=run.state, tol=-10.0).state.step) == 20


@pytest.mark.long
def test_a_probe_as_the_criterion():
    run = fit(SAMPLE, DATA, KEY, steps=30, every=4, tol=-7.0, probe=minus_t)
    np.testing.assert_array_equal(run.info.step, [4, 8])
    assert run.converged
    inside = jax.jit(
        lambda key: fit(SAMPLE, DATA, key, steps=30, every=4, tol=-7.0, probe=minus_t)
    )(KEY)
    same(inside.state, run.state)


def test_the_residual_goes_before_the_probe_where_it_measures_the_whole():
    assert int(fit(WHOLE, DATA, KEY, steps=30, every=4, tol=3.0, probe=minus_t).state.step) == 8


@pytest.mark.long
def test_tol_of_a_real_solver_inside_vmap():
    solve = lambda C: fit(jaxsvm.sdca(C), DATA, KEY, steps=60, every=6, tol=1e-3)
    runs = jax.vmap(solve)(jnp.array([0.01, 0.1]))
    assert runs.converged
    lowest, highest = (int(f(np.asarray(runs.state.step))) for f in (np.min, np.max))
    assert runs.status == f"2 runs, 2 converged, after {lowest} to {highest} steps" and highest < 60


# Outside: seconds, save, Ctrl-C, progress


def test_seconds():
    run = fit(WHOLE, DATA, KEY, steps=1000, every=4, seconds=0)
    assert int(run.state.step) == 4 and run.status.startswith("out of time: stopped after 4 steps")
    assert int(fit(WHOLE, DATA, KEY, steps=8, every=4, seconds=1e6).state.step) == 8


def test_save_writes_after_every_piece(tmp_path, monkeypatch):
    path, found = tmp_path / "run.npz", []
    write = models.save

    def spy(where, tree):
        write(where, tree)
        found.append(int(models.load(path).step))

    monkeypatch.setattr(models, "save", spy)
    run = fit(WHOLE, DATA, KEY, steps=10, every=4, save=path)
    assert found == [4, 8, 10]
    assert os.listdir(tmp_path) == ["run.npz"]
    same(models.load(path), run.state)
    assert isinstance(models.load(path), RunState)


def test_errors_of_save_are_not_swallowed(tmp_path):
    with pytest.raises(
        FileNotFoundError, match="is in a folder that does not exist: make it first"
    ):
        fit(WHOLE, DATA, KEY, steps=8, every=4, save=tmp_path / "no folder" / "run.npz")


def full_disk(monkeypatch, times):
    """Renaming into place fails at the saves of these numbers, counted from 0; all saves that were
    tried are counted."""
    replace, tried = os.replace, []

    def patched(*args):
        tried.append(None)
        if len(tried) - 1 in times:
            raise OSError(28, "No space left on device")
        return replace(*args)

    monkeypatch.setattr(os, "replace", patched)
    return tried


def test_a_run_whose_last_state_cannot_be_saved_is_not_lost(tmp_path, monkeypatch):
    path, whole = tmp_path / "run.npz", fit(WHOLE, DATA, KEY, steps=10, every=4)
    tried = full_disk(monkeypatch, range(1, 99))
    with pytest.warns(
        UserWarning, match=re.escape(f"could not be saved to {path} ([Errno 28] No space left")
    ) as warned:
        with pytest.raises(
            jaxsvm.SaveError,
            match="the run stands at step 10, .*No space left on device.*error.run",
        ) as caught:
            fit(WHOLE, DATA, KEY, steps=10, every=4, save=path)
    assert len(tried) == 3 and len(warned) == 1 and warned[0].filename == __file__
    assert isinstance(caught.value, OSError) and isinstance(caught.value.run, Fit)
    assert caught.value.__cause__.errno == 28
    same(tuple(caught.value.run), tuple(whole))
    assert int(models.load(path).step) == 4 and os.listdir(tmp_path) == ["run.npz"]
    monkeypatch.undo()
    models.save(path, caught.value.run.state)
    same(models.load(path), whole.state)


def test_a_state_that_could_not_be_saved_is_tried_again(tmp_path, monkeypatch):
    path = tmp_path / "run.npz"
    tried = full_disk(monkeypatch, (0, 1))
    with pytest.warns(UserWarning, match="could not be saved") as warned:
        run = fit(WHOLE, DATA, KEY, steps=12, every=4, save=path)
    assert len(tried) == 3 and len(warned) == 1
    same(models.load(path), run.state)


def test_the_run_is_not_lost_where_warnings_are_errors(tmp_path, monkeypatch):
    full_disk(monkeypatch, range(99))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(jaxsvm.SaveError) as caught:
            fit(WHOLE, DATA, KEY, steps=12, every=4, save=tmp_path / "run.npz")
    assert int(caught.value.run.state.step) == 12


def test_ctrl_c_where_nothing_could_be_saved(tmp_path, monkeypatch):
    full_disk(monkeypatch, range(99))
    for how, error in (("return", jaxsvm.SaveError), ("raise", KeyboardInterrupt)):
        with monkeypatch.context() as patch:
            interrupt(patch, 3)
            with (
                pytest.warns(UserWarning, match="could not be saved"),
                pytest.raises(error) as caught,
            ):
                fit(
                    WHOLE, DATA, KEY, steps=30, every=4, save=tmp_path / "run.npz", on_interrupt=how
                )
        assert int(caught.value.run.state.step) == 8
        assert isinstance(caught.value.__cause__, OSError), "what kept it from being saved is said"


@pytest.mark.parametrize("before", [None, b"of an earlier run"])
def test_a_file_that_another_run_writes_is_left_to_it(tmp_path, before):
    """The run whose state would replace that of another one ends with a sentence, and is not
    lost."""
    path = tmp_path / "run.npz"
    if before:
        path.write_bytes(before)
    probe = lambda model: (
        jax.debug.callback(lambda: path.exists() and path.write_bytes(b"of another run")) or model.b
    )
    whole = fit(WHOLE, DATA, KEY, steps=12, every=4)
    with pytest.warns(
        UserWarning, match="could not be saved to .*another run has written this file meanwhile"
    ) as warned:
        with pytest.raises(
            jaxsvm.SaveError, match="the run stands at step 12, .*another run has written"
        ) as caught:
            fit(WHOLE, DATA, KEY, steps=12, every=4, save=path, probe=probe)
    assert path.read_bytes() == b"of another run" and len(warned) == 1
    same(caught.value.run.model, whole.model)
    path.unlink()  # a file that is gone is written anew
    run = fit(WHOLE, DATA, KEY, steps=12, every=4, save=path)
    same(models.load(path), run.state)


RACING = """
import sys, jax, numpy as np, jaxsvm
x = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32)
data = jaxsvm.dataset(x, np.sign(x[:, 0]))
print("ready", flush=True), sys.stdin.readline()
try:
    key = jax.random.key(int(sys.argv[2]))
    run = jaxsvm.fit(jaxsvm.pegasos(0.1), data, key, steps=300, every=1, save=sys.argv[1])
    print("saved", int(run.state.step))
except jaxsvm.SaveError as error:
    print(error)
"""


@pytest.mark.long
def test_two_processes_that_save_to_one_file(tmp_path):
    path, pipe = tmp_path / "run.npz", subprocess.PIPE
    command = [sys.executable, "-W", "ignore", "-c", RACING, str(path)]
    runs = [
        subprocess.Popen([*command, str(k)], stdin=pipe, stdout=pipe, text=True) for k in range(2)
    ]
    assert [run.stdout.readline() for run in runs] == ["ready\n"] * 2
    for run in runs:
        run.stdin.write("\n")
        run.stdin.flush()
    saved, failed = sorted(
        (run.communicate()[0] for run in runs), key=lambda text: "another run has written" in text
    )
    assert saved == "saved 300\n" and "another run has written" in failed
    assert int(models.load(path).step) == 300


# Programs of functions that are gone


def squares(x):
    return jnp.concatenate([x, x * x], axis=-1)


NEW_FUNCTIONS = {  # calls, each with a function of its own, and the names of compiled functions
    "probe": (
        lambda f: fit(jaxsvm.pegasos(0.1), DATA, KEY, steps=2, probe=lambda m: f(m.b)),
        ["run_chunk"],
    ),
    "kernel": (
        lambda f: fit(
            jaxsvm.decomposition(1.0, kernels.custom(lambda x, z: f(x @ z.T))), DATA, KEY, steps=2
        ),
        ["run_once"],
    ),
    "features": (
        lambda f: fit(
            jaxsvm.on_features(lambda x: f(squares(x)), jaxsvm.pegasos(0.1)), DATA, KEY, steps=2
        ),
        ["run_chunk", "begin", "conclude"],
    ),
    "stream": (
        lambda f: jaxsvm.stream(jaxsvm.pegasos(0.1), [DATA], KEY, probe=lambda m: f(m.b)),
        ["run_batches"],
    ),
}


@pytest.mark.long(but=1)
@pytest.mark.skipif(not os.path.exists("/proc/self/maps"), reason="maps are counted on Linux")
@pytest.mark.parametrize("name", NEW_FUNCTIONS)
def test_programs_of_functions_that_are_gone_are_released(monkeypatch, name):
    """Each holds maps of memory, of which Linux allows a process 65,530; those of the user's own
    functions stay."""
    call, compiled = NEW_FUNCTIONS[name]
    of_user = jax.jit(lambda x: x + 1)
    of_user(1.0)
    monkeypatch.setattr(program_cache, "_calls", itertools.repeat(256))
    monkeypatch.setattr(program_cache, "MOST_MAPS", 0)
    for _ in range(5):
        call(lambda value: 2 * value)
        home = importlib.import_module("jaxsvm.loops.streaming") if name == "stream" else loops
        sizes = [getattr(home, function)._cache_size() for function in compiled]
        assert all(0 < size <= 3 for size in sizes), sizes
    assert of_user._cache_size() == 1


def test_programs_are_kept_as_long_as_they_are_few(monkeypatch):
    monkeypatch.setattr(program_cache, "_calls", itertools.repeat(256))
    monkeypatch.setattr(program_cache, "MOST_MAPS", 10**6)
    before = [fit(WHOLE, DATA, KEY, steps=3) and loops.run_chunk._cache_size() for _ in range(3)]
    assert before[0] == before[2] > 0
    monkeypatch.setattr(program_cache, "_calls", itertools.count(1))
    monkeypatch.setattr(program_cache, "MOST_MAPS", 0)
    fit(WHOLE, DATA, KEY, steps=3)
    assert loops.run_chunk._cache_size() == before[0]


def test_a_save_error_can_be_pickled():
    error = pickle.loads(pickle.dumps(jaxsvm.SaveError("no space", {"w": 1})))
    assert str(error) == "no space" and error.run == {"w": 1}


class Unknown(NamedTuple):
    """A state that nobody registered."""

    t: int


def test_a_state_that_no_file_can_hold_is_refused_before_the_first_step(tmp_path, monkeypatch):
    solver = plain(
        lambda key, data: Unknown(jnp.zeros(())),
        lambda state, batch: 1 / 0,
        lambda state, data=None: 1 / 0,
    )
    monkeypatch.setattr(
        loops, "run_chunk", lambda *args, **kwargs: pytest.fail("a piece was worked out")
    )
    with pytest.raises(ValueError, match="cannot save Unknown.*jaxsvm.register"):
        fit(solver, DATA, KEY, steps=8, every=4, save=tmp_path / "run.npz")


def test_a_pipe_or_a_folder_is_refused_before_the_first_step(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="pipe is a pipe, a device or a socket"):
        fit(WHOLE, DATA, KEY, steps=8, every=4, save=tmp_path / "pipe")
    with pytest.raises(IsADirectoryError, match="is a folder, expected the name of a file"):
        fit(WHOLE, DATA, KEY, steps=8, every=4, save=tmp_path)


def interrupt_at(call, original):
    calls = []

    def patched(*args, **kwargs):
        calls.append(None)
        if len(calls) == call:
            raise KeyboardInterrupt
        return original(*args, **kwargs)

    patched.eval_shape = getattr(original, "eval_shape", None)
    return patched


def interrupt(monkeypatch, call):
    """Ctrl-C in this call of the program, each of which makes one chunk."""
    monkeypatch.setattr(loops, "run_chunk", interrupt_at(call, loops.run_chunk))


@pytest.mark.parametrize(("call", "step"), [(1, 0), (2, 4), (3, 8)])
def test_ctrl_c_within_a_piece_returns_what_was_reached(call, step, monkeypatch):
    interrupt(monkeypatch, call)
    run = fit(WHOLE, DATA, KEY, steps=30, every=4, on_interrupt="return")
    monkeypatch.undo()
    assert run.reason == "interrupted" and run.status.startswith("interrupted: ")
    assert int(run.state.step) == step and float(run.model.w[0]) == step
    assert run.info.step.tolist() == list(range(4, step + 1, 4))
    same(
        fit(WHOLE, DATA, steps=12 - step, every=4, state=run.state).state,
        fit(WHOLE, DATA, KEY, steps=12, every=4).state,
    )


def test_ctrl_c_within_save_returns_what_was_reached(tmp_path, monkeypatch):
    monkeypatch.setattr(models, "save", interrupt_at(2, lambda *args: None))
    run = fit(WHOLE, DATA, KEY, steps=30, every=4, save=tmp_path / "run.npz", on_interrupt="return")
    assert int(run.state.step) == 8
    assert run.info.step.tolist() == [4, 8]
    assert run.status == "interrupted: stopped after 8 steps; residual 2.0e+00"


@pytest.mark.parametrize(("call", "saved"), [(1, 0), (3, 2)])
def test_a_state_that_is_in_the_file_is_not_written_again(call, saved, tmp_path, monkeypatch):
    """After Ctrl-C between saves; before the first of them an older file stays as it is."""
    path, writes, save = tmp_path / "run.npz", [], models.save
    path.write_bytes(b"of an earlier run")
    monkeypatch.setattr(models, "save", lambda *args: writes.append(args) or save(*args))
    interrupt(monkeypatch, call)
    run = fit(WHOLE, DATA, KEY, steps=30, every=4, save=path, on_interrupt="return")
    assert run.reason == "interrupted" and len(writes) == saved
    if saved:
        same(models.load(path), run.state)
    else:
        assert path.read_bytes() == b"of an earlier run"


def test_ctrl_c_just_before_a_save_comes_after_it(tmp_path, monkeypatch):
    """The file holds the run that is returned, and the curve its last row."""
    path, save = tmp_path / "run.npz", saving.Saver.save

    def interrupted(saver, state):
        if int(state.step) == 8:
            signal.raise_signal(signal.SIGINT)
        save(saver, state)

    monkeypatch.setattr(saving.Saver, "save", interrupted)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        run = fit(WHOLE, DATA, KEY, steps=30, every=4, save=path, on_interrupt="return")
    finally:
        signal.signal(signal.SIGINT, before)
    assert int(run.state.step) == 8 and run.info.step.tolist() == [4, 8]
    same(models.load(path), run.state)


def test_ctrl_c_ends_a_script_with_the_run_in_the_exception(monkeypatch):
    interrupt(monkeypatch, 3)
    with pytest.raises(
        KeyboardInterrupt, match="interrupted: stopped after 8 steps.*field run of this exception"
    ) as caught:
        fit(WHOLE, DATA, KEY, steps=30, every=4)
    monkeypatch.undo()
    assert type(caught.value) is KeyboardInterrupt, (
        "Python ends with the signal for this very class only"
    )
    run = caught.value.run
    assert run.reason == "interrupted" and run.info.step.tolist() == [4, 8]
    same(run.state, fit(WHOLE, DATA, KEY, steps=8, every=4).state)
    with pytest.raises(
        ValueError, match="on_interrupt must be one of 'raise', 'return', got 'stop'"
    ):
        fit(WHOLE, DATA, KEY, steps=4, on_interrupt="stop")


def test_a_second_ctrl_c_does_not_lose_the_run(monkeypatch):
    """It comes while the model of the interrupted run is worked out."""
    original = loops.conclude

    def conclude(*args):
        signal.raise_signal(signal.SIGINT)
        return original(*args)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        interrupt(monkeypatch, 2)
        monkeypatch.setattr(loops, "conclude", conclude)
        with pytest.raises(KeyboardInterrupt) as caught:
            fit(WHOLE, DATA, KEY, steps=30, every=4)
        assert (
            int(caught.value.run.state.step) == 4
            and signal.getsignal(signal.SIGINT) is signal.default_int_handler
        )
    finally:
        signal.signal(signal.SIGINT, before)


INTERRUPTED = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
import jax, jaxsvm
data = jaxsvm.dataset([[1.0], [-1.0]], [1, -1])
options = dict(steps=2**30, every=100, save=sys.argv[1]) | eval(sys.argv[2])
run = jaxsvm.fit(jaxsvm.pegasos(0.1), data, jax.random.key(0), **options)
print("goes on", run.reason, int(run.state.step))
"""


@pytest.mark.long
@pytest.mark.parametrize("how", ["raise", "return"])
def test_sigint_in_a_script(tmp_path, how):
    """By default the process ends as any Python process does; it goes on only if it asks for
    that."""
    path = tmp_path / "run.npz"
    options = "{}" if how == "raise" else "{'on_interrupt': 'return'}"
    child = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED, str(path), options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 60
    while not path.exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=60)
    step = int(models.load(path).step)
    assert step > 0
    if how == "return":
        assert child.returncode == 0 and out.split() == ["goes", "on", "interrupted", str(step)]
    else:
        assert child.returncode == -signal.SIGINT and not out
        assert f"KeyboardInterrupt: interrupted: stopped after {step} steps" in err


def test_progress(capsys):
    fit(WHOLE, DATA, KEY, steps=30, every=4, progress=True)
    out, err = capsys.readouterr()
    assert out == ""
    last = err.rstrip("\n").split("\r")[-1]
    assert re.match(r"\[#{24}\] 30/30 steps, loss 28\.5, residual -20, 0 s left", last), err
    assert err.endswith("\n")
    fit(WHOLE, DATA, KEY, steps=30, every=4)
    assert capsys.readouterr() == ("", "")


def test_progress_is_shown_after_every_chunk(monkeypatch):
    """Also where one call makes several chunks otherwise."""
    shown = []

    class Bar(loops.Bar):
        def show(self, count, note=""):
            shown.append(count)

    monkeypatch.setattr(loops, "Bar", Bar)
    fit(jaxsvm.sdca(1.0), DATA, KEY, steps=30, every=4, progress=True)
    assert shown == [4, 8, 12, 16, 20, 24, 28, 30]


def test_progress_of_an_interrupted_run_ends_its_line(capsys, monkeypatch):
    interrupt(monkeypatch, 2)
    with pytest.raises(KeyboardInterrupt):
        fit(WHOLE, DATA, KEY, steps=30, every=4, progress=True)
    err = capsys.readouterr().err
    assert "4/30 steps" in err and err.endswith("\n")


# Inside transformations


@pytest.mark.long
def test_a_batch_of_runs():
    lams = jnp.array([0.1, 1.0, 10.0])
    runs = jax.vmap(lambda lam: fit(jaxsvm.pegasos(lam), DATA, KEY, steps=10, every=4))(lams)
    assert runs.model.w.shape == (3, 1) and runs.info.step.shape == (3, 3)
    assert runs.status == "3 runs, 0 converged, after 10 to 10 steps"
    assert runs.finite and not runs.converged and runs.evals == 30
    broken = runs._replace(model=jax.tree.map(lambda a: a.at[1].set(jnp.nan), runs.model))
    assert (
        broken.status
        == "3 runs, 0 converged, after 10 to 10 steps; some hold numbers that are not finite"
    )
    assert not broken.finite


# What became of a run


def ended(w=1.0, step=5, done=False, residual=0.25, tol=np.nan, rows=2, evals=3):
    """A Fit made by hand."""
    column = lambda value: jnp.full(rows, value, jnp.float32)
    curve = Curve(
        jnp.full(rows, step, jnp.int32), column(0), column(residual), column(1), column(evals), None
    )
    run = RunState((), (), jnp.int32(step), jnp.array(done))
    return Fit(
        Linear(jnp.full(2, w, jnp.float32), jnp.zeros(()), "none"), run, curve, jnp.float32(tol)
    )


@pytest.mark.parametrize("w", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("done", [True, False])
def test_a_run_that_is_not_finite(w, done):
    run = ended(w=w, done=done, tol=1.0)
    assert not run.finite
    assert run.status.startswith(
        "the model is not finite after 5 steps: look at the scale of the data and at the step size"
    )


@pytest.mark.long
def test_decision_values_that_are_not_finite_are_no_finite_run():
    """The coefficients are finite, what is predicted is not: so say `finite` and `status`, inside
    transformations, too."""
    run = ended()._replace(values_finite=jnp.array(False))
    assert not run.finite
    assert run.status.startswith(
        "the decision values of the model, or its losses, are not finite after 5 "
        "steps: look at the scale of the data"
    )
    nowhere = kernels.custom(lambda x, z: jnp.full((x.shape[0], z.shape[0]), jnp.nan, x.dtype))
    # for which a score that is not a number is no mistake: its coefficients stay 0
    perceptron = jaxsvm.perceptron(nowhere)
    # outside this is no kernel
    run = jax.jit(lambda data: fit(perceptron, data, KEY, steps=4, every=4))(DATA)
    assert np.all(np.isfinite(run.model.coef)) and np.isnan(run.model(DATA.x)).all()
    assert not run.finite and "decision values" in run.status
    several = jax.vmap(lambda lam: fit(jaxsvm.kernel_pegasos(lam, nowhere), DATA, KEY, steps=4))(
        jnp.array([0.1, 1.0])
    )
    assert several.values_finite.tolist() == [False, False] and "not finite" in several.status
    half = DATA._replace(weight=DATA.weight.at[0].set(0), x=DATA.x.at[0].set(jnp.nan))
    assert fit(jaxsvm.pegasos(0.1), half, KEY, steps=4).finite, "a row of weight 0 is not looked at"
    with pytest.raises(ValueError, match="not finite"):
        jaxsvm.models.class_places(np.asarray(run.model(DATA.x)))


@pytest.mark.long
def test_the_reason_in_one_word():
    """Each word once, of a run that ended so; of several runs an array."""
    assert fit(WHOLE, DATA, KEY, steps=4).reason == "steps"
    assert fit(WHOLE, DATA, KEY, steps=40, every=4, seconds=1e-9).reason == "seconds"
    assert fit(WHOLE, DATA, KEY, steps=4, every=4, seconds=1e-9).reason == "steps", (
        "all steps were made"
    )
    assert fit(jaxsvm.sdca(1.0), DATA, KEY, steps=400, tol=1e-3).reason == "tolerance"
    assert ended(w=np.nan, done=True, tol=1.0).reason == "diverged"
    assert ended()._replace(values_finite=jnp.array(False)).reason == "diverged"
    assert ended(done=True)._replace(ended=jnp.int32(2)).reason == "interrupted"
    late = ended()._replace(ended=jnp.int32(1))
    assert (
        late.reason == "seconds"
        and late.status == "out of time: stopped after 5 steps; residual 2.5e-01"
    )
    several = jax.tree.map(lambda *a: jnp.stack(a), *(run._replace(ended=jnp.int32(0)) for run in (
        ended(), ended(done=True), ended(w=np.inf))))  # fmt: skip
    assert several.reason.tolist() == ["steps", "tolerance", "diverged"]
    assert several.status.startswith("3 runs, 1 converged")
    runs = jax.vmap(lambda lam: fit(jaxsvm.pegasos(lam), DATA, KEY, steps=4))(jnp.array([0.1, 1.0]))
    assert runs.reason.tolist() == ["steps", "steps"]
    assert (
        jax.jit(lambda: fit(jaxsvm.sdca(1.0), DATA, KEY, steps=400, tol=1e-3))().reason
        == "tolerance"
    )


def test_the_reason_is_kept_in_a_file(tmp_path):
    run = fit(WHOLE, DATA, KEY, steps=40, every=4, seconds=1e-9)
    models.save(tmp_path / "run.npz", run)
    assert models.load(tmp_path / "run.npz").reason == "seconds"


def test_a_stream_looks_at_decision_values():
    parts = lambda: iter([([[1e18]], [1])])
    run = jaxsvm.stream(jaxsvm.pegasos(1e-18, project=False), parts(), KEY)
    assert np.all(np.isfinite(run.model.w)) and not run.finite and "decision values" in run.status
    assert jaxsvm.stream(jaxsvm.pegasos(0.1), iter([([[1.0], [2.0]], [1, -1])]), KEY).finite


@pytest.mark.long
def test_a_run_is_judged_by_the_tolerance_of_its_solver():
    solver = jaxsvm.decomposition(1.0, kernels.linear(), tol=0.25)
    run = fit(solver, DATA, KEY, steps=3)
    assert int(run.state.step) == 3 and float(run.tol) == 0.25 and run.converged
    assert run.status.startswith("decomposition converged after 3 steps: tolerance 2.5e-01 met")
    inside = jax.jit(lambda data: fit(solver, data, KEY, steps=3))(DATA)
    assert inside.converged and inside.status == run.status
    short = fit(
        jaxsvm.decomposition(1.0, kernels.linear(), tol=1e-30, rounds=1, working_set=4),
        DATA,
        KEY,
        steps=1,
    )
    assert not short.converged and "tolerance 1.0e-30 not met" in short.status


@pytest.mark.long
def test_steps_end_where_the_counter_does():
    most = 2**31 - 1
    late = lambda run, step: run.state._replace(step=jnp.int32(step))
    run = fit(WHOLE, DATA, KEY, steps=1)
    sentence = (
        f"the run stands at step {most - 3}, 4 more would pass {most}, "
        f"the last that is counted: make fewer"
    )
    with pytest.raises(ValueError, match=sentence):
        fit(WHOLE, DATA, steps=4, state=late(run, most - 3))
    assert fit(WHOLE, DATA, steps=3, state=late(run, most - 3)).status.startswith(
        f"stopped after {most} steps"
    )
    with pytest.raises(ValueError, match="the run stands at step 0, 2147483648 more"):
        fit(WHOLE, DATA, KEY, steps=2**31)
    inside = jax.jit(lambda state: fit(WHOLE, DATA, steps=4, every=4, state=state))(
        late(run, most - 3)
    )
    assert int(inside.state.step) == most, "not below 0"
    parts = lambda: iter([([[1.0], [2.0]], [1, -1]), ([[1.0], [2.0]], [1, -1])])
    flow = jaxsvm.stream(jaxsvm.pegasos(0.1), parts(), KEY)
    with pytest.warns(RuntimeWarning, match=f"no step passes {most}: begin a new stream"):
        ended = jaxsvm.stream(
            jaxsvm.pegasos(0.1), parts(), state=flow.state._replace(step=jnp.int32(most - 3))
        )
    assert int(ended.state.step) == most - 1 and int(ended.state.chunks) == 3


@pytest.mark.parametrize(
    "step",
    [
        jnp.int32(-1),
        np.float32(2.5),
        jnp.float32(2),
        True,
        jnp.zeros(2, jnp.int32),
        np.int64(2**31),
    ],
)
def test_a_state_whose_step_is_no_count_is_refused(step):
    run = fit(WHOLE, DATA, KEY, steps=2)
    sentence = r"state\.step must be one whole number from 0 to 2147483647, got "
    with pytest.raises(ValueError, match=sentence):
        fit(WHOLE, DATA, steps=2, state=run.state._replace(step=step))
    flow = jaxsvm.stream(jaxsvm.pegasos(0.1), iter([([[1.0], [2.0]], [1, -1])]), KEY)
    with pytest.raises(ValueError, match=sentence):
        jaxsvm.stream(
            jaxsvm.pegasos(0.1), iter([([[1.0]], [1])]), state=flow.state._replace(step=step)
        )


@pytest.mark.parametrize("name", ["wolfe", "sbp", "scs", "expansion"])
def test_evaluations_of_a_step_on_many_rows(name):
    """More than an int32 holds. XLA leaves out all of the step that the count does not need."""
    n, rbf = 60_000, kernels.rbf(1.0)
    data = jaxsvm.types.Batch(
        jnp.zeros((n, 1)), jnp.ones(n), jnp.arange(n, dtype=jnp.int32), jnp.ones(n)
    )
    if name == "expansion":
        space = jaxsvm.spaces.expansion(rbf)
        assert int(np.asarray(jax.jit(lambda coef: space.evals(coef, data))(jnp.ones(n)))) == n * n
        return
    solver, want = {
        "wolfe": (jaxsvm.wolfe(0.1, rbf), n * n),
        "sbp": (jaxsvm.sbp(0.1, rbf, bound_every=1), n * n + n),
        "scs": (jaxsvm.scs(0.1, rbf, capacity=n, first=n // 2, growth=n // 2), n * n),
    }[name]
    batch = data._replace(index=jnp.zeros(1, jnp.int32)) if name == "sbp" else data
    evals = jax.jit(lambda key: solver.update(solver.init(key, data), batch)[1].evals)(KEY)
    assert float(evals) == pytest.approx(want, rel=1e-7)


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


def test_a_real_run_that_overflows():
    data = jaxsvm.dataset([[1.0], [-1.0]], [1, -1])
    data = data._replace(x=3e38 * data.x)  # which dataset refuses
    run = fit(jaxsvm.pegasos(1e-3, project=False), data, KEY, steps=4, every=4)
    assert not run.finite and "not finite after 4 steps" in run.status


# Probes that are none

ONE_NUMBER = "the probe must give one number to compare with tol, got "
VALUES, FAILS = (f"probe, the function <lambda>, {what}" for what in ("asks for the", "fails"))
VALUES += " values of its arguments"
PROBES = {
    "vector": (lambda m: m.w, ONE_NUMBER + "an array of float32 of shape .1,."),
    "pair": (lambda m: (m.b, m.b), ONE_NUMBER + "tuple"),
    "none": (lambda m: None, ONE_NUMBER + "NoneType"),
    "complex": (lambda m: jax.lax.complex(m.b, m.b), ONE_NUMBER + "an array of complex"),
    "string": (lambda m: "error", FAILS + ", expected a function of the model to arrays"),
    "float": (lambda m: float(m.b), VALUES),
    "if": (lambda m: m.b if m.b > 0 else 0, VALUES),
    "numpy": (lambda m: np.linalg.norm(m.w), VALUES),
    "attribute": (lambda m: m.weights, FAILS + ".*no attribute 'weights'"),
    "arguments": (lambda m, data: m.b, FAILS + ".*missing 1 required .* 'data'"),
    "columns": (lambda m: m(jnp.ones((2, 7))).sum(), FAILS + ".*must have 1 columns"),
}


@pytest.mark.parametrize("name", PROBES)
def test_a_probe_that_is_none_is_named(name):
    probe, message = PROBES[name]
    with pytest.raises((TypeError, ValueError), match=message):
        fit(jaxsvm.pegasos(0.1), DATA, KEY, steps=2, probe=probe, tol=0.1)


def test_a_probe_of_a_stream_is_named():
    with pytest.raises(TypeError, match="probe, the function <lambda>, asks for the values"):
        jaxsvm.stream(jaxsvm.pegasos(0.1), [DATA], KEY, probe=lambda m: float(m.b))


@pytest.mark.long
def test_probes_may_give_any_tree_of_arrays_and_one_number_with_tol():
    tree = lambda m: {"w": m.w, "one": 1, "key": KEY, "none": None}
    run = fit(jaxsvm.pegasos(0.1), DATA, KEY, steps=4, every=2, probe=tree)
    assert run.info.probe["w"].shape == (2, 1) and run.info.probe["one"].tolist() == [1, 1]
    assert fit(
        jaxsvm.pegasos(0.1), DATA, KEY, steps=4, every=2, probe=lambda m: 0, tol=0.1
    ).converged
    with pytest.raises(
        ValueError, match="^the model gives one value a row, .* hold class numbers"
    ):  # its own words
        many = jaxsvm.dataset([[1.0], [2.0], [3.0]], [0, 1, 2], task="multiclass")
        unnamed = many._replace(classes=None)
        fit(jaxsvm.pegasos(0.1), DATA, KEY, steps=2, probe=jaxsvm.error_on(unnamed))


# Rows that do not exist, and weights that are none


@jaxsvm.node
class draws_of(Sampler):
    """A sampler that draws one row, in every step."""

    row: int

    def init(self, key, data):
        return ()

    def draw(self, s, t, count):
        return jnp.full((count, 1), self.row, jnp.int32)


FOUR = jaxsvm.dataset([[1.0], [-1.0], [2.0], [-2.0]], [1, -1, 1, -1])


@pytest.mark.long(but=1)
@pytest.mark.parametrize("row", [4, 1000, -5])
def test_draws_of_rows_that_do_not_exist_are_refused_and_read_no_other_row(row):
    with pytest.raises(ValueError, match=f"drew row {row}, expected row numbers from 0 to 3"):
        fit(jaxsvm.pegasos(0.1), FOUR, KEY, steps=6, every=3, sampler=draws_of(row))
    run = jax.jit(
        lambda key: fit(jaxsvm.pegasos(0.1), FOUR, key, steps=6, every=3, sampler=draws_of(row))
    )(KEY)
    assert (
        not run.model.w.any()
        and not run.finite
        and "row numbers that the sampler draws" in run.status
    )


WHOLE_NUMBER = " must be a whole number of at least 1, got "
SAMPLERS = [  # the method, a function of another form, what the sentence says of it
    ("draw", lambda s, t, count: jnp.zeros((count, 1)), " must give integers .*an array of float"),
    ("draw", lambda s, t, count: jnp.zeros(count, jnp.int32),
     r" must give integers of shape \(256, 1\)"),
    ("draw", lambda s, t, count: jnp.zeros((count, 2), jnp.int32),
     r" .*got an array of int32 of shape \(256, 2\)"),
    ("draw", lambda s, t, count: jnp.zeros((1, 1), jnp.int32),
     r" .*got an array of int32 of shape \(1, 1\)"),
    ("draw", lambda s, t, count: jnp.full((count, 1), 1 if t > 0 else 2),
     ", .*asks for the values"),
    ("weight", lambda data: jnp.ones(3), r" must give a number for each row, of shape \(4,\)"),
    ("weight", lambda data: data.weights, ", .*no attribute 'weights'"),
    ("rows", lambda n: n / 8, WHOLE_NUMBER + "0.5"),
    ("period", lambda n: 0, WHOLE_NUMBER + "0"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "method", "message"), SAMPLERS)
def test_a_sampler_with_a_function_of_another_form_is_named(name, method, message):
    wrong = jaxsvm.node(type(f"wrong_{name}", (draws_of,), {name: staticmethod(method)}))
    with pytest.raises((TypeError, ValueError), match=f"^{name} of the sampler{message}"):
        fit(jaxsvm.pegasos(0.1), FOUR, KEY, steps=6, every=3, sampler=wrong(1))


def test_draws_of_padding_are_none_of_another_row():
    run = fit(jaxsvm.pegasos(0.1), FOUR, KEY, steps=6, every=3, sampler=draws_of(-1))
    assert not run.model.w.any() and run.finite


@pytest.mark.long
@pytest.mark.parametrize(
    "solver",
    [
        jaxsvm.sdca(1.0),
        jaxsvm.kernel_pegasos(0.1, jaxsvm.kernels.rbf(1.0)),
        jaxsvm.lasvm(1.0, jaxsvm.kernels.rbf(1.0)),
    ],
)
def test_no_solver_takes_draws_of_rows_that_do_not_exist(solver):
    with pytest.raises(ValueError, match="drew row 4"):
        fit(solver, FOUR, KEY, steps=6, every=3, sampler=draws_of(4))


def test_take_inside_a_transformation_gives_padding_for_rows_that_do_not_exist():
    rows = jax.jit(lambda index: jaxsvm.take(FOUR, index))(jnp.array([1, 4, -1, -7, 2**31 - 1]))
    assert rows.weight.tolist() == [1, 0, 0, 0, 0] and rows.index.tolist() == [1, -1, -1, -1, -1]


BAD_WEIGHTS = {
    "nan": [1, np.nan, 1, 1],
    "inf": [1, 1, np.inf, 1],
    "negative": [1, 1, 1, -1],
    "zero": [0, 0, 0, 0],
}


def refused_weights(name):
    some = "finite numbers of at least 0, got .* for row"
    return pytest.raises(ValueError, match="positive weight" if name == "zero" else some)


@pytest.mark.long(but=1)
@pytest.mark.parametrize("name", BAD_WEIGHTS)
def test_weights_that_are_none_are_refused_and_no_run_of_them_is_finite(name):
    data = FOUR._replace(weight=jnp.asarray(BAD_WEIGHTS[name], jnp.float32))
    with refused_weights(name):
        fit(jaxsvm.pegasos(0.1), data, KEY, steps=6, every=3)
    run = jax.jit(lambda data: fit(jaxsvm.pegasos(0.1), data, KEY, steps=6, every=3))(data)
    assert not run.finite and run.reason == "diverged"


WEIGHT_READERS = {
    "error_on": jaxsvm.error_on,
    "risk_on": jaxsvm.risk_on,
    "certificate": lambda data: jaxsvm.certificate(Linear(jnp.ones(1), jnp.zeros(())), data, 0.1),
    "select": lambda data: jaxsvm.select(
        lambda C: jaxsvm.decomposition(C, kernels.rbf(1.0)),
        data,
        KEY,
        C=[1.0, 2.0],
        folds=2,
        progress=False,
    ),
    "ridge_path": jaxsvm.ridge_path,
}


@pytest.mark.parametrize("reader", WEIGHT_READERS)
@pytest.mark.parametrize("name", BAD_WEIGHTS)
def test_weights_that_are_none_are_refused_by_what_reads_them(name, reader):
    data = FOUR._replace(weight=jnp.asarray(BAD_WEIGHTS[name], jnp.float32))
    with refused_weights(name):
        WEIGHT_READERS[reader](data)


def test_a_run_of_values_that_are_not_finite_has_not_converged():
    run = fit(jaxsvm.decomposition(1.0, kernels.rbf(1.0)), FOUR, KEY)
    assert run.converged
    assert not run._replace(values_finite=jnp.bool_(False)).converged
    assert not run._replace(
        model=jax.tree.map(
            lambda a: a * np.float32(np.nan) if a.dtype == np.float32 else a, run.model
        )
    ).converged
    two = jax.tree.map(lambda a: jnp.stack([a, a]), run)
    assert two.converged and not two._replace(values_finite=jnp.array([True, False])).converged


@pytest.mark.long
@pytest.mark.parametrize("name", BAD_WEIGHTS)
def test_converged_implies_finite(name):
    data = FOUR._replace(weight=jnp.asarray(BAD_WEIGHTS[name], jnp.float32))
    solver = jaxsvm.decomposition(1.0, jaxsvm.kernels.rbf(1.0))
    run = jax.jit(lambda data: fit(solver, data, KEY))(data)
    assert not run.converged and not run.finite


@pytest.mark.long
def test_a_run_does_not_go_on_in_another_precision():
    solver = jaxsvm.pegasos(0.1)
    single = fit(solver, FOUR, KEY, steps=6, every=3)
    with jax.enable_x64(True):
        wide = jaxsvm.dataset(np.array([[1.0], [-1.0], [2.0], [-2.0]]), [1, -1, 1, -1])
        double = fit(solver, wide, KEY, steps=6, every=3)
        with pytest.raises(
            ValueError, match="state holds numbers of float32, and this run computes in float64"
        ):
            fit(solver, wide, steps=6, every=3, state=single.state)
    with pytest.raises(
        ValueError, match="state holds numbers of float64, and this run computes in float32"
    ):
        fit(solver, FOUR, steps=6, every=3, state=double.state)


@pytest.mark.parametrize(
    "tx",
    [
        optax.lbfgs(),
        optax.polyak_sgd(),
        optax.chain(optax.sgd(1.0), optax.scale_by_backtracking_linesearch(5)),
    ],
)
def test_optimisers_that_need_values_are_refused_in_a_sentence(tx):
    solver = jaxsvm.gradient(jaxsvm.losses.hinge, tx)
    with pytest.raises(TypeError, match="tx must be a chain of gradients alone"):
        jax.eval_shape(lambda: solver.update(solver.init(KEY, FOUR), FOUR))


@pytest.mark.long
@pytest.mark.parametrize("name", ["rbg", "unsafe_rbg"])
def test_runs_and_maps_under_other_generators(name):
    with jax.default_prng_impl(name):
        key, rbf = jax.random.key(0), jaxsvm.kernels.rbf(1.0)
        assert fit(jaxsvm.bsgd(0.1, rbf, budget=3), FOUR, key, steps=6).finite
        assert fit(jaxsvm.sdca(1.0), FOUR, key, steps=6, sampler=jaxsvm.samplers.acf()).finite
        assert np.isfinite(jaxsvm.features.fourier(key, rbf, dim=1, features=4)(FOUR.x)).all()
        assert np.isfinite(jaxsvm.features.nystrom(key, rbf, FOUR.x, landmarks=2)(FOUR.x)).all()


def test_a_residual_without_end_is_told():
    assert ended(residual=np.inf).status == "stopped after 5 steps; residual inf"


def test_finite_looks_at_numbers_alone():
    run = ended()
    assert run.finite and ended(w=3e38).finite
    mixed = {"k": jax.random.key(0), "i": jnp.arange(2), "b": jnp.ones(2, jnp.bfloat16)}
    assert run._replace(model=mixed).finite
    assert not run._replace(model={**mixed, "b": jnp.array([1, jnp.inf], jnp.bfloat16)}).finite


def test_fits_are_pytrees():
    run = ended()
    assert jax.tree.unflatten(*reversed(jax.tree.flatten(run))).status == run.status
    assert ended(evals=2**40, rows=3).evals == 3 * 2**40


# Plain solvers, plain probes, samplers that adapt


def test_all_steps_are_made_of_more_rows_than_are_drawn_at_once():
    run = fit(WHOLE, DATA, KEY, steps=6, every=3, sampler=samplers.uniform(2**16))
    assert [float(run.model.w[0]), int(run.state.step)] == [6, 6]


def test_plain_solvers_are_compiled_once():
    before = loops.run_chunk._cache_size()
    solver = counter()
    for seed in range(3):
        fit(solver, DATA, jax.random.key(seed), steps=8, every=4, probe=minus_t)
    assert loops.run_chunk._cache_size() == before + 1


@jaxsvm.node
class adaptive(Sampler):
    """Draws depend on all feedback of the periods before; the feedback is folded in one by one."""

    every: int

    def period(self, n):
        return self.every

    def init(self, key, data):
        zero = jnp.zeros((), jnp.uint32)
        return {
            "active": zero,
            "pending": zero,
            "seen": jnp.zeros((), jnp.int32),
            "crossed": jnp.zeros((), bool),
        }

    def draw(self, s, t, count):
        place = (t + jnp.arange(count, dtype=jnp.int32)).astype(jnp.uint32)
        mixed = (place + s["active"]) * jnp.uint32(2654435761)
        return ((mixed >> 16) % jnp.uint32(6)).astype(jnp.int32)[:, None]

    def feedback(self, s, index, progress):
        def one(s, row):
            made = row[0][0] >= 0
            pending = s["pending"] * jnp.uint32(31) + (row[0][0] + 2).astype(jnp.uint32)
            seen = s["seen"] + 1
            over = seen % self.every == 0
            new = {
                **s,
                "pending": pending,
                "seen": seen,
                "active": jnp.where(over, pending, s["active"]),
            }
            return jax.tree.map(lambda a, b: jnp.where(made, a, b), new, s), None

        after, _ = jax.lax.scan(one, s, (index, progress))
        crossed = s["seen"] // self.every != (after["seen"] - 1) // self.every
        return {**after, "crossed": after["crossed"] | crossed}


ADAPTIVE = adaptive(4)


@pytest.mark.parametrize(
    ("every", "steps"),
    [
        (3, [3, 4, 7, 8, 11]),
        (2, [2, 4, 6, 8, 10, 11]),
        (4, [4, 8, 11]),
        (100, [4, 8, 11]),
        (None, [4, 8, 11]),
    ],
)
def test_pieces_never_cross_a_period(every, steps):
    run = fit(WHOLE, DATA, KEY, steps=11, every=every, sampler=ADAPTIVE)
    assert run.info.step.tolist() == steps
    assert not run.state.sampler["crossed"] and int(run.state.sampler["seen"]) == 11
    same(run.state, fit(WHOLE, DATA, KEY, steps=11, every=4, sampler=ADAPTIVE).state)


def test_feedback_is_what_was_drawn():
    run = fit(WHOLE, DATA, KEY, steps=11, every=4, sampler=ADAPTIVE)
    assert int(run.state.sampler["active"]) != 0
    # The solver keeps the same trace of its rows as the sampler of the feedback.
    assert int(run.state.sampler["pending"]) == int(run.state.solver[1])


@pytest.mark.parametrize("cuts", [(3,), (4,), (1, 2, 9), (5, 6, 7, 8)])
def test_adaptive_runs_cut_anywhere_are_the_whole_run(cuts):
    whole = fit(WHOLE, DATA, KEY, steps=11, every=4, sampler=ADAPTIVE)
    run, stood, steps = None, 0, []
    for end in (*cuts, 11):
        key, state = (KEY, None) if run is None else (None, run.state)
        run = fit(WHOLE, DATA, key, steps=end - stood, every=4, state=state, sampler=ADAPTIVE)
        stood = end
        steps += run.info.step.tolist()
    same((run.state, run.model), (whole.state, whole.model))
    assert set(steps) >= {4, 8, 11} | set(cuts), "a piece ends at every period"


def test_adaptive_runs_inside():
    outside = fit(WHOLE, DATA, KEY, steps=11, every=2, sampler=ADAPTIVE)
    inside = jax.jit(lambda key: fit(WHOLE, DATA, key, steps=11, every=2, sampler=ADAPTIVE))(KEY)
    same(inside, outside)
    with pytest.raises(
        ValueError,
        match=(
            "an adaptive sampler cannot go on from a state inside a transformation; go on outside"
        ),
    ):
        jax.jit(lambda run: fit(WHOLE, DATA, steps=1, state=run, sampler=ADAPTIVE))(outside.state)


@pytest.mark.long
def test_padding_is_handed_on():
    """-1 in a draw: a row of weight 0, whichever way the solver is fed."""
    seen = []

    def update(state, batch):
        assert batch.index.shape == (4,)
        live = (
            jnp.sum((batch.weight > 0).astype(jnp.int32))
            if not reads_all
            else jnp.sum((batch.index >= 0).astype(jnp.int32))
        )
        zero = jnp.zeros(())
        seen.append(batch.x.shape)
        return state + live, Info(zero, zero, jnp.zeros(4), batch.index, jnp.int32(0), jnp.int32(0))

    for reads_all in (False, True):
        solver = plain(
            lambda key, data: jnp.zeros((), jnp.int32),
            update,
            lambda s, data=None: s,
            samplers.epochs(4),
            reads_all,
            residual_of="data",
        )
        assert int(fit(solver, DATA, KEY, steps=4, every=4).model) == 12, "two passes of six rows"
        assert seen[-1] == ((6, 1) if reads_all else (4, 1))


# Before JAX starts


def fresh(code, **env):
    """Run code in a new process without XLA_FLAGS of this one."""
    kept = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=120,
        env={**kept, **env},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


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
    ).splitlines()
    assert out == [
        "False None",
        "False {}",
    ]


def test_a_state_of_another_solver_sampler_or_data_is_refused():
    run = fit(jaxsvm.sdca(1.0), DATA, KEY, steps=4)
    with pytest.raises(
        ValueError, match="state comes from another sampler, or data of other shapes: go on with"
    ):
        fit(jaxsvm.sdca(1.0), DATA, steps=4, state=run.state, sampler=samplers.shrinking(1))
    with pytest.raises(
        ValueError, match="state comes from another solver, or data of other shapes"
    ):
        fit(jaxsvm.pegasos(0.1), DATA, steps=4, state=run.state)
    fewer = jax.tree.map(lambda a: a[:-1], DATA)
    with pytest.raises(ValueError, match="data of other shapes"):
        fit(jaxsvm.sdca(1.0), fewer, steps=4, state=run.state)


# Targets that the solver would misread


@pytest.mark.long
@pytest.mark.parametrize("solver", [
    jaxsvm.pegasos(0.1), jaxsvm.sdca(1.0), jaxsvm.perceptron(), jaxsvm.averaged(jaxsvm.asset(0.1)),
    jaxsvm.kernel_pegasos(0.1, jaxsvm.kernels.rbf(1.0)),
], ids=repr)  # fmt: skip
def test_class_numbers_need_a_solver_for_them(solver):
    three = jaxsvm.dataset(np.eye(3), [0, 1, 2], task="multiclass")
    with pytest.raises(
        ValueError,
        match=(
            r"^this solver takes labels -1 and \+1, the data hold "
            r"0, 1, 2: for class numbers wrap"
        ),
    ):
        fit(solver, three, KEY, steps=1)
    real = jaxsvm.dataset(np.eye(3), [0.5, -1, 1], task="regression")
    with pytest.raises(ValueError, match="the data hold -1, 0.5, 1: for class numbers wrap it"):
        fit(solver, real, KEY, steps=1)
    with pytest.raises(
        ValueError, match="this solver takes class numbers 0 .. 1, the data hold 0, 1, 2"
    ):
        fit(jaxsvm.one_vs_rest(solver, classes=2), three, KEY, steps=1)
    fit(jaxsvm.one_vs_rest(solver, classes=3), three, KEY, steps=1)
    padded = three._replace(weight=jnp.array([0.0, 1, 0]), y=jnp.array([7.0, 1, 7]))
    fit(solver, padded, KEY, steps=1)  # what rows of weight 0 hold does not matter


@pytest.mark.parametrize("state", [None, 1.0, (), {}, jnp.ones(2)], ids=repr)
def test_a_step_from_what_is_no_state(state):
    data = jaxsvm.dataset([[1.0], [-1.0]], [1, -1])
    with pytest.raises(
        TypeError,
        match=r"^state must be that of solver.init\(key, data\), or of the step before: got ",
    ):
        jaxsvm.step(jaxsvm.pegasos(0.1), state, data)


@pytest.mark.parametrize(
    "wrong",
    [0, "0", jnp.ones(2), jnp.arange(2), jax.random.split(jax.random.key(0)), None],
    ids=repr,
)
def test_what_is_not_one_key(wrong):
    data = jaxsvm.dataset([[1.0], [-1.0]], [1, -1])
    rbf = jaxsvm.kernels.rbf(1.0)
    calls = [
        lambda: jaxsvm.data.split(wrong, data, 1, 1),
        lambda: jaxsvm.features.fourier(wrong, rbf, dim=1, features=2),
    ]
    if wrong is not None:
        calls += [
            lambda: jaxsvm.fit(jaxsvm.pegasos(0.1), data, wrong),
            lambda: jaxsvm.stream(jaxsvm.pegasos(0.1), [data], wrong),
        ]
        calls += [lambda: jaxsvm.features.nystrom(wrong, rbf, data.x, landmarks=1)]
    for call in calls:
        with pytest.raises(
            TypeError, match=r"^key must be one key, such as jax\.random\.key\(0\), got "
        ):
            call()


def test_a_bias_that_is_none():
    for name in "bottou_sgd asgd pegasos subgradient asset".split():
        for wrong in (0, None, "maybe", ["none"]):
            with pytest.raises(
                ValueError, match="bias must be one of 'none'|bias must be one of 'free'"
            ):
                getattr(jaxsvm, name)(0.1, bias=wrong)


def test_the_length_of_a_chunk():
    """A pass of at least 100 steps, 10 in a short one; at most 100 where a step reads all rows; a
    divisor if one is near."""
    cases = {(1000, 50, False): 100, (1000, 300, False): 250, (1000, 10, False): 10}
    cases |= {(1000, 11, False): 100, (1000, 300, True): 100, (7, 50, False): 7}
    cases |= {(0, 50, False): 1, (1009, 300, False): 300, (1009, 50, False): 100}
    cases |= {(100, 50, False): 100}
    assert {call: loops.default_every(*call) for call in cases} == cases
