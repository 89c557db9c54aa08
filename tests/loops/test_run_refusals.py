"""What runs refuse, each in a sentence: options, data, states, probes, samplers and weights."""

import functools
import os

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from counted import DATA, KEY, SAMPLE, WHOLE, count, inside
from refusing import each

import jaxsvm
from jaxsvm import features, fit, kernels, samplers
from jaxsvm.models import Linear
from jaxsvm.types import Sampler

RBF, PEGASOS, SDCA = kernels.rbf(1.0), jaxsvm.pegasos(0.1), jaxsvm.sdca(1.0)
FOUR = jaxsvm.dataset([[1.0], [-1.0], [2.0], [-2.0]], [1, -1, 1, -1])
ROWS = [([[1.0], [2.0]], [1, -1])]
WIDE = {"x": np.array([[1.0], [-1.0], [2.0], [-2.0]]), "y": [1, -1, 1, -1]}
NAN, INF = np.nan, np.inf
CLASSES = jaxsvm.dataset(np.eye(3), [0, 1, 2], task="multiclass")
NUMBERS = jaxsvm.dataset([[1.0], [2.0], [3.0]], [0, 1, 2], task="multiclass")._replace(classes=None)
REAL = jaxsvm.dataset(np.eye(3), [0.5, -1, 1], task="regression")
FEWER = jax.tree.map(lambda a: a[:-1], DATA)
WHOLE_NUMBER = " must be a whole number of at least 1, got "


@jaxsvm.node
class draws_of(Sampler):
    """A sampler that draws one row, in every step."""

    row: int

    def init(self, key, data):
        return ()

    def draw(self, s, t, count):
        return jnp.full((count, 1), self.row, jnp.int32)


def drawing(sampler, solver=PEGASOS, data=FOUR, key=KEY):
    return fit(solver, data, key, steps=6, every=3, sampler=sampler)


def state_of(solver, data=DATA):
    return fit(solver, data, KEY, steps=4, every=4).state


def in_float64(**options):
    with jax.enable_x64(True):
        data = jaxsvm.dataset(**WIDE)
        return fit(PEGASOS, data, **{"steps": 6, "every": 3, "key": KEY} | options)


def stream(state=None, solver=PEGASOS, chunks=ROWS, **options):
    key = KEY if state is None else None
    return jaxsvm.stream(solver, iter(chunks), key, state=state, **options)


KEYS = (0, "0", jnp.ones(2), jnp.arange(2), jax.random.split(KEY))
OPTIONS = [  # of `fit`, values, what the sentence says first
    ("key", (None,), "fit needs a key"),
    ("key", KEYS, "key must be one key"),
    ("data", ((np.ones((2, 1)), np.ones(2)), np.ones((2, 1)), None), "data must be a Batch"),
    ("data", ((DATA, DATA),), ".* got tuple: take one of those in it, train, test = loaded$"),
    ("solver", (jaxsvm.pegasos, 3, None), "solver "),
    ("steps", (-1, 2.5, True, NAN, INF, "3", "many", 10**400), "steps must be a whole number"),
    ("steps", (2**31,), "the run stands at step 0, 2147483648 more"),
    ("every", (0, -3, 1.5, False, INF, [1]), "every must be a whole number of at least 1, got"),
    ("passes", (1,), "steps and passes say the same"),
    ("tol", ("0.1", NAN), "tol must be a number, got"),
    ("tol", (jnp.ones(2),), r"tol has shape \(2,\)"),
    ("sampler", ("epochs", samplers.epochs, 64), "sampler must be one such as"),
    ("probe", (1.0, PEGASOS), "probe must be a function of the model"),
    ("seconds", (-1,), "seconds must be a number of at least 0, got -1"),
    ("save", (5,), "save must be the path of a file, got 5"),
    ("progress", ("yes",), "progress must be True or False, got 'yes'"),
    ("on_interrupt", ("stop",), "on_interrupt must be one of 'raise', 'return', got 'stop'"),
]


@pytest.mark.parametrize(
    ("name", "value", "words"), [(name, v, words) for name, many, words in OPTIONS for v in many]
)
def test_wrong_options_of_fit(name, value, words):
    given = {"solver": WHOLE, "data": DATA, "key": KEY, "steps": 2, "probe": len}
    with pytest.raises((TypeError, ValueError), match=f"^{words}"):
        fit(**given | {name: value})


