"""`jaxsvm select` beside `jaxsvm.select`, scikit-learn's machines, and its own files read back."""

import contextlib
import importlib
import os
import re

import jax
import numpy as np
import pytest
from sklearn.datasets import dump_svmlight_file
from sklearn.svm import SVC, SVR, LinearSVC

import jaxsvm
from jaxsvm.__main__ import main
from jaxsvm.commands import parser

RNG = np.random.default_rng(3)
X = np.round(RNG.standard_normal((80, 4)) * [1, 5, 0.1, 2], 3)
Y = np.where(X[:, 0] ** 2 + X[:, 1] / 5 + 0.3 * RNG.standard_normal(80) > 1, 1, -1)
KINDS = np.array(["low", "middle", "high"])[np.digitize(X[:, 1], [-2, 2])]
SCALED = (X - X.mean(0)) / X.std(0)
GRID = ("--C", "1,10", "--gamma", "0.01,0.3", "--folds", "3", "--quiet")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("select")
    dump_svmlight_file(X, Y, str(path / "rows.svm"), zero_based=False)
    np.savez(path / "real.npz", x=X, y=X[:, 0] + np.sin(X[:, 1]))
    cells = [
        ",".join(map(repr, row.tolist())) + f",{kind}\n" for row, kind in zip(X, KINDS, strict=True)
    ]
    (path / "kinds.csv").write_text("a,b,c,d,kind\n" + "".join(cells))
    (path / "groups.txt").write_text(
        "\ufeff" + "".join(f"person {i // 8}\n" for i in range(80)), encoding="utf-8"
    )
    (path / "few.txt").write_text("a\nb\n")
    return path


@pytest.fixture(autouse=True)
def there(folder, monkeypatch):
    monkeypatch.chdir(folder)
    return folder


def table(out):
    """The numbers of the printed grid without the star, and the place of the star."""
    lines = out.split("over the folds\n")[1].split("\n\n")[0].splitlines()[1:]
    cells = [line.split()[1:] for line in lines]
    starred = [
        (i, j) for i, row in enumerate(cells) for j, cell in enumerate(row) if cell.endswith("*")
    ]
    return np.array([[float(cell.rstrip("*")) for cell in row] for row in cells]), starred


def refused(capsys, message, *argv):
    """Status 2 and one line."""
    before = set(os.listdir())
    assert main(argv) == 2
    err = capsys.readouterr().err
    assert message in err and err.startswith("jaxsvm: error: ") and err.count("\n") == 1, err
    assert set(os.listdir()) == before


def test_the_machine_of_the_best_cell_predicts_as_that_of_libsvm(capsys):
    assert (
        main(
            ["select", "rows.svm", *GRID, "--model", "m.npz", "--plot", "g.png", "--save", "s.npz"]
        )
        == 0
    )
    out = capsys.readouterr().out
    shown, starred = table(out)
    assert starred == [tuple(np.unravel_index(np.argmin(shown), (2, 2)))]
    C, gamma = [1, 10][starred[0][0]], [0.01, 0.3][starred[0][1]]
    found = re.search(r"best +--C ([\d.]+) --gamma ([\d.]+): ([\d.]+)%", out)
    assert tuple(map(float, found.groups()[:2])) == (C, gamma)
    assert float(found[3]) == pytest.approx(100 * shown.min(), abs=0.01)
    assert (
        re.search(r"one_se +--C", out)
        and "12 fits, 4 of 4 cells with a score" in out
        and "within 0.0" in out
    )
    assert (
        open("g.png", "rb").read(4) == b"\x89PNG"
        and "solver       decomposition, rbf, bias free" in out
    )
    capsys.readouterr()
    assert main(["predict", "m.npz", "rows.svm", "--scores"]) == 0
    names, values = np.array(
        [line.split() for line in capsys.readouterr().out.splitlines()], float
    ).T
    model = SVC(C=C, gamma=gamma, tol=1e-6).fit(SCALED, Y)
    np.testing.assert_allclose(values, model.decision_function(SCALED), atol=5e-3)
    assert np.mean(names == model.predict(SCALED)) > 0.98 and f"{np.mean(names != Y):.2%}" in out
    assert main(["info", "m.npz"]) == 0
    assert f"--C {C} --gamma {gamma}, chosen by 3 folds" in capsys.readouterr().out


