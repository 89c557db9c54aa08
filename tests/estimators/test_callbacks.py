"""Callbacks of scikit-learn, from its version 1.9 on: a fit is one task."""

import pickle

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline

from jaxsvm.estimators import (
    SVC,
    SVCCV,
    SVR,
    FourierFeatures,
    LinearSVC,
    NystromFeatures,
    OneClassSVM,
    Pegasos,
    Ranker,
    SGDOneClassSVM,
)

pytestmark = pytest.mark.usefixtures("usual_promotion")

pytest.importorskip("sklearn.callback", reason="scikit-learn before 1.9 has no callbacks")

X = np.random.default_rng(0).normal(size=(60, 3))
Y = (X[:, 0] > 0).astype(int)


class Log:
    """Keeps what it is told."""

    def __init__(self):
        self.told = []

    def setup(self, estimator, context):
        self.told.append(("setup", type(estimator).__name__))

    def teardown(self, estimator, context):
        self.told.append(("teardown", type(estimator).__name__))

    def on_fit_task_begin(self, estimator, context, *, X, y, metadata):
        self.told.append(("begin", type(estimator).__name__, X, y, metadata))

    def on_fit_task_end(self, estimator, context, *, fitted_estimator):
        name = type(estimator).__name__
        self.told.append(("end", name, fitted_estimator))


class LogEverywhere(Log):
    """It is told of the estimators within others, too."""

    max_propagation_depth = None


MADE = [
    *(LinearSVC(), LinearSVC(probability=True), SVC(probability=True), Pegasos(), SVR()),
    *(OneClassSVM(), SGDOneClassSVM(), Ranker(), FourierFeatures()),
    SVCCV(Cs=[1.0], gammas=[0.1], cv=2),
]


@pytest.mark.filterwarnings("ignore:the ranges of the columns")
@pytest.mark.parametrize("made", MADE, ids=str)
def test_a_fit_is_one_task(made):
    log, name = Log(), type(made).__name__
    machine = clone(made).set_callbacks(log)
    weight = {} if name == "FourierFeatures" else {"sample_weight": np.arange(1.0, 61)}
    assert machine.fit(X, Y, **weight) is machine
    assert [told[:2] for told in log.told] == [
        (when, name) for when in ("setup", "begin", "end", "teardown")
    ]
    _, _, rows, targets, metadata = log.told[1]
    assert rows is X and targets is Y
    assert all(metadata[key] is weight[key] for key in weight)
    fitted = log.told[2][2]
    apply = "transform" if name == "FourierFeatures" else "predict"
    np.testing.assert_array_equal(getattr(fitted, apply)(X), getattr(machine, apply)(X))
    without = pickle.loads(pickle.dumps(clone(made).fit(X, Y, **weight)))
    assert not hasattr(without, "_callback_fit_ctx")


def test_a_failed_fit_ends_its_task_and_leaves_the_machine_as_it_was():
    log = Log()
    machine = LinearSVC().fit(X, Y).set_callbacks(log)
    before = machine.coef_
    with pytest.raises(ValueError, match="y holds one class"):
        machine.fit(X, np.zeros(60))
    assert [told[0] for told in log.told] == ["setup", "begin", "teardown"]
    np.testing.assert_array_equal(machine.coef_, before)
    assert not hasattr(machine, "_callback_fit_ctx")
    with pytest.raises(TypeError, match="missing a required argument: 'y'"):
        machine.fit(X)


@pytest.mark.filterwarnings("error:.*does not support callbacks")
def test_tasks_of_machines_in_pipelines_and_searches():
    log = LogEverywhere()
    pipeline = make_pipeline(FourierFeatures(n_components=10, random_state=0), LinearSVC())
    grid = GridSearchCV(pipeline, {"linearsvc__C": [0.1, 1.0]}, cv=2).set_callbacks(log)
    grid.fit(X, Y)
    ends = [told[1] for told in log.told if told[0] == "end"]
    assert ends.count("LinearSVC") == 5 and ends.count("FourierFeatures") == 5  # 4, and the refit
    assert [told for told in log.told if told[0] == "setup"] == [("setup", "GridSearchCV")]
    monitor = pytest.importorskip("sklearn.callback").ScoringMonitor(scoring="accuracy")
    machine = LinearSVC().set_callbacks(monitor).fit(X, Y)
    assert monitor.get_logs().data[0]["accuracy"] == machine.score(X, Y)


def test_a_warning_names_the_line_of_the_user():
    with pytest.warns(UserWarning, match="only 60 rows: all are taken") as told:
        NystromFeatures(n_components=70).set_callbacks(Log()).fit(X)
    with pytest.warns(ConvergenceWarning) as also:
        LinearSVC(C=1000.0, tol=1e-7, max_iter=1).set_callbacks(Log()).fit(X, Y)
    assert {warning.filename for warning in (*told, *also)} == {__file__}
