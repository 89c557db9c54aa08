"""The names of `jaxsvm`, gathered. The package imports this module where a name is first used."""

from typing import Any as _Any

# The types and the recipe
# Modules with more names than are gathered here
from . import averaging as averaging
from . import budget as budget
from . import data as data
from . import features as features
from . import kernels as kernels
from . import losses as losses
from . import models as models
from . import objectives as objectives
from . import projections as projections
from . import samplers as samplers
from . import schedules as schedules
from . import spaces as spaces
from . import wrappers as wrappers

# Averages and projections, as optax transforms
from .averaging import average_iterates as average_iterates
from .averaging import averaged_params as averaged_params

# Data
from .data import dataset as dataset
from .data import shard as shard

# Engines: what a solver of your own is made of
from .engines import coordinate as coordinate
from .engines import gradient as gradient
from .engines import online as online

# Loops
from .loops import C_grid as C_grid
from .loops import SaveError as SaveError
from .loops import Selection as Selection
from .loops import cache_programs as cache_programs
from .loops import fast_loops as fast_loops
from .loops import fit as fit
from .loops import select as select
from .loops import step as step
from .loops import stream as stream
from .loops import sweep as sweep

# Objectives, certificates, probes
from .objectives import C_from_lam as C_from_lam
from .objectives import certificate as certificate
from .objectives import error_on as error_on
from .objectives import kkt_residual as kkt_residual
from .objectives import lam_from_C as lam_from_C
from .objectives import nu_certificate as nu_certificate
from .objectives import nu_from as nu_from
from .objectives import risk_on as risk_on
from .projections import keep as keep
from .recipe import register as register
from .recipe import solver as solver
from .recipe import static as static
from .recipe import struct as struct

# Solvers
from .solvers import RidgePath as RidgePath
from .solvers import asgd as asgd
from .solvers import asset as asset
from .solvers import asset_star as asset_star
from .solvers import augmented_lagrangian as augmented_lagrangian
from .solvers import batch_perceptron as batch_perceptron
from .solvers import bogd as bogd
from .solvers import bottou_sgd as bottou_sgd
from .solvers import bpas as bpas
from .solvers import bsca as bsca
from .solvers import bsgd as bsgd
from .solvers import cocoa as cocoa
from .solvers import constrained_sgd as constrained_sgd
from .solvers import cpsp as cpsp
from .solvers import decomposition as decomposition
from .solvers import fixed_budget_perceptron as fixed_budget_perceptron
from .solvers import fogd as fogd
from .solvers import forgetron as forgetron
from .solvers import interior_point as interior_point
from .solvers import kernel_pegasos as kernel_pegasos
from .solvers import lasvm as lasvm
from .solvers import least_squares as least_squares
from .solvers import newton as newton
from .solvers import nogd as nogd
from .solvers import nu_svc as nu_svc
from .solvers import nu_svr as nu_svr
from .solvers import ocas as ocas
from .solvers import one_class as one_class
from .solvers import pegasos as pegasos
from .solvers import perceptron as perceptron
from .solvers import projectron as projectron
from .solvers import projectron_plus as projectron_plus
from .solvers import random_budget_perceptron as random_budget_perceptron
from .solvers import ridge_path as ridge_path
from .solvers import sbp as sbp
from .solvers import scs as scs
from .solvers import sdca as sdca
from .solvers import simba as simba
from .solvers import smo as smo
from .solvers import stoptron as stoptron
from .solvers import subgradient as subgradient
from .solvers import svm_perf as svm_perf
from .solvers import tighter_perceptron as tighter_perceptron
from .solvers import tightest_perceptron as tightest_perceptron
from .solvers import wolfe as wolfe
from .types import Batch as Batch
from .types import Certificate as Certificate
from .types import Curve as Curve
from .types import Fit as Fit
from .types import Info as Info
from .types import Lifted as Lifted
from .types import Loss as Loss
from .types import Run as Run
from .types import Sampler as Sampler
from .types import Sharing as Sharing
from .types import Solver as Solver
from .types import Space as Space
from .types import SparseRows as SparseRows
from .types import take as take

# Wrappers: a solver -> a solver
from .wrappers import OneVsOne as OneVsOne
from .wrappers import OneVsRest as OneVsRest
from .wrappers import averaged as averaged
from .wrappers import on_features as on_features
from .wrappers import one_vs_one as one_vs_one
from .wrappers import one_vs_rest as one_vs_rest

_MODULES: list[_Any] = [averaging, budget, data, features, kernels, losses, models]
_MODULES += [objectives, projections, samplers, schedules, spaces, wrappers]
for _module in _MODULES:
    _module.__dir__ = _module.__all__.copy  # `jaxsvm.kernels.<TAB>` offers kernels only