def test_the_same_as_by_the_function(capsys):
    assert main(["select", "rows.svm", *GRID, "--seed", "5"]) == 0
    shown, _ = table(capsys.readouterr().out)
    key = jax.random.split(jax.random.key(5), 3)[2]
    maker = lambda C, gamma: jaxsvm.decomposition(C, jaxsvm.kernels.rbf(gamma=gamma))
    data = jaxsvm.dataset(SCALED, Y)
    found = jaxsvm.select(
        maker,
        data,
        key,
        folds=3,
        progress=False,
        C=np.array([1.0, 10]),
        gamma=np.array([0.01, 0.3]),
    )
    np.testing.assert_allclose(shown, found.table.mean, atol=1.001 / 80 / 3)


@pytest.mark.long
def test_a_grid_goes_on_from_its_file(capsys):
    argv = ["select", "rows.svm", *GRID, "--save", "part.npz"]
    outputs = []
    for _ in range(30):
        with contextlib.suppress(AssertionError):
            assert main([*argv, "--seconds", "0.01"]) == 0
            outputs.append(capsys.readouterr().out)
            if "out of time" not in outputs[-1]:
                break
    assert main(["select", "rows.svm", *GRID]) == 0
    np.testing.assert_array_equal(table(outputs[-1])[0], table(capsys.readouterr().out)[0])
    refused(
        capsys,
        "is of another call of select",
        *argv[:2],
        "--C",
        "1,2",
        *GRID[2:],
        "--save",
        "part.npz",
    )


def test_ctrl_c_names_the_file_to_go_on_from(capsys, monkeypatch):
    runs = importlib.import_module("jaxsvm.loops.threads")

    class Bar:
        def __init__(self, *args):
            pass

        def show(self, *args):
            raise KeyboardInterrupt

        def close(self):
            pass

    monkeypatch.setattr(runs, "Bar", Bar)
    argv = ["select", "rows.svm", *GRID[:-1]]
    assert main([*argv, "--save", "stopped.npz"]) == 130
    assert "the finished fits are in stopped.npz" in capsys.readouterr().out and os.path.exists(
        "stopped.npz"
    )
    assert main(argv) == 130
    assert "nothing was written" in capsys.readouterr().err


