"""Readers and writers of files, beside scikit-learn's and NumPy's own; every refusal names the file
and the line."""

import bz2
import copy
import csv
import gc
import gzip
import io
import lzma
import os
import struct
import time
import tracemalloc
import warnings
import zipfile

import jax
import numpy as np
import pytest
import scipy.sparse
from sklearn.datasets import dump_svmlight_file, load_iris, load_svmlight_file

import jaxsvm
from jaxsvm import data as jdata
from jaxsvm.data.assemble import label
from jaxsvm.data.csv import read_csv
from jaxsvm.data.formats import load_file
from jaxsvm.data.npz import read_npz
from jaxsvm.data.parsing import check_paths, open_any
from jaxsvm.data.svmlight import read_svmlight
from jaxsvm.files import npz
from jaxsvm.models import serialization
from jaxsvm.types import SparseRows


@pytest.fixture
def write(tmp_path):
    def make(text, name="a.svm"):
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return make


def refused(message, read, *args, **kwargs):
    with pytest.raises(ValueError, match=message):
        read(*args, **kwargs)


# svmlight

RNG = np.random.default_rng(0)
DENSE = np.where(RNG.random((40, 9)) < 0.3, RNG.standard_normal((40, 9)), 0).astype(np.float32)
DENSE[0, 8] = 1.5  # the last column is there
LABELS = np.where(np.arange(40) % 3, 1, -1)


@pytest.mark.parametrize(
    ("name", "pack"), [("a.svm", bytes), ("a.svm.gz", gzip.compress), ("a.bz2", bz2.compress)]
)
def test_svmlight_as_scikit_learn_reads_it(tmp_path, name, pack):
    plain = tmp_path / "plain"
    dump_svmlight_file(DENSE, LABELS, str(plain), zero_based=False)
    (tmp_path / name).write_bytes(pack(plain.read_bytes()))
    (train,) = loaded = jdata.load_svmlight(tmp_path / name)
    x, y = load_svmlight_file(str(plain))
    assert isinstance(train.x, SparseRows) and loaded.classes == (-1, 1)
    np.testing.assert_array_equal(train.x.toarray(), x.toarray().astype(np.float32))
    np.testing.assert_array_equal(train.y, y)


def test_files_share_columns_and_classes(write):
    one, two = write("2 1:1 7:1\n5 2:1\n"), write("5 9:1\n5 1:2\n", "b.svm")
    train, test = loaded = jdata.load_svmlight(one, two)
    assert train.x.shape == (2, 9) and test.x.shape == (2, 9)  # the widest
    assert loaded.classes == (2, 5) and test.y.tolist() == [1, 1]  # a later file may lack a class
    again = jdata.load_svmlight(
        two, classes=loaded.classes, columns=12, zero_based=loaded.zero_based
    )
    assert again[0].x.shape == (2, 12) and again[0].y.tolist() == [1, 1]
    refused(
        "class 2, which is not among", jdata.load_svmlight, write("5 1:1\n4 1:1\n", "c.svm"), one
    )


def test_zero_based_comments_blank_lines_queries(write):
    path = write("# head\n1 qid:3 0:2 4:1 # tail\n\n-1\n")
    (train,) = jdata.load_svmlight(path)
    np.testing.assert_array_equal(train.x.toarray(), [[2, 0, 0, 0, 1], [0] * 5])
    refused("line 2: the index 0 is below 1", jdata.load_svmlight, path, zero_based=False)


def test_svmlight_in_float64(write, x64):
    (train,) = jdata.load_svmlight(write("1 1:0.1\n-1 1:1e100\n"))
    assert train.x.toarray().tolist() == [[0.1], [1e100]]


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        ("1 1:x", "the value 'x' of index 1 is no number"),
        ("1 2", "'2' has no colon, expected index:value"),
        ("1 3:1 2:1", "the index 2 comes after 3, indices must rise"),
        ("1 3:1 3:1", "the index 3 comes after 3"),
        ("1 -1:1", "the index -1 is below 0"),
        ("1 1.5:1", "the index '1.5' is no whole number"),
        ("1 :1", "the index '' is no whole number"),
        ("1 1:", "the value '' of index 1 is no number"),
        ("1 1:nan", "the value 'nan' of index 1 is no finite number"),
        ("1 1:inf", "is no finite number"),
        ("1 1:1e39", "is too large for float32"),
        ("nan 1:1", "the label 'nan' is no finite number"),
        ("cat 1:1", "the label 'cat' is no number"),
        ("1,2 1:1", "the label '1,2' is no number"),
        ("1 99999999999:1", "the index '99999999999' is above"),
        ("1 2147483646:1 x:1", "the index 'x' is no whole number"),
        (b"1 1:\xff", "is no number"),
    ],
)
def test_lines_that_are_not_svmlight(write, bad, said):
    bad = bad if isinstance(bad, bytes) else bad.encode()
    path = write(b"1 1:1\n# note\n\n" + bad + b"\n-1 1:1\n")
    refused(rf"a\.svm, line 4: .*{said}", jdata.load_svmlight, path)


def test_other_svmlight_refusals(write, tmp_path):
    refused("holds no rows", jdata.load_svmlight, write(""))
    refused("holds no rows", jdata.load_svmlight, write("# nothing\n"))
    refused(
        "line 1: the index 3 is beyond the 2 columns",
        jdata.load_svmlight,
        write("1 3:1\n"),
        columns=2,
    )
    refused("a single class", jdata.load_svmlight, write("1 1:1\n"))
    refused("is damaged", jdata.load_svmlight, write(gzip.compress(b"1 1:1\n" * 99)[:-20], "a.gz"))
    with pytest.raises(FileNotFoundError, match="there is no file .*none.svm"):
        jdata.load_svmlight(tmp_path / "none.svm")
    with pytest.raises(OSError, match="is a folder, expected a file"):
        jdata.load_svmlight(tmp_path)


# The index of the first column


@pytest.fixture
def no_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


@pytest.mark.parametrize("zero_based", [True, False])
@pytest.mark.parametrize("name", ["b.svm", "b.svm.gz", "b"])
def test_rows_without_the_first_column_are_read_as_those_of_training(
    tmp_path, no_warning, zero_based, name
):
    """The base is that of the training file, which is told; each file by itself would be shifted by
    a column."""
    later = DENSE.copy()
    later[:, [0, 8]] = 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of scikit-learn
        dump_svmlight_file(DENSE, LABELS, str(tmp_path / "a.svm"), zero_based=zero_based)
        dump_svmlight_file(later, LABELS, str(tmp_path / "plain"), zero_based=zero_based)
    pack = gzip.compress if name.endswith("gz") else bytes
    (tmp_path / name).write_bytes(pack((tmp_path / "plain").read_bytes()))
    (train,) = loaded = load_file(tmp_path / "a.svm")
    assert loaded.zero_based is zero_based
    np.testing.assert_array_equal(train.x.toarray(), DENSE)
    (rows,) = load_file(
        tmp_path / name,
        columns=9,
        zero_based=loaded.zero_based,
        classes=loaded.classes,
        kind="svmlight",
    )
    np.testing.assert_array_equal(rows.x.toarray(), later)
    together = jdata.load_svmlight(tmp_path / "a.svm", tmp_path / name)
    np.testing.assert_array_equal(together[1].x.toarray(), later)
    assert jax.tree.map(lambda a: a, loaded).zero_based is zero_based


