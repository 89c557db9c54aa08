"""`sweep` against nested Python loops, its use of memory and of one compiled program; tables and
heat maps."""

import functools
import importlib
import itertools
import os

import jax
import jax.numpy as jnp
import matplotlib

matplotlib.use("agg")
import matplotlib.pyplot as plt
import numpy as np
import pytest
from refusing import each

import jaxsvm
from jaxsvm import plots, sweep

sweeps = importlib.import_module("jaxsvm.loops.sweeping")  # the package has a function of this name

A, B = jnp.array([0.5, -1.0, 2.0, 3.0, -0.25]), jnp.array([1.0, 4.0])
C, X = jnp.array([-2.0, 0.0, 7.0]), jnp.linspace(-1.0, 2.0, 6)
AB = np.outer(A, B)


def fn(a, x, b=1.0, *, c=0.5, shift=0.0):
    """Not symmetric in anything; a tree of several shapes, with a whole number and a result that no
    axis moves."""
    value = jnp.sin(a * x) * b + c * a + shift
    error = (jnp.sum(value) - b, jnp.sum(value > c, dtype=jnp.int32))
    return {"value": value, "error": error, "same": 2 * x[:2]}


def swept(f, *args, rest=None, **axes):
    """Without a bar, at these arguments."""
    return sweep(f, **axes, progress=False)(*args, **rest or {})


def loops(f, **axes):
    """f at every point, in NumPy, stacked to axes in front."""
    points = itertools.product(*(np.asarray(axis) for axis in axes.values()))
    made = [f(**dict(zip(axes, point, strict=True))) for point in points]
    shape = tuple(len(axis) for axis in axes.values())
    stacked = lambda *leaves: np.stack([np.asarray(a) for a in leaves])
    return jax.tree.map(lambda *a: stacked(*a).reshape(*shape, *a[0].shape), *made)


def same(got, want):
    assert jax.tree.structure(got) == jax.tree.structure(want)
    for one, other in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        assert one.shape == other.shape and one.dtype == other.dtype
        # float32: a handful of roundings on numbers of size 10
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-6)


def on_host(fn, b):
    """The function of one number, by Python."""
    like = jax.ShapeDtypeStruct((), jnp.float32)
    return jax.pure_callback(fn, like, b, vmap_method="sequential")


# numbers

GRIDS = {
    "two": ({"a": A, "b": B}, {}),
    "one": ({"a": A}, {}),
    "the order of the call": ({"b": B, "a": A}, {}),
    "three, one by name only": ({"c": C, "a": A, "b": B}, {"shift": 1.0}),
    "one number, no vectors of JAX": ({"a": [2.0], "b": np.array([1.0, 4.0], np.float32)}, {}),
}


@pytest.mark.long
@pytest.mark.parametrize("name", GRIDS)
def test_the_numbers_of_loops_outside_and_inside(name):
    axes, rest = GRIDS[name]
    run, quiet = sweep(fn, **axes), sweep(fn, **axes, progress=False)
    outside = [quiet(x, **rest) for x in (X, 2 * X)]
    same(outside[0], loops(jax.jit(lambda **at: fn(x=X, **at, **rest)), **axes))
    same(jax.jit(run)(X, **rest), outside[0])
    together = jax.jit(jax.vmap(lambda x: run(x, **rest)))(jnp.stack([X, 2 * X]))
    for i, wanted in enumerate(outside):
        same(jax.tree.map(lambda a, i=i: a[i], together), wanted)


@pytest.mark.long
@pytest.mark.parametrize("chunk", [2, 1, 3, 4, 5, 99])
def test_chunks_that_do_not_divide_the_axis_give_the_same_numbers(chunk):
    same(swept(fn, X, a=A, b=B, chunk=chunk), loops(lambda a, b: fn(a, X, b), a=A, b=B))


