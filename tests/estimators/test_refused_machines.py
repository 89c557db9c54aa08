"""What estimators refuse: a parameter that is none is named, rows that are none are described."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse
import sklearn.linear_model
import sklearn.svm
from beside import LABELS, TOY, USUAL, equal
from sklearn.base import RegressorMixin, clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import (
    GroupKFold,
    PredefinedSplit,
    RepeatedKFold,
    ShuffleSplit,
    TimeSeriesSplit,
)

import jaxsvm
from jaxsvm import estimators, kernels, losses
from jaxsvm.estimators import (
    SVC,
    SVR,
    BudgetedSVC,
    FourierFeatures,
    GridCV,
    LinearSVC,
    NuSVC,
    NystromFeatures,
    OneClassSVM,
    Pegasos,
    Ranker,
    SGDOneClassSVM,
    SurvivalSVM,
    SVMClassifier,
    SVMRegressor,
)

pytestmark = USUAL

N = 60
RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(N, 4))
Y = (X[:, 0] + 0.5 * RANDOM.normal(size=N) > 0).astype(int)
REAL, NAMES = X[:, 0], np.array(["ant", "bee"])[Y]
EVENTS = np.array(list(zip(Y > 0, 1 + np.arange(N), strict=True)), [("e", bool), ("t", float)])
TARGETS = dict.fromkeys(("SVR", "LinearSVR", "NuSVR"), REAL) | {"SurvivalSVM": EVENTS}
RBF = kernels.rbf(1.0)
PEGASOS = jaxsvm.pegasos(1e-2)

REFUSED = [  # parameter, what it must not be, machines
    ("C", (-1.0,), "SVC LinearSVC BudgetedSVC"),
    ("alpha", (0.0,), "Pegasos"),
    ("bias", ("bounded",), "SVC"),
    ("budget", (1,), "BudgetedSVC"),
    ("choose", ("kmeans",), "NystromFeatures"),
    ("decision_function_shape", ("all",), "SVC"),
    ("dual", ("both",), "LinearSVC"),
    ("epsilon", (-1.0,), "LinearSVR SVR"),
    ("gamma", (-1.0, "sclae", 1e39, 1e-50), "SVC"),
    ("intercept_scaling", (0.0,), "LinearSVC"),
    ("k", (0,), "Ranker"),
    ("kernel", ("rbff",), "SVC"),
    ("lam", (0.0,), "Ranker SurvivalSVM"),
    ("loss", ("huber",), "LinearSVC Pegasos Ranker SurvivalSVM"),
    ("loss", ("hinge",), "LinearSVR"),
    ("loss", (losses.logistic,), "SVC"),
    ("max_iter", (0,), "SVC Pegasos LinearSVC"),
    ("max_passes", (2.5,), "BudgetedSVC"),
    ("method", ("sgd",), "BudgetedSVC"),
    ("multi_class", ("ovo",), "LinearSVC"),
    ("multiclass", ("all",), "SVMClassifier"),
    ("n_components", (0, -1, 2.5, "3", None, True), "NystromFeatures FourierFeatures"),
    ("nu", (0.0, -1.0, 1.5), "SGDOneClassSVM NuSVC NuSVR OneClassSVM"),
    ("partners", (0,), "BudgetedSVC"),
    ("penalty", ("l3",), "LinearSVC"),
    ("penalty", ("l1",), "Pegasos"),
    ("probability", ("isotonic",), "LinearSVC"),
    ("solver", ("sdca",), "SVMClassifier"),
    ("tol", ("tight",), "SVMClassifier"),
    ("tol", (-1.0,), "LinearSVC"),
]
CALLED = {"epsilon": "eps"}


CASES = [(name, key, v) for key, values, names in REFUSED for name in names.split() for v in values]


@pytest.mark.parametrize(("name", "parameter", "value"), CASES)
def test_a_parameter_that_is_none(name, parameter, value):
    words = rf"\b({CALLED.get(parameter, parameter)})\b"
    with pytest.raises((ValueError, TypeError), match=words):
        getattr(estimators, name)(**{parameter: value}).fit(X, TARGETS.get(name, NAMES))


def with_cells(*cells):
    x = X.copy()
    x[tuple(zip(*cells, strict=True))] = 1e39
    return x


def fit(made, x=X, y=None, *args, **fields):
    """The call, on targets that the machine takes."""
    usual = TARGETS.get(type(made).__name__, NAMES)
    y = (REAL if isinstance(made, RegressorMixin) else usual) if y is None else y
    return lambda: made.fit(x, y, *args, **fields)


def search(machine, grid=None, x=X, y=Y, groups=None, **options):
    grid = {"C": [0.1, 10.0], "gamma": [0.03]} if grid is None else grid
    return lambda: GridCV(machine, grid, **options).fit(x, y, groups=groups)


def after(made, call, x=X, y=NAMES):
    """A call of the fitted machine, fitted where it is called."""
    return lambda: call(clone(made).fit(x, y))


chances = lambda made: made.predict_proba(X)
streamed = lambda: SVMClassifier(PEGASOS).partial_fit(X, Y, classes=[0, 1])
Y3, REST, PAIRS = np.arange(N) % 3, {"multiclass": "ovr"}, {"decision_function_shape": "ovo"}
DATES = np.where(Y, *np.array(["2020", "2021"], "datetime64[D]"))
ROW_5 = np.arange(N) == 5
ZERO = np.array([(True, 0.0), *EVENTS[1:]], EVENTS.dtype)
NAMED_WRONG = np.array([(t, e) for e, t in EVENTS], [("t", float), ("e", bool)])
HALF = TOY, LABELS, [1, 1, 1, 1, 0, 0]
SINGLE = np.r_[X[:20], X[20:40] + 4, [X[0]]], np.repeat([0, 1, 2], [20, 20, 1])  # of a class
AT_LIMIT = X[:29], np.repeat([0, 1], [9, 20])
TOO_LARGE = (SVC(C=1e39), LinearSVC(C=1e39), SVR(epsilon=1e39), SVC(kernel="poly", coef0=1e39))
TOO_LARGE += (SVC(tol=1e-50), Pegasos(alpha=1e-50))  # or too small
WARM = {"warm_start": True}
NOT_WARM = jaxsvm.ocas(1e-2), jaxsvm.averaged(jaxsvm.sdca(1.0)), jaxsvm.bsca(1.0, RBF, budget=10)
NOT_WARM = [SVMClassifier(solver, **WARM) for solver in NOT_WARM]
NOT_WARM += [SVMRegressor(jaxsvm.nu_svr(0.5, 1.0, kernels.linear()), **WARM)]
WORDS = [  # calls, and what their sentence says
    (fit(SVMClassifier(jaxsvm.pegasos)), "call the factory first"),
    (fit(SVC(kernel=kernels.rbf)), "factory rbf itself"),
    (fit(LinearSVC(-1.0)), r"write LinearSVC\(C=-1.0\)"),
    (fit(LinearSVC(penalty="l1", loss="hinge")), "with a continuous slope"),
    (fit(LinearSVC(penalty="elasticnet", l1_ratio=2.0)), "l1_ratio"),
    (fit(BudgetedSVC(kernel="precomputed")), "a budget holds points of its own"),
    (fit(BudgetedSVC(-1.0, method="bsgd")), r"\bC\b"),
    (fit(BudgetedSVC(method="bsgd", tol=1e-3)), "tol has nothing to stop on.*give max_passes"),
    (fit(SVMClassifier(PEGASOS, tol=1e-3)), "tol has nothing to stop on.*give steps"),
    (fit(SVMClassifier(PEGASOS, steps=0)), r"\bsteps\b"),
    (fit(SVC(kernel="laplacian", gamma=0.0)), "gamma"),
    *((fit(made), "in size for float32") for made in TOO_LARGE),
    (fit(SVC(**REST, probability=True), X, Y3), "^probability=.* leave multiclass='ovo'"),
    (fit(SVC(**REST, **PAIRS), X, Y3), "^decision_function_shape=.* leave multiclass='ovo'"),
    # classes and weights
    *((fit(made, y=np.full(N, 3)), "one class") for made in (SVC(), LinearSVC())),
    *((fit(made, X, NAMES, 1.0 - Y), "one class") for made in (SVC(), LinearSVC(), NuSVC())),
    *((fit(made, X, NAMES, np.full(N, -0.3)), "at least 0") for made in (SVC(), LinearSVC())),
    (fit(SVC(), X, NAMES, np.zeros(N)), "weights"),
    *((fit(SVC(), y=DATES.astype(f"datetime64[{u}]")), rf"\[{u}\]: pass y.astype") for u in "Ds"),
    # rows
    (fit(SVC(), X, NAMES[:-1]), "inconsistent numbers of samples"),
    (fit(SVC(), 1e300 * X), "too large for float32"),
    (fit(LinearSVC(), np.where(np.arange(4) == 1, 1e300, X)), "too large for float32"),
    *(
        (fit(made, form(with_cells(*cells)), Y), rf"row {row}: drop .* \({len(cells)} numbers\)")
        for made in (SVC(), LinearSVC(), Pegasos(), NystromFeatures(), FourierFeatures())
        for cells, row in ((((7, 1),), 7), (((9, 0), (9, 2), (31, 1)), 9))
        for form in (np.asarray, scipy.sparse.csr_array)
    ),
    # rows that repeat
    (fit(SVC(), np.r_[(x := with_cells((7, 1))), x], np.r_[Y, Y]), r"in row 7: .* \(2 numbers\)"),
    *(
        (fit(SVC(C=10), form(X * unit)), "gamma must be from .* scale the columns of X instead")
        for unit in (1e-20, 1e-30)
        for form in (np.asarray, scipy.sparse.csr_matrix)
    ),
    *((fit(SVC(), X * unit), "squares sum up to what is too large") for unit in (1e19, 1e30)),
    # kernels that are matrices or functions
    (fit(SVC(kernel="precomputed")), "square"),
    (fit(SVC(kernel="precomputed"), scipy.sparse.eye_array(N, format="csr")), "Sparse precomputed"),
    *(
        (fit(made(kernel=kernel)), rf"must give an array of shape \({N}, {N}\)")
        for made in (SVC, SVR)
        for kernel in (lambda a, b: a, lambda a, b: np.ones((1, 1)))
    ),
    *(
        (after(made, lambda made: made.predict(X[:, :3]), x), "3 features")
        for made, x in (
            (SVC(), X),
            (SVC(kernel=lambda a, b: a @ b.T), X),
            (SVC(kernel="precomputed"), X @ X.T),
        )
    ),
    (after(SVC(), lambda made: chances(made.set_params(probability=True))), "call fit with prob"),
    (after(LinearSVC(), chances), "predict_proba"),
    # nu, and probabilities of folds without rows for a class or for nu
    (fit(NuSVC(nu=0.6), *HALF), r"nu is infeasible: .* 1 and 2 .* = 0\.5 by weight, got 0\.6"),
    (fit(sklearn.svm.NuSVC(nu=0.6), *HALF), "infeasible"),
    (fit(NuSVC(nu=0.05, probability=True), *SINGLE), "two rows of each class"),
    (fit(LinearSVC(probability=True), *SINGLE), "two rows of each class, to leave one out"),
    # nu at its limit for all rows is above that of some training sets
    (fit(NuSVC(nu=18 / 29, probability=True), *AT_LIMIT), "specified nu is infeasible"),
    (fit(CalibratedClassifierCV(NuSVC(nu=18 / 29)), *AT_LIMIT), "specified nu is infeasible"),
    # pairs of rows
    (fit(Ranker(), X, Y, qid=np.where(ROW_5, np.nan, 1.0)), "qid holds a NaN"),
    (fit(Ranker(), X, Y, qid=Y[:3]), "qid must name the qid of each"),
    (fit(Ranker(), X, Y, qid=np.arange(N)), "no two rows of one query have different grades"),
    (fit(Ranker(), X[:2], ["low", "high"]), "must hold grades, numbers, got 'low'"),
    (fit(SurvivalSVM(), X, ZERO), "times must be finite and above 0, got 0 in row 0"),
    (fit(SurvivalSVM(), X, np.zeros(N)), "y must hold times, .*not 0, got 0"),
    (fit(SurvivalSVM(), X, -1.0 - np.arange(N)), "no row has an event"),
    (fit(SurvivalSVM(), X, NAMED_WRONG), "y must have two fields, booleans that say whether"),
    (fit(SurvivalSVM(), strata=np.arange(N)), "no event is earlier than the time of"),
    (fit(SurvivalSVM(), strata=[1, 2]), f"strata must name the strata of each of the {N}"),
    (fit(SurvivalSVM(), X, EVENTS[:9]), "inconsistent numbers of samples"),
    (fit(SurvivalSVM(), X[:2], ["late", "later"]), "must hold times, numbers, got 'late'"),
    (fit(Ranker(), X[:1], Y[:1]), "n_samples=1"),
    (fit(SurvivalSVM(), X[:1], EVENTS[:1]), "n_samples=1"),
    # pieces
    (lambda: SVMClassifier(PEGASOS).partial_fit(X, Y), "classes must be given"),
    (lambda: streamed().partial_fit(X, Y, classes=[0, 2]), "since the first call"),
    (lambda: streamed().partial_fit(X[:1], [7]), "holds the class 7"),
    (lambda: SGDOneClassSVM(**WARM).fit(X).fit(X[:, :2]), "of 4 columns, .* have 2 columns"),
    # searches
    *(
        (search(SVC(), cv=cv), "cv must split the rows into disjoint test sets")
        for cv in (RepeatedKFold(n_splits=3), ShuffleSplit(3, random_state=0), TimeSeriesSplit(3))
    ),
    (search(SVC(), {"C": 1}), r"\bC of the grid"),
    (search(SVC(), {"gamma": 0}), "gamma of the grid"),
    (search(SVC(), {"C": [-1.0, 1.0]}), r"\bC\b"),
    (search(SVR(), {"C": [0.0], "gamma": [1.0]}), r"\bC\b"),
    (search(SVR(), {"epsilon": 0.1}), "the axis epsilon"),
    (search(LinearSVC(), {"C": []}), "the axis C"),
    (search(SVC(), {}), "grid must be a dict .*: .*take scikit-learn's GridSearch"),
    (search(SVC(), [{"C": [1.0]}]), "grid must be a dict"),
    (search(SVC(kernel="linear"), {"C": [1.0], "gamma": [1.0]}), "grid must be .* gamma where the"),
    (search(NuSVC(), {"gamma": [1.0]}), "grid must be .* of NuSVC"),
    (search(sklearn.svm.SVC(), {"C": [1.0]}), "grid must be .* of SVC"),
    (search(LinearSVC(), {"l1_ratio": [0.1, 0.9]}), "l1_ratio too of its penalty 'elasticnet'"),
    (search(SVC(), rule="first"), "rule"),
    (search(SVC(), scoring=["accuracy", "f1"]), "scoring"),
    (search(SVC(), cv=PredefinedSplit(1 - Y)), "without fold 0 there is no row of class"),
    (search(SVC(), cv=GroupKFold(3)), "groups"),
    (search(SVR(), y=REAL, scoring="neg_log_loss"), "SVR has none of .*: predict_proba"),
    # warm starts
    (fit(LinearSVC(loss="hinge", solver="interior_point", **WARM)), "interior_point cannot: set"),
    (fit(LinearSVC(solver="sdca", **WARM)), "this solver cannot: set warm_start=False"),
    *((fit(made), "this solver cannot: set warm_start=False") for made in NOT_WARM),
]


@pytest.mark.parametrize(("call", "words"), WORDS)
def test_calls_that_are_refused(call, words):
    with pytest.raises((ValueError, TypeError, AttributeError), match=words):
        call()


@pytest.mark.parametrize("made", [SVC(), LinearSVC(), OneClassSVM()], ids=str)
def test_a_machine_that_was_not_fitted_says_so(made):
    with pytest.raises(NotFittedError, match=f"{type(made).__name__} instance is not fitted"):
        made.predict("foo!")


@pytest.mark.long
def test_what_was_fitted_stays_where_another_fit_fails():
    for made, target in ((LinearSVC(random_state=0), NAMES), (SVMRegressor(random_state=0), REAL)):
        before = made.fit(X, target).predict(X)
        for other in (X[:, :2], np.hstack([X, X])):
            with pytest.raises(ValueError, match="sample_weight must be at least 0"):
                made.fit(other, target, sample_weight=np.full(N, -1.0))
            equal(made.predict(X), before)


def test_decision_values_that_are_not_finite_are_refused():
    for made, target in ((SVMClassifier(PEGASOS), NAMES), (SVMRegressor(), REAL)):
        made.fit(X, target)
        is_real = lambda a: jnp.issubdtype(a.dtype, jnp.floating)
        made.model_ = jax.tree.map(lambda a: a * np.nan if is_real(a) else a, made.model_)
        with pytest.raises(ValueError, match=f"of {N} of {N} rows are not finite, first of row 0"):
            made.predict(X)


MORE, MORE_NAMES = np.r_[X, X + 3], np.r_[NAMES, np.full(N, "cat")]
OF_MAPS = [
    jaxsvm.on_features(jaxsvm.features.fourier(jax.random.key(i), RBF, dim=4, features=8), PEGASOS)
    for i in (0, 1)
]
ON_BUDGET = BudgetedSVC(method="bsgd", gamma=0.3, budget=20)
BSGD = SVMClassifier(jaxsvm.bsgd(0.1, RBF, budget=20))
WIDER = {"solver": jaxsvm.bsgd(0.1, kernels.rbf(2.0), budget=20)}
CHANGES = [  # a machine in its stream, what is changed, and what the sentence says
    (Pegasos(), {"alpha": -1}, "alpha"),
    (Pegasos(), {"loss": "epsilon"}, "loss"),
    (Pegasos(), {"penalty": "l1"}, "penalty"),
    (Pegasos(), {"fit_intercept": False}, "fit_intercept is True since .*, got False: call fit"),
    (Pegasos(), {"average": False}, "average is True since the first rows"),
    (ON_BUDGET, {"C": -1.0}, r"\bC\b"),
    (ON_BUDGET, {"gamma": 0.5}, "gamma is 0.3 since the first rows, got 0.5"),
    (ON_BUDGET, {"kernel": kernels.rbf(2.0)}, r"kernel is 'rbf' since .*, got rbf\(2.0\)"),
    (ON_BUDGET, {"budget": 30}, "budget is 20 since the first rows, got 30"),
    (BSGD, {"multiclass": "ovo"}, "multiclass is 'ovr'"),
    (BSGD, WIDER, "with another kernel or feature map"),
    (SVMClassifier(OF_MAPS[0]), {"solver": OF_MAPS[1]}, "with another kernel or feature map"),
]


@pytest.mark.long(but=5)
@pytest.mark.parametrize(("made", "change", "words"), CHANGES)
def test_partial_fit_refuses_a_change_of_structure_and_bad_numbers(made, change, words):
    made = clone(made).set_params(random_state=0)
    made.partial_fit(MORE, MORE_NAMES, classes=["ant", "bee", "cat"])
    before = made.decision_function(MORE)
    with pytest.raises(ValueError, match=words):
        made.set_params(**change).partial_fit(MORE, MORE_NAMES)
    equal(made.decision_function(MORE), before)


@pytest.mark.parametrize("made", [LinearSVC(warm_start=True), Pegasos(warm_start=True)])
def test_other_classes_and_columns_are_refused_by_a_warm_start(made):
    machine = clone(made).fit(MORE, MORE_NAMES)
    before = machine.decision_function(MORE)
    with pytest.raises(ValueError, match="4 columns and the classes .* have 3 columns"):
        machine.fit(MORE[:, :3], MORE_NAMES)
    with pytest.raises(ValueError, match=r"\['ant', 'bee', 'cat'\].*\['ant', 'bee'\].*set warm"):
        machine.fit(X, NAMES)
    equal(machine.decision_function(MORE), before)  # as it was
    # as in scikit-learn
    theirs = sklearn.linear_model.SGDClassifier(warm_start=True).fit(MORE, MORE_NAMES)
    with pytest.raises(ValueError):
        theirs.fit(X, NAMES)
