"""Models: decision functions as callable pytrees, their files, and those of other programs."""

from .export import export as export
from .from_sklearn import from_sklearn as from_sklearn
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
from .libsvm import from_libsvm as from_libsvm
from .libsvm import to_libsvm as to_libsvm
from .multiclass import OneVsOne as OneVsOne
from .multiclass import OneVsRest as OneVsRest
from .serialization import check_savable as check_savable
from .serialization import load as load
from .serialization import load_notes as load_notes
from .serialization import save as save

__all__ = [
    "Classifier",
    "Expansion",
    "Linear",
    "Mapped",
    "OneVsOne",
    "OneVsRest",
    "Support",
    "export",
    "from_libsvm",
    "from_sklearn",
    "load",
    "load_notes",
    "save",
    "to_libsvm",
]