@pytest.mark.long
def test_arguments_stand_in_the_order_of_the_signature_without_the_axes_or_by_name():
    def order(p, lam, q, r=100.0):
        return p + 10 * q + r + 0 * lam

    run = sweep(order, lam=B, progress=False)
    for got in (run(1.0, 2.0), run(1.0, q=2.0), run(q=2.0, p=1.0)):
        np.testing.assert_array_equal(got, [121.0, 121.0])
    np.testing.assert_array_equal(run(1.0, 2.0, 3.0), [24.0, 24.0])
    open_ended = lambda x, **numbers: x + numbers["a"] * 10 + numbers["other"]
    got = swept(open_ended, 1.0, a=A, rest={"other": 5.0})
    np.testing.assert_allclose(got, 6 + 10 * A, rtol=1e-6)
    whole = lambda k, lam: k * 2 + (lam > 1).astype(jnp.int32)
    got = swept(whole, k=jnp.arange(3), lam=B)
    assert got.dtype == jnp.int32 and got.tolist() == [[0, 1], [2, 3], [4, 5]]


@pytest.mark.long
def test_models_and_errors_over_two_numbers_are_those_of_single_runs():
    x, key = np.random.default_rng(0).normal(size=(12, 2)).astype(np.float32), jax.random.key(0)
    data = jaxsvm.dataset(x, [1, -1, 1] * 4)

    def train(lam, C, data, key):
        scaled = data._replace(x=data.x * lam)
        model = jaxsvm.fit(jaxsvm.sdca(C), scaled, key, steps=24, every=24).model
        return model.w, jaxsvm.error_on(data)(model)

    axes = {"lam": jnp.array([0.5, 1.0, 2.0]), "C": jnp.array([0.1, 10.0])}
    w, error = swept(train, data, key, **axes)
    one, wrong = loops(functools.partial(jax.jit(train), data=data, key=key), **axes)
    assert w.shape == (3, 2, 2) and error.shape == (3, 2)
    np.testing.assert_allclose(w, one, rtol=1e-4, atol=1e-6)  # 24 steps of float32
    np.testing.assert_array_equal(error, wrong)


# transformations


def test_inside_jit_without_arguments_the_grid_is_part_of_the_program():
    run = sweep(lambda a, b: a * b, a=A, b=B)
    np.testing.assert_allclose(jax.jit(lambda: run())(), AB, rtol=1e-6)
    made = jax.jit(lambda scale: sweep(lambda a, b: a - b, a=A * scale, b=B)())(3.0)
    np.testing.assert_allclose(made, 3 * A[:, None] - B[None, :], rtol=1e-6)


@pytest.mark.long
def test_the_gradient_of_a_sweep_is_the_sum_of_gradients():
    total = lambda x: jnp.sum(sweep(lambda a, b, x: jnp.sum(jnp.sin(a * x)) * b, a=A, b=B)(x))
    want = (np.asarray(A)[:, None] * np.cos(np.outer(A, X))).sum(0) * np.asarray(B).sum()
    for slope in (jax.jit(jax.grad(total)), jax.grad(total)):
        np.testing.assert_allclose(slope(X), want, rtol=1e-5, atol=1e-5)


# one program


@pytest.mark.parametrize("memory", [None, 1e6])
@pytest.mark.parametrize("chunk", [None, 2])
def test_the_function_is_traced_once_for_the_whole_grid(memory, chunk):
    traces = []
    f = lambda a, b, x: traces.append(1) or a * b + jnp.sum(x)
    run = sweep(f, a=A, b=B, memory=memory, chunk=chunk, progress=False)
    np.testing.assert_allclose(run(X), AB + np.sum(X), rtol=1e-6)
    run(X + 1)
    assert len(traces) == 1


def test_what_does_not_depend_on_the_first_axis_is_worked_out_once_for_all_its_values():
    """A host callback counts: once for each number of the second axis, not once for each point."""
    calls = []
    f = lambda a, b: a + on_host(lambda b: calls.append(float(b)) or np.float32(b), b)
    np.testing.assert_allclose(swept(f, a=A, b=B), A[:, None] + B[None, :], rtol=1e-6)
    assert sorted(calls) == [1.0, 4.0]
    calls.clear()
    swept(f, b=B, a=A)
    assert len(calls) == 10


