"""Loops: the only place that runs a solver. They know no solver by name."""

from .fit import fit as fit
from .fit import step as step
from .program_cache import cache_programs as cache_programs
from .saving import SaveError as SaveError
from .select import C_grid as C_grid
from .select import select as select
from .selection import Selection as Selection
from .stream import stream as stream
from .sweep import sweep as sweep
from .xla_flags import fast_loops as fast_loops
