"""Tables with words: indicators, missing cells and numbers, in frames, dicts and CSV files."""

import subprocess
import sys

import jax
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.svm import LinearSVC

import jaxsvm
from jaxsvm.__main__ import main
from jaxsvm.data import load_csv
from jaxsvm.models import OnTable
from jaxsvm.models.tables import Column

KEY = jax.random.key(0)
N = 300
RNG = np.random.default_rng(0)
AGE = RNG.integers(18, 80, N).astype(float)
JOB = RNG.choice(["clerk", "cook", "nurse"], N, p=[0.5, 0.3, 0.2]).astype(object)
Y = np.where(AGE / 80 + (JOB == "cook") + 0.3 * RNG.normal(size=N) > 1, "yes", "no")
AGE[:9], JOB[7:12] = np.nan, None
CELLS = {"age": AGE, "job": JOB, "open": RNG.random(N) > 0.5, "rich": Y.astype(object)}
FRAMES = {
    "dict": lambda cells: cells,
    "pandas": pd.DataFrame,
    "categories": lambda cells: pd.DataFrame(cells).astype({"job": "category"}),
    "polars": lambda cells: pl.from_pandas(pd.DataFrame(cells)),
    "pyarrow": lambda cells: pa.table(pd.DataFrame(cells)),
}


def by_hand(scale=False):
    """The numbers, worked out cell by cell."""
    mean, deviation = np.nanmean(AGE), np.nanstd(AGE)
    gap = np.isnan(AGE)
    age = np.where(gap, mean, AGE)
    age = (age - mean) / deviation if scale else age
    job = [JOB == word for word in ("clerk", "cook", "nurse", None)]
    opened = CELLS["open"].astype(float)
    opened = (opened - opened.mean()) / opened.std() if scale else opened
    return np.stack([age, gap, *job, opened], 1).astype(np.float32)


@pytest.mark.parametrize("scale", [False, True])
@pytest.mark.parametrize("kind", FRAMES)
def test_words_become_indicators_and_missing_numbers_the_mean(kind, scale):
    data = jaxsvm.dataset(FRAMES[kind](CELLS), target="rich", scale=scale)
    assert data.classes.table.names == [
        *("age", "age=(missing)", "job=clerk", "job=cook", "job=nurse", "job=(missing)", "open")
    ]
    assert np.allclose(data.x, by_hand(scale), atol=1e-5)
    assert np.array_equal(data.y, np.where(Y == "yes", 1, -1))
    assert data.classes.names == ("no", "yes")
    assert "job (3 words: clerk, cook, nurse; missing)" in str(data.classes.table)


@pytest.mark.parametrize("kind", FRAMES)
def test_a_fit_predicts_rows_of_a_table(kind, tmp_path):
    data = jaxsvm.dataset(FRAMES[kind](CELLS), target="rich", scale=True)
    run = jaxsvm.fit(jaxsvm.linear_svm(1.0), data, KEY)
    predicted = run.predict(FRAMES[kind]({name: CELLS[name] for name in ("open", "job", "age")}))
    want = np.where(np.asarray(run.model(data.x)) > 0, "yes", "no")
    assert np.array_equal(predicted, want) and (predicted == Y).mean() > 0.8
    jaxsvm.models.save(tmp_path / "model.npz", run.classifier)
    model = jaxsvm.models.load(tmp_path / "model.npz")
    assert isinstance(model, OnTable) and np.array_equal(model.predict(FRAMES[kind](CELLS)), want)
    assert np.allclose(model(CELLS), run.model(data.x), atol=1e-6)


