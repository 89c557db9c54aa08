"""Certificates against optima of other programs, and objectives and duals in NumPy in float64."""

import dataclasses
import importlib
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import sklearn.svm
from certified import (
    EXACT,
    GAMMA,
    GRAM,
    KERNEL,
    LOSSES,
    PROBLEMS,
    WEIGHT,
    X32,
    D,
    N,
    X,
    Y,
    dataset,
    dual_by_hand,
    expansion,
    in_box,
    line,
    optimum,
    primal_by_hand,
    scores_and_square,
    shares,
)

import jaxsvm
from jaxsvm import certificate, kernels, losses, objectives
from jaxsvm.data import Scale
from jaxsvm.models import Expansion, Linear, Mapped

# the package has a function of this name
certificates = importlib.import_module("jaxsvm.objectives.certificates")


def models_at(rng, name, bias, problem, space):
    """Random models of all sizes, the optimum and its neighbourhood, zero."""
    best = optimum(name, bias, problem, space)[1] if space == "linear" else None
    lam, weight = PROBLEMS[problem]
    for trial in range(12):
        size = 10.0 ** rng.uniform(-3, 2) * (trial > 0)
        b = 0.0 if bias == "none" else size * rng.normal()
        if space == "linear" and trial and trial % 3 == 0:
            w = best[:D] + size / 1e3 * rng.normal(size=D)
            yield line(w, b and best[-1] + b / 1e3, bias)
        elif space == "linear":
            yield line(size * rng.normal(size=D), b, bias)
        else:
            coef = size / lam * shares(weight) * rng.normal(size=N)
            # some of the centres are no training rows
            gone = (rng.random(N) < 0.3) & (trial % 3 == 1)
            yield expansion(coef, b, bias, np.where(gone, -1, np.arange(N)))


CASES = [
    *itertools.product(("linear", "rbf"), ["hinge"], ("none", "feature", "free")),
    ("linear", "squared_hinge", "free"),
    ("linear", "logistic", "free"),
    ("linear", "eps_insensitive", "feature"),
]


@pytest.mark.long(but=1)
@pytest.mark.parametrize("space, name, bias", CASES)
def test_a_certificate_bounds_the_distance_to_the_optimum(space, name, bias):
    """gap >= P(model) - min P, gap = primal - dual >= 0, for whatever model."""
    rng, loss = np.random.default_rng(3), LOSSES[name]
    for problem, (lam, weight) in enumerate(PROBLEMS):
        data, (best, _) = dataset(name, weight), optimum(name, bias, problem, space)
        for model in models_at(rng, name, bias, problem, space):
            found = certificate(model, data, lam, loss)
            primal, dual, gap = (float(a) for a in (found.primal, found.dual, found.gap))
            score, square = scores_and_square(model)
            value = primal_by_hand(square, score, name, lam, weight)
            room = EXACT * max(1, value)
            assert primal == pytest.approx(value, rel=EXACT)
            assert float(objectives.primal(model, data, lam, loss)) == pytest.approx(primal, EXACT)
            assert gap >= 0 and abs(primal - dual - gap) <= room
            assert dual <= best + room  # <= min P <= best
            assert gap >= value - best - room
            # made from the scores: as good as the dual point 0 at least
            assert found.exact or dual >= -room
            assert found.gap.dtype == np.float64 and isinstance(found.exact, bool)
            assert space == "rbf" or not found.exact


@pytest.mark.long(but=1)
@pytest.mark.parametrize("bias", ["none", "feature", "free"])
def test_exact_gap_is_primal_minus_dual_from_scratch(bias):
    rng = np.random.default_rng(5)
    for lam, weight in PROBLEMS:
        for _ in range(4):
            coef = np.float32(in_box("hinge", lam, weight, rng, bias)).astype(float)
            b = {"none": 0.0, "feature": coef.sum(), "free": rng.normal()}[bias]
            model = expansion(coef, b, bias)
            found = certificate(model, dataset("hinge", weight), lam)
            score, square = scores_and_square(model)
            value = primal_by_hand(square, score, "hinge", lam, weight)
            lower = dual_by_hand(coef, GRAM, "hinge", lam, weight, bias)
            assert found.exact
            # Coefficients of rows at their bound may be drawn back by 1e-6 of themselves (float32
            # bounds), sums rounded.
            assert float(found.gap) == pytest.approx(value - lower, abs=1e-5)
            assert float(found.primal) == pytest.approx(value, rel=EXACT)
            assert float(found.dual) <= lower + 1e-5


