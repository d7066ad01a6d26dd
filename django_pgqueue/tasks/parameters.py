"""
Parameters: whether arguments fit a function, found out before they are stored.

``inspect.Signature.bind`` knows every rule and takes 10 µs a call. Nearly all tasks
have plain parameters, for which comparing two sets of names is enough; whatever is not
obviously right is left to bind(), whose words the error has.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from itertools import repeat
from operator import eq
from typing import Any

from django_pgqueue.exceptions import DeclarationError, did_you_mean, shown

BY_PLACE_OR_NAME = inspect.Parameter.POSITIONAL_OR_KEYWORD
BY_NAME = inspect.Parameter.KEYWORD_ONLY
PLAIN = frozenset({BY_PLACE_OR_NAME, BY_NAME})
LISTS = frozenset({list, tuple})
FIRST = frozenset({inspect.Parameter.POSITIONAL_ONLY, BY_PLACE_OR_NAME})
MANY = frozenset({inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD})


class Parameters:
    """What a function takes of a job: its parameters, but for the context."""

    def __init__(self, function: Callable[..., Any], *, takes_context: bool) -> None:
        """
        Read the signature of *function*.

        Raises:
            DeclarationError: There is no place for the context that it is to take.
        """
        self._signature = inspect.signature(function)
        # Bound before a job's arguments: in place of the context.
        self._before = (None,) if takes_context else ()
        own = list(self._signature.parameters.values())
        if takes_context:
            if not own or own[0].kind not in FIRST:
                raise DeclarationError(
                    f"@task(takes_context=True): {function.__qualname__} needs a first "
                    f"positional parameter for the context."
                )
            own = own[1:]
        self.function_name = function.__qualname__
        # What the arguments of a job must fit, in order.
        self.own = own
        self.signature = self._signature.replace(parameters=own)
        # All names; None of a function with *args, **kwargs or positional-only
        # parameters, so that nothing is obvious.
        self.all: frozenset[str] | None = None
        if {parameter.kind for parameter in own} <= PLAIN:
            self.all = frozenset(parameter.name for parameter in own)
        self._needed = frozenset(
            parameter.name for parameter in own if parameter.default is parameter.empty
        )
        self._places = [
            parameter.name for parameter in own if parameter.kind is BY_PLACE_OR_NAME
        ]
        # Those that have a name: not *args and **kwargs.
        self.named = tuple(
            parameter.name for parameter in own if parameter.kind not in MANY
        )
        kinds = {parameter.kind for parameter in own}
        self._takes_any = inspect.Parameter.VAR_KEYWORD in kinds
        self._takes_anything = kinds == MANY and not takes_context
        self._place_of = {
            parameter.name: place
            for place, parameter in enumerate(own)
            if parameter.kind in FIRST
        }
        self._defaults = {
            parameter.name: parameter.default
            for parameter in own
            if parameter.default is not parameter.empty
        }

    def name_at(self, place: int) -> str | None:
        """Return the parameter that a positional argument is for; None: of none."""
        return self._places[place] if place < len(self._places) else None

    def check(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """
        Check that a call with these arguments fits.

        Raises:
            TypeError: It does not; the message says why.
        """
        if not self._obviously_fit(args, kwargs):
            self._signature.bind(*self._before, *args, **kwargs)

    @property
    def names(self) -> list[str]:
        """All parameters of a job, *args and **kwargs by their names, in order."""
        return [parameter.name for parameter in self.own]

    @property
    def defaults(self) -> dict[str, Any]:
        """The values of the parameters that a call may leave out."""
        empty: dict[Any, Any] = {
            inspect.Parameter.VAR_POSITIONAL: [],
            inspect.Parameter.VAR_KEYWORD: {},
        }
        return {
            parameter.name: empty.get(parameter.kind, parameter.default)
            for parameter in self.own
            if parameter.kind in empty or parameter.default is not parameter.empty
        }

    def values(
        self, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        """Return the value of each parameter in a call that fits, defaults too."""
        bound = self._signature.bind(*self._before, *args, **kwargs)
        bound.apply_defaults()
        return bound.arguments

    def given(
        self, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        """Return the value of each parameter that a call which fits gives one."""
        if self.all is not None:
            return {**dict(zip(self._places, args, strict=False)), **kwargs}
        bound = self._signature.bind_partial(*self._before, *args, **kwargs)
        return {
            each.name: bound.arguments[each.name]
            for each in self.own
            if each.name in bound.arguments
        }

    def takes(self, name: str) -> bool:
        """Return whether a call can give an argument of this name."""
        return self._takes_any or name in self.named

    def check_takes(self, names: Sequence[object], where: str) -> None:
        """
        Check that a call can give arguments of these names.

        Args:
            names: What makes a key.
            where: The option that says so, for the error.

        Raises:
            DeclarationError: It cannot.
        """
        for name in names:
            if not isinstance(name, str) or not self.takes(name):
                known = list(self.named)
                raise DeclarationError(
                    f"{where}: {shown(name)} is no parameter of {self.function_name}."
                    f"{did_you_mean(str(name), known)} It takes "
                    f"{', '.join(known) or 'none that has a name'}."
                )

    def value(
        self, name: str, args: Sequence[Any], kwargs: Mapping[str, Any], missing: object
    ) -> Any:
        """
        Return what the function would see as *name*, its default included.

        Args:
            name: One that it takes.
            args: Positional arguments that fit.
            kwargs: Keyword arguments, likewise.
            missing: Returned where a function with **kwargs would see nothing.
        """
        place = self._place_of.get(name)
        if place is not None and place < len(args):
            return args[place]
        if name in kwargs:
            return kwargs[name]
        return self._defaults.get(name, missing)

    def fit_all(self, items: Sequence[Any]) -> bool:
        """
        Return whether each item obviously fits; False: some must be asked for.

        Args:
            items: Dicts of keyword arguments, or lists and tuples of positional ones.
                Anything else does not obviously fit.
        """
        kinds = {*map(type, items)}
        if kinds == {dict}:
            return all(map(eq, map(dict.keys, items), repeat(self.all))) or all(
                self._obviously_fit((), item) for item in items
            )
        return kinds <= LISTS and all(self._obviously_fit(item, {}) for item in items)

    def _obviously_fit(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
        """Whether bind() would accept them; False: it has to be asked."""
        if self.all is None:
            return self._takes_anything
        named = kwargs.keys()
        if not args:
            return named == self.all or self._needed <= named <= self.all
        if len(args) > len(self._places):
            return False
        placed = frozenset(self._places[: len(args)])
        return self._needed - placed <= named <= self.all - placed
