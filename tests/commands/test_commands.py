"""The command line: models, predictions and files beside NumPy and scikit-learn; one line for bad input; Ctrl-C."""

import importlib
import os
import signal
import subprocess
import sys
import time

import jax
import numpy as np
import pytest
from sklearn.datasets import dump_svmlight_file, load_svmlight_file

import jaxsvm
from jaxsvm.__main__ import main

loop = importlib.import_module("jaxsvm.loops.fit")  # the package has a function of this name

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
    cells = [",".join(map(repr, row.tolist())) + f",{kind}\n" for row, kind in zip(X, KINDS, strict=True)]
    (path / "kinds.csv").write_text("a,b,c,d,kind\n" + "".join(cells))
    np.savetxt(path / "bare.csv", X, delimiter=",", fmt="%.17g")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(path)
        assert main(["train", "rows.svm", "--model", "linear.npz", "--hold-out", "0.25", "--quiet", "--no-certificate"]) == 0
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
    assert "60 rows x 4 columns, dense; classes -1 (" in out and "converged" in out and "within 0.0" in out
    assert main(["predict", "m.npz", "rows.npz", "--out", "p.txt", "--scores"]) == 0
    model = jaxsvm.models.load("m.npz")
    standard = (X - X.mean(0)) / X.std(0)  # standardised, then w and b
    inner = model.inner.inner
    score = standard @ np.asarray(inner.w, np.float64) + float(inner.b)
    names, values = np.loadtxt("p.txt", delimiter="\t").T
    np.testing.assert_allclose(values, score, rtol=1e-4, atol=1e-4)  # float32 sums over columns scaled in float32
    np.testing.assert_array_equal(names, np.where(score > 0, 1, -1))
    assert f"60 rows, error {np.mean(names != Y):.2%}" in capsys.readouterr().err

    from sklearn.svm import LinearSVC

    wide = np.c_[standard, np.ones(60)]  # the bias as a regularised column
    best = LinearSVC(loss="hinge", C=1.0, fit_intercept=False, tol=1e-8, max_iter=10**6).fit(wide, Y)
    np.testing.assert_allclose(np.r_[np.asarray(inner.w), inner.b], best.coef_[0], atol=2e-3)  # both end at a tolerance


def test_predictions_of_any_format_agree(there, capsys):
    printed = []
    for file in ("rows.svm", "rows.npz", "bare.csv"):
        assert main(["predict", "linear.npz", file]) == 0
        printed.append(capsys.readouterr().out)
    assert printed[0] == printed[1] == printed[2] and len(printed[0].split()) == 60


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
    assert main(["train", "kinds.csv", "--positive", "middle", "--C", "100", "--model", "n.npz", *how, "--quiet"]) == 0
    assert "rest (" in capsys.readouterr().out
    assert main(["predict", "n.npz", "kinds.csv"]) == 0
    out, err = capsys.readouterr()
    wrong = np.mean((np.array(out.split()) == "middle") != (KINDS == "middle"))
    assert set(out.split()) == {"rest", "middle"} and f"{wrong:.2%}" in err and wrong < 0.3
    assert main(["train", "rows.npz", "--kernel", "rbf", "--C", "0.5", "--model", "r.npz", "--quiet"]) == 0
    assert "within 0.0" in capsys.readouterr().out
    from sklearn.svm import SVC

    model = jaxsvm.models.load("r.npz")
    standard = (X - X.mean(0)) / X.std(0)
    exact = SVC(C=0.5, kernel="rbf", gamma="scale").fit(standard, Y)  # with a free bias: about the same function
    assert np.mean(model.predict(jax.numpy.asarray(X, np.float32)) == exact.predict(standard)) > 0.9
    assert model.inner.inner.x.shape[0] < 60, "rows that do not count are not kept"


@pytest.mark.long
def test_exact_kernel_machines_are_those_of_libsvm(there, capsys):
    from sklearn.svm import SVC

    standard = (X - X.mean(0)) / X.std(0)
    exact = SVC(C=0.5, kernel="rbf", gamma="scale", tol=1e-6).fit(standard, Y)
    for how in (["--solver", "decomposition", "--C", "0.5"], ["--solver", "smo", "--lam", repr(1 / (0.5 * 60))]):
        assert main(["train", "rows.npz", "--kernel", "rbf", "--tol", "1e-4", "--model", "x.npz", "--quiet", *how]) == 0
        out = capsys.readouterr().out
        assert "converged" in out and "bias free" in out and "within 0.0" in out
        assert main(["predict", "x.npz", "rows.npz", "--out", "x.txt", "--scores"]) == 0
        np.testing.assert_allclose(np.loadtxt("x.txt")[:, 1], exact.decision_function(standard), atol=1e-3)  # --tol
        assert jaxsvm.models.load("x.npz").inner.inner.x.shape[0] == len(exact.support_)
    assert main(["train", "kinds.csv", "--solver", "decomposition", "--multiclass", "ovo", "--model", "o.npz", "--quiet"]) == 0
    assert main(["predict", "o.npz", "bare.csv", "--out", "o.txt"]) == 0
    pairs = SVC(kernel="linear", break_ties=True).fit(standard, KINDS)
    assert np.mean(np.loadtxt("o.txt", dtype=str) == pairs.predict(standard)) > 0.97
    assert jaxsvm.models.load("o.npz").inner.inner.inner.x.shape[0] < 60, "rows that do not count are not kept"


