"""Names of classes and columns that both sides know are compared, at every door."""

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.metrics import roc_auc_score
from sklearn.svm import LinearSVC

import jaxsvm
from jaxsvm import kernels, models
from jaxsvm.metrics import auc_on, error_on, risk_on

KEY = jax.random.key(0)
RANDOM = np.random.default_rng(0)
LINE, LETTERS = np.arange(80.0)[:, None] / 20, np.repeat(list("abcd"), 20)
FRAME = pd.DataFrame(RANDOM.normal(size=(60, 3)), columns=list("pqr"))
TURNED = FRAME[["r", "q", "p"]]
WORDS = np.where(FRAME.p + 2 * FRAME.q + 0.3 * RANDOM.normal(size=60) > 0, "yes", "no")
DATA, OTHER = jaxsvm.dataset(FRAME, WORDS), jaxsvm.dataset(TURNED, WORDS)
RUN = jaxsvm.fit(jaxsvm.linear_svm(1.0), DATA, KEY)
REVERSED = jaxsvm.dataset(FRAME, WORDS, classes=["yes", "no"])
STRANGE = jaxsvm.dataset(FRAME.rename(columns={"q": "z"}), WORDS)
ENGLISH = jaxsvm.dataset(FRAME, np.where(WORDS == "yes", "yes", "perhaps"))


def four_classes(**options):
    machine = jaxsvm.one_vs_one(jaxsvm.decomposition(100.0, kernels.rbf(1.0)), classes=4)
    return jaxsvm.fit(machine, jaxsvm.dataset(LINE, LETTERS), KEY, **options)


@pytest.mark.long
def test_class_numbers_of_two_numberings():
    """Two of the classes have the numbers -1 and +1; three, 0 to 2, are in test_public_cases."""
    test = jaxsvm.dataset(LINE[20:60], LETTERS[20:60])
    run = four_classes(probe=error_on(test))
    want = np.mean(run.predict(LINE[20:60]) != LETTERS[20:60])
    assert float(error_on(test)(run.classifier)) == float(run.info.probe[-1]) == want == 0


def test_a_share_of_errors_is_at_most_1():
    """Without a bound it is 1.0000001 of 52 equal weights, for example."""
    wrong = models.Linear(-jnp.ones(1), jnp.zeros(()))
    for n in range(50, 60):
        y = np.where(np.arange(n) % 2, 1, -1)
        assert 1 - 1e-6 <= float(error_on(jaxsvm.dataset(y[:, None], y))(wrong)) <= 1


MEASURES = {
    "error": error_on,
    "risk": risk_on,
    "auc": auc_on,
    "certificate": lambda data: lambda model: jaxsvm.certificate(model, data, 1 / 60).primal,
    "primal": lambda data: lambda model: jaxsvm.objectives.primal(model, data, 1 / 60),
    "calibrate": lambda data: lambda model: jaxsvm.calibrate(model, data).predict_proba(FRAME),
    "conformal": lambda data: lambda model: jaxsvm.conformal(model, data).predict(FRAME),
    "probe": lambda data: (
        lambda model: jaxsvm.fit(jaxsvm.linear_svm(1.0), DATA, KEY, probe=risk_on(data)).info.probe
    ),
}


@pytest.mark.long(but=8)
@pytest.mark.parametrize("data", [OTHER, REVERSED], ids=["columns", "classes"])
@pytest.mark.parametrize("measure", MEASURES.values(), ids=MEASURES)
def test_another_order_is_put_right(measure, data):
    want = measure(DATA)(RUN.classifier)
    np.testing.assert_allclose(measure(data)(RUN.classifier), want, rtol=1e-6)


@pytest.mark.parametrize(
    ("data", "words"),
    [(STRANGE, "without 'q' and with 'z'"), (ENGLISH, "the class 'perhaps', which is not among")],
    ids=["columns", "classes"],
)
@pytest.mark.parametrize("measure", MEASURES.values(), ids=MEASURES)
def test_another_set_is_refused(measure, data, words):
    with pytest.raises(ValueError, match=words):
        measure(data)(RUN.classifier)


