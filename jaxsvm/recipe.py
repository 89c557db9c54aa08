"""Closures in, pytrees out: numbers are leaves, choices are structure.

A factory such as `pegasos(lam, *, loss, project)` is written as plain closures. The decorators here
keep the call instead of its result: the numbers among the arguments become the leaves of a pytree,
all else becomes its structure, and the factory is called where its functions are needed, under
whatever transformation is at work there. So one compilation serves every `lam`, `jax.vmap` over
`pegasos(lams)` is a sweep, and `jax.grad` reaches `lam`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import gc
import importlib
import inspect
import threading
import types
from collections.abc import Callable, Iterator
from typing import Any, TypeVar, dataclass_transform

import jax
import jax.numpy as jnp
import numpy as np

from .checks import (
    SCALARS,
    UNKNOWN_VALUES,
    ArgumentSpec,
    argument_spec,
    as_argument,
    calling,
    has_shape,
    is_known,
    is_numeric,
    number,
    on_host,
    refuse_shape,
    shown,
    x64_enabled,
)
from .closures import open_closures
from .flags import despite_flags
from .types import (
    Batch,
    Certificate,
    Curve,
    Fit,
    Info,
    JointLoss,
    Lifted,
    Loss,
    RunState,
    Sampler,
    Solver,
    Space,
    SparseRows,
    as_scores,
)

_T = TypeVar("_T")

REGISTRY: dict[str, Any] = {}  # name -> class, factory or function: what `models.load` may make


def register(name: str, thing: Any = None) -> Any:
    """Make `thing` known to `models.load` as `name`; without `thing`, a decorator.

    Raises:
        ValueError: if another thing has that name already.
    """
    if thing is None:
        return functools.partial(register, name)
    other = REGISTRY.get(name)
    if other is not None and (other.__module__, other.__qualname__) != (
        thing.__module__,
        thing.__qualname__,
    ):
        raise ValueError(
            f"the name {name!r} is taken by {other!r}; register {thing!r} under another name"
        )
    REGISTRY[name] = thing
    return thing


for _type in (Batch, Certificate, Curve, Fit, Info, Lifted, SparseRows):
    register(_type.__name__, _type)
register("Run", RunState)  # its name in files


def registered_name(thing: Any) -> str | None:
    """The name that `thing` was registered under, or None."""
    return next((name for name, other in REGISTRY.items() if other is thing), None)


def _name_of(factory: Callable) -> str:
    """The name of a factory in files: "solvers.pegasos", or that of the user's module and factory.

    That of the package's own does not depend on the file that it is in.
    """
    module = factory.__module__ or "__main__"
    if module.startswith(f"{__package__}."):
        module = module.split(".")[1]
    return f"{module}.{factory.__name__}"


def static(**kwargs: Any) -> Any:
    """A field of a `struct` that is structure, not a leaf."""
    return dataclasses.field(metadata={"static": True}, **kwargs)


@dataclass_transform(
    eq_default=False, frozen_default=True, field_specifiers=(dataclasses.field, static)
)
def struct(cls: type[_T]) -> type[_T]:
    """A frozen dataclass that is a pytree and prints arrays by their shapes.

    `models.save` knows it by its class name.
    """
    if "__repr__" not in vars(cls):
        cls.__repr__ = _show_fields  # type: ignore[method-assign]  # of any class
    return register(
        cls.__name__,
        jax.tree_util.register_dataclass(
            dataclasses.dataclass(frozen=True, eq=False, repr=False)(cls)
        ),
    )


def _show_fields(self: Any) -> str:
    shown = ", ".join(
        f"{field.name}={_show(getattr(self, field.name))}" for field in dataclasses.fields(self)
    )
    return f"{type(self).__name__}({shown})"


def _is_number(leaf: Any) -> bool:
    return isinstance(leaf, float | complex) or hasattr(leaf, "dtype")


_KINDS: dict[str, tuple[Any, str]] = {
    "AnyLoss": ((Loss, JointLoss), "a loss such as jaxsvm.losses.hinge"),
    "Loss": (Loss, "a loss such as jaxsvm.losses.hinge"),
    "Sampler": (Sampler, "a sampler such as jaxsvm.samplers.epochs(64)"),
    "Solver": (Solver, "a solver such as jaxsvm.pegasos(1e-3)"),
    "Space": (Space, "a space such as jaxsvm.spaces.linear()"),
}


def is_kind(value: Any, kind: Any) -> bool:
    """Whether `value` is such a tuple, or the recipe of one; of several kinds, any."""
    if isinstance(kind, tuple):
        return any(is_kind(value, each) for each in kind)
    return isinstance(value, kind) or (isinstance(value, Recipe) and value.spec[1] == kind._fields)


def refuse_factory(name: str, value: Any) -> None:
    """Raise TypeError for a factory that was passed without a call."""
    if hasattr(value, "rules"):
        raise TypeError(
            f"{name} is the factory {value.__name__} itself: call it, {value.__name__}(...)"
        )


def refuse_joint(name: str, value: Any) -> None:
    """Raise TypeError for a loss that couples rows, where one of single rows is needed."""
    if is_kind(value, JointLoss):
        raise TypeError(
            f"{name} must be one of single rows here, and {shown(value)} couples rows: take a "
            f"solver of joint risks, jaxsvm.ocas(lam, loss={shown(value)}), or train on "
            "differences of rows, jaxsvm.fit(..., sampler=jaxsvm.samplers.pairs())"
        )


def refuse_multiclass(name: str, value: Any) -> None:
    """Raise ValueError for a loss of the scores of all classes, where there is one score."""
    if is_kind(value, Loss) and value.multiclass:
        raise ValueError(
            f"{name} must be one of single scores here, and {shown(value)} needs a score of each "
            f"class: take jaxsvm.ocas(lam, loss={shown(value)}, classes=k), or another loss and "
            "jaxsvm.one_vs_rest(solver, classes=k)"
        )


def check_loss_values(name: str, loss: Any) -> None:
    """Raise for a loss of the user whose functions do not give one number for each score.

    They are traced for three rows. Dual functions that fail pass, as primal methods call none.

    Raises:
        TypeError, ValueError: with the name of the function, and what it gives.
    """
    loss = unwrap_static(loss)
    own = isinstance(loss, Recipe) and loss.spec[0].__module__ == f"{__package__}.losses"
    if own or not is_kind(loss, Loss):
        return
    loss = fields_of(cast(loss, jnp.float32) if isinstance(loss, Recipe) else loss)
    y = jax.ShapeDtypeStruct((3,), jnp.float32)
    score = jax.ShapeDtypeStruct((3, 2), jnp.float32) if loss.multiclass else y
    for field in ("value", "slope", "curvature", "conjugate", "dual_step"):
        fn, dual = getattr(loss, field), field in ("conjugate", "dual_step")
        result: Any = None
        args = (score, score, y, y, y) if field == "dual_step" else (score, y)
        unused = contextlib.suppress(Exception) if dual else contextlib.nullcontext()
        if fn is not None or field in ("value", "slope"):
            with unused, calling(f"{field} of {name}", fn, "(n,), (n,) -> (n,)", *args):
                with jax.numpy_dtype_promotion("standard"):  # numbers may be of another float
                    result = jax.eval_shape(fn, *args)
        elif field == "curvature":
            continue
        shape = score.shape if field in ("slope", "dual_step") else y.shape
        wrong = getattr(result, "shape", None) != shape or not is_numeric(result.dtype)
        if wrong and not (dual and result is None):
            raise ValueError(
                f"{field} of {name} must give one number for each score, got {shown(result)} for "
                f"scores of shape {score.shape}"
            )


def _checked(rule: ArgumentSpec, value: Any) -> Any:
    """An argument of a factory, refused where it is not what the signature says."""
    refuse_factory(rule.name, value)
    value = as_argument(rule, value)
    if rule.asks in _KINDS and not (value is None and rule.optional):
        kind, example = _KINDS[rule.asks]
        if kind is Loss:
            refuse_joint(rule.name, value)
            refuse_multiclass(rule.name, value)
        if not is_kind(value, kind):
            raise TypeError(f"{rule.name} must be {example}, got {shown(value)}")
        check_loss_values(rule.name, value)
    if rule.asks == "Callable" and not (callable(value) or (value is None and rule.optional)):
        raise TypeError(f"{rule.name} must be a function, got {shown(value)}")
    return value


class _Validation(threading.local):
    """The state of this thread: in the trial of a call, in a call outside a trial, or neither."""

    # what the trial under way has made; None: no trial is
    results: dict[int, tuple[Recipe, Any]] | None = None
    depth: int = 0  # factories under way


_validation = _Validation()
MOST_VALIDATED = 256  # calls that are not tried again, as an equal one was not refused
_validated: dict[Any, None] = {}


class _Docstring:
    """The docstring of a class on the class, and that of an instance's factory on the instance."""

    def __init__(self, text: str | None) -> None:
        self.text = text

    def __get__(self, instance: Any, owner: type) -> str | None:
        return self.text if instance is None else instance.spec[0].__doc__


