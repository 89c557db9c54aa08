"""Objectives, certificates and conversions against NumPy in float64, which shares nothing with the
package."""

import dataclasses
import functools
import importlib
from decimal import Decimal
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
import sklearn.svm

import jaxsvm
from jaxsvm import kernels, losses, objectives
from jaxsvm.models import Expansion, Linear, Mapped

# the package has a function of this name
certificates = importlib.import_module("jaxsvm.objectives.certificates")

N, D = 20, 2
EXACT = 1e-12  # float64 rounding of sums over 20 rows, numbers of size 1 to 100


def _data():
    """float32 rows, as users have them; the certificates are to be in float64 all the same."""
    rng = np.random.default_rng(11)
    x = (rng.normal(size=(N, D)) + [0.4, 0.1]).astype(np.float32)
    y = np.where(x @ [1.0, -1.0] + 0.5 * rng.normal(size=N) > 0.2, 1.0, -1.0)
    target = x @ [0.8, -0.5] + 0.4 + 0.3 * rng.normal(size=N)
    weight = np.r_[0.0, 0.0, rng.integers(1, 4, N - 3), 0.5].astype(float)
    return x, y, target.astype(np.float32).astype(float), weight


X32, Y, TARGET, WEIGHT = _data()
X = X32.astype(np.float64)
GAMMA = 0.7
KERNEL = kernels.rbf(gamma=GAMMA)  # a Python float: nothing is rounded to float32 on the way
GRAM = np.exp(-GAMMA * ((X[:, None] - X[None]) ** 2).sum(-1))
LINEAR = X @ X.T

# name -> (the package's loss, value(f, y), conjugate(u, y) where finite)
LOSSES = {
    "hinge": (losses.hinge, lambda f, y: np.maximum(1 - y * f, 0), lambda u, y: u * y),
    "squared_hinge": (
        losses.squared_hinge,
        lambda f, y: np.maximum(1 - y * f, 0) ** 2,
        lambda u, y: u**2 / 4 + u * y,
    ),
    "logistic": (losses.logistic, lambda f, y: np.logaddexp(0, -y * f), None),
    "eps_insensitive": (
        losses.eps_insensitive(0.25),
        lambda f, y: np.maximum(np.abs(f - y) - 0.25, 0),
        lambda u, y: u * y + 0.25 * np.abs(u),
    ),
}
PROBLEMS = [(0.3, None), (0.05, WEIGHT)]  # lam, weights


def dataset(name="hinge", weight=None, x=X32):
    return jaxsvm.dataset(
        x, targets(name), weight, task="binary" if LOSSES[name][0].labels else "regression"
    )


def targets(name):
    return Y if LOSSES[name][0].labels else TARGET


def shares(weight):
    return np.full(N, 1 / N) if weight is None else weight / weight.sum()


def primal_by_hand(square, score, name, lam, weight):
    """lam/2 |w|^2 + weighted mean loss, from |w|^2 and the scores."""
    return lam / 2 * square + shares(weight) @ LOSSES[name][1](score, targets(name))


def dual_by_hand(coef, gram, name, lam, weight, bias="none"):
    share, y = shares(weight), targets(name)
    live = share > 0
    assert (coef[~live] == 0).all()
    u = -lam * coef[live] / share[live]
    square = coef @ gram @ coef + (coef.sum() ** 2 if bias == "feature" else 0)
    return -lam / 2 * square - share[live] @ LOSSES[name][2](u, y[live])


PIECES = {  # losses as the largest of some lines a f + c
    "hinge": lambda y: [(-y, np.ones(N))],
    "eps_insensitive": lambda y: [(np.ones(N), -y - 0.25), (-np.ones(N), y - 0.25)],
}


@functools.cache
def optimum(name, bias, problem, space="linear"):
    """(P at a feasible point: never below min P, and above it by rounding; the point), by a solver
    of general programs."""
    lam, weight = PROBLEMS[problem]
    share, y = shares(weight), targets(name)
    if space == "linear":
        phi = X
    else:  # any square root of the Gram matrix is a feature map
        values, vectors = np.linalg.eigh(GRAM)
        phi = vectors * np.sqrt(np.maximum(values, 0))
    phi = phi if bias == "none" else np.c_[phi, np.ones(N)]
    ridge = np.ones(phi.shape[1])
    if bias == "free":
        ridge[-1] = 0
    p = len(ridge)

    def value(w):
        return lam / 2 * ridge @ w**2 + share @ LOSSES[name][1](phi @ w, y)

    if name in PIECES:
        lines = PIECES[name](y)
        z = np.r_[np.zeros(p), LOSSES[name][1](np.zeros(N), y)]
        lhs = np.concatenate(
            [np.c_[-a[:, None] * phi, np.eye(N)] for a, _ in lines]
            + [np.c_[np.zeros((N, p)), np.eye(N)]]
        )
        rhs = np.concatenate([c for _, c in lines] + [np.zeros(N)])
        found = scipy.optimize.minimize(
            lambda z: lam / 2 * ridge @ z[:p] ** 2 + share @ z[p:],
            z,
            jac=lambda z: np.r_[lam * ridge * z[:p], share],
            constraints=dict(type="ineq", fun=lambda z: lhs @ z - rhs, jac=lambda z: lhs),
            method="SLSQP",
            options=dict(maxiter=2000, ftol=1e-14),
        )
        w = found.x[:p]
    else:
        w = scipy.optimize.minimize(
            value, np.zeros(p), method="BFGS", options=dict(gtol=1e-9, maxiter=10**4)
        ).x
    return value(w), w


def models_at(rng, name, bias, problem, space):
    """Random models of all sizes, the optimum and its neighbourhood, zero."""
    best = optimum(name, bias, problem, space)[1] if space == "linear" else None
    for trial in range(12):
        size = 10.0 ** rng.uniform(-3, 2)
        b = 0.0 if bias == "none" else size * rng.normal()
        if space == "linear":
            if trial == 0:
                w, b = np.zeros(D), 0.0
            elif trial % 3 == 0:
                w, b = (
                    best[:D] + size / 1e3 * rng.normal(size=D),
                    b if bias == "none" else best[-1] + b / 1e3,
                )
            else:
                w = size * rng.normal(size=D)
            yield Linear(jnp.asarray(w, jnp.float32), jnp.asarray(b, jnp.float32), bias)
        else:
            lam, weight = PROBLEMS[problem]
            coef = size / lam * shares(weight) * rng.normal(size=N) * (trial > 0)
            index = np.arange(N, dtype=np.int32)
            if trial % 3 == 1:  # some of the centres are no training rows
                index = np.where(rng.random(N) < 0.3, -1, index).astype(np.int32)
            yield Expansion(
                KERNEL,
                jnp.asarray(X32),
                jnp.asarray(coef, jnp.float32),
                jnp.asarray(b, jnp.float32),
                index,
                bias,
            )


