"""Machines of nu against LIBSVM, and against a transcription of its steps."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse
import sklearn.datasets
from nu_machines import (
    FORMS,
    GAMMA,
    KEY,
    KNOWN,
    LABELS,
    NU,
    RNG,
    C,
    N,
    X,
    Z,
    by_hand,
    dataset,
    fit,
    gaussian,
    make,
    solver_nu,
    target,
)
from sklearn.preprocessing import StandardScaler
from sklearn.svm import NuSVC, NuSVR, OneClassSVM

import jaxsvm
from jaxsvm import kernels
from jaxsvm.engines import nu_qp
from jaxsvm.engines.dual_qp import Dual
from jaxsvm.engines.nu_qp import NuProblem
from jaxsvm.engines.smo_step import pair_step
from jaxsvm.objectives import nu_problems
from jaxsvm.types import Quadratic


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
    for nu, cost in settings_of(form):
        theirs = libsvm(form, nu, cost, gamma).fit(x, y)
        run = fit(make(form, nu, cost, gamma), data)
        assert run.converged
        state, coef = run.state.solver, np.asarray(run.model.coef)
        theirs_coef = full(theirs, len(y))
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
        proof = jaxsvm.nu_certificate(run.model, data, nu, form, C=cost)
        assert proof.exact and 0 <= proof.gap <= 1e-7 * max(1, abs(best))
        assert (
            proof.dual - 1e-9 * max(1, abs(best)) <= best <= proof.primal + 1e-9 * max(1, abs(best))
        )


@pytest.mark.long
@on_known
def test_a_float32_run_with_default_options_is_within_1e_3_of_libsvm(form, name):
    (x, y), gamma = known(name), 1 / known(name)[0].shape[1]
    data = dataset(form, x, y, dtype=np.float32)
    for nu, cost in settings_of(form):
        run = jaxsvm.fit(make(form, nu, cost, gamma), data, KEY)
        assert run.converged and run.model.coef.dtype == np.float32
        np.testing.assert_allclose(
            run.model(data.x), values(libsvm(form, nu, cost, gamma).fit(x, y), x), rtol=0, atol=1e-3
        )


@pytest.mark.long
@pytest.mark.parametrize("form", FORMS)
def test_more_rows_than_one_block_holds(form, x64):
    x, y = known("diabetes") if form == "nu_svr" else known("breast_cancer")
    theirs = libsvm(form, 0.3, 1.0, 0.1).fit(x, y)
    run = fit(make(form, 0.3, 1.0, 0.1, working_set=32, memory=0), dataset(form, x, y))
    assert run.converged and run.evals > 0
    np.testing.assert_allclose(run.model(x), values(theirs, x), rtol=0, atol=1e-5)


@pytest.mark.long
@pytest.mark.parametrize("form", FORMS)
def test_the_smallest_working_set_holds_a_pair_of_a_part(form, x64):
    run = fit(make(form, working_set=4, rounds=1000.0), dataset(form), tol=1e-6)
    assert run.converged
    theirs = libsvm(form).fit(X, target(form))
    np.testing.assert_allclose(run.model(X), values(theirs, X), rtol=0, atol=1e-4)


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
    step = jax.jit(functools.partial(pair_step, lambda i: jnp.asarray(gram)[i]))
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
    grad = linear - gram @ np.sum(state.coef, axis=0)
    np.testing.assert_allclose(state.grad, grad, rtol=0, atol=1e-12)
    if form == "nu_svc":  # the violation in units of the margin
        rough = fit(make(form), dataset(form, weight=weight), tol=0.1)
        coef = np.asarray(rough.state.solver.inner.dual.coef)
        grad = linear - gram @ coef.sum(0)
        up = np.where(coef < high, grad, -np.inf).max(1)
        down = np.where(coef > low, grad, np.inf).min(1)
        unit = np.diff(up + down)[0] / 4
        assert float(rough.info.residual[-1]) == pytest.approx((up - down).max() / unit, rel=1e-6)


# weights and files


@pytest.mark.long
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
    cap = jnp.array([1.0, 1.0, 2.0])
    assert nu_problems.fill(jnp.array(coef), cap, jnp.float32(total)).tolist() == want


def test_the_start_of_two_parts_and_the_numbers_of_a_state_by_hand():
    low, high = np.array([[0.0, 0, 0, 0], [0, 0, -1, -1]]), np.array([[1.0, 1, 0, 0], [0, 0, 0, 0]])
    parts = nu_problems.Parts(np.zeros(4), *map(jnp.asarray, (low, high, [1.2, -0.5])))
    for start, want in ((None, [1, 0.2, -0.5, 0]), ([0.2, 0.4, -0.25, -1], [0.4, 0.8, -0.1, -0.4])):
        start = None if start is None else jnp.array(start)
        problem = nu_qp.NuProblem(kernels.linear(), parts, start)
        coef = np.asarray(jax.jit(problem.initial_coef)())
        assert (coef[0, 2:] == 0).all() and (coef[1, :2] == 0).all()
        np.testing.assert_allclose(coef.sum(0), want, atol=1e-6)
    state = nu_qp.NuState(None, np.array([[1.0, 4.0], [3.0, 2.0]]))
    numbers = np.stack([state.margin, state.tube, state.offset])
    np.testing.assert_allclose(numbers, [[1.5, -0.5], [-1.5, 0.5], [-1, -3]])


def test_a_start_is_scaled_to_the_sum_of_each_part():
    low, high = jnp.array([[0.0, 0, 0, 0], [0, 0, -1, -1]]), jnp.array([[1.0, 1, 0, 0], [0] * 4])
    parts = nu_problems.Parts(jnp.zeros(4), low, high, jnp.array([0.9, -0.6]))
    coef = NuProblem(None, parts, jnp.array([0.1, 0.2, -0.3, -0.1])).initial_coef()
    np.testing.assert_allclose(coef, [[0.3, 0.6, 0, 0], [0, 0, -0.45, -0.15]], rtol=1e-6)


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
