"""What a model is judged by: functions of a model, from rows. They are probes of `fit`, too.

`jaxsvm.objectives` holds them with certificates and conversions.

Example:
    >>> import jax, jaxsvm
    >>> data = jaxsvm.dataset([[1.0], [-1.0]], [1, -1])
    >>> result = jaxsvm.fit(jaxsvm.linear_svm(1.0), data, jax.random.key(0))
    >>> float(jaxsvm.metrics.error_on(data)(result.classifier))
    0.0
"""

from .objectives import auc_on as auc_on
from .objectives import concordance_on as concordance_on
from .objectives import error_on as error_on
from .objectives import kkt_residual as kkt_residual
from .objectives import ndcg_on as ndcg_on
from .objectives import pair_accuracy_on as pair_accuracy_on
from .objectives import risk_on as risk_on

__all__ = sorted(name for name, value in globals().items() if callable(value) and name[0] != "_")