def scores_and_square(model):
    """Scores at the rows and |w|^2 of a model, in NumPy."""
    b = float(model.b)
    if isinstance(model, Linear):
        w = np.asarray(model.w, np.float64)
        square, score = w @ w, X @ w + b
    else:
        coef = np.asarray(model.coef, np.float64)
        square, score = coef @ GRAM @ coef, GRAM @ coef + b
    return score, square + (b * b if model.bias == "feature" else 0)


CASES = [
    ("linear", "hinge", "none"),
    ("linear", "hinge", "feature"),
    ("linear", "hinge", "free"),
    ("linear", "squared_hinge", "free"),
    ("linear", "logistic", "free"),
    ("linear", "eps_insensitive", "feature"),
    ("rbf", "hinge", "none"),
    ("rbf", "hinge", "feature"),
    ("rbf", "hinge", "free"),
]


@pytest.mark.long(but=1)
@pytest.mark.parametrize("space, name, bias", CASES)
def test_a_certificate_bounds_the_distance_to_the_optimum(space, name, bias):
    """gap >= P(model) - min P, gap = primal - dual >= 0, for whatever model."""
    rng = np.random.default_rng(3)
    for problem, (lam, weight) in enumerate(PROBLEMS):
        data, (best, _) = dataset(name, weight), optimum(name, bias, problem, space)
        for model in models_at(rng, name, bias, problem, space):
            found = jaxsvm.certificate(model, data, lam, LOSSES[name][0])
            score, square = scores_and_square(model)
            value = primal_by_hand(square, score, name, lam, weight)
            room = EXACT * max(1, value)
            assert float(found.primal) == pytest.approx(value, rel=EXACT)
            assert float(objectives.primal(model, data, lam, LOSSES[name][0])) == pytest.approx(
                value, rel=EXACT
            )
            assert float(found.gap) >= 0
            assert abs(float(found.primal) - float(found.dual) - float(found.gap)) <= room
            assert float(found.dual) <= best + room  # <= min P <= best
            assert float(found.gap) >= value - best - room
            if not found.exact:
                # made from the scores: as good as the dual point 0 at least
                assert float(found.dual) >= -room
            assert found.gap.dtype == np.float64 and isinstance(found.exact, bool)
            assert space == "rbf" or not found.exact


def _box(name, lam, weight, rng, bias="none"):
    """Random dual coefficients in bounds, of the training rows."""
    bound = shares(weight) / lam
    coef = rng.uniform(0, 1, N) * bound * Y
    coef[rng.random(N) < 0.3] = 0
    coef = np.where(rng.random(N) < 0.3, np.where(coef == 0, 0, bound * Y), coef)
    if name == "squared_hinge":
        coef = 5 * coef  # no upper bound
    if name == "eps_insensitive":
        coef = coef * np.sign(rng.normal(size=N))
    if bias == "free":
        up, down = coef[coef > 0].sum(), -coef[coef < 0].sum()
        coef = np.where(coef > 0, coef * min(up, down) / up, coef * min(up, down) / down)
    return coef


@pytest.mark.long(but=1)
@pytest.mark.parametrize("bias", ["none", "feature", "free"])
def test_exact_gap_is_primal_minus_dual_from_scratch(bias):
    name = "hinge"
    rng = np.random.default_rng(5)
    for lam, weight in PROBLEMS:
        for _ in range(4):
            coef = np.float32(_box(name, lam, weight, rng, bias)).astype(float)
            b = {"none": 0.0, "feature": coef.sum(), "free": rng.normal()}[bias]
            b = float(np.float32(b))
            model = expansion(coef, b, bias)
            found = jaxsvm.certificate(model, dataset(name, weight), lam, LOSSES[name][0])
            square = coef @ GRAM @ coef + (b * b if bias == "feature" else 0)
            value = primal_by_hand(square, GRAM @ coef + b, name, lam, weight)
            lower = dual_by_hand(coef, GRAM, name, lam, weight, bias)
            assert found.exact
            # Coefficients of rows at their bound may be drawn back by 1e-6 of themselves (float32
            # bounds), sums rounded.
            assert float(found.gap) == pytest.approx(value - lower, abs=1e-5)
            assert float(found.primal) == pytest.approx(value, rel=EXACT)
            assert float(found.dual) <= lower + 1e-5


def expansion(coef, b=0.0, bias="none", index=None, x=X32, dtype=jnp.float32):
    index = np.arange(len(coef), dtype=np.int32) if index is None else np.asarray(index, np.int32)
    return Expansion(
        KERNEL,
        jnp.asarray(x),
        jnp.asarray(coef, dtype),
        jnp.asarray(b, dtype),
        jnp.asarray(index),
        bias,
    )


def test_exact_says_whether_the_model_carries_feasible_duals():
    lam = 0.3
    coef = _box("hinge", lam, None, np.random.default_rng(6))
    data = dataset()

    def exact(model):
        return jaxsvm.certificate(model, data, lam).exact

    assert exact(expansion(coef))
    bound = 1 / (lam * N)
    assert np.float64(np.float32(bound)) > bound  # as float32 holds it, C lies outside of the box
    assert exact(expansion(np.float32(bound) * Y))
    assert not exact(expansion(1.0001 * bound * Y))
    assert not exact(expansion(-coef))  # of the wrong sign
    assert not exact(expansion(coef, index=np.full(N, -1)))  # no training rows
    # those weigh 0
    assert exact(
        expansion(np.where(np.arange(N) < 5, 0, coef), index=np.r_[np.full(5, -1), np.arange(5, N)])
    )
    assert not exact(expansion(coef, bias="free"))  # sum coef is not 0
    data = dataset(weight=WEIGHT)
    # a row that does not count has a box of size 0
    assert not exact(expansion(np.where(WEIGHT == 0, 1e-3 * Y, 0)))


