"""
Operate groups: what people do with consumer groups.

The admin and the command line share these functions. Each opens a transaction on the
database of the log (a savepoint, where one is open), and wakes readers after the
commit.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from django_pgqueue.conf import get_settings
from django_pgqueue.log import generations, groups, positions
from django_pgqueue.log import seek as seeks
from django_pgqueue.log.groups import GroupRow
from django_pgqueue.log.names import check_partitions
from django_pgqueue.log.publish import HINT
from django_pgqueue.log.seek import SeekPreview, Sought
from django_pgqueue.postgres.wake import wake_after_commit
from django_pgqueue.tasks import database
from django_pgqueue.tasks.atomic import read_committed
from django_pgqueue.tasks.operate import checked_texts

Place = int | str | datetime


def pause(group: GroupRow, *, by: str = "", reason: str = "") -> bool:
    """
    Let nobody read for a group, until it is resumed; what is being read is finished.

    Args:
        group: Which one.
        by: Who; at most 150 characters.
        reason: Why; at most 2,000 characters.

    Returns:
        False if it was paused already; who and why stay as they are.

    Raises:
        InvalidOption: A text is too long.
    """
    by, reason = checked_texts(by, reason)
    with log_transaction() as (_connection, cursor):
        return groups.pause(cursor, group.id, by=by, reason=reason)


def resume(group: GroupRow) -> bool:
    """
    End the pause of a group.

    Returns:
        False if it was not paused.
    """
    with log_transaction() as (connection, cursor):
        done = groups.resume(cursor, group.id)
        wake_after_commit(connection, HINT + group.topic)
    return done


def read_on(group: GroupRow, partition: int | None = None) -> list[int]:
    """
    Let halted partitions of a group be read again, with all attempts.

    Args:
        group: Which one.
        partition: That one alone; None: all that are halted.

    Returns:
        Which partitions were halted.

    Raises:
        MessagesLost: Retention has removed what one had not read: seek instead.
    """
    with log_transaction() as (connection, cursor):
        done = positions.resume(cursor, group.id, partition)
        wake_after_commit(connection, HINT + group.topic)
    return done


def forget(group: GroupRow) -> bool:
    """
    Delete a paused group and its positions; its messages stay.

    For one that no code declares any more. Code that does makes it anew when a worker
    starts, and then it begins where that says.

    Returns:
        False if it is not paused; it was left as it is.
    """
    with log_transaction() as (_connection, cursor):
        return groups.forget(cursor, group.id)


def preview_seek(
    group: GroupRow, to: Place, *, partition: int | None = None
) -> SeekPreview:
    """
    Return how many messages seek() would read again or skip; nothing is changed.

    Arguments and errors are those of seek().
    """
    with log_transaction() as (_connection, cursor):
        return seeks.preview_seek(cursor, group.id, to, partition=partition)


def seek(group: GroupRow, to: Place, *, partition: int | None = None) -> list[Sought]:
    """
    Let a group read on from another place, while it is read; ends what is halted.

    Args:
        group: Which one.
        to: "earliest", "latest", the id of a message after which to go on, or a moment
            with its zone.
        partition: That one alone; None: all.

    Returns:
        Where each position was, and is.

    Raises:
        MessagesLost: Retention has removed messages after that place.
        TopicError: There is no such place or partition.
    """
    with log_transaction() as (connection, cursor):
        done = seeks.seek(cursor, group.id, to, partition=partition)
        wake_after_commit(connection, HINT + group.topic)
    return done


@contextmanager
def log_transaction() -> Iterator[tuple[Any, Any]]:
    """Open a transaction on the database of the log; give its connection, a cursor."""
    from django.db import connections

    connection = connections[get_settings().database]
    with read_committed(connection), database.transaction() as made:
        yield made


# Operate topics -----------------------------------------------------------------------
# Operate topics: what people do with topics.
#
# The admin, the command line and Topic share these functions, as operate_groups.py.


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
    check_partitions(partitions, "repartition({})")
    with log_transaction() as (connection, cursor):
        before = generations.repartition(cursor, topic, partitions)
        wake_after_commit(connection, HINT + topic)
    return before is not None
