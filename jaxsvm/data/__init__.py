"""Ways in for rows: checked arrays, files, data sets by name, chunks of what is too large for memory; scaling, splits."""

from .labels import encode as encode
from .maps import Standardize as Standardize
from .maps import standardize as standardize
from .named import breast_cancer as breast_cancer
from .rows import dataset as dataset
from .splits import split as split