def test_measures_are_those_of_scikit_learn():
    score = np.asarray(RUN.model(DATA.x))
    assert float(auc_on(OTHER)(RUN.classifier)) == pytest.approx(roc_auc_score(WORDS, score))
    assert float(error_on(REVERSED)(RUN.classifier)) == pytest.approx(
        np.mean(RUN.predict(FRAME) != WORDS)
    )


@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame])
def test_predictions_take_columns_by_name(make, tmp_path):
    models.save(tmp_path / "machine.npz", RUN.classifier)
    saved = models.load(tmp_path / "machine.npz")
    turned = make({name: TURNED[name].to_numpy() for name in TURNED})
    for model in (RUN, RUN.classifier, saved, jaxsvm.calibrate(RUN.classifier, DATA)):
        np.testing.assert_array_equal(model.predict(turned), model.predict(FRAME))
        np.testing.assert_array_equal(model.predict(FRAME), model.predict(FRAME.to_numpy()))
        with pytest.raises(ValueError, match="columns of the frame are not .*: without 'q'$"):
            model.predict(turned[["p", "r"]])
        with pytest.raises(ValueError, match="with 'more'$"):
            model.predict(FRAME.assign(more=1))


def test_real_targets_and_labels_know_their_columns():
    real = jaxsvm.fit(
        jaxsvm.linear_svm(1.0, loss=jaxsvm.losses.squared),
        jaxsvm.dataset(FRAME, FRAME.p - FRAME.r, task="regression"),
        KEY,
    )
    np.testing.assert_allclose(real.predict(TURNED), real.predict(FRAME), rtol=1e-6)
    labels = pd.DataFrame({"u": FRAME.p > 0, "v": FRAME.q > 0, "w": FRAME.r > 0})
    machine = jaxsvm.multi_output(jaxsvm.linear_svm(1.0), outputs=3)
    several = jaxsvm.fit(machine, jaxsvm.dataset(FRAME, labels), KEY)
    np.testing.assert_array_equal(several.predict(TURNED), several.predict(FRAME))
    want = float(error_on(jaxsvm.dataset(FRAME, labels))(several.classifier))
    turned = jaxsvm.dataset(TURNED, labels[["w", "u", "v"]])
    assert float(error_on(turned)(several.classifier)) == pytest.approx(want)
    with pytest.raises(ValueError, match="labels of the rows are not .*: without 'u' and with 'x'"):
        error_on(jaxsvm.dataset(FRAME, labels.rename(columns={"u": "x"})))(several.classifier)


@pytest.mark.parametrize(
    ("data", "words"), [(OTHER, "columns"), (REVERSED, "classes"), (STRANGE, "columns")]
)
@pytest.mark.parametrize("solver", [jaxsvm.pegasos(0.1), jaxsvm.sdca(1.0), jaxsvm.newton(0.1)])
def test_a_state_goes_on_with_rows_of_its_names_only(solver, data, words):
    state = jaxsvm.fit(solver, DATA, KEY, steps=3).state
    with pytest.raises(ValueError, match=f"comes from a run with other .*names of {words}"):
        jaxsvm.fit(solver, data, state=state, steps=3)
    unnamed = jaxsvm.fit(solver, DATA._replace(classes=None), state=state, steps=3)
    named = jaxsvm.fit(solver, DATA, state=state, steps=3)
    np.testing.assert_array_equal(unnamed.model.w, named.model.w)


