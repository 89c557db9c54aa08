"""The command line: `python -m jaxsvm` runs a first job; `train` and `predict` work on files.

Their model is a scikit-learn pipeline that ends in an estimator of jaxsvm; skops keeps it.
Arguments are checked before scikit-learn and pandas are imported.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import csv
import os
import sys
import time
import warnings
import zipfile
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxsvm

from . import features, kernels, losses, samplers
from .__about__ import __version__
from .checks import is_sparse
from .data.files import read
from .files import atomic_path
from .models.frames import is_frame
from .types import Array

if TYPE_CHECKING:
    from sklearn.base import BaseEstimator

# name -> what its targets are
MACHINES = {name: "classes" for name in ("SVC", "NuSVC", "LinearSVC", "BudgetedSVC")}
MACHINES |= {name: "numbers" for name in ("SVR", "NuSVR", "LinearSVR")}
MACHINES |= {"Ranker": "grades", "OneClassSVM": "none"}
CERTIFIED = {"class_weight": None, "penalty": "l2", "intercept_scaling": 1}  # with --certificate
# types of a model file that skops does not know: those of the package, and arrays
TRUSTED = ("jaxsvm.", "numpy.dtype", "scipy.sparse.", "jaxlib._jax.ArrayImpl")
FILES = """Files: .csv and .parquet are tables, .npz holds x and y, any other is svmlight. Empty
cells and ? are missing. Words become indicators, numbers are standardised, columns of svmlight
divided by their largest number. Queries are a column qid, qid: of svmlight, or query of npz."""
EXAMPLES = """
  jaxsvm train rows.csv --target income --hold-out 0.2 --model income.skops
  jaxsvm train rows.csv --target income --grid C=0.1,1,10 gamma=0.01,0.1 --model income.skops
  jaxsvm predict income.skops new.csv --out income.txt"""


class Parser(argparse.ArgumentParser):
    """A parser whose errors are exceptions."""

    def error(self, message: str) -> Any:
        """Raise ValueError."""
        raise ValueError(f"{message} (see {self.prog} --help)")


def parser() -> Parser:
    """The parser of all commands."""
    how: Any = {"formatter_class": argparse.RawDescriptionHelpFormatter, "allow_abbrev": False}
    top = Parser("jaxsvm", description=f"machines on files; alone a first job\n{EXAMPLES}", **how)
    top.add_argument("--version", action="version", version=f"jaxsvm {__version__}")
    commands = top.add_subparsers(dest="command", metavar="command", required=True)
    how |= {"description": FILES}
    add = commands.add_parser("train", help="fit a pipeline and write it", **how).add_argument
    add("file", metavar="FILE", help="the training rows")
    add("--model", metavar="M", required=True, help="the file that is written, as by skops")
    add("--target", metavar="NAME", help="the column of targets in a table")
    text = "; without it SVC, SVR for numbers that are not whole, Ranker where there are queries"
    add("--machine", choices=MACHINES, metavar="NAME", help=", ".join(MACHINES) + text)
    some: Any = {"nargs": "+", "default": [], "metavar": "NAME=VALUE", "action": "extend"}
    add("--set", help="parameters of the machine: C=10 kernel=poly", **some)
    add("--grid", help="values to choose among by cross-validation: C=0.1,1,10", **some)
    add("--folds", type=int, default=5, metavar="K", help="folds of --grid; 5")
    add("--test", metavar="FILE", help="other rows, for the test error")
    add("--hold-out", type=float, metavar="SHARE", help="share of the rows for the test error")
    add("--probability", action="store_true", help="keep probabilities of classes with the model")
    add("--certificate", action="store_true", help="bound the distance from the optimum")
    add = commands.add_parser("predict", help="predict the rows of a file", **how).add_argument
    add("model", metavar="M", help="what train wrote")
    add("file", metavar="FILE", help="the rows; columns are found by their names")
    add("--out", metavar="F", help="the file of the predictions; without it standard output")
    add("--probability", action="store_true", help="write a CSV of the probabilities of classes")
    add("--target", metavar="NAME", help="the column of targets, for the error; that of training")
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command.

    Args:
        argv: its arguments; None: those of the process, in which compiled programs are then kept on
            disk (`jaxsvm.cache_programs`).

    Returns:
        The exit status: 0; 2 for what cannot be done, with one sentence on the standard error
        stream; 130 after Ctrl-C.
    """
    own_process, argv = argv is None, sys.argv[1:] if argv is None else list(argv)
    with warnings.catch_warnings():
        warnings.showwarning = lambda message, *rest, **more: say(f"warning: {message}")
        try:
            args = parser().parse_args(argv) if argv else argparse.Namespace(command="first_job")
            check(args)
            if own_process and jax.config.jax_enable_compilation_cache:  # type: ignore[attr-defined]
                # a file that another process is writing, or a full disk, only costs a compilation
                text = "Error (reading|writing) persistent compilation"
                warnings.filterwarnings("ignore", message=text)
                jaxsvm.cache_programs()
            {"first_job": first_job, "train": train, "predict": predict}[args.command](args)
            sys.stdout.flush()
            return 0
        except KeyboardInterrupt:
            say("interrupted, nothing was written")
            return 130
        except BrokenPipeError:  # of `| head`; Python would try to write the rest at its end
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        except ImportError as error:
            say(f"error: the command needs {error.name or error}: pip install 'jaxsvm[cli]'")
        except (ValueError, TypeError, OSError, RuntimeError, MemoryError) as error:
            say(f"error: {str(error) or 'not enough memory for these rows'}")
        return 2


