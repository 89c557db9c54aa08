"""Few rows solved on the whole kernel matrix: LIBSVM's optimum in float64, blocks, sharing under
`vmap`, small programs."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from compiling import listen
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
    solver = jaxsvm.decomposition(C, kernels.rbf(gamma=GAMMA), **options)
    return jaxsvm.fit(solver, data, KEY, steps=1, tol=tol)


def coef_at(x, y, gamma, C):
    """The coefficients of one problem, also where these are traced."""
    solver = jaxsvm.decomposition(C, kernels.rbf(gamma=gamma), tol=1e-4)
    return jaxsvm.fit(solver, jaxsvm.dataset(x, y), KEY, steps=1).model.coef


@pytest.mark.long
@pytest.mark.parametrize("stop", ["kkt", "gap"])
@pytest.mark.parametrize("kind", ["labels", "targets"])
def test_libsvms_dual_in_float64(kind, stop, x64):
    if kind == "labels":
        y, eps, loss = LABELS, 0.0, losses.hinge
        peer = SVC(C=10.0, gamma=GAMMA, tol=1e-12).fit(X, y)
    else:
        y, eps, loss = TARGETS, 0.1, losses.eps_insensitive(0.1)
        peer = SVR(C=10.0, gamma=GAMMA, epsilon=eps, tol=1e-12).fit(X, y)
    best, K = np.zeros(len(y)), gram(X)
    best[peer.support_] = peer.dual_coef_[0]
    data = jaxsvm.dataset(X, y, task="regression")
    run = solve(data, 1e-10, stop=stop, loss=loss)
    assert run.converged
    found, most = (dual_value(coef, y, K, eps) for coef in (run.model.coef, best))
    np.testing.assert_allclose(found, most, rtol=1e-9)
    np.testing.assert_allclose(run.model(data.x), K @ best + peer.intercept_, atol=1e-4)


@pytest.mark.long
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


def test_more_rows_or_less_memory_take_blocks():
    n = len(LABELS)
    fits = lambda n, memory: whole_matrix.fits(jax.ShapeDtypeStruct((n, 2), jnp.float32), memory)
    assert fits(n, 4 * n * n) and not fits(n, 4 * n * n - 1)
    assert not fits(whole_matrix.MAX_ROWS + 1, 2**40)
    data = jaxsvm.dataset(X, LABELS)
    assert solve(data, 1e-3, memory=1000).evals != n * n  # rows are computed as they are needed


@pytest.mark.long
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


def test_the_residual_is_that_of_the_last_step():
    """However few there are, by the violation in NumPy. The squared hinge adds 1 / (2 C) to K."""
    x, y = X[:20].astype("f"), LABELS[:20].astype("f")
    solver = jaxsvm.decomposition(2.0, kernels.rbf(gamma=GAMMA), loss=losses.squared_hinge)
    state = solver.init(KEY, jaxsvm.dataset(x, y)).dual
    run = whole_matrix.make_solver("kkt", "free")
    for number in (1, 2, 3):
        own = solver.qp, 1e-3, jnp.float32(number / 2000), state, jnp.asarray(y)
        end, residual, steps = jax.jit(run)((solver.kernel, jnp.asarray(x)), own)
        assert int(steps) == number
        coef = np.asarray(end.coef, float)
        grad = y - gram(x.astype(float)) @ coef - coef / 4
        gap = grad[(y > 0) | (coef < 0)].max() - grad[(y < 0) | (coef > 0)].min()
        assert float(residual) == pytest.approx(gap, rel=1e-4)


@pytest.mark.long
def test_mapped_runs_share_the_matrix():
    """Runs over C have one kernel matrix, runs over gamma one each at a time, and all equal runs in
    turn."""
    Cs, gammas = jnp.array([0.5, 50.0]), jnp.array([0.01, 0.1])
    coef, labels = functools.partial(coef_at, X.astype(np.float32)), LABELS.astype(np.float32)
    over_C = jax.jit(jax.vmap(coef, (None, None, 0)))
    grid = jax.vmap(over_C, (None, 0, None))(labels, gammas, Cs)
    for i, gamma in enumerate(gammas):
        for j, C in enumerate(Cs):
            np.testing.assert_allclose(grid[i, j], coef(labels, gamma, C), atol=2e-3 * float(C))
    text = over_C.lower(labels, gammas[0], Cs).compile().as_text()
    assert "f32[2,200,200]" not in text and "f32[200,200]" in text


@pytest.mark.long(but=1)
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
    over_own, over_shared = jax.vmap(fn, (None, 0)), jax.vmap(fn, (0, None))
    both, grid = jax.vmap(fn), jax.vmap(over_own, (0, None))
    each = {None: 1, 0: 4, 2: 2, 100: 1}[most]  # once for each group
    for mapped, args, wanted, calls_made in (
        (over_own, (1.0, own), 2 + own, each),
        (over_shared, (shared, 1.0), 2 * shared + 1, 3),
        (both, (own, own), 3 * own, 4),
        (grid, (shared, own), 2 * shared[:, None] + own[None, :], 3 * each),
    ):
        value, count = counted(mapped, *args)
        np.testing.assert_array_equal(value, wanted)
        assert count == calls_made


def problems(number, n):
    """Small data sets, as of few-shot learning."""
    random = np.random.default_rng(2)
    x = random.normal(size=(number, n, 3)).astype(np.float32)
    return x, np.where(x[..., 0] + 0.5 * random.normal(size=(number, n)) > 0, 1, -1)


@pytest.mark.long
def test_all_ways_to_map_over_problems():
    """Over rows, numbers of the kernel, labels, and all of them; in groups that memory holds."""
    x, y = problems(5, 20)
    gammas, Cs = jnp.linspace(0.1, 1.0, 5), jnp.linspace(0.5, 2.0, 5)
    whole = [(x, y, gammas, Cs), (x[0], y[0], 0.5, 1.0)]
    for axes in ((0, 0, 0, 0), (None, None, 0, None), (None, None, None, 0), (None, 0, None, 0)):
        args = [whole[0 if axis == 0 else 1][i] for i, axis in enumerate(axes)]
        mapped = jax.jit(jax.vmap(coef_at, axes))(*args)
        for k in range(5):
            one = [a[k] if axis == 0 else a for a, axis in zip(args, axes, strict=True)]
            np.testing.assert_allclose(mapped[k], coef_at(*one), atol=2e-3)
    nested = jax.jit(jax.vmap(jax.vmap(coef_at, (0, 0, None, None)), (None, None, 0, 0)))
    found, want = nested(x, y, gammas[:2], Cs[:2])[1, 3], coef_at(x[3], y[3], gammas[1], Cs[1])
    np.testing.assert_allclose(found, want, atol=2e-3)


@pytest.mark.long
def test_derivatives_of_problems_at_once(x64):
    x, y = problems(4, 20)
    x = x.astype(float)

    def value(gamma, x, y):
        solver = jaxsvm.decomposition(1.0, kernels.rbf(gamma=gamma), tol=1e-10)
        return jnp.sum(jaxsvm.fit(solver, jaxsvm.dataset(x, y), KEY, steps=1).model(x / 2) ** 2)

    slopes = jax.jit(jax.vmap(jax.grad(value), (None, 0, 0)))(0.4, x, y)
    plain = jax.jit(value)
    for k in range(4):
        difference = (plain(0.4 + 1e-5, x[k], y[k]) - plain(0.4 - 1e-5, x[k], y[k])) / 2e-5
        assert float(slopes[k]) == pytest.approx(float(difference), rel=1e-4)


def test_numbers_compile_nothing():
    """C, gamma, tol, rounds and the labels are no structure."""
    events, (x, y) = listen(), load_iris(return_X_y=True)
    for k, C, gamma, tol, rounds in ((0, 1.0, 0.5, 1e-3, 10), (1, 2.0, 0.1, 1e-4, 20)):
        solver = jaxsvm.decomposition(C, kernels.rbf(gamma=gamma), rounds=rounds)
        events.clear()
        jaxsvm.fit(solver, jaxsvm.dataset(x, np.where(y == k, 1, -1)), KEY, steps=1, tol=tol)
        assert any(event.endswith("backend_compile_duration") for event in events) == (k == 0)


def test_the_first_working_set_holds_an_eighth_of_the_rows():
    """Rounded down to a multiple of 4, within 1,024 and 4,096 rows, and 2^19 numbers."""
    sizes = {(100, 2): 100, (20_000, 2): 2500, (10**6, 2): 4096, (10**6, 200): 2620}
    for shape, want in (sizes | {(10**6, 10**5): 1024}).items():
        rows = jaxsvm.Batch(np.broadcast_to(np.float32(0), shape), None, None, None)
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
