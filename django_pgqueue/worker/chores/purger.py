"""
Purger: deletes what its retention has outlived, a batch at a time with pauses.

A chore of the leader. Days of the archive and of the log are made two weeks ahead and
dropped whole; those of the archive, if PGQUEUE["EXPORT"] names a place for them, once
they are exported there. Dead letters, what has come in, results, output, workflows that
are over, periods of dedup keys, durable steps, signals, files that no mail has any
more, spans of tasks, bulk acts and the rows of dead workers are deleted in bounded
batches.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from datetime import date, datetime, timedelta

from django_pgqueue.conf import Settings
from django_pgqueue.log import days
from django_pgqueue.pipeline import exports
from django_pgqueue.postgres.connect import Link
from django_pgqueue.postgres.cursor import Cursor
from django_pgqueue.postgres.day_tables import ARCHIVE, LOG, DayTable, first_kept
from django_pgqueue.postgres.day_tables import DAYS_AHEAD_OF_LEADER as AHEAD
from django_pgqueue.queues import durable, mail_files, output, purge, task_spans
from django_pgqueue.schedules import ticks
from django_pgqueue.worker.chores.log_retention import (
    STEP_PAUSE_SECONDS_MAX,
    LogRetention,
    may_drop,
    pause_after,
)

logger = logging.getLogger("django_pgqueue.worker")

PAUSE_SECONDS = 60.0
# While there is more, the log hears of it so often.
LOG_INTERVAL_SECONDS = 60.0
PARTITIONS_PAUSE_SECONDS = 3_600.0

# A day of the log is closed so long after its end, so that a clock of the database that
# is ahead by less than this closes no day early.
CLOSED_AFTER = timedelta(hours=2)

# Ticks of schedules; the latest of each are kept for longer.
TICKS_KEPT = timedelta(days=7)

# A period that is over counts for nothing; while it is fresh, a call may meet its row.
DEDUP_WINDOWS_KEPT = timedelta(minutes=1)

# Where the archive keeps all: how long until a file of a mail in it is looked at again,
# and how long durable steps and signals are kept.
ARCHIVE_LOOKED_AFTER = timedelta(days=30)

# Who has done what to many jobs, and how it went.
BULK_ACTS_KEPT = timedelta(days=30)

# A worker killed without a good-bye stays visible this long.
DEAD_WORKERS_KEPT = timedelta(hours=1)


def chores(settings: Settings) -> list[Callable[[Link], float]]:
    """Return the chores of the purge for these settings."""
    retention = settings.retention
    result: list[Callable[[Link], float]] = [_maker(ARCHIVE, "archive")]
    if retention.archive is not None:
        target = None if settings.export is None else settings.export.path
        result.append(_partition_dropper(retention.archive, target))
    ttl = timedelta(seconds=settings.result_ttl_seconds)
    kept = retention.archive or ARCHIVE_LOOKED_AFTER
    batches = (
        ("rows of workflows", purge.WORKFLOWS, retention.archive),
        ("dead letters", purge.DEAD_LETTERS, retention.dead_letters),
        ("entries of the inbox", purge.INBOX, retention.inbox),
        ("results", purge.RESULTS, ttl),
        ("values of output", output.PURGE, ttl),
        ("dedup windows", purge.DEDUP_WINDOWS, DEDUP_WINDOWS_KEPT),
        ("durable steps", durable.PURGE_STEPS, kept),
        ("signals", purge.SIGNALS, kept),
        ("spans of tasks", task_spans.PURGE, timedelta(0)),
        ("workers", purge.WORKERS, DEAD_WORKERS_KEPT),
        ("ticks", ticks.PURGE, TICKS_KEPT),
        ("bulk acts", purge.BULK_ACTS, BULK_ACTS_KEPT),
    )
    for what, statement, keep in batches:
        if keep is not None:
            result.append(Batches(what, statement, keep))
    result.append(_mail_file_purger(kept))
    # Also where all is kept for ever: a topic may say something else.
    log_retention = LogRetention(
        retention.log, wait=retention.wait_for_ingest, bytes_max=retention.log_bytes
    )
    result += [_maker(LOG, "log"), _close_log_days, log_retention]
    return result


def _maker(table: DayTable, name: str) -> Callable[[Link], float]:
    def make(link: Link) -> float:
        with link.transaction() as cursor:
            for day in table.make(cursor, days_ahead=AHEAD):
                logger.info("made       %s partition day=%s", name, day)
        return PARTITIONS_PAUSE_SECONDS

    return make


def _close_log_days(link: Link) -> float:
    with link.cursor() as cursor:
        for day in days.close_days(cursor, margin=CLOSED_AFTER):
            logger.info("closed     log day=%s", day)
    return PAUSE_SECONDS


def _partition_dropper(keep: timedelta, target: str | None) -> Callable[[Link], float]:
    def drop(link: Link) -> float:
        with link.cursor() as cursor:
            if not may_drop(cursor, "the archive"):
                return PARTITIONS_PAUSE_SECONDS
            may_go = None if target is None else _Exported(cursor, target)
            first = first_kept(cursor, keep)
            ARCHIVE.sweep(cursor, is_old=first.__gt__, may_go=may_go)
            expired = ARCHIVE.expired(cursor, keep)
            if may_go is not None:
                expired = may_go.without_waiting(expired)
            for day in expired:
                if ARCHIVE.remove(cursor, day, may_go=may_go):
                    logger.info("dropped    archive partition day=%s", day)
        return PARTITIONS_PAUSE_SECONDS

    return drop


class _Exported:
    """
    Lets a day of the archive go that is exported, with just the rows that it has.

    A run of the export must have seen its files in the last days.
    """

    def __init__(self, cursor: Cursor, target: str) -> None:
        self._cursor = cursor
        self._target = target
        self._known = exports.known(cursor, target)
        self._unchecked = exports.unchecked(cursor, target)

    def __call__(self, day: date, table: str) -> bool:
        exported = self._known.get(day)
        found = exports.content(self._cursor, table)
        if not found.rows:
            return True
        if exported is not None and exported.has(found):
            return self._is_seen(day)
        logger.warning(
            "kept       archive partition day=%s rows=%d: others were exported to %s",
            day,
            found.rows,
            self._target,
        )
        exports.mark(
            self._cursor,
            self._target,
            day,
            error=f"The archive has other rows of it: {found.rows:,} now.",
            is_stale=True,
        )
        self._known.pop(day, None)
        return False

    def _is_seen(self, day: date) -> bool:
        """Whether a run has looked lately at the files of an exported day."""
        if day in self._unchecked:
            logger.warning(
                "kept       archive partition day=%s: no run of export has seen its "
                "files at %s lately",
                day,
                self._target,
            )
        return day not in self._unchecked

    def without_waiting(self, days: list[date]) -> list[date]:
        """Return the days that are exported; to detach others would be in vain."""
        exported = [
            day
            for day in days
            if day in self._known
            and self._known[day].is_exported
            and self._is_seen(day)
        ]
        if len(exported) < len(days):
            logger.warning(
                "kept       archive partitions=%d: they wait for their export to %s",
                len(days) - len(exported),
                self._target,
            )
        return exported


class Batches:
    """A chore that deletes what is too old, a batch each time that it is called."""

    def __init__(self, what: str, statement: str, keep: timedelta) -> None:
        self.what = what
        self._statement = statement
        self._keep = keep
        # Where the last full batch ended; None: begin with the oldest.
        self._floor: datetime | None = None
        self._unlogged = 0
        self._log_at = 0.0

    def __call__(self, link: Link) -> float:
        """Delete one batch; return how many seconds to wait for the next one."""
        started = time.monotonic()
        floor, self._floor = self._floor, None
        with link.cursor() as cursor:
            purged = purge.batch(cursor, self._statement, self._keep, floor)
        took = time.monotonic() - started
        if purged.is_full:
            self._floor = purged.floor
        self._log(purged)
        return pause_after(took) if purged.is_full else PAUSE_SECONDS

    def _log(self, purged: purge.Purged) -> None:
        if not self._unlogged:
            self._log_at = time.monotonic() + LOG_INTERVAL_SECONDS
        self._unlogged += purged.rows
        is_due = not purged.is_full or time.monotonic() >= self._log_at
        if self._unlogged and is_due:
            logger.info("purged     %s=%d", self.what, self._unlogged)
            self._unlogged = 0


def _mail_file_purger(archive_keep: timedelta) -> Callable[[Link], float]:
    def purge_files(link: Link) -> float:
        with link.transaction() as cursor:
            purged = mail_files.purge(cursor, archive_keep=archive_keep)
        if purged.files:
            logger.info("purged     files of mails=%d", purged.files)
        return STEP_PAUSE_SECONDS_MAX if purged.is_full else PAUSE_SECONDS

    return purge_files
