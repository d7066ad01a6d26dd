"""
Positions: who reads which partition of a group, and up to where it has been read.

A claim gives one partition to one reader, with a lease and a fence. Every write after
that presents the fence: who was overtaken, by another claim or by a seek, writes
nothing. So a position only moves past what its reader has handled.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any, NamedTuple

from django_pgqueue.exceptions import MessagesLost, SchemaError
from django_pgqueue.log import generations
from django_pgqueue.log.horizon import DRAWN
from django_pgqueue.log.in_partition import RISING, within
from django_pgqueue.postgres.cursor import Cursor, column, has_row, record, rows, value

# Entries kept of a position: the first failure and the latest ones, as of a job.
ERRORS_MAX = 100

TRANSACTION_TIMEOUT_SINCE = 170_000

FAILURES_MAX = 32_000  # What the column holds, nearly; one that retries for ever stops.

# One more entry at the end of what a position keeps of its failures.
APPENDED = f"""
(CASE WHEN jsonb_array_length(p.errors) >= {ERRORS_MAX} THEN p.errors - 1
      ELSE coalesce(p.errors, '[]') END || %(error)s::jsonb)
"""

# Nobody reads it, and it does not wait for another attempt.
FREE_NOW = """p.halted_at IS NULL
       AND (p.leased_until IS NULL OR p.leased_until <= statement_timestamp())
       AND (p.retry_at IS NULL OR p.retry_at <= statement_timestamp())"""

# Locks: none. Every position of a group as it is, who waits the longest first, so that
# all partitions get their turn; and how far the sequence of messages is, read after the
# positions, which are those of the statement's snapshot.
# It sees every version of these rows that somebody's old snapshot keeps, so it is asked
# now and then; what follows it finds a row by where it was.
# What is not free has seconds to go: both by one moment. By a later one a back-off that
# ends in between would have none, and the reader would rest until its next poll.
LOOK = f"""
SELECT p.id, p.ctid::text, g.topic_id, p.partition, p.position,
       {FREE_NOW} AND g.paused_at IS NULL,
       p.halted_at IS NOT NULL,
       extract(epoch FROM greatest(p.retry_at, p.leased_until)
                          - statement_timestamp())::float8,
       drawn.last, g.is_merging
  FROM pgqueue_position p JOIN pgqueue_consumer_group g ON g.id = p.group_id
 CROSS JOIN (SELECT {DRAWN} AS last) drawn
 WHERE p.group_id = %(group)s
 ORDER BY p.last_read_at, p.id
"""

# Whether a partition has a message after a position, up to the bound, which the caller
# has fetched in a statement before this one. %(since)s: the first day that can have
# one, so that older ones are not looked at. Not EXISTS: that could become a join, which
# would read the whole log.
HAS_NEWS = f"""
(SELECT m.id FROM pgqueue_message m
  WHERE m.topic_id = %(topic_id)s
    AND {within("{position}.partition", after="{position}.position", up_to="%(bound)s")}
    AND m.published_at >= %(since)s::timestamptz
  {RISING} LIMIT 1) IS NOT NULL
"""

# Locks: a row lock on one position, for the statement; one that others have locked is
# passed over. The first of the known positions that has something to read is claimed,
# unless somebody else was faster: then it comes without a claim.
# A row is found by where it was last seen, without a look at the versions that it had
# before; {place} is left out where that is not known. Whatever stands there by now, it
# is claimed by what it says.
# A lease that its reader did not give back has lapsed: that counts as a failure, or a
# message that takes its process down would do so for ever.
CLAIMS = f"""
WITH news AS MATERIALIZED (
    SELECT known.id, known.tid
      FROM unnest(%(ids)s::bigint[], %(tids)s::tid[], %(partitions)s::int[],
                  %(positions)s::bigint[])
           WITH ORDINALITY AS known(id, tid, partition, position, place)
     WHERE {HAS_NEWS.format(position="known")}
     ORDER BY known.place LIMIT 1),
