"""Data sets by name: from a folder, the package, or OpenML (whose place a stand-in takes)."""

import urllib.error

import jax
import numpy as np
import pytest
import sklearn.datasets

import jaxsvm
from jaxsvm.data import load
from jaxsvm.data.catalogue import OPENML


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("JAXSVM_DATA", str(tmp_path))
    x = np.arange(20, dtype=np.uint8).reshape(10, 2)
    y = np.arange(10, dtype=np.int16) % 3
    np.savez(tmp_path / "whole.npz", X_train=x, y_train=y)
    np.savez(
        tmp_path / "parts.npz",
        X_train=x,
        y_train=y,
        X_test=x[:3],
        y_test=y[:3],
        X_test2=x,
        y_test2=y,
    )
    return tmp_path


def test_a_set_with_a_test_part(home):
    train, test = loaded = load("parts")
    assert train.x.shape == (10, 2) and test.x.shape == (3, 2) and loaded.classes == (0, 1, 2)
    np.testing.assert_array_equal(train.x[:, 0], np.arange(0, 20, 2))  # values as they are
    train, _ = loaded = load("parts", positive=2)
    assert loaded.classes == ("rest", "2") and train.y.tolist() == [
        1 if k % 3 == 2 else -1 for k in range(10)
    ]


def test_a_set_without_one_is_split_by_the_key(home):
    with pytest.raises(ValueError, match="whole has no standard test part: give a key"):
        load("whole")
    train, test = loaded = load("whole", key=jax.random.key(1), home=home)
    assert train.y.shape == (8,) and test.y.shape == (2,) and loaded.classes == (0, 1, 2)
    assert sorted(np.concatenate([train.x[:, 0], test.x[:, 0]]).tolist()) == list(range(0, 20, 2))
    np.testing.assert_array_equal(load("whole", key=jax.random.key(1))[1].x, test.x)


@pytest.mark.long
def test_the_set_of_the_package(monkeypatch):
    monkeypatch.delenv("JAXSVM_DATA", raising=False)
    with pytest.warns(UserWarning, match="the ranges of the columns"):
        train, test = load("breast_cancer", key=jax.random.key(0))
    assert train.x.shape == (455, 30) and test.x.shape == (114, 30)


def test_unknown_names(home, monkeypatch):
    with pytest.raises(
        ValueError,
        match=(
            "no data set is named 'nope'; known are in .*: parts, whole; .*breast_cancer.*covtype"
        ),
    ):
        load("nope")
    with pytest.raises(ValueError, match="no data set is named '../whole'"):
        load("../whole")
    monkeypatch.delenv("JAXSVM_DATA")
    with pytest.raises(
        ValueError, match="known are in the package: .*; JAXSVM_DATA, .*, is not set"
    ):
        load("whole")


@pytest.mark.long
def test_openml(monkeypatch, home):
    asked = []

    def fetch(**how):
        asked.append(how)
        source = next(source for source in OPENML.values() if source.number == how["data_id"])
        n = 70_000 if source.train else 10
        details = {"name": source.name if source.name != "sonar" else "other"}
        target = np.array(["1", "2"], object)[np.arange(n) % 2]
        return sklearn.utils.Bunch(
            data=np.arange(n, dtype=float)[:, None], target=target, details=details
        )

    monkeypatch.setattr(sklearn.datasets, "fetch_openml", fetch)
    train, test = loaded = load("mnist")
    assert train.x.shape == (60_000, 1) and test.x[0, 0] == 60_000 and loaded.classes == (1, 2)
    assert asked[0]["data_id"] == 554 and asked[0]["as_frame"] is False
    train, test = load("magic04", key=jax.random.key(0))
    assert train.y.shape == (8,) and test.y.shape == (2,)
    with pytest.raises(ValueError, match="OpenML has other as number 40, expected sonar"):
        load("sonar", key=jax.random.key(0))

    def offline(**how):
        raise urllib.error.URLError("no route")

    monkeypatch.setattr(sklearn.datasets, "fetch_openml", offline)
    with pytest.raises(
        OSError,
        match="mnist could not be fetched from OpenML .*no route.*: put mnist.npz into the folder",
    ):
        load("mnist")


def test_files_keep_the_names_of_their_classes(tmp_path):
    """A run on rows of a file predicts what the file says."""
    random = np.random.default_rng(0)
    x = random.normal(size=(60, 2))
    for names in (("dog", "cat"), (0, 1), ("a", "b", "c")):
        y = np.array(names)[(x[:, 0] > 0) * 1 + (x[:, 1] > 0) * (len(names) > 2)]
        path = tmp_path / "rows.csv"
        path.write_text("".join(f"{a},{b},{name}\n" for (a, b), name in zip(x, y, strict=True)))
        (rows,) = jaxsvm.data.load_csv(path, header=False)
        assert rows.classes.names == tuple(sorted(names))
        solver = jaxsvm.linear_svm(1.0)
        solver = solver if len(names) == 2 else jaxsvm.one_vs_rest(solver, classes=3)
        result = jaxsvm.fit(solver, rows, jax.random.key(0))
        other = jaxsvm.fit(
            solver,
            jaxsvm.dataset(x, y, task=None if len(names) == 2 else "multiclass"),
            jax.random.key(0),
        )
        found = result.predict(x)
        np.testing.assert_array_equal(found, other.predict(x))
        assert np.mean(found == y) > 0.65
        rows_only = tmp_path / "new.csv"
        rows_only.write_text("".join(f"{a},{b}\n" for a, b in x))
        (new,) = jaxsvm.data.load_csv(rows_only, label=None, header=False)
        assert new.classes is None and set(np.asarray(new.y)) == {0}
        np.testing.assert_array_equal(result.predict(new.x), found)
    with pytest.raises(TypeError, match=r"classes of data must be jaxsvm.models.Classes\(names\)"):
        jaxsvm.fit(solver, rows._replace(classes=("a", "b", "c")), jax.random.key(0))
