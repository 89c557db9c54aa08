"""`data.load` against files read by hand, and a file that is streamed without being read whole."""

import subprocess
import sys

import numpy as np
import pandas
import pytest
from sklearn.datasets import dump_svmlight_file, load_svmlight_file

from jaxsvm.data import load

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(40, 3)).astype(np.float32)
Y = np.where(X[:, 0] > 0, "yes", "no")
FRAME = pandas.DataFrame(X, columns=["a", "b", "c"]).assign(label=Y, pay=X @ [1, 2, 3])


def test_tables_are_those_of_pandas(tmp_path):
    for ending, write in (("csv", FRAME.to_csv), ("parquet", FRAME.to_parquet)):
        write(tmp_path / f"rows.{ending}", index=False)
        data = load(tmp_path / f"rows.{ending}", "label")
        np.testing.assert_allclose(data.x, FRAME.drop(columns="label"), rtol=1e-6)
        np.testing.assert_array_equal(data.y, np.where(Y == "yes", 1, -1))
        assert data.classes.names == ("no", "yes") and data.classes.columns == (*"abc", "pay")
    FRAME.drop(columns="label").to_csv(tmp_path / "pay.csv", index=False)
    data = load(tmp_path / "pay.csv", "pay", task="regression")
    np.testing.assert_allclose(data.y, FRAME.pay, rtol=1e-6)


@pytest.mark.parametrize("names", [("x", "y"), ("X", "y"), ("X_train", "y_train")])
def test_arrays_of_npz_files(tmp_path, names):
    weight = np.arange(1.0, 41)
    np.savez(tmp_path / "rows.npz", **dict(zip(names, (X, Y), strict=True)), weight=weight)
    data = load(tmp_path / "rows.npz")
    np.testing.assert_array_equal(data.x, X)
    np.testing.assert_array_equal(data.weight, weight)
    np.testing.assert_array_equal(data.y, np.where(Y == "yes", 1, -1))


@pytest.mark.parametrize("name, first", [("rows.svm", 1), ("rows", 0)])
def test_svmlight_files_are_those_of_scikit_learn(tmp_path, name, first):
    file, grade, query = str(tmp_path / name), np.arange(40) % 3, np.arange(40) // 10
    dump_svmlight_file(np.where(abs(X) > 0.5, X, 0), Y == "yes", file, zero_based=not first)
    x, y = load_svmlight_file(file)
    data = load(file)
    np.testing.assert_allclose(data.x.toarray(), x.toarray(), rtol=1e-6)
    np.testing.assert_array_equal(data.y, np.where(y == 1, 1, -1))
    dump_svmlight_file(X, grade, file, query_id=query, zero_based=not first)
    FRAME.drop(columns="label").assign(pay=grade, qid=query).to_csv(f"{file}.csv", index=False)
    for data in (load(file), load(f"{file}.csv", "pay")):  # files with queries are for ranking
        np.testing.assert_array_equal(data.y, grade)
        np.testing.assert_array_equal(data.query, query)


@pytest.mark.parametrize(
    "name, text, target, words",
    [
        ("mnist", None, None, "there is no file .*fetch_openml.*breast_cancer"),
        ("a.csv", "a,job,y\n1,cook,1\n2,,-1\n", "y", r"'job' hold.*OneHotEncoder.*\['job'\].*SVC"),
        ("a.csv", "a,b,y\n1,?,1\n2,3,-1\n", "y", "'b' hold missing cells: fill them"),
        ("a.csv", "a,b\n1,2\n", None, r"load\(path, target=...\): one of 'a', 'b'"),
        ("a.csv", "a,b\n1,2\n", "c", "no column 'c', expected one of 'a', 'b'"),
        ("a.csv", "a,b\n1,2,3\n4\n5,6,7,8\n", "b", "read as csv"),
        ("a.npz", "PK", None, "read as npz"),
        ("a.svm", "1 two:3", None, "read as svmlight"),
        ("a.svm", "1 1:3", "y", "has its own targets: name no target"),
    ],
)
def test_refusals_name_the_file_and_what_to_do(tmp_path, name, text, target, words):
    if text is not None:
        (tmp_path / name).write_text(text)
    with pytest.raises((ValueError, FileNotFoundError), match=words) as refused:
        load(tmp_path / name, target)
    assert name in str(refused.value) or "target=" in str(refused.value)
    assert "\n" not in str(refused.value)


def test_npz_files_without_rows_or_targets(tmp_path):
    for name, words in (("rows", "arrays x and y, got 'rows'"), ("x", "the file has no array y")):
        np.savez(tmp_path / "a.npz", **{name: X})
        with pytest.raises(ValueError, match=words):
            load(tmp_path / "a.npz")


def test_a_missing_library_is_named_with_its_extra(tmp_path, monkeypatch):
    for name, library in (("a.csv", "pandas"), ("a.svm", "sklearn.datasets")):
        (tmp_path / name).write_text("1 1:2")
        monkeypatch.setitem(sys.modules, library, None)
        with pytest.raises(ImportError, match=rf"{library}: pip install 'jaxsvm\[files\]'"):
            load(tmp_path / name)


STREAM = """
import re, jax, numpy as np, jaxsvm
from jaxsvm.data import chunks
x, y = (np.load(name, mmap_mode="r") for name in ("x.npy", "y.npy"))
peaks = []
for n in (16384, None):  # the first compiles
    jaxsvm.stream(jaxsvm.pegasos(0.1), chunks(x[:n], y[:n], rows=8192), jax.random.key(0))
    peaks.append(int(re.search(r"VmHWM:\\s+(\\d+) kB", open("/proc/self/status").read())[1]))
print((peaks[1] - peaks[0]) / 1024)
"""


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="ru_maxrss begins at that of the parent")
def test_a_mapped_file_is_not_read_whole(tmp_path):
    """400 MB; what the process takes beyond its first chunks is bounded."""
    x = RANDOM.random((400_000, 250), np.float32)
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "y.npy", np.where(x[:, 0] > 0.5, 1, -1).astype(np.float32))
    out = subprocess.check_output([sys.executable, "-c", STREAM], cwd=tmp_path)
    assert float(out) < 150
