"""
Breakers: the lane of a task is paused by its circuit breaker, and its probe decides.

Open, the lane that has the task's name is paused for the cool-down. Half-open, that has
passed, and promotions let one job through, the probe (sql/promote.sql). Closed again,
its row says nothing of it. What an operator says comes first: a pause of his has no
trips, so nothing here matches it; his resume closes the breaker.

Each waits for a promotion of the task's own lane (lane_controls.hold()), so that it
lets nothing through once this is committed.
"""

from __future__ import annotations

from datetime import timedelta
from typing import NamedTuple

from django_pgqueue.options.breaker import COOLDOWNS_MAX
from django_pgqueue.postgres.cursor import Cursor, has_row, record
from django_pgqueue.queues import lane_controls
from django_pgqueue.queues.lane_controls import hold

# Who has paused the lane.
BREAKER = "breaker"

# Locks: the row of the lane; so have all of these. Of several processes that open it at
# once, the second finds it open.
OPEN = f"""
INSERT INTO pgqueue_lane AS l
       (name, paused_at, paused_until, paused_by, pause_reason, breaker_trips)
VALUES (%(task)s, statement_timestamp(), statement_timestamp() + %(cooldown)s::interval,
        '{BREAKER}', %(reason)s, 1)
ON CONFLICT (name) DO UPDATE
   SET paused_at = EXCLUDED.paused_at, paused_until = EXCLUDED.paused_until,
       paused_by = EXCLUDED.paused_by, pause_reason = EXCLUDED.pause_reason,
       breaker_trips = 1, probe_id = NULL
 WHERE l.breaker_trips = 0
   AND (l.paused_at IS NULL OR l.paused_until <= statement_timestamp())
RETURNING breaker_trips,
          extract(epoch FROM paused_until - statement_timestamp())::float8
"""

# The probe has failed.
OPEN_AGAIN = f"""
UPDATE pgqueue_lane
   SET paused_at = statement_timestamp(),
       paused_until = statement_timestamp() + %(cooldown)s::interval
           * least(2 ^ least(breaker_trips, 30), {COOLDOWNS_MAX}),
       pause_reason = %(reason)s, breaker_trips = least(breaker_trips, 2147483646) + 1,
       probe_id = NULL
 WHERE name = %(task)s AND breaker_trips > 0 AND probe_id = %(id)s
   AND paused_until <= statement_timestamp()
RETURNING breaker_trips,
          extract(epoch FROM paused_until - statement_timestamp())::float8
"""

# The probe has succeeded.
CLOSE = """
UPDATE pgqueue_lane
   SET paused_at = NULL, paused_until = NULL, paused_by = NULL, pause_reason = NULL,
       breaker_trips = 0, probe_id = NULL
 WHERE name = %(task)s AND breaker_trips > 0 AND probe_id = %(id)s
   AND paused_until <= statement_timestamp()
RETURNING name
"""


class Opened(NamedTuple):
    """A breaker that has opened: how often in a row, and for how many seconds."""

    trips: int
    seconds: float


def open_breaker(
    cursor: Cursor, task: str, *, cooldown: timedelta, reason: str
) -> Opened | None:
    """
    Pause *task* for the cool-down; None: it is paused already, by whomever.

    Args:
        cursor: In a transaction; the caller commits, and sends held.HINT.
        task: Its name.
        cooldown: Until the probe.
        reason: Why, as a pause has it.
    """
    hold(cursor, [task])
    told = {"task": task, "cooldown": cooldown, "reason": reason}
    return record(Opened, cursor, OPEN, **told)


def open_again(
    cursor: Cursor, task: str, probe: int, *, cooldown: timedelta, reason: str
) -> Opened | None:
    """
    Pause *task* anew, since its probe has failed; None: that job is not its probe.

    As open_breaker(), twice as long as the last time, up to COOLDOWNS_MAX times.
    """
    hold(cursor, [task])
    told = {"task": task, "id": probe, "cooldown": cooldown, "reason": reason}
    return record(Opened, cursor, OPEN_AGAIN, **told)


def close(cursor: Cursor, task: str, probe: int) -> bool:
    """
    Let *task* go on, since its probe has succeeded; False: that job is not its probe.

    To be promoted after the commit, and held.HINT to be sent.
    """
    hold(cursor, [task])
    is_closed = has_row(cursor, CLOSE, task=task, id=probe)
    cursor.execute(lane_controls.FORGET, {"lane": task})
    return is_closed
