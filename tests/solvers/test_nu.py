"""nu-SVC, one-class SVM and nu-SVR against LIBSVM, a transcription of its solver in NumPy, and
differences of solutions."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest
import scipy.sparse
import sklearn.datasets
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.preprocessing import StandardScaler
from sklearn.svm import NuSVC, NuSVR, OneClassSVM

import jaxsvm
from jaxsvm import kernels
from jaxsvm.engines.dual_qp import Dual
from jaxsvm.engines.smo_step import part_pair_step
from jaxsvm.objectives import nu_problems
from jaxsvm.types import Quadratic

KEY = jax.random.key(0)
FORMS = ("nu_svc", "one_class", "nu_svr")
N, D, C, NU, GAMMA = 40, 3, 2.0, 0.4, 0.3
RNG = np.random.default_rng(6)
X = RNG.normal(size=(N, D)).astype(np.float32).astype(np.float64)
LABELS = np.where(X @ [1.0, -1.0, 0.5] + RNG.normal(size=N) > 0, 1.0, -1.0)
TARGETS = (np.sin(2 * X[:, 0]) + 0.5 * RNG.normal(size=N)).astype(np.float32).astype(np.float64)
Z = RNG.normal(size=(7, D))


def gaussian(x, z, gamma=GAMMA):
    return oracles.gaussian(x, z, gamma)


def target(form):
    return TARGETS if form == "nu_svr" else LABELS


def dataset(form, x=X, y=None, weight=None, dtype=np.float64):
    y = target(form) if y is None else y
    task = "binary" if form == "nu_svc" else "regression"
    return jaxsvm.dataset(np.asarray(x, dtype), y, weight, task=task)


def make(form, nu=NU, C=C, gamma=GAMMA, kernel=None, **options):
    numbers = (nu, C) if form == "nu_svr" else (nu,)
    return getattr(jaxsvm, form)(
        *numbers, kernels.rbf(gamma=gamma) if kernel is None else kernel, **options
    )


def fit(solver, data, tol=1e-10, steps=1, **options):
    return jaxsvm.fit(solver, data, KEY, steps=steps, every=1, tol=tol, **options)


def libsvm(form, nu=NU, C=C, gamma=GAMMA, tol=1e-10, kernel="rbf"):
    options = {"nu": nu, "gamma": gamma, "tol": tol, "kernel": kernel}
    return {"nu_svc": NuSVC, "one_class": OneClassSVM, "nu_svr": functools.partial(NuSVR, C=C)}[
        form
    ](**options)


def values(fitted, x):
    return fitted.predict(x) if isinstance(fitted, NuSVR) else fitted.decision_function(x)


def full(fitted, n):
    """LIBSVM's coefficients of all rows."""
    coef = np.zeros(n)
    coef[fitted.support_] = fitted.dual_coef_[0]
    return coef


def dual_value(form, coef, gram, y):
    return (y @ coef if form == "nu_svr" else 0) - coef @ gram @ coef / 2


# LIBSVM


def standardized(x):
    return StandardScaler().fit_transform(x[:, x.std(0) > 0]).astype(np.float32).astype(np.float64)


@functools.cache
def known(name):
    """Rows and labels, or real targets, of a data set of scikit-learn."""
    if name == "wine alcohol":
        x = standardized(sklearn.datasets.load_wine().data)
        return x[:, 1:], x[:, 0]
    x, y = getattr(sklearn.datasets, f"load_{name}")(return_X_y=True)
    if name == "diabetes":
        return standardized(x), standardized(y[:, None])[:, 0]
    chosen = y > 0 if name == "iris" else y < 2
    x, y = x[chosen], y[chosen]
    return standardized(x), np.where(y == y.max(), 1.0, -1.0)


KNOWN = [
    (form, name)
    for form in ("nu_svc", "one_class")
    for name in ("iris", "wine", "digits", "breast_cancer")
]
KNOWN += [("nu_svr", name) for name in ("diabetes", "wine alcohol", "iris", "wine")]
on_known = pytest.mark.parametrize(
    ("form", "name"), [pytest.param(*case, id="-".join(case)) for case in KNOWN]
)


