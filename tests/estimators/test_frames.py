"""Estimators and feature transformers with data frames of pandas and polars."""

import jax
import numpy as np
import pytest
import scipy.sparse
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

import jaxsvm
from jaxsvm.estimators import SVC, SVR, FourierFeatures, LinearSVC, LinearSVR, OneClassSVM

pd = pytest.importorskip("pandas")
pl = pytest.importorskip("polars")

pytestmark = pytest.mark.filterwarnings("ignore:the ranges of the columns")

TABLE = pd.DataFrame({"age": np.sin(np.arange(40.0)), "city": ["Rome", "Bonn"] * 20})


@pytest.fixture(autouse=True)
def usual_promotion():
    """As users have it: the strict promotion of these tests is for our own arithmetic."""
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield


@pytest.mark.parametrize("kind", ["pandas", "category", "polars", "array"])
@pytest.mark.parametrize("made", [LinearSVC(), SVC(), SVR(), OneClassSVM(), FourierFeatures()])
def test_words_in_columns_get_one_sentence(made, kind):
    frame = {
        "pandas": TABLE,
        "category": TABLE.astype({"city": "category"}),
        "polars": pl.DataFrame({name: TABLE[name].tolist() for name in TABLE}),
        "array": TABLE.to_numpy(),
    }[kind]
    place = "X" if kind == "array" else "column 'city' of X"
    sentence = f"^{place} holds words, such as '(Rome|Bonn)': encode them by .*OneHotEncoder"
    y = np.arange(40) % 2
    with pytest.raises(ValueError, match=sentence):
        made.fit(frame, y)
    numbers = frame if kind == "array" else type(frame)({"age": np.arange(40.0), "city": y * 1.0})
    fitted = clone(made).fit(numbers[:, :1] if kind == "array" else numbers, y)
    apply = getattr(fitted, "predict", getattr(fitted, "transform", None))
    if kind != "array":
        with pytest.raises(ValueError, match=sentence):
            apply(frame)


def test_the_advice_for_words_works():
    y = np.arange(40) % 2
    columns = make_column_transformer((OneHotEncoder(), ["city"]), remainder="passthrough")
    assert make_pipeline(columns, LinearSVC()).fit(TABLE, y).score(TABLE, y) == 1
    data = jaxsvm.dataset(TABLE.assign(y=y), target="y")
    result = jaxsvm.fit(jaxsvm.linear_svm(1.0), data, jax.random.key(0))
    assert (result.predict(TABLE) == y).all()
    # categories that are numbers are numbers
    numbers = pd.DataFrame({"age": pd.Categorical(y)})
    assert LinearSVC().fit(numbers, y).score(numbers, y) == 1


def test_words_as_targets_of_a_regressor_get_one_sentence():
    with pytest.raises(ValueError, match="^y holds words, such as '(Rome|Bonn)': give numbers, or"):
        SVR().fit(TABLE[["age"]], TABLE["city"])
    with pytest.raises(ValueError, match="^y holds words"):
        LinearSVR().fit(scipy.sparse.csr_array(TABLE[["age"]]), TABLE["city"])
