"""A share of `python -m benchmarks.trust.composition`: solvers inside JAX's transformations."""

import jax
import pytest

from benchmarks.trust import composition

SHARE = ("pegasos(0.1)", "decomposition(1.0", "one_vs_rest(pegasos")
CELLS = [
    pytest.param(subject.text, column, id=f"{subject.text.split(',')[0]}-{column}")
    for start in SHARE
    for subject in [next(s for s in composition.subjects() if s.text.startswith(start))]
    for column in composition.COLUMNS
]


@pytest.mark.long
@pytest.mark.parametrize(("text", "column"), CELLS)
def test_a_cell_is_right_refused_or_without_meaning(text, column, x64):
    (subject,) = (one for one in composition.subjects() if one.text == text)
    result, said = composition.result_of(subject, column)
    assert result in ("right", "refused", "-"), said


def test_a_wrong_value_and_an_error_of_jax_are_noticed(monkeypatch, x64):
    subject = composition.subjects()[0]
    monkeypatch.setitem(composition.COLUMNS, "jit", lambda _: composition.close(1.0, 1.1))
    assert composition.result_of(subject, "jit")[0] == "wrong"
    monkeypatch.setitem(composition.COLUMNS, "jit", lambda _: composition.close(1.0, 1.0))
    assert composition.result_of(subject, "jit")[0] == "right"
    monkeypatch.setitem(composition.COLUMNS, "jit", lambda _: jax.jit(float)(1.0))
    assert composition.result_of(subject, "jit")[0] == "error"
    monkeypatch.setitem(composition.COLUMNS, "jit", lambda s: s.at(-1.0))
    assert composition.result_of(subject, "jit")[0] == "refused"