# of a function's code, all but its place in a file
CODE = (
    *("co_code", "co_consts", "co_names", "co_varnames", "co_freevars", "co_cellvars", "co_flags"),
    *("co_argcount", "co_posonlyargcount", "co_kwonlyargcount", "co_exceptiontable"),
)


def _choice(argument: Any) -> tuple:
    """(argument,), one that is structure: equal to another of its value, a function to its code."""
    return (_Function if isinstance(argument, types.FunctionType) else tuple)((argument,))


class _Function(tuple):
    """(function,), equal to another of its code."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Function) and same_choice(self[0], other[0])

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(self[0].__code__.co_code)


def same_choice(one: Any, other: Any) -> bool:
    """Whether two arguments stand for the same: equal ones of a type, and functions of one code.

    Functions are of one code where all that they close over and their defaults are the same, too.
    """
    if one is other:
        return True
    if type(one) is not type(other):
        return False
    if isinstance(one, tuple):
        pairs = zip(one, other, strict=False)
        return len(one) == len(other) and all(same_choice(*pair) for pair in pairs)
    if isinstance(one, types.CodeType):
        return all(same_choice(getattr(one, part), getattr(other, part)) for part in CODE)
    if not isinstance(one, types.FunctionType):
        equal = one == other
        return equal if isinstance(equal, bool) else False
    parts = lambda fn: (fn.__code__, fn.__defaults__, *sorted((fn.__kwdefaults__ or {}).items()))
    cells = lambda fn: tuple(cell.cell_contents for cell in fn.__closure__ or ())
    try:
        same = same_choice(parts(one), parts(other)) and same_choice(cells(one), cells(other))
    except (ValueError, RecursionError):  # a cell that is not filled yet, or that holds itself
        return False
    return same and one.__globals__ is other.__globals__


def _same_number(one: Any, other: Any) -> bool:
    """Whether two numbers or arrays are known and of the same values."""
    if one is other:
        return True
    one, other = (np.asarray(a) if isinstance(a, float) else on_host(a) for a in (one, other))
    return one is not None and other is not None and np.array_equal(one, other)


@jax.tree_util.register_pytree_with_keys_class
class Recipe:
    """A call of a factory, kept: a pytree with the attributes of what the factory makes.

    Its arguments are attributes, too. Recipes are equal where their calls are: of one factory, with
    the same choices, and with numbers that are known and the same.
    """

    __slots__ = ("numbers", "spec")
    __doc__ = _Docstring(__doc__)  # help(solver) prints the docstring of its factory

    def __init_subclass__(cls) -> None:
        cls.__doc__ = _Docstring(cls.__dict__.get("__doc__"))  # type: ignore[assignment]  # a descriptor, not a string

    def __init__(
        self, factory: Callable, fields: tuple[str, ...], args: tuple, kwargs: dict
    ) -> None:
        """Split the arguments of one call into leaves and structure."""
        leaves, tree = jax.tree.flatten(open_closures((args, kwargs)))
        self.numbers = tuple(leaf for leaf in leaves if _is_number(leaf))
        self.spec = (
            factory,
            fields,
            tree,
            tuple(None if _is_number(leaf) else _choice(leaf) for leaf in leaves),
        )

    def tree_flatten(self) -> tuple[tuple, tuple]:
        """Numbers as children, everything else as structure."""
        return self.numbers, self.spec

    def tree_flatten_with_keys(self) -> tuple[list, tuple]:
        """As `tree_flatten`, with the name of each number: `.C`, `.kernel.gamma`."""
        factory, _, tree, choices = self.spec
        names = list(inspect.signature(factory).parameters)
        # the structure with numbers in place of the leaves, which may be anything, such as None
        whole = jax.tree.unflatten(tree, list(range(len(choices))))
        leaves, _ = jax.tree_util.tree_flatten_with_path(whole)
        numbers = [path for (path, _), choice in zip(leaves, choices, strict=True) if not choice]
        named = []
        for (which, argument, *rest), value in zip(numbers, self.numbers, strict=True):
            name = names[argument.idx] if which.idx == 0 else argument.key
            key = jax.tree_util.GetAttrKey(name + jax.tree_util.keystr(tuple(rest)))
            named.append((key, value))
        return named, self.spec

    @classmethod
    def tree_unflatten(cls, spec: tuple, numbers: Any) -> Recipe:
        """The inverse of `tree_flatten`; never looks at the numbers."""
        self = object.__new__(cls)
        self.numbers, self.spec = tuple(numbers), spec
        return self

    def call(self) -> tuple[Any, tuple, dict]:
        """The factory and the arguments that it is called with."""
        factory, _, tree, choices = self.spec
        numbers = iter(self.numbers)
        args, kwargs = jax.tree.unflatten(
            tree, [next(numbers) if c is None else c[0] for c in choices]
        )
        return factory, args, kwargs

    def make(self) -> Any:
        """What the factory returns for these arguments, made here and now.

        Raises:
            ValueError: for an array in place of one number.
        """
        known = None if _validation.results is None else _validation.results.get(id(self))
        if known is not None:
            return known[1]
        factory, args, kwargs = self.call()
        made = {}
        for rule, value in _with_rules(factory, args, kwargs):
            if rule.asks in SCALARS and has_shape(value):
                refuse_shape(rule.name, value)
            if rule.asks in ("Solver", "Space"):  # each attribute of a call would make it again
                made[rule.name] = fields_of(value)
        names = zip(factory.rules, args, strict=False)
        args = tuple(made.get(name, value) for name, value in names) if made else args
        kwargs = {name: made.get(name, value) for name, value in kwargs.items()}
        _validation.depth += 1
        try:
            result = factory.__wrapped__(*args, **kwargs)
        finally:
            _validation.depth -= 1
        if _validation.results is not None:
            _validation.results[id(self)] = self, result
        return result

    def bind(self, **changes: Any) -> Recipe:
        """The same call with other arguments.

        What the factory does not take goes to the solvers among its arguments, as of a wrapper, or
        to the call that it returns; what none of them takes changes nothing.
        """
        factory, args, kwargs = self.call()
        own = {name: value for name, value in changes.items() if name in factory.rules}
        rest = {name: value for name, value in changes.items() if name not in own}
        arguments = inspect.signature(factory).bind(*args, **kwargs)
        inner = {
            name: value.bind(**rest)
            for name, value in arguments.arguments.items()
            if rest and isinstance(value, Recipe) and is_kind(value, Solver)
        }
        if own or inner:
            arguments.arguments.update(own | inner)
            return factory(*arguments.args, **arguments.kwargs)
        made = self.make()
        return made.bind(**rest) if isinstance(made, Recipe) else self

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name in Recipe.__slots__:
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")
        if name in self.spec[1] or (name == "prepare" and is_kind(self, Solver)):
            made = getattr(self.make(), name)
            return with_own_buffers(made) if name == "init" and is_kind(self, Solver) else made
        factory: Any = self.spec[0]
        if name not in factory.rules:
            raise AttributeError(
                f"{factory.__name__} has no attribute {name!r}: it has {', '.join(factory.rules)}"
            )
        return self.arguments()[name]

    def arguments(self) -> dict[str, Any]:
        """The arguments of the call by their names."""
        factory, args, kwargs = self.call()
        return dict(inspect.signature(factory).bind(*args, **kwargs).arguments)

    def __dir__(self) -> list[str]:
        return [*object.__dir__(self), *self.spec[1], *self.arguments()]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Recipe):
            return NotImplemented
        same = self.spec == other.spec and len(self.numbers) == len(other.numbers)
        return same and all(map(_same_number, self.numbers, other.numbers))

    def __hash__(self) -> int:
        known = [np.asarray(a) if isinstance(a, float) else on_host(a) for a in self.numbers]
        pairs = zip(self.numbers, known, strict=True)
        return hash((self.spec, repr([id(a) if b is None else b.tolist() for a, b in pairs])))

    def __repr__(self) -> str:
        factory, args, kwargs = self.call()
        signature = inspect.signature(factory)
        shown, by_name = [], False
        for name, value in signature.bind(*args, **kwargs).arguments.items():
            parameter = signature.parameters[name]
            text = repr(value)  # once, as it shows all that is nested
            if text == repr(parameter.default):
                by_name = True
                continue
            text = text if isinstance(value, Recipe) else _show(value)
            by_name |= parameter.kind is inspect.Parameter.KEYWORD_ONLY
            shown.append(f"{name}={text}" if by_name else text)
        return f"{factory.__name__}({', '.join(shown)})"

    def __reduce__(self) -> tuple:
        factory, args, kwargs = self.call()
        return _rebuild, (factory.__module__, registered_name(factory) or factory, args, kwargs)

    def __getstate__(self) -> tuple:
        """The call, for programs that do not read `__reduce__`, such as skops."""
        return self.__reduce__()[1]

    def __setstate__(self, state: tuple) -> None:
        """Hold the call of `__getstate__`."""
        call = _rebuild(*state)
        self.numbers, self.spec = call.numbers, call.spec


def _validate_eagerly(call: Recipe) -> None:
    """Evaluate a call once, where all its numbers are known, so that its factory can refuse them.

    Traced, not run: nothing is compiled, and JAX's devices are not started. What a factory calls is
    tried with it.
    """
    if not all(map(is_known, call.numbers)) or (_validation.depth and _validation.results is None):
        return
    if _validation.results is not None:
        call.make()
        return
    known = _hashable(call)
    if known in _validated:
        return
    refusals: list[Exception] = []
    results: dict[int, tuple[Recipe, Any]] = {}

    def trial_of_a_factory():
        try:
            call.make()
        except UNKNOWN_VALUES:  # of numbers worked out by JAX
            pass
        except Exception as error:  # raised below, where JAX adds nothing to its sentence
            refusals.append(error)
        results.clear()
        if getattr(jax.config, "jax_check_tracer_leaks", False):  # what was made refers to itself
            gc.collect()

    _validation.results = results
    try:
        jax.eval_shape(trial_of_a_factory)
    finally:
        _validation.results = None
    for error in refusals:
        raise error
    if known is not None:
        _validated[known] = None
        while len(_validated) > MOST_VALIDATED:
            _validated.pop(next(iter(_validated)), None)


def _hashable(call: Recipe) -> Any:
    """A cache key of the call; None if a number is traced or an argument cannot be hashed."""
    if not all(type(leaf) is float for leaf in call.numbers):
        return None
    types = tuple(type(choice[0]) for choice in call.spec[-1] if choice)  # True is no 1
    key = call.numbers, call.spec, types, x64_enabled()
    try:
        hash(key)
    except TypeError:
        return None
    return key


def _show(value: Any) -> str:
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        concrete = not isinstance(value, jax.core.Tracer) and value.shape == ()
        if concrete and jnp.issubdtype(value.dtype, jnp.number):
            return str(value.dtype.type(value)) if value.dtype.kind == "f" else repr(value.item())
        return f"{value.dtype}{list(value.shape)}"
    return getattr(value, "__name__", None) or repr(value)


def _rebuild(module: str, factory: Any, args: tuple, kwargs: dict) -> Recipe:
    """The inverse of `Recipe.__reduce__`.

    The module that registers the factory may not be imported yet.
    """
    if isinstance(factory, str) and factory not in REGISTRY:
        is_own = module.startswith(f"{__package__}.")  # whichever file it is in
        importlib.import_module(f"{__package__}.api" if is_own else module)
    if isinstance(factory, str):
        factory = REGISTRY[factory]
    return factory.unchecked(args, kwargs)


def _with_rules(factory: Any, args: tuple, kwargs: dict) -> Iterator[tuple[ArgumentSpec, Any]]:
    """Each argument of a call with the rule of its parameter."""
    yield from zip(factory.rules.values(), args, strict=False)
    yield from (
        (factory.rules[name], value) for name, value in kwargs.items() if name in factory.rules
    )


def arguments_named(name: str, thing: Any) -> Iterator[Any]:
    """The arguments of this name of a recipe, and of the recipes among its arguments."""
    thing = unwrap_static(thing)
    for rule, value in _with_rules(*thing.call()) if isinstance(thing, Recipe) else ():
        if rule.name == name:
            yield value
        else:
            yield from arguments_named(name, value)


def recipe(result: Any, kind: type[Recipe] = Recipe, counts: bool = False) -> Callable:
    """A decorator that makes factories of pytrees from factories of `result` tuples.

    The pytrees have the attributes of the tuples.

    Positional arguments are numbers or pytrees; keyword arguments are choices (floats and arrays
    among them leaves). Integers given for positional arguments, or for keyword arguments whose
    default is a float, are leaves too, as floats, unless the factory `counts` with them.

    A parameter annotated `float` or `int`, or not at all, takes one number: an array in its place
    is refused where the factory is called, so that `jax.vmap` over it works. Annotate it
    `jax.Array` (or `Any`) if it takes arrays. Where all numbers are known the factory is called
    once at construction, so that it can refuse them there.
    """

    def decorate(factory: Callable) -> Callable:
        signature = inspect.signature(factory)
        parameters = signature.parameters.values()
        name = _name_of(factory)
        is_choice = lambda p: (
            p.kind is inspect.Parameter.KEYWORD_ONLY and not isinstance(p.default, float)
        )
        rules = {p.name: argument_spec(p, not (counts or is_choice(p))) for p in parameters}

        def unchecked(args, kwargs):
            return kind(wrapper, result._fields, args, kwargs)

        @functools.wraps(factory)
        def wrapper(*args, **kwargs):
            try:
                bound = signature.bind(*args, **kwargs)
            except TypeError as error:
                call = f"{factory.__name__}({', '.join(signature.parameters)})"
                raise TypeError(f"{call}: {error}") from None
            for argument, value in bound.arguments.items():
                bound.arguments[argument] = _checked(rules[argument], value)
            bound.apply_defaults()
            call = unchecked(bound.args, bound.kwargs)
            if rules:
                _validate_eagerly(call)
            return call

        decorated: Any = wrapper
        decorated.result_type = result  # says that this is a factory, to `models.load` too
        decorated.rules, decorated.unchecked = rules, unchecked
        decorated.__signature__ = signature  # which `inspect.signature` would work out each time
        if "<locals>" in factory.__qualname__:
            return wrapper
        return register(name, wrapper)

    decorate.__doc__ = recipe.__doc__  # what `help(jaxsvm.solver)` prints
    return decorate


@jax.tree_util.register_pytree_with_keys_class
class LossRecipe(Recipe):
    """A call of a factory of losses; it is called as the loss is."""

    __slots__ = ()

    def __call__(self, score: Any, y: Any) -> Any:
        """The loss of each score at its target, with `slope` as its derivative in the score."""
        return loss_values(self, *as_scores(score, y))


@jax.custom_jvp
def loss_values(loss: Any, score: Any, y: Any) -> Any:
    """The values of a loss; the derivative in the score is its slope, also at a kink."""
    return fields_of(loss).value(score, y)


@loss_values.defjvp
def _loss_values_jvp(primals: tuple, tangents: tuple) -> tuple[Any, Any]:
    (loss, score, y), (loss_tangent, score_tangent, y_tangent) = primals, tangents
    rest = lambda loss, y: fields_of(loss).value(score, y)
    values, tangent = jax.jvp(rest, (loss, y), (loss_tangent, y_tangent))
    change = fields_of(loss).slope(score, y) * score_tangent
    return values, tangent + (jnp.sum(change, -1) if change.ndim > values.ndim else change)


@jax.jit
def own_buffers(tree: Any) -> Any:
    """The same arrays in memory of their own, so that they may be donated."""
    return jax.lax.optimization_barrier(tree)


def with_own_buffers(init: Callable) -> Callable:
    """The `init` of a solver, whose states may be donated: no array is one of its arguments'."""

    @despite_flags
    @functools.wraps(init)
    def own(key: Any, data: Any) -> Any:
        return own_buffers(init(key, data))

    return own


