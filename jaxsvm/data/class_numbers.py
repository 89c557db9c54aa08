"""Class names to labels and back."""

from __future__ import annotations

import numbers

import numpy as np

from ..checks import is_array, refuse_masked, shown


def encode(y: object, names: object = None) -> tuple[np.ndarray, tuple]:
    """Labels of class names: -1 and +1 for two classes, class numbers 0 .. k-1 for more.

    Args:
        y: (n,) class names: numbers, strings or booleans.
        names: the classes in order, as returned for the training rows; None: those in y, sorted.
            The second of two is +1.

    Returns:
        (n,) labels, and the names as a tuple of Python numbers or strings.
        `jaxsvm.models.Classifier(model, names)` predicts these names.

    Raises:
        ValueError: fewer than two classes, or a name that is not among `names`.

    Example:
        >>> import jaxsvm
        >>> jaxsvm.data.class_numbers.encode(["spam", "ham", "spam"])
        (array([ 1, -1,  1]), ('ham', 'spam'))
    """
    y = _names("y", y)
    if y.ndim != 1:
        how = "; use np.ravel(y)" if y.shape[1:] == (1,) else ""
        raise ValueError(f"y must hold one class name for each row, got shape {y.shape}{how}")
    known = np.unique(y) if names is None else _names("names", names)
    if known.ndim != 1 or len(np.unique(known)) < len(known):
        raise ValueError(f"names must be the classes in order, each once, got {known.tolist()}")
    if len(known) < 2:
        raise ValueError(
            f"y holds a single class, {known.tolist()}: a classifier needs rows of two or more"
        )
    number_of = {name: k for k, name in enumerate(known.tolist())}
    place = np.array([number_of.get(name, -1) for name in y.tolist()], int)
    if (place < 0).any():
        raise ValueError(
            f"y holds the class {y[place < 0][0].item()!r}, which is not among {known.tolist()}"
        )
    return (2 * place - 1 if len(known) == 2 else place), tuple(known.tolist())


def _names(name: str, values: object) -> np.ndarray:
    """Class names as an array of numbers or of strings.

    Raises:
        ValueError: anything else; also strings among numbers, all of which NumPy would convert to
            strings.
    """
    refuse_masked(name, values)
    array = np.asarray(values, None if is_array(values) else object)
    if array.dtype.kind == "O" and array.ndim == 1:
        items = array.tolist()
        for kind in (str, numbers.Real | np.bool_):
            if all(isinstance(item, kind) for item in items):
                array = np.asarray(items) if items else np.zeros(0)
        if array.dtype.kind != "O" and len(set(items)) > len(np.unique(array)):
            raise ValueError(f"{name} holds whole numbers that no float tells apart: pass strings")
    if array.dtype.kind not in "biufUSV" and array.ndim == 1:
        items = array.tolist()
        others = [item for item in items if not isinstance(item, str | numbers.Real)]
        raise ValueError(
            f"{name} must hold class names, all numbers or all strings, got "
            f"{shown((others or items)[0])} among them"
        )
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise ValueError(f"{name} holds a NaN or an infinity, which is no class: drop such rows")
    return array