ONE_NUMBER = "the probe must give one number to compare with tol, got "
VALUES, FAILS = (f"probe, the function <lambda>, {what}" for what in ("asks for the", "fails"))
PROBES = [
    (lambda m: m.w, ONE_NUMBER + "an array of float32 of shape .1,."),
    (lambda m: (m.b, m.b), ONE_NUMBER + "tuple"),
    (lambda m: None, ONE_NUMBER + "NoneType"),
    (lambda m: jax.lax.complex(m.b, m.b), ONE_NUMBER + "an array of complex"),
    (lambda m: "error", FAILS + ", expected a function of the model to arrays"),
    (lambda m: float(m.b), VALUES),
    (lambda m: m.b if m.b > 0 else 0, VALUES),
    (lambda m: np.linalg.norm(m.w), VALUES),
    (lambda m: m.weights, FAILS + ".*no attribute 'weights'"),
    (lambda m, data: m.b, FAILS + ".*missing 1 required .* 'data'"),
    (lambda m: m(jnp.ones((2, 7))).sum(), FAILS + ".*must have 1 columns"),
]
SAMPLERS = [  # the method, a function of another form, what the sentence says of it
    ("draw", lambda s, t, count: jnp.zeros((count, 1)), " must give integers .*an array of float"),
    ("draw", lambda s, t, count: jnp.zeros(count, jnp.int32), " must give integers of shape"),
    ("draw", lambda s, t, count: jnp.zeros((count, 2), jnp.int32), r" .*got .*\(256, 2\)"),
    ("draw", lambda s, t, count: jnp.zeros((1, 1), jnp.int32), r" .*got .*of shape \(1, 1\)"),
    ("draw", lambda s, t, count: count if t > 0 else 2, ", .*asks for the values"),
    ("weight", lambda data: jnp.ones(3), r" must give a number for each row, of shape \(4,\)"),
    ("weight", lambda data: data.weights, ", .*no attribute 'weights'"),
    ("rows", lambda n: n / 8, WHOLE_NUMBER + "0.5"),
    ("period", lambda n: 0, WHOLE_NUMBER + "0"),
]


def sampled(name, method, words):
    """A line for a sampler with a method of another form."""
    wrong = type(f"wrong_{name}", (draws_of,), {name: staticmethod(method)})
    return lambda: drawing(jaxsvm.node(wrong)(1)), f"{name} of the sampler{words}"


def probed(probe):
    return count(2, PEGASOS, probe=probe, tol=0.1)


def updated(tx):
    solver = jaxsvm.gradient(jaxsvm.losses.hinge, tx)
    return jax.eval_shape(lambda: solver.update(solver.init(KEY, FOUR), FOUR))


STATE, TWO_WEIGHTS = PEGASOS.init(KEY, DATA), DATA._replace(weight=jnp.ones(2))


def stepped(state=STATE, batch=DATA, solver=PEGASOS):
    return jaxsvm.step(solver, state, batch)


def of_rows(x):
    return stepped(batch=DATA._replace(x=x))


def biased(make):
    return lambda wrong: make(0.1, bias=wrong)


