"""Objectives, optimality certificates, conversions between lam, C and nu, and probes.

    P(w) = lam/2 |w|^2 + sum_i w_i loss(f_i, y_i) / sum_i w_i
    D(coef) = -lam/2 |sum_i coef_i phi(x_i)|^2 - sum_i w_i conjugate(u_i, y_i) / sum_i w_i,
              u_i = -coef_i / C_i,  C_i = w_i / (lam sum w)

D <= min P for every coef in the domain of the conjugate; with a free bias, if also sum_i coef_i =
0.
"""

from .certificates import certificate as certificate
from .certificates import dual_ascent as dual_ascent
from .certificates import dual_from_scores as dual_from_scores
from .certificates import dual_scores as dual_scores
from .certificates import kkt_residual as kkt_residual
from .certificates import model_dual as model_dual
from .conversions import C_from_lam as C_from_lam
from .conversions import lam_from_C as lam_from_C
from .conversions import lam_from_nu as lam_from_nu
from .conversions import nu_from as nu_from
from .conversions import radius_from as radius_from
from .evaluate import clip_rounding as clip_rounding
from .evaluate import decision_values as decision_values
from .evaluate import dual as dual
from .evaluate import normalized_weights as normalized_weights
from .evaluate import primal as primal
from .nu_problems import largest_nu as largest_nu
from .nu_problems import nu_certificate as nu_certificate
from .probes import Probe as Probe
from .probes import error_on as error_on
from .probes import misclassified as misclassified
from .probes import risk_on as risk_on
from .ranking import auc_on as auc_on
from .ranking import concordance_on as concordance_on
from .ranking import ndcg_on as ndcg_on
from .ranking import pair_accuracy_on as pair_accuracy_on

__all__ = [
    "C_from_lam",
    "auc_on",
    "certificate",
    "concordance_on",
    "dual",
    "error_on",
    "kkt_residual",
    "lam_from_C",
    "lam_from_nu",
    "ndcg_on",
    "nu_certificate",
    "nu_from",
    "pair_accuracy_on",
    "primal",
    "radius_from",
    "risk_on",
]
