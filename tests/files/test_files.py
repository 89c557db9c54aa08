"""Files of models and runs: refused in a sentence, never unpickled, replaced whole or not."""

import collections
import dataclasses
import io
import json
import os
import pathlib
import pickle
import re
import tempfile
import zipfile

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import jaxsvm
from jaxsvm import kernels
from jaxsvm.models import Classifier, Expansion, Linear, load, save, serialization
from jaxsvm.types import RunState

ONE = Linear(jnp.ones(2), jnp.zeros(()))
THIRTY = jnp.eye(30, 3), jnp.arange(30.0), jnp.ones(()), jnp.arange(30)
WHOLE = {
    "model": Expansion(kernels.rbf(0.5), *THIRTY, "free"),
    "key": jax.random.key(7),
    "bf16": jnp.arange(11.0, dtype=jnp.bfloat16),
    "rest": [1, 0.25, "word", None, True],
}


def bits(tree):
    is_key = lambda a: isinstance(a, jax.Array) and jnp.issubdtype(a.dtype, jax.dtypes.prng_key)
    words = lambda a: np.asarray(jax.random.key_data(a) if is_key(a) else a)
    arrays = [words(a) for a in jax.tree.leaves(tree)]
    return jax.tree.structure(tree), [(a.dtype, a.shape, a.tobytes()) for a in arrays]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "tree.npz"


@pytest.fixture(scope="module")
def intact(tmp_path_factory):
    path = tmp_path_factory.mktemp("files") / "whole.npz"
    save(path, WHOLE)
    return path.read_bytes()


# What is damaged or foreign


SPRUNG = []


class Trap:
    """Leaves a mark where it is unpickled."""

    __reduce__ = lambda self: (spring, ())


def spring():
    SPRUNG.append(1)


def saved(*args, write=np.save, **how):
    stream = io.BytesIO()
    write(stream, *args, **how)
    return stream.getvalue()


def npz(header, **arrays):
    """The bytes of a file with this header, as text or as what JSON makes of it."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return saved(write=np.savez, header=np.frombuffer(text, np.uint8), **arrays)


def header(tree, **changes):
    return {"format": 1, "jaxsvm": "0.1.2", "tree": tree} | changes


def changed(old, new):
    """Other bytes in the place of those that are there, of the same number."""
    assert len(old) == len(new)
    return lambda content: content.replace(old, new)


def in_directory(offset, value):
    """Another byte in the first entry of the zip's directory."""

    place = lambda content: content.index(b"PK\1\2") + offset
    return lambda c: c[: place(c)] + bytes([value]) + c[place(c) + 1 :]


TRAP, LARGE = np.array([Trap()], object), np.zeros(30_000, np.float32)
ARRAY = header({"array": 0, "dtype": "float32"})
BAD = {
    "empty": lambda _: b"",
    "half": lambda content: content[: len(content) // 2],
    "no start": lambda content: content[100:],
    "shape made smaller": changed(b"'shape': (30,)", b"'shape': (10,)"),
    # read in part, so that nobody would come to the checksum
    "large shape made smaller": lambda _: npz(ARRAY, a0=LARGE).replace(b"(30000,)", b"(10000,)"),
    "shape of another number": changed(b"(30, 3)", b"(30,93)"),
    "objects": changed(b"'<f4'", b"'<O4'"),
    "encrypted": in_directory(8, 1),
    "compressed otherwise": in_directory(10, 99),
    "for a newer reader": in_directory(6, 90),
    "text": lambda _: b"w,b\n1,2\n",
    "pickle": lambda _: pickle.dumps(Trap()),
    "array": lambda _: saved(np.ones(3)),
    "array of pickles": lambda _: saved(TRAP, allow_pickle=True),
    "npz without a header": lambda content: npz({}).replace(b"header", b"holder"),
    "npz with a pickle": lambda _: npz(ARRAY, a0=TRAP),
    "no JSON": lambda _: npz(b"\xff\xfe"),
    "a list": lambda _: npz([]),
    "no format": lambda _: npz({"jaxsvm": "0.5.0"}),
    "no tree": lambda _: npz({"jaxsvm": "0.5.0", "format": 1}),
    "no entry": lambda _: npz(header({"tuple": 5})),
    "an unknown entry": lambda _: npz(header({"unknown": 5})),
    "an array that is not there": lambda _: npz(header({"array": 5, "dtype": "float32"})),
    "a dtype that is none": lambda _: npz(header({"array": 0, "dtype": "float9"}), a0=np.ones(3)),
    "a key of no kind": lambda _: npz(header({"key": 0, "impl": "no"}), a0=np.ones(2, np.uint32)),
    "too deep": lambda _: npz(b'{"jaxsvm": "", "format": 1, "tree": ' + b'{"list": [' * 9000),
}


@pytest.mark.parametrize("kind", BAD)
def test_a_damaged_or_foreign_file_is_one_sentence(kind, intact, path):
    content = BAD[kind](intact)
    assert content != intact
    path.write_bytes(content)
    sentence = f"{path} is damaged or was not written by jaxsvm.models.save: take another copy of "
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}it, or begin anew$"):
        load(path)
    assert SPRUNG == []