@pytest.mark.parametrize(
    ("text", "base"),
    [
        ("1 0:1 2:1\n-1 1:2\n", True),
        ("1 1:1 3:1\n-1 1:2\n", False),
        ("1 1:1 2:1\n-1 2:2\n", None),
        ("1\n-1\n", False),
    ],
)
def test_with_columns_a_file_that_fits_both_bases_is_a_warning(write, text, base):
    path = write(text)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        loaded = jdata.load_svmlight(path, columns=3)
    said = [str(w.message) for w in seen if "columns counted from" in str(w.message)]
    assert loaded.zero_based is bool(base) and len(said) == (base is None)
    assert (
        base is not None
        or "a.svm: the indices 1 to 2 fit 3 columns counted from 0 or from 1" in said[0]
    )
    for asked in (True, False) if base is None else ():
        x, _ = load_svmlight_file(str(path), n_features=3, zero_based=asked)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            np.testing.assert_array_equal(
                jdata.load_svmlight(path, columns=3, zero_based=asked)[0].x.toarray(), x.toarray()
            )


def test_indices_that_fit_no_base_are_refused(write):
    both = write("-1 1:1\n1 0:1 3:1\n")
    refused(
        r"line 2: the index 3 is beyond the 3 columns, counted from 0 \(zero_based=True\)",
        jdata.load_svmlight,
        both,
        columns=3,
    )
    refused(
        "line 2: the index 0 is below 1, the first with zero_based=False",
        jdata.load_svmlight,
        both,
        zero_based=False,
    )
    last = write("-1 1:1\n1 3:1\n")
    refused(
        "line 2: the index 3 is beyond the 3 columns, counted",
        jdata.load_svmlight,
        last,
        columns=3,
        zero_based=True,
    )
    refused(
        "line 2: the index 4 is beyond the 3 columns",
        jdata.load_svmlight,
        write("-1 1:1\n1 4:1\n"),
        columns=3,
    )


def test_files_of_one_call_share_the_base(write):
    """Also beside files of another format, and beside one without an index, which scikit-learn
    takes to count from 0."""
    zero, later = write("1 0:1 2:1\n-1 1:2\n"), write("1 1:5 2:2\n-1\n", "b.svm")
    found = load_file(zero, write("1,1,1,1\n", "c.csv"), later, task="regression")
    assert found[2].x.toarray().tolist() == [[0, 5, 2], [0, 0, 0]]
    found = jdata.load_svmlight(write("1 1:1 2:1\n-1 1:2\n"), write("1\n-1\n", "b.svm"))
    assert found[0].x.toarray().tolist() == [[1, 1], [2, 0]] and found.zero_based is False
    with pytest.warns(
        UserWarning, match=r"b\.svm has no index 0 and ends an index after .*a\.svm, which has"
    ):
        jdata.load_svmlight(write("1 0:1 2:1\n-1 1:2\n"), write("1 1:5 3:2\n-1 1:1\n", "b.svm"))


# Byte order marks, and long words


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_a_byte_order_mark_is_no_part_of_a_file(write, pack):
    mark, end = "\ufeff".encode(), "" if pack is bytes else ".gz"
    svm = write(pack(mark + b"1 1:2 # \xff\n-1 1:3\n"), "a.svm" + end)
    assert jdata.load_svmlight(svm)[0].x.toarray().tolist() == [[2.0], [3.0]]
    assert load_file(write(pack(mark + b"2,x\n3,y\n"), "a.csv" + end)).classes == ("x", "y")
    refused(
        r"line 2: the label .* is no number",
        jdata.load_svmlight,
        write(b"1 1:2\n" + mark + b"-1 1:3\n"),
    )
    refused(
        "line 2: the cell .* holds a byte order mark",
        jdata.load_csv,
        write("a,1\n\ufeffb,2\nb,3\n", "b.csv"),
        label=0,
    )
    refused(
        "is text in UTF-16: save it as UTF-8",
        jdata.load_svmlight,
        write("1 1:2\n-1 1:3\n".encode("utf-16")),
    )
    refused(
        "is no text in UTF-8: .*; save it as UTF-8",
        jdata.load_csv,
        write("1,x\n2,y\n".encode("utf-16"), "b.csv"),
    )


@pytest.mark.parametrize(
    "line",
    [
        "1 1:{}x",
        "{}x 1:1",
        "1 {}:1",
        "1 qid:{}x 1:1",
        "1 1:.{}x",
        "1 1:{}.{}x",
        "1 1:1e{}x",
        "1 1:-{}e",
    ],
)
def test_a_long_word_is_refused_at_once(write, line):
    """A damaged file of 794 bytes kept the reader busy for over 100 s; CSV has words of at most
    131,072 characters."""
    began = time.process_time()
    word = "1" * 200_000
    path = write(bz2.compress(line.replace("{}", word).encode() + b"\n-1 1:1\n"), "a.svm.bz2")
    assert path.stat().st_size < 200
    refused("line 1: ", jdata.load_svmlight, path)
    cell = line.split()[1 if line[0] == "1" else 0].replace("1:", "").replace("{}", word[:50_000])
    refused(
        "line 2: .* in column 1 is no number",
        jdata.load_csv,
        write(f"1,2,a\n{cell},3,b\n", "a.csv"),
        header=False,
    )
    assert time.process_time() - began < 5


# What compression may expand to

