"""What solvers refuse: an argument that is none is named, and rows that are none are described."""

from __future__ import annotations

import functools
import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse

import jaxsvm
from jaxsvm import features, implicit, kernels, losses, models, objectives, samplers

KEY, N, D = jax.random.key(0), 40, 3
RNG = np.random.default_rng(1)
X = RNG.normal(size=(N, D)).astype(np.float32)
REAL = (X @ [1.0, -1.0, 0.5] + 0.5 * RNG.normal(size=N)).astype(np.float32)
LABELS, CLASSES = np.where(REAL > 0, 1.0, -1.0), np.digitize(REAL, [-1.0, 1.0])
RBF = kernels.rbf(1.0)
GRAM = np.asarray(RBF(X, X))
LOPSIDED = GRAM + np.triu(GRAM, 1)
FOURIER = features.fourier(KEY, RBF, dim=D, features=8)
NAN, INF = np.nan, np.inf
DATA = {
    "labels": jaxsvm.dataset(X, LABELS),
    "real": jaxsvm.dataset(X, REAL, task="regression"),
    "classes": jaxsvm.dataset(X, CLASSES, task="multiclass"),
}
GIVEN = {"C": 1.0, "lam": 0.1, "eta": 0.1, "nu": 0.3, "margin": 0.1, "kernel": RBF, "budget": 12}
GIVEN |= {"phi": FOURIER, "features": 1, "blocks": 2, "points": 3, "capacity": 12}
ON_A_BUDGET = "random_budget_perceptron fixed_budget_perceptron tighter_perceptron stoptron "
ON_A_BUDGET += "tightest_perceptron forgetron projectron projectron_plus bpas bogd nogd bsca"
DUAL = "interior_point augmented_lagrangian dual_descent block_descent"
EXACT, NU, PLANES = "decomposition smo lasvm", "nu_svc one_class nu_svr", "ocas svm_perf"
PRIMAL = f"newton proximal_newton {PLANES} asset asset_star least_squares wolfe bogd scs cpsp"
ABOVE_0, AT_LEAST_0, SHARE = (0.0, -1.0, NAN, INF), (-1e-3, NAN, INF), (0.0, 1.0, NAN, np.ones(2))
COUNT, JOINT = (0, 2.5, True), losses.crammer_singer
KINKED = (losses.hinge, losses.pinball(0.2), losses.eps_insensitive(0.2), JOINT)
REFUSED = [  # argument, what it must not be, solvers
    ("C", ABOVE_0, f"{EXACT} {DUAL} bpas bsca cocoa nu_svr"),
    ("lam", ABOVE_0, PRIMAL),
    ("eta", ABOVE_0, "projectron projectron_plus bogd fogd nogd"),
    ("eta", (10.0,), "bogd"),  # turns the function round
    ("nu", AT_LEAST_0, "sbp simba"),
    ("nu", (0.0, -0.1, 1.5, NAN), NU),
    ("margin", AT_LEAST_0, "batch_perceptron"),
    ("horizon", (0.0,), "simba"),
    ("tol", (0.0, -1.0), f"{EXACT} interior_point dual_descent newton"),
    ("rounds", COUNT, f"decomposition {DUAL} newton proximal_newton"),
    ("bias", ("fixed", True), f"{EXACT} {DUAL} sbp newton proximal_newton least_squares"),
    ("bias", ("fixed", None), f"{PLANES} asset cpsp cocoa"),
    ("bias", ("feature",), f"{EXACT} sbp asset cpsp"),
    ("bias", ("free",), "augmented_lagrangian dual_descent block_descent proximal_newton cocoa"),
    ("loss", (losses.logistic,), f"{EXACT} {DUAL}"),
    ("loss", KINKED, "newton proximal_newton"),
    ("loss", (JOINT,), f"decomposition {PLANES} cpsp"),
    ("budget", (1, 0, -3, 2.5, True, "12"), ON_A_BUDGET),
    ("kernel", (kernels.precomputed(),), f"{ON_A_BUDGET} scs cpsp"),
    ("kernel", (kernels.linear(),), "bsca"),  # its points cannot be merged
    ("kernel", (3,), "sbp"),
    ("kernel", (lambda x, z: jnp.ones(x.shape[0]),), "decomposition"),
    ("kernel", (lambda x, z: jnp.ones((z.shape[0], x.shape[0])),), "smo"),
    ("start", (jnp.full(N, NAN),), EXACT),
    ("start", (jnp.ones(N - 1),), f"decomposition lasvm {NU}"),
    ("memory", (1e9, -1), "decomposition lasvm"),
    ("working_set", (6, 0), "decomposition"),
    ("stop", ("loss",), "decomposition bsca"),
    ("passes", (0, True, 1.5), "lasvm"),
    ("features", (0, 13, 1.5, True), "nogd"),
    ("bound_every", (-1, True, "often"), "sbp"),
    ("system", ("qr",), "newton proximal_newton"),
    ("l1_ratio", (1.5, -0.1), "proximal_newton"),
    ("classes", (1,), f"least_squares {PLANES}"),
    ("planes", (1,), f"{PLANES} cpsp"),
    ("mix", (0.0, 1.5), "ocas"),
    ("points", (0,), "cpsp"),
    ("blocks", (0,), "cocoa"),
    ("visit", (0,), "cocoa"),
    ("average_from", (-1, 2.5, True), "asset asset_star"),
    ("bundle", (1, 2.0, True), "wolfe"),
    ("weights", ("both",), "wolfe"),
    ("reset", (-0.1,), "wolfe"),
    ("line_search", ("none",), "wolfe scs"),
    ("m_L", (*SHARE, 0.99), "wolfe scs"),  # above m_R
    ("m_R", SHARE, "wolfe scs"),
    ("eta1", SHARE, "scs"),
    ("eta2", (-1.0,), "scs"),
    ("gamma", (1.0,), "scs"),
    ("capacity", (0, 10.0, True, N + 1), "scs"),
    ("growth", COUNT, "scs"),
    ("first", (*COUNT, 13), "scs"),  # above the capacity
    ("metric", ("l2",), "scs"),
]
# what a sentence calls it where it does not name the argument
CALLED = {"loss": "loss|logistic|several classes|score of each class"}


