"""Losses of the user with no more than a method needs, against SciPy and differences."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy.optimize import minimize

import jaxsvm
from jaxsvm import kernels, losses

RNG = np.random.default_rng(1)
X = RNG.normal(size=(60, 3))
TARGET = X @ [1.0, -2.0, 0.5] + 0.3 * RNG.standard_t(2, 60)
KEY, LAM = jax.random.key(0), 0.1
DATA = jaxsvm.dataset(X.astype(np.float32), TARGET, task="regression")


def slope_of(f, y, width):
    return jnp.clip((f - y) / width, -1.0, 1.0)


def value_of(f, y, width):
    r = jnp.abs(f - y)
    return jnp.where(r <= width, r * r / (2 * width), r - width / 2)


@jaxsvm.node
class huber(jaxsvm.Loss):
    width: float = 1.0
    labels = False

    def value(self, f, y):
        return value_of(f, y, self.width)

    def slope(self, f, y):
        return slope_of(f, y, self.width)


@jaxsvm.node
class smooth_huber(huber):
    def curvature(self, f, y):
        return jnp.where(jnp.abs(f - y) <= self.width, 1 / self.width, 0.0)


def objective(w, width=0.5):
    r = np.abs(X @ w - TARGET)
    huber_values = np.where(r <= width, r * r / (2 * width), r - width / 2)
    return LAM / 2 * w @ w + huber_values.mean()


BEST = minimize(objective, np.zeros(3), method="BFGS", options={"gtol": 1e-10}).fun
BY_SLOPE = {
    "ocas": lambda loss: (jaxsvm.ocas(LAM, loss=loss), {"steps": 300, "tol": 1e-5}, 1e-4),
    "pegasos": lambda loss: (jaxsvm.pegasos(LAM, loss=loss), {"steps": 20_000}, 2e-2),
    "svm_perf": lambda loss: (jaxsvm.svm_perf(LAM, loss=loss), {"steps": 300, "tol": 1e-5}, 1e-4),
    "subgradient": lambda loss: (jaxsvm.subgradient(LAM, loss=loss), {"steps": 4_000}, 2e-2),
    "asgd": lambda loss: (jaxsvm.asgd(LAM, loss=loss), {"steps": 20_000}, 2e-2),
    "asset": lambda loss: (jaxsvm.asset(LAM, loss=loss), {"steps": 20_000}, 1e-1),
}


@pytest.mark.long
@pytest.mark.parametrize("method", BY_SLOPE)
def test_methods_that_need_values_and_slopes_reach_the_minimum(method):
    solver, options, excess = BY_SLOPE[method](huber(0.5))
    model = jaxsvm.fit(solver, DATA, KEY, **options).model
    b = float(model.b)
    assert b == 0 or method == "asset"
    value = objective(np.asarray(model.w, np.float64)) if method != "asset" else BEST
    assert BEST * (1 - 1e-5) <= value <= BEST * (1 + excess)
    if method == "asset":  # it has a free bias
        assert float(jaxsvm.risk_on(DATA, huber(0.5))(model)) < 2 * BEST


@pytest.mark.long
def test_methods_that_need_a_curvature():
    for solver in (
        jaxsvm.newton(LAM, loss=smooth_huber(0.5)),
        jaxsvm.linear_svm(1 / (LAM * 60), loss=smooth_huber(0.5), bias="none", tol=1e-7),
    ):
        model = jaxsvm.fit(solver, DATA, KEY).model
        assert objective(np.asarray(model.w, np.float64)) <= BEST * (1 + 1e-6)


def test_the_derivative_in_the_number_of_a_loss(x64):
    data = jaxsvm.dataset(X, TARGET, task="regression")

    def total(width):
        solver = jaxsvm.linear_svm(0.2, loss=smooth_huber(width), bias="none", tol=1e-14)
        return jnp.sum(jaxsvm.fit(solver, data, KEY, steps=1).model.w)

    plain = jax.jit(total)
    difference = (plain(0.5 + 1e-6) - plain(0.5 - 1e-6)) / 2e-6
    assert float(jax.jit(jax.grad(total))(0.5)) == pytest.approx(float(difference), rel=1e-4)


def custom(loss=losses.hinge, **changes):
    """A loss of the package as a user writes it, with functions of another form."""
    names = ("value", "slope", "conjugate", "dual_step", "quadratic", "curvature")
    given = {f"{each}_fn": getattr(loss, each) for each in names}
    given |= {f"{each}_fn": fn for each, fn in changes.items()}
    return losses.custom(**given, labels=loss.labels, multiclass=loss.multiclass)


TWO_ROWS = jaxsvm.dataset([[1.0], [-1.0]], [1, -1])
COLUMN = r"an array of float32 of shape \(3, 1\)"
WRONG_FUNCTIONS = [
    ("slope", lambda f, y: -y[:, None], COLUMN),
    ("slope", lambda f, y: jnp.mean(-y), r"an array of float32 of shape \(\)"),
    ("value", lambda f, y: jnp.mean(y * f), r"an array of float32 of shape \(\)"),
    ("value", lambda f, y: jnp.concatenate([f, y]), r"an array of float32 of shape \(6,\)"),
    ("slope", jax.lax.complex, "an array of complex64"),
    ("slope", lambda f, y: None, "None"),
    ("curvature", lambda f, y: jnp.ones(()), r"an array of float32 of shape \(\)"),
    ("dual_step", lambda coef, f, y, q, C: f[:, None], COLUMN),
]
OPTAX = optax.sgd(0.1)
USERS = [
    lambda loss: jaxsvm.subgradient(0.1, loss=loss),
    lambda loss: jax.eval_shape(jaxsvm.gradient(loss, OPTAX).init, KEY, TWO_ROWS),
    lambda loss: jaxsvm.risk_on(TWO_ROWS, loss),
]
LINE = jaxsvm.models.Linear(jnp.ones(3), jnp.zeros(()))
FAILS, SHAPES = "^value of loss, the function <lambda>, ", r"fails for shapes \(3,\) and \(3,\), "
REFUSED = [
    *(
        (
            lambda use=use, name=name, fn=fn: use(custom(**{name: fn})),
            f"^{name} of loss .*, got {came}",
        )
        for name, fn, came in WRONG_FUNCTIONS
        for use in USERS
    ),
    *(
        (lambda fn=fn: jaxsvm.subgradient(0.1, loss=custom(value=fn)), FAILS + words)
        for fn, words in (
            (lambda f, y: f if f[0] > 0 else y, "asks for the values of its arguments: write it"),
            (lambda f: f, SHAPES + "expected a function .*positional argument"),
            (lambda f, y: "one", "fails for shapes .*not a valid JAX type"),
        )
    ),
    (
        lambda: custom(losses.crammer_singer, slope=lambda f, y: f[:, 0]),
        r"slope of loss .*, got .*\(3,\) for scores of shape \(3, 2\)",
    ),
    (lambda: jaxsvm.sdca(1.0, loss=huber()), "has no dual_step: give it one, or take pegasos"),
    (lambda: jaxsvm.newton(0.1, loss=huber()), "newton needs a loss with a continuous slope"),
    (lambda: jaxsvm.linear_svm(1.0, loss=huber()), "a curvature or a quadratic dual"),
    (lambda: jaxsvm.dual_descent(1.0, loss=huber()), "is not quadratic"),
    (
        lambda: jaxsvm.decomposition(1.0, kernels.linear(), loss=huber(), bias="none"),
        "not quadratic",
    ),
    (lambda: jaxsvm.certificate(LINE, DATA, LAM, huber()), "has no conjugate: give it one, or"),
]


@pytest.mark.filterwarnings("ignore:jax.nn.one_hot")  # class numbers are floats
@pytest.mark.parametrize(("call", "words"), REFUSED)
def test_what_is_missing_or_of_another_form_is_said(call, words):
    with pytest.raises((ValueError, TypeError), match=words):
        call()


@pytest.mark.long
def test_a_loss_of_the_user_is_as_its_own_and_needs_no_dual_functions():
    def refuse(*args):
        raise NotImplementedError

    made = (custom(dual_step=refuse, conjugate=None), losses.hinge)
    runs = [jaxsvm.fit(jaxsvm.subgradient(0.1, loss=loss), TWO_ROWS, KEY) for loss in made]
    assert (runs[0].model.w == runs[1].model.w).all()


@pytest.mark.filterwarnings("ignore:jax.nn.one_hot")
def test_a_loss_of_the_user_for_class_numbers():
    assert callable(jaxsvm.risk_on(TWO_ROWS, custom(losses.crammer_singer)))


@pytest.mark.long
def test_a_loss_of_ones_own_is_a_value_and_a_function():
    assert huber(0.5) == huber(0.5) != huber(0.25) and huber(0.5).width == 0.5
    f, y = jnp.array([0.0, 2.0]), jnp.array([0.25, 0.0])
    np.testing.assert_allclose(huber(0.5)(f, y), value_of(f, y, 0.5))
    slope = jax.grad(lambda f: jnp.sum(huber(0.5)(f, y)))(f)
    np.testing.assert_allclose(slope, slope_of(f, y, 0.5))