MEGA = 2**20
BOMBS = {
    "a.csv": b"," * 10 * MEGA,
    "b.csv": b"\n" * 10 * MEGA,
    "c.csv": b"1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,a\n" * (MEGA // 2),
    "d.csv": b"1,a\n2,b" + b" \r\n\t" * 2 * MEGA,
    "a.svm": b" " * 10 * MEGA,
    "b.svm": b"1 1:1\n-1 1:2 " + b"2:1 " * 2 * MEGA,
    "c.svm": b"1 1:1\n#" + b"\n" * 10 * MEGA,
    "d.svm": b"\r\n" * 5 * MEGA,
    "rows": b"\n" * 10 * MEGA,
}
PACKS = {".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress}


@pytest.mark.long(but=6)
@pytest.mark.parametrize("pack", PACKS)
@pytest.mark.parametrize("name", BOMBS)
def test_what_a_small_file_expands_to_is_bounded(write, name, pack):
    path = write(PACKS[pack](BOMBS[name]), name + pack)
    began = time.process_time()
    message = (
        "a line, or lines of blanks, of over 3276800 bytes|more "
        "than 100 times its size and 32768 bytes"
    )
    refused(f"{path.name} expands to ({message}): if it is what it should be", load_file, path)
    assert time.process_time() - began < 5


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_lines_that_end_with_the_parts_that_are_read_are_several(write, end):
    """Parts of 131,072 bytes: 60 lines of so many, of which none is too long."""
    line = (
        b"".join(b"%d," % k for k in np.random.default_rng(0).integers(0, 10, 2**16 - 1))
        + b"9" * (2 - len(end))
        + end
    )
    assert len(line) == 2**17
    path = write(gzip.compress(line * 60), "a.csv.gz")
    with open_any(check_paths([path])[0], "rb") as file:
        assert len(file.read()) == 60 * 2**17


@pytest.mark.parametrize("pack", PACKS)
@pytest.mark.parametrize(
    "name, line",
    [("a.csv", b"1,1,1,1,1,1,a\n2,1,1,1,1,1,b\n"), ("a.svm", b"1 1:1 2:1\n-1 2:1 3:1\n")],
)
def test_the_expansion_is_an_option(write, name, line, pack):
    count = 2000
    path = write(PACKS[pack](line * count), name + pack)
    reads = (jdata.load_csv if name == "a.csv" else jdata.load_svmlight), load_file
    for read in reads:
        refused(
            "expands to .*: if it is what it should be, decompress it first, or give a larger",
            read,
            path,
            expansion=1,
        )
        (rows,) = read(path)
        (again,) = read(path, expansion=10**6)
        assert rows.x.shape[0] == 2 * count and (np.asarray(again.y) == np.asarray(rows.y)).all()
        for wrong in (0, -1, 1.5, "2"):
            with pytest.raises((ValueError, TypeError), match="expansion must be"):
                read(path, expansion=wrong)
    plain = write(line * count, name)
    assert reads[0](plain, expansion=1)[0].x.shape[0] == 2 * count  # nothing is expanded


def test_an_index_of_thousands_of_zeros_is_refused(write):
    refused(
        "line 2: the index .* is no whole number, or begins with",
        jdata.load_svmlight,
        write("1 1:1\n-1 " + "0" * 5000 + "2:1\n"),
    )
    assert jdata.load_svmlight(write("1 01:1\n-1 00002:1\n"))[0].x.shape == (2, 2)


# What labels mean

SEVEN = "\n".join(f"{k} 1:{k}" for k in (3, 1, 2, 3, 7, 1))


def test_more_classes_and_one_against_the_rest(write):
    path = write(SEVEN)
    (all_,) = loaded = jdata.load_svmlight(path)
    assert loaded.classes == (1, 2, 3, 7) and all_.y.tolist() == [2, 0, 1, 2, 3, 0]
    (one,) = loaded = jdata.load_svmlight(path, positive=3)
    assert loaded.classes == ("rest", "3") and one.y.tolist() == [1, -1, -1, 1, -1, -1]
    (two,) = loaded = jdata.load_svmlight(path, positive=(1, 2, 7))
    assert loaded.classes == ("3", "1|2|7") and two.y.tolist() == [-1, 1, 1, -1, 1, 1]
    refused(
        "there are 4 classes, 1, 2, 3, 7: say which is", jdata.load_svmlight, path, task="binary"
    )
    refused(
        "positive must be one or several, not all, of the classes 1, 2, 3, 7; got 9",
        jdata.load_svmlight,
        path,
        positive=9,
    )
    (real,) = loaded = jdata.load_svmlight(path, task="regression")
    assert loaded.classes == () and real.y.tolist() == [3, 1, 2, 3, 7, 1]


def test_two_classes_keep_their_names_and_positive_turns_them(write):
    path = write("0 1:1\n1 1:2\n0.0 1:3\n")
    assert jdata.load_svmlight(path).classes == (0, 1)
    (turned,) = loaded = jdata.load_svmlight(path, positive=0)
    assert loaded.classes == (1, 0) and turned.y.tolist() == [1, -1, 1]
    (numbers,) = jdata.load_svmlight(path, task="multiclass")
    assert numbers.y.tolist() == [0, 1, 0]


def test_predictions_come_back_in_the_names_of_the_file(write):
    (train,) = loaded = jdata.load_csv(write("1,ham\n-1,spam\n", "a.csv"))
    model = jaxsvm.models.Classifier(
        jaxsvm.models.Linear(jax.numpy.ones(1), jax.numpy.zeros(())), loaded.classes
    )
    assert model.predict(train.x).tolist() == [
        "spam",
        "ham",
    ]  # the sign decides, whatever was learned
    assert jax.tree.structure(loaded) == jax.tree.structure(jax.tree.map(lambda a: a, loaded))


def test_labels_of_groups():
    assert label([1, 3, 8], ("rest", "3|8")).tolist() == [-1, 1, 1]
    assert label(["a", "c"], ("a", "b|c")).tolist() == [-1, 1]
    assert label(["3", "1"], (1, 3)).tolist() == [1, -1]
    refused("which is not among", label, ["d"], ("a", "b|c"))


# NumPy files


def test_npz_forms(tmp_path):
    x, y = np.arange(12.0).reshape(4, 3), np.array([0, 1, 1, 0])
    np.savez(tmp_path / "a.npz", X=x, y=y, weight=[1.0, 2, 1, 0])
    (train,) = jdata.load_npz(tmp_path / "a.npz")
    assert train.weight.tolist() == [1, 2, 1, 0] and train.y.tolist() == [-1, 1, 1, -1]
    np.savez_compressed(
        tmp_path / "b.npz",
        X_test=x[:2],
        y_test=y[:2],
        X_train=x,
        y_train=y,
        class_names=["no", "yes"],
    )
    train, test = loaded = jdata.load_npz(tmp_path / "b.npz")
    assert train.x.shape == (4, 3) and test.x.shape == (2, 3) and loaded.classes == ("no", "yes")
    sparse = scipy.sparse.csr_matrix(x)
    parts = {f"X_train_{a}": getattr(sparse, a) for a in ("data", "indices", "indptr", "shape")}
    np.savez(tmp_path / "c.npz", **parts, y_train=y)
    (train,) = jdata.load_npz(tmp_path / "c.npz")
    assert isinstance(train.x, SparseRows) and np.array_equal(train.x.toarray(), x)
    np.save(tmp_path / "x.npy", x), np.save(tmp_path / "y.npy", y)
    assert jdata.load_npz((tmp_path / "x.npy", tmp_path / "y.npy"))[0].y.tolist() == [-1, 1, 1, -1]
    assert load_file(f"{tmp_path / 'x.npy'},{tmp_path / 'y.npy'}")[0].x.shape == (4, 3)


def test_npz_refusals(tmp_path, write):
    path = tmp_path / "a.npz"
    np.savez(path, x=np.eye(2), y=np.array([{}, {}], object))
    refused("a.npz is damaged or no file of NumPy arrays .*allow_pickle", jdata.load_npz, path)
    refused("Python objects", jdata.memory_map, write(_object_array(), "o.npy"))
    np.savez(path, z=np.eye(2))
    refused("a.npz holds no array x, only z", jdata.load_npz, path)
    np.savez(path, x=np.eye(2), y=[1, 2, 3])
    refused("y must hold one label for each of the 2 rows", jdata.load_npz, path)
    np.savez(path, x=np.eye(2))
    refused("there are no labels", jdata.load_npz, path)
    np.savez(path, x_data=[1.0], x_indices=[5], x_indptr=[0, 1], x_shape=[1, 2], y=[1])
    refused("a.npz: ", jdata.load_npz, path)
    np.savez(path, x=np.eye(50), y=np.arange(50) % 2)
    whole = path.read_bytes()
    for cut in (1, 100, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:cut])
        refused("is damaged or no file", jdata.load_npz, path)
        refused("is damaged or no file", jdata.memory_map, path)
    spoiled = bytearray(whole)
    spoiled[500] ^= 1
    path.write_bytes(spoiled)
    refused("is damaged or no file", jdata.load_npz, path)


def _object_array():
    import io

    stream = io.BytesIO()
    np.lib.format.write_array(stream, np.array([{}], object), allow_pickle=True)
    return stream.getvalue()


def npy(array, shape):
    """The bytes of a `.npy` file that says it has another shape."""
    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        stream, np.lib.format.header_data_from_array_1_0(array) | {"shape": shape}
    )
    return stream.getvalue() + array.tobytes()


