"""Budget maintenance: which point of a full budget goes, and what becomes of the others."""

from .merge import default_for as default_for
from .merge import merge as merge
from .points import Change as Change
from .points import Maintenance as Maintenance
from .points import Points as Points
from .points import maintenance as maintenance
from .points import occupied as occupied
from .points import remove_point as remove_point
from .project import project as project
from .remove import remove as remove
