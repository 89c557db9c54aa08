"""One paper's method per file; the catalogue, and how to add a solver: jaxsvm/solvers/README.md."""

from .budget.bogd import bogd as bogd
from .budget.bpas import bpas as bpas
from .budget.bsca import bsca as bsca
from .budget.bsgd import bsgd as bsgd
from .budget.nogd import nogd as nogd
from .dual.augmented_lagrangian import augmented_lagrangian as augmented_lagrangian
from .dual.block_descent import block_descent as block_descent
from .dual.cocoa import cocoa as cocoa
from .dual.crammer_singer import crammer_singer as crammer_singer
from .dual.dual_descent import dual_descent as dual_descent
from .dual.interior_point import interior_point as interior_point
from .dual.sdca import sdca as sdca
from .exact.decomposition import decomposition as decomposition
from .exact.lasvm import lasvm as lasvm
from .exact.nu_svc import nu_svc as nu_svc
from .exact.nu_svr import nu_svr as nu_svr
from .exact.one_class import one_class as one_class
from .exact.smo import smo as smo
from .perceptrons.batch_perceptron import batch_perceptron as batch_perceptron
from .perceptrons.fixed_budget_perceptron import fixed_budget_perceptron as fixed_budget_perceptron
from .perceptrons.forgetron import forgetron as forgetron
from .perceptrons.perceptron import perceptron as perceptron
from .perceptrons.projectron import projectron as projectron
from .perceptrons.projectron import projectron_plus as projectron_plus
from .perceptrons.random_budget_perceptron import (
    random_budget_perceptron as random_budget_perceptron,
)
from .perceptrons.sbp import sbp as sbp
from .perceptrons.stoptron import stoptron as stoptron
from .perceptrons.tighter_perceptron import tighter_perceptron as tighter_perceptron
from .perceptrons.tightest_perceptron import tightest_perceptron as tightest_perceptron
from .planes.cpsp import cpsp as cpsp
from .planes.ocas import ocas as ocas
from .planes.svm_perf import svm_perf as svm_perf
from .primal.asgd import asgd as asgd
from .primal.asset import asset as asset
from .primal.asset import asset_star as asset_star
from .primal.bottou_sgd import bottou_sgd as bottou_sgd
from .primal.constrained_sgd import constrained_sgd as constrained_sgd
from .primal.fogd import fogd as fogd
from .primal.kernel_pegasos import kernel_pegasos as kernel_pegasos
from .primal.least_squares import least_squares as least_squares
from .primal.newton import newton as newton
from .primal.pegasos import pegasos as pegasos
from .primal.proximal_newton import proximal_newton as proximal_newton
from .primal.ridge_path import RidgePath as RidgePath
from .primal.ridge_path import ridge_path as ridge_path
from .primal.simba import simba as simba
from .subgradients.scs import scs as scs
from .subgradients.subgradient import subgradient as subgradient
from .subgradients.wolfe import wolfe as wolfe

__all__ = sorted(name for name, value in globals().items() if callable(value) and name[0] != "_")
