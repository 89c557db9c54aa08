"""Function spaces: evaluation, addition and inner products, the operations of every solver step."""

from .budgeted_space import budgeted as budgeted
from .by_kernel import space_for as space_for
from .intercept import with_constant as with_constant
from .kernel_expansion import expansion as expansion
from .linear_space import linear as linear
from .running_mean import averaged as averaged

__all__ = ["averaged", "budgeted", "expansion", "linear", "space_for", "with_constant"]
