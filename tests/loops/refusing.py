"""Lines of tables of calls that are refused, and the words in which."""

import functools


def each(words, call, *values):
    """A line for each value of the call."""
    return [(functools.partial(call, value), words) for value in values]
