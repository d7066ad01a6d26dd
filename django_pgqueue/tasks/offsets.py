"""Offsets: when in its window each job of a call is due."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from django_pgqueue.postgres.bulk import Items
from django_pgqueue.tasks import keys
from django_pgqueue.tasks.declared import DeclaredTask
from django_pgqueue.tasks.spread import Item, Spread
from django_pgqueue.timetable.offset import offset_microseconds

if TYPE_CHECKING:
    from django_pgqueue.queues.enqueue_rows import Argument, KeyPart

NEEDS = f"spread(by=…) needs {keys.FIT}"


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
    return _offset(task, spread, args, kwargs) if spread.by else None


def _offset(
    task: DeclaredTask, spread: Spread, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> int:
    texts = []
    for name in spread.by:
        value = task.parameters.value(name, args, kwargs, keys.MISSING)
        text = keys.key_text(value)
        if text is None:
            raise keys.misfit(task, name, value, NEEDS)
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
    offsets = keys.of_items(
        task, items, start, functools.partial(_offset, task, spread)
    )
    return keys.shared_out(
        encoded, offsets, lambda part, some: part._replace(offsets=some)
    )


def key_of(
    task: DeclaredTask,
    spread: Spread,
    fields: Mapping[str, Any],
    arguments: Sequence[Argument],
) -> list[KeyPart]:
    """Return what the offsets of from_queryset() are made of; see keys.of_fields()."""
    return keys.of_fields(task, spread.by, fields, arguments, needs=NEEDS)
