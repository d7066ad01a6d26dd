"""
Positions: who reads which partition of a group, and up to where it has been read.

A claim gives one partition to one reader, with a lease and a fence. Every write after
that presents the fence: who was overtaken, by another claim or by a seek, writes
nothing. So a position only moves past what its reader has handled.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from django_pgqueue.exceptions import MessagesLost, SchemaError

# Entries kept of a position: the first failure and the latest ones, as of a job.
ERRORS_MAX = 100

TRANSACTION_TIMEOUT_SINCE = 170_000

FAILURES_MAX = 32_000  # What the column holds, nearly; one that retries for ever stops.

# One more entry at the end of what a position keeps of its failures.
APPENDED = f"""
(CASE WHEN jsonb_array_length(p.errors) >= {ERRORS_MAX} THEN p.errors - 1
      ELSE coalesce(p.errors, '[]') END || %(error)s::jsonb)
"""

# Locks: a row lock on one position, for the statement; rows that others have locked
# are passed over. Who waits the longest is first, so that all partitions get their
# turn. The partition has to have a message up to the bound, which the caller has
# fetched in a statement before this one. %(since)s: the first day that can have one,
# so that older ones are not looked at. Not EXISTS: that could become a join, which
# would read the whole log.
# A lease that its reader did not give back has lapsed: that counts as a failure, or a
# message that takes its process down would do so for ever.
CLAIM = f"""
WITH next AS (
    SELECT p.id, p.leased_by
      FROM pgqueue_position p JOIN pgqueue_consumer_group g ON g.id = p.group_id
     WHERE p.group_id = %(group)s AND g.paused_at IS NULL AND p.halted_at IS NULL
       AND (p.leased_until IS NULL OR p.leased_until <= statement_timestamp())
       AND (p.retry_at IS NULL OR p.retry_at <= statement_timestamp())
       AND p.position < %(bound)s
       AND (SELECT m.id FROM pgqueue_message m
             WHERE m.topic_id = g.topic_id AND m.partition = p.partition
               AND m.id > p.position AND m.id <= %(bound)s
               AND m.published_at >= %(since)s::timestamptz
             ORDER BY m.id LIMIT 1) IS NOT NULL
     ORDER BY p.last_read_at, p.id
     LIMIT 1
       FOR UPDATE OF p SKIP LOCKED)
UPDATE pgqueue_position AS p
   SET fence = p.fence + 1, leased_by = %(worker)s,
       leased_until = statement_timestamp() + %(lease)s::interval,
       last_read_at = clock_timestamp(),
       failures = CASE WHEN next.leased_by IS NULL THEN p.failures
                       ELSE least(p.failures + 1, {FAILURES_MAX}) END,
       errors = CASE WHEN next.leased_by IS NULL THEN p.errors
                ELSE (CASE WHEN jsonb_array_length(p.errors) >= {ERRORS_MAX}
                           THEN p.errors - 1 ELSE coalesce(p.errors, '[]') END
                      || jsonb_build_object(
                           'kind', 'lease_expired', 'worker', next.leased_by,
                           'fence', p.fence, 'at', statement_timestamp(),
                           'message', 'its reader died, or ran longer than the lease'))
                END
  FROM next
 WHERE p.id = next.id
RETURNING p.id, p.partition, p.position, p.fence, p.leased_by, p.failures, p.single_to,
          next.leased_by, statement_timestamp()
"""

# Whose claim it is still. The fence says so; and the reader's name, since a claim that
# was not on disk when the server crashed is forgotten, and its fence given again.
OURS = "p.id = %(id)s AND p.fence = %(fence)s AND p.leased_by = %(worker)s"
# And the lease lasts, so that nobody else may have begun.
HELD = f"{OURS} AND p.leased_until > statement_timestamp()"

# Locks: a row lock on the position, until the caller's transaction ends. Claims pass
# over it; a seek waits for it.
# The row is not our own business alone: one by one ends where it was to end.
ADVANCE = f"""
UPDATE pgqueue_position AS p
   SET position = greatest(p.position, %(to)s::bigint),
       moved_at = statement_timestamp(),
       failures = 0, retry_at = NULL, errors = NULL,
       single_to = CASE WHEN p.single_to > %(to)s::bigint THEN p.single_to END,
       leased_by = CASE WHEN %(keeps)s THEN p.leased_by END,
       leased_until = CASE WHEN %(keeps)s THEN p.leased_until END
 WHERE {HELD}