def say(text: str) -> None:
    """One line on the standard error stream."""
    print(f"jaxsvm: {' '.join(text.split())}", file=sys.stderr)


def line(head: str, text: str) -> None:
    """One line of the report."""
    print(f"{head:<15} {text}", flush=True)


def check(args: argparse.Namespace) -> None:
    """Raise for files that cannot be read or written, before anything else is imported.

    Raises:
        FileNotFoundError, OSError: files that are not there, or cannot be written.
        ValueError: a file that is read and written, or two kinds of test rows.
    """
    known = vars(args)
    out = known.get("model" if args.command == "train" else "out")
    names = ("file", "test" if args.command == "train" else "model")
    for path in (known[name] for name in names if known.get(name) is not None):
        if not os.path.isfile(path):
            raise FileNotFoundError(f"there is no file {path}")
        if out is not None and os.path.exists(out) and os.path.samefile(path, out):
            raise ValueError(f"{out} is a file that is read: give another name")
    if os.path.isdir(out or "") or not os.access(os.path.dirname(out or "") or ".", os.W_OK):
        raise OSError(f"{out} is a folder, or in one that does not exist or cannot be written to")
    if known.get("test") is not None and known["hold_out"] is not None:
        raise ValueError("--test and --hold-out both say what the test rows are: give one")
    if known.get("folds", 2) < 2 or not 0 < (known.get("hold_out") or 0.5) < 1:
        raise ValueError("--folds must be at least 2, and --hold-out between 0 and 1")


# train and predict


def train(args: argparse.Namespace) -> None:
    """Fit a pipeline, report its errors, and write it."""
    import skops.io
    from sklearn.model_selection import GroupShuffleSplit, ShuffleSplit

    rows = read(args.file, args.target)
    saved = {"target": args.target, "first": rows.first, "width": rows.x.shape[1]}
    is_table = is_frame(rows.x)
    saved["columns"] = list(rows.x) if is_table else None
    saved["words"] = list(rows.x.select_dtypes(exclude=["number", "bool"])) if is_table else []
    rows = clean(rows, saved, args.file)
    if args.target is not None and rows.y.dtype.kind == "U":
        saved["words"].append(args.target)  # of other files the same text
    name = args.machine or machine_of(rows)
    saved["machine"], kind, machine = name, MACHINES[name], made(name, args)
    if (rows.y is None or not len(rows.y)) and kind != "none":
        shown = ", ".join(map(repr, saved["columns"] or ())) or "what the file has"
        raise ValueError(f"{name} needs targets: name their column, --target, one of {shown}")
    if kind in ("numbers", "grades") and rows.y.dtype.kind == "U":
        raise ValueError(f"{name} needs numbers, and {args.target!r} holds words: take SVC")
    known, many = machine.get_params(), kind == "classes" and len(set(rows.y)) != 2
    odd = [key for key, value in CERTIFIED.items() if known.get(key, value) != value]
    if args.certificate and (odd or many or name not in ("SVC", "LinearSVC", "SVR", "LinearSVR")):
        raise ValueError(
            "--certificate is for SVC, LinearSVC, SVR and LinearSVR, of two classes or of numbers, "
            "without class_weight, penalty and intercept_scaling"
        )
    describe(args.file, rows, kind)
    if rows.query is not None and name != "Ranker":
        text = f"queries (qid), which {name} does not use: --machine Ranker ranks the rows of each"
        warnings.warn(f"{args.file} has {text}", stacklevel=2)
        rows = rows._replace(query=None)
    test = None
    if args.test is not None:
        test = clean(read(args.test, args.target, saved), saved, args.test)
        if test.y is None and kind != "none":
            raise ValueError(f"{args.test} has no column {args.target!r} of targets")
        describe(args.test, test, kind)
    elif args.hold_out is not None:
        splitter = ShuffleSplit if rows.query is None else GroupShuffleSplit  # of whole queries
        cut = splitter(1, test_size=args.hold_out, random_state=0)
        rows, test = (taken(rows, some) for some in next(cut.split(rows.x, groups=rows.query)))
    pipeline = pipeline_of(rows.x, saved, machine)
    given = {"machine__sample_weight": rows.weight, "machine__qid": rows.query}
    given = {key: value for key, value in given.items() if value is not None}
    if args.grid:
        pipeline.set_params(**choice(args, kind, pipeline, rows, given))
    if args.probability:
        pipeline.set_params(machine__probability=True)
    pipeline.fit(rows.x, rows.y, **given)
    line("training error", error_of(kind, pipeline, rows))
    if test is not None:
        line("test error", error_of(kind, pipeline, test))
    if args.certificate:
        line("certificate", certified(pipeline, rows))
    with atomic_path(args.model) as path:
        skops.io.dump({"pipeline": pipeline, **saved}, path)
    line("model", args.model)


