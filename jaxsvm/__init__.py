"""Support vector machines in JAX: pure solvers that are scanned, swept, resumed and certified.

A map of the package. Each name has its own help, such as `help(jaxsvm.fit)`.

    rows         dataset, take, column, shard; data: files, splits, scaling, chunks
    machines     linear_svm, kernel_svm: the fastest exact method for the rows
    solvers      pegasos, sdca, newton, decomposition and 40 others: dir(jaxsvm.solvers)
    pieces       losses, kernels, features, samplers, schedules, projections, averaging, budget
    wrappers     averaged, on_features, one_vs_rest, one_vs_one, multi_output: Solver -> Solver
    loops        fit, select, sweep, stream, step
    results      Fit: model, predict, classifier, status, info; Selection; models: save, load
    answers      calibrate, conformal
    programs     cache_programs
    judgement    certificate, kkt_residual; metrics: error_on, risk_on, auc_on; objectives
    conversions  lam_from_C, C_from_lam, nu_from
    pictures     plots, with the extra "plot"
    estimators   SVC, LinearSVC, SVR, GridCV and others, with the extra "sklearn"
    your own     node, Solver, gradient, online, coordinate, Move, spaces; testing

Five lines:

    data = jaxsvm.dataset(x, y)                              # (n, d) numbers, (n,) classes
    machine = jaxsvm.kernel_svm(C=1.0, kernel=jaxsvm.kernels.rbf(gamma=0.1))
    result = jaxsvm.fit(machine, data, jax.random.key(0))
    print(result)                                            # what was fitted, how it ended
    result.predict(new_rows)                                 # the names in y
"""

import importlib as _importlib
from typing import Any as _Any

# Modules with more names than are gathered here
from . import averaging as averaging
from . import budget as budget
from . import calibration as calibration
from . import data as data
from . import features as features
from . import kernels as kernels
from . import losses as losses
from . import metrics as metrics
from . import models as models
from . import objectives as objectives
from . import projections as projections
from . import samplers as samplers
from . import schedules as schedules
from . import spaces as spaces
from . import wrappers as wrappers
from .__about__ import __version__ as __version__
from ._node import Node as Node
from ._node import between as between
from ._node import node as node
from ._node import positive as positive
from ._node import register as register
from ._node import static as static
from ._node import struct as struct

# Averages and projections, as optax transforms
from .averaging import average_iterates as average_iterates
from .averaging import averaged_params as averaged_params

# Probabilities, sets and intervals
from .calibration import calibrate as calibrate
from .coverage import conformal as conformal

# Data
from .data import dataset as dataset
from .data import shard as shard

# Engines: what a solver of your own is made of
from .engines import Move as Move
from .engines import coordinate as coordinate
from .engines import gradient as gradient
from .engines import online as online

# Loops
from .loops import C_grid as C_grid
from .loops import SaveError as SaveError
from .loops import Selection as Selection
from .loops import cache_programs as cache_programs
from .loops import fit as fit
from .loops import select as select
from .loops import step as step
from .loops import stream as stream
from .loops import sweep as sweep

# Machines by the fastest method
from .machines import kernel_svm as kernel_svm
from .machines import linear_svm as linear_svm

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

# Solvers
from .solvers import *  # noqa: F403
from .types import Batch as Batch
from .types import Certificate as Certificate
from .types import Curve as Curve
from .types import Fit as Fit
from .types import Info as Info
from .types import Lifted as Lifted
from .types import Loss as Loss
from .types import RunState as RunState
from .types import Sampler as Sampler
from .types import Solver as Solver
from .types import Space as Space
from .types import SparseRows as SparseRows
from .types import Wrapper as Wrapper
from .types import column as column
from .types import take as take

# Wrappers: a solver -> a solver
from .wrappers import OneVsOne as OneVsOne
from .wrappers import OneVsRest as OneVsRest
from .wrappers import averaged as averaged
from .wrappers import multi_output as multi_output
from .wrappers import on_features as on_features
from .wrappers import one_vs_one as one_vs_one
from .wrappers import one_vs_rest as one_vs_rest

_MODULES: list[_Any] = [averaging, budget, data, features, kernels, losses, metrics, models]
_MODULES += [objectives, projections, samplers, schedules, spaces, wrappers]
for _module in _MODULES:
    _module.__dir__ = _module.__all__.copy  # `jaxsvm.kernels.<TAB>` offers kernels only

_ON_FIRST_USE = ("estimators", "plots", "testing")  # the first two need extras


def __getattr__(name: str) -> _Any:
    if name not in _ON_FIRST_USE:
        raise AttributeError(f"module 'jaxsvm' has no attribute {name!r}")
    try:
        return _importlib.import_module(f"jaxsvm.{name}")
    # an AttributeError, so that `help(jaxsvm)` works without the extras
    except ImportError as error:
        raise AttributeError(f"jaxsvm.{name} cannot be imported: {error}") from error


def __dir__() -> list[str]:
    return sorted({*globals(), *_ON_FIRST_USE})