@pytest.mark.long
def test_threads_compute_in_the_precision_of_the_caller(x64):
    traces, (a, b) = [], (np.linspace(0, 1, 3), np.linspace(1, 2, 4))
    third = lambda a, b, shift: traces.append(1) or a * b + jnp.asarray(np.float64(1) / 3) + shift
    values = swept(third, 0.1, a=jnp.asarray(a), b=jnp.asarray(b))
    assert values.dtype == jnp.float64 and len(traces) == 1
    np.testing.assert_allclose(values, np.outer(a, b) + 1 / 3 + 0.1, rtol=1e-15)


# memory


def _wide(a, b, x):
    return jnp.sin(a * x) + b


# one point of `_wide` has a result of 4000 bytes, and takes WIDE itself
WIDE = jnp.linspace(0.0, 1.0, 1000)
EIGHT = jnp.arange(8.0)


@pytest.fixture
def programs(monkeypatch):
    """(width, threads, memory) of each program that `widest_program` chose."""
    chosen, plan = [], sweeps.widest_program

    def spy(*args):
        program, width, threads, *rest = plan(*args)
        chosen.append((width, threads, program.memory_analysis()))
        return program, width, threads, *rest

    monkeypatch.setattr(sweeps, "widest_program", spy)
    return chosen


@pytest.mark.long(but=3)
@pytest.mark.parametrize(("room", "width"), [(8, 8), (5, 4), (2, 2), (1, 1)])
def test_the_first_axis_is_cut_until_it_fits(programs, room, width):
    bound = 4000 * (room + 1) + 200  # results of `room` points, WIDE, and some numbers
    got = swept(_wide, WIDE, a=EIGHT, b=B, memory=bound)
    want = np.sin(np.outer(EIGHT, WIDE))[:, None] + np.asarray(B)[:, None]
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
    [(found, threads, used)] = programs
    assert found == width and 1 <= threads <= os.cpu_count()
    own = used.temp_size_in_bytes + used.output_size_in_bytes
    assert used.argument_size_in_bytes + threads * own <= bound


@pytest.mark.long
def test_a_chunk_is_the_widest_and_as_many_threads_as_fit(programs, monkeypatch):
    swept(_wide, WIDE, a=EIGHT, b=B, memory=1e6, chunk=3)
    assert programs[0][0] == 3
    monkeypatch.setattr(sweeps, "processors", lambda: 4)
    for room, threads in ((8, 1), (16, 2), (100, 4)):
        got = swept(_wide, WIDE, a=EIGHT, b=C, memory=4000 * (room + 1) + 1000)
        assert got.shape == (8, 3, 1000) and programs[-1][:2] == (8, threads)


@pytest.mark.long
def test_the_memory_that_a_call_takes_is_told():
    sort = lambda x, y: jnp.sort(jnp.outer(x, y), axis=0)
    fn = lambda a, b, x: jnp.max(sort(x * a, x) @ sort(x, x * b))
    x, axes = jnp.ones(256), {"a": jnp.arange(1.0, 9.0), "b": jnp.arange(3.0)}
    free, bound = sweep(fn, progress=False, **axes), 3 * 2**20
    tight = sweep(fn, memory=bound, progress=False, **axes)
    assert 256 * 256 * 4 < tight.memory(x) <= bound < free.memory(x)
    np.testing.assert_allclose(tight(x), free(x), rtol=1e-6)


# errors

