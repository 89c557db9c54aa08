"""Kernels, losses and feature maps by name.

The command line, the estimators and the readers of model files share these tables. The command
line reads them before JAX is imported, so that this module imports nothing.
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
FEATURES = ("nystrom", "fourier", "orthogonal", "tensor_sketch", "chi2")
LANDMARKS = ("uniform", "k_means", "leverage_scores", "random_pivots")  # of nystrom
# with a width sigma; gamma is 1 / sigma of laplacian, 1 / (2 sigma^2) of the others
WITH_SIGMA = ("rbf", "laplacian", "matern12", "matern32", "matern52", "rational_quadratic")
ALIASES = {"poly": "polynomial", "log_loss": "logistic"}  # the names of scikit-learn
