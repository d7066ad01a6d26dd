"""
Held: tasks whose jobs wait, by an operator's word or that of a circuit breaker.

The lane that has the name of a task is that of all its jobs (sql/promote.sql). While it
is paused, no lane lets a job of the task through. Claims pass over jobs in no lane, and
over those that were tried before, as the first of a group that has failed. Who claims
parks them (claim.py), there or in their own lane: each is written once, and neither
leased nor tried. With breaker_trips that goes on once the pause has ended: promotions
let one job at a time through, until this probe has closed the breaker. What an operator
releases meanwhile is a probe, too.
"""

from __future__ import annotations

from django_pgqueue.bounds import LANE_CAPACITY_MAX

# What is notified instead of a queue's name: other tasks are held, or not any more.
HINT = "!held"

# Of row l of pgqueue_lane. In words that the index pgqueue_lane_controls knows.
IS_HELD = """
(l.paused_at IS NOT NULL
 AND (l.paused_until IS NULL OR l.paused_until > statement_timestamp()
      OR l.breaker_trips > 0))
"""

# Whether a job j waits, if its task is held. What its lane has let through before goes
# on, the first time.
IS_FOR_IT = "(j.lane IS NULL OR j.deliveries > 0)"

# Whether a job j waits; for claims of few jobs.
WAITS = f"""
({IS_FOR_IT}
 AND EXISTS (SELECT FROM pgqueue_lane l
              WHERE l.name = j.task AND l.probe_id IS DISTINCT FROM j.id AND {IS_HELD}))
"""


def is_lane_of_task(
    lane: str,
    task: str,
    capacity: int | None,
    spacing: float | None,
    policy: str | None,
) -> bool:
    """
    Return whether jobs say that they were put into *lane* since *task* was paused.

    A limit of so many of all jobs of a task says the same, and does the same.
    """
    return (
        lane == task
        and (spacing, policy) == (None, None)
        and capacity == LANE_CAPACITY_MAX
    )
