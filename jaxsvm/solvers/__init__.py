"""One method per file; see the table in README for the sections of the papers."""

from .asgd import asgd as asgd
from .asset import asset as asset
from .asset import asset_star as asset_star
from .bottou_sgd import bottou_sgd as bottou_sgd
from .constrained_sgd import constrained_sgd as constrained_sgd
from .decomposition import decomposition as decomposition
from .kernel_pegasos import kernel_pegasos as kernel_pegasos
from .lasvm import lasvm as lasvm
from .pegasos import pegasos as pegasos
from .perceptron import perceptron as perceptron
from .sdca import sdca as sdca
from .smo import smo as smo
from .subgradient import subgradient as subgradient
