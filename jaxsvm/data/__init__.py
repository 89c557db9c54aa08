"""Data sets from arrays, files and catalogues; chunks; scaling and splits.

Chunks are for data larger than memory.
"""

from .assemble import Loaded as Loaded
from .catalogue import breast_cancer as breast_cancer
from .chunking import Chunks as Chunks
from .chunking import chunks as chunks
from .class_numbers import encode as encode
from .csv import load_csv as load_csv
from .files import load as load
from .fold_numbers import folds as folds
from .formats import load_file as load_file
from .from_arrays import dataset as dataset
from .mapped_files import memory_map as memory_map
from .npz import load_npz as load_npz
from .save import save_csv as save_csv
from .save import save_npz as save_npz
from .save import save_svmlight as save_svmlight
from .scaling import Scale as Scale
from .scaling import Standardize as Standardize
from .scaling import scale as scale
from .scaling import standardize as standardize
from .sharding import shard as shard
from .splits import split as split
from .svmlight import load_svmlight as load_svmlight

__all__ = [
    "Chunks",
    "Loaded",
    "Scale",
    "Standardize",
    "breast_cancer",
    "chunks",
    "dataset",
    "encode",
    "folds",
    "load",
    "load_csv",
    "load_file",
    "load_npz",
    "load_svmlight",
    "memory_map",
    "save_csv",
    "save_npz",
    "save_svmlight",
    "scale",
    "shard",
    "split",
    "standardize",
]
