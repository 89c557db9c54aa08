"""Arrays of JAX under scikit-learn's array API dispatch, of which SciPy must know at its import.

Two devices of a CPU tell whether arrays stay where they are.
"""

import os
import subprocess
import sys

import pytest

SETUP = """
import warnings; warnings.simplefilter("ignore")
import jax, jax.numpy as jnp, numpy as np, sklearn
from jaxsvm.estimators import *
x = np.random.default_rng(0).normal(size=(60, 4)).astype(np.float32)
two, three, real = (x[:, 0] > 0) * 1, x[:, :3].argmax(1), x @ np.array([1.0, 2, 3, 4])
labels = np.stack([two, x[:, 1] > 0], axis=1) * 1
device = jax.devices()[1]
there = jax.device_put(x, device)
dispatch = lambda: sklearn.config_context(array_api_dispatch=True)
METHODS = ("decision_function", "predict", "predict_proba", "predict_log_proba", "score_samples",
    "transform")

def check(made, y, rows=x):
    made.fit(rows, y)
    moved = jax.device_put(rows, device)
    for name in METHODS:
        if hasattr(made, name):
            method = getattr(made, name)
            usual = method(rows)
            assert type(usual) is np.ndarray and type(method(moved)) is np.ndarray, name
            with dispatch():
                assert type(method(rows)) is np.ndarray, name
                values = method(moved)
            assert isinstance(values, jax.Array) and values.devices() == {device}, (made, name)
            if isinstance(made, OneClassSVM) and name == "predict":  # support vectors have value 0
                clear = abs(made.decision_function(rows)) > 1e-5
                values, usual = np.asarray(values)[clear], usual[clear]
            np.testing.assert_allclose(values, usual, rtol=1e-3, atol=5e-4, err_msg=name)
"""

CASES = {
    "classes": """
for y in (two, three, labels):
    check(LinearSVC(), y)
    check(SVC(), y)
check(LinearSVC(probability=True), three)
for options in (
    {"break_ties": True}, {"decision_function_shape": "ovo"}, {"probability": True},
    {"multiclass": "ovr"}
):
    check(SVC(**options), three)
check(SVC(probability=True), two)
check(SVC(kernel="precomputed"), two, x @ x.T)
check(Pegasos(random_state=0), three * 1.0)
check(SVMClassifier(multiclass="ovo"), three)
check(BudgetedSVC(budget=10, random_state=0), three > 0)
""",
    "others": """
for made in (LinearSVR(), SVR(), NuSVR(), SVMRegressor()):
    check(made, real)
check(SVR(), real + 1e4)
check(SVR(), np.stack([real, -real], axis=1))
check(OneClassSVM(), None)
check(SGDOneClassSVM(random_state=0), None)
check(Ranker(), three)
check(FourierFeatures(random_state=0), None)
check(NystromFeatures(n_components=10, random_state=0), None)
check(SVCCV(Cs=[1.0], gammas=[0.1], cv=2), three)
check(LinearSVCCV(Cs=[1.0], cv=2, probability=True), three)
""",
    "fits": """
for made, y in ((LinearSVC(random_state=0), two), (Pegasos(random_state=0), two), (SVC(), two),
                (LinearSVR(random_state=0), real), (SVR(), real)):
    usual = made.fit(x, y).predict(x)
    score = made.score(x, y)
    with dispatch():
        made.fit(there, jax.device_put(y, device))
        np.testing.assert_allclose(made.predict(there), usual, rtol=1e-3, atol=2e-3)
        assert type(made.score(there, jax.device_put(y, device))) in (float, np.float64)
        np.testing.assert_allclose(made.score(there, jax.device_put(y, device)), score, rtol=1e-3)
# names that JAX does not hold stay with NumPy: strings, and numbers beyond its integers
for names in (np.array(["a", "b"]), np.array([1, 2**40])):
    made = SVC().fit(x, names[two])
    with dispatch():
        values = made.predict(there)
        assert isinstance(made.decision_function(there), jax.Array)
    assert type(values) is np.ndarray and values.dtype == names.dtype
    np.testing.assert_array_equal(values, made.predict(x))
# diverged models are refused here, too
made = LinearSVC().fit(x, two)
made.coef_ = made.coef_ * np.inf
with dispatch():
    try:
        made.predict(there)
    except ValueError as error:
        assert "not finite" in str(error)
    else:
        raise AssertionError
""",
}


@pytest.mark.long(but=1)
@pytest.mark.parametrize("case", CASES)
def test_arrays_of_jax_stay_on_their_device(case):
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=2"
    environment = os.environ | {"SCIPY_ARRAY_API": "1", "XLA_FLAGS": flags}
    command = [sys.executable, "-c", SETUP + CASES[case]]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
