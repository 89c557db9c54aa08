"""`Selection`, the result of `select`, and its table of scores."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from .. import printing
from .._node import static, struct
from ..calibration import calibrate_columns, check_method, columns_of
from ..coverage import check_alpha, from_values
from ..models import Classifier, OneVsOne
from ..types import Certificate, Model
from .sweeping import Table

# axes whose larger numbers regularise more; of all others the smaller ones do
STRONGER_ABOVE = ("lam", "alpha", "sigma", "nu", "eps", "epsilon", "width")


def strength(name: str, numbers: object) -> np.ndarray:
    """Numbers of an axis on a scale on which the strongest regularisation is the least."""
    numbers = np.asarray(numbers, np.float64)
    return -numbers if name in STRONGER_ABOVE else numbers


@struct
class Scores:
    """The scores of a grid: cells by axis, and folds.

    Lower scores are better. What was not computed is nan, or -1 for counts.
    """

    folds: np.ndarray  # (k_1, ..., k_a, folds)  the score of each fold
    # (k_1, ..., folds)  relative duality gap (P - D) / P of the run; nan: not known
    gap: np.ndarray
    # (k_1, ..., folds)  objective 1/2 |w|^2 + C sum_i weight_i loss_i; nan: not known
    primal: np.ndarray
    support: np.ndarray  # (k_1, ..., folds)  int32, support vectors or nonzero coefficients
    seconds: np.ndarray  # (k_1, ..., folds)  an equal share each for runs that were one program
    numbers: tuple  # (k_i,) for each axis
    names: tuple = static()  # of the axes

    @property
    def axes(self) -> dict[str, np.ndarray]:
        """The numbers of the axes by name, in the order of the call."""
        return dict(zip(self.names, map(np.asarray, self.numbers), strict=True))

    @property
    def mean(self) -> np.ndarray:
        """The mean score over the folds, (k_1, ..., k_a); nan where a fold is."""
        return np.mean(np.asarray(self.folds, np.float64), axis=-1)

    @property
    def se(self) -> np.ndarray:
        """The standard error of the mean over the folds, (k_1, ..., k_a); nan of one fold."""
        values = np.asarray(self.folds, np.float64)
        if values.shape[-1] == 1:  # one fold does not tell
            return np.full(values.shape[:-1], np.nan)
        with np.errstate(invalid="ignore"):
            return np.std(values, axis=-1, ddof=1) / np.sqrt(values.shape[-1])

    values = mean  # as `plots.heatmap` reads them

    @property
    def place(self) -> tuple[int, ...]:
        """The indices of the least mean; of equal ones those of the strongest regularisation.

        That is the least C or gamma, or the largest lam, sigma, nu or eps: of the first axis, then
        of the second, and so on. Means that are not finite are left out.

        Raises:
            ValueError: no mean is finite.
        """
        mean = self.mean
        finite = np.isfinite(mean)
        if not finite.any():
            raise ValueError(
                "no cell of the table has a finite score in all folds: there is none to choose; "
                "look at the scale of the data and at the ends of the axes"
            )
        return _strongest(finite & (mean == mean[finite].min()), self.axes)

    @property
    def one_se_place(self) -> tuple[int, ...]:
        """The strongest regularisation with a mean of at most the least one plus its `se`.

        Raises:
            ValueError: no mean is finite.
        """
        mean, place = self.mean, self.place
        limit = mean[place] + np.nan_to_num(self.se[place])
        return _strongest(np.isfinite(mean) & (mean <= limit), self.axes)

    def at(self, place: tuple[int, ...]) -> dict[str, Any]:
        """The numbers of the axes at a place."""
        numbers = [values[i].item() for values, i in zip(self.axes.values(), place, strict=True)]
        return dict(zip(self.names, numbers, strict=True))

    __str__ = Table.__str__  # of `values`; * marks that of `place`


def _strongest(allowed: np.ndarray, axes: dict[str, Any]) -> tuple[int, ...]:
    """The allowed cell of the strongest regularisation."""
    order = [strength(name, numbers) for name, numbers in axes.items()]
    places = (tuple(map(int, place)) for place in np.argwhere(allowed))
    return min(places, key=lambda place: [o[i] for o, i in zip(order, place, strict=True)])


@struct
class Selection:
    """The result of `select`: a table of scores, the choice, and the model of the choice.

    Example:
        >>> import jax, jaxsvm, numpy as np
        >>> x = np.array([[0.0], [1], [2], [3], [4], [5], [6], [7]])
        >>> data = jaxsvm.dataset(x, [-1, -1, -1, -1, 1, 1, 1, 1])
        >>> found = jaxsvm.select(lambda C: jaxsvm.decomposition(C, jaxsvm.kernels.linear()), data,
        ...     jax.random.key(0), C=np.array([0.1, 1.0]), folds=2, progress=False)
        >>> list(found.best), found.fold.shape, found.scores.shape
        (['C'], (8,), (2, 8))
    """

    table: Scores
    # (k_1, ..., k_a, n), or (..., n, classes): decision values at each row by the model that was
    # trained without it; nan for rows that no fold holds out
    scores: np.ndarray
    fold: np.ndarray  # (n,)  int32, the fold that holds a row out; -1: none
    model: Any  # trained on all rows with the numbers of `chosen`
    certificate: Certificate | None  # of `model`, in the units of its objective; None: not known
    rule: str = static(default="best")  # "best" or "one_se"
    status: str = static(default="")  # one sentence on what was run
    classes: Any = None  # what `predict` gives, `models.Classes`
    targets: Any = None  # (n,)  labels, class numbers or real, of the rows
    weight: Any = None  # (n,)  of the rows

    def __repr__(self) -> str:
        return printing.of_selection(self)

    def predict(self, x: object) -> Any:
        """As `Fit.predict`, by the model of the choice."""
        return self.classes.predict(self.model, x)

    @property
    def classifier(self) -> Model:
        """As `Fit.classifier`."""
        return self.classes.classifier(self.model)

    def calibrated(self, method: str = "sigmoid", coupling: str = "rest") -> Any:
        """Class probabilities of `model`, fitted to its decision values out of fold: no refit.

        Args:
            method: "sigmoid" or "isotonic", as of `jaxsvm.calibrate`.
            coupling: "rest" or "pairs", as of `jaxsvm.calibrate`; values of pairs are differences
                of those of classes.

        Returns:
            `Calibrated`.

        Raises:
            ValueError: real targets; a method or a coupling that is none of those named; "pairs" of
                a `OneVsOne`, of which `scores` holds the votes.

        Example:
            >>> import jax, jaxsvm, numpy as np
            >>> x = np.random.default_rng(0).normal(size=(60, 2))
            >>> data = jaxsvm.dataset(x, np.where(x[:, 0] > 0, "b", "a"))
            >>> found = jaxsvm.select(jaxsvm.linear_svm, data, jax.random.key(0),
            ...     C=jaxsvm.C_grid(3), progress=False)
            >>> chances = found.calibrated()
            >>> chances.classes, chances.predict_proba([[-1.0, 0.0], [1.0, 0.0]]).round(1).tolist()
            (('a', 'b'), [[1.0, 0.0], [0.0, 1.0]])
        """
        coupling = check_method(method, coupling)
        model, names, values, targets, weight = self._out_of_fold("calibrated")
        if not names:
            raise ValueError("the targets are real: probabilities are those of classes")
        if coupling == "pairs" and isinstance(model, OneVsOne):
            raise ValueError(
                "scores holds the votes of a OneVsOne, not the values of its pairs: take "
                "coupling='rest', or jaxsvm.calibrate(model, data) with rows of their own"
            )
        columns = columns_of(values, coupling)
        chances = calibrate_columns(model, columns, targets, weight, method, coupling, names)
        return dataclasses.replace(chances, columns=self.classes.columns)

    def conformal(self, alpha: float = 0.1) -> Any:
        """Sets of classes, or intervals of real targets, from values out of fold.

        The scores of rows by models that were trained without them stand for those of `model`. A
        set holds the target with probability of about 1 - alpha, which is not bounded: for a bound
        take `jaxsvm.conformal` with rows of their own, or CV+ of MAPIE.

        Args:
            alpha: share of targets that may be missed, in (0, 1).

        Returns:
            `Conformal`.

        Raises:
            ValueError: alpha not in (0, 1).

        Example:
            >>> import jax, jaxsvm, numpy as np
            >>> x = np.random.default_rng(0).normal(size=(60, 2))
            >>> data = jaxsvm.dataset(x, x[:, 0] + 0.1 * x[:, 1]**2, task="regression")
            >>> found = jaxsvm.select(lambda C: jaxsvm.linear_svm(C, loss=jaxsvm.losses.squared),
            ...     data, jax.random.key(0), C=jaxsvm.C_grid(3), progress=False)
            >>> found.conformal(0.1).predict([[1.0, 0.0]]).astype(float).round(1).tolist()
            [[0.9, 1.3]]
        """
        check_alpha(alpha)
        model, names, values, targets, weight = self._out_of_fold("conformal")
        known = dataclasses.replace(self.classes, names=names)
        return from_values(model, values, targets, weight, alpha, known)

    def _out_of_fold(self, name: str) -> tuple:
        """The model of values, names of classes; of rows that a fold holds out values of the
        choice, targets or class numbers, and weights.
        """
        if self.targets.ndim > 1:
            raise ValueError(
                f"{name} takes one target a row, and this selection has {self.targets.shape[1]}: "
                "select for each of them"
            )
        model, names = self.model, self.classes.names
        if isinstance(model, Classifier):
            model, names = model.inner, model.classes
        place = self.table.one_se_place if self.rule == "one_se" else self.table.place
        arrays = self.scores[place], self.targets, self.weight
        values, targets, weight = (np.asarray(a)[self.fold >= 0] for a in arrays)
        targets = np.where(targets > 0, targets, 0).astype(np.int32) if names else targets
        return model, names, values, targets, weight

    @property
    def best(self) -> dict[str, Any]:
        """The numbers of the least mean score, by the rule of `Scores.place` among equal ones."""
        return self.table.at(self.table.place)

    @property
    def one_se(self) -> dict[str, Any]:
        """The numbers of the strongest regularisation within one standard error of the least."""
        return self.table.at(self.table.one_se_place)

    @property
    def chosen(self) -> dict[str, Any]:
        """The numbers that `model` was trained with: `best` or `one_se`, as `rule` says."""
        return self.one_se if self.rule == "one_se" else self.best
