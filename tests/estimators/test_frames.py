"""Estimators and feature transformers with data frames of pandas and polars."""

import numpy as np
import pytest
import scipy.sparse
from beside import USUAL, equal
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

pytestmark = USUAL

TABLE = pd.DataFrame({"age": np.sin(np.arange(40.0)), "city": ["Rome", "Bonn"] * 20})


FRAMES = {
    "pandas": TABLE,
    "category": TABLE.astype({"city": "category"}),
    "polars": pl.DataFrame({name: TABLE[name].tolist() for name in TABLE}),
    "array": TABLE.to_numpy(),
}
MACHINES = [LinearSVC(), FourierFeatures(), SVC(), SVR(), OneClassSVM()]


@pytest.mark.parametrize(
    ("made", "kind"),
    [
        *((made, "pandas") for made in MACHINES),
        *((made, kind) for made in MACHINES[:2] for kind in ("category", "polars", "array")),
    ],
)
def test_words_in_columns_get_one_sentence(made, kind):
    frame, y = FRAMES[kind], np.arange(40) % 2
    place = "X" if kind == "array" else "column 'city' of X"
    sentence = f"^{place} holds words, such as '(Rome|Bonn)': encode them by .*OneHotEncoder"
    with pytest.raises(ValueError, match=sentence):
        made.fit(frame, y)
    if kind != "array":
        fitted = clone(made).fit(type(frame)({"age": np.arange(40.0), "city": y * 1.0}), y)
        with pytest.raises(ValueError, match=sentence):
            getattr(fitted, "predict", getattr(fitted, "transform", None))(frame)


def test_the_advice_for_words_works():
    y = np.arange(40) % 2
    columns = make_column_transformer((OneHotEncoder(), ["city"]), remainder="passthrough")
    assert make_pipeline(columns, LinearSVC()).fit(TABLE, y).score(TABLE, y) == 1
    # categories that are numbers are numbers
    numbers = pd.DataFrame({"age": pd.Categorical(y)})
    assert LinearSVC().fit(numbers, y).score(numbers, y) == 1


@pytest.mark.long
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
        equal(out.to_numpy(), values)
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


WORDS = [  # machine, rows, targets, sentence
    (SVR(), TABLE[["age"]], TABLE["city"], "^y holds words, such as '(Rome|Bonn)': give"),
    (LinearSVR(), scipy.sparse.csr_array(TABLE[["age"]]), TABLE["city"], "^y holds words"),
    (LinearSVC(), TABLE.assign(city=pd.Timestamp("2020")), range(40), "such as dates: turn"),
    (LinearSVC(), np.array([["u", "1"], ["v", "2"]]), [0, 1], "X holds words, such as 'u'"),
]


@pytest.mark.parametrize(("made", "x", "y", "words"), WORDS)
def test_words_as_targets_and_dates_get_one_sentence(made, x, y, words):
    with pytest.raises(ValueError, match=words):
        made.fit(x, y)