@pytest.mark.long
@pytest.mark.parametrize("solver", ["bsca", "bsgd"])
def test_kernel_machines_on_a_budget(there, capsys, solver):
    from sklearn.metrics.pairwise import rbf_kernel
    from sklearn.svm import SVC

    standard = (X - X.mean(0)) / X.std(0)
    how = ["--solver", solver, "--kernel", "rbf", "--gamma", "0.25", "--budget", "12", "--quiet"]
    assert main(["train", "rows.npz", "--model", "b.npz", *how]) == 0
    out = capsys.readouterr().out
    assert "at most 12 points" in out and ("converged" in out) == (solver == "bsca") and "certificate" in out
    assert main(["predict", "b.npz", "rows.npz", "--out", "b.txt", "--scores"]) == 0
    held, values = jaxsvm.models.load("b.npz").inner.inner, np.loadtxt("b.txt")
    assert held.x.shape[0] <= 12
    score = np.asarray(held.coef) @ rbf_kernel(np.asarray(held.x), standard, gamma=0.25)
    np.testing.assert_allclose(values[:, 1], score, atol=1e-3)  # float32, over columns scaled in float32
    exact = SVC(C=1.0, gamma=0.25).fit(standard, Y)
    assert np.mean(values[:, 0] == exact.predict(standard)) > 0.85
    assert main(["train", "kinds.csv", "--model", "b3.npz", *how]) == 0
    assert main(["predict", "b3.npz", "bare.csv", "--out", "b3.txt"]) == 0
    assert jaxsvm.models.load("b3.npz").inner.inner.inner.x.shape == (3, 12, 4)
    assert np.mean(np.loadtxt("b3.txt", dtype=str) == KINDS) > 0.7


@pytest.mark.long
def test_a_budget_for_a_kernel_that_has_no_merge(there, capsys):
    how = ["--solver", "bsca", "--kernel", "laplacian", "--budget", "20", "--quiet", "--no-certificate"]
    assert main(["train", "rows.npz", "--model", "l.npz", *how]) == 0
    held = jaxsvm.models.load("l.npz").inner.inner
    standard = ((X - X.mean(0)) / X.std(0)).astype(np.float32)
    assert held.x.shape[0] == 20
    distance = np.abs(np.asarray(held.x)[:, None] - standard[None]).max(-1)
    assert distance.min(1).max() < 1e-5, "points that go leave the others as they are: rows, scaled in float32"


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
    refused(capsys, "argument --budget: invalid int value: 'many'", *train, "--solver", "bsca", "--budget", "many")
    refused(capsys, "--solver sdca has no budget: leave --budget out, or take --solver bsca or bsgd", *train, "--budget", "9")
    refused(capsys, "--solver bsgd needs a kernel, such as --kernel rbf", *train[:4], "--solver", "bsgd")
    refused(capsys, "--tol has nothing to stop on with --solver bsgd", *train, "--solver", "bsgd", "--tol", "1e-3")
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
    assert float(err.split()[3]) == pytest.approx(error, rel=1e-4) and error < 1  # printed with six digits


@pytest.mark.long
def test_sweep_writes_table_picture_and_model(there, capsys):
    argv = ["sweep", "rows.svm", "--lam", "1e-3,1e-1", "--sigma", "0.5:5:2", "--count", "16", "--passes", "4", "--quiet"]
    assert main([*argv, "--out", "s.csv", "--plot", "s.png", "--model", "best.npz"]) == 0
    out = capsys.readouterr().out
    table = np.loadtxt("s.csv", delimiter=",", skiprows=1)
    assert table.shape == (4, 3) and f"{table[:, 2].min():.2%}" in out and open("s.png", "rb").read(4) == b"\x89PNG"
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