RETURNING p.position
"""

# Locks: a row lock on the position, for the statement.
FREE = f"""
UPDATE pgqueue_position AS p SET leased_by = NULL, leased_until = NULL
 WHERE {OURS}
RETURNING p.id
"""

# Locks: as FREE. One by one up to %(single_to)s, if that is given: then attempts are
# counted anew, for the first of them.
FAIL = f"""
UPDATE pgqueue_position AS p
   SET failures = CASE WHEN %(counts)s THEN least(p.failures + 1, {FAILURES_MAX})
                       WHEN %(single_to)s::bigint IS NOT NULL THEN 0
                       ELSE p.failures END,
       retry_at = statement_timestamp() + %(delay)s::interval,
       single_to = greatest(%(single_to)s::bigint, p.single_to),
       errors = CASE WHEN %(error)s::jsonb IS NULL THEN p.errors ELSE {APPENDED} END,
       leased_by = NULL, leased_until = NULL
 WHERE {OURS}
RETURNING p.id
"""

# Locks: as FREE.
HALT = f"""
UPDATE pgqueue_position AS p
   SET halted_at = statement_timestamp(), halted_for = 'error',
       failures = least(p.failures + 1, {FAILURES_MAX}), retry_at = NULL,
       errors = CASE WHEN %(error)s::jsonb IS NULL THEN p.errors ELSE {APPENDED} END,
       leased_by = NULL, leased_until = NULL
 WHERE {OURS}
RETURNING p.id
"""

# Locks: as FREE. The message becomes a dead letter and the position moves past it: one
# statement, so both or none. The argument is a list of one: the handler takes a list.
SKIP = f"""
WITH was AS MATERIALIZED (
    SELECT p.id, p.group_id, p.failures,
           CASE WHEN %(error)s::jsonb IS NULL THEN coalesce(p.errors, '[]')
                ELSE {APPENDED} END AS errors
      FROM pgqueue_position p
     WHERE {OURS} FOR UPDATE),
moved AS (
    UPDATE pgqueue_position AS p
       SET position = greatest(p.position, %(to)s::bigint),
           moved_at = statement_timestamp(), failures = 0, retry_at = NULL,
           errors = NULL, leased_by = NULL, leased_until = NULL,
           single_to = CASE WHEN p.single_to > %(to)s::bigint THEN p.single_to END
      FROM was WHERE p.id = was.id
    RETURNING p.id)
INSERT INTO pgqueue_dead_letter
       (id, task, queue, args, headers, attempt, max_attempts, deliveries, errors,
        reason, enqueued_at, started_at, finished_at, worker, message_id)
SELECT nextval(pg_get_serial_sequence('pgqueue_job', 'id')), g.task, g.queue,
       jsonb_build_array(jsonb_build_array(jsonb_build_object(
           '__pgqueue__', 'message',
           'value', jsonb_build_array(%(to)s::bigint, %(published_at)s::timestamptz)))),
       %(headers)s::jsonb, was.failures + 1, g.max_attempts, was.failures + 1,
       was.errors, %(reason)s, %(published_at)s::timestamptz,
       statement_timestamp() - make_interval(secs => %(ran)s::float8),
       statement_timestamp(), %(worker)s, %(to)s::bigint
  FROM was JOIN moved ON moved.id = was.id
  JOIN pgqueue_consumer_group g ON g.id = was.group_id
