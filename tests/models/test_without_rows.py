"""Models whose points are no rows of the training set."""

import jax
import numpy as np
import pytest

import jaxsvm
from jaxsvm import models
from jaxsvm.models.libsvm import _row


@pytest.mark.long
def test_pairs_of_linear_models_have_points_that_are_no_rows():
    x, y = np.random.default_rng(0).normal(size=(30, 2)), np.arange(30) % 3
    data = jaxsvm.dataset(x, y, task="multiclass")
    solver = jaxsvm.one_vs_one(jaxsvm.pegasos(0.1), classes=3)
    model = jaxsvm.fit(solver, data, jax.random.key(0), steps=30).classifier
    assert (models.to_sklearn(model).support_ == -1).all()


def test_a_model_of_a_precomputed_kernel_holds_no_rows(tmp_path):
    lines = "svm_type c_svc|kernel_type precomputed|nr_class 2|total_sv 2|rho 0.5|label 1 -1"
    path = tmp_path / "a.model"
    path.write_text(f"{lines}|nr_sv 1 1|SV|1 0:1|-2 0:3".replace("|", "\n"))
    model = models.from_libsvm(path, columns=4)
    assert model.inner.x.shape == (4, 0)
    np.testing.assert_array_equal(model.inner.coef, [1, 0, -2, 0])


def test_indices_of_a_line_end_at_the_number_of_columns():
    assert _row("1 2:5 3:6".split(), 1, 3, False)[1].tolist() == [2, 3]
    with pytest.raises(ValueError, match="indices rise from 1 to 3"):
        _row("1 2:5 4:6".split(), 1, 3, False)
