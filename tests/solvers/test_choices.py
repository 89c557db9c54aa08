"""What `test_contract.py` asks of all solvers, of choices that its table lacks; and what is the
same question to several methods."""

from __future__ import annotations

import functools

import jax
import numpy as np
import pytest
from cases import maker, rows

import jaxsvm
from jaxsvm import kernels, losses
from jaxsvm.testing import check_solver

KEY, RBF = jax.random.key(5), kernels.rbf(1.0)
N, D, LAM, C = 60, 4, 0.02, 2.0
RNG = np.random.default_rng(3)
X = RNG.normal(size=(N, D))
Y = np.where(X @ [1.0, -0.7, 0.4, 0.0] + 0.5 * RNG.normal(size=N) > 0, 1.0, -1.0)
WEIGHT = RNG.integers(0, 4, N) * 1.0


dataset = maker(X, Y)


wolfe, scs = functools.partial(jaxsvm.wolfe, 0.1), functools.partial(jaxsvm.scs, 0.1, capacity=12)
CHOICES = [
    wolfe(RBF, weights="dual", bundle=4),
    wolfe(RBF, line_search="wolfe", bundle=3, m_L=0.2, m_R=0.2),
    scs(RBF, line_search="wolfe", metric="euclidean", m_L=0.2, m_R=0.2),
    scs(RBF, fresh_sample=True),
    jaxsvm.sbp(0.3, RBF, bias="free", bound_every=7),
    jaxsvm.proximal_newton(0.1, system="gram"),
    jaxsvm.one_vs_rest(jaxsvm.sdca(1.0, RBF), classes=3),
]


@pytest.mark.long
@pytest.mark.parametrize("solver", CHOICES, ids=repr)
def test_choices_keep_the_promises(solver):
    """Runs that go on, files, weights of 0, dtypes."""
    kind = "labels" if solver.targets == "labels" else "classes"
    check_solver(solver, rows("plain", kind).batch(), skip=["vmap", "gradient"])


COPIED = [
    *((jaxsvm.interior_point(C, bias=b, rounds=6), 1, 1e-9) for b in ("none", "feature", "free")),
    *((jaxsvm.augmented_lagrangian(C, bias=b, tol=1e-10), 20, 1e-6) for b in ("none", "feature")),
    *(
        (jaxsvm.dual_descent(C, bias=b, tol=1e-10, rounds=1e5), 20, 1e-5)
        for b in ("none", "feature")
    ),
    *((jaxsvm.newton(LAM, bias=b, tol=1e-18), 20, 1e-8) for b in ("none", "feature", "free")),
    *(
        (make(LAM, planes=30, bias=b), 12, 1e-9)
        for make in (jaxsvm.ocas, jaxsvm.svm_perf)
        for b in ("none", "free")
    ),
]


@pytest.mark.long
@pytest.mark.parametrize(("solver", "steps", "tolerance"), COPIED, ids=repr)
def test_weights_are_copies_and_weight_0_is_absence(solver, steps, tolerance, x64):
    times, absent = WEIGHT.astype(int), WEIGHT == 0
    wild = np.where(absent[:, None], 1e3, X), np.where(absent, -Y, Y), WEIGHT
    copied = np.repeat(X, times, 0), np.repeat(Y, times)
    fit = lambda *of: jaxsvm.fit(solver, dataset(*of), KEY, steps=steps, every=1).model
    weighted = fit(X, Y, WEIGHT)
    for other in (fit(*copied), fit(*wild)):
        np.testing.assert_allclose(weighted.w, other.w, rtol=0, atol=tolerance)
        np.testing.assert_allclose(weighted.b, other.b, rtol=0, atol=tolerance)


@pytest.mark.long(but=2)
@pytest.mark.parametrize("other", ["C", "smaller C", "loss", "rows"])
@pytest.mark.parametrize(
    "make",
    [
        jaxsvm.interior_point,
        jaxsvm.augmented_lagrangian,
        functools.partial(jaxsvm.dual_descent, tol=1e-6),
    ],
)
def test_a_run_goes_on_from_the_state_of_another_problem(make, other):
    """The state says that the old one is solved. The new one is solved then, or the residual says
    that it is not."""
    old, new = (5.0, 1e-2) if other == "smaller C" else (1e-3, 1e-3 if other == "loss" else 10.0)
    loss = losses.squared_hinge if other == "loss" else losses.hinge
    fit = functools.partial(jaxsvm.fit, every=1)
    data, mirrored = dataset(dtype=np.float32), dataset(-X, dtype=np.float32)
    first = fit(make(old), mirrored if other == "rows" else data, KEY, steps=20)
    run = fit(make(new, loss=loss), data, state=first.state, steps=2)
    alone = fit(make(new, loss=loss), data, KEY, steps=2)
    assert alone.converged and run.converged
    atol = 2e-3 * min(1, np.abs(alone.model.w).max())
    np.testing.assert_allclose(run.model.w, alone.model.w, rtol=1e-2, atol=atol)
    if make is not jaxsvm.interior_point and make is not jaxsvm.augmented_lagrangian:
        return
    short = fit(make(10.0, rounds=1), data, state=first.state, steps=1)
    assert not short.converged and float(short.info.residual[-1]) > 1e-3
