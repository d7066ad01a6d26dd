"""Spread: when in a window a job is due, sampled, or by what the job is about."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from django_pgqueue.exceptions import (
    InvalidArgument,
    InvalidOption,
    raised_as,
    shown,
)
from django_pgqueue.options.durations import Duration, as_timedelta
from django_pgqueue.timetable.offset import (
    KEY_VALUES_MAX,
    MICROSECOND,
    OVER_DAYS_MAX,
)

if TYPE_CHECKING:
    from django_pgqueue.tasks.parameters import Parameters

Item = Mapping[str, Any] | Sequence[Any]


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
    with raised_as(InvalidOption):
        window = as_timedelta(over, name="over", zero=False)
    if window > timedelta(days=OVER_DAYS_MAX):
        raise InvalidOption(
            f"over={shown(over)}: a window has at most {OVER_DAYS_MAX} days; what is "
            f"due later is for a schedule."
        )
    if by is None:
        return Spread(window)
    names = (by,) if isinstance(by, str) else by
    # A set has another order in each process, and so had the hash.
    if not isinstance(names, (list, tuple)):
        raise InvalidOption(
            f"by={shown(by)}: it must be the name of a parameter, or a list of names."
        )
    with raised_as(InvalidOption):
        parameters.check_takes(names, "by")
    if not names or len(set(names)) < len(names) or len(names) > KEY_VALUES_MAX:
        raise InvalidOption(
            f"by={shown(by)}: it must name 1 to {KEY_VALUES_MAX} parameters, each "
            f"once. Without it, the moments are sampled."
        )
    return Spread(window, tuple(names))


def keyless(task: str, spread: Spread | None, rows: int) -> InvalidArgument:
    """Return the error of a queryset in whose rows a value of the key is NULL."""
    names = ", ".join(spread.by) if spread else ""
    return InvalidArgument(
        task=task,
        path="queryset",
        problem=f"has {rows:,} rows where {names} is NULL, so they have no moment: "
        f"leave them out with filter(…__isnull=False)",
    )