locked AS MATERIALIZED (
    SELECT p.ctid AS tid, p.leased_by
      FROM pgqueue_position p
     WHERE {{place}}p.id = (SELECT news.id FROM news) AND {FREE_NOW}
       AND (SELECT g.paused_at IS NULL FROM pgqueue_consumer_group g
             WHERE g.id = p.group_id)
       AND {HAS_NEWS.format(position="p")}
       FOR UPDATE OF p SKIP LOCKED),
claimed AS (
    UPDATE pgqueue_position AS p
       SET fence = p.fence + 1, leased_by = %(worker)s,
           leased_until = statement_timestamp() + %(lease)s::interval,
           last_read_at = clock_timestamp(),
           failures = CASE WHEN p.leased_by IS NULL THEN p.failures
                           ELSE least(p.failures + 1, {FAILURES_MAX}) END,
           errors = CASE WHEN p.leased_by IS NULL THEN p.errors
                    ELSE (CASE WHEN jsonb_array_length(p.errors) >= {ERRORS_MAX}
                               THEN p.errors - 1 ELSE coalesce(p.errors, '[]') END
                          || jsonb_build_object(
                               'kind', 'lease_expired', 'worker', p.leased_by,
                               'fence', p.fence, 'at', statement_timestamp(), 'message',
                               'its reader died, or ran longer than the lease'))
                    END
     WHERE p.ctid = (SELECT locked.tid FROM locked)
       AND p.id = (SELECT news.id FROM news)
    RETURNING p.id, p.partition, p.position, p.fence, p.leased_by AS worker, p.failures,
              p.single_to, p.ctid::text AS tid, p.group_id)
SELECT news.id, claimed.id, claimed.partition, claimed.position, claimed.fence,
       claimed.worker, claimed.failures, claimed.single_to,
       (SELECT locked.leased_by FROM locked), statement_timestamp(), claimed.tid,
       (SELECT g.is_merging FROM pgqueue_consumer_group g WHERE g.id = claimed.group_id)
  FROM news LEFT JOIN claimed ON claimed.id = news.id
"""
CLAIM = CLAIMS.format(place="p.ctid = (SELECT news.tid FROM news) AND ")
CLAIM_BY_ID = CLAIMS.format(place="")

# Whose claim it is still. The fence says so; and the reader's name, since a claim that
# was not on disk when the server crashed is forgotten, and its fence given again.
OURS = "p.id = %(id)s AND p.fence = %(fence)s AND p.leased_by = %(worker)s"
# And the lease lasts, so that nobody else may have begun.
HELD = f"{OURS} AND p.leased_until > statement_timestamp()"

# Locks: a row lock on the position, until the caller's transaction ends. Claims pass
# over it; a seek waits for it.
# The row is not our own business alone: one by one ends where it was to end. Who goes
# on renews the lease with it, and raises the fence: of two writes for one batch, the
# second finds nothing. A pause, or a halt by retention, ends that.
GOES_ON = """
(%(keeps)s OR (%(goes_on)s AND p.halted_at IS NULL
               AND (SELECT g.paused_at IS NULL FROM pgqueue_consumer_group g
                     WHERE g.id = p.group_id)))
"""
ADVANCES = f"""
UPDATE pgqueue_position AS p
   SET position = greatest(p.position, %(to)s::bigint),
       moved_at = statement_timestamp(),
       failures = 0, retry_at = NULL, errors = NULL,
       single_to = CASE WHEN p.single_to > %(to)s::bigint THEN p.single_to END,
       fence = CASE WHEN {GOES_ON} THEN p.fence + 1 ELSE p.fence END,
       leased_by = CASE WHEN {GOES_ON} THEN p.leased_by END,
       leased_until = CASE WHEN {GOES_ON} THEN coalesce(
           statement_timestamp() + %(lease)s::interval, p.leased_until) END
 WHERE {{place}}{HELD}
RETURNING p.ctid::text, p.position, p.fence, p.leased_by, p.single_to,
          statement_timestamp()
