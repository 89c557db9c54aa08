"""The command line against pipelines written by hand, its refusals, and the first job."""

import os
import re
import subprocess
import sys
import types

import numpy as np
import pandas
import pytest
import sklearn.svm
import skops.io
from sklearn.compose import make_column_transformer
from sklearn.datasets import dump_svmlight_file
from sklearn.impute import SimpleImputer
from sklearn.model_selection import GridSearchCV, GroupKFold, GroupShuffleSplit, ShuffleSplit
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler, OneHotEncoder, StandardScaler

import jaxsvm
from jaxsvm import cli, estimators, losses
from jaxsvm.__main__ import main
from jaxsvm.estimators import SVC, SVR, LinearSVC, Ranker

ADULT = ["job", "vip"], ["age", "hours", "capital"]
N = 160


def adult(n=N, seed=0):
    """A table like Adult: words, numbers of several scales, missing cells of both."""
    random = np.random.default_rng(seed)
    frame = pandas.DataFrame(
        {
            "age": random.integers(18, 80, n).astype(float),
            "job": random.choice(["clerk", "cook", "nurse"], n).astype(object),
            "hours": random.normal(40, 8, n),
            "vip": random.choice(["yes", "no"], n).astype(object),
            "capital": random.exponential(1000, n).round(),
        }
    )
    score = (frame.age - 50) / 15 + (frame.job == "nurse") + random.normal(0, 0.3, n)
    frame.loc[::11, "age"], frame.loc[::7, "job"] = np.nan, np.nan
    return frame, score


def by_hand(machine, words=ADULT[0], numbers=ADULT[1]):
    word = make_pipeline(SimpleImputer(strategy="most_frequent"), OneHotEncoder(
        handle_unknown="ignore"))  # fmt: skip
    number = make_pipeline(SimpleImputer(), StandardScaler())
    return make_pipeline(make_column_transformer((word, words), (number, numbers)), machine)


