"""What the doctor asks of lanes: are jobs let through, and do these end?"""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterator
from datetime import datetime

from django.utils.dateparse import parse_datetime

from django_pgqueue.conf import Settings
from django_pgqueue.management.cli.output import by_whom
from django_pgqueue.operators.findings import START, Finding, finding
from django_pgqueue.operators.human import age, shown
from django_pgqueue.operators.paging import STATEMENT_SECONDS_MAX
from django_pgqueue.postgres.cursor import Cursor
from django_pgqueue.postgres.limits import Plans, limit
from django_pgqueue.queues import doctor, lanes
from django_pgqueue.queues.lane_controls import PausedLane, paused_for, tripped
from django_pgqueue.queues.lane_stats import (
    FailingHead,
    LaneStats,
    failing_heads,
    lane_stats,
    walk_lanes,
)
from django_pgqueue.schedules.store import database_now
from django_pgqueue.worker.serving import WORKERS_MAX, is_alive

# Lanes looked at.
LANES_MAX = 20_000

# A due job whose lane has room is let through at once; after a crash within seconds.
HELD_SECONDS_MAX = 30.0

# A lane that is busy has room from each end of a job until the next is let through. So
# it is looked at again, after this time.
AGAIN_SECONDS = 1.0

# A group whose job fails again and again waits for it no longer than this.
BLOCKED_SECONDS_MAX = 300.0

# A pause that goes on for longer may have been forgotten; and how many are counted.
PAUSED_SECONDS_MAX = 86_400.0
PAUSED_MAX = 1_000

# Of those that wait and run in a lane. One with more that were let through has somebody
# who does so.
COUNT_MAX = 100


def lanes_held(cursor: Cursor, settings: Settings) -> Iterator[Finding]:
    """Is there somebody who lets jobs through?"""
    limit(cursor, seconds=STATEMENT_SECONDS_MAX, plans=Plans.IN_ORDER)
    held = {lane.name: lane for lane in _held(cursor, _with_room(cursor))}
    if held:
        time.sleep(AGAIN_SECONDS)
        again = _held(cursor, [*held])
        held = {
            lane.name: lane for lane in again if lane.next_id == held[lane.name].next_id
        }
    worst = max(held.values(), key=lambda lane: lane.due_seconds or 0, default=None)
    yield finding(
        check="lanes_held",
        severity="error",
        wrong=held,
        what="" if worst is None else _held_text(worst, len(held)),
        right="Every lane that has room lets its due jobs through.",
        value=len(held),
        limit=HELD_SECONDS_MAX,
        way_out=_who_lets_through(cursor) if held else "",
    )


def _with_room(cursor: Cursor) -> list[str]:
    found: list[str] = []
    after: str | None = ""
    for _ in range(0, LANES_MAX, lanes.LANES_LOOKED_AT_MAX):
        if after is None:
            break
        looked = lanes.with_room(cursor, after=after)
        found += looked.lanes
        after = looked.after
    return found


def _held(cursor: Cursor, names: list[str]) -> list[LaneStats]:
    """Return those of the lanes that have room, and a job that has long been due."""
    step = lanes.LANES_LOOKED_AT_MAX
    return [
        lane
        for start in range(0, len(names), step)
        for lane in lane_stats(cursor, names[start : start + step], COUNT_MAX)
        if lane.has_room and (lane.due_seconds or 0) > HELD_SECONDS_MAX
    ]


def _held_text(worst: LaneStats, count: int) -> str:
    more = {1: "", 2: ", and so does 1 more lane"}.get(
        count, f", and so do {count - 1:,} more lanes"
    )
    return (
        f"Lane {shown(worst.name)} has room, and does not let job {worst.next_id} "
        f"through, which has been due for {age(worst.due_seconds)}{more}."
    )


def _who_lets_through(cursor: Cursor) -> str:
    seen = doctor.workers_seen(cursor, limit=WORKERS_MAX)
    alive = [worker for worker in seen if is_alive(worker.silent_seconds)]
    if not alive:
        return f"No worker lives, and workers let jobs through: {START}"
    if not any(worker.leads for worker in alive):
        return "No worker leads, and that one lets jobs through: restart one."
    return "The worker that leads does not come to it: see its log, or restart it."


