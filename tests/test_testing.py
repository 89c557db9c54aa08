"""`check_solver` accepts solvers of the package, and names the promise that a broken one does not
keep."""

from __future__ import annotations

import itertools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from plain import plain

import jaxsvm
import jaxsvm.testing
from jaxsvm import features, kernels, losses, models, samplers
from jaxsvm.engines import GradientSolver
from jaxsvm.testing import PROMISES, _difference, check_solver


@jaxsvm.node
class plain_sgd(GradientSolver):
    """The catalogue's example."""

    lam: float = jaxsvm.positive()
    loss: jaxsvm.Loss = losses.hinge

    def chain(self, stats):
        step = optax.scale_by_learning_rate(jaxsvm.schedules.inverse_sqrt(1.0))
        return optax.chain(optax.add_decayed_weights(self.lam), step)


GOOD = {
    "plain_sgd": lambda: plain_sgd(1e-2),
    "on_features": lambda: jaxsvm.on_features(
        features.nystrom(None, kernels.linear(), landmarks=np.eye(3, dtype="f")),
        jaxsvm.pegasos(0.1),
    ),
}


@pytest.mark.long
@pytest.mark.parametrize("name", GOOD)
def test_solvers_of_the_package_pass(name):
    """Those that test_contract does not check."""
    check_solver(GOOD[name]())


# A solver written out, and one broken variant for each promise


class Sgd(NamedTuple):
    w: jax.Array  # (d,)
    step: jax.Array  # ()


def init(key, data):
    return Sgd(jnp.zeros(data.x.shape[1], data.x.dtype), jnp.zeros((), jnp.int32))


def update(state, batch, lam=0.1):
    """A step of Pegasos on a batch."""
    t = (state.step + 1).astype(state.w.dtype)
    score = batch.x @ state.w
    share = batch.weight / jnp.maximum(batch.weight.sum(), jnp.finfo(batch.weight.dtype).tiny)
    slope = losses.hinge.slope(score, batch.y) * share
    lam = jnp.asarray(lam, state.w.dtype)
    w = state.w - (lam * state.w + slope @ batch.x) / (lam * t)
    zero, none = jnp.zeros((), w.dtype), jnp.zeros((), jnp.int32)
    info = jaxsvm.Info(
        share @ losses.hinge.value(score, batch.y), zero, zero * slope, batch.index, none, none
    )
    return Sgd(w, state.step + 1), info


def model(state, data=None):
    return models.Linear(state.w, jnp.zeros((), state.w.dtype))


jaxsvm.register("test_testing.Sgd", Sgd)
SOUND = plain(init, update, model, samplers.uniform(1), targets="labels")


def changed_info(**fields):
    """`update` with other fields of info: name -> (info) -> value."""

    def changed(state, batch):
        state, info = update(state, batch)
        return state, info._replace(**{name: value(info) for name, value in fields.items()})

    return changed


def changed_w(change):
    """`update` with another w: (w, batch) -> w."""

    def changed(state, batch):
        state, info = update(state, batch)
        return state._replace(w=change(state.w, batch)), info

    return changed


def test_a_step_may_say_that_it_used_no_row():
    """The row number -1 is padding; n and -2 are no rows."""
    says = lambda number: SOUND.replace(
        update=changed_info(index=lambda info: jnp.full_like(info.index, number))
    )
    check = lambda number: check_one("info", says(number))
    check(-1)
    for number in (-2, 10**6):
        with pytest.raises(AssertionError, match="but index holds"):
            check(number)


class Unknown(NamedTuple):
    """A state that is not registered."""

    w: jax.Array
    step: jax.Array


def to_unknown(state):
    return Unknown(*state)


UNKNOWN = SOUND.replace(
    init=lambda key, data: to_unknown(init(key, data)),
    update=lambda state, batch: (lambda after, info: (to_unknown(after), info))(
        *update(Sgd(*state), batch)
    ),
)
traces = itertools.count(1)
DRIFTING = SOUND.replace(
    update=changed_w(lambda w, batch: w + jnp.asarray(0.1 * next(traces), w.dtype))
)
noise = np.random.default_rng(0)


@jaxsvm.node
class forgetful(jaxsvm.Sampler):
    """It does not know the step, so a chunk begins anew."""

    def init(self, key, data):
        return ()

    def draw(self, s, t, count):
        return jnp.arange(count, dtype=jnp.int32)[:, None]


def steep(state, batch, lam):
    """An update whose derivative is infinite."""
    state, info = update(state, batch, lam)
    return state._replace(w=state.w + jnp.sqrt(0 * lam).astype(state.w.dtype)), info