def test_bad_input_is_one_line(there, capsys):
    (there / "bad.svm").write_text("1 1:1\n-1 2:x\n")
    (there / "wide.svm").write_text("1 5:1\n-1 1:1\n")
    (there / "bad.csv").write_text("a,b\n1,2\n1\n")
    (there / "damaged.npz").write_bytes((there / "linear.npz").read_bytes()[:-50])
    train = ("--model", "new.npz")
    refused(capsys, "there is no file nope.svm", "train", "nope.svm", *train)
    refused(capsys, "bad.svm, line 2: the value 'x' of index 2 is no number", "train", "bad.svm", *train)
    refused(capsys, "bad.csv, line 3 has 1 cells", "train", "bad.csv", *train)
    refused(capsys, "damaged.npz is damaged", "predict", "damaged.npz", "rows.svm")
    refused(capsys, "new.npz is in a folder that does not exist", "train", "rows.svm", "--model", "no/new.npz")
    refused(capsys, "the following arguments are required: --model (see jaxsvm train --help)", "train", "rows.svm")
    refused(capsys, "invalid choice: 'frob'", "frob")
    refused(capsys, "--C: not allowed with argument --lam", "train", "rows.svm", *train, "--lam", "1", "--C", "1")
    refused(capsys, "--lam and --C must be above 0", "train", "rows.svm", *train, "--C", "-1")
    refused(capsys, "is linear: add --features nystrom", "train", "rows.svm", *train, "--kernel", "rbf", "--solver", "asset")
    refused(capsys, "--tol has nothing to stop on", "train", "rows.svm", *train, "--solver", "pegasos", "--tol", "1")
    refused(capsys, "takes --bias none, got free", "train", "rows.svm", *train, "--solver", "asset_star", "--bias", "free")
    exact = ("train", "rows.svm", *train, "--kernel", "rbf", "--solver", "decomposition")
    refused(capsys, "solves the problem of the kernel itself: leave --features out", *exact, "--features", "nystrom")
    refused(capsys, "is not quadratic: take sdca", *exact, "--loss", "logistic")
    refused(capsys, "takes --bias free or none, got feature", *exact, "--bias", "feature")
    refused(capsys, "--multiclass is for more than two classes", *exact, "--multiclass", "ovo")
    refused(capsys, "say which is +1, --positive", "sweep", "kinds.csv")
    refused(capsys, "expected LOW:HIGH:COUNT", "sweep", "rows.svm", "--lam", "1:2")
    refused(capsys, "high, low, middle; got z", "train", "kinds.csv", *train, "--positive", "z")
    refused(capsys, "index 5 is beyond the 4 columns", "predict", "linear.npz", "wide.svm")
    refused(capsys, "must end in .svm", "convert", "rows.svm", "rows.xyz")
    refused(capsys, "labels in svmlight files are numbers", "convert", "kinds.csv", "k.svm")
    refused(capsys, "is the file that is read", "convert", "rows.npz", "rows.npz")


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
    refused(capsys, "pipe.npz is a pipe, a device or a socket, expected a file", "predict", "pipe.npz", "rows.svm")
    os.unlink("pipe.npz")


@pytest.mark.long
def test_a_link_stays_a_link(there):
    os.symlink("far.npz", "link.npz")
    assert main(["train", "rows.svm", "--model", "link.npz", "--steps", "9", "--quiet", "--no-certificate"]) == 0
    assert os.path.islink("link.npz") and os.path.isfile("far.npz") and not os.path.islink("far.npz")


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
    refused(capsys, "whose squares sum up to what is too large for float32", "train", "huge.npz", *train)
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
    assert main(["train", "rows.svm", "--model", "c.npz", "--solver", "pegasos", "--passes", "1000"]) == 130
    out = capsys.readouterr().out
    assert f"interrupted: stopped after {looks[-1]} steps" in out and "c.npz, as it was at the last look" in out
    assert main(["predict", "c.npz", "rows.svm"]) == 0


# As processes


# Whoever started the tests in the background may have had them ignore Ctrl-C, which children inherit.
LISTENING = "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_DFL); os.execv(sys.executable, sys.argv[1:])"


def command(*argv, **how):
    run = [sys.executable, "-c", LISTENING, sys.executable, "-m", "jaxsvm", *argv]
    return subprocess.Popen(run, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **how)


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
    process = command("train", "rows.svm", "--model", "sig.npz", "--solver", "asgd", "--steps", "2000000000")
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
    refused(capsys, "bad.npz: the model holds numbers that are not finite", "predict", "bad.npz", "rows.svm")
    large = jaxsvm.models.Linear(np.full(4, 3e38, np.float32), np.float32(0))
    for name, many in (("named.npz", jaxsvm.models.Classifier(large, (-1, 1))), ("real.npz", large)):
        jaxsvm.models.save(name, many)
        refused(capsys, "of 60 rows are not finite, first of row ", "predict", name, "rows.svm", "--out", "p.txt")
