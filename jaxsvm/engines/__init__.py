"""The steps that several methods share: loss x optax chain, rule x space, dual step x space."""

from .coordinate import coordinate as coordinate
from .gradient import gradient as gradient
from .online import Move as Move
from .online import online as online
