"""The promises of `jaxsvm.testing`, programs, donated and resumed runs, for every solver."""

from __future__ import annotations

import contextlib
import functools
import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse
from cases import CASES, Case
from compiling import listen
from contract import (
    ENGINES,
    EVERY,
    FACTORIES,
    FIRST,
    KEY,
    NEW_ROWS,
    QUICKEST,
    STEPS,
    assert_close,
    assert_same_bits,
    batch_of,
    data_for,
    each_numbered_engine,
    mark,
    over,
    run,
)
from hypothesis import example, given, settings
from hypothesis import strategies as st

import jaxsvm
from jaxsvm import models, samplers
from jaxsvm.testing import check_solver

# the promises, by the function that authors call

# Of runs that have not converged: which of equal gains a step takes depends on the program, and on
# the numbers of the rows.
NOT_YET = {"nu_svc": ["vmap"], "lasvm": ["numbering"]}


@over(FACTORIES, QUICKEST[:2])
def test_every_solver_keeps_the_promises(case):
    number = case.number
    scaled = {} if number is None else {"factory": case.at, "numbers": (number, 0.75 * number)}
    # `test_derivatives_through_a_run` compares those of numbers with differences
    skip = [] if case.derivatives and number is None else ["gradient"]
    skip += NOT_YET.get(case.text.split("(")[0], [])
    check_solver(case.at(), data_for(case), skip=skip, **scaled)


@pytest.mark.parametrize(
    ("case", "start"),
    [
        pytest.param(case, start, marks=mark(case, FIRST), id=f"{case.text}-{start}")
        for start in ("init", "jit of init", "fit")
        for case in ENGINES
    ],
)
def test_states_can_be_donated(case, start):
    """No two leaves of a state share a buffer, and none is the caller's."""
    solver, data = case.at(), data_for(case)
    if start == "fit":
        state = run(case, 0).state.solver
    else:
        state = (jax.jit(solver.init) if start == "jit of init" else solver.init)(KEY, data)
    update = jax.jit(solver.update, donate_argnums=0)
    rows = jnp.arange(data.y.shape[0], dtype=jnp.int32)
    index = rows if solver.sampler is not None and solver.sampler.full_batch else rows[:1]
    batch = data._replace(index=index) if solver.needs_all_rows else jaxsvm.take(data, index)
    state, _ = update(jax.tree.map(jnp.asarray, state), batch)
    state, _ = update(state, batch)
    for leaf in jax.tree.leaves((data, state)):
        assert not leaf.is_deleted()


@pytest.mark.long
@pytest.mark.parametrize(
    "case", [case for case in ENGINES if "budget=" in case.text], ids=lambda case: case.text
)
def test_the_debugger_of_jax_finds_no_nan(case):
    """Empty slots of a budget divide 0 by 0 in no step."""
    with jax.debug_nans(True):
        assert run(case, 60).finite


@over(ENGINES, FIRST)
def test_steps_with_nothing_compiled_are_those_of_programs(case):
    """Compiled sums are added in another order: a few roundings of float32."""
    solver, data = case.at(), data_for(case)
    compiled = plain = solver.init(KEY, data)
    for index in STEPS[:2]:
        batch = batch_of(solver, data, index)
        compiled, _ = jaxsvm.step(solver, compiled, batch)
        plain, info = solver.update(plain, batch)
        any_row = (info.index >= -1) & (info.index < data.y.shape[0])
        assert bool(jnp.all(any_row if case.exact or case.own else jnp.isin(info.index, index)))
        assert int(info.evals) > 0
    assert 0 < int(info.support) <= data.y.shape[0]
    assert_close(compiled, plain, 2e-5)


# 4: compilation

_EVENTS = listen()


@contextlib.contextmanager
def programs():
    """Collects the functions traced and compiled in its body."""
    met, start = [], len(_EVENTS)
    yield met
    met += [
        event
        for event in _EVENTS[start:]
        if event.endswith(("jaxpr_trace_duration", "backend_compile_duration"))
    ]