def test_a_saved_model_answers_in_another_process(tmp_path):
    run = jaxsvm.fit(jaxsvm.linear_svm(1.0), jaxsvm.dataset(CELLS, target="rich"), KEY)
    jaxsvm.models.save(tmp_path / "model.npz", run.classifier)
    code = (
        "import jaxsvm; m = jaxsvm.models.load('model.npz');"
        "print(*m.predict({'age': [70.0, None], 'job': ['cook', 'clerk'], 'open': [1, 0]}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    want = run.predict({"age": [70.0, None], "job": ["cook", "clerk"], "open": [1, 0]})
    assert done.stdout.split() == want.tolist()


def test_probabilities_and_choices_are_of_tables_too():
    data = jaxsvm.dataset(CELLS, target="rich", scale=True)
    found = jaxsvm.select(jaxsvm.linear_svm, data, KEY, C=np.array([0.1, 1.0]), progress=False)
    chances = OnTable(data.classes.table, found.calibrated())
    p = chances.predict_proba(CELLS)
    assert np.allclose(p, found.calibrated().predict_proba(data.x)) and p.shape == (N, 2)
    assert np.array_equal(found.predict(CELLS), found.classifier.predict(CELLS))


def test_rows_of_a_test_set_are_encoded_as_those_of_training():
    train = jaxsvm.dataset({name: cells[:200] for name, cells in CELLS.items()}, target="rich")
    rest = {name: cells[200:] for name, cells in CELLS.items()}
    test = jaxsvm.dataset(rest, target="rich", like=train)
    assert np.allclose(test.x, train.classes.table.encode(rest))
    only = {name: cells[:3] for name, cells in rest.items()} | {"rich": np.array(["yes"] * 3)}
    assert (jaxsvm.dataset(only, target="rich", like=train).y == 1).all()


def test_real_targets_of_a_table():
    cells = {"job": JOB, "y": AGE}
    with pytest.warns(UserWarning, match="9 of 300 rows have no target, and are left out"):
        data = jaxsvm.dataset(cells, target="y", task="regression")
    assert data.x.shape == (291, 4)
    run = jaxsvm.fit(jaxsvm.linear_svm(1.0, loss=jaxsvm.losses.squared), data, KEY)
    assert run.predict(cells).shape == (N,)


def test_words_with_targets_of_their_own():
    frame = pd.DataFrame(CELLS).drop(columns="rich")
    data = jaxsvm.dataset(frame, Y, np.arange(N) % 3 + 1.0)
    assert np.allclose(data.x, by_hand()) and data.weight[1] == 2
    assert np.allclose(jaxsvm.dataset(frame[["open"]], Y).x[:, 0], CELLS["open"])  # numbers alone


def test_weights_go_with_the_rows_that_have_a_target():
    weight = np.arange(N) + 1.0
    with pytest.warns(UserWarning, match="9 of 300 rows"):
        data = jaxsvm.dataset({"job": JOB, "y": AGE}, None, weight, target="y", task="regression")
    assert np.array_equal(data.weight, weight[~np.isnan(AGE)])


def test_dtypes_of_pandas():
    frame = pd.DataFrame(
        {
            0: pd.array([1, None, 3], dtype="Int64"),
            "truth": pd.array([True, None, False], dtype="boolean"),
            "word": pd.array(["u", None, "v"], dtype="string"),
            "kind": pd.Categorical([3, 5, None], categories=[3, 5, 7]),
            1: [7, 3, 7],
        }
    )
    data = jaxsvm.dataset(frame, target=1)
    assert data.classes.names == (3, 7) and data.classes.table.names == [
        *("0", "0=(missing)", "truth", "truth=(missing)", "word=u", "word=v", "word=(missing)"),
        *("kind=3", "kind=5", "kind=(missing)"),
    ]
    assert np.array_equal(data.x[1], [2, 1, 0.5, 1, 0, 0, 1, 0, 1, 0])
    run = jaxsvm.fit(jaxsvm.linear_svm(1.0), data, KEY)
    assert set(run.predict(frame)) <= {3, 7}
    with pytest.raises(ValueError, match="pass a data frame, or a dict, with the columns 0, truth"):
        run.predict([["u", 1, 2, 3]])


def test_labels_and_real_targets_of_a_table():
    cells = {name: CELLS[name] for name in ("age", "job", "open")}
    labels = np.stack([Y == "yes", AGE > 40], 1)
    data = jaxsvm.dataset(cells, labels, scale=True)
    run = jaxsvm.fit(jaxsvm.multi_output(jaxsvm.linear_svm(1.0), outputs=2), data, KEY)
    assert np.array_equal(run.predict(cells), np.asarray(run.model(data.x)) > 0)
    real = jaxsvm.dataset(cells, labels * 2.5, task="regression", scale=True)
    tube = jaxsvm.linear_svm(1.0, loss=jaxsvm.losses.eps_insensitive(0.1))
    run = jaxsvm.fit(jaxsvm.multi_output(tube, outputs=2), real, KEY)
    assert np.allclose(run.predict(cells), run.model(real.x), atol=1e-5)


def test_numbers_of_tables_keep_their_digits():
    x = jaxsvm.dataset({"c": np.full(1000, 0.1), "y": np.arange(1000) % 2}, target="y", scale=True)
    assert np.abs(x.x).max() < 1e-6
    assert np.allclose(x.classes.table.encode({"c": [0.2]}), 0.1)
    with pytest.warns(UserWarning, match="differ by 29 only: take scale=True"):
        jaxsvm.dataset({"v": np.arange(30) + 1e9, "y": np.arange(30) % 2}, target="y")
    frame = pd.DataFrame({"a": np.arange(30) * 100.0, "b": np.arange(30)})
    assert np.allclose(jaxsvm.dataset(frame, np.arange(30) % 2, scale=True).x.std(0), 1, atol=1e-5)
    with pytest.raises(ValueError, match="scale is for tables"):
        jaxsvm.dataset(np.eye(2), [0, 1], scale=True)


def test_cells_are_the_same_words_everywhere():
    words = np.array([1.0, 2, "x", None] * 5, object)
    table = jaxsvm.dataset({"c": words, "y": np.arange(20) % 2}, target="y").classes.table
    assert table.names == ["c=1", "c=2", "c=x", "c=(missing)"]
    assert table.encode({"c": [1.0, 2.0, np.nan]}).argmax(1).tolist() == [0, 1, 3]
    table = jaxsvm.dataset({"c": [b"u", b"v"], "y": [0, 1]}, target="y").classes.table
    assert table.names == ["c=u", "c=v"]


def test_sparse_rows_are_no_table():
    rows = scipy.sparse.dok_matrix(np.eye(3))  # a dict
    assert jaxsvm.dataset(rows, [1, -1, 1]).x.shape == (3, 3)


def test_rare_words_share_an_indicator():
    words = np.array(["a"] * 2990 + ["b"] * 8 + ["c", "d"], object)
    data = jaxsvm.dataset({"w": words, "y": np.arange(3000) % 2}, target="y")
    table = data.classes.table
    assert table.names == ["w=a", "w=b", "w=(other)"]
    with pytest.warns(UserWarning, match=r"no training row had, .*: w: e$"):
        assert table.encode({"w": ["c", "e", "a"]}).tolist() == [[0, 0, 1], [0, 0, 1], [1, 0, 0]]
    many = np.array([f"w{i % 300}" for i in range(3000)], object)
    table = jaxsvm.dataset({"w": many, "y": np.arange(3000) % 2}, target="y").classes.table
    assert len(table.names) == 101 and Column(*table.columns[0]).outputs[-1] == "w=(other)"


def test_a_word_never_seen_is_told_once(recwarn):
    table = jaxsvm.dataset(CELLS, target="rich").classes.table
    new = {"age": [30.0] * 4, "job": ["pilot"] * 4, "open": [0] * 4}
    assert (table.encode(new)[:, 2:6] == 0).all()
    assert len([w for w in recwarn if "pilot" in str(w.message)]) == 1


def of(**cells):
    return jaxsvm.dataset(cells, target="y")


def encode(**cells):
    return jaxsvm.dataset(CELLS, target="rich").classes.table.encode(cells)


OTHER = jaxsvm.dataset([[1], [2]], [0, 1])
BAD = {
    "has no column 'income', it has age, job": lambda: jaxsvm.dataset(CELLS, target="income"),
    "needs its targets: give target=": lambda: jaxsvm.dataset(pd.DataFrame(CELLS)),
    "y is missing: give the targets": lambda: jaxsvm.dataset(np.ones((3, 2))),
    "needs its targets": lambda: jaxsvm.dataset(CELLS, Y, target="rich"),
    "holds no number: leave it out": lambda: of(a=[np.nan] * 3, y=[0, 1, 0]),
    "no column beside the target": lambda: of(y=[0, 1, 0]),
    "differ in length": lambda: of(a=[1.0], y=[0, 1]),
    "holds times": lambda: jaxsvm.dataset(
        pd.DataFrame({"t": pd.to_datetime(["2020-01-01"] * 2), "y": [0, 1]}), target="y"
    ),
    "holds an infinity": lambda: of(a=[np.inf, 1], y=[0, 1]),
    "two columns of the table have one name": lambda: jaxsvm.dataset(
        pd.DataFrame([[1, 2, "a"]], columns=["x", "x", "y"]), target="y"
    ),
    "two columns of the table have one name: '1'": lambda: jaxsvm.dataset(
        {1: [1.0, 2], "1": ["u", "v"], "y": [0, 1]}, target="y"
    ),
    "weight must hold one number for each of the 300 rows": lambda: jaxsvm.dataset(
        CELLS, None, np.ones(3), target="rich"
    ),
    "the columns of the table differ in length": lambda: encode(age=[1.0], job=["a"] * 2, open=[1]),
    "has shape": lambda: of(a=np.ones((2, 2)), y=[0, 1]),
    "like must be the data of": lambda: jaxsvm.dataset(CELLS, target="rich", like=OTHER),
    "has no column 'job', which the model reads": lambda: encode(age=[1.0]),
    "row 0: the cell 'old' of column 'age' is no number": lambda: encode(
        age=["old"], job=["cook"], open=[1]
    ),
}


@pytest.mark.parametrize("message", BAD)
def test_bad_tables_get_one_sentence(message):
    with pytest.raises(ValueError, match=message):
        BAD[message]()


def test_a_target_is_of_tables():
    with pytest.raises(TypeError, match="target and like are for tables"):
        jaxsvm.dataset(np.ones((3, 2)), target="y")


def test_frames_need_narwhals(monkeypatch):
    monkeypatch.setitem(sys.modules, "narwhals", None)
    with pytest.raises(ImportError, match=r"pip install 'jaxsvm\[table\]'"):
        jaxsvm.dataset(pd.DataFrame(CELLS), target="rich")


# Files


def census(n, seed):
    """Rows of the form of the census data Adult as it is published."""
    rng = np.random.default_rng(seed)
    pick = lambda words, p: rng.choice(words, n, p=p)
    columns = {
        "age": rng.integers(17, 90, n),
        "workclass": pick(["Private", "Self-emp-inc", "State-gov", "?"], [0.75, 0.1, 0.1, 0.05]),
        "education": pick(["HS-grad", "Bachelors", "Masters", "11th"], [0.5, 0.3, 0.1, 0.1]),
        "capital-gain": np.where(rng.random(n) < 0.08, rng.integers(100, 9999, n), 0),
        "native-country": pick(
            ["United-States", "Mexico", "Germany", "?", "Holand-Netherlands"],
            [0.9, 0.05, 0.0292, 0.02, 0.0008],
        ),
    }
    score = 0.04 * (columns["age"] - 45) + columns["capital-gain"] / 2000
    score += (columns["education"] == "Masters") * 2.0 + (columns["education"] == "Bachelors") * 1.2
    score += 1.5 * (columns["workclass"] == "Self-emp-inc") - 0.7 + rng.logistic(size=n)
    return columns, np.where(score > 0, ">50K", "<=50K")


def write(path, columns, y, header=False):
    names = [", ".join([*columns, "income"])] if header else []
    rows = [", ".join(map(str, row)) for row in zip(*columns.values(), y, strict=True)]
    path.write_text("\n".join([*names, *rows, ""]) + "\n")


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("census")
    write(folder / "adult.csv", *census(3000, 0))
    write(folder / "test.csv", *census(1500, 1))
    write(folder / "named.csv", *census(3000, 0), header=True)
    columns, y = census(200, 2)
    columns["native-country"] = columns["native-country"].astype(object)
    columns["native-country"][0] = "Narnia"
    write(folder / "new.csv", columns, y)
    (folder / "rows.csv").write_text(
        "".join(line.rpartition(",")[0] + "\n" for line in open(folder / "new.csv") if line.strip())
    )
    return folder


def test_census_as_shipped_against_a_pipeline_of_scikit_learn(files):
    with pytest.warns(UserWarning, match="no header: 'income' is taken for its last column"):
        train, test = load_csv(files / "adult.csv", files / "test.csv", target="income", scale=True)
    run = jaxsvm.fit(jaxsvm.linear_svm(1.0, loss=jaxsvm.losses.squared_hinge), train, KEY)
    ours = float(jaxsvm.error_on(test)(run.model))
    frames = [
        pd.DataFrame(columns).replace("?", np.nan).assign(income=y)
        for columns, y in (census(3000, 0), census(1500, 1))
    ]
    words = ["workclass", "education", "native-country"]
    fill = SimpleImputer(strategy="constant", fill_value="(missing)")
    table = ColumnTransformer(
        [
            ("words", make_pipeline(fill, OneHotEncoder(handle_unknown="ignore")), words),
            ("numbers", StandardScaler(), ["age", "capital-gain"]),
        ]
    )
    peer = make_pipeline(table, LinearSVC()).fit(frames[0], frames[0]["income"])
    theirs = 1 - peer.score(frames[1], frames[1]["income"])
    assert abs(ours - theirs) <= 0.003
    named, *_ = load_csv(files / "named.csv", target="income", scale=True)
    assert np.array_equal(named.x, train.x) and "age" in named.classes.table.inputs


def test_the_commands_take_the_census_as_shipped(files, capsys, tmp_path):
    model = str(tmp_path / "model.npz")
    of = lambda name: str(files / name)
    assert main(["train", of("adult.csv"), "--target", "income", "--test", of("test.csv"),
                 "--model", model, "--quiet"]) == 0  # fmt: skip
    told = capsys.readouterr()
    assert "'income' is taken for its last column" in told.err and "test error" in told.out
    assert main(["info", model]) == 0
    told = capsys.readouterr().out
    assert "classifier of 5 columns" in told and "Self-emp-inc" in told and "target income" in told
    assert main(["predict", model, of("new.csv")]) == 0
    answer = capsys.readouterr()
    assert answer.err.count("Narnia") == 1 and len(answer.out.split()) == 200
    assert "error" in answer.err
    assert main(["predict", model, of("rows.csv")]) == 0  # without the target
    assert capsys.readouterr().out == answer.out
    loaded = jaxsvm.models.load(model)
    assert isinstance(loaded, OnTable)


def test_select_takes_a_table(files, capsys, tmp_path):
    model = str(tmp_path / "model.npz")
    assert main(["select", str(files / "named.csv"), "--target", "income", "--kernel", "linear",
                 "--C", "0.1,1", "--probability", "--model", model, "--quiet"]) == 0  # fmt: skip
    assert main(["predict", model, str(files / "new.csv"), "--probability"]) == 0
    rows = [line.split("\t") for line in capsys.readouterr().out.splitlines()[-200:]]
    assert all(abs(float(a) + float(b) - 1) < 1e-6 for _, a, b in rows)


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("a,b\n1,x\n2\n", {"target": "b"}, "line 3 has 1 cells, expected 2 as in the first"),
        ("a,b\n", {"target": "b"}, "holds no rows"),
        ("", {"target": "b"}, "holds no rows"),
        ("a,b\nu,x\nv,y\n", {"target": "c"}, "has no column 'c', its first line holds a, b"),
        ("1,x\n2,y\n", {"target": 5}, "the target cannot stand in column 5"),
        ("a,a,b\n1,2,x\n", {"target": "b"}, "two columns have the name 'a'"),
        ("a,b\n" + "1,x\n" * 20 + "1o,y\n", {"target": "b"}, "line 22: the cell '1o' in column"),
        ("a,b\n1,\n2,\n", {"target": "b"}, "the column of targets 'b' is empty"),
    ],
)  # fmt: skip
def test_bad_files_get_one_sentence(text, options, message, tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text(text)
    with pytest.raises(ValueError, match=message):
        load_csv(path, **options)


def test_first_lines_and_gaps_of_files(tmp_path, capsys):
    path = tmp_path / "rows.csv"
    path.write_text("colour,size,t\n" + "red,small,no\nblue,large,yes\n" * 15)
    (data,) = load_csv(path, target=2)
    assert data.x.shape[0] == 30 and data.classes.names == ("no", "yes")
    model = str(tmp_path / "m.npz")
    assert main(["train", str(path), "--target", "t", "--model", model, "--quiet"]) == 0
    path.write_text("col,size\nred,small\n")
    assert main(["predict", model, str(path)]) == 2
    assert "has no column 'colour', which the model reads" in capsys.readouterr().err
    path.write_text("colour,size,t\nred,small,no\nblue,small,\nblue,large,yes\n")
    assert main(["predict", model, str(path)]) == 0
    told = capsys.readouterr()
    assert len(told.out.split()) == 3 and "error 0.00%" in told.err
    path.write_text("colour,size,t\nred,small,\nblue,large,\n")
    assert main(["predict", model, str(path)]) == 0
    assert len(capsys.readouterr().out.split()) == 2


def test_truth_values_are_numbers_in_files_as_in_frames(tmp_path):
    frame = pd.DataFrame({"open": [True, False, True, False], "y": ["a", "b", "a", "b"]})
    frame.to_csv(tmp_path / "rows.csv", index=False)
    (data,) = load_csv(tmp_path / "rows.csv", target="y")
    same = jaxsvm.dataset(frame, target="y")
    assert (
        np.array_equal(data.x, same.x) and data.classes.table.columns == same.classes.table.columns
    )


def test_columns_of_codes_are_words(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("code,b\n17,x\nA1,y\n,x\nB2,y\n")
    (data,) = load_csv(path, target="b")
    assert data.classes.table.names == ["code=17", "code=A1", "code=B2", "code=(missing)"]
    (data,) = load_csv(path, target=0, header=True, task="multiclass")
    assert data.classes.table.target == "code"


# What was silently something else


def scaled(**options):
    return jaxsvm.dataset(CELLS, target="rich", scale=True, **options)


def test_cells_in_an_array_are_not_taken_for_numbers_made_of_them():
    only = {"age": np.arange(40.0) % 7, "size": np.arange(40.0) % 9, "y": np.tile(["a", "b"], 20)}
    data = jaxsvm.dataset(only, target="y", scale=True)
    run = jaxsvm.fit(jaxsvm.linear_svm(1.0), data, KEY)
    for model in (run, run.classifier):
        assert model.predict(data.x).shape == (40,)
        for cells in ([[70.0, 3.0]], np.array([[70.0, 3.0]])):
            with pytest.raises(
                ValueError, match="reads a table: pass .* the columns age, size; num"
            ):
                model.predict(cells)
    plain = jaxsvm.fit(jaxsvm.linear_svm(1.0), jaxsvm.dataset(only, target="y"), KEY)
    assert plain.predict(np.array([[3.0, 3.0]])).shape == (1,)


def test_probabilities_and_sets_are_of_tables_too():
    data = scaled()
    found = jaxsvm.select(jaxsvm.linear_svm, data, KEY, C=np.array([0.1, 1.0]), progress=False)
    chances = found.calibrated()
    assert isinstance(chances, OnTable) and chances.classes == ("no", "yes")
    assert np.allclose(chances.predict_proba(CELLS), chances.predict_proba(data.x))
    assert found.conformal().sets(CELLS) == found.conformal().sets(data.x)
    run = jaxsvm.fit(jaxsvm.linear_svm(1.0), data, KEY)
    own = jaxsvm.calibrate(run.classifier, data)
    assert np.allclose(own.predict_proba(CELLS), jaxsvm.calibrate(run.model, data)(data.x))
    assert jaxsvm.conformal(run.classifier, data).sets(CELLS)[0] in [
        ("no",),
        ("yes",),
        (),
        ("no", "yes"),
    ]


def test_intervals_of_real_targets_of_a_table():
    cells = {"job": JOB[20:], "y": AGE[20:]}
    data = jaxsvm.dataset(cells, target="y", task="regression")
    run = jaxsvm.fit(jaxsvm.linear_svm(1.0, loss=jaxsvm.losses.squared), data, KEY)
    ends = jaxsvm.conformal(run.model, data).predict(data.x)
    inside = (ends[:, 0] <= cells["y"]) & (cells["y"] <= ends[:, 1])
    assert ends.shape == (280, 2) and 0.85 < inside.mean() < 0.95


def test_a_probe_on_rows_that_are_numbers_of_their_own_is_refused():
    data = scaled()
    test = {name: cells[100:] for name, cells in CELLS.items()}
    probe = jaxsvm.error_on(jaxsvm.dataset(test, target="rich", scale=True))
    with pytest.raises(ValueError, match="the rows of the probe were made numbers by themselves"):
        jaxsvm.fit(jaxsvm.linear_svm(1.0), data, KEY, probe=probe)
    run = jaxsvm.fit(jaxsvm.linear_svm(1.0), data, KEY)
    for judge in (jaxsvm.calibrate, jaxsvm.conformal, lambda m, d: jaxsvm.error_on(d)(m)):
        with pytest.raises(ValueError, match="were made numbers by themselves"):
            judge(run.classifier, probe.data)
    probe = jaxsvm.error_on(jaxsvm.dataset(test, target="rich", like=data))
    assert jaxsvm.fit(jaxsvm.linear_svm(1.0), data, KEY, probe=probe).finite


def test_several_columns_of_a_table_are_targets():
    tall, old = np.arange(N) % 3 == 0, np.where(np.isnan(AGE), np.nan, AGE > 50)
    cells = {"job": JOB, "tall": tall, "age": AGE, "old": old}
    data = jaxsvm.dataset(cells, target=["old", "tall"])
    assert data.classes.names == ("old", "tall") and data.classes.table.inputs == ["job", "age"]
    assert np.array_equal(data.y[:, 1] > 0, tall) and data.weight.shape == (N, 2)
    assert np.array_equal(jaxsvm.column(data, "tall").y > 0, tall)
    again = jaxsvm.dataset(cells, target=["old", "tall"], like=data)
    assert np.array_equal(again.y, data.y) and again.classes.names == data.classes.names
    run = jaxsvm.fit(jaxsvm.multi_output(jaxsvm.linear_svm(1.0), outputs=2), data, KEY)
    labels = run.classifier
    assert labels.inner.labels == ("old", "tall")
    assert np.array_equal(labels.predict(cells), run.predict(cells))
    swapped = jaxsvm.dataset(cells, target=["tall", "old"], like=data)
    assert np.array_equal(swapped.y, data.y) and swapped.classes.names == data.classes.names
    for bad, message in (
        ({"target": ["old", "old"]}, "names a column twice"),
        ({"target": ["old", "age"], "like": data}, "must name the columns of the training rows"),
        ({"target": ["old", "tall"], "classes": ["a", "b"]}, "leave classes out"),
    ):
        with pytest.raises(ValueError, match=message):
            jaxsvm.dataset(cells, **bad)
    real = jaxsvm.dataset(cells, target=["age", "old"], task="regression")
    assert real.y.shape == (N, 2) and real.x.shape[1] == 5
    assert jaxsvm.dataset(CELLS, target=["rich"]).classes.names == ("no", "yes")
    with pytest.raises(ValueError, match="column of targets 'job' holds words: of several"):
        jaxsvm.dataset(cells, target=["job", "tall"])
    with pytest.raises(ValueError, match="no column 'wide', it has job"):
        jaxsvm.dataset(cells, target=["wide", "tall"])
    with pytest.raises(ValueError, match=r"named old, tall have no column 'wide'"):
        jaxsvm.column(data, "wide")


@pytest.mark.parametrize(
    ("name", "cells", "message"),
    [
        ("day", [f"2026-01-{d:02d}" for d in range(1, 31)], "'day' holds 30 different words in 30"),
        ("id", np.arange(30), "the column 'id' counts the rows from 0"),
    ],
)
def test_columns_that_say_nothing_of_other_rows_are_named(name, cells, message, tmp_path):
    table = {name: np.array(cells), "y": np.tile(["a", "b"], 15)}
    with pytest.warns(UserWarning, match=message):
        jaxsvm.dataset(table, target="y")
    pd.DataFrame(table).to_csv(tmp_path / "a.csv", index=False)
    with pytest.warns(UserWarning, match=message):
        load_csv(tmp_path / "a.csv", target="y")


def test_messages_name_what_is_meant(tmp_path):
    data = scaled()
    wrong = {"age": AGE, "jbo": JOB, "open": CELLS["open"]}
    with pytest.raises(ValueError, match="no column 'job'.*; rename 'jbo' if that is it"):
        data.classes.table.encode(wrong)
    with pytest.raises(ValueError, match=r"weight is the name 'age': pass .* frame\['age'\]"):
        scaled(weight="age")
    with pytest.warns(UserWarning, match="there are 25 classes in 60 rows, such as 0"):
        (tmp_path / "price.csv").write_text(
            "a,price\n" + "".join(f"{i % 4},{i % 25}\n" for i in range(60))
        )
        load_csv(tmp_path / "price.csv", target="price")


@pytest.mark.parametrize("make", [dict, pd.DataFrame, pl.DataFrame, pa.table])
def test_truth_values_of_the_target_keep_their_names(make):
    """As those of an array do."""
    columns = {"a": np.array([-2.0, -1.0, 1.0, 2.0]), "paid": np.array([False, False, True, True])}
    data = jaxsvm.dataset(make(columns), target="paid")
    assert repr(data.classes.names) == "(False, True)"
    result = jaxsvm.fit(jaxsvm.linear_svm(1.0), data, KEY)
    assert result.predict(make({"a": columns["a"]})).tolist() == columns["paid"].tolist()


def test_truth_values_may_be_missing():
    frame = pd.DataFrame({"a": [-2.0, -1.0, 1.0, 2.0]})
    frame["paid"] = pd.array([False, None, True, True], "boolean")
    words = {"a": [-2.0, -1.0, 1.0, 2.0], "paid": [False, None, True, True]}
    for table in (frame, words, pd.DataFrame(words)):
        with pytest.warns(UserWarning, match="1 of 4 rows have no target"):
            data = jaxsvm.dataset(table, target="paid")
        assert repr(data.classes.names) == "(False, True)"
