"""Lanes: are jobs let through, and do these end?"""

from __future__ import annotations

import shlex
import time
from datetime import datetime

from django.utils.dateparse import parse_datetime

from django_pgqueue.findings.look import Look
from django_pgqueue.findings.registry import Findings, finding, verdict
from django_pgqueue.operators.human import age, by_whom, shown
from django_pgqueue.operators.workers import START
from django_pgqueue.queues import lane_controls, lanes
from django_pgqueue.queues.lane_stats import (
    FailingHead,
    LaneStats,
    failing_heads,
    lane_stats,
    walk_lanes,
)
from django_pgqueue.worker.serving import is_alive

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


@finding("lanes_held")
def lanes_held(look: Look) -> Findings:
    """Is there somebody who lets jobs through?"""
    held = {lane.name: lane for lane in _held(look, _with_room(look))}
    if held:
        time.sleep(AGAIN_SECONDS)
        again = _held(look, [*held])
        held = {
            lane.name: lane for lane in again if lane.next_id == held[lane.name].next_id
        }
    text = way_out = ""
    if held:
        worst = max(held.values(), key=lambda lane: lane.due_seconds or 0)
        more = _more(
            len(held), ", and so does {} more lane", ", and so do {} more lanes"
        )
        text = (
            f"Lane {shown(worst.name)} has room, and does not let job {worst.next_id} "
            f"through, which has been due for {age(worst.due_seconds)}{more}."
        )
        way_out = _who_lets_through(look)
    yield verdict(
        held,
        text,
        way_out,
        right="Every lane that has room lets its due jobs through.",
        severity="error",
        value=len(held),
        limit=HELD_SECONDS_MAX,
    )


def _with_room(look: Look) -> list[str]:
    found: list[str] = []
    after: str | None = ""
    for _ in range(0, LANES_MAX, lanes.LANES_LOOKED_AT_MAX):
        if after is None:
            break
        looked = lanes.with_room(look.cursor, after=after)
        found += looked.lanes
        after = looked.after
    return found


def _held(look: Look, names: list[str]) -> list[LaneStats]:
    """Return those of the lanes that have room, and a job that has long been due."""
    step = lanes.LANES_LOOKED_AT_MAX
    return [
        lane
        for start in range(0, len(names), step)
        for lane in lane_stats(look.cursor, names[start : start + step], COUNT_MAX)
        if lane.has_room and (lane.due_seconds or 0) > HELD_SECONDS_MAX
    ]


def _who_lets_through(look: Look) -> str:
    alive = [worker for worker in look.workers if is_alive(worker.silent_seconds)]
    if not alive:
        return f"No worker lives, and workers let jobs through: {START}"
    if not any(worker.leads for worker in alive):
        return "No worker leads, and that one lets jobs through: restart one."
    return "The worker that leads does not come to it: see its log, or restart it."


@finding("lanes_blocked")
def lanes_blocked(look: Look) -> Findings:
    """Are there groups that wait for a job that fails again and again?"""
    blocked: dict[FailingHead, float] = {}
    for names in walk_lanes(look.cursor, looks=LANES_MAX):
        for head in failing_heads(look.cursor, names):
            seconds = _seconds_since(head.first_at, look.clock)
            if seconds is not None and seconds > BLOCKED_SECONDS_MAX:
                blocked[head] = seconds
    text = way_out = ""
    if blocked:
        worst = max(blocked, key=lambda head: blocked[head])
        error = (worst.error or "?").rpartition(".")[2]
        text = (
            f"Group {shown(worst.lane)} has waited {age(blocked[worst])} for job "
            f"{worst.id}, which fails again and again: attempt {worst.attempt} of "
            f"{worst.max_attempts}, {shown(error)}."
            + _more(
                len(blocked),
                " And {} more group waits for such a job.",
                " And {} more groups wait for such a job.",
            )
        )
        way_out = (
            f"manage.py pgqueue show {worst.id}; fix the cause. To let the others go: "
            f"manage.py pgqueue cancel {worst.id}"
        )
    yield verdict(
        blocked,
        text,
        way_out,
        right="No group waits for a job that fails again and again.",
        value=len(blocked),
        limit=BLOCKED_SECONDS_MAX,
    )


def _more(count: int, one: str, several: str) -> str:
    """Return how many there are besides the first: in *one* way, or for *several*."""
    if count == 1:
        return ""
    return (one if count == 2 else several).format(f"{count - 1:,}")


def _seconds_since(text: str | None, clock: datetime) -> float | None:
    """Return how long ago a time was that anybody may have written."""
    try:
        moment = parse_datetime(text or "")
    except ValueError:
        return None
    if moment is None or moment.tzinfo is None:
        return None
    return (clock - moment).total_seconds()


@finding("lanes_paused")
def lanes_paused(look: Look) -> Findings:
    """Are there pauses that somebody may have forgotten?"""
    most = PAUSED_MAX
    old = look.rows(lane_controls.PAUSED, seconds=PAUSED_SECONDS_MAX, limit=most)
    text = way_out = ""
    if old:
        first, plus = old[0], "+" if len(old) >= most else ""
        more = f" And {len(old) - 1:,}{plus} more." if len(old) > 1 else ""
        text = (
            f"Lane {shown(first.name)} has been paused for {age(first.seconds)}"
            f"{by_whom(first)}.{more}"
        )
        way_out = f"manage.py pgqueue lanes resume {shlex.quote(shown(first.name))}"
    yield verdict(
        old,
        text,
        way_out,
        right="No lane has been paused for long.",
        value=len(old),
        limit=PAUSED_SECONDS_MAX,
    )


@finding("breakers_open")
def breakers_open(look: Look) -> Findings:
    """Are there tasks that wait because their attempts failed?"""
    found = look.rows(lane_controls.TRIPPED, limit=PAUSED_MAX)
    text = way_out = ""
    if found:
        first = found[0]
        next_one = f"tries one in {age(first.left_seconds)}"
        if first.left_seconds <= 0:
            next_one = "waits for the job that tries"
        text = (
            f"The circuit breaker of task {shown(first.name)} opened "
            f"{age(first.seconds)} ago, number {first.trips:,} in a row, and "
            f"{next_one}: {shown(first.reason)}."
            + _more(len(found), " And {} more.", " And {} more.")
        )
        way_out = (
            f"See whether what it calls works. It closes by itself then; at once: "
            f"manage.py pgqueue resume --task {shlex.quote(shown(first.name))}"
        )
    yield verdict(
        found,
        text,
        way_out,
        right="No circuit breaker is open.",
        value=len(found),
        limit=0,
    )