solver = recipe(Solver)
sampler = recipe(Sampler, counts=True)
space = recipe(Space)
loss = recipe(Loss, LossRecipe)
joint_loss = recipe(JointLoss)


def replace(inner: Solver | Recipe, **fields: Any) -> Solver:
    """The solver `inner` with other fields; what a wrapper does not change stays.

    Args:
        inner: a solver, or the call of its factory.
        **fields: of `Solver`, in place of those of `inner`.
    """
    return fields_of(inner)._replace(**fields)


def require(loss: Any, field: str, instead: str) -> None:
    """Check that a loss has the function of that name.

    Raises:
        ValueError: it has none; `instead` says what can do without it.
    """
    if getattr(fields_of(loss), field) is None:
        raise ValueError(f"{shown(loss)} has no {field}: give it one, or take {instead}")


def check_share(l1_ratio: Any) -> None:
    """Check that it is one number from 0 to 1.

    Raises:
        ValueError: it is not.
    """
    check_scalars(l1_ratio=l1_ratio)
    if not isinstance(l1_ratio, jax.core.Tracer) and not 0 <= float(l1_ratio) <= 1:
        raise ValueError(f"l1_ratio must be a number from 0 to 1, got {float(l1_ratio):g}")


def check_scalars(**numbers: Any) -> None:
    """Check that each is one number.

    Raises:
        TypeError: if one is no number.
        ValueError: if one has a shape, with what to do instead.
    """
    for name, value in numbers.items():
        number(name, value)


