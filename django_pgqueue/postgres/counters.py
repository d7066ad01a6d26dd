"""
Counters: sequences and numbers that only grow, and must never be behind what uses them.

A restore without its sequences, TRUNCATE … RESTART IDENTITY and logical replication
leave rows with ids that their sequence has yet to draw. Then new jobs collide with old
ones, and what is published stands before the positions of its readers, where nobody
looks. A counter that is behind is set to what is used; nothing else is changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from django_pgqueue.postgres.cursor import Cursor, one_row

# Through the end of an index of each day, or of the table.
LAST = "(SELECT {column} FROM {table} ORDER BY {column} DESC LIMIT 1)"


def _last(*places: str) -> str:
    """Return SQL for the highest of columns: "table.column"."""
    split = [place.split(".") for place in places]
    each = [LAST.format(table=table, column=column) for table, column in split]
    return f"greatest({', '.join(each)})"


# What was drawn of the sequence of a column, at least. A job's id stays its own in the
# archive and among the dead letters, and a step of a workflow has it before; a topic's
# is in its messages and its groups.
USED: Mapping[str, str] = {
    "pgqueue_job.id": _last(
        *("pgqueue_job.id", "pgqueue_archived_job.id", "pgqueue_dead_letter.id"),
        *("pgqueue_step.id", "pgqueue_durable_step.job_id"),
        "pgqueue_output.job_id",
    ),
    "pgqueue_message.id": _last(
        *("pgqueue_message.id", "pgqueue_position.position"),
        *("pgqueue_topic.removed_to", "pgqueue_log_day.last_id"),
    ),
    "pgqueue_dedup_call.id": _last("pgqueue_dedup_call.id"),
    "pgqueue_topic.id": _last(
        *("pgqueue_topic.id", "pgqueue_message.topic_id"),
        "pgqueue_consumer_group.topic_id",
    ),
    "pgqueue_consumer_group.id": _last(
        "pgqueue_consumer_group.id", "pgqueue_position.group_id"
    ),
    "pgqueue_position.id": _last("pgqueue_position.id"),
    "pgqueue_subscription.id": _last("pgqueue_subscription.id"),
    "pgqueue_schedule.id": _last("pgqueue_schedule.id", "pgqueue_tick.schedule_id"),
    "pgqueue_tick.id": _last("pgqueue_tick.id"),
    "pgqueue_workflow.id": _last("pgqueue_workflow.id", "pgqueue_step.workflow_id"),
    "pgqueue_signal.id": _last("pgqueue_signal.id"),
    "pgqueue_inbox.id": _last("pgqueue_inbox.id"),
    "pgqueue_generation.id": _last("pgqueue_generation.id"),
    "pgqueue_bulk_act.id": _last("pgqueue_bulk_act.id"),
    "pgqueue_pipeline_run.id": _last("pgqueue_pipeline_run.id"),
    "pgqueue_export.id": _last("pgqueue_export.id"),
    "pgqueue_erasure.id": _last("pgqueue_erasure.id"),
    "pgqueue_task_hour.id": _last("pgqueue_task_hour.id"),
    "pgqueue_failure_hour.id": _last("pgqueue_failure_hour.id"),
}

# Locks: none; so has OF_EPOCH. The rows are those of the statement's
# snapshot, and the sequence is read after it: whoever draws meanwhile makes nothing
# seem to be behind.
SEQUENCE = """
SELECT coalesce({used}, 0), coalesce(pg_sequence_last_value('{sequence}'), 0)
"""
NAME = "SELECT pg_get_serial_sequence(%s, %s)"

# Of the newest message: a message has the epoch that its publisher saw.
OF_EPOCH = """
SELECT greatest((SELECT max(since_epoch) FROM pgqueue_subscription),
                (SELECT max(edge) FROM pgqueue_subscription, unnest(missed) edge),
                (SELECT epoch FROM pgqueue_message ORDER BY id DESC LIMIT 1), 0),
       coalesce((SELECT max(epoch) FROM pgqueue_log_state), 0)
"""

# Locks: none; not undone by a rollback. A session that draws meanwhile draws less.
SET_SEQUENCE = "SELECT setval('{sequence}', greatest({used}, 1));"

# Locks: a row lock on the row of the epoch, until the caller's transaction ends.
SET_EPOCH = """INSERT INTO pgqueue_log_state AS s (id, epoch) VALUES (1, {used})
ON CONFLICT (id) DO UPDATE SET epoch = greatest(s.epoch, EXCLUDED.epoch);"""

EPOCH, MESSAGES = "pgqueue_log_state.epoch", "pgqueue_message.id"


class Counter(NamedTuple):
    """How far a counter is, and how far it has to be."""

    # The column whose values it gives: "pgqueue_job.id".
    column: str
    # The highest value that it has given.
    last: int
    # The highest one that rows have.
    used: int

    @property
    def is_behind(self) -> bool:
        """Whether it will give a value that is in use, or is below one that counts."""
        return self.last < self.used


def counters(cursor: Cursor) -> list[Counter]:
    """
    Return every counter of ours; a statement or two for each.

    Args:
        cursor: psycopg's or Django's; of a role that may read the sequences.
    """
    found = [_sequence(cursor, column) for column in USED]
    cursor.execute(OF_EPOCH)
    used, last = one_row(cursor)
    return [*found, Counter(EPOCH, last, used)]


def repair_sql(cursor: Cursor, counter: Counter) -> str:
    """Return the statement that sets a counter to what is used; for its owner."""
    if counter.column == EPOCH:
        return " ".join(SET_EPOCH.format(used=counter.used).split())
    sequence = sequence_of(cursor, counter.column).replace("'", "''")
    return SET_SEQUENCE.format(sequence=sequence, used=counter.used)


def sequence_of(cursor: Cursor, column: str) -> str:
    """Return the sequence of a column, with its schema, quoted as SQL wants it."""
    cursor.execute(NAME, column.split("."))
    return str(one_row(cursor)[0])


def _sequence(cursor: Cursor, column: str) -> Counter:
    sequence = sequence_of(cursor, column).replace("'", "''")
    cursor.execute(SEQUENCE.format(used=USED[column], sequence=sequence))
    used, last = one_row(cursor)
    return Counter(column, last, used)
