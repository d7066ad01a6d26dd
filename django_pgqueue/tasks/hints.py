"""
Hints: whether values are what type hints say.

pydantic reads the hints and looks at the values, with the extra ``schema``. Nothing is
converted: what a task gets is what was given, so a value fits if pydantic takes it and
makes nothing else of it. Two things are alike that JSON cannot tell apart: a list is a
tuple, and a value that of its Enum's member.
"""

from __future__ import annotations

import dataclasses
import inspect
import types
import typing
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from enum import Enum
from functools import cached_property
from typing import Any, NamedTuple

from django_pgqueue.exceptions import DeclarationError, MissingExtra, shown
from django_pgqueue.extras import extra
from django_pgqueue.redaction.names import PLACEHOLDER
from django_pgqueue.redaction.values import Walk

LISTS = (list, tuple)

MISSING = object()


class Misfit(NamedTuple):
    """A value that is not what its hint says."""

    # The name of the value, and where in it the trouble is.
    path: str
    # What is wrong, with the value, or without one that nobody should read.
    problem: str


class Hints:
    """The types of some named values: the parameters of a task, or fields."""

    def __init__(self, types: Mapping[str, Any], needed: Collection[str]) -> None:
        """
        Keep what code says.

        Args:
            types: For each name its type hint, resolved.
            needed: The names that must be given.
        """
        self.types = types
        self.needed = frozenset(needed)

    @cached_property
    def adapter(self) -> Any:
        """
        What pydantic makes of all of them: a TypeAdapter of a TypedDict.

        Raises:
            MissingExtra: pydantic is not installed.
            DeclarationError: It makes nothing of a hint.
        """
        return _adapter(self.types, self.needed)

    @cached_property
    def _given(self) -> Any:
        """As adapter, of values of which any may be left out."""
        return _adapter(self.types, ())

    def misfit(
        self, values: Mapping[str, Any], redact: Collection[str]
    ) -> Misfit | None:
        """
        Return the first of *values* that is not what its hint says; None: all are.

        Args:
            values: By name; those that are left out are not missed.
            redact: Patterns of names whose values are not to be shown.

        Raises:
            MissingExtra, DeclarationError: As adapter.
        """
        invalid = extra("pydantic").ValidationError
        try:
            trouble = _first_other(self._made(values), values, ())
        except invalid as error:
            return self._told(
                values, redact, error.errors(include_url=False, include_input=False)
            )
        if trouble is None:
            return None
        return self._told(values, redact, [{"loc": trouble, "msg": ""}])

    def _made(self, values: Mapping[str, Any]) -> Any:
        return self._given.validate_python(values)

    def _told(
        self, values: Any, redact: Collection[str], errors: Sequence[Mapping[str, Any]]
    ) -> Misfit:
        """Say what is wrong with the value that *errors* are about first."""
        name = str(errors[0]["loc"][0])
        path, value = _follow(values, errors[0]["loc"])
        walk = Walk(redact)
        is_secret = any(walk.hides(str(word)) for word in path)
        if errors[0].get("type") == "missing":
            told = "is missing"
            path.append(errors[0]["loc"][-1])
        else:
            said = PLACEHOLDER if is_secret else shown(walk.value(value, 0))
            told = f"is {said}, a {type(value).__qualname__}"
        hint = self.types.get(name, Any)
        hint = hint if isinstance(hint, str) else inspect.formatannotation(hint)
        of = "its" if len(path) == 1 else f"that of {name}"
        problem = f"{told}; {of} type hint is {hint}"
        # Of a union, an error for each of its types.
        reasons = [each["msg"] for each in errors if each["loc"][0] == name]
        if any(reasons) and not is_secret:
            problem += f" ({'; '.join(dict.fromkeys(reasons[:3]))})"
        return Misfit(_written(path), problem)


class FieldHints(Hints):
    """The types of a dataclass's fields, of one that travels as an object."""

    def __init__(self, schema: Any) -> None:
        """Keep what the class says."""
        self._schema = schema
        fields = dataclasses.fields(schema)
        super().__init__({each.name: each.type for each in fields}, ())

    @cached_property
    def adapter(self) -> Any:
        """What pydantic makes of the class; raises as that of Hints."""
        return _read(self._schema, self._schema.__qualname__)

    def _made(self, values: Mapping[str, Any]) -> Any:
        return dataclasses.asdict(self.adapter.validate_python(values))


