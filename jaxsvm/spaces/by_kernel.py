"""The space of a kernel."""

from __future__ import annotations

from ..checks import check_choice
from ..kernels import Kernel
from ..types import Space
from .intercept import with_constant
from .kernel_expansion import expansion
from .linear_space import linear


def space_for(kernel: Kernel | None = None, bias: str = "none") -> Space:
    """The space of a kernel: linear weights for None, else an expansion over all rows.

    The bias is "none" or "feature".
    """
    check_choice("bias", bias, ("none", "feature"))
    space = linear() if kernel is None else expansion(kernel)
    return space if bias == "none" else with_constant(space)
