"""The solver that the options of `train` and `select` name."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import jaxsvm
from jaxsvm import budget, features, kernels, losses

from ..features.landmarks import choice
from ..loops.fitting import most_updates
from ..machines import fastest_linear, newton_by_C
from ..names import KERNELS, WITH_SIGMA
from ..numerics import sqnorms
from ..recipe import check_positive
from ..types import Batch, SparseRows
from .parser import BUDGET, EXACT_ROWS, SOLVERS

UNITS = ("passes", "steps", "batch", "tol", "budget")  # whose meaning depends on the solver
LEAST = {"passes": 1, "steps": 1, "batch": 1, "budget": 2}
NUMBERS = ("sigma", "gamma", "degree", "coef0")  # of kernels


class Machine(NamedTuple):
    """What the options say of a solver, but for C and gamma."""

    make: Callable  # (C, gamma or None) -> solver
    loss: Any
    tol: float | None
    batch: int  # rows of an update; 0: all
    passes: int  # at most, or rounds of all rows
    steps: int  # at most
    text: str


def machine(args: Any, rows: Batch, classes: tuple, key: Any) -> Machine:
    """The solver of the options, checked; sets --kernel, --solver and --features where open.

    Args:
        args: the options.
        rows: of the training set.
        classes: of the rows; () for real targets.
        key: of the feature map.

    Raises:
        ValueError: options that do not go with each other, or with the rows.
    """
    choose(args, rows, classes)
    factory = newton_by_C if args.solver == "newton" else getattr(jaxsvm, args.solver)
    takes = inspect.signature(factory).parameters
    check(args, classes, takes)
    defaults, n, total = SOLVERS[args.solver], len(rows.y), float(jnp.sum(rows.weight))
    loss, bias = default_loss(args, classes), args.bias or defaults.biases[0]
    tol = defaults.tol if args.tol is None else args.tol
    batch = min(n, args.batch or defaults.batch)
    one_pass = -(-n // batch) if batch else 1
    # with a criterion, small data sets may take more passes
    most = defaults.passes if tol is None or not batch else max(defaults.passes, 500_000 // n)
    most = max(most, most_updates(n)) if "tol" in takes and not batch else most
    passes = args.passes or most
    steps, points = args.steps or passes * one_pass, args.budget or BUDGET
    coef0 = float(args.kernel == "polynomial") if args.coef0 is None else args.coef0
    degree = 3 if args.degree is None else args.degree
    wrap = jaxsvm.one_vs_one if args.multiclass == "ovo" else jaxsvm.one_vs_rest

    @functools.cache  # one map for all values of C
    def kernel_and_map(gamma: float | None) -> tuple[Any, Any]:
        kernel, name = kernels.by_name(args.kernel, gamma, coef0, degree), args.features
        choose = args.landmarks or "uniform"
        return kernel, name and feature_map(name, key, kernel, rows.x, args.count, choose)

    def make(C: float, gamma: float | None = None) -> Any:
        kernel, phi = kernel_and_map(gamma)
        lam, is_linear = jaxsvm.lam_from_C(C, total), phi is not None or args.kernel == "linear"
        given = {
            "C": C, "lam": lam, "loss": loss, "bias": bias, "budget": points, "average": True,
            "kernel": None if is_linear and not needs_kernel(takes) else kernel,
            "average_from": one_pass if args.solver == "asgd" else steps // 2,
            "blocks": jax.device_count(), "project": bool(loss.labels),
        }  # fmt: skip
        if "maintain" in takes:
            given["maintain"] = budget.default_for(kernel)
        if "offset" in takes:
            squares = sqnorms(rows.x) if args.kernel == "linear" else kernel.diag(rows.x)
            given["offset"] = (float(jnp.max(squares)) + (bias == "feature")) / lam
        solver = factory(**{name: value for name, value in given.items() if name in takes})
        if args.solver == "pegasos":
            solver = jaxsvm.averaged(solver, weights=_growing)
        if tol is not None and solver.residual_of != "data":
            raise ValueError(
                f"--tol has nothing to stop on with --solver {args.solver}: give --passes, or take "
                "sdca"
            )
        if len(classes) > 2 or args.task == "multiclass":
            solver = wrap(solver, classes=len(classes))
        return solver if phi is None else jaxsvm.on_features(phi, solver)

    what = f"{args.features} features of {args.kernel}" if args.features else args.kernel
    length = f"{args.steps} steps" if args.steps else f"{passes} {'passes' if batch else 'rounds'}"
    text = f"{args.solver}, {what}, bias {bias}, at most {length}"
    text += f", at most {points} points" if "budget" in takes else ""
    text += "" if tol is None else f", tolerance {tol:g}"
    return Machine(make, loss, tol, batch, passes, steps, text)


def choose(args: Any, rows: Batch, classes: tuple) -> None:
    """Set --kernel, --solver and --features where they are not given."""
    selects = args.module == "select"
    args.kernel = args.kernel or ("rbf" if selects or args.features else "linear")
    if args.solver is not None:
        return
    args.solver = "sdca"
    if args.kernel != "linear" and selects and args.features is None:
        small = len(rows.y) <= EXACT_ROWS[len(classes) > 2]
        args.solver, args.features = ("decomposition", None) if small else ("sdca", "nystrom")
    # --seconds asks train for a run that may stop at any time
    units = UNITS if selects else (*UNITS, "seconds")
    if args.kernel == "linear" and all(getattr(args, name) is None for name in units):
        is_dense = not isinstance(rows.x, SparseRows)
        n, d = rows.x.shape
        name = fastest_linear(default_loss(args, classes), n, d, is_dense)
        others = {"augmented_lagrangian": "interior_point", "dual_descent": "sdca"}
        args.solver = others.get(name, name)


def default_loss(args: Any, classes: tuple) -> Any:
    """The loss of --loss, or that of the solver for classes or for real targets."""
    loss = losses.by_name(args.loss or SOLVERS[args.solver].loss(not classes))
    if args.loss and loss.labels != bool(classes):
        kind = "classes" if loss.labels else "real targets (--task regression)"
        raise ValueError(f"--loss {args.loss} is for {kind}")
    return loss


def needs_kernel(takes: Mapping[str, inspect.Parameter]) -> bool:
    """Whether a solver with these parameters cannot be made without a kernel."""
    return "kernel" in takes and takes["kernel"].default is inspect.Parameter.empty


def check_least(args: Any) -> None:
    """Raise ValueError for a number of --passes, --steps, --batch or --budget that is too small."""
    for name, least in LEAST.items():
        what, number = ", the points that the model may have", getattr(args, name)
        if number is not None and number < least:
            what = what if name == "budget" else ""
            raise ValueError(f"--{name} must be at least {least}{what}, got {number}")


def check(args: Any, classes: tuple, takes: Mapping[str, inspect.Parameter]) -> None:
    """Raise ValueError for options that do not go with each other, or with the solver."""
    check_least(args)
    solver, kernel, biases = f"--solver {args.solver}", args.kernel, SOLVERS[args.solver].biases
    own = KERNELS[kernel] + (("sigma",) if kernel in WITH_SIGMA else ())
    foreign = [name for name in NUMBERS if name not in own and getattr(args, name) is not None]
    curved, has_loss, exact = kernel != "linear", "loss" in takes, needs_kernel(takes)
    many = len(classes) > 2 or args.task == "multiclass"
    for is_wrong, sentence in (
        (foreign, f"the {kernel} kernel has no --{' and no --'.join(foreign)}"),
        (args.features and not curved, "--features approximate a kernel: say which, --kernel rbf"),
        (args.count is not None and not args.features,
         "--count is a number of features: say which, --features nystrom"),
        (args.landmarks and args.features != "nystrom",
         "--landmarks are those of --features nystrom: add it, or leave --landmarks out"),
        (curved and not args.features and "kernel" not in takes,
         f"{solver} is linear: add --features nystrom, or take --solver sdca"),
        (args.features and exact, f"{solver} solves the problem of the kernel itself: leave "
         "--features out, or take sdca"),
        (exact and not has_loss and not curved,
         f"{solver} needs a kernel, such as --kernel rbf, and no --features"),
        (args.bias and args.bias not in biases,
         f"{solver} takes --bias {' or '.join(biases)}, got {args.bias}"),
        (args.loss and not has_loss, f"{solver} has a loss of its own: leave --loss out"),
        (not classes and not has_loss, f"{solver} is for classes: take sdca, decomposition, "
         "pegasos or asset for real targets"),
        (args.budget is not None and "budget" not in takes,
         f"{solver} has no budget: leave --budget out, or take --solver bsca or bsgd"),
        (args.multiclass and not many, "--multiclass is for more than two classes: leave it out"),
    ):  # fmt: skip
        if is_wrong:
            raise ValueError(sentence)


def gamma_of(args: Any, x: Any) -> float | None:
    """The gamma of the kernel of `train` for rows x; None: the kernel takes none."""
    if args.sigma is None or "gamma" not in KERNELS[args.kernel]:
        return 1 / (x.shape[1] * (variance_of(x) or 1.0)) if args.gamma is None else args.gamma
    if args.gamma is not None:
        raise ValueError("--sigma and --gamma say the same: give one of them")
    check_positive(sigma=args.sigma)
    return 1 / args.sigma if args.kernel == "laplacian" else 1 / (2 * args.sigma**2)


def variance_of(x: Any) -> float:
    """The variance of all entries of the rows, implicit zeros included."""
    values = np.asarray(x.value if isinstance(x, SparseRows) else x).ravel()
    size = float(np.prod(x.shape))
    mean = float(np.sum(values, dtype=np.float64)) / size
    return max(float(np.vdot(values, values)) / size - mean * mean, 0.0)


def feature_map(
    name: str, key: Any, kernel: Any, x: Any, count: int | None, landmarks: str = "uniform"
) -> Any:
    """The map of a kernel; count=None: 512, of nystrom at most the number of rows."""
    if name == "nystrom":
        count = min(512, x.shape[0]) if count is None else count
        return features.nystrom(key, kernel, x, landmarks=count, choose=choice(landmarks))
    shift = {"x": x} if name in ("fourier", "orthogonal") else {}
    count = 512 if count is None else count
    return getattr(features, name)(key, kernel, dim=x.shape[1], features=count, **shift)


def _growing(t: Any) -> Any:
    return t + 1