@pytest.mark.parametrize(
    ("descr", "shape", "size"),
    [("<f4", (-1, -1), 4), ("<f4", (-1, 0), 0), ("<U0", (2,), 0), (("<f4", (2,)), (3,), 24)],
)
def test_arrays_that_cannot_be(descr, shape, size):
    """Though the number of bytes is right: lengths below 0, texts of no letters, numbers that are
    arrays."""
    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        stream, {"descr": descr, "fortran_order": False, "shape": shape}
    )
    content = stream.getvalue() + bytes(size)
    with pytest.raises(ValueError, match="an array of shape"):
        npz.read_header(io.BytesIO(content), len(content))


def members(path, how=zipfile.ZIP_STORED, **arrays):
    """A `.npz` file of bytes; names with two underscores at the end come again."""
    with warnings.catch_warnings(), zipfile.ZipFile(path, "w", how) as file:
        warnings.simplefilter("ignore")
        for name, content in arrays.items():
            file.writestr(f"{name.rstrip('_')}.npy", content)


def little_memory(message, read, path, most=10e6):
    """Refused before much memory was taken."""
    gc.collect()
    tracemalloc.start()
    try:
        refused(message, read, path)
        assert tracemalloc.get_traced_memory()[1] < most
    finally:
        tracemalloc.stop()


ROWS_AND_NAMES = {"x": npy(np.eye(2), (2, 2)), "y": npy(np.arange(2), (2,))}
BOMB = npy(np.zeros(0), (5_000_000, 1)) + bytes(40_000_000)  # 40 kB when compressed


@pytest.mark.long
def test_sizes_are_checked_before_anything_is_read(tmp_path):
    path = tmp_path / "a.npz"
    for how in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        members(path, how, **ROWS_AND_NAMES | {"x": npy(np.eye(2), (10**9, 2))})
        for read in (jdata.load_npz, jdata.memory_map):
            little_memory(
                "a.npz is damaged or no file of NumPy arrays .an array is shorter than it says",
                read,
                path,
            )
    (tmp_path / "b.npy").write_bytes(npy(np.eye(2), (10**9, 2)))
    for read in (jdata.load_npz, jdata.memory_map):
        little_memory(
            "b.npy is damaged or no file of NumPy arrays .an array is shorter than it says",
            read,
            tmp_path / "b.npy",
        )
    (tmp_path / "b.npy").write_bytes(npy(np.eye(2), (2, 2)) + b"more")
    refused("an array is longer than it says", jdata.memory_map, tmp_path / "b.npy")
    for shape in ((-2, -2), (2, 2, 0, 10**30)):
        (tmp_path / "b.npy").write_bytes(npy(np.eye(2), shape))
        refused("b.npy is damaged", jdata.load_npz, tmp_path / "b.npy")
    (tmp_path / "b.npy").write_bytes(
        b"\x93NUMPY\x02\x00" + (2**31).to_bytes(4, "little") + b" " * 100
    )
    little_memory("the header of an array has 2147483648 bytes", jdata.load_npz, tmp_path / "b.npy")


def with_size(path, old, new):
    """Another size of the member x in both headers of a zip file."""
    content = path.read_bytes()
    sizes = [struct.pack("<I", size) for size in (old, new)]
    assert content.count(sizes[0]) == 2
    path.write_bytes(content.replace(*sizes))


@pytest.mark.long(but=1)
@pytest.mark.parametrize("size", [2_000_000_000, 4_294_967_294])
@pytest.mark.parametrize("read", [jdata.load_npz, jdata.memory_map, read_npz])
def test_deflate_cannot_unpack_to_more_than_1032_bytes_for_each(read, size, tmp_path):
    path, content = tmp_path / "a.npz", npy(np.zeros(0, np.uint8), (size - 128, 1)) + bytes(70_000)
    members(path, zipfile.ZIP_DEFLATED, x=content, y=npy(np.arange(2), (2,)))
    with_size(path, len(content), size)
    little_memory(
        f"the member x says that .* bytes unpack to {size}, which they cannot", read, path
    )


def test_zeros_that_deflate_packs_best_are_read(tmp_path):
    np.savez_compressed(
        tmp_path / "a.npz", x=np.zeros((50_000, 20), np.float32), y=np.arange(50_000) % 2
    )
    assert os.path.getsize(tmp_path / "a.npz") < 200_000
    (rows,) = jdata.load_npz(tmp_path / "a.npz")
    assert rows.x.shape == (50_000, 20)


@pytest.mark.parametrize("read", [jdata.load_npz, jdata.memory_map, jaxsvm.models.load])
def test_too_many_members_are_refused(read, tmp_path, monkeypatch):
    monkeypatch.setattr(npz, "MEMBERS", 20)
    members(tmp_path / "a.npz", **ROWS_AND_NAMES | {f"a{i}": b"" for i in range(19)})
    refused("it holds 21 arrays, at most 20 are read", read, tmp_path / "a.npz")


def test_a_tree_of_more_arrays_than_are_read_is_not_saved(tmp_path, monkeypatch):
    monkeypatch.setattr(serialization, "MEMBERS", 20)
    jaxsvm.models.save(tmp_path / "a.npz", [np.zeros(1)] * 19)
    refused(
        "the tree has too many parts: 20 arrays",
        jaxsvm.models.save,
        tmp_path / "a.npz",
        [np.zeros(1)] * 20,
    )


@pytest.mark.parametrize(
    "text", ["-" * 9000 + "1", "(" * 180, "{'descr': " * 900, "1+" * 4000 + "1", "[" * 9000]
)
def test_headers_of_deep_nests_are_damage(text, tmp_path):
    content = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode()
    members(tmp_path / "a.npz", **ROWS_AND_NAMES | {"x": content})
    (tmp_path / "b.npy").write_bytes(content)
    for read in (jdata.load_npz, jdata.memory_map):
        refused("a.npz is damaged or no file of NumPy arrays", read, tmp_path / "a.npz")
        refused("b.npy is damaged or no file of NumPy arrays", read, tmp_path / "b.npy")


