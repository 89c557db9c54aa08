"""`fit_labels`: the machines of `multi_output`, some at a time."""

import jax
import jax.numpy as jnp
import numpy as np
import pandas
import pytest
import scipy.sparse
from sklearn.metrics import f1_score

import jaxsvm
from jaxsvm import kernels, losses
from jaxsvm.loops import label_blocks
from jaxsvm.loops.vmapped_fits import laid_out
from jaxsvm.recipe import fields_of

KEY = jax.random.key(0)
K = 7


@pytest.fixture(autouse=True)
def two_processors(monkeypatch):
    """So that seven labels are two blocks of four, of which the last overlaps."""
    monkeypatch.setattr(label_blocks, "processors", lambda: 2)


def rows_and_labels(n=120, d=6, k=K, seed=0):
    """Rows, of which most numbers are 0, and labels that hold for a fifth of them."""
    random = np.random.default_rng(seed)
    x = (random.normal(size=(n, d)) * (random.random((n, d)) < 0.6)).astype(np.float32)
    score = x @ random.normal(size=(d, k)) + 0.3 * random.normal(size=(n, k))
    return x, score > np.quantile(score, 0.8, axis=0)


def fitted(solver, x, y, **options):
    return jaxsvm.fit_labels(solver, x, y, KEY, progress=False, **options)


SOLVERS = {
    "dual_descent": lambda: jaxsvm.dual_descent(1.0, loss=losses.squared_hinge, tol=1e-6),
    "newton": lambda: jaxsvm.newton(0.01, tol=1e-6),
    "kernel_svm": lambda: jaxsvm.kernel_svm(1.0, kernels.rbf(gamma=0.2), tol=1e-5),
    "pegasos": lambda: jaxsvm.pegasos(0.1),
    "features": lambda: jaxsvm.on_features(
        jaxsvm.features.fourier(KEY, kernels.rbf(gamma=0.1), dim=6, features=16),
        jaxsvm.dual_descent(1.0, tol=1e-6),
    ),
}


SPARSE = ["dual_descent", "kernel_svm", "pegasos"]


@pytest.mark.parametrize(
    ("name", "sparse"), [*((name, False) for name in SOLVERS), *((name, True) for name in SPARSE)]
)
def test_the_machines_are_those_of_all_labels_at_once(name, sparse):
    x, y = rows_and_labels()
    x = scipy.sparse.csr_matrix(x) if sparse else x
    solver = SOLVERS[name]()
    found = fitted(solver, x, y)
    data = jaxsvm.dataset(x, y)
    whole = jaxsvm.fit(jaxsvm.multi_output(solver, outputs=K), data, KEY)
    np.testing.assert_allclose(found.model(data.x), whole.model(data.x), atol=2e-3)
    assert found.converged == (name != "pegasos")
    assert not found.threshold.any()
    assert found.width == 4


def test_a_sparse_matrix_of_labels_is_that_of_their_numbers():
    x, y = rows_and_labels()
    solver = SOLVERS["dual_descent"]()
    dense = fitted(solver, x, np.where(y, 1, -1)).model(x)
    for matrix in (scipy.sparse.csr_matrix(y), scipy.sparse.coo_array(y.astype(float))):
        np.testing.assert_array_equal(fitted(solver, x, matrix).model(x), dense)


@pytest.mark.parametrize("weighted", [False, True])
def test_thresholds_are_those_of_select(weighted):
    x, y = rows_and_labels(n=150)
    weight = np.random.default_rng(1).integers(0, 3, len(x)) if weighted else None
    fold = np.arange(len(x)) % 4 - 1  # a quarter of the rows is in all training sets
    fold[[] if weight is None else weight == 0] = -1
    found = fitted(SOLVERS["dual_descent"](), x, y, folds=fold, weight=weight)
    maker = lambda C: jaxsvm.multi_output(
        jaxsvm.dual_descent(C, loss=losses.squared_hinge), outputs=K
    )
    data = jaxsvm.dataset(x, y, weight)
    options = {"folds": fold, "tol": 1e-6, "progress": False}
    chosen = jaxsvm.select(maker, data, KEY, C=np.array([1.0]), **options)
    np.testing.assert_allclose(
        found.model(data.x), np.asarray(chosen.thresholded()(data.x)), atol=2e-3
    )
    assert found.threshold.all()