def settings_of(form):
    return ((0.1, 1.0), (0.5, 10.0)) if form == "nu_svr" else ((0.1, 1.0), (0.5, 1.0))


@pytest.mark.long(but=1)
@on_known
def test_the_optimum_is_libsvms_in_float64(form, name, x64):
    (x, y), gamma = known(name), 1 / known(name)[0].shape[1]
    gram, data = gaussian(x, x, gamma), dataset(form, x, y)
    for nu, C in settings_of(form):
        theirs, run = libsvm(form, nu, C, gamma).fit(x, y), fit(make(form, nu, C, gamma), data)
        assert run.converged
        state, coef, theirs_coef = (
            run.state.solver,
            np.asarray(run.model.coef),
            full(theirs, len(y)),
        )
        if form == "nu_svc":  # before both are divided by the margin
            margin = nu * len(y) / np.abs(theirs_coef).sum()
            np.testing.assert_allclose(float(state.margin), margin, rtol=1e-5)
            coef, theirs_coef = coef * float(state.margin), theirs_coef * margin
        best = dual_value(form, theirs_coef, gram, y)
        assert abs(dual_value(form, coef, gram, y) - best) <= 1e-9 * max(1, abs(best))
        np.testing.assert_allclose(run.model(data.x), values(theirs, x), rtol=0, atol=1e-5)
        assert abs(float(run.model.b) - theirs.intercept_[0]) <= 1e-5
        if form == "one_class":
            assert abs(float(state.offset) - theirs.offset_[0]) <= 1e-5
            np.testing.assert_allclose(
                run.model(data.x) - run.model.b, theirs.score_samples(x), rtol=0, atol=1e-5
            )
        proof = jaxsvm.nu_certificate(run.model, data, nu, form, C=C)
        assert proof.exact and 0 <= proof.gap <= 1e-7 * max(1, abs(best))
        assert (
            proof.dual - 1e-9 * max(1, abs(best)) <= best <= proof.primal + 1e-9 * max(1, abs(best))
        )


@pytest.mark.long(but=1)
@on_known
def test_a_float32_run_with_default_options_is_within_1e_3_of_libsvm(form, name):
    (x, y), gamma = known(name), 1 / known(name)[0].shape[1]
    data = dataset(form, x, y, dtype=np.float32)
    for nu, C in settings_of(form):
        run = jaxsvm.fit(make(form, nu, C, gamma), data, KEY)
        assert run.converged and run.model.coef.dtype == np.float32
        np.testing.assert_allclose(
            run.model(data.x), values(libsvm(form, nu, C, gamma).fit(x, y), x), rtol=0, atol=1e-3
        )


@pytest.mark.long
@pytest.mark.parametrize("form", FORMS)
def test_more_rows_than_one_block_holds(form, x64):
    x, y = known("diabetes") if form == "nu_svr" else known("breast_cancer")
    theirs = libsvm(form, 0.3, 1.0, 0.1).fit(x, y)
    run = fit(make(form, 0.3, 1.0, 0.1, working_set=32, memory=0), dataset(form, x, y))
    assert run.converged and run.evals > 0
    np.testing.assert_allclose(run.model(x), values(theirs, x), rtol=0, atol=1e-5)


@pytest.mark.long(but=1)
@pytest.mark.parametrize("form", FORMS)
def test_the_smallest_working_set_holds_a_pair_of_a_part(form, x64):
    run = fit(make(form, working_set=4, rounds=1000.0), dataset(form), tol=1e-6)
    assert run.converged
    theirs = libsvm(form).fit(X, target(form))
    np.testing.assert_allclose(run.model(X), values(theirs, X), rtol=0, atol=1e-4)


# --------------------------------------------------------------------------------- LIBSVM's steps,
# transcribed to NumPy


