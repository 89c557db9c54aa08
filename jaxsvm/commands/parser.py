"""All commands and their options.

This module imports nothing but the standard library, so that wrong arguments are told at once.
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import math
import sys
from typing import Any, NoReturn

from ..__about__ import __version__
from .output import show

SOLVERS = {
    "sdca": "dual coordinate ascent, linear or with a kernel: no step size, stops by itself",
    "interior_point": "interior point method, linear or on features: up to 1,000 columns, exact",
    "augmented_lagrangian": "the same for many rows, in float32: up to 1,000 columns",
    "decomposition": (
        "the kernel machine of LIBSVM, exactly, a block of rows at a time: up to some 50,000 rows"
    ),
    "smo": "the same a pair of rows at a time",
    "pegasos": "stochastic subgradients with step 1/(lambda t), averaged",
    "kernel_pegasos": "Pegasos with a kernel",
    "bsca": (
        "dual coordinate ascent with a kernel, a model of --budget points: any number of "
        "rows, stops by itself"
    ),
    "bsgd": "Pegasos with a kernel, a model of --budget points",
    "asset": "robust stochastic subgradients, for features of a kernel",
    "asset_star": "the same with steps 1/(lambda t)",
    "bottou_sgd": "SGD with Bottou's schedule",
    "asgd": "averaged SGD",
    "subgradient": "subgradients of all rows",
    "cocoa": "dual coordinate ascent of several --processes at once, its default there",
    "newton": "Newton steps for squared_hinge (its default), logistic, squared, smooth_hinge",
    "ocas": "cutting planes with a line search: few passes of all rows, stops by itself",
    "svm_perf": "cutting planes of the mean loss, the one-slack form",
    "perceptron": "averaged perceptron, linear or with a kernel; no lambda",
}  # and what they are
LOSSES = (
    "hinge", "squared_hinge", "logistic", "squared", "smooth_hinge", "eps_insensitive", "pinball",
)  # fmt: skip
KERNELS = ("linear", "rbf", "laplacian", "polynomial", "sigmoid")
FEATURES = ("nystrom", "fourier", "orthogonal")
BUDGET = 500  # default number of points
# rows up to which `select` takes the exact kernel machine: of at most two classes, and of more
EXACT_ROWS = (5000, 2000)
MOST_NUMBERS = 100_000  # of a range
SCALES = {
    "standardize": "columns to mean 0, deviation 1",
    "unit": "columns to [0, 1], sparse ones to [-1, 1]",
    "none": "values as they are",
}
EXAMPLES = """\
examples:
  jaxsvm train adult.svm --test adult.t --model adult.npz     a linear machine, and its error
  jaxsvm train adult.svm --kernel rbf --features nystrom --hold-out 0.2 --model adult.npz
  jaxsvm predict adult.npz new.svm --out classes.txt          a class name for each row
  jaxsvm sweep adult.svm --plot sweep.png                     find good values of lambda and sigma
  jaxsvm select adult.csv --plot grid.png --model adult.npz   choose C and gamma, and train
  jaxsvm info adult.npz                                       what a model is
  jaxsvm convert adult.svm adult.csv                          from one format to another

files: svmlight (LIBSVM), also .gz and .bz2; .npz with arrays x and y; CSV with a column of labels
(the last). `jaxsvm train --help` explains the options of a command. Without a command a small real
data set is swept, as a demonstration.
"""
TRAIN_EXAMPLES = """\
examples:
  jaxsvm train rows.svm --model model.npz                      a linear machine, C = 1
  jaxsvm train rows.csv --label class --positive spam --hold-out 0.2 --model model.npz
  jaxsvm train rows.npz --solver decomposition --kernel rbf --C 10 --model model.npz
  jaxsvm train rows.svm --kernel rbf --features nystrom --count 1024 --model model.npz
  jaxsvm train rows.svm --solver bsca --kernel rbf --budget 200 --model model.npz
  jaxsvm train rows.svm --solver pegasos --lam 1e-4 --passes 50 --test other.svm --model model.npz

`decomposition` is exact, for up to some 50,000 rows. `nystrom` is for many rows. `bsca` makes a
small kernel model of many rows. With --processes K, each of K calls trains on its own file:
  jaxsvm train part-0.svm --processes 2 --process 0 --coordinator localhost:1234 --model model.npz