@pytest.mark.long
def test_shapes_that_do_not_fit_are_refused_before_anything_is_read(tmp_path):
    """Compressed zeros: 40 MB in 40 kB."""
    path = tmp_path / "a.npz"
    for name, message in (
        ("x", "y must hold one label for each of the 5000000 rows"),
        ("y", "y must hold one label for each of the 2 rows"),
        ("weight", "weight must hold one number for each of the 2 rows"),
    ):
        members(path, zipfile.ZIP_DEFLATED, **ROWS_AND_NAMES | {name: BOMB})
        assert path.stat().st_size < 1e5
        little_memory(f"a.npz: {message}", jdata.load_npz, path)
    np.savez(path, x_data=[1.0], x_indices=[0, 1], x_indptr=[0, 1], x_shape=[1, 2], y=[1])
    refused("a.npz: x is no sparse matrix: its arrays are data", jdata.load_npz, path)


def test_a_shape_of_rows_that_is_not_whole_is_refused(tmp_path):
    np.savez(
        tmp_path / "a.npz",
        x_data=[1.0, 2],
        x_indices=[0, 1],
        x_indptr=[0, 1, 2],
        x_shape=[2.5, 2],
        y=[1, -1],
    )
    refused(r"x is no sparse matrix: .* shape float64\(2,\)", jdata.load_npz, tmp_path / "a.npz")


@pytest.mark.long
def test_only_the_arrays_of_the_rows_are_read(tmp_path):
    path = tmp_path / "a.npz"
    members(path, zipfile.ZIP_DEFLATED, **ROWS_AND_NAMES | {"more": BOMB, "odd": b"text"})
    gc.collect()
    tracemalloc.start()
    (train,) = jdata.load_npz(path)
    assert tracemalloc.get_traced_memory()[1] < 10e6
    tracemalloc.stop()
    np.testing.assert_array_equal(train.x, np.eye(2))


def test_members_that_come_twice_or_overlap(tmp_path):
    path = tmp_path / "a.npz"
    members(path, **ROWS_AND_NAMES | {"x_": npy(np.ones((2, 2)), (2, 2))})
    for read in (jdata.load_npz, jdata.memory_map):
        refused(
            "a.npz is damaged or no file of NumPy arrays .two members have the name x", read, path
        )
    members(path, zipfile.ZIP_LZMA, **ROWS_AND_NAMES)
    refused("the member x is compressed in a way that is not read here", jdata.load_npz, path)
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("x.npy", npy(np.zeros((1000, 1)), (1000, 1)))
        for k in range(100):
            info = copy.copy(file.getinfo("x.npy"))
            info.filename = f"x{k}.npy"
            file.filelist.append(info)
    for read in (jdata.load_npz, jdata.memory_map):
        refused("a.npz is damaged or no file of NumPy arrays", read, path)


def test_a_name_that_was_hit_is_seen(tmp_path):
    """One bit makes another name of weight, and no weights would be found."""
    path = tmp_path / "a.npz"
    np.savez(path, x=np.eye(2), y=[0, 1], weight=[1.0, 2])
    whole = path.read_bytes()
    for place in (whole.index(b"weight"), whole.rindex(b"weight")):
        spoiled = bytearray(whole)
        spoiled[place] ^= 1
        path.write_bytes(spoiled)
        refused("is damaged or no file", jdata.load_npz, path)


def test_errors_of_the_file_system_are_not_damage(tmp_path, monkeypatch):
    path = tmp_path / "a.npz"
    np.savez(path, x=np.eye(2), y=[0, 1])
    for error in (
        PermissionError(13, "Permission denied"),
        OSError(5, "Input/output error"),
        MemoryError(),
    ):

        def failing(*args, error=error, **kwargs):
            raise error

        with monkeypatch.context() as patch:
            patch.setattr(zipfile, "ZipFile", failing)
            for read in (jdata.load_npz, jdata.memory_map):
                with pytest.raises(type(error)) as caught:
                    read(path)
                assert caught.value is error
    os.mkfifo(tmp_path / "pipe.npz")
    for read in (jdata.load_npz, jdata.memory_map):
        with pytest.raises(
            OSError, match="pipe.npz is a pipe, a device or a socket, expected a file"
        ):
            read(tmp_path / "pipe.npz")


def test_memory_maps(tmp_path):
    arrays = {
        "x": RNG.random((30, 4)),
        "f": np.asfortranarray(RNG.random((5, 6))),
        "s": np.array("abc"),
        "none": np.zeros((0, 3)),
    }
    np.savez(tmp_path / "a.npz", **arrays)
    maps = jdata.memory_map(tmp_path / "a.npz")
    for name, array in arrays.items():
        np.testing.assert_array_equal(maps[name], array)
    assert (
        isinstance(maps["x"], np.memmap)
        and isinstance(maps["f"], np.memmap)
        and not maps["x"].flags.writeable
    )
    np.savez_compressed(tmp_path / "b.npz", **arrays)
    np.testing.assert_array_equal(jdata.memory_map(tmp_path / "b.npz")["f"], arrays["f"])
    np.save(tmp_path / "c.npy", arrays["x"])
    np.testing.assert_array_equal(
        jdata.memory_map(tmp_path / "c.npy")["x"], np.load(tmp_path / "c.npy")
    )
    with zipfile.ZipFile(tmp_path / "d.npz", "w") as file:  # a member that says more than it holds
        file.writestr("x.npy", (tmp_path / "c.npy").read_bytes()[:-8])
    refused("an array is shorter than it says", jdata.memory_map, tmp_path / "d.npz")


# CSV


def test_csv_as_numpy_reads_it(tmp_path):
    table = np.c_[DENSE.astype(np.float64), LABELS]
    for name, delimiter in (("a.csv", ","), ("b.tsv", "\t"), ("c.csv.gz", ",")):
        np.savetxt(tmp_path / name, table, delimiter=delimiter)
        (train,) = load_file(tmp_path / name)
        np.testing.assert_array_equal(
            train.x, np.loadtxt(tmp_path / name, delimiter=delimiter)[:, :-1].astype(np.float32)
        )
        np.testing.assert_array_equal(train.y, LABELS)