def solver_nu(gram, linear, low, high, total, tol, steps=100_000):
    """Solver_NU for signed coefficients (k, n) of given sums, by the rules of the paper:
    coefficients, levels and pairs."""
    k, n = low.shape
    sign, coef = [1.0, -1.0][:k], np.zeros((k, n))
    for p in range(k):  # fill up in order
        left = abs(total[p])
        for i in range(n):
            part = min(abs((high - low)[p, i]), left)
            coef[p, i], left = sign[p] * part, left - part
    pairs = []
    for _ in range(steps):
        grad, best, pair, gap = linear - gram @ coef.sum(0), 0.0, None, 0.0
        for p in range(k):
            may_grow, may_fall = coef[p] < high[p], coef[p] > low[p]
            if not may_grow.any() or not may_fall.any():
                continue
            i = np.argmax(np.where(may_grow, grad, -np.inf))
            gap = max(gap, grad[i] - grad[may_fall].min())
            for j in np.flatnonzero(may_fall & (grad < grad[i])):
                curvature = max(gram[i, i] + gram[j, j] - 2 * gram[i, j], 1e-12)
                if (grad[i] - grad[j]) ** 2 / curvature > best:
                    best, pair, step = (
                        (grad[i] - grad[j]) ** 2 / curvature,
                        (p, i, j),
                        (grad[i] - grad[j]) / curvature,
                    )
        if gap < tol or pair is None:
            break
        p, i, j = pair
        t = min(step, high[p, i] - coef[p, i], coef[p, j] - low[p, j])
        coef[p, i] = high[p, i] if t == high[p, i] - coef[p, i] else coef[p, i] + t
        coef[p, j] = low[p, j] if t == coef[p, j] - low[p, j] else coef[p, j] - t
        pairs.append((i, j))
    return coef, pairs


def by_hand(form, weight, nu=NU, C=C):
    """linear, low, high and total of the problem."""
    W, zero = weight.sum(), np.zeros_like(weight)
    if form == "one_class":
        return zero, zero[None], weight[None], np.array([nu * W])
    if form == "nu_svr":
        return (
            TARGETS,
            np.stack([zero, -C * weight]),
            np.stack([C * weight, zero]),
            C * nu * W / 2 * np.array([1, -1]),
        )
    up = np.where(LABELS > 0, weight, 0)
    return zero, np.stack([zero, up - weight]), np.stack([up, zero]), nu * W / 2 * np.array([1, -1])


@pytest.mark.long(but=1)
@pytest.mark.parametrize("form", FORMS)
def test_steps_are_those_of_libsvms_solver(form, x64):
    gram, (linear, low, high, total) = gaussian(X, X), by_hand(form, np.ones(N))
    start, _ = solver_nu(gram, linear, low, high, total, 1e-9, steps=0)
    _, pairs = solver_nu(gram, linear, low, high, total, 1e-9, steps=25)
    dual = Dual(
        jnp.asarray(start),
        linear - gram @ start.sum(0),
        Quadratic(jnp.asarray(low), jnp.asarray(high)),
        jnp.ones(N),
    )
    step = jax.jit(functools.partial(part_pair_step, lambda i: jnp.asarray(gram)[i]))
    sum_error, ours = jnp.zeros(len(low)), []
    for _ in pairs:
        dual, sum_error, change = step(dual, sum_error)
        ours.append(tuple(np.asarray(change.index)))
    assert len(pairs) == 25 and ours == pairs
    np.testing.assert_allclose(
        dual.coef, solver_nu(gram, linear, low, high, total, 1e-9, steps=25)[0], rtol=0, atol=1e-12
    )
    np.testing.assert_allclose(np.sum(dual.coef, axis=1), total, rtol=1e-12)


@pytest.mark.long(but=1)
@pytest.mark.parametrize("form", FORMS)
def test_the_run_ends_where_the_transcription_ends(form, x64):
    gram, weight = gaussian(X, X), np.where(np.arange(N) % 7 == 3, 0.0, RNG.uniform(0.5, 2, N))
    linear, low, high, total = by_hand(form, weight)
    coef, _ = solver_nu(gram, linear, low, high, total, 1e-10)
    run = fit(make(form), dataset(form, weight=weight))
    state = run.state.solver.inner.dual
    np.testing.assert_allclose(np.sum(state.coef, axis=0), coef.sum(0), rtol=0, atol=1e-6)
    np.testing.assert_allclose(np.sum(state.coef, axis=1), total, rtol=1e-12)
    assert (np.asarray(state.coef) >= low).all() and (np.asarray(state.coef) <= high).all()
    np.testing.assert_allclose(
        state.grad, linear - gram @ np.sum(state.coef, axis=0), rtol=0, atol=1e-12
    )


