"""Function spaces: the moves that every step of an SVM solver is made of."""

from .averaged import averaged as averaged
from .expansion import expansion as expansion
from .linear import linear as linear


def of(kernel=None):
    """The space of a kernel: linear weights for None, an expansion over all rows otherwise."""
    return linear() if kernel is None else expansion(kernel)
