"""Parts `fuzzed ...`: small files of models with a few random changes.

Right: what was saved, or the decision values of the format, or a refusal in a sentence, within 5 seconds and 1 GB.
"""

from __future__ import annotations

import math
import pathlib
import re
import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from jaxsvm import models

from . import files
from .cases import FLOAT32, Case, Wrong
from .oracles import Kernel

SECONDS, BYTES = 5, 2**30
PROBE = np.random.default_rng(1).normal(size=(4, 3))
PIECES = [
    b"nan", b"inf", b"-inf", b"Infinity", b"1e39", b"1e999", b"-1:1", b"0:1", b"3000000000:1", b"2147483645:1", b"qid:4", b"\r\n",
    b"\n\n", b"# note", b"\xef\xbb\xbf", "\u0661".encode(), b"1_0", b"0x1", b'"', b'"1"', b"1,2", b"5:5:5", b" :1", b" 7: 1",
    b"\x1a", b"\r", b"'", b"\x00", b"\xff", b"NA", b"?", b"NULL", b"1;2", b"1 2", b"1,", b",", b",,", b"1e", b"--1", b"+-1",
    b"1j",
    b"True", b"\xc2\xa0", b"\t", b"1.2.3", b"9" * 400, b"1:1 1:2", b"2:1 1:1", "\uff11".encode(), b"1d3", b"1f", b"$1", b"1%",
]  # fmt: skip


def bounded(run: Callable[[Case], None]) -> Callable[[Case], None]:
    """The case with a bound on its time and on the memory that it takes."""

    def go(case: Case) -> None:
        pathlib.Path("/proc/self/clear_refs").write_text("5")  # the peak is that of now
        before, began = peak(), time.process_time()
        try:
            run(case)
        finally:
            seconds, size = time.process_time() - began, peak() - before
            if seconds > SECONDS or size > BYTES:
                raise Wrong(f"reading a small file took {seconds:.1f} s and {size / 2**20:.0f} MiB")

    return go


def peak() -> int:
    """The most memory that the process held, in bytes."""
    status = pathlib.Path("/proc/self/status").read_text()
    return 1024 * int(re.search(r"VmHWM:\s*(\d+)", status).group(1))


# Models of LIBSVM and LIBLINEAR

LIBSVM = [
    "svm_type c_svc\nkernel_type rbf\ngamma 0.5\nnr_class 2\ntotal_sv 3\nrho 0.25\nlabel 1 -1\nnr_sv 2 1\nSV\n"
    "0.5 1:1 2:-0.5 3:2\n1 1:0.5 3:-1\n-1.5 2:1.25 3:1\n",
    "svm_type c_svc\nkernel_type linear\nnr_class 2\ntotal_sv 2\nrho -0.5\nlabel 3 7\nprobA -1.5\nprobB 0.1\nnr_sv 1 1\nSV\n"
    "0.5 1:1 2:-0.5\n-0.5 2:1.25 3:1\n",
    "svm_type epsilon_svr\nkernel_type polynomial\ndegree 2\ngamma 0.5\ncoef0 1\nnr_class 2\ntotal_sv 2\nrho 1.5\nSV\n"
    "2 1:1 3:1\n-1 2:0.5\n",
    "svm_type one_class\nkernel_type rbf\ngamma 0.125\nnr_class 2\ntotal_sv 2\nrho 0.75\nSV\n0.5 1:1 2:1\n1 3:-1\n",
]
LIBLINEAR = [
    "solver_type L2R_L1LOSS_SVC_DUAL\nnr_class 2\nlabel 1 -1\nnr_feature 3\nbias 1\nw\n0.5\n-1.25\n2\n0.125\n",
    "solver_type L2R_LR\nnr_class 2\nlabel 2 1\nnr_feature 3\nbias -1\nw\n0.5\n-1.25\n2\n",
    "solver_type L2R_L2LOSS_SVR\nnr_class 2\nnr_feature 3\nbias 2\nw\n0.5\n-1.25\n2\n0.125\n",
]


def plain_number(word: str) -> float:
    """A number as Python reads it, finite in float32.

    Raises:
        ValueError: it is none.
    """
    if "_" in word or not word.isascii():
        raise ValueError(word)
    value = float(word)
    if not abs(value) <= FLOAT32.max:
        raise ValueError(word)
    return value


