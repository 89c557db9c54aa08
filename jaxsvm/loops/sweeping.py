"""`sweep`: a function over a grid of numbers, as one compiled program."""

from __future__ import annotations

import inspect
import itertools
import math
from collections.abc import Callable
from typing import Any, NamedTuple, ParamSpec, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh

from ..checks import as_number, check_bytes, integer, shown
from ..numerics import is_traced
from ..recipe import check_positive
from ..types import Array
from .deal import MeshSplit
from .threads import Limits, Progress, may_overlap, processors, run_jobs


class Table(NamedTuple):
    """Values over a grid, with the names and numbers of its axes."""

    values: Array  # (len(first axis), len(second axis), ...)
    axes: dict[str, Array]  # name -> (k,) numbers, in the order of the axes

    @property
    def place(self) -> tuple[int, ...]:
        """The indices of the least value; values that are not finite are left out.

        Among equal least values the point in the flattest neighbourhood: the mean over the adjacent
        points, diagonal ones too, is least; those that are not finite count as the greatest finite
        value. Among equal means the point with the largest number of the first axis, then of the
        second, and so on: with lam first, the largest lambda.

        Raises:
            ValueError: no value is finite.
        """
        values = np.asarray(self.values, float)
        finite = np.isfinite(values)
        if not finite.any():
            raise ValueError("no value of the table is finite: there is no best point")
        finite_values = np.where(finite, values, values[finite].max())
        minima = np.argwhere(finite & (values == values[finite].min()))
        numbers = [np.asarray(axis, float) for axis in self.axes.values()]
        order = [
            (
                _mean_around(finite_values, place),
                *(-axis[i] for axis, i in zip(numbers, place, strict=True)),
            )
            for place in minima
        ]
        return tuple(int(i) for i in minima[min(range(len(minima)), key=order.__getitem__)])

    @property
    def best(self) -> dict[str, float]:
        """The numbers of the axes at `place`."""
        return {
            name: float(numbers[i])
            for (name, numbers), i in zip(self.axes.items(), self.place, strict=True)
        }

    def __str__(self) -> str:
        """A grid: rows are the first axis, columns the second, blocks the others.

        * marks the least value.
        """
        names, values = list(self.axes), np.asarray(self.values, float)
        is_least = np.zeros(values.shape, bool)
        if np.isfinite(values).any():
            is_least[self.place] = True
        cells = [
            f"{v:.4g}{'*' if m else ' '}"
            for v, m in zip(values.ravel(), is_least.ravel(), strict=True)
        ]
        texts: Any = np.array(cells, object)
        texts = texts.reshape(values.shape + (1,) * max(0, 2 - values.ndim))
        numbers = [[f"{v:.3g}" for v in np.asarray(axis)] for axis in self.axes.values()]
        rows, columns = numbers[0], numbers[1] if len(names) > 1 else [""]
        corner = f"{names[0]} | {names[1]}" if len(names) > 1 else names[0]
        blocks = []
        for place in itertools.product(*map(range, values.shape[2:])):
            cells = texts[(slice(None), slice(None), *place)]
            width = max(len(text) for text in [*columns, *cells.ravel()]) + 2
            left = max(len(text) for text in [corner, *rows])
            heads = [f"{names[2 + k]} = {numbers[2 + k][i]}" for k, i in enumerate(place)]
            lines = [
                *([", ".join(heads)] if heads else []),
                corner.ljust(left) + "".join(c.rjust(width) for c in columns),
            ]
            lines += [
                row.ljust(left) + "".join(c.rjust(width) for c in line)
                for row, line in zip(rows, cells, strict=True)
            ]
            blocks.append("\n".join(line.rstrip() for line in lines))
        return "\n\n".join(blocks)


def _mean_around(values: np.ndarray, place: np.ndarray) -> float:
    """The mean over the points adjacent to `place`; 0 where there is none."""
    around = values[tuple(slice(max(i - 1, 0), i + 2) for i in place)].ravel().tolist()
    around.remove(values[tuple(place)])
    # exact sums: the order of the points does not matter
    return math.fsum(around) / max(len(around), 1)


