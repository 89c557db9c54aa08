"""Kernels, losses and feature maps by name.

The estimators and the readers of model files share these tables.
"""

KERNELS: dict[str, tuple[str, ...]] = {  # and the numbers that each takes
    "linear": (),
    "polynomial": ("gamma", "coef0", "degree"),
    "rbf": ("gamma",),
    "sigmoid": ("gamma", "coef0"),
    "laplacian": ("gamma",),
    "matern12": ("gamma",),
    "matern32": ("gamma",),
    "matern52": ("gamma",),
    "rational_quadratic": ("gamma",),
    "cosine": (),
    "chi2": ("gamma",),
    "additive_chi2": (),
    "precomputed": (),
}
LOSSES = (
    "hinge", "squared_hinge", "logistic", "squared", "smooth_hinge", "eps_insensitive", "pinball",
)  # fmt: skip
LANDMARKS = ("uniform", "k_means", "leverage_scores", "random_pivots")  # of nystrom
ALIASES = {"poly": "polynomial", "log_loss": "logistic"}  # the names of scikit-learn