def whole_or_refused(content):
    """A tree of the same bits, or ValueError with the name of the file."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "tree.npz"
        path.write_bytes(content)
        try:
            assert bits(load(path)) == bits(WHOLE)
        except ValueError as error:
            assert type(error) is ValueError and f"{path} is damaged" in str(error)


@settings(max_examples=60, derandomize=True, deadline=None)
@given(data=st.data())
@pytest.mark.parametrize("where", ["anywhere", "not in numbers"])
def test_flipped_bytes(where, intact, data):
    """Of the zip's own records and the headers of its arrays, too, which no checksum of theirs
    reaches."""
    places = range(len(intact))
    if where == "not in numbers":
        with zipfile.ZipFile(io.BytesIO(intact)) as file:
            starts = [info.header_offset for info in file.infolist()]
            places = [*range(file.start_dir, len(intact))]
        places += [place for start in starts for place in range(start, start + 180)]
    content = bytearray(intact)
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.sampled_from(places))] ^= data.draw(st.integers(1, 255))
    whole_or_refused(bytes(content))


def test_truncated_files_and_bytes_around_whole_ones(intact):
    ends = np.linspace(0, len(intact) - 1, 20).astype(int)
    for content in (*(intact[:end] for end in ends), intact + b"\0" * 40, b"\0" * 40 + intact):
        whole_or_refused(content)


# What is whole, and refused


Older = collections.namedtuple("Older", "w")  # a state before its class changed
Grown = collections.namedtuple("Grown", "w more", defaults=[None])  # with what older files lack
Needy = collections.namedtuple("Needy", "w more")  # with a field that has to be there


def own(*args, **kwargs):
    pytest.fail("a function that a file names was called")


class Bare:
    """A class without fields, which files do not hold."""

    __init__ = own


def unknown(name):
    return f"'{name}', which is not registered: import or register it first"


def named(name, **fields):
    return header({"named": name, "fields": fields})


def function(name):
    return header({"function": name}), unknown(name)


NOT_MADE = "makes a 'tests.own', which is not registered as a "
NOT_A_CLASS = "makes a 'tests.Bare', which is not registered as a class"
NOT_TAKEN = "that this version of jaxsvm does not take .*"
REFUSED = {
    "format": (header({"value": 1}, format=2), "has format 2, expected 1: load it"),
    "class": (named("tests.no"), unknown("tests.no")),
    "of 0.3": function("kernels.rbf.rbf"),
    "system": function("os.system"),
    "module": (named("optax.contrib"), unknown("optax.contrib")),
    "made": (named("tests.own"), NOT_MADE),
    "bare": (named("tests.Bare"), NOT_A_CLASS),
    "field": (named("Linear", v={"value": 1}), f"holds a 'Linear' {NOT_TAKEN}: load it with the"),
    "argument": (
        named("kernels.rbf", sigma={"value": -1.0}),
        f"holds a 'kernels.rbf' {NOT_TAKEN}sigma must be",
    ),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_is_not_known_is_told_with_the_version_that_wrote_it(kind, path, registry):
    jaxsvm.register("tests.own", own)
    jaxsvm.register("tests.Bare", Bare)
    content, message = REFUSED[kind]
    path.write_bytes(npz(content))
    start, end = re.escape(f"{path} "), re.escape(" (jaxsvm '0.1.2' wrote this file)")
    with pytest.raises(ValueError, match=f"^{start}.*{message}.*{end}$"):
        load(path)


def test_classes_and_functions_of_ones_own(path, registry, monkeypatch):
    """By the name of their registration, also where fields with defaults came, or the name went."""
    jaxsvm.register("tests.Older", Older)
    kernels.register("tests.own", own)
    save(path, [Older(jnp.ones(2)), own])
    found, function = load(path)
    assert bits(found) == bits(Older(jnp.ones(2))) and function is own
    registry["tests.Older"] = Grown
    assert bits(load(path)[0]) == bits(Grown(jnp.ones(2)))
    registry["tests.Older"] = Needy
    with pytest.raises(ValueError, match="'tests.Older' that this version of jaxsvm does not take"):
        load(path)
    del registry["tests.Older"]
    with pytest.raises(ValueError, match=unknown("tests.Older")):
        load(path)
    monkeypatch.setitem(serialization._RENAMED, "tests.Older", "tests.Grown")
    jaxsvm.register("tests.Grown", Grown)
    assert bits(load(path)[0]) == bits(Grown(jnp.ones(2)))


def test_every_new_name_of_the_renamed_is_registered():
    for old, new in serialization._RENAMED.items():
        assert serialization._find(old) is serialization._find(new)


@pytest.mark.parametrize("dtype", ["float64", "int64", "uint64", "complex128"])
def test_64_bit_numbers_are_not_narrowed(dtype, path):
    with jax.enable_x64(True):
        tree = jnp.asarray([1, 2**20 + 1], dtype)
        save(path, tree)
        assert bits(load(path)) == bits(tree)
    with pytest.raises(ValueError, match=r"64-bit numbers: switch them on first, jax\.config"):
        load(path)


@pytest.mark.parametrize(
    ("name", "stored"), [("float32", ">f4"), ("int16", ">i2"), ("bfloat16", ">u2")]
)
def test_arrays_of_a_machine_of_the_other_byte_order(name, stored, path):
    wanted = jnp.arange(3).astype(name)
    array = np.asarray(wanted).view(stored[1:]).astype(stored)
    path.write_bytes(npz(header({"array": 0, "dtype": name}), a0=array))
    assert bits(load(path)) == bits(wanted)


@pytest.mark.parametrize("field", ["w", "b"])
def test_a_model_that_is_not_finite_is_not_loaded(field, path):
    bad = dataclasses.replace(ONE, **{field: jnp.nan * getattr(ONE, field)})
    for model in (bad, Classifier(bad, ("no", "yes"))):
        save(path, model)
        with pytest.raises(ValueError, match=f"^{re.escape(str(path))}: .*its training diverged"):
            load(path)
    # a state may hold them: inf for no bound yet
    save(path, RunState(bad, jnp.array([jnp.inf]), jnp.int32(0), jnp.array(False)))
    assert np.isinf(load(path).sampler).all()


# What the file system refuses is not damage


def test_errors_of_the_file_system_pass(path, monkeypatch):
    os.mkfifo(path)
    for wrong, error, words in (
        (path.parent / "no.npz", FileNotFoundError, re.escape(str(path.parent / "no.npz"))),
        (path.parent, IsADirectoryError, "is a folder, expected a file"),
        (path, OSError, "tree.npz is a pipe, a device or a socket, expected a file"),
    ):
        with pytest.raises(error, match=words):
            load(wrong)
    path.unlink()
    save(path, ONE)
    for error in (PermissionError(13, "denied"), OSError(5, "Input/output error"), MemoryError()):
        with monkeypatch.context() as patch:
            patch.setattr(zipfile, "ZipFile", lambda *_, error=error, **how: raised(error))
            with pytest.raises(type(error)) as caught:
                load(path)
        assert caught.value is error and getattr(error, "filename", str(path)) == str(path)
    path.chmod(0)
    if not os.access(path, os.R_OK):  # else this user may read any file
        with pytest.raises(PermissionError, match=re.escape(str(path))):
            load(path)


def raised(error):
    raise error


def test_the_trap_is_one():
    pickle.loads(pickle.dumps(Trap()))
    assert SPRUNG.pop() == 1


# Whole or not at all


FULL = OSError(28, "No space left on device")
FAILURES = [
    (os, "fsync", lambda *_, **how: raised(FULL)),
    (np, "savez", lambda file, **_: file.write(b"half of it") and raised(FULL)),
    (os, "replace", lambda *_, **how: raised(FULL)),
    (np, "savez", lambda *_, **how: raised(KeyboardInterrupt())),
]


@pytest.mark.parametrize("old", [True, False], ids=["over an old file", "new"])
@pytest.mark.parametrize(("module", "name", "how"), FAILURES)
def test_a_file_is_replaced_whole_or_not_at_all(module, name, how, old, path, monkeypatch):
    if old:
        path.write_bytes(b"old")
    with monkeypatch.context() as patch:
        patch.setattr(module, name, how)
        with pytest.raises((OSError, KeyboardInterrupt)):
            save(path, {"new": jnp.ones(1000)})
    assert os.listdir(path.parent) == ([path.name] if old else [])
    assert not old or path.read_bytes() == b"old"
    save(path, {"new": jnp.ones(1000)})
    assert bits(load(path)) == bits({"new": jnp.ones(1000)})
    assert os.listdir(path.parent) == [path.name]
