"""Offsets: when in its window each job of a call is due."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from django_pgqueue.exceptions import InvalidArgument, shown
from django_pgqueue.postgres.bulk import Items
from django_pgqueue.tasks.declared import DeclaredTask
from django_pgqueue.tasks.spread import (
    FIT,
    KEY_KINDS,
    MISSING,
    Item,
    Spread,
    key_text,
    misfit,
)
from django_pgqueue.timetable.offset import offset_microseconds

if TYPE_CHECKING:
    from django_pgqueue.queues.enqueue_rows import Argument, KeyPart


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
            raise InvalidArgument(task=task.name, path=name, problem=misfit(value))
        texts.append(text)
    return offset_microseconds(task.name, texts, spread.over_microseconds)


def encode_spread(
    task: DeclaredTask,
    spread: Spread,
    start: int,
    items: Sequence[Item],
    payload_bytes_max: int,
) -> list[Items]:
    """Return the arguments of items of bulk() with their offsets; as encode_items()."""
    encoded = task.encode_items(start, items, payload_bytes_max)
    if not spread.by:
        return encoded
    offsets = [
        _offset_of_item(task, spread, place, item)
        for place, item in enumerate(items, start)
    ]
    placed, first = [], 0
    for part in encoded:
        placed.append(part._replace(offsets=offsets[first : first + part.jobs]))
        first += part.jobs
    return placed


def _offset_of_item(task: DeclaredTask, spread: Spread, place: int, item: Any) -> int:
    args, kwargs = ((), item) if isinstance(item, Mapping) else (item, {})
    try:
        offset = offset_of(task, spread, args, kwargs)
    except InvalidArgument as error:
        raise InvalidArgument(
            task=task.name,
            path=f"item {place}",
            problem=str(error).removeprefix(f"{task.name}: "),
        ) from None
    assert offset is not None
    return offset


def key_of(
    task: DeclaredTask,
    spread: Spread,
    fields: Mapping[str, Any],
    arguments: Sequence[Argument],
) -> list[KeyPart]:
    """
    Return what the offsets of from_queryset() are made of.

    Args:
        task: Whose jobs they are.
        spread: What the call says.
        fields: For each keyword argument what from_queryset() was given.
        arguments: What became of them.

    Raises:
        InvalidArgument: The values of a field have more than one text.
    """
    from django_pgqueue.queues.enqueue_rows import KeyPart

    kinds = {argument.name: argument.kind for argument in arguments}
    key: list[KeyPart] = []
    for name in spread.by:
        kind = kinds.get(name)
        if kind is not None:
            if kind not in KEY_KINDS:
                given = fields[name]
                problem = f"is {shown(given)}, a {kind}; by needs {FIT}"
                raise InvalidArgument(
                    task=task.name, path=f"fields.{name}", problem=problem
                )
            key.append(KeyPart(name))
            continue
        # A constant, which Django keeps in a Value; or what the function would take.
        constants = {name: fields[name].value} if name in fields else {}
        value = task.parameters.value(name, (), constants, MISSING)
        text = key_text(value)
        if text is None:
            raise InvalidArgument(task=task.name, path=name, problem=misfit(value))
        key.append(KeyPart(None, text))
    return key
