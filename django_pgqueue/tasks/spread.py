"""
Spread: when in a window a job is due, sampled, or by what the job is about.

What the key of a job may hold has one text, here, in PostgreSQL and in Spark: texts,
whole numbers, dates, booleans and UUIDs. Anything else is refused by name, before SQL
is sent.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from enum import Enum
from typing import TYPE_CHECKING, Any
from uuid import UUID

from django_pgqueue.bounds import TIME_MAX
from django_pgqueue.exceptions import (
    InvalidArgument,
    InvalidOption,
    did_you_mean,
    shown,
)
from django_pgqueue.options.durations import Duration, as_timedelta
from django_pgqueue.postgres.bulk import Items
from django_pgqueue.timetable.offset import (
    KEY_VALUES_MAX,
    MICROSECOND,
    OVER_DAYS_MAX,
    offset_microseconds,
)

if TYPE_CHECKING:
    from django_pgqueue.queues.enqueue_rows import Argument, KeyPart
    from django_pgqueue.tasks.options import CallOptions
    from django_pgqueue.tasks.parameters import Parameters
    from django_pgqueue.tasks.task import Task

Item = Mapping[str, Any] | Sequence[Any]

# Kinds of queues/enqueue_rows.py whose values have one text.
KEY_KINDS = ("plain", "integer", "date", "uuid")

FIT = "text, a whole number, a date, a boolean or a UUID"

MISSING = object()


@dataclass(frozen=True, slots=True)
class Spread:
    """What a call says about the moments of its jobs."""

    over: timedelta
    # Parameters of the task whose values decide; none: the moments are sampled.
    by: tuple[str, ...] = ()

    @property
    def over_microseconds(self) -> int:
        """The window's length."""
        return self.over // MICROSECOND


def as_spread(
    parameters: Parameters, over: Duration, by: str | Sequence[str] | None
) -> Spread:
    """
    Return what spread(over, by=by) says of a task with *parameters*.

    Raises:
        InvalidOption: The window is none or too long; or *by* names what is no
            parameter.
    """
    return Spread(_check_over(over), () if by is None else _check_by(parameters, by))


def _check_over(value: Duration) -> timedelta:
    if isinstance(value, float) and not math.isfinite(value):
        raise InvalidOption(f"over={shown(value)}: it must be finite.")
    try:
        over = as_timedelta(value, name="over", zero=False)
    except ValueError as error:
        raise InvalidOption(str(error)) from None
    if over > timedelta(days=OVER_DAYS_MAX):
        raise InvalidOption(
            f"over={shown(value)}: a window has at most {OVER_DAYS_MAX} days; what is "
            f"due later is for a schedule."
        )
    return over


def _check_by(parameters: Parameters, by: object) -> tuple[str, ...]:
    names = (by,) if isinstance(by, str) else by
    # A set has another order in each process, and so had the hash.
    if not isinstance(names, (list, tuple)):
        raise InvalidOption(
            f"by={shown(by)}: it must be the name of a parameter, or a list of names."
        )
    for name in names:
        if not isinstance(name, str) or not parameters.takes(name):
            known = list(parameters.named)
            hint = did_you_mean(name, known) if isinstance(name, str) else ""
            raise InvalidOption(
                f"by={shown(name)} is no parameter of the task.{hint} It takes "
                f"{', '.join(known) or 'none that has a name'}."
            )
    if not names or len(set(names)) < len(names) or len(names) > KEY_VALUES_MAX:
        raise InvalidOption(
            f"by={shown(by)}: it must name 1 to {KEY_VALUES_MAX} parameters, each "
            f"once. Without it, the moments are sampled."
        )
    return tuple(names)


def check_window(options: CallOptions) -> None:
    """
    Raise InvalidOption unless all of the window is before the jobs expire.

    Where one of the two is a moment and the other a duration, this process's clock
    decides.
    """
    if options.spread is None:
        return
    now = _now()
    start = options.run_at or now + (options.delay or timedelta())
    end = start + options.spread.over
    if end > TIME_MAX:
        raise InvalidOption(
            f"The window would end at {end}; it must be in the years 1900 to 9000."
        )
    if options.expire_at is None and options.expire_in is None:
        return
    expires = options.expire_at or now + (options.expire_in or timedelta())
    if expires < end:
        raise InvalidOption(
            f"expires: jobs would expire {end - expires} before the end of their "
            f"window, so the last ones would never run. Let expires be at least "
            f"run_after and over together."
        )


def _now() -> datetime:
    from django.utils import timezone

    now = timezone.now()
    return timezone.make_aware(now) if timezone.is_naive(now) else now


def offset_of(
    task: Task[Any, Any], spread: Spread, args: Sequence[Any], kwargs: Mapping[str, Any]
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
            raise InvalidArgument(task=task.name, path=name, problem=_misfit(value))
        texts.append(text)
    return offset_microseconds(task.name, texts, spread.over_microseconds)


def encode_spread(
    task: Task[Any, Any],
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


def _offset_of_item(task: Task[Any, Any], spread: Spread, place: int, item: Any) -> int:
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
    task: Task[Any, Any],
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
            raise InvalidArgument(task=task.name, path=name, problem=_misfit(value))
        key.append(KeyPart(None, text))
    return key


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


def _misfit(value: object) -> str:
    if value is MISSING:
        return f"is missing, and spread(by=…) needs it: {FIT}"
    return f"is {shown(value)}, a {type(value).__qualname__}; spread(by=…) needs {FIT}"


def keyless(task: str, spread: Spread | None, rows: int) -> InvalidArgument:
    """Return the error of a queryset in whose rows a value of the key is NULL."""
    names = ", ".join(spread.by) if spread else ""
    return InvalidArgument(
        task=task,
        path="queryset",
        problem=f"has {rows:,} rows where {names} is NULL, so they have no moment: "
        f"leave them out with filter(…__isnull=False)",
    )