def check_nonnegative(**numbers: Any) -> None:
    """Check that each is one number and, where its value is known, that it is not below 0.

    Raises:
        TypeError: if one is no number.
        ValueError: with the name, what was expected and what came.
    """
    for name, value in numbers.items():
        known = number(name, value)
        if known is not None and not 0 <= known < np.inf:
            raise ValueError(f"{name} must be a finite number of at least 0, got {known:g}")


def check_positive(**numbers: Any) -> None:
    """Check that each is one number and, where its value is known, that it is above 0.

    Subnormal numbers are refused, too, as programs of XLA take them for 0.

    Raises:
        TypeError: if one is no number.
        ValueError: with the name, what was expected and what came.
    """
    for name, value in numbers.items():
        known = number(name, value)
        if known is None or 2.0**-126 <= known < np.inf:  # the least of float32
            continue
        dtype = np.promote_types(getattr(value, "dtype", np.float64), np.float32)
        least = float(np.finfo(dtype).tiny)
        if not least <= known < np.inf:
            goal = f"of at least {least:.3g}" if 0 < known < least else "above 0"
            raise ValueError(f"{name} must be a finite number {goal}, got {known:g}")


def check_choice(name: str, value: Any, allowed: tuple) -> None:
    """Check that `value` is one of `allowed`.

    Raises:
        ValueError: with the name, the choices and what came.
    """
    if not isinstance(value, str | bool | np.bool_) or value not in allowed:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, allowed))}, got {value!r}")


