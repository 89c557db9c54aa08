"""Function spaces: evaluation, addition and inner products, the operations of every solver step."""

from ..kernels import Kernel as Kernel
from ..recipe import check_choice as check_choice
from ..types import Space as Space
from .budgeted import budgeted as budgeted
from .expansion import expansion as expansion
from .intercept import with_constant as with_constant
from .linear import linear as linear
from .running_mean import averaged as averaged

__all__ = ["averaged", "budgeted", "expansion", "linear", "space_for", "with_constant"]


def space_for(kernel: Kernel | None = None, bias: str = "none") -> Space:
    """The space of a kernel: linear weights for None, else an expansion over all rows; bias "none" or "feature"."""
    check_choice("bias", bias, ("none", "feature"))
    space = linear() if kernel is None else expansion(kernel)
    return space if bias == "none" else with_constant(space)
