"""Feature maps (n, d) -> (n, p), and solvers on features.

Inner products of the features approximate a kernel.
"""

from .cholesky import Cholesky as Cholesky
from .cholesky import cholesky as cholesky
from .fourier import Fourier as Fourier
from .fourier import fourier as fourier
from .landmarks import k_means as k_means
from .landmarks import leverage_scores as leverage_scores
from .landmarks import uniform as uniform
from .low_rank import low_rank_bound as low_rank_bound
from .nystrom import Nystrom as Nystrom
from .nystrom import nystrom as nystrom
from .orthogonal import orthogonal as orthogonal

__all__ = [
    "Cholesky",
    "Fourier",
    "Nystrom",
    "cholesky",
    "fourier",
    "k_means",
    "leverage_scores",
    "low_rank_bound",
    "nystrom",
    "orthogonal",
    "uniform",
]
