"""Models: decision functions as callable pytrees, their files, and those of other programs."""

from .exported_programs import export as export
from .functions import Expansion as Expansion
from .functions import Linear as Linear
from .functions import Mapped as Mapped
from .functions import Support as Support
from .functions import expansion as expansion
from .functions import support_index as support_index
from .libsvm import from_libsvm as from_libsvm
from .libsvm import to_libsvm as to_libsvm
from .multiclass import MultiOutput as MultiOutput
from .multiclass import OneVsOne as OneVsOne
from .multiclass import OneVsRest as OneVsRest
from .predictions import Classes as Classes
from .predictions import Classifier as Classifier
from .predictions import Labels as Labels
from .predictions import MultiLabel as MultiLabel
from .predictions import Named as Named
from .predictions import check_values as check_values
from .predictions import class_places as class_places
from .predictions import classes_of as classes_of
from .predictions import decision_values as decision_values
from .predictions import names_of as names_of
from .serialization import check_savable as check_savable
from .serialization import load as load
from .serialization import save as save
from .sklearn_models import from_sklearn as from_sklearn
from .sklearn_models import to_sklearn as to_sklearn

# what other parts of the package read, and users do not
_OWN = {"Named", "check_savable", "check_values", "class_places", "classes_of", "expansion"}
_OWN |= {"names_of", "support_index"}
_public = {name for name, value in globals().items() if callable(value) and name[0] != "_"}
__all__ = sorted(_public - _OWN)
