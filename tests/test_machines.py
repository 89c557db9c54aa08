"""`linear_svm` and `kernel_svm` against the methods that they choose, and against peers."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse
from sklearn.svm import SVC, LinearSVC

import jaxsvm
from jaxsvm import kernels, losses
from jaxsvm.machines import MANY, MOST_COLUMNS, fastest_linear

KEY = jax.random.key(0)
RNG = np.random.default_rng(2)
X = RNG.normal(size=(120, 5)).astype(np.float32)
TARGET = X @ [1.0, -1.0, 0.5, 0.0, 0.0] + 0.5 * RNG.normal(size=120) + 0.2
Y = np.where(TARGET > 0, 1, -1)
WIDE = np.hstack([X, 0.1 * RNG.normal(size=(120, MOST_COLUMNS))]).astype(np.float32)
TIMES = -(-MANY // len(X))
ROWS = {
    "few": lambda: jaxsvm.dataset(X, Y),
    "sparse": lambda: jaxsvm.dataset(scipy.sparse.csr_matrix(X), Y),
    "wide": lambda: jaxsvm.dataset(WIDE, Y),
    "sparse, wide": lambda: jaxsvm.dataset(scipy.sparse.csr_matrix(WIDE), Y),
    "many": lambda: jaxsvm.dataset(np.tile(X, (TIMES, 1)), np.tile(Y, TIMES)),
}
CHOICES = [
    ("few", losses.hinge, "feature", "interior_point"),
    ("few", losses.hinge, "free", "interior_point"),
    ("few", losses.squared_hinge, "none", "newton"),
    ("few", losses.logistic, "free", "newton"),
    ("sparse", losses.hinge, "feature", "interior_point"),
    ("sparse, wide", losses.hinge, "feature", "dual_descent"),
    ("sparse", losses.hinge, "free", "interior_point"),
    ("sparse", losses.squared_hinge, "feature", "newton"),
    ("wide", losses.hinge, "none", "dual_descent"),
    ("many", losses.hinge, "feature", "augmented_lagrangian"),
    ("many", losses.hinge, "free", "interior_point"),
]


def fit(solver, data, **options):
    return jaxsvm.fit(solver, data, KEY, **options)


def test_the_loss_the_shape_and_the_bias_decide():
    """Each line of the table in the docstring, and the rows at its limits."""
    hinge, smooth = losses.hinge, losses.logistic
    at = MOST_COLUMNS
    for *case, method in [
        (smooth, 10**6, 10**5, True, "feature", "newton"),
        (hinge, MANY, at, False, "feature", "augmented_lagrangian"),
        (hinge, MANY - 1, at, False, "none", "interior_point"),
        (hinge, MANY, at + 1, False, "feature", "dual_descent"),
        (hinge, 2**20, 65, True, "feature", "dual_descent"),
        (hinge, 2**20, 65, True, "free", "interior_point"),
        (hinge, MANY, at + 1, False, "free", "interior_point"),
        (losses.crammer_singer, 10, 3, False, "feature", "sdca"),
        (losses.logistic, 10, 10, False, "feature", 0.0, "newton"),
        (losses.squared_hinge, 299, 100, False, "feature", 0.0, "dual_descent"),
        (losses.squared_hinge, 300, 100, False, "feature", 0.0, "newton"),
        (hinge, 299, 100, False, "feature", 99.0, "dual_descent"),
        (hinge, 300, 100, False, "feature", 0.8, "dual_descent"),
        (hinge, 300, 100, False, "feature", 1.0, "interior_point"),
        (hinge, MANY, 100, False, "feature", 500.0, "augmented_lagrangian"),
        (hinge, MANY, 100, False, "feature", 1100.0, "interior_point"),
        (hinge, 10_000, 1000, False, "feature", 0.9, "augmented_lagrangian"),
        (hinge, 10_000, 1001, False, "feature", 0.9, "dual_descent"),
        (hinge, 2**20, 65, True, "feature", 500.0, "dual_descent"),
    ]:
        assert fastest_linear(*case) == method, case


def test_an_accelerator_takes_whole_matrix_products(monkeypatch):
    """Up to the columns of a factorisation; the machine is that of the method of a CPU."""
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    for *case, method in [
        (losses.logistic, 10**6, 10**5, True, "feature", "newton"),
        (losses.hinge, MANY, 54, False, "feature", "interior_point"),
        (losses.hinge, MANY, 1000, False, "none", "interior_point"),
        (losses.hinge, MANY, 1001, False, "feature", "dual_descent"),
        (losses.hinge, 2**20, 65, True, "feature", "dual_descent"),
        (losses.hinge, 299, 100, False, "feature", 0.0, "interior_point"),
        (losses.crammer_singer, 10, 3, False, "feature", "sdca"),
    ]:
        assert fastest_linear(*case) == method, case
    # of a shape that no other test has compiled for a CPU
    data = jaxsvm.dataset(WIDE[:100], Y[:100])
    result = fit(jaxsvm.linear_svm(0.5, bias="none", tol=1e-5), data)
    assert result.status.startswith("interior_point converged")
    alone = fit(jaxsvm.dual_descent(0.5, bias="none", tol=1e-5), data)
    np.testing.assert_allclose(result.model.w, alone.model.w, atol=2e-3)


@pytest.mark.long(but=1)
@pytest.mark.parametrize(("rows", "loss", "bias", "method"), CHOICES)
def test_a_linear_machine_is_that_of_the_method_that_its_status_names(rows, loss, bias, method):
    data = ROWS[rows]()
    result = fit(jaxsvm.linear_svm(0.5, loss=loss, bias=bias, tol=1e-5), data)
    assert result.status.startswith(f"{method} converged after 1 step: tolerance 1.0e-05 met")
    n = len(data.y)
    factory, C = getattr(jaxsvm, method), 1 / (0.5 * n) if method == "newton" else 0.5
    alone = fit(factory(C, loss=loss, bias=bias, tol=1e-5), data)
    assert type(result.state.solver) is type(alone.state.solver)
    np.testing.assert_allclose(result.model.w, alone.model.w, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(result.model.b, alone.model.b, rtol=1e-5, atol=1e-5)


@pytest.mark.long(but=1)
@pytest.mark.parametrize("rows", ROWS)
def test_a_linear_machine_is_that_of_liblinear(rows):
    data = ROWS[rows]()
    result = fit(jaxsvm.linear_svm(0.1), data)
    dense = {"sparse": "few", "sparse, wide": "wide"}.get(rows, rows)
    x = np.asarray(ROWS[dense]().x, np.float64)
    y = np.asarray(data.y, np.float64)
    peer = LinearSVC(C=0.1, loss="hinge", tol=1e-8, max_iter=10**6, random_state=0, dual=True)
    peer.fit(x, y)

    def value(w, b):
        return (w @ w + b * b) / 2 + 0.1 * np.maximum(1 - y * (x @ w + b), 0).sum()

    ours = value(np.asarray(result.model.w, np.float64), float(result.model.b))
    assert ours <= value(peer.coef_[0], peer.intercept_[0]) * (1 + 1.1e-4)


@pytest.mark.parametrize(
    ("rows", "loss"),
    [("few", losses.squared_hinge), ("few", losses.logistic), ("many", losses.hinge)],
    ids=repr,
)
def test_a_tiny_C_tells_rows_apart(rows, loss):
    """The weights are C sum_i y_i x_i up to the slope at 0, although 0 is within the tolerance."""
    data, C = ROWS[rows](), 1e-9
    result = fit(jaxsvm.linear_svm(C, loss=loss), data)
    assert result.converged
    mean = np.asarray(data.y, np.float64) @ np.asarray(data.x, np.float64)
    w = np.asarray(result.model.w, np.float64)
    assert w @ mean > 0.999 * np.linalg.norm(w) * np.linalg.norm(mean) > 0
    assert np.mean(result.predict(data.x) == np.asarray(data.y)) > 0.75


def test_tolerances_of_the_factory_and_of_fit():
    data = ROWS["few"]()
    assert fit(jaxsvm.linear_svm(1.0), data).tol == pytest.approx(1e-4)
    assert fit(jaxsvm.linear_svm(1.0, tol=1e-6), data).tol == pytest.approx(1e-6)
    fine = fit(jaxsvm.linear_svm(1.0), data, tol=1e-7)
    assert fine.converged and fine.info.residual[-1] <= 1e-7


def test_a_linear_machine_inside_of_everything():
    """Several classes, several C, derivatives."""
    data = ROWS["few"]()
    many = jaxsvm.dataset(X, np.arange(120) % 3, task="multiclass")
    result = fit(jaxsvm.one_vs_rest(jaxsvm.linear_svm(1.0), classes=3), many)
    assert result.status.startswith("interior_point converged") and result.model(X).shape == (
        120,
        3,
    )
    several = jnp.array([0.1, 1.0])
    at = jax.jit(jax.vmap(lambda C: fit(jaxsvm.linear_svm(C, tol=1e-6), data).model.w))
    alone = [fit(jaxsvm.linear_svm(float(C), tol=1e-6), data).model.w for C in several]
    np.testing.assert_allclose(at(several), alone, rtol=1e-3, atol=1e-3)
    squared = lambda C, **tol: jaxsvm.linear_svm(C, loss=losses.squared_hinge, **tol)
    slope = jax.jit(jax.grad(lambda C: fit(squared(C), data).model.b))(0.5)
    high, low = (float(fit(squared(C, tol=1e-10), data).model.b) for C in (0.55, 0.45))
    assert slope == pytest.approx((high - low) / 0.1, rel=2e-2)


def test_what_a_linear_machine_refuses():
    with pytest.raises(ValueError, match="bias must be one of"):
        jaxsvm.linear_svm(1.0, bias="no")
    with pytest.raises(ValueError, match="C must be a finite number above 0"):
        jaxsvm.linear_svm(-1.0)
    own = losses.custom(losses.hinge.value, losses.hinge.slope)
    with pytest.raises(ValueError, match="takes losses with a curvature or a quadratic dual"):
        jaxsvm.linear_svm(1.0, loss=own)
    x = RNG.normal(size=(20, 1001))
    with pytest.raises(ValueError, match=r"interior_point takes rows of up to 1000 columns"):
        fit(jaxsvm.linear_svm(1.0, bias="free"), jaxsvm.dataset(x, np.sign(x[:, 0])))


def test_a_kernel_machine_is_that_of_libsvm():
    result = fit(jaxsvm.kernel_svm(2.0, kernels.rbf(gamma=0.3), tol=1e-5), ROWS["few"]())
    assert result.status.startswith("decomposition converged")
    peer = SVC(C=2.0, gamma=0.3, tol=1e-6).fit(X, Y)
    np.testing.assert_allclose(result.model(X), peer.decision_function(X), atol=1e-3)
    assert (result.predict(X) == peer.predict(X)).all()


def test_a_kernel_machine_for_each_loss():
    """The solver that is returned is the method's own, and a loss without quadratic dual needs
    steps."""
    rbf = kernels.rbf(1.0)
    assert repr(jaxsvm.kernel_svm(2.0, rbf)) == repr(jaxsvm.decomposition(2.0, rbf))
    logistic = jaxsvm.kernel_svm(2.0, rbf, loss=losses.logistic, bias="none")
    assert repr(logistic) == repr(jaxsvm.sdca(2.0, rbf, loss=losses.logistic, bias="none"))
    result = fit(logistic, ROWS["few"](), passes=200, tol=1e-3)
    assert result.converged
    for wrong in ({}, {"bias": "none", "tol": 1e-3}):
        with pytest.raises(ValueError, match="not quadratic: take bias='feature' or 'none'"):
            jaxsvm.kernel_svm(2.0, rbf, loss=losses.logistic, **wrong)
