"""
Doctor: the statements by which findings look at jobs, workers and sagas.

Every count stops at a limit, so that asking costs the same in any table.
"""

from __future__ import annotations

import json
from typing import NamedTuple

from django_pgqueue.bounds import PULL_TASK
from django_pgqueue.postgres.cursor import Cursor
from django_pgqueue.queues.bands import ALL_BANDS

# Locks: none; so have all of these.
# Leases that ran out and whose job nobody has taken: workers that died, and none that
# lives. Of each band, the oldest due rows. A receiver of a pull queue gives a message
# up in that way.
LAPSED = f"""
WITH RECURSIVE {ALL_BANDS}
SELECT count(due.leased_by) AS jobs,
       extract(epoch FROM statement_timestamp() - min(due.visible_at)
               FILTER (WHERE due.leased_by IS NOT NULL))::float8 AS seconds
  FROM band
 CROSS JOIN LATERAL (
       SELECT CASE WHEN j.task <> '{PULL_TASK}' THEN j.leased_by END AS leased_by,
              j.visible_at
         FROM pgqueue_job j
        WHERE j.queue = band.queue AND j.priority = band.priority
          AND j.visible_at <= statement_timestamp()
        ORDER BY j.visible_at LIMIT %(limit)s) due
"""

WORKERS = """
SELECT name, queues,
       extract(epoch FROM statement_timestamp() - heartbeat_at)::float8,
       coalesce(leader_until > statement_timestamp(), false), version, threads,
       async_slots
  FROM pgqueue_worker ORDER BY heartbeat_at DESC LIMIT %(limit)s
"""

# The tasks of the oldest and of the newest jobs.
TASKS = """
SELECT task FROM (
    SELECT task FROM (SELECT id, task FROM pgqueue_job ORDER BY id LIMIT %(limit)s) o
    UNION ALL
    SELECT task FROM (SELECT id, task FROM pgqueue_job
                       ORDER BY id DESC LIMIT %(limit)s) n
) seen GROUP BY task ORDER BY count(*) DESC
"""

# Along the index of their times, no further than the limit.
NEW_DEAD_LETTERS = """
SELECT task, reason, count(*) AS jobs,
       count(*) FILTER (WHERE finished_at > statement_timestamp() - interval '1 hour')
           AS in_hour
  FROM (SELECT task, reason, finished_at FROM pgqueue_dead_letter
         WHERE finished_at > statement_timestamp() - %(period)s::interval
         ORDER BY finished_at DESC LIMIT %(limit)s) fresh
 GROUP BY task, reason ORDER BY 3 DESC, 1, 2
"""

# Along the index of sagas that compensate, no further than the limit. Of each, one
# compensation is started or dead at a time. Of its steps as Keyset.within says.
STUCK_SAGAS = """
SELECT w.id, w.name, w.key, s.id AS job, s.name AS compensation, s.state, j.failures
  FROM (SELECT id, name, key FROM pgqueue_workflow
         WHERE state = 'compensating' ORDER BY id LIMIT %(limit)s) w
 CROSS JOIN LATERAL (
       SELECT id, name, state FROM pgqueue_step
        WHERE workflow_id BETWEEN w.id AND w.id AND kind = 'compensation'
          AND state IN ('dead', 'started')
        ORDER BY workflow_id, id LIMIT 1) s
  LEFT JOIN LATERAL (
       SELECT attempt - CASE WHEN leased_by IS NULL THEN 0 ELSE 1 END AS failures
         FROM pgqueue_job WHERE id = s.id LIMIT 1) j ON true
 WHERE s.state = 'dead' OR j.failures >= %(attempts)s
 ORDER BY s.state = 'started', w.id
"""


class Seen(NamedTuple):
    """A worker process, by its row."""

    name: str
    queues: list[str]  # Empty: all.
    silent_seconds: float
    leads: bool
    version: str
    threads: int
    async_slots: int


def workers_seen(cursor: Cursor, *, limit: int) -> list[Seen]:
    """Return the workers, those that were heard of last first."""
    cursor.execute(WORKERS, {"limit": limit})
    # Django's cursors leave JSON as text.
    return [
        Seen(name, json.loads(queues) if isinstance(queues, str) else queues, *rest)
        for name, queues, *rest in cursor.fetchall()
    ]