RETURNING id
"""

# Locks: as FREE. Ends a back-off: in a test, nobody waits.
HURRY = "UPDATE pgqueue_position SET retry_at = NULL WHERE id = %(id)s"

# Locks: row locks on the positions that dead processes had, for the statement. They can
# be claimed at once; that they were not given back is known by the name.
LOSE = """
UPDATE pgqueue_position AS p SET leased_until = statement_timestamp()
  FROM pgqueue_consumer_group g
 WHERE split_part(p.leased_by, '/', 1) = ANY(%(workers)s::text[])
   AND p.leased_until > statement_timestamp() AND g.id = p.group_id
RETURNING g.topic
"""

# Locks: none. Until the transaction ends. A handler that hangs in a statement, or
# between two, loses what it wrote; from PostgreSQL 17 on also one that sends many short
# ones.
# Not set_config(), which could also be for the session: see postgres/session.py.
LIMIT = """
SET LOCAL statement_timeout = {milliseconds};
SET LOCAL idle_in_transaction_session_timeout = {milliseconds}
"""
LIMIT_ALL = f"{LIMIT.rstrip()};\nSET LOCAL transaction_timeout = {{milliseconds}}\n"

# Locks: row locks on halted positions, until the caller's transaction ends. Those that
# retention has halted stay: what they would read next is gone, so only a seek helps.
RESUME = """
UPDATE pgqueue_position AS p
   SET halted_at = NULL, halted_for = NULL, failures = 0, retry_at = NULL
 WHERE p.group_id = %(group)s AND p.halted_for = 'error'
   AND (%(partition)s::int IS NULL OR p.partition = %(partition)s::int)
RETURNING p.partition
"""

# Locks: none. Partitions that are halted since retention has removed what they had not
# read.
LOST = """
SELECT p.partition FROM pgqueue_position p
 WHERE p.group_id = %(group)s AND p.halted_for = 'retention'
   AND (%(partition)s::int IS NULL OR p.partition = %(partition)s::int)
 ORDER BY p.partition
"""

# Locks: row locks on the positions that are moved, for the statement; those that
# others have locked are passed over. Of partitions to which nobody has published for
# days: what is moved on to the bound need not look into those days again. This once all
# days are looked at, since a seek may just have gone back.
FORWARD = """
WITH quiet AS (
    SELECT p.id
      FROM pgqueue_position p JOIN pgqueue_consumer_group g ON g.id = p.group_id
     WHERE p.group_id = %(group)s AND p.halted_at IS NULL AND p.position < %(bound)s
       AND (p.leased_until IS NULL OR p.leased_until <= statement_timestamp())
       AND (SELECT m.id FROM pgqueue_message m
             WHERE m.topic_id = g.topic_id AND m.partition = p.partition
               AND m.id > p.position AND m.id <= %(bound)s
             ORDER BY m.id LIMIT 1) IS NULL
       FOR UPDATE OF p SKIP LOCKED)
UPDATE pgqueue_position AS p SET position = %(bound)s
  FROM quiet WHERE p.id = quiet.id AND p.position < %(bound)s
RETURNING p.partition
"""

# Locks: none. The lowest position, or that of those which are read.
LOWEST = """
SELECT min(p.position) FROM pgqueue_position p
 WHERE p.group_id = %(group)s AND (%(halted)s OR p.halted_at IS NULL)
"""

# Locks: none. A position that the sequence has not come to, as after a restore without
# its sequences: what is published would lie before it. The sequence is read after the
# positions, which are those of the statement's snapshot.
BEYOND = """
SELECT p.partition, p.position, drawn.last
  FROM pgqueue_position p,
       (SELECT CASE WHEN is_called THEN last_value ELSE last_value - 1 END AS last
          FROM pgqueue_message_id_seq) drawn
 WHERE p.group_id = %(group)s AND p.position > drawn.last
 ORDER BY p.position DESC LIMIT 1
