"""What models, files and programs refuse: models that they cannot hold, rows that are none."""

import dataclasses
import os
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse
from samples import data
from sklearn import svm
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import jaxsvm
from jaxsvm import estimators, features, kernels
from jaxsvm.models import (
    Classifier,
    Expansion,
    Linear,
    Mapped,
    OneVsRest,
    decision_values,
    expansion,
    export,
    from_libsvm,
    from_sklearn,
    save,
    to_libsvm,
    to_sklearn,
)

KEY, RBF = jax.random.key(0), kernels.rbf(1.0)
X, Y, _ = data("cancer", names="ab")
LINEAR, NAN = Linear(jnp.ones(2), jnp.zeros(())), Linear(jnp.array([jnp.nan, 1.0]), jnp.zeros(()))
NAMED, STACKED = Classifier(LINEAR, (0, 1)), Linear(jnp.ones((3, 2)), jnp.zeros(3))
PHI = features.fourier(KEY, RBF, dim=2, features=2)
MAPPED = Mapped(PHI, LINEAR)


def of_kernel(kernel, coef=(1.0, 1.0), index=(0, 1)):
    return Expansion(kernel, jnp.ones((2, 3)), jnp.asarray(coef), jnp.zeros(()), jnp.asarray(index))


UNKNOWN = of_kernel(kernels.precomputed(), index=(-1, -1))
MANY = dataclasses.replace(of_kernel(RBF, jnp.ones((3, 2))), b=jnp.zeros(3))
THREE = OneVsRest(MANY, (False, False, True, True, False))
WRITTEN = [  # what `to_libsvm` cannot write, and what the sentence says
    (of_kernel(kernels.laplacian(1.0)), "holds linear, polynomial, .* kernels, got laplacian"),
    (of_kernel(kernels.linear() + RBF), "got sum_"),
    (MAPPED, "got a model on features: write it with models.save"),
    (Classifier(MAPPED, (0, 1)), "got a model on features"),
    (Classifier(LINEAR, ("no", "yes")), r"class 'no': .* models.Classifier\(model.inner, \(0, 1"),
    (Classifier(LINEAR, (0.5, 1)), "integers of 32 bits, but the model has the class 0.5"),
    *((Classifier(LINEAR, (0, big)), "integers of 32 bits") for big in (2**31, 2**100, np.inf)),
    (NAN, "not finite: its training diverged"),
    (THREE, "train with one_vs_one"),
    (STACKED, r"got stacked ones, as of a sweep: select one with jax.tree.map"),
    (MANY, "got stacked ones"),
    (UNKNOWN, "index is -1"),
    (jaxsvm.pegasos(1.0), "to_libsvm takes Expansion, Linear"),
]


@pytest.mark.parametrize(("model", "words"), WRITTEN, ids=[words for _, words in WRITTEN])
def test_models_that_the_formats_cannot_hold(model, words, tmp_path):
    with pytest.raises((ValueError, TypeError), match=words):
        to_libsvm(model, tmp_path / "a.model")
    assert not list(tmp_path.iterdir())


def own_block(x, z):
    return 1.0 + jnp.matmul(x, z.T)


class Loose(NamedTuple):
    a: Any


@dataclasses.dataclass
class Bare:
    a: Any


REGISTER = r"cannot save .*register yours with jaxsvm\.register\(name, thing\)"
SAVED = [  # what `save` refuses at once, not at the end of a long run, when it is loaded
    (object(), "cannot save <object obj"),
    ({1: 2}, r"cannot save \{1: 2\}"),
    ({1, 2}, r"cannot save \{1, 2\}"),
    (b"bytes", "cannot save b'bytes'"),
    (1j, "cannot save 1j"),
    ([lambda x: x], "cannot save <function <la"),
    (np.array([object()]), "an array of object cannot be saved"),
    (of_kernel(kernels.custom(own_block)), r"save <function own.*kernels\.register\(name, fn\)"),
    (Loose(jnp.ones(2)), REGISTER),
    (Bare(jnp.ones(2)), REGISTER),
    (np.array(["a", "b"]), ""),
    (np.array([b"a"]), ""),
    (np.array(["2020-01-01"], "datetime64[D]"), ""),
]


@pytest.mark.parametrize(("tree", "words"), SAVED)
def test_what_cannot_be_saved_is_refused_with_a_sentence(tree, words, tmp_path):
    """A file that was there stays."""
    save(tmp_path / "tree.npz", jnp.ones(2))
    before = (tmp_path / "tree.npz").read_bytes()
    for name in ("tree.npz", "other.npz"):
        with pytest.raises(ValueError, match=words):
            save(tmp_path / name, {"fine": jnp.ones(2), "not": tree})
    assert os.listdir(tmp_path) == ["tree.npz"] and (tmp_path / "tree.npz").read_bytes() == before


def read(make):
    """Fitted where the call is made."""
    return lambda: from_sklearn(make().fit(X, Y))


