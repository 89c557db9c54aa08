"""Class probabilities from decision values, in float64 on the host."""

from __future__ import annotations

import numpy as np

MOST_UNITS = 100  # of one row, however many copies it stands for


def units_of(group: np.ndarray, weight: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The units that are drawn into folds: copies of a row of integer weight, else whole rows.

    Args:
        group: (n,) numbers of the merged rows.
        weight: (n,) weights of the rows, > 0.

    Returns:
        Merged rows, weights, and numbers of copies of the units, in an order that depends on the
        merged rows alone. A row of more than `MOST_UNITS` copies has units of several copies.
    """
    is_whole = weight == np.rint(weight)
    copies = np.bincount(group[is_whole], weight[is_whole], group.max() + 1)
    units = np.minimum(copies, MOST_UNITS).astype(int)
    share = np.repeat(copies / np.maximum(units, 1), units)
    part_group, part = group[~is_whole], weight[~is_whole]
    order = np.lexsort((part, part_group))
    return (
        np.concatenate([np.repeat(np.arange(len(units)), units), part_group[order]]),
        np.concatenate([share, part[order]]),
        np.concatenate([share, np.ones(len(part))]),
    )


def fit_sigmoid(
    score: np.ndarray,
    positive: np.ndarray,
    weight: np.ndarray,
    count: np.ndarray,
    steps: int = 100,
) -> tuple[float, float]:
    """A and B of P(positive | score) = 1 / (1 + exp(A score + B)), by maximum likelihood.

    With n+ positive rows and n- others the targets are (n+ + 1) / (n+ + 2) and 1 / (n- + 2). The
    method is Newton's with a line search.

    Args:
        score: (n,) decision values of rows that were not trained on.
        positive: (n,) booleans.
        weight: (n,) weights.
        count: (n,) numbers of copies, which n+ and n- count.
        steps: Newton steps at most.

    Reference: J. Platt, Probabilistic outputs for support vector machines, 1999; H.-T. Lin, C.-J.
        Lin, R. C. Weng, A note on Platt's probabilistic outputs for support vector machines,
        Machine Learning 68, 2007, section 3.
    """
    n_positive, n_negative = float(count[positive].sum()), float(count[~positive].sum())
    target = np.where(positive, (n_positive + 1) / (n_positive + 2), 1 / (n_negative + 2))
    features = np.stack([np.asarray(score, np.float64), np.ones(len(score))], axis=1)

    def objective(point):
        z = features @ point
        return float(weight @ (np.logaddexp(0, -z) + target * z))

    point = np.array([0.0, np.log((n_negative + 1) / (n_positive + 1))])
    value = objective(point)
    for _ in range(steps):
        p = np.exp(-np.logaddexp(0, features @ point))
        gradient = features.T @ (weight * (target - p))
        if np.abs(gradient).max() < 1e-8 * weight.sum():
            break
        hessian = (features * (weight * p * (1 - p))[:, None]).T @ features + 1e-12 * np.eye(2)
        direction = -np.linalg.solve(hessian, gradient)
        slope, step = float(gradient @ direction), 1.0
        while (new := objective(point + step * direction)) > value + 1e-4 * step * slope:
            step /= 2
            if step < 1e-10:  # rounding hides any further decrease
                return float(point[0]), float(point[1])
        point, value = point + step * direction, new
    return float(point[0]), float(point[1])


def sigmoid(score: np.ndarray, A: np.ndarray, B: np.ndarray) -> np.ndarray:
    """The values 1 / (1 + exp(A score + B)) of columns of scores, within [1e-7, 1 - 1e-7]."""
    return np.clip(np.exp(-np.logaddexp(0, score * A + B)), 1e-7, 1 - 1e-7)


def couple(pairs: np.ndarray, k: int) -> np.ndarray:
    """Class probabilities (n, k) from those of the first class of each pair, (n, k(k-1)/2).

    They minimise sum_{a != b} (r_ba p_a - r_ab p_b)^2 over sum_a p_a = 1, where r_ab is the
    probability of a among a and b. This is a linear system of k + 1 equations for each row.

    Reference: T.-F. Wu, C.-J. Lin, R. C. Weng, Probability estimates for multi-class classification
        by pairwise coupling, JMLR 5, 2004, section 4.
    """
    first, second = np.triu_indices(k, 1)
    blocks = []
    for part in np.array_split(pairs, max(1, len(pairs) // 4096)):
        r = np.zeros((len(part), k, k))
        r[:, first, second], r[:, second, first] = part, 1 - part
        system = np.zeros((len(part), k + 1, k + 1))
        system[:, :k, :k] = -np.swapaxes(r, 1, 2) * r
        system[:, np.arange(k), np.arange(k)] = np.sum(r**2, axis=1)
        system[:, k, :k] = system[:, :k, k] = 1
        right = np.zeros((len(part), k + 1, 1))
        right[:, k] = 1
        p = np.clip(np.linalg.solve(system, right)[:, :k, 0], 0, None)
        blocks.append(p / p.sum(axis=1, keepdims=True))
    return np.concatenate(blocks)
