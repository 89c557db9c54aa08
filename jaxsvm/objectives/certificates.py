"""Certificates: bounds of the distance from the optimum, and KKT residuals."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ..checks import (
    check_choice,
    check_scalars,
    has_values,
    integer,
    is_array,
    positive_number,
    shown,
)
from ..flags import despite_flags
from ..kernels import holds_precomputed, matvec
from ..losses import hinge
from ..models import Expansion, Linear, Mapped, OneVsOne, OneVsRest
from ..numerics import (
    affine_transpose,
    balanced,
    bucket_size,
    dot,
    fold_rows,
    golden_section,
    is_traced,
    rounding_of_sums,
    row_loops,
    sqnorms,
)
from ..types import (
    Array,
    Batch,
    Certificate,
    Fit,
    Lifted,
    Loss,
    Model,
    Rows,
    SparseRows,
    column,
    require,
)
from .conversions import lam_from_C
from .elastic import elastic_gap
from .evaluate import (
    check_dual_model,
    check_objective,
    clip_rounding,
    in_float64,
    innermost,
    normalized_weights,
    penalty,
    slopes,
    to_features,
)


@despite_flags
def certificate(
    model: Any,
    data: Batch,
    lam: Any = None,
    loss: Loss = hinge,
    *,
    C: Any = None,
    bias: str | None = None,
    passes: int = 0,
    l1_ratio: float = 0.0,
    dual: object = None,
) -> Certificate:
    """A bound on the suboptimality of a model on its training rows by a dual point.

        P(model) - min P <= gap
        gap = lam/2 |w - w(coef)|^2 + sum_i share_i (loss(f_i) + conjugate(u_i) - u_i f_i),
            every term >= 0

    For an `Expansion` over training rows (`index`) with feasible coefficients, these are the dual
    point. For other models it is computed from the scores. Candidates for u_i are the slope at f_i
    and mean slopes over intervals around f_i of several widths (for the hinge a clipped ramp). Each
    candidate is scaled by its best factor, and the best is used. Then follow `passes` sweeps of
    dual coordinate ascent.

    Computed in float64 for models of any dtype; under tracing in the dtype of the model. For a
    `Mapped` model the optimum is the one in its feature space. For a penalty with an L1 norm, that
    of `proximal_newton`, the dual point is that of the slopes, or of the slopes scaled to where the
    quadratic part is not needed, whichever is better.

    Args:
        model: Linear, Expansion or Mapped, or a `Classifier` of one, such as `result.classifier`,
            which takes columns and classes by their names; or a result of `fit`, which stands for
            that.
        data: the n training rows.
        lam: regularisation of the problem, > 0.
        C: in place of lam: weight of the loss of each row, > 0; lam = 1/(C sum of weights).
        loss: of scores.
        bias: "none", "feature" or "free"; None: that of the model.
        passes: sweeps of dual ascent, >= 0, of O(n d) each for linear models, of O(n^2) kernel
            values for expansions.
        l1_ratio: share of the L1 norm in the penalty of a linear model, from 0 to 1.
        dual: (n,) signed dual coefficients of a linear model, also one on features, such as
            `result.state.solver.coef` of `dual_descent` and `block_descent`. They are the dual
            point then, and give a smaller bound as a rule. Features are computed 4,096 rows at a
            time. None: coefficients from the scores.

    Of k targets a row the model is one of `multi_output`, lam and C are one number or (k,), and
    all results are (k,). So they are of the k problems of `one_vs_rest`, and of the k (k - 1) / 2
    of `one_vs_one`, in the order of `model.pairs`: `gap / primal` is largest for the worst.

    Returns:
        The objective, its lower bound, the gap, and whether the dual point is the model's own, or
        `dual`.

    Raises:
        TypeError: another kind of model.
        ValueError: both or neither of lam and C, or one that is not above 0; a loss without a
            conjugate, or of labels on real targets; passes with a free bias, whose dual has an
            equality constraint on all coordinates; an l1_ratio outside of [0, 1], or above 0 with
            another model, a free bias or passes. For a dual that is not feasible or of another
            length; with passes or l1_ratio; of an expansion or of several problems.

    Example:
        >>> import jax.numpy as jnp, jaxsvm
        >>> data = jaxsvm.dataset([[1.0], [-1.0]], [1, -1])
        >>> model = jaxsvm.models.Linear(jnp.ones(1), jnp.zeros(()))
        >>> float(jaxsvm.certificate(model, data, 1.0).gap) < 1e-15
        True

    Reference: S. Boyd, L. Vandenberghe, Convex optimization, 2004, sections 3.3, 5.5.
    """
    if (lam is None) == (C is None):
        raise ValueError(
            "give lam or C, the number that the model was fitted with, and not both: lam of lam/2 "
            "|w|^2 + mean loss, C of 1/2 |w|^2 + C sum of losses"
        )
    if isinstance(model, Fit):
        model = model.classifier if model.classes.names else model.model
    model, data = check_objective(model, data, loss, needs="__call__")
    passes = integer("passes", passes, 0)
    has_l1 = isinstance(l1_ratio, jax.core.Tracer) or l1_ratio != 0
    if dual is not None:
        dual = dual if is_array(dual) else np.asarray(dual, np.float64)
        is_linear = data.y.ndim == 1 and isinstance(innermost(model), Linear)
        if not is_linear or passes or has_l1:
            raise ValueError(
                "dual is for linear models of one target, with passes=0 and l1_ratio=0"
            )
        if dual.shape != data.y.shape:
            raise ValueError(
                f"dual has shape {dual.shape}, expected a number for each of the "
                f"{data.y.shape[0]} rows"
            )
    if problems := _problems(model, data):
        name, given = ("lam", lam) if C is None else ("C", C)
        if np.ndim(given) > 1 or np.ndim(given) and len(given) != len(problems):
            raise ValueError(
                f"{name} must be one number, or one of each of {len(problems)} problems"
            )
        numbers = [given] * len(problems) if np.ndim(given) == 0 else list(given)
        how: Any = {"loss": loss, "bias": bias, "passes": passes, "l1_ratio": l1_ratio}
        each = zip(problems, numbers, strict=True)
        proofs = [certificate(one, rows, **how | {name: number}) for (one, rows), number in each]
        stack: Any = jnp.stack if is_traced(proofs) else np.stack
        return jax.tree.map(lambda *leaves: stack(leaves), *proofs)
    if C is not None:
        weight: Any = (
            np.asarray(data.weight, np.float64) if has_values(data.weight) else data.weight
        )
        lam = lam_from_C(C, weight.sum())
    _check_labels(loss, data)
    require(loss, "conjugate", "the residual of a solver, such as the gap of ocas")
    lam = positive_number("lam", lam)
    inner = innermost(model)
    bias = inner.bias if bias is None else bias
    check_choice("bias", bias, ("none", "feature", "free"))
    if bias == "none" and has_values(inner.b) and np.any(np.asarray(inner.b) != 0):
        raise ValueError(
            f"the model has a bias of {float(inner.b):g}: say bias='feature' or bias='free'"
        )
    if passes and bias == "free":
        raise ValueError(
            "passes of dual ascent need bias 'none' or 'feature': the dual of a free bias has an "
            "equality constraint"
        )
    if has_l1:
        check_scalars(l1_ratio=l1_ratio)
        if not isinstance(l1_ratio, jax.core.Tracer) and not 0 <= float(l1_ratio) <= 1:
            raise ValueError(f"l1_ratio must be a number from 0 to 1, got {float(l1_ratio):g}")
        if not isinstance(inner, Linear) or bias == "free" or passes:
            raise ValueError(
                "l1_ratio is for linear models with bias='none' or 'feature', and passes=0"
            )
        proof = _elastic_certificate((model, data, lam, jnp.asarray(l1_ratio)), (loss,), (bias,))
    else:
        by_rows = lambda: _certificate((model, data, lam, dual), (loss,), (bias, passes))
        if passes or isinstance(inner, Linear):
            proof = by_rows()
        else:
            model = _on_support(model, data) if isinstance(model, Expansion) else model
            proof = own_certificate((model, data, lam), (loss,), (bias,))
            if is_traced(proof):
                proof = jax.lax.cond(proof.exact, lambda own: own, lambda _: by_rows(), proof)
            elif not proof.exact:
                proof = by_rows()
        refused = dual is not None and not is_traced(proof) and np.isposinf(proof.gap)
        if refused and np.isfinite(proof.primal):
            raise ValueError(
                "dual is not feasible: pass the coefficients of a solver for the same loss, lam "
                "and weights of the rows"
            )
    return proof._replace(exact=proof.exact if is_traced(proof) else bool(proof.exact))


def _problems(model: Any, data: Batch) -> list[tuple[Model, Batch]]:
    """The models and the rows of several targets or classes, each as a problem of labels; or none.

    Raises:
        TypeError: rows of several targets, and a model of another number.
    """
    if isinstance(model, Mapped):
        inner = _problems(model.inner, data)
        return [(dataclasses.replace(model, inner=one), rows) for one, rows in inner]
    if data.y.ndim == 2:
        k = data.y.shape[1]
        if not isinstance(model, OneVsRest) or model.scores != k:
            raise TypeError(
                f"the rows have {k} targets each: expected a model of multi_output of {k}"
            )
        return [(model[c], column(data, c)) for c in range(k)]
    if not isinstance(model, OneVsRest | OneVsOne):
        return []
    if has_values(data.y) and not np.isin(np.asarray(data.y), range(model.scores)).all():
        raise TypeError(
            f"the model is of {model.scores} classes, and the targets are no class numbers: take "
            "its machines one by one, model[c] of one_vs_rest or model[a, b] of one_vs_one"
        )
    signed = lambda c: data._replace(y=jnp.where(data.y == c, 1, -1).astype(data.y.dtype))
    if isinstance(model, OneVsRest):
        return [(model[c], signed(c)) for c in range(model.scores)]
    pairs = zip(*map(np.ndarray.tolist, np.triu_indices(model.classes, 1)), strict=True)
    weight = lambda a, b: jnp.where((data.y == a) | (data.y == b), data.weight, 0)
    return [(model[a, b], signed(a)._replace(weight=weight(a, b))) for a, b in pairs]


_WIDTHS = (1e-3, 1e-2, 0.1, 0.3, 1.0)  # half widths of the intervals, in units of the score


class Problem(NamedTuple):
    """A model on its training rows, and the problem of which it is a solution."""

    model: Any
    data: Batch
    lam: Array
    loss: Loss
    bias: str

    @property
    def share(self) -> Array:
        """The weights of the rows, of sum 1."""
        return normalized_weights(self.data)

    @property
    def constant(self) -> float:
        """What a bias adds to all inner products of rows."""
        return 1.0 if self.bias == "feature" else 0.0

    def feasible(self, coef: Array) -> Array:
        """Dual coefficients without their sum, if this has to be 0."""
        return balanced(coef) if self.bias == "free" else coef

    def clipped(self, coef: Array) -> Array:
        """As `clip_rounding`."""
        return clip_rounding(coef, self.data.y, self.share, self.lam, self.loss)


@in_float64
def _certificate(
    model: Model, data: Batch, lam: Array, dual: Array | None, loss: Loss, bias: str, passes: int
) -> Certificate:
    """The certificate by given dual coefficients, or by those of the scores and of passes."""
    if dual is None or isinstance(data, Lifted):
        model, data = to_features(model, data)
    # `bias` decides whether |w|^2 contains b
    problem = Problem(dataclasses.replace(innermost(model), bias=bias), data, lam, loss, bias)
    if dual is not None:
        return _by_rows(problem, model, problem.clipped(dual), exact=True)
    coef = dual_from_scores(problem)
    if passes:
        own, feasible = model_dual(problem)
        coef = dual_ascent(problem, jnp.where(feasible, own, coef), passes)
    return _by_rows(problem, model, coef)


def _by_rows(problem: Problem, model: Model, coef: Array, exact: bool = False) -> Certificate:
    """The certificate by dual coefficients of all rows."""
    coef, inner, x = problem.feasible(coef), problem.model, problem.data.x
    score, without_b = model(x), dataclasses.replace(inner, bias="none")
    if isinstance(inner, Linear):
        moved = inner.w - _weights(coef, model, x)
        return _bound(problem, coef, score, without_b.sqnorm(), jnp.dot(moved, moved), exact)
    own, other, square = score - inner.b, matvec(inner.kernel, x, x, coef), without_b.sqnorm()
    in_data, full = of_rows(inner, coef)
    on_rows, off_rows = jnp.dot(full - coef, own - other), jnp.dot(coef, other - 2 * own) + square
    distance = jnp.where(jnp.all(in_data | (inner.coef == 0)), on_rows, off_rows)
    return _bound(problem, coef, score, square, distance, exact)


def _bound(
    problem: Problem, coef: Array, score: Array, square: Array, distance: Array, exact: bool | Array
) -> Certificate:
    """The certificate by the dual point `coef`; without b, |w|^2 and the squared distance."""
    model, data, lam, loss, _ = problem
    share = problem.share
    slope, losses = slopes(coef, share, lam), loss.value(score, data.y)
    terms = jnp.maximum(losses + loss.conjugate(slope, data.y) - slope * score, 0)
    of_absent = jnp.where(coef == 0, 0, jnp.inf)  # the bounds of a row of weight 0 are 0
    distance = jnp.maximum(distance, 0) + problem.constant * (model.b - jnp.sum(coef)) ** 2
    gap = lam / 2 * distance + jnp.sum(jnp.where(share > 0, share * terms, of_absent))
    gap = gap + lam * objective_rounding(model, data, coef)
    square = square + problem.constant * model.b**2
    value = lam / 2 * square + jnp.dot(share, losses)
    return Certificate(value, value - gap, gap, jnp.asarray(exact))


BLOCK = 4096  # rows whose features are in memory at once
LEAST = 4096  # rows from which a certificate leaves out points of coefficient 0


def _on_support(model: Expansion, data: Batch) -> Expansion:
    """The model of many rows on its support vectors alone, the same model of others.

    Points that are not the rows whose numbers they have lose these numbers. Of sparse or remote
    rows this is not asked.
    """
    arrays = model.x, data.x, model.index, model.coef
    sparse = any(isinstance(a, SparseRows) for a in arrays)
    if holds_precomputed(model.kernel) or sparse or not has_values(arrays):
        return model
    points, rows, index, coef = map(np.asarray, arrays)
    support = np.flatnonzero((coef != 0) & (index >= 0) & (index < len(rows)))
    places, dtype = index[support], min(points.dtype, rows.dtype, key=lambda d: d.itemsize)
    if not np.array_equal(points[support].astype(dtype), rows[places].astype(dtype)):
        return dataclasses.replace(model, index=jnp.full_like(model.index, -1))
    if len(rows) < LEAST or len(support) < np.count_nonzero(coef):
        return model
    padding = (0, bucket_size(len(support)) - len(support))
    pad = lambda a: np.pad(a, (padding, (0, 0))[: a.ndim])
    parts: Any = {"x": pad(points[support]), "coef": pad(coef[support]), "index": pad(places)}
    return dataclasses.replace(model, **parts)


@in_float64
def own_certificate(model: Any, data: Batch, lam: Array, loss: Loss, bias: str) -> Certificate:
    """The certificate of an expansion by its own dual coefficients; exact: they are feasible.

    Each kernel value of a row and a point is computed once.
    """
    model, data = to_features(model, data)
    problem = Problem(model, data, lam, loss, bias)
    coef, feasible = model_dual(problem)
    coef = problem.feasible(coef)
    in_data, full = of_rows(model, coef)
    # a row may be several points, which share its coefficient
    change = jnp.where(full != 0, coef / jnp.where(full != 0, full, 1), 0)
    dual = jnp.where(in_data, change[jnp.where(in_data, model.index, 0)] * model.coef, 0)
    both = matvec(model.kernel, problem.data.x, model.x, jnp.stack([model.coef, dual], axis=1))
    distance = jnp.dot(full - coef, both[:, 0] - both[:, 1])
    square = jnp.dot(full, both[:, 0])
    return _bound(problem, coef, both[:, 0] + model.b, square, distance, feasible)


def _weights(coef: Array, model: object, x: Rows) -> Array:
    """sum_i coef_i phi(x_i), of features some rows at a time."""
    if not isinstance(model, Mapped):
        return dot(coef, x)
    sum_of = lambda rows, some: _weights(some, model.inner, model.features(rows))
    add = lambda total, part, is_new: total + sum_of(part[0], jnp.where(is_new, part[1], 0))
    like = jax.eval_shape(sum_of, x, coef)
    return fold_rows(add, jnp.zeros(like.shape, like.dtype), (x, coef), BLOCK)


@in_float64
def _elastic_certificate(
    model: Any, data: Batch, lam: Array, l1_ratio: Array, loss: Loss, bias: str
) -> Certificate:
    """The certificate of a linear model under an L1 or elastic net penalty."""
    model, data = to_features(model, data)
    share, score, constant = normalized_weights(data), model(data.x), bias == "feature"
    v = jnp.concatenate([model.w, model.b[None]]) if constant else model.w
    grad = affine_transpose(share * loss.slope(score, data.y), data.x, constant)
    numbers = lam * l1_ratio, lam * (1 - l1_ratio)
    gap, value = elastic_gap(v, score, grad, data.y, share, loss, *numbers)
    return Certificate(value, value - gap, gap, jnp.zeros((), bool))


def model_dual(problem: Problem) -> tuple[Array, Array]:
    """The dual coefficients of a model (n,), and whether they are feasible, () bool."""
    model, data, lam, loss, bias = problem
    share = problem.share
    if not isinstance(model, Expansion):
        return jnp.zeros_like(share), jnp.zeros((), bool)
    in_data, coef = of_rows(model, share)
    coef = problem.clipped(coef)
    is_finite = jnp.isfinite(loss.conjugate(slopes(coef, share, lam), data.y))
    feasible = jnp.all(is_finite & ((share > 0) | (coef == 0)))
    feasible &= jnp.all(in_data | (model.coef == 0))
    if bias == "free":
        feasible &= jnp.abs(jnp.sum(coef)) <= 1e-6 * jnp.sum(jnp.abs(coef))
    return coef, feasible


def of_rows(model: Expansion, like: Array) -> tuple[Array, Array]:
    """Which points are training rows, and the sums of the coefficients of each row, (n,)."""
    n = like.shape[0]
    in_data = (model.index >= 0) & (model.index < n)
    place = jnp.where(in_data, model.index, n)
    return in_data, jnp.zeros_like(like).at[place].add(model.coef.astype(like.dtype), mode="drop")


def objective_rounding(model: Any, data: Batch, coef: Array) -> Array:
    """The rounding error of coef' K coef and of sums of coefficients times scores, ().

    It is 0 for linear models, of which no kernel values are summed.
    """
    if isinstance(model, Linear):
        return jnp.zeros((), coef.dtype)
    coef, diag = jax.lax.stop_gradient((coef, model.kernel.diag(data.x)))
    return 4 * jnp.sum(jnp.abs(coef)) * rounding_of_sums(coef, diag)


def dual_scores(problem: Problem, coefs: Array) -> Array:
    """The scores sum_j coefs_jc k(x_j, x_i) of dual coefficients at their rows, (n, c)."""
    model, x = problem.model, problem.data.x
    if isinstance(model, Linear):
        score = dot(x, dot(coefs.T, x).T)
    else:
        score = matvec(model.kernel, x, x, coefs)
    return score + jnp.sum(coefs, 0)[None, :] if problem.bias == "feature" else score


def dual_from_scores(problem: Problem) -> Array:
    """The best of several dual points computed from the scores of a model, (n,)."""
    model, data, lam, loss, _ = problem
    score = model(data.x)
    share, value_at = problem.share, lambda score: loss.value(score, data.y)
    mean_slopes = [(value_at(score + h) - value_at(score - h)) / (2 * h) for h in _WIDTHS]
    slopes = jnp.stack([loss.slope(score, data.y), *mean_slopes], axis=1)  # (n, c)
    coefs = jax.vmap(problem.feasible, 1, 1)(-slopes * (share / lam)[:, None])

    def best_factor(coef, score_of):
        sqnorm = jnp.dot(coef, score_of)
        value = lambda s: -lam / 2 * s * s * sqnorm - penalty(s * coef, data.y, share, lam, loss)
        s = golden_section(value, jnp.zeros((), coef.dtype), jnp.full((), 4, coef.dtype), 80)
        return value(s), s

    values, factors = jax.vmap(best_factor, in_axes=1)(coefs, dual_scores(problem, coefs))
    c = jnp.argmax(values)
    # rounding of the factor may exceed a bound
    return problem.clipped(factors[c] * coefs[:, c])


def dual_ascent(problem: Problem, coef: Array, passes: int) -> Array:
    """Dual coefficients (n,) after sweeps of exact coordinate ascent over all rows, in order."""
    model, data, lam, loss, _ = problem
    bound, constant = problem.share / lam, problem.constant
    linear, x = isinstance(model, Linear), data.x
    sqnorm = (sqnorms(x) if linear else model.kernel.diag(x)) + constant
    dot_row, add_row = row_loops(x)
    # The state: the weights of a linear model, else the scores at all rows.
    start = dot(coef, x) if linear else dual_scores(problem, coef[:, None])[:, 0]

    def visit(carry, i):
        coef, f, b = carry
        score = dot_row(i, f) + constant * b if linear else f[i]
        new = loss.dual_step(coef[i], score, data.y[i], sqnorm[i], bound[i])
        move = new - coef[i]
        if linear:
            f = add_row(i, move, f, True)
        else:
            f = f + move * (model.kernel(x[i[None]], x)[0] + constant)
        return (coef.at[i].set(new), f, b + move), None

    order = jnp.tile(jnp.arange(data.y.shape[0], dtype=jnp.int32), passes)
    return jax.lax.scan(visit, (coef, start, jnp.sum(coef)), order)[0][0]


def _check_labels(loss: Loss, data: Batch) -> None:
    """Raise for known targets that are no labels of a loss of labels."""
    if not has_values(data.y, data.weight) or not loss.labels:
        return
    values = np.unique(np.asarray(data.y)[np.asarray(data.weight) > 0])
    if not np.isin(values, (-1, 1)).all():
        raise ValueError(
            f"{shown(loss)} is a loss of labels -1 and +1, and the data hold {values[0]:g} and "
            "others: pass as loss= the one that the model was fitted with"
        )


@despite_flags
def kkt_residual(
    model: Expansion, data: Batch, lam: float, loss: Loss = hinge, *, bias: str | None = None
) -> Array:
    """The violation of the optimality conditions by dual coefficients, in margin units, in float64.

    Without a free bias: max_i |coef_i' - coef_i| k(x_i, x_i), where coef_i' is the optimum over one
    coefficient. With a free bias (hinge): LIBSVM's max over I_up of y_i - f(x_i) minus the min over
    I_low of the same.

    Args:
        model: an expansion over training rows (`index`).
        data: the n training rows.
        lam: regularisation, > 0.
        loss: of scores.
        bias: "none", "feature" or "free"; None: that of the model.

    Returns:
        () the violation.

    Raises:
        TypeError: the model has no dual coefficients.

    Example:
        >>> import jax, jaxsvm
        >>> data = jaxsvm.dataset([[1.0], [-1.0]], [1, -1])
        >>> result = jaxsvm.fit(jaxsvm.sdca(0.5, jaxsvm.kernels.linear()), data, jax.random.key(0),
        ...     steps=4)
        >>> float(jaxsvm.kkt_residual(result.model, data, lam=1.0))
        0.0

    Reference: R.-E. Fan, P.-H. Chen, C.-J. Lin, Working set selection using second order
        information, JMLR 6, 2005.
    """
    model, data = check_objective(model, data, loss, needs="__call__")
    lam = positive_number("lam", lam)
    check_dual_model(model)
    bias = model.bias if bias is None else bias
    check_choice("bias", bias, ("none", "feature", "free"))
    return _kkt((model, data, lam), (loss,), (bias,))


@in_float64
def _kkt(model: Any, data: Batch, lam: Array, loss: Loss, bias: str) -> Array:
    share = normalized_weights(data)
    bound = share / lam
    coef, _ = model_dual(Problem(model, data, lam, loss, bias))
    score = model(data.x)
    if bias != "free":
        sqnorm = model.kernel.diag(data.x) + (1 if bias == "feature" else 0)
        new = loss.dual_step(coef, score, data.y, sqnorm, bound)
        return jnp.max(jnp.where(share > 0, jnp.abs(new - coef) * sqnorm, 0))
    alpha, tolerance = coef * data.y, 1e-6 * bound
    may_grow, may_fall = (alpha < bound - tolerance) & (share > 0), alpha > tolerance
    up, low = jnp.where(data.y > 0, may_grow, may_fall), jnp.where(data.y > 0, may_fall, may_grow)
    value = data.y - score
    return jnp.max(jnp.where(up, value, -jnp.inf)) - jnp.min(jnp.where(low, value, jnp.inf))
