"""Steps that several methods share.

Each is a loss with an optax chain, a rule in a space, or a dual step in a space.
"""

from .coordinate_ascent import CoordinateSolver as CoordinateSolver
from .coordinate_ascent import coordinate as coordinate
from .gradient_descent import GradientSolver as GradientSolver
from .gradient_descent import gradient as gradient
from .online_learning import Move as Move
from .online_learning import OnlineSolver as OnlineSolver
from .online_learning import online as online
