"""Bars of progress of estimators."""

import numpy as np
import pytest

from jaxsvm.estimators import Pegasos

X = np.random.default_rng(0).normal(size=(40, 2))


@pytest.mark.parametrize(
    ("options", "shown"), [({}, False), ({"verbose": 1}, True), ({"progress": True}, True)]
)
def test_a_bar_is_shown_where_it_is_asked_for(options, shown, capsys, usual_promotion):
    Pegasos(max_iter=3, random_state=0, **options).fit(X, X[:, 0] > 0)
    assert ("steps" in capsys.readouterr().err) == shown
