"""The checks of scikit-learn on every estimator."""

import pytest
from beside import USUAL
from sklearn.utils.estimator_checks import parametrize_with_checks

from jaxsvm.estimators import (
    SVC,
    SVR,
    BudgetedSVC,
    FourierFeatures,
    GridCV,
    LinearSVC,
    LinearSVR,
    NuSVC,
    NuSVR,
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


def expected(estimator):
    """Checks that calibration by folds cannot pass, nor `CalibratedClassifierCV` the first two; and
    that which scikit-learn expects of its own `NuSVC`."""
    if isinstance(estimator, NuSVC):
        return {"check_class_weight_classifiers": "class_weight is ignored"}
    if not (isinstance(estimator, SVC) and estimator.probability):
        return {}
    copies = "a row of weight k is in one fold, k copies are in several"
    return {
        "check_sample_weight_equivalence_on_dense_data": copies,
        "check_sample_weight_equivalence_on_sparse_data": copies,
        "check_classifiers_train": "the most probable class need not be that of predict",
    }


MACHINES = [SVMClassifier(), SVMRegressor(), LinearSVC(), SVC(), SVR(), LinearSVR(), Pegasos()]
MACHINES += [NystromFeatures(), FourierFeatures(), BudgetedSVC(budget=30)]
MACHINES += [SVC(probability=True), NuSVC(nu=0.1, break_ties=True)]
MACHINES += [NuSVR(), OneClassSVM(), Ranker(max_iter=50), SurvivalSVM(max_iter=50)]
NUMBERS = {"C": [1.0, 10.0], "gamma": [0.1, 1.0]}
SEARCHES = [GridCV(SVC(), NUMBERS, cv=3), GridCV(LinearSVR(), {"C": [0.1, 1.0]}, cv=3)]


@pytest.mark.long(but=10)
@parametrize_with_checks(MACHINES, expected_failed_checks=expected)
def test_machines(estimator, check):
    check(estimator)


@pytest.mark.long(but=3)
@parametrize_with_checks(SEARCHES)
def test_searches(estimator, check):
    check(estimator)


@pytest.mark.long(but=20)
@parametrize_with_checks([SGDOneClassSVM()])
def test_outliers(estimator, check):
    check(estimator)