@pytest.mark.long
def test_exact_says_whether_the_model_carries_feasible_duals():
    lam, few = 0.3, np.arange(N) < 5
    coef, bound = in_box("hinge", lam, None, np.random.default_rng(6)), 1 / (lam * N)
    assert np.float64(np.float32(bound)) > bound  # as float32 holds it, C lies outside of the box
    for exact, model, weight in (
        (True, expansion(coef), None),
        (True, expansion(np.float32(bound) * Y), None),
        (False, expansion(1.0001 * bound * Y), None),
        (False, expansion(-coef), None),  # of the wrong sign
        (False, expansion(coef, index=np.full(N, -1)), None),  # no training rows
        # those weigh 0
        (True, expansion(np.where(few, 0, coef), index=np.where(few, -1, np.arange(N))), None),
        (False, expansion(coef, bias="free"), None),  # sum coef is not 0
        # a row that does not count has a box of size 0
        (False, expansion(np.where(WEIGHT == 0, 1e-3 * Y, 0)), WEIGHT),
    ):
        assert certificate(model, dataset(weight=weight), lam).exact == exact


@pytest.mark.long
def test_one_training_row_may_stand_in_several_terms():
    lam, rng = 0.3, np.random.default_rng(8)
    coef, order = in_box("hinge", lam, None, rng), np.tile(rng.permutation(N), 2)
    twice = expansion(coef[order] / 2, index=order, x=X32[order])
    one, two = (certificate(m, dataset(), lam) for m in (expansion(coef), twice))
    assert one.exact and two.exact
    assert float(two.gap) == pytest.approx(float(one.gap), abs=1e-6)  # coefficients in float32


@jax.jit
def passes_of_sdca(solver, data):
    """The model after 200 passes in stored order."""
    rows = jnp.tile(jnp.arange(N, dtype=jnp.int32), 200)[:, None]
    step = lambda s, i: solver.update(s, data._replace(index=i))
    state, _ = jax.lax.scan(step, solver.init(jax.random.key(0), data), rows)
    return solver.model(state, data)


def test_converged_kernel_sdca_is_certified_to_rounding(x64):
    lam, data = 0.3, jaxsvm.dataset(X, Y)
    model = passes_of_sdca(jaxsvm.sdca(objectives.C_from_lam(lam, N), KERNEL), data)
    found = certificate(model, data, lam)
    assert found.exact and 0 <= float(found.gap) < 1e-12
    best = optimum("hinge", "none", 0, "rbf")[0]
    assert float(found.primal) == pytest.approx(best, abs=1e-9)  # what LIBLINEAR reaches
    # The same in float32: bounded by what rounding left.
    again = certificate(expansion(model.coef), data, lam)
    assert again.exact and float(again.gap) < 1e-6  # a relative error of 6e-8 in the coefficients


def test_a_float32_run_is_certified_with_its_own_duals():
    """C = 1/(lam n) rounded to float32 on one side, lam in float64 on the other."""
    lam, data = 0.07, dataset()
    C = objectives.C_from_lam(lam, N)
    model = passes_of_sdca(jaxsvm.sdca(jnp.float32(C), KERNEL), data)
    assert model.coef.dtype == jnp.float32
    assert (np.abs(np.asarray(model.coef)) == np.float32(C)).any()
    found = certificate(model, data, lam)
    # float32 duals, and 1e-6 where they are at C
    assert found.exact and 0 <= float(found.gap) < 1e-5