def predict(args: Any) -> None:
    """Write the predictions of a model; the report goes where they do not."""
    saved = load_model(args.model)
    rows = read(args.file, args.target or saved["target"], saved)
    if args.target is not None and rows.y is None:
        raise ValueError(f"{args.file} has no column {args.target!r} of targets")
    x, pipeline = matched(rows.x, saved, args.file), saved["pipeline"]
    if args.probability and not hasattr(pipeline, "predict_proba"):
        raise ValueError(f"{args.model} has no probabilities: train it with --probability")
    with contextlib.redirect_stdout(sys.stdout if args.out else sys.stderr):
        describe(args.file, rows, "none")
        kind, known = MACHINES[saved["machine"]], clean(rows, saved, args.file)
        if known.y is not None and len(known.y) and kind != "none":
            line("error", error_of(kind, pipeline, known))
    values = (pipeline.predict_proba if args.probability else pipeline.predict)(x)
    with contextlib.ExitStack() as stack:
        stream = sys.stdout
        if args.out is not None:
            path = stack.enter_context(atomic_path(args.out))
            stream = stack.enter_context(open(path, "w", newline=""))
        head = [pipeline.classes_.tolist()] if args.probability else []
        csv.writer(stream, lineterminator="\n").writerows([*head, *values.reshape(len(values), -1)])
    if args.out is not None:
        line("predictions", args.out)


def matched(x: Any, saved: Mapping, path: str) -> Any:
    """The rows with the columns of the training rows, by name: numbers, and words as text.

    Raises:
        ValueError: another kind of rows, a column that is missing, or words for numbers.
    """
    columns, words, missing = saved["columns"], saved["words"], float("nan")
    if (columns is None) == is_frame(x):
        raise ValueError(
            f"{path} is a table: the model was trained on rows without names of columns"
            if columns is None
            else f"{path} has no names of columns: the model was trained on a table"
        )
    if columns is None:
        if x.shape[1] != saved["width"]:
            raise ValueError(f"{path} has {x.shape[1]} columns, expected {saved['width']}")
        return x
    lacking = ", ".join(repr(name) for name in columns if name not in x)
    if lacking:
        shown = ", ".join(map(repr, x.columns))
        raise ValueError(f"{path} lacks columns of the model: {lacking}; it has {shown}")
    x = x[columns].copy()
    for name in columns:
        try:
            if name in words:
                x[name] = x[name].astype(str).astype(object).where(x[name].notna(), missing)
            else:
                x[name] = x[name].to_numpy(dtype=float, na_value=missing)
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"{path}: the column {name!r} held numbers in training, and has words here"
            ) from error
    return x