def table(values: Array, **axes: Array) -> Table:
    """The values of a sweep with the names and numbers of its axes.

    Args:
        values: (k_1, k_2, ...) numbers, such as validation errors.
        **axes: the axes of the call of `sweep`, in the same order: name -> (k_i,) numbers.

    Returns:
        A `Table`: prints as a grid, `best` are the numbers of its least value, by the rule of
        `Table.place` among equal ones; `plots.heatmap` draws it.

    Raises:
        ValueError: an axis is not a vector, or the axes do not have the shape of the values.

    Example:
        >>> print(table(jnp.array([[0.5, 0.2], [0.4, 0.3]]), lam=jnp.array([0.1, 1.0]),
        ...     sigma=jnp.array([1.0, 2.0])))
        lam | sigma      1      2
        0.1            0.5   0.2*
        1              0.4    0.3
    """
    if not axes or any(np.ndim(numbers) != 1 for numbers in axes.values()):
        raise ValueError(
            "a table takes the axes of the sweep, one or more vectors, such as lam=lams"
        )
    shape = tuple(np.shape(numbers)[0] for numbers in axes.values())
    if np.shape(values) != shape:
        raise ValueError(
            f"values have shape {np.shape(values)}, the axes {', '.join(axes)} have {shape}"
        )
    return Table(values, axes)


def _axis(name: str, numbers: Any) -> Array:
    """The numbers of an axis as a vector."""
    try:
        vector = jnp.asarray(
            [as_number(name, number) for number in numbers]
            if type(numbers) in (list, tuple)
            else numbers
        )
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(
            f"the axis {name} must be a vector of at least one number, got {shown(numbers)}"
        ) from error
    if vector.ndim != 1 or not vector.shape[0]:
        raise ValueError(
            f"the axis {name} must be a vector of at least one number, got shape {vector.shape}"
        )
    return vector


_P = ParamSpec("_P")


class _WithTable(Protocol[_P]):
    """`sweep`, and `table` as an attribute of it."""

    table: Callable[..., Table]

    def __call__(self, *args: _P.args, **kwargs: _P.kwargs) -> Callable: ...


def _with_table(fn: Callable[_P, Callable]) -> _WithTable[_P]:
    """The function with `table` as an attribute."""
    result: Any = fn
    result.table = table
    return result