@pytest.mark.long(but=1)
@pytest.mark.parametrize("name, bias", [("hinge", "none"), ("eps_insensitive", "feature")])
def test_passes_make_the_certificate_of_a_linear_model_tight(name, bias):
    lam, (best, w) = PROBLEMS[0][0], optimum(name, bias, 0)
    model, data = line(w[:D], w[-1], bias), dataset(name)
    rough, fine = (certificate(model, data, lam, LOSSES[name], passes=k) for k in (0, 300))
    assert not fine.exact
    assert float(fine.gap) < 1e-6 < float(rough.gap)  # w itself is rounded to float32
    assert float(fine.dual) == pytest.approx(best, abs=1e-6)
    assert float(fine.primal) == float(rough.primal)


@pytest.mark.long
def test_passes_for_an_expansion_that_carries_no_duals():
    lam, (best, _) = 0.3, optimum("hinge", "none", 0, "rbf")
    model = expansion(in_box("hinge", lam, None, np.random.default_rng(9)), index=np.full(N, -1))
    found = certificate(model, dataset(), lam, passes=300)
    score, square = scores_and_square(model)
    above = primal_by_hand(square, score, "hinge", lam, None) - best
    assert float(found.dual) == pytest.approx(best, abs=1e-8)
    assert float(found.gap) == pytest.approx(above, abs=1e-8)


@pytest.mark.parametrize("weight", [None, WEIGHT], ids=["plain", "weighted"])
def test_free_bias_against_libsvm(weight):
    """LIBSVM's answer is certified by its own dual variables, and no certificate claims less than
    its primal value."""
    # scikit-learn misnumbers rows of weight 0
    lam, used = 0.3, np.ones(N) if weight is None else weight
    live, data = np.flatnonzero(used), dataset(weight=weight)

    def fitted(**kernel):
        made = sklearn.svm.SVC(C=1 / (lam * used.sum()), tol=1e-10, **kernel)
        return made.fit(X[live], Y[live], used[live])

    svm, coef = fitted(gamma=GAMMA), np.zeros(N)
    coef[live[svm.support_]], b = svm.dual_coef_[0], float(svm.intercept_[0])
    with jax.enable_x64(True):
        model = expansion(coef, b, "free", dtype=jnp.float64)
        found = certificate(model, data, lam)
        residual = float(jaxsvm.kkt_residual(model, data, lam))
    value = primal_by_hand(coef @ GRAM @ coef, GRAM @ coef + b, "hinge", lam, weight)
    assert found.exact and float(found.gap) < 1e-8  # second order in the residual
    assert float(found.primal) == pytest.approx(value, rel=EXACT)
    assert abs(residual) < 1e-6  # LIBSVM keeps kernel values in float32
    svm = fitted(kernel="linear")
    w, b = svm.coef_[0], float(svm.intercept_[0])
    value = primal_by_hand(w @ w, X @ w + b, "hinge", lam, weight)
    for scale in (0.0, 0.5, 1.0, 2.0):
        model = line(scale * w, scale * b, "free")
        assert float(certificate(model, data, lam).dual) <= value + 1e-12


@pytest.mark.long(but=1)
@pytest.mark.parametrize(
    "space, has, problem_bias",
    [("linear", "free", "feature"), ("linear", "feature", "free"), ("rbf", "none", "feature")],
)
def test_a_bias_given_by_name_means_the_problem_with_that_bias(space, has, problem_bias):
    """`bias=` names the problem: its optimum bounds the dual, and the primal has b^2 if and only if
    it is a feature."""
    lam, rng = PROBLEMS[0][0], np.random.default_rng(12)
    best, _ = optimum("hinge", problem_bias, 0, space)
    for trial in range(4):
        b = 0.0 if has == "none" else rng.normal() * 2
        coef = in_box("hinge", lam, None, rng, "free" if trial % 2 else "none")
        linear = space == "linear"
        model = line(rng.normal(size=D), b, has) if linear else expansion(coef, b, has)
        found = certificate(model, dataset(), lam, bias=problem_bias)
        score, square = scores_and_square(dataclasses.replace(model, bias=problem_bias))
        value = primal_by_hand(square, score, "hinge", lam, None)
        assert float(found.gap) >= value - best - EXACT
        assert float(found.dual) <= best + EXACT
        assert float(found.primal) == pytest.approx(value, rel=EXACT)
        if found.exact:
            coef = np.asarray(model.coef, float)
            lower = dual_by_hand(coef, GRAM, "hinge", lam, None, problem_bias)
            # 1e-6 of coefficients at their bounds
            assert float(found.dual) == pytest.approx(lower, abs=1e-5)