@pytest.mark.long
def test_a_stream_keeps_the_names_of_its_first_chunk():
    solver, halves = jaxsvm.pegasos(0.1), [slice(30), slice(30, None)]
    parts = lambda frames: [
        jaxsvm.dataset(frame[rows], WORDS[rows]) for frame, rows in zip(frames, halves, strict=True)
    ]
    run = jaxsvm.stream(solver, parts([FRAME, FRAME]), KEY, probe=error_on(OTHER))
    turned = jaxsvm.stream(solver, parts([FRAME, TURNED]), KEY, probe=error_on(DATA))
    np.testing.assert_array_equal(run.model.w, turned.model.w)
    np.testing.assert_array_equal(run.info.probe, turned.info.probe)
    assert set(run.predict(TURNED)) <= {"yes", "no"}
    last = jaxsvm.dataset(FRAME[30:], WORDS[30:], classes=["yes", "no"])
    again = jaxsvm.stream(solver, [parts([FRAME, FRAME])[0], last], KEY)
    np.testing.assert_array_equal(run.model.w, again.model.w)
    ones = np.where(WORDS == "yes", 1, -1)
    for cut in (lambda frame: jaxsvm.data.chunks(frame, ones, rows=60), lambda x: [(x, ones)]):
        both = [jaxsvm.stream(solver, [*cut(FRAME), *cut(x)], KEY) for x in (FRAME, TURNED)]
        np.testing.assert_array_equal(both[0].model.w, both[1].model.w)
    one = WORDS == "yes"  # all rows of a chunk are of one class, which is the first of two here
    some = jaxsvm.dataset(FRAME[one], WORDS[one], classes=["yes", "no"])
    same = jaxsvm.dataset(FRAME[one], WORDS[one], classes=["no", "yes"])
    runs = [jaxsvm.stream(solver, [DATA, chunk], KEY) for chunk in (some, same)]
    np.testing.assert_array_equal(runs[0].model.w, runs[1].model.w)
    for chunk, words in ((STRANGE, "without 'q' and with 'z'"), (ENGLISH, "the class 'perhaps'")):
        with pytest.raises(ValueError, match=f"chunk 1: .*{words}"):
            jaxsvm.stream(solver, [DATA, chunk], KEY)
    with pytest.raises(ValueError, match="comes from a run with other names of columns"):
        jaxsvm.stream(solver, [OTHER], state=run.state)


PHI = jaxsvm.features.fourier(KEY, kernels.rbf(1.0), dim=3, features=64)


@pytest.mark.long
def test_doors_behind_maps_and_on_prepared_rows():
    """A map in front of named rows, probabilities, decision values of frames, one label."""
    scale = jaxsvm.data.standardize(DATA.x)
    inner = jaxsvm.fit(jaxsvm.linear_svm(1.0), DATA._replace(x=scale(DATA.x)), KEY).classifier
    raw = models.Mapped(scale, inner)
    chances = jaxsvm.calibrate(RUN.classifier, DATA)
    for model in (raw, RUN.classifier, chances):
        want = models.decision_values(model, FRAME)
        np.testing.assert_allclose(models.decision_values(model, TURNED), want, rtol=1e-5)
    assert (
        float(error_on(OTHER)(raw)) == float(error_on(REVERSED)(raw)) == float(error_on(DATA)(raw))
    )
    four = jaxsvm.calibrate(four_classes().classifier, jaxsvm.dataset(LINE, LETTERS))
    assert float(error_on(jaxsvm.dataset(LINE[20:], LETTERS[20:]))(four)) == 0
    solver = jaxsvm.on_features(PHI, jaxsvm.pegasos(0.1))
    run = jaxsvm.fit(solver, DATA, KEY, steps=50)
    assert float(error_on(solver.prepare(DATA))(run.classifier)) < 0.5
    with pytest.raises(ValueError, match="prepared rows must have their columns in the order"):
        error_on(solver.prepare(OTHER))(run.classifier)
    labels = jaxsvm.dataset(FRAME, pd.DataFrame({"u": FRAME.p > 0, "v": FRAME.q > 0}))
    one = jaxsvm.fit(jaxsvm.linear_svm(1.0), jaxsvm.column(labels, "u"), KEY)
    turned = jaxsvm.dataset(TURNED, pd.DataFrame({"u": FRAME.p > 0, "v": FRAME.q > 0}))
    measured = [error_on(jaxsvm.column(d, "u"))(one.classifier) for d in (labels, turned)]
    assert float(measured[0]) == float(measured[1])