def clean(rows: Any, saved: Mapping, path: str) -> Any:
    """The rows that have targets, with the columns of the training rows."""
    import pandas

    rows = rows._replace(x=matched(rows.x, saved, path))
    if rows.y is None:
        return rows
    has_target = np.asarray(pandas.notna(rows.y))
    if not has_target.all():
        count = (~has_target).sum()
        warnings.warn(f"{path}: {count} rows without a target are left out", stacklevel=2)
    rows = taken(rows._replace(y=np.asarray(rows.y)), np.flatnonzero(has_target))
    y = np.asarray(pandas.Series(rows.y).infer_objects())
    if y.dtype.kind == "f" and (y % 1 == 0).all() and (abs(y) < 2**53).all():
        y = y.astype(np.int64)  # svmlight and missing cells make floats
    return rows._replace(y=y if y.dtype.kind in "iufb" else y.astype(str))


def taken(rows: Any, places: Any) -> Any:
    """Some of the rows."""
    x = rows.x.iloc[places] if is_frame(rows.x) else rows.x[places]
    some = [None if a is None else a[places] for a in (rows.y, rows.query, rows.weight)]
    return type(rows)(x, *some, rows.first)


def describe(path: str, rows: Any, kind: str) -> None:
    """Print a line on the rows of a file."""
    text = f"{path}: {rows.x.shape[0]} rows, {rows.x.shape[1]} columns"
    if kind == "classes":
        names = list(map(str, sorted(set(rows.y.tolist()))))
        text += f", classes {', '.join(names[:10] + ['...'] * (len(names) > 10))}"
    line("read", text if rows.query is None else f"{text}, {len(set(rows.query))} queries")


def machine_of(rows: Any) -> str:
    """The machine where none is named."""
    if rows.query is not None or rows.y is None or rows.y.dtype.kind == "f":
        return "Ranker" if rows.query is not None else "SVC" if rows.y is None else "SVR"
    if rows.y.dtype.kind in "iu" and len(set(rows.y)) > 20:
        raise ValueError(
            f"the targets are {len(set(rows.y))} different whole numbers: say --machine SVR for "
            "numbers, or --machine SVC for classes"
        )
    return "SVC"


def made(name: str, args: argparse.Namespace) -> Any:
    """The machine of the option --set; those of --grid are checked, too."""
    from . import estimators

    machine = getattr(estimators, name)()
    known = machine.get_params()
    if args.probability and "probability" not in known:
        raise ValueError(f"--probability is for classes: {name} has none")
    if args.grid and MACHINES[name] == "none":
        raise ValueError(f"--grid compares errors, and {name} has none: give --set")
    pairs(args.grid, machine, True)
    chosen = {"random_state": 0} if "random_state" in known else {}
    return machine.set_params(**chosen | pairs(args.set, machine, False))


def pairs(texts: Sequence[str], machine: Any, several: bool) -> dict[str, Any]:
    """The parameters of NAME=VALUE, or the lists of NAME=VALUE,VALUE.

    Raises:
        ValueError: a text of another form, or a name that is no parameter.
    """
    values: dict[str, Any] = {}
    for key, sign, value in (text.partition("=") for text in texts):
        if not (key and sign and value):
            raise ValueError(f"expected NAME=VALUE, such as C=10, got {key + sign + value!r}")
        if key not in machine.get_params():
            names = ", ".join(machine.get_params())
            raise ValueError(f"{type(machine).__name__} has no parameter {key!r}: it has {names}")
        if key in values:
            raise ValueError(f"{key} is given twice: write all its values after one {key}=")
        values[key] = [literal(part) for part in value.split(",")] if several else literal(value)
    return values


def literal(text: str) -> Any:
    """The Python value of a text: a number, True, None; or else the text itself."""
    with contextlib.suppress(ValueError, SyntaxError):
        return ast.literal_eval(text)
    return text


def pipeline_of(x: Any, saved: Mapping, machine: object) -> BaseEstimator:
    """The pipeline of imputer, encoder of words, scaler and machine, for rows x."""
    from sklearn.compose import ColumnTransformer
    from sklearn.impute import SimpleImputer
    from sklearn.pipeline import Pipeline, make_pipeline
    from sklearn.preprocessing import MaxAbsScaler, OneHotEncoder, StandardScaler

    numbers = make_pipeline(SimpleImputer(keep_empty_features=True), StandardScaler())
    if saved["columns"] is None:
        rows = MaxAbsScaler() if is_sparse(x) else numbers
    else:
        one_hot = OneHotEncoder(handle_unknown="ignore")
        words = make_pipeline(SimpleImputer(strategy="most_frequent"), one_hot)
        of_words = [name for name in x if name in saved["words"]]
        rows = ColumnTransformer([("words", words, of_words)], remainder=numbers)
    return Pipeline([("rows", rows), ("machine", machine)])