# weights and files


@pytest.mark.long(but=1)
@pytest.mark.parametrize("form", FORMS)
def test_a_start_gives_the_same_optimum(form, x64):
    data = dataset(form)
    run = fit(make(form), data)
    again = fit(make(form, start=np.asarray(run.model.coef)), data, tol=1e-6)
    np.testing.assert_allclose(again.model(Z), run.model(Z), rtol=0, atol=1e-7)
    other = fit(make(form, 0.2, start=np.asarray(run.model.coef)), data)
    np.testing.assert_allclose(
        other.model(Z), values(libsvm(form, 0.2).fit(X, target(form)), Z), rtol=1e-5, atol=1e-5
    )


@pytest.mark.long
def test_precomputed_and_sparse_rows(x64):
    gram = gaussian(X, X)
    ours = fit(make("nu_svc", kernel=kernels.precomputed()), dataset("nu_svc", gram))
    np.testing.assert_allclose(
        ours.model(gram), libsvm("nu_svc").fit(X, LABELS).decision_function(X), rtol=0, atol=1e-6
    )
    sparse = np.where(np.abs(X) > 0.7, X, 0)
    data = jaxsvm.dataset(scipy.sparse.csr_matrix(sparse), LABELS)
    theirs = libsvm("nu_svc").fit(sparse, LABELS)
    np.testing.assert_allclose(
        fit(make("nu_svc"), data).model(Z), theirs.decision_function(Z), rtol=0, atol=1e-6
    )


@pytest.mark.parametrize(("coef", "total", "want"), [
    ([1.0, 0.5, 0.0], 0.75, [0.5, 0.25, 0.0]),  # scaled down
    ([1.5, 0.5, 0.0], 2.75, [1.0, 1.0, 0.75]),  # clipped, and filled up in order
    ([0.0, 0.0, 0.0], 1.5, [1.0, 0.5, 0.0]),  # LIBSVM's initial point
])  # fmt: skip
def test_a_start_is_brought_to_its_sum(coef, total, want):
    assert (
        nu_problems.fill(jnp.array(coef), jnp.array([1.0, 1.0, 2.0]), jnp.float32(total)).tolist()
        == want
    )


# infeasible nu


def test_an_infeasible_nu_is_refused_where_libsvm_refuses_it():
    y = np.where(np.arange(N) < 8, 1.0, -1.0)
    data = dataset("nu_svc", y=y, dtype=np.float32)
    assert jaxsvm.fit(make("nu_svc", 0.4), data, KEY).finite  # 2 * 8 / 40
    with pytest.raises(ValueError, match="infeasible"):
        libsvm("nu_svc", 0.41).fit(X, y)
    with pytest.raises(
        ValueError, match=r"nu must be at most 2 min\(n\+, n-\) / n = 0.4 .* got 0.41"
    ):
        jaxsvm.fit(make("nu_svc", 0.41), data, KEY)
    weight = np.where(y > 0, 0.5, 1.0)  # 2 * 4 / 36
    with pytest.raises(ValueError, match=r"= 0.222222 for the weights of these classes, got 0.3"):
        jaxsvm.fit(
            make("nu_svc", 0.3), dataset("nu_svc", y=y, weight=weight, dtype=np.float32), KEY
        )


@pytest.mark.long
def test_inside_transformations_an_infeasible_nu_gives_nan():
    data = dataset("nu_svc", y=np.where(np.arange(N) < 8, 1.0, -1.0), dtype=np.float32)
    at = lambda nu: jaxsvm.fit(make("nu_svc", nu), data, KEY).model(jnp.asarray(Z, jnp.float32))
    finite = np.isfinite(jax.vmap(at)(jnp.array([0.2, 0.4, 0.41, 0.9])))
    np.testing.assert_array_equal(finite.all(1), [True, True, False, False])
    np.testing.assert_array_equal(finite.any(1), [True, True, False, False])


# properties