MODEL = "--model t.skops"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The files of all tests; `m.skops` is a model of train.csv with probabilities."""
    folder, before = tmp_path_factory.mktemp("cli"), os.getcwd()
    os.chdir(folder)
    frame, score = adult()
    income = np.where(score > 0, "high", "low")
    frame.assign(income=income).to_csv("train.csv", index=False)
    frame.assign(income=income).to_parquet("train.parquet")
    frame.assign(income=income, qid=np.arange(N) // 8).to_csv("queries.csv", index=False)
    frame.assign(pay=score).to_csv("pay.csv", index=False)
    frame.assign(pay=range(N)).to_csv("whole.csv", index=False)
    new, score = adult(60, seed=1)
    new.loc[0, "job"] = "pilot"  # which no training row has
    new.to_csv("new.csv", index=False)
    other = new.iloc[:, ::-1].assign(income=np.where(score > 0, "high", "low"))
    other.to_csv("other_order.csv", index=False)
    new.rename(columns={"age": "years"}).to_csv("renamed.csv", index=False)
    new.assign(age="old").to_csv("words.csv", index=False)
    random = np.random.default_rng(2)
    x = random.normal(size=(N, 6)) * (random.random((N, 6)) < 0.7)
    x[0] = 1
    y = np.where(x @ [1, -1, 0, 0, 0, 0.1] > 0, 1, -1)
    grade = np.clip(np.round(x[:, 0] + x[:, 1]), -1, 1) + 1
    dump_svmlight_file(x, y, "two.svm")  # columns from 0 on
    dump_svmlight_file(x, grade, "ranks.svm", query_id=np.arange(N) // 8, zero_based=False)
    np.savez("rows.npz", x=x, y=y, weight=1.0 + np.arange(N) % 3)
    np.savez("wide.npz", x=np.ones((3, 7)), y=y[:3])
    np.savez("short.npz", x=x, y=y[:-1])
    (folder / "twice.csv").write_text("age,age,income\n1,2,low\n3,4,high\n")
    words = (folder / "train.csv").read_text().replace("high", "rich")
    (folder / "other_class.csv").write_text(words)
    (folder / "text.skops").write_text("no model")
    skops.io.dump({"machine": print}, "print.skops")
    assert main("train train.csv --target income --model m.skops --probability".split()) == 0
    os.chdir(before)
    return folder


@pytest.fixture
def run(folder, monkeypatch, capsys):
    """Runs a command; the result is (status, standard output, standard error)."""
    monkeypatch.chdir(folder)

    def call(command):
        try:
            status = main(command.split())
        except SystemExit as error:  # of --help
            status = error.code
        return status, *capsys.readouterr()

    return call


def read(name, target=None):
    frame = pandas.read_csv(name) if name.endswith(".csv") else pandas.read_parquet(name)
    return frame if target is None else (frame.drop(columns=target), frame[target])


@pytest.mark.long(but=1)
@pytest.mark.parametrize(
    "file, target, options, machine",
    [
        ("train.csv", "income", "", SVC(random_state=0)),
        ("train.parquet", "income", "--set C=10 gamma=0.05", SVC(C=10, gamma=0.05)),
        ("train.csv", "income", "--machine LinearSVC", LinearSVC(random_state=0)),
        ("pay.csv", "pay", "--set epsilon=0.2", SVR(epsilon=0.2)),
    ],
)
def test_a_table_gives_the_answers_of_the_pipeline_by_hand(run, file, target, options, machine):
    status, out, _ = run(f"train {file} --target {target} --model t.skops {options}")
    x, y = read(file, target)
    hand = by_hand(machine).fit(x, y)
    assert status == 0
    if target == "income":
        assert f"training error  {np.mean(hand.predict(x) != y):.2%} of {N} rows" in out
        assert "5 columns, classes high, low" in out
    else:
        assert f"R2 {hand.score(x, y):.4f}" in out
    same = hand.predict(read("new.csv"))
    for rows in ("new.csv", "other_order.csv"):  # an unknown word; columns are found by name
        status, out, err = run(f"predict t.skops {rows}")
        assert status == 0 and "60 rows" in err
        if target == "income":
            assert out.split() == same.tolist()
        else:
            np.testing.assert_allclose([float(value) for value in out.split()], same, rtol=1e-6)


def test_other_files_give_the_answers_of_the_pipeline_by_hand(run):
    with np.load("rows.npz") as arrays:
        x, y, weight = arrays["x"], arrays["y"], arrays["weight"]
    hand = make_pipeline(StandardScaler(), SVC()).fit(x, y, svc__sample_weight=weight)
    assert run("train rows.npz --model t.skops")[0] == 0
    status, out, err = run("predict t.skops rows.npz")
    assert out.split() == hand.predict(x).astype(str).tolist()
    assert f"error           {np.mean(hand.predict(x) != y):.2%}" in err
    assert run("train two.svm --model t.skops --machine LinearSVC")[0] == 0
    hand = make_pipeline(MaxAbsScaler(), LinearSVC(random_state=0)).fit(x, y)
    assert run("predict t.skops two.svm")[1].split() == hand.predict(x).astype(str).tolist()


def test_an_svmlight_file_of_fewer_columns_keeps_their_numbers(run, tmp_path):
    run("train two.svm --model t.skops --machine LinearSVC")
    (tmp_path / "a.svm").write_text("1 1:3\n")
    assert run(f"predict t.skops {tmp_path}/a.svm")[1] == "-1\n"  # as x[1] = 3, not x[0]
    run("train ranks.svm --model t.skops --machine LinearSVC")  # columns from 1 on
    (tmp_path / "a.svm").write_text("1 0:1 2:3\n")
    status, _, err = run(f"predict t.skops {tmp_path}/a.svm")
    assert status == 2 and "begin at 1" in err
    (tmp_path / "a.svm").write_text("0 1:9 6:1\n0 1:-9\n")
    assert run(f"predict t.skops {tmp_path}/a.svm")[1].split() == ["2", "0"]  # by x[0]


def test_pairs_are_those_of_a_query():
    """Three right pairs and a wrong one; those of two queries are not compared."""
    x, y = np.array([[1.0], [2], [7], [6], [0]]), np.array([0.0, 1, 2, 0, 1])
    rows = types.SimpleNamespace(x=x, y=y, query=np.array([0, 0, 1, 1, 1]))
    assert "0.7500" in cli.error_of("grades", types.SimpleNamespace(predict=np.ravel), rows)


@pytest.mark.long
def test_queries_are_ranked(run):
    with np.load("rows.npz") as arrays:
        x = arrays["x"]
    grade, query = np.clip(np.round(x[:, 0] + x[:, 1]), -1, 1) + 1, np.arange(N) // 8
    command = "train ranks.svm --model t.skops --set loss=squared_hinge"
    status, out, _ = run(f"{command} --grid lam=0.01 --folds 2 --hold-out 0.3")
    assert status == 0 and "20 queries" in out and out.count("concordance") == 2
    places, _ = next(GroupShuffleSplit(1, test_size=0.3, random_state=0).split(x, groups=query))
    scores, (rows, y, q) = [], (a[places] for a in (x, grade, query))
    for train, test in GroupKFold(2).split(rows, groups=q):  # folds of whole queries
        hand = make_pipeline(MaxAbsScaler(), Ranker(lam=0.01, loss="squared_hinge"))
        hand.fit(rows[train], y[train], ranker__qid=q[train])
        scores.append(hand[-1].score(hand[0].transform(rows[test]), y[test], qid=q[test]))
    assert f"lam=0.01: nDCG {np.mean(scores):.4f}, mean of 2 folds" in out
    hand.fit(rows, y, ranker__qid=q)
    status, out, err = run("predict t.skops ranks.svm")
    np.testing.assert_allclose([float(a) for a in out.split()], hand.predict(x), atol=1e-3)
    scores = hand.predict(x).reshape(20, 1, 8)
    steps = np.sign(grade.reshape(20, 1, 8) - grade.reshape(20, 8, 1))
    right = (steps > 0) & (scores > scores.reshape(20, 8, 1))
    assert f"concordance {right.sum() / (steps > 0).sum():.4f}" in err


def test_queries_that_a_machine_does_not_use_are_told(run):
    status, _, err = run("train queries.csv --target income --model t.skops --machine LinearSVC")
    assert status == 0 and "has queries (qid), which LinearSVC does not use" in err


def test_the_grid_is_that_of_scikit_learn(run):
    grid = {"svc__C": [0.01, 1, 100], "svc__gamma": [0.01, 1]}
    x, y = read("train.csv", "income")
    hand = GridSearchCV(by_hand(SVC()), grid, cv=3).fit(x, y)
    line = "train train.csv --target income --model t.skops --folds 3"
    status, out, _ = run(f"{line} --grid C=0.01,1,100 gamma=0.01,1")
    best = ", ".join(f"{name[5:]}={value}" for name, value in hand.best_params_.items())
    assert status == 0
    assert f"{best}: accuracy {hand.best_score_:.4f}, mean of 3 folds" in out
    assert run("predict t.skops new.csv")[1].split() == hand.predict(read("new.csv")).tolist()


def test_held_out_rows_have_no_part_in_the_fit(run):
    status, out, _ = run("train train.csv --target income --model t.skops --hold-out 0.25")
    x, y = read("train.csv", "income")
    train, test = next(ShuffleSplit(1, test_size=0.25, random_state=0).split(x))
    hand = by_hand(SVC(random_state=0)).fit(x.iloc[train], y.iloc[train])
    wrong = np.mean(hand.predict(x.iloc[test]) != y.iloc[test])
    assert status == 0 and f"test error      {wrong:.2%} of {len(test)} rows" in out
    scaler = cli.load_model("t.skops")["pipeline"]["rows"].named_transformers_["remainder"][-1]
    np.testing.assert_allclose(scaler.mean_[1], x.hours.iloc[train].mean())


def test_test_rows_are_read_by_name(run):
    status, out, _ = run("train train.csv --target income --model t.skops --test other_order.csv")
    hand, (x, y) = (
        by_hand(SVC()).fit(*read("train.csv", "income")),
        read("other_order.csv", "income"),
    )
    assert status == 0 and f"test error      {np.mean(hand.predict(x) != y):.2%} of 60" in out
    status, out, err = run("predict t.skops other_order.csv --out o.txt")
    assert status == 0 and f"error           {np.mean(hand.predict(x) != y):.2%} of 60" in out
    assert open("o.txt").read().split() == hand.predict(x).tolist() and err == ""


def test_probabilities_are_a_table_with_the_names_of_classes(run):
    hand = by_hand(SVC(probability=True, random_state=0)).fit(*read("train.csv", "income"))
    assert run("predict m.skops new.csv --out p.csv --probability")[0] == 0
    table = pandas.read_csv("p.csv")
    assert list(table) == ["high", "low"]
    np.testing.assert_allclose(table, hand.predict_proba(read("new.csv")), atol=1e-6)


@pytest.mark.long(but=3)
@pytest.mark.parametrize(
    "file, options, loss",
    [
        ("train.csv --target income", "--set C=3", losses.hinge),
        ("train.csv --target income", "--machine LinearSVC", losses.squared_hinge),
        ("pay.csv --target pay", "--set epsilon=0.2", losses.eps_insensitive(0.2)),
        ("two.svm", "--machine LinearSVC --set loss=hinge", losses.hinge),
    ],
)
def test_the_certificate_is_true(run, file, options, loss):
    """Its objective is that of the model, and no machine of the same problem is below its bound."""
    status, out, _ = run(f"train {file} {options} --model t.skops --certificate")
    value, bound, gap = map(float, re.search(r"objective (\S+), .* (\S+), gap (\S+)", out).groups())
    assert status == 0 and 0 <= gap < 2e-3 * value and value - gap == pytest.approx(bound, rel=1e-4)
    name, _, target = file.partition(" --target ")
    saved = cli.load_model("t.skops")
    pipeline, machine = saved["pipeline"], saved["pipeline"]["machine"]
    if target:
        x, y = read(name, target)
        x = pipeline[:-1].transform(cli.matched(x, saved, name))
    else:
        with np.load("rows.npz") as arrays:
            x, y = pipeline[:-1].transform(arrays["x"]), arrays["y"]
    y = np.asarray(y) if name == "pay.csv" else np.where(y == machine.classes_[1], 1, -1)
    known = {"C": machine.C, "tol": 1e-6}
    known |= {"loss": machine.loss} if type(machine) is LinearSVC else {}
    known |= {"epsilon": machine.epsilon} if type(machine) is SVR else {}
    other = getattr(sklearn.svm, type(machine).__name__)(**known).fit(x, y)
    for fitted, least in ((machine, value * (1 - 1e-5)), (other, bound * (1 - 1e-5))):
        f = fitted.decision_function(x) if hasattr(fitted, "classes_") else fitted.predict(x)
        risk = np.mean(np.asarray(loss.value(f.astype(np.float32), y.astype(np.float32))))
        assert norm(fitted, x) / (2 * machine.C * len(y)) + risk >= least


def norm(machine, x):
    """|w|^2 of a fitted machine, with the bias where it is a feature."""
    if hasattr(machine, "coef_"):
        return float(np.sum(machine.coef_**2) + np.sum(machine.intercept_**2))
    coef, support = np.asarray(machine.dual_coef_)[0], x[machine.support_]
    gamma = 1 / (x.shape[1] * x.var())
    distance = ((support[:, None] - support[None]) ** 2).sum(-1)
    return float(coef @ np.exp(-gamma * distance) @ coef)


def test_what_a_model_file_holds(run):
    types = skops.io.get_untrusted_types(file="m.skops")
    assert types and all(name.startswith(cli.TRUSTED) for name in types)
    saved = skops.io.load("m.skops", trusted=types)
    assert saved["target"] == "income" and saved["columns"] == list(adult()[0])
    assert isinstance(saved["pipeline"]["machine"], estimators.SVC)


def test_rows_without_a_target_are_left_out_with_a_line(run, tmp_path):
    frame = read("train.csv")
    frame.loc[:4, "income"] = np.nan
    frame.to_csv(tmp_path / "some.csv", index=False)
    status, out, err = run(f"train {tmp_path}/some.csv --target income --model t.skops")
    assert status == 0 and "5 rows without a target are left out" in err and f"{N - 5} rows" in out


MACHINES = sorted(set(cli.MACHINES) - {"Ranker"})
READ_AGAIN = [(name, ("wide.csv", "two.svm")[k % 2]) for k, name in enumerate(MACHINES)]


@pytest.mark.long
@pytest.mark.parametrize(("machine", "file"), READ_AGAIN)
def test_what_is_trained_on_sparse_rows_is_read_again(run, file, machine):
    """Machines keep their rows, and a table of many words makes sparse ones."""
    random = np.random.default_rng(0)
    table = pandas.DataFrame({k: random.choice(list("abcdefghij"), 60) for k in "pqrs"})
    table.assign(y=random.permutation([1, -1] * 30)).to_csv("wide.csv", index=False)
    target = "--target y" if file == "wide.csv" else ""
    assert run(f"train {file} {target} {MODEL} --machine {machine}")[0] == 0
    status, out, err = run(f"predict t.skops {file}")
    assert status == 0 and len(out.split()) == (60 if target else N), err


def test_truth_values_as_targets_with_an_empty_cell(run, tmp_path):
    rows = "".join(f"{k},{k > 5}\n" for k in range(12))
    (tmp_path / "a.csv").write_text("x,y\n" + rows)
    (tmp_path / "b.csv").write_text("x,y\n" + rows + "3,\n")
    line = f"train {tmp_path}/a.csv --target y {MODEL} --set C=100 --test {tmp_path}/b.csv"
    status, out, _ = run(line)
    assert status == 0 and "test error      0.00% of 12" in out
    (tmp_path / "c.csv").write_text("x,y\n" + rows.replace("True", "").replace("False", ""))
    status, out, _ = run(f"predict t.skops {tmp_path}/c.csv")
    assert status == 0 and out.split() == ["False"] * 6 + ["True"] * 6


def test_one_class(run):
    _, out, _ = run("train rows.npz --model t.skops --machine OneClassSVM --set nu=0.2")
    assert 10 < float(re.search(r"training error +(\S+)% of", out)[1]) < 30
    assert set(run("predict t.skops rows.npz")[1].split()) == {"1", "-1"}


REFUSALS = [
    ("train nosuch.csv --target income --model t.skops", "there is no file nosuch.csv"),
    ("train train.csv --target wage --model t.skops", "no column 'wage', expected one of 'age'"),
    ("train train.csv --model t.skops", "name their column, --target, one of 'age'"),
    ("train train.csv --target income", "required: --model"),
    ("train train.csv --target income --model no/m.skops", "or in one that does not exist"),
    ("train train.csv --target income --model train.csv", "is a file that is read"),
    (f"train train.csv --target income {MODEL} --machine Forest", "invalid choice: 'Forest'"),
    (f"train train.csv --target income {MODEL} --set cost=1", "SVC has no parameter 'cost'"),
    (f"train train.csv --target income {MODEL} --set C", "expected NAME=VALUE, such as C=10"),
    (f"train train.csv --target income {MODEL} --set C=-1", "C"),
    (f"train train.csv --target income {MODEL} --set C=1 --set C=2", "C is given twice"),
    (f"train twice.csv --target income {MODEL}", "two columns have the name 'age'"),
    (f"train short.npz {MODEL}", r"expected x \(n, d\) and n targets, got \(160, 6\)"),
    (f"train train.csv --target income {MODEL} --test other_class.csv", "class 'rich', expected"),
    (f"train train.csv --target income {MODEL} --test new.csv", "has no column 'income'"),
    (f"train train.csv --target income {MODEL} --grid C=1 --folds 1", "--folds must be at least 2"),
    (f"train train.csv --target income {MODEL} --hold-out 2", "and --hold-out between 0 and 1"),
    (f"train train.csv --target income {MODEL} --hold-out 0.2 --test new.csv", "give one"),
    (f"train train.csv --target income {MODEL} --test renamed.csv", "lacks columns of the model"),
    (f"train train.csv --target income {MODEL} --test words.csv", "'age' held numbers"),
    (f"train train.csv --target income {MODEL} --test rows.npz", "has no names of columns"),
    (
        f"train train.csv --target income {MODEL} --machine SVR",
        "SVR needs numbers, and 'income' holds words",
    ),
    (f"train whole.csv --target pay {MODEL}", "160 different whole numbers: say --machine SVR"),
    (f"train pay.csv --target pay {MODEL} --machine SVC", "continuous"),
    (f"train pay.csv --target pay {MODEL} --probability", "SVR has none"),
    (f"train ranks.svm {MODEL} --machine SVC --certificate", "two classes or of numbers"),
    (f"train two.svm {MODEL} --machine BudgetedSVC --certificate", "is for SVC, LinearSVC, SVR"),
    (f"train rows.npz {MODEL} --machine OneClassSVM --grid nu=0.1,0.2", "give --set"),
    (f"train text.skops {MODEL}", "text.skops, read as svmlight"),
    ("predict m.skops renamed.csv", "lacks columns of the model: 'age'; it has 'years'"),
    ("predict m.skops words.csv", "'age' held numbers in training"),
    ("predict m.skops rows.npz", "has no names of columns"),
    ("predict m.skops new.csv --target income", "has no column 'income' of targets"),
    ("predict text.skops new.csv", "no model that jaxsvm train wrote"),
    ("predict rows.npz new.csv", "no model that jaxsvm train wrote"),
    ("predict print.skops new.csv", "it holds builtins.print"),
    ("explode train.csv", "invalid choice: 'explode'"),
]


@pytest.mark.parametrize("command, words", REFUSALS, ids=[command for command, _ in REFUSALS])
def test_refusals_are_one_sentence_and_status_2(run, command, words):
    status, out, err = run(command)
    assert status == 2 and re.search(words, err)
    # a slow machine draws a bar before
    (sentence,) = (line for line in err.splitlines() if "s, training" not in line)
    assert sentence.startswith("jaxsvm: error: ") and err.endswith("\n")


def test_models_of_other_rows(run):
    run(f"train rows.npz {MODEL}")
    assert "wide.npz has 7 columns, expected 6" in run("predict t.skops wide.npz")[2]
    assert "the model was trained on rows without names" in run("predict t.skops new.csv")[2]
    assert "has no probabilities" in run("predict t.skops rows.npz --probability")[2]


@pytest.mark.parametrize("name", ["pandas", "sklearn.model_selection", "skops.io"])
def test_a_missing_library_is_named_with_its_extra(run, monkeypatch, name):
    monkeypatch.setitem(sys.modules, name, None)
    status, _, err = run(f"train train.csv --target income {MODEL}")
    assert status == 2 and name.split(".")[0] in err and "pip install 'jaxsvm[cli]'" in err


@pytest.mark.parametrize(
    "command, words",
    [
        ("--help", "train predict --version"),
        ("train --help", "FILE --target --model --machine SVC Ranker --set --grid --folds --test "
         "--hold-out --probability --certificate .parquet"),
        ("predict --help", "FILE --out --probability --target"),
        ("--version", jaxsvm.__version__),
    ],
)  # fmt: skip
def test_help_names_all_options(run, command, words):
    status, out, _ = run(command)
    assert status == 0 and all(word in out for word in words.split())


def test_an_interrupted_command_writes_nothing(run, monkeypatch):
    def interrupted(self, *args, **more):
        raise KeyboardInterrupt

    monkeypatch.setattr(SVC, "fit", interrupted)
    status, _, err = run("train train.csv --target income --model never.skops")
    assert status == 130 and "interrupted" in err and not os.path.exists("never.skops")


def test_a_machine_draws_its_bar(run):
    words = "--target income --set progress=True --model bar.skops"
    status, _, err = run(f"train train.csv {words}")
    assert status == 0 and " steps" in err


@pytest.mark.long
def test_the_first_job_needs_the_core_only(tmp_path):
    """Its certificate is below a tenth of a per cent."""
    code = (
        "import sys; from jaxsvm.__main__ import main\nsys.argv[1:] = []; status = main()\n"
        "print([name for name in ('pandas', 'sklearn', 'skops') if name in sys.modules], status)"
    )
    out = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert out.stdout.endswith("[] 0\n"), out.stderr
    value, bound = map(float, re.search(r"objective (\S+), .* least (\S+),", out.stdout).groups())
    assert bound <= value <= 1.001 * bound
    errors = [float(number) for number in re.findall(r"test error +([\d.]+)%", out.stdout)]
    assert len(errors) == 2 and max(errors) < 10
    assert (tmp_path / "jaxsvm-sweep.png").exists()
    commands = re.findall(r"^  jaxsvm (.*)$", out.stdout, re.M)
    assert len(commands) == 3
    for command in commands:  # as typed they are known
        assert cli.parser().parse_args(command.split()).command == command.split()[0]


@pytest.mark.long
def test_the_process_ends_with_the_status(tmp_path):
    code = "from jaxsvm.__main__ import main; print(main(['predict', 'a', 'b']))"
    out = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert out.stdout == "2\n" and out.stderr == "jaxsvm: error: there is no file b\n"