"""
ADVANCE = ADVANCES.format(place="p.ctid = %(tid)s::tid AND ")
ADVANCE_BY_ID = ADVANCES.format(place="")

# Locks: row locks on what one reader has, for the statement: after an answer was lost,
# it holds what it does not know of. Its name is its own, and it does nothing else.
RELEASE = """
UPDATE pgqueue_position AS p SET leased_by = NULL, leased_until = NULL
 WHERE p.group_id = %(group)s AND p.leased_by = %(worker)s
RETURNING p.partition
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
FORWARD = f"""
WITH quiet AS (
    SELECT p.id
      FROM pgqueue_position p JOIN pgqueue_consumer_group g ON g.id = p.group_id
     WHERE p.group_id = %(group)s AND p.halted_at IS NULL AND p.position < %(bound)s
       AND (p.leased_until IS NULL OR p.leased_until <= statement_timestamp())
       AND (SELECT m.id FROM pgqueue_message m
             WHERE m.topic_id = g.topic_id
               AND {within("p.partition", after="p.position", up_to="%(bound)s")}
             {RISING} LIMIT 1) IS NULL
       FOR UPDATE OF p SKIP LOCKED)
UPDATE pgqueue_position AS p SET position = %(bound)s
  FROM quiet WHERE p.id = quiet.id AND p.position < %(bound)s
RETURNING p.partition
"""

# Locks: none. The lowest position of those which are read.
LOWEST = """
SELECT min(p.position) FROM pgqueue_position p
 WHERE p.group_id = %(group)s AND p.halted_at IS NULL
"""


class Known(NamedTuple):
    """A position as somebody has seen it."""

    id: int
    # Where its row was, as PostgreSQL writes a tid; None: not known.
    tid: str | None
    topic_id: int
    partition: int
    position: int
    # Nobody reads it, and it does not wait; nor is the group paused.
    is_free: bool
    is_halted: bool
    # Until its lease and its back-off are over, or since; None: it had none.
    seconds: float | None
    # How far the sequence of messages was.
    drawn: int
    # The group reads several generations of partitions: see sql/unread.sql.
    is_merging: bool = False


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
    # Where its row is.
    tid: str | None = None
    # The group reads several generations of partitions: end_of() says how far.
    is_merging: bool = False


class Readable(NamedTuple):
    """Which of some positions may be read by now."""

    known: list[Known]
    # None of them, but others that somebody reads, or will: these come after those.
    is_blocked: bool = False
    # By partition, where the group merges: the fence that it had, and up to which id it
    # may be read by a claim with the next one.
    ends: Mapping[int, tuple[int, int]] = MappingProxyType({})


class Found(NamedTuple):
    """A position that has something to read."""

    id: int
    # None: somebody else reads it, or has read it.
    claimed: Claimed | None


class Moved(NamedTuple):
    """A position that was moved."""

    tid: str
    position: int
    # With the next fence and a lease that begins now; None: it was given back.
    kept: Claimed | None


def look(cursor: Cursor, group_id: int) -> list[Known]:
    """Return the positions of a group, in the order in which they have their turn."""
    return rows(Known, cursor, LOOK, group=group_id)