def choice(
    args: argparse.Namespace, kind: str, pipeline: Any, rows: Any, given: dict
) -> dict[str, Any]:
    """The parameters of least error by cross-validation; prints a line on them."""
    from sklearn import config_context
    from sklearn.model_selection import GridSearchCV, GroupKFold

    values = pairs(args.grid, pipeline["machine"], True)
    grid = {f"machine__{key}": some for key, some in values.items()}
    folds: Any = args.folds
    routed = "machine__qid" in given  # folds are of whole queries, which scores read
    if routed:
        given = {key.removeprefix("machine__"): value for key, value in given.items()}
        folds, given["groups"] = GroupKFold(args.folds), rows.query
    with config_context(enable_metadata_routing=routed):
        if routed:
            asked = dict.fromkeys(given.keys() - {"groups"}, True)
            pipeline["machine"].set_fit_request(**asked).set_score_request(**asked)
        search = GridSearchCV(pipeline, grid, cv=folds, refit=False, error_score="raise")
        search.fit(rows.x, rows.y, **given)
    if routed:
        del pipeline["machine"]._metadata_request
    best = search.best_params_
    shown = ", ".join(f"{key.removeprefix('machine__')}={value}" for key, value in best.items())
    score = {"classes": "accuracy", "numbers": "R2", "grades": "nDCG"}[kind]
    line("chosen", f"{shown}: {score} {search.best_score_:.4f}, mean of {args.folds} folds")
    return best


def error_of(kind: str, pipeline: BaseEstimator, rows: Any) -> str:
    """The error on rows with targets of a kind, as a part of a line."""
    values, n = pipeline.predict(rows.x), rows.x.shape[0]
    if kind in ("numbers", "grades") and rows.y.dtype.kind == "U":
        raise ValueError(f"the targets hold words, such as {rows.y[0]!r}, expected numbers")
    strange = set(rows.y.tolist()) - set(pipeline.classes_.tolist()) if kind == "classes" else ()
    if strange:
        raise ValueError(
            f"the rows have the class {min(strange, key=str)!r}, expected one of "
            f"{', '.join(map(repr, pipeline.classes_.tolist()[:12]))}"
        )
    if kind == "none":
        return f"{(values < 0).mean():.2%} of {n} rows lie outside"
    if kind == "classes":
        return f"{(values != rows.y).mean():.2%} of {n} rows"
    if kind == "numbers":
        square = ((values - rows.y) ** 2).mean()
        return f"{square**0.5:.6g} (root mean square), R2 {1 - square / rows.y.var():.4f}"
    data = jaxsvm.dataset(values[:, None], rows.y, query=rows.query, task="ranking")
    probe = jaxsvm.objectives.pair_accuracy_on(data)
    right = float(probe(jaxsvm.models.Linear(jnp.ones(1), jnp.zeros(()))))
    return f"{1 - right:.2%} of the pairs of a query, concordance {right:.4f}"


