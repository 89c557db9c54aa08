"""Bad and odd input: what is accepted is what NumPy and plain Python make of it, all else gets a
sentence.

The numbers of drawn inputs are in `EXAMPLES`. Arrays for `dataset` are those of `test_robustness`.
"""

import io
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import jaxsvm
from jaxsvm import features, kernels, models

EXAMPLES = {
    "linear": 150,
    "kernel": 60,
    "mapped": 60,
    "model": 160,
    "noise": 40,
    "stream": 60,
    "estimator": 50,
}
REFUSALS = (ValueError, TypeError, FileNotFoundError, ImportError)
BIG = float(np.finfo(np.float32).max)


def fuzz(name):
    return settings(
        max_examples=EXAMPLES[name],
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )


def attempt(fn, *args, **kwargs):
    """(result, None), or (None, the sentence of a refusal); any other exception is a failure of the
    test."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return fn(*args, **kwargs), None
    except REFUSALS as error:
        said = str(error)
        assert len(said) >= 20 and " " in said, repr(error)
        return None, said


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("fuzz")


# Numbers and things

NUMBERS = st.sampled_from(
    [0, 1, -1, 2, 0.5, -0.25, 3, 7, 1e-3, 1e3, 1e-45, 1e-300, 1e19, 1e38, -3e38, 1e39, 1e300]
)
USUAL = st.sampled_from([0, 1, -1, 2, 0.5, -0.25, 3, 7, 1e-3, 1e3])
BAD = st.sampled_from([np.nan, np.inf, -np.inf])


def rarely(draw, one_in=10):
    return draw(st.sampled_from([False] * (one_in - 1) + [True]))


THINGS = st.one_of(
    st.none(),
    st.integers(),
    st.floats(),
    st.text(max_size=4),
    st.binary(max_size=4),
    st.lists(st.lists(st.integers(-2, 2), max_size=3), max_size=4),
    st.lists(
        st.one_of(st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.text(max_size=2)),
        max_size=4,
    ),
    st.dictionaries(st.integers(0, 2), st.integers(), max_size=3),
    st.sampled_from(
        [
            np.array([[1, None]], object),
            np.array([[1, 2], [3, 4]], object),
            np.ones((2, 2), complex),
            np.array([["1", "2"], ["3", "4"]]),
            np.zeros((2, 2), "M8[s]"),
            np.zeros(2, [("a", "f4")]),
            np.zeros((2, 2), "V4"),
            np.ones((2, 2, 2)),
            np.float64(1),
            np.ma.masked_equal([[1.0, 2.0], [3.0, 4.0]], 2),
            scipy.sparse.eye(2),
            scipy.sparse.coo_array([1.0, 2.0]),
            jnp.ones((2, 2), jnp.bfloat16),
            iter([1, 2]),
            object(),
            int,
            lambda x: x,
        ]
    ),
)


ANY = THINGS.map(lambda thing: thing)  # as one choice among others


# Training: values are drawn, shapes are not, so that compiled programs serve again

N, D, SIGMA = 8, 3, 1.5
CELLS = {
    "usual": st.sampled_from([0.0, 1.0, -1.0, 0.5, 2.0, -3.0, 1e-3]),
    "large": st.sampled_from([0.0, 1.0, -1.0, 1e3, -1e6, 1e9]),
    "huge": st.sampled_from([0.0, 1.0, 1e18, -3e18, 1e19, 2e19, -1e30]),
    "tiny": st.sampled_from([0.0, 1e-10, -1e-20, 1e-38, 1e-45]),
}
KEY = jax.random.key(0)
PHI = features.fourier(KEY, kernels.rbf(SIGMA), dim=D, features=16)


@st.composite
def training(draw):
    """A data set of N rows and D columns, some rows of weight 0; None where `dataset` has refused
    it."""
    cells = CELLS[draw(st.sampled_from(["usual", "usual", "large", "huge", "tiny"]))]
    x = np.array(draw(st.lists(cells, min_size=N * D, max_size=N * D)), np.float32).reshape(N, D)
    y = np.array([1, -1, *draw(st.lists(st.sampled_from([-1, 1]), min_size=N - 2, max_size=N - 2))])
    usual, odd = st.sampled_from([0, 1, 1, 2, 0.5]), st.sampled_from([0, 1, 1e-30, 1e30, 3e38])
    w = np.array(
        [
            1,
            1,
            *draw(
                st.lists(draw(st.sampled_from([usual, usual, odd])), min_size=N - 2, max_size=N - 2)
            ),
        ]
    )
    return attempt(jaxsvm.dataset, x, y, w)[0]


def is_told(run, data, lam, score, slack, square, square_slack=0.0):
    """A finite model predicts, and is measured, as NumPy has it in float64; a run that is not
    finite says so.

    Args:
        run: of `fit`.
        data: the rows.
        lam: lambda.
        score: (n,) decision values, by NumPy from the numbers of the model.
        slack: (n,) what rounding may do to them.
        square: |w|^2, by NumPy.
        square_slack: what rounding may do to it.
    """
    assert ("not finite" in run.status) == (not run.finite) and int(run.state.step) > 0
    if not run.finite:
        return
    got = np.asarray(run.model(data.x), np.float64)
    assert (np.abs(got - score) <= slack).all(), (got, score, slack)
    y, weight = np.asarray(data.y, np.float64), np.asarray(data.weight, np.float64)
    share = weight / weight.sum()
    wanted = lam / 2 * square + share @ np.maximum(0, 1 - y * score)
    primal = float(jaxsvm.objectives.primal(run.model, data, lam))
    assert (
        abs(primal - wanted) <= share @ slack + lam * square_slack + 1e-4 * lam * square + 1e-6
    ), (primal, wanted)


LAM = st.sampled_from([1e-3, 0.1, 1.0, 30.0])
FLOAT32 = 1e-5  # some eight sums and products of relative error 6e-8 each, and room


def is_out_of_range(C):
    """Whether programs of float32 would take C for 0, as weights of 3e38 do; it is refused then."""
    is_out = C < np.finfo(np.float32).tiny
    if is_out:
        with pytest.raises(ValueError, match="numbers must be 0 or from 1.18e-38"):
            jaxsvm.fit(jaxsvm.sdca(C), jaxsvm.dataset(np.eye(2, dtype="f4"), [1, -1]), KEY, steps=2)
    return is_out


@pytest.mark.long
@fuzz("linear")
@given(training(), LAM, st.sampled_from(["pegasos", "sdca"]))
def test_linear_machines(data, lam, name):
    if data is None:
        return
    total = float(np.sum(np.asarray(data.weight, np.float64)))
    C = jaxsvm.C_from_lam(lam, total)
    if name == "sdca" and is_out_of_range(C):
        return
    run = jaxsvm.fit(
        jaxsvm.pegasos(lam) if name == "pegasos" else jaxsvm.sdca(C), data, KEY, steps=40 * N
    )
    x, w = np.asarray(data.x, np.float64), np.asarray(run.model.w, np.float64)
    square = w @ w
    is_told(run, data, lam, x @ w, FLOAT32 * (np.abs(x) @ np.abs(w)) + 1e-30, square)
    if run.finite:  # both keep lambda/2 |w|^2 below the objective of the zero model, 1
        assert lam * square <= (1 if name == "pegasos" else 2) * (1 + 1e-4)
    if run.finite and name == "sdca" and float(run.info.residual[-1]) < 1e-3:  # at the optimum
        assert float(jaxsvm.objectives.primal(run.model, data, lam)) <= 1 + 1e-2


@pytest.mark.long
@fuzz("kernel")
@given(training(), LAM)
def test_kernel_machines(data, lam):
    if data is None:
        return
    weight = np.asarray(data.weight, np.float64)
    C = jaxsvm.C_from_lam(lam, weight.sum())
    if is_out_of_range(C):
        return
    run = jaxsvm.fit(jaxsvm.sdca(C, kernels.rbf(SIGMA)), data, KEY, steps=10 * N)
    x, coef = np.asarray(data.x, np.float64), np.asarray(run.model.coef, np.float64)
    distance = ((x[:, None] - x[None]) ** 2).sum(-1)
    # of an expanded squared distance in float32
    lost = 1e-6 * ((x**2).sum(-1)[:, None] + (x**2).sum(-1)[None])
    gram = np.exp(-distance / (2 * SIGMA**2))
    slack = np.abs(
        np.exp(-np.maximum(distance - lost, 0) / (2 * SIGMA**2))
        - np.exp(-(distance + lost) / (2 * SIGMA**2))
    )
    slack = (slack + FLOAT32 * gram) @ np.abs(coef) + 1e-30
    is_told(run, data, lam, gram @ coef, slack, coef @ gram @ coef, np.abs(coef) @ slack)
    if run.finite:
        alpha = coef * np.asarray(data.y)
        assert (alpha >= -1e-6 * C).all() and (alpha <= C * weight * (1 + 1e-5)).all()


@pytest.mark.long
@fuzz("mapped")
@given(training(), LAM)
def test_machines_on_features(data, lam):
    if data is None:
        return
    run = jaxsvm.fit(jaxsvm.on_features(PHI, jaxsvm.pegasos(lam)), data, KEY, steps=5 * N)
    z, w = np.asarray(PHI(data.x), np.float64), np.asarray(run.model.inner.w, np.float64)
    phase = np.abs(np.asarray(data.x, np.float64)) @ np.abs(np.asarray(PHI.frequencies, np.float64))
    # far out float32 has no phases left
    slack = (FLOAT32 + np.minimum(2, 1e-6 * phase.max(-1))) * np.abs(w).sum()
    is_told(run, data, lam, z @ w, slack + 1e-30, w @ w)
    if run.finite:
        assert lam * (w @ w) <= 1 + 1e-4


# Bytes


@st.composite
def damage(draw, whole):
    """Bytes of a file, cut short, some bits turned, some bytes lost or put in."""
    made = bytearray(whole)
    how = draw(st.sampled_from(["cut", "bit", "bit", "bit", "bits", "lost", "more", "run"]))
    place = draw(st.integers(0, len(made) - 1))
    if how == "cut":
        return bytes(made[:place])
    if how in ("bit", "bits"):
        for _ in range(1 if how == "bit" else 5):
            made[draw(st.integers(0, len(made) - 1))] ^= 1 << draw(st.integers(0, 7))
    if how == "lost":
        del made[place : place + draw(st.integers(1, 9))]
    if how == "more":
        made[place:place] = draw(st.binary(min_size=1, max_size=9))
    if how == "run":
        made[place : place + 16] = draw(st.sampled_from([b"\0", b"\xff"])) * 16
    return bytes(made)


def npz(**arrays):
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


ROWS = np.arange(12, dtype=np.float32).reshape(6, 2)
NAMES = np.array(["b", "a"] * 3)
NPZ = npz(x=ROWS, y=NAMES, weight=np.ones(6))


EXPANSION = models.Expansion(
    kernels.rbf(1.5),
    jnp.asarray(ROWS),
    jnp.ones(6),
    jnp.float32(0.5),
    jnp.arange(6, dtype=jnp.int32),
    "feature",
)
MODEL = models.Classifier(EXPANSION, ("ham", "spam"))


@pytest.fixture(scope="module")
def saved(folder):
    models.save(folder / "model.npz", MODEL)
    return (folder / "model.npz").read_bytes()


@fuzz("model")
@given(data=st.data())
def test_damaged_models(folder, saved, data):
    path = folder / "damaged.npz"
    path.write_bytes(data.draw(damage(saved)))
    found, said = attempt(models.load, path)
    if found is None:
        assert str(path) in said and "damaged" in said or "not registered" in said
        return
    assert jax.tree.structure(found) == jax.tree.structure(MODEL)
    for leaf, wanted in zip(jax.tree.leaves(found), jax.tree.leaves(MODEL), strict=True):
        np.testing.assert_array_equal(leaf, wanted)


@fuzz("noise")
@given(
    st.one_of(
        st.binary(max_size=200),
        st.binary(max_size=50).map(lambda b: b"PK\x03\x04" + b),
        st.just(NPZ),
    )
)
def test_files_that_are_no_models(folder, text):
    path = folder / "noise.npz"
    path.write_bytes(text)
    found, said = attempt(models.load, path)
    assert found is None and str(path) in said


# Streams


GOOD = st.sampled_from(
    [
        (ROWS, np.array([1, -1] * 3)),
        (ROWS[:2].astype("f8"), [1, -1], [2, 1]),
        (ROWS[:3] > 2, np.ones(3)),
    ]
)
CHUNKS = st.one_of(
    GOOD,
    ANY,
    st.tuples(ANY, ANY),
    st.sampled_from(
        [
            (ROWS.astype("f8"), [1, -1] * 3, [1, 0, 2, 1, 1, 1]),
            (ROWS, np.zeros(6)),
            (np.ma.masked_less(ROWS, 0), np.ones(6)),
            (ROWS.astype(">f4"), np.ones(6)),
            (1e30 * ROWS, np.ones(6)),
            (ROWS, np.ones(5)),
            (ROWS, np.ones(6), -np.ones(6)),
            (ROWS, np.ones(6), np.zeros(6)),
            (ROWS, np.ones(6), np.full(6, np.nan)),
            (ROWS, np.ones(6), np.ones(6), np.ones(6)),
            (ROWS[:, :1], np.ones(6)),
            (ROWS[0], np.ones(2)),
            (ROWS[:0], np.ones(0)),
            (np.where(ROWS > 3, np.inf, ROWS), np.ones(6)),
            (ROWS.astype("f8") * 1e300, np.ones(6)),
            (ROWS.astype("g"), np.ones(6)),
            (ROWS.astype(complex), np.ones(6)),
            (ROWS.tolist(), NAMES),
            (scipy.sparse.csr_matrix(ROWS), np.ones(6)),
            jaxsvm.dataset(scipy.sparse.csr_matrix(ROWS), [1, -1] * 3),
            jaxsvm.dataset(ROWS, [1, -1] * 3)._replace(y=None),
            "rows",
        ]
    ),
)


@pytest.mark.long
@fuzz("stream")
@given(
    st.one_of(st.lists(GOOD, min_size=1, max_size=3), st.lists(CHUNKS, max_size=2)), st.booleans()
)
def test_streams_of_odd_chunks(chunks, first_is_good):
    good = [(ROWS, np.array([1, -1] * 3))] if first_is_good else []
    run, _ = attempt(jaxsvm.stream, jaxsvm.pegasos(0.1), [*good, *chunks], KEY)
    if run is not None:
        assert ("not finite" in run.status) == (not run.finite)


# Estimators


@st.composite
def examples(draw):
    """Rows of two columns and labels, the values odd, the shape one that is compiled already."""
    x = np.array(
        draw(st.lists(NUMBERS if rarely(draw, 3) else USUAL, min_size=12, max_size=12)), np.float64
    ).reshape(6, 2)
    if rarely(draw):
        x[0, 0] = draw(BAD)
    y = draw(
        st.sampled_from(
            [
                NAMES,
                np.arange(6) % 2,
                np.array([True, False] * 3),
                ["a", "b"] * 3,
                np.array([1.0, 2.5] * 3),
            ]
        )
    )
    return x.astype(draw(st.sampled_from(["f8", "f4", ">f8", "O"]))) if draw(
        st.booleans()
    ) else x, y


@pytest.mark.long
@fuzz("estimator")
@given(
    st.one_of(
        examples(), examples(), examples(), st.tuples(ANY, ANY), st.tuples(st.just(ROWS), ANY)
    ),
    st.sampled_from(["SVC", "Linear"]),
)
def test_estimators(rows, kind):
    estimators = pytest.importorskip("jaxsvm.estimators")
    machine = (
        estimators.SVMClassifier(jaxsvm.pegasos(0.1)) if kind == "SVC" else estimators.LinearSVC()
    )
    with np.errstate(over="ignore"):
        fitted, _ = attempt(machine.fit, *rows)
    if fitted is None:
        return
    x, y = np.asarray(rows[0], np.float64), np.asarray(rows[1])
    assert np.isfinite(x).all() and np.abs(x).max() <= BIG
    got = fitted.predict(rows[0])
    assert set(got.tolist()) <= set(y.tolist())
    score = fitted.decision_function(rows[0])
    assert np.isfinite(score).all()
    np.testing.assert_array_equal(got, fitted.classes_[(score > 0).astype(int)])
