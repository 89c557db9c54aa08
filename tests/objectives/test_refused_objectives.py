"""What objectives, certificates, conversions and probes refuse: calls and what the sentence
says."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from certified import KERNEL, X32, N, Y, dataset, expansion, line

import jaxsvm
from jaxsvm import certificate, error_on, losses, objectives, risk_on
from jaxsvm.models import Mapped

DATA, MODEL, ALPHA, KEY = dataset(), line([0.5, -0.8]), np.zeros(N, np.float32), jax.random.key(0)
FREE, OWN = dataclasses.replace(MODEL, bias="free"), expansion(ALPHA)
STRANGE = Mapped(jaxsvm.data.standardize(jnp.asarray(X32)), jax.tree_util.Partial(jnp.sum))
NO_ROWS, ONE_NOT = expansion(0.01 * Y, index=-np.ones(N)), np.where(np.arange(N) == 3, -1, range(N))
REAL = jaxsvm.dataset(np.eye(3), [0.5, 1.0, 2.0], task="regression")
SCORES = np.arange(3.0)[:, None]
GRADES = jaxsvm.dataset(SCORES, [0, 1, 2], task="ranking")
ALONE = jaxsvm.dataset(SCORES, [0, 1, 2], query=[0, 1, 2], task="regression")
SIGNED = jaxsvm.dataset(SCORES, [-1, 1, 1])
primal, dual, kkt, nu = objectives.primal, objectives.dual, jaxsvm.kkt_residual, objectives.nu_from
call, auc = functools.partial, objectives.auc_on
certified = call(certificate, MODEL, DATA, 0.3)


def machines():
    data = jaxsvm.dataset(np.eye(3), [0, 1, 2], task="multiclass")
    solver = jaxsvm.one_vs_rest(jaxsvm.linear_svm(1.0), classes=3)
    model = jaxsvm.fit(solver, data, KEY).model
    own = data._replace(y=jnp.where(data.y == 0, 1.0, -1.0))
    assert certificate(model[0], own, 1 / 3).gap >= 0
    certificate(model, own, 1.0)


NO_DATA, NO_MODEL = "^data must be a Batch, such as jaxsvm.data", "^model (must be a model|is the)"
NO_LOSS = "^loss (must be a loss such as|is the factory smooth_hinge itself)"
REFUSED = [
    (call(certificate, FREE, DATA, 0.3, passes=1), "equality constraint"),
    (call(certified, bias="free", passes=1), "equality constraint"),
    *((call(certified, bias=bias), "bias must be one of") for bias in ("some", 0)),
    *((call(certified, passes=k), "passes") for k in (2.5, -1, True, np.ones(2))),
    *((call(certificate, m, DATA, 0.3), "Linear, Expansion or") for m in (lambda x: x, STRANGE)),
    *(
        (call(kkt, model, DATA, 0.3), "dual coefficients")
        for model in (MODEL, NO_ROWS, expansion(0.01 * Y, index=ONE_NOT))
    ),
    *(
        (of, "lam must be a finite number above 0")
        for lam in (0.0, -1.0, np.nan, np.inf)
        for of in (
            call(certificate, MODEL, DATA, lam),
            call(primal, MODEL, DATA, lam),
            call(dual, ALPHA, DATA, lam),
            call(kkt, OWN, DATA, lam),
        )
    ),
    (call(certificate, MODEL, DATA, jnp.ones(3)), "lam has shape"),
    (call(dual, ALPHA[:-1], DATA, 0.3), "alpha has shape"),
    (call(certificate, line(np.ones(3)), REAL, 1.0), r"labels -1 and \+1, and the data hold 0.5"),
    (machines, r"take its machines one by one, model\[c\]"),
    *(
        (of, NO_DATA)
        for wrong in (None, "data", np.eye(2), (1, 2), MODEL, jaxsvm.pegasos(0.1))
        for of in (
            call(error_on, wrong),
            call(risk_on, wrong),
            call(certificate, MODEL, wrong, 0.1),
            call(primal, MODEL, wrong, 0.1),
            call(dual, ALPHA, wrong, 0.1),
            call(nu, MODEL, wrong),
            call(jaxsvm.take, wrong, jnp.array([0])),
        )
    ),
    *(
        (of, NO_MODEL)
        for wrong in (None, "m", X32, DATA, jaxsvm.pegasos, jaxsvm.pegasos(0.1), KERNEL, dict)
        for of in (
            lambda wrong=wrong: error_on(DATA)(wrong),
            lambda wrong=wrong: risk_on(DATA)(wrong),
            call(certificate, wrong, DATA, 0.1),
            call(certificate, wrong, MODEL, 0.1),
            call(primal, wrong, DATA, 0.1),
            call(kkt, wrong, DATA, 0.1),
            call(nu, wrong, DATA),
        )
    ),
    *(
        (of, NO_LOSS)
        for wrong in (None, "hinge", losses.smooth_hinge, 0.1, MODEL)
        for of in (
            call(risk_on, DATA, wrong),
            call(certificate, MODEL, DATA, 0.1, wrong),
            call(primal, MODEL, DATA, 0.1, wrong),
            call(dual, ALPHA, DATA, 0.1, None, wrong),
        )
    ),
    *(
        (call(convert, *at), "^(lam|C|n) (must be a finite number above 0|is no number)")
        for wrong in (0, -1, np.nan, np.inf, 10**400, jnp.array([1.0, 0.0]))
        for convert in (objectives.lam_from_C, objectives.C_from_lam)
        for at in ((wrong, 10), (1.0, wrong))
    ),
    *(
        (call(probe, DATA._replace(**{field: jnp.ones(3)})), "one target and one weight for each")
        for probe in (error_on, risk_on)
        for field in ("y", "weight")
    ),
    *(
        (lambda probe=probe, wrong=wrong: probe(DATA)(wrong), "for each of the 20 rows")
        for probe in (error_on, risk_on)
        for wrong in (len, lambda x: x[:1, 0])
    ),
    (call(auc, GRADES), "auc_on takes rows of two classes, got 3"),
    (call(objectives.pair_accuracy_on, ALONE), "no two rows of one query have different grades"),
    (call(objectives.ndcg_on, SIGNED), "takes grades of at least 0, got -1"),
    (call(objectives.ndcg_on, GRADES, 0), "k must be"),
    (call(objectives.ndcg_on, GRADES._replace(y=100 * GRADES.y)), "grades below 128 with gains='e"),
    (call(objectives.ndcg_on, GRADES, gains="best"), "gains"),
    (lambda: objectives.ndcg_on(GRADES)(lambda x: jnp.ones((3, 2))), "one value for each row"),
]


@pytest.mark.parametrize(("call", "words"), REFUSED)
def test_what_is_refused(call, words):
    with pytest.raises((ValueError, TypeError), match=words):
        call()


def test_a_loss_of_real_targets_is_certified_on_them():
    assert certificate(line(np.ones(3)), REAL, 1.0, losses.squared).gap >= 0
