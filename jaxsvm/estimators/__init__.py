"""Classes for scikit-learn: fit, predict, clone, pickle, pipelines and grids around solvers and feature maps.

Rows are checked, then put in an order of their own with equal rows as one (their weights added), and padded to one of a few
sizes by rows of weight 0. So weight k means k copies and weight 0 absence to the last bit, the order of the rows does not
matter, and one compiled program serves all numbers of a solver and data of about the same size. Rows are float32, or
float64 inside `jax.enable_x64()`.
"""

from .budgeted_svc import BudgetedSVC as BudgetedSVC
from .features import FourierFeatures as FourierFeatures
from .features import NystromFeatures as NystromFeatures
from .linear_svc import LinearSVC as LinearSVC
from .svc import SVC as SVC
from .svm import SVMClassifier as SVMClassifier
from .svm import SVMRegressor as SVMRegressor

__all__ = ["BudgetedSVC", "FourierFeatures", "LinearSVC", "NystromFeatures", "SVC", "SVMClassifier", "SVMRegressor"]


def __dir__():
    """Offer the public names only."""
    return __all__
