"""
From the archive: jobs that have ended, once more, by one statement of the database.

What the first life of a job has left in it stays behind: errors, attempts, its dedup
key, its workflow. A job of a message is left out, since it only refers to that: replay
the message.
"""

from __future__ import annotations

from typing import Any

from psycopg import sql

from django_pgqueue.spark.replay import named
from django_pgqueue.spark.replay.asked import OF_JOBS, QUEUE, Asked, moment_of
from django_pgqueue.spark.run import Run
from django_pgqueue.spark.write.journal import Outcome, Write, marks
from django_pgqueue.spark.write.staged import DUE_AT, MARKED, hints_of

# Lines of a preview; the rest is told together.
LINES_MAX = 15

# By the days of the archive: finished_at chooses its partitions. It ends with what has
# ended when the run began.
MEANT = """
  FROM pgqueue_archived_job a
 WHERE a.finished_at >= %(since)s::timestamptz
   AND a.finished_at < %(until)s::timestamptz
   AND (%(task)s::text IS NULL OR a.task = %(task)s)
   AND (%(queue)s::text IS NULL OR a.queue = %(queue)s)
   AND (%(state)s::text IS NULL OR a.state = %(state)s)
"""
# Locks: none.
COUNT = f"""
SELECT a.task, (a.finished_at AT TIME ZONE 'UTC')::date::text, count(*),
       count(a.message_id)
  {MEANT} GROUP BY 1, 2 ORDER BY 1, 2
"""
# Locks: as an enqueue. In the order in which the jobs were enqueued.
REPLAY = f"""
WITH made AS (
INSERT INTO pgqueue_job
       (task, queue, args, kwargs, headers, priority, max_attempts, run_after, lane,
        lane_capacity, lane_spacing, lane_burst, lane_policy)
SELECT a.task, coalesce(%(into)s::text, a.queue), a.args, a.kwargs, {{headers}},
       a.priority, a.max_attempts, {{due_at}}, a.lane, a.lane_capacity, a.lane_spacing,
       a.lane_burst, a.lane_policy
  {MEANT} AND a.message_id IS NULL
 ORDER BY a.id
RETURNING queue, lane, lane_policy)
SELECT queue, count(*), count(lane), count(lane) FILTER (WHERE lane_policy = 'fair')
  FROM made GROUP BY queue
"""


def replay(run: Run, asked: Asked, *, is_preview: bool) -> int:
    """
    Enqueue jobs of the archive again; return how many.

    Raises:
        SparkError: Another run was quicker under that name.
    """
    until = None if asked.until is None else moment_of(asked.until, run.started_at)
    params: dict[str, Any] = {
        "since": moment_of(asked.since, run.started_at) or "-infinity",
        "until": until or run.started_at,
        "into": asked.to.removeprefix(QUEUE) or None,
        "rate": asked.rate,
        **dict.fromkeys(OF_JOBS),
        **asked.jobs,
    }
    if is_preview:
        with run.reading() as cursor:
            cursor.execute(COUNT, params)
            tell(run, cursor.fetchall(), "jobs")
        return 0
    if named.is_written(run, asked.name):
        return 0

    def enqueue(connection: Any, write: Write, outcome: Outcome) -> None:
        statement = sql.SQL(REPLAY).format(
            headers=sql.SQL(MARKED.format(headers="a.headers")),
            due_at=sql.SQL(DUE_AT.format(order="ORDER BY a.id")),
        )
        made = connection.execute(statement, {**params, "marks": marks(write)})
        for queue, jobs, in_lanes, in_turn in made.fetchall():
            outcome.rows += jobs
            outcome.queues.add(queue)
            outcome.hints |= hints_of(queue, in_lanes, in_turn)

    done = named.write(run, asked.name, enqueue).rows
    run.rows_in += done
    if done:
        run.note(f"archive → {asked.to or 'their queues'}: {done:,} jobs.")
    return done


def tell(run: Run, found: list[Any], what: str) -> None:
    """
    Note what would be replayed.

    Args:
        found: Of each task or name and each day: how many, and how many of them are
            left out, since they are jobs of messages.
        what: "jobs" or "messages".
    """
    total = sum(count for _, _, count, _ in found)
    left_out = sum(others for *_, others in found)
    run.rows_in += total
    for name, day, count, others in found[:LINES_MAX]:
        run.note(f"{name} {day}: {count - others:,}")
    if len(found) > LINES_MAX:
        rest = sum(count - others for _, _, count, others in found[LINES_MAX:])
        run.note(f"{len(found) - LINES_MAX:,} more: {rest:,}")
    if left_out:
        run.note(f"Left out are {left_out:,} jobs of messages: replay those.")
    run.note(f"{total - left_out:,} {what} in all. Nothing was written.")
