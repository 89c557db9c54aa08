"""Steps that several methods share: loss with optax chain, rule in a space, dual step in a
space.
"""

from .coordinate import coordinate as coordinate
from .gradient import gradient as gradient
from .online import Move as Move
from .online import online as online
