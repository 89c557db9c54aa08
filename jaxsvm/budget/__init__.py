"""Budget maintenance: which point leaves a full budget, and how the others compensate for it."""

from .base import Change as Change
from .base import Maintenance as Maintenance
from .base import MatrixMaintenance as MatrixMaintenance
from .base import Points as Points
from .base import occupied as occupied
from .base import remove_point as remove_point
from .merging import default_for as default_for
from .merging import merge as merge
from .projection import project as project
from .removal import remove as remove

__all__ = ["Change", "Maintenance", "Points", "merge", "project", "remove", "remove_point"]
