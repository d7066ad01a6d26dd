"""
Purger: deletes what its retention has outlived, a batch at a time with pauses.

A chore of the leader. Days of the archive are made a week ahead and dropped whole;
dead letters, results and the rows of dead workers are deleted in bounded batches.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import timedelta

from django_pgqueue.conf import Settings
from django_pgqueue.postgres.connect import Link
from django_pgqueue.queues import partitions, purge

logger = logging.getLogger("django_pgqueue.worker")

PAUSE_SECONDS = 60.0
# Between two full batches: the purge never takes more than a share of the database.
BATCH_PAUSE_SECONDS = 0.5
PARTITIONS_PAUSE_SECONDS = 3_600.0

# A worker killed without a good-bye stays visible this long.
DEAD_WORKERS_KEPT = timedelta(hours=1)


def chores(settings: Settings) -> list[Callable[[Link], float]]:
    """Return the chores of the purge for these settings."""
    retention = settings.retention
    result: list[Callable[[Link], float]] = [_make_partitions]
    if retention.archive is not None:
        result.append(_partition_dropper(retention.archive))
    if retention.dead_letters is not None:
        result.append(
            _batches("dead letters", purge.purge_dead_letters, retention.dead_letters)
        )
    keep = timedelta(seconds=settings.result_ttl_seconds)
    result.append(_batches("results", purge.purge_results, keep))
    result.append(_purge_workers)
    return result


def _make_partitions(link: Link) -> float:
    connection = link.connection
    with connection.transaction(), connection.cursor() as cursor:
        for day in partitions.make_partitions(cursor):
            logger.info("made       archive partition day=%s", day)
    return PARTITIONS_PAUSE_SECONDS


def _partition_dropper(keep: timedelta) -> Callable[[Link], float]:
    def drop(link: Link) -> float:
        with link.cursor() as cursor:
            partitions.sweep(cursor, keep=keep)
            for day in partitions.expired_partitions(cursor, keep=keep):
                partitions.drop_partition(cursor, day)
                logger.info("dropped    archive partition day=%s", day)
        return PARTITIONS_PAUSE_SECONDS

    return drop


def _batches(
    what: str, purge_batch: Callable[..., int], keep: timedelta
) -> Callable[[Link], float]:
    def run(link: Link) -> float:
        with link.cursor() as cursor:
            count = purge_batch(cursor, keep=keep)
        if count:
            logger.info("purged     %s=%d", what, count)
        return BATCH_PAUSE_SECONDS if count >= purge.PURGE_ROWS_MAX else PAUSE_SECONDS

    return run


def _purge_workers(link: Link) -> float:
    with link.cursor() as cursor:
        count = purge.purge_workers(cursor, keep=DEAD_WORKERS_KEPT)
    if count:
        logger.info("purged     workers=%d", count)
    return PAUSE_SECONDS
