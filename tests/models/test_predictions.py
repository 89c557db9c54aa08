"""Predictions by few programs, and the names that they give back."""

from __future__ import annotations

import unittest.mock

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from compiling import listen
from hypothesis import given, settings
from hypothesis import strategies as st
from samples import close, equal

import jaxsvm
from jaxsvm import kernels, losses, models
from jaxsvm.models import predictions

KEY = jax.random.key(0)
RNG = np.random.default_rng(3)
X = RNG.normal(size=(300, 4)).astype(np.float32)
SIGN = np.where(X[:, 0] + 0.5 * X[:, 1] > 0, 1, -1)
COEF, RBF = jnp.asarray(RNG.normal(size=300), jnp.float32), kernels.rbf(gamma=0.5)
MODELS = {
    "linear": models.Linear(jnp.asarray(X[0]), jnp.asarray(0.5)),
    "kernel": models.expansion(RBF, COEF, jaxsvm.dataset(X, SIGN)),
}


@pytest.mark.long(but=10)
@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("n", [1, 3, 16, 17, 64, 255, 257])
def test_values_are_those_of_the_model_for_any_number_of_rows(n, kind):
    model = MODELS[kind]
    found = models.decision_values(model, X[:n])
    assert isinstance(found, np.ndarray) and found.shape == (n,)
    close(found, model(jnp.asarray(X[:n])), rtol=1e-5, atol=2e-5)


@given(st.integers(1, 20_000))
def test_blocks_hold_all_rows_and_are_filled_by_a_quarter(n):
    sizes, model = [], models.Linear(jnp.ones(1), jnp.zeros(()))
    call = lambda _, block: sizes.append(len(block)) or block[:, 0]
    with unittest.mock.patch.object(predictions, "_call", call):
        found = models.decision_values(model, np.arange(n, dtype=np.float32)[:, None])
    assert found.tolist() == list(range(n)) and sizes == sorted(sizes, reverse=True)
    for size, left in zip(sizes, n - np.cumsum([0, *sizes]), strict=False):
        assert size in predictions.SIZES and min(left, size) >= size / 4


def test_at_most_four_programs_are_compiled():
    ones = models.Linear(jnp.ones(7), jnp.zeros(()))
    before = predictions._call._cache_size()
    for n in [*range(1, 40), 255, 256, 257, 513, 777, 4000, 5000, 9001]:
        models.decision_values(ones, np.ones((n, 7), np.float32))
    assert predictions._call._cache_size() - before == 4
    other = models.Linear(2 * ones.w, jnp.ones(()))
    assert models.decision_values(other, np.ones((3, 7), np.float32)).tolist() == [15.0] * 3
    assert predictions._call._cache_size() - before == 4


def test_sparse_rows_of_like_lengths_share_programs():
    model = models.Linear(jnp.ones(40), jnp.zeros(()))
    before = predictions._call._cache_size()
    for length in (17, 20, 25, 30, 32):
        x = scipy.sparse.csr_matrix((np.arange(40) < length) * np.ones((3, 1), np.float32))
        assert models.decision_values(model, x).tolist() == [length] * 3
    assert predictions._call._cache_size() - before == 1


def test_rows_of_every_kind():
    x, model = X[:20], MODELS["linear"]
    wanted, sparse = np.asarray(model(jnp.asarray(x))), scipy.sparse.csr_matrix(x)
    kinds = (x, x.tolist(), jnp.asarray(x), x.astype(np.float64), sparse, sparse.tocoo())
    for rows in (*kinds, jaxsvm.dataset(sparse, SIGN[:20]).x):
        close(models.decision_values(model, rows), wanted, rtol=1e-5, atol=1e-5)
    assert models.decision_values(model, np.ones((2, 4), int)).dtype == np.float32
    assert models.decision_values(model, X[:0]).shape == (0,)
    close(models.decision_values(lambda x: x[:, 0] * 2, X[:5]), 2 * X[:5, 0])


LINEAR = jaxsvm.linear_svm(1.0)
REST = jaxsvm.one_vs_rest(LINEAR, classes=3)
NAMES = {
    "strings": np.where(SIGN > 0, "spam", "ham"),
    "numbers": np.where(SIGN > 0, 7, 3),
    "booleans": SIGN > 0,
    "labels": SIGN,
    "three": np.array(["b", "c", "a"])[np.digitize(X[:, 0], [-0.5, 0.5])],
}


def run(y, solver=LINEAR, task=None):
    return jaxsvm.fit(solver, jaxsvm.dataset(X, y, task=task), KEY)


@pytest.mark.long
@pytest.mark.parametrize("kind", NAMES)
def test_a_run_predicts_the_names_that_the_data_had(kind, tmp_path):
    names = NAMES[kind]
    result = run(names, REST if kind == "three" else LINEAR)
    found = result.predict(X)
    assert found.dtype.kind == names.dtype.kind and set(found) <= set(names)
    assert np.mean(found == names) > 0.8
    score = np.asarray(result.model(jnp.asarray(X)))
    equal(found, np.unique(names)[np.argmax(score, 1) if kind == "three" else (score > 0) * 1])
    for saved in (result.classifier, result):
        models.save(tmp_path / "file.npz", saved)
        equal(models.load(tmp_path / "file.npz").predict(X), found)