@pytest.mark.long
def test_one_training_row_may_stand_in_several_terms():
    lam, rng = 0.3, np.random.default_rng(8)
    coef, order = _box("hinge", lam, None, rng), rng.permutation(N)
    half = np.r_[coef[order] / 2, coef[order] / 2]
    twice = expansion(half, index=np.r_[order, order], x=X32[np.r_[order, order]])
    one, two = (jaxsvm.certificate(m, dataset(), lam) for m in (expansion(coef), twice))
    assert one.exact and two.exact
    assert float(two.gap) == pytest.approx(float(one.gap), abs=1e-6)  # coefficients in float32


@jax.jit
def passes_of_sdca(solver, data):
    """The model after 200 passes in stored order."""
    rows = jnp.tile(jnp.arange(N, dtype=jnp.int32), 200)[:, None]
    state, _ = jax.lax.scan(
        lambda s, i: solver.update(s, data._replace(index=i)),
        solver.init(jax.random.key(0), data),
        rows,
    )
    return solver.model(state, data)


def test_converged_kernel_sdca_is_certified_to_rounding(x64):
    lam = 0.3
    data = jaxsvm.dataset(X, Y)
    model = passes_of_sdca(jaxsvm.sdca(objectives.C_from_lam(lam, N), KERNEL), data)
    found = jaxsvm.certificate(model, data, lam)
    assert found.exact and 0 <= float(found.gap) < 1e-12
    best = optimum("hinge", "none", 0, "rbf")[0]
    assert float(found.primal) == pytest.approx(best, abs=1e-9)  # what SLSQP reaches
    # The same in float32: bounded by what rounding left.
    narrow = dataclasses.replace(
        model, coef=model.coef.astype(jnp.float32), x=jnp.asarray(X32), b=jnp.zeros((), jnp.float32)
    )
    again = jaxsvm.certificate(narrow, data, lam)
    assert again.exact and float(again.gap) < 1e-6  # a relative error of 6e-8 in the coefficients


@pytest.mark.parametrize("name, bias", [("hinge", "none"), ("eps_insensitive", "feature")])
def test_passes_make_the_certificate_of_a_linear_model_tight(name, bias):
    lam, _ = PROBLEMS[0]
    best, w = optimum(name, bias, 0)
    b = w[-1] if bias == "feature" else 0.0
    model = Linear(jnp.asarray(w[:D], jnp.float32), jnp.asarray(b, jnp.float32), bias)
    data, loss = dataset(name), LOSSES[name][0]
    rough, fine = (jaxsvm.certificate(model, data, lam, loss, passes=passes) for passes in (0, 300))
    assert not fine.exact
    assert float(fine.gap) < 1e-6 < float(rough.gap)  # w itself is rounded to float32
    assert float(fine.dual) == pytest.approx(best, abs=1e-6)
    assert float(fine.primal) == float(rough.primal)


@pytest.mark.long
def test_passes_for_an_expansion_that_carries_no_duals():
    lam = 0.3
    best, _ = optimum("hinge", "none", 0, "rbf")
    model = expansion(_box("hinge", lam, None, np.random.default_rng(9)), index=np.full(N, -1))
    found = jaxsvm.certificate(model, dataset(), lam, passes=300)
    assert float(found.dual) == pytest.approx(best, abs=1e-8)
    score, square = scores_and_square(model)
    assert float(found.gap) == pytest.approx(
        primal_by_hand(square, score, "hinge", lam, None) - best, abs=1e-8
    )


@pytest.mark.parametrize("weight", [None, WEIGHT], ids=["plain", "weighted"])
def test_free_bias_against_libsvm(weight):
    """LIBSVM's answer is certified by its own dual variables, and no certificate claims less than
    its primal value."""
    lam = 0.3
    total, live = (N, np.ones(N, bool)) if weight is None else (weight.sum(), weight > 0)
    # scikit-learn misnumbers rows of weight 0
    used = np.ones(live.sum()) if weight is None else weight[live]
    svm = sklearn.svm.SVC(C=1 / (lam * total), kernel="rbf", gamma=GAMMA, tol=1e-10).fit(
        X[live], Y[live], used
    )
    coef = np.zeros(N)
    coef[np.flatnonzero(live)[svm.support_]] = svm.dual_coef_[0]
    b, data = float(svm.intercept_[0]), dataset(weight=weight)
    with jax.enable_x64(True):
        model = expansion(coef, b, "free", dtype=jnp.float64)
        found = jaxsvm.certificate(model, data, lam)
        residual = float(jaxsvm.kkt_residual(model, data, lam))
    value = primal_by_hand(coef @ GRAM @ coef, GRAM @ coef + b, "hinge", lam, weight)
    assert found.exact and float(found.gap) < 1e-8  # second order in the residual
    assert float(found.primal) == pytest.approx(value, rel=EXACT)
    assert abs(residual) < 1e-6  # LIBSVM keeps kernel values in float32
    best = optimum("hinge", "free", 0, "rbf")[0] if weight is None else value
    assert value == pytest.approx(best, abs=1e-8)
    svm = sklearn.svm.SVC(C=1 / (lam * total), kernel="linear", tol=1e-10).fit(
        X[live], Y[live], used
    )
    w, b = svm.coef_[0], float(svm.intercept_[0])
    value = primal_by_hand(w @ w, X @ w + b, "hinge", lam, weight)
    for scale in (0.0, 0.5, 1.0, 2.0):
        model = Linear(
            jnp.asarray(scale * w, jnp.float32), jnp.asarray(scale * b, jnp.float32), "free"
        )
        assert float(jaxsvm.certificate(model, data, lam).dual) <= value + 1e-12


