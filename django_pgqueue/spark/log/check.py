"""
Check: what must hold for a stream to go on, so that it never passes over anything.

    another database      the installation's id differs
    an older dump         ids below the offset are still to be drawn, or were drawn
                          again: the message that the offset names is not in the log
    another topic         the name is that of a topic made anew
    retention             has removed messages that were not read

The last one may be allowed, by onDataLoss=continue; the others never are: the offset
then says nothing about this database.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import datetime

from django_pgqueue.exceptions import MessagesLost, SparkError
from django_pgqueue.spark.connect import Session
from django_pgqueue.spark.log.offsets import Offset, Topic
from django_pgqueue.spark.slices import moment

FAIL, CONTINUE = "fail", "continue"
ON_DATA_LOSS = (FAIL, CONTINUE)

# Locks: ACCESS SHARE. One look at the primary key of one day for each topic.
MARKED = """
SELECT asked.topic_id::int AS topic_id,
       EXISTS (SELECT FROM pgqueue_message m
                WHERE m.id = asked.id AND m.published_at = asked.at
                  AND m.topic_id = asked.topic_id)
       OR asked.id <= (SELECT t.removed_to FROM pgqueue_topic t
                        WHERE t.id = asked.topic_id) AS is_there
  FROM (VALUES {marks}) AS asked (topic_id, id, at)
"""

# Locks: ACCESS SHARE on receipts of what was erased: the log had it. Asked for a mark
# that is not there, so that a role which may not read them needs no more than before.
ERASED = """
SELECT EXISTS (
       SELECT FROM pgqueue_erasure e JOIN pgqueue_topic t ON t.id = {topic_id}
        WHERE {id} >= (e.messages #>> ARRAY[t.name, 'first_id'])::bigint
          AND {id} <= (e.messages #>> ARRAY[t.name, 'last_id'])::bigint) AS is_erased
"""

# Locks: ACCESS SHARE, in a task that has read what it was to read.
REMOVED = """
SELECT id, name::text AS name, removed_to FROM pgqueue_topic WHERE id IN ({topics})
"""

ANEW = (
    "begin a new checkpoint, with the option starting where it is to begin; or go back "
    "to the database that the checkpoint is of"
)

logger = logging.getLogger("django_pgqueue.spark")


def marked(session: Session, offset: Offset) -> dict[int, bool]:
    """Return whether the log has, or had, each topic's mark, for those with one."""
    marks = [
        f"({topic.id}, {topic.mark.id}::bigint, "
        f"{moment(datetime.fromisoformat(topic.mark.at))})"
        for topic in offset.topics.values()
        if topic.mark is not None
    ]
    if not marks:
        return {}
    rows = session.rows(MARKED.format(marks=", ".join(marks)))
    found = {row["topic_id"]: row["is_there"] for row in rows}
    for topic in offset.topics.values():
        if topic.mark is not None and not found[topic.id]:
            look = ERASED.format(topic_id=topic.id, id=topic.mark.id)
            found[topic.id] = session.rows(look)[0]["is_erased"]
    return found


def check_installation(offset: Offset, installation: str) -> None:
    """Raise SparkError if *offset* is of another database."""
    if offset.installation != installation:
        raise SparkError(
            f"The checkpoint is of the installation {offset.installation}, and this "
            f"database is {installation}: its ids say nothing here. To go on, {ANEW}."
        )


def check_log(
    offset: Offset,
    topics: Mapping[str, Topic],
    highest: int,
    marks: Mapping[int, bool],
) -> None:
    """
    Raise SparkError unless the log is the one that *offset* was taken of.

    Args:
        topics: Those of the database, read after *marks*.
        highest: The highest id that was drawn.
        marks: What marked() has found.
    """
    for name, read in offset.topics.items():
        topic = topics.get(name)
        if topic is None or topic.id != read.id:
            now = (
                "there is none" if topic is None else f"the one there is has {topic.id}"
            )
            raise SparkError(
                f"The checkpoint is of a topic {name!r} with the id {read.id}; {now}. "
                f"To go on, {ANEW}."
            )
        if read.highest > highest:
            raise SparkError(
                f"The checkpoint has read {name!r} up to id {read.highest:,}, and the "
                f"highest id of this database is {highest:,}: an older dump was "
                f"restored. What is published now gets ids that the stream has passed. "
                f"To go on, {ANEW}."
            )
        mark = read.mark
        if (
            mark is not None
            and not marks.get(topic.id, True)
            and mark.id > topic.removed_to
        ):
            raise SparkError(
                f"The checkpoint has seen message {mark.id:,} of {name!r}, of "
                f"{mark.at}, which is not in the log, and was neither erased nor "
                f"removed by retention: an older dump was restored, and the ids were "
                f"drawn again. To go on, {ANEW}."
            )


def check_kept(name: str, position: int, removed_to: int, on_data_loss: str) -> None:
    """
    Raise MessagesLost if retention has removed messages after *position*.

    With onDataLoss=continue, only say so.
    """
    if removed_to <= position:
        return
    told = (
        f"Retention has removed messages of {name!r} up to id {removed_to:,}, and the "
        f"stream has read up to {position:,}: those between are lost to it."
    )
    if on_data_loss == CONTINUE:
        logger.warning("messages lost topic=%s %s", name, told)
        return
    raise MessagesLost(
        f"{told} To go on with what there still is, set the option "
        f"onDataLoss={CONTINUE}; to keep messages longer, set the topic's retain."
    )


def check_still_kept(
    session: Session, positions: Mapping[int, int], on_data_loss: str
) -> None:
    """
    Raise MessagesLost if retention came between while a task was reading.

    Retention says up to where it removes before it removes anything. So a task that
    asks after it has read knows whether it has read all.

    The *positions* are by topic: after which id the task has read.
    """
    ids = ", ".join(map(str, positions))
    for row in session.rows(REMOVED.format(topics=ids)):
        check_kept(row["name"], positions[row["id"]], row["removed_to"], on_data_loss)
