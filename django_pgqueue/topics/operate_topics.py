"""
Operate topics: what people do with topics.

The admin, the command line and Topic share these functions, as operate_groups.py.
"""

from __future__ import annotations

from django_pgqueue.exceptions import shown
from django_pgqueue.log import generations
from django_pgqueue.log.names import check_partitions
from django_pgqueue.log.publish import HINT
from django_pgqueue.postgres.wake import wake_after_commit
from django_pgqueue.topics.operate_groups import log_transaction


def repartition(topic: str, partitions: int) -> bool:
    """
    Let a topic have so many partitions, while it is published to and read.

    Args:
        topic: Its name.
        partitions: From 1 to 256.

    Returns:
        False: it has so many already.

    Raises:
        TopicError: It cannot have so many, or there is no such topic.
    """
    check_partitions(partitions, f"repartition({shown(partitions)})")
    with log_transaction() as (connection, cursor):
        before = generations.repartition(cursor, topic, partitions)
        wake_after_commit(connection, HINT + topic)
    return before is not None
