"""Part `readers`: CSV, svmlight and npz of hostile content beside a parse in plain Python and NumPy."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import itertools
import lzma
import re
from typing import Any

import numpy as np
import scipy.sparse

from jaxsvm import data as jdata

from .cases import FLOAT32, Case, show

BIG = float(FLOAT32.max)
NUMBER = re.compile(r"[ \t]*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?[ \t]*", re.ASCII)
CELLS = ("1", "-2.5", "3e2", " 4 ", '"5"', "0", "1e-50", ".25", "+3", "7.", "1E3", "-0")
PIECES = [
    b"nan", b"inf", b"-inf", b"Infinity", b"1e39", b"1e999", b"-1:1", b"0:1", b"3000000000:1", b"2147483645:1", b"qid:4", b"\r\n",
    b"\n\n", b"# note", b"\xef\xbb\xbf", "\u0661".encode(), b"1_0", b"0x1", b'"', b'"1"', b"1,2", b"5:5:5", b" :1", b" 7: 1",
    b"\x1a", b"\r", b"'", b"\x00", b"\xff", b"NA", b"?", b"NULL", b"1;2", b"1 2", b"1,", b",", b",,", b"1e", b"--1", b"+-1",
    b"1j",
    b"True", b"\xc2\xa0", b"\t", b"1.2.3", b"9" * 400, b"1:1 1:2", b"2:1 1:1", "\uff11".encode(), b"1d3", b"1f", b"$1", b"1%",
]  # fmt: skip


def number(text: str) -> float | None:
    """A finite decimal number in ASCII that float32 can hold; None: it is something else."""
    if not NUMBER.fullmatch(text):
        return None
    value = float(text)
    return value if abs(value) <= BIG else None


def without_last_break(case: Case, text: bytes) -> bytes:
    """The text of one file in three without its last line break, as editors leave it."""
    return text.rstrip(b"\r\n") if case.seed % 3 == 2 else text


def mutate(case: Case, text: bytes) -> bytes:
    """Pieces put in, replaced, lost or doubled."""
    for _ in range(case.one((1, 1, 2, 3))):
        place = int(case.random.integers(len(text) + 1))
        piece = case.one(PIECES) if case.random.integers(2) else bytes([case.one(b"0123456789+-.:,;#\"' \t\r\n_eEnax")])
        how = case.one(("insert", "insert", "replace", "replace", "delete", "cut", "double"))
        text = {
            "insert": text[:place] + piece + text[place:],
            "replace": text[:place] + piece + text[place + len(piece) :],
            "delete": text[:place] + text[place + 1 :],
            "cut": text[:place],
            "double": text[:place] + text[max(place - 7, 0) :],
        }[how]
    return text


def pack(case: Case, text: bytes, end: str, kinds: tuple[str, ...]) -> tuple[bytes, str, bool]:
    """The text as a file of some kind: bytes, the end of its name, and whether the packing is damaged."""
    kind = case.one(kinds) if case.rarely(2) else ""
    packed = {"": lambda t: t, ".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress}[kind](text)
    if kind and case.rarely(2):
        how = case.one(("cut", "flip", "plain", "junk", "empty"))
        place = int(case.random.integers(len(packed)))
        if how == "cut":
            return packed[:place], end + kind, True
        if how == "flip":
            changed = bytearray(packed)
            changed[place] ^= 1 << int(case.random.integers(8))
            return bytes(changed), end + kind, True
        return {"plain": text, "junk": packed + b"junk" * 3, "empty": b""}[how], end + kind, True
    return packed, end + kind, False


def unpacked(packed: bytes, name: str) -> bytes | None:
    """What Python's own modules make of a packed file; None: it is damaged."""
    try:
        opener = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}[name[name.rindex(".") :]]
        with opener(io.BytesIO(packed), "rb") as file:
            return file.read()
    except Exception:
        return None


def read_valid(case: Case, reader: str, name: str, text: bytes, **options: Any) -> Any:
    """The file before it was damaged, read."""
    path = case.folder / name
    path.write_bytes(text)
    return getattr(jdata, reader)(path, **options)