def test_a_bare_model_has_no_names():
    """Rows of calibration say nothing of the order of those that it was trained on."""
    made = jaxsvm.calibrate(RUN.model, OTHER._replace(x=DATA.x))
    np.testing.assert_array_equal(made.predict_proba(FRAME), made.predict_proba(FRAME.to_numpy()))
    sets = jaxsvm.conformal(RUN.model, OTHER._replace(x=DATA.x))
    np.testing.assert_array_equal(sets.predict(FRAME), sets.predict(FRAME.to_numpy()))
    unnamed = jaxsvm.data.chunks(FRAME, np.where(WORDS == "yes", 1, -1), rows=30)
    solver = jaxsvm.pegasos(0.1)
    assert jaxsvm.stream(solver, unnamed, KEY, probe=error_on(OTHER)).info.probe.shape == (2,)


def test_numbers_are_names_by_their_values():
    """0 and 1 are False and True, and 0.0 and 1.0."""
    kinds = [(WORDS == "yes").astype(dtype) for dtype in (bool, int, float)]
    state = jaxsvm.fit(jaxsvm.pegasos(0.1), jaxsvm.dataset(FRAME, kinds[0]), KEY, steps=3).state
    for y in kinds[1:]:
        jaxsvm.fit(jaxsvm.pegasos(0.1), jaxsvm.dataset(FRAME, y), state=state, steps=3)
    other = jaxsvm.dataset(FRAME, np.where(WORDS == "yes", b"yes", b"no"))  # and others are names
    assert set(jaxsvm.fit(jaxsvm.pegasos(0.1), other, KEY, steps=3).predict(FRAME)) <= {
        b"yes",
        b"no",
    }


def test_names_may_come_late_in_a_stream():
    solver, ones = jaxsvm.pegasos(0.1), np.where(WORDS == "yes", 1, -1)
    run = jaxsvm.stream(solver, [(FRAME, ones), DATA, REVERSED], KEY)
    same = jaxsvm.stream(solver, [(FRAME, ones), DATA, DATA], KEY)
    np.testing.assert_array_equal(run.model.w, same.model.w)
    assert run.classes.names == ("no", "yes")
    with pytest.raises(ValueError, match="other names of classes"):
        jaxsvm.stream(solver, [REVERSED], state=run.state)


def test_machines_of_scikit_learn_know_their_columns():
    machine = LinearSVC(random_state=0).fit(FRAME, WORDS)
    model = models.from_sklearn(machine)
    np.testing.assert_array_equal(model.predict(TURNED), machine.predict(FRAME))
    assert float(error_on(OTHER)(model)) == pytest.approx(1 - machine.score(FRAME, WORDS))


def test_frames_of_words_or_missing_cells_show_the_pipeline():
    for column in (WORDS, np.where(FRAME.p > 0, np.nan, FRAME.p), np.array([1, None] * 30)):
        frame = FRAME.assign(odd=column)
        for call in (
            lambda: jaxsvm.dataset(frame, WORDS),
            lambda: RUN.predict(frame[[*"pq", "odd"]]),
        ):
            with pytest.raises(ValueError, match="'odd' hold (words|missing)|without 'r'"):
                call()
    with pytest.raises(ValueError, match="'p' hold words or missing cells: fit make_pipeline"):
        RUN.predict(FRAME.assign(p=WORDS))
    with pytest.raises(ValueError, match="two columns of the frame have one name"):
        jaxsvm.dataset(pd.concat([FRAME, FRAME], axis=1), WORDS)
    assert jaxsvm.dataset(FRAME.assign(b=WORDS == "yes"), WORDS).x.shape == (60, 4)
    assert jaxsvm.dataset(pd.DataFrame(FRAME.to_numpy()), WORDS).classes.columns == ()
    numbers = pd.DataFrame({"i": pd.array([1, 2], "Int64"), "f": np.array([1, 2], np.float32)})
    assert jaxsvm.dataset(numbers, [0, 1]).x.tolist() == [[1, 1], [2, 2]]