@_with_table
def sweep(
    fn: Callable,
    *,
    memory: float | None = None,
    chunk: int | None = None,
    progress: bool = True,
    mesh: Mesh | None = None,
    **axes: Array,
) -> Callable:
    """Run `fn` at every point of a grid, as one compiled program.

        sweep(fn, a=a, b=b)(*args)[i, j] = fn(a=a[i], b=b[j], *args)

    The first axis is vmapped: values that do not depend on it, such as features, are computed once
    for all its numbers. The other axes are a loop over one compiled program. Outside of
    transformations the host runs the loop, on a CPU with one thread for each processor, or as many
    as `memory` allows, and draws a bar. Inside of transformations the loop is a `lax.map`, and
    `memory` and `chunk` have no effect.

    Args:
        fn: (one number of each axis by name, other arguments) -> a tree of arrays.
        memory: bytes of the program's arguments, results and temporaries, > 0, as the compiler
            counts them before anything runs. The first axis is split into chunks that stay within
            this bound. Collected results are not included. None: no bound.
        chunk: numbers of the first axis in one call of the program, >= 1; None: all, or as many as
            `memory` allows.
        progress: a bar on the standard error stream, if the program is called more than once.
        mesh: devices among which the points are dealt: each device of its axis "runs" computes the
            next part of the grid with the program of one device, and none of them sends anything to
            another. `chunk` and `memory` are those of one device; None for `chunk`: the widest that
            occupies all devices. A mesh of one axis may give it any name. With a second axis
            "rows", each part runs on the rows of `jaxsvm.shard(data, mesh)` over that axis.
            Arguments not on the mesh are copied to all its devices. None: one device.
        **axes: name -> (k,) numbers, k >= 1.

    Returns:
        A function of fn's other arguments (in the order of its signature, or by name) -> fn's tree
        with a leading axis for each name, in the order of the call. Its `memory(*arguments)` is the
        number of bytes of such a call, as the compiler counts them, of all threads together.

    Raises:
        TypeError: mesh is not a mesh.
        ValueError: no axis, an axis that is not a vector, chunk < 1, one point that exceeds
            `memory`, a mesh without an axis "runs".

    Example:
        >>> values = sweep(lambda lam, sigma, x: lam * sigma + x, lam=jnp.arange(3.0),
        ...     sigma=jnp.arange(2.0), progress=False)
        >>> values(10.0).tolist()
        [[10.0, 10.0], [10.0, 11.0], [10.0, 12.0]]
    """
    axes, memory = _check_arguments(fn, axes, memory, chunk)
    grid, call = Grid.over(axes), _bind_axes(fn, tuple(axes))

    @jax.jit
    def run_part(values, point, args, kwargs):
        run_point = lambda value: call(grid.numbers(value, point), args, kwargs)
        return jax.vmap(run_point)(values)

    deal = None if mesh is None else MeshSplit.over(mesh, run_part)
    plans: dict[tuple, tuple] = {}

    def plan(args, kwargs):
        """The plan for arguments of these types, compiled once."""
        leaves, tree = jax.tree.flatten((args, kwargs))
        types = tree, tuple((jnp.shape(leaf), jnp.result_type(leaf)) for leaf in leaves)
        if types not in plans:
            k, *others = grid.shape
            width = min(chunk or k, k)
            if deal is not None and chunk is None:
                width = deal.widest(k, math.prod(others))
            lower_part = run_part.lower if deal is None else deal.lower
            point = tuple(column[0] for column in grid.columns)
            lower = lambda width: lower_part(grid.values[:width], point, args, kwargs)
            plans[types] = widest_program(lower, width, memory, 1 if deal else processors())
        return plans[types]

    def run(*args, **kwargs):
        if is_traced(args, kwargs, axes):
            return _run_traced(grid, run_part, args, kwargs)
        # converted in this thread, as others do not inherit JAX's settings
        args, kwargs = jax.tree.map(jnp.asarray, (args, kwargs))
        if deal is not None:
            args, kwargs = jax.tree.map(deal.place, (args, kwargs))
        program, width, threads, _ = plan(args, kwargs)
        threads = threads if deal is None else 1
        jobs = grid.jobs(width)
        rounds = jobs if deal is None else deal.rounds(jobs)
        bar = Progress(len(rounds), 0, "parts", progress and len(rounds) > 1)

        def work(job):
            result = jax.block_until_ready(program(*job, args, kwargs))
            bar.add(1)
            return result

        try:
            results = run_jobs(work, rounds, threads, Limits(None))
        finally:
            bar.close()
        if deal is not None:
            results = [part for parts in results for part in deal.parts(parts)][: len(jobs)]
        return grid.join(results, width)

    result: Any = run
    result.memory = lambda *args, **kwargs: plan(args, kwargs)[3]
    return result


def _check_arguments(
    fn: Callable, axes: dict[str, Any], memory: float | None, chunk: int | None
) -> tuple[dict[str, Array], float | None]:
    """The axes as vectors and `memory` as a number; raise for arguments that are not valid."""
    if not axes:
        raise ValueError("sweep needs at least one axis, such as lam=jnp.logspace(-6, 0, 8)")
    axes = {name: _axis(name, numbers) for name, numbers in axes.items()}
    if chunk is not None:
        integer("chunk", chunk, 1)
    if memory is not None:
        check_positive(memory=memory)
        memory = as_number("memory", memory)
    if not callable(fn) or isinstance(fn, type):
        raise TypeError(f"fn must be a function of one number of each axis, got {shown(fn)}")
    return axes, memory


