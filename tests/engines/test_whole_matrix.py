"""Few rows solved on the whole kernel matrix: LIBSVM's optimum in float64, blocks, sharing under
`vmap`, small programs."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_iris
from sklearn.svm import SVC, SVR

import jaxsvm
from jaxsvm import kernels, losses
from jaxsvm.engines import blocks, dual_qp, whole_matrix
from jaxsvm.numerics import map_in_groups, map_sharing

KEY = jax.random.key(0)
X, LABELS = load_breast_cancer(return_X_y=True)
X = ((X - X.mean(0)) / X.std(0))[:200]
LABELS = np.where(LABELS[:200] > 0, 1.0, -1.0)
TARGETS = X[:, 0] * np.sin(X[:, 1]) + X[:, 2]
GAMMA = 1 / 30


def gram(x):
    return np.exp(-GAMMA * ((x[:, None] - x[None]) ** 2).sum(-1))


def dual_value(coef, y, K, eps=0.0):
    coef = np.asarray(coef, np.float64)
    return y @ coef - eps * np.abs(coef).sum() - coef @ K @ coef / 2


def solve(data, tol, C=10.0, **options):
    return jaxsvm.fit(
        jaxsvm.decomposition(C, kernels.rbf(gamma=GAMMA), **options), data, KEY, steps=1, tol=tol
    )


@pytest.mark.parametrize("stop", ["kkt", pytest.param("gap", marks=pytest.mark.long)])
@pytest.mark.parametrize("kind", ["labels", pytest.param("targets", marks=pytest.mark.long)])
def test_libsvms_dual_in_float64(kind, stop):
    y, eps = (LABELS, 0.0) if kind == "labels" else (TARGETS, 0.1)
    peer = (
        SVC(C=10.0, gamma=GAMMA, tol=1e-12)
        if kind == "labels"
        else SVR(C=10.0, gamma=GAMMA, epsilon=eps, tol=1e-12)
    )
    peer.fit(X, y)
    want = np.zeros(len(y))
    want[peer.support_] = peer.dual_coef_[0]
    with jax.enable_x64(True):
        loss = losses.hinge if kind == "labels" else losses.eps_insensitive(eps)
        data = jaxsvm.dataset(X, y, task="regression")
        run = solve(data, 1e-10, stop=stop, loss=loss)
        assert run.converged
        coef, values = np.asarray(run.model.coef), np.asarray(run.model(data.x))
    K = gram(X)
    np.testing.assert_allclose(dual_value(coef, y, K, eps), dual_value(want, y, K, eps), rtol=1e-9)
    np.testing.assert_allclose(
        values, peer.decision_function(X) if kind == "labels" else peer.predict(X), atol=1e-4
    )


@pytest.mark.parametrize("bias", ["free", pytest.param("none", marks=pytest.mark.long)])
def test_as_good_as_blocks_in_float32(bias):
    """The violation is at most the tolerance, and the decision values are those of blocks to within
    two tolerances."""
    data = jaxsvm.dataset(X.astype(np.float32), LABELS)
    whole, blocks = (solve(data, 1e-4, bias=bias, working_set=size) for size in (None, 64))
    assert whole.converged and blocks.converged
    assert abs(float(whole.model.coef.sum())) < 1e-4 or bias == "none"
    assert abs(np.asarray(whole.model(data.x)) - np.asarray(blocks.model(data.x))).max() < 2e-3
    assert whole.evals == len(LABELS) ** 2


def test_a_soft_loss_and_weights():
    weight = np.where(np.arange(len(LABELS)) % 5 == 0, 0.0, 1 + np.arange(len(LABELS)) % 2)
    keep = np.repeat(np.arange(len(LABELS)), weight.astype(int))
    run = solve(jaxsvm.dataset(X, LABELS, weight), 1e-5, loss=losses.squared_hinge)
    copies = solve(jaxsvm.dataset(X[keep], LABELS[keep]), 1e-5, loss=losses.squared_hinge)
    assert not np.asarray(run.model.coef)[weight == 0].any()
    np.testing.assert_allclose(run.model(X), copies.model(X), atol=1e-3)


def test_more_rows_or_less_memory_take_blocks():
    n = len(LABELS)
    assert whole_matrix.fits(jnp.zeros((n, 2)), 4 * n * n) and not whole_matrix.fits(
        jnp.zeros((n, 2)), 4 * n * n - 1
    )
    assert not whole_matrix.fits(
        jax.ShapeDtypeStruct((whole_matrix.MAX_ROWS + 1, 2), jnp.float32), 2**40
    )
    data = jaxsvm.dataset(X, LABELS)
    assert solve(data, 1e-3, memory=1000).evals != n * n  # rows are computed as they are needed


def test_steps_end_at_the_limit_and_resume_to_the_same_solution():
    noisy = LABELS * np.where(np.arange(len(LABELS)) % 5 == 0, -1, 1)
    data = jaxsvm.dataset(X, noisy)
    # 100 n steps are not enough
    solver = jaxsvm.decomposition(10.0, kernels.linear(), tol=1e-3, rounds=1)
    first = jaxsvm.fit(solver, data, KEY, steps=1)
    assert not first.converged and float(first.info.residual[-1]) > 1e-2
    rest = jaxsvm.fit(solver, data, steps=20, state=first.state)
    again = jaxsvm.fit(solver, data, steps=1, state=rest.state)
    assert rest.converged and again.converged
    # a solved dual is left as it is
    np.testing.assert_array_equal(again.model.coef, rest.model.coef)


def test_mapped_runs_share_the_matrix():
    """Runs over C have one kernel matrix, runs over gamma one each at a time, and all equal runs in
    turn."""
    data = jaxsvm.dataset(X, LABELS)

    def coef(C, gamma, labels):
        solver = jaxsvm.decomposition(C, kernels.rbf(gamma=gamma), tol=1e-4)
        return jaxsvm.fit(solver, data._replace(y=labels), KEY, steps=1).model.coef

    Cs, gammas = jnp.array([0.5, 50.0]), jnp.array([0.01, 0.1])
    labels = jnp.asarray(LABELS, jnp.float32)
    over_C = jax.jit(jax.vmap(coef, (0, None, None)))
    grid = jax.vmap(over_C, (None, 0, None))(Cs, gammas, labels)
    for i, gamma in enumerate(gammas):
        for j, C in enumerate(Cs):
            np.testing.assert_allclose(grid[i, j], coef(C, gamma, labels), atol=2e-3 * float(C))
    text = over_C.lower(Cs, gammas[0], labels).compile().as_text()
    assert "f32[2,200,200]" not in text and "f32[200,200]" in text


@pytest.mark.parametrize("most", [None, 0, 2, 100])
def test_problems_in_turns_and_in_groups(most):
    """None: in turns, prepared once where `shared` is the same; else in groups of so many, where it
    is; 0: in turns."""
    calls = []

    def prepare(shared):
        jax.debug.callback(lambda: calls.append(1))
        return 2 * shared

    solve = lambda shared, own: prepare(shared) + own
    fn = map_in_groups(solve, solve, lambda *_: most)
    fn = map_sharing(prepare, jnp.add) if most is None else fn
    shared, own = jnp.arange(3.0), jnp.arange(4.0)

    def counted(mapped, *args):
        calls.clear()
        value = jax.block_until_ready(mapped(*args))
        jax.effects_barrier()
        return value, len(calls)

    np.testing.assert_array_equal(fn(1.0, 2.0), 4.0)
    value, count = counted(jax.vmap(fn, (None, 0)), 1.0, own)
    np.testing.assert_array_equal(value, 2 + own)
    each = {None: 1, 0: 4, 2: 2, 100: 1}[most]
    assert count == each  # once for each group
    value, count = counted(jax.vmap(fn, (0, None)), shared, 1.0)
    np.testing.assert_array_equal(value, 2 * shared + 1)
    assert count == 3
    value, count = counted(jax.vmap(fn), own, own)
    np.testing.assert_array_equal(value, 3 * own)
    assert count == 4
    value, count = counted(jax.vmap(jax.vmap(fn, (None, 0)), (0, None)), shared, own)
    np.testing.assert_array_equal(value, 2 * shared[:, None] + own[None, :])
    assert count == 3 * each


def problems(number, n):
    """Small data sets, as of few-shot learning."""
    random = np.random.default_rng(2)
    x = random.normal(size=(number, n, 3)).astype(np.float32)
    return x, np.where(x[..., 0] + 0.5 * random.normal(size=(number, n)) > 0, 1, -1)


def test_all_ways_to_map_over_problems():
    """Over rows, numbers of the kernel, labels, and all of them; in groups that memory holds."""
    x, y = problems(5, 20)
    gammas, Cs = jnp.linspace(0.1, 1.0, 5), jnp.linspace(0.5, 2.0, 5)

    def coef(x, y, gamma, C):
        data = jaxsvm.dataset(x, y)
        solver = jaxsvm.decomposition(C, kernels.rbf(gamma=gamma))
        return jaxsvm.fit(solver, data, KEY, steps=1).model.coef

    whole = [(x, y, gammas, Cs), (x[0], y[0], 0.5, 1.0)]
    for axes in ((0, 0, 0, 0), (None, None, 0, None), (None, None, None, 0), (None, 0, None, 0)):
        args = [whole[0 if axis == 0 else 1][i] for i, axis in enumerate(axes)]
        mapped = jax.jit(jax.vmap(coef, axes))(*args)
        for k in range(5):
            one = [a[k] if axis == 0 else a for a, axis in zip(args, axes, strict=True)]
            np.testing.assert_allclose(mapped[k], coef(*one), atol=2e-3)
    nested = jax.jit(jax.vmap(jax.vmap(coef, (0, 0, None, None)), (None, None, 0, 0)))
    np.testing.assert_allclose(
        nested(x, y, gammas[:2], Cs[:2])[1, 3], coef(x[3], y[3], gammas[1], Cs[1]), atol=2e-3
    )


def test_derivatives_of_problems_at_once(x64):
    x, y = problems(4, 20)
    x = x.astype(float)

    def value(gamma, x, y):
        solver = jaxsvm.decomposition(1.0, kernels.rbf(gamma=gamma), tol=1e-10)
        return jnp.sum(jaxsvm.fit(solver, jaxsvm.dataset(x, y), KEY, steps=1).model(x / 2) ** 2)

    slopes = jax.vmap(jax.grad(value), (None, 0, 0))(0.4, x, y)
    for k in range(4):
        difference = (value(0.4 + 1e-5, x[k], y[k]) - value(0.4 - 1e-5, x[k], y[k])) / 2e-5
        assert float(slopes[k]) == pytest.approx(float(difference), rel=1e-4)


def test_numbers_compile_nothing():
    """C, gamma, tol, rounds and the labels are no structure."""
    compiled = []
    jax.monitoring.register_event_duration_secs_listener(
        lambda event, seconds, **_: (
            compiled.append(event) if event.endswith("backend_compile_duration") else None
        )
    )
    x, y = load_iris(return_X_y=True)
    data = jaxsvm.dataset(x, np.where(y == 0, 1, -1))
    run = lambda data, C, gamma, tol, rounds: jaxsvm.fit(
        jaxsvm.decomposition(C, kernels.rbf(gamma=gamma), rounds=rounds),
        data,
        KEY,
        steps=1,
        tol=tol,
    )
    run(data, 1.0, 0.5, 1e-3, 10)
    assert compiled
    compiled.clear()
    run(jaxsvm.dataset(x, np.where(y == 1, 1, -1)), 2.0, 0.1, 1e-4, 20)
    assert not compiled


def test_the_first_working_set_holds_an_eighth_of_the_rows():
    """Rounded down to a multiple of 4, within 1,024 and 4,096 rows, and 2^19 numbers."""
    for n, columns, want in [
        (100, 2, 100),
        (20_000, 2, 2500),
        (10**6, 2, 4096),
        (10**6, 200, 2620),
        (10**6, 10**5, 1024),
    ]:
        rows = jaxsvm.Batch(np.broadcast_to(np.float32(0), (n, columns)), None, None, None)
        assert blocks.init_working_set(rows, None).tolist() == list(range(want))
    assert blocks.init_working_set(rows, 8).shape == (8,)


def test_looks_without_a_new_least_violation_are_counted():
    """A run ends after PATIENCE of them in a row, or where no coefficient has changed."""
    look = lambda kkt, near=True: dual_qp.Residual(
        *jnp.array([1.0, kkt, 0.1]), jnp.array(True), jnp.array(near)
    )
    idle = dual_qp.never_idle(jnp.float32)
    counts = []
    for residual in [look(3.0), look(3.0), look(4.0), look(2.0), look(2.0), look(5.0, near=False)]:
        idle = dual_qp.count_idle(idle, residual)
        counts.append((int(idle.looks), float(idle.least)))
    assert counts == [(0, 3), (1, 3), (2, 3), (0, 2), (1, 2), (0, 2)]
    assert dual_qp.count_idle(idle, look(1.0), jnp.array(False)).looks == dual_qp.PATIENCE
