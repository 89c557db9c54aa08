"""Loops: the only place that runs a solver. They know no solver by name."""

from .flags import fast_loops as fast_loops
from .runs import fit as fit
from .runs import step as step
from .saving import SaveError as SaveError
from .streams import stream as stream
from .sweeps import sweep as sweep
