"""Arrays of `.npz` files whose sizes are checked before memory is taken."""

import copy
import gc
import io
import os
import struct
import tracemalloc
import warnings
import zipfile

import numpy as np
import pytest

import jaxsvm
from jaxsvm.files import npz
from jaxsvm.models import serialization


def read(path):
    with npz.open_npz(path) as file:
        return {name: file.read(name) for name in file.members}


def refused(message, read, *args):
    with pytest.raises((ValueError, zipfile.BadZipFile), match=message):
        read(*args)


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


def little_memory(message, path, most=10e6):
    """Refused before much memory was taken."""
    gc.collect()
    tracemalloc.start()
    try:
        refused(message, read, path)
        assert tracemalloc.get_traced_memory()[1] < most
    finally:
        tracemalloc.stop()


ROWS_AND_NAMES = {"x": npy(np.eye(2), (2, 2)), "y": npy(np.arange(2), (2,))}


@pytest.mark.parametrize("how", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_sizes_are_checked_before_anything_is_read(how, tmp_path):
    path = tmp_path / "a.npz"
    members(path, how, **ROWS_AND_NAMES | {"x": npy(np.eye(2), (10**9, 2))})
    little_memory("an array is shorter than it says", path)
    members(path, how, **ROWS_AND_NAMES | {"x": npy(np.eye(2), (2, 2)) + b"more"})
    refused("an array is longer than it says", read, path)
    head = b"\x93NUMPY\x02\x00" + (2**31).to_bytes(4, "little") + b" " * 100
    members(path, how, **ROWS_AND_NAMES | {"x": head})
    little_memory("the header of an array has 2147483648 bytes", path)


@pytest.mark.parametrize("size", [2_000_000_000, 4_294_967_294])
def test_deflate_cannot_unpack_to_more_than_1032_bytes_for_each(size, tmp_path):
    path, content = tmp_path / "a.npz", npy(np.zeros(0, np.uint8), (size - 128, 1)) + bytes(70_000)
    members(path, zipfile.ZIP_DEFLATED, x=content, y=npy(np.arange(2), (2,)))
    whole, sizes = path.read_bytes(), [struct.pack("<I", n) for n in (len(content), size)]
    assert whole.count(sizes[0]) == 2  # in both headers
    path.write_bytes(whole.replace(*sizes))
    little_memory(f"the member x says that .* bytes unpack to {size}, which they cannot", path)


def test_zeros_that_deflate_packs_best_are_read(tmp_path):
    np.savez_compressed(tmp_path / "a.npz", x=np.zeros((50_000, 20), np.float32))
    assert os.path.getsize(tmp_path / "a.npz") < 200_000
    assert read(tmp_path / "a.npz")["x"].shape == (50_000, 20)


@pytest.mark.parametrize("load", [read, jaxsvm.models.load])
def test_too_many_members_are_refused(load, tmp_path, monkeypatch):
    monkeypatch.setattr(npz, "MEMBERS", 20)
    members(tmp_path / "a.npz", **ROWS_AND_NAMES | {f"a{i}": b"" for i in range(19)})
    refused("it holds 21 arrays, at most 20 are read", load, tmp_path / "a.npz")


def test_a_tree_of_more_arrays_than_are_read_is_not_saved(tmp_path, monkeypatch):
    monkeypatch.setattr(serialization, "MEMBERS", 20)
    jaxsvm.models.save(tmp_path / "a.npz", [np.zeros(1)] * 19)
    refused(
        "the tree has too many parts: 20 arrays",
        jaxsvm.models.save,
        tmp_path / "a.npz",
        [np.zeros(1)] * 20,
    )


@pytest.mark.parametrize("text", ["-" * 9000 + "1", "(" * 180, "1+" * 4000 + "1", "[" * 9000])
def test_headers_of_deep_nests_are_damage(text, tmp_path):
    content = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode()
    members(tmp_path / "a.npz", **ROWS_AND_NAMES | {"x": content})
    refused("is damaged", jaxsvm.models.load, tmp_path / "a.npz")


def test_members_that_come_twice_or_overlap(tmp_path):
    path = tmp_path / "a.npz"
    members(path, **ROWS_AND_NAMES | {"x_": npy(np.ones((2, 2)), (2, 2))})
    refused("two members have the name x", read, path)
    members(path, zipfile.ZIP_LZMA, **ROWS_AND_NAMES)
    refused("the member x is compressed in a way that is not read here", read, path)
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("x.npy", npy(np.zeros((1000, 1)), (1000, 1)))
        for k in range(100):
            info = copy.copy(file.getinfo("x.npy"))
            info.filename = f"x{k}.npy"
            file.filelist.append(info)
    refused("", read, path)


def test_a_name_that_was_hit_is_seen(tmp_path):
    """One bit makes another name of weight, and no weights would be found."""
    path = tmp_path / "a.npz"
    np.savez(path, x=np.eye(2), y=[0, 1], weight=[1.0, 2])
    whole = path.read_bytes()
    for place in (whole.index(b"weight"), whole.rindex(b"weight")):
        spoiled = bytearray(whole)
        spoiled[place] ^= 1
        path.write_bytes(spoiled)
        refused("", read, path)
