"""What nu bounds, gaps, derivatives and thresholds of machines of nu."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nu_machines import (
    FORMS,
    KEY,
    LABELS,
    NU,
    TARGETS,
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
from sklearn.svm import OneClassSVM

import jaxsvm
from jaxsvm import kernels

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


@pytest.mark.long
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


@pytest.mark.long
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


@pytest.mark.long
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


@pytest.mark.long
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
    found = jax.jit(jax.grad(value, (0, 1, 2)))(0.5, 1.0, 2.0)
    np.testing.assert_allclose(found, (6 * 2.0, 2.0 * 2.0, 0.5 * 2.0 - 2.0), rtol=1e-6)