@pytest.mark.long(but=1)
@pytest.mark.parametrize(
    "space, has, problem_bias",
    [("linear", "free", "feature"), ("linear", "feature", "free"), ("rbf", "none", "feature")],
)
def test_a_bias_given_by_name_means_the_problem_with_that_bias(space, has, problem_bias):
    """`bias=` names the problem: its optimum bounds the dual, and the primal has b^2 if and only if
    it is a feature."""
    lam = PROBLEMS[0][0]
    best, _ = optimum("hinge", problem_bias, 0, space)
    rng = np.random.default_rng(12)
    for trial in range(4):
        b = 0.0 if has == "none" else float(np.float32(rng.normal() * 2))
        if space == "linear":
            model = Linear(jnp.asarray(rng.normal(size=D), jnp.float32), jnp.float32(b), has)
        else:
            model = expansion(
                _box("hinge", lam, None, rng, "free" if trial % 2 else "none"), b, has
            )
        found = jaxsvm.certificate(model, dataset(), lam, bias=problem_bias)
        score, square = scores_and_square(dataclasses.replace(model, bias=problem_bias))
        value = primal_by_hand(square, score, "hinge", lam, None)
        assert float(found.gap) >= value - best - EXACT
        assert float(found.dual) <= best + EXACT
        if found.exact:
            lower = dual_by_hand(
                np.asarray(model.coef, float), GRAM, "hinge", lam, None, problem_bias
            )
            # 1e-6 of coefficients at their bounds
            assert float(found.dual) == pytest.approx(lower, abs=1e-5)
        assert float(found.primal) == pytest.approx(value, rel=EXACT)


def test_a_float32_run_is_certified_with_its_own_duals():
    """C = 1/(lam n) rounded to float32 on one side, lam in float64 on the other."""
    lam = 0.07
    C = objectives.C_from_lam(lam, N)
    data = dataset()
    model = passes_of_sdca(jaxsvm.sdca(jnp.float32(C), KERNEL), data)
    assert model.coef.dtype == jnp.float32
    assert (np.abs(np.asarray(model.coef)) == np.float32(C)).any()
    found = jaxsvm.certificate(model, data, lam)
    # float32 duals, and 1e-6 where they are at C
    assert found.exact and 0 <= float(found.gap) < 1e-5


# Mapped


@pytest.mark.long
def test_mapped_models_are_certified_in_their_feature_space():
    phi = jaxsvm.data.standardize(jnp.asarray(X32))
    inner = Linear(jnp.asarray([0.4, -0.3]), jnp.asarray(0.2), "feature")
    data = dataset()
    z = np.asarray(phi(data.x), np.float64)
    found = jaxsvm.certificate(Mapped(phi, inner), data, 0.3)
    there = jaxsvm.certificate(inner, data._replace(x=jnp.asarray(z, jnp.float32)), 0.3)
    # features rounded to float32 on one side
    assert float(found.gap) == pytest.approx(float(there.gap), rel=1e-5)
    w = np.asarray(inner.w, np.float64)
    value = primal_by_hand(w @ w + float(inner.b) ** 2, z @ w + float(inner.b), "hinge", 0.3, None)
    assert float(found.primal) == pytest.approx(value, rel=1e-6)
    assert float(objectives.primal(Mapped(phi, inner), data, 0.3)) == pytest.approx(value, rel=1e-6)


def test_maps_of_maps_and_plain_functions_as_maps():
    phi = jaxsvm.data.standardize(jnp.asarray(X32))
    inner = Linear(jnp.asarray([0.4, -0.3]), jnp.asarray(0.2), "feature")
    one = jaxsvm.certificate(Mapped(phi, inner), dataset(), 0.3)
    two = jaxsvm.certificate(
        Mapped(phi, Mapped(jax.tree_util.Partial(jnp.multiply, jnp.ones(())), inner)),
        dataset(),
        0.3,
    )
    assert float(two.gap) == pytest.approx(float(one.gap), rel=1e-12)


# dual, kkt, nu, C, lam


@pytest.mark.long(but=1)
@pytest.mark.parametrize("name", ["hinge", "squared_hinge", "eps_insensitive"])
def test_dual_from_scratch(name):
    rng = np.random.default_rng(13)
    for lam, weight in PROBLEMS:
        coef = _box(name, lam, weight, rng)
        alpha = coef * Y if LOSSES[name][0].labels else coef
        data, loss = dataset(name, weight), LOSSES[name][0]
        with jax.enable_x64(True):
            alpha = jnp.asarray(alpha)
            kernel = float(objectives.dual(alpha, data, lam, KERNEL, loss))
            linear = float(objectives.dual(alpha, data, lam, loss=loss))
        assert kernel == pytest.approx(dual_by_hand(coef, GRAM, name, lam, weight), rel=1e-11)
        assert linear == pytest.approx(dual_by_hand(coef, LINEAR, name, lam, weight), rel=1e-11)
        assert kernel <= optimum(name, "none", int(weight is not None), "rbf")[0] + EXACT
        assert linear <= optimum(name, "none", int(weight is not None))[0] + EXACT


def test_the_distance_between_close_coefficients_has_their_digits(x64):
    """|w - w(coef)|^2 of coefficients of 1000 that differ by 2^-20: a difference of squares has no
    digit of it."""
    own, coef = jnp.array([1000.0, 0.0]), jnp.array([1000.0 - 2.0**-20, 0.0])
    x = np.array([[1.1], [0.3]])
    data = jaxsvm.dataset(x, [1, -1])
    model = Expansion(kernels.linear(), data.x, own, jnp.zeros(()), jnp.array([0, -1]))
    score, dual_score = (jnp.asarray(x @ (x.T @ c)) for c in (own, coef))
    # the second row is no training row, and has coefficient 0
    problem = certificates.Problem(model, data, jnp.ones(()), losses.hinge, "none")
    distance = certificates._distance(problem, coef, dual_score, score)
    assert float(distance) == pytest.approx(1.21 * 2.0**-40, rel=1e-5)


def test_dual_outside_of_the_bounds_is_minus_infinity():
    lam, bound = 0.3, shares(WEIGHT) / 0.3
    data = dataset(weight=WEIGHT)
    inside = jnp.asarray(0.5 * bound, jnp.float32)
    assert np.isfinite(float(objectives.dual(inside, data, lam)))
    assert float(objectives.dual(inside.at[4].set(1.01 * bound[4]), data, lam)) == -np.inf
    assert float(objectives.dual(inside.at[4].set(-0.01), data, lam)) == -np.inf