@pytest.mark.long
def test_mapped_models_are_certified_in_their_feature_space():
    """Maps of maps, and plain functions as maps, too."""
    phi, inner, data = (
        jaxsvm.data.standardize(jnp.asarray(X32)),
        line([0.4, -0.3], 0.2, "feature"),
        dataset(),
    )
    z, w = np.asarray(phi(data.x), np.float64), np.asarray(inner.w, np.float64)
    model, b = Mapped(phi, inner), float(inner.b)
    found = certificate(model, data, 0.3)
    there = certificate(inner, data._replace(x=jnp.asarray(z, jnp.float32)), 0.3)
    # features rounded to float32 on one side
    assert float(found.gap) == pytest.approx(float(there.gap), rel=1e-5)
    value = primal_by_hand(w @ w + b**2, z @ w + b, "hinge", 0.3, None)
    for primal in (found.primal, objectives.primal(model, data, 0.3)):
        assert float(primal) == pytest.approx(value, rel=1e-6)
    same = jax.tree_util.Partial(jnp.multiply, jnp.ones(()))
    nested = certificate(Mapped(phi, Mapped(same, inner)), data, 0.3)
    assert float(nested.gap) == pytest.approx(float(found.gap), rel=1e-12)


def test_the_distance_between_close_coefficients_has_their_digits(x64, monkeypatch):
    """|w - w(coef)|^2 of coefficients of 1000 that differ by 2^-20: a difference of squares has no
    digit of it."""
    own, coef = jnp.array([1000.0, 0.0]), jnp.array([1000.0 - 2.0**-20, 0.0])
    x = np.array([[1.1], [0.3]])
    data = jaxsvm.dataset(x, [1, -1])
    model = Expansion(kernels.linear(), data.x, own, jnp.zeros(()), jnp.array([0, -1]))
    # the second row is no training row, and has coefficient 0
    problem = certificates.Problem(model, data, jnp.ones(()), losses.hinge, "none")
    monkeypatch.setattr(certificates, "_bound", lambda *args: args[4])
    distance = certificates._by_rows(problem, model, coef)
    assert float(distance) == pytest.approx(1.21 * 2.0**-40, rel=1e-5)


# transformations


@pytest.mark.long
def test_certificate_under_jit_and_vmap():
    """Inside a trace in the dtype at hand: float32 here, so to 1e-5 of what float64 says."""
    data, lams, model = dataset(), jnp.array([0.05, 0.3, 2.0]), line([0.5, -0.8])
    found = jax.jit(jax.vmap(lambda lam: certificate(model, data, lam)))(lams)
    assert found.gap.dtype == jnp.float32 and found.exact.shape == (3,)
    want = [certificate(model, data, float(lam)) for lam in lams]
    for field in ("primal", "gap", "dual"):
        alone = [float(getattr(c, field)) for c in want]
        np.testing.assert_allclose(getattr(found, field), alone, rtol=1e-5, atol=1e-5)
    coef = in_box("hinge", 0.3, None, np.random.default_rng(15))
    many = expansion(np.stack([coef, -coef]), b=np.zeros(2), index=np.arange(N))
    axes = dataclasses.replace(many, kernel=None, x=None, coef=0, b=0, index=None)
    found = jax.jit(jax.vmap(lambda m: certificate(m, data, 0.3), in_axes=(axes,)))(many)
    assert found.exact.tolist() == [True, False]
    for gap, c in zip(found.gap, (coef, -coef), strict=True):
        alone = float(certificate(expansion(c), data, 0.3).gap)
        assert float(gap) == pytest.approx(alone, abs=1e-5)