def certified(pipeline: BaseEstimator, rows: Any) -> str:
    """The bound of the distance from the optimum, as a part of a line."""
    from .estimators.parameters import loss_of

    machine, x = pipeline["machine"], pipeline[:-1].transform(rows.x)
    is_class = hasattr(machine, "classes_")
    if hasattr(machine, "_loss"):
        loss = machine._loss()
    else:
        loss = loss_of(machine.loss) if is_class else losses.eps_insensitive(machine.epsilon)
    data = jaxsvm.dataset(x, rows.y, rows.weight, task="binary" if is_class else "regression")
    model = machine.model_.inner if is_class else machine.model_
    # about a second of ascent improves the dual point of a linear machine
    passes = int(min(max(2e8 // (x.shape[0] * x.shape[1]), 10), 500))
    passes = passes if isinstance(model, jaxsvm.models.Linear) else 0
    lam = jaxsvm.lam_from_C(machine.C, float(data.weight.sum()))
    return bounds(jaxsvm.certificate(model, data, lam, loss, passes=passes))


def bounds(proof: Any) -> str:
    """A certificate, as a part of a line."""
    primal, dual, gap = (float(value) for value in proof[:3])
    return f"objective {primal:.6g}, optimum at least {dual:.6g}, gap {gap:.2g}"


def load_model(path: str) -> dict[str, Any]:
    """What `train` wrote.

    Raises:
        ValueError: another file, or types that no model of `train` has.
    """
    import skops.io

    try:
        types = skops.io.get_untrusted_types(file=path)
        strange = [name for name in types if not name.startswith(TRUSTED)]
        if strange:
            raise ValueError(f"it holds {strange[0]}, which no model of jaxsvm train holds")
        saved = skops.io.load(path, trusted=types)
        if not isinstance(saved, dict) or not {"machine", "pipeline", "columns"} <= saved.keys():
            raise ValueError("it holds something else")
        return saved
    except (ValueError, KeyError, TypeError, AttributeError, zipfile.BadZipFile) as error:
        raise ValueError(f"{path} is no model that jaxsvm train wrote: {error}") from error


# the first job


def first_job(args: object) -> None:
    """Choose lambda and sigma in one sweep; solve that machine exactly, and certify it."""
    lams, sigmas = jnp.logspace(-5, -1.5, 8), jnp.logspace(0, 2.1, 8)
    landmarks, passes, batch = 128, 200, 8
    print(f"jaxsvm {__version__} on JAX {jax.__version__}, {jax.devices()[0].device_kind}\n")
    key_split, key = jax.random.split(jax.random.key(0))
    parts = jaxsvm.data.split(key_split, jaxsvm.data.breast_cancer(), 3, 1, 1)
    scale = jaxsvm.data.standardize(parts[0].x)
    training, validation, test = (part._replace(x=scale(part.x)) for part in parts)

    def trained(lam: object, sigma: Any, training: Any, validation: Any, key: Array) -> Any:
        key_map, key_fit = jax.random.split(key)
        steps = passes * -(-len(training.y) // batch)
        phi = features.nystrom(key_map, kernels.rbf(sigma), training.x, landmarks=landmarks)
        solver = jaxsvm.on_features(phi, jaxsvm.asset(lam, bias="none", average_from=steps // 2))
        order = samplers.epochs(batch)
        model = jaxsvm.fit(solver, training, key_fit, steps=steps, sampler=order).model
        return model, jaxsvm.error_on(validation)(model)

    print(
        f"breast_cancer: {training.x.shape[1]} columns, standardised; "
        f"{len(training.y)} train, {len(validation.y)} validation, {len(test.y)} test\n"
        f"ASSET on {landmarks} Nystrom features, {len(lams)} lambdas x {len(sigmas)} sigmas, "
        f"{passes} passes in batches of {batch}, one program",
        flush=True,
    )
    sweep, began = jaxsvm.sweep(trained, lam=lams, sigma=sigmas), time.perf_counter()
    models, errors = jax.block_until_ready(sweep(training, validation, key))
    took = time.perf_counter() - began
    table = jaxsvm.sweep.table(errors, lam=lams, sigma=sigmas)
    print(f"\nvalidation error\n{table}\n")
    lam, sigma = table.best["lam"], table.best["sigma"]
    # at this tolerance the certificate is below 0.1 % at any point of the grid
    how: Any = {"C": jaxsvm.C_from_lam(lam, len(training.y)), "bias": "none", "tol": 1e-5}
    machine = jaxsvm.decomposition(kernel=kernels.rbf(sigma), **how)
    exact: Any = jaxsvm.fit(machine, training, key).model
    proof = jaxsvm.certificate(exact, training, lam)
    approximate, wrong = jax.tree.map(lambda a: a[table.place], models), jaxsvm.error_on(test)
    line("chosen", f"lambda = {lam:.1e}, sigma = {sigma:.2f}: the least error")
    line("test error", f"{float(wrong(approximate)):.2%} on {landmarks} features")
    points = f"{len(exact.support().index)} support vectors"
    line("exact machine", f"test error {float(wrong(exact)):.2%}, {points}")
    line("certificate", f"{bounds(proof)}: within {100 * float(proof.gap / proof.dual):.1g} %")
    line("time", f"{took:.2f} s for the {errors.size} runs, with compilation")
    try:
        import matplotlib

        matplotlib.use("agg")
        with atomic_path("jaxsvm-sweep.png") as path:
            jaxsvm.plots.heatmap(table).figure.savefig(path, dpi=120)
        line("heat map", "jaxsvm-sweep.png")
    except ImportError:
        line("heat map", "not drawn, as matplotlib is missing: pip install 'jaxsvm[plot]'")
    print(f"\nnext, on your own rows, with pip install 'jaxsvm[cli]':{EXAMPLES}")