@pytest.mark.parametrize("C", [0.1, 0.3, 1.7])
def test_dual_forgives_what_rounding_to_float32_added_to_a_bound(C):
    data = dataset()
    alpha = jnp.full(N, np.nextafter(np.float32(C), np.float32(np.inf)))
    lam = objectives.lam_from_C(C, N)
    exact = float(objectives.dual(0.999 * alpha, data, lam))
    assert np.isfinite(exact) and float(objectives.dual(alpha, data, lam)) == pytest.approx(
        exact, rel=0.01, abs=0.01
    )
    assert float(objectives.dual(1.00001 * alpha, data, lam)) == -np.inf


def test_dual_of_a_row_that_does_not_count_is_bounded_by_0():
    """Weight 0: 0 <= alpha_i <= C 0. Else the row could cancel others in |w|^2 and lift D above the
    optimum."""
    data = dataset(weight=WEIGHT)
    alpha = jnp.zeros(N).at[0].set(0.1)
    assert WEIGHT[0] == 0
    assert float(objectives.dual(alpha, data, 0.3)) == -np.inf


def test_kkt_residual_from_scratch():
    rng = np.random.default_rng(14)
    for lam, weight in PROBLEMS:
        bound = shares(weight) / lam
        coef = np.float32(_box("hinge", lam, weight, rng)).astype(float)
        for bias in ("none", "feature"):
            b = float(np.float32(coef.sum())) if bias == "feature" else 0.0
            square = np.ones(N) + (bias == "feature")
            alpha, margin = coef * Y, Y * (GRAM @ coef + b)
            want = np.abs(np.clip(alpha + (1 - margin) / square, 0, bound) - alpha) * square
            found = jaxsvm.kkt_residual(expansion(coef, b, bias), dataset(weight=weight), lam)
            # 1e-6 at the bounds
            assert float(found) == pytest.approx(want[shares(weight) > 0].max(), rel=1e-5)
        coef = np.float32(_box("hinge", lam, weight, rng, "free")).astype(float)
        alpha, b = coef * Y, 0.3
        value, edge = Y - (GRAM @ coef + np.float32(b)), 1e-6 * bound
        grows, falls = (alpha < bound - edge) & (bound > 0), alpha > edge
        up, low = np.where(Y > 0, grows, falls), np.where(Y > 0, falls, grows)
        found = jaxsvm.kkt_residual(expansion(coef, b, "free"), dataset(weight=weight), lam)
        assert float(found) == pytest.approx(value[up].max() - value[low].min(), rel=1e-6)


def test_conversions_and_nu():
    assert objectives.lam_from_C(2.0, 50) == 0.01 and objectives.C_from_lam(0.01, 50) == 2.0
    assert objectives.lam_from_C(objectives.C_from_lam(0.3, 7.5), 7.5) == pytest.approx(
        0.3, rel=1e-15
    )
    w = np.float32([0.7, -0.4])
    for weight in (None, WEIGHT):
        model = Linear(jnp.asarray(w), jnp.zeros(()))
        mean = shares(weight) @ np.maximum(1 - Y * (X @ w.astype(float)), 0)
        want = mean / np.linalg.norm(w.astype(float))
        assert float(jaxsvm.nu_from(model, dataset(weight=weight))) == pytest.approx(
            want, rel=EXACT
        )
    # 3.0: at u/|u| the water level of volume n nu is 1/|u|.
    c, level = (
        Y * (X @ w.astype(float)) / np.linalg.norm(w.astype(float)),
        1 / np.linalg.norm(w.astype(float)),
    )
    assert np.maximum(level - c, 0).mean() == pytest.approx(
        float(jaxsvm.nu_from(model, dataset())), rel=1e-6
    )


@pytest.mark.parametrize("weight", [None, WEIGHT], ids=["plain", "weighted"])
def test_error_and_risk_weigh_their_rows(weight):
    data, share = dataset(weight=weight), shares(weight)
    model = Linear(jnp.asarray([0.3, 0.2]), jnp.asarray(-0.1), "free")
    score, _ = scores_and_square(model)
    wrong = share @ (Y * score < 0)
    assert 0.1 < wrong < 0.9
    # in the dtype of the model
    assert float(jaxsvm.error_on(data)(model)) == pytest.approx(wrong, rel=1e-6)
    for name in ("hinge", "logistic"):
        want = share @ LOSSES[name][1](score, Y)
        assert float(jaxsvm.risk_on(data, LOSSES[name][0])(model)) == pytest.approx(want, rel=1e-6)
    sweep = jax.jit(jax.vmap(lambda b: jaxsvm.error_on(data)(dataclasses.replace(model, b=b))))(
        jnp.array([-0.1, 100.0])
    )
    np.testing.assert_allclose(sweep, [wrong, share @ (Y < 0)], rtol=1e-6)


# transformations, errors


@pytest.mark.long
def test_certificate_under_jit_and_vmap():
    """Inside a trace in the dtype at hand: float32 here, so to 1e-5 of what float64 says."""
    data, lams = dataset(), jnp.array([0.05, 0.3, 2.0])
    model = Linear(jnp.asarray([0.5, -0.8]), jnp.zeros(()))
    found = jax.jit(jax.vmap(lambda lam: jaxsvm.certificate(model, data, lam)))(lams)
    assert found.gap.dtype == jnp.float32 and found.exact.shape == (3,)
    want = [jaxsvm.certificate(model, data, float(lam)) for lam in lams]
    for field in ("primal", "gap", "dual"):
        np.testing.assert_allclose(
            getattr(found, field), [float(getattr(c, field)) for c in want], rtol=1e-5, atol=1e-5
        )
    coef = _box("hinge", 0.3, None, np.random.default_rng(15))
    many = expansion(np.stack([coef, -coef]), b=np.zeros(2), index=np.zeros(2))
    many = dataclasses.replace(many, index=jnp.arange(N, dtype=jnp.int32))
    axes = dataclasses.replace(many, kernel=None, x=None, coef=0, b=0, index=None)
    certify = jax.jit(jax.vmap(lambda m: jaxsvm.certificate(m, data, 0.3), in_axes=(axes,)))
    found = certify(many)
    assert found.exact.tolist() == [True, False]
    for k, c in enumerate((coef, -coef)):
        assert float(found.gap[k]) == pytest.approx(
            float(jaxsvm.certificate(expansion(c), data, 0.3).gap), abs=1e-5
        )


