"""What every solver promises. A solver of your own joins by one line in `cases.CASES`.

The tests share one shape of data and one length of pieces, since nearly all of their time is
compilation.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import os
import pickle
import subprocess
import sys
import tempfile

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse
from cases import CASES, LAM, Case, D, gaussian, mean_loss, optimum, rows
from compiling import listen
from hypothesis import example, given, settings
from hypothesis import strategies as st
from jax import lax
from sklearn.base import clone

import jaxsvm
from jaxsvm import losses, models, samplers
from jaxsvm._node import cast
from jaxsvm.testing import check_solver

KEY = jax.random.key(3)
EVERY = 100  # steps of a piece in all runs outside transformations
NEW_ROWS = np.random.default_rng(11).normal(size=(6, D)).astype(np.float32)
# for programs that run once and whose bits are not looked at
QUICK = {"xla_backend_optimization_level": 0}
NUMBERED = [case for case in CASES if case.number is not None]

# The first case of every factory and kind of model, and of ranking: for tests that compile much and
# look at what options do
# not touch.
KIND_OF = lambda case: (case.text.split("(")[0], case.kernel, case.targets == "grades")
FACTORIES = list({KIND_OF(case): case for case in reversed(CASES)}.values())[::-1]
# One or two of every engine and kind of state.
KINDS = (
    "pegasos",
    "asset",
    "perceptron",
    "sdca",
    "decomposition",
    "bsgd",
    "bsca",
    "projectron",
    "sbp",
    "wolfe",
    "scs",
    "newton",
    "ocas",
)
ENGINES = [case for case in FACTORIES if case.text.split("(")[0] in KINDS]


# The others are long tests.
QUICKEST = ("pegasos(0.1)", "sdca(1.0, rbf(1.0))", "bsgd(0.1, rbf(1.0), budget=24)")


def mark(case):
    return () if case.text in QUICKEST else pytest.mark.long


def over(cases):
    return pytest.mark.parametrize(
        "case", [pytest.param(case, marks=mark(case), id=case.text) for case in cases]
    )


each, each_factory = over(CASES), over(FACTORIES)
each_numbered, each_numbered_factory = (
    over(NUMBERED),
    over([case for case in FACTORIES if case.number is not None]),
)
each_minimising = over([case for case in CASES if case.objective])


@functools.cache
def data_for(case: Case, kind: str = "plain", dtype: str = "float32") -> jaxsvm.Batch:
    with jax.ensure_compile_time_eval():  # a first call may come from inside a trace
        return rows(kind, case.targets).batch(dtype)


def run(case: Case, steps: int, number: float | None = None, **options) -> jaxsvm.Fit:
    """A run outside transformations on the plain data set."""
    options = {"data": data_for(case), "sampler": case.feed(), "every": EVERY} | options
    data = options.pop("data")
    return jaxsvm.fit(
        case.at(number), data, None if "state" in options else KEY, steps=steps, **options
    )


def numbers(tree) -> list[np.ndarray]:
    """The leaves as NumPy arrays, keys by their words."""
    is_key = lambda a: jnp.issubdtype(a.dtype, jax.dtypes.prng_key)
    return [np.asarray(jax.random.key_data(a) if is_key(a) else a) for a in jax.tree.leaves(tree)]


def assert_same_bits(a, b) -> None:
    assert jax.tree.structure(a) == jax.tree.structure(b)
    for one, other in zip(numbers(a), numbers(b), strict=True):
        assert (one.dtype, one.shape) == (other.dtype, other.shape)
        assert one.tobytes() == other.tobytes(), (one, other)


def assert_close(a, b, tolerance: float) -> None:
    """Equal structure, shapes and dtypes, and numbers within `tolerance`, absolutely near 0 and
    relatively above 1."""
    assert jax.tree.structure(a) == jax.tree.structure(b)
    for one, other in zip(numbers(a), numbers(b), strict=True):
        assert (one.dtype, one.shape) == (other.dtype, other.shape)
        if one.dtype == np.uint32 and one.shape == (6,):  # checksums, not known inside of jit
            continue
        np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance)


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


# 1, 2, 3: the scan body

# rows of four steps, one of them twice
STEPS = jnp.array([[5, 0, 17], [2, 2, 9], [0, 23, 1], [8, 5, 12]], jnp.int32)


def batch_of(solver, data, index):
    """What `update` is given for the rows `index`."""
    return data._replace(index=index) if solver.needs_all_rows else jaxsvm.take(data, index)


def scanned(solver, data, state, index):
    """The run as the docstring of `Solver` writes it."""
    if solver.needs_all_rows:
        return lax.scan(lambda s, i: solver.update(s, data._replace(index=i)), state, index)
    batches = jax.vmap(lambda i: jaxsvm.take(data, i))(index)
    return lax.scan(solver.update, state, batches)


def types(tree):
    return jax.tree.structure(tree), [
        (a.shape, a.dtype, a.weak_type) for a in jax.tree.leaves(tree)
    ]


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


# 7, 8: padding and weights


@each
def test_padding_rows_change_nothing(case):
    solver, data = case.at(), data_for(case)
    state = run(case, 20).state.solver
    short, index = jnp.array([5, 0], jnp.int32), jnp.array([5, -1, 0, -1], jnp.int32)
    padded = batch_of(solver, data, index)
    if not solver.needs_all_rows:  # rows of weight 0 may hold anything
        wild = index[:, None] < 0
        padded = padded._replace(
            x=jnp.where(wild, 50.0, padded.x), y=jnp.where(wild[:, 0], -padded.y, padded.y)
        )
    plain, info = jaxsvm.step(solver, state, batch_of(solver, data, short))
    with_padding, padded_info = jaxsvm.step(solver, state, padded)
    if (
        case.exact
    ):  # what is drawn counts the steps, no more; of another number of rows another program
        assert_close((with_padding, padded_info), (plain, info), 1e-6)
        return
    if case.own:  # as many rows, but others
        assert_same_bits(
            (with_padding, padded_info),
            jaxsvm.step(solver, state, batch_of(solver, data, STEPS[0, :1].repeat(4))),
        )
        return
    # A sum with zeros in it is grouped in another way: one rounding of float32 or two.
    assert_close(with_padding, plain, 1e-6)
    assert_close(
        padded_info._replace(index=None, progress=None),
        info._replace(index=None, progress=None),
        1e-6,
    )
    np.testing.assert_allclose(
        padded_info.progress, [info.progress[0], 0, info.progress[1], 0], rtol=1e-5, atol=1e-6
    )
    assert padded_info.index.tolist() == index.tolist()


@over([case for case in CASES if case.copies])
def test_a_weight_is_a_number_of_copies(case):
    """`uniform` visits the same rows in the same order, so the runs are the same.

    Not where each row has a dual variable with a box of its own: there the optimum is the same, the
    run is not.
    """
    weighted, copied = data_for(case, "weighted"), rows("weighted", case.targets).copied().batch()
    sampler = samplers.uniform(1)
    if case.feed().full_batch:
        sampler = samplers.uniform(5)  # of a solver that is fed all rows any batch will do
    one = run(case, 130, data=weighted, sampler=sampler)
    other = run(case, 130, data=copied, sampler=sampler)
    assert not np.array_equal(one.model(NEW_ROWS), run(case, 130, sampler=sampler).model(NEW_ROWS))
    if case.kernel:  # copies share the coefficient of the row: sums of another order
        assert_close(one.model(NEW_ROWS), other.model(NEW_ROWS), 1e-5)
    elif case.sums:  # step sizes from sums over other rows: a few roundings, in each of 130 steps
        assert_close((one.state.solver, one.model), (other.state.solver, other.model), 1e-5)
    else:  # one program, given the same numbers at every step
        assert_same_bits((one.state.solver, one.model), (other.state.solver, other.model))


# 12: the optimum


def at_lam(case: Case, lam: float, kind: str) -> jaxsvm.Solver:
    """The solver of the problem whose regularisation is lam."""
    if case.objective == "C":
        return case.at(1 / (lam * rows(kind).weight.sum()))
    if case.objective == "radius":
        return case.at(optimum(kind, "labels", lam, case.loss, case.bias, case.kernel).norm)
    return case.at(lam)


def excess(case: Case, model, lam: float, kind: str, best) -> float:
    """(objective - minimum) / minimum."""
    data = rows(kind, case.targets)
    if case.objective == "radius":
        # inside the ball, but for roundings of |w|^2
        assert float(model.sqnorm()) <= best.norm**2 * (1 + 1e-5)
        return (
            mean_loss(case.loss, np.asarray(model(data.x.astype(np.float32))), data) / best.risk - 1
        )
    return (
        float(jaxsvm.objectives.primal(model, data_for(case, kind), lam, case.loss)) / best.value
        - 1
    )


@each_minimising
@pytest.mark.parametrize("kind", ["plain", "padded", "weighted"])
def test_reaches_the_optimum(case, kind):
    """Weight 0 is absence and weight k is k copies: the optimum is that of the rows written out."""
    best = optimum(kind, case.targets, LAM, case.loss, case.bias, case.kernel)
    fit = jaxsvm.fit(
        at_lam(case, LAM, kind),
        data_for(case, kind),
        KEY,
        steps=6000,
        every=EVERY,
        sampler=case.feed(),
    )
    above = excess(case, fit.model, LAM, kind, best)
    # none is below the minimum, but for the rounding of a float32 model
    assert -1e-6 <= above <= case.excess


@pytest.mark.long
@pytest.mark.parametrize(
    "case",
    [c for c in CASES if c.objective and c.loss is losses.hinge and c.bias == "none"],
    ids=lambda case: case.text,
)
def test_strong_regularisation_has_a_closed_form(case):
    """For lam >= R^2 the optimum is w = mean(y phi) / lam: every margin is at most 1 there."""
    data = rows("weighted").copied()
    lam = 1.5
    product = gaussian if case.kernel else lambda x, z: x @ z.T
    mean = lambda x: product(x, data.x) @ data.y / len(data.y)
    square = float(np.mean(data.y * mean(data.x)))  # |mean(y phi)|^2
    best = optimum("weighted", "labels", lam, case.loss, case.bias, case.kernel)
    np.testing.assert_allclose(
        best, (1 - square / (2 * lam), square**0.5 / lam, 1 - square / lam), rtol=1e-6
    )
    solver = at_lam(case, lam, "weighted")
    fit = jaxsvm.fit(
        solver, data_for(case, "weighted"), KEY, steps=6000, every=EVERY, sampler=case.feed()
    )
    above = excess(case, fit.model, lam, "weighted", best)
    assert -1e-6 <= above <= case.excess
    if case.objective != "radius":  # lam/2 |w - w*|^2 <= P(w) - P(w*), and |f - f*| <= |x| |w - w*|
        away = np.sqrt(2 * case.excess * best.value / lam)
        reach = 1 if case.kernel else np.linalg.norm(NEW_ROWS, axis=1)
        assert np.all(
            np.abs(np.asarray(fit.model(NEW_ROWS)) - mean(NEW_ROWS) / lam) <= reach * away
        )


# 9: dtypes


def floats(tree) -> set:
    return {a.dtype.name for a in jax.tree.leaves(tree) if jnp.issubdtype(a.dtype, jnp.floating)}


@each
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_everything_keeps_the_dtype_of_the_rows(case, dtype, x64):
    """A number of 64 bits does not widen rows of 32, nor a number of 32 bits narrow rows of 64."""
    data = rows("plain", case.targets).batch(dtype)
    number = (
        None
        if case.number is None
        else jnp.asarray(case.number, "float64" if dtype == "float32" else "float32")
    )
    fit = jax.eval_shape(
        lambda number, data: jaxsvm.fit(case.at(number), data, KEY, steps=3, every=3), number, data
    )
    assert floats(fit.state) | floats(fit.model) | floats(fit.info.loss) | floats(
        fit.info.residual
    ) == {dtype}
    state, info = jax.eval_shape(
        jaxsvm.step, case.at(number), fit.state.solver, batch_of(case.at(), data, STEPS[0])
    )
    assert types(state) == types(fit.state.solver) and floats(info) == {dtype}


@over(ENGINES)
def test_float64_is_float32_with_more_digits(case):
    single = run(case, 20)
    with jax.enable_x64(True):
        double = run(case, 20, data=data_for(case, dtype="float64"))
        values = double.model(NEW_ROWS.astype(float))
    assert floats(single.state) | floats(single.model) == {"float32"}
    assert floats(double.state) | floats(double.model) | floats(values) == {"float64"}
    # 20 steps, a few roundings of float32 each.
    np.testing.assert_allclose(single.model(NEW_ROWS), values, rtol=1e-4, atol=1e-4)


# 10: bad numbers


@each_numbered
def test_a_vector_of_numbers_is_refused(case):
    sentence = r"has shape \(2,\); sweep it with jax\.vmap"
    with pytest.raises(ValueError, match=sentence):
        case.at(case.number * jnp.ones(2))
    data, good, several = data_for(case), case.at(), jax.vmap(case.at)(case.number * jnp.ones(2))
    with pytest.raises(ValueError, match=sentence):
        jaxsvm.fit(several, data, KEY, steps=1)
    with pytest.raises(ValueError, match=sentence):
        jaxsvm.step(several, good.init(KEY, data), batch_of(good, data, STEPS[0]))


@each_numbered_factory
def test_a_number_that_is_none_makes_a_model_of_nan(case):
    """Known it is refused; traced no program may answer."""
    several, data = jnp.array([jnp.nan, -1.0, case.number]), data_for(case)
    with pytest.raises(ValueError, match="must be (a finite number|above 0)"):
        case.at(-1.0)
    value = lambda number: jnp.sum(
        jaxsvm.fit(case.at(number), data, KEY, steps=2, every=2, sampler=case.feed()).model(
            NEW_ROWS
        )
    )
    found = jax.jit(jax.vmap(value), compiler_options=QUICK)(several)
    assert np.isnan(found).tolist() == [True, True, False]


@each_factory
def test_no_frame_stands_between_an_update_and_the_method(case):
    """What a user reads where an error comes from their rows."""
    with pytest.raises(Exception) as caught:  # noqa: PT011  whatever a method says of no rows
        case.at().update(None, None)
    frames = [entry.frame.code for entry in caught.traceback if "/jaxsvm/" in str(entry.path)]
    assert frames[0].name == "update", frames


# 11: derivatives


SMOOTH = [case for case in NUMBERED if case.loss is not losses.hinge]
# numbers that a run is constant in, piece by piece: where it ends, which rows count, which step a
# search takes; the bias that is not there
FLAT = "tol rounds margin eta bias_rate reset m_L m_R eta1 eta2 gamma".split()


def smooth_score(case: Case, solver, **options):
    """A smooth function of the model that a run inside a transformation leads to."""
    data, new_rows = data_for(case, dtype="float64"), NEW_ROWS.astype(float)
    return jnp.sum(
        jnp.tanh(
            jaxsvm.fit(solver, data, KEY, every=5, sampler=case.feed(), **options).model(new_rows)
        )
    )


def ended(case: Case, steps: int) -> dict:
    """Options of a run of so many steps; derivatives of exact solvers are those of the optimum, so
    they go on to it."""
    return {"steps": 5000, "tol": case.tol} if case.exact else {"steps": steps}


def difference(case: Case, steps: int) -> tuple[float, float]:
    """The same outside: its value and its central difference."""
    data, new_rows = data_for(case, dtype="float64"), NEW_ROWS.astype(float)
    options = ended(case, steps)
    steps = options.pop("steps")
    outside = lambda number: float(
        jnp.sum(jnp.tanh(run(case, steps, number, data=data, **options).model(new_rows)))
    )
    h = 1e-6 * case.number
    return outside(case.number), (outside(case.number + h) - outside(case.number - h)) / (2 * h)


@over([case for case in FACTORIES if not case.derivatives])
def test_missing_derivatives_are_refused(case):
    score = lambda number: jnp.sum(
        jaxsvm.fit(case.at(number), data_for(case), KEY, steps=2, every=2).model(NEW_ROWS)
    )
    for derivative in (jax.grad(score), lambda number: jax.jvp(score, (number,), (number,))):
        with pytest.raises(TypeError, match="have no derivatives: take newton"):
            derivative(jnp.asarray(case.number))


def assert_slopes(found, expected, tolerance: float) -> None:
    assert np.all(np.isfinite(found))
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)


@over([case for case in NUMBERED if (case in FACTORIES or case in SMOOTH) and case.derivatives])
def test_derivatives_through_a_run(case, x64):
    """A run is a piecewise smooth function of its number; differences of one part in a million meet
    no kink here."""
    number = jnp.asarray(case.number)
    of_solver = lambda solver: smooth_score(case, solver, **ended(case, 10))
    # one derivative for each number of the solver and of the nodes in it
    solver, pull = jax.vjp(lambda number: cast(case.at(number), "float64"), number)
    value, slopes = jax.jit(jax.value_and_grad(of_solver), compiler_options=QUICK)(solver)
    reverse = value, pull(slopes)[0]
    # Central differences: h^2 of truncation and 1e-16 / h of rounding.
    assert_slopes(reverse, difference(case, 10), 1e-6)
    flat = {
        jax.tree_util.keystr(path).replace(".inner", "")[1:]
        for path, slope in jax.tree_util.tree_leaves_with_path(slopes)
        if not np.any(slope)
    }
    assert flat <= set(FLAT), flat
    if case not in ENGINES:
        return
    forward = jax.jit(
        lambda number: jax.jvp(lambda n: of_solver(case.at(n)), (number,), (jnp.ones(()),)),
        compiler_options=QUICK,
    )(number)
    assert_slopes(forward, reverse, 1e-10)


@over(
    [case for case in NUMBERED if case in ENGINES and not case.exact]
)  # which have a tolerance in the test above
def test_derivatives_through_a_run_with_tolerance(case, x64):
    """A tolerance that is never met changes nothing; one that is met at the first look leaves the
    first piece."""
    risk = jaxsvm.risk_on(data_for(case, dtype="float64"), case.loss)
    stopped = lambda number, tol: smooth_score(case, case.at(number), steps=10, tol=tol, probe=risk)
    both = jax.jit(jax.value_and_grad(stopped), compiler_options=QUICK)
    number = jnp.asarray(case.number)
    assert_slopes(both(number, -1.0), difference(case, 10), 1e-6)
    if case.at().residual_of == "batch":  # the probe is the criterion
        assert_slopes(both(number, 1e9), difference(case, 5), 1e-6)


# 13: the solver as a value


@each
def test_prints_as_the_call_that_made_it(case):
    assert repr(case.at()) == case.text


def through_a_file(tree):
    with tempfile.TemporaryDirectory() as folder:
        models.save(f"{folder}/solver.npz", tree)
        return models.load(f"{folder}/solver.npz")


@each
@pytest.mark.parametrize(
    "trip",
    [
        through_a_file,
        lambda s: pickle.loads(pickle.dumps(s)),
        copy.deepcopy,
        copy.copy,
        lambda s: clone(s, safe=False),
        lambda s: jax.tree.map(lambda a: a, s),
        lambda s: jax.tree.unflatten(jax.tree.structure(s), jax.tree.leaves(s)),
    ],
    ids=["file", "pickle", "deepcopy", "copy", "clone", "tree.map", "unflatten"],
)
def test_a_copy_is_the_same_solver(case, trip):
    solver = case.at()
    copied = trip(solver)
    assert repr(copied) == case.text
    # so the copy runs the programs of the original
    assert jax.tree.structure(copied) == jax.tree.structure(solver)
    assert_same_bits(jax.tree.map(jnp.asarray, copied), jax.tree.map(jnp.asarray, solver))