EXTRA = lambda a, b, x: a + b + x
AXES = {"a": A}, {"a": A, "b": B}, {"b": B, "a": A}, {"a": A, "b": B, "c": C}
flat = lambda axes: sweep.table(jnp.zeros([len(axis) for axis in axes.values()]), **axes)
WRONG_SHAPE = jnp.ones((5, 3))
WRONG = "chunk must be a whole number of at least 1", "memory must be a finite number above 0"
NO_VECTOR = "the axis b must be a vector of at least one number, got"
REFUSED = [  # calls, what the sentence says
    (lambda: sweep(fn), "at least one axis"),
    *each(NO_VECTOR, lambda wrong: sweep(fn, a=A, b=wrong), 1.0, jnp.ones((2, 2)), []),
    (lambda: sweep(fn, lam=A), "no parameter named lam, only a, x, b, c, shift"),
    *each(WRONG[0], lambda wrong: sweep(fn, a=A, chunk=wrong), 0, -1, 2.0),
    *each(WRONG[1], lambda wrong: sweep(fn, a=A, memory=wrong), 0, -1.0, np.nan),
    (lambda: swept(EXTRA, 1.0, 2.0, a=A, b=B), "fn takes 1 arguments beside a, b, got 2"),
    (lambda: swept(EXTRA, a=A, b=B), "missing 1 required positional argument: 'x'"),
    *each("values have .*, the axes", lambda axes: sweep.table(WRONG_SHAPE, **axes), *AXES),
    (lambda: sweep.table(jnp.zeros((5, 1)), a=A), "values have shape .*, the axes .* have"),
    (lambda: sweep.table(jnp.zeros(())), "a table takes the axes of the sweep"),
    (lambda: sweep.table(jnp.zeros(()), lam=1.0), "a table takes the axes of the sweep"),
    (lambda: sweep.table(jnp.full(2, jnp.nan), a=B).best, "no value of the table is finite"),
    (lambda: plots.heatmap(np.ones((2, 2))), "takes a table, got an array"),
    (lambda: plots.heatmap(flat(AXES[0])), "two axes, got 1: a"),
    (lambda: plots.heatmap(flat(AXES[3])), "two axes, got 3: a, b, c"),
]


@pytest.mark.parametrize(("call", "words"), REFUSED)
def test_what_sweeps_and_their_tables_refuse(call, words):
    with pytest.raises((ValueError, TypeError), match=words):
        call()


def test_a_point_that_takes_more_than_the_memory_is_refused_before_anything_runs():
    ran = []
    f = lambda a, x: jax.debug.callback(lambda: ran.append(1)) or a * x
    with pytest.raises(ValueError, match=r"one run takes .* bytes, memory=100: raise memory"):
        swept(f, WIDE, a=A, memory=100)
    jax.effects_barrier()
    assert not ran


def test_an_exception_inside_the_function_comes_out(capsys):
    def f(a, b):
        raise RuntimeError("of my own")

    with pytest.raises(RuntimeError, match="of my own"):
        sweep(f, a=A, b=B)()
    late = lambda c: np.float32(1 / (c - 7))
    with pytest.raises(Exception, match="float division by zero"):
        sweep(lambda a, c: a + on_host(lambda c: late(float(c)), c), a=A, c=C)()
    assert capsys.readouterr().err.endswith("\n")  # the bar is closed


# bar


def test_a_bar_where_there_is_more_than_one_part(capsys):
    f = lambda a, b: a * b
    for options, parts in (({}, "2/2 parts"), ({"chunk": 2}, "6/6 parts")):
        sweep(f, a=A, b=B, **options)()
        out, err = capsys.readouterr()
        assert not out and parts in err and err.endswith("\n")
    quiet = sweep(f, a=A, b=B[:1]), sweep(f, a=A, b=B, progress=False), jax.jit(sweep(f, a=A, b=B))
    for run in quiet:
        run()
        assert capsys.readouterr().err == ""


# tables

SMALL, LARGE = np.array([1e-4, 1.0]), np.array([1, 22, 3000])
BLOCKS = "c = 8\na | b   6   7\n5      4   2\n\nc = 9\na | b   6   7\n5      3   1*"
# a place beside each number for the star; columns two blanks apart
PRINTED = [
    ([0.5, 0.25, 0.25], {"lam": [0.1, 1.0, 10.0]}, "lam\n0.1   0.5\n1    0.25\n10   0.25*"),
    (
        [[0.5, 0.25, np.nan], [0.125, 0.12341, np.inf]],
        {"lam": SMALL, "s": LARGE},
        "lam | s        1       22    3e+03\n"
        "0.0001      0.5     0.25      nan\n"
        "1         0.125   0.1234*     inf",
    ),
    ([[[4.0, 3.0], [2.0, 1.0]]], {"a": [5.0], "b": [6.0, 7.0], "c": [8.0, 9.0]}, BLOCKS),
    ([np.nan], {"lam": [1.0]}, "lam\n1    nan"),
]


@pytest.mark.parametrize(("values", "axes", "text"), PRINTED)
def test_a_table_in_print(values, axes, text):
    made = sweep.table(np.array(values), **{name: np.array(axis) for name, axis in axes.items()})
    assert str(made) == text
    assert made.axes.keys() == axes.keys()