"""

# Locks: none. When the next back-off of a group ends, in seconds; NULL: nothing waits.
NEXT_RETRY = """
SELECT extract(epoch FROM min(greatest(p.retry_at, p.leased_until))
                          - clock_timestamp())::float8
  FROM pgqueue_position p
 WHERE p.group_id = %(group)s AND p.halted_at IS NULL
   AND (p.retry_at > clock_timestamp() OR p.leased_until > clock_timestamp())
"""


class Claimed(NamedTuple):
    """A partition that is ours until its lease ends."""

    id: int
    partition: int
    position: int
    fence: int
    # The reader: us.
    worker: str
    # Of what comes next, since the position has last moved.
    failures: int
    # Messages are to be handed over one by one up to this id; None: by the batch.
    single_to: int | None
    # Who had it, and did not give it back; None: it was free.
    lapsed_by: str | None
    # By the database's clock.
    claimed_at: datetime


def claim(
    cursor: Any,
    group_id: int,
    *,
    worker: str,
    lease: timedelta,
    bound: int,
    since: datetime | str = "-infinity",
) -> Claimed | None:
    """
    Lease one partition that has something to read; None: there is none.

    Args:
        cursor: In autocommit.
        group_id: Of the group.
        worker: Who reads, at most 100 characters.
        lease: For how long it is ours, by the database's clock.
        bound: The topic's horizon, fetched in a statement before this one.
        since: The first day that can hold something for the group, as
            closed_days.Days.since() tells.
    """
    cursor.execute(
        CLAIM,
        {
            "group": group_id,
            "worker": worker,
            "lease": lease,
            "bound": bound,
            "since": since,
        },
    )
    row = cursor.fetchone()
    return None if row is None else Claimed(*row)


def advance(cursor: Any, claimed: Claimed, to: int, *, keeps: bool = False) -> bool:
    """
    Move a position up to the id *to*; False: it is not ours any more.

    Inside a handler's transaction, that has then to be rolled back.

    Args:
        cursor: Anybody's: the handler's own for exactly-once effects.
        claimed: What claim() has returned.
        to: Everything up to this id is done.
        keeps: Whether it stays leased.
    """
    cursor.execute(ADVANCE, {**_ours(claimed), "to": to, "keeps": keeps})
    return cursor.fetchone() is not None


def free(cursor: Any, claimed: Claimed) -> bool:
    """Give a partition back as it is; False: it is not ours any more."""
    cursor.execute(FREE, _ours(claimed))
    return cursor.fetchone() is not None


def fail(
    cursor: Any,
    claimed: Claimed,
    *,
    delay: timedelta,
    error: str | None = None,
    single_to: int | None = None,
    counts: bool = True,
) -> bool:
    """
    Give a partition back until *delay* is over; False: it is not ours any more.

    Args:
        cursor: In autocommit.
        claimed: What claim() has returned.
        delay: From now on, by the database's clock.
        error: An entry for the position's errors, as JSON.
        single_to: Hand over one by one up to this id; attempts begin anew.
        counts: Whether it was a failure of what comes next.
    """
    cursor.execute(
        FAIL,
        {
            **_ours(claimed),
            "delay": delay,
            "error": error,
            "single_to": single_to,
            "counts": counts,
        },
    )
    return cursor.fetchone() is not None


def halt(cursor: Any, claimed: Claimed, *, error: str | None) -> bool:
    """Let nobody read on until somebody resumes or seeks; False: it is not ours."""
    cursor.execute(HALT, {**_ours(claimed), "error": error})
    return cursor.fetchone() is not None


def skip(
    cursor: Any,
    claimed: Claimed,
    *,
    message_id: int,
    published_at: datetime,
    headers: Any,
    error: str | None,
    reason: str,
    ran_seconds: float = 0.0,
) -> int | None:
    """
    Make a message a dead letter and move past it; None: the position is not ours.

    Returns:
        The id of the dead letter.
    """
    cursor.execute(
        SKIP,
        {
            **_ours(claimed),
            "to": message_id,
            "published_at": published_at,
            "headers": json.dumps(dict(headers)),
            "error": error,
            "reason": reason,
            "ran": ran_seconds,
        },
    )
    row = cursor.fetchone()
    return None if row is None else int(row[0])


def lose(cursor: Any, workers: Sequence[str]) -> list[str]:
    """Let what dead processes were reading be claimed at once; return of which topics.

    Readers are called "<process>/<number>".
    """
    cursor.execute(LOSE, {"workers": list(workers)})
    return sorted({topic for (topic,) in cursor.fetchall()})


def hurry(cursor: Any, position_id: int) -> None:
    """End the back-off of a partition."""
    cursor.execute(HURRY, {"id": position_id})


def limit_transaction(cursor: Any, seconds: float) -> None:
    """Let the server end this transaction's session after *seconds*, at least 1 ms."""
    version = cursor.connection.info.server_version
    statement = LIMIT_ALL if version >= TRANSACTION_TIMEOUT_SINCE else LIMIT
    cursor.execute(statement.format(milliseconds=max(round(seconds * 1_000), 1)))