def lanes_blocked(cursor: Cursor, settings: Settings) -> Iterator[Finding]:
    """Are there groups that wait for a job that fails again and again?"""
    limit(cursor, seconds=STATEMENT_SECONDS_MAX, plans=Plans.IN_ORDER)
    clock = database_now(cursor)
    blocked: dict[FailingHead, float] = {}
    for names in walk_lanes(cursor, looks=LANES_MAX):
        for head in failing_heads(cursor, names):
            seconds = _seconds_since(head.first_at, clock)
            if seconds is not None and seconds > BLOCKED_SECONDS_MAX:
                blocked[head] = seconds
    worst = max(blocked, key=lambda head: blocked[head], default=None)
    yield finding(
        check="lanes_blocked",
        wrong=blocked,
        what="" if worst is None else _blocked_text(worst, blocked),
        right="No group waits for a job that fails again and again.",
        value=len(blocked),
        limit=BLOCKED_SECONDS_MAX,
        way_out=""
        if worst is None
        else f"manage.py pgqueue show {worst.id}; fix the cause. To let the others go: "
        f"manage.py pgqueue cancel {worst.id}",
    )


def _blocked_text(worst: FailingHead, blocked: dict[FailingHead, float]) -> str:
    error = (worst.error or "?").rpartition(".")[2]
    more = {1: "", 2: " And 1 more group waits for such a job."}.get(
        len(blocked), f" And {len(blocked) - 1:,} more groups wait for such a job."
    )
    waited = age(blocked[worst])
    return (
        f"Group {shown(worst.lane)} has waited {waited} for job {worst.id}, which "
        f"fails again and again: attempt {worst.attempt} of {worst.max_attempts}, "
        f"{shown(error)}.{more}"
    )


def _seconds_since(text: str | None, clock: datetime) -> float | None:
    """Return how long ago a time was that anybody may have written."""
    try:
        moment = parse_datetime(text or "")
    except ValueError:
        return None
    if moment is None or moment.tzinfo is None:
        return None
    return (clock - moment).total_seconds()


def lanes_paused(cursor: Cursor, settings: Settings) -> Iterator[Finding]:
    """Are there pauses that somebody may have forgotten?"""
    limit(cursor, seconds=STATEMENT_SECONDS_MAX, plans=Plans.IN_ORDER)
    old = paused_for(cursor, seconds=PAUSED_SECONDS_MAX, limit=PAUSED_MAX)
    first = next(iter(old), None)
    yield finding(
        check="lanes_paused",
        wrong=old,
        what="" if first is None else _paused_text(first, len(old)),
        right="No lane has been paused for long.",
        value=len(old),
        limit=PAUSED_SECONDS_MAX,
        way_out=""
        if first is None
        else f"manage.py pgqueue lanes resume {shlex.quote(shown(first.name))}",
    )


def _paused_text(first: PausedLane, count: int) -> str:
    more = f" And {count - 1:,}{'+' if count >= PAUSED_MAX else ''} more."
    return (
        f"Lane {shown(first.name)} has been paused for {age(first.seconds)}"
        f"{by_whom(first)}.{more if count > 1 else ''}"
    )


def breakers_open(cursor: Cursor, settings: Settings) -> Iterator[Finding]:
    """Are there tasks that wait because their attempts failed?"""
    limit(cursor, seconds=STATEMENT_SECONDS_MAX, plans=Plans.IN_ORDER)
    found = tripped(cursor, limit=PAUSED_MAX)
    first = next(iter(found), None)
    what = way_out = ""
    if first is not None:
        more = "" if len(found) == 1 else f" And {len(found) - 1:,} more."
        next_one = f"tries one in {age(first.left_seconds)}"
        if first.left_seconds <= 0:
            next_one = "waits for the job that tries"
        what = (
            f"The circuit breaker of task {shown(first.name)} opened "
            f"{age(first.seconds)} ago, number {first.trips:,} in a row, and "
            f"{next_one}: {shown(first.reason)}.{more}"
        )
        way_out = (
            f"See whether what it calls works. It closes by itself then; at once: "
            f"manage.py pgqueue resume --task {shlex.quote(shown(first.name))}"
        )
    yield finding(
        check="breakers_open",
        wrong=found,
        what=what,
        right="No circuit breaker is open.",
        value=len(found),
        limit=0,
        way_out=way_out,
    )


EXAMINATIONS = (lanes_held, lanes_blocked, lanes_paused, breakers_open)