@pytest.mark.long
@settings(max_examples=12, deadline=None, derandomize=True, database=None)
@given(st.sampled_from(FORMS), st.floats(0.05, 0.9), st.floats(0.05, 3.0))
def test_nu_bounds_the_errors_from_above_and_the_support_vectors_from_below(form, nu, gamma):
    nu = min(nu, 0.99 * 2 * min((LABELS > 0).mean(), (LABELS < 0).mean()))
    with jax.enable_x64(True):
        data = dataset(form)
        run = fit(make(form, nu, gamma=gamma), data, tol=1e-9)
        f, coef, state = np.asarray(run.model(data.x)), np.asarray(run.model.coef), run.state.solver
    outside = {
        "nu_svc": lambda: (
            LABELS * f < 1 - 1e-6 - 1e-9 / float(state.margin)
        ),  # the model is divided by the margin
        "one_class": lambda: f < -1e-6,
        "nu_svr": lambda: np.abs(TARGETS - f) > float(state.tube) + 1e-6,
    }[form]()
    assert outside.mean() <= nu + 1e-9 and (np.abs(coef) > 1e-9).mean() >= nu - 1e-9
    assert form != "nu_svr" or float(state.tube) >= -1e-9
    assert form != "nu_svc" or float(state.margin) > 0


@pytest.mark.long
def test_the_solution_is_that_of_decomposition_at_the_margin_and_at_the_tube(x64):
    run = fit(make("nu_svc"), dataset("nu_svc"))
    lam = jaxsvm.lam_from_C(1 / float(run.state.solver.margin), N)
    proof = jaxsvm.certificate(run.model, dataset("nu_svc"), lam)
    assert proof.exact and proof.gap < 1e-8
    run = fit(make("nu_svr"), dataset("nu_svr"))
    tube = jaxsvm.losses.eps_insensitive(float(run.state.solver.tube))
    proof = jaxsvm.certificate(run.model, dataset("nu_svr"), jaxsvm.lam_from_C(C, N), tube)
    assert proof.exact and proof.gap < 1e-8


def test_with_a_gaussian_kernel_one_class_is_the_support_vector_data_description(x64):
    """The ball of least radius in feature space with slack, by the optimality conditions of Tax and
    Duin in NumPy."""
    run = fit(make("one_class"), dataset("one_class"))
    coef, gram = np.asarray(run.model.coef), gaussian(X, X)
    share = coef / coef.sum()
    distance = 1 - 2 * gram @ share + share @ gram @ share
    square = float(run.model.sqnorm()) / (NU * N) ** 2
    radius = 1 - 2 * float(run.state.solver.offset) / (NU * N) + square
    inner, outer = coef < 1e-9, coef > 1 - 1e-9
    assert inner.any() and outer.any() and (~inner & ~outer).any()
    np.testing.assert_allclose(distance[~inner & ~outer], radius, rtol=1e-7)
    assert (distance[inner] <= radius + 1e-7).all() and (distance[outer] >= radius - 1e-7).all()


# certificates


def primal(form, w_square, f, b, weight, nu=NU, C=C):
    """The primal of the docstrings in NumPy: best margin, threshold or tube for nu_svr only."""
    W = weight.sum()
    if form == "nu_svr":
        cost = lambda e: C * (nu * W * e + weight @ np.maximum(np.abs(TARGETS - f) - e, 0))
        return w_square / 2 + min(map(cost, [0.0, *np.abs(TARGETS - f)]))
    if form == "one_class":
        return w_square / 2 + nu * W * b + weight @ np.maximum(-f, 0)
    return None