@jax.tree_util.register_pytree_node_class
class Static:
    """A tree with leaves that are no numbers, carried through jit: its arrays are the leaves.

    Examples are plain solvers, functions, and modules of other libraries.
    """

    def __init__(self, arrays: Any, rest: tuple) -> None:
        """The arrays among the leaves, and the structure with the other leaves, all hashable."""
        self.arrays, self.rest = tuple(arrays), rest

    def tree_flatten(self) -> tuple[tuple, tuple]:
        """The arrays as children."""
        return self.arrays, self.rest

    @classmethod
    def tree_unflatten(cls, rest: tuple, arrays: Any) -> Static:
        """The inverse of `tree_flatten`."""
        return cls(arrays, rest)


def as_static(thing: Any) -> Any:
    """`thing` if all its leaves are numbers, else a `Static` of it.

    Traced values that its functions close over are leaves, too.
    """
    thing = open_closures(thing)
    leaves, tree = jax.tree.flatten(thing)
    if all(map(_is_number, leaves)):
        return thing
    is_array = [hasattr(leaf, "dtype") for leaf in leaves]
    arrays = [leaf for leaf, flag in zip(leaves, is_array, strict=True) if flag]
    rest = tuple(
        None if flag else _choice(leaf) for leaf, flag in zip(leaves, is_array, strict=True)
    )
    return Static(arrays, (tree, rest))


