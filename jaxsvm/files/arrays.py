"""Arrays of `.npz` files, read by NumPy."""

from __future__ import annotations

import errno

import numpy as np

from .atomic import refuse_special


def read_arrays(path: str) -> dict[str, np.ndarray]:
    """The arrays of a `.npz` file, after their checksums are compared; nothing is unpickled.

    Raises:
        OSError: the file cannot be opened or read; FileNotFoundError: there is none.
        ValueError: the file is damaged or of another kind.
    """
    refuse_special(path)
    with open(path, "rb") as file:
        try:
            with np.load(file, allow_pickle=False) as arrays:
                # an array that says that it is shorter than it is would be read without its end
                if arrays.zip.testzip() is not None:
                    raise ValueError("the bytes of an array have another checksum")
                return {name: arrays[name] for name in arrays.files}
        except MemoryError:
            raise
        except Exception as error:
            # wrong places in a zip are seeks that cannot be
            if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):
                error.filename = error.filename or path
                raise
            raise ValueError(f"{path} is damaged, or no npz file") from error
