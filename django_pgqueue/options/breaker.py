"""Breaker: when a task that fails again and again is paused, and for how long."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Literal

from django_pgqueue.bounds import DEPTH_MAX_MAX
from django_pgqueue.exceptions import (
    DeclarationError,
    InvalidOption,
    check_whole,
    raised_as,
    shown,
)
from django_pgqueue.options.durations import Duration, as_timedelta

OF_MAX = 100_000
WITHIN_MAX = timedelta(hours=1)
COOLDOWN_MIN = timedelta(seconds=1)
COOLDOWN_MAX = timedelta(days=1)

# Each time that the probe fails, the next cool-down is twice as long, up to so many
# times the first.
COOLDOWNS_MAX = 32


@dataclass(frozen=True, slots=True)
class Breaker:
    """
    Pause the task while most of its attempts fail, as when its provider is down.

        @task(breaker=Breaker(0.5, of=20, within="1m", cooldown="30s"))
        def call_api(account_id: int) -> None: ...

    Each worker process counts its own attempts that ended of late. Once at least *of*
    did, and this *share* of them failed, the breaker opens: no worker begins another
    job of the task. After the *cooldown* one job runs, the probe. If it succeeds, the
    breaker closes and all go on; if it fails, the next cool-down is twice as long, up
    to 32 times the first. What waits uses up no attempt.

    An attempt has failed that raises, runs into its timeout, or whose process in a pool
    dies. Snooze, Cancel and Reject say nothing of the provider and do not count; nor
    does what a stop of the worker cuts off, or a job that was acked before its end.

    Args:
        share: Of the attempts that ended, how many failed: above 0, up to 1.
        of: How many must have ended, 1 to 100,000: less says little.
        within: A duration; how far back is counted. From 1 s to 1 h.
        cooldown: A duration; until the first probe. From 1 s to 1 day.

    Raises:
        DeclarationError: One of them is out of its range.
    """

    share: float
    of: int = 20
    within: Duration = "1m"
    cooldown: Duration = "30s"

    def __post_init__(self) -> None:
        share = self.share
        if (
            isinstance(share, bool)
            or not isinstance(share, (int, float))
            or not 0 < share <= 1
        ):
            raise DeclarationError(
                f"Breaker({shown(share)}): the share of attempts that fail must be a "
                f"number above 0, up to 1, such as 0.5."
            )
        check_whole("Breaker(of={})", self.of, OF_MAX, DeclarationError)
        _between("within", self.within, COOLDOWN_MIN, WITHIN_MAX)
        _between("cooldown", self.cooldown, COOLDOWN_MIN, COOLDOWN_MAX)

    @property
    def within_seconds(self) -> float:
        """How far back is counted."""
        return as_timedelta(self.within, name="within").total_seconds()

    @property
    def cooldown_first(self) -> timedelta:
        """How long the task is paused the first time."""
        return as_timedelta(self.cooldown, name="cooldown")


def check_breaker(value: object) -> Breaker:
    """Return *value*; raise InvalidOption unless it is a Breaker."""
    if isinstance(value, Breaker):
        return value
    raise InvalidOption(
        f"breaker={shown(value)}: it must be a Breaker, such as "
        f'Breaker(0.5, of=20, within="1m", cooldown="30s").'
    )


def _between(name: str, value: Duration, least: timedelta, most: timedelta) -> None:
    with raised_as(DeclarationError):
        length = as_timedelta(value, name=f"Breaker({name})")
    if not least <= length <= most:
        raise DeclarationError(
            f"Breaker({name}={shown(value)}): it must be from "
            f"{least.total_seconds():g} s to {most.total_seconds():,.0f} s."
        )


# Backlog ------------------------------------------------------------------------------


OnBacklog = Literal["pause", "drop_oldest", "refuse"]
ON_BACKLOG: tuple[OnBacklog, ...] = ("pause", "drop_oldest", "refuse")


@dataclass(frozen=True, slots=True)
class Backlog:
    """
    At most so many jobs of a subscription that have not ended.

        @subscribe("clicks", queue="stats", backlog=Backlog(100_000, on_full="pause"))
        def count(message: Message) -> None: ...

    The worker that leads counts about once a second, so that there may be as many more
    as are published in some seconds.

    Args:
        depth_max: How many, 1 to 1,000,000.
        on_full: "pause": messages make no jobs, and stay in the log, from which the
            jobs are made when half of the backlog is gone: each message has its job,
            unless retention is faster. "drop_oldest": those that have waited for
            longest are cancelled. "refuse": publish() raises QueueFull.

    Raises:
        DeclarationError: A value is none of these.
    """

    depth_max: int
    on_full: OnBacklog = "pause"

    def __post_init__(self) -> None:
        check_whole("Backlog({})", self.depth_max, DEPTH_MAX_MAX, DeclarationError)
        if self.on_full not in ON_BACKLOG:
            raise DeclarationError(
                f"Backlog(on_full={shown(self.on_full)}): it must be 'pause', "
                f"'drop_oldest' or 'refuse'."
            )