@each_numbered_engine
def test_one_program_for_ten_numbers(case):
    data, compiled = data_for(case), []
    index = STEPS[0, :2]
    for number in case.number * np.linspace(1, 2, 10):
        with programs() as met:
            solver = case.at(number)
            state = run(case, 120, number).state.solver  # a whole piece and a shorter one
            jaxsvm.step(solver, state, batch_of(solver, data, index))
        compiled.append(met)
    assert not any(compiled[1:])


def test_compilation_is_noticed():
    with programs() as met:
        run(CASES[0], 4, every=2, probe=lambda model: model(NEW_ROWS).sum())
    assert any(event.endswith("backend_compile_duration") for event in met)


# 6: resuming

WHOLE = 230  # two pieces and 30 steps


def feed_of(case: Case, feed: str) -> jaxsvm.Sampler:
    """ "single": `Case.feed`. "batches": five rows a step, a padded step at the end of every
    pass."""
    return case.feed() if feed == "single" else samplers.epochs(5, shuffle=False)


@functools.cache
def whole_run(case: Case, feed: str) -> jaxsvm.Fit:
    return run(case, WHOLE, sampler=feed_of(case, feed))


@pytest.mark.parametrize(
    ("case", "feed"),
    [
        pytest.param(case, feed, marks=mark(case, FIRST), id=f"{case.text}-{feed}")
        for feed in ("single", "batches")
        for case in ENGINES
    ],
)
def test_a_run_cut_anywhere_equals_the_whole_run(case, feed):
    @settings(max_examples=5, derandomize=True, deadline=None, database=None)
    @given(st.integers(1, WHOLE - 1))
    @example(1)
    @example(EVERY)
    @example(WHOLE - 1)
    def check(cut):
        sampler = feed_of(case, feed)
        first = run(case, cut, sampler=sampler)
        second = run(case, WHOLE - cut, sampler=sampler, state=first.state)
        whole = whole_run(case, feed)
        assert_same_bits((second.state, second.model), (whole.state, whole.model))

    check()


def assert_other_devices_run(fit, *of) -> None:
    """It is lowered without such a device at hand, and calls nothing on the host."""
    text = fit.trace(*of).lower(lowering_platforms=("cuda", "tpu")).as_text()
    assert "callback" not in text and "while" in text


@over(ENGINES, FIRST)
def test_a_run_is_a_program_for_other_devices(case):
    fit = jax.jit(
        lambda solver, data, key: jaxsvm.fit(
            solver, data, key, steps=4, every=2, sampler=case.feed()
        )
    )
    assert_other_devices_run(fit, case.at(), data_for(case), KEY)


@pytest.mark.long
@pytest.mark.parametrize(
    "solver", [jaxsvm.pegasos(0.1), jaxsvm.sdca(1.0), jaxsvm.newton(0.1)], ids=str
)
def test_a_run_on_sparse_rows_is_a_program_for_other_devices(solver):
    x = scipy.sparse.random(64, 50, 0.1, random_state=0, format="csr", dtype=np.float32)
    data = jaxsvm.dataset(x, np.resize([1, -1], 64))
    fit = jax.jit(lambda data, key: jaxsvm.fit(solver, data, key, steps=4, every=2))
    assert_other_devices_run(fit, data, KEY)


@over(ENGINES)
def test_a_saved_run_goes_on_as_if_never_stopped(case, tmp_path):
    first = run(case, 70)
    models.save(tmp_path / "run", first.state)
    state = models.load(tmp_path / "run")
    assert_same_bits(state, first.state)
    second, whole = run(case, WHOLE - 70, state=state), whole_run(case, "single")
    assert_same_bits((second.state, second.model), (whole.state, whole.model))


@pytest.mark.long
def test_the_bits_are_the_same_as_users_compile():
    """conftest.py lets XLA compile quickly; a process without its flags looks at bits in the
    programs that users run."""
    tests = [
        f"{__file__}::test_a_saved_run_goes_on_as_if_never_stopped[{case.text}]" for case in ENGINES
    ]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-o", "addopts=", "-p", "no:cacheprovider", "-q", *tests],
        capture_output=True,
        text=True,
        timeout=1200,
        env=os.environ | {"XLA_FLAGS": "", "JAX_DISABLE_MOST_OPTIMIZATIONS": "0"},
    )
    assert done.returncode == 0, done.stdout
    assert f"{len(ENGINES)} passed" in done.stdout