@pytest.mark.long(but=1)
@pytest.mark.parametrize("form", FORMS)
def test_the_gap_bounds_the_distance_from_the_optimum_of_any_model(form):
    weight = np.where(
        np.arange(N) % 7 == 3, 0.0, np.round(np.random.default_rng(1).uniform(0.5, 2, N), 2)
    )
    data = dataset(form, weight=weight, dtype=np.float32)
    model = jaxsvm.fit(make(form), data, KEY, tol=1e-5).model
    best = jaxsvm.nu_certificate(model, data, NU, form, C=C)
    linear, low, high, total = by_hand(form, np.asarray(data.weight, np.float64))
    coef, _ = solver_nu(gaussian(X, X), linear, low, high, total, 1e-9)
    optimum = linear @ coef.sum(0) - coef.sum(0) @ gaussian(X, X) @ coef.sum(0) / 2
    assert 0 <= best.gap < 1e-3 and best.exact
    assert best.dual - 1e-6 <= optimum <= best.primal + 1e-6
    random = np.random.default_rng(2)
    for size in (1e-3, 0.1, 1.0):
        shift = jnp.asarray(size * random.normal(size=N), jnp.float32)
        coef = model.coef * (1 + shift) + (shift if size == 1.0 else 0)
        moved = model.__class__(
            model.kernel, model.x, coef, model.b + size, model.index, model.bias
        )
        proof = jaxsvm.nu_certificate(moved, data, NU, form, C=C)
        assert proof.dual <= optimum + 1e-6 and proof.primal >= optimum - 1e-6
        f = gaussian(X, X) @ np.asarray(coef, np.float64) + float(moved.b)
        square = np.asarray(coef, np.float64) @ (f - float(moved.b))
        if form != "nu_svc":
            np.testing.assert_allclose(
                proof.primal, primal(form, square, f, float(moved.b), weight), rtol=1e-5
            )


# derivatives


def output(form, p):
    """A number made of the model at new rows, and of its coefficients."""
    data = jaxsvm.Batch(p["x"], p["y"], jnp.arange(N, dtype=jnp.int32), p["weight"])
    model = jaxsvm.fit(make(form, p["nu"], p["C"], p["gamma"]), data, KEY, tol=1e-12).model
    return jnp.sum(jnp.sin(model(jnp.asarray(Z)))) + jnp.sum(
        model.coef * jnp.cos(jnp.arange(N, dtype=model.coef.dtype))
    )


def point(form, nu):
    weight = jnp.asarray(np.random.default_rng(3).uniform(0.7, 1.5, N))
    p = {"nu": nu, "C": 1.3, "gamma": 0.4, "x": X, "y": target(form), "weight": weight}
    return jax.tree.map(jnp.asarray, p)


@pytest.mark.long
def test_derivatives_of_a_part_without_free_coefficients(x64):
    """All rows of the smaller class at their bound: its level is the midpoint of an interval, moved
    by the other class."""
    y = np.where(np.arange(N) < 8, 1.0, -1.0)

    def at(nu, gamma):
        data = dataset("one_class", y=y)  # the labels, unchecked
        run = jaxsvm.fit(make("nu_svc", nu, gamma=gamma), data, KEY, tol=1e-12)
        return jnp.sum(jnp.sin(run.model(jnp.asarray(Z)))), run.state.solver.inner.dual.coef[0]

    nu = 2 * 8 / N
    assert (np.asarray(at(nu, 0.4)[1][:8]) == 1).all()
    slope = jax.grad(lambda gamma: at(nu, gamma)[0])(0.4)
    ends = [float(at(nu, 0.4 + h)[0]) for h in (-1e-6, 1e-6)]
    np.testing.assert_allclose(slope, (ends[1] - ends[0]) / 2e-6, rtol=1e-4, atol=1e-6)


@pytest.mark.long
def test_second_derivatives_and_forward_mode_agree(x64):
    p = point("nu_svc", 0.37)
    of_gamma = lambda gamma: output("nu_svc", p | {"gamma": gamma})
    forward, reverse = jax.jacfwd(of_gamma)(p["gamma"]), jax.grad(of_gamma)(p["gamma"])
    np.testing.assert_allclose(forward, reverse, rtol=1e-8)
    ends = [float(jax.grad(of_gamma)(p["gamma"] + h)) for h in (-1e-5, 1e-5)]
    np.testing.assert_allclose(
        jax.jacfwd(jax.jacfwd(of_gamma))(p["gamma"]), (ends[1] - ends[0]) / 2e-5, rtol=1e-3
    )


def test_a_run_ends_where_the_hulls_of_the_classes_intersect():
    """Then w = 0 solves the problem, the margin is 0, and the model is not divided by it: LIBSVM's
    decision values are noise."""
    # the margin is rounding of either sign, which differs from seed to seed and from machine to
    # machine
    for seed in range(8):
        x = np.random.default_rng(seed).normal(size=(60, 2)).astype(np.float32)
        data = jaxsvm.dataset(x, np.where(np.arange(60) % 2, 1, -1))
        run = jaxsvm.fit(make("nu_svc", 0.1, kernel=kernels.linear()), data, KEY, steps=1)
        assert run.finite and run.converged and abs(float(run.state.solver.margin)) < 1e-3
        assert np.abs(run.model(data.x)).max() < 1e-2


