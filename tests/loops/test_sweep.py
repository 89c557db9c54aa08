"""`sweep` against nested Python loops, its use of memory and of one compiled program; tables and
heat maps."""

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

import jaxsvm
from jaxsvm import plots, sweep

sweeps = importlib.import_module("jaxsvm.loops.sweeping")  # the package has a function of this name

A, B, C = (
    jnp.array([0.5, -1.0, 2.0, 3.0, -0.25]),
    jnp.array([1.0, 4.0]),
    jnp.array([-2.0, 0.0, 7.0]),
)
X = jnp.linspace(-1.0, 2.0, 6)
TOL = {"rtol": 1e-6, "atol": 1e-6}  # float32: a handful of roundings on numbers of size 10


def fn(a, x, b=1.0, *, c=0.5, shift=0.0):
    """Not symmetric in anything; a tree of several shapes, with a whole number and a result that no
    axis moves."""
    value = jnp.sin(a * x) * b + c * a + shift
    return {
        "value": value,
        "error": (jnp.sum(value) - b, jnp.sum(value > c, dtype=jnp.int32)),
        "same": 2 * x[:2],
    }


def loops(make, *axes):
    """make(*numbers) at every point, in NumPy, stacked to axes in front."""
    made = [make(*numbers) for numbers in itertools.product(*axes)]
    shape = tuple(len(axis) for axis in axes)
    return jax.tree.map(
        lambda *leaves: np.stack([np.asarray(a) for a in leaves]).reshape(*shape, *leaves[0].shape),
        *made,
    )


def same(got, want):
    assert jax.tree.structure(got) == jax.tree.structure(want)
    for one, other in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        assert one.shape == other.shape and one.dtype == other.dtype
        np.testing.assert_allclose(one, other, **TOL)


def counted(f=None):
    """A function and the list that grows at each of its traces."""
    traces = []

    def counting(a, b, x=1.0):
        traces.append(1)
        return (a * b + jnp.sum(x)) if f is None else f(a, b, x)

    return counting, traces


# numbers


@pytest.mark.long
def test_one_axis():
    same(sweep(fn, a=A, progress=False)(X), loops(lambda a: fn(a, X), A))


@pytest.mark.long
def test_two_axes_in_the_order_of_the_call():
    same(sweep(fn, a=A, b=B, progress=False)(X), loops(lambda a, b: fn(a, X, b), A, B))
    same(sweep(fn, b=B, a=A, progress=False)(X), loops(lambda b, a: fn(a, X, b), B, A))


@pytest.mark.long
def test_three_axes_one_of_them_by_name_only():
    want = loops(lambda c, a, b: fn(a, X, b, c=c, shift=1.0), C, A, B)
    same(sweep(fn, c=C, a=A, b=B, progress=False)(X, shift=1.0), want)


@pytest.mark.long
def test_an_axis_of_one_number_and_axes_given_as_lists_or_whole_numbers():
    same(
        sweep(fn, a=[2.0], b=np.array([1.0, 4.0], np.float32), progress=False)(X),
        loops(lambda a, b: fn(a, X, b), [2.0], B),
    )
    got = sweep(
        lambda k, lam: k * 2 + (lam > 1).astype(jnp.int32), k=jnp.arange(3), lam=B, progress=False
    )()
    assert got.dtype == jnp.int32
    np.testing.assert_array_equal(got, [[0, 1], [2, 3], [4, 5]])


def test_arguments_stand_in_the_order_of_the_signature_without_the_axes_or_by_name():
    def order(p, lam, q, r=100.0):
        return p + 10 * q + r + 0 * lam

    run = sweep(order, lam=B, progress=False)
    for got in (run(1.0, 2.0), run(1.0, q=2.0), run(q=2.0, p=1.0)):
        np.testing.assert_array_equal(got, [121.0, 121.0])
    np.testing.assert_array_equal(run(1.0, 2.0, 3.0), [24.0, 24.0])


def test_a_function_with_open_keywords():
    got = sweep(lambda x, **numbers: x + numbers["a"] * 10 + numbers["other"], a=A, progress=False)(
        1.0, other=5.0
    )
    np.testing.assert_allclose(got, 6 + 10 * A, rtol=1e-6)


