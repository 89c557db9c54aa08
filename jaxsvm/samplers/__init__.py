"""Samplers: the rows of each step.

Every draw is a function of (state, t), so that a run can resume at any step.
"""

from .acf import AcfState as AcfState
from .acf import acf as acf
from .active_rows import ActiveRowsState as ActiveRowsState
from .active_rows import active_rows as active_rows
from .epochs import EpochsState as EpochsState
from .epochs import epochs as epochs
from .pairs import PairsState as PairsState
from .pairs import pairs as pairs
from .shrinking import ShrinkingState as ShrinkingState
from .shrinking import shrinking as shrinking
from .strata import StrataState as StrataState
from .strata import strata as strata
from .uniform import SubsetState as SubsetState
from .uniform import UniformState as UniformState
from .uniform import uniform as uniform
from .whole import whole as whole

__all__ = ["acf", "active_rows", "epochs", "pairs", "shrinking", "strata", "uniform", "whole"]
