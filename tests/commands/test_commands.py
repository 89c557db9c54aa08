"""The command line: models, predictions and files beside NumPy and scikit-learn; one line for bad
input; Ctrl-C."""

import bz2
import contextlib
import gzip
import importlib
import io
import os
import re
import resource
import signal
import subprocess
import sys
import time

import jax
import numpy as np
import pytest
import scipy.sparse
from sklearn.datasets import dump_svmlight_file, load_svmlight_file

import jaxsvm
from jaxsvm.__main__ import main
from jaxsvm.commands.output import line
from jaxsvm.commands.parser import numbers, parser
from jaxsvm.commands.solvers import variance_of
from jaxsvm.loops import sweeping, threads

loop = importlib.import_module("jaxsvm.loops.fitting")

RNG = np.random.default_rng(3)
X = np.round(RNG.standard_normal((60, 4)) * [1, 5, 0.1, 2], 3)
Y = np.where(X[:, 0] + X[:, 1] / 5 + 0.3 * RNG.standard_normal(60) > 0, 1, -1)
KINDS = np.array(["low", "middle", "high"])[np.digitize(X[:, 1], [-2, 2])]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Files of the same rows, and a linear model that was trained on them."""
    path = tmp_path_factory.mktemp("rows")
    dump_svmlight_file(X, Y, str(path / "rows.svm"), zero_based=False)
    np.savez(path / "rows.npz", x=X, y=Y)
    cells = [
        ",".join(map(repr, row.tolist())) + f",{kind}\n" for row, kind in zip(X, KINDS, strict=True)
    ]
    (path / "kinds.csv").write_text("a,b,c,d,kind\n" + "".join(cells))
    np.savetxt(path / "bare.csv", X, delimiter=",", fmt="%.17g")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(path)
        assert (
            main(
                [
                    "train",
                    "rows.svm",
                    "--model",
                    "linear.npz",
                    "--hold-out",
                    "0.25",
                    "--quiet",
                    "--no-certificate",
                ]
            )
            == 0
        )
    return path


@pytest.fixture
def there(folder, monkeypatch):
    monkeypatch.chdir(folder)
    return folder


def refused(capsys, message, *argv):
    """Status 2 and one line."""
    before = set(os.listdir())
    assert main(argv) == 2
    out, err = capsys.readouterr()
    assert message in err and err.startswith("jaxsvm: error: ") and err.count("\n") == 1, err
    assert set(os.listdir()) == before


@pytest.mark.long
def test_a_linear_model_is_near_the_optimum_and_predicts_as_numpy_does(there, capsys):
    assert main(["train", "rows.svm", "--model", "m.npz", "--tol", "1e-5", "--quiet"]) == 0
    out = capsys.readouterr().out
    assert (
        "60 rows x 4 columns, dense; classes -1 (" in out
        and "converged" in out
        and "within 0.0" in out
    )
    assert main(["predict", "m.npz", "rows.npz", "--out", "p.txt", "--scores"]) == 0
    model = jaxsvm.models.load("m.npz")
    standard = (X - X.mean(0)) / X.std(0)  # standardised, then w and b
    inner = model.inner.inner
    score = standard @ np.asarray(inner.w, np.float64) + float(inner.b)
    names, values = np.loadtxt("p.txt", delimiter="\t").T
    np.testing.assert_allclose(
        values, score, rtol=1e-4, atol=1e-4
    )  # float32 sums over columns scaled in float32
    np.testing.assert_array_equal(names, np.where(score > 0, 1, -1))
    assert f"60 rows, error {np.mean(names != Y):.2%}" in capsys.readouterr().err

    from sklearn.svm import LinearSVC

    wide = np.c_[standard, np.ones(60)]  # the bias as a regularised column
    best = LinearSVC(loss="hinge", C=1.0, fit_intercept=False, tol=1e-8, max_iter=10**6).fit(
        wide, Y
    )
    np.testing.assert_allclose(
        np.r_[np.asarray(inner.w), inner.b], best.coef_[0], atol=2e-3
    )  # both end at a tolerance


@pytest.mark.long
@pytest.mark.parametrize(
    ("options", "solver"),
    [
        ((), "interior_point"),
        (("--loss", "squared_hinge"), "newton"),
        (("--kernel", "linear", "--tol", "1e-5"), "sdca"),
        (("--seconds", "60"), "sdca"),
        (("--kernel", "rbf"), "sdca"),
        (("--solver", "pegasos"), "pegasos"),
        (("--solver", "ocas", "--tol", "1e-7"), "ocas"),
    ],
)
def test_without_a_name_the_solver_is_the_fastest_for_linear_machines(
    there, capsys, options, solver
):
    assert main(["train", "rows.svm", "--model", "f.npz", "--quiet", *options]) == 0
    assert f"solver       {solver}, " in capsys.readouterr().out
    if solver not in ("interior_point", "newton", "ocas"):
        return
    from sklearn.svm import LinearSVC

    scaled = (X - X.mean(0)) / X.std(0)
    loss = "squared_hinge" if solver == "newton" else "hinge"
    best = LinearSVC(loss=loss, tol=1e-9, max_iter=10**6, random_state=0).fit(scaled, Y)
    np.testing.assert_allclose(
        jaxsvm.models.load("f.npz")(X.astype("f")), best.decision_function(scaled), atol=1e-3
    )


@pytest.mark.long(but=1)
def test_predictions_of_any_format_agree(there, capsys):
    printed = []
    for file in ("rows.svm", "rows.npz", "bare.csv"):
        assert main(["predict", "linear.npz", file]) == 0
        printed.append(capsys.readouterr().out)
    assert printed[0] == printed[1] == printed[2] and len(printed[0].split()) == 60


def predictions(capsys, *argv):
    """What `jaxsvm predict` prints, and its warnings."""
    assert main(["predict", *argv]) == 0
    out, err = capsys.readouterr()
    return out, [line for line in err.splitlines() if "warning" in line]


def test_a_model_knows_the_base_of_its_training_file(there, capsys):
    """A file without the first and the last column fits both bases."""
    hollow = X * [0, 1, 1, 0]
    np.savez("hollow.npz", x=hollow)
    for name, base in (("from-0.svm", True), ("from-1.svm.bz2", False)):
        dump_svmlight_file(hollow, Y, "plain.svm", zero_based=base)
        packed = bz2.compress if name.endswith("bz2") else bytes
        (there / name).write_bytes(packed((there / "plain.svm").read_bytes()))
    right, _ = predictions(capsys, "linear.npz", "hollow.npz")
    assert jaxsvm.models.load_notes("linear.npz")["zero-based"] == "no"
    assert predictions(capsys, "linear.npz", "from-1.svm.bz2") == (right, [])
    assert predictions(capsys, "linear.npz", "from-0.svm", "--zero-based", "yes") == (right, [])
    model = jaxsvm.models.load("linear.npz")
    jaxsvm.models.save("zero.npz", model, notes={"zero-based": "yes"})
    assert predictions(capsys, "zero.npz", "from-0.svm") == (right, [])
    assert predictions(capsys, "zero.npz", "from-1.svm.bz2", "--zero-based", "no") == (right, [])
    for notes in ({}, {"zero-based": "?"}):
        jaxsvm.models.save("old.npz", model, notes=notes)
        out, said = predictions(capsys, "old.npz", "from-1.svm.bz2")
        assert out == right and "fit 4 columns counted from 0 or from 1" in said[0]
        assert "give --zero-based yes or --zero-based no" in said[0]
    dump_svmlight_file(X, Y, "full.svm", zero_based=True)
    refused(
        capsys,
        "line 1: the index 0 is below 1, the first with --zero-based no",
        "predict",
        "linear.npz",
        "full.svm",
    )
    refused(
        capsys,
        "the index 4 is beyond the 4 columns, counted from 0 (--zero",
        "predict",
        "zero.npz",
        "rows.svm",
    )


@pytest.mark.long
@pytest.mark.parametrize("command", ["train", "select", "sweep"])
def test_every_command_keeps_the_base(there, capsys, command):
    dump_svmlight_file(X, Y, "zero.svm", zero_based=True)
    grid = {
        "train": [],
        "select": ["--C", "1", "--folds", "2"],
        "sweep": ["--lam", "1e-2", "--sigma", "1", "--count", "8"],
    }
    assert main([command, "zero.svm", "--model", "m.npz", "--quiet", *grid[command]]) == 0
    dump_svmlight_file(X * [0, 1, 1, 0], Y, "later.svm", zero_based=True)
    np.savez("later.npz", x=X * [0, 1, 1, 0])
    capsys.readouterr()
    assert predictions(capsys, "m.npz", "later.svm") == predictions(capsys, "m.npz", "later.npz")
    dump_svmlight_file(X, Y, "one.svm", zero_based=False)
    assert main(["train", "zero.svm", "--test", "one.svm", "--model", "m.npz", "--quiet"]) == 0
    assert (
        "warning: one.svm has no index 0 and ends an index after zero.svm"
        in capsys.readouterr().err
    )


def test_headers_of_numbers_in_commands(there, capsys):
    """As pandas writes them; options of Python are told as those of the commands."""
    bare = (there / "bare.csv").read_text()
    (there / "numbered.csv").write_text("0,1,2,3\n" + bare)
    assert predictions(capsys, "linear.npz", "numbered.csv") == predictions(
        capsys, "linear.npz", "bare.csv"
    )
    (there / "whole.csv").write_text("0,1,2,3\n" + "7,5,3,1\n" * 9)
    assert main(["convert", "whole.csv", "whole.npz"]) == 0
    said = (
        "0, 1, 2, 3 is read as a row: give --header yes if it names "
        "the columns, --header no if it does not"
    )
    assert said in capsys.readouterr().err
    for header, n in (("yes", 9), ("no", 10)):
        assert main(["convert", "whole.csv", "whole.npz", "--header", header]) == 0
        assert np.load("whole.npz")["x"].shape == (n, 3) and capsys.readouterr().err == ""
    (there / "comma.csv").write_text(
        "".join(
            f"{x:.1f};{kind}\n".replace(".", ",") for x, kind in zip(X[:, 1], KINDS, strict=True)
        )
    )
    assert main(["convert", "comma.csv", "whole.npz"]) == 0
    assert "hold ';': if it stands between cells, give --delimiter ';'" in capsys.readouterr().err
    (there / "blank.csv").write_text("a,b,c\n1,2,3\n,,\n")
    refused(
        capsys,
        "blank.csv, line 3: every cell is empty, expected numbers; leave the line out (--m",
        "convert",
        "blank.csv",
        "b.npz",
    )


@pytest.mark.long
@pytest.mark.parametrize("command", ["train", "select"])
def test_numbered_columns_of_pandas_train_a_model(there, capsys, command):
    rows = np.c_[X, (Y + 1) // 2]
    np.savetxt("pandas.csv", rows, delimiter=",", header="0,1,2,3,4", comments="", fmt="%.6f")
    options = ["--C", "1", "--folds", "2"] if command == "select" else []
    assert main([command, "pandas.csv", "--model", "pandas.npz", "--quiet", *options]) == 0
    out, err = capsys.readouterr()
    assert (
        "60 rows x 4 columns" in out
        and jaxsvm.models.load("pandas.npz").classes == (0, 1)
        and err == ""
    )


@pytest.mark.long
def test_more_classes_come_back_by_name(there, capsys):
    assert main(["train", "kinds.csv", "--model", "k.npz", "--passes", "30", "--quiet"]) == 0
    assert "classes high (" in capsys.readouterr().out
    assert main(["predict", "k.npz", "kinds.csv", "--label", "kind"]) == 0
    out, err = capsys.readouterr()
    wrong = np.mean(np.array(out.split()) != KINDS)
    assert f"error {wrong:.2%}" in err and wrong < 0.4
    assert main(["predict", "k.npz", "rows.svm"]) == 0
    assert "not all classes of the model" in capsys.readouterr().err


@pytest.mark.long
def test_landmarks_by_their_choice(there, capsys):
    """Those of the option, and uniform ones without it."""
    how = (
        "--kernel",
        "rbf",
        "--features",
        "nystrom",
        "--count",
        "8",
        "--no-certificate",
        "--quiet",
    )
    chosen = {}
    for name in (None, "uniform", "random_pivots"):
        option = () if name is None else ("--landmarks", name)
        assert main(["train", "rows.npz", "--model", "l.npz", *how, *option]) == 0
        model = jaxsvm.models.load("l.npz")
        is_map = lambda part: isinstance(part, jaxsvm.features.Nystrom)
        (phi,) = filter(is_map, jax.tree.leaves(model, is_leaf=is_map))
        chosen[name] = np.asarray(phi.landmarks)
    np.testing.assert_array_equal(chosen[None], chosen["uniform"])
    assert len(np.unique(chosen["random_pivots"], axis=0)) == 8
    assert (chosen["random_pivots"] != chosen["uniform"]).any()


@pytest.mark.long
def test_kernels_features_and_one_class_against_the_rest(there, capsys):
    how = (
        "--kernel",
        "rbf",
        "--sigma",
        "0.7",
        "--features",
        "nystrom",
        "--count",
        "40",
        "--solver",
        "asset",
        "--steps",
        "2000",
        "--no-certificate",
    )
    assert (
        main(
            [
                "train",
                "kinds.csv",
                "--positive",
                "middle",
                "--C",
                "100",
                "--model",
                "n.npz",
                *how,
                "--quiet",
            ]
        )
        == 0
    )
    assert "rest (" in capsys.readouterr().out
    assert main(["predict", "n.npz", "kinds.csv"]) == 0
    out, err = capsys.readouterr()
    wrong = np.mean((np.array(out.split()) == "middle") != (KINDS == "middle"))
    assert set(out.split()) == {"rest", "middle"} and f"{wrong:.2%}" in err and wrong < 0.3
    assert (
        main(["train", "rows.npz", "--kernel", "rbf", "--C", "0.5", "--model", "r.npz", "--quiet"])
        == 0
    )
    assert "within 0.0" in capsys.readouterr().out
    from sklearn.svm import SVC

    model = jaxsvm.models.load("r.npz")
    standard = (X - X.mean(0)) / X.std(0)
    exact = SVC(C=0.5, kernel="rbf", gamma="scale").fit(
        standard, Y
    )  # with a free bias: about the same function
    assert np.mean(model.predict(jax.numpy.asarray(X, np.float32)) == exact.predict(standard)) > 0.9
    assert model.inner.inner.x.shape[0] < 60, "rows that do not count are not kept"


@pytest.mark.long
def test_exact_kernel_machines_are_those_of_libsvm(there, capsys):
    from sklearn.svm import SVC

    standard = (X - X.mean(0)) / X.std(0)
    exact = SVC(C=0.5, kernel="rbf", gamma="scale", tol=1e-6).fit(standard, Y)
    for how in (
        ["--solver", "decomposition", "--C", "0.5"],
        ["--solver", "smo", "--lam", repr(1 / (0.5 * 60))],
    ):
        assert (
            main(
                [
                    "train",
                    "rows.npz",
                    "--kernel",
                    "rbf",
                    "--tol",
                    "1e-4",
                    "--model",
                    "x.npz",
                    "--quiet",
                    *how,
                ]
            )
            == 0
        )
        out = capsys.readouterr().out
        assert "converged" in out and "bias free" in out and "within 0.0" in out
        assert main(["predict", "x.npz", "rows.npz", "--out", "x.txt", "--scores"]) == 0
        np.testing.assert_allclose(
            np.loadtxt("x.txt")[:, 1], exact.decision_function(standard), atol=1e-3
        )  # --tol
        assert jaxsvm.models.load("x.npz").inner.inner.x.shape[0] == len(exact.support_)
    assert (
        main(
            [
                "train",
                "kinds.csv",
                "--solver",
                "decomposition",
                "--multiclass",
                "ovo",
                "--model",
                "o.npz",
                "--quiet",
            ]
        )
        == 0
    )
    assert main(["predict", "o.npz", "bare.csv", "--out", "o.txt"]) == 0
    pairs = SVC(kernel="linear", break_ties=True).fit(standard, KINDS)
    assert np.mean(np.loadtxt("o.txt", dtype=str) == pairs.predict(standard)) > 0.97
    assert jaxsvm.models.load("o.npz").inner.inner.inner.x.shape[0] < 60, (
        "rows that do not count are not kept"
    )


@pytest.mark.long
@pytest.mark.parametrize("solver", ["bsca", "bsgd"])
def test_kernel_machines_on_a_budget(there, capsys, solver):
    from sklearn.metrics.pairwise import rbf_kernel
    from sklearn.svm import SVC

    standard = (X - X.mean(0)) / X.std(0)
    how = ["--solver", solver, "--kernel", "rbf", "--gamma", "0.25", "--budget", "12", "--quiet"]
    assert main(["train", "rows.npz", "--model", "b.npz", *how]) == 0
    out = capsys.readouterr().out
    assert (
        "at most 12 points" in out
        and ("converged" in out) == (solver == "bsca")
        and "certificate" in out
    )
    assert main(["predict", "b.npz", "rows.npz", "--out", "b.txt", "--scores"]) == 0
    held, values = jaxsvm.models.load("b.npz").inner.inner, np.loadtxt("b.txt")
    assert held.x.shape[0] <= 12
    score = np.asarray(held.coef) @ rbf_kernel(np.asarray(held.x), standard, gamma=0.25)
    np.testing.assert_allclose(
        values[:, 1], score, atol=1e-3
    )  # float32, over columns scaled in float32
    exact = SVC(C=1.0, gamma=0.25).fit(standard, Y)
    assert np.mean(values[:, 0] == exact.predict(standard)) > 0.85
    assert main(["train", "kinds.csv", "--model", "b3.npz", *how]) == 0
    assert main(["predict", "b3.npz", "bare.csv", "--out", "b3.txt"]) == 0
    assert jaxsvm.models.load("b3.npz").inner.inner.inner.x.shape == (3, 12, 4)
    assert np.mean(np.loadtxt("b3.txt", dtype=str) == KINDS) > 0.7


@pytest.mark.long
def test_a_budget_for_a_kernel_that_has_no_merge(there, capsys):
    how = [
        "--solver",
        "bsca",
        "--kernel",
        "laplacian",
        "--budget",
        "20",
        "--quiet",
        "--no-certificate",
    ]
    assert main(["train", "rows.npz", "--model", "l.npz", *how]) == 0
    held = jaxsvm.models.load("l.npz").inner.inner
    standard = ((X - X.mean(0)) / X.std(0)).astype(np.float32)
    assert held.x.shape[0] == 20
    distance = np.abs(np.asarray(held.x)[:, None] - standard[None]).max(-1)
    assert distance.min(1).max() < 1e-5, (
        "points that go leave the others as they are: rows, scaled in float32"
    )


def test_a_bad_budget_is_one_line(there, capsys):
    train = ("train", "rows.svm", "--model", "new.npz", "--kernel", "rbf")
    refused(
        capsys,
        "--budget must be at least 2, the points that the model may have, got 1",
        *train,
        "--solver",
        "bsca",
        "--budget",
        "1",
    )
    refused(
        capsys,
        "argument --budget: expected an integer below 2^31, got 'many'",
        *train,
        "--solver",
        "bsca",
        "--budget",
        "many",
    )
    refused(
        capsys,
        "--solver sdca has no budget: leave --budget out, or take --solver bsca or bsgd",
        *train,
        "--budget",
        "9",
    )
    refused(
        capsys, "--solver bsgd needs a kernel, such as --kernel rbf", *train[:4], "--solver", "bsgd"
    )
    refused(
        capsys,
        "--tol has nothing to stop on with --solver bsgd",
        *train,
        "--solver",
        "bsgd",
        "--tol",
        "1e-3",
    )
    refused(capsys, "leave --features out", *train, "--solver", "bsca", "--features", "nystrom")
    with pytest.raises(SystemExit):
        main(["train", "--help"])
    assert "--budget" in capsys.readouterr().out


@pytest.mark.long
def test_real_targets_and_other_solvers(there, capsys):
    np.savez("real.npz", x=X, y=X[:, 0] * 2 + 1)
    assert (
        main(
            [
                "train",
                "real.npz",
                "--task",
                "regression",
                "--solver",
                "pegasos",
                "--model",
                "t.npz",
                "--quiet",
                "--no-certificate",
            ]
        )
        == 0
    )
    assert "root mean square" in capsys.readouterr().out
    assert main(["predict", "t.npz", "real.npz"]) == 0
    out, err = capsys.readouterr()
    error = np.sqrt(np.mean((np.array(out.split(), float) - X[:, 0] * 2 - 1) ** 2))
    assert (
        float(err.split()[3]) == pytest.approx(error, rel=1e-4) and error < 1
    )  # printed with six digits


@pytest.mark.long
def test_sweep_writes_table_picture_and_model(there, capsys):
    argv = [
        "sweep",
        "rows.svm",
        "--lam",
        "1e-3,1e-1",
        "--sigma",
        "0.5:5:2",
        "--count",
        "16",
        "--passes",
        "4",
        "--quiet",
    ]
    assert main([*argv, "--out", "s.csv", "--plot", "s.png", "--model", "best.npz"]) == 0
    out = capsys.readouterr().out
    table = np.loadtxt("s.csv", delimiter=",", skiprows=1)
    assert (
        table.shape == (4, 3)
        and f"{table[:, 2].min():.2%}" in out
        and open("s.png", "rb").read(4) == b"\x89PNG"
    )
    assert main(["predict", "best.npz", "rows.svm"]) == 0
    assert "60 rows, error" in capsys.readouterr().err


def test_convert_there_and_back(there, capsys):
    chain = ["rows.svm", "c1.npz", "c2.csv", "c3.svm.gz"]
    for source, target in zip(chain, chain[1:], strict=False):
        assert main(["convert", source, target]) == 0
    (x, y), (x3, y3) = (load_svmlight_file(name) for name in ("rows.svm", "c3.svm.gz"))
    np.testing.assert_array_equal(x.toarray(), x3.toarray())  # to the last digit
    np.testing.assert_array_equal(y, y3)
    assert main(["convert", "kinds.csv", "k.npz"]) == 0
    with np.load("k.npz") as arrays:
        np.testing.assert_array_equal(arrays["x"], X)
        assert arrays["y"].tolist() == KINDS.tolist()


def test_convert_keeps_queries(there, capsys):
    there.joinpath("ranked.svm").write_text(
        "2 qid:1 1:0.5\n1 qid:1 2:1\n0 qid:7 1:2\n1 qid:7 2:3\n"
    )
    assert main(["convert", "ranked.svm", "ranked.npz"]) == 0
    assert main(["convert", "ranked.npz", "again.svm"]) == 0
    (data,) = jaxsvm.data.load_svmlight("again.svm", task="ranking")
    assert data.query.tolist() == [0, 0, 1, 1] and data.y.tolist() == [2, 1, 0, 1]
    assert main(["convert", "ranked.svm", "ranked.csv"]) == 2
    assert "no place in csv files" in capsys.readouterr().err


def test_bad_input_is_one_line(there, capsys):
    (there / "bad.svm").write_text("1 1:1\n-1 2:x\n")
    (there / "wide.svm").write_text("1 5:1\n-1 1:1\n")
    (there / "bad.csv").write_text("a,b\n1,2\n1\n")
    (there / "damaged.npz").write_bytes((there / "linear.npz").read_bytes()[:-50])
    train = ("--model", "new.npz")
    refused(capsys, "there is no file nope.svm", "train", "nope.svm", *train)
    refused(
        capsys, "bad.svm, line 2: the value 'x' of index 2 is no number", "train", "bad.svm", *train
    )
    (there / "names.csv").write_text("a,b,3,7\n1,2,1,1\n3,4,0,0\n")
    refused(
        capsys,
        "others of the line are: say --header yes if the line names the columns",
        "train",
        "names.csv",
        *train,
    )
    refused(capsys, "bad.csv, line 3 has 1 cells", "train", "bad.csv", *train)
    refused(capsys, "damaged.npz is damaged", "predict", "damaged.npz", "rows.svm")
    refused(
        capsys,
        "new.npz is in a folder that does not exist",
        "train",
        "rows.svm",
        "--model",
        "no/new.npz",
    )
    refused(
        capsys,
        "the following arguments are required: --model (see jaxsvm train --help)",
        "train",
        "rows.svm",
    )
    refused(capsys, "invalid choice: 'frob'", "frob")
    refused(
        capsys,
        "--C: not allowed with argument --lam",
        "train",
        "rows.svm",
        *train,
        "--lam",
        "1",
        "--C",
        "1",
    )
    refused(capsys, "--lam and --C must be above 0", "train", "rows.svm", *train, "--C", "-1")
    refused(
        capsys,
        "--landmarks are those of --features nystrom",
        "train",
        "rows.svm",
        *train,
        "--kernel",
        "rbf",
        "--landmarks",
        "k_means",
    )
    refused(
        capsys,
        "is linear: add --features nystrom",
        "train",
        "rows.svm",
        *train,
        "--kernel",
        "rbf",
        "--solver",
        "asset",
    )
    refused(
        capsys,
        "--tol has nothing to stop on",
        "train",
        "rows.svm",
        *train,
        "--solver",
        "pegasos",
        "--tol",
        "1",
    )
    refused(
        capsys,
        "takes --bias none, got free",
        "train",
        "rows.svm",
        *train,
        "--solver",
        "asset_star",
        "--bias",
        "free",
    )
    exact = ("train", "rows.svm", *train, "--kernel", "rbf", "--solver", "decomposition")
    refused(
        capsys,
        "solves the problem of the kernel itself: leave --features out",
        *exact,
        "--features",
        "nystrom",
    )
    refused(capsys, "is not quadratic: take newton, ocas or sdca", *exact, "--loss", "logistic")
    refused(capsys, "takes --bias free or none, got feature", *exact, "--bias", "feature")
    refused(capsys, "--multiclass is for more than two classes", *exact, "--multiclass", "ovo")
    refused(capsys, "say which is +1, --positive", "sweep", "kinds.csv")
    refused(capsys, "expected LOW:HIGH:COUNT", "sweep", "rows.svm", "--lam", "1:2")
    refused(capsys, "high, low, middle; got z", "train", "kinds.csv", *train, "--positive", "z")
    refused(capsys, "index 5 is beyond the 4 columns", "predict", "linear.npz", "wide.svm")
    refused(capsys, "must end in .svm", "convert", "rows.svm", "rows.xyz")
    refused(capsys, "labels in svmlight files are numbers", "convert", "kinds.csv", "k.svm")
    refused(capsys, "is a file that is read", "convert", "rows.npz", "rows.npz")


def test_messages_name_the_options_that_help(there, capsys):
    (there / "semicolons.csv").write_text("a;b;kind\n1;2;x\n3;4;y\n")
    (there / "first.csv").write_text("cat,1,2\ndog,3,4\n")
    (there / "gaps.csv").write_text("a,b,kind\n1,2,x\n?,4,y\n")
    (there / "table.txt").write_text("1;2;x\n3;4;y\n")
    np.savez("gaps.npz", x=[[1.0, np.nan], [2.0, 3.0]], y=[1, -1])
    train = ("--model", "new.npz")
    refused(
        capsys,
        "is ',' what stands between cells? (try --delimiter ';')",
        "train",
        "semicolons.csv",
        *train,
    )
    refused(
        capsys, "no column named 'kind', its", "train", "semicolons.csv", *train, "--label", "kind"
    )
    refused(
        capsys,
        "no column named 'sort', its first line holds a, b, kind (--label says",
        "train",
        "gaps.csv",
        *train,
        "--label",
        "sort",
    )
    refused(
        capsys,
        "(try --label '0'; --header says whether the first line",
        "train",
        "first.csv",
        *train,
    )
    refused(
        capsys,
        "'?' in column 1 is no number (--missing drop leaves such rows out",
        "train",
        "gaps.csv",
        *train,
    )
    refused(
        capsys,
        "1 of 2 rows have a missing number (NaN): --missing drop leaves",
        "train",
        "gaps.npz",
        *train,
    )
    refused(
        capsys, "(it was read as svmlight: --format csv reads cells)", "train", "table.txt", *train
    )
    refused(
        capsys,
        "there is no option --modle: did you mean --model? (see jaxsvm train --help)",
        "train",
        "rows.svm",
        "--modle",
        "m.npz",
    )
    refused(
        capsys,
        "there is no option --xyzzy (see jaxsvm predict --help)",
        "predict",
        "linear.npz",
        "rows.svm",
        "--xyzzy=3",
    )
    refused(
        capsys,
        "there is no option --labl: did you mean --label?",
        "convert",
        "rows.svm",
        "new.csv",
        "--labl",
        "1",
    )
    assert main(["convert", "table.txt", "table.csv", "--delimiter", ";"]) == 0, (
        "an option of CSV says that it is CSV"
    )
    assert open("table.csv").read().split() == ["x1;x2;y", "1;2;x", "3;4;y"]


def gaps():
    """Rows with missing numbers as CSV, and as an array with NaN; a label is missing in the last
    row."""
    rows = X.copy()
    rows[[3, 7, 40], [0, 2, 3]] = np.nan
    words = iter(("", "?", "NA"))
    cells = [
        ",".join(next(words) if np.isnan(v) else repr(v) for v in row.tolist()) for row in rows
    ]
    return "".join(
        f"{row},{kind}\n" for row, kind in zip(cells, KINDS, strict=True)
    ) + "1,2,3,4,\n", rows


def test_rows_with_missing_numbers_are_left_out_or_filled_in(there, capsys):
    from sklearn.impute import SimpleImputer

    text, rows = gaps()
    (there / "gaps.csv").write_text("a,b,c,d,kind\n" + text)
    assert main(["convert", "gaps.csv", "whole.npz", "--missing", "drop"]) == 0
    assert "warning: 4 of 61 rows have missing cells, which are left out" in capsys.readouterr().err
    with np.load("whole.npz") as arrays:
        keep = ~np.isnan(rows).any(axis=1)
        np.testing.assert_array_equal(arrays["x"], X[keep])
        assert arrays["y"].tolist() == KINDS[keep].tolist()
    refused(
        capsys,
        "a label is missing, which no mean replaces",
        "convert",
        "gaps.csv",
        "new.npz",
        "--missing",
        "mean",
    )
    (there / "labelled.csv").write_text(
        text.rsplit("\n", 2)[0]
    )  # without a header, and without the last row
    assert main(["convert", "labelled.csv", "filled.npz", "--missing", "mean"]) == 0
    with np.load("filled.npz") as arrays:
        np.testing.assert_allclose(arrays["x"], SimpleImputer().fit_transform(rows), rtol=1e-12)
    np.savez("gaps.npz", x=rows, y=KINDS)
    assert main(["convert", "gaps.npz", "filled2.npz", "--missing", "mean"]) == 0
    with np.load("filled.npz") as first, np.load("filled2.npz") as second:
        np.testing.assert_array_equal(first["x"], second["x"])
    assert (
        "warning: 3 of 60 rows have missing cells, which are filled in by the means"
        in capsys.readouterr().err
    )
    (there / "empty.csv").write_text("1,,x\n2,?,y\n")
    refused(
        capsys,
        "column 2 beside the label holds no number",
        "convert",
        "empty.csv",
        "new.npz",
        "--missing",
        "mean",
    )
    refused(
        capsys,
        "every row has a missing number",
        "convert",
        "empty.csv",
        "new.npz",
        "--missing",
        "drop",
    )
    (there / "word.csv").write_text("1,2,x\n2,three,y\n")
    refused(
        capsys,
        "the cell 'three' in column 2 is no number",
        "convert",
        "word.csv",
        "new.npz",
        "--missing",
        "drop",
    )


def test_missing_numbers_of_new_rows_are_the_means_of_the_training_rows(there, capsys):
    model = jaxsvm.models.load("linear.npz")
    means = np.asarray(
        model.inner.phi.mean if hasattr(model.inner.phi, "mean") else model.inner.phi.value.mean,
        np.float64,
    )
    rows = np.vstack([X[:5], means])
    rows[5, 1] = np.nan
    np.savez("new.npz", x=rows)
    filled = rows.copy()
    filled[5, 1] = means[1]
    np.savez("known.npz", x=filled)
    assert main(["predict", "linear.npz", "new.npz", "--missing", "mean", "--scores"]) == 0
    out = capsys.readouterr().out
    assert main(["predict", "linear.npz", "known.npz", "--scores"]) == 0
    assert capsys.readouterr().out == out
    assert main(["predict", "linear.npz", "new.npz", "--missing", "drop"]) == 0
    assert len(capsys.readouterr().out.split()) == 5
    jaxsvm.models.save("bare.npz", model.inner.inner)
    refused(
        capsys,
        "the model holds no means of its columns",
        "predict",
        "bare.npz",
        "new.npz",
        "--missing",
        "mean",
    )


def test_a_column_that_counts_the_rows_is_pointed_out(there, capsys):
    header = "id,a,kind\n"
    lines = [
        f"{i + 1},{x},{kind}\n" for i, (x, kind) in enumerate(zip(X[:, 0], KINDS, strict=True))
    ]
    (there / "counted.csv").write_text(header + "".join(lines))
    assert main(["convert", "counted.csv", "counted.npz"]) == 0
    err = capsys.readouterr().err
    assert (
        "counted.csv: column 1, 'id', counts the rows from 1: it "
        "says nothing of other rows, leave it out"
    ) in err
    (there / "shuffled.csv").write_text(header + "".join(lines[::-1]))
    assert main(["convert", "shuffled.csv", "counted.npz"]) == 0
    assert main(["convert", "kinds.csv", "counted.npz"]) == 0
    assert capsys.readouterr().err == ""


def test_info_tells_what_a_model_is(there, capsys):
    assert (
        main(
            [
                "train",
                "rows.npz",
                "--solver",
                "decomposition",
                "--kernel",
                "rbf",
                "--model",
                "exact.npz",
                "--quiet",
            ]
        )
        == 0
    )
    printed = capsys.readouterr().out
    assert main(["info", "exact.npz"]) == 0
    out = capsys.readouterr().out
    points = jaxsvm.models.load("exact.npz").inner.inner.x.shape[0]
    assert f"classifier of 4 columns; kernel machine of {points} points, rbf(gamma=" in out
    assert "classes      2: -1, 1\n" in out and "bias free" in out and "decomposition" in out
    for head in ("status", "train error", "certificate"):  # as training said it
        (line,) = [line for line in printed.split("\n") if line.startswith(head)]
        assert line + "\n" in out
    assert main(["info", "linear.npz"]) == 0
    out = capsys.readouterr().out
    assert (
        "linear, 4 weights, bias feature" in out
        and "none in the file" in out
        and "test error" in out
    )
    classes = ("\x1b[31mred", "b")
    model = jaxsvm.models.Classifier(
        jaxsvm.models.Linear(np.ones(4, np.float32), np.float32(0)), classes
    )
    jaxsvm.models.save("colour.npz", model, notes={"note": "one\x1b[0m\ntwo"})
    assert main(["info", "colour.npz"]) == 0
    out = capsys.readouterr().out
    assert (
        "\x1b" not in out
        and "2: \\x1b[31mred, b\n" in out
        and "note         one\\x1b[0m\\ntwo\n" in out
    )
    refused(capsys, "there is no file nope.npz", "info", "nope.npz")
    refused(capsys, "rows.npz is damaged or was not written by", "info", "rows.npz")


def test_a_model_without_notes_is_told_as_well(there, capsys):
    """Files of 0.3.0 have none."""
    model = jaxsvm.models.load("linear.npz")
    jaxsvm.models.save("quiet.npz", model)
    assert main(["info", "quiet.npz"]) == 0
    assert "certificate  none in the file" in capsys.readouterr().out


def test_time_left_is_told_once_it_is_known(capsys, monkeypatch):
    from jaxsvm.loops import progress

    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    bar = progress.Bar(100, "steps")
    for seconds, count in (
        (30.0, 10),
        (31.0, 20),
        (32.0, 30),
    ):  # the first part holds 30 seconds of compilation
        now[0] = seconds
        bar.show(count)
    bar.close()
    lines = capsys.readouterr().err.split("\r")[1:]
    assert "left" not in lines[0] and ", 8 s left" in lines[1] and ", 7 s left" in lines[2]


def test_where_results_cannot_go_is_one_line(there, capsys):
    os.mkfifo("pipe.npz")
    for path, message in (
        ("pipe.npz", "pipe.npz is a pipe, a device or a socket, expected the name of a file"),
        ("/dev/null", "/dev/null is a pipe, a device or a socket"),
        (str(there), "is a folder, expected the name of a file"),
    ):
        refused(capsys, message, "train", "rows.svm", "--model", path)
        refused(capsys, message, "predict", "linear.npz", "rows.svm", "--out", path)
        refused(capsys, message, "sweep", "rows.svm", "--out", path)
    refused(
        capsys,
        "pipe.npz is a pipe, a device or a socket, expected a file",
        "predict",
        "pipe.npz",
        "rows.svm",
    )
    os.unlink("pipe.npz")


# Where the standard streams do not take all

QUICK = (
    "train",
    "rows.svm",
    "--hold-out",
    "0.25",
    "--quiet",
    "--no-certificate",
    "--model",
)  # as of the fixture


class Part(io.RawIOBase):
    """Takes 7 bytes at a time, every other time none, as a pipe that does not block."""

    def __init__(self):
        super().__init__()
        self.held, self.calls = b"", 0

    def writable(self):
        return True

    def write(self, data):
        self.calls += 1
        if self.calls % 20 == 0:
            return None
        self.held += bytes(data[:7])
        return min(len(data), 7)


def closed_pipe():
    read, write = os.pipe()
    os.close(read)
    return open(write, "w")


def closed_stream():
    stream = open(os.devnull, "w")
    stream.close()
    return stream


def full_disk():
    return open("/dev/full", "w")


def raw_full_disk():
    """As with PYTHONUNBUFFERED."""
    return io.TextIOWrapper(open("/dev/full", "wb", buffering=0), write_through=True)


STREAMS = {
    closed_pipe: "broken pipe",
    full_disk: "no space left on device",
    raw_full_disk: "no space left on device",
    closed_stream: "the stream is closed",
    lambda: None: "the stream is closed",
}


@pytest.mark.parametrize("make", STREAMS)
def test_a_report_that_cannot_be_printed_loses_no_result(there, capsys, monkeypatch, make):
    """The model, predictions and rows are written; a line says that the report was not printed."""
    for name, argv in (
        ("edge.npz", (*QUICK, "edge.npz")),
        ("edge.svm", ("convert", "rows.npz", "edge.svm")),
        (None, ("info", "linear.npz")),
        (None, ("train", "--help")),
        (None, ("--version",)),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(sys, "stdout", make())
            assert main(argv) == 1
        said = "jaxsvm: error: the report could not be printed in full: " + STREAMS[make]
        assert capsys.readouterr().err == said + (f"; {name} was written\n" if name else "\n")
    model, right = jaxsvm.models.load("edge.npz"), jaxsvm.models.load("linear.npz")
    np.testing.assert_array_equal(model(X.astype("f")), right(X.astype("f")))
    np.testing.assert_array_equal(load_svmlight_file("edge.svm")[0].toarray(), X)


@pytest.mark.parametrize("make", STREAMS)
def test_a_result_that_the_standard_output_does_not_take_is_one_line(
    there, capsys, monkeypatch, make
):
    for argv in (
        (*QUICK, "-"),
        ("predict", "linear.npz", "rows.npz"),
        ("predict", "linear.npz", "rows.npz", "--out", "-"),
        ("convert", "rows.npz", "-"),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(sys, "stdout", make())
            assert main(argv) == 2
        err = capsys.readouterr().err
        assert (
            err.endswith(f"jaxsvm: error: the standard output: {STREAMS[make]}\n")
            and err.count("error:") == 1
        ), err


@pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning"
)  # streams that are let go
@pytest.mark.parametrize("make", STREAMS)
def test_an_error_stream_that_takes_nothing_changes_no_result(there, capsys, monkeypatch, make):
    def silent(*argv):
        with monkeypatch.context() as patch:
            patch.setattr(sys, "stderr", make())
            return main(argv)

    assert silent(*QUICK[:4], *QUICK[5:], "silent.npz") == 0  # with a bar
    assert silent("predict", "silent.npz", "rows.npz") == 0
    assert capsys.readouterr().out.count("\n") > 60
    assert silent("train", "nope.svm", "--model", "m.npz") == 2
    monkeypatch.setattr(sys, "stdout", make())
    assert silent(*QUICK, "both.npz") == 1
    assert jaxsvm.models.load("both.npz").classes == (-1, 1)


def test_streams_without_a_buffer_get_the_text(there, monkeypatch):
    """As of a notebook."""
    with contextlib.redirect_stdout(io.StringIO()) as text:
        assert (
            main(["predict", "linear.npz", "rows.npz"])
            == 0
            == main(["convert", "rows.npz", "-", "--to", "svm"])
        )
    assert len(text.getvalue().splitlines()) == 120


def test_streams_that_take_a_part_get_all(there, capsys, monkeypatch):
    """With PYTHONUNBUFFERED a stream writes what a pipe or a disk takes, and returns the number."""
    for argv in (
        (*QUICK, "-"),
        ("predict", "linear.npz", "rows.npz"),
        ("convert", "rows.npz", "-"),
        ("info", "linear.npz"),
    ):
        part = Part()
        with monkeypatch.context() as patch:
            patch.setattr(sys, "stdout", io.TextIOWrapper(part, write_through=True))
            assert main(argv) == 0
        if argv[0] == "train":
            (there / "part.npz").write_bytes(part.held)
            assert jaxsvm.models.load("part.npz").classes == (-1, 1)
            continue
        capsys.readouterr()
        assert main(argv) == 0
        assert part.held.decode() == capsys.readouterr().out


def test_files_that_cannot_be_completed_are_one_line(there, capsys):
    """A limit on their size, as of a full disk: the file before is still there, and no part."""
    wide = np.random.default_rng(0).standard_normal((60, 900))
    np.savez("wide.npz", x=wide, y=Y)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    for name, argv in (
        ("wide.csv", ("convert", "wide.npz", "wide.csv")),
        ("wide.svm.gz", ("convert", "wide.npz", "wide.svm.gz")),
        ("limit.txt", ("predict", "linear.npz", "rows.npz", "--scores", "--out", "limit.txt")),
        ("limit.npz", (*QUICK, "limit.npz")),
    ):
        (there / name).write_text("before")
        resource.setrlimit(resource.RLIMIT_FSIZE, (512, hard))
        try:
            refused(capsys, f"{name}: file too large", *argv)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert (there / name).read_text() == "before"


def test_closed_streams_are_not_taken_by_files(there):
    """What libraries print to stream 2 would stand in the model."""
    code = (
        "from jaxsvm.__main__ import occupy_streams as o; o(); s = str(open('n.txt', "
        "'w').fileno()); open('n.txt', 'w').write(s)"
    )
    for closed in (">&-", "2>&-", "<&- >&- 2>&-"):
        subprocess.run(
            ["sh", "-c", f'exec "$0" -c "$1" {closed}', sys.executable, code],
            check=True,
            timeout=60,
        )
        assert int((there / "n.txt").read_text()) > 2


@pytest.mark.long
@pytest.mark.parametrize(
    ("streams", "status"),
    [
        ("| head -1", 1),
        ("> /dev/full", 1),
        (">&-", 1),
        ("2>&-", 0),
        (">&- 2>&-", 1),
        ("<&- >&- 2>&-", 1),
        ("2>/dev/full", 0),
    ],
)
def test_models_of_processes_with_broken_streams(there, streams, status):
    script = (
        f'"$0" -m jaxsvm train rows.svm --model edges.npz --solver pegasos '
        f"--steps 60 {streams}; exit ${{PIPESTATUS[0]}}"
    )
    done = subprocess.run(["bash", "-c", script, sys.executable], capture_output=True, timeout=120)
    assert done.returncode == status, done
    assert jaxsvm.models.load("edges.npz").classes == (-1, 1)
    os.unlink("edges.npz")


@pytest.mark.long
@pytest.mark.parametrize("command", ["sweep", "select", "demo"])
def test_the_model_is_written_before_what_goes_to_the_standard_output(
    there, tmp_path, capsys, monkeypatch, command
):
    monkeypatch.setattr(sys, "stdout", full_disk())
    if command == "demo":
        monkeypatch.chdir(tmp_path)
        assert main([]) == 1
        assert "no space left on device; jaxsvm-sweep.png was written" in capsys.readouterr().err
        return
    axes = (
        ("--lam", "1e-2", "--sigma", "1,2")
        if command == "sweep"
        else ("--C", "1", "--gamma", "0.1,1")
    )
    table = "--out" if command == "sweep" else "--plot"
    assert main([command, "rows.svm", *axes, "--quiet", "--model", "first.npz", table, "-"]) == 2
    assert "error: the standard output: no space left on device" in capsys.readouterr().err
    assert jaxsvm.models.load("first.npz").classes == (-1, 1)
    os.unlink("first.npz")
    assert main([command, "rows.svm", *axes, "--quiet", "--model", "first.npz"]) == 1
    assert jaxsvm.models.load("first.npz").classes == (-1, 1)


def test_ctrl_c_during_the_report_says_what_is_written(there, capsys, monkeypatch):
    from jaxsvm.commands import report

    def interrupt(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr(report, "error", interrupt)
    assert main([*QUICK, "kept.npz"]) == 130
    assert capsys.readouterr().err == "jaxsvm: interrupted; kept.npz was written\n"
    assert jaxsvm.models.load("kept.npz").classes == (-1, 1)


# Names that are more than a word on a line


def coloured(path, classes):
    linear = jaxsvm.models.Linear(np.ones(4, np.float32), np.float32(0))
    jaxsvm.models.save(path, jaxsvm.models.Classifier(linear, classes))


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("two\nlines", "two\\nlines"),
        ("a\ttab", "a\\ttab"),
        ("\x1b[31mred\x1b]0;title\x07", "\\x1b[31mred\\x1b]0;title\\x07"),
        ("carriage\r", "carriage\\r"),
        ("a\x85b\u2028c\x0cd", "a\\x85b\\u2028c\\x0cd"),
        ("\u202eabc", "\\u202eabc"),
        ("naïve ½\u200d\U0001f469", "naïve ½\u200d\U0001f469"),
        ("a\xa0b", "a\xa0b"),
        ("back\\slash", "back\\slash"),
    ],
)
def test_a_prediction_is_one_line_whatever_its_class_is_called(there, capsys, name, shown):
    coloured("names.npz", (name, "plain"))
    right = np.where(X.sum(1) > 0, "plain", shown).tolist()
    assert main(["predict", "names.npz", "rows.npz"]) == 0
    assert capsys.readouterr().out == "".join(name + "\n" for name in right)
    assert main(["predict", "names.npz", "rows.npz", "--scores", "--out", "names.txt"]) == 0
    cells = [line.split("\t") for line in (there / "names.txt").read_text("utf-8").splitlines()]
    assert [cell[0] for cell in cells] == right and {len(cell) for cell in cells} == {2}
    assert main(["info", "names.npz"]) == 0
    assert f"2: {shown}, plain\n" in capsys.readouterr().out


def test_classes_that_would_be_printed_alike_are_refused(there, capsys):
    coloured("alike.npz", ("a\nb", "a\\nb"))
    refused(capsys, "each once", "predict", "alike.npz", "rows.npz")


@pytest.mark.parametrize("file", ["breaks.csv", "breaks.tsv", "breaks.csv.bz2"])
def test_names_with_line_breaks_come_back_from_csv(there, capsys, file):
    names = np.array(
        [
            "carriage\rreturn",
            "line\nfeed",
            "both\r\n.",
            "a\ttab",
            'a "quote"',
            "a, comma",
            "\x1b[31m",
            "x\x85y\x0cz",
        ]
    )
    np.savez("breaks.npz", x=np.eye(8) + 0.1, y=names)
    assert main(["convert", "breaks.npz", file]) == 0 == main(["convert", file, "came.npz"])
    with np.load("came.npz") as came:
        np.testing.assert_array_equal(came["y"], names)
        np.testing.assert_array_equal(came["x"], np.eye(8) + 0.1)


def test_no_report_and_no_error_controls_a_terminal(there, capsys):
    evil = "\x1b[31m\x1b]0;title\x07"
    rows = "".join(
        ",".join(map(repr, row.tolist())) + f',"{evil}\n{y}"\n' for row, y in zip(X, Y, strict=True)
    )
    (there / "evil.csv").write_text(f"a,b,c,d,{evil}\n{rows}")
    (there / f"{evil[:9]}.csv").write_text("a,b\n1,2\n")
    train = ("--model", "evil.npz", "--quiet", "--hold-out", "0.25", "--no-certificate")
    for status, *argv in (
        (0, "train", "evil.csv", *train),
        (0, "info", "evil.npz"),
        (0, "predict", "evil.npz", "evil.csv"),
        (0, "convert", f"{evil[:9]}.csv", f"{evil[:9]}.tsv"),
        (2, "train", "evil.csv", *train, "--label", evil + "u"),
        (2, "train", "evil.csv", *train, "--positive", evil),
        (2, "train", "evil.csv", *train, evil),
        (2, "sweep", f"{evil}.csv"),
    ):
        assert main(argv) == status
        text = "".join(capsys.readouterr())
        assert not set("\x1b\x07\r") & set(text) and "\\x1b[31m" in text, (argv, text)
    assert jaxsvm.models.load("evil.npz").classes == (f"{evil}\n-1", f"{evil}\n1")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            "train rows.svm --model m.npz --seed 99999999999999999999",
            "--seed: expected an integer below 2^63, got '9999",
        ),
        (
            "select rows.svm --seed -9223372036854775809",
            "--seed: expected an integer below 2^63, got '-922",
        ),
        ("sweep rows.svm --seed 0x1", "--seed: expected an integer below 2^63, got '0x1'"),
        (
            "train rows.svm --model m.npz --steps 99999999999999999999",
            "--steps: expected an integer below 2^31",
        ),
        (
            "train rows.svm --model m.npz --passes 2147483648",
            "--passes: expected an integer below 2^31",
        ),
        ("sweep rows.svm --batch ²", "--batch: expected an integer below 2^31, got '²'"),
        ("sweep rows.svm --lam 1:10:99999999999", "at most 100,000"),
        ("select rows.svm --C 1:10:²", "expected LOW:HIGH:COUNT"),
        ("train kinds.csv --model m.npz --label ²", "has no column named '²'"),
        ("train kinds.csv --model m.npz --label=--5", "has no column named '--5'"),
        ("train kinds.csv --model m.npz --label=-", "has no column named '-'"),
        ("convert kinds.csv n.npz --label ٣", "has no column named '٣'"),
        ("predict linear.npz kinds.csv --label 99999999999999999999", "has no column named '9999"),
        ("train rows.svm --model m.npz --processes ² --process 0 --coordinator a:1", "got 0 of ²"),
    ],
)
def test_numbers_that_are_none_are_one_line(there, capsys, words, message):
    refused(capsys, message, *words.split())


def test_the_largest_seeds_train(there):
    for seed in (2**63 - 1, -(2**63)):
        assert main([*QUICK, "seed.npz", "--seed", str(seed)]) == 0


@pytest.mark.long
def test_a_link_stays_a_link(there):
    os.symlink("far.npz", "link.npz")
    assert (
        main(
            [
                "train",
                "rows.svm",
                "--model",
                "link.npz",
                "--steps",
                "9",
                "--quiet",
                "--no-certificate",
            ]
        )
        == 0
    )
    assert (
        os.path.islink("link.npz") and os.path.isfile("far.npz") and not os.path.islink("far.npz")
    )


def test_no_file_that_is_read_is_written(there, capsys):
    for argv in (
        ("train", "rows.svm", "--model", "rows.svm"),
        ("train", "rows.svm", "--test", "rows.npz", "--model", "rows.npz"),
        ("predict", "linear.npz", "bare.csv", "--out", "bare.csv"),
        ("predict", "linear.npz", "bare.csv", "--out", "linear.npz"),
        ("sweep", "rows.svm", "--out", "rows.svm"),
    ):
        held = (there / argv[-1]).read_bytes()
        refused(capsys, f"{argv[-1]} is a file that is read: give another name", *argv)
        assert (there / argv[-1]).read_bytes() == held


@pytest.mark.long
def test_bad_numbers_from_a_run_are_refused(there, capsys):
    rows = np.array([[1, 1], [-1, 2], [0.1, 0.3]])
    np.savez("huge.npz", x=1e38 * rows, y=[1, -1, 1])
    np.savez("large.npz", x=1e18 * rows, y=[1, -1, 1])
    train = ["--model", "h.npz", "--scale", "none", "--steps", "99", "--quiet"]
    refused(
        capsys, "whose squares sum up to what is too large for float32", "train", "huge.npz", *train
    )
    cubic = ["--kernel", "polynomial", "--gamma", "1"]
    refused(capsys, "numbers that are not finite", "train", "large.npz", *train, *cubic)


@pytest.mark.long
def test_ctrl_c_keeps_what_was_reached(there, capsys, monkeypatch):
    looks = []

    class Bar(loop.Bar):
        def show(self, made, said=""):
            looks.append(made)
            if len(looks) == 3:
                raise KeyboardInterrupt

    monkeypatch.setattr(loop, "Bar", Bar)
    assert (
        main(["train", "rows.svm", "--model", "c.npz", "--solver", "pegasos", "--passes", "1000"])
        == 130
    )
    out = capsys.readouterr().out
    assert (
        f"interrupted: stopped after {looks[-1]} steps" in out
        and "c.npz, as of the last complete chunk" in out
    )
    assert main(["predict", "c.npz", "rows.svm"]) == 0


def test_ctrl_c_keeps_what_a_sweep_reached(there, capsys, monkeypatch):
    """The errors so far are told and written; without any nothing is."""
    parts = []

    class Bar(threads.Bar):
        def show(self, *args):
            parts.append(args)
            if len(parts) == 2:
                raise KeyboardInterrupt

    monkeypatch.setattr(threads, "Bar", Bar)
    monkeypatch.setattr(sweeping, "processors", lambda: 1)
    argv = [
        "sweep",
        "rows.svm",
        "--lam",
        "1e-3,1e-1",
        "--sigma",
        "0.5,1,2,4",
        "--count",
        "16",
        "--passes",
        "4",
    ]
    assert main([*argv, "--out", "part.csv", "--model", "none.npz"]) == 130
    assert ", as far as the sweep got" in capsys.readouterr().out and not os.path.exists("none.npz")
    rows = np.loadtxt("part.csv", delimiter=",", skiprows=1)
    parts = []
    assert main([*argv, "--quiet", "--out", "whole.csv"]) == 0
    whole = np.loadtxt("whole.csv", delimiter=",", skiprows=1)
    assert len(rows) in (4, 6) and {tuple(row) for row in rows} < {tuple(row) for row in whole}


def test_ends_and_a_count_are_a_geometric_sequence():
    for low, high, count in [(0.01, 100, 5), (3, 0.5, 4), (7, 7, 2), (2, 5, 1)]:
        np.testing.assert_allclose(
            numbers(f"{low}:{high}:{count}"), np.geomspace(low, high, count), rtol=1e-12
        )


def test_numbers_without_an_option_are_those_that_the_help_names():
    """Where the parser holds them; others depend on the rest of the command."""
    (commands,) = (action.choices for action in parser()._actions if action.dest == "command")
    compared = 0
    for command in commands.values():
        for action in command._actions:
            shown = re.search(r"\(([\d.e]+)\)$", action.help or "")
            if shown and action.default is not None:
                assert float(shown[1]) == action.default, action.option_strings
                compared += 1
    assert compared > 5


def test_the_variance_of_all_entries():
    x = np.array([[0.1, 0.0, -0.2], [0.0, 0.3, 0.1]], np.float32)
    for entries in (x, jaxsvm.dataset(scipy.sparse.csr_matrix(x), [1, -1]).x):
        assert variance_of(entries) == pytest.approx(x.astype(float).var(), rel=1e-6)
    assert variance_of(np.full((3, 2), 0.1, np.float32)) == pytest.approx(0, abs=1e-8)


def test_a_line_of_the_report_is_written_at_once(monkeypatch):
    """Also where the standard output is a pipe, which Python writes to in large pieces."""
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw))
    line("solver", "sdca")
    assert raw.getvalue() == b"solver       sdca\n"


def test_one_of_two_files_that_was_taken_for_svmlight_brings_the_advice(there, capsys):
    (there / "cells.txt").write_text("1;2;x\n3;4;y\n")
    refused(
        capsys,
        "--format csv reads cells",
        "train",
        "rows.svm",
        "--test",
        "cells.txt",
        "--model",
        "h.npz",
        "--quiet",
    )


# As processes


# Whoever started the tests in the background may have had them ignore Ctrl-C, which children
# inherit.
LISTENING = (
    "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_DFL); "
    "os.execv(sys.executable, sys.argv[1:])"
)


def command(*argv, **how):
    run = [sys.executable, "-c", LISTENING, sys.executable, "-m", "jaxsvm", *argv]
    return subprocess.Popen(run, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **how)


def piped(*argv, text=b"", **environment):
    """Output and errors of a process that reads `text`."""
    run = [sys.executable, "-m", "jaxsvm", *argv]
    return subprocess.run(
        run, input=text, capture_output=True, timeout=300, env=os.environ | environment
    )


def test_wrong_arguments_are_told_before_jax_is_imported(there):
    """Within a second, where importing JAX alone takes about one."""
    code = (
        "import sys; from jaxsvm.__main__ import main; status = main(sys.argv[1:]);"
        "print(status, {'jax', 'numpy', 'sklearn'} & set(sys.modules))"
    )
    for argv in (
        ("train", "nope.csv", "--model", "m.npz"),
        ("train", "rows.svm", "--test", "nope.csv", "--model", "m.npz"),
        ("predict", "nope.npz", "rows.svm"),
        ("info", str(there)),
        ("sweep", "x.npy,y.npy"),
        ("train", "rows.svm", "--modle", "m.npz"),
    ):
        done = subprocess.run(
            [sys.executable, "-c", code, *argv], capture_output=True, text=True, timeout=60
        )
        assert done.stdout == "2 set()\n" and done.stderr.count("\n") == 1, (argv, done)


@pytest.mark.long
def test_standard_input_and_output(there):
    rows = (there / "kinds.csv").read_bytes()
    how = (
        "--solver",
        "pegasos",
        "--steps",
        "50",
        "--quiet",
        "--no-certificate",
        "--positive",
        "low",
    )
    trained = piped("train", "-", "--model", "-", *how, text=rows)
    assert trained.returncode == 0 and b"train error" in trained.stderr, trained.stderr
    (there / "piped.npz").write_bytes(trained.stdout)
    assert main(["train", "kinds.csv", "--model", "named.npz", *how]) == 0
    a, b = (jaxsvm.models.load(name) for name in ("piped.npz", "named.npz"))
    assert a.classes == b.classes and np.array_equal(a.inner.inner.w, b.inner.inner.w)
    named = piped("predict", "named.npz", "kinds.csv")
    for argv, text in (
        (("predict", "named.npz", "-"), rows),
        (("predict", "-", "kinds.csv"), trained.stdout),
    ):
        done = piped(*argv, text=text)
        assert (
            done.returncode == 0 and done.stdout == named.stdout and done.stdout.count(b"\n") == 60
        )
    told = piped("info", "-", text=trained.stdout)
    assert told.returncode == 0 and b"classifier of 4 columns" in told.stdout
    for same in ("rows.npz", "rows.svm"):  # whatever the format is
        done = piped("convert", "-", "-", "--to", "csv", text=(there / same).read_bytes())
        table = np.loadtxt(done.stdout.decode().split("\n"), delimiter=",", skiprows=1)
        np.testing.assert_array_equal(table, np.c_[X, Y])
    bad = piped("train", "-", "--model", "m.npz", text=b"1,2\n3\n")
    assert (
        bad.returncode == 2
        and bad.stderr
        == b"jaxsvm: error: the standard input, line 2 has 1 cells, expected 2 as in "
        + (b"the first (--delimiter says what stands between cells)\n")
    )
    twice = piped("predict", "-", "-")
    assert twice.returncode == 2 and b"can be read once" in twice.stderr


@pytest.mark.long
def test_compiled_programs_are_kept_unless_told_otherwise(there, tmp_path):
    clean = {"JAX_COMPILATION_CACHE_DIR": "", "XDG_CACHE_HOME": str(tmp_path)}
    how = (
        "train",
        "rows.svm",
        "--model",
        "kept.npz",
        "--solver",
        "pegasos",
        "--steps",
        "50",
        "--quiet",
    )
    assert piped(*how, "--no-cache", **clean).returncode == 0 and not list(tmp_path.iterdir())
    assert piped(*how, **clean).returncode == 0
    kept = {path: path.stat().st_mtime_ns for path in (tmp_path / "jaxsvm").glob("*-cache")}
    assert kept
    assert piped(*how, **clean).returncode == 0
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "jaxsvm").glob("*-cache")} == kept
    (tmp_path / "file").write_text("")
    done = piped(*how, **clean | {"XDG_CACHE_HOME": str(tmp_path / "file")})
    assert done.returncode == 0 and done.stderr.count(
        b"compiled programs are not kept"
    ) == 1 == done.stderr.count(b"\n")


@pytest.mark.long
def test_help_and_errors_of_a_process(there):
    shown = command("train", "--help")
    wrong = command("train", "rows.svm", "--model", "x/y.npz")
    out, err = shown.communicate(timeout=120)
    assert shown.returncode == 0 and "examples:" in out and "--features" in out and not err
    out, err = wrong.communicate(timeout=120)
    assert wrong.returncode == 2 and err.count("\n") == 1 and not out


@pytest.mark.long
def test_sigint_ends_a_long_run_with_a_model(there):
    process = command(
        "train", "rows.svm", "--model", "sig.npz", "--solver", "asgd", "--steps", "2000000000"
    )
    shown = ""
    end = time.monotonic() + 120
    while "steps, loss" not in shown and time.monotonic() < end:
        shown += process.stderr.read(1)  # the bar is drawn: a look was made
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 130 and "interrupted: stopped after" in out, (out, err)
    assert "Traceback" not in err and jaxsvm.models.load(there / "sig.npz").classes == (-1, 1)


def test_decision_values_that_are_not_finite_are_refused(there, capsys):
    model = jaxsvm.models.load("linear.npz")
    bad = jax.tree.map(lambda a: a * np.float32(np.nan) if a.dtype == np.float32 else a, model)
    jaxsvm.models.save("bad.npz", bad)
    refused(
        capsys,
        "bad.npz: the model holds numbers that are not finite",
        "predict",
        "bad.npz",
        "rows.svm",
    )
    large = jaxsvm.models.Linear(np.full(4, 3e38, np.float32), np.float32(0))
    for name, many in (
        ("named.npz", jaxsvm.models.Classifier(large, (-1, 1))),
        ("real.npz", large),
    ):
        jaxsvm.models.save(name, many)
        refused(
            capsys,
            "of 60 rows are not finite, first of row ",
            "predict",
            name,
            "rows.svm",
            "--out",
            "p.txt",
        )


@pytest.mark.long
def test_newton_has_losses_of_its_own(there, capsys):
    """Squared ones by default; the hinge is refused."""
    argv = ["train", "rows.svm", "--solver", "newton", "--quiet"]
    assert main([*argv, "--model", "newton.npz"]) == 0
    from sklearn.svm import LinearSVC

    scaled = (X - X.mean(0)) / X.std(0)
    model = jaxsvm.models.load("newton.npz")
    other = LinearSVC(C=1.0, tol=1e-10, max_iter=10**6, dual=False).fit(scaled, Y)
    np.testing.assert_allclose(
        np.ravel(model(X.astype("f"))), other.decision_function(scaled), atol=1e-3
    )
    refused(
        capsys,
        "newton needs a loss with a continuous slope",
        *argv,
        "--model",
        "other.npz",
        "--loss",
        "hinge",
    )


def test_labels_that_look_like_measurements_are_refused(tmp_path, capsys):
    """Each would be a class of one row; a few classes with decimals in their names are classes."""
    x = np.random.default_rng(0).normal(size=(12, 3))
    np.savetxt(tmp_path / "rows.csv", x, delimiter=",", fmt="%.4f")
    refused(
        capsys,
        "12 different numbers in 12 rows",
        "train",
        str(tmp_path / "rows.csv"),
        "--model",
        "m.npz",
    )
    assert (
        main(
            [
                "train",
                str(tmp_path / "rows.csv"),
                "--task",
                "regression",
                "--model",
                str(tmp_path / "m.npz"),
                "--quiet",
            ]
        )
        == 0
    )
    x[:, 2] = np.arange(12) % 3 + 0.5
    np.savetxt(tmp_path / "classes.csv", x, delimiter=",", fmt="%.4f")
    assert (
        main(
            ["train", str(tmp_path / "classes.csv"), "--model", str(tmp_path / "n.npz"), "--quiet"]
        )
        == 0
    )


def test_the_error_of_predictions_counts_rows_by_their_weight():
    from jaxsvm.commands.predict import describe
    from jaxsvm.data.assemble import Rows

    rows = Rows(np.eye(4), np.array(["a", "b", "a", "b"]), np.array([1.0, 1, 2, 4]))
    assert (
        describe(rows, np.array(["a", "a", "b", "b"]), np.zeros(4), ("a", "b"))
        == "4 rows, error 37.50%"
    )
    real = Rows(np.eye(2), np.array([1.0, 2.0]), np.array([3.0, 1]))
    assert (
        describe(real, np.zeros(2), np.zeros(2), ())
        == f"2 rows, error {np.sqrt(7 / 4):.6g} (root mean square)"
    )


@pytest.mark.long
def test_what_a_compressed_file_expands_to_is_an_option(there, capsys):
    line = ",".join(["0"] * 500)
    text = "".join(f"{line},{'ab'[k % 2]}\n" for k in range(9000))
    with gzip.open("rows.csv.gz", "wt") as file:
        file.write(text)
    convert = "convert", "rows.csv.gz", "rows.npz"
    refused(
        capsys,
        "give a larger expansion than 100 (the option --expansion of the commands)",
        *convert,
    )
    refused(capsys, "expansion must be", *convert, "--expansion", "0")
    assert main([*convert, "--expansion", "5000"]) == 0
