"""Programs of models that run without this package."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.typing import DTypeLike

from ..checks import integer, is_array, shown, x64_enabled
from ..files import atomic_path, check_target
from ..kernels import holds_precomputed
from ..numerics import is_traced
from ..types import Array, Model, all_finite
from .functions import Expansion, Linear
from .multiclass import StackedModels
from .predictions import Classifier, MultiLabel

if TYPE_CHECKING:
    from jax.export import Exported

PLATFORMS = ("cpu", "cuda", "tpu")


def export(
    model: Model,
    path: str | bytes | os.PathLike | None = None,
    *,
    columns: int | None = None,
    rows: int | None = None,
    block: int = 64,
    dtype: DTypeLike | None = None,
    platforms: Sequence[str] = PLATFORMS,
) -> Exported:
    """Make a program of a model's decision values that runs without jaxsvm.

    The program is one of `jax.export`, with the numbers of the model in it. A file of it runs with
    JAX alone, of this version or a later one as `jax.export` promises:

        from jax import export
        with open(path, "rb") as file:
            decision_values = export.deserialize(file.read()).call
        decision_values(x)  # x (n, d) of the dtype of the program

    Of two classes the second is predicted for values > 0; of k classes that of the largest value.
    Class names are not in the file, nor what became of the words of a table.
    `jax.jit(decision_values)` is compiled once for each n. Distances are computed as inside
    `jax.jit`; see `kernels.rbf`.

    Args:
        model: of this package, or any pytree that maps rows (n, d) to values (n, ...).
        path: the file; None: none is written. Writing and reading need the package flatbuffers
            (`pip install 'jaxsvm[export]'`).
        columns: number of columns d; None: that of the model, where it is known.
        rows: number of rows n of a call; None: any number of at least 1.
        block: rows that are computed at once if n is not given; a call computes whole blocks.
        dtype: dtype of the rows; None: float64 if the model holds such numbers, else float32.
        platforms: those that the program is made for; tried on CPUs only.

    Returns:
        The program; its `call` computes decision values.

    Raises:
        TypeError: not a model, or called inside a transformation.
        ValueError: columns are not known, or the model is not finite.
        ImportError: a file is to be written, and flatbuffers is not installed.
        OSError: the file cannot be written.

    Example:
        >>> import jax.numpy as jnp, jaxsvm
        >>> model = jaxsvm.models.Linear(jnp.array([2.0, -1.0]), jnp.array(0.5))
        >>> program = jaxsvm.models.export(model)
        >>> program.call(jnp.ones((3, 2))).tolist()
        [1.5, 1.5, 1.5]
    """
    from jax import export as jax_export

    if not callable(model) or isinstance(model, type):
        raise TypeError(f"export takes a model, got {shown(model)}")
    if any(map(is_traced, jax.tree.leaves(model))):
        raise TypeError("export needs the model's values: call it outside of jit, vmap and grad")
    if not all_finite(model):
        raise ValueError(
            "the model holds numbers that are not finite: its training diverged; train it again"
        )
    if path is not None:
        check_target(path)
    columns = _columns(model) if columns is None else integer("columns", columns, 1)
    block = integer("block", block, 1)
    platforms = [platforms] if isinstance(platforms, str) else list(platforms)
    n: Any = jax_export.symbolic_shape("n")[0] if rows is None else integer("rows", rows, 1)
    program = lambda x: _in_blocks(model, x, block if rows is None else n)
    leaves = filter(is_array, jax.tree.leaves(model))
    is_wide = x64_enabled() and any(a.dtype == np.float64 for a in leaves)
    usual = np.float64 if is_wide else np.float32
    spec = jax.ShapeDtypeStruct((n, columns), jnp.dtype(usual if dtype is None else dtype))
    exported = jax_export.export(jax.jit(program), platforms=platforms)(spec)
    if path is not None:
        _write(exported, path)
    return exported


def _in_blocks(model: Model, x: Array, block: int) -> Array:
    """Decision values of rows whose number may not be known, `block` rows at a time."""
    n, columns = x.shape
    # else the compiler works out what depends on the model alone, which takes minutes for many
    # support vectors
    model = lax.optimization_barrier(model)
    count = (n + block - 1) // block
    padded = jnp.pad(x, ((0, count * block - n), (0, 0)))
    values = lax.map(model, padded.reshape(count, block, columns))
    return values.reshape(count * block, *values.shape[2:])[:n]


def _columns(model: Model) -> int:
    """The number of columns of a model's rows."""
    while isinstance(model, StackedModels | Classifier | MultiLabel):
        model = model.inner
    if isinstance(model, Linear):
        return model.w.shape[-1]
    if isinstance(model, Expansion):
        return (model.coef if holds_precomputed(model.kernel) else model.x).shape[-1]
    raise ValueError("the model does not tell the number of columns of its rows: pass columns")


def _write(exported: Exported, path: str | bytes | os.PathLike) -> None:
    try:
        data = exported.serialize()
    except ImportError as error:
        raise ImportError(
            "files of programs are written with flatbuffers: pip install 'jaxsvm[export]'"
        ) from error
    with atomic_path(path) as temporary, open(temporary, "wb") as file:
        file.write(data)
