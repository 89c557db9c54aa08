"""Budget maintenance: which point of a full budget goes, and what becomes of the others."""

from .merge import merge as merge
from .merge import suited as suited
from .points import Change as Change
from .points import Maintenance as Maintenance
from .points import Points as Points
from .points import given_up as given_up
from .points import maintenance as maintenance
from .points import taken as taken
from .project import project as project
from .remove import remove as remove