@pytest.mark.long
def test_groups_are_kept_whole(capsys):
    assert main(["select", "rows.svm", *GRID, "--groups", "groups.txt", "--rule", "one_se"]) == 0
    shown, _ = table(capsys.readouterr().out)
    key = jax.random.split(jax.random.key(0), 3)[2]
    fold = jaxsvm.data.folds(key, Y, 3, groups=np.arange(80) // 8)
    for i, C in enumerate((1, 10)):
        for j, gamma in enumerate((0.01, 0.3)):
            machine = SVC(C=C, gamma=gamma)
            wrong = [
                1
                - machine.fit(SCALED[fold != f], Y[fold != f]).score(
                    SCALED[fold == f], Y[fold == f]
                )
                for f in range(3)
            ]
            assert shown[i, j] == pytest.approx(np.mean(wrong), abs=2.001 / 80)


@pytest.mark.long
def test_linear_machines_by_shape(capsys):
    assert (
        main(
            ["select", "rows.svm", "--kernel", "linear", "--C", "0.1,1", "--folds", "3", "--quiet"]
        )
        == 0
    )
    out = capsys.readouterr().out
    assert "solver       interior_point, linear, bias feature" in out and "gamma" not in out
    argv = [
        "select",
        "rows.svm",
        "--kernel",
        "linear",
        "--loss",
        "squared_hinge",
        "--C",
        "0.1,1",
        "--folds",
        "3",
        "--quiet",
    ]
    assert main([*argv, "--model", "l.npz"]) == 0
    out = capsys.readouterr().out
    assert "solver       newton, linear" in out
    C = float(re.search(r"model +l.npz, --C ([\d.]+)", out)[1])
    model = jaxsvm.models.load("l.npz")
    other = LinearSVC(C=C, tol=1e-8, max_iter=10**6).fit(SCALED, Y)
    np.testing.assert_allclose(
        np.ravel(model(X.astype("f"))), other.decision_function(SCALED), atol=1e-3
    )


@pytest.mark.long
def test_more_classes_real_targets_and_features(capsys, monkeypatch):
    assert (
        main(
            [
                "select",
                "kinds.csv",
                *GRID,
                "--model",
                "k.npz",
                "--label",
                "kind",
                "--hold-out",
                "0.2",
            ]
        )
        == 0
    )
    out = capsys.readouterr().out
    assert "test error" in out and "certificate  objective" in out
    assert main(["predict", "k.npz", "kinds.csv"]) == 0
    assert np.mean(np.array(capsys.readouterr().out.split()) != KINDS) < 0.4
    assert main(["select", "real.npz", *GRID, "--task", "regression", "--model", "r.npz"]) == 0
    out = capsys.readouterr().out
    assert "mean squared error over the folds" in out and "root mean square" in out
    C, gamma = map(float, re.search(r"best +--C ([\d.]+) --gamma ([\d.]+)", out).groups())
    loss = jaxsvm.losses.eps_insensitive()
    epsilon = float(loss.call()[1][0]) if loss.call()[1] else 0.1
    model = SVR(C=C, gamma=gamma, epsilon=epsilon, tol=1e-6).fit(SCALED, X[:, 0] + np.sin(X[:, 1]))
    np.testing.assert_allclose(
        jaxsvm.models.load("r.npz")(X.astype("f")), model.predict(SCALED), atol=1e-2
    )
    monkeypatch.setattr("jaxsvm.commands.solvers.EXACT_ROWS", (79, 79))
    assert main(["select", "rows.svm", *GRID, "--count", "20", "--model", "n.npz"]) == 0
    out = capsys.readouterr().out
    assert "solver       sdca, nystrom features of rbf, bias feature, at most" in out
    wrong = float(re.search(r"train error +([\d.]+)%", out)[1])
    assert main(["predict", "n.npz", "rows.svm"]) == 0
    assert f"error {wrong:.2f}%" in capsys.readouterr().err and wrong < 30


def test_bad_input_is_one_line(capsys):
    select = ("select", "rows.svm")
    refused(capsys, "there is no file nope.svm", "select", "nope.svm")
    refused(capsys, "there is no file nope.txt", *select, "--groups", "nope.txt")
    refused(
        capsys,
        "few.txt has 2 lines, expected one for each of the 80 rows",
        *select,
        "--groups",
        "few.txt",
    )
    refused(
        capsys,
        "at most 100,000, or numbers with commas, all above 0, got '1:2'",
        *select,
        "--C",
        "1:2",
    )
    refused(capsys, "expected LOW:HIGH:COUNT", *select, "--gamma", "-1")
    refused(
        capsys, "expected a whole number of at least 2, or loo, got '1'", *select, "--folds", "1"
    )
    refused(capsys, "80 rows are too few for 100 folds", *select, "--folds", "100")
    refused(
        capsys, "the linear kernel has no --gamma", *select, "--kernel", "linear", "--gamma", "1"
    )
    refused(capsys, "the rbf kernel has no --degree", *select, "--degree", "2")
    refused(
        capsys, "a linear machine has no gamma", *select, "--kernel", "linear", "--plot", "p.png"
    )
    refused(
        capsys,
        "--features approximate a kernel",
        *select,
        "--kernel",
        "linear",
        "--features",
        "nystrom",
    )
    refused(capsys, "is linear: add --features nystrom", *select, "--solver", "newton")
    refused(capsys, "there is no option --lam", *select, "--lam", "1")
    refused(
        capsys, "rows.svm is a file that is read: give another name", *select, "--save", "rows.svm"
    )
    refused(capsys, "--save is a file that is read again", *select, "--save", "-")
    refused(capsys, "is in a folder that does not exist", *select, "--model", "no/m.npz")
    refused(capsys, "--multiclass is for more than two classes", *select, "--multiclass", "ovo")
    refused(
        capsys,
        "--score risk is for two classes or real targets",
        "select",
        "kinds.csv",
        *GRID,
        "--score",
        "risk",
    )


def test_help_names_every_option(capsys):
    with pytest.raises(SystemExit):
        parser.parser().parse_args(["select", "--help"])
    text = capsys.readouterr().out
    for option in (
        "--C",
        "--gamma",
        "--folds",
        "--groups",
        "--rule",
        "--score",
        "--solver",
        "--kernel",
        "--plot",
        "--save",
    ):
        assert option in text
    assert "5,000 rows, 2,000 with more than two" in " ".join(text.split())
