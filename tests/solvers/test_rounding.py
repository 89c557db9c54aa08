"""What float32 cannot hold: runs that rounding has stopped end and say so, and bounds stay
bounds."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn import svm

import jaxsvm
from jaxsvm import kernels, losses
from jaxsvm.estimators import SVC

KEY = jax.random.key(0)

KERNELS = {
    "cubic": (kernels.polynomial(1.0, 1.0, degree=3), lambda x: (x @ x.T + 1) ** 3),
    "square": (kernels.polynomial(0.5, 1.0, degree=2), lambda x: (0.5 * x @ x.T + 1) ** 2),
    "linear": (kernels.linear(), lambda x: x @ x.T),
    "custom": (kernels.custom(lambda x, z: (x @ z.T) ** 2), lambda x: (x @ x.T) ** 2),
    "sum": (
        kernels.rbf(gamma=0.5) + kernels.polynomial(1.0, 0.0, degree=2),
        lambda x: np.exp(-0.5 * ((x[:, None] - x[None]) ** 2).sum(-1)) + (x @ x.T) ** 2,
    ),
}


def rows(offset, n=54):
    rng = np.random.default_rng(1)
    x = rng.normal(size=(n, 3))
    y = np.where(x[:, 0] + 0.5 * rng.normal(size=n) > 0, 1.0, -1.0)
    return (x + offset).astype(np.float32), y


def violation(coef, y, gram, C, bias="free"):
    """LIBSVM's violation in float64; without a bias the largest derivative of the dual."""
    coef, gap = np.asarray(coef, np.float64), y - gram @ np.asarray(coef, np.float64)
    up = gap[np.where(y > 0, coef < C, coef < 0)].max(initial=-np.inf)
    down = gap[np.where(y > 0, coef > 0, coef > -C)].min(initial=np.inf)
    return up - down if bias == "free" else max(up, -down)


RUNS = [
    ("decomposition", "cubic", 3.5e-4, 1e4),
    *(
        pytest.param(*case, marks=pytest.mark.long)
        for case in (
            ("decomposition", "square", 1.0, 1e3),
            ("decomposition", "linear", 1.0, 1e4),
            ("decomposition", "custom", 1.0, 1e3),
            ("decomposition", "sum", 0.1, 1e3),
            ("blocks", "cubic", 3.5e-4, 1e4),
            ("smo", "cubic", 3.5e-4, 1e4),
            ("lasvm", "cubic", 3.5e-4, 1e4),
            ("sdca", "cubic", 3.5e-4, 1e4),
            ("sdca", "square", 1.0, 1e3),
        )
    ),
]


@pytest.mark.long
@pytest.mark.parametrize("name, kernel, C, offset", RUNS)
@pytest.mark.filterwarnings("ignore:rounding to float32")
def test_a_run_claims_no_more_than_its_kernel_values_hold(name, kernel, C, offset):
    x, y = rows(offset)
    block, exact = KERNELS[kernel]
    solver = {
        "decomposition": functools.partial(jaxsvm.decomposition, rounds=20.0),
        "blocks": functools.partial(jaxsvm.decomposition, working_set=16, rounds=20.0),
        "lasvm": functools.partial(jaxsvm.lasvm, passes=3),
    }.get(name) or getattr(jaxsvm, name)
    steps = {"smo": 500, "sdca": 540}.get(name, 5)
    run = jaxsvm.fit(solver(C, block), jaxsvm.dataset(x, y), KEY, steps=steps, tol=1e-3)
    off = violation(
        run.model.coef, y, exact(x.astype(np.float64)), float(np.float32(C)), run.model.bias
    )
    assert off > 1e-2 and not run.converged
    assert run.reason == "steps"
    assert "float32" in run.status or name == "sdca"  # whose steps go on
    # without the offset the same program meets the tolerance
    x, _ = rows(0.0)
    C = 1e-2
    run = jaxsvm.fit(solver(C, block), jaxsvm.dataset(x, y), KEY, steps=6 * steps, tol=1e-3)
    off = violation(
        run.model.coef, y, exact(x.astype(np.float64)), float(np.float32(C)), run.model.bias
    )
    assert run.converged and (off < 2e-3 or name == "lasvm")  # which covers the rows of its set