@pytest.mark.long
def test_models_and_errors_over_two_numbers_are_those_of_single_runs():
    data = jaxsvm.dataset(
        np.random.default_rng(0).normal(size=(12, 2)).astype(np.float32), [1, -1, 1] * 4
    )
    key = jax.random.key(0)

    def train(lam, C, data, key):
        model = jaxsvm.fit(
            jaxsvm.sdca(C), data._replace(x=data.x * lam), key, steps=24, every=24
        ).model
        return model, jaxsvm.error_on(data)(model)

    single = jax.jit(train)
    lams, Cs = [0.5, 1.0, 2.0], [0.1, 10.0]
    model, error = sweep(train, lam=jnp.array(lams), C=jnp.array(Cs), progress=False)(data, key)
    assert model.w.shape == (3, 2, 2) and error.shape == (3, 2)
    for i, j in itertools.product(range(3), range(2)):
        one, wrong = single(lams[i], Cs[j], data, key)
        # 24 steps of float32
        np.testing.assert_allclose(model.w[i, j], one.w, rtol=1e-4, atol=1e-6)
        assert float(error[i, j]) == float(wrong)


# transformations


@pytest.mark.long
@pytest.mark.parametrize("axes", [{"a": A}, {"a": A, "b": B}, {"c": C, "b": B, "a": A}], ids=len)
def test_inside_jit_and_vmap_the_same_numbers(axes):
    run = sweep(fn, **axes)
    rest = {} if "a" in axes else {"a": 1.0}
    outside = sweep(fn, **axes, progress=False)(X, **rest)
    same(jax.jit(run)(X, **rest), outside)
    xs = jnp.stack([X, 2 * X])
    together = jax.jit(jax.vmap(lambda x: run(x, **rest)))(xs)
    for i in range(2):
        same(
            jax.tree.map(lambda a, i=i: a[i], together),
            sweep(fn, **axes, progress=False)(xs[i], **rest),
        )


def test_inside_jit_without_arguments_the_grid_is_part_of_the_program():
    run = sweep(lambda a, b: a * b, a=A, b=B)
    np.testing.assert_allclose(jax.jit(lambda: run())(), np.outer(A, B), rtol=1e-6)