BEST = [  # values over lam and s, the best numbers
    ([[3, 2, 1], [1, 1, 5]], (1.0, 2.0)),  # means of adjacent points: 8/3, and 12/5 for the others
    ([[1, 2, 9], [2, 2, 1]], (0.1, 2.0)),  # 2 against 13/3
    ([[0, 0, 1.75], [3, 3, 1.75]], (0.1, 4.0)),  # 9.5/5 against 6/3: without the point itself
    ([[1, 5, 1], [2, 2, np.nan]], (0.1, 2.0)),  # nan counts as 5
    ([[1, 5, 1], [9, 2, -np.inf]], (0.1, 8.0)),  # 16/3 both: the larger s
    ([[1, 5, 1], [9, 2, np.inf]], (0.1, 8.0)),
    ([[4, 4, 4], [4, 4, 4]], (1.0, 8.0)),  # flat: the largest numbers
    ([[np.nan, 2, 9], [-np.inf, np.inf, 1.5]], (1.0, 8.0)),
    ([[-1, -2, -3], [-4, -5, np.nan]], (1.0, 4.0)),
]


@pytest.mark.parametrize(("values", "best"), BEST)
def test_the_best_point_is_a_least_one_that_is_finite_in_the_flattest_neighbourhood(values, best):
    lam, s = np.array([0.1, 1.0]), np.array([2.0, 4.0, 8.0])
    found = sweep.table(jnp.array(values, float), lam=lam, s=s).best
    assert found == {"lam": best[0], "s": best[1]}
    assert all(type(v) is float for v in found.values())


@pytest.mark.parametrize("lam", [[0.1, 1.0, 10.0], [10.0, 1.0, 0.1], [1.0, 10.0, 0.1]], ids=str)
def test_equal_neighbourhoods_leave_the_largest_number_of_the_first_axis(lam):
    """By number, not by place; with one axis and with two."""
    flat = sweep.table(np.full(3, 0.25), lam=np.array(lam))
    assert flat.best == {"lam": 10.0}
    flat = sweep.table(np.full((2, 3), 0.25), s=np.array([4.0, 2.0]), lam=np.array(lam))
    assert flat.best == {"s": 4.0, "lam": 10.0}


# heat maps


@pytest.fixture
def grid():
    values = np.array([[0.5, 0.25, np.nan], [0.125, 0.0625, 0.3]])
    yield sweep.table(values, lam=SMALL, s=np.array([1.0, 22.0, 300.0]))
    plt.close("all")


def _texts(ax):
    return [[t.get_text() for t in ax.texts if t.get_position()[1] == i] for i in range(2)]


def test_a_heat_map_has_labels_texts_and_a_frame_at_the_best_cell(grid):
    ax = plots.heatmap(grid)
    labels = ax.get_xlabel(), ax.get_ylabel(), ax.images[0].colorbar.ax.get_ylabel()
    assert labels == ("s", "lam", "validation error in per cent")
    assert [t.get_text() for t in ax.get_xticklabels()] == ["1", "22", "300"]
    assert [t.get_text() for t in ax.get_yticklabels()] == ["0.0001", "1"]
    assert _texts(ax) == [["50.0", "25.0", "nan"], ["12.5", "6.2", "30.0"]]
    assert [t.get_position() for t in ax.texts] == [(j, i) for i in range(2) for j in range(3)]
    [frame] = ax.patches
    assert (*frame.get_xy(), frame.get_width(), frame.get_height()) == (0.5, 0.5, 1, 1)
    assert not frame.get_fill()
    np.testing.assert_array_equal(ax.images[0].get_array().filled(np.nan), 100 * grid.values)
    ax.figure.canvas.draw()


def test_a_heat_map_draws_onto_what_it_is_given(grid):
    figure, axes = plt.subplots(1, 2)
    before = plt.get_fignums()
    assert plots.heatmap(grid, ax=axes[1], label="risk", percent=False) is axes[1]
    assert plt.get_fignums() == before
    assert not axes[0].images
    assert axes[1].images[0].colorbar.ax.get_ylabel() == "risk"
    assert _texts(axes[1]) == [["0.5", "0.25", "nan"], ["0.125", "0.0625", "0.3"]]
