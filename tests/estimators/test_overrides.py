"""Few private names are overridden, so that a machine is read in few places."""

import inspect

import jaxsvm

MOST = 6


def overridden(machine):
    """The private names with a body in a class of the package, and with another one below it."""
    bodies = []
    for cls in machine.__mro__:
        if cls.__module__.startswith("jaxsvm."):
            own = {name for name, value in vars(cls).items() if has_body(value)}
            bodies.append({name for name in own if name[0] == "_" != name[1]})
    return {name for i, own in enumerate(bodies) for name in own & set().union(*bodies[i + 1 :])}


def has_body(value):
    return inspect.isfunction(value) or isinstance(value, property)


def test_few_private_names_are_overridden():
    names = (overridden(getattr(jaxsvm.estimators, name)) for name in jaxsvm.estimators.__all__)
    found = set().union(*names)
    assert len(found) <= MOST, sorted(found)
