"""Samplers: the rows of each step.

Every draw is a function of (state, t), so that a run can resume at any step.
"""

from .active_set import ActiveRowsState as ActiveRowsState
from .active_set import active_rows as active_rows
from .coordinate_frequencies import AcfState as AcfState
from .coordinate_frequencies import acf as acf
from .full_batch import whole as whole
from .pair_differences import PairsState as PairsState
from .pair_differences import pairs as pairs
from .permutation import EpochsState as EpochsState
from .permutation import epochs as epochs
from .shrinkage import ShrinkingState as ShrinkingState
from .shrinkage import shrinking as shrinking
from .stratified import StrataState as StrataState
from .stratified import strata as strata
from .with_replacement import UniformState as UniformState
from .with_replacement import uniform as uniform

__all__ = ["acf", "active_rows", "epochs", "pairs", "shrinking", "strata", "uniform", "whole"]
