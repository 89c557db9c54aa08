"""Averages of iterates against direct means in float64."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from oracles import batch_of
from plain import plain

import jaxsvm
from jaxsvm import averaged, averaging, kernels, losses, models, schedules
from jaxsvm.loops.checks import adapted


def run(iterates, **options):
    """The average after each of the iterates (T, d)."""
    tx = averaging.average_iterates(**options)

    @jax.jit
    def scan(iterates):
        def body(carry, target):
            params, state = carry
            updates, state = tx.update(target - params, state, params)
            params = optax.apply_updates(params, updates)
            return (params, state), (params, averaging.averaged_params((state,), params))

        start = jnp.zeros_like(iterates[0])
        return jax.lax.scan(body, (start, tx.init(start)), iterates)[1]

    return (np.asarray(a, np.float64) for a in scan(iterates))


def direct(visited, start, weights):
    """The documented mean, step by step."""
    rows = [visited[t] for t in range(min(start, len(visited)))]
    for t in range(start, len(visited)):
        weight = np.array([weights(s) for s in range(t - start + 1)], np.float64)
        rows.append(weight @ visited[start : t + 1] / weight.sum())
    return np.array(rows)


KEY = jax.random.key(0)
ITERATES = np.random.default_rng(0).normal(size=(12, 3)).astype(np.float32)


WEIGHTS = {  # and the same in NumPy
    "equal": (None, lambda t: 1.0),
    "growing": (lambda t: t.astype(float) + 1, lambda t: t + 1.0),
    "falling": (schedules.inverse_sqrt(2.0), lambda t: 2 / np.sqrt(t + 1)),
}


@pytest.mark.parametrize(
    ("name", "start", "dtype"),
    [
        *(("equal", start, "float32") for start in (0, 1, 5, 20)),
        *((name, start, "float32") for name in ("growing", "falling") for start in (0, 4)),
        ("growing", 0, "float64"),
    ],
)
def test_uniform_average_and_weighted_ones_are_means_from_start_on(name, start, dtype):
    weights, in_numpy = WEIGHTS[name]
    with jax.enable_x64(dtype == "float64"):
        options = {} if weights is None else {"weights": weights}
        visited, means = run(ITERATES.astype(dtype), start=start, **options)
    # a rounding for each step
    room = 1e-6 if dtype == "float32" else 1e-14
    np.testing.assert_allclose(means, direct(visited, start, in_numpy), atol=room)


def test_averaged_params_are_the_parameters_where_nothing_is_averaged():
    params = jnp.ones(2)
    assert jaxsvm.averaged_params(optax.sgd(0.1).init(params), params) is params


STEPS = 200_000


@pytest.mark.parametrize("noise", [1.0, 0.0])
def test_the_float32_average_of_a_long_run_is_that_of_float64(noise):
    # Without compensation: off by 2e-5 with noise, and by 2e-3 without, where (iterate - mean) / t
    # is soon below half a unit
    # in the last place of the mean, which then stands still.
    rng = np.random.default_rng(3)
    t = np.arange(STEPS)[:, None]
    iterates = (1 + 0.01 * (t >= 1000) + noise * rng.normal(size=(STEPS, 2))).astype(np.float32)
    tx = averaging.average_iterates()
    body = lambda state, params: (tx.update(jnp.zeros_like(params), state, params)[1], None)
    state = jax.jit(lambda rows: jax.lax.scan(body, tx.init(rows[0]), rows)[0])(iterates)
    mean = averaging.averaged_params(state, None)
    np.testing.assert_allclose(mean, iterates.astype(np.float64).mean(axis=0), atol=5e-7)


@pytest.mark.parametrize("noise", [1.0, 0.0])
@pytest.mark.parametrize(("weights", "start"), [(None, 0), (None, 1000), (lambda t: t + 1, 0)])
def test_the_float32_average_of_a_solver_is_that_of_float64(weights, start, noise):
    """A solver whose iterates go on swinging, as the perceptron's, or converge, 1 + 1/t."""
    t = np.arange(1, STEPS + 1.0)
    iterates = (1 + 1 / t + noise * np.random.default_rng(4).normal(size=STEPS)).astype(np.float32)
    model = lambda w, data=None: models.Linear(w, jnp.zeros((), w.dtype))
    update = lambda w, batch: (batch, jaxsvm.Info(*[w] * 6))
    inner = plain(lambda key, data: jnp.zeros(1), update, model)
    outer = averaged(inner, start=start, weights=weights)
    body = lambda state, row: (outer.update(state, row)[0], None)
    run = jax.jit(lambda state, rows: jax.lax.scan(body, state, rows)[0])
    state = run(outer.init(None, None), iterates[:, None])
    own = None if weights is None else weights(t - 1)[start:]
    wanted = np.average(iterates.astype(np.float64)[start:], weights=own)
    np.testing.assert_allclose(outer.model(state).w, wanted, atol=5e-7)