UNIT = {
    "cube": (np.random.default_rng(0).random((300, 4)), kernels.rbf(gamma=3.0)),
    # other units of f than nu n
    "small kernel": (np.random.default_rng(1).random((300, 4)), 1e-6 * kernels.rbf(gamma=3.0)),
    "apart": (40 * np.random.default_rng(2).random((300, 4)), kernels.rbf(gamma=3.0)),
    "polynomial": (
        np.random.default_rng(3).normal(size=(300, 2)) + 5,
        kernels.polynomial(1.0, 0.0, degree=3),
    ),
}


@pytest.mark.parametrize(
    "name, nu",
    [
        ("cube", 1e-6),
        ("cube", 0.01),
        *(
            pytest.param(name, nu, marks=pytest.mark.long)
            for name in list(UNIT)[1:]
            for nu in (1e-6, 1e-3, 0.05)
        ),
    ],
)
def test_one_class_runs_stop_in_units_of_their_threshold(name, nu):
    """LIBSVM needs a tolerance of that size for the same values; at most the share nu is
    outside."""
    x, kernel = UNIT[name]
    run = fit(
        make("one_class", nu, kernel=kernel),
        dataset("one_class", x, np.zeros(len(x)), dtype=np.float32),
        tol=1e-3,
    )
    assert run.converged
    x = x.astype(np.float32).astype(np.float64)
    with jax.enable_x64(True):
        wide = jax.tree.map(lambda a: np.asarray(a, np.float64), kernel)
        gram = np.asarray(wide(x, x))
    unit = gram.max()  # LIBSVM's tolerance and curvatures are absolute
    theirs = OneClassSVM(nu=nu, kernel="precomputed", tol=1e-6 * nu * len(x)).fit(gram / unit)
    rho = theirs.offset_[0] * unit
    assert float(run.state.solver.offset) == pytest.approx(rho, rel=3e-3)
    score = np.asarray(run.model(x.astype(np.float32)), np.float64)
    want = theirs.decision_function(gram / unit) * unit
    assert np.abs(score - want).max() < 5e-3 * (np.abs(want).max() + rho)
    assert (score < -1e-5 * rho).mean() <= nu
    free = (run.model.coef > 0) & (run.model.coef < 1)
    assert np.abs(score[np.asarray(free)]).max() < 2e-3 * rho + nu * unit / 1e3


def test_the_threshold_leaves_the_share_nu_outside():
    """The values of free rows differ by the tolerance; the threshold is the quantile nu among
    them."""
    x = np.random.default_rng(5).random((300, 4))
    for nu in (0.01, 0.05, 0.2):
        run = fit(
            make("one_class", nu, gamma=3.0),
            dataset("one_class", x, np.zeros(300), dtype=np.float32),
            tol=1e-2,
        )
        assert nu - 2 / 300 <= (np.asarray(run.model(x.astype(np.float32))) < -1e-6).mean() <= nu


def test_derivatives_of_one_class_in_closed_form(x64):
    """Rows 1, 2, 3 and 1/3 < nu < 2/3: c = (1, 3 nu - 1, 0), w = 6 nu - 1, and the second row is
    free: f(z) = w (z - 2)."""
    x, y = jnp.array([[1.0], [2.0], [3.0]]), jnp.zeros(3)

    def value(nu, factor, second):
        data = jaxsvm.dataset(np.asarray(x), np.asarray(y), task="regression")
        data = data._replace(x=data.x.at[1, 0].set(second))
        solver = jaxsvm.one_class(nu, factor * kernels.linear(), tol=1e-9)
        return jaxsvm.fit(solver, data, KEY, steps=1).model(jnp.array([[4.0]]))[0]

    # with the second row at s: w = 1 + (3 nu - 1) s, f(z) = w (z - s)
    found = jax.grad(value, (0, 1, 2))(0.5, 1.0, 2.0)
    np.testing.assert_allclose(found, (6 * 2.0, 2.0 * 2.0, 0.5 * 2.0 - 2.0), rtol=1e-6)