class Grid(NamedTuple):
    """The points of a sweep: the numbers of the first axis, and points of the other axes."""

    names: tuple[str, ...]  # of the axes
    shape: tuple[int, ...]  # numbers of each axis
    values: Array  # (k,) numbers of the first axis
    columns: tuple[Array, ...]  # for each other axis its number at each of their points

    @classmethod
    def over(cls, axes: dict[str, Array]) -> Grid:
        """The grid of all combinations of the numbers of the axes."""
        values, *others = axes.values()
        cells = math.prod(a.shape[0] for a in axes.values())
        check_bytes(f"{cells:,} cells of a sweep", 64 * cells, "take fewer numbers for an axis")
        columns = tuple(
            jnp.stack(column) for column in zip(*itertools.product(*others), strict=True)
        )
        return cls(tuple(axes), tuple(a.shape[0] for a in axes.values()), values, columns)

    def numbers(self, value: Array, point: tuple) -> dict[str, Array]:
        """The numbers of a point by the names of the axes."""
        return dict(zip(self.names, (value, *point), strict=True))

    def starts(self, width: int) -> list[int]:
        """The first index of each chunk of the first axis; the last one overlaps that before it."""
        return [min(i, self.shape[0] - width) for i in range(0, self.shape[0], width)]

    def jobs(self, width: int) -> list[tuple[Array, tuple]]:
        """The arguments of each call of the program: `width` numbers, and a point of the others."""
        columns = self.columns
        points = [tuple(a[i] for a in columns) for i in range(len(columns[0]))] if columns else [()]
        return [
            (lax.dynamic_slice_in_dim(self.values, start, width), point)
            for point in points
            for start in self.starts(width)
        ]

    def join(self, results: list, width: int) -> Any:
        """The results of all jobs as one tree, with a leading axis for each axis of the grid."""
        starts = self.starts(width)

        def join_chunks(*chunks):
            numbered = enumerate(zip(starts, chunks, strict=True))
            return jnp.concatenate([a[i * width - start :] for i, (start, a) in numbered])

        rows = [
            jax.tree.map(join_chunks, *results[i : i + len(starts)])
            for i in range(0, len(results), len(starts))
        ]
        return self.to_grid(jax.tree.map(lambda *a: jnp.stack(a), *rows))

    def to_grid(self, tree: Any) -> Any:
        """(points, first axis, ...) -> (first axis, the other axes, ...)."""
        reshape = lambda a: jnp.moveaxis(a, 0, 1).reshape(*self.shape, *a.shape[2:])
        return jax.tree.map(reshape, tree)


def _run_traced(grid: Grid, run_part: Callable, args: tuple, kwargs: dict) -> Any:
    """All points inside a transformation: a `lax.map` over the points of the other axes."""
    run_values = lambda point: run_part(grid.values, tuple(point), args, kwargs)
    if grid.columns:
        return grid.to_grid(lax.map(run_values, grid.columns))
    return grid.to_grid(jax.tree.map(lambda a: a[None], run_values(())))


def _bind_axes(fn: Callable, names: tuple[str, ...]) -> Callable:
    """`fn` as a function of numbers by axis and of its other arguments.

    Its arguments are (numbers by axis, other positional arguments, other arguments by name).
    """
    try:
        parameters = list(inspect.signature(fn).parameters.values())
    except (TypeError, ValueError):  # some builtins have no signature
        parameters = []
    has_kwargs = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters)
    parameter_names = [
        p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)
    ]
    for name in names:
        if parameters and name not in parameter_names and not has_kwargs:
            raise ValueError(
                f"fn has no parameter named {name}, only {', '.join(parameter_names)}: name "
                "the axes as fn does"
            )
    other_names = [
        p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD and p.name not in names
    ]

    def call(numbers, args, kwargs):
        if len(args) > len(other_names):
            raise TypeError(
                f"fn takes {len(other_names)} arguments beside {', '.join(names)}, got {len(args)}"
            )
        return fn(**numbers, **dict(zip(other_names, args, strict=False)), **kwargs)

    return call


def widest_program(
    lower: Callable[[int], Any],
    width: int,
    memory: float | None,
    threads: int,
    own: Callable[[int], int] = lambda width: 0,
) -> tuple[Any, int, int, int]:
    """The compiled program of the widest chunk that fits `memory`, its width, and its resources.

    The resources are the number of threads, at most `threads`, and the bytes of all. Each thread
    has `own(width)` bytes of arguments to itself.
    """
    while True:
        lowered = lower(width)
        threads = threads if may_overlap(lowered) else 1
        program = lowered.compile()
        analysis = program.memory_analysis()
        fixed, per_thread = (
            analysis.argument_size_in_bytes,
            analysis.temp_size_in_bytes + analysis.output_size_in_bytes + own(width),
        )
        if memory is None or fixed + per_thread <= memory:
            if memory is not None:
                threads = max(1, min(threads, int((memory - fixed) // max(per_thread, 1))))
            return program, width, threads, fixed + threads * per_thread
        if width == 1:
            raise ValueError(
                f"one run takes {fixed + per_thread:.3g} bytes, memory={memory:.3g}: raise "
                "memory, or use fewer features or rows"
            )
        width = -(-width // 2)