Ctrl-C ends the run and keeps the model after the last complete
chunk of steps.
"""
PREDICT_EXAMPLES = """\
examples:
  jaxsvm predict model.npz new.svm                        a class name for each row
  jaxsvm predict model.npz new.csv --out classes.txt      to a file; the error, if there are labels
  jaxsvm predict model.npz new.svm --scores               the decision values beside the names
  zcat new.csv.gz | jaxsvm predict model.npz -            rows from the standard input

A CSV file with as many columns as the model takes has no labels; with one more, --label says which
they are.
"""
SWEEP_EXAMPLES = """\
examples:
  jaxsvm sweep rows.svm                            8 lambdas x 8 sigmas, a table of errors
  jaxsvm sweep rows.csv --lam 1e-6:1e-2:5 --sigma 1,2,4,8 --plot sweep.png --out sweep.csv
  jaxsvm sweep rows.svm --features fourier --count 512 --model best.npz

The model is the best point, trained on all rows. A range is LOW:HIGH:COUNT, even in the logarithm,
or numbers with commas. Sigma is the width of the Gaussian kernel in units of the scaled columns.
Ctrl-C prints the table as far as it got.
"""
INFO_EXAMPLES = """\
examples:
  jaxsvm info model.npz
"""
SELECT_EXAMPLES = """\
examples:
  jaxsvm select rows.csv --model best.npz              8 values of C x 8 of gamma, 5 folds
  jaxsvm select rows.csv --C 1,10,100 --gamma 1e-3:1:7 --plot grid.png --model best.npz
  jaxsvm select rows.csv --kernel linear --rule one_se --model small.npz
  jaxsvm select rows.svm --features nystrom --count 1024 --save grid.npz --seconds 600
  jaxsvm select rows.csv --groups patients.txt --folds 10

A range is LOW:HIGH:COUNT, even in the logarithm, or numbers with commas. Every pair of numbers is
trained once without each fold, and its error is that on the fold. The pair of the least mean error
is the best. With --save, a command that was stopped goes on where it was.
"""
CONVERT_EXAMPLES = """\
examples:
  jaxsvm convert rows.svm rows.npz                        sparse rows stay sparse
  jaxsvm convert rows.csv rows.svm.gz --label class       labels must be numbers in svmlight files
  jaxsvm convert rows.npz test.csv --part 1               the second part, of x_train and x_test