def split(text: bytes, last: str) -> tuple[dict[str, list[str]], list[list[str]]]:
    """The header and the words of the lines behind it."""
    lines = [words for line in text.splitlines() if (words := line.decode("latin-1").split())]
    place = next(i for i, words in enumerate(lines) if words[0] == last)
    return {words[0]: words[1:] for words in lines[:place]}, lines[place + 1 :]


def libsvm_values(text: bytes) -> np.ndarray:
    """The decision values of `PROBE`, after the format of `svm-predict`.

    Raises:
        ValueError, KeyError, StopIteration, IndexError: the text is no model.
    """
    header, lines = split(text, "SV")
    kind = header["kernel_type"][0]
    name = {"linear": "linear", "rbf": "rbf", "polynomial": "polynomial"}[kind]
    cells = [[word.split(":") for word in words[1:]] for words in lines]
    indices = [[int(c) for c, _ in row] for row in cells]
    width = max([3, *(c for row in indices for c in row)])
    if width > 10**6 or len(lines) != int(header["total_sv"][0]):
        raise ValueError("sizes")
    points = np.zeros((len(lines), width))
    for i, row in enumerate(cells):
        if any(a >= b for a, b in zip([0, *indices[i]], indices[i], strict=False)):
            raise ValueError("order")
        points[i, np.array(indices[i], int) - 1] = [plain_number(v) for _, v in row]
    rows = np.c_[PROBE, np.zeros((len(PROBE), width - 3))]
    gamma, coef0 = (plain_number(header.get(key, ["0"])[0]) for key in ("gamma", "coef0"))
    if name == "polynomial":
        block = (gamma * rows @ points.T + coef0) ** int(header["degree"][0])
    else:
        block = Kernel(name, gamma).block(rows, points)
    return block @ [plain_number(words[0]) for words in lines] - plain_number(header["rho"][0])


def liblinear_values(text: bytes) -> np.ndarray:
    """The decision values of `PROBE`, after the format of `predict`.

    Raises:
        ValueError, KeyError, StopIteration, IndexError: the text is no model.
    """
    header, lines = split(text, "w")
    width, bias = int(header["nr_feature"][0]), plain_number(header["bias"][0])
    weights = np.array([plain_number(word) for (word,) in lines])
    if len(weights) != width + (bias >= 0) or width > 10**6:
        raise ValueError("sizes")
    rows = np.c_[PROBE, np.zeros((len(PROBE), max(width - 3, 0)))][:, :width]
    return rows @ weights[:width] + (bias * weights[width] if bias >= 0 else 0)


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


def model_text(texts: list[str], values_of: Callable[[bytes], np.ndarray]) -> Callable[[Case], None]:
    """`models.from_libsvm` of a changed text."""

    def run(case: Case) -> None:
        valid = case.one(texts).encode()
        text = valid if case.rarely(10) else mutate(case, valid)
        path, sound = case.folder / "a.model", case.folder / "valid.model"
        path.write_bytes(text)
        sound.write_bytes(valid)
        case.twin = lambda: models.from_libsvm(sound)
        found = case.attempt(f"from_libsvm({text!r})", models.from_libsvm, path, must=text == valid)
        try:
            with np.errstate(all="ignore"):
                wanted = values_of(text)
        except (ValueError, KeyError, StopIteration, IndexError, UnicodeDecodeError, OverflowError) as error:
            raise Wrong(f"read what is no model: {type(error).__name__}: {error}") from error
        inner = getattr(found, "inner", found)
        width = inner.x.shape[-1] if hasattr(inner, "x") else inner.w.shape[-1]
        rows = np.c_[PROBE, np.zeros((len(PROBE), max(width - 3, 0)))][:, :width].astype("f4")
        if width < 3 and not np.array_equal(wanted, wanted):
            return
        have = np.asarray(jax.device_get(inner(rows)), np.float64)
        size = scale(found, wanted)
        if not math.isfinite(size) or size > 1e30 or width < 3:
            return  # float32 does not hold the sums, or the model has fewer columns than the probe
        case.compare(np.abs(have - wanted).max() <= 2e-4 * size, f"decision values {have}, expected {wanted}")

    return run


def scale(found: Any, wanted: np.ndarray) -> float:
    """The size of the terms of decision values."""
    parts = [np.abs(np.asarray(leaf, np.float64)).max(initial=0) for leaf in jax.tree.leaves(found)]
    return float(max(1.0, np.abs(wanted).max(), *parts) ** 2)


damaged = bounded(files.damaged)
libsvm = bounded(model_text(LIBSVM, libsvm_values))
liblinear = bounded(model_text(LIBLINEAR, liblinear_values))
