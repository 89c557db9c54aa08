"""Feature maps (n, d) -> (n, p), and solvers on features.

Inner products of the features approximate a kernel.
"""

from .chi2_map import AdditiveChi2 as AdditiveChi2
from .chi2_map import Chi2 as Chi2
from .chi2_map import additive_chi2 as additive_chi2
from .chi2_map import chi2 as chi2
from .incomplete_cholesky import Cholesky as Cholesky
from .incomplete_cholesky import cholesky as cholesky
from .landmarks import k_means as k_means
from .landmarks import leverage_scores as leverage_scores
from .landmarks import uniform as uniform
from .low_rank import low_rank_bound as low_rank_bound
from .nystrom_map import Nystrom as Nystrom
from .nystrom_map import nystrom as nystrom
from .orthogonal_fourier import orthogonal as orthogonal
from .pivots import random_pivots as random_pivots
from .random_fourier import Fourier as Fourier
from .random_fourier import fourier as fourier
from .tensor_sketch_map import TensorSketch as TensorSketch
from .tensor_sketch_map import tensor_sketch as tensor_sketch

__all__ = sorted(name for name, value in globals().items() if callable(value) and name[0] != "_")
