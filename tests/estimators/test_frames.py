"""Estimators and feature transformers with data frames of pandas and polars."""

import numpy as np
import pytest
import scipy.sparse
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

from jaxsvm.estimators import (
    SVC,
    SVR,
    FourierFeatures,
    LinearSVC,
    LinearSVR,
    NystromFeatures,
    OneClassSVM,
)

pd = pytest.importorskip("pandas")
pl = pytest.importorskip("polars")

pytestmark = [
    pytest.mark.usefixtures("usual_promotion"),
    pytest.mark.filterwarnings("ignore:the ranges of the columns"),
]

TABLE = pd.DataFrame({"age": np.sin(np.arange(40.0)), "city": ["Rome", "Bonn"] * 20})


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
    # categories that are numbers are numbers
    numbers = pd.DataFrame({"age": pd.Categorical(y)})
    assert LinearSVC().fit(numbers, y).score(numbers, y) == 1


def test_words_as_targets_of_a_regressor_get_one_sentence():
    with pytest.raises(ValueError, match="^y holds words, such as '(Rome|Bonn)': give numbers, or"):
        SVR().fit(TABLE[["age"]], TABLE["city"])
    with pytest.raises(ValueError, match="^y holds words"):
        LinearSVR().fit(scipy.sparse.csr_array(TABLE[["age"]]), TABLE["city"])


@pytest.mark.parametrize("library, frame", [("pandas", pd.DataFrame), ("polars", pl.DataFrame)])
@pytest.mark.parametrize(
    "made", [FourierFeatures(n_components=4, random_state=0), NystromFeatures(n_components=4)]
)
def test_features_are_frames_where_they_are_asked_for(made, library, frame):
    rows = np.random.default_rng(0).normal(size=(20, 2))
    names = [f"{type(made).__name__.lower()}{i}" for i in range(4)]
    plain = clone(made).set_params(random_state=0).fit(rows)
    assert plain.get_feature_names_out().tolist() == names
    values = plain.transform(rows)
    made = clone(plain).set_output(transform=library)
    for table in (rows, pd.DataFrame(rows, columns=["a", "b"], index=np.arange(5, 25))):
        out = made.fit_transform(table)
        assert isinstance(out, frame) and list(out.columns) == names
        np.testing.assert_array_equal(out.to_numpy(), values)
    if library == "pandas":
        assert out.index.tolist() == list(range(5, 25))
    # in a pipeline, and beside other columns
    sized = make_column_transformer((made, ["a"]), remainder="passthrough")
    both = sized.set_output(transform=library).fit_transform(
        frame(dict(zip("ab", rows.T, strict=True)))
    )
    assert isinstance(both, frame) and list(both.columns)[-1] == "remainder__b"
    pipeline = make_pipeline(made, LinearSVC()).fit(rows, rows[:, 0] > 0)
    assert pipeline[-1].feature_names_in_.tolist() == names
    with pytest.raises(ValueError, match="feature names"):
        pipeline[-1].predict(pd.DataFrame(values, columns=names[::-1]))


def test_dates_and_words_of_numpy_get_one_sentence():
    table = pd.DataFrame({"age": [1.0, 2.0], "day": pd.date_range("2020", periods=2)})
    with pytest.raises(ValueError, match="cannot be joined as numbers, such as dates: turn them"):
        LinearSVC().fit(table, [0, 1])
    with pytest.raises(ValueError, match="X holds words, such as 'u': encode them"):
        LinearSVC().fit(np.array([["u", "1"], ["v", "2"]]), [0, 1])