def test_thresholds_raise_the_score_of_rare_labels():
    x, y = rows_and_labels(n=600)
    train, test = slice(0, 300), slice(300, None)
    solver = jaxsvm.dual_descent(0.01)
    scores = [
        f1_score(
            y[test], fitted(solver, x[train], y[train], folds=f).predict(x[test]), average="macro"
        )
        for f in (None, 5)
    ]
    assert scores[1] > scores[0] + 0.05


def test_memory_bounds_the_block_and_not_the_answer():
    x, y = rows_and_labels(n=400, k=64)
    solver = SOLVERS["dual_descent"]()
    free, tight = (fitted(solver, x, y, memory=m) for m in (None, 2.5e5))
    assert tight.width < free.width
    np.testing.assert_allclose(tight.model(x), free.model(x), atol=1e-2)
    with pytest.raises(ValueError, match="one run takes .* bytes, memory=1e\\+03: raise memory"):
        fitted(solver, x, y, memory=1e3)


def test_other_bytes_of_a_block_count_for_each_thread():
    x, y = rows_and_labels(n=2000, d=2, k=64)
    solver = jaxsvm.pegasos(0.1)
    job, threads = label_blocks._plan(solver, jaxsvm.dataset(x, y[:, 0]), y, None, 6e5, KEY, None)
    assert threads * job.width * len(x) * 8 <= 6e5


def test_rows_that_are_read_in_parts_are_all_read():
    """One update of `least_squares` reads 4,096 rows."""
    x, y = rows_and_labels(n=9000, d=3, k=4)
    x[4096:] += 1.0
    found, data = fitted(jaxsvm.least_squares(0.1), x, y), jaxsvm.dataset(x, y)
    signs = np.where(y, 1.0, -1.0)
    centred = x - x.mean(0)
    gram = centred.T @ centred / len(x) + 0.1 * np.eye(3)
    w = np.linalg.solve(gram, centred.T @ signs / len(x))
    np.testing.assert_allclose(found.model(data.x), centred @ w + signs.mean(0), atol=1e-4)
    assert found.converged


def test_the_solver_checks_rows_and_labels():
    x, y = rows_and_labels()
    skew = np.arange(120.0 * 120).reshape(120, 120).astype(np.float32)
    with pytest.raises(ValueError, match="symmetric"):
        fitted(jaxsvm.kernel_svm(1.0, kernels.precomputed()), skew, y)
    y[:, 5], y[3, 5] = False, True
    with pytest.raises(ValueError, match="nu"):
        fitted(jaxsvm.nu_svc(0.5, kernels.rbf(gamma=0.2)), x, y)


def test_values_that_are_not_finite_are_not_converged(monkeypatch):
    """Also of the second block, whose residual is nan."""
    x, y = rows_and_labels()
    run = label_blocks._Job.run
    diverged = lambda job, start, limits: run(job, start, limits)._replace(
        residual=np.nan if start else 0.0
    )
    monkeypatch.setattr(label_blocks._Job, "run", diverged)
    found = fitted(SOLVERS["dual_descent"](), x, y)
    assert np.isnan(found.residual) and not found.converged


def test_a_diverged_run_has_no_residual():
    x, y = rows_and_labels()
    found = fitted(jaxsvm.pegasos(1e-37, project=False), x * 100, y)
    assert np.isnan(found.residual)


def test_columns_of_sparse_rows_are_not_made_dense():
    """`proximal_newton` reads the columns of many, which no program can make."""
    random = scipy.sparse.random(60, 400, 0.05, "csr", rng=0)
    data = jaxsvm.dataset(random, np.arange(60) % 2)
    solver = jaxsvm.proximal_newton(0.1)
    assert type(laid_out(fields_of(solver), data).x).__name__ == "Columns"
    y = rows_and_labels(n=60, d=400)[1]
    job, _ = label_blocks._plan(solver, data, y, None, 1e9, KEY, None)
    assert type(job.data.x).__name__ == "Columns"
    assert fitted(solver, random, y).converged


def test_names_of_frames():
    x, y = rows_and_labels(k=2)
    polars, pyarrow = pytest.importorskip("polars"), pytest.importorskip("pyarrow")
    for make in (polars.DataFrame, pyarrow.table):
        frame = make({"a": y[:, 0] * 1, "b": y[:, 1] * 1})
        assert fitted(SOLVERS["dual_descent"](), x, frame).classifier.labels == ("a", "b")