def test_options_of_a_certificate_in_a_trace():
    """A known l1_ratio of 0 is that in a trace, too: a free bias and sweeps are allowed."""
    data, model = dataset(), Linear(jnp.asarray([0.5, -0.8]), jnp.zeros(()))
    for options in ({"bias": "free"}, {"passes": 3}, {"bias": "feature"}):
        want = jaxsvm.certificate(model, data, 0.3, **options).gap
        found = jax.jit(lambda m, options=options: jaxsvm.certificate(m, data, 0.3, **options))
        np.testing.assert_allclose(found(model).gap, want, rtol=1e-5)


@pytest.mark.long
def test_certificate_under_jit_with_x64_on(x64):
    """The dtype at hand is that of the model and the rows, not the default: float32 rows in a
    float64 program."""
    wide = jaxsvm.dataset(X, Y)
    model = Linear(jnp.asarray([0.5, -0.8]), jnp.zeros(()))
    want = jaxsvm.certificate(model, wide, 0.3)
    certify = jax.jit(lambda model, data: jaxsvm.certificate(model, data, 0.3))
    assert float(certify(model, wide).gap) == pytest.approx(float(want.gap), rel=EXACT)
    narrow = certify(Linear(model.w.astype(jnp.float32), model.b.astype(jnp.float32)), dataset())
    assert float(narrow.gap) == pytest.approx(float(want.gap), rel=1e-5)


def test_wrong_use_is_refused_with_a_sentence():
    data, model = dataset(), Linear(jnp.asarray([0.5, -0.8]), jnp.zeros(()))
    free = dataclasses.replace(model, bias="free")
    with pytest.raises(ValueError, match="equality constraint"):
        jaxsvm.certificate(free, data, 0.3, passes=1)
    with pytest.raises(ValueError, match="equality constraint"):
        jaxsvm.certificate(model, data, 0.3, bias="free", passes=1)
    with pytest.raises(ValueError, match="bias must be one of"):
        jaxsvm.certificate(model, data, 0.3, bias="some")
    with pytest.raises(TypeError, match="expected a Linear, Expansion or Mapped model"):
        jaxsvm.certificate(lambda x: x[:, 0], data, 0.3)
    with pytest.raises(TypeError, match="carries dual coefficients"):
        jaxsvm.kkt_residual(model, data, 0.3)
    alpha = jnp.zeros(N)
    for lam in (0.0, -1.0, np.nan, np.inf):
        for call in (
            lambda lam: jaxsvm.certificate(model, data, lam),
            lambda lam: objectives.primal(model, data, lam),
            lambda lam: objectives.dual(alpha, data, lam),
            lambda lam: jaxsvm.kkt_residual(expansion(alpha), data, lam),
        ):
            with pytest.raises(ValueError, match="lam must be a finite number above 0"):
                call(lam)
    with pytest.raises(ValueError, match="lam has shape"):
        jaxsvm.certificate(model, data, jnp.ones(3))
    with pytest.raises(ValueError, match="alpha has shape"):
        objectives.dual(alpha[:-1], data, 0.3)


def test_a_map_around_something_else_is_refused_as_documented():
    with pytest.raises(TypeError, match="expected a Linear, Expansion or Mapped model"):
        jaxsvm.certificate(
            Mapped(jaxsvm.data.standardize(jnp.asarray(X32)), jax.tree_util.Partial(jnp.sum)),
            dataset(),
            0.3,
        )


@pytest.mark.parametrize(("bias", "level"), [("none", 2.0), ("free", 2.5)])
def test_lam_from_nu_counts_weights_as_copies(bias, level):
    """Rows at +1 and -1 of weights 2 and 4, |v| = 1: a volume of 6 rises over both rows, or with a
    bias over the first."""
    p, kernel = jnp.array([0.5, 0.5]), kernels.linear()
    lam = objectives.lam_from_nu(
        1.0, p, jaxsvm.dataset([[1.0], [-1.0]], [1, -1], [2, 4]), kernel, bias
    )
    copies = jaxsvm.dataset([[1.0]] * 2 + [[-1.0]] * 4, [1] * 2 + [-1] * 4)
    of_copies = objectives.lam_from_nu(
        1.0, jnp.array([0.25] * 2 + [0.125] * 4), copies, kernel, bias
    )
    # of weight 6, p / weight <= 1/4
    assert [float(lam), float(of_copies)] == pytest.approx([level / (6 / 4)] * 2, rel=1e-6)


def test_kkt_residual_refuses_expansions_without_dual_variables():
    """`Raises: TypeError: if the model carries no dual coefficients`."""
    with pytest.raises(TypeError, match="dual coefficients"):
        jaxsvm.kkt_residual(expansion(0.01 * Y, index=np.full(N, -1)), dataset(), 0.3)


def test_kkt_residual_refuses_one_point_that_is_no_training_row():
    index = np.where(np.arange(N) == 3, -1, np.arange(N))
    with pytest.raises(TypeError, match="dual coefficients"):
        jaxsvm.kkt_residual(expansion(0.01 * Y, index=index), dataset(), 0.3)
    assert np.isfinite(
        jaxsvm.kkt_residual(expansion(0.01 * Y * (index >= 0), index=index), dataset(), 0.3)
    )


# Models that are not finite