SHRINKING, VECTOR = samplers.shrinking(1), jax.vmap(jaxsvm.pegasos)(jnp.ones(8))
SINGLE = "state holds numbers of float32, and this run computes in float64"
DOUBLE = "state holds numbers of float64, and this run computes in float32"
SEARCH = optax.chain(optax.sgd(1.0), optax.scale_by_backtracking_linesearch(5))
KEY_READERS = [
    lambda key: jaxsvm.data.split(key, DATA, 1, 1),
    lambda key: features.fourier(key, RBF, dim=1, features=2),
    lambda key: features.nystrom(key, RBF, DATA.x, landmarks=1),
    lambda key: jaxsvm.stream(PEGASOS, [DATA], key),
]
COUNTS = (jnp.int32(-1), np.float32(2.5), jnp.float32(2), True, jnp.zeros(2, int), np.int64(2**31))
MULTICLASS = [PEGASOS, SDCA, jaxsvm.perceptron(), jaxsvm.averaged(jaxsvm.asset(0.1))]
MULTICLASS += [jaxsvm.kernel_pegasos(0.1, RBF)]
OTHER = "state comes from another"
LABELS = r"this solver takes labels -1 and \+1, the data hold "
in_two = lambda inner: count(1, jaxsvm.one_vs_rest(inner, classes=2), data=CLASSES)
ENTRIES = "this solver takes class numbers 0 .. 1, the data hold 0, 1, 2"
STEP = r"state\.step must be one whole number from 0 to 2147483647, got "
BIAS = "bias must be one of '(none|free)'"
NO_TX = "tx must be a chain of gradients alone"
FIVE = jaxsvm.bottou_sgd, jaxsvm.asgd, jaxsvm.pegasos, jaxsvm.subgradient, jaxsvm.asset
CALLS = [  # what the sentence says first
    *each(LABELS + "0, 1, 2: for class", lambda of: count(1, of, data=CLASSES), *MULTICLASS),
    *each(LABELS + "-1, 0.5, 1: for class", lambda of: count(1, of, data=REAL), *MULTICLASS),
    *each(ENTRIES, in_two, *MULTICLASS),
    *each("passes must be", lambda passes: count(None, passes=passes), 0, -1.0, NAN, INF),
    (lambda: count(None, passes=np.ones(2)), "passes has shape"),
    *each("tol has nothing to .*probe", lambda of: count(30, of, tol=0.1), SAMPLE, PEGASOS),
    (lambda: count(1, state=count(0)), "state must be the RunState of an earlier call, got Fit"),
    (lambda: count(1, state=count(0).state.solver), "state must be the RunState .*got tuple"),
    (lambda: count(1, state="file.npz"), "state must be the RunState of an earlier call, got str"),
    (lambda: jax.jit(lambda lam: count(1, lam))(VECTOR), r"lam has shape \(8,\); sweep it with"),
    (lambda: count(1, jaxsvm.sdca(1.0, start=jnp.zeros(3))), r"start has shape \(3,\), expected"),
    *((functools.partial(probed, probe), words) for probe, words in PROBES),
    (lambda: stream(probe=lambda m: float(m.b)), VALUES),
    (lambda: probed(jaxsvm.error_on(NUMBERS)), "the model gives one value .* hold class numbers"),
    (lambda: jaxsvm.cache_programs(3), "folder must be the path of a file, got 3"),
    *(sampled(*of) for of in SAMPLERS),
    *each(NO_TX, updated, optax.lbfgs(), optax.polyak_sgd(), SEARCH),
    *each(STEP, lambda step: count(2, state=count(2).state._replace(step=step)), *COUNTS),
    *each(STEP, lambda step: stream(stream().state._replace(step=step)), *COUNTS),
    (lambda: count(4, SDCA, state=state_of(SDCA), sampler=SHRINKING), OTHER + " sampler"),
    (lambda: count(4, PEGASOS, state=state_of(SDCA)), OTHER + " solver, or data of other shapes"),
    (lambda: count(4, SDCA, data=FEWER, state=state_of(SDCA)), ".*data of other shapes"),
    (lambda: in_float64(key=None, state=state_of(PEGASOS, FOUR)), SINGLE),
    (lambda: count(6, PEGASOS, data=FOUR, state=in_float64().state), DOUBLE),
    *(line for read in KEY_READERS for line in each("key must be one", read, *KEYS)),
    *each("key must be one", lambda read: read(None), *KEY_READERS[:2]),
    *each("state must be that of solver.init", stepped, None, 1.0, (), {}, jnp.ones(2)),
    (lambda: stepped(batch=(1, 2)), "batch must be a Batch, .*got tuple"),
    *each("x of batch must be an array, got .*jaxsvm.dataset", of_rows, None, [[1.0]]),
    (lambda: stepped(batch=TWO_WEIGHTS), ".*one target and one weight for each of its 6 rows"),
    (lambda: stepped(solver="pegasos"), "solver must be a solver"),
    (lambda: stepped(solver=jaxsvm.pegasos), "solver is the factory"),
    *(line for make in FIVE for line in each(BIAS, biased(make), 0, None, "maybe", ["none"])),
]