def make(name, **numbers):
    """The solver with the arguments that it must have, and others."""
    needed = inspect.signature(getattr(jaxsvm, name)).parameters.items()
    given = {key: GIVEN[key] for key, p in needed if p.default is p.empty}
    return getattr(jaxsvm, name)(**given | numbers)


def fit(solver, data):
    return lambda: jaxsvm.fit(solver, data, KEY, steps=1)


@pytest.mark.parametrize(
    ("name", "argument", "value"),
    [
        (name, argument, value)
        for argument, values, names in REFUSED
        for name in names.split()
        for value in values
    ],
)
def test_an_argument_that_is_none(name, argument, value):
    words = rf"\b({CALLED.get(argument, argument)})\b"
    with pytest.raises((ValueError, TypeError), match=words):
        fit(make(name, **{argument: value}), DATA["real" if name == "nu_svr" else "labels"])()


ROWS, HALF = DATA["labels"], np.where(LABELS > 0, 1.0, 0.0)
ONE_CLASS = ROWS._replace(y=jnp.ones_like(ROWS.y))
ONE_LEFT = ROWS._replace(weight=jnp.asarray(HALF, jnp.float32))
WIDE = jaxsvm.dataset(np.ones((4, 1001), np.float32), np.array([1, -1, 1, -1]))
WIDER = jaxsvm.dataset(np.zeros((2, 16_385), np.float32), np.ones(2), task="regression")
ONES = lambda x, z: jnp.ones((x.shape[0], z.shape[0]), jnp.float32)
MODEL = jaxsvm.fit(jaxsvm.nu_svc(0.3, RBF), ROWS, KEY).model
LINEAR = models.Linear(jnp.zeros(D), jnp.zeros(()))
VALUES = kernels.precomputed()
precomputed = lambda name, kernel=VALUES: make(name, kernel=kernel)
certificate = lambda model, **options: jaxsvm.certificate(
    model, ROWS, 0.1, losses.squared_hinge, **{"l1_ratio": 1.0} | options
)
SOLUTION = functools.partial(implicit.linear_solution, jnp.zeros(D), 0.0, ROWS, 1.0)
lam_from_nu = functools.partial(objectives.lam_from_nu, 0.1, data=ROWS, kernel=RBF)
CALLS = [  # that are refused by their rows, or are no solvers; what the sentence says
    *(
        (fit(make(name), DATA["classes"]), r"labels -1 and \+1, the data hold 0, 1, 2")
        for name in ("decomposition", "smo")
    ),
    *((fit(make(name), DATA["real"]), "labels") for name in ("wolfe", "scs")),
    *(
        (fit(precomputed(name), jaxsvm.dataset(LOPSIDED, LABELS)), "not symmetric")
        for name in ("decomposition", "smo", "lasvm", "nu_svc", "wolfe", "sbp")
    ),
    (
        fit(precomputed("decomposition", 2.0 * VALUES), jaxsvm.dataset(LOPSIDED, LABELS)),
        "not symmetric",
    ),
    (fit(precomputed("smo", 2.0 * VALUES), jaxsvm.dataset(LOPSIDED, LABELS)), "not symmetric"),
    *(
        (fit(precomputed(name), jaxsvm.dataset(GRAM[:, :30], LABELS)), r"has shape \(40, 40\)")
        for name in ("decomposition", "smo")
    ),
    (
        fit(precomputed("decomposition"), jaxsvm.dataset(scipy.sparse.csr_matrix(GRAM), LABELS)),
        "must be dense, got sparse rows",
    ),
    (lambda: jaxsvm.fit(make("decomposition"), ROWS, KEY, steps=1, tol=0.0), "tol"),
    *(
        (fit(make("interior_point", bias="free"), rows), "all rows have the label 1")
        for rows in (ONE_CLASS, ONE_LEFT)
    ),
    *((fit(make("sbp", bias="free"), rows), "both classes") for rows in (ONE_CLASS, ONE_LEFT)),
    *(
        (fit(make(name), WIDE), "up to 1000 columns, got 1001: take dual_descent")
        for name in ("interior_point", "augmented_lagrangian")
    ),
    *(
        (call, "up to 16384 columns, got 16385: take newton")
        for call in (fit(make("least_squares"), WIDER), lambda: jaxsvm.ridge_path(WIDER))
    ),
    (fit(make("sbp", kernel=lambda x, z: -ONES(x, z)), ROWS), r"k\(x, x\) = -1 for row"),
    (fit(make("sbp", kernel=lambda x, z: 0 * ONES(x, z)), ROWS), "got 0 to 0: scale the rows"),
    (fit(make("sbp", kernel=lambda x, z: x @ z.T - 1), ROWS), r"k\(x, x\) = -"),  # of some rows
    (fit(make("sbp", kernel=kernels.linear()), ROWS._replace(x=0 * ROWS.x)), "got 0 to 0"),
    (fit(make("scs", capacity=int(HALF.sum()) + 1), ONE_LEFT), "rows of positive weight: lower it"),
    (lambda: make("scs", growth=13), "capacity is 12, below the first sample of 13 rows"),
    (lambda: make("scs", capacity=N + 1).init(KEY, ROWS), "but there are 40 rows: lower it"),
    (lambda: jaxsvm.ridge_path(ROWS, lam=[1.0, -1.0]), "lam must hold finite numbers above 0"),
    (lambda: jaxsvm.ridge_path(ROWS, lam=1.0), "lam must be a vector"),
    (lambda: jaxsvm.ridge_path(X), "data must be a Batch"),
    (lambda: jaxsvm.ridge_path(ROWS, bias="some"), "bias"),
    (lambda: jaxsvm.ridge_path(DATA["classes"], classes=2), r"class numbers 0 \.\. 1, got 2"),
    (lambda: jaxsvm.ridge_path(ROWS._replace(weight=0 * ROWS.weight)), "weights of 0 only"),
    (lambda: jaxsvm.nu_certificate(MODEL, ROWS, 0.2, "svc"), "problem"),
    (lambda: jaxsvm.nu_certificate(MODEL, ROWS, 2.0), "nu"),
    (lambda: jaxsvm.nu_certificate(LINEAR, ROWS, 0.2), "Expansion"),
    (lambda: SOLUTION(losses.hinge), "the slope of hinge"),
    (lambda: SOLUTION(losses.squared_hinge, "yes"), "bias"),
    (lambda: certificate(MODEL), "l1_ratio is for linear models"),
    (lambda: certificate(LINEAR, bias="free"), "l1_ratio is for linear models"),
    (lambda: certificate(LINEAR, passes=1), "l1_ratio is for linear models"),
    (lambda: certificate(LINEAR, l1_ratio=2.0), "l1_ratio must be a number from 0 to 1"),
    (lambda: lam_from_nu(p=np.ones(1)), "p has shape .1,., expected one share for each of the 40"),
    (lambda: lam_from_nu(p=np.zeros(N)), "p is 0 for all rows"),
    (lambda: jaxsvm.cocoa(1.0), "blocks"),
    *(
        (lambda factory=factory, options=options: factory(0.1, **options), words)
        for factory in (jaxsvm.ocas, jaxsvm.svm_perf)
        for options, words in (
            ({"loss": losses.crammer_singer}, "belong together"),
            ({"loss": losses.crammer_singer, "classes": 1}, "classes must be"),
            ({"loss": losses.crammer_singer, "classes": 3, "bias": "free"}, "several classes"),
        )
    ),
    *((lambda rows=rows: samplers.acf(rows).rows(N), "batch_size") for rows in (0, 1.5)),
    *(
        (lambda change=change: samplers.acf(change=change).rows(N), "change")
        for change in (-0.1, NAN, jnp.ones(3))
    ),
]


@pytest.mark.parametrize(("call", "words"), CALLS)
def test_calls_that_are_refused(call, words):
    with pytest.raises((ValueError, TypeError), match=words):
        call()
