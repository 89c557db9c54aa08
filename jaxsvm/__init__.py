"""Support vector machines in JAX: pure solvers that are scanned, swept, resumed and certified.

A map of the package. Each name has its own help, such as `help(jaxsvm.fit)`.

    rows         dataset, take, column, shard; data: files, splits, scaling, chunks
    machines     linear_svm, kernel_svm: the fastest exact method for the rows
    solvers      pegasos, sdca, newton, decomposition and 40 others: dir(jaxsvm.solvers)
    pieces       losses, kernels, features, samplers, schedules, projections, averaging, budget
    wrappers     averaged, on_features, one_vs_rest, one_vs_one, multi_output: solver -> solver
    loops        fit, select, sweep, stream, step
    results      Fit: model, predict, classifier, status, info; Selection; models: save, load
    answers      calibrate, conformal
    programs     cache_programs
    judgement    certificate, kkt_residual; metrics: error_on, risk_on, auc_on; objectives
    conversions  lam_from_C, C_from_lam, nu_from
    pictures     plots, with the extra "plot"
    estimators   SVC, LinearSVC, SVR, SVCCV and others, with the extra "sklearn"
    your own     solver, loss, sampler, gradient, online, coordinate, Move, spaces; testing

Five lines:

    data = jaxsvm.dataset(x, y)                              # (n, d) numbers, (n,) classes
    machine = jaxsvm.kernel_svm(C=1.0, kernel=jaxsvm.kernels.rbf(gamma=0.1))
    result = jaxsvm.fit(machine, data, jax.random.key(0))
    print(result)                                            # what was fitted, how it ended
    result.predict(new_rows)                                 # the names in y
"""

import importlib as _importlib
import sys as _sys
from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any as _Any

from .__about__ import __version__ as __version__

if _TYPE_CHECKING:
    from .api import *  # noqa: F403

_ON_FIRST_USE = ("estimators", "plots", "testing")  # the first two need extras


def __getattr__(name: str) -> _Any:
    """Import the package where one of its names is first used.

    JAX takes about a second to import, and the command line checks its arguments before that.
    """
    if name == "__all__":  # `from jaxsvm import *` then takes what is there
        _load()
    if name.startswith("__") or _in_own_import():
        raise AttributeError(f"module 'jaxsvm' has no attribute {name!r}")
    _load()
    if name in globals():
        return globals()[name]
    if name not in _ON_FIRST_USE:
        raise AttributeError(f"module 'jaxsvm' has no attribute {name!r}")
    try:
        return _importlib.import_module(f"jaxsvm.{name}")
    # an AttributeError, so that `help(jaxsvm)` works without the extras
    except ImportError as error:
        raise AttributeError(f"jaxsvm.{name} cannot be imported: {error}") from error


def __dir__() -> list[str]:
    _load()
    return sorted({*globals(), *_ON_FIRST_USE})


def _load() -> None:
    """Make the names of `jaxsvm.api` those of this module."""
    names = vars(_importlib.import_module("jaxsvm.api"))
    globals().update({name: value for name, value in names.items() if not name.startswith("_")})


def _in_own_import() -> bool:
    """Whether `from .. import module` within the package asks: that imports this module only."""
    importer = _sys._getframe(2)
    if importer.f_globals.get("__name__") != "importlib._bootstrap":
        return False
    asking = importer.f_back
    return asking is not None and asking.f_globals.get("__name__", "").split(".")[0] == __name__