def test_csv_headers_and_columns_of_labels(write):
    text = "\ufeffa,kind,b\n1,cat,2\n\n3,dog,4\r\n"
    for how in ({"label": "kind"}, {"label": 1}, {"label": -2}):
        (train,) = loaded = jdata.load_csv(write(text, "a.csv"), **how)
        assert loaded.classes == ("cat", "dog") and train.x.tolist() == [[1, 2], [3, 4]]
    assert jdata.load_csv(write("cat,1\ndog,2\n", "a.csv"), label=0)[0].x.tolist() == [
        [1],
        [2],
    ]  # no header
    assert jdata.load_csv(write("1,2,3\n4,5,6\n7,8,9\n", "a.csv"), header=True).classes == (6, 9)
    assert jdata.load_csv(write('"1";"a;b"\n"2";c\n', "a.csv"), delimiter=";").classes == (
        "a;b",
        "c",
    )
    (real,) = jdata.load_csv(write("x,y\n1,0.5\n2,2.5\n", "a.csv"), task="regression")
    assert real.y.tolist() == [0.5, 2.5]
    rows = read_csv(write("1,2\n3,4\n", "a.csv"), columns=2)
    assert rows.y is None and rows.x.tolist() == [[1, 2], [3, 4]]


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        ("1,2", "line 4 has 2 cells, expected 3"),
        ("1,2,3,4", "line 4 has 4 cells, expected 3"),
        ("1,x,0", "line 4: the cell 'x' in column 2 is no number"),
        ("1,,0", "line 4: the cell '' in column 2 is no number"),
        ("nan,1,0", "line 4: the cell 'nan' in column 1 is no finite number"),
        ("1,inf,0", "is no finite number"),
        ("1e39,1,0", "is too large for float32"),
        ("1,2,", "line 4: the cell '' in column 3 is empty"),
    ],
)
def test_lines_that_do_not_fit_a_csv_file(write, bad, said):
    refused(rf"a\.csv.*{said}", jdata.load_csv, write(f"a,b,c\n1,2,0\n\n{bad}\n3,4,1\n", "a.csv"))


def test_other_csv_refusals(write):
    refused("holds no rows", jdata.load_csv, write("", "a.csv"))
    refused("holds no rows", jdata.load_csv, write("a,b\n", "a.csv"))
    refused(
        "has a single cell, .*: is ',' what stands between", jdata.load_csv, write("1;2\n", "a.csv")
    )
    refused(
        "has no column named 'z', its first line holds a, b",
        jdata.load_csv,
        write("a,b\n1,2\n", "a.csv"),
        label="z",
    )
    refused(
        "has 2 columns, the label cannot stand in column 5",
        jdata.load_csv,
        write("1,2\n", "a.csv"),
        label=5,
    )
    refused("is no text in UTF-8", jdata.load_csv, write(b"1,2\n\xff,3\n", "a.csv"))
    refused(
        "has 2 columns beside the label",
        jdata.load_csv,
        write("1,a\n2,b\n", "a.csv"),
        write("1,2,a\n", "b.csv"),
    )


# Headers of numbers

IRIS = load_iris(return_X_y=True)
WHOLE = np.random.default_rng(1).integers(0, 9, (40, 3))
BEFORE_FLOAT = [(a, b, c / 7 + 0.01) for a, b, c in WHOLE.tolist()]
AFTER_FLOAT = [(c, a, b) for a, b, c in BEFORE_FLOAT]


def lines(rows, head=None):
    """Rows as CSV, with a point in numbers of floats only."""
    text = "\n".join(",".join(map(str, row)) for row in rows)
    return text if head is None else f"{head}\n{text}"


@pytest.mark.parametrize(
    "how",
    [
        "to_csv",
        "one column",
        "whole numbers",
        "labels of whole numbers",
        "words",
        "names a label",
        "first",
    ],
)
def test_numbers_that_pandas_writes_above_columns_are_a_header(tmp_path, no_warning, how):
    pd = pytest.importorskip("pandas")
    x, y = IRIS
    x = np.round(x) if how == "whole numbers" else x[:, :1] if how == "one column" else x
    frame = pd.DataFrame(np.c_[y, x] if how == "first" else np.c_[x, y])
    if how == "labels of whole numbers":
        frame[4] = y
    if how == "words":
        frame[4] = np.array(["setosa", "versicolor", "virginica"])[y]
    if how == "names a label":
        frame = pd.DataFrame(x.round().astype(int)).assign(target=y)
    frame.to_csv(tmp_path / "a.csv", index=False)
    (train,) = loaded = jdata.load_csv(tmp_path / "a.csv", label=0 if how == "first" else -1)
    np.testing.assert_array_equal(
        train.x, (x.round() if how == "names a label" else x).astype(np.float32)
    )
    assert len(loaded.classes) == 3 and train.y.tolist() == y.tolist()


@pytest.mark.parametrize("head", ["10,20,30", "1,2,class", "1990,1991,class", "0,1,2"])
def test_rising_whole_numbers_before_fractional_ones_are_a_header(write, no_warning, head):
    rows = [(0.5, 2.25, 1), (1.5, 0.75, 0), (2.5, 1e-3, 1), (3.25, 0.5, 0)]
    assert jdata.load_csv(write(lines(rows, head), "a.csv"))[0].x.shape == (4, 2)
    assert read_csv(write(lines([row[:2] for row in rows], "0,1"), "b.csv"), columns=2).x.shape == (
        4,
        2,
    )
    assert jdata.load_csv(write(lines(rows, head), "a.csv"), header=True)[0].x.shape == (4, 2)
    assert read_csv(
        write(lines(rows, head.replace("class", "1")), "a.csv"), header=False
    ).x.shape == (5, 2)


@pytest.mark.parametrize(
    "rows",
    [
        lines(WHOLE, "1,2,3"),
        lines(BEFORE_FLOAT, "1,2,7"),  # a target
        lines(BEFORE_FLOAT, "1,2,7.5"),
        lines(AFTER_FLOAT, "0.5,2,7"),
        lines(AFTER_FLOAT, "3,2,7"),  # falls
        "\n".join(
            f"{x / 4:g},{x / 2 + 1:g},{x % 3}" for x in range(40)
        ),  # a point only where one is needed
        lines(np.round(np.random.default_rng(2).random((40, 3)), 2)),
    ],
)
def test_first_rows_of_numbers_stay_rows(write, no_warning, rows):
    path = write(rows, "a.csv")
    assert jdata.load_csv(path, task="regression")[0].x.shape == (rows.count("\n") + 1, 2)