@pytest.mark.long
def test_the_relative_gap_is_no_smaller_than_its_rounding():
    x, y = rows(1e4)
    data = jaxsvm.dataset(x - x.mean(0) + np.float32(1e3), y)
    solver = jaxsvm.decomposition(
        1.0, kernels.polynomial(1.0, 1.0, degree=2), stop="gap", rounds=5.0
    )
    run = jaxsvm.fit(solver, data, KEY, steps=1, tol=1e-3)
    assert not run.converged and float(run.info.residual[-1]) > 1e-3


def test_a_lower_bound_of_unbalanced_coefficients_is_below_the_optimum():
    """The sum of the coefficients is 0 but for rounding, and the bias is of the size of its
    inverse."""
    lam, off = 1e-3, 8e-7
    data = jaxsvm.dataset(np.array([[1e6 + 1], [1e6 - 1]]), [1, -1])
    for coef in ([0.5, -0.5 * (1 + off)], [0.5, -0.5 * (1 - off)], [0.5 * (1 - off), -0.5]):
        for b in (-1e6, 0.0, 1e6):
            model = jaxsvm.models.Expansion(
                kernels.linear(),
                data.x,
                jnp.array(coef),
                jnp.array(b),
                jnp.arange(2, dtype=jnp.int32),
                "free",
            )
            found = jaxsvm.certificate(model, data, lam)
            # w = 1, b = -1e6
            assert found.dual <= lam / 2 * (1 + 1e-6) <= found.primal * (1 + 1e-6)
            assert found.primal - found.gap == pytest.approx(found.dual)


@pytest.mark.long
@pytest.mark.filterwarnings(
    "ignore:rounding to float32", "ignore::sklearn.exceptions.ConvergenceWarning"
)
def test_bounds_hold_far_from_the_origin():
    """The optimum is that of the centred matrix, which a free bias allows, by LIBSVM in float64."""
    C = 1e-9
    for seed in range(2):
        x = np.random.default_rng(seed).normal(size=(54, 3)).astype(np.float32) + np.float32(1e3)
        y = np.where(np.random.default_rng(seed + 9).random(54) < 0.5, 1.0, -1.0)
        data = jaxsvm.dataset(x, y)
        wide = x.astype(np.longdouble)
        gram = (wide @ wide.T + 1) ** 3
        gram = gram - gram.mean(0) - gram.mean(1)[:, None] + gram.mean()
        run = jaxsvm.fit(
            jaxsvm.decomposition(C, KERNELS["cubic"][0], rounds=5.0), data, KEY, tol=1e-3
        )
        lam = 1 / (C * 54)
        found = jaxsvm.certificate(run.model, data, lam)
        best = svm.SVC(C=C, kernel="precomputed", max_iter=10**5).fit(gram.astype(np.float64), y)
        coef = np.zeros(54, np.longdouble)
        coef[best.support_] = best.dual_coef_[0]
        score = gram @ coef + best.intercept_
        optimum = float(lam / 2 * (coef @ gram @ coef) + np.maximum(0, 1 - y * score).mean())
        assert found.dual <= optimum * (1 + 1e-9)


FAR = (np.random.default_rng(0).normal(size=(60, 3)), np.random.default_rng(1).normal(size=60))