@pytest.mark.long
@pytest.mark.parametrize("wrap", ["two", "rest", "one"])
def test_a_classifier_holds_support_vectors_only(wrap):
    two, solver = wrap == "two", jaxsvm.kernel_svm(1.0, RBF)
    if not two:
        solver = (jaxsvm.one_vs_rest if wrap == "rest" else jaxsvm.one_vs_one)(solver, classes=3)
    result = run(NAMES["strings" if two else "three"], solver)
    served = result.classifier
    whole, kept = (each if two else each.inner for each in (result.model, served.inner))
    is_support = np.atleast_2d(np.asarray(whole.coef) != 0).any(axis=0)
    assert 0 < is_support.sum() < 300
    equal(kept.index, np.flatnonzero(is_support))
    equal(kept.x, X[is_support])
    values = jax.jit(lambda model: model(X))
    close(values(served), values(result.model), rtol=1e-5, atol=1e-5)
    equal(served.predict(X), result.predict(X))


def test_names_are_no_structure_of_the_programs_of_fit():
    """Another pair of names compiles nothing."""
    first, other = run(NAMES["strings"]), jaxsvm.dataset(X, np.where(SIGN > 0, "yes", "no"))
    events = listen()
    second = jaxsvm.fit(LINEAR, other, KEY)
    assert not events and first.classes.names == ("ham", "spam")
    equal(first.model.w, second.model.w)


def test_a_hand_made_batch_predicts_labels_or_numbers():
    three = jaxsvm.dataset(X, np.arange(300) % 3, task="multiclass")
    for data, solver, names in (
        (jaxsvm.dataset(X, SIGN), LINEAR, {-1, 1}),
        (three, REST, {0, 1, 2}),
    ):
        found = jaxsvm.fit(solver, data._replace(classes=None), KEY).predict(X)
        assert set(found) <= names and (len(names) > 2 or set(found) == names)


@pytest.mark.long
def test_a_regression_predicts_values():
    solver = jaxsvm.linear_svm(1.0, loss=losses.squared)
    result = run(X[:, 0], solver, "regression")
    close(result.predict(X), result.model(X), rtol=1e-5, atol=1e-5)
    with pytest.raises(AttributeError, match="the targets are real"):
        _ = result.classifier
    assert set(run(SIGN, solver).predict(X)) == {-1, 1}  # the data set says that they are labels
    # the sign of the values of a machine that reads no targets is no class of the data
    result = run(NAMES["strings"], jaxsvm.one_class(0.1, RBF))
    close(result.predict(X), result.model(jnp.asarray(X)), atol=1e-4)


def test_predictions_inside_of_transformations():
    numbers, strings = run(NAMES["numbers"]), run(NAMES["strings"])
    equal(jax.jit(numbers.predict)(X), numbers.predict(X))
    boundary = models.Classifier(models.Linear(jnp.ones(1), jnp.zeros(())), (3, 7))
    x = jnp.array([[-1.0], [0.0], [1.0]])  # at 0 the first
    assert jax.jit(boundary.predict)(x).tolist() == boundary.predict(x).tolist() == [3, 3, 7]
    with pytest.raises(TypeError, match="names that are strings, such as 'ham', cannot"):
        jax.jit(strings.predict)(X)


@pytest.mark.parametrize("name", ["sign", "real"])
def test_rows_that_hold_no_numbers_are_told(name):
    squared = jaxsvm.linear_svm(1.0, loss=losses.squared)
    result = run(SIGN) if name == "sign" else run(X[:, 0], squared, task="regression")
    with pytest.raises(ValueError, match="of 1 of 2 rows .*, first of row 1: .* hold a NaN"):
        result.predict([[1.0, 2, 3, 4], [np.nan, 0, 0, 0]])
    with pytest.raises(TypeError, match=r"pass its rows, x\.x"):
        result.predict(jaxsvm.dataset(X, SIGN))


def test_rows_that_scipy_stores_twice_and_no_rows():
    model = MODELS["kernel"]
    x = scipy.sparse.csr_matrix((np.array([1.0, 1, 2], np.float32), [0, 0, 3], [0, 3]), (1, 4))
    found, dense = (models.decision_values(model, rows) for rows in (x, x.toarray()))
    close(found, dense, rtol=1e-5)
    assert x.nnz == 3  # the caller's matrix is as it was
    assert run(SIGN).predict(X[:0]).shape == (0,)


@pytest.mark.long
def test_a_selection_predicts_too():
    data, numbers = jaxsvm.dataset(X, NAMES["strings"]), {"C": np.array([0.1, 1.0]), "folds": 2}
    found = jaxsvm.select(lambda C: jaxsvm.linear_svm(C), data, KEY, progress=False, **numbers)
    assert np.mean(found.predict(X) == NAMES["strings"]) > 0.9
    equal(found.classifier.predict(X), found.predict(X))


def test_labels_and_their_weights_are_put_in_the_order_of_a_model():
    labels = pd.DataFrame(np.where(X[:6, :3] > 1, np.nan, X[:6, :3] > 0), columns=list("uvw"))
    assert labels.isna().any(axis=None)
    data, turned = (jaxsvm.dataset(X[:6], labels[list(names)]) for names in ("uvw", "wuv"))
    found = data.classes.matched(turned)
    for part in ("y", "weight"):
        equal(getattr(found, part), getattr(data, part))
        assert (np.asarray(getattr(turned, part)) != np.asarray(getattr(data, part))).any()


LETTERS = st.text(st.characters(exclude_characters="\x00", codec="utf-8"), min_size=1)


@settings(max_examples=10, deadline=None)
@given(st.lists(LETTERS, min_size=2, max_size=4, unique=True))
def test_any_strings_are_names(names):
    y = np.array(names, object)[np.arange(300) % len(names)]
    data = jaxsvm.dataset(X, y)
    assert list(data.classes.names) == sorted(names)
    labels = np.asarray(data.y)
    first = 0 if len(names) > 2 else -1
    for name, label in zip(sorted(names), sorted({first, *labels.tolist()}), strict=True):
        assert (labels[y == name] == label).all()
