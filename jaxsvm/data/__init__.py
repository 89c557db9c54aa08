"""Data sets from arrays and files; chunks; scaling and splits.

Chunks are for data larger than memory.
"""

from .catalogue import breast_cancer as breast_cancer
from .chunking import Chunks as Chunks
from .chunking import chunks as chunks
from .files import load as load
from .fold_numbers import folds as folds
from .from_arrays import dataset as dataset
from .scaling import Scale as Scale
from .scaling import Standardize as Standardize
from .scaling import scale as scale
from .scaling import standardize as standardize
from .sharding import shard as shard
from .splits import split as split

__all__ = sorted(name for name, value in globals().items() if callable(value) and name[0] != "_")
