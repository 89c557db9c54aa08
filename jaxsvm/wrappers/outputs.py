"""Several targets for each row: one problem for each of them, on the same rows."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from ..checks import integer
from ..models import MultiOutput
from ..recipe import fields_of, replace, solver
from ..types import Solver
from .problems import MaskedProblems, MaskedState, combine, stack_models

MOST_OUTPUTS = 2**20


@solver
def multi_output(inner: Solver, *, outputs: int) -> Solver:
    """Minimise k separate problems, one for each column of the targets y (n, k).

        P_c(f) = lam/2 |f|^2 + sum_i w_ic loss(f(x_i), y_ic) / sum_i w_ic,    c = 0 .. k-1

    All k problems read the same rows at every step, so that kernel rows, kernel matrices and
    features are computed once. The columns are labels that may hold together (multi-label
    classification), or real targets. A target that is missing has weight w_ic = 0; the weights are
    then (n, k), as `jaxsvm.dataset` makes them of targets that are nan.

    In terms of C, 1/2 |f|^2 + C sum_i w_ic loss, all problems have the same C. The curve holds the
    mean of the k losses, the largest residual, and the sums of support and kernel evaluations.
    Evaluations are counted as if each problem computed its own.

    Args:
        inner: a solver for labels -1, +1, or for real targets. Wrappers that read the model, such
            as `averaged`, go inside. `on_features` may go inside or outside.
        outputs: k, >= 1; structure.

    Returns:
        A solver for targets (n, k), with the sampler of `inner`; model `MultiOutput`, (n, d) ->
        (n, k), inside `Mapped` if there is a feature map; `model[c]` is that of column c. With
        missing targets a step without rows of a column leaves that column's state unchanged. Of
        weights (n, k) that are not one number or 0 in each row, solvers that read drawn rows take
        the mean over the rows of a step.

    Raises:
        ValueError: outputs is not an integer from 1 to 2^20; a solver of class numbers.

    Example:
        >>> import jax, jaxsvm
        >>> data = jaxsvm.dataset([[1.0, 0.0], [0.0, 1.0], [-1.0, -1.0]],
        ...     [[1, 0], [0, 1], [1, 1]])
        >>> result = jaxsvm.fit(multi_output(jaxsvm.linear_svm(10.0), outputs=2), data,
        ...     jax.random.key(0))
        >>> result.predict(data.x).tolist()
        [[1, 0], [0, 1], [1, 1]]

    Reference: G. Tsoumakas, I. Katakis, Multi-label classification: an overview, International
        Journal of Data Warehousing and Mining 3, 2007 (binary relevance).
    """
    integer("outputs", outputs, 1, MOST_OUTPUTS)
    fields = fields_of(inner)
    if not isinstance(fields.targets, str):
        raise ValueError(
            "multi_output takes a solver of labels -1 and +1 or of real targets, such as "
            "jaxsvm.kernel_svm(C, kernel); this one takes other targets"
        )
    masked = MaskedProblems(fields, lambda y, weight: (y.T, weight.T), MultiOutput)

    def init(key, data):
        if data.weight.ndim == 2:
            return masked.init(key, data)
        return jax.vmap(lambda y: inner.init(key, data._replace(y=y)))(data.y.T)

    def update(state, batch):
        if batch.weight.ndim == 2:
            return masked.update(state, batch)
        state, info = jax.vmap(lambda state, y: inner.update(state, batch._replace(y=y)))(
            state, batch.y.T
        )
        return state, combine(info, jnp.mean(info.loss))

    def model(state, data=None):
        if isinstance(state, MaskedState):
            return masked.model(state, data)
        targets = None if data is None else {"y": data.y.T}
        return stack_models(inner, state, data, targets, MultiOutput)

    kind, hooks = (fields.targets, outputs), fields.hooks.for_columns()
    return replace(inner, init=init, update=update, model=model, targets=kind, hooks=hooks)
