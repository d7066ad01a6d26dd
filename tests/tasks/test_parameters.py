"""Parameters: what is obvious is what bind() says."""

from __future__ import annotations

import inspect
from functools import partial
from itertools import combinations

import pytest

from django_pgqueue.exceptions import DeclarationError
from django_pgqueue.tasks.parameters import Parameters


def nothing(): ...
def one(a): ...
def two(a, b=1): ...
def named(a, *, b): ...
def named_optional(a=0, *, b=1): ...
def only_named(*, a, b, c=1): ...
def placed(a, /, b): ...
def placed_optional(a=1, /, *, b=2): ...
def rest(a, *args): ...
def any_name(a, **kwargs): ...
def anything(*args, **kwargs): ...


FUNCTIONS = [
    nothing,
    one,
    two,
    named,
    named_optional,
    only_named,
    placed,
    placed_optional,
    rest,
    any_name,
    anything,
]
# Up to four arguments by place, and any of four by name.
CALLS = [
    ([None] * places, dict.fromkeys(names))
    for places in range(5)
    for count in range(5)
    for names in combinations("abcd", count)
]


def said(call):
    """Return what a call complains about."""
    try:
        call()
    except TypeError as error:
        return str(error)
    return None


@pytest.mark.parametrize("takes_context", [False, True])
@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_a_call_fits_where_bind_says_so(function, takes_context):
    """Else the error has bind()'s words."""
    before = (None,) if takes_context else ()
    try:
        parameters = Parameters(function, takes_context=takes_context)
    except DeclarationError:
        assert function in (nothing, only_named, anything)
        return
    signature = inspect.signature(function)

    for args, kwargs in CALLS:
        expected = said(partial(signature.bind, *before, *args, **kwargs))
        assert expected == said(partial(parameters.check, args, kwargs))

        by_place = said(partial(signature.bind, *before, *args))
        assert by_place is None or not parameters.fit_all([args, tuple(args)])
        by_name = said(partial(signature.bind, *before, **kwargs))
        assert by_name is None or not parameters.fit_all([kwargs, dict(kwargs)])