def problem():
    rng = np.random.default_rng(5)
    x = rng.normal(size=(20, 3)).astype(np.float32)
    return jaxsvm.dataset(x, np.where(x[:, 0] + 0.3 * rng.normal(size=20) > 0, 1, -1))


@pytest.mark.long
def test_averaged_pegasos_is_the_mean_of_the_iterates_of_a_hand_loop():
    data, inner = problem(), jaxsvm.pegasos(0.1, bias="free")
    outer = jaxsvm.averaged(inner, start=3)
    key = KEY
    rows = np.random.default_rng(1).integers(0, 20, size=15)
    plain, state, seen = inner.init(key, data), outer.init(key, data), []
    for row in rows:
        batch = batch_of(inner, data, [row])
        plain, _ = jaxsvm.step(inner, plain, batch)
        state, _ = jaxsvm.step(outer, state, batch)
        seen.append(inner.model(plain))
    model = outer.model(state)
    assert isinstance(model, jaxsvm.models.Linear) and model.bias == "free"
    w, b = (np.mean(own, axis=0) for own in zip(*((m.w, m.b) for m in seen[3:]), strict=True))
    np.testing.assert_allclose(model.w, w, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(model.b, b, rtol=1e-5, atol=1e-6)


# Means within solvers, late in a run: a plain float32 mean stands still there

projected = lambda u: u / jnp.maximum(1, jnp.linalg.norm(u))
LATE = 2**22  # values in the mean when the steps below begin
# solver, (state -> counter moved to LATE), (state before, state after a step) -> the value that
# joins, mean and lost
MEANS = {
    "simba": (
        lambda: jaxsvm.simba(0.3),
        lambda s: s._replace(t=jnp.int32(LATE)),
        lambda old, new: (projected(new.u), new.mean, new.compensation, new.t),
    ),
    "sbp": (
        lambda: jaxsvm.sbp(0.15, kernels.rbf(1.0)),
        lambda s: s._replace(t=jnp.int32(LATE)),
        lambda old, new: (old.fill.share, new.p, new.compensation, new.t),
    ),
    "a space": (
        lambda: jaxsvm.constrained_sgd(1.0),
        lambda s: s._replace(f=s.f._replace(count=jnp.int32(LATE))),
        lambda old, new: (old.f.f, new.f.mean, new.f.compensation, new.f.count),
    ),
    "nogd": (
        lambda: jaxsvm.nogd(0.3, kernels.rbf(1.0), budget=5, features=3),
        lambda s: s._replace(f=s.f._replace(moves=jnp.int32(LATE))),
        lambda old, new: (new.f.w, new.f.mean, new.f.compensation, new.f.moves),
    ),
}


@pytest.mark.long
@pytest.mark.parametrize("name", MEANS)
def test_a_mean_follows_late_values(name):
    make, later, read = MEANS[name]
    rng = np.random.default_rng(4)
    x = rng.normal(size=(30, 2)).astype(np.float32)
    data = jaxsvm.dataset(x, np.where(x[:, 0] + 0.5 * rng.normal(size=30) > 0, 1.0, -1.0))
    solver = make()
    start = later(jaxsvm.fit(solver, data, KEY, steps=60).state.solver)

    @jax.jit
    def steps(state):
        def step(old, t):
            new, _ = solver.update(old, batch_of(solver, data, (t % 30)[None]))
            return new, read(old, new)

        return jax.lax.scan(step, state, jnp.arange(2000, dtype=jnp.int32))[1]

    value, mean, lost, count = (np.asarray(a, np.float64) for a in steps(start))
    want = sum(np.asarray(a, np.float64) for a in read(start, start)[1:3])
    for k in range(2000):
        moved = k == 0 or count[k] > count[k - 1]
        want = want + (value[k] - want) / count[k] if moved else want
    # The way of the mean is below 2000 / 2^22 = 5e-4 of the values; its roundings in float32 are
    # 1e-7 of that.
    assert np.abs(mean[-1] - mean[0]).max() > 1e-6
    np.testing.assert_allclose(mean[-1] + lost[-1], want, rtol=0, atol=2e-9 * np.abs(value).max())


@jaxsvm.node
class told(jaxsvm.Solver):
    """A solver that differs from `Solver` in all that a wrapper may leave to it."""

    sampler, needs_all_rows, targets, residual_of = jaxsvm.samplers.whole(), True, "real", "batch"
    iterates_to, has_map, lays_out = 0.5, True, True

    def prepare(self, data):
        return ("prepared", data)

    def layout(self, data):
        return ("laid out", data)

    def validate(self, data):
        raise ValueError("refused by the inner one")


def test_wrappers_keep_every_field_of_a_solver():
    """What a wrapper does not change is the inner one's, also later fields."""
    inner, functions = told(), {"init", "update", "model"}
    changed = {
        jaxsvm.averaged(inner): functions,
        jaxsvm.on_features(jnp.tanh, inner): functions | {"prepare", "validate", "has_map"},
        jaxsvm.one_vs_rest(inner, classes=3): functions | {"targets"},
        jaxsvm.one_vs_one(inner, classes=3): functions | {"targets"},
    }
    follows = {"example", "row_entries", "has_sums"}  # from `init`
    own = [name for name in vars(jaxsvm.Solver) if name[0] != "_" and name not in follows]
    fields = [*own, "validate"]
    for wrapped, names in changed.items():
        kinds = type(wrapped).mro()
        own = set().union(*map(vars, kinds[: kinds.index(jaxsvm.Wrapper)]))
        assert own & set(fields) == names, wrapped
        for name in set(fields) - functions - names:
            if name == "validate":
                with pytest.raises(ValueError, match="refused by the inner one"):
                    wrapped.validate(None)
                continue
            found, kept = getattr(wrapped, name), getattr(inner, name)
            assert (found(1) == kept(1)) if callable(kept) else (found == kept), (wrapped, name)


@jaxsvm.node
class by_nu(jaxsvm.Wrapper):
    """A solver whose inner one is made of its fields."""

    nu: float
    inner = property(lambda self: jaxsvm.sbp(self.nu, jaxsvm.kernels.linear()))


def test_a_sampler_that_another_one_replaces_is_not_asked():
    data = jaxsvm.dataset(np.eye(3), [1.0, 1.0, 1.0], task="regression")
    feed, own = jaxsvm.samplers.uniform(1), jaxsvm.samplers.pairs(2)
    solver = jaxsvm.gradient(losses.squared, optax.sgd(0.1), sampler=own)
    assert jaxsvm.fit(solver, data, KEY, steps=2, sampler=feed).finite
    with pytest.raises(ValueError, match="different grades"):
        jaxsvm.fit(solver, data, KEY, steps=2)


WRAPPED = {
    "averaged": lambda inner: jaxsvm.averaged(inner, start=2),
    "on_features": lambda inner: jaxsvm.on_features(jnp.tanh, inner),
    "one_vs_rest": lambda inner: jaxsvm.one_vs_rest(inner, classes=3),
    "one_vs_one": lambda inner: jaxsvm.one_vs_one(inner, classes=3),
    "both": lambda inner: jaxsvm.one_vs_rest(jaxsvm.on_features(jnp.tanh, inner), classes=3),
}


@pytest.mark.parametrize("name", WRAPPED)
def test_a_tolerance_is_bound_to_the_solver_inside_of_its_wrappers(name):
    wrap = WRAPPED[name]
    solver = wrap(jaxsvm.newton(0.1, loss=losses.squared_hinge))
    other = solver.replace(tol=0.25)
    assert other.iterates_to == 0.25 and solver.iterates_to == jaxsvm.newton(0.1).iterates_to
    assert other == wrap(jaxsvm.newton(0.1, loss=losses.squared_hinge, tol=0.25))
    if solver.targets == 3:
        assert solver.replace(tol=0.25, classes=2).targets == 2
    with pytest.raises(TypeError, match="no field takes width"):
        solver.replace(width=3)


@pytest.mark.long
def test_a_tolerance_that_no_field_takes_is_that_of_the_run():
    """`least_squares` ends at 0 by itself, and `fit(tol=)` stops it earlier."""
    solver = jaxsvm.least_squares(0.1)
    kept = adapted(solver, None, 0.25, np.float32)[0]
    assert kept == solver.replace(lam=np.float32(0.1)) and solver.iterates_to == 0
    rows = problem()
    sampler = jaxsvm.samplers.epochs(5)
    run = jaxsvm.fit(solver, rows, KEY, sampler=sampler, every=1, tol=0.5)
    assert run.converged and run.state.step == 2


@pytest.mark.long
def test_a_restart_is_of_the_state_that_wrappers_keep():
    """`select` makes paths of solvers whose states restart; those of averages and pairs do not."""
    newton = jaxsvm.newton(0.1)
    data = jaxsvm.dataset([[1.0], [-1.0], [0.5]], [0, 1, 2], task="multiclass")
    binary = jaxsvm.dataset([[1.0], [-1.0]], [1, -1])
    restarts = lambda solver, data: hasattr(solver.init(KEY, data), "restart")
    assert restarts(newton, binary) and restarts(jaxsvm.on_features(jnp.tanh, newton), binary)
    assert restarts(jaxsvm.one_vs_rest(newton, classes=3), data)
    assert not restarts(jaxsvm.averaged(newton), binary)
    assert not restarts(jaxsvm.one_vs_one(newton, classes=3), data)
    assert not restarts(jaxsvm.pegasos(0.1), binary)


STARTS = [-1, 2**31, 10**400, np.array([0.1]), jnp.array([1, 2]), 0.5, True]
NO_START = "^start (must be a whole number|has shape|is too large)"
NONE = jaxsvm.dataset(np.zeros((4, 2)), [1, -1, 1, -1])
REFUSED = [
    *((lambda k=k: jaxsvm.average_iterates(start=k), NO_START) for k in STARTS),
    *(
        (lambda k=k: averaged(jaxsvm.pegasos(0.1), start=k).needs_all_rows, NO_START)
        for k in STARTS
    ),
    (lambda: averaging.average_iterates().update(0.0, None), "needs the parameters"),
    (lambda: averaged(jaxsvm.kernel_pegasos(0.1, kernels.rbf(1.0))).init(KEY, NONE), "Linear"),
    # an inner solver that is no field is shown the rows
    (lambda: jaxsvm.fit(by_nu(0.3), NONE, KEY, steps=1), "must not be negative nor 0 for all rows"),
]


@pytest.mark.parametrize(("call", "words"), REFUSED)
def test_averages_and_wrappers_that_are_refused(call, words):
    with pytest.raises((ValueError, TypeError), match=words):
        call()
