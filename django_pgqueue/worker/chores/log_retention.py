"""
Log retention: messages that their topic keeps no longer go, step by step.

A chore of the leader. Each call takes one step, and asks for the next one soon; what is
removed, and in which order, stands in log/retain.py.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from datetime import date, timedelta

import psycopg

from django_pgqueue import telemetry
from django_pgqueue.log import browse, days, retain, sizes
from django_pgqueue.log.retain import Due, Going, Slice
from django_pgqueue.log.retain_backfills import announce_backfills
from django_pgqueue.log.sizes import Sizes
from django_pgqueue.postgres.connect import Link
from django_pgqueue.postgres.cursor import Cursor
from django_pgqueue.postgres.limits import Plans
from django_pgqueue.postgres.rights import rights
from django_pgqueue.tasks import registry

logger = logging.getLogger("django_pgqueue.worker")

# When there is nothing left to do; and when something could not be done yet.
PAUSE_SECONDS = 3_600.0
HELD_PAUSE_SECONDS = 60.0

# After a step, or a batch of another purge: so many times what it took, so that the
# purge of millions takes a fifth of one connection's time, on a fast server and on a
# slow one; at least and at most this: a first batch walks over all that vacuum has not
# yet removed.
PAUSE_SHARE = 4.0
STEP_PAUSE_SECONDS_MIN, STEP_PAUSE_SECONDS_MAX = 0.02, 5.0

# A round that was left for so long, since another worker led, begins anew.
ROUND_SECONDS_MAX = 60.0

# Days are measured for so long in a step, and at least one of them.
MEASURE_SECONDS_MAX = 0.5

# How long one look at a slice of jobs may take.
SLICE_SECONDS = 60

# Jobs that somebody has locked are looked at again so often.
PASSES_MAX = 3


@dataclass
class LogRetention:
    """A chore that removes old messages; False in its steps: something is held up."""

    # Of topics that do not say: how long they keep, and then wait for ingest.
    default: timedelta | None
    wait: timedelta | None = None
    # Of the log of all topics; None: any number.
    bytes_max: int | None = None
    _steps: Iterator[bool] | None = None
    _stepped_at: float = 0.0

    def __call__(self, link: Link) -> float:
        """Take one step; return how many seconds to wait for the next one."""
        started = time.monotonic()
        if self._steps is None or started - self._stepped_at > ROUND_SECONDS_MAX:
            self._steps = self._round(link)
        steps, self._steps = self._steps, None
        try:
            is_going_on = next(steps, None)
        except psycopg.errors.LockNotAvailable:
            logger.info("waits      log retention: somebody uses what it needs")
            return HELD_PAUSE_SECONDS
        if is_going_on is None:
            return PAUSE_SECONDS
        if not is_going_on:
            return HELD_PAUSE_SECONDS
        self._steps, self._stepped_at = steps, time.monotonic()
        return pause_after(self._stepped_at - started)

    def _round(self, link: Link) -> Iterator[bool]:
        """Take the steps, in their order, each with a cursor of its own."""
        due = yield from self._look(link)
        if due is None:
            return
        for going in due.going:
            _announce(link, going)
            yield True
        if due.going:
            for is_stuck in _inline(link, due):
                yield not is_stuck
        dropped = set()
        for day in due.days:
            if _drop(link, due, day):
                dropped.add(day)
                yield True
        for going in due.going:
            # Once more: it was a while, with pauses.
            _announce(link, going)
            for day in going.days:
                if day not in dropped:
                    yield from _delete(link, going, day)
        if due.is_held:
            yield False

    def _look(self, link: Link) -> Generator[bool, None, Due | None]:
        """Return what there is to remove, once days are measured; None: no right to."""
        with link.cursor() as cursor:
            if not may_drop(cursor, "the log"):
                return None
        measured: dict[date, dict[int, int]] = {}
        for is_long in _measure(link, measured):
            if is_long:
                yield True
        with link.cursor() as cursor:
            due = retain.due(
                cursor,
                default=self.default,
                wait=self.wait,
                bytes_max=self.bytes_max,
                sizes=_sizes(cursor, measured),
            )
            _sweep(cursor, due)
        for wait in due.waits:
            logger.warning(
                "kept       log topic=%s since=%s: its days wait for the pipeline job "
                "ingest",
                wait.topic,
                wait.first_day,
            )
        return due


def pause_after(seconds: float) -> float:
    """Return how long to wait after a step that took so many *seconds*."""
    pause = max(seconds * PAUSE_SHARE, STEP_PAUSE_SECONDS_MIN)
    return min(pause, STEP_PAUSE_SECONDS_MAX)


def _measure(link: Link, found: dict[date, dict[int, int]]) -> Iterator[bool]:
    """
    Estimate what topics have of each day that is not noted, into *found*.

    Gives after each day whether the step has taken long enough.
    """
    with link.cursor() as cursor:
        waiting = sizes.unmeasured(cursor)
    began = time.monotonic()
    for each in waiting:
        with link.cursor() as cursor:
            found[each.day] = sizes.measure(cursor, each)
        is_long = time.monotonic() - began > MEASURE_SECONDS_MAX
        yield is_long
        if is_long:
            began = time.monotonic()


def _sizes(cursor: Cursor, measured: dict[date, dict[int, int]]) -> Sizes:
    """Return the sizes of all days, and write down what topics have of them."""
    by_day = {each.day: each.bytes for each in browse.days(cursor)}
    result = Sizes(by_day, measured | sizes.noted(cursor))
    sizes.note_topics(cursor, result.by_topic())
    return result


def may_drop(cursor: Cursor, what: str) -> bool:
    """Whether the role can drop days; if not, nothing is begun that ends with it."""
    found = rights(cursor)
    if not found.owns:
        logger.warning(
            "kept       %s: the role %s does not own its days and cannot drop them; %s",
            what,
            found.role,
            found.join,
        )
    return found.owns


def _sweep(cursor: Cursor, due: Due) -> None:
    def may_go(day: date) -> bool:
        keepers = due.keepers(day)
        return day < due.end and not retain.is_kept(cursor, keepers, day)

    for day in days.sweep(cursor, may_go=may_go):
        logger.info("dropped    log partition day=%s", day)


def _announce(link: Link, going: Going) -> None:
    with link.transaction() as cursor:
        losses = retain.announce(cursor, going)
        unfilled = announce_backfills(cursor, going)
    for loss in losses:
        telemetry.group_lost_messages(registry.tasks.get(loss.task), loss)
    for missed in unfilled:
        telemetry.subscription_lost_messages(registry.tasks.get(missed.task), missed)


def _inline(link: Link, due: Due) -> Iterator[bool]:
    """
    Look through dead letters and jobs until none refers to what goes.

    Gives False after each slice; True at the end, if some still refer, since somebody
    has them locked.
    """
    for _ in range(PASSES_MAX):
        found = 0
        # A redrive takes a dead letter to the jobs, which are looked at after them; a
        # last failure takes a job the other way, so those are looked at once more.
        dead, jobs = retain.inline_dead_letters, retain.inline_jobs
        for look in (dead, jobs, dead):
            for part in _slices(link, due, look):
                found += part.referring
                yield False
        if not found:
            return
    logger.info("waits      log retention: jobs that refer to old messages are locked")
    yield True


def _slices(link: Link, due: Due, look: Callable[..., Slice]) -> Iterator[Slice]:
    after = 0
    while True:
        # By the key, also of a queue that was empty when the planner last saw it.
        with link.transaction(SLICE_SECONDS, Plans.BY_INDEX) as cursor:
            part = look(cursor, due, after=after)
        if part.last_id is None:
            return
        after = part.last_id
        yield part


def _drop(link: Link, due: Due, day: date) -> bool:
    """Drop a day that no topic keeps."""
    with link.cursor() as cursor:
        if retain.is_kept(cursor, due.keepers(day), day):
            return False
        for going in due.going:
            if day in going.days:
                # Once more: whoever has fallen back since is told, too.
                _announce(link, going)
        days.drop_day(cursor, day)
    logger.info("dropped    log partition day=%s", day)
    return True


def _delete(link: Link, going: Going, day: date) -> Iterator[bool]:
    """Delete a topic's messages of a day that another one keeps, in batches."""
    partition, after, count = -1, 0, 0
    while True:
        with link.cursor() as cursor:
            batch = retain.delete_batch(
                cursor, going.topic_id, day, partition=partition, after=after
            )
        count += batch.rows
        if not batch.is_full:
            break
        partition, after = batch.partition, batch.last_id
        yield True
    with link.cursor() as cursor:
        sizes.forget_topic(cursor, going.topic_id, day)
    if count:
        logger.info("purged     messages=%d topic=%s day=%s", count, going.topic, day)