# svmlight


def svmlight_text(case: Case) -> bytes:
    """A valid file."""
    lines = []
    for _ in range(int(case.random.integers(1, 6))):
        places = np.flatnonzero(case.random.random(9) < 0.3) + 1
        cells = [f"{c}:{case.one(('1', '-0.5', '2e3', '.25', '0', '1e-50', '+3'))}" for c in places]
        lines.append(" ".join([case.one(("1", "-1", "+1", "2.5")), *case.one(([], [], ["qid:2"])), *cells]))
    return case.one(("\n", "\r\n")).join([*lines, ""]).encode()


def svmlight_rows(text: bytes) -> tuple[list[dict[int, float]], list[float]] | None:
    """Rows as dicts and targets, by plain Python; None: the text is not svmlight of numbers."""
    rows, targets = [], []
    for line in text.split(b"\n"):
        try:
            words = line.split(b"#")[0].decode("ascii").split()
        except UnicodeDecodeError:
            return None
        if not words:
            continue
        cells = [word.partition(":") for word in words[1:]]
        if cells and cells[0][0] == "qid" and cells[0][1]:
            cells = cells[1:]
        if number(words[0]) is None or any(not re.fullmatch(r"\+?\d+|-0+", c) or number(v) is None or not s for c, s, v in cells):
            return None
        places = [int(c) for c, _, _ in cells]
        if any(a >= b for a, b in itertools.pairwise([-1, *places])) or any(c >= 2**31 - 1 for c in places):
            return None
        targets.append(float(words[0]))
        rows.append({c: float(v) for c, (_, _, v) in zip(places, cells, strict=True)})
    return rows, targets


def svmlight(case: Case) -> None:
    """`load_svmlight` with real targets."""
    text = valid = without_last_break(case, svmlight_text(case))
    clean = case.rarely(3)
    text = text if clean else mutate(case, text)
    packed, end, damaged = pack(case, text, ".svm", (".gz", ".bz2"))
    path = case.folder / f"a{end}"
    path.write_bytes(packed)
    if damaged:
        text = unpacked(packed, end)
    wanted = None if text is None else svmlight_rows(text)
    must = clean and not damaged
    case.twin = lambda: read_valid(case, "load_svmlight", "valid.svm", valid, task="regression")
    name = f"load_svmlight({text if text is None or len(text) < 200 else text[:200]!r}, {end}{', damaged' if damaged else ''})"
    (data,) = case.attempt(name, jdata.load_svmlight, path, task="regression", must=must)
    case.expect(wanted is not None, "read what is not svmlight of numbers in ASCII")
    rows, y = wanted
    first = min((c for row in rows for c in row), default=1)
    rows = [{c - (first > 0): v for c, v in row.items()} for row in rows]
    case.compare(data.x.shape == (len(rows), max((c for row in rows for c in row), default=0) + 1), f"shape {data.x.shape}")
    case.expect(np.array_equal(np.asarray(data.y), np.array(y, np.float32)), "other targets")
    plain = np.asarray(data.x.toarray()) if data.x.shape[1] < 10**4 else None
    for i, row in enumerate(rows):
        if plain is not None:
            line = np.zeros(plain.shape[1], np.float32)
            line[list(row)] = list(row.values())
            case.expect(np.array_equal(plain[i], line), f"row {i} holds other numbers")


# CSV


def csv_text(case: Case) -> tuple[bytes, str]:
    """A valid file with a header and its delimiter."""
    width, delimiter = int(case.random.integers(1, 4)), case.one((",", ",", ",", ";", "\t"))
    labels = case.one((("cat", "dog", f'"a{delimiter} b"', "7", " cat"), ("0", "1", "1", "2"), ("1.5", "2.5")))
    lines = [[case.one(CELLS) for _ in range(width)] + [case.one(labels)] for _ in range(int(case.random.integers(2, 6)))]
    head = [f"c{i}" for i in range(width)] + ["kind"]
    ends = case.one(("\n", "\r\n"))
    text = ends.join([delimiter.join(cells) for cells in [head, *lines]] + [""])
    return (("\ufeff" if case.rarely(5) else "") + text).encode(), delimiter


