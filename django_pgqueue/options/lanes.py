"""Lanes: what a task may say about how many of its jobs run at a time, and in order."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

from django_pgqueue.bounds import (
    FAIR,
    LANE_BURST_MAX,
    LANE_CAPACITY_MAX,
    LANE_CHARACTERS_MAX,
    LANE_DIGITS,
    LANE_SPACING_MAX,
    LANE_SPACING_MIN,
)
from django_pgqueue.exceptions import (
    DeclarationError,
    InvalidOption,
    check_whole,
    raised_as,
    shown,
)
from django_pgqueue.options.durations import as_rate
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
        check_whole("Limit({})", self.jobs, LANE_CAPACITY_MAX, DeclarationError)
        if self.key is not None:
            _names(self.key, "Limit(key")


@dataclass(frozen=True, slots=True)
class Rate:
    """
    So many jobs in a time, on all workers together.

        @task(rate=Rate("100/m", key="account_id"))
        def call_api(account_id: int) -> None: ...

    They start one after the other: of "100/m" the next 0.6 s after the last.
    With a *burst*, so many may be ahead of that: after a pause, they start at once.
    In any time there start no more than the rate gives in it, and one burst. Each
    attempt counts: a retry waits for its turn as well. What runs when a process dies is
    another start when it runs again.

    Args:
        rate: "N/period", such as "10/s", "100/m" or "5/30s"; at most a million
            a second, at least one in 31 days.
        burst: Jobs that may start at once, 1 to 100,000. A provider who counts each
            minute apart wants 1, the default: more than the rate, and the first minute
            has as many more.
        key: A parameter, a list of them, or a function that gets what the task does:
            a rate of its own for each value. By default, of the task.

    Raises:
        DeclarationError: *rate* or *burst* is out of its range.
        InvalidOption: *key* is neither names, each once, nor a function.
    """

    rate: str
    burst: int = 1
    key: Key | None = None

    def __post_init__(self) -> None:
        self.spacing  # noqa: B018  # Raises.
        check_whole("Rate(burst={})", self.burst, LANE_BURST_MAX, DeclarationError)
        if self.key is not None:
            _names(self.key, "Rate(key")

    @property
    def spacing(self) -> float:
        """Seconds from one job to the next."""
        with raised_as(DeclarationError):
            jobs, period = as_rate(self.rate, name="rate")
        spacing = period.total_seconds() / jobs
        if not LANE_SPACING_MIN <= spacing <= LANE_SPACING_MAX:
            raise DeclarationError(
                f"Rate({shown(self.rate)}): that is one each {spacing:g} s; it must be "
                f"from {LANE_SPACING_MIN:f} s to {LANE_SPACING_MAX:,} s."
            )
        return spacing


# What one that fails does to the others of its group.
OnError = Literal["block", "skip", "dead-letter"]


@dataclass(frozen=True, slots=True)
class Group:
    """
    One job at a time, in the order in which they were stored; and what a failure does.

        @task(group=Group("customer_id", on_error="skip"))
        def apply(customer_id: int, change: dict) -> None: ...

    ``group="customer_id"`` is short for ``Group("customer_id")``.

    Args:
        key: A parameter, a list of them, or a function that gets what the task does:
            jobs that agree in it are a group. True: all of the task.
        on_error: What becomes of the others while one that failed waits for its next
            attempt. "block": they wait until it has ended, with success or as a dead
            letter. "skip": they go on without it, and it is first again once its time
            has come. "dead-letter": it does not wait; a failed attempt is its last. A
            crash of its process is no failure, and is repeated with each of them.

    Raises:
        DeclarationError: *on_error* is none of these.
        InvalidOption: *key* is neither names, each once, nor a function.
    """

    key: Key | Literal[True]
    on_error: OnError = "block"

    def __post_init__(self) -> None:
        if self.on_error not in get_args(OnError):
            raise DeclarationError(
                f"Group(on_error={shown(self.on_error)}): it must be 'block', 'skip' "
                f"or 'dead-letter'."
            )
        if self.key is not True:
            _names(self.key, "Group(key")

    @property
    def policy(self) -> str | None:
        """What the column says."""
        return None if self.on_error == "block" else self.on_error


@dataclass(frozen=True, slots=True)
class Lane:
    """What a task says, checked: which lane a job goes into, and what that takes."""

    # None: a group, one job at a time and in order.
    capacity: int | None
    # Whose values make the key; none: all jobs of the task have one.
    by: tuple[str, ...] = ()
    function: Callable[..., Any] | None = None
    # Of a rate: seconds from one job to the next, and how many may be ahead of that.
    spacing: float | None = None
    burst: int | None = None
    # Of a group, what one that fails does to the others; None: they wait. "fair": it
    # takes turns with the lanes of other keys.
    policy: str | None = None
    # Of a fair lane of a queue: its name begins with this, in place of the task's.
    queue: str | None = None

    @property
    def option(self) -> str:
        """How it was said."""
        if self.policy == FAIR:
            return "fair_by"
        if self.capacity is None:
            return "group"
        return "rate" if self.capacity == LANE_CAPACITY_MAX else "limit"

    @property
    def columns(self) -> dict[str, Any]:
        """What each of its jobs says of it: see queues/enqueue.py."""
        return {
            "lane_capacity": self.capacity,
            "lane_spacing": self.spacing,
            "lane_burst": self.burst,
            "lane_policy": self.policy,
        }

    @property
    def key(self) -> object:
        """What makes the key; none: the task."""
        return self.function or self.by


GroupKey = Group | Key | Literal[True]


def check_group(value: GroupKey | Literal[False]) -> Lane | Literal[False]:
    """Return the lane; raise InvalidOption. False: none, whatever the task says."""
    if value is False:
        return False
    if isinstance(value, Group):
        return replace(check_group(value.key) or Lane(None), policy=value.policy)
    return _lane(None, None if value is True else value, "group")


def check_limit(value: Limit | Literal[False]) -> Lane | Literal[False]:
    """Return the lane; raise InvalidOption. False: none, whatever the task says."""
    if value is False:
        return False
    if not isinstance(value, Limit):
        raise InvalidOption(
            f"limit={shown(value)}: it must be a Limit, such as "
            f'Limit(5) or Limit(5, key="tenant_id").'
        )
    return _lane(value.jobs, value.key, "Limit(key")


def check_rate(value: Rate | Literal[False]) -> Lane | Literal[False]:
    """Return the lane; raise InvalidOption. False: none, whatever the task says."""
    if value is False:
        return False
    if not isinstance(value, Rate):
        raise InvalidOption(
            f"rate={shown(value)}: it must be a Rate, such as "
            f'Rate("100/m") or Rate("100/m", key="tenant_id").'
        )
    lane = _lane(LANE_CAPACITY_MAX, value.key, "Rate(key")
    return replace(lane, spacing=value.spacing, burst=value.burst)


def check_fair_by(value: Key | Literal[False]) -> Lane | Literal[False]:
    """Return the lane; raise InvalidOption. False: none, whatever the task says."""
    if value is False:
        return False
    return replace(_lane(LANE_CAPACITY_MAX, value, "fair_by"), policy=FAIR)


def fair_lane_of(queue: str, names: Sequence[str]) -> Lane:
    """Return the lane of jobs in a queue whose keys take turns, whatever their task."""
    return replace(check_fair_by(names) or Lane(None), queue=queue)


def as_lane(
    group: Lane | Literal[False] | None,
    limit: Lane | Literal[False] | None,
    rate: Lane | Literal[False] | None,
    fair_by: Lane | Literal[False] | None,
) -> Lane | Literal[False] | None:
    """
    Return the lane that was said; False: none, None: nothing was said.

    Raises:
        InvalidOption: A group and a limit were, or a rate with another key than theirs,
            or fair_by and another one.
    """
    if fair_by and (beside := group or limit or rate):
        raise InvalidOption(
            f"{beside.option} and fair_by contradict each other: a job waits in one "
            f"lane. A group, a limit or a rate with a key is fair by itself, since no "
            f"key takes more than its own: leave fair_by out."
        )
    if group and limit:
        raise InvalidOption(
            "group and limit contradict each other: a job waits in one lane, and a "
            "group takes one job at a time already. Leave limit out for order, or "
            "group out for several at a time."
        )
    other = group or limit
    if other and rate:
        if other.key != rate.key:
            raise InvalidOption(
                f"{other.option} and rate have different keys: a job waits in one "
                f"lane, of one key. Give both the same, or leave one of them out."
            )
        return replace(other, spacing=rate.spacing, burst=rate.burst)
    said = [lane for lane in (group, limit, rate, fair_by) if lane is not None]
    return next(filter(None, said), False) if said else None


def shortened(name: str) -> str:
    """Return a lane's name that fits its column: the end of a long one is hashed."""
    if len(name) <= LANE_CHARACTERS_MAX:
        return name
    digits = hashlib.sha256(name.encode()).hexdigest()[:LANE_DIGITS]
    return f"{name[: LANE_CHARACTERS_MAX - LANE_DIGITS - 1]}~{digits}"


def _lane(capacity: int | None, key: Key | None, where: str) -> Lane:
    if key is None:
        return Lane(capacity)
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
