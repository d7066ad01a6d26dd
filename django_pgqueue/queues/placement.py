"""Placement: where, when and how often jobs run that one call stores."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django_pgqueue.queues.rules import ACCUMULATE, PLAIN, SPREAD, Rule


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Where, when and how often: what all jobs of one call share."""

    queue: str
    task: str
    headers: str  # JSON text.
    priority: int
    max_attempts: int
    run_at: datetime | None = None
    delay: timedelta | None = None
    expire_at: datetime | None = None
    expire_in: timedelta | None = None
    schedule_id: int | None = None  # Of the schedule whose tick it is.
    # Of a window that begins at the time above, or now.
    over_microseconds: int | None = None
    # Where in it a single job is due; None: that is sampled.
    offset_microseconds: int | None = None
    # Of calls that wait for others of their key: for how many, 1 to
    # ACCUMULATE_SIZE_MAX, and how long.
    accumulate_key: str | None = None
    accumulate_size: int | None = None
    accumulate_within: timedelta | None = None

    @property
    def rule(self) -> Rule:
        """What kind of call it is."""
        if self.accumulate_key is not None:
            return ACCUMULATE
        return PLAIN if self.over_microseconds is None else SPREAD

    @property
    def is_bare(self) -> bool:
        """Whether the jobs wait for nothing, never expire, and are of no schedule."""
        return (
            self.schedule_id is None
            and self.run_at is None
            and self.delay is None
            and self.expire_at is None
            and self.expire_in is None
            and self.over_microseconds is None
            and self.accumulate_key is None
        )

    def params(self) -> dict[str, Any]:
        """Return the values by the names that the statements use."""
        return {name: getattr(self, name) for name in self.__slots__}