def searching(state, batch, lam):
    """An update with a loop of open end."""
    return update(state, batch, jax.lax.while_loop(lambda a: a < lam, lambda a: 2 * a, lam))


def biased_mean(state, batch):
    """A mean over all rows of the batch, padding too."""
    return update(state, batch._replace(weight=jnp.ones_like(batch.weight)))


def broken(**fields):
    """The sound solver with other fields, made when it is called."""
    return lambda: SOUND.replace(**fields)


def stepped(change):
    """The sound solver with another w: (w, batch) -> w."""
    return broken(update=changed_w(change))


def begun(change):
    """The sound solver with another first state: (state, data) -> state."""
    return broken(init=lambda key, data: change(init(key, data), data))


def valued(values):
    """The sound solver with other values of the model: (w, x) -> values."""
    return broken(model=lambda state, data=None: jax.tree_util.Partial(values, state.w))


def not_a_state(state, batch):
    return update(state, batch)[0]._asdict()


BROKEN = [  # the promise, a solver that does not keep it, what the sentence says
    ("fields", lambda: jaxsvm.pegasos, "this is type, no node that is a jaxsvm.Solver"),
    ("fields", broken(needs_all_rows="rows"), "needs_all_rows is 'rows', neither True nor False"),
    ("fields", broken(targets="label"), "targets is 'label', none of 'labels', 'real'"),
    ("fields", broken(sampler=64), "sampler is 64, no Sampler"),
    ("fields", broken(residual_of="all"), "residual_of is 'all'"),
    ("init", begun(lambda s, data: Sgd(s.w, 0)), "leaf .step of the state is a int"),
    (
        "init",
        begun(lambda s, data: s._replace(w=jnp.asarray(noise.normal(size=3), "f"))),
        "two calls with the same key and data differ: leaf .w holds",
    ),
    (
        "init",
        begun(lambda s, data: s._replace(w=jnp.ones(int(data.y.sum()) + 50))),
        "it raised ConcretizationTypeError",
    ),
    (
        "init",
        broken(validate=lambda data: exec("raise ValueError('no such rows')")),
        "it raised ValueError: no such rows",
    ),
    (
        "state",
        stepped(lambda w, batch: jnp.append(w, w[:1])),
        r"after a step on 1 rows leaf .w went from float32\[3\] to float32\[4\]",
    ),
    ("state", stepped(lambda w, batch: (w,)), "its structure went from"),
    ("state", begun(lambda s, data: Sgd(s.w, jnp.asarray(0))), "weakly typed"),
    ("state", broken(update=not_a_state), "update returns dict, no pair"),
    (
        "info",
        broken(update=changed_info(evals=lambda info: info.loss.astype("float16"))),
        "evals is float16",
    ),
    (
        "info",
        broken(update=lambda state, batch: (update(state, batch)[0], state.w[0])),
        "it is a ShapeDtypeStruct",
    ),
    ("info", broken(update=changed_info(index=lambda info: info.index[:1])), "index has shape"),
    ("info", broken(update=changed_info(index=lambda info: info.index + 100)), "on 24 rows"),
    ("pure", lambda: DRIFTING, "two calls with the same state and batch differ: leaf "),
    ("scan", lambda: DRIFTING, "the models after four steps differ by up to"),
    ("jit", lambda: DRIFTING, "the values of the two models differ by up to"),
    ("model", broken(model=lambda state, data=None: state.w), "cannot be called"),
    (
        "model",
        valued(lambda w, x: (x @ w)[:, None]),
        r"24 rows with targets='labels' got values of shape \(24, 1\)",
    ),
    ("model", valued(lambda w, x: w @ w), "24 rows got values of shape"),
    (
        "model",
        valued(lambda w, x: (x @ w).astype(jnp.bfloat16)),
        "rows of float32 got values of bfloat16",
    ),
    (
        "model",
        valued(lambda w, x: (x - x.mean(0, keepdims=True)) @ w),
        "the values of a row alone and among others differ by up to",
    ),
    (
        "model",
        valued(lambda w, x: x @ w + jnp.cumsum(x[:, 0])),
        "the values of rows in another order differ by up to",
    ),
    ("finite", stepped(lambda w, batch: w / 0), "the model is not finite after 25 steps"),
    ("resume", broken(sampler=forgetful()), "a run cut after 1 of 25 steps differs: leaf"),
    ("save", lambda: UNKNOWN, "it raised "),
    (
        "padding",
        broken(update=biased_mean),
        "a step on three rows and one on these and two of padding differ: leaf .w",
    ),
    (
        "weights",
        begun(lambda s, data: Sgd(s.w, (data.x[:, 0] > 2).sum(dtype=jnp.int32))),
        "the models on data whose rows of weight 0 hold other numbers differ by up to",
    ),
    (
        "numbering",
        stepped(lambda w, batch: w + batch.index.max().astype(w.dtype)),
        "the models after the same four steps on renumbered rows differ by up to",
    ),
    (
        "dtype",
        begun(lambda s, data: Sgd(s.w, jnp.zeros(()))),
        "rows of float32 give float64 at .solver.step of the state",
    ),
]


