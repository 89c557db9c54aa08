"""A case, its verdict, and the hostile values that several parts share."""

from __future__ import annotations

import decimal
import fractions
import functools
import pathlib
import re
import tempfile
import traceback
import warnings
import zlib
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np

import jaxsvm

PACKAGE = str(pathlib.Path(jaxsvm.__file__).parent)
REFUSALS = (ValueError, TypeError, OSError, ImportError)
FLOAT32 = np.finfo(np.float32)


class Refused(Exception):
    """The package said no in a sentence."""


class Foreign(Exception):
    """An exception that the package did not raise in words of its own."""


class Wrong(Exception):
    """An answer that is not that of the oracle."""


class Different(Exception):
    """A damaged file was loaded as something else than was saved."""


class Verdict(NamedTuple):
    """What became of a case."""

    part: str
    seed: int
    verdict: str
    call: str
    message: str


class Case:
    """The input of one case, made from its part and seed, and what the package said about it."""

    def __init__(self, part: str, seed: int, folder: pathlib.Path):
        self.part, self.seed, self.folder = part, seed, folder
        self.random = np.random.default_rng([zlib.crc32(part.encode()), seed])
        self.text, self.warnings = "", []
        self.refusers: tuple[str, ...] = (PACKAGE,)  # folders whose exceptions may be refusals
        self.judged = False  # whether an independent answer was compared with that of the package
        self.twin: Callable[[], Any] | None = None  # the same call with the hostile piece mended

    def block(self, size: int) -> Case:
        """A case that so many neighbouring seeds share: what it draws decides which program is compiled."""
        return Case(f"{self.part}, {size} at a time", self.seed // size, self.folder)

    def one(self, choices: Any) -> Any:
        """One of some choices."""
        return choices[int(self.random.integers(len(choices)))]

    def rarely(self, one_in: int = 10) -> bool:
        """True in one of so many cases."""
        return bool(self.random.integers(one_in) == 0)

    def attempt(self, text: str, fn: Callable, *args: Any, must: bool = False, **kwargs: Any) -> Any:
        """What a call of the package returns.

        What is refused must be taken once its hostile piece is mended: `twin`, set before, is then called.

        Args:
            text: the call, for the report.
            fn: the function.
            *args: of the function.
            must: whether the documentation promises that this input is taken.
            **kwargs: of the function.

        Raises:
            Refused: the package refused the input, in a sentence.
            Foreign: any other exception.
            Wrong: a refusal of what must be taken, of this input or of its twin.
        """
        self.text = text
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                return fn(*args, **kwargs)
            except Exception as error:
                fault = refusal_fault(error, self.refusers)
                if fault:
                    raise Foreign(f"{fault}: {show_error(error)}") from error
                if must:
                    raise Wrong(f"refused what the documentation promises to take: {error}") from error
                self.check_twin(error)
                raise Refused(str(error)) from error
            finally:
                self.warnings += [str(w.message) for w in caught if issubclass(w.category, UserWarning)]

    def check_twin(self, refusal: Exception) -> None:
        """Judge a refusal as wrong where the valid twin of the call is refused, too."""
        if self.twin is None:
            raise RuntimeError(f"no valid twin of a call that was refused: {refusal}")
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self.twin()
        except Exception as error:
            raise Wrong(f"refused ({refusal}), and its valid twin too: {show_error(error)}") from error

    def expect(self, right: Any, message: str) -> None:
        """Judge the answer as wrong where `right` is not true: what any answer must be."""
        if not right:
            raise Wrong(message)

    def compare(self, right: Any, message: str) -> None:
        """As `expect`, where `right` compares the answer with an independent one: the case is judged."""
        self.judged = True
        self.expect(right, message)


def refusal_fault(error: BaseException, refusers: tuple[str, ...] = (PACKAGE,)) -> str | None:
    """Why an exception is no refusal of the package; None: it is one."""
    if not isinstance(error, REFUSALS):
        return f"a {type(error).__name__}"
    frame = traceback.extract_tb(error.__traceback__)[-1]
    if not frame.filename.startswith(refusers):
        return f"raised in {place_of(frame)}"
    if isinstance(error, OSError) and error.errno is not None:
        return None  # the words of the operating system
    if not frame.filename.startswith(PACKAGE):
        return None  # those of scikit-learn, which its tests ask for
    message = str(error)
    if len(message) < 15 or " " not in message or "\n\n" in message.strip() or len(message) > 1500:
        return "its message is not one sentence"
    return None


def place_of(frame: traceback.FrameSummary) -> str:
    """File and line of a frame, without the folder that packages are in."""
    return f"{re.sub(r'^.*(site-packages|lib/python[^/]*)/', '', frame.filename)}:{frame.lineno}"


def show_error(error: BaseException) -> str:
    """An exception in one line, and the last line of the package that took part."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename.startswith(PACKAGE)]
    where = f" (from jaxsvm{frames[-1].filename.removeprefix(PACKAGE)}:{frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}{where}"


def judge(part: str, seed: int, run: Callable[[Case], None], folder: pathlib.Path | None = None) -> Verdict:
    """Run a case and say what became of it."""
    with tempfile.TemporaryDirectory(dir=folder) as name:
        case = Case(part, seed, pathlib.Path(name))
        try:
            run(case)
            kind, message = ("warned", case.warnings[-1]) if case.warnings else ("right", "")
            kind = kind if case.judged else "unjudged"
        except Refused as error:
            kind, message = "refused", str(error)
        except Wrong as error:
            kind, message = "WRONG", str(error)
        except Different as error:
            kind, message = "DIFFERENT", str(error)
        except Foreign as error:
            kind, message = "FOREIGN", str(error)
        except Exception as error:
            frame = traceback.extract_tb(error.__traceback__)[-1]
            kind, message = "BROKEN", f"{type(error).__name__}: {error} ({place_of(frame)})"
    return Verdict(part, seed, kind, case.text[:500], " ".join(message.split())[:500])


# Values that several parts hand to the package


class ArrayLike:
    """An object that NumPy can make an array of, as tables of other packages are."""

    def __init__(self, values: Any):
        self.values = values

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        return np.array(self.values, dtype)

    def __repr__(self) -> str:
        return f"ArrayLike({self.values!r})"


def real(thing: Any) -> float | None:
    """The value of a single real number of any type; None: it is something else."""
    if hasattr(thing, "dtype") and hasattr(thing, "shape"):
        if thing.shape != ():
            return None
        return float(thing) if jax.numpy.issubdtype(thing.dtype, np.bool_) or is_real(thing.dtype) else None
    if isinstance(thing, bool | int | float | fractions.Fraction | decimal.Decimal):
        try:
            return float(thing)
        except OverflowError:
            return float("inf")
    return None


def is_real(dtype: Any) -> bool:
    """Whether a dtype holds real numbers."""
    return jax.numpy.issubdtype(dtype, np.integer) or jax.numpy.issubdtype(dtype, np.floating)


@functools.cache
def hostile_numbers() -> list[Any]:
    """What may come where one number is expected."""
    return [
        0, -1, 1, 3, 0.0, -0.0, -1e-3, 1e-30, 1e-300, 1e30, 1e300, 10**400, -(10**400), 2**31, 2**63, 0.1, 0.5, 2.5, 1e-3,
        float("nan"), float("inf"), -float("inf"), True, False, None, "0.1", "abc", "", b"0.1", b"1", bytearray(b"0.1"),
        np.float64(0.1), np.float32(0.1), np.float16(0.5), np.int64(1), np.int8(-1), np.uint8(3), np.bool_(True),
        np.array(0.1), np.array([0.1]), np.array([0.1, 0.2]), np.zeros(0), np.array("0.1"), np.array(None), np.str_("0.1"),
        np.float64("nan"), np.datetime64("2020-01-01"), np.longdouble(0.5), np.complex64(1), 1 + 0j, 1j,
        fractions.Fraction(1, 10), fractions.Fraction(-1, 3), decimal.Decimal("0.1"), decimal.Decimal("nan"),
        [], [0.1], [0.1, 0.2], (0.1,), {}, {"lam": 0.1}, {1}, range(3), object(), int, float, lambda x: x, np.sin, ...,
        jax.numpy.float32(0.1), jax.numpy.array([0.1, 0.2]), jax.numpy.int32(2), jax.numpy.array(float("nan")),
        jax.random.key(0), jaxsvm.pegasos, jaxsvm.kernels.rbf, jaxsvm.kernels.rbf(1.0), jaxsvm.losses.hinge, Ellipsis, slice(3),
    ]  # fmt: skip


@functools.cache
def hostile_choices() -> list[Any]:
    """What may come where a word or a truth value is expected."""
    words = ["", "none", "NONE", "free ", "feature", "free", "auto", "kkt", "gap", "exact", "x", b"free", np.str_("free")]
    return [*words, None, True, False, 0, 1, 2, -1, 0.5, float("nan"), np.bool_(False), ["free"], ("free",), {}, object(), len]


def show(thing: Any) -> str:
    """A value in a few characters."""
    if isinstance(thing, int) and abs(thing) > 10**40:
        return f"about 10**{len(str(abs(thing))) - 1}"
    if isinstance(thing, np.ndarray | jax.Array) and thing.size > 8:
        return f"{thing.dtype}{list(thing.shape)}"
    return " ".join(repr(thing).split())[:120]


def show_call(name: str, *args: Any, **kwargs: Any) -> str:
    """A call in a few characters."""
    parts = [show(a) for a in args] + [f"{k}={show(v)}" for k, v in kwargs.items()]
    return f"{name}({', '.join(parts)})"


def same_leaves(have: Any, want: Any) -> bool:
    """Whether two pytrees are equal to the bit, structure and dtypes included."""
    if jax.tree.structure(have) != jax.tree.structure(want):
        return False
    for a, b in zip(jax.tree.leaves(have), jax.tree.leaves(want), strict=True):
        if hasattr(b, "dtype") and jax.numpy.issubdtype(b.dtype, jax.dtypes.prng_key):
            if not hasattr(a, "dtype") or a.dtype != b.dtype:
                return False
            a, b = jax.random.key_data(a), jax.random.key_data(b)
        a, b = np.asarray(a), np.asarray(b)
        if a.dtype != b.dtype or a.shape != b.shape:
            return False
        if a.dtype == np.longdouble and a.dtype.itemsize > 8:  # some of its bytes are no part of the number
            equal = np.array_equal(a, b, equal_nan=True) and np.array_equal(np.signbit(a), np.signbit(b))
        else:
            equal = a.tobytes() == b.tobytes()
        if not equal:
            return False
    return True