def test_a_label_that_never_holds_is_never_predicted():
    x, y = rows_and_labels()
    y[:, 2] = False
    found = fitted(SOLVERS["dual_descent"](), x, y, folds=3)
    assert not found.predict(x)[:, 2].any() and found.threshold[2] == 0


def test_names_are_kept_in_a_file(tmp_path):
    x, y = rows_and_labels(k=3)
    names = ["sport", "money", "weather"]
    found = fitted(SOLVERS["dual_descent"](), x, pandas.DataFrame(y, columns=names), folds=3)
    jaxsvm.models.save(tmp_path / "labels.npz", found.classifier)
    loaded = jaxsvm.models.load(tmp_path / "labels.npz")
    assert loaded.labels == tuple(names)
    np.testing.assert_array_equal(loaded.predict(x), found.predict(x))
    assert fitted(SOLVERS["dual_descent"](), x, y, classes=names).classifier.labels == tuple(names)


def test_the_tolerance_is_met_or_not():
    x, y = rows_and_labels()
    one_pass = jaxsvm.dual_descent(1.0, loss=losses.squared_hinge, rounds=1)
    found = fitted(SOLVERS["dual_descent"](), x, y, tol=1e-2)
    assert found.tol == pytest.approx(1e-2) and found.converged and found.residual > 1e-6
    # that of the worst label: those from 3 on never hold
    y[:, 3:] = False
    parts = [fitted(one_pass, x, part, tol=1e-3).residual for part in (y[:, :3], y[:, 3:])]
    whole = fitted(one_pass, x, y, tol=1e-3)
    assert parts[0] > 1.1 * parts[1] and not whole.converged
    assert whole.residual == pytest.approx(parts[0], rel=1e-3)
    assert fitted(one_pass, x, y, folds=5).residual > 1.01 * whole.residual


def with_nan(y):
    return np.where(np.arange(y.size).reshape(y.shape) == 4, np.nan, y)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (
            lambda a: a | {"y": a["y"][:, 0]},
            ValueError,
            r"y must be \(n, k\), .* got shape \(120,\)",
        ),
        (lambda a: a | {"y": a["y"] * 2}, ValueError, "must hold labels 0 and 1, .* got 0, 2"),
        (
            lambda a: a | {"y": scipy.sparse.csr_matrix(a["y"] * 2)},
            ValueError,
            "a sparse y must hold 1 where a label holds",
        ),
        (lambda a: a | {"y": with_nan(a["y"])}, ValueError, "multi_output takes missing labels"),
        (lambda a: a | {"x": a["x"][1:]}, ValueError, "each of the 119 rows"),
        (lambda a: a | {"classes": ["a"]}, ValueError, f"each of the {K} columns"),
        (lambda a: a | {"memory": -1.0}, ValueError, "memory must be"),
        (lambda a: a | {"folds": 1}, ValueError, "folds must be"),
        (lambda a: a | {"tol": np.inf}, ValueError, "tol must be"),
        (lambda a: a | {"y": np.ma.array(a["y"], mask=a["y"] > 0)}, ValueError, "masked"),
        (
            lambda a: a | {"folds": np.arange(120) // 60, "weight": np.arange(120) < 60},
            ValueError,
            "without fold 0 there is no row to train on",
        ),
        (lambda a: a | {"solver": jaxsvm.one_vs_rest(a["solver"], classes=3)}, ValueError, "other"),
        (lambda a: a | {"solver": "svm"}, TypeError, "solver"),
        (lambda a: a | {"key": None}, TypeError, "key must be one key"),
    ],
)
def test_bad_input_gets_a_sentence(change, error, message):
    x, y = rows_and_labels()
    arguments = {"solver": jaxsvm.dual_descent(1.0), "x": x, "y": y * 1, "key": KEY}
    with pytest.raises(error, match=message):
        jaxsvm.fit_labels(**change(arguments), progress=False)


def test_it_says_that_transformations_take_multi_output():
    x, y = rows_and_labels()
    with pytest.raises(ValueError, match="inside take multi_output"):
        jax.vmap(lambda C: fitted(jaxsvm.dual_descent(C), x, y).residual)(jnp.ones(2))
    with pytest.raises(ValueError, match="inside take multi_output"):
        jax.jit(lambda x: fitted(jaxsvm.dual_descent(1.0), x, y).model(x))(jnp.asarray(x))
