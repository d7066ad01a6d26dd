"""Receivers: functions whose type hint says something else than what they are given."""

from __future__ import annotations

import typing
from collections.abc import Iterator
from typing import Any, NamedTuple

from django_pgqueue.exceptions import DeclarationError
from django_pgqueue.log.message import Message
from django_pgqueue.tasks.declared import DeclaredTask
from django_pgqueue.topics import consume, subscribe


class Misled(NamedTuple):
    """A function that expects something else."""

    task: str
    # As its hint says.
    expects: str
    gets: str
    # The topic whose schema it may mean; None: of several.
    topic: str | None


def misled() -> Iterator[Misled]:
    """Return handlers of subscriptions that want no message, and of groups, no list."""
    of_tasks = {each.task.name: each for each in subscribe.declared()}
    for each in of_tasks.values():
        hint = _hint(each.task)
        if not _may_be(hint, Message):
            yield Misled(each.task.name, _said(hint), "a Message", each.pattern.topic)
    for reader in consume.declared():
        hint = _hint(reader.task)
        items = typing.get_args(hint)
        if not _may_be(typing.get_origin(hint) or hint, list) or (
            len(items) == 1 and not _may_be(items[0], Message)
        ):
            name = reader.task.name
            yield Misled(name, _said(hint), "a list of Messages", reader.topic)


def _hint(task: DeclaredTask) -> Any:
    """Return the hint of what a function is given; Any where there is none to read."""
    try:
        return next(iter(task.hints.types.values()), Any)
    except DeclarationError:
        return Any


def _may_be(hint: Any, kind: type) -> bool:
    """Whether a value of *kind* may be what a hint says; True where that is unclear."""
    # Any is a class, too, from Python 3.11 on.
    is_plain = isinstance(hint, type) and hint is not Any
    return not is_plain or issubclass(kind, hint)


def _said(hint: Any) -> str:
    return hint.__qualname__ if isinstance(hint, type) else str(hint)