def test_a_first_label_that_comes_again_is_no_name_of_a_column(write, no_warning):
    rows = [(0.5, 2.25, "dog"), (1.5, 0.75, "cat"), (2.5, 1e-3, "dog")]
    assert jdata.load_csv(write(lines(rows, "0,1,cat"), "a.csv"))[0].x.shape == (4, 2)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            lines(WHOLE, "0,1,2"),
            "a.csv, line 1: 0, 1, 2 is read as a row: give header=True if it names",
        ),
        (
            lines(np.c_[WHOLE, WHOLE[:, 0] % 2], "1,2,3,4"),
            "a.csv, line 1: 1, 2, 3, 4 is read as a row",
        ),
        (
            lines([(x / 8 + 0.01, x % 2) for x in range(20)], "1,2"),
            "a.csv, line 1: 1, 2 is read as a row",
        ),
        (
            lines([(*row, "ab"[row[0] % 2]) for row in WHOLE.tolist()], "7,5,3,kind"),
            "the class 'kind' has one row, the first",
        ),
        (
            lines(np.c_[WHOLE, WHOLE[:, 0] % 2], "9,5,3,8"),
            "the class 8 has one row, the first: give header=True if that",
        ),
        (
            lines(np.c_[WHOLE, np.arange(40)], "a,b,c,d"),
            r"there are 40 classes in 40 rows, such as 0: .*\(task='regression'\)",
        ),
        (
            lines([(1, f"row {i}") for i in range(20)], "a,b"),
            "there are 20 classes in 20 rows, such as 'row 0': is the label",
        ),
        (
            "\n".join(f"{i},{i % 10};{'yes' if i % 3 else 'no'}" for i in range(60)),
            "hold ';': .* give delimiter=';'",
        ),
        (
            "\n".join(f"{i},{i % 10}\tyes" if i % 3 else f"{i},0\tno" for i in range(60)),
            r"give delimiter='\\t'",
        ),
    ],
)
def test_what_is_odd_in_a_table_is_a_warning(write, text, said):
    with pytest.warns(UserWarning, match=said):
        jdata.load_csv(write(text, "a.csv"))
    if "header" in said or "first" in said:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            read_csv(write(text, "a.csv"), header=True)
            jdata.load_csv(write(text, "a.csv"), header=False)


@pytest.mark.parametrize(
    "labels",
    [["1;2", "2;3"] * 9, ["a;b", "c;d"] * 9, [*"abcdefgh"] * 2, [*"aabbcdefg"], [*"abcdeeeeee"]],
)
def test_labels_that_are_not_odd(write, labels):
    """Few classes of one row among many, quoted delimiters in words, a small file."""
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        jdata.load_csv(write(lines([(i * 1.5, name) for i, name in enumerate(labels)]), "a.csv"))
    assert [w for w in seen if "delimiter" in str(w.message)] == seen and len(seen) == (
        labels[0] == "1;2"
    )


@pytest.mark.parametrize("blank", [",,", "   ", " , , ", '"",,'])
def test_a_line_of_blanks_is_named(write, blank):
    for text, line in (
        (f"1,2,a\n3,4,b\n{blank}\n", 3),
        (f"x,y,z\n1,2,a\n{blank}\n3,4,b", 3),
        (f"1,2,a\n\n{blank}\n3,4,b", 3),
    ):
        refused(
            rf"a\.csv, line {line}: every cell is empty, expected numbers",
            jdata.load_csv,
            write(text, "a.csv"),
        )
    assert jdata.load_csv(write(f"{blank}\nx,y,z\n1,2,a\n3,4,b\n\n", "a.csv"))[0].x.shape == (2, 2)
    if "," in blank:
        assert read_csv(write(f"1,2,a\n3,4,b\n{blank}\n", "a.csv"), missing=True).y.tolist() == [
            "a",
            "b",
            "",
        ]


def test_a_decimal_comma_is_named(write):
    refused(
        "line 2: the cell '1,5' in column 1 is no number: a decimal point is expected",
        jdata.load_csv,
        write("a;b\n1,5;x\n2;y\n", "a.csv"),
        delimiter=";",
    )


# Writing


def test_round_trips(tmp_path):
    x, names = DENSE.astype(np.float64) * np.pi, np.array(["b", "a"])[(LABELS > 0).astype(int)]
    jdata.save_npz(tmp_path / "a.npz", scipy.sparse.csr_matrix(x), names, np.ones(40))
    (rows,) = read_npz(tmp_path / "a.npz")
    assert (
        (rows.x != scipy.sparse.csr_matrix(x)).nnz == 0
        and rows.y.tolist() == names.tolist()
        and rows.weight.sum() == 40
    )
    jdata.save_svmlight(tmp_path / "a.svm.gz", rows.x, LABELS)
    found, y = load_svmlight_file(str(tmp_path / "a.svm.gz"))  # scikit-learn's own reader
    np.testing.assert_array_equal(found.toarray(), x)
    np.testing.assert_array_equal(y, LABELS)
    np.testing.assert_array_equal(
        read_svmlight(tmp_path / "a.svm.gz", dtype=np.float64)[0].x.toarray(), x
    )
    jdata.save_csv(tmp_path / "a.csv", rows.x, names)
    again = read_csv(tmp_path / "a.csv")
    np.testing.assert_array_equal(again.x, x)
    assert again.y.tolist() == names.tolist()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.csv", "a.npz", "a.svm.gz"], (
        "nothing stays beside"
    )
    refused(
        "labels in svmlight files are numbers, got",
        jdata.save_svmlight,
        tmp_path / "b.svm",
        x,
        names,
    )
    refused("Python objects", jdata.save_npz, tmp_path / "b.npz", np.array([[{}]], object))


def test_dump_of_scikit_learn_says_the_same(tmp_path):
    dump_svmlight_file(DENSE, LABELS, str(tmp_path / "a"), zero_based=False)
    jdata.save_svmlight(tmp_path / "b", DENSE, LABELS)
    a, b = (load_svmlight_file(str(tmp_path / name), dtype=np.float32) for name in "ab")
    assert (a[0] != b[0]).nnz == 0 and np.array_equal(a[1], b[1])


# Scaling, which sparse rows need in another form


@pytest.mark.long
def test_scale_takes_columns_to_0_1_and_keeps_zeros_of_sparse_rows(tmp_path):
    from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler

    x = np.array([[1.0, 5, -2], [3, 5, 4], [2, 5, 0]], np.float32)
    np.testing.assert_allclose(
        jdata.scale(x)(x), MinMaxScaler().fit_transform(x), atol=1e-6
    )  # rounding of float32
    rows = jaxsvm.dataset(scipy.sparse.csr_matrix(DENSE), LABELS).x
    made = jdata.scale(rows)
    np.testing.assert_allclose(made(rows).toarray(), MaxAbsScaler().fit_transform(DENSE), atol=1e-6)
    np.testing.assert_allclose(made(jax.numpy.asarray(DENSE)), made(rows).toarray(), atol=1e-6)
    jaxsvm.models.save(tmp_path / "scale.npz", made)
    again = jaxsvm.models.load(tmp_path / "scale.npz")
    assert again.low is None and np.array_equal(again.width, made.width)
    refused("use jaxsvm.data.scale", jdata.standardize, rows)
    refused("use jaxsvm.data.scale", jdata.standardize(DENSE), rows)
    refused("was fitted on dense rows", jdata.scale(DENSE), rows)


def test_numbers_among_grouped_names():
    """svmlight labels come as floats."""
    from jaxsvm.data.assemble import label

    assert label([3.0, 8.0, 1.0], ("rest", "8")).tolist() == [-1, 1, -1]
    assert label([3.0, 8.0], ("1|3", "8|9")).tolist() == [-1, 1]


def test_load_file_hands_on_what_svmlight_takes(tmp_path):
    (tmp_path / "z.svm").write_text("1 1:2.0 2:1\n-1 1:1\n")
    assert jaxsvm.data.load_file(tmp_path / "z.svm", zero_based=True)[0].x.shape == (2, 3)
    assert jaxsvm.data.load_file(tmp_path / "z.svm")[0].x.shape == (2, 2)
    with pytest.raises(TypeError, match="load_file has no option 'nonsense'"):
        jaxsvm.data.load_file(tmp_path / "z.svm", nonsense=3)


