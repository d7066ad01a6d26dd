"""
Operate queues: what people say of how many jobs of a queue are claimed.

The admin and the command line share these functions. Each opens a transaction on the
database of the jobs (a savepoint, where one is open), and wakes the queue after the
commit. Until then nobody claims from a queue with a rate, so call these at the end of a
transaction.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from django.db import connections

from django_pgqueue.bounds import (
    LANE_CAPACITY_MAX,
    LANE_CHARACTERS_MAX,
    LANE_WEIGHT_MAX,
)
from django_pgqueue.conf import get_settings
from django_pgqueue.exceptions import InvalidOption, check_whole, raised_as, shown
from django_pgqueue.options.checks import check_queue
from django_pgqueue.options.lanes import Rate
from django_pgqueue.postgres.limited import limited
from django_pgqueue.postgres.limits import Plans
from django_pgqueue.postgres.wake import wake_after_commit
from django_pgqueue.queues import lane_controls as controls
from django_pgqueue.queues import queue_limits as limits
from django_pgqueue.queues.held import HINT as HELD_HINT
from django_pgqueue.queues.lane_controls import Released
from django_pgqueue.queues.lanes import freed_hints
from django_pgqueue.tasks import database
from django_pgqueue.tasks.atomic import read_committed
from django_pgqueue.tasks.operate import checked_text, checked_texts, checked_until


def set_concurrency(queue: str, jobs: int | None) -> bool:
    """
    Let *jobs* of *queue* run at a time, on all workers together.

    What was claimed before goes on, and nothing is claimed until there is room. Jobs
    that were claimed while the queue had no concurrency are not counted.

    Args:
        queue: Its name; it need not have any job yet.
        jobs: 1 to 100,000, in place of what the settings say; None: what they say.

    Returns:
        False if it was so already.

    Raises:
        InvalidOption: *queue* is no queue name, or *jobs* is out of its range.
    """
    check_queue(queue)
    if jobs is not None:
        more = ", or None for what the settings say"
        check_whole("jobs={}", jobs, LANE_CAPACITY_MAX, InvalidOption, more=more)
    with database.transaction() as (connection, cursor):
        is_done = limits.set_concurrency(cursor, queue, jobs)
        wake_after_commit(connection, queue)
    return is_done


def set_rate(queue: str, rate: Rate | None) -> bool:
    """
    Let jobs of *queue* start at a rate, on all workers together.

    Args:
        queue: Its name; it need not have any job yet.
        rate: Without a key, in place of what the settings say; None: what they say.

    Returns:
        False if it was so already.

    Raises:
        InvalidOption: *queue* is no queue name, or *rate* is none or has a key.
    """
    check_queue(queue)
    if rate is not None and (not isinstance(rate, Rate) or rate.key is not None):
        raise InvalidOption(
            f"rate={shown(rate)}: it must be a Rate without a key, such as "
            f'Rate("100/m", burst=5), or None for what the settings say.'
        )
    spacing, burst = (None, None) if rate is None else (rate.spacing, rate.burst)
    with database.transaction() as (connection, cursor):
        is_done = limits.set_rate(cursor, queue, spacing, burst)
        wake_after_commit(connection, queue)
    return is_done


# Operate lanes ------------------------------------------------------------------------
# Operate lanes: what people do with the lanes in which jobs wait.
#
# The admin and the command line share these functions. Each opens a transaction on the
# database of the jobs (a savepoint, where one is open), and wakes workers after the
# commit. Until then nobody lets jobs of the lane through, so call these at the end of a
# transaction; before several of one, hold() their lanes.


# What a release may take: it waits for a promotion of the lane.
RELEASE_SECONDS_MAX = 10


def hold(lanes: Sequence[str]) -> None:
    """Take the locks of *lanes* in this transaction, before acts on several of them."""
    with database.transaction() as (_connection, cursor):
        controls.hold(cursor, lanes)


def pause(
    lane: str,
    *,
    by: str = "",
    reason: str = "",
    until: datetime | timedelta | None = None,
) -> bool:
    """
    Let no job of *lane* through until it is resumed; what was let through goes on.

    The name of a task means all of its jobs, in whatever lane or in none: workers begin
    no further one.

    Args:
        lane: Its name; it need not have any job yet.
        by: Who pauses; at most 150 characters.
        reason: Why; at most 2,000 characters.
        until: When it ends by itself, with a zone, or how long it lasts.

    Returns:
        False if it was paused already, and who, why and until when stay as they are.

    Raises:
        InvalidOption: *lane* is no name of one, or a text is too long, or *until* is
            no time.
    """
    check_lane(lane)
    by, reason = checked_texts(by, reason)
    until = checked_until(until)
    with database.transaction() as (connection, cursor):
        is_new = controls.pause(cursor, lane, by=by, reason=reason, until=until)
        wake_after_commit(connection, HELD_HINT)
    return is_new


def resume(lane: str) -> bool:
    """
    End the pause of *lane*, and let through what it has room for.

    Of a task it closes the circuit breaker, too, and all of its lanes go on at once;
    those whose names do not begin with its own, within seconds.

    Returns:
        False if it was not paused.

    Raises:
        InvalidOption: *lane* is no name of one.
    """
    check_lane(lane)
    with database.transaction() as (connection, cursor):
        was_paused = controls.resume(cursor, lane)
        wake_after_commit(connection, HELD_HINT)
        _promote_after_commit(connection, lane)
    return was_paused


def set_capacity(lane: str, jobs: int | None) -> bool:
    """
    Let *jobs* of a limit through at a time, whatever they say; None: what they say.

    Where more were let through before, they go on, and nothing is let through until
    there is room. A group takes one at a time in any case.

    Returns:
        False if it was so already.

    Raises:
        InvalidOption: *lane* is no name of one, or a group; or *jobs* is not from 1 to
            100,000.
    """
    check_lane(lane)
    if jobs is not None:
        more = ", or None for what the jobs say"
        check_whole("jobs={}", jobs, LANE_CAPACITY_MAX, InvalidOption, more=more)
    with raised_as(InvalidOption), database.transaction() as (connection, cursor):
        is_done = controls.set_capacity(cursor, lane, jobs)
        _promote_after_commit(connection, lane)
    return is_done


def set_weight(lane: str, jobs: int | None) -> bool:
    """
    Give a fair lane *jobs* in a turn, from the next claim on; None: one.

    Returns:
        False if it was so already.

    Raises:
        InvalidOption: *lane* is no name of one, or takes no turns; or *jobs* is not
            from 1 to 100.
    """
    check_lane(lane)
    if jobs is not None:
        more = ", or None for one"
        check_whole("jobs={}", jobs, LANE_WEIGHT_MAX, InvalidOption, more=more)
    with raised_as(InvalidOption), database.transaction() as (_connection, cursor):
        return controls.set_weight(cursor, lane, jobs)


def release(lane: str) -> Released:
    """
    Let the next due job of *lane* through at once, one time; also of a paused lane.

    Of a limit it is one more than may be, and of a fair lane one before its turn. Of a
    group it never is: if the job that the others wait for has failed and waits for its
    next attempt, or has a run_after that has not come, the next one goes first. One
    that is ready or runs is waited for.

    Raises:
        InvalidOption: *lane* is no name of one; or a transaction is open that is not
            READ COMMITTED.
    """
    check_lane(lane)
    alias = get_settings().database
    with (
        raised_as(InvalidOption),
        read_committed(connections[alias]),
        limited(alias, seconds=RELEASE_SECONDS_MAX, plans=Plans.IN_ORDER),
        database.transaction() as (connection, cursor),
    ):
        released = controls.release(cursor, lane)
        if released.queue is not None:
            wake_after_commit(connection, released.queue)
    return released


def check_lane(lane: object) -> str:
    """Return *lane*; raise InvalidOption unless it can be the name of one."""
    text = checked_text("lane", lane, LANE_CHARACTERS_MAX)
    if not text:
        raise InvalidOption("lane is empty; jobs of no lane wait for nobody.")
    return text


def _promote_after_commit(connection: Any, lane: str) -> None:
    for hint in freed_hints([lane]):
        wake_after_commit(connection, hint)