OVERFLOWING = svm.LinearSVC().fit(X, Y)
OVERFLOWING.coef_ *= 1e200
one_vs_rest = lambda x: x @ jnp.array([[0.0, 1, 2], [0, 2, 1]])
HOLE, BAD = jnp.array([[1.0, 1.0], [jnp.inf, 1.0]]), "1 of 2 rows are not finite, first of row 1"
MASKED, COMPLEX = np.ma.masked_array(np.ones((3, 2)), mask=[[1, 0]] * 3), np.ones((3, 2), "c8")
CALLS = [
    # of scikit-learn
    (lambda: from_sklearn(svm.SVC()), "SVC is not fitted: call its fit first"),
    (lambda: from_sklearn(estimators.LinearSVC()), "LinearSVC is not fitted"),
    (
        read(lambda: svm.SVC(kernel=lambda a, b: a @ b.T)),
        "Python function, .*jax.numpy, kernels.cu",
    ),
    (read(lambda: RandomForestClassifier(2)), "from_sklearn takes SVC, .*, got RandomForestClass"),
    (read(lambda: make_pipeline(StandardScaler(), svm.SVC())), r"its last step, pipeline\[-1\]"),
    (read(lambda: GridSearchCV(svm.SVC(), {"C": [1.0]}, cv=2)), "pass its best_estimator_"),
    (lambda: from_sklearn(3), "got int$"),
    (lambda: from_sklearn(OVERFLOWING), "not finite in float32: scale the rows"),
    (lambda: to_sklearn(of_kernel(kernels.laplacian(1.0))), "LIBSVM holds .* kernels, got laplac"),
    (lambda: to_sklearn(NAN), "not finite"),
    (lambda: to_sklearn(LINEAR, task="ranking"), "task must be one of"),
    (lambda: to_sklearn(MAPPED, task="ranking"), "task must be one of"),
    (lambda: to_sklearn(NAMED, task="regression"), "task is .*, but the model has classes"),
    (lambda: to_sklearn(3), "to_sklearn takes Expansion, .*, got 3"),
    (lambda: to_sklearn(estimators.LinearSVC().fit(X, Y)), "pass its model_"),
    (lambda: to_sklearn(UNKNOWN), "index is -1"),
    # of LIBSVM
    (lambda: to_libsvm(LINEAR, "a", task="binary"), "task must be one of 'classification'"),
    (lambda: to_libsvm(NAMED, "a", task="regression"), "task is .*, but the model has classes"),
    (lambda: from_libsvm("no such.model"), "No such file"),
    (lambda: from_libsvm(os.curdir), "is a folder"),
    # programs
    (lambda: export(jaxsvm.pegasos(1.0)), "export takes a model, got pegasos"),
    (lambda: export(MAPPED), "does not tell the number of columns of its rows: pass columns"),
    (lambda: export(NAN), "not finite"),
    (lambda: jax.jit(lambda model: export(model).call(X))(LINEAR), "outside of jit"),
    (lambda: export(LINEAR, "no such folder/a.bin"), "folder that does not exist"),
    (lambda: export(LINEAR, rows=0), "rows must be a whole number"),
    (lambda: export(LINEAR, block=0), "block must be a whole number"),
    (lambda: export(LINEAR, columns=2.5), "columns must be a whole number"),
    # rows and names
    (
        lambda: expansion(RBF, jnp.ones(2), None),
        r"training rows: call solver\.model\(state, data\)",
    ),
    (
        lambda: Classifier(NAN, ("a", "b")).predict(jnp.ones((3, 2))),
        "^the decision values of 3 of 3 rows are not finite, first of row 0: the model diverged",
    ),
    (lambda: NAMED.predict(HOLE), BAD),
    (lambda: Classifier(one_vs_rest, ("a", "b", "c")).predict(HOLE), BAD),
    *(
        (
            lambda names=names: Classifier(LINEAR, names),
            "^classes .* two classes or more, each once",
        )
        for names in (("a",), (), "ab", ["a", "a"], None, 3, (None, "a"), ("a", float("nan")))
    ),
    *((lambda call=call: call(MASKED), "^x has masked") for call in (LINEAR, NAMED.predict)),
    *((lambda call=call: call(COMPLEX), "array of complex64") for call in (LINEAR, NAMED.predict)),
    (lambda: decision_values(LINEAR, np.ones((2, 3))), "x must have 2 columns"),
    (lambda: decision_values(LINEAR, np.ones(2)), "x must be a matrix"),
    (lambda: decision_values(LINEAR, ["a"]), "x must be"),
    (lambda: jax.jit(lambda m: m.support())(of_kernel(RBF)), "outside of jit, vmap and grad"),
]


@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize(("call", "words"), CALLS, ids=[words for _, words in CALLS])
def test_calls_that_are_refused(call, words):
    with pytest.raises((ValueError, TypeError, OSError), match=words):
        call()


def models_of_two_columns():
    """Of every kind; `predict` takes what people have, lists and matrices of SciPy."""
    two = jaxsvm.dataset(np.array([[1.0, 2.0], [-1.0, 0.5], [0.3, -2.0]]), [1, -1, 1])
    three, pegasos = jaxsvm.dataset(two.x, [0, 1, 2], task="multiclass"), jaxsvm.pegasos(0.1)
    fit = lambda solver, data=two: jaxsvm.fit(solver, data, KEY, steps=2).model
    made = [fit(pegasos), fit(jaxsvm.sdca(1.0, RBF)), fit(jaxsvm.on_features(PHI, pegasos))]
    for wrap in (jaxsvm.one_vs_rest, jaxsvm.one_vs_one):
        made.append(fit(wrap(pegasos, classes=3), three))
    named = Classifier(made[0], ("a", "b"))
    return {type(model).__name__: model for model in (*made, named)} | {"predict": named.predict}


@pytest.mark.long
def test_rows_of_another_kind_or_shape_are_refused():
    """Before, they met a traceback from JAX, or numbers of rows with one column were broadcast."""
    x = np.ones((3, 2), np.float32)
    other = jaxsvm.dataset(x * [[1], [2], [3]], [1, -1, 1])
    wrong = [None, "x", x[0], x[None], x[:, :1], np.ones((3, 3)), np.array([["a", "b"]]), x * 1j]
    lists = [[[1.0, 2.0]], scipy.sparse.csr_matrix(x)]
    for name, model in models_of_two_columns().items():
        for rows in [*wrong, other] + (lists if name != "predict" else []):
            with pytest.raises((TypeError, ValueError), match="^x (must (be|have)|is a sparse)"):
                model(rows)
                pytest.fail(f"{name} took {rows!r}")
