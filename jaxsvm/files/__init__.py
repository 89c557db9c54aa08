"""Files: atomic writing, and arrays whose checksums are compared when they are read."""

from .arrays import read_arrays as read_arrays
from .atomic import atomic_path as atomic_path
from .atomic import check_target as check_target
from .atomic import refuse_special as refuse_special
from .interrupt import DeferredInterrupt as DeferredInterrupt
