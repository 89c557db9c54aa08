"""`NuSVC`, `NuSVR` and `OneClassSVM` beside scikit-learn's: what is asked of them alone."""

import numpy as np
import pytest
from beside import AT, LABELS, TOY, USUAL, both, close, equal, same

from jaxsvm.estimators import NuSVC, OneClassSVM

pytestmark = USUAL


def test_the_largest_feasible_nu():
    assert NuSVC(nu=1.0, kernel="linear").fit(TOY, LABELS, [1] * 6).score(TOY, LABELS) == 1


def test_one_class_of_a_toy_problem():
    made, theirs = both("OneClassSVM", (TOY,))
    assert made.predict(AT).tolist() == [1, -1, -1] and made.predict(AT).dtype == np.intp
    same(made, theirs, "intercept_ offset_", atol=1e-3)
    close(made.dual_coef_.sum(), theirs.dual_coef_.sum(), rtol=1e-5)
    close(made.score_samples(AT), made.decision_function(AT) + made.offset_)
    equal(made.fit_predict(TOY), made.predict(TOY))
    assert made.n_support_.shape == (1,)


def test_novelties_are_found():
    random = np.random.RandomState(2)
    parts = 0.3 * random.randn(100, 2), 0.3 * random.randn(20, 2)
    train, same = (np.r_[part + 2, part - 2] for part in parts)
    other = random.uniform(low=-4, high=4, size=(20, 2))
    made = OneClassSVM(nu=0.1, gamma=0.1).fit(train)
    assert np.mean(made.predict(same) == 1) > 0.9 and np.mean(made.predict(other) == -1) > 0.9
    equal(made.decision_function(same) >= 0, made.predict(same) == 1)
    assert np.mean(made.predict(train) == -1) <= 0.1 + 1e-9 <= len(made.support_) / 200 + 1e-9
    made.decision_function = lambda rows: np.array([-1.0, 0.0, 1.0])
    assert made.predict(train[:3]).tolist() == [-1, 1, 1]


@pytest.mark.long(but=2)
@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(("shape", "nu"), [((200, 3), 0.1), ((200, 3), 0.7), ((1000, 5), 0.3)])
def test_where_the_right_machine_is_0_there_is_no_warning(shape, nu):
    """The mean of the rows is 0: the violation in float64 is below LIBSVM's tolerance."""
    x = np.random.default_rng(0).normal(size=shape)
    x = np.float64(np.float32(x - x.mean(axis=0)))
    made = OneClassSVM(kernel="linear", nu=nu).fit(x)
    coef = np.zeros(len(x))
    coef[made.support_] = made.dual_coef_[0]
    slope = x @ (coef @ x)
    assert slope[coef > 0].max() - slope[coef < 1].min() < 1e-3
    close(coef.sum(), nu * len(x), atol=1e-4)
    close(made.coef_[0], np.zeros(shape[1]), atol=1e-4)