def valid_csv(text: bytes, delimiter: str, header: Any) -> dict[str, Any]:
    """A file and the options that read it, from a file that may hold one class only."""
    lines = csv_lines(text, delimiter)[bool(header) :]
    names = {cells[-1].strip() for cells in lines}
    if len(names) < 2:
        text = text.rstrip() + b"\n" + delimiter.join([*["1"] * (len(lines[0]) - 1), "other"]).encode()
    task = {"task": "multiclass"} if len(names) > 2 else {}
    return {"text": text, "header": header, "delimiter": delimiter, **task}


csv.field_size_limit(10**7)  # what the package refuses is not judged


def csv_lines(text: bytes, delimiter: str) -> list[list[str]] | None:
    """The cells of lines that are not blank, by the module of the standard library."""
    try:
        lines = list(csv.reader(io.StringIO(text.decode("utf-8-sig"), newline=""), delimiter=delimiter))
    except (ValueError, csv.Error):
        return None
    return [cells for cells in lines if any(cell.strip() for cell in cells)]


def csv_rows(lines: list[list[str]], header: Any, place: int) -> tuple[list[list[float]], list[str]] | None:
    """Numbers and names of labels; None: the lines are no table of numbers with labels."""
    if not lines or any(len(cells) != len(lines[0]) for cells in lines) or len(lines[0]) < 2:
        return None
    apart = [[cell for i, cell in enumerate(cells) if i != place] for cells in lines]
    if header == "auto":  # a header is a first line in which no cell of a number column is a number
        parsed = [number(cell) is not None for cell in apart[0]]
        if any(parsed) and not all(parsed):
            return None
        header = not any(parsed)
    rows = [[number(cell) for cell in cells] for cells in apart[bool(header) :]]
    names = [cells[place].strip() for cells in lines[bool(header) :]]
    if not rows or any(v is None for row in rows for v in row) or not all(names):
        return None
    return rows, names


def csv_file(case: Case) -> None:
    """`load_csv` with a header, without one, or with one that is to be found out."""
    text, delimiter = csv_text(case)
    clean = case.rarely(3)
    header = case.one((True, True, "auto", False))
    if header is False:
        lines = text.split(b"\n", 1)
        text = lines[1]
    text = valid = without_last_break(case, text)
    text = text if clean else mutate(case, text)
    if case.rarely(40):
        text = text.replace(b"1", b"1" + b"0" * 140_000, 1)
        clean = False
    packed, end, damaged = pack(case, text, ".csv", (".gz", ".bz2", ".xz"))
    path = case.folder / f"a{end}"
    path.write_bytes(packed)
    if damaged:
        text = unpacked(packed, end)
    lines = None if text is None else csv_lines(text, delimiter)
    width = len(lines[0]) if lines else 0
    label = -1
    if case.rarely(4):
        label = case.one((0, width - 1, "kind", width, -width - 1, 1.5, "zzz", None, True, b"kind", float("nan"), "", -1.0))
    by_name = isinstance(label, str) and lines and label.strip() and label in [cell.strip() for cell in lines[0]]
    place = None
    if by_name and header is not False:
        place, how = [cell.strip() for cell in lines[0]].index(label), True
    elif isinstance(label, int) and not isinstance(label, bool) and -width <= label < width:
        place, how = label % width, header
    wanted = None if lines is None or place is None else csv_rows(lines, how, place)
    shown = text if text is None or len(text) < 200 else text[:200]
    name = (
        f"load_csv({shown!r}, {end}{', damaged' if damaged else ''}, header={header!r}, label={label!r}, delimiter={delimiter!r})"
    )
    must = clean and not damaged and label == -1 and wanted is not None and len(set(wanted[1])) > 1
    task = {} if wanted is None or len(set(wanted[1])) < 3 else {"task": "multiclass"}
    case.twin = lambda: read_valid(case, "load_csv", "valid.csv", **valid_csv(valid, delimiter, header))
    found = case.attempt(name, jdata.load_csv, path, header=header, label=label, delimiter=delimiter, must=must, **task)
    case.expect(wanted is not None, "read what is no table of numbers with labels")
    rows, names = wanted
    (data,) = found
    case.compare(np.array_equal(np.asarray(data.x), np.array(rows, np.float32)), "other numbers")
    y = np.asarray(data.y)
    place = (y + 1) / 2 if len(found.classes) == 2 and not task else y
    got = [found.classes[int(k)] for k in place]
    same = all(str(a) == b or (number(b) is not None and float(a) == float(b)) for a, b in zip(got, names, strict=True))
    case.expect(same, f"labels are {got}, expected {names}")


