"""Generations: a chore of the leader that ends what new counts have begun."""

from __future__ import annotations

import logging

from django_pgqueue.log import generations
from django_pgqueue.postgres.connect import Link

logger = logging.getLogger("django_pgqueue.worker")

# While a change is under way; and otherwise.
SOON_SECONDS, PAUSE_SECONDS = 5.0, 60.0


def end_generations(link: Link) -> float:
    """Close, finish and drop what can be; return how many seconds until the next."""
    with link.cursor() as cursor:
        if generations.close(cursor):
            logger.info("closed     former partitions of topics")
        topics = generations.closed(cursor)
    connection = link.connection
    for topic_id in topics:
        with connection.transaction(), connection.cursor() as cursor:
            read = generations.finish(cursor, topic_id)
            dropped = generations.drop(cursor, topic_id)
        if read:
            logger.info(
                "finished   topic_id=%d partitions=%s",
                topic_id,
                generations.spans(read),
            )
        for numbers in dropped:
            logger.info(
                "dropped    topic_id=%d partitions=%s",
                topic_id,
                generations.spans(numbers),
            )
    with link.cursor() as cursor:
        return SOON_SECONDS if generations.is_changing(cursor) else PAUSE_SECONDS
