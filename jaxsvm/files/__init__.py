"""Files: atomic writing, and arrays whose sizes are checked before they are read."""

from .atomic import atomic_path as atomic_path
from .atomic import check_target as check_target
from .fields import check_field as check_field
from .fields import check_front as check_front
from .fields import shape_of as shape_of
from .interrupt import DeferredInterrupt as DeferredInterrupt
from .npz import MEMBERS as MEMBERS
from .npz import ArrayHeader as ArrayHeader
from .npz import Npz as Npz
from .npz import is_damage as is_damage
from .npz import open_npz as open_npz
from .npz import read_array as read_array
from .npz import read_header as read_header
from .npz import refuse_special as refuse_special