# npz


MEMBERS = ("x", "X", "y", "weight", "x_train", "y_train", "x_test", "y_test", "class_names")
STORED = ("x_data", "x_indices", "x_indptr", "x_shape", "y")
ROWS = np.arange(12, dtype=np.float32).reshape(6, 2)
NAMES = np.array(["b", "a"] * 3)


def odd_arrays() -> list[np.ndarray]:
    """What may stand in a file where rows, labels or weights are expected."""
    return [
        ROWS, NAMES, np.arange(6), np.ones(6), np.float64(1), np.ones((0, 2)), np.zeros(6), np.ones((6, 2, 1)),
        np.full((6, 2), np.nan), np.array(["1", "2"] * 3), np.array([1, -1] * 3), np.array([1 + 1j] * 6), np.zeros(6, "M8[s]"),
        np.array([6, 2]), np.full(6, -1.0), np.zeros(2, [("a", "f4")]), np.array([b"a", b"b"] * 3), np.array([0, 2, 4, 6, 8,
        10, 12]),
        np.tile([0, 1], 6), np.arange(12.0), np.tile([0, 5], 6), np.array([-6, 2]), np.array([6.5, 2]), ROWS.astype(">f8"),
        np.asfortranarray(ROWS), np.array(["a", "b"]), np.array([2**40, 2]), np.array([0, 6, 4, 6, 8, 10, 12]), np.array([6,
        2, 2]),
    ]  # fmt: skip