def test_the_gradient_of_a_sweep_is_the_sum_of_gradients():
    total = lambda x: jnp.sum(sweep(lambda a, b, x: jnp.sum(jnp.sin(a * x)) * b, a=A, b=B)(x))
    want = (np.asarray(A)[:, None] * np.cos(np.outer(A, X))).sum(0) * np.asarray(B).sum()
    np.testing.assert_allclose(jax.jit(jax.grad(total))(X), want, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(jax.grad(total)(X), want, rtol=1e-5, atol=1e-5)


def test_axes_made_inside_a_program():
    got = jax.jit(lambda scale: sweep(lambda a, b: a - b, a=A * scale, b=B)())(3.0)
    np.testing.assert_allclose(got, 3 * A[:, None] - B[None, :], rtol=1e-6)


# one program


@pytest.mark.parametrize("memory", [None, 1e6])
@pytest.mark.parametrize("chunk", [None, 2])
def test_the_function_is_traced_once_for_the_whole_grid(memory, chunk):
    f, traces = counted()
    run = sweep(f, a=A, b=B, memory=memory, chunk=chunk, progress=False)
    np.testing.assert_allclose(run(X), np.outer(A, B) + np.sum(X), rtol=1e-6)
    assert len(traces) == 1
    run(X + 1)
    assert len(traces) == 1


def test_what_does_not_depend_on_the_first_axis_is_worked_out_once_for_all_its_values():
    """A host callback counts: once for each number of the second axis, not once for each point."""
    calls = []

    def count(b):
        calls.append(float(b))
        return np.float32(b)

    def f(a, b):
        return a + jax.pure_callback(
            count, jax.ShapeDtypeStruct((), jnp.float32), b, vmap_method="sequential"
        )

    np.testing.assert_allclose(
        sweep(f, a=A, b=B, progress=False)(), A[:, None] + B[None, :], rtol=1e-6
    )
    assert sorted(calls) == [1.0, 4.0]
    calls.clear()
    sweep(f, b=B, a=A, progress=False)()
    assert len(calls) == 10


@pytest.mark.long(but=1)
@pytest.mark.parametrize("chunk", [1, 2, 3, 4, 5, 99])
def test_chunks_that_do_not_divide_the_axis_give_the_same_numbers(chunk):
    same(sweep(fn, a=A, b=B, chunk=chunk, progress=False)(X), loops(lambda a, b: fn(a, X, b), A, B))


# memory


def _wide(a, b, x):
    return jnp.sin(a * x) + b


# one point of `_wide` has a result of 4000 bytes, and takes WIDE itself
WIDE = jnp.linspace(0.0, 1.0, 1000)


def _fits(monkeypatch):
    """(width, threads) of each program that `widest_program` chose."""
    chosen, plan = [], sweeps.widest_program

    def spy(*args):
        program, width, threads, *rest = plan(*args)
        chosen.append((width, threads, program.memory_analysis()))
        return program, width, threads, *rest

    monkeypatch.setattr(sweeps, "widest_program", spy)
    return chosen


@pytest.mark.parametrize(("room", "width"), [(8, 8), (5, 4), (2, 2), (1, 1)])
def test_the_first_axis_is_cut_until_it_fits(monkeypatch, room, width):
    chosen, axis = _fits(monkeypatch), jnp.arange(8.0)
    bound = 4000 * (room + 1) + 200  # results of `room` points, WIDE, and some numbers
    got = sweep(_wide, a=axis, b=B, memory=bound, progress=False)(WIDE)
    np.testing.assert_allclose(
        got,
        np.sin(np.multiply.outer(np.outer(axis, [1, 1]), WIDE)) + np.asarray(B)[:, None],
        rtol=1e-5,
        atol=1e-6,
    )
    [(found, threads, used)] = chosen
    assert found == width
    own = used.temp_size_in_bytes + used.output_size_in_bytes
    assert used.argument_size_in_bytes + threads * own <= bound
    assert 1 <= threads <= os.cpu_count()


def test_a_chunk_is_the_widest_that_memory_may_choose(monkeypatch):
    chosen = _fits(monkeypatch)
    sweep(_wide, a=jnp.arange(8.0), b=B, memory=1e6, chunk=3, progress=False)(WIDE)
    assert chosen[0][0] == 3


def test_as_many_threads_as_fit(monkeypatch):
    chosen = _fits(monkeypatch)
    monkeypatch.setattr(sweeps, "processors", lambda: 4)
    for room, threads in ((8, 1), (16, 2), (100, 4)):
        got = sweep(_wide, a=jnp.arange(8.0), b=C, memory=4000 * (room + 1) + 1000, progress=False)(
            WIDE
        )
        assert got.shape == (8, 3, 1000)
        assert chosen[-1][:2] == (8, threads)


def test_a_point_that_takes_more_than_the_memory_is_refused_before_anything_runs():
    ran = []

    def f(a, x):
        jax.debug.callback(lambda: ran.append(1))
        return a * x

    with pytest.raises(
        ValueError, match=r"one run takes .* bytes, memory=100: raise memory, or use fewer"
    ):
        sweep(f, a=A, memory=100, progress=False)(WIDE)
    jax.effects_barrier()
    assert not ran


# errors


def test_wrong_axes_are_refused():
    with pytest.raises(ValueError, match="at least one axis"):
        sweep(fn)
    for wrong in (1.0, jnp.ones((2, 2)), []):
        with pytest.raises(
            ValueError, match="the axis b must be a vector of at least one number, got"
        ):
            sweep(fn, a=A, b=wrong)
    with pytest.raises(ValueError, match="no parameter named lam, only a, x, b, c, shift"):
        sweep(fn, lam=A)


@pytest.mark.parametrize("chunk", [0, -1, 2.0])
def test_wrong_chunks_are_refused(chunk):
    with pytest.raises(ValueError, match="chunk must be a whole number of at least 1"):
        sweep(fn, a=A, chunk=chunk)


@pytest.mark.parametrize("memory", [0, -1.0, np.nan])
def test_a_wrong_memory_is_refused(memory):
    with pytest.raises(ValueError, match="memory must be a finite number above 0"):
        sweep(fn, a=A, memory=memory)


def test_too_many_and_too_few_arguments_are_refused():
    with pytest.raises(TypeError, match="fn takes 1 arguments beside a, b, got 2"):
        sweep(lambda a, b, x: a + b + x, a=A, b=B, progress=False)(1.0, 2.0)
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'x'"):
        sweep(lambda a, b, x: a + b + x, a=A, b=B, progress=False)()


def test_an_exception_inside_the_function_comes_out(capsys):
    def f(a, b):
        raise RuntimeError("of my own")

    with pytest.raises(RuntimeError, match="of my own"):
        sweep(f, a=A, b=B)()

    def late(b):
        if b == 7:
            raise ArithmeticError("at the last point")
        return np.float32(b)

    def g(a, c):
        return a + jax.pure_callback(
            late, jax.ShapeDtypeStruct((), jnp.float32), c, vmap_method="sequential"
        )

    with pytest.raises(Exception, match="at the last point"):
        sweep(g, a=A, c=C)()
    assert capsys.readouterr().err.endswith("\n")  # the bar is closed


# bar


def test_a_bar_where_there_is_more_than_one_part(capsys):
    f = lambda a, b: a * b
    sweep(f, a=A, b=B)()
    err = capsys.readouterr()
    assert not err.out
    assert "2/2 parts" in err.err and err.err.endswith("\n")
    sweep(f, a=A, b=B, chunk=2)()
    assert "6/6 parts" in capsys.readouterr().err
    for quiet in (
        sweep(f, a=A, b=B[:1]),
        sweep(f, a=A, b=B, progress=False),
        jax.jit(sweep(f, a=A, b=B)),
    ):
        quiet()
        assert capsys.readouterr().err == ""


# tables


def test_a_table_of_two_axes_in_print():
    shown = sweep.table(
        np.array([[0.5, 0.25, np.nan], [0.125, 0.12341, np.inf]]),
        lam=np.array([1e-4, 1.0]),
        s=np.array([1, 22, 3000]),
    )
    # a place beside each number for the star; columns two blanks apart
    want = """\
lam | s        1       22    3e+03
0.0001      0.5     0.25      nan
1         0.125   0.1234*     inf"""
    assert str(shown) == want


def test_a_table_of_one_axis_in_print():
    shown = sweep.table(np.array([0.5, 0.25, 0.25]), lam=np.array([0.1, 1.0, 10.0]))
    assert str(shown) == "lam\n0.1   0.5\n1    0.25\n10   0.25*"


def test_a_table_of_three_axes_in_print_has_blocks():
    values = np.array([[[4.0, 3.0], [2.0, 1.0]]])  # a, b, c
    shown = sweep.table(values, a=np.array([5.0]), b=np.array([6.0, 7.0]), c=np.array([8.0, 9.0]))
    assert str(shown) == "c = 8\na | b   6   7\n5      4   2\n\nc = 9\na | b   6   7\n5      3   1*"


def test_the_best_point_is_a_least_one_that_is_finite_in_the_flattest_neighbourhood():
    lam, s = np.array([0.1, 1.0]), np.array([2.0, 4.0, 8.0])
    for values, best in (
        (
            [[3, 2, 1], [1, 1, 5]],
            (1.0, 2.0),
        ),  # means of adjacent points: 8/3 for the first 1, 2 and 12/5 for the others
        ([[1, 2, 9], [2, 2, 1]], (0.1, 2.0)),  # 2 against 13/3
        ([[1, 5, 1], [2, 2, np.nan]], (0.1, 2.0)),  # nan counts as 5
        ([[1, 5, 1], [9, 2, -np.inf]], (0.1, 8.0)),  # 16/3 both: the larger s
        ([[1, 5, 1], [9, 2, np.inf]], (0.1, 8.0)),
        ([[4, 4, 4], [4, 4, 4]], (1.0, 8.0)),  # flat: the largest numbers
        ([[np.nan, 2, 9], [-np.inf, np.inf, 1.5]], (1.0, 8.0)),
        ([[-1, -2, -3], [-4, -5, np.nan]], (1.0, 4.0)),
    ):
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
    assert sweep.table(np.array([0.5]), lam=np.array([3.0])).best == {"lam": 3.0}


@pytest.mark.parametrize(
    "axes", [{"a": A}, {"a": A, "b": B}, {"b": B, "a": A}, {"a": A, "b": B, "c": C}], ids=str
)
def test_a_table_needs_the_shape_of_its_axes(axes):
    shape = {"a": (5, 1), "b": (2,)}
    wrong = jnp.zeros(shape["a"] if len(axes) < 2 else (5, 3))
    with pytest.raises(ValueError, match=r"values have shape .*, the axes .* have"):
        sweep.table(wrong, **axes)
    right = jnp.zeros(tuple(len(axis) for axis in axes.values()))
    assert sweep.table(right, **axes).axes.keys() == axes.keys()


# heat maps


@pytest.fixture
def grid():
    yield sweep.table(
        np.array([[0.5, 0.25, np.nan], [0.125, 0.0625, 0.3]]),
        lam=np.array([1e-4, 1.0]),
        s=np.array([1.0, 22.0, 300.0]),
    )
    plt.close("all")


def _texts(ax):
    return [[t.get_text() for t in ax.texts if t.get_position()[1] == i] for i in range(2)]


def test_a_heat_map_has_labels_texts_and_a_frame_at_the_best_cell(grid):
    ax = plots.heatmap(grid)
    assert (ax.get_xlabel(), ax.get_ylabel(), ax.get_title()) == (
        "s",
        "lam",
        "validation error in per cent",
    )
    assert [t.get_text() for t in ax.get_xticklabels()] == ["1", "22", "3e+02"]
    assert [t.get_text() for t in ax.get_yticklabels()] == ["1.0e-04", "1.0e+00"]
    assert _texts(ax) == [["50.0", "25.0", "nan"], ["12.5", "6.2", "30.0"]]
    assert [t.get_position() for t in ax.texts] == [(j, i) for i in range(2) for j in range(3)]
    [frame] = ax.patches
    assert (
        frame.get_xy() == (0.5, 0.5)
        and (frame.get_width(), frame.get_height()) == (1, 1)
        and not frame.get_fill()
    )
    np.testing.assert_array_equal(ax.images[0].get_array().filled(np.nan), grid.values)
    ax.figure.canvas.draw()


def test_a_heat_map_draws_onto_what_it_is_given(grid):
    figure, axes = plt.subplots(1, 2)
    before = plt.get_fignums()
    assert plots.heatmap(grid, ax=axes[1], label="risk", percent=False) is axes[1]
    assert plt.get_fignums() == before
    assert not axes[0].images and axes[1].get_title() == "risk"
    assert _texts(axes[1]) == [["0.5", "0.25", "nan"], ["0.125", "0.0625", "0.3"]]


@pytest.mark.parametrize("axes", [{"a": A}, {"a": A, "b": B, "c": C}], ids=len)
def test_a_heat_map_takes_two_axes_only(axes):
    values = np.zeros(tuple(len(axis) for axis in axes.values()))
    with pytest.raises(ValueError, match=f"two axes, got {len(axes)}: {', '.join(axes)}"):
        plots.heatmap(sweep.table(values, **axes))


def test_threads_compute_in_the_precision_of_the_caller(x64):
    traces = []

    def third(a, b, shift):
        traces.append(1)
        return a * b + jnp.asarray(np.float64(1) / 3) + shift

    a, b = np.linspace(0, 1, 3), np.linspace(1, 2, 4)
    values = jaxsvm.sweep(third, a=jnp.asarray(a), b=jnp.asarray(b), progress=False)(0.1)
    assert values.dtype == jnp.float64 and len(traces) == 1
    np.testing.assert_allclose(values, a[:, None] * b[None, :] + 1 / 3 + 0.1, rtol=1e-15)


def test_a_table_without_a_finite_value_or_with_wrong_axes():
    made = jaxsvm.sweep.table(jnp.full(2, jnp.nan), lam=jnp.arange(2.0))
    assert "*" not in str(made)
    with pytest.raises(ValueError, match="no value of the table is finite"):
        made.best  # noqa: B018
    for axes in ({}, {"lam": 1.0}):
        with pytest.raises(ValueError, match="a table takes the axes of the sweep"):
            jaxsvm.sweep.table(jnp.zeros(()), **axes)


@pytest.mark.long
def test_the_memory_that_a_call_takes_is_told():
    fn = lambda a, b, x: jnp.max(
        jnp.sort(jnp.outer(x * a, x), axis=0) @ jnp.sort(jnp.outer(x, x * b), axis=0)
    )
    x, axes = jnp.ones(256), {"a": jnp.arange(1.0, 9.0), "b": jnp.arange(3.0)}
    free, bound = jaxsvm.sweep(fn, progress=False, **axes), 3 * 2**20
    tight = jaxsvm.sweep(fn, memory=bound, progress=False, **axes)
    assert 256 * 256 * 4 < tight.memory(x) <= bound < free.memory(x)
    np.testing.assert_allclose(tight(x), free(x), rtol=1e-6)
