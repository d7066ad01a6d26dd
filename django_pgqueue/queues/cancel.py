"""
Cancel: a job that waits is archived at once; one that runs is asked to stop.

Cancel meets every other verb on the same row, so it takes the row's lock first and
decides by what it then finds. Whoever comes second finds no row, or another delivery.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from django_pgqueue.postgres.cursor import Cursor
from django_pgqueue.queues.errors import ROOM_FOR_ONE
from django_pgqueue.queues.settle import ARCHIVED_COLUMNS, KEPT_COLUMNS
from django_pgqueue.queues.unique import forget_calls

# Rows per statement: an operator may select a hundred thousand.
CANCEL_ROWS_MAX = 1_000

# Claims, settles and heartbeats hold a row for milliseconds. What they hold is asked
# for again after these seconds, and passed over when it is still held.
ASK_AGAIN_SECONDS = (0.005, 0.02, 0.1)

# A lapsed lease is taken over, as a claim would: the fence rises, so that no settle of
# its old worker counts as applied.
COLUMNS_CANCELLED = ARCHIVED_COLUMNS.replace(
    "deliveries",
    "least(deliveries, 2147483646) + CASE WHEN leased_by IS NULL THEN 0 ELSE 1 END",
)

# One more entry: who cancelled, and when.
ENTRY = """
jsonb_strip_nulls(jsonb_build_object(
    'kind', {kind}, 'by', nullif(%(by)s::text, ''), 'at', statement_timestamp(),
    'message', {message}))
"""
CANCELLED_ENTRY = ENTRY.format(
    kind="'cancelled'", message="'Cancelled while it was not running.'"
)
REQUESTED_ENTRY = ENTRY.format(
    kind="'cancel_requested'", message="'Asked to stop while it was running.'"
)

# Locks: row locks on the chosen jobs, until the caller's transaction ends. SKIP LOCKED
# and never a wait: settles lock many rows in an order of their own, so a cancel of
# several that waited for one of them could deadlock. What is held by somebody is named
# in the answer, and asked for again.
# is_running is read from the locked row, not from the snapshot: a claim that committed
# a moment ago makes a request of what was to be a cancellation.
# A job that is parked or waits for its time is not running, and neither is one whose
# lease has lapsed: people are shown it as ready.
# The DELETE feeds the INSERT: a job is in exactly one table in every snapshot.
# Raises 23514 when the archive has no partition for today: the caller makes it
# (postgres/day_tables.py) and runs the same statement again.
CANCEL = f"""
WITH chosen AS MATERIALIZED (
    SELECT j.id,
           j.leased_by IS NOT NULL AND j.visible_at > statement_timestamp()
               AS is_running
      FROM pgqueue_job j WHERE j.id = ANY(%(ids)s::bigint[])
       FOR UPDATE SKIP LOCKED),
gone AS (
    DELETE FROM pgqueue_job AS j
     WHERE j.id = ANY(ARRAY(SELECT id FROM chosen WHERE NOT is_running))
    RETURNING j.*, {ROOM_FOR_ONE} || {CANCELLED_ENTRY} AS all_errors),
archived AS (
    INSERT INTO pgqueue_archived_job ({KEPT_COLUMNS}, errors, state, finished_at)
    SELECT {COLUMNS_CANCELLED}, all_errors, 'cancelled', statement_timestamp()
      FROM gone
    RETURNING id, lane),
asked AS (
    UPDATE pgqueue_job AS j
       SET cancel_requested_at = coalesce(j.cancel_requested_at,
                                          statement_timestamp()),
           errors = CASE WHEN j.cancel_requested_at IS NOT NULL THEN j.errors
                         ELSE {ROOM_FOR_ONE} || {REQUESTED_ENTRY} END
     WHERE j.id = ANY(ARRAY(SELECT id FROM chosen WHERE is_running))
    RETURNING j.id)
SELECT id, 'cancelled', lane FROM archived
UNION ALL
SELECT id, 'requested', NULL FROM asked
UNION ALL
SELECT j.id, 'locked', NULL FROM pgqueue_job j
 WHERE j.id = ANY(%(ids)s::bigint[])
   AND NOT EXISTS (SELECT 1 FROM chosen WHERE chosen.id = j.id)
"""


@dataclass(slots=True)
class CancelAnswer:
    """
    What became of jobs that were to be cancelled. The rest had ended, or never was.

    Attributes:
        cancelled: Those that did not run; they are in the archive now.
        requested: Those that run; they are asked to stop.
        locked: Those that somebody else kept locked all the while.
        lanes: Of those that are in the archive now: to be promoted after the commit.
    """

    cancelled: list[int] = field(default_factory=list)
    requested: list[int] = field(default_factory=list)
    locked: list[int] = field(default_factory=list)
    lanes: set[str] = field(default_factory=set)


def cancel(
    cursor: Cursor,
    ids: Sequence[int],
    *,
    by: str = "",
    sleep: Callable[[float], None] = time.sleep,
) -> CancelAnswer:
    """
    Archive the jobs *ids* that do not run, and ask those that run to stop.

    Waits for what others have locked, about an eighth of a second in all.

    Args:
        cursor: An open cursor; the caller commits.
        ids: Of jobs; those that have ended are passed over.
        by: Who cancels, for the errors of the jobs; "": nobody is named.
        sleep: Waits the seconds it is given.

    Raises:
        CheckViolation: (23514, Django's IntegrityError) no partition for today.
    """
    answer = CancelAnswer()
    answer.locked = _pass(cursor, list(ids), by, answer)
    for seconds in ASK_AGAIN_SECONDS:
        if not answer.locked:
            break
        sleep(seconds)
        answer.locked = _pass(cursor, answer.locked, by, answer)
    if answer.cancelled:
        forget_calls(cursor, answer.cancelled)
    return answer


def _pass(cursor: Cursor, ids: list[int], by: str, answer: CancelAnswer) -> list[int]:
    """Cancel what nobody holds; return what somebody does."""
    found: dict[str, list[int]] = {
        "cancelled": answer.cancelled,
        "requested": answer.requested,
        "locked": [],
    }
    for start in range(0, len(ids), CANCEL_ROWS_MAX):
        chunk = ids[start : start + CANCEL_ROWS_MAX]
        cursor.execute(CANCEL, {"ids": chunk, "by": by})
        for job_id, what, lane in cursor.fetchall():
            found[what].append(job_id)
            if lane is not None:
                answer.lanes.add(lane)
    return found["locked"]
