"""One paper's method per file; the catalogue, and how to add a solver: jaxsvm/solvers/README.md."""

from .budget.bogd import bogd
from .budget.bpas import bpas
from .budget.bsca import bsca
from .budget.bsgd import bsgd
from .budget.nogd import nogd
from .dual.augmented_lagrangian import augmented_lagrangian
from .dual.block_descent import block_descent
from .dual.cocoa import cocoa
from .dual.crammer_singer import crammer_singer
from .dual.dual_descent import dual_descent
from .dual.interior_point import interior_point
from .dual.sdca import sdca
from .exact.decomposition import decomposition
from .exact.lasvm import lasvm
from .exact.nu_svc import nu_svc
from .exact.nu_svr import nu_svr
from .exact.one_class import one_class
from .exact.smo import smo
from .perceptrons.batch_perceptron import batch_perceptron
from .perceptrons.fixed_budget_perceptron import fixed_budget_perceptron
from .perceptrons.forgetron import forgetron
from .perceptrons.perceptron import perceptron
from .perceptrons.projectron import projectron, projectron_plus
from .perceptrons.random_budget_perceptron import random_budget_perceptron
from .perceptrons.sbp import sbp
from .perceptrons.stoptron import stoptron
from .perceptrons.tighter_perceptron import tighter_perceptron
from .perceptrons.tightest_perceptron import tightest_perceptron
from .planes.cpsp import cpsp
from .planes.ocas import ocas
from .planes.svm_perf import svm_perf
from .primal.asgd import asgd
from .primal.asset import asset, asset_star
from .primal.bottou_sgd import bottou_sgd
from .primal.constrained_sgd import constrained_sgd
from .primal.fogd import fogd
from .primal.kernel_pegasos import kernel_pegasos
from .primal.least_squares import least_squares
from .primal.newton import newton
from .primal.pegasos import pegasos
from .primal.proximal_newton import proximal_newton
from .primal.ridge_path import RidgePath, ridge_path
from .primal.simba import simba
from .subgradients.scs import scs
from .subgradients.subgradient import subgradient
from .subgradients.wolfe import wolfe

__all__ = [
    "RidgePath",
    "asgd",
    "asset",
    "asset_star",
    "augmented_lagrangian",
    "batch_perceptron",
    "block_descent",
    "bogd",
    "bottou_sgd",
    "bpas",
    "bsca",
    "bsgd",
    "cocoa",
    "constrained_sgd",
    "cpsp",
    "decomposition",
    "crammer_singer",
    "dual_descent",
    "fixed_budget_perceptron",
    "fogd",
    "forgetron",
    "interior_point",
    "kernel_pegasos",
    "lasvm",
    "least_squares",
    "newton",
    "nogd",
    "nu_svc",
    "nu_svr",
    "ocas",
    "one_class",
    "pegasos",
    "perceptron",
    "projectron",
    "projectron_plus",
    "proximal_newton",
    "random_budget_perceptron",
    "ridge_path",
    "sbp",
    "scs",
    "sdca",
    "simba",
    "smo",
    "stoptron",
    "subgradient",
    "svm_perf",
    "tighter_perceptron",
    "tightest_perceptron",
    "wolfe",
]