def unwrap_static(thing: Any) -> Any:
    """The inverse of `as_static`."""
    if not isinstance(thing, Static):
        return thing
    (tree, rest), arrays = thing.rest, iter(thing.arrays)
    return tree.unflatten([next(arrays) if leaf is None else leaf[0] for leaf in rest])


def holds_functions(thing: Any) -> bool:
    """Whether a recipe or another thing holds functions that are no recipes of their own."""
    thing = unwrap_static(thing)
    parts = thing.call()[1:] if isinstance(thing, Recipe) else thing
    leaves = jax.tree.leaves(parts, is_leaf=lambda node: isinstance(node, Recipe) or callable(node))
    return any(
        holds_functions(leaf) if isinstance(leaf, Recipe) else callable(leaf) for leaf in leaves
    )


def fields_of(thing: Any) -> Any:
    """The tuple that a recipe stands for; other things as they are.

    Each attribute of a recipe calls its factory again: read several fields from this tuple.
    """
    thing = unwrap_static(thing)
    while isinstance(thing, Recipe):
        thing = thing.make()
    return thing


@contextlib.contextmanager
def skip_validation() -> Iterator[None]:
    """Skip the trial evaluation of calls in the body, whose numbers were checked."""
    _validation.depth += 1
    try:
        yield
    finally:
        _validation.depth -= 1


