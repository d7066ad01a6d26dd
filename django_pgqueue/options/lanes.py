"""Lanes: what a task may say about how many of its jobs run at a time, and in order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from django_pgqueue.bounds import LANE_CAPACITY_MAX
from django_pgqueue.exceptions import DeclarationError, InvalidOption, shown
from django_pgqueue.timetable.offset import KEY_VALUES_MAX

# Parameters whose values make the key, or a function of the arguments that returns it.
Key = str | Sequence[str] | Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Limit:
    """
    At most so many jobs at a time, on all workers together.

        @task(limit=Limit(5, key="tenant_id"))
        def sync(tenant_id: int, page: int) -> None: ...

    Others wait, and are not claimed meanwhile: no attempt and no delivery is used up.
    Neither does one that waits for its next attempt take a place. Which goes first,
    whoever has been due for longest does; there is no other promise of an order.

    Args:
        jobs: How many, 1 to 100,000. Of two that differ, as while a new version is
            rolled out, that of the job stored last holds.
        key: A parameter, a list of them, or a function that gets what the task does:
            so many jobs of each value. By default, of the task.

    Raises:
        DeclarationError: *jobs* is out of its range.
        InvalidOption: *key* is neither names, each once, nor a function.
    """

    jobs: int
    key: Key | None = None

    def __post_init__(self) -> None:
        jobs = self.jobs
        if (
            isinstance(jobs, bool)
            or not isinstance(jobs, int)
            or not 1 <= jobs <= LANE_CAPACITY_MAX
        ):
            raise DeclarationError(
                f"Limit({shown(jobs)}): it must be a whole number from 1 to "
                f"{LANE_CAPACITY_MAX:,}."
            )
        if self.key is not None:
            _names(self.key, "Limit(key")


@dataclass(frozen=True, slots=True)
class Lane:
    """What a task says, checked: which lane a job goes into, and what that takes."""

    # None: a group, one job at a time and in order.
    capacity: int | None
    # Whose values make the key; none: all jobs of the task have one.
    by: tuple[str, ...] = ()
    function: Callable[..., Any] | None = None

    @property
    def option(self) -> str:
        """How it was said."""
        return "group" if self.capacity is None else "limit"


Group = Key | Literal[True]


def check_group(value: Group | Literal[False]) -> Lane | Literal[False]:
    """Return the lane; raise InvalidOption. False: none, whatever the task says."""
    if value is False:
        return False
    if value is True:
        return Lane(None)
    return _lane(None, value, "group")


def check_limit(value: Limit | Literal[False]) -> Lane | Literal[False]:
    """Return the lane; raise InvalidOption. False: none, whatever the task says."""
    if value is False:
        return False
    if not isinstance(value, Limit):
        raise InvalidOption(
            f"limit={shown(value)}: it must be a Limit, such as "
            f'Limit(5) or Limit(5, key="tenant_id").'
        )
    if value.key is None:
        return Lane(value.jobs)
    return _lane(value.jobs, value.key, "Limit(key")


def as_lane(
    group: Lane | Literal[False] | None, limit: Lane | Literal[False] | None
) -> Lane | Literal[False] | None:
    """
    Return the lane that was said; False: none, None: nothing was said.

    Raises:
        InvalidOption: Two were.
    """
    if group and limit:
        raise InvalidOption(
            "group and limit contradict each other: a job waits in one lane, and a "
            "group takes one job at a time already. Leave limit out for order, or "
            "group out for several at a time."
        )
    said = [lane for lane in (group, limit) if lane is not None]
    return next(filter(None, said), False) if said else None


def _lane(capacity: int | None, key: Key, where: str) -> Lane:
    if callable(key):
        return Lane(capacity, function=key)
    return Lane(capacity, by=_names(key, where))


def _names(key: Key, where: str) -> tuple[str, ...]:
    if callable(key):
        return ()
    names = (key,) if isinstance(key, str) else key
    if (
        not isinstance(names, (list, tuple))
        or not all(isinstance(name, str) and name for name in names)
        or not 1 <= len(names) <= KEY_VALUES_MAX
        or len(set(names)) < len(names)
    ):
        raise InvalidOption(
            f"{where}={shown(key)}: it must be the name of a parameter, a list of 1 to "
            f"{KEY_VALUES_MAX} of them, each once, or a function."
        )
    return tuple(names)