def npz(case: Case) -> None:
    """`load_npz` of arrays that do not fit each other, or of arrays of Python objects."""
    if case.random.integers(2):
        arrays = {"x": ROWS, "y": NAMES}
        for _ in range(int(case.random.integers(1, 3))):
            arrays[case.one(MEMBERS)] = case.one(odd_arrays())
    else:
        arrays = {
            "x_data": np.ones(12),
            "x_indices": np.tile([0, 1], 6),
            "x_indptr": np.arange(0, 13, 2),
            "x_shape": np.array([6, 2]),
        }
        arrays["y"] = NAMES
        for _ in range(int(case.random.integers(0, 3))):
            arrays[case.one(STORED)] = case.one(odd_arrays())
    if case.rarely(10):
        arrays[case.one(list(arrays))] = np.array([[1, None]], object)
    path = case.folder / "a.npz"
    np.savez(path, **arrays)
    task, positive = (
        case.one((None, "binary", "multiclass", "regression")),
        case.one((None, None, None, "a", 1, "zzz", ["a", "b"])),
    )
    classes = case.one((None, None, None, None, ("a", "b"), ("b", "a"), ("a",), (), "ab", 3, (1, 2), ("a", "b", "c")))
    shapes = {k: f"{a.dtype}{list(a.shape)}" for k, a in arrays.items()}
    text = f"load_npz({shapes}, task={task!r}, positive={show(positive)}, classes={show(classes)})"

    def twin():
        np.savez(case.folder / "valid.npz", x=ROWS, y=np.arange(6.0) if task == "regression" else NAMES)
        names = {} if task == "regression" else {"positive": positive and "a", "classes": None if classes is None else ("b", "a")}
        jdata.load_npz(case.folder / "valid.npz", task=task, **names if task != "multiclass" else {"classes": ("a", "b")})

    case.twin = twin
    found = case.attempt(text, jdata.load_npz, path, task=task, positive=positive, classes=classes)
    case.expect(len(found) >= 1, "an empty tuple of data sets")
    for part in found:
        x = part.x.toarray() if hasattr(part.x, "toarray") else part.x
        case.expect(all(np.isfinite(np.asarray(a, np.float64)).all() for a in (x, part.y, part.weight)), "numbers are not finite")
        case.expect(part.y.shape == part.weight.shape == x.shape[:1], "rows, labels and weights differ in number")
    if "x_data" in arrays and len(found) == 1 and not {"x", "X"} & set(arrays):
        parts = [arrays[name] for name in ("x_data", "x_indices", "x_indptr")]
        try:
            shape = arrays["x_shape"].tolist()  # whole numbers of any type
            plain = scipy.sparse.csr_matrix(tuple(parts), [int(v) if int(v) == v else v for v in shape]).toarray()
        except (ValueError, TypeError, IndexError):
            case.expect(False, "read a sparse matrix that SciPy does not take")
        case.compare(np.array_equal(np.asarray(found[0].x.toarray()), plain.astype(np.float32)), "other sparse rows")
    sole = {"x", "X", "x_train", "x_test", "x_data"} & set(arrays)
    if len(sole) == 1 and len(found) == 1 and "x_data" not in sole:
        (name,) = sole
        case.compare(
            np.array_equal(np.asarray(found[0].x), arrays[name].astype(np.float32)), "x does not hold the rows of the file"
        )
        end = name[1:]
        y = arrays.get("y" + end)
        case.expect(y is not None and y.shape == arrays[name].shape[:1], "labels that do not fit the rows were taken")
        weight = arrays.get("weight" + end)
        if weight is not None:
            case.expect(np.array_equal(np.asarray(found[0].weight), weight.astype(np.float32)), "other weights")
        if found.classes and "class_names" not in arrays and positive is None:
            k = np.asarray(found[0].y)
            k = (k + 1) / 2 if len(found.classes) == 2 and task != "multiclass" else k
            live = np.ones(len(y), bool) if weight is None else weight > 0
            got = [str(found.classes[int(i)]) for i in k[live]]
            names = [f"{v:g}" if isinstance(v, float) else str(v) for v in y[live].tolist()]
            case.expect(got == names, f"labels are {got}, expected {names}")


def paths(case: Case) -> None:
    """Readers of things that are no paths of readable files."""
    (case.folder / "folder").mkdir()
    (case.folder / "empty.csv").write_bytes(b"")
    (case.folder / "blank.csv").write_bytes(b"\n \n\t\n")
    (case.folder / "other.dat").write_bytes(case.random.bytes(60))
    things = [None, 3, 1.5, True, b"none", "", ".", "none.csv", "folder", "empty.csv", "blank.csv", "other.dat", ["a.npy"],
    ("a.npy",),
              ("a", "b", "c", "d"), (), [], {}, object(), np.ones(3), "a\x00b", "x" * 5000, "none.gz", "none.npz",
              "/dev/full/x", -1,
              b"\xff", ("empty.csv", "empty.csv"), "~"]  # fmt: skip
    thing = case.one(things)
    if isinstance(thing, str) and thing and len(thing) < 20 and "\x00" not in thing:
        thing = case.one((str, lambda p: p))(case.folder / thing)
    name = case.one(("load_svmlight", "load_csv", "load_npz", "load_file", "memory_map"))
    text = f"{name}({show(thing).replace(str(case.folder), '')})"

    def twin():
        valid = case.folder / f"valid{dict(load_svmlight='.svm', load_csv='.csv').get(name, '.npz')}"
        if valid.suffix == ".npz":
            np.savez(valid, x=ROWS, y=NAMES)
        else:
            valid.write_text("1 1:2\n-1 1:3" if valid.suffix == ".svm" else "a,kind\n1,x\n2,y")
        getattr(jdata, name)(valid)

    case.twin = twin
    case.attempt(text, getattr(jdata, name), thing)
    case.expect(False, "read what is no file")


def run(case: Case) -> None:
    """One case of the part."""
    case.one((svmlight, svmlight, csv_file, csv_file, csv_file, npz, npz, paths))(case)
