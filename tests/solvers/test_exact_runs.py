"""Exact kernel machines: residuals, starts, bad scales, few rows and large blocks."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import sklearn.datasets
from exact_machines import (
    AT_Z,
    EPS,
    GRAM,
    KEY,
    LABELS,
    PROBLEMS,
    RBF,
    RNG,
    SIGMA,
    TUBE,
    WEIGHT,
    Box,
    C,
    D,
    N,
    X,
    Z,
    dataset,
    fit,
    fit_smo,
    gaussian,
    libsvm,
    solver,
)
from sklearn.svm import SVC, NuSVC

import jaxsvm
from jaxsvm import kernels, losses


def rounding(coef, gram):
    """Of scores, where kernel values, products and sums are in float32."""
    size = (np.abs(gram) @ np.abs(np.asarray(coef, np.float64))).max()
    return 8 * np.finfo(np.float32).eps * (1 + size)


# the residual


@pytest.mark.long
@pytest.mark.parametrize(
    "name, rounds", [("hinge free", 2), ("hinge free", 2000), ("eps_insensitive free", 2000)]
)
def test_the_residual_is_the_violation(name, rounds):
    loss, bias, y = PROBLEMS[name]
    run = fit(solver(loss, bias, **({"rounds": 2} if rounds == 2 else {})), dataset(y=y))
    want = Box(loss, y, np.float32(C)).violation(run.model.coef, GRAM, bias)
    got = float(run.info.residual[-1])
    assert run.converged == (got <= 1e-3) == (rounds == 2000)
    assert abs(got - want) <= 0.1 * want + rounding(run.model.coef, GRAM)


@pytest.mark.long
@pytest.mark.parametrize("name", ["hinge free", "eps_insensitive none"])
def test_the_gap_is_primal_minus_dual(name, x64):
    loss, bias, y = PROBLEMS[name]
    part, data, tol = Box(loss, y, C), dataset(np.float64, y), 1e-4
    curve = fit(solver(loss, bias, stop="gap", rounds=1), data, tol=tol, steps=500)
    assert curve.converged and np.all(np.asarray(curve.info.residual) >= 0)
    coef, b = np.asarray(curve.model.coef), float(curve.model.b)
    score = GRAM @ coef + b
    value = np.maximum(1 - y * score, 0) if loss.labels else np.maximum(np.abs(score - y) - EPS, 0)
    primal = coef @ GRAM @ coef / 2 + C * value.sum()
    got = float(curve.info.residual[-1])
    assert 0 < got <= tol
    assert got == pytest.approx((primal - part.value(coef, GRAM)) / primal, rel=1e-9, abs=1e-13)
    proof = jaxsvm.certificate(curve.model, data, jaxsvm.lam_from_C(C, N), loss)
    assert proof.exact and got == pytest.approx(proof.gap / proof.primal, rel=1e-9, abs=1e-13)


@pytest.mark.long
def test_rounding_does_not_make_a_gap_negative():
    for cost in (1e-2, 1e3):  # at the optimum soon, and far from it for long
        run = fit(solver(C=cost, stop="gap", rounds=1), dataset(), tol=1e-6, steps=200)
        gaps = np.asarray(run.info.residual)
        assert np.all(gaps >= 0) and run.converged == (cost < 1) == (gaps[-1] <= 1e-6)
        proof = jaxsvm.certificate(run.model, dataset(), jaxsvm.lam_from_C(cost, N))
        want = float(proof.gap / proof.primal)
        assert abs(float(gaps[-1]) - want) <= 0.1 * want + rounding(run.model.coef, GRAM)


# going on, and starting


def bits(tree):
    return [np.asarray(a).tobytes() for a in jax.tree.leaves(tree)]


@pytest.mark.long
def test_a_run_goes_on_at_the_optimum_without_work():
    made, data = solver(rounds=2), dataset()
    end = fit(made, data, tol=1e-5, steps=500)
    part, coef = Box(losses.hinge, LABELS, C), libsvm(LABELS, GRAM, tol=1e-8)[0]
    assert end.converged and len(end.info.residual) > 5
    assert part.value(end.model.coef, GRAM) == pytest.approx(part.value(coef, GRAM), rel=1e-6)
    rest = fit(made, data, tol=1e-5, state=end.state)
    # at the optimum nothing is worked out
    assert rest.evals == 0 and bits(rest.model) == bits(end.model)


@pytest.mark.long(but=2)
@pytest.mark.parametrize(
    "name", ["squared_hinge free", "hinge free", "eps_insensitive free", "hinge none"]
)
@pytest.mark.parametrize(
    "make",
    [solver, lambda *args, start: jaxsvm.smo(C, RBF, loss=args[0], bias=args[1], start=start)],
)
def test_a_start_is_made_feasible_and_leads_to_the_same_optimum(make, name):
    loss, bias, y = PROBLEMS[name]
    data, weight = dataset(y=y, weight=WEIGHT), WEIGHT.astype(np.float32)
    part = Box(loss, y, np.float32(C) * weight)
    made = make(
        loss, bias, start=jnp.asarray(9 * np.random.default_rng(0).normal(size=N), jnp.float32)
    )
    begun = made.init(KEY, data)
    coef = np.asarray(getattr(begun, "dual", begun).coef, np.float64)
    assert np.all((part.low <= coef) & (coef <= part.high)) and np.sum(coef != 0) > 10
    if make is solver:
        ridge = 0 if name != "squared_hinge free" else 1 / (2 * C * np.where(weight > 0, weight, 1))
        grad = y - GRAM @ coef - ridge * coef
        found = np.asarray(begun.dual.grad + begun.dual.compensation)
        np.testing.assert_allclose(found[weight > 0], grad[weight > 0], atol=1e-4)
    assert bias == "none" or abs(coef.sum()) <= 1e-6 * np.abs(coef).sum()
    if name == "hinge free":
        run = (fit if make is solver else fit_smo)(made, data, tol=1e-4)
        want = part.value(libsvm(y, GRAM, tol=1e-8, weight=WEIGHT)[0], GRAM)
        assert run.converged and part.value(run.model.coef, GRAM) == pytest.approx(want, rel=1e-5)
        assert np.all(np.asarray(run.model.coef)[weight == 0] == 0)


@pytest.mark.long
def test_a_path_over_C_begins_where_it_ended():
    data, alpha = dataset(), jnp.zeros(N)
    for cost in (0.5, 2.0, 8.0):
        run = fit(solver(C=cost, start=alpha), data, tol=1e-4)
        coef, b = libsvm(LABELS, GRAM, C=cost, tol=1e-8)
        np.testing.assert_allclose(run.model(Z.astype(np.float32)), AT_Z @ coef + b, atol=3e-3)
        alpha = run.model.coef * data.y
        # What was an optimum is one: coefficients on their bounds stay there, and no kernel row is
        # worked out.
        begun = solver(C=cost, start=alpha).init(KEY, data).dual.coef
        assert Box(losses.hinge, LABELS, cost).violation(begun, GRAM, "free") <= 1e-4 + rounding(
            begun, GRAM
        )
        again = fit(solver(C=cost, start=alpha), data, tol=3e-4)
        assert again.converged and again.evals == 0


def test_where_all_coefficients_are_at_their_ends_the_bias_is_the_midpoint():
    # as many rows of each class, and a small C: LIBSVM's bias, too, is the middle of what the
    # optimality conditions leave
    assert np.sum(LABELS > 0) == np.sum(LABELS < 0)
    coef, b = libsvm(LABELS, GRAM, C=0.1, tol=1e-8)
    np.testing.assert_array_equal(np.abs(coef), 0.1)
    run = fit(solver(C=0.1), dataset(), tol=1e-4)
    assert run.converged
    np.testing.assert_allclose(run.model.b, b, atol=1e-4)


@pytest.mark.long
def test_coefficients_within_rounding_of_their_ends_are_at_them():
    """Weights that float32 rounds have other sums, which one coefficient makes up for."""
    y, weight = np.repeat([1.0, -1.0], 400), np.ones(800)
    weight[:400] += 2.0**-25
    weight[400:500] += 2.0**-23
    assert weight[y > 0].sum() == weight[y < 0].sum()
    x = np.random.default_rng(0).normal(size=(800, 2)) + 0.3 * y[:, None]
    C = 2.0**-14
    peer = SVC(C=C, kernel="linear", tol=1e-8).fit(x, y, sample_weight=weight)
    np.testing.assert_array_equal(np.abs(peer.dual_coef_[0]), C * weight[peer.support_])
    data = jaxsvm.dataset(x.astype(np.float32), y, weight)
    run = fit(jaxsvm.decomposition(C, kernels.linear()), data, tol=1e-4)
    assert run.converged and np.any(np.abs(run.model.coef) < C * (1 - 2e-6))
    np.testing.assert_allclose(run.model.b, peer.intercept_[0], atol=1e-4)


@pytest.mark.long
@pytest.mark.parametrize("name", ["decomposition", "smo", "lasvm"])
def test_a_hard_margin_has_its_bias_and_its_derivatives_in_float32(name):
    """Where C is a million and coefficients are about one, those that are free are not taken for 0
    beside C."""
    h, steps = 1e-3, {"decomposition": 1, "smo": 4_000, "lasvm": 6_000}[name]
    y, point = np.where(X @ [1.0, -1.0, 0.5] > 0, 1.0, -1.0), Z.astype(np.float32)
    x = (X + 0.6 * y[:, None] * [1.0, -1.0, 0.5]).astype(np.float32).astype(np.float64)

    def run(sigma):
        made = getattr(jaxsvm, name)(1e6, kernels.rbf(sigma))
        return jaxsvm.fit(made, dataset(y=y, x=x), KEY, steps=steps, every=steps, tol=1e-4).model

    def reference(sigma):
        coef, b = libsvm(y, gaussian(x, x, sigma), C=1e6, tol=1e-10)
        return coef, b, np.sum(np.tanh(gaussian(Z, x, sigma) @ coef + b))

    model, (coef, b, _) = run(SIGMA), reference(SIGMA)
    assert np.median(np.abs(coef[coef != 0])) < 1
    np.testing.assert_allclose(model.b, b, atol=1e-3)
    slope = jax.grad(lambda sigma: jnp.sum(jnp.tanh(run(sigma)(point))))(SIGMA)
    want = (reference(SIGMA + h)[2] - reference(SIGMA - h)[2]) / (2 * h)
    assert abs(want) > 1e-2 and float(slope) == pytest.approx(want, rel=0.03)


# bad scales


@pytest.mark.long
def test_raw_columns_end_with_a_status_that_is_true():
    x, y = sklearn.datasets.load_breast_cancer(return_X_y=True)
    x, y = x.astype(np.float32), np.where(y > 0, 1.0, -1.0)
    with pytest.warns(UserWarning, match="range"):
        data = jaxsvm.dataset(x, y)
    run = fit(jaxsvm.decomposition(1.0, kernels.linear(), working_set=64, rounds=40), data)
    gram = x.astype(np.float64) @ x.astype(np.float64).T
    want, got = (
        Box(losses.hinge, y, 1.0).violation(run.model.coef, gram, "free"),
        float(run.info.residual[-1]),
    )
    assert run.finite and run.converged == (got <= 1e-3)
    assert ("converged after" if run.converged else "stopped after") in run.status
    assert abs(got - want) <= 0.1 * want + rounding(run.model.coef, gram)


# many classes, features


@pytest.mark.long
def test_on_features_it_is_the_machine_of_their_products():
    phi = jaxsvm.features.fourier(jax.random.key(1), RBF, dim=D, features=16)
    data, new = dataset(), Z.astype(np.float32)
    run = fit(jaxsvm.on_features(phi, solver(kernel=kernels.linear())), data, tol=1e-4)
    f, g = (np.asarray(phi(jnp.asarray(a, jnp.float32)), np.float64) for a in (X, Z))
    coef, b = libsvm(LABELS, f @ f.T, tol=1e-8)
    assert run.converged
    np.testing.assert_allclose(run.model(new), g @ f.T @ coef + b, atol=5e-3)


# few rows, no rows


@pytest.mark.long
@pytest.mark.parametrize("n", [2, 5, 61])
def test_any_number_of_rows_will_do(n):
    x, y = RNG.normal(size=(n, D)), np.where(np.arange(n) % 2, 1.0, -1.0)
    run = fit(solver(working_set=512), dataset(x=x, y=y))
    made = SVC(C=C, gamma=1 / (2 * SIGMA**2), tol=1e-6).fit(x, y)
    assert run.converged
    np.testing.assert_allclose(
        run.model(Z.astype(np.float32)), made.decision_function(Z), atol=3e-3
    )


@pytest.mark.long
def test_a_run_stops_at_the_tolerance_of_its_solver():
    run = jaxsvm.fit(solver(tol=1e-4), dataset(), KEY)
    assert run.converged and float(run.tol) == np.float32(1e-4) and int(run.state.step) == 1


@pytest.mark.long
def test_no_row_of_a_class_leaves_the_others_their_votes():
    y = np.arange(N) % 3
    data = jaxsvm.dataset(X.astype(np.float32), y, task="multiclass")
    three, five = (
        jaxsvm.fit(jaxsvm.one_vs_one(jaxsvm.smo(C, RBF), classes=k), data, KEY, steps=200)
        for k in (3, 5)
    )
    assert five.finite and float(five.model[3, 4].b) == 0
    pairs = [0, 1, 4]  # (0, 1), (0, 2), (1, 2) among those of five classes
    np.testing.assert_allclose(
        five.model.pairs(data.x)[:, pairs], three.model.pairs(data.x), atol=1e-5
    )


BEYOND = 2_100  # rows: a working set of 1,024 is solved by blocks


@pytest.mark.long
@pytest.mark.parametrize(
    "name", ["hinge free", "eps_insensitive free", "hinge none", "squared_hinge free", "nu"]
)
def test_sets_that_are_solved_by_blocks_lead_to_the_optimum(name):
    rng = np.random.default_rng(7)
    x = rng.normal(size=(BEYOND, D)).astype(np.float32)
    gram, C = gaussian(x, x, 0.7), 5.0
    y = np.sin(2 * x[:, 0]) + 0.5 * rng.normal(size=BEYOND)
    y = y.astype(np.float32).astype(np.float64) if "eps" in name else np.where(y > 0, 1.0, -1.0)
    data = dataset(y=y, x=x)
    if name == "nu":
        run = jaxsvm.fit(jaxsvm.nu_svc(0.5, kernels.rbf(0.7)), data, KEY, steps=1)
        made = NuSVC(nu=0.5, gamma=1 / (2 * 0.7**2), tol=1e-5).fit(x, y)
        assert run.converged and run.state.solver.inner.working.shape == (1024,)
        return np.testing.assert_allclose(
            run.model(x[:200]), made.decision_function(x[:200]), atol=2e-2
        )
    loss = {"hinge": losses.hinge, "eps_insensitive": TUBE, "squared_hinge": losses.squared_hinge}[
        name.split()[0]
    ]
    bias = name.split()[1]
    run = fit(jaxsvm.decomposition(C, kernels.rbf(0.7), loss=loss, bias=bias), data)
    part, coef = Box(loss, y, C), np.asarray(run.model.coef, np.float64)
    assert run.converged and run.state.solver.working.shape == (1024,)
    assert part.violation(coef, gram, bias) <= 1.1e-3  # in float64
    support = int(run.info.support[-1])
    assert np.all((part.low <= coef) & (coef <= part.high))
    assert support * BEYOND <= run.evals <= 4 * support * BEYOND
    if name in ("hinge free", "eps_insensitive free"):
        assert part.value(coef, gram) == pytest.approx(
            part.value(libsvm(y, gram, C=C)[0], gram), rel=1e-6
        )


@pytest.mark.long
def test_smo_keeps_its_derivative_over_many_steps():
    gram = GRAM + 0.01 * np.eye(N)
    data = jaxsvm.dataset(gram.astype(np.float32), LABELS)
    run = jaxsvm.fit(jaxsvm.smo(1e3, kernels.precomputed()), data, KEY, steps=20_000)
    state = run.state.solver
    true = LABELS - gram.astype(np.float32).astype(np.float64) @ np.asarray(state.coef, np.float64)
    assert (
        np.abs(np.asarray(state.grad, np.float64) + np.asarray(state.compensation) - true).max()
        < 1e-4
    )


@pytest.mark.long
def test_a_gap_of_nothing_is_nothing():
    run = fit(solver(TUBE, stop="gap"), dataset(y=np.full(N, 5.0)))
    assert run.converged and float(run.info.residual[-1]) == 0


@pytest.mark.long
def test_a_matrix_of_sixteen_bits():
    half = fit(
        solver(kernel=kernels.precomputed()),
        jaxsvm.dataset(jnp.asarray(GRAM, jnp.bfloat16), LABELS),
    )
    assert half.converged and half.model.coef.dtype == jnp.float32
