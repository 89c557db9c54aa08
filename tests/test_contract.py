"""The promises of `jaxsvm.testing`, traces, programs, sweeps and resumed runs, for every solver."""

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
    KEY,
    NEW_ROWS,
    QUICK,
    STEPS,
    assert_close,
    assert_same_bits,
    batch_of,
    data_for,
    each,
    each_factory,
    each_numbered_factory,
    mark,
    over,
    run,
    types,
)
from hypothesis import example, given, settings
from hypothesis import strategies as st
from jax import lax

import jaxsvm
from jaxsvm import models, samplers
from jaxsvm.testing import check_solver

# the promises, by the function that authors call

# Of runs that have not converged: which of equal gains a step takes depends on the program, and on
# the numbers of the rows.
NOT_YET = {"nu_svc": ["vmap"], "lasvm": ["numbering"]}
MORE = (*NOT_YET, "nu_svr", "one_class", "smo", "interior_point", "cpsp")


@over([*ENGINES, *(case for case in FACTORIES if case.text.split("(")[0] in MORE)])
def test_check_solver_accepts_one_of_every_engine(case):
    number = case.number
    scaled = {} if number is None else {"factory": case.at, "numbers": (number, 0.75 * number)}
    skip = [] if case.derivatives else ["gradient"]
    skip += NOT_YET.get(case.text.split("(")[0], [])
    check_solver(case.at(), data_for(case), skip=skip, **scaled)


@pytest.mark.parametrize("start", ["init", "jit of init", "fit"])
@over(FACTORIES)
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


def scanned(solver, data, state, index):
    """The run as the docstring of `Solver` writes it."""
    if solver.needs_all_rows:
        return lax.scan(lambda s, i: solver.update(s, data._replace(index=i)), state, index)
    batches = jax.vmap(lambda i: jaxsvm.take(data, i))(index)
    return lax.scan(solver.update, state, batches)


@pytest.mark.long
@pytest.mark.parametrize(
    "case", [case for case in FACTORIES if "budget=" in case.text], ids=lambda case: case.text
)
def test_the_debugger_of_jax_finds_no_nan(case):
    """Empty slots of a budget divide 0 by 0 in no step."""
    with jax.debug_nans(True):
        assert run(case, 60).finite


@each
@pytest.mark.parametrize("b", [1, 3])
def test_update_keeps_the_types_of_the_state(case, b):
    solver, data = case.at(), data_for(case)
    state = jax.eval_shape(solver.init, KEY, data)
    after, info = jax.eval_shape(solver.update, state, batch_of(solver, data, STEPS[0, :b]))
    assert types(after) == types(state)
    assert not any(leaf.weak_type for leaf in jax.tree.leaves((state, info)))

    number, whole = (data.x.dtype, ()), (jnp.dtype("int32"), ())
    assert (
        (info.loss.dtype, info.loss.shape) == (info.residual.dtype, info.residual.shape) == number
    )
    assert (info.support.dtype, info.support.shape) == whole
    assert (info.evals.dtype.name, info.evals.shape) in {("int32", ()), ("float32", ())}
    assert info.index.dtype == jnp.int32 and info.progress.dtype == data.x.dtype
    assert info.index.shape == info.progress.shape and len(info.index.shape) == 1


@each_factory
def test_update_is_a_scan_body_traced_once_for_all_numbers(case):
    data, traces = data_for(case), []

    @functools.partial(jax.jit, compiler_options=QUICK)
    def loop(solver, state, index):
        traces.append(solver)
        return scanned(solver, data, state, index)

    solver = case.at()
    state, infos = loop(solver, solver.init(KEY, data), STEPS[:2])
    other = case.at(None if case.number is None else 2 * case.number)
    loop(other, other.init(KEY, data), STEPS[2:])
    assert len(traces) == 1
    assert int(np.asarray(infos.evals)[0]) > 0 and 0 < int(infos.support[-1]) <= data.y.shape[0]

    if case not in ENGINES:
        return
    # The same steps with nothing compiled. Compiled sums are added in another order: a few
    # roundings of float32.
    plain, losses_met = solver.init(KEY, data), []
    for index in STEPS[:2]:
        plain, info = solver.update(plain, batch_of(solver, data, index))
        losses_met.append(info.loss)
        any_row = (info.index >= -1) & (info.index < data.y.shape[0])
        assert bool(jnp.all(any_row if case.exact or case.own else jnp.isin(info.index, index)))
    assert_close(state, plain, 2e-5)
    np.testing.assert_allclose(infos.loss, jnp.stack(losses_met), rtol=2e-5)


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