def test_scores_that_are_not_finite_are_errors_and_an_infinite_risk():
    data = jaxsvm.dataset(X32, Y, WEIGHT)
    for bad in (jnp.nan, jnp.inf):
        model = Linear(jnp.full(D, bad, jnp.float32), jnp.zeros(()))
        assert float(jaxsvm.error_on(data)(model)) == pytest.approx(1)
        assert float(jaxsvm.risk_on(data)(model)) == np.inf
        assert float(jax.jit(jaxsvm.error_on(data))(model)) == pytest.approx(1)
    many = jaxsvm.dataset(X32, np.arange(N) % 3, task="multiclass")
    assert float(
        jaxsvm.error_on(many)(
            lambda x: jnp.where(x[:, :1] > 0, jnp.nan, jnp.eye(3)[jnp.arange(N) % 3])
        )
    ) == (pytest.approx(np.mean(X32[:, 0] > 0)))
    one = jnp.where(jnp.arange(N) == 5, jnp.nan, jnp.asarray(Y, jnp.float32))  # a single row
    share = WEIGHT[5] / WEIGHT.sum()
    assert share > 0 and float(jaxsvm.error_on(data)(lambda x: one)) == pytest.approx(share)
    assert float(jaxsvm.risk_on(data)(lambda x: one)) == np.inf
    # rows of weight 0 do not count
    absent = jnp.where(jnp.asarray(WEIGHT) == 0, jnp.nan, jnp.asarray(Y, jnp.float32))
    assert (
        float(jaxsvm.error_on(data)(lambda x: absent)) == 0
        and float(jaxsvm.risk_on(data)(lambda x: absent)) == 0
    )


def test_a_sweep_does_not_choose_a_run_that_diverged():
    # a constant answer errs on a fifth of the rows
    data = jaxsvm.dataset(X32, np.where(np.arange(N) % 5 > 0, 1.0, -1.0))
    error = lambda scale: jaxsvm.error_on(data)(
        Linear(scale * jnp.array([0.1, 0.1]), -jnp.ones(()))
    )
    found = jaxsvm.sweep(error, scale=jnp.array([1.0, jnp.nan]), progress=False)()
    assert jaxsvm.sweep.table(found, scale=jnp.array([1.0, 2.0])).best == {"scale": 1.0} and float(
        found[1]
    ) == pytest.approx(1)


# Wrong arguments: each met a traceback from JAX or NumPy, or none at all


MODEL = Linear(jnp.ones(2), jnp.zeros(()))
WRONG_ROWS = jaxsvm.dataset(np.eye(4, 2), [1, -1, 1, -1])
WRONG_MODELS = [None, "m", np.eye(2), WRONG_ROWS, jaxsvm.pegasos, jaxsvm.pegasos(0.1), KERNEL, dict]


@pytest.mark.parametrize(
    "wrong", [None, "data", np.eye(2), (1, 2), MODEL, jaxsvm.pegasos(0.1)], ids=repr
)
def test_what_is_no_data_set_is_refused(wrong):
    for call in (
        lambda: objectives.error_on(wrong),
        lambda: objectives.risk_on(wrong),
        lambda: objectives.certificate(MODEL, wrong, 0.1),
        lambda: objectives.primal(MODEL, wrong, 0.1),
        lambda: objectives.dual(np.ones(4, np.float32), wrong, 0.1),
        lambda: objectives.nu_from(MODEL, wrong),
        lambda: jaxsvm.take(wrong, jnp.array([0])),
    ):
        with pytest.raises(
            TypeError, match=r"^data must be a Batch, such as jaxsvm\.dataset\(x, y\), got "
        ):
            call()


@pytest.mark.parametrize("wrong", WRONG_MODELS, ids=lambda value: type(value).__name__)
def test_what_is_no_model_is_refused(wrong):
    for call in (
        lambda: objectives.error_on(WRONG_ROWS)(wrong),
        lambda: objectives.risk_on(WRONG_ROWS)(wrong),
        lambda: objectives.certificate(wrong, WRONG_ROWS, 0.1),
        lambda: objectives.certificate(wrong, MODEL, 0.1),
        lambda: objectives.primal(wrong, WRONG_ROWS, 0.1),
        lambda: objectives.kkt_residual(wrong, WRONG_ROWS, 0.1),
        lambda: objectives.nu_from(wrong, WRONG_ROWS),
    ):
        with pytest.raises(
            TypeError,
            match="^model (must be a model, such as run.model, got|is the factory pegasos itself)",
        ):
            call()


@pytest.mark.parametrize(
    "wrong",
    [None, "hinge", losses.smooth_hinge, 0.1, MODEL],
    ids=lambda value: type(value).__name__,
)
def test_what_is_no_loss_is_refused(wrong):
    for call in (
        lambda: objectives.risk_on(WRONG_ROWS, wrong),
        lambda: objectives.certificate(MODEL, WRONG_ROWS, 0.1, wrong),
        lambda: objectives.primal(MODEL, WRONG_ROWS, 0.1, wrong),
        lambda: objectives.dual(np.zeros(4, np.float32), WRONG_ROWS, 0.1, None, wrong),
    ):
        with pytest.raises(
            TypeError, match="^loss (must be a loss such as|is the factory smooth_hinge itself)"
        ):
            call()


@pytest.mark.parametrize("wrong", [0, -1, np.nan, np.inf, 10**400, jnp.array([1.0, 0.0])], ids=str)
def test_conversions_take_numbers_above_0(wrong):
    for convert in (objectives.lam_from_C, objectives.C_from_lam):
        for arguments in ((wrong, 10), (1.0, wrong)):
            with pytest.raises(
                ValueError, match="^(lam|C|n) (must be a finite number above 0|is no number)"
            ):
                convert(*arguments)
    assert objectives.lam_from_C(Fraction(1, 2), 10) == 0.2
    np.testing.assert_allclose(objectives.lam_from_C(jnp.array([1.0, 2.0]), 10), [0.1, 0.05])
    assert jax.jit(objectives.C_from_lam)(0.5, 10.0) == jnp.float32(0.2)


def test_numbers_of_other_libraries_are_taken():
    for number in (Fraction(1, 4), Decimal("0.25"), np.float16(0.25)):
        assert objectives.primal(MODEL, WRONG_ROWS, number) == objectives.primal(
            MODEL, WRONG_ROWS, 0.25
        )
        assert (
            objectives.certificate(MODEL, WRONG_ROWS, number).gap
            == objectives.certificate(MODEL, WRONG_ROWS, 0.25).gap
        )
    for passes in (2.5, -1, True, np.ones(2)):
        with pytest.raises(ValueError, match="passes must be a whole number of at least 0, got"):
            objectives.certificate(MODEL, WRONG_ROWS, 0.25, passes=passes)
    with pytest.raises(ValueError, match="bias must be one of"):
        objectives.certificate(MODEL, WRONG_ROWS, 0.25, bias=0)