def check_one(name, solver):
    """Check one promise alone, which compiles nothing else."""
    check_solver(solver, skip=[other for other in PROMISES if other != name])


@pytest.mark.long(but=1)
@pytest.mark.parametrize("case", BROKEN, ids=lambda case: f"{case[0]}: {case[2]}")
def test_a_broken_solver_fails_with_the_sentence_of_its_promise(case):
    name, make, seen = case
    with pytest.raises(AssertionError, match=seen) as raised:
        check_one(name, make())
    sentence = str(raised.value)
    assert sentence.startswith(f"{name}: {PROMISES[name]}, but ") and "\n" not in sentence


def test_steps_are_tried_on_one_row_and_on_three():
    longer = lambda w, batch: w if batch.y.size == 1 else jnp.append(w, w[:1])
    seen = r"after a step on 3 rows leaf .w went from float32\[3\] to float32\[4\]"
    with pytest.raises(AssertionError, match=seen):
        check_one("state", stepped(longer)())


def by_tracer(lam):
    """A factory that replaces numbers that it does not know."""
    lam = 0.3 if isinstance(lam, jax.core.Tracer) else lam
    return SOUND.replace(update=lambda state, batch: update(state, batch, lam))


def by_float(lam):
    """A factory that needs to know its number."""
    lam = float(lam)
    return SOUND.replace(update=lambda state, batch: update(state, batch, lam))


@pytest.mark.long
@pytest.mark.parametrize(
    ("factory", "seen"),
    [
        (by_tracer, "the models at the numbers 0.1, 0.2 differ by up to"),
        (by_float, "it raised ConcretizationTypeError"),
    ],
)
def test_a_factory_that_vmap_does_not_reach(factory, seen):
    with pytest.raises(AssertionError, match=seen) as raised:
        check_solver(factory(0.1), factory=factory)
    assert str(raised.value).startswith(f"vmap: {PROMISES['vmap']}, but ")


@pytest.mark.long
@pytest.mark.parametrize(
    ("rule", "seen"),
    [(steep, "at 0.1 it is nan"), (searching, "it raised ValueError: Reverse-mode")],
)
def test_a_factory_without_derivatives(rule, seen):
    def factory(lam):
        return SOUND.replace(
            update=lambda state, batch: rule(state, batch, jnp.asarray(lam, state.w.dtype))
        )

    with pytest.raises(AssertionError, match=seen) as raised:
        check_solver(factory(0.1), factory=factory)
    assert str(raised.value).startswith(f"gradient: {PROMISES['gradient']}, but ")
    check_solver(factory(0.1), factory=factory, skip=["gradient"])


def test_every_promise_is_broken_by_a_solver_above():
    assert {name for name, *_ in BROKEN} | {"vmap", "gradient"} == set(PROMISES)


@pytest.mark.long
def test_the_sound_solver_passes_on_other_data_and_keys():
    check_solver(SOUND)
    x = np.random.default_rng(1).normal(size=(30, 5))
    check_solver(SOUND, jaxsvm.dataset(x, np.sign(x[:, 0])), jax.random.key(4), 12)


def test_arguments_are_checked():
    with pytest.raises(ValueError, match="skip names 'types', the promises are fields, init"):
        check_solver(SOUND, skip=["types"])
    with pytest.raises(ValueError, match="steps must be at least 4, got 3"):
        check_solver(SOUND, steps=3)
    with pytest.raises(ValueError, match="data must hold at least 8 rows, got 2"):
        check_solver(SOUND, jaxsvm.dataset([[1.0], [2.0]], [1, -1]))


def test_what_differs_is_named_and_what_is_no_number_may_stay_so():
    one, close, far = (jnp.array([np.nan, np.inf, 1.0, value]) for value in (2.0, 2.0 + 1e-6, 2.5))
    assert _difference(one, one) is None and _difference(one, close, 1e-5) is None
    assert "2.5 the second" in _difference(one, far, 1e-5)
    assert "2 the first time" in _difference(one, close)
    assert "nan the first time and 0" in _difference(one, one.at[0].set(0), 1e-5)
