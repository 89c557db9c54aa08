"""Objectives, optimality certificates, conversions between lam, C and nu, and probes.

    P(w) = lam/2 |w|^2 + sum_i w_i loss(f_i, y_i) / sum_i w_i
    D(coef) = -lam/2 |sum_i coef_i phi(x_i)|^2 - sum_i w_i conjugate(u_i, y_i) / sum_i w_i,
              u_i = -coef_i / C_i,  C_i = w_i / (lam sum w)

D <= min P for every coef in the domain of the conjugate; with a free bias, if also sum_i coef_i =
0.
"""

from .certificates import certificate as certificate
from .certificates import kkt_residual as kkt_residual
from .conversions import C_from_lam as C_from_lam
from .conversions import lam_from_C as lam_from_C
from .conversions import lam_from_nu as lam_from_nu
from .conversions import nu_from as nu_from
from .conversions import radius_from as radius_from
from .evaluate import dual as dual
from .evaluate import primal as primal
from .nu_problems import nu_certificate as nu_certificate
from .probes import error_on as error_on
from .probes import risk_on as risk_on
from .ranking import auc_on as auc_on
from .ranking import concordance_on as concordance_on
from .ranking import ndcg_on as ndcg_on
from .ranking import pair_accuracy_on as pair_accuracy_on

__all__ = sorted(name for name, value in globals().items() if callable(value) and name[0] != "_")