def resume(cursor: Any, group_id: int, partition: int | None = None) -> list[int]:
    """
    Let halted partitions be read again, with all attempts; return which.

    Args:
        cursor: The caller commits.
        group_id: Of the group.
        partition: That one alone; None: all.

    Raises:
        MessagesLost: One is halted since retention has removed what it had not read.
    """
    params = {"group": group_id, "partition": partition}
    cursor.execute(LOST, params)
    lost = [str(each) for (each,) in cursor.fetchall()]
    if lost:
        raise MessagesLost(
            f"Retention has removed messages that the group had not read, in "
            f"partition {', '.join(lost)}: it cannot go on where it was. Seek to "
            f"'earliest' to read what is left, or to any later place."
        )
    cursor.execute(RESUME, params)
    return sorted(each for (each,) in cursor.fetchall())


def forward(cursor: Any, group_id: int, *, bound: int) -> list[int]:
    """
    Move positions that have nothing to read up to *bound*; return which partitions.

    Args:
        cursor: In autocommit.
        group_id: Of the group.
        bound: The topic's horizon, fetched in a statement before this one.
    """
    cursor.execute(FORWARD, {"group": group_id, "bound": bound})
    return sorted(partition for (partition,) in cursor.fetchall())


def lowest(cursor: Any, group_id: int, *, halted: bool = False) -> int | None:
    """Return the lowest position, also of halted ones if so said; None: of none."""
    cursor.execute(LOWEST, {"group": group_id, "halted": halted})
    (position,) = cursor.fetchone()
    return None if position is None else int(position)


def refuse_beyond(cursor: Any, group: Any) -> None:
    """
    Look whether messages come after what a group has read.

    Args:
        cursor: In autocommit.
        group: Its row.

    Raises:
        SchemaError: The sequence of messages is behind a position, so that nothing that
            is published would be read.
    """
    cursor.execute(BEYOND, {"group": group.id})
    row = cursor.fetchone()
    if row is not None:
        partition, position, last = row
        raise SchemaError(
            f"The group {group} has read partition {partition} up to the id "
            f"{position:,}, and the sequence of messages stands at {last:,}, as after "
            f"a restore without its sequences: what is published now has lower ids, "
            f"and nobody would read it. Run: manage.py pgqueue sequences repair"
        )


def next_retry_seconds(cursor: Any, group_id: int) -> float | None:
    """Return when a back-off or a lease ends; None: nothing waits for such."""
    cursor.execute(NEXT_RETRY, {"group": group_id})
    (seconds,) = cursor.fetchone()
    return None if seconds is None else max(float(seconds), 0.0)


def _ours(claimed: Claimed) -> dict[str, Any]:
    return {"id": claimed.id, "fence": claimed.fence, "worker": claimed.worker}
