"""Steps that several methods share.

Each is a loss with an optax chain, a rule in a space, or a dual step in a space.
"""

from .coordinate import coordinate as coordinate
from .gradient import gradient as gradient
from .online import Move as Move
from .online import online as online