@each_numbered_factory
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


# 5: sweeps


@each_numbered_factory
def test_vmap_is_a_loop(case):
    data, feed = data_for(case), case.feed()
    several = case.number * jnp.array([0.5, 1.0, 2.0])

    @functools.partial(jax.jit, compiler_options=QUICK)
    @jax.vmap
    def sweep(number):
        fit = jaxsvm.fit(case.at(number), data, KEY, steps=12, every=EVERY, sampler=feed)
        return fit.state.solver, fit.model(NEW_ROWS)

    loop = [run(case, 12, float(number)) for number in several]
    loop = [(fit.state.solver, fit.model(NEW_ROWS)) for fit in loop]
    swept, loop = sweep(several), jax.tree.map(lambda *a: jnp.stack(a), *loop)
    # the function is what an optimum determines: its coefficients only up to tol over the least
    # eigenvalue
    if case.exact:
        assert jax.tree.map(jnp.shape, swept) == jax.tree.map(jnp.shape, loop)
        swept, loop = swept[1], loop[1]
    # Batched products are added in another order, so the bits differ; 12 steps carry a few
    # roundings each.
    assert_close(swept, loop, case.spread)


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
        pytest.param(case, feed, marks=mark(case), id=f"{case.text}-{feed}")
        for feed, cases in (("single", FACTORIES), ("batches", ENGINES))
        for case in cases
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


@each_factory
def test_the_same_run_inside_jit(case):
    """The same steps in another program: each of 230 adds a few roundings."""
    inside = jax.jit(
        lambda solver, data, key: jaxsvm.fit(
            solver, data, key, steps=WHOLE, every=EVERY, sampler=case.feed()
        )
    )
    found, whole = inside(case.at(), data_for(case), KEY), whole_run(case, "single")
    assert jax.tree.structure(found) == jax.tree.structure(whole)
    # the function is what an optimum determines: its coefficients only up to tol over the least
    # eigenvalue
    if case.exact:
        found, whole = found.model(NEW_ROWS), whole.model(NEW_ROWS)
    assert_close(found, whole, 5e-5)


@each_factory
@pytest.mark.parametrize("platform", ["cuda", "tpu"])
def test_a_run_is_a_program_for_other_devices(case, platform):
    """It is lowered without such a device at hand, and calls nothing on the host."""
    fit = jax.jit(
        lambda solver, data, key: jaxsvm.fit(
            solver, data, key, steps=4, every=2, sampler=case.feed()
        )
    )
    text = fit.trace(case.at(), data_for(case), KEY).lower(lowering_platforms=(platform,)).as_text()
    assert "callback" not in text and "while" in text


@pytest.mark.long
@pytest.mark.parametrize("platform", ["cuda", "tpu"])
@pytest.mark.parametrize(
    "solver", [jaxsvm.pegasos(0.1), jaxsvm.sdca(1.0), jaxsvm.newton(0.1)], ids=str
)
def test_a_run_on_sparse_rows_is_a_program_for_other_devices(solver, platform):
    x = scipy.sparse.random(64, 50, 0.1, random_state=0, format="csr", dtype=np.float32)
    data = jaxsvm.dataset(x, np.resize([1, -1], 64))
    fit = jax.jit(lambda data, key: jaxsvm.fit(solver, data, key, steps=4, every=2))
    assert "callback" not in fit.trace(data, KEY).lower(lowering_platforms=(platform,)).as_text()


@each_factory
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
