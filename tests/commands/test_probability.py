"""`--probability` of the commands, beside the library."""

import re

import numpy as np
import pytest

import jaxsvm
from jaxsvm import models
from jaxsvm.__main__ import main

RNG = np.random.default_rng(0)
X = np.round(RNG.normal(size=(90, 3)) * [1, 10, 0.1], 3)
Y = np.array(["low", "middle", "high"])[np.digitize(X[:, 0] + 0.5 * RNG.normal(size=90), [-1, 1])]
TRAIN = ("train", "rows.csv", "--label", "kind", "--quiet", "--model", "m.npz")


@pytest.fixture(autouse=True)
def there(tmp_path, monkeypatch):
    cells = [",".join(map(str, [*row, kind])) for row, kind in zip(X.tolist(), Y, strict=True)]
    (tmp_path / "rows.csv").write_text("\n".join(["a,b,c,kind", *cells]) + "\n")
    (tmp_path / "new.csv").write_text("\n".join(["a,b,c", *(c.rpartition(",")[0] for c in cells)]))
    np.savez(tmp_path / "real.npz", x=X, y=X[:, 0])
    monkeypatch.chdir(tmp_path)


def predicted(*argv):
    """The names and the numbers behind them."""
    assert main(["predict", "m.npz", "new.csv", "--out", "out.txt", *argv]) == 0
    with open("out.txt") as file:
        rows = [line.rstrip("\n").split("\t") for line in file]
    if "--probability" in argv:
        assert rows.pop(0) == ["class", *map(str, models.load("m.npz").classes)]
    return [row[0] for row in rows], np.array([list(map(float, row[1:])) for row in rows])


@pytest.mark.parametrize("positive", [(), ("--positive", "high")])
def test_train_keeps_sigmoids_of_five_folds(positive, capsys):
    assert main([*TRAIN, "--probability", *positive]) == 0
    out = capsys.readouterr().out
    assert re.search(r"probabilities +sigmoids; log-loss 0\.\d+ out of 5 folds", out), out
    names, chances = predicted("--probability")
    model = models.load("m.npz")
    assert isinstance(model, jaxsvm.calibration.Calibrated)
    np.testing.assert_allclose(chances, model.predict_proba(X), rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(chances.sum(axis=1), 1, atol=1e-5)
    assert len(model.classes) == (2 if positive else 3)
    own = chances[np.arange(90), [model.classes.index(name) for name in names]]
    assert np.mean(own) > 0.6
    plain, values = predicted("--scores")
    assert plain == names and values.shape == (90, 1 if positive else 3)
    # the machine is that of the command without the option
    assert main([*TRAIN, *positive]) == 0
    np.testing.assert_allclose(predicted("--scores")[1], values, rtol=1e-5, atol=1e-5)
    capsys.readouterr()
    assert main(["predict", "m.npz", "new.csv", "--probability"]) == 2
    assert "m.npz holds no probabilities: give --probability to train or select, too" in (
        capsys.readouterr().err
    )


def test_a_class_of_one_row_is_named(capsys):
    with open("rows.csv", "a") as file:
        file.write("1,2,3,rare\n")
    assert main([*TRAIN, "--probability"]) == 2
    err = capsys.readouterr().err
    assert "--probability needs two rows of each class, and rare has one" in err, err


def test_select_keeps_sigmoids_of_its_folds(capsys):
    grid = ("--C", "1,10", "--gamma", "0.1", "--folds", "3", "--score", "log_loss")
    command = ["select", *TRAIN[1:], *grid]
    assert main([*command, "--probability"]) == 0
    assert "mean log_loss over the folds" in capsys.readouterr().out
    _, chances = predicted("--probability")
    np.testing.assert_allclose(chances, models.load("m.npz").predict_proba(X), atol=1e-5)
    assert main(["info", "m.npz"]) == 0
    out = capsys.readouterr().out
    assert re.search(r"probabilities +sigmoids of the decision values of rows held out", out)
    assert re.search(r"classes +3: high, low, middle", out)
    assert re.search(r"what +classifier of 3 columns", out)


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (
            ("train", "real.npz", "--task", "regression", "--probability", "--model", "r.npz"),
            "--probability is for classes",
        ),
        (
            ("select", "real.npz", "--task", "regression", "--probability", "--model", "r.npz"),
            "--probability is for class",
        ),
        (
            ("select", "rows.csv", "--label", "kind", "--probability"),
            "--probability is kept with the model: give",
        ),
        (
            ("select", "real.npz", "--task", "regression", "--score", "auc"),
            "--score auc is for classes: take --score err",
        ),
    ],
)
def test_what_has_no_probabilities_is_refused(argv, message, capsys):
    assert main(list(argv)) == 2
    err = capsys.readouterr().err
    assert message in err and err.startswith("jaxsvm: error: ") and err.count("\n") == 1, err