def test_a_row_of_weight_0_may_hold_any_class(tmp_path):
    np.savez(
        tmp_path / "w.npz", x=np.eye(3), y=np.array(["a", "b", "c"]), weight=np.array([1.0, 1, 0])
    )
    (rows,) = loaded = jaxsvm.data.load_npz(tmp_path / "w.npz")
    assert (
        loaded.classes == ("a", "b")
        and rows.y[:2].tolist() == [-1, 1]
        and rows.weight.tolist() == [1, 1, 0]
    )


def test_a_first_row_with_one_bad_cell_is_no_header(write):
    """header="auto" dropped it before: a header holds no number at all, the label apart."""
    path = write("1.5,x,a\n2,3,b\n4,5,a\n", "a.csv")
    refused(
        r"a\.csv, line 1: the cell 'x' is no number, but others of the line are: say header=True",
        jdata.load_csv,
        path,
    )
    assert jdata.load_csv(path, header=True)[0].x.shape == (2, 2)
    refused(r"line 1: the cell 'x' in column 2 is no number", jdata.load_csv, path, header=False)
    refused(
        r"line 3: the cell '' is no number, but",
        jdata.load_csv,
        write("\n\n,2,a\n3,4,b\n", "c.csv"),
    )
    assert jdata.load_csv(write(",length,kind\n1,2,a\n3,4,b\n", "d.csv"))[0].x.shape == (2, 2)


@pytest.mark.parametrize("cell", ["1_0", "\u0661", "1 0", "0x1", "nan(1)", "1e", "1__0", "--1"])
def test_what_python_takes_for_numbers_files_may_not_hold(write, cell):
    refused(
        r"line 2: the cell .* in column 1 is no number",
        jdata.load_csv,
        write(f"1,2,a\n{cell},3,b\n", "a.csv"),
    )
    if " " not in cell:
        refused(
            r"line 2: the value .* of index 1 is no number",
            jdata.load_svmlight,
            write(f"1 1:2\n-1 1:{cell}\n"),
        )
        refused(
            r"line 2: the label .* is no number", jdata.load_svmlight, write(f"1 1:2\n{cell} 1:3\n")
        )


def test_underscores_in_comments_are_no_fault(write):
    (train,) = jdata.load_svmlight(write("1 1:2 # a_b\n# c_d\n-1 1:3\n"))
    assert train.x.toarray().tolist() == [[2.0], [3.0]]


@pytest.mark.parametrize("end", [".gz", ".bz2", ".xz"])
@pytest.mark.parametrize("hurt", ["cut", "flipped", "another kind"])
@pytest.mark.parametrize("name", ["a.csv", "a.svm", "a"])
def test_damaged_packed_files(tmp_path, name, end, hurt):
    text = "".join(
        f"{i % 2} 1:{i}\n" if name == "a.svm" else f"{i % 2},{i}\n" for i in range(3000)
    ).encode()
    packed = bytearray({".gz": gzip, ".bz2": bz2, ".xz": lzma}[end].compress(text))
    if hurt == "flipped":
        packed[len(packed) // 2] ^= 255
    packed = (
        packed[: len(packed) // 2] if hurt == "cut" else text if hurt == "another kind" else packed
    )
    path = tmp_path / (name + end)
    path.write_bytes(packed)
    refused(rf"{path} is damaged: ", load_file, path)


def test_svmlight_packed_by_xz(tmp_path):
    path = tmp_path / "a.svm.xz"
    path.write_bytes(lzma.compress(b"1 1:2\n-1 1:3\n"))
    assert jdata.load_svmlight(path)[0].x.toarray().tolist() == [[2.0], [3.0]]


def test_a_cell_above_the_limit_of_csv(write):
    huge = "1" * (csv.field_size_limit() + 1)
    refused(
        r"a\.csv, line 1: field larger than field limit",
        jdata.load_csv,
        write(f"{huge},2,a\n1,2,b\n", "a.csv"),
    )
    refused(
        r"a\.csv, line 2: (field larger|the cell)",
        jdata.load_csv,
        write(f'1,2,a\n"{huge},2,b\n', "a.csv"),
    )


@pytest.mark.parametrize("label", [1.5, True, [0], b"a"])
def test_a_column_of_labels_is_named_by_number_or_name(write, label):
    with pytest.raises(
        TypeError, match="label must be the number of a column, its name or None, got "
    ):
        jdata.load_csv(write("1,2\n3,4\n", "a.csv"), label=label)


@pytest.mark.parametrize("delimiter", ["", ",,", None, "\n", 1, '"'])
def test_a_delimiter_is_one_character(write, delimiter):
    refused(
        "delimiter must be the one character between cells",
        jdata.load_csv,
        write("1,2\n3,4\n", "a.csv"),
        delimiter=delimiter,
    )


@pytest.mark.parametrize("classes", [("a",), [], "ab", 5, ["a", "a"]])
def test_classes_of_an_earlier_call_are_two_or_more_names(write, classes):
    with pytest.raises(ValueError, match="classes must be the names of two classes or more"):
        jdata.load_csv(write("1,a\n2,b\n", "a.csv"), classes=classes)
    with pytest.raises(ValueError, match="classes must be the names of two classes or more"):
        label(["a"], classes)


@pytest.mark.parametrize("odd", ["1_0", "1\uff10"])
def test_labels_that_python_alone_takes_for_numbers_are_names(write, odd):
    loaded = jdata.load_csv(write(f"1,10\n2,{odd}\n".encode(), "a.csv"))
    assert loaded.classes == tuple(sorted(["10", odd]))


def test_paths_that_no_file_can_have():
    with pytest.raises(ValueError, match="null character"):
        jdata.load_csv("\0")
    with pytest.raises(ValueError, match="null character"):
        jaxsvm.models.save("\0", {})
    with pytest.raises(FileNotFoundError) as refused:
        jdata.load_csv("x" * 4000)
    assert len(str(refused.value)) < 300


def test_a_query_of_svmlight_is_a_number_in_ascii(write):
    with pytest.raises(ValueError, match="line 1: the query .* is no whole number"):
        jdata.load_svmlight(write("1 qid:2\ufeff 1:1\n-1 1:2\n"))
    assert jdata.load_svmlight(write("1 qid:2 1:1 # \ufeff\n-1 1:2\n")).classes == (-1, 1)


def test_a_label_with_a_null_character_is_refused(write):
    with pytest.raises(ValueError, match="line 2: the cell .* in column 2 holds a null character"):
        jdata.load_csv(write("1,a\n2,a\0\n3,b\n", "a.csv"))


@pytest.mark.parametrize("load", [jdata.load_csv, jdata.load_npz, jdata.load_svmlight, load_file])
def test_no_path_at_all(load):
    with pytest.raises(ValueError, match="give the path of at least one file"):
        load()
