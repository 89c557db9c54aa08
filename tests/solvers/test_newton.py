"""Newton's method against LIBLINEAR, scikit-learn, closed forms, and the method written out in
NumPy, float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
import scipy.sparse
from cases import maker
from oracles import formula
from sklearn.svm import SVC

import jaxsvm
from jaxsvm import features, implicit, kernels, losses, models, newton, objectives
from jaxsvm.numerics.normal_equations import cholesky, weighted_gram

KEY = jax.random.key(0)
N, D, LAM = 60, 4, 0.02
RANDOM = np.random.default_rng(5)
X = RANDOM.normal(size=(N, D)) * np.array([1.0, 0.5, 2.0, 1.0])
TARGETS = X @ np.array([1.0, -2.0, 0.5, 0.0]) + 0.7 * RANDOM.normal(size=N) + 0.8
Y = np.where(TARGETS > 0, 1.0, -1.0)
WEIGHT = RANDOM.integers(0, 4, size=N).astype(float)
BIASES = ("none", "feature", "free")
SMOOTH = {
    "squared_hinge": losses.squared_hinge,
    "smooth_hinge": losses.smooth_hinge(0.5),
    "logistic": losses.logistic,
    "squared": losses.squared,
    "squared_eps_insensitive": losses.squared_eps_insensitive(0.3),
}


def targets_of(loss):
    return Y if loss.labels else TARGETS


dataset = maker(X, Y)


def solve(data, lam=LAM, *, tol=1e-12, steps=3, **options):
    return jaxsvm.fit(newton(lam, **options), data, KEY, steps=steps, tol=tol)


def parts(model):
    return np.asarray(model.w), float(model.b)


# Closed forms and formulas


@pytest.mark.long
@pytest.mark.parametrize("system", ["cholesky", "cg", "eigen"])
@pytest.mark.parametrize("bias", BIASES)
def test_squared_loss_is_ridge_regression_in_one_step(bias, system, x64):
    share = WEIGHT / WEIGHT.sum()
    x = X if bias == "none" else np.column_stack([X, np.ones(N)])
    ridge = LAM * np.eye(x.shape[1])
    if bias == "free":
        ridge[-1, -1] = 0
    want = np.linalg.solve(x.T * share @ x + ridge, x.T @ (share * TARGETS))
    run = solve(
        dataset(y=TARGETS, weight=WEIGHT),
        loss=losses.squared,
        bias=bias,
        system=system,
        rounds=1,
        steps=9,
        tol=1e-20,
    )
    found = [*run.model.w, run.model.b][: len(want)]
    np.testing.assert_allclose(found, want, rtol=1e-8)
    if system == "cholesky":  # the first update is exact
        assert run.info.step[-1] == 1


def by_hand(x, y, lam, name, bias, steps):
    """Newton steps with the line search of the docstring: the weights after each, b last."""
    _, slope, curvature = formula(SMOOTH[name])
    x = x if bias == "none" else np.column_stack([x, np.ones(len(y))])
    ridge = np.full(x.shape[1], lam)
    if bias == "free":
        ridge[-1] = 0
    v, found = np.zeros(x.shape[1]), []
    for _ in range(steps):
        f = x @ v
        grad = ridge * v + slope(f, y) @ x / len(y)
        s = curvature(f, y) / len(y)
        system = ridge.copy()
        if bias == "free" and not s.any():
            system[-1] = abs(grad[-1]) or 1  # one unit of the scores
        direction = -np.linalg.solve(x.T * s @ x + np.diag(system), grad)
        rate = x @ direction
        along = lambda t, v=v, f=f, d=direction, r=rate: (
            ridge * (v + t * d) @ d + slope(f + t * r, y) @ r / len(y),
            ridge * d @ d + curvature(f + t * r, y) @ r**2 / len(y),
        )
        t, low, high = 1.0, 0.0, np.inf
        for _ in range(40):
            now, bend = along(t)
            if abs(now) <= 0.01 * abs(grad @ direction):
                break
            low, high = (t, high) if now < 0 else (low, t)
            inside = bend > 0 and low < t - now / bend < high
            t = t - now / bend if inside else (low + high) / 2 if high < np.inf else 2 * t
        v = v + t * direction
        found.append(v)
    return np.array(found)


@pytest.mark.long(but=2)
@pytest.mark.parametrize("bias", BIASES)
@pytest.mark.parametrize("name", SMOOTH)
def test_step_by_step(name, bias, x64):
    loss = SMOOTH[name]
    y, steps = targets_of(loss), 4
    want = by_hand(X, y, 1e-3, name, bias, steps)
    solver, data = (
        newton(1e-3, loss=loss, bias=bias, rounds=1, system="cholesky", tol=1e-30),
        dataset(y=y),
    )
    state = solver.init(KEY, data)
    for step in range(steps):
        state, info = jaxsvm.step(solver, state, data)
        # away from the minimum, where rounding decides nothing
        np.testing.assert_allclose(state.v, want[step], rtol=1e-6, atol=1e-8)
        assert int(info.evals) <= 1 + N * (3 + D + 8) or float(info.residual) < 1e-10


@pytest.mark.long
@pytest.mark.parametrize("name", SMOOTH)
def test_the_residual_is_the_duality_gap(name, x64):
    """|g|^2 / (2 lam) = P(w) - D(-slopes / lam), by the objectives of the package."""
    loss = SMOOTH[name]
    y = targets_of(loss)
    data, solver = dataset(y=y), newton(0.3, loss=loss, rounds=1, system="cg")
    state, info = jaxsvm.step(solver, solver.init(KEY, data), data)
    model = solver.model(state)
    coef = -np.asarray(loss.slope(model(X), jnp.asarray(y))) / (0.3 * N)
    dual = float(
        objectives.dual(jnp.asarray(coef * y if loss.labels else coef), data, 0.3, loss=loss)
    )
    primal = float(objectives.primal(model, data, 0.3, loss))
    assert float(info.residual) > 1e-9 or name == "squared"
    np.testing.assert_allclose(info.residual, (primal - dual) / primal, rtol=1e-5, atol=1e-12)


@pytest.mark.long
@pytest.mark.parametrize("name", ["logistic", "smooth_hinge", "squared_hinge", "squared"])
def test_the_residual_bounds_the_excess_with_a_free_bias(name, x64):
    """Near the minimum, in all directions, and where w is the best for its b: there the gradient in
    w says nothing."""
    loss, x = SMOOTH[name], X + np.array([3.0, -2.0, 0.0, 5.0])
    data, solver = dataset(x, targets_of(loss)), newton(LAM, loss=loss, bias="free", tol=1e30)
    best = solve(data, loss=loss, bias="free", tol=1e-14)
    v, least = np.append(*parts(best.model)), float(objectives.primal(best.model, data, LAM, loss))
    state, excesses = best.state.solver, []
    objective = lambda v: objectives.primal(models.Linear(v[:-1], v[-1], "free"), data, LAM, loss)
    flat, plain = (
        np.linalg.solve(jax.jit(jax.hessian(objective))(v), np.eye(D + 1)[-1]),
        jax.jit(objective),
    )
    for direction in [
        flat / np.linalg.norm(flat),
        *np.random.default_rng(3).normal(size=(20, D + 1)),
    ]:
        _, info = jaxsvm.step(solver, state._replace(v=jnp.asarray(v + 1e-4 * direction)), data)
        value = float(plain(v + 1e-4 * direction))
        excesses.append((value - least) / value)
        assert excesses[-1] <= 1.01 * float(info.residual) + 1e-13
    assert max(excesses) > 1e-9


# Rows of every kind


def programs(solver, data):
    state = jax.eval_shape(solver.init, KEY, data)
    return str(jax.make_jaxpr(solver.update)(state, data))


@pytest.mark.long
def test_the_system_is_chosen_by_the_rows():
    wide = jaxsvm.dataset(RANDOM.normal(size=(5, 513)).astype("f"), Y[:5])
    narrow, sparse = dataset(dtype="float32"), jaxsvm.dataset(scipy.sparse.csr_matrix(X), Y)
    assert "cholesky" in programs(newton(LAM), narrow)
    assert "cholesky" not in programs(newton(LAM), wide) + programs(newton(LAM), sparse)
    assert "cholesky" in programs(newton(LAM, system="cholesky"), wide)
    assert "cholesky" not in programs(newton(LAM, system="cg"), narrow)


@pytest.mark.long
def test_on_features_is_newton_on_the_features(x64):
    phi = features.nystrom(KEY, kernels.rbf(1.5), X, landmarks=12)
    run = jaxsvm.fit(jaxsvm.on_features(phi, newton(LAM)), dataset(), KEY, steps=2, tol=1e-14)
    plain = solve(dataset(np.asarray(phi(X))), tol=1e-14)
    np.testing.assert_allclose(run.model.inner.w, plain.model.w, atol=1e-6)
    # all rows as landmarks: the kernel machine itself
    phi = features.nystrom(KEY, kernels.rbf(1.5), X, landmarks=X)
    run = jaxsvm.fit(
        jaxsvm.on_features(phi, newton(LAM, bias="free")), dataset(), KEY, steps=3, tol=1e-14
    )
    exact = jaxsvm.decomposition(
        1 / (LAM * N), kernels.rbf(1.5), loss=losses.squared_hinge, tol=1e-8
    )
    np.testing.assert_allclose(run.model(X), jaxsvm.fit(exact, dataset(), KEY).model(X), atol=1e-4)


@pytest.mark.long(but=1)
@pytest.mark.parametrize(("n", "block"), [(61, 60), (60, 60), (60, 7), (1, 4)])
def test_the_blocks_of_a_weighted_gram_overlap_without_effect(n, block, monkeypatch, x64):
    from jaxsvm.numerics import normal_equations

    monkeypatch.setattr(normal_equations, "BLOCK", 0)
    x, s = RANDOM.normal(size=(10 * n + 3, 5)), RANDOM.random(10 * n + 3)
    one = np.column_stack([x, np.ones(len(x))])
    np.testing.assert_allclose(
        weighted_gram(jnp.asarray(x), jnp.asarray(s), False), x.T * s @ x, rtol=1e-10, atol=1e-12
    )
    found = jax.vmap(lambda s: weighted_gram(jnp.asarray(x), s, True))(jnp.stack([s, 2 * s]))
    np.testing.assert_allclose(found[1], 2 * (one.T * s @ one), rtol=1e-10, atol=1e-12)


# Rounding


@pytest.mark.long
def test_a_singular_matrix_has_a_factor_in_float32():
    row = RANDOM.normal(size=(200, 1)).astype("f")
    x = np.hstack([row, row, 1e6 * row, 0 * row, row * (1 + 1e-6)])
    factor = cholesky(jnp.full(5, 1e-9), jnp.asarray(x.T @ x))
    assert np.isfinite(np.asarray(factor(jnp.ones(5)))).all()


@pytest.mark.long
@pytest.mark.parametrize("lam", [1e-4, 1e-7])
@pytest.mark.parametrize("bias", BIASES)
def test_float32_ends_near_the_minimum_where_the_tolerance_is_out_of_reach(lam, bias):
    """Columns of very different size, copies of columns, hardly any regularisation."""
    x = np.hstack([X * np.array([1.0, 100.0, 1.0, 0.01]), X, X[:, :1] + 1e-4 * X[:, 1:2]])
    with jax.enable_x64(True):
        best = solve(dataset(x), lam, bias=bias, tol=1e-10, steps=5)
        least = float(objectives.primal(best.model, dataset(x), lam, losses.squared_hinge))
    data = dataset(x, dtype="float32")
    solver, before = newton(lam, bias=bias, tol=1e-12), np.inf
    state = solver.init(KEY, data)
    for _ in range(4):
        state, _ = jaxsvm.step(solver, state, data)
        now = float(objectives.primal(solver.model(state), data, lam, losses.squared_hinge))
        assert now <= before * (1 + 1e-5)  # rounding of scores
        before = now
    assert now <= least * (1 + 1e-3)
    # nothing is left to gain: an update is one trial step
    assert int(jaxsvm.step(solver, state, data)[1].evals) <= 3 * N * (3 + x.shape[1] + 40)


@pytest.mark.long
@pytest.mark.parametrize("bias", BIASES)
def test_a_start_without_curvature(bias):
    """At 0 the smooth hinge of small width is linear at every row: H = lam I, singular for a free
    bias."""
    loss = losses.smooth_hinge(0.1)
    data = dataset(dtype="float32")
    run = jaxsvm.fit(newton(LAM, loss=loss, bias=bias), data, KEY, steps=3, tol=1e-6)
    assert run.converged
    bound = jaxsvm.certificate(run.model, data, LAM, loss)
    assert float(bound.gap) <= 1e-3 * float(bound.primal)


def _seven_and_seven():
    return [[1.0]] * 7 + [[-1.0]] * 7, [1] * 7 + [-1] * 7


def _most_of_one_class():
    rng = np.random.default_rng(0)
    return rng.normal(size=(60, 3)), np.where(rng.random(60) < 0.6, 1, -1)


FLAT = {  # rows, labels, lam, width of the smooth hinge: at w = 0 no row has curvature
    "a large lam": ([[1.0], [2.0], [-1.0]], [1, 1, -1], 1000.0, 0.5),
    "columns of almost 0": ([[1e-7], [1e-7], [-1e-7]], [1, 1, -1], 1.0, 0.5),
    "slopes that cancel": (*_seven_and_seven(), 50.0, 0.5),
    "normal rows": (*_most_of_one_class(), 1000.0, 0.5),
    "a narrow hinge": (*_most_of_one_class(), 100.0, 0.1),
}


WAYS = [(name, "cholesky") for name in FLAT]
WAYS += [(name, system) for name in FLAT for system in ("cg", "eigen")]


@pytest.mark.long(but=5)
@pytest.mark.parametrize(("name", "system"), WAYS)
def test_a_free_bias_where_no_row_has_curvature(name, system):
    """A step moves b by about one unit of the scores: the minimum of SciPy in a few steps, in
    float32."""
    x, y, lam, width = FLAT[name]
    x, y = np.array(x), np.array(y, float)

    def objective(v):
        below = 1 - y * (x @ v[:-1] + v[-1])
        loss = np.where(below >= width, below - width / 2, np.maximum(below, 0) ** 2 / (2 * width))
        return lam / 2 * v[:-1] @ v[:-1] + loss.mean()

    options = {"xatol": 1e-12, "fatol": 1e-14, "maxiter": 20_000}
    starts = [np.r_[np.zeros(x.shape[1]), b] for b in (-1.0, 0.0, 1.0)]
    best = min(
        scipy.optimize.minimize(objective, v, method="Nelder-Mead", options=options).fun
        for v in starts
    )
    solver = newton(lam, loss=losses.smooth_hinge(width), bias="free", system=system)
    run = jaxsvm.fit(solver, jaxsvm.dataset(x, y), KEY)
    found = objective(np.r_[np.asarray(run.model.w, np.float64), float(run.model.b)])
    most = 2 if (name, system) == ("slopes that cancel", "cholesky") else 10
    assert run.converged and int(run.state.solver.steps) <= most and found - best <= 2e-6 * best


def test_separable_rows_and_a_free_bias():
    """C of 10,000: a hard margin, whose bias LIBSVM has as well."""
    y = np.where(X[:, 0] > 0.3, 1.0, -1.0)
    x = X + 0.5 * y[:, None] * np.eye(D)[0]
    run = solve(dataset(x, y, dtype="float32"), 1e-6, bias="free", tol=1e-3)
    other = SVC(kernel="linear", C=1e4).fit(x, y)
    assert run.converged
    w, b = parts(run.model)
    np.testing.assert_allclose(w, other.coef_[0], atol=0.05)
    np.testing.assert_allclose(b, other.intercept_[0], atol=0.05)


# Derivatives


def differences(fn, at, h=1e-5):
    at = np.asarray(at, float)
    found = np.zeros(at.shape)
    for place in np.ndindex(at.shape):
        up, down = at.copy(), at.copy()
        up[place] += h
        down[place] -= h
        found[place] = (fn(up) - fn(down)) / (2 * h)
    return found


ROWS = slice(0, 12)


def score_of(model):
    return jnp.sum(jnp.tanh(model.w)) + 2 * jnp.tanh(model.b)


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "bias"),
    [*((name, "free") for name in SMOOTH), *(("squared_hinge", b) for b in BIASES)],
)
def test_derivatives_of_a_run(name, bias, x64):
    """With respect to lam, rows, targets and weights, by the run itself at other numbers."""
    make = lambda: losses.smooth_hinge(0.5) if name == "smooth_hinge" else SMOOTH[name]
    y, x, weight = targets_of(SMOOTH[name])[ROWS], X[ROWS], WEIGHT[ROWS] + 0.5
    index = jnp.arange(len(y), dtype=jnp.int32)

    def fun(lam, x, y, weight):
        data = jaxsvm.Batch(jnp.asarray(x), jnp.asarray(y), index, jnp.asarray(weight))
        return score_of(solve(data, lam, loss=make(), bias=bias, tol=1e-24).model)

    args = [np.asarray(LAM), x, y, weight]
    places = (0, 1, 3) if SMOOTH[name].labels else (0, 1, 2, 3)
    found = jax.jit(jax.grad(fun, places))(*args)
    plain = jax.jit(fun)
    for place, slope in zip(places, found, strict=True):
        at = lambda value, place=place: float(plain(*args[:place], value, *args[place + 1 :]))
        np.testing.assert_allclose(slope, differences(at, args[place]), rtol=1e-4, atol=1e-6)


@pytest.mark.long
def test_derivatives_in_the_width_of_a_loss_and_of_second_order(x64):
    data = dataset()
    fun = lambda width: score_of(
        solve(data, LAM, loss=losses.smooth_hinge(width), bias="free", tol=1e-24).model
    )
    slope = jax.jit(jax.grad(fun))
    np.testing.assert_allclose(slope(0.7), differences(jax.jit(fun), 0.7), rtol=1e-5)
    smooth = lambda lam: score_of(
        solve(data, lam, loss=losses.logistic, bias="feature", tol=1e-26).model
    )
    first = jax.jit(jax.grad(smooth))
    second = jax.jit(jax.hessian(smooth))(LAM)
    np.testing.assert_allclose(second, differences(first, LAM), rtol=1e-4)


def test_second_derivatives_of_two_rows_are_those_by_hand(x64):
    """Squared losses of rows 1 and -1: w = 1 / (1 + lam)."""
    rows = jaxsvm.dataset([[1.0], [-1.0]], [1, -1])
    solver = lambda lam: jaxsvm.newton(lam, loss=losses.squared, bias="none")
    w = lambda lam: jaxsvm.fit(solver(lam), rows, KEY, steps=1).model.w[0]
    np.testing.assert_allclose(jax.jit(jax.grad(jax.grad(w)))(1.0), 2 / 2**3, rtol=1e-6)


@pytest.mark.long
def test_derivatives_of_sparse_rows_by_conjugate_gradients(x64):
    sparse = jaxsvm.dataset(scipy.sparse.csr_matrix(X), Y)
    fun = lambda data: lambda lam: score_of(solve(data, lam, bias="feature", tol=1e-24).model)
    dense = jax.jit(jax.grad(fun(dataset())))(LAM)
    np.testing.assert_allclose(jax.jit(jax.grad(fun(sparse)))(LAM), dense, rtol=1e-8)
    forward = jax.jit(lambda lam: jax.jvp(fun(sparse), (lam,), (jnp.ones(()),))[1])(
        jnp.asarray(LAM)
    )
    np.testing.assert_allclose(forward, dense, rtol=1e-8)


def test_without_differentiation_a_solution_is_given_back():
    w = jnp.arange(D, dtype=jnp.float32)
    data = dataset(dtype="float32")
    call = lambda w: implicit.linear_solution(w, 2.0, data, LAM, losses.logistic, "free")
    found = call(w)
    np.testing.assert_array_equal(found[0], w)
    assert found[1] == 2
    assert "dot_general" not in str(jax.make_jaxpr(call)(w))
