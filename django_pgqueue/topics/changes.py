"""
Changes: what a subscription to a model gets, of the messages of its capture.

    @subscribe(Order, on=("update",), fields=["status"], queue="search")
    def on_change(change: Change) -> None: ...
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from asgiref.sync import iscoroutinefunction
from django.core.exceptions import FieldDoesNotExist

from django_pgqueue.exceptions import TopicError, shown
from django_pgqueue.log.captures import ACTS, Act
from django_pgqueue.log.message import Message
from django_pgqueue.log.names import check_name


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What a statement has done to a row, as CaptureChanges() has published it."""

    act: Act
    # A list, where the primary key has several columns.
    pk: Any
    # Values by the names of columns, as JSON has them; None: there was no row.
    old: Mapping[str, Any] | None
    # None: there is no row any more.
    new: Mapping[str, Any] | None
    # The columns with another value; of an insert and a delete all that are captured.
    changed: tuple[str, ...]
    # Columns whose values were too large for the message.
    left_out: tuple[str, ...]
    # As capture_actor() has said.
    actor: str | None
    message: Message

    @classmethod
    def of(cls, message: Message) -> Change:
        """
        Return what a message tells.

        Raises:
            TopicError: It is no message of a capture.
        """
        act = message.name.rpartition(".")[2]
        told = message.payload
        if act not in ACTS or not isinstance(told, dict) or "changed" not in told:
            raise TopicError(
                f"Message {message.id} ({message.name}) tells no change of a row: "
                f"CaptureChanges() publishes those."
            )
        return cls(
            act=act,
            pk=told["pk"],
            old=told["old"],
            new=told["new"],
            changed=tuple(told["changed"]),
            left_out=tuple(told.get("left_out", ())),
            actor=message.headers.get("actor"),
            message=message,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class OfModel:
    """Which changes of a model a subscription wants."""

    label: str
    table: str
    # As the capture is called.
    topic: str
    act: Act
    # Names of fields, of which an update changes one at least; empty: whatever.
    fields: tuple[str, ...]
    columns: tuple[str, ...]

    @property
    def label_lower(self) -> str:
        """As migrations know the model."""
        return self.label.lower()

    @property
    def pattern(self) -> str:
        """The name of the messages."""
        return f"{self.topic}.{self.act}"

    @property
    def where(self) -> dict[str, Any]:
        """What is in the payload of each; one of several columns cannot be asked so."""
        asked: dict[str, Any] = {"table": self.table}
        if self.act == "update" and len(self.columns) == 1:
            asked["changed"] = list(self.columns)
        return asked


def wanted_changes(
    model: Any,
    *,
    on: Collection[Act] | None,
    fields: Sequence[str] | None,
    topic: str | None,
) -> Iterator[OfModel]:
    """
    Yield what is wanted of a model, a message's name each.

    Args:
        model: The class.
        on: Of "insert", "update" and "delete"; None: all.
        fields: Of updates, those that change one of these alone.
        topic: As the capture says it; None: the model's label in lower case.

    Raises:
        TopicError: One of them cannot be.
    """
    label = model._meta.label
    acts = ACTS if on is None else on
    if isinstance(acts, str) or not acts or any(act not in ACTS for act in acts):
        raise TopicError(
            f"@subscribe({label}, on={shown(on)}): it is a list of "
            f"{', '.join(map(repr, ACTS))}."
        )
    if isinstance(fields, str) or (fields is not None and not fields):
        raise TopicError(
            f"@subscribe({label}, fields={shown(fields)}): it is a list of names of "
            f"fields."
        )
    columns = tuple(_column(model, name) for name in fields or ())
    name = check_name(label.lower() if topic is None else topic)
    for act in ACTS:
        if act in acts:
            yield OfModel(
                label=label,
                table=model._meta.db_table,
                topic=name,
                act=act,
                fields=tuple(fields or ()),
                columns=columns,
            )


def takes_change(
    function: Callable[..., Any], columns: Sequence[str]
) -> Callable[..., Any]:
    """
    Return what calls a function with a change, where it is given a message.

    Args:
        function: It takes a change as its last argument. What cannot be a task is
            returned as it is, to be refused as one.
        columns: An update that changes none of these is not told; none: all are.
    """
    if not inspect.isfunction(function) or inspect.isgeneratorfunction(function):
        return function
    wanted = frozenset(columns)

    def changed(args: tuple[Any, ...]) -> tuple[Any, ...] | None:
        *context, given = args
        change = given if isinstance(given, Change) else Change.of(given)
        if wanted and change.act == "update" and wanted.isdisjoint(change.changed):
            return None
        return (*context, change)

    if iscoroutinefunction(function):

        async def acall(*args: Any) -> Any:
            told = changed(args)
            return None if told is None else await function(*told)

        return _named_as(function, acall)

    def call(*args: Any) -> Any:
        told = changed(args)
        return None if told is None else function(*told)

    return _named_as(function, call)


def _named_as(function: Any, call: Any) -> Callable[..., Any]:
    """Return *call* under the name of what it calls, and with the same parameters."""
    functools.update_wrapper(call, function)
    call.__signature__ = inspect.signature(function)
    # Hints are about a change, and what it is given is a message.
    call.__annotations__ = {}
    del call.__wrapped__
    return cast("Callable[..., Any]", call)


def _column(model: Any, name: object) -> str:
    try:
        column: str | None = model._meta.get_field(name).column
    except (FieldDoesNotExist, AttributeError, TypeError):
        column = None
    if column is None:
        known = ", ".join(field.name for field in model._meta.concrete_fields)
        raise TopicError(
            f"@subscribe({model._meta.label}): it has no column for {shown(name)}; its "
            f"fields are {known}."
        )
    return column
