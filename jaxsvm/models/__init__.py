"""Models: decision functions as callable pytrees, saved and loaded without pickle."""

from .functions import BIASES as BIASES
from .functions import Classifier as Classifier
from .functions import Expansion as Expansion
from .functions import Linear as Linear
from .functions import Mapped as Mapped
from .functions import Support as Support
from .functions import check_values as check_values
from .functions import class_places as class_places
from .functions import expansion as expansion
from .functions import support_index as support_index
from .serialization import check_savable as check_savable
from .serialization import load as load
from .serialization import load_notes as load_notes
from .serialization import save as save

__all__ = ["Classifier", "Expansion", "Linear", "Mapped", "Support", "load", "load_notes", "save"]
