"""The table of optima: a line for each solver and problem, and the rows that they see."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import oracles
from cases import SMOOTH, Rows
from oracles import gaussian as gaussian

import jaxsvm
from jaxsvm import Solver, kernels, losses, samplers

# The table of optima: a line for each solver and problem.


class Optimum(NamedTuple):
    """A solver whose optimum another program knows, by `oracles`."""

    solver: Solver
    reference: Callable  # (x, y, solver) -> the function at the optimum
    atol: float  # of values at new rows, in float64
    kinds: str = ""  # what else: sparse, float32, certificate, several, grad, resumed
    targets: str = "labels"  # or "real", "classes"
    options: dict = {}  # of `fit`
    excess: float = 2e-6  # of the objective in float32, relatively


@functools.cache
def wide_rows(targets: str) -> Rows:
    """60 rows of 4 columns and whole weights, with wild rows of weight 0."""
    random = np.random.default_rng(5)
    x = random.normal(size=(60, 4)) * [1.0, 0.5, 2.0, 1.0]
    y = x @ [1.0, -1.0, 0.5, 0.0] + 0.7 * random.normal(size=60) + 0.4
    weight = random.integers(0, 4, 60).astype(float)
    kinds = {"labels": np.sign(y), "real": y, "classes": np.digitize(y, [-0.8, 1.5]) * 1.0}
    y, wild = kinds[targets], weight == 0
    x[wild], y[wild] = 30 * x[wild], y[wild][::-1]
    return Rows(x, y, weight)


LOSSES = {
    "hinge": losses.hinge,
    "squared_hinge": losses.squared_hinge,
    "smooth_hinge": SMOOTH,
    "logistic": losses.logistic,
    "squared": losses.squared,
    "eps_insensitive": losses.eps_insensitive(0.3),
    "squared_eps_insensitive": losses.squared_eps_insensitive(0.3),
    "pinball": losses.pinball(0.3),
}
CURVED = "squared_hinge smooth_hinge logistic squared squared_eps_insensitive"
QUADRATIC = "hinge eps_insensitive pinball squared_hinge smooth_hinge squared"
QUADRATIC += " squared_eps_insensitive"


def linear(make: Callable, names: str, biases: str, *asked: str, **more) -> list:
    """A line for each loss and bias of a linear solver.

    Args:
        asked: kinds of all lines, and of the first.
        more: the other fields.
    """
    lines = []
    for name in names.split():
        for bias in biases.split():
            loss, free = LOSSES[name], bias == "free"
            kinked = name in ("hinge", "eps_insensitive")
            by_liblinear = kinked or (name.startswith("squared_") and not free)
            reference = oracles.liblinear if by_liblinear else oracles.minimum
            reference = oracles.box if name == "pinball" else reference
            kinds = " ".join(asked if not lines else asked[:1])
            targets = "labels" if loss.labels else "real"
            solver = make(loss=loss, bias=bias)
            lines.append(Optimum(solver, reference, kinds=kinds, targets=targets, **more))
    return lines


def classes(inner: Solver, reference: Callable, atol: float, **more) -> list:
    """The classes one by one, and in pairs."""
    wrap = {jaxsvm.one_vs_rest: oracles.one_vs_rest, jaxsvm.one_vs_one: oracles.one_vs_one}
    return [
        Optimum(make(inner, classes=3), of(reference), atol, targets="classes", **more)
        for make, of in wrap.items()
    ]


def on_kernel(make: Callable, asked: str = "", **more) -> list:
    """Hinge and tube with a bias, of which more is asked, and the losses without one."""
    free, none = (functools.partial(make, bias=bias) for bias in ("free", "none"))
    tube, squared = LOSSES["eps_insensitive"], losses.squared_hinge
    return [
        Optimum(free(loss=losses.hinge), oracles.libsvm, 1e-4, asked, **more),
        Optimum(free(loss=tube), oracles.libsvm, 1e-4, asked, "real", **more),
        Optimum(free(loss=losses.pinball(0.3)), oracles.box, 1e-4, "", "real", **more),
        Optimum(free(loss=losses.squared), oracles.in_features, 1e-4, "", "real", **more),
        Optimum(free(loss=squared), oracles.in_features, 1e-4, **more),
        Optimum(none(loss=losses.hinge), oracles.box, 1e-4, **more),
        Optimum(none(loss=squared), oracles.in_features, 1e-4, **more),
    ]


bind = functools.partial
COST, LAMBDA = 2.0, 0.02
CLASSES_OF_3 = {"loss": losses.crammer_singer, "classes": 3}
ALL, TWO = "none feature free", "none feature"
TOGETHER = {"sampler": samplers.epochs(16), "steps": 20_000, "tol": 1e-10}
LONG = {"steps": 40_000, "every": 500, "tol": 1e-10}
CUTS = {"steps": 600, "every": 25, "tol": 1e-10}
NEWTON = bind(jaxsvm.newton, LAMBDA, tol=1e-20)
INTERIOR = bind(jaxsvm.interior_point, COST, tol=1e-12)
LAGRANGE = bind(jaxsvm.augmented_lagrangian, COST, tol=1e-12)
DESCENT = bind(jaxsvm.dual_descent, COST, tol=1e-12, rounds=1e5)
BLOCKWISE = bind(jaxsvm.block_descent, COST, rounds=20)
OCAS, PERF = (bind(make, LAMBDA, planes=30) for make in (jaxsvm.ocas, jaxsvm.svm_perf))
ELASTIC = bind(jaxsvm.proximal_newton, 0.1, loss=losses.squared, tol=1e-14)
ON_RBF = kernels.rbf(1.2)
DECOMPOSED = bind(jaxsvm.decomposition, COST, ON_RBF, tol=1e-11)
NU = "sparse several grad resumed"
CERTIFIED = "float32 certificate"
OPTIMA = [
    *linear(NEWTON, CURVED, ALL, CERTIFIED, "sparse", atol=1e-6, excess=1e-6),
    *linear(
        bind(NEWTON, system="cg"), "squared_hinge", ALL, CERTIFIED, "sparse", atol=1e-6, excess=1e-6
    ),
    *linear(bind(NEWTON, system="eigen"), "squared_hinge", ALL, CERTIFIED, atol=1e-6, excess=1e-6),
    *linear(bind(NEWTON, system="cholesky"), "squared_hinge", "feature", "sparse", atol=1e-6),
    *(
        Optimum(NEWTON(loss=losses.logistic, bias=bias), oracles.logistic, 1e-6)
        for bias in ("none", "free")
    ),
    *linear(INTERIOR, QUADRATIC, ALL, "float32", "several", atol=1e-4),
    *linear(LAGRANGE, QUADRATIC, TWO, "float32", "several grad", atol=1e-4),
    *linear(DESCENT, QUADRATIC, TWO, "sparse", atol=1e-4),
    *linear(BLOCKWISE, QUADRATIC, TWO, "sparse", atol=2e-5, options=TOGETHER),
    *linear(
        bind(jaxsvm.cocoa, 0.5, blocks=4), "hinge eps_insensitive", TWO, atol=1e-4, options=LONG
    ),
    *linear(bind(jaxsvm.sdca, 0.05), " ".join(LOSSES), TWO, atol=1e-6, options=LONG),
    *linear(OCAS, "hinge logistic eps_insensitive", ALL, "", "sparse", atol=1e-4, options=CUTS),
    *linear(PERF, "hinge", ALL, "", "sparse", atol=1e-4, options=CUTS),
    *(
        Optimum(jaxsvm.least_squares(LAMBDA, bias=bias), oracles.minimum, 1e-6, "grad", "real")
        for bias in ALL.split()
    ),
    *(
        Optimum(ELASTIC(l1_ratio=ratio, system=system), oracles.elastic_net, 1e-7, "sparse", "real")
        for ratio in (1.0, 0.3)
        for system in ("gram", "columns")
    ),
    *classes(NEWTON(bias="feature"), oracles.liblinear, 1e-6),
    *classes(INTERIOR(bias="free"), oracles.liblinear, 1e-4),
    *classes(DESCENT(), oracles.liblinear, 1e-4, kinds="sparse"),
    *classes(BLOCKWISE(), oracles.liblinear, 1e-4, options=TOGETHER),
    *classes(DECOMPOSED(), oracles.libsvm, 1e-4),
    *(
        Optimum(make(bias=bias, **CLASSES_OF_3), oracles.crammer_singer, 1e-3, "", "classes", CUTS)
        for make in (OCAS, PERF)
        for bias in ("none", "feature")
    ),
    *on_kernel(DECOMPOSED, "sparse certificate several grad"),
    *on_kernel(bind(jaxsvm.smo, COST, ON_RBF), "certificate", options=LONG),
    *on_kernel(bind(jaxsvm.lasvm, COST, ON_RBF, passes=10), "certificate", options=LONG),
    Optimum(jaxsvm.nu_svc(0.3, ON_RBF, tol=1e-10), oracles.libsvm, 1e-6, NU),
    Optimum(jaxsvm.one_class(0.3, ON_RBF, tol=1e-10), oracles.libsvm, 1e-6, NU, "real"),
    Optimum(jaxsvm.nu_svr(0.3, COST, ON_RBF, tol=1e-10), oracles.libsvm, 1e-6, NU, "real"),
]
