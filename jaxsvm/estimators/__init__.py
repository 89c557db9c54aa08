"""Estimators for scikit-learn, for solvers and feature maps.

They have fit and predict, and work with clone, pickle, pipelines and grids.

Rows are checked, sorted, and merged where they are equal (their weights are added); then rows of
weight 0 pad them to one of a small set of sizes. So weight k equals k copies and weight 0 equals
absence, bit for bit, and the order of rows has no effect. One compiled program serves all numbers
of a solver and data of similar size. Rows are float32, or float64 inside `jax.enable_x64()`.
"""

try:
    import sklearn as _sklearn  # noqa: F401
except ImportError as error:
    raise ImportError("the estimators need scikit-learn: pip install 'jaxsvm[sklearn]'") from error

from .budgeted_svc import BudgetedSVC as BudgetedSVC
from .cross_validation import GridCV as GridCV
from .features import FourierFeatures as FourierFeatures
from .features import NystromFeatures as NystromFeatures
from .linear_svc import LinearSVC as LinearSVC
from .linear_svr import LinearSVR as LinearSVR
from .nu_svc import NuSVC as NuSVC
from .nu_svr import NuSVR as NuSVR
from .one_class_svm import OneClassSVM as OneClassSVM
from .pegasos import Pegasos as Pegasos
from .ranker import Ranker as Ranker
from .sgd_one_class_svm import SGDOneClassSVM as SGDOneClassSVM
from .survival_svm import SurvivalSVM as SurvivalSVM
from .svc import SVC as SVC
from .svm import SVMClassifier as SVMClassifier
from .svm import SVMRegressor as SVMRegressor
from .svr import SVR as SVR

__all__ = [name for name in dir() if name[0].isupper()]  # what is imported by its own name


__dir__ = __all__.copy  # offers the public names only
