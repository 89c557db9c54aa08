"""Linear dual ascent in float64 on a problem on which LIBLINEAR stays above the minimum, whatever
max_iter.

The settings are those of scikit-learn issue 22283 (hinge, no intercept, C = 0.1, tol = 1e-12), the
data our own.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import sklearn.svm
from sklearn.exceptions import ConvergenceWarning

import jaxsvm
from jaxsvm import kernels, samplers
from jaxsvm.engines.coordinate_ascent import dual_coef
from jaxsvm.models import expansion

N, D = 200, 50
GOAL = 1e-10
TOL = 1e-12  # of the residual: the gap is a sum over 200 rows of what is left at each
BLOCK = 16
PASS = -(-N // BLOCK)  # steps


def _noisy():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(N, D))
    rng.random(N)  # skipped: the figures below were measured on the draws after it
    return x, np.sign(x @ rng.normal(size=D) + 0.5 * rng.normal(size=N))


X, Y = _noisy()


def objective(w, C):
    return w @ w / 2 + C * np.maximum(1 - Y * (X @ w), 0).sum()


@functools.cache
def ascent(C):
    """The run, its dual coefficients, and the data that it saw; called under x64 only."""
    data, sampler = jaxsvm.dataset(X, Y), samplers.shrinking(BLOCK)
    options = {"steps": 4000 * PASS, "tol": TOL, "sampler": sampler}
    run = jaxsvm.fit(jaxsvm.sdca(C), data, jax.random.key(0), **options)
    return run, dual_coef(run.state.solver), data


@functools.cache
def liblinear(C, tol, max_iter):
    svc = sklearn.svm.LinearSVC(
        C=C, loss="hinge", fit_intercept=False, tol=tol, max_iter=max_iter, random_state=0
    )
    return objective(svc.fit(X, Y).coef_[0], C), svc.n_iter_


@pytest.mark.long
@pytest.mark.parametrize("C", [0.1, 1.0])
def test_the_gap_by_hand_and_the_certificate_are_below_the_goal(x64, C):
    run, coef, data = ascent(C)
    alpha, w, v = np.asarray(coef) * Y, np.asarray(run.model.w), np.asarray(coef) @ X
    assert run.converged and run.model.w.dtype == jnp.float64
    assert alpha.min() >= 0 and alpha.max() <= C
    # sums over rows, nothing of the package
    primal, dual = objective(w, C), alpha.sum() - v @ v / 2
    # a difference of two numbers of size 4 to 8: rounding of sums over 200 rows
    assert -1e-13 * primal <= primal - dual <= GOAL * min(1, primal)
    scale = C * N  # from lam/2 |w|^2 + mean hinge to 1/2 |w|^2 + C sum hinge
    certify = lambda coef: jaxsvm.certificate(
        expansion(kernels.linear(), coef, data), data, jaxsvm.lam_from_C(C, N)
    )
    proof, worse = certify(coef), certify(0.999 * coef)
    assert proof.exact and 0 <= proof.gap <= GOAL * min(1 / scale, proof.primal)
    np.testing.assert_allclose(proof.primal * scale, primal, rtol=GOAL)
    assert worse.gap > 1e3 * GOAL * worse.primal


@pytest.mark.long
@pytest.mark.parametrize(("C", "above"), [(0.1, 5e-4), (1.0, 1e-2)])  # measured: 9.4e-4, 4.6e-2
def test_liblinear_stays_above_with_the_tolerance_of_the_issue(x64, C, above):
    """Its rows at rest come back once the projected gradients of the others span at most tol; it
    leaves out moves for
    those within 1e-12 of 0, so with tol = 1e-12 that may never be.
    """
    least = objective(np.asarray(ascent(C)[0].model.w), C)
    with pytest.warns(ConvergenceWarning):
        values = [liblinear(C, 1e-12, max_iter) for max_iter in (10_000, 50_000)]
    assert [made for _, made in values] == [10_000, 50_000]
    for value, _ in values:
        assert value > (1 + above) * least
    # no nearer for five times the passes
    np.testing.assert_allclose(values[1][0], values[0][0], rtol=1e-9)


@pytest.mark.long(but=1)
@pytest.mark.parametrize("C", [0.1, 1.0])
def test_where_liblinear_arrives_it_is_at_the_same_minimum(x64, C):
    value, made = liblinear(C, 1e-10, 50_000)
    assert made < 50_000
    least = objective(np.asarray(ascent(C)[0].model.w), C)
    assert 0 <= value / least - 1 <= 1e-9  # measured: 5e-12, 4e-11
