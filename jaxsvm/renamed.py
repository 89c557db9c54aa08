"""Names of earlier versions.

Files written under them load. Calls that use them raise an error with the new name.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any

import jax
import jax.numpy as jnp

NAMES = {  # of classes and factories in files of 0.3.0
    "averaging.averaged": "wrappers.averaged.averaged",
    "features.lift.on_features": "wrappers.on_features.on_features",
    "multiclass.one_vs_one": "wrappers.multiclass.one_vs_one",
    "multiclass.one_vs_rest": "wrappers.multiclass.one_vs_rest",
    "samplers.acf": "samplers.acf.acf",
    "samplers.epochs": "samplers.epochs.epochs",
    "samplers.shrinking": "samplers.shrinking.shrinking",
    "samplers.uniform": "samplers.uniform.uniform",
    "samplers.whole": "samplers.whole.whole",
    "Basins": "WaterFill",
    "Element": "FunctionValues",
    "Flow": "StreamState",
    "Writes": "PendingWrites",
    "spaces.averaged.averaged": "spaces.running_mean.averaged",
    "spaces.constant.with_constant": "spaces.intercept.with_constant",
}
FIELDS = {  # of classes, by their name of today
    "AverageState": {"lost": "compensation"},
    "Bundle": {"live": "active"},
    "BudgetedState": {
        "born": "birth",
        "notes": "annotations",
        "memo": "memory",
        "waiting": "pending",
    },
    "CoordinateState": {"waiting": "pending", "worst": "max_violation"},
    "Curve": {"spent": "evals_parts"},
    "DualState": {"pull": "grad", "lost": "compensation", "drift": "sum_error"},
    "ExpansionState": {"lost": "compensation"},
    "LasvmState": {"inside": "in_set"},
    "NystromState": {"waiting": "pending"},
    "SbpState": {"moved": "bias_change", "water": "fill"},
    "ShrinkingState": {"moved": "progressed", "moving": "n_active"},
    "SpanState": {"waiting": "pending"},
    "SparseRows": {"start": "offsets"},
    "StreamState": {"held": "n_pending", "waiting": "pending"},
}
OPTIONS = {  # of factories, by their registered name
    "solvers.sbp.sbp": {"look": "bound_every"},
    "spaces.expansion.expansion": {"always": "unconditional"},
}


def _zeros_like(field: str) -> Callable[[dict], Any]:
    return lambda fields: jax.tree.map(jnp.zeros_like, fields[field])


def _unknown(fields: dict) -> Any:
    return jnp.full_like(fields["dual"], jnp.nan)


def _zero_shift(fields: dict) -> Any:
    return jnp.zeros(fields["x"].shape[-1], fields["x"].dtype)


# fields that 0.3.0 did not have, from those that it had
ADDED: dict[str, dict[str, Callable[[dict], Any]]] = {
    "BudgetedState": {"shift": _zero_shift},
    "MeanState": {"compensation": _zeros_like("mean")},
    "NystromState": {"compensation": _zeros_like("mean"), "shift": _zero_shift},
    "SbpState": {"compensation": _zeros_like("p")},
    "SimbaState": {"compensation": _zeros_like("mean")},
    "SpanState": {"shift": _zero_shift},
    "WolfeState": {"lam": _unknown},
}


def current_name(name: str) -> str:
    """The name of today."""
    return NAMES.get(name, name)


def current_keys(table: dict[str, dict[str, str]], name: str, entries: dict) -> dict:
    """Entries by their keys of today."""
    new = table.get(name, {})
    return {new.get(key, key): value for key, value in entries.items()}


def added(name: str, present: Iterable[str]) -> dict[str, Callable[[dict], Any]]:
    """Functions that make the fields of a class that are not present.

    They exist for fields that came after 0.3.0.
    """
    present = set(present)
    return {field: make for field, make in ADDED.get(name, {}).items() if field not in present}


def refuse_old_options(name: str, new: dict[str, str], given: Iterable[str]) -> None:
    """Raise TypeError for an option by its name of an earlier version.

    Args:
        name: of the function.
        new: the names of today, by the old ones.
        given: the options of a call.
    """
    for option in given:
        if option in new:
            raise TypeError(
                f"{name}({option}=) is {name}({new[option]}=) since version 0.4: "
                f"write {new[option]}"
            )


def module_getattr(module: str, **homes: str) -> Callable[[str], Any]:
    """A `__getattr__` of a module for names that are elsewhere today.

    They raise AttributeError with their home of today.
    """

    def missing(name: str) -> Any:
        if name in homes:
            raise AttributeError(f"{module}.{name} is {homes[name]} since version 0.4")
        raise AttributeError(f"module {module!r} has no attribute {name!r}")

    return missing


def with_new_parameters(**new: str) -> Callable[[type], type]:
    """A decorator of estimators with renamed parameters.

    Parameters by their old names raise TypeError with the new one.
    """

    def decorate(estimator: type) -> type:
        init: Any = estimator.__init__  # type: ignore[misc]  # of any class

        @functools.wraps(init)
        def checked(self: Any, *args: Any, **kwargs: Any) -> None:
            refuse_old_options(estimator.__name__, new, kwargs)
            init(self, *args, **kwargs)

        estimator.__init__ = checked  # type: ignore[misc]
        return estimator

    return decorate


def with_new_options(**new: str) -> Callable:
    """A decorator of functions and classes with renamed options.

    Options by their old names raise TypeError with the new one.
    """

    def decorate(thing: Any) -> Any:
        called = thing.__new__ if isinstance(thing, type) else thing

        @functools.wraps(called)
        def call(*args: Any, **kwargs: Any) -> Any:
            refuse_old_options(thing.__name__, new, kwargs)
            return called(*args, **kwargs)

        checked: Any = call
        if not isinstance(thing, type):
            return checked
        # Annotations of a named tuple are those of its fields; here they would be looked up in
        # another module.
        parameters = inspect.signature(called).parameters.values()
        plain = [parameter.replace(annotation=inspect.Parameter.empty) for parameter in parameters]
        checked.__signature__, checked.__annotations__ = inspect.Signature(plain), {}
        del checked.__wrapped__
        thing.__new__ = checked  # type: ignore[method-assign]  # of any class
        return thing

    return decorate
