"""Budget maintenance: which point leaves a full budget, and how the others compensate for it."""

from .base import Change as Change
from .base import Maintenance as Maintenance
from .base import Points as Points
from .base import maintenance as maintenance
from .base import occupied as occupied
from .base import remove_point as remove_point
from .merge import default_for as default_for
from .merge import merge as merge
from .project import project as project
from .remove import remove as remove

__all__ = [
    "Change",
    "Maintenance",
    "Points",
    "maintenance",
    "merge",
    "project",
    "remove",
    "remove_point",
]
