"""
Keys: the texts of what a job is about, which say its lane, or its moment in a window.

What a key may hold has one text, here, in PostgreSQL and in Spark: texts, whole
numbers, dates, booleans and UUIDs. Anything else is refused by name, before SQL is
sent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime
from enum import Enum
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

from django_pgqueue.exceptions import InvalidArgument, shown
from django_pgqueue.postgres.bulk import Items
from django_pgqueue.tasks.declared import DeclaredTask
from django_pgqueue.tasks.spread import Item, Spread
from django_pgqueue.timetable.offset import offset_microseconds

if TYPE_CHECKING:
    from django_pgqueue.queues.enqueue_rows import Argument, KeyPart

T = TypeVar("T")

# Kinds of queues/enqueue_rows.py whose values have one text.
KEY_KINDS = ("plain", "integer", "date", "uuid")

FIT = "text, a whole number, a date, a boolean or a UUID"

MISSING = object()


def key_text(value: Any) -> str | None:
    """Return *value* as it is hashed; None: not every place has the same text of it."""
    kind = type(value)
    if kind is str:
        return str(value)
    if kind is bool:
        return "true" if value else "false"
    if kind is int or kind is date or kind is UUID:
        return str(value)
    # What follows travels as one of those, as tasks/payload.py says.
    if issubclass(kind, Enum):
        return key_text(value.value) if isinstance(value.value, (str, int)) else None
    if issubclass(kind, datetime):
        return None
    if issubclass(kind, date):
        return date.isoformat(value)
    if issubclass(kind, UUID):
        return UUID.__str__(value)
    if issubclass(kind, str):
        return str.__str__(value)
    return str(int(value)) if issubclass(kind, int) else None


def misfit(task: DeclaredTask, name: str, value: object, needs: str) -> InvalidArgument:
    """Return the error of a value that is none for a key, which *needs* another."""
    told = (
        "is missing"
        if value is MISSING
        else f"is {shown(value)}, a {type(value).__qualname__}"
    )
    return InvalidArgument(task=task.name, path=name, problem=f"{told}; {needs}")


def of_items(
    task: DeclaredTask,
    items: Sequence[Item],
    start: int,
    of: Callable[[Sequence[Any], Mapping[str, Any]], T],
) -> list[T]:
    """
    Return what *of* says of the arguments of each item of bulk().

    Args:
        task: Whose jobs they are.
        items: Some of those that bulk() was given.
        start: The place of the first of them.
        of: Called with positional and keyword arguments.

    Raises:
        InvalidArgument: As *of* does, with the place of the item.
    """
    found = []
    for place, item in enumerate(items, start):
        args, kwargs = ((), item) if isinstance(item, Mapping) else (item, {})
        try:
            found.append(of(args, kwargs))
        except InvalidArgument as error:
            raise InvalidArgument(
                task=task.name,
                path=f"item {place}",
                problem=str(error).removeprefix(f"{task.name}: "),
            ) from None
    return found


def shared_out(
    parts: Sequence[Items], column: str, values: Sequence[Any]
) -> list[Items]:
    """Return *parts*, each with its share of *values* as its *column*."""
    placed, first = [], 0
    for part in parts:
        share: dict[str, Any] = {column: values[first : first + part.jobs]}
        placed.append(part._replace(**share))
        first += part.jobs
    return placed


def of_fields(
    task: DeclaredTask,
    by: Sequence[str],
    fields: Mapping[str, Any],
    arguments: Sequence[Argument],
    *,
    needs: str,
    may_be_none: bool = False,
) -> list[KeyPart]:
    """
    Return what the keys of from_queryset() are made of.

    Args:
        task: Whose jobs they are.
        by: The parameters that make the key.
        fields: For each keyword argument what from_queryset() was given.
        arguments: What became of them.
        needs: What the key needs, for errors.
        may_be_none: Whether it may hold None.

    Raises:
        InvalidArgument: The values of a field have more than one text.
    """
    from django_pgqueue.queues.enqueue_rows import KeyPart

    kinds = {argument.name: argument.kind for argument in arguments}
    key: list[KeyPart] = []
    for name in by:
        kind = kinds.get(name)
        if kind is not None:
            if kind not in KEY_KINDS:
                problem = f"is {shown(fields[name])}, a {kind}; {needs}"
                raise InvalidArgument(
                    task=task.name, path=f"fields.{name}", problem=problem
                )
            key.append(KeyPart(name))
            continue
        # A constant, which Django keeps in a Value; or what the function would take.
        constants = {name: fields[name].value} if name in fields else {}
        value = task.parameters.value(name, (), constants, MISSING)
        text = key_text(value)
        if text is None and not (may_be_none and value is None):
            raise misfit(task, name, value, needs)
        key.append(KeyPart(None, text))
    return key


# Offsets ------------------------------------------------------------------------------


NEEDS = f"spread(by=…) needs {FIT}"


def offset_of(
    task: DeclaredTask, spread: Spread, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> int | None:
    """
    Return when in its window a job is due, in microseconds; None: that is sampled.

    Args:
        task: Whose job it is.
        spread: What the call says.
        args: Positional arguments that fit the task.
        kwargs: Keyword arguments, likewise.

    Raises:
        InvalidArgument: A value of the key is of no kind that has one text.
    """
    if not spread.by:
        return None
    texts = []
    for name in spread.by:
        value = task.parameters.value(name, args, kwargs, MISSING)
        text = key_text(value)
        if text is None:
            raise misfit(task, name, value, NEEDS)
        texts.append(text)
    return offset_microseconds(task.name, texts, spread.over_microseconds)


def key_of(
    task: DeclaredTask,
    spread: Spread,
    fields: Mapping[str, Any],
    arguments: Sequence[Argument],
) -> list[KeyPart]:
    """Return what the offsets of from_queryset() are made of; see of_fields()."""
    return of_fields(task, spread.by, fields, arguments, needs=NEEDS)