@pytest.mark.long(but=1)
@pytest.mark.parametrize("options", [{"passes": 3}, {"bias": "free"}, {"bias": "feature"}], ids=str)
def test_options_of_a_certificate_in_a_trace(options):
    """A known l1_ratio of 0 is that in a trace, too: a free bias and sweeps are allowed."""
    data, model = dataset(), line([0.5, -0.8])
    bound = lambda model: certificate(model, data, 0.3, **options).gap
    np.testing.assert_allclose(jax.jit(bound)(model), bound(model), rtol=1e-5)


@pytest.mark.long
def test_certificate_under_jit_with_x64_on(x64):
    """The dtype at hand is that of the model and the rows, not the default: float32 rows in a
    float64 program."""
    wide, model = jaxsvm.dataset(X, Y), Linear(jnp.asarray([0.5, -0.8]), jnp.zeros(()))
    want = float(certificate(model, wide, 0.3).gap)
    certify = jax.jit(lambda model, data: certificate(model, data, 0.3).gap)
    assert float(certify(model, wide)) == pytest.approx(want, rel=EXACT)
    assert float(certify(line([0.5, -0.8]), dataset())) == pytest.approx(want, rel=1e-5)


@pytest.mark.long
@pytest.mark.parametrize("number", ["lam", "C"])
def test_numbers_that_are_none_give_nan_where_they_are_traced(number):
    """Known ones are refused."""
    data, model = dataset(), line([1, 1])
    gap = jax.vmap(lambda value: certificate(model, data, **{number: value}).gap)
    found = jax.jit(gap)(jnp.array([jnp.nan, -1.0, 0.0, 1.0]))
    assert np.isnan(found).tolist() == [True, True, True, False]


# several machines

PAIRS = [("ant", "bee"), ("ant", "cat"), ("bee", "cat")]


@pytest.mark.long
@pytest.mark.parametrize("classes", ["one_vs_one", "one_vs_rest"])
def test_a_model_of_classes_has_the_certificates_of_its_problems(classes):
    """Of a result, by C and by names; those of each problem on its rows alone."""
    random, key = np.random.default_rng(0), jax.random.key(0)
    x, name = random.normal(size=(60, 2)), random.permutation(np.repeat(["ant", "bee", "cat"], 20))
    one, rows = jaxsvm.decomposition(2.0, kernels.rbf(1.0), bias="none"), jaxsvm.dataset(x, name)
    run = jaxsvm.fit(getattr(jaxsvm, classes)(one, classes=3), rows, key)
    proof = certificate(run, rows, C=2.0)
    assert (proof.gap <= 1e-2 * proof.primal).all() and proof.primal.shape == (3,)
    order = random.permutation(60)  # the numbers of the classes are others
    other = jaxsvm.dataset(x[order], name[order], classes=["cat", "bee", "ant"])
    np.testing.assert_allclose(certificate(run, other, C=2.0).primal, proof.primal, rtol=1e-5)
    problems = {"one_vs_rest": ["ant", "bee", "cat"], "one_vs_one": PAIRS}[classes]
    for problem, primal in zip(problems, proof.primal, strict=True):
        part = np.isin(name, problem) | (classes == "one_vs_rest")
        alone = jaxsvm.dataset(x[part], np.where(name[part] == np.ravel(problem)[0], 1, -1))
        lam = jaxsvm.lam_from_C(2.0, part.sum())
        expected = certificate(jaxsvm.fit(one, alone, key).model, alone, lam).primal
        np.testing.assert_allclose(primal, expected, rtol=1e-4)
    for numbers, words in (
        ({}, "give lam or C"),
        ({"lam": 1.0, "C": 1.0}, "give lam or C"),
        ({"C": [1.0, 2.0]}, "C must be one number, or one of each of 3 problems"),
    ):
        with pytest.raises(ValueError, match=words):
            certificate(run, rows, **numbers)


def test_weights_on_features_are_sums_over_the_rows():
    model = Mapped(Scale(X32[0], np.full(D, 2, "f")), line(np.ones(D)))
    found = certificates._weights(jnp.asarray(Y * WEIGHT, "f"), model, jnp.asarray(X32))
    np.testing.assert_allclose(found, (Y * WEIGHT) @ (X32 - X32[0]) / 2, rtol=1e-4, atol=1e-4)
