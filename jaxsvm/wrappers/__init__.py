"""Wrappers: a solver -> a solver."""

from ..models import OneVsOne as OneVsOne
from ..models import OneVsRest as OneVsRest
from .averages import averaged as averaged
from .feature_space import on_features as on_features
from .multiclass import one_vs_one as one_vs_one
from .multiclass import one_vs_rest as one_vs_rest
from .outputs import multi_output as multi_output

__all__ = sorted(name for name, value in globals().items() if callable(value) and name[0] != "_")
