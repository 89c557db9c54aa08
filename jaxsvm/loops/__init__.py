"""Loops: the only place that runs a solver. They know no solver by name."""

from .fitting import fit as fit
from .program_cache import cache_programs as cache_programs
from .saving import SaveError as SaveError
from .selecting import C_grid as C_grid
from .selecting import select as select
from .selection import Selection as Selection
from .stepping import step as step
from .streaming import stream as stream
from .sweeping import sweep as sweep
