"""Several targets for each row: each column is the problem of that column alone."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse
from sklearn.svm import SVC, SVR, LinearSVC

import jaxsvm
from jaxsvm import kernels, losses
from jaxsvm.models import Labels

KEY = jax.random.key(0)
RNG = np.random.default_rng(0)
X = RNG.normal(size=(90, 4))
Y = (X @ RNG.normal(size=(4, 3)) + RNG.normal(size=(90, 3)) > [0, 0.5, 1]).astype(float)
MISSING = RNG.random(Y.shape) < 0.3
REAL = X @ RNG.normal(size=(4, 3)) + 0.3 * RNG.normal(size=(90, 3))
N = len(X)
RBF = kernels.rbf(gamma=0.2)
FEATURES = jaxsvm.features.fourier(jax.random.key(1), RBF, dim=4, features=32)
SQUARED = losses.squared_hinge

LABEL_SOLVERS = {
    "decomposition": jaxsvm.decomposition(1.0, RBF),
    "interior_point": jaxsvm.interior_point(1.0),
    "dual_descent": jaxsvm.dual_descent(1.0, loss=SQUARED),
    "newton": jaxsvm.newton(0.02, loss=SQUARED, bias="feature"),
    "sdca": jaxsvm.sdca(0.02, RBF, bias="feature"),
    "features": jaxsvm.on_features(FEATURES, jaxsvm.linear_svm(1.0)),
}


def single(solver, x, y):
    run = jaxsvm.fit(solver, jaxsvm.dataset(x, y), KEY, tol=1e-6)
    return np.asarray(run.model(jnp.asarray(X)))


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("name", LABEL_SOLVERS)
def test_each_label_is_the_machine_of_that_label(name, missing):
    targets = np.where(MISSING, np.nan, Y) if missing else Y
    data = jaxsvm.dataset(X, targets)
    maker = LABEL_SOLVERS[name]
    solver = jaxsvm.multi_output(maker, outputs=3)
    run = jaxsvm.fit(solver, data, KEY, tol=1e-6)
    values = np.asarray(run.model(jnp.asarray(X)))
    for c in range(3):
        live = ~np.isnan(targets[:, c])
        alone = single(maker, X[live], targets[live, c])
        # these end elsewhere within their tolerance, as other rows are visited in another order
        by_ascent = name in ("sdca", "dual_descent")
        assert np.allclose(values[:, c], alone, atol=5e-3 if by_ascent else 5e-5), c


def test_real_targets_and_weights_of_each():
    weight = RNG.integers(0, 3, size=REAL.shape).astype(float)
    data = jaxsvm.dataset(X, REAL, weight, task="regression")
    machine = jaxsvm.decomposition(2.0, RBF, loss=losses.eps_insensitive(0.1))
    run = jaxsvm.fit(jaxsvm.multi_output(machine, outputs=3), data, KEY, tol=1e-6)
    values = np.asarray(run.model(jnp.asarray(X)))
    for c in range(3):
        peer = SVR(C=2.0, gamma=0.2, epsilon=0.1, tol=1e-8).fit(
            X, REAL[:, c].copy(), weight[:, c].copy()
        )
        assert np.allclose(values[:, c], peer.predict(X), atol=1e-4)


def test_labels_are_those_of_libsvm():
    run = jaxsvm.fit(
        jaxsvm.multi_output(jaxsvm.decomposition(1.0, RBF), outputs=3),
        jaxsvm.dataset(X, Y),
        KEY,
        tol=1e-6,
    )
    for c in range(3):
        peer = SVC(gamma=0.2, tol=1e-8).fit(X, Y[:, c])
        assert np.allclose(run.model(jnp.asarray(X))[:, c], peer.decision_function(X), atol=1e-4)
        assert np.allclose(run.model[c](jnp.asarray(X)), peer.decision_function(X), atol=1e-4)
    assert (run.predict(X) == (np.asarray(run.model(jnp.asarray(X))) > 0)).all()


def test_least_squares_of_several_targets():
    data = jaxsvm.dataset(X, REAL, task="regression")
    run = jaxsvm.fit(jaxsvm.multi_output(jaxsvm.least_squares(0.1), outputs=3), data, KEY)
    x, y = X - X.mean(0), REAL - REAL.mean(0)
    w = np.linalg.solve(x.T @ x / N + 0.1 * np.eye(4), x.T @ y / N)
    assert np.allclose(run.model.inner.w.T, w, atol=1e-5)


@pytest.mark.parametrize("dense", [False, True])
@pytest.mark.parametrize("loss", [losses.hinge, SQUARED, losses.eps_insensitive(0.1)])
def test_problems_that_are_solved_at_once_end_as_each_alone(loss, dense):
    """Above three problems `dual_descent` visits a row for all of them."""
    x = X * (RNG.random(X.shape) < 0.6)
    targets = np.concatenate([REAL, -REAL[:, :2]], 1)
    targets = targets if not loss.labels else np.sign(targets)
    task = "regression" if not loss.labels else "multilabel"
    data = jaxsvm.dataset(x if dense else scipy.sparse.csr_matrix(x), targets, task=task)
    solver = jaxsvm.dual_descent(0.5, loss=loss)
    run = jaxsvm.fit(jaxsvm.multi_output(solver, outputs=5), data, KEY, tol=1e-6)
    assert run.converged
    for c in range(5):
        part = jaxsvm.column(data, c)
        alone = jaxsvm.fit(solver, part, KEY, tol=1e-6)
        assert np.allclose(run.model[c].w, alone.model.w, atol=1e-3)
        objective = lambda model: jaxsvm.objectives.primal(model, part, 2 / N, loss)
        assert objective(run.model[c]) <= (1 + 2e-6) * objective(alone.model) + 1e-7
    steps = np.asarray(run.state.solver.steps)
    assert (steps == steps[0]).all()  # the same passes


def test_problems_of_weights_of_their_own_are_solved_at_once():
    targets = np.where(MISSING, np.nan, Y)[:, [0, 1, 2, 0]]
    data = jaxsvm.dataset(scipy.sparse.csr_matrix(X), targets)
    solver = jaxsvm.multi_output(jaxsvm.dual_descent(1.0, loss=SQUARED), outputs=4)
    run = jaxsvm.fit(solver, data, KEY, tol=1e-6)
    for c in range(3):
        live = ~MISSING[:, c]
        peer = LinearSVC(tol=1e-9, max_iter=100_000).fit(X[live], Y[live, c])
        assert np.allclose(run.model[c].w, peer.coef_[0], atol=1e-3)


def test_problems_of_other_C_are_solved_in_turns():
    data = jaxsvm.dataset(scipy.sparse.csr_matrix(X), Y[:, 0])
    fit = lambda C: jaxsvm.fit(jaxsvm.dual_descent(C, loss=SQUARED), data, KEY, tol=1e-6).model.w
    Cs = jnp.array([0.1, 0.3, 1.0, 3.0])
    for w, C in zip(jax.vmap(fit)(Cs), Cs, strict=True):
        assert np.allclose(w, fit(float(C)), atol=1e-3)


def test_certificates_are_those_of_the_columns():
    data = jaxsvm.dataset(X, np.where(MISSING, np.nan, Y))
    run = jaxsvm.fit(jaxsvm.multi_output(jaxsvm.linear_svm(1.0), outputs=3), data, KEY)
    lam = 1 / np.asarray(data.weight).sum(0)
    proof = jaxsvm.certificate(run.model, data, lam)
    assert proof.gap.shape == (3,) and (proof.gap < 0.03 * proof.primal).all()
    for c in range(3):
        one = jaxsvm.certificate(run.model[c], jaxsvm.column(data, c), lam[c])
        assert np.allclose(proof.primal[c], one.primal, rtol=1e-12)


def test_errors_are_those_of_all_labels():
    data = jaxsvm.dataset(X, np.where(MISSING, np.nan, Y))
    run = jaxsvm.fit(jaxsvm.multi_output(jaxsvm.linear_svm(1.0), outputs=3), data, KEY)
    score = np.asarray(run.model(data.x), np.float64)
    wrong = ((score > 0) != (Y > 0))[~MISSING].mean()
    assert np.isclose(float(jaxsvm.error_on(data)(run.model)), wrong, rtol=1e-5)
    beyond = data._replace(x=data.x.at[0].set(jnp.inf), weight=data.weight.at[0].set(0))
    assert np.isfinite(float(jaxsvm.risk_on(beyond)(run.model)))  # of a row that does not count
    hinge = np.maximum(0, 1 - (2 * Y - 1) * score)[~MISSING].mean()
    assert np.isclose(float(jaxsvm.risk_on(data)(run.model)), hinge, rtol=1e-5)


MAKERS = {
    "kernel": lambda C: jaxsvm.multi_output(jaxsvm.decomposition(C, RBF), outputs=3),
    "linear": lambda C: jaxsvm.multi_output(jaxsvm.linear_svm(C), outputs=3),
}


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("name", MAKERS)
def test_selection_is_by_the_share_of_wrong_labels(name, missing):
    mask = MISSING if missing else np.zeros_like(MISSING)
    data = jaxsvm.dataset(X, np.where(mask, np.nan, Y))
    found = jaxsvm.select(MAKERS[name], data, KEY, C=np.array([0.01, 1.0]), folds=3, progress=False)
    values = np.asarray(found.scores)
    assert values.shape == (2, N, 3)
    means = np.empty((2, 3))
    for c, f in np.ndindex(2, 3):
        rows = found.fold == f
        means[c, f] = ((values[c] > 0) != (Y > 0))[rows][~mask[rows]].mean()
    assert np.allclose(found.table.folds, means, atol=1e-6)
    # a value out of fold is that of the machine without the fold
    part = data._replace(
        weight=np.where((found.fold == 0).reshape(-1, *[1] * missing), 0, data.weight)
    )
    run = jaxsvm.fit(MAKERS[name](1.0), part, KEY)
    assert np.allclose(run.model(data.x)[found.fold == 0], values[1, found.fold == 0], atol=5e-3)
    assert isinstance(found.classes, Labels) and found.predict(X).shape == (N, 3)


def test_names_of_labels():
    data = jaxsvm.dataset(X, Y, classes=["a", "b", "c"])
    assert data.classes.names == ("a", "b", "c")
    frame = pytest.importorskip("pandas").DataFrame(Y, columns=["u", "v", "w"])
    assert jaxsvm.dataset(X, frame).classes.names == ("u", "v", "w")
    sparse = jaxsvm.dataset(X, scipy.sparse.csr_matrix(Y))
    assert np.array_equal(sparse.y, 2 * Y - 1) and sparse.classes.names == (0, 1, 2)
    assert np.array_equal(jaxsvm.dataset(X, Y > 0).y, 2 * Y - 1)
    assert repr(data).endswith("; 3 labels each")
    assert "real targets each" in repr(jaxsvm.dataset(X, REAL, task="regression"))


def test_under_vmap_and_jit():
    data = jaxsvm.dataset(X, Y)
    fit = lambda C: (
        jaxsvm.fit(
            jaxsvm.multi_output(jaxsvm.interior_point(C), outputs=3), data, KEY, steps=1
        ).model.inner.w
    )
    assert np.allclose(jax.vmap(fit)(jnp.array([0.1, 1.0]))[1], jax.jit(fit)(1.0), atol=1e-4)


def test_labels_inside_of_transformations_are_int32(x64):
    model = jaxsvm.models.MultiLabel(lambda x: x, ("a", "b", "c"))
    values = jnp.asarray([[-1.0, 0.0, 1.0]])
    traced = jax.jit(model.predict)(values)
    assert traced.dtype == jnp.int32 and traced.tolist() == [[0, 0, 1]]


def test_it_is_saved_and_goes_on(tmp_path):
    data = jaxsvm.dataset(X, np.where(MISSING, np.nan, Y))
    solver = jaxsvm.multi_output(jaxsvm.sdca(0.1), outputs=3)
    whole = jaxsvm.fit(solver, data, KEY, steps=60)
    half = jaxsvm.fit(solver, data, KEY, steps=30)
    jaxsvm.models.save(tmp_path / "run.npz", half)
    loaded = jaxsvm.models.load(tmp_path / "run.npz")
    rest = jaxsvm.fit(solver, data, state=loaded.state, steps=30)
    assert isinstance(loaded.classes, Labels) and half.classes.names == loaded.classes.names
    assert np.array_equal(rest.model.inner.w, whole.model.inner.w)


LINEAR = jaxsvm.linear_svm(1.0)


def fit(outputs, *args, **more):
    jaxsvm.fit(jaxsvm.multi_output(LINEAR, outputs=outputs), jaxsvm.dataset(*args, **more), KEY)


REGRESSION = {"task": "regression"}
GAP = np.where([False, True, False], np.nan, Y)
BAD = {
    "have 3 targets each, and this solver takes one: wrap it, jaxsvm.multi_output": lambda: (
        jaxsvm.fit(LINEAR, jaxsvm.dataset(X, Y), KEY)
    ),
    "takes 2 targets for each row, the rows have 3: say outputs=3": lambda: fit(2, X, Y),
    "takes 2 targets for each row, and the rows have one": lambda: fit(2, X, Y[:, 0]),
    "this solver takes labels -1 and": lambda: fit(3, X, REAL, **REGRESSION),
    "multi_output takes a solver of labels": lambda: jaxsvm.multi_output(
        jaxsvm.one_vs_rest(LINEAR, classes=3), outputs=2
    ),
    "task 'multilabel' takes y": lambda: jaxsvm.dataset(X, Y[:, 0], task="multilabel"),
    "no target at all in column 2": lambda: jaxsvm.dataset(X, Y, Y * 0 + [1, 1, 0]),
    "error_on is of labels": lambda: jaxsvm.error_on(jaxsvm.dataset(X, REAL, **REGRESSION)),
    "outputs must be": lambda: jaxsvm.multi_output(LINEAR, outputs=0),
    "must hold labels 0 and 1, or -1 and": lambda: jaxsvm.dataset(X, REAL),
    "no target at all in column 1": lambda: jaxsvm.dataset(X, GAP),
    "y must hold one number for each of the 90 rows": lambda: jaxsvm.dataset(X, Y[:5]),
    "columns, which is for task 'multilabel'": lambda: jaxsvm.dataset(X, Y, task="binary"),
    "must hold numbers or booleans": lambda: jaxsvm.dataset(X, [["a", "b"]] * N),
    "must name each of the 3 columns": lambda: jaxsvm.dataset(X, Y, classes=["a"]),
    "classes are of labels": lambda: jaxsvm.dataset(X, REAL, classes=["a"] * 3, **REGRESSION),
    "y holds an infinity": lambda: jaxsvm.dataset(X, np.where(MISSING, np.inf, Y), **REGRESSION),
    "have no column 3": lambda: jaxsvm.column(jaxsvm.dataset(X, Y), 3),
}


@pytest.mark.parametrize("message", BAD)
def test_bad_input_gets_one_sentence(message):
    with pytest.raises(ValueError, match=message):
        BAD[message]()


def test_what_takes_one_target_says_so():
    data = jaxsvm.dataset(X, Y)
    found = jaxsvm.select(MAKERS["linear"], data, KEY, C=np.array([1.0, 2.0]), progress=False)
    for call in (found.calibrated, found.conformal):
        with pytest.raises(ValueError, match="takes one target a row, and this selection has 3"):
            call()
    with pytest.raises(ValueError, match="take 'error', 'risk' or a function"):
        jaxsvm.select(MAKERS["linear"], data, KEY, C=np.array([1.0]), score="auc", progress=False)
    with pytest.raises(ValueError, match="primal is of one target a row"):
        jaxsvm.objectives.primal(found.model, data, 0.1)
    for model in (found.model, found.classifier):
        for leave in (jaxsvm.models.to_sklearn, lambda m: jaxsvm.models.to_libsvm(m, "/tmp/none")):
            with pytest.raises(ValueError, match="takes a model of one target, and this one has 3"):
                leave(model)
    for call in (jaxsvm.calibrate, jaxsvm.conformal):
        with pytest.raises(ValueError, match="takes one target a row, and these rows have 3"):
            call(found.classifier, data)
    with pytest.raises(IndexError, match=r"there is no model\[3\], there are 3"):
        found.model[3]
    with pytest.raises(ValueError, match="lam must be one number, or one of each of 3 problems"):
        jaxsvm.certificate(found.model, data, [0.1, 0.2])
    with pytest.raises(TypeError, match="expected a model of multi_output of 3"):
        jaxsvm.certificate(found.model[0], data, 0.1)


@pytest.mark.parametrize("weighted", [False, True])
def test_steps_read_the_weights_of_each_target(weighted):
    """Of a solver whose steps read the weights, all of them at once."""
    weight = RNG.integers(1, 4, N).astype(float) if weighted else np.ones(N)
    targets = np.where(MISSING, np.nan, Y)
    solver = jaxsvm.subgradient(0.1)
    data = jaxsvm.dataset(X, targets, weight)
    run = jaxsvm.fit(jaxsvm.multi_output(solver, outputs=3), data, KEY, steps=20)
    for c in range(3):
        live = ~MISSING[:, c]
        one = jaxsvm.dataset(X[live], Y[live, c], weight[live])
        alone = jaxsvm.fit(solver, one, KEY, steps=20)
        assert np.allclose(run.model[c].w, alone.model.w, atol=1e-5)


@pytest.mark.parametrize("name", ["linear", "kernel"])
def test_a_saved_model_keeps_the_names_of_labels(name, tmp_path):
    data = jaxsvm.dataset(X, Y, task="multilabel", classes=["a", "b", "c"])
    run = jaxsvm.fit(MAKERS[name](1.0), data, KEY)
    jaxsvm.models.save(tmp_path / "model.npz", run.classifier)
    model = jaxsvm.models.load(tmp_path / "model.npz")
    assert model.labels == ("a", "b", "c") and np.array_equal(model.predict(X), run.predict(X))
    assert np.allclose(model(X), run.model(X), atol=1e-6)