def claim(
    cursor: Cursor,
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
    known = [each for each in look(cursor, group_id) if each.is_free]
    known = readable(cursor, group_id, known, bound).known
    while known:
        found = claim_known(
            cursor, known, worker=worker, lease=lease, bound=bound, since=since
        )
        if found is None or found.claimed is not None:
            return found and found.claimed
        known = [each for each in known if each.id != found.id]
    return None


def claim_known(
    cursor: Cursor,
    known: Sequence[Known],
    *,
    worker: str,
    lease: timedelta,
    bound: int,
    since: datetime | str = "-infinity",
) -> Found | None:
    """
    Lease the first of known positions that has something to read; None: none has.

    Args:
        cursor: In autocommit.
        known: Of one group, at least one, in the order in which they are to be read.
        worker: As claim(); so are lease, bound and since.
        lease: As said.
        bound: As said.
        since: As said.
    """
    params = {
        "topic_id": known[0].topic_id,
        "worker": worker,
        "lease": lease,
        "bound": bound,
        "since": since,
    }
    cursor.execute(CLAIM, {**params, **_arrays(known)})
    row = cursor.fetchone()
    if row is not None and row[1] is None:
        # Its row has moved since; or it is somebody else's.
        again = [each for each in known if each.id == row[0]]
        cursor.execute(CLAIM_BY_ID, {**params, **_arrays(again)})
        row = cursor.fetchone() or row
    if row is None:
        return None
    return Found(row[0], None if row[1] is None else Claimed(*row[1:]))


def readable(
    cursor: Cursor, group_id: int, known: Sequence[Known], bound: int
) -> Readable:
    """
    Return which may be read by now: all, unless the group merges generations.

    Args:
        cursor: In autocommit.
        group_id: Of the group.
        known: As claim_known() takes them.
        bound: The topic's horizon, fetched in a statement before this one.
    """
    if not any(each.is_merging for each in known):
        return Readable(list(known))
    found = generations.unread(cursor, group_id, known[0].topic_id, bound)
    may_be_read = {each.partition for each in found if each.may_be_read}
    chosen = [each for each in known if each.partition in may_be_read]
    return Readable(
        chosen,
        not chosen and bool(may_be_read),
        {each.partition: (each.fence, each.end) for each in found},
    )


def end_of(
    cursor: Cursor,
    group_id: int,
    topic_id: int,
    claimed: Claimed,
    bound: int,
    looked: Readable | None = None,
) -> int:
    """
    Return up to which id a partition may be read that is ours, for as long as it is.

    Args:
        cursor: In autocommit.
        group_id: Of the group.
        topic_id: Of its topic.
        claimed: What claim() has returned.
        bound: The one that it was claimed with: what the claim says of the group is
            true of what there was up to there.
        looked: What readable() has returned of that bound; None: look now.
    """
    if not claimed.is_merging:
        return bound
    fence, end = (looked and looked.ends.get(claimed.partition)) or (None, 0)
    # Nobody has sought in between.
    if fence is not None and fence + 1 == claimed.fence:
        return end
    found = generations.unread(cursor, group_id, topic_id, bound)
    return next(each.end for each in found if each.partition == claimed.partition)


def advance(
    cursor: Cursor,
    claimed: Claimed,
    to: int,
    *,
    keeps: bool = False,
    goes_on: bool = False,
    lease: timedelta | None = None,
) -> Moved | None:
    """
    Move a position up to the id *to*; None: it is not ours any more.

    Inside a handler's transaction, that has then to be rolled back.

    Args:
        cursor: Anybody's: the handler's own for exactly-once effects.
        claimed: What claim() has returned, or the write before this one.
        to: Everything up to this id is done.
        keeps: Whether it stays leased.
        goes_on: The same, unless the group is paused by now.
        lease: For how long then; None: as long as it was.
    """
    params = {
        **_ours(claimed),
        "to": to,
        "keeps": keeps,
        "goes_on": goes_on,
        "lease": lease,
    }
    row = None
    if claimed.tid is not None:
        cursor.execute(ADVANCE, {**params, "tid": claimed.tid})
        row = cursor.fetchone()
    if row is None:
        cursor.execute(ADVANCE_BY_ID, params)
        row = cursor.fetchone()
    if row is None:
        return None
    tid, position, fence, leased_by, single_to, at = row
    kept = claimed._replace(
        position=position,
        fence=fence,
        failures=0,
        single_to=single_to,
        lapsed_by=None,
        claimed_at=at,
        tid=tid,
    )
    return Moved(tid, position, None if leased_by is None else kept)


def release(cursor: Cursor, group_id: int, worker: str) -> list[int]:
    """Give back all that a reader has of a group; return which partitions."""
    return sorted(column(cursor, RELEASE, group=group_id, worker=worker))


def free(cursor: Cursor, claimed: Claimed) -> bool:
    """Give a partition back as it is; False: it is not ours any more."""
    return has_row(cursor, FREE, **_ours(claimed))


def fail(
    cursor: Cursor,
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
    return has_row(
        cursor,
        FAIL,
        **_ours(claimed),
        delay=delay,
        error=error,
        single_to=single_to,
        counts=counts,
    )


def halt(cursor: Cursor, claimed: Claimed, *, error: str | None) -> bool:
    """Let nobody read on until somebody resumes or seeks; False: it is not ours."""
    return has_row(cursor, HALT, **_ours(claimed), error=error)


def skip(
    cursor: Cursor,
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
    return record(
        int,
        cursor,
        SKIP,
        **_ours(claimed),
        to=message_id,
        published_at=published_at,
        headers=json.dumps(dict(headers)),
        error=error,
        reason=reason,
        ran=ran_seconds,
    )


def lose(cursor: Cursor, workers: Sequence[str]) -> list[str]:
    """Let what dead processes were reading be claimed at once; return of which topics.

    Readers are called "<process>/<number>".
    """
    return sorted({*column(cursor, LOSE, workers=list(workers))})


def hurry(cursor: Cursor, position_id: int) -> None:
    """End the back-off of a partition."""
    cursor.execute(HURRY, {"id": position_id})


def limit_transaction(cursor: Cursor, seconds: float) -> None:
    """Let the server end this transaction's session after *seconds*, at least 1 ms."""
    version = cursor.connection.info.server_version
    statement = LIMIT_ALL if version >= TRANSACTION_TIMEOUT_SINCE else LIMIT
    cursor.execute(statement.format(milliseconds=max(round(seconds * 1_000), 1)))


def resume(cursor: Cursor, group_id: int, partition: int | None = None) -> list[int]:
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
    lost = list(map(str, column(cursor, LOST, **params)))
    if lost:
        raise MessagesLost(
            f"Retention has removed messages that the group had not read, in "
            f"partition {', '.join(lost)}: it cannot go on where it was. Seek to "
            f"'earliest' to read what is left, or to any later place."
        )
    return sorted(column(cursor, RESUME, **params))


def forward(cursor: Cursor, group_id: int, *, bound: int) -> list[int]:
    """
    Move positions that have nothing to read up to *bound*; return which partitions.

    Args:
        cursor: In autocommit.
        group_id: Of the group.
        bound: The topic's horizon, fetched in a statement before this one.
    """
    return sorted(column(cursor, FORWARD, group=group_id, bound=bound))


def lowest(cursor: Cursor, group_id: int) -> int | None:
    """Return the lowest position that is not halted; None: of none."""
    position: int | None = value(cursor, LOWEST, group=group_id)
    return position


def refuse_beyond(group: Any, known: Sequence[Known]) -> None:
    """
    Look whether messages come after what a group has read.

    Args:
        group: Its row.
        known: Its positions.

    Raises:
        SchemaError: The sequence of messages is behind a position, so that nothing that
            is published would be read.
    """
    for each in known:
        if each.position > each.drawn:
            raise SchemaError(
                f"The group {group} has read partition {each.partition} up to the id "
                f"{each.position:,}, and the sequence of messages stands at "
                f"{each.drawn:,}, as after a restore without its sequences: what is "
                f"published now has lower ids, and nobody would read it. Run the "
                f"SQL that manage.py pgqueue doctor prints."
            )


def _arrays(known: Sequence[Known]) -> dict[str, list[Any]]:
    return {
        "ids": [each.id for each in known],
        "tids": [each.tid for each in known],
        "partitions": [each.partition for each in known],
        "positions": [each.position for each in known],
    }


def _ours(claimed: Claimed) -> dict[str, Any]:
    return {"id": claimed.id, "fence": claimed.fence, "worker": claimed.worker}