@pytest.mark.long
@pytest.mark.parametrize(
    "name",
    [
        "decomposition",
        *(pytest.param(name, marks=pytest.mark.long) for name in ("nu_svr", "smo", "lasvm")),
    ],
)
def test_targets_far_from_0_are_fitted_as_those_around_it(name):
    """Steps read differences of derivatives, so that a common part of all targets costs no
    digits."""
    x, noise = FAR
    y = (250_000 + 40 * noise).astype(np.float32)  # held to 1/64
    data = jaxsvm.dataset(x, y, task="regression")
    kernel = kernels.rbf(gamma=0.3)
    tube = {"loss": losses.eps_insensitive(0.1)}
    solver, steps = {
        "decomposition": (jaxsvm.decomposition(1.0, kernel, rounds=10.0, **tube), 1),
        "nu_svr": (jaxsvm.nu_svr(0.5, 1.0, kernel, rounds=10.0), 1),
        "smo": (jaxsvm.smo(1.0, kernel, **tube), 2000),
        "lasvm": (jaxsvm.lasvm(1.0, kernel, passes=2, **tube), 5),
    }[name]
    run = jaxsvm.fit(solver, data, KEY, steps=steps, tol=1e-3)
    near = y.astype(np.float64) - 250_000
    theirs = (
        svm.NuSVR(C=1.0, gamma=0.3, tol=1e-6)
        if name == "nu_svr"
        else svm.SVR(C=1.0, gamma=0.3, tol=1e-6)
    )
    want = theirs.fit(x, near).predict(x)
    assert run.converged
    assert np.abs(np.asarray(run.model(data.x), np.float64) - 250_000 - want).max() < 0.05


STOPPED = {
    # two rows 1e-4 apart with other labels: a curvature of 1e-8
    "near pair": (
        jaxsvm.decomposition(1e8, kernels.rbf(gamma=1.0)),
        [[0.0, 0], [1e-4, 0], [3, 1], [2, 2]],
        [1, -1, 1, -1],
    ),
    # no margin, C far above the rounding
    "mixed": (
        jaxsvm.decomposition(1e7, kernels.rbf(gamma=1.0)),
        rows(0.0, 60)[0] / 3,
        np.tile([1.0, -1.0], 30),
    ),
    "tube": (
        jaxsvm.decomposition(1e6, kernels.rbf(gamma=0.1), loss=losses.eps_insensitive(0.1)),
        FAR[0],
        FAR[1],
    ),
}


@pytest.mark.long
@pytest.mark.parametrize(
    "name",
    [
        name if name == "near pair" else pytest.param(name, marks=pytest.mark.long)
        for name in STOPPED
    ],
)
def test_a_run_that_rounding_has_stopped_ends_and_says_so(name):
    solver, x, y = STOPPED[name]
    data = jaxsvm.dataset(
        np.array(x), np.array(y), task="binary" if set(np.unique(y)) == {-1, 1} else "regression"
    )
    steps = count_steps(solver, data)
    assert steps < 2_000_000  # of 2,000 rounds of 100 n
    run = jaxsvm.fit(solver, data, KEY, steps=1, tol=1e-3)
    assert not run.converged and run.finite
    assert "float32" in run.status and "go on" not in run.status


def count_steps(solver, data):
    """The steps on pairs of one update, from the loop that the solver calls."""
    found, inner = [], jaxsvm.engines.whole_matrix.solve_matrix

    def counting(*args, **options):
        state, residual, steps = inner(*args, **options)
        jax.debug.callback(lambda number: found.append(int(number)), steps)
        return state, residual, steps

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jaxsvm.engines.whole_matrix, "solve_matrix", counting)
        jaxsvm.engines.whole_matrix.make_solver.cache_clear()
        state = solver.init(KEY, data)
        jax.block_until_ready(solver.update(state, data))
        jax.effects_barrier()
    jaxsvm.engines.whole_matrix.make_solver.cache_clear()
    return found[-1]


@pytest.mark.long
def test_the_warning_of_a_machine_names_the_precision():
    with pytest.warns(UserWarning, match="float32 leaves about .* lower C"):
        SVC(kernel="linear", C=1e8).fit(
            [[1.0, 2.0], [1.00001, 2.0], [0.0, 1.0], [3.0, 1.0]], [0, 1, 0, 1]
        )
