"""Several targets for each row: one problem for each of them, on the same rows."""

from __future__ import annotations

from dataclasses import KW_ONLY

from .._node import between, node
from ..models import MultiOutput
from ..types import Array, Batch, Solver, column, row_weights
from .problems import Problems


@node
class multi_output(Problems):
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
        >>> result = jaxsvm.fit(jaxsvm.multi_output(jaxsvm.linear_svm(10.0), outputs=2), data,
        ...     jax.random.key(0))
        >>> result.predict(data.x).tolist()
        [[1, 0], [0, 1], [1, 1]]

    Reference: G. Tsoumakas, I. Katakis, Multi-label classification: an overview, International
        Journal of Data Warehousing and Mining 3, 2007 (binary relevance).
    """

    inner: Solver
    _: KW_ONLY
    outputs: int = between(1, 2**20)

    join = MultiOutput

    def check(self) -> None:
        if not isinstance(self.inner.targets, str):
            raise ValueError(
                "multi_output takes a solver of labels -1 and +1 or of real targets, such as "
                "jaxsvm.kernel_svm(C, kernel); this one takes other targets"
            )

    @property
    def targets(self) -> tuple[str, int]:
        return self.inner.targets, self.outputs

    def parts(self, data: Batch) -> dict[str, Array]:
        """The columns; their weights where some targets are missing."""
        return {"y": data.y.T} | ({"weight": data.weight.T} if data.weight.ndim == 2 else {})

    def layout(self, data: Batch) -> Batch:
        return self.inner.layout(row_weights(data))._replace(weight=data.weight)

    def validate(self, data: Batch) -> None:
        for c in range(data.y.shape[1]) if data.y.ndim == 2 else ():
            super().validate(column(data, c))