"""


class Parser(argparse.ArgumentParser):
    """A parser that keeps the line breaks of its examples and raises ValueError."""

    def __init__(self, **kwargs: Any) -> None:
        """As `argparse.ArgumentParser`."""
        super().__init__(
            formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False, **kwargs
        )
        self.register("type", int, integer)

    def _print_message(self, message: str, file: Any = None) -> None:
        """Print help or the version as reports are printed."""
        show(message.rstrip("\n"))

    def error(self, message: str) -> NoReturn:
        """Raise ValueError with the message."""
        raise ValueError(f"{message} (see {self.prog} --help)")

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """As of `argparse.ArgumentParser`; an unknown option is an error before a missing one."""
        given = sys.argv[1:] if args is None else list(args)
        given = given[: given.index("--")] if "--" in given else given
        known = list(self._option_string_actions)
        # the main parser is given the options of the command, too
        for word in () if self._subparsers else given:
            name = word.partition("=")[0]
            if name.startswith("--") and name not in known:
                similar = difflib.get_close_matches(name, known, 1)
                advice = f": did you mean {similar[0]}?" if similar else ""
                self.error(f"there is no option {name}{advice}")
        return super().parse_known_args(args, namespace)


def parser() -> Parser:
    """All commands and their options."""
    main_parser = Parser(
        prog="jaxsvm", description="Support vector machines from the command line.", epilog=EXAMPLES
    )
    main_parser.add_argument("--version", action="version", version=__version__)
    commands = main_parser.add_subparsers(
        dest="command", metavar="command", required=True, parser_class=Parser
    )
    for add in (add_train, add_predict, add_select, add_sweep, add_convert, add_info):
        add(commands)
    return main_parser


def add_train(commands: Any) -> None:
    """Add the command and its"""
    description = "Train a support vector machine on the rows of a file and write the model."
    parser = commands.add_parser(
        "train", help="train a model", description=description, epilog=TRAIN_EXAMPLES
    )
    parser.set_defaults(module="train")
    parser.add_argument(
        "file", help="training rows: svmlight, .npz or CSV; - is the standard input"
    )
    parser.add_argument(
        "--model",
        required=True,
        metavar="FILE",
        help="where the model goes (jaxsvm.models.load reads it); - is the standard output",
    )
    add_test_options(parser)
    add_naming_options(parser)
    add_task_option(parser)
    add_scaling_options(parser)
    group = parser.add_argument_group("what is minimised: lambda/2 |w|^2 + mean loss")
    size = group.add_mutually_exclusive_group()
    size.add_argument("--C", type=float, help="1 / (lambda rows), as LIBSVM has it (1)")
    size.add_argument("--lam", type=float, help="lambda")
    add_problem_options(group)
    kernel_options(parser)
    group = parser.add_argument_group("how")
    names = "; ".join(f"{name}: {text}" for name, text in SOLVERS.items())
    group.add_argument(
        "--solver",
        choices=tuple(SOLVERS),
        metavar="NAME",
        help=f"{names} (of a linear machine newton, interior_point or sdca by the loss and the "
        "columns; sdca with a kernel, or with an option in its units)",
    )
    add_length_options(group)
    group.add_argument("--batch", type=int, help="rows of an update")
    group.add_argument(
        "--tol",
        type=float,
        help="stop at this residual: sdca, decomposition, smo, bsca, ocas, svm_perf (1e-3), "
        "newton, interior_point, augmented_lagrangian (1e-6), "
        "subgradient (goes on to the end)",
    )
    group.add_argument(
        "--seconds", type=float, help="stop after the first chunk of steps that ends later"
    )
    add_run_options(group)
    group.add_argument(
        "--certificate",
        action=argparse.BooleanOptionalAction,
        help="bound the distance to the optimum; without the option where that takes no more than "
        "1 GiB",
    )
    add_process_options(parser)
    add_reading_options(parser)


def add_process_options(parser: Any) -> None:
    """Add the options of a run of several processes."""
    group = parser.add_argument_group(
        "several processes, on one machine or on many: each calls this command with the rows of "
        "its own file, and all train one linear machine (cocoa); the first writes it"
    )
    group.add_argument(
        "--processes",
        metavar="K",
        help="how many; auto: what Slurm, Open MPI, GKE or a TPU pod has started",
    )
    group.add_argument("--process", type=int, metavar="k", help="which of them, from 0 to K - 1")
    group.add_argument(
        "--coordinator", metavar="HOST:PORT", help="a free port of the machine of process 0"
    )


def add_predict(commands: Any) -> None:
    """Add the command and its"""
    description = (
        "Predict the classes of the rows of a file with a model that `jaxsvm train` wrote."
    )
    parser = commands.add_parser(
        "predict", help="predict with a model", description=description, epilog=PREDICT_EXAMPLES
    )
    parser.set_defaults(module="predict")
    parser.add_argument("model", help="what --model of train, select or sweep wrote, or -")
    parser.add_argument(
        "file", help="rows: svmlight, .npz (its test part where it has one) or CSV; or -"
    )
    parser.add_argument("--out", metavar="FILE", help="where the predictions go (standard output)")
    parser.add_argument(
        "--scores",
        action="store_true",
        help="a tab and the decision value behind each name; of many classes all values",
    )
    add_reading_options(parser)


def add_select(commands: Any) -> None:
    """Add the command and its options."""
    description = (
        "Choose C and gamma by cross-validation over a grid, show the mean errors, and train the "
        "machine of the choice on all rows."
    )
    parser = commands.add_parser(
        "select",
        help="choose C and gamma by cross-validation",
        description=description,
        epilog=SELECT_EXAMPLES,
    )
    parser.set_defaults(module="select", lam=None, sigma=None, batch=None)
    parser.add_argument("file", help="rows: svmlight, .npz or CSV; or -")
    parser.add_argument(
        "--model", metavar="FILE", help="the machine of the choice, trained on all rows"
    )
    add_plot_option(parser)
    parser.add_argument(
        "--save",
        metavar="FILE",
        help="all finished fits; the same command goes on from this file, if it is there",
    )
    add_test_options(parser)
    add_naming_options(parser)
    add_task_option(parser)
    add_scaling_options(parser)
    group = parser.add_argument_group("the grid and the choice")
    group.add_argument(
        "--C", type=numbers, metavar="RANGE", help="values of C, 1 / (lambda rows) (0.1:1000:8)"
    )
    group.add_argument(
        "--folds",
        type=folds,
        default=5,
        metavar="COUNT",
        help="how many folds, or loo: each row is a fold of its own (5)",
    )
    group.add_argument(
        "--groups",
        metavar="FILE",
        help="a text file with the name of a group for each row, one a line: rows of one group "
        "are in one fold",
    )
    group.add_argument(
        "--score",
        choices=("error", "risk"),
        default="error",
        help="error: share of wrong rows, mean squared error of real targets; risk: mean hinge "
        "loss, mean absolute error (error)",
    )
    group.add_argument(
        "--rule",
        choices=("best", "one_se"),
        default="best",
        help="of the choice: best, the least mean; one_se, the least C and gamma within one "
        "standard error of it (best)",
    )
    kernel_options(parser, grid=True)
    group = parser.add_argument_group("what is minimised: 1/2 |w|^2 + C sum of losses")
    add_problem_options(group)
    group = parser.add_argument_group("how")
    group.add_argument(
        "--solver",
        choices=tuple(SOLVERS),
        metavar="NAME",
        help="as of train, which says what they are; without it, of a kernel machine "
        f"decomposition for up to {EXACT_ROWS[0]:,} rows, {EXACT_ROWS[1]:,} with more than two "
        "classes, else sdca on Nystrom features; of a linear machine newton, interior_point or "
        "sdca by the loss and the columns",
    )
    add_length_options(group)
    group.add_argument("--tol", type=float, help="as of train")
    group.add_argument(
        "--memory", type=float, help="bytes that a kernel matrix or a program may take"
    )
    group.add_argument("--threads", type=int, help="fits at the same time (the processors)")
    group.add_argument(
        "--seconds", type=float, help="start no other fit after this time; then the table has gaps"
    )
    add_run_options(group)
    add_reading_options(parser)


def add_sweep(commands: Any) -> None:
    """Add the command and its"""
    description = (
        "Train ASSET on features of the Gaussian kernel for every lambda and sigma of a grid, as "
        "one program, and show the error on rows held out."
    )
    parser = commands.add_parser(
        "sweep",
        help="find good values of lambda and sigma",
        description=description,
        epilog=SWEEP_EXAMPLES,
    )
    parser.set_defaults(module="sweep")
    parser.add_argument("file", help="rows: svmlight, .npz or CSV; or -")
    parser.add_argument(
        "--lam",
        type=numbers,
        metavar="RANGE",
        default=numbers("1e-6:1e-1:8"),
        help="lambdas (1e-6:1e-1:8)",
    )
    parser.add_argument(
        "--sigma",
        type=numbers,
        metavar="RANGE",
        help="sigmas (8 from a tenth to ten times the typical distance)",
    )
    parser.add_argument(
        "--features", choices=FEATURES, default="nystrom", help="of the kernel (nystrom)"
    )
    parser.add_argument("--count", type=int, help="how many features (128)")
    parser.add_argument("--passes", type=int, default=20, help="over the rows (20)")
    parser.add_argument("--batch", type=int, default=16, help="rows of an update (16)")
    parser.add_argument(
        "--hold-out",
        type=float,
        default=0.25,
        metavar="SHARE",
        help="share of the rows for the errors (0.25)",
    )
    parser.add_argument(
        "--memory", type=float, default=4e9, help="bytes that the program may take (4e9)"
    )
    add_run_options(parser)
    parser.add_argument("--out", metavar="FILE", help="the errors as CSV: lam, sigma, error")
    add_plot_option(parser)
    parser.add_argument("--model", metavar="FILE", help="the best point, trained on all rows")
    add_naming_options(parser)
    add_scaling_options(parser)
    add_reading_options(parser)


def add_convert(commands: Any) -> None:
    """Add the command and its"""
    description = (
        "Convert rows between svmlight, .npz and CSV; labels keep their names, numbers all their "
        "digits."
    )
    parser = commands.add_parser(
        "convert", help="convert between formats", description=description, epilog=CONVERT_EXAMPLES
    )
    parser.set_defaults(module="convert")
    parser.add_argument("file", help="rows: svmlight, .npz or CSV; or -")
    parser.add_argument(
        "out",
        help="ends in .svm, .svmlight, .libsvm, .npz, .csv or .tsv; .gz or "
        ".bz2 behind it packs text; or -",
    )
    parser.add_argument(
        "--to", choices=("csv", "tsv", "svm", "npz"), help="format of the standard output, - (csv)"
    )
    parser.add_argument(
        "--part",
        type=int,
        default=0,
        help="which of several parts of an .npz file, 0 the first (0)",
    )
    parser.add_argument(
        "--dtype",
        choices=("float64", "float32"),
        default="float64",
        help="of the numbers in .npz, from text (float64)",
    )
    add_reading_options(parser)


def add_info(commands: Any) -> None:
    """Add the command and its options."""
    description = "Tell what a model file holds: the model, its classes, and how it was trained."
    parser = commands.add_parser(
        "info", help="tell what a model is", description=description, epilog=INFO_EXAMPLES
    )
    parser.set_defaults(module="info")
    parser.add_argument(
        "model", help="what --model of train, select, sweep wrote; - standard input"
    )


def add_test_options(parser: Any) -> None:
    """Add the options for rows on which the error of the model is worked out."""
    test = parser.add_mutually_exclusive_group()
    test.add_argument("--test", metavar="FILE", help="rows to work out the error on")
    test.add_argument(
        "--hold-out",
        type=float,
        metavar="SHARE",
        help="share of the rows kept for the error, such as 0.2",
    )


def add_task_option(parser: Any) -> None:
    """Add the option for the kind of targets."""
    parser.add_argument(
        "--task", choices=("binary", "multiclass", "regression"), help="without it, by the labels"
    )


def add_plot_option(parser: Any) -> None:
    """Add the option for a picture of the grid."""
    parser.add_argument(
        "--plot", metavar="FILE", help="a heat map (.png, .svg, .pdf), needs matplotlib"
    )


def add_run_options(group: Any) -> None:
    """Add the options for draws and for the bar."""
    group.add_argument("--seed", type=seed, default=0, help="of all draws (0)")
    group.add_argument("--quiet", action="store_true", help="no progress bar")


def add_length_options(group: Any) -> None:
    """Add the options for the length of a run and the size of a model."""
    how_long = group.add_mutually_exclusive_group()
    how_long.add_argument(
        "--passes",
        type=int,
        help="over the rows, at most; the printed line 'solver' shows the default",
    )
    how_long.add_argument("--steps", type=int, help="updates instead of passes")
    group.add_argument(
        "--budget",
        type=int,
        help=f"points of the model of bsca and bsgd, at least 2 ({BUDGET})",
    )


def add_problem_options(group: Any) -> None:
    """Add the options for the loss, the constant and more than two classes."""
    group.add_argument(
        "--loss",
        choices=tuple(LOSSES),
        help="hinge for classes, eps_insensitive for real targets; of newton the squared ones",
    )
    group.add_argument(
        "--bias",
        choices=("feature", "none", "free"),
        help="the constant: regularised, none or free (the solver's first)",
    )
    group.add_argument(
        "--multiclass",
        choices=("ovr", "ovo"),
        help="more than two classes: a model for each against the rest (ovr), or for each pair, "
        "which vote (ovo)",
    )


def kernel_options(parser: Any, *, grid: bool = False) -> None:
    """Add the options of kernel and feature map; with `grid` gamma is a range."""
    group = parser.add_argument_group("kernel")
    default = "(rbf)" if grid else "(linear; rbf with --features)"
    group.add_argument("--kernel", choices=KERNELS, help=default)
    if grid:
        group.add_argument(
            "--gamma",
            type=numbers,
            metavar="RANGE",
            help="gammas, exp(-gamma |x - z|^2) of rbf, exp(-gamma |x - z|_1) of laplacian, factor "
            "of polynomial, sigmoid (8 from 0.03 to 100 over the median squared distance)",
        )
    else:
        group.add_argument("--sigma", type=float, help="width of rbf and laplacian")
        group.add_argument(
            "--gamma",
            type=float,
            help="1 / (2 sigma^2) of rbf; factor of polynomial, sigmoid (1 / (columns variance))",
        )
    group.add_argument("--degree", type=int, help="of polynomial (3)")
    group.add_argument("--coef0", type=float, help="constant of polynomial (1), sigmoid (0)")
    group.add_argument(
        "--features",
        choices=FEATURES,
        help="approximate the kernel by features: for many rows",
    )
    group.add_argument("--count", type=int, help="how many features (512)")


def add_reading_options(parser: Any) -> None:
    """Add the options for reading files."""
    group = parser.add_argument_group("reading")
    group.add_argument(
        "--format",
        choices=("svmlight", "npz", "csv"),
        help="of the files; without it their names, then their first lines tell",
    )
    group.add_argument(
        "--label",
        default="-1",
        metavar="COLUMN",
        help="CSV: the column of labels, by number or name (the last)",
    )
    group.add_argument(
        "--zero-based",
        choices=("auto", "yes", "no"),
        default="auto",
        help="svmlight: whether the first column has index 0 (auto: as of the rows of the model, "
        "else where an index 0 occurs)",
    )
    group.add_argument(
        "--delimiter", help="CSV: what stands between cells (a comma; a tab in .tsv files)"
    )
    group.add_argument(
        "--header",
        choices=("auto", "yes", "no"),
        default="auto",
        help="CSV: whether the first line names columns (auto)",
    )
    group.add_argument(
        "--missing",
        choices=("drop", "mean"),
        help="rows with missing numbers (empty cells, ? or NA of CSV, NaN of .npz): leave them "
        "out, or fill in the mean of the column over the training rows (refused)",
    )
    group.add_argument(
        "--expansion",
        type=int,
        default=100,
        help="bytes that a compressed file may expand to, for each of its own (100)",
    )
    group.add_argument(
        "--no-cache",
        action="store_true",
        help="do not keep compiled programs on disk, in the user's cache folder",
    )


def add_naming_options(parser: Any) -> None:
    """Add the options for the meaning of labels."""
    parser.add_argument(
        "--positive",
        metavar="CLASS",
        help="the class, or several with commas, against all others; without it the last of two",
    )


def add_scaling_options(parser: Any) -> None:
    """Add the option for scaling columns."""
    parser.add_argument(
        "--scale",
        choices=(*SCALES, "auto"),
        default="auto",
        help="columns, by the training rows, kept in the model: "
        + "; ".join(f"{name}: {description}" for name, description in SCALES.items())
        + "; auto (default): unit for sparse rows, else standardize",
    )


def integer(text: str, bits: int = 32) -> int:
    """An integer of so many bits."""
    with contextlib.suppress(ValueError):
        if -(2 ** (bits - 1)) <= int(text) < 2 ** (bits - 1):
            return int(text)
    raise argparse.ArgumentTypeError(f"expected an integer below 2^{bits - 1}, got {text!r}")


def seed(text: str) -> int:
    """An integer of 64 bits."""
    return integer(text, 64)


def folds(text: str) -> int | str:
    """A number of folds, or "loo"."""
    if text == "loo" or text.isascii() and text.isdigit() and int(text) >= 2:
        return text if text == "loo" else int(text)
    raise argparse.ArgumentTypeError(f"expected a whole number of at least 2, or loo, got {text!r}")


def numbers(text: str) -> list[float]:
    """The numbers of LOW:HIGH:COUNT, or of a list with commas.

    Example:
        >>> numbers("1:100:3"), numbers("2,3")
        ([1.0, 10.0, 100.0], [2.0, 3.0])
    """
    try:
        low, *rest = text.split(":")
        if len(rest) == 2:
            ends, count = (math.log10(float(low)), math.log10(float(rest[0]))), int(rest[1])
            if count > MOST_NUMBERS:
                raise ValueError
            gaps = max(count - 1, 1)
            values = [10 ** (ends[0] + (ends[1] - ends[0]) * i / gaps) for i in range(count)]
        else:
            values = [float(value) for value in text.split(",")]
        if values and all(math.isfinite(value) and value > 0 for value in values):
            return values
    except (ValueError, OverflowError):
        pass
    raise argparse.ArgumentTypeError(
        f"expected LOW:HIGH:COUNT, at most {MOST_NUMBERS:,}, or numbers with commas, all above 0, "
        f"got {text!r}"
    )
