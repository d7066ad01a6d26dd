"""Checks: what each option may be; each returns the value as it is kept."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, Literal, cast, get_args

from django_pgqueue.bounds import (
    PRIORITY_MAX,
    PRIORITY_MIN,
    QUEUE_NAME,
    TIME_MAX,
    TIME_MIN,
)
from django_pgqueue.exceptions import (
    InvalidOption,
    check_whole,
    raised_as,
    shown,
)
from django_pgqueue.options.durations import Duration, as_timedelta
from django_pgqueue.options.retry import Retry, as_retry

Settle = Literal["immediate", "batched"]
AckPolicy = Literal["on_success", "first", "reject_on_error", "manual"]

When = datetime | Duration

# What stands around a task: called with the job's context and a function without
# arguments that goes on; returns what that returned, or something else.
Middleware = Callable[[Any, Callable[[], Any]], Any]


def check_queue(name: object) -> str:
    """Return *name*; raise InvalidOption when it is no valid queue name."""
    if not isinstance(name, str) or not QUEUE_NAME.fullmatch(name):
        raise InvalidOption(
            f"queue={shown(name)}: a queue name has 1 to 63 characters: letters, "
            f"digits, '_', '.' and '-', the first no '.' or '-'."
        )
    return name


def check_priority(value: object) -> int:
    """Return *value*; raise InvalidOption unless it is an int from -100 to 100."""
    return check_whole(
        "priority={}",
        value,
        PRIORITY_MAX,
        InvalidOption,
        least=PRIORITY_MIN,
        more="; higher runs first",
    )


def check_retries(value: Retry | int | None) -> Retry:
    """Return the policy that *value* is; raise InvalidOption."""
    with raised_as(InvalidOption):
        policy = as_retry(value)
    if policy is None:
        raise InvalidOption("retries=None: it must be a whole number, or Retry(…).")
    return policy


def check_timeout(value: Duration) -> timedelta:
    """Return *value* as a timedelta; raise InvalidOption unless it is above zero."""
    with raised_as(InvalidOption):
        return as_timedelta(value, name="timeout", zero=False)


def check_settle(value: object) -> Settle:
    """Return *value*; raise InvalidOption unless it is a settle strength."""
    return cast("Settle", _one_of("settle", value, get_args(Settle)))


def check_ack_policy(value: object) -> AckPolicy:
    """Return *value*; raise InvalidOption unless it is an ack policy."""
    return cast("AckPolicy", _one_of("ack_policy", value, get_args(AckPolicy)))


def check_bool(name: str, value: object) -> bool:
    """Return *value*; raise InvalidOption unless it is True or False."""
    if isinstance(value, bool):
        return value
    raise InvalidOption(f"{name}={shown(value)}: it must be True or False.")


def check_check_types(value: object) -> bool:
    """
    Return *value*.

    Raises:
        InvalidOption: It is not True or False, or it is True without pydantic.
    """
    if check_bool("check_types", value):
        # Nobody else needs it to start.
        from django_pgqueue.extras import is_installed, missing

        if not is_installed("pydantic"):
            raise InvalidOption(f"check_types is True. {missing('pydantic')}")
    return bool(value)


def check_middleware(value: object) -> tuple[Middleware | str, ...]:
    """Return *value*; raise InvalidOption unless it lists functions, or their paths."""
    if not isinstance(value, (list, tuple)):
        raise InvalidOption(
            f"middleware={shown(value)}: it must be a list of functions, or of their "
            f"import paths."
        )
    for item in value:
        if not isinstance(item, str) and not callable(item):
            raise InvalidOption(f"middleware {item!r} is not callable.")
    return tuple(value)


def check_when(name: str, value: When) -> tuple[datetime | None, timedelta | None]:
    """
    Return a moment, or a delay from now on the database's clock: one of the two.

    A naive datetime is taken in the current time zone, as Django does.

    Raises:
        InvalidOption: Neither, or outside of the years 1900 to 9000.
    """
    if not isinstance(value, datetime):
        with raised_as(InvalidOption):
            return None, as_timedelta(value, name=name)
    if value.tzinfo is None:
        from django.utils import timezone

        value = timezone.make_aware(value)
    try:
        is_readable = TIME_MIN <= value <= TIME_MAX
    except Exception as error:
        raise InvalidOption(
            f"{name}: its time zone fails with {shown(error)}."
        ) from error
    if not is_readable:
        raise InvalidOption(f"{name}={value}: it must be in the years 1900 to 9000.")
    return value, None


def _one_of(option: str, value: object, known: tuple[str, ...]) -> str:
    for each in known:
        if value == each:
            return each
    raise InvalidOption(
        f"{option}={shown(value)}: it must be one of {', '.join(known)}."
    )