@pytest.mark.parametrize("probe", [jaxsvm.error_on, jaxsvm.risk_on])
@pytest.mark.parametrize("field", ["y", "weight"])
def test_a_batch_has_a_target_and_a_weight_for_each_row(probe, field):
    data = jaxsvm.dataset(np.eye(4), [1, -1, 1, -1])
    with pytest.raises(
        ValueError, match="data must hold one target and one weight for each of its 4 rows"
    ):
        probe(data._replace(**{field: jnp.ones(3)}))


@pytest.mark.long
def test_numbers_wider_than_jax_has_are_taken():
    data = jaxsvm.dataset(np.eye(2), [1, -1])
    run = jaxsvm.fit(jaxsvm.sdca(10.0, jaxsvm.kernels.linear()), data, jax.random.key(0), steps=4)
    assert jaxsvm.kkt_residual(run.model, data, np.longdouble(0.5)) == jaxsvm.kkt_residual(
        run.model, data, 0.5
    )


@pytest.mark.parametrize("probe", [jaxsvm.error_on, jaxsvm.risk_on])
@pytest.mark.parametrize("wrong", [len, lambda x: x[:1, 0]])
def test_a_model_gives_a_value_for_each_row(probe, wrong):
    data = jaxsvm.dataset(np.eye(4), [1, -1, 1, -1])
    with pytest.raises(
        TypeError, match="model must give a decision value, or several, for each of the 4 rows"
    ):
        probe(data)(wrong)


def test_labels_of_the_other_kind_are_refused_by_error_on_and_ones_are_of_either_kind():
    rows = lambda y: jaxsvm.Batch(
        jnp.eye(3), jnp.asarray(y, jnp.float32), jnp.arange(3), jnp.ones(3)
    )
    one, three = Linear(jnp.array([1.0, -1.0, 1.0]), jnp.zeros(())), lambda x: x
    assert float(jaxsvm.error_on(rows([1, 1, 1]))(one)) == pytest.approx(1 / 3)
    assert float(jaxsvm.error_on(rows([1, 1, 1]))(three)) == pytest.approx(2 / 3)
    assert float(jaxsvm.error_on(rows([1, -1, -1]))(one)) == pytest.approx(1 / 3)
    assert float(jaxsvm.error_on(rows([0, 1, 1]))(three)) == pytest.approx(1 / 3)
    with pytest.raises(ValueError, match="hold class numbers"):
        jaxsvm.error_on(rows([0, 1, 1]))(one)
    with pytest.raises(ValueError, match="hold labels -1 and"):
        jaxsvm.error_on(rows([1, -1, -1]))(three)


def test_a_certificate_of_labels_is_not_given_on_real_targets():
    data = jaxsvm.dataset(np.eye(3), [0.5, 1.0, 2.0], task="regression")
    model = Linear(jnp.ones(3), jnp.zeros(()))
    with pytest.raises(ValueError, match="is a loss of labels -1 and \\+1, and the data hold 0.5"):
        jaxsvm.certificate(model, data, 1.0)
    assert jaxsvm.certificate(model, data, 1.0, losses.squared).gap >= 0


def test_what_to_do_for_several_machines_is_said():
    data = jaxsvm.dataset(np.eye(3), [0, 1, 2], task="multiclass")
    solver = jaxsvm.one_vs_rest(jaxsvm.linear_svm(1.0), classes=3)
    model = jaxsvm.fit(solver, data, jax.random.key(0)).model
    own = data._replace(y=jnp.where(data.y == 0, 1.0, -1.0))
    with pytest.raises(TypeError, match="take its machines one by one, model\\[c\\]"):
        jaxsvm.certificate(model, own, 1.0)
    assert jaxsvm.certificate(model[0], own, 1 / 3).gap >= 0


@pytest.mark.parametrize("classes", ["one_vs_rest", "one_vs_one"])
def test_a_model_of_classes_has_the_certificates_of_its_problems(classes):
    """Of a result, by C and by names; those of each problem on its rows alone."""
    random = np.random.default_rng(0)
    x, name = random.normal(size=(60, 2)), random.choice(["ant", "bee", "cat"], 60)
    one = jaxsvm.decomposition(2.0, kernels.rbf(1.0), bias="none")
    rows, key = jaxsvm.dataset(x, name), jax.random.key(0)
    run = jaxsvm.fit(getattr(jaxsvm, classes)(one, classes=3), rows, key)
    proof = objectives.certificate(run, rows, C=2.0)
    assert (proof.gap <= 1e-2 * proof.primal).all() and proof.primal.shape == (3,)
    order = random.permutation(60)  # the numbers of the classes are others
    other = jaxsvm.dataset(x[order], name[order], classes=["cat", "bee", "ant"])
    np.testing.assert_allclose(
        objectives.certificate(run, other, C=2.0).primal, proof.primal, rtol=1e-5
    )
    problems = [("ant", "bee"), ("ant", "cat"), ("bee", "cat")]
    problems = "ant bee cat".split() if classes == "one_vs_rest" else problems
    for problem, primal in zip(problems, proof.primal, strict=True):
        part = np.isin(name, problem) | (classes == "one_vs_rest")
        sign = np.where(name == (problem if classes == "one_vs_rest" else problem[0]), 1, -1)
        alone = jaxsvm.dataset(x[part], sign[part])
        result = jaxsvm.fit(one, alone, key)
        lam = jaxsvm.lam_from_C(2.0, part.sum())
        expected = objectives.certificate(result.model, alone, lam).primal
        np.testing.assert_allclose(primal, expected, rtol=1e-4)
    for numbers in ({}, {"lam": 1.0, "C": 1.0}):
        with pytest.raises(ValueError, match="give lam or C"):
            objectives.certificate(run, rows, **numbers)
    with pytest.raises(ValueError, match="C must be one number, or one of each of 3 problems"):
        objectives.certificate(run, rows, C=[1.0, 2.0])


@pytest.mark.parametrize("number", ["lam", "C"])
def test_numbers_that_are_none_give_nan_where_they_are_traced(number):
    """Known ones are refused."""
    of = jax.vmap(lambda value: jaxsvm.certificate(MODEL, WRONG_ROWS, **{number: value}).gap)
    assert np.isnan(of(jnp.array([jnp.nan, -1.0, 0.0, 1.0]))).tolist() == [True, True, True, False]
