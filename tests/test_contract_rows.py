"""Padding, weights, optima, derivatives and copies, for every solver."""

from __future__ import annotations

import copy
import pickle
import tempfile

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import CASES, LAM, Case, gaussian, mean_loss, optimum, rows
from contract import (
    ENGINES,
    EVERY,
    FACTORIES,
    FIRST,
    KEY,
    NEW_ROWS,
    NUMBERED,
    QUICK,
    QUICKEST,
    STEPS,
    assert_close,
    assert_same_bits,
    batch_of,
    data_for,
    each,
    each_factory,
    each_numbered_engine,
    mark,
    over,
    run,
)
from sklearn.base import clone

import jaxsvm
from jaxsvm import losses, models, samplers
from jaxsvm._node import cast

# 7, 8: padding and weights


@over(ENGINES, FIRST)
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


@pytest.mark.parametrize(
    ("case", "kind"),
    [
        pytest.param(case, kind, marks=mark(case), id=f"{case.text}-{kind}")
        for kind in ("weighted", "padded", "plain")
        for case in FACTORIES
        if case.objective and (kind == "weighted" or case.text in QUICKEST)
    ],
)
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


@over(ENGINES, FIRST)
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


@over([case for case in ENGINES if case.number is not None])
def test_a_vector_of_numbers_is_refused(case):
    sentence = r"has shape \(2,\); sweep it with jax\.vmap"
    with pytest.raises(ValueError, match=sentence):
        case.at(case.number * jnp.ones(2))
    data, good, several = data_for(case), case.at(), jax.vmap(case.at)(case.number * jnp.ones(2))
    with pytest.raises(ValueError, match=sentence):
        jaxsvm.fit(several, data, KEY, steps=1)
    with pytest.raises(ValueError, match=sentence):
        jaxsvm.step(several, good.init(KEY, data), batch_of(good, data, STEPS[0]))


@each_numbered_engine
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


@over([case for case in NUMBERED if case in FACTORIES and case.derivatives], FIRST)
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
    [case for case in NUMBERED if case in ENGINES and not case.exact], FIRST
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