def hints_of(
    about: str,
    function: Callable[..., Any],
    parameters: Sequence[inspect.Parameter],
) -> Hints:
    """
    Return the hints of some parameters of a function; one without a hint is anything.

    Args:
        about: The task, for errors.
        function: Whose they are.
        parameters: Those that a job's arguments are for.

    Raises:
        DeclarationError: A hint names what its module does not have.
    """
    plain = inspect.unwrap(function)
    said = {
        each.name: plain.__annotations__[each.name]
        for each in parameters
        if each.name in plain.__annotations__
    }
    holder = types.SimpleNamespace(__annotations__=said)
    try:
        found = typing.get_type_hints(
            holder, globalns=plain.__globals__, include_extras=True
        )
    except Exception as error:
        raise DeclarationError(
            f"{about}: the type hints cannot be read: {error}. Import what they name "
            f"at the top of the module, and not under TYPE_CHECKING."
        ) from None
    hints: dict[str, Any] = {}
    needed = []
    for each in parameters:
        hint = found.get(each.name, Any)
        if each.kind is each.VAR_POSITIONAL:
            hint = list[hint]  # type: ignore[valid-type]  # Of a value at run time.
        elif each.kind is each.VAR_KEYWORD:
            hint = dict[str, hint]  # type: ignore[valid-type]
        elif each.default is each.empty:
            needed.append(each.name)
        elif each.default is None:
            hint = typing.Optional[hint]  # noqa: UP045 - It may be text.
        hints[each.name] = hint
    return Hints(hints, needed)


def _adapter(hints: Mapping[str, Any], needed: Collection[str]) -> Any:
    extra("pydantic")
    # pydantic's own requirement; before Python 3.12 it takes no other.
    from typing_extensions import TypedDict

    fields = {
        name: hint if name in needed else typing.NotRequired[hint]
        for name, hint in hints.items()
    }
    # Made at run time; as a plain value, so that no type checker reads it.
    make: Any = TypedDict
    named = make("Values", fields)
    # A model instance is looked at by its class.
    named.__pydantic_config__ = {"arbitrary_types_allowed": True, "extra": "forbid"}
    return _read(named, ", ".join(hints))


def _read(hint: Any, about: str) -> Any:
    try:
        return extra("pydantic").TypeAdapter(hint)
    except MissingExtra:
        raise
    except Exception as error:
        text = " ".join(str(error).split())
        raise DeclarationError(
            f"pydantic makes nothing of the type hints of {about}: {text}"
        ) from error


def _first_other(made: Any, value: Any, path: tuple[Any, ...]) -> Any:
    """Return where in *value* pydantic has *made* something else of it; or None."""
    if made is value:
        return None
    if isinstance(made, Enum) and not isinstance(value, Enum):
        made = made.value
    if isinstance(made, Iterator):
        made = list(made)  # Of Iterable[…], whose items are looked at here.
    if isinstance(made, dict) and isinstance(value, dict):
        parts = [(key, made.get(key, MISSING), item) for key, item in value.items()]
    elif isinstance(made, LISTS) and isinstance(value, LISTS):
        if len(made) != len(value):
            return path
        pairs = zip(made, value, strict=True)
        parts = [(place, *pair) for place, pair in enumerate(pairs)]
    else:
        return None if _are_alike(made, value) else path
    others = (_first_other(one, other, (*path, key)) for key, one, other in parts)
    return next((found for found in others if found is not None), None)


def _are_alike(made: Any, value: Any) -> bool:
    if type(made) is float and type(value) is int:
        return True
    is_alike = isinstance(value, type(made)) and made == value
    # An int to Python, and not to JSON.
    return is_alike and (type(made) is bool) is (type(value) is bool)


def _follow(values: Any, words: Sequence[Any]) -> tuple[list[Any], Any]:
    """Return how far *words* lead into *values*, and what is there."""
    path: list[Any] = []
    for word in words:
        try:
            if not isinstance(values, (dict, *LISTS)):
                break
            values = values[word]
        except (LookupError, TypeError):
            continue  # pydantic also names the type of a union.
        path.append(word)
    return path, values


def _written(path: Sequence[Any]) -> str:
    first, *rest = path or ["arguments"]
    return str(first) + "".join(
        f"[{word!r}]" if not str(word).isidentifier() else f".{word}" for word in rest
    )
