"""`sweep`: a function over a grid of numbers, as one compiled program."""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Callable
from typing import Any, NamedTuple, ParamSpec, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from ..checks import check_bytes, check_positive, integer, shown
from ..numerics import is_traced
from ..numerics.sharding import auto_axes
from ..types import Array
from .checks import named_parameters
from .threads import Jobs, may_overlap, processors

RUNS = "runs"  # the axis of a mesh over which points are dealt
EVERYWHERE = PartitionSpec()


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

        def order(place: Any) -> Any:
            near = tuple(slice(max(i - 1, 0), i + 2) for i in place)
            around = finite_values[near].ravel().tolist()
            around.remove(finite_values[tuple(place)])
            sizes = [-axis[i] for axis, i in zip(numbers, place, strict=True)]
            # exact sums: the order of the points does not matter
            return math.fsum(around) / max(len(around), 1), *sizes

        return tuple(min(minima.tolist(), key=order))

    @property
    def best(self) -> dict[str, float]:
        """The numbers of the axes at `place`."""
        pairs = zip(self.axes.items(), self.place, strict=True)
        return {name: float(numbers[i]) for (name, numbers), i in pairs}

    def __str__(self) -> str:
        """A grid: rows are the first axis, columns the second, blocks the others.

        * marks the least value.
        """
        names, values = list(self.axes), np.asarray(self.values, float)
        least = self.place if np.isfinite(values).any() else None
        numbers = [[f"{v:.3g}" for v in np.asarray(axis)] for axis in self.axes.values()]
        rows, columns, *others = numbers if len(names) > 1 else [*numbers, [""]]
        cells = [f"{v:.4g}{'*' if place == least else ' '}" for place, v in np.ndenumerate(values)]
        grid, blocks = np.array(cells, object).reshape(len(rows), len(columns), -1), []
        for k, rest in enumerate(itertools.product(*others)):
            heads, texts = [" | ".join(names[:2]), *rows], [columns, *grid[:, :, k].tolist()]
            left, width = max(map(len, heads)), max(len(text) for row in texts for text in row) + 2
            pairs = zip(names[2:], rest, strict=True)
            lines = [", ".join(f"{name} = {number}" for name, number in pairs)] if rest else []
            for head, row in zip(heads, texts, strict=True):
                lines.append(head.ljust(left) + "".join(text.rjust(width) for text in row))
            blocks.append("\n".join(line.rstrip() for line in lines))
        return "\n\n".join(blocks)


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
        >>> import jax.numpy as jnp, jaxsvm
        >>> print(jaxsvm.sweep.table(jnp.array([[0.5, 0.2], [0.4, 0.3]]), lam=jnp.array([0.1, 1.0]),
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
    with contextlib.suppress(TypeError, ValueError, OverflowError):
        vector = jnp.asarray(numbers)
        if vector.ndim == 1 and vector.shape[0]:
            return vector
    raise ValueError(
        f"the axis {name} must be a vector of at least one number, got {shown(numbers)}"
    )


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
        mesh: devices among which the numbers of the first axis are dealt: each device of its axis
            "runs" computes an equal part of them, and none of them sends anything to another.
            `chunk` and `memory` are those of one device. A mesh of one axis may give it any name.
            With a second axis "rows", each part runs on the rows of `jaxsvm.shard(data, mesh)` over
            that axis. Arguments not on the mesh are copied to all its devices. Several processes
            make the same call, each with the same axes. None: one device.
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
        >>> import jax.numpy as jnp, jaxsvm
        >>> values = jaxsvm.sweep(lambda lam, sigma, x: lam * sigma + x, lam=jnp.arange(3.0),
        ...     sigma=jnp.arange(2.0), progress=False)
        >>> values(10.0).tolist()
        [[10.0, 10.0], [10.0, 11.0], [10.0, 12.0]]
    """
    if not axes:
        raise ValueError("sweep needs at least one axis, such as lam=jnp.logspace(-6, 0, 8)")
    axes = {name: _axis(name, numbers) for name, numbers in axes.items()}
    integer("chunk", 1 if chunk is None else chunk, 1)
    if memory is not None:
        check_positive(memory=memory)
    memory = math.inf if memory is None else memory
    if not callable(fn) or isinstance(fn, type):
        raise TypeError(f"fn must be a function of one number of each axis, got {shown(fn)}")
    call = _bind_axes(fn, tuple(axes))

    @jax.jit
    def run_part(values, point, args, kwargs):
        numbers = lambda value: dict(zip(axes, (value, *point), strict=True))
        return jax.vmap(lambda value: call(numbers(value), args, kwargs))(values)

    on_one: tuple = run_part, 1, lambda a, spec: a, None
    program_of, devices, place, dealt = on_one if mesh is None else _on_mesh(run_part, mesh)
    first, *others = axes.values()
    shape = tuple(map(len, axes.values()))
    (k, *rest), cells = shape, math.prod(shape)
    check_bytes(f"{cells:,} cells of a sweep", 64 * cells, "take fewer numbers for an axis")
    # the points of the other axes
    columns = tuple(map(jnp.stack, zip(*itertools.product(*others), strict=True)))
    to_grid = lambda a: jnp.moveaxis(a, 0, 1).reshape(*shape, *a.shape[2:])
    plans: dict[tuple, tuple] = {}

    def jobs_of(width):
        """The arguments of each call: `width` numbers, the last one repeated, and a point."""
        chunks = np.minimum(np.arange(-(-k // width) * width), k - 1).reshape(-1, width)
        at = lambda i: tuple(place(a[i], EVERYWHERE) for a in columns)
        points = map(at, range(math.prod(rest)))
        return [(place(first[i], dealt), point) for point in points for i in chunks]

    def plan(args, kwargs):
        """The plan for arguments of these types, compiled once, and the arguments."""
        # converted in this thread, as others do not inherit JAX's settings
        args, kwargs = jax.tree.map(lambda a: place(jnp.asarray(a), EVERYWHERE), (args, kwargs))
        leaves, tree = jax.tree.flatten((args, kwargs))
        types = tree, tuple((jnp.shape(leaf), jnp.result_type(leaf)) for leaf in leaves)
        if types not in plans:
            lower = lambda width: program_of.lower(*jobs_of(width * devices)[0], args, kwargs)
            most, threads = -(-k // devices), processors() if mesh is None else 1
            plans[types] = widest_program(lower, min(chunk or most, most), memory, threads)
        return *plans[types], args, kwargs

    def run(*args, **kwargs):
        if is_traced(args, kwargs, axes):  # a loop over the other axes
            body = lambda _, point: (None, run_part(first, point, args, kwargs))
            results = lax.scan(body, None, columns, length=math.prod(rest))[1]
            return jax.tree.map(to_grid, results)
        program, width, threads, _, args, kwargs = plan(args, kwargs)
        jobs = jobs_of(width * devices)
        bar = Jobs(len(jobs), 0, "parts", progress and len(jobs) > 1)

        def work(job):
            result = jax.block_until_ready(program(*job, args, kwargs))
            bar.add(1)
            return result

        with contextlib.closing(bar):
            results = bar.run(work, jobs, threads)
        if mesh is not None:  # from all devices to one of this process
            here = lambda a: jax.device_put(a, NamedSharding(a.sharding.mesh, EVERYWHERE))
            results = jax.tree.map(lambda a: here(a).addressable_data(0), results)
        n = len(jobs) // math.prod(rest)  # of each point
        whole = lambda parts, i: jnp.concatenate(parts[i : i + n])[:k]
        points = range(0, len(jobs), n)
        join = lambda *parts: to_grid(jnp.stack([whole(parts, i) for i in points]))
        return jax.tree.map(join, *results)

    run.memory = lambda *args, **kwargs: plan(args, kwargs)[3]  # type: ignore[attr-defined]
    return run


def _on_mesh(run_part: Callable, mesh: object) -> tuple[Any, int, Callable, PartitionSpec]:
    """`run_part` over the devices of the axis "runs" of a mesh, or of its only axis.

    Returns:
        The function, the number of devices, what lays an array on the mesh by a spec, and the spec
        of the numbers that are dealt.
    """
    if not isinstance(mesh, Mesh):
        raise TypeError(
            f'mesh must be a mesh such as jax.make_mesh((8,), ("{RUNS}",)), got {shown(mesh)}'
        )
    names = mesh.axis_names
    if RUNS not in names and len(names) != 1:
        raise ValueError(
            f'mesh must have an axis "{RUNS}", over which the points are dealt, got the axes '
            f"{', '.join(names)}"
        )
    mesh, axis = auto_axes(mesh), RUNS if RUNS in names else names[0]
    dealt = PartitionSpec(axis)
    specs: Any = {"in_specs": (dealt, *[EVERYWHERE] * 3), "out_specs": dealt, "check_vma": False}
    program = jax.jit(jax.shard_map(run_part, mesh=mesh, axis_names={axis}, **specs))

    def place(a: Array, spec: PartitionSpec) -> Array:
        is_there = isinstance(a.sharding, NamedSharding) and a.sharding.mesh == mesh
        return a if is_there else jax.device_put(a, NamedSharding(mesh, spec))

    return program, mesh.shape[axis], place, dealt


def _bind_axes(fn: Callable, names: tuple[str, ...]) -> Callable:
    """`fn` as a function of numbers by axis and of its other arguments.

    Its arguments are (numbers by axis, other positional arguments, other arguments by name).
    """
    known = named_parameters("fn", fn, names).values()
    positional = [p.name for p in known if p.kind is p.POSITIONAL_OR_KEYWORD]
    others = [name for name in positional if name not in names]

    def call(numbers, args, kwargs):
        if len(args) > len(others):
            raise TypeError(
                f"fn takes {len(others)} arguments beside {', '.join(names)}, got {len(args)}"
            )
        return fn(**numbers, **dict(zip(others, args, strict=False)), **kwargs)

    return call


def widest_program(
    lower: Callable, width: int, memory: float, threads: int = 1, *, of_folds: bool = False
) -> tuple[Any, int, int, int]:
    """The compiled program of the widest chunk that fits `memory`, its width, and its resources.

    The resources are the number of threads, at most `threads`, and the bytes of all. For the cells
    of `select`, a program `of_folds`, those of its arguments are not counted.
    """
    while True:
        lowered = lower(width)
        threads = threads if may_overlap(lowered) else 1
        program = lowered.compile()
        analysis = program.memory_analysis()
        fixed = 0 if of_folds else analysis.argument_size_in_bytes
        per_thread = analysis.temp_size_in_bytes + analysis.output_size_in_bytes
        if fixed + per_thread <= memory:
            threads = int(max(1, min(threads, (memory - fixed) / max(per_thread, 1))))
            return program, width, threads, fixed + threads * per_thread
        if width == 1:
            one = "the folds of one cell take" if of_folds else "one run takes"
            raise ValueError(
                f"{one} {fixed + per_thread:.3g} bytes, memory={memory:.3g}: raise memory, or use "
                "fewer features or rows"
            )
        width = -(-width // 2)
