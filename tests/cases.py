"""The solvers that the contract is tested on, one line each, the small data sets they see, and
independent optima."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
import oracles
import scipy.sparse
from oracles import formula
from oracles import gaussian as gaussian
from sklearn.svm import LinearSVC

import jaxsvm
from jaxsvm import Loss, Sampler, Solver, budget, features, kernels, losses, samplers
from jaxsvm.risks import couples_rows
from jaxsvm.types import JointLoss

LAM = 0.1  # below R^2 = 1: some margins are met at the optimum
RBF = kernels.rbf(1.0)
SMOOTH, TUBE = losses.smooth_hinge(0.5), losses.eps_insensitive(0.1)
# a map that leaves rows as they are
SAME = features.nystrom(None, kernels.linear(), landmarks=np.eye(3, dtype="f"))


# what the calls below are evaluated with; losses without parameters print as calls
INSTANCES = ("squared_hinge", "logistic", "squared")
NAMES = {**vars(losses), **vars(kernels), **vars(budget), **vars(jaxsvm), "SAME": SAME} | {
    name: functools.partial(getattr, losses, name) for name in INSTANCES
}


class Case(NamedTuple):
    """A solver under the contract. A new one joins by one line in `CASES`."""

    text: str  # the call that makes it, which it prints, and the name of its tests
    objective: str | None = (
        "lam"  # what the number is: "lam", "C", "radius" of a ball; None: there is no objective
    )
    loss: Loss | JointLoss = losses.hinge
    bias: str = "none"
    # after 6,000 steps the objective is at most so far above its minimum, relatively; see CASES
    excess: float = 2e-3
    # under uniform() weight k makes the same run as k copies; False: a dual box for each row
    copies: bool = True
    # chooses its own rows, whatever the sampler draws; derivatives are those of the optimum
    exact: bool = False
    sums: bool = False  # its constants are sums over the data
    tol: float = 1e-12  # of an exact one, the residual at which its derivatives are looked at
    spread: float = 5e-5  # between runs whose sums are rounded in another way
    derivatives: bool = True  # False: they are refused with a sentence
    own: bool = False  # chooses its own rows, of the sampler's only how many they are counts

    @property
    def targets(self) -> str:
        """The kind of targets: "labels", "classes", "real", or "grades" with queries."""
        if couples_rows(self.loss):
            return "grades"
        if self.loss.multiclass:
            return "classes"
        return "labels" if self.loss.labels else "real"

    @property
    def number(self) -> float | None:
        """The first number of the call with a point; None: there is none."""
        found = re.search(r"\d+\.\d+", self.text)
        return found and float(found[0])

    @property
    def kernel(self) -> bool:
        """Whether the model is an expansion; one with an objective is in rbf(1.0)."""
        return "rbf(" in self.text

    def at(self, number: float | None = None) -> Solver:
        """The solver at a number, its own by default."""
        call = self.text.replace(repr(SAME), "SAME").replace(str(self.number), "number", 1)
        return eval(call, NAMES | {"number": self.number if number is None else number})  # noqa: S307

    def feed(self) -> Sampler:
        """Single rows drawn by weight, but all rows for the solvers made for all rows: the feeds
        that compile fastest."""
        own = self.at().sampler
        return own if own is not None and own.full_batch else samplers.uniform(1)


# fields that many of them share
ASCENT = {"objective": "C", "excess": 1e-7, "copies": False}
EXACT = {"excess": 1e-6, "copies": False, "exact": True}
EXACT_C = EXACT | {"objective": "C"}
EXACT_NONE = {"objective": None, "copies": False, "exact": True}
BLOCKS = EXACT_C | {"excess": 2e-5}  # that need several blocks, one an update
PLANES = EXACT | {"excess": 1e-5, "derivatives": False}  # as few planes as the columns need
OWN = {"objective": None, "copies": False, "own": True}

# `excess` by method, T = 6,000 steps, R = 1, lam = 0.1 and minima near 0.8:
# - steps 1/(lam t): (1 + ln T) (sqrt(lam) + R)^2 / (2 lam T) = 1.4e-2 bounds the mean on any data.
# The noise of the last
#   iterate is less, lam/2 |w - w*|^2 with |w - w*|^2 about 1 / (lam^2 T): 8e-4, or 1e-3 of the
# minimum.
# - a free bias ends on steps of 1/sqrt(T) = 1.3e-2, to first order at a kink: 1e-2.
# - the mean over a ball is within 3 r R / sqrt(T) = 4e-2 r on any data, r = 1.3 to 1.9 here.
# - robust steps (asset): D_X D_G / sqrt(T) = 9e-2 with the free bias, 6e-2 without, on any data.
# - coordinate ascent converges linearly: what is left is the rounding of float32.
# - subgradients of all rows have no noise: the mean is off by 1/T^2 and roundings where no row
# changes sides any more.
# - cutting planes end at a gap of the rounding of float32.
# - a violation of tol leaves a gap of C n tol at most, which is tol in units of the objective; SMO
# goes on to the rounding.
CASES = [
    Case("pegasos(0.1)"),
    Case("pegasos(0.1, project=False)"),
    Case("pegasos(0.1, bias='feature')", bias="feature"),
    Case("pegasos(0.1, bias='free')", bias="free", excess=0.01),
    Case("pegasos(0.1, advance_on_violation=True)"),
    Case("pegasos(0.1, loss=smooth_hinge(0.5))", loss=SMOOTH),
    Case("averaged(pegasos(0.1))"),
    Case("bottou_sgd(0.1)"),
    Case("asgd(0.1, average_from=10)"),
    Case("constrained_sgd(1.0)", objective="radius", excess=0.01),
    Case("constrained_sgd(1.0, rbf(1.0))", objective="radius", excess=0.02),
    Case("perceptron()", objective=None),
    Case("perceptron(rbf(0.5))", objective=None),
    Case("perceptron(average=True)", objective=None),
    Case("sdca(1.0)", **ASCENT),
    Case("sdca(1.0, bias='feature')", bias="feature", **ASCENT),
    Case("sdca(1.0, loss=squared_hinge())", loss=losses.squared_hinge, **ASCENT),
    Case("sdca(1.0, loss=logistic())", loss=losses.logistic, **ASCENT),
    Case("sdca(1.0, loss=squared())", loss=losses.squared, **ASCENT),
    Case("sdca(1.0, rbf(1.0))", **ASCENT),
    Case("cocoa(1.0, blocks=3)", objective="C", excess=1e-6, copies=False, own=True),
    Case(
        "cocoa(1.0, blocks=5, bias='feature', visit=2)",
        objective="C",
        bias="feature",
        excess=1e-6,
        copies=False,
        own=True,
    ),
    Case("augmented_lagrangian(1.0, rounds=1.0)", bias="feature", **EXACT_C),
    Case(
        "augmented_lagrangian(1.0, loss=squared_hinge(), bias='none', rounds=1.0)",
        loss=losses.squared_hinge,
        **EXACT_C,
    ),
    Case(
        "proximal_newton(0.02, l1_ratio=0.5, bias='feature', rounds=1.0)",
        loss=losses.squared_hinge,
        **EXACT_NONE,
    ),
    Case(
        "proximal_newton(0.1, l1_ratio=0.0, system='columns', tol=1e-06, rounds=1.0)",
        loss=losses.squared_hinge,
        **EXACT,
    ),
    Case("dual_descent(1.0, tol=1e-06, rounds=20.0)", bias="feature", **EXACT_C),
    Case(
        "dual_descent(1.0, loss=squared_hinge(), bias='none', tol=1e-06, rounds=20.0)",
        loss=losses.squared_hinge,
        tol=1e-20,
        **EXACT_C,
    ),
    Case(
        "block_descent(1.0, rounds=2.0)",
        objective="C",
        bias="feature",
        excess=1e-6,
        copies=False,
        derivatives=False,
    ),
    Case(
        "crammer_singer(1.0, classes=3, rounds=20.0)",
        loss=losses.crammer_singer,
        bias="feature",
        **EXACT_NONE,
    ),
    Case("linear_svm(1.0)", objective="C", bias="feature", excess=0.0001, copies=False, exact=True),
    Case("interior_point(1.0, rounds=1.0)", bias="feature", **EXACT_C),
    Case("interior_point(1.0, bias='none', rounds=1.0)", **EXACT_C),
    Case("interior_point(1.0, bias='free', rounds=1.0)", bias="free", **EXACT_C),
    Case(
        "interior_point(1.0, loss=squared_hinge(), bias='none', rounds=1.0)",
        loss=losses.squared_hinge,
        **EXACT_C,
    ),
    Case(
        "interior_point(1.0, loss=eps_insensitive(), bias='free', rounds=1.0)",
        loss=TUBE,
        bias="free",
        tol=1e-14,
        **EXACT_C,
    ),
    Case("kernel_pegasos(0.1, rbf(1.0))"),
    Case("asset(0.1, average_from=50)", bias="free", excess=0.04, sums=True),
    Case("asset(0.1, average_from=50, bias='none')", excess=0.01, sums=True),
    Case(
        "asset(0.1, loss=logistic(), average_from=50, bias='none')",
        loss=losses.logistic,
        excess=0.01,
        sums=True,
    ),
    Case("asset_star(0.1)"),
    Case("asset_star(0.1, average_from=50)"),
    Case(f"on_features({SAME!r}, pegasos(0.1))"),
    Case(f"on_features({SAME!r}, sdca(1.0))", objective="C", excess=1e-6, copies=False),
    Case(f"fogd(0.1, {SAME!r})", objective=None),
    Case("subgradient(0.1)", excess=1e-5),
    Case("newton(0.1)", loss=losses.squared_hinge, **EXACT),
    Case(
        "newton(0.1, loss=logistic())", loss=losses.logistic, tol=1e-24, **EXACT
    ),  # a gap, which is the square of a distance
    Case("newton(0.1, loss=smooth_hinge(0.5), rounds=1.0)", loss=SMOOTH, **EXACT),
    Case("newton(0.1, loss=squared(), system='cg', tol=1e-08)", loss=losses.squared, **EXACT),
    Case(f"on_features({SAME!r}, newton(0.1))", loss=losses.squared_hinge, **EXACT),
    Case(
        "newton(0.1, loss=pairwise(squared=True), rounds=1.0)",
        loss=losses.rank_squared_hinge,
        tol=1e-24,
        **EXACT,
    ),
    Case("least_squares(0.1)", loss=losses.squared, bias="free", copies=False),
    Case("least_squares(0.1, bias='none')", loss=losses.squared, copies=False),
    Case(
        "decomposition(1.0, rbf(1.0), tol=1e-05, working_set=8, rounds=1.0)", bias="free", **BLOCKS
    ),
    Case(
        "decomposition(1.0, rbf(1.0), loss=eps_insensitive(), "
        "tol=1e-05, working_set=8, rounds=1.0)",
        loss=TUBE,
        bias="free",
        **BLOCKS,
    ),
    Case(
        "decomposition(1.0, rbf(1.0), loss=squared_hinge(), bias='none', "
        "tol=1e-05, working_set=8, rounds=1.0)",
        loss=losses.squared_hinge,
        **BLOCKS,
    ),
    Case("nu_svc(0.4, rbf(1.0), tol=1e-05, working_set=8, rounds=1.0)", bias="free", **EXACT_NONE),
    Case(
        "one_class(0.3, rbf(1.0), tol=1e-05, working_set=8, rounds=1.0)", bias="free", **EXACT_NONE
    ),
    Case(
        "nu_svr(0.3, 1.0, rbf(1.0), tol=1e-05, working_set=8, rounds=1.0)",
        loss=TUBE,
        bias="free",
        **EXACT_NONE,
    ),
    Case("smo(1.0, rbf(1.0))", bias="free", **EXACT_C),
    Case("smo(1.0, rbf(1.0), bias='none')", **EXACT_C),
    Case("bsgd(0.1, rbf(1.0), budget=24)"),
    Case("bsca(1.0, rbf(1.0), budget=24)", objective="C", excess=1e-6, copies=False),
    # with fewer points than corrections, so that all of their steps are taken: nothing is known of
    # their optima
    Case(
        "bsgd(0.1, rbf(1.0), budget=5, maintain=merge(partners=2, search='golden'))", objective=None
    ),
    Case("bsca(0.1, rbf(1.0), budget=5)", objective=None, copies=False),
    Case("stoptron(rbf(0.1), budget=5)", objective=None),
    Case("random_budget_perceptron(rbf(0.1), budget=5)", objective=None),
    Case("fixed_budget_perceptron(rbf(0.1), budget=5)", objective=None),
    Case("tighter_perceptron(rbf(0.1), budget=5)", objective=None),
    Case("tightest_perceptron(rbf(0.1), budget=5)", objective=None),
    Case("forgetron(rbf(0.1), budget=5)", objective=None),
    Case("projectron(rbf(0.1), budget=5)", objective=None),
    Case("projectron_plus(rbf(0.1), budget=5)", objective=None),
    Case("bpas(0.1, rbf(1.0), budget=5)", objective=None),
    Case("bogd(0.1, rbf(1.0), budget=5)", objective=None),
    Case("nogd(0.1, rbf(1.0), budget=5, features=3)", objective=None),
    Case("sbp(0.3, rbf(1.0))", objective=None, own=True),
    Case("sbp(0.3, rbf(1.0), bias='free')", objective=None, bias="free", own=True),
    Case("batch_perceptron(0.1, rbf(1.0))", **OWN),
    Case("simba(0.3, horizon=200.0)", **OWN),
    # ends at a vertex
    Case("wolfe(0.01)", excess=1e-5, copies=False, own=True),
    Case("wolfe(0.05, rbf(1.0))", excess=1e-5, own=True),
    Case("ocas(0.1, planes=6)", **PLANES),
    Case("ocas(0.1, planes=6, bias='free')", bias="free", **PLANES),
    Case("ocas(0.1, loss=logistic(), planes=6)", loss=losses.logistic, **PLANES),
    # gaps are squares of distances
    Case("ocas(0.1, loss=pairwise(), planes=6)", loss=losses.rank_hinge, spread=0.001, **PLANES),
    Case("svm_perf(0.1, planes=6)", **PLANES),
    Case("svm_perf(0.1, planes=6, bias='feature')", bias="feature", **PLANES),
    # flat maxima: a point is known to sqrt(eps)
    Case("cpsp(0.1, rbf(1.0), points=4, planes=6)", spread=0.01, derivatives=False, **EXACT_NONE),
    Case("scs(0.1, capacity=12)", **OWN),
    Case("scs(0.1, rbf(1.0), capacity=12)", **OWN),
    Case("lasvm(1.0, rbf(1.0))", **EXACT_NONE),
]


class Rows(NamedTuple):
    """A data set on the host, in float64."""

    x: np.ndarray  # (n, d)
    y: np.ndarray  # (n,)
    weight: np.ndarray  # (n,)
    query: np.ndarray | None = None  # (n,)

    def copied(self) -> Rows:
        """Row i standing weight_i times in a row, with weight 1."""
        times = self.weight.astype(int)
        query = None if self.query is None else np.repeat(self.query, times)
        return Rows(
            np.repeat(self.x, times, 0), np.repeat(self.y, times), np.ones(times.sum()), query
        )

    def batch(self, dtype: str = "float32") -> jaxsvm.Batch:
        """As a data set of jaxsvm."""
        kinds = {(-1, 1): "binary", (0, 1, 2): "multiclass"}
        task = kinds.get(tuple(np.unique(self.y[self.weight > 0])), "regression")
        task = "ranking" if self.query is not None else task
        return jaxsvm.dataset(
            self.x.astype(dtype), self.y, self.weight, query=self.query, task=task
        )


N, D = 24, 3  # one shape for all data sets, so that they share programs


@functools.cache
def rows(kind: str, targets: str = "labels") -> Rows:
    """Noisy rows of norm at most 1.

    Args:
        kind: "plain"; "padded": 20 rows and 4 wild ones of weight 0 among them; "weighted": whole
        weights whose sum is
            N too, with wild rows of weight 0.
        targets: "labels", "real", "classes", of which there are 3, or "grades", of which there are
            4, in 3 queries.
    """
    random = np.random.default_rng(7)
    x = random.normal(size=(N, D))
    x /= np.linalg.norm(x, axis=1).max()
    y = x @ np.array([2.0, -1.0, 0.5]) + 0.6 * random.normal(size=N) + 0.3
    query = np.arange(N) % 3 if targets == "grades" else None
    y = {
        "labels": np.sign(y),
        "real": y,
        "classes": np.digitize(y, [-0.5, 0.5]).astype(float),
        "grades": np.digitize(y, [-1.0, 0.0, 1.0]).astype(float),
    }[targets]
    weight = np.ones(N)
    if kind == "padded":
        weight[[0, 3, 11, 23]] = 0
    if kind == "weighted":
        weight[:] = [0, 2, 1, 3, 0, 1, 1, 0, 2, 1, 1, 0, 1, 1, 2, 0, 1, 1, 0, 3, 0, 1, 2, 0]
        assert weight.sum() == N
    wild = weight == 0
    x[wild], y[wild] = 9 * x[wild], -y[wild]
    return Rows(x, y, weight, query)


def maker(x, y, weight=None, dtype="float64") -> Callable:
    """A function that makes data sets of these rows, or of others."""

    def dataset(x=x, y=y, weight=weight, dtype=dtype, task=None):
        is_binary = set(np.unique(y)) <= {-1, 1}
        task = task or ("binary" if is_binary else "regression")
        x = x if scipy.sparse.issparse(x) else np.asarray(x, dtype)
        return jaxsvm.dataset(x, y, weight, task=task)

    return dataset


# Optima by other programs and other formulas, in float64.


class Minimum(NamedTuple):
    """The minimum of lam/2 |w|^2 + mean loss, and the two parts of it."""

    value: float
    norm: float  # |w|
    risk: float  # mean loss


def mean_loss(loss: Loss, score: np.ndarray, data: Rows) -> float:
    """The weighted mean loss, by the formulas of this file."""
    return float(np.average(formula(loss)[0](score, data.y), weights=data.weight))


@functools.cache
def optimum(kind: str, targets: str, lam: float, loss: Loss, bias: str, kernel: bool) -> Minimum:
    """The minimum on a data set, weights written out as copies."""
    data = rows(kind, targets).copied()
    if targets == "grades":
        return _pairs(data, lam, loss)
    hinge = loss is losses.hinge
    if kernel:
        peer = oracles.libsvm if bias == "free" else oracles.box if hinge else oracles.in_features
    else:
        peer = oracles.liblinear if hinge or loss is TUBE else oracles.minimum
    C = 1 / (lam * len(data.y))
    found = peer(data.x, data.y, SimpleNamespace(C=C, loss=loss, bias=bias, kernel=RBF))
    risk = mean_loss(loss, found.f(data.x), data)
    return Minimum(lam / 2 * found.square + risk, found.square**0.5, risk)


def _pairs(data: Rows, lam: float, loss: JointLoss) -> Minimum:
    """The minimum over the differences of all pairs; LIBLINEAR takes half of them turned round, as
    it needs two classes."""
    i, j = np.nonzero((data.y[:, None] > data.y) & (data.query[:, None] == data.query))
    z, sign = data.x[i] - data.x[j], np.where(np.arange(len(i)) % 2, 1, -1)
    squared = loss is losses.rank_squared_hinge
    made = LinearSVC(
        loss="squared_hinge" if squared else "hinge",
        dual=True,
        fit_intercept=False,
        C=1 / (lam * len(z)),
        tol=1e-10,
        max_iter=10**6,
        random_state=0,
    ).fit(sign[:, None] * z, sign)
    w = made.coef_[0]
    risk = float((np.maximum(1 - z @ w, 0) ** (2 if squared else 1)).mean())
    return Minimum(lam / 2 * w @ w + risk, float(w @ w) ** 0.5, risk)
