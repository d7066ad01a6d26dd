"""
Accumulate: what a task says that takes many calls in one run, and what it is given.

Each call is a job of its own; queues/gather.py takes them together, and
tasks/gathered.py makes one run of them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from django_pgqueue.bounds import (
    ACCUMULATE_SIZE_MAX,
    ACCUMULATE_WITHIN_MAX,
    KEY_CHARACTERS_MAX,
)
from django_pgqueue.exceptions import (
    DeclarationError,
    InvalidOption,
    check_whole,
    raised_as,
    shown,
)
from django_pgqueue.options.durations import Duration, as_timedelta

# Of calls that were told none.
NO_KEY = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Accumulate:
    """
    Many calls, one run.

        @task(accumulate=Accumulate(size=500, within="10s"))
        def bulk_index(calls: list[Call]) -> None: ...

    Args:
        size: How many calls one run gets at most. As soon as so many of a key wait,
            one of them is due; 1 to 10,000.
        within: How long a call waits for others: seconds, a timedelta or text such as
            "10s"; longer than zero, up to an hour.
        key: Calls of one key are run together: text of 1 to 255 characters. By
            default all calls of the task. ``using(key=…)`` says it for a call.

    Raises:
        DeclarationError: A value is out of its range.
    """

    size: int = 500
    within: Duration = "10s"
    key: str | None = None

    def __post_init__(self) -> None:
        said = "Accumulate(size={})"
        check_whole(said, self.size, ACCUMULATE_SIZE_MAX, DeclarationError)
        with raised_as(DeclarationError, "Accumulate: "):
            within = as_timedelta(self.within, name="within", zero=False)
            if self.key is not None:
                check_key(self.key)
        if within > ACCUMULATE_WITHIN_MAX:
            raise DeclarationError(
                f"Accumulate(within={shown(self.within)}): the longest is one hour."
            )
        object.__setattr__(self, "within", within)

    @property
    def window(self) -> timedelta:
        """How long a call waits for others."""
        assert isinstance(self.within, timedelta)
        return self.within


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a task with accumulate: what delay() was given, and its job."""

    # Of its job, the same through every retry and redrive; 0: there is none.
    id: int = 0
    args: Sequence[Any] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    # When it was stored.
    enqueued_at: datetime | None = None
    # Of this call, 1 for the first. Calls of one run may differ in it.
    attempt: int = 1


def any_arguments(*args: Any, **kwargs: Any) -> None:
    """Stand for the function that a call must fit: there is none."""


def check_accumulate(value: object) -> Accumulate | None:
    """Return *value*; raise InvalidOption unless it is an Accumulate or None."""
    if value is None or isinstance(value, Accumulate):
        return value
    raise InvalidOption(
        f"accumulate={shown(value)}: it must be an Accumulate(size=…, within=…)."
    )


def check_takes_calls(function: Callable[..., Any], *, takes_context: bool) -> None:
    """
    Check that a function has one parameter, for the calls.

    Raises:
        DeclarationError: It has not.
    """
    signature = inspect.signature(function)
    before = (None,) if takes_context else ()
    try:
        signature.bind(*before, [])
    except TypeError:
        fits = False
    else:
        fits = len(signature.parameters) == len(before) + 1
    if not fits:
        after = ", after its context," if takes_context else ""
        raise DeclarationError(
            f"@task(accumulate=…): {function.__qualname__}{signature} must take one "
            f"positional parameter{after} for the list of its calls."
        )


def check_key(key: object) -> str:
    """Return *key* as text; raise InvalidOption unless it is one, or an int."""
    if isinstance(key, int) and not isinstance(key, bool):
        key = str(key)
    if (
        not isinstance(key, str)
        or not 1 <= len(key) <= KEY_CHARACTERS_MAX
        or not key.isprintable()
    ):
        raise InvalidOption(
            f"key={shown(key)}: it must be a whole number, or text of 1 to "
            f"{KEY_CHARACTERS_MAX} printable characters."
        )
    return str.__str__(key)