@pytest.mark.parametrize(("call", "words"), CALLS)
def test_calls_that_are_refused(call, words):
    with pytest.raises((TypeError, ValueError), match=f"^{words}"):
        call()


@pytest.mark.parametrize("option", [{"seconds": 1.0}, {"save": "never.npz"}, {"progress": True}])
def test_seconds_and_save_inside_jit(option, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="^seconds, save and progress work outside of jit"):
        inside(2, **option)
    assert os.listdir(tmp_path) == []


@pytest.mark.long
@pytest.mark.parametrize("solver", MULTICLASS, ids=repr)
def test_class_numbers_need_a_solver_for_them(solver):
    count(1, jaxsvm.one_vs_rest(solver, classes=3), data=CLASSES)
    padded = CLASSES._replace(weight=jnp.array([0.0, 1, 0]), y=jnp.array([7.0, 1, 7]))
    count(1, solver, data=padded)  # what rows of weight 0 hold does not matter


# Rows that do not exist, and weights that are none

DRAWS = [*((row, PEGASOS) for row in (4, 1000, -5)), (4, SDCA)]
DRAWS += [(4, jaxsvm.kernel_pegasos(0.1, RBF)), (4, jaxsvm.lasvm(1.0, RBF))]


@pytest.mark.long
@pytest.mark.parametrize(("row", "solver"), DRAWS)
def test_draws_of_rows_that_do_not_exist_are_told_and_read_no_other_row(row, solver):
    make = lambda key: drawing(draws_of(row), solver, key=key)
    for run in (make(KEY), jax.jit(make)(KEY)):
        assert not np.any(run.model(FOUR.x)) and run.reason == "diverged"
        assert "row numbers that the sampler draws" in run.status


@pytest.mark.long
def test_draws_of_padding_are_none_of_another_row():
    run = drawing(draws_of(-1))
    assert not run.model.w.any() and run.finite
    rows = jax.jit(lambda index: jaxsvm.take(FOUR, index))(jnp.array([1, 4, -1, -7, 2**31 - 1]))
    assert rows.weight.tolist() == [1, 0, 0, 0, 0] and rows.index.tolist() == [1, -1, -1, -1, -1]


BAD_WEIGHTS = {"nan": [1, NAN, 1, 1], "inf": [1, 1, INF, 1]}
BAD_WEIGHTS |= {"negative": [1, 1, 1, -1], "zero": [0, 0, 0, 0]}
machine = lambda C: jaxsvm.decomposition(C, RBF)
MACHINES = {"C": [1.0, 2.0], "folds": 2, "progress": False}
WEIGHT_READERS = {
    "fit": lambda data: drawing(None, data=data),
    "error_on": jaxsvm.error_on,
    "risk_on": jaxsvm.risk_on,
    "certificate": lambda data: jaxsvm.certificate(Linear(jnp.ones(1), jnp.zeros(())), data, 0.1),
    "select": lambda data: jaxsvm.select(machine, data, KEY, **MACHINES),
    "ridge_path": jaxsvm.ridge_path,
}


def with_weights(name):
    return FOUR._replace(weight=jnp.asarray(BAD_WEIGHTS[name], jnp.float32))


@pytest.mark.parametrize("reader", WEIGHT_READERS)
@pytest.mark.parametrize("name", BAD_WEIGHTS)
def test_weights_that_are_none_are_refused_by_what_reads_them(name, reader):
    words = "positive weight" if name == "zero" else "finite numbers of at least 0, got .* for row"
    with pytest.raises(ValueError, match=words):
        WEIGHT_READERS[reader](with_weights(name))


@pytest.mark.long
@pytest.mark.parametrize("solver", [PEGASOS, machine(1.0)], ids=["pegasos", "decomposition"])
@pytest.mark.parametrize("name", BAD_WEIGHTS)
def test_no_run_of_weights_that_are_none_is_finite(name, solver):
    run = jax.jit(lambda data: fit(solver, data, KEY, steps=6, every=3))(with_weights(name))
    assert not run.finite and not run.converged and run.reason == "diverged"
