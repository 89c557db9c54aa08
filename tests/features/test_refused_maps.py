"""What feature maps, choices of landmarks and solvers on features refuse: a table of calls and of
what the sentence says."""

import functools
import unittest.mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from feature_maps import KEY, RBF, X32, X, train

import jaxsvm
from jaxsvm import checks, features, fit, kernels, on_features
from jaxsvm.features import cholesky, low_rank_bound, nystrom, random_pivots

LINE, VALUES, EYE = kernels.linear(), kernels.precomputed(), np.eye(3, dtype="f")


def called(make, *arguments, **defaults):
    """A call with some arguments beside those of an entry of the table."""
    return lambda *more, **options: functools.partial(make, *arguments, *more, **defaults | options)


def lines(landmarks=EYE, kernel=LINE, **options):
    return functools.partial(nystrom, None, kernel, landmarks=landmarks, **options)


drawn = called(nystrom, KEY, RBF, X32, choose=random_pivots())


def too_large():
    with unittest.mock.patch.object(checks, "MOST_BYTES", 600):
        drawn(landmarks=4)()


paired, pivoted = called(features.fourier, KEY, dim=3, features=8), called(cholesky, x=X32, rank=2)
orthogonal = called(features.orthogonal, KEY, dim=3, features=8)
LAW, LAPLACIAN = "a kernel of x - z with a known law", kernels.laplacian(1.0)
BYTES = "^the factor of 24 rows and 4 pivots would take 768 bytes, more than 600: "
BYTES += r"lower landmarks, .* take features.leverage_scores\(\), or raise"
FLOATS = "^phi must give features that are floating-point numbers, got an array of "
NO_MAPS = [
    (lambda x: x @ jnp.ones((5, 2)), r"^phi, .*expected a function \(n, d\)"),
    (lambda x: x[:, 0], "^phi must give a row of features"),
    (lambda x: x.astype(jnp.int32), f"{FLOATS}int32"),
    (lambda x: x > 0, f"{FLOATS}bool"),
    (lambda x: jax.lax.complex(x, x), f"{FLOATS}complex64"),
    (lambda x: x.features, "^phi, the function <lambda>, fails for shapes .*no attribute"),
    (lambda x: x if x[0, 0] > 0 else -x, "^phi, the function <lambda>, asks for the values of its"),
]
REFUSED = [
    *((called(nystrom, KEY, RBF, X)(landmarks=k), f"24 rows .* got {k}") for k in (25, 0, -1)),
    *((called(nystrom, key, RBF, x)(landmarks=6), "key") for key, x in ((None, X), (KEY, None))),
    (lines(X[0]), r"got shape \(3,\)"),
    (lines(X[None]), r"got shape \(1, 24, 3\)"),
    (lines(2.5), r"got shape \(\)"),
    (lines(np.zeros((0, 2))), "a matrix of rows, got shape"),
    (lines(eps=np.ones(2)), "eps has shape"),
    (lines(eps=-1.0), "eps"),
    (lines(kernel=1.0), "expected a kernel"),
    *((lines(kernel=k), "precomputed matrix") for k in (VALUES, 2.0 * VALUES + LINE)),
    *(
        (lambda make=make: make()(jnp.ones((2, 4))), "x must have 3 columns")
        for make in (lines(), paired(RBF), pivoted(RBF))
    ),
    (called(features.k_means, 0)(), "steps"),
    (called(features.leverage_scores)(pilot=0), "pilot"),
    (called(features.leverage_scores)(0.0), "ridge"),
    *((called(random_pivots)(block), "block") for block in (0, 2.5)),
    (drawn(landmarks=25), "landmarks"),
    (too_large, BYTES),
    *((make(RBF, features=7), "even whole .* above 0, got 7") for make in (paired, orthogonal)),
    (paired(RBF, features=0, form="phase"), "at least 1, got 0"),
    (paired(RBF, features=8.0), "got 8.0"),
    (paired(RBF, form="cosine"), "form"),
    *((paired(k), LAW) for k in (kernels.polynomial(), RBF + RBF, lambda x, z: x @ z.T)),
    (orthogonal(LINE), LAW),
    (orthogonal(LAPLACIAN), r"Gaussian kernel \(rbf\), got laplacian\(1.0\)"),
    *(
        (paired(RBF, x=x, form=form), "rows of dim=3 columns, got shape")
        for x in (X32[:, :2], X32[0])
        for form in ("paired", "phase")
    ),
    *((pivoted(RBF, rank=k), "rank must be .* from 1 to 24") for k in (0, 25, 2.5)),
    (pivoted(RBF, tol=-1.0), "tol"),
    (pivoted(VALUES), "precomputed"),
    (pivoted(RBF, key=0), "key must be one key"),
    (lambda: low_rank_bound(pivoted(RBF)(), X32, np.ones(3)), "coef .* each of the 24 rows of x"),
    (lambda: low_rank_bound(paired(RBF)(), X32, np.ones(24)), "phi must be a map of .*got Fourier"),
    *(
        (called(fit, on_features(phi, inner), train(), KEY)(steps=2), words)
        for inner in (jaxsvm.pegasos(0.1), jaxsvm.sdca(1.0))
        for phi, words in NO_MAPS
    ),
]


@pytest.mark.parametrize(("call", "words"), REFUSED)
def test_what_is_refused(call, words):
    with pytest.raises((ValueError, TypeError), match=words):
        call()