def cast(tree: Any, dtype: Any) -> Any:
    """The floating numbers of `tree` as arrays of `dtype`, strongly typed.

    A float64 lam must not widen a float32 run.

    Raises:
        ValueError: a number of Python or NumPy is out of the range of `dtype`.
    """

    def one(leaf):
        if not _is_number(leaf):
            return leaf
        is_key = hasattr(leaf, "dtype") and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
        if is_key or not jnp.issubdtype(jnp.result_type(leaf), jnp.floating):
            return leaf
        # known numbers stay on the host, where nothing is compiled
        if isinstance(leaf, float | np.floating):
            return _in_range(leaf, dtype)
        known = on_host(leaf)
        return jnp.asarray(leaf, dtype) if known is None else np.asarray(known, dtype)

    return jax.tree.map(one, tree)


def _in_range(value: Any, dtype: Any) -> np.ndarray:
    """One number in another type.

    Raises:
        ValueError: it becomes infinite, or 0, as subnormal numbers do in programs of XLA.
    """
    with np.errstate(over="ignore"):
        new = np.asarray(value, dtype)
    limits = jnp.finfo(dtype)
    if np.isfinite(value) and value and not limits.tiny <= abs(new) < np.inf:
        raise ValueError(
            f"numbers must be 0 or from {float(limits.tiny):.3g} to {float(limits.max):.3g} in "
            f"size for {limits.dtype}, got {value:g}: scale the rows, or use 64-bit numbers"
        )
    return new
