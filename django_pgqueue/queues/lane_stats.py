"""
Lane stats: what waits in lanes, and for what.

Counts stop at a limit, as those of queues do (stats.py): half a million jobs of one key
cost as much as ten thousand. The statements are planned along indexes, in a transaction
of the caller's (postgres/limits.py, Plans.IN_ORDER): without statistics the planner
would gather all jobs of a lane and sort them, to show the first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django_pgqueue.bounds import FAIR, LANE_CAPACITY_MAX, PULL_LANES
from django_pgqueue.live_states import live_state
from django_pgqueue.postgres.cursor import Cursor
from django_pgqueue.postgres.limits import along_index
from django_pgqueue.queues.claim import IS_PAUSED
from django_pgqueue.queues.held import IS_HELD, is_lane_of_task
from django_pgqueue.queues.lanes import LANES_LOOKED_AT_MAX

# Rows counted of a lane and kind, unless the caller says otherwise; and of all lanes
# that are asked for at once, but of each at least so many.
COUNT_MAX = 10_000
ROWS_MAX = 500_000
COUNT_MIN = 100

# How far other lanes that take turns beside one are counted.
LANES_COUNTED = 100

# In the words of the index pgqueue_lane_controls.
SAID = "(l.paused_at IS NOT NULL OR l.capacity IS NOT NULL OR l.weight IS NOT NULL)"


# Locks: none; so have all of these. A loose index scan, as in lanes.py: one probe for
# each lane, which returns its first waiting job. Lanes of which an operator has said
# something are among them, whether jobs wait there or not. It ends with one more than
# was asked for, which says that there are more.
def _find(start: str, beyond: str, order: str) -> str:
    return f"""
WITH RECURSIVE lane(name, place, fits, found) AS (
    SELECT {start}, 0, false, 0
    UNION ALL
    SELECT next.lane, lane.place + 1, next.fits, lane.found + next.fits::integer
      FROM lane
     CROSS JOIN LATERAL (
           SELECT near.lane,
                  (%(text)s::text IS NULL
                   OR position(lower(%(text)s::text) IN lower(near.lane)) > 0)
                  AND (%(task)s::text IS NULL
                       OR coalesce(near.task = %(task)s::text, false)) AS fits
             FROM ((SELECT j.lane::text AS lane, j.task FROM pgqueue_job j
                     WHERE j.visible_at IS NULL AND j.lane {beyond} lane.name
                     ORDER BY j.lane {order}, j.id {order} LIMIT 1)
                    UNION ALL
                   (SELECT l.name::text, NULL FROM pgqueue_lane l
                     WHERE {SAID}
                       AND l.name {beyond} lane.name
                     ORDER BY l.name {order} LIMIT 1)) near
            ORDER BY near.lane {order}, near.task NULLS LAST LIMIT 1) next
     WHERE lane.place < %(looks)s AND lane.found <= %(limit)s
)
SELECT name, place, fits FROM lane
 WHERE fits OR place = (SELECT max(place) FROM lane) ORDER BY place
"""


FIND = _find("%(after)s::text", ">", "ASC")

# From the end, the start is behind the last one: a name that begins with it.
LAST = f"""coalesce(nullif(%(after)s::text, ''), greatest(
    (SELECT max(j.lane) FROM pgqueue_job j WHERE j.visible_at IS NULL),
    (SELECT max(l.name) FROM pgqueue_lane l WHERE {SAID})) || 'z', '')
"""
FIND_BACK = _find(LAST, "<", "DESC")

# What a lane is: its newest parked job says, as in promote.sql.
NEWEST = """(
SELECT j.id, j.task, j.lane_capacity AS capacity, j.lane_spacing AS spacing,
       coalesce(j.lane_burst, 1) AS burst, j.lane_policy AS policy FROM pgqueue_job j
 WHERE j.lane >= {lane} AND j.lane <= {lane} AND j.visible_at IS NULL
 ORDER BY j.lane DESC, j.id DESC LIMIT 1)
"""

# LIMIT 1 keeps it from becoming a join, for which the planner might read the table.
JOB = f"""(
SELECT j.id, j.task, j.queue, {live_state("j")} AS state, j.attempt, j.max_attempts,
       extract(epoch FROM statement_timestamp() -
               CASE WHEN j.visible_at IS NULL
                    THEN coalesce(j.lane_due_at, j.enqueued_at)
                    WHEN j.visible_at > statement_timestamp()
                         AND j.leased_by IS NOT NULL THEN j.leased_at
                    ELSE j.visible_at END)::float8 AS seconds,
       EXISTS (SELECT FROM pgqueue_queue q
                WHERE q.name = j.queue AND {IS_PAUSED}) AS is_paused,
       coalesce(j.lane_policy = '{FAIR}', false) AS is_fair
  FROM pgqueue_job j WHERE j.id = {{id}} LIMIT 1)
"""

# What an operator has said of a lane, or a circuit breaker. A pause that has ended by
# itself is none.
CONTROL = f"""(
SELECT l.weight, l.capacity, l.unclaimed,
       extract(epoch FROM l.full_at - statement_timestamp())::float8 AS full_seconds,
       held.*
  FROM pgqueue_lane l
  LEFT JOIN LATERAL (
       SELECT l.paused_at, l.paused_until, l.paused_by, l.pause_reason,
              extract(epoch FROM l.paused_until - statement_timestamp())::float8,
              l.breaker_trips
        WHERE {IS_HELD}
       ) held(paused_at, paused_until, paused_by, pause_reason, pause_seconds,
              breaker_trips) ON true
 WHERE l.name = {{lane}} LIMIT 1)
"""

# The same of the task whose jobs wait there, where its pause is another lane's.
OF_TASK = f"""(
SELECT l.name, l.paused_by, l.pause_reason,
       extract(epoch FROM l.paused_until - statement_timestamp())::float8 AS seconds,
       l.breaker_trips
  FROM pgqueue_lane l
 WHERE l.name = newest.task AND l.name <> asked.name AND {IS_HELD} LIMIT 1)
"""

# Who is next is said in promote.sql. Of those that were let through, first the one that
# has run for longest.
STATS = f"""
SELECT asked.name, newest.capacity, newest.spacing, newest.burst, newest.policy,
       parked.jobs, through.jobs, through.running, next.id,
       extract(epoch FROM statement_timestamp() - next.lane_due_at)::float8,
       control.*, of_task.*, head.*
  FROM unnest(%(lanes)s::text[]) WITH ORDINALITY asked(name, place)
  LEFT JOIN LATERAL {NEWEST.format(lane="asked.name")} newest ON true
  LEFT JOIN LATERAL {CONTROL.format(lane="asked.name")} control ON true
  LEFT JOIN LATERAL {OF_TASK} of_task ON true
 CROSS JOIN LATERAL (
       SELECT count(*) AS jobs FROM (
              SELECT FROM pgqueue_job j
               WHERE j.lane >= asked.name AND j.lane <= asked.name
                 AND j.visible_at IS NULL
               ORDER BY j.lane, j.id LIMIT %(limit)s) counted) parked
 CROSS JOIN LATERAL (
       SELECT count(*) AS jobs, count(leased_at) AS running,
              (array_agg(id ORDER BY leased_at, id))[1] AS longest
         FROM (SELECT j.id, CASE WHEN j.visible_at > statement_timestamp()
                                 THEN j.leased_at END AS leased_at
                 FROM pgqueue_job j
                WHERE j.lane >= asked.name AND j.lane <= asked.name
                  AND j.visible_at IS NOT NULL
                ORDER BY j.lane LIMIT %(limit)s) seen) through
  LEFT JOIN LATERAL (
       (SELECT j.id, j.lane_due_at FROM pgqueue_job j
         WHERE newest.capacity IS NULL
           AND j.lane >= asked.name AND j.lane <= asked.name
           AND j.visible_at IS NULL
           AND (j.deliveries = 0 OR j.lane_due_at <= statement_timestamp()
                OR newest.spacing IS NOT NULL)
         ORDER BY j.lane, j.id LIMIT 1)
        UNION ALL
       (SELECT j.id, j.lane_due_at FROM pgqueue_job j
         WHERE newest.capacity IS NOT NULL
           AND j.lane >= asked.name AND j.lane <= asked.name
           AND j.visible_at IS NULL AND j.lane_capacity IS NOT NULL
         ORDER BY j.lane, j.lane_due_at LIMIT 1)) next ON true
  LEFT JOIN LATERAL {JOB.format(id="coalesce(through.longest, next.id)")} head ON true
 WHERE num_nonnulls(newest.id, control.capacity, control.weight, control.paused_at) > 0
 ORDER BY asked.place
"""

# How many of its lane are let through before a job, of those that are parked. A limit
# counts by the same index as the promotion: rows of two columns are compared. So does a
# fair lane; and of others in the queue, by the loose scan of sql/turns.sql, how many
# there are, to a number.
PLACE = f"""
SELECT own.lane, before.jobs,
       extract(epoch FROM statement_timestamp() -
               coalesce(own.lane_due_at, own.enqueued_at))::float8,
       others.lanes
  FROM pgqueue_job own
 CROSS JOIN LATERAL {NEWEST.format(lane="own.lane")} newest
 CROSS JOIN LATERAL (
       SELECT count(*) AS jobs FROM (
              (SELECT FROM pgqueue_job j
                WHERE newest.capacity IS NULL
                  AND j.lane >= own.lane AND j.lane <= own.lane
                  AND j.visible_at IS NULL AND j.id < own.id
                  AND (j.deliveries = 0 OR j.lane_due_at <= statement_timestamp()
                OR newest.spacing IS NOT NULL)
                ORDER BY j.lane, j.id LIMIT %(limit)s)
               UNION ALL
              (SELECT FROM pgqueue_job j
                WHERE newest.capacity IS NOT NULL
                  AND j.lane >= own.lane
                  AND (j.lane, j.lane_due_at) < (own.lane, own.lane_due_at)
                  AND j.visible_at IS NULL AND j.lane_capacity IS NOT NULL
                ORDER BY j.lane, j.lane_due_at LIMIT %(limit)s)) counted) before
 CROSS JOIN LATERAL (
       WITH RECURSIVE lane(name, place) AS (
           (SELECT j.lane, 1 FROM pgqueue_job j
             WHERE newest.policy = '{FAIR}'
               AND (j.queue, j.lane) > (own.queue, '') AND j.queue <= own.queue
               AND j.visible_at IS NULL AND j.lane_policy = '{FAIR}'
             ORDER BY j.queue, j.lane LIMIT 1)
           UNION ALL
           SELECT (SELECT j.lane FROM pgqueue_job j
                    WHERE (j.queue, j.lane) > (own.queue, lane.name)
                      AND j.queue <= own.queue
                      AND j.visible_at IS NULL AND j.lane_policy = '{FAIR}'
                    ORDER BY j.queue, j.lane LIMIT 1), lane.place + 1
             FROM lane WHERE lane.name IS NOT NULL AND lane.place <= %(lanes)s)
       SELECT count(*) AS lanes FROM lane WHERE name <> own.lane) others
 WHERE own.id = %(id)s AND own.visible_at IS NULL AND own.lane IS NOT NULL
"""

# Of these groups, those whose job has failed and was let through: the others wait for
# its next attempt. Times are as somebody wrote them into the errors.
FAILING = f"""
SELECT asked.name, head.id, head.task, head.attempt, head.max_attempts,
       coalesce(head.errors -> -1 ->> 'type', head.errors -> -1 ->> 'kind'),
       head.errors -> 0 ->> 'at'
  FROM unnest(%(lanes)s::text[]) asked(name)
 CROSS JOIN LATERAL {NEWEST.format(lane="asked.name")} newest
 CROSS JOIN LATERAL (
       SELECT j.id, j.task, j.attempt, j.max_attempts, j.errors FROM pgqueue_job j
        WHERE j.lane >= asked.name AND j.lane <= asked.name
          AND j.visible_at IS NOT NULL
        ORDER BY j.lane LIMIT 1) head
 WHERE newest.capacity IS NULL AND head.attempt > 0 AND head.errors -> 0 IS NOT NULL
"""


# The columns of STATS, by the attributes of LaneStats; behind them those of a TaskPause
# and of a Head.
OF_LANE = (
    *("name", "capacity", "spacing", "burst", "policy", "waiting", "let_through"),
    *("running", "next_id", "due_seconds", "weight", "own_capacity", "unclaimed"),
    *("full_seconds", "paused_at", "paused_until", "paused_by", "pause_reason"),
    *("pause_seconds", "breaker_trips"),
)
HEAD_COLUMNS = 9


@dataclass(frozen=True, slots=True)
class Head:
    """
    The job that the others of a lane wait for.

    Attributes:
        id: Of the job.
        task: Its task.
        queue: Its queue.
        state: As in live_states.py. "parked": it was not let through.
        attempt: How many attempts have begun.
        max_attempts: How many it has.
        seconds: Of a running one, since its start; else since it has been due. Below
            zero: until then.
        is_paused: Whether its queue is.
        is_fair: Whether its lane takes turns with others.
    """

    id: int
    task: str
    queue: str
    state: str
    attempt: int
    max_attempts: int
    seconds: float
    is_paused: bool
    is_fair: bool = False


@dataclass(frozen=True, slots=True)
class TaskPause:
    """
    A pause of a task, by which all lanes of its jobs wait.

    Attributes:
        task: Its name.
        paused_by: Who has paused it.
        reason: Why.
        seconds: In how many seconds it ends; None: it does not by itself. Below zero:
            its circuit breaker waits for the probe.
        breaker_trips: How often in a row that has opened; 0: an operator has paused it.
    """

    task: str
    paused_by: str | None
    reason: str | None
    seconds: float | None
    breaker_trips: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneStats:
    """
    A lane in which jobs wait, or of which an operator has said something.

    Attributes:
        name: Of the lane.
        capacity: How many it lets through at a time, by its jobs; None: a group, one
            and in order, or nothing waits.
        waiting: How many are parked.
        let_through: How many it has let through and that are not done.
        running: How many of these run.
        next_id: Which is let through next; None: none can be now.
        due_seconds: For how long that one has been due; below zero: until it is.
        head: What the others wait for: of those that were let through, the one that has
            run for longest; else the next. None: it has just gone.
        own_capacity: What an operator has said in place of it.
        spacing: Of a rate, seconds from one job to the next; None: it has none.
        policy: Of a group, what one that fails does to the others; "fair": it takes
            turns with other lanes, and claims let its jobs through.
        weight: What an operator has said: how many jobs a fair lane has in a turn.
        turn_seconds: In how many of them it lets the next one through; zero: now.
        breaker_trips: Of the lane of a task, how often in a row its circuit breaker has
            opened; None: it has not.
        task_pause: What holds all jobs of the task whose jobs wait here; None: nothing,
            or the pause of this very lane.
        count_max: How far each number was counted; one that is equal to it means "this
            many, or more".
    """

    name: str
    capacity: int | None
    waiting: int
    let_through: int
    running: int
    next_id: int | None
    due_seconds: float | None
    head: Head | None
    own_capacity: int | None = None
    spacing: float | None = None
    policy: str | None = None
    weight: int | None = None
    turn_seconds: float = 0.0
    paused_at: datetime | None = None
    paused_until: datetime | None = None
    paused_by: str | None = None
    pause_reason: str | None = None
    pause_seconds: float | None = None
    breaker_trips: int | None = None
    task_pause: TaskPause | None = None
    count_max: int = COUNT_MAX

    @property
    def is_group(self) -> bool:
        """Whether it is known to be a group: a job waits that says so."""
        return self.capacity is None and self.waiting > 0

    @property
    def is_rate(self) -> bool:
        """Whether it has a rate, and lets any number through at a time."""
        return self.spacing is not None and self.takes == LANE_CAPACITY_MAX

    @property
    def is_fair(self) -> bool:
        """Whether it takes turns with other lanes."""
        return self.policy == FAIR

    @property
    def is_task(self) -> bool:
        """Whether jobs wait here that are in no lane, since their task is paused."""
        head = self.head
        return head is not None and is_lane_of_task(
            self.name, head.task, self.capacity, self.spacing, self.policy
        )

    @property
    def takes(self) -> int:
        """How many it lets through at a time; a group takes one, whoever says what."""
        return 1 if self.is_group else self.own_capacity or self.capacity or 1

    @property
    def is_paused(self) -> bool:
        """Whether an operator, or a circuit breaker, lets nothing through here."""
        return self.paused_at is not None

    @property
    def has_room(self) -> bool:
        """
        Whether it could let another one through.

        Of a fair lane claims do that, and of one of a pull queue receivers.
        """
        if self.name.startswith(PULL_LANES):
            return False
        is_full = self.let_through >= min(self.takes, self.count_max)
        is_held = self.is_paused or self.task_pause is not None or self.is_fair
        return not is_full and not is_held and self.turn_seconds <= 0

    def is_more(self, number: int) -> bool:
        """Return whether there may be more than *number*, one of the counts."""
        return number >= self.count_max


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """
    Where a parked job stands in its lane.

    Attributes:
        id: Of the job.
        before: How many of those that are parked are let through before it.
        due_seconds: For how long it has been due; below zero: until it is.
        lane: The lane.
        others: With how many other lanes of its queue a fair one takes turns, up to
            LANES_COUNTED.
    """

    id: int
    before: int
    due_seconds: float
    lane: LaneStats
    others: int = 0


@dataclass(frozen=True, slots=True)
class FailingHead:
    """
    A job that has failed, and for which its group waits.

    Attributes:
        lane: The name of the group.
        id: Of the job.
        task: Its task.
        attempt: How many attempts have begun.
        max_attempts: How many it has.
        error: The type of its last error.
        first_at: When it failed first, as its errors have it: any text.
    """

    lane: str
    id: int
    task: str
    attempt: int
    max_attempts: int
    error: str | None
    first_at: str | None


@dataclass(frozen=True, slots=True)
class Found:
    """
    Names of lanes.

    Attributes:
        lanes: In their order.
        after: Go on after this one; None: that was all.
        is_cut: Whether there are fewer than asked for because so many were looked at.
    """

    lanes: list[str]
    after: str | None
    is_cut: bool


def find_lanes(
    cursor: Cursor,
    *,
    after: str = "",
    limit: int,
    looks: int,
    text: str | None = None,
    task: str | None = None,
    is_back: bool = False,
) -> Found:
    """
    Return lanes in which jobs wait, in the order of their names.

    And those that an operator has paused, or given a capacity or a weight.

    Args:
        cursor: An open cursor.
        after: Begin after this name; "": at the beginning.
        limit: How many to return.
        looks: How many to look at.
        text: Part of the name, in letters of either case; None: whatever.
        task: Of the job that has waited for longest; None: whatever.
        is_back: In the opposite order, with what comes before *after*; "": the end.
            There, *task* is that of the job that was stored last.
    """
    rows = _read(
        cursor,
        FIND_BACK if is_back else FIND,
        {"after": after, "limit": limit, "looks": looks, "text": text, "task": task},
    )
    names = [name for name, _, fits in rows if fits]
    if len(names) > limit:
        return Found(names[:limit], names[limit - 1], is_cut=False)
    last, place, _ = rows[-1]
    is_cut = place >= looks
    return Found(names, last if is_cut else None, is_cut)


def walk_lanes(cursor: Cursor, *, looks: int) -> Iterator[list[str]]:
    """Yield lanes in which jobs wait, *looks* at most, in parts that take no time."""
    after: str | None = ""
    while after is not None and looks > 0:
        step = min(looks, LANES_LOOKED_AT_MAX)
        found = find_lanes(cursor, after=after, limit=step, looks=step)
        yield found.lanes
        after, looks = found.after, looks - step


def lane_stats(
    cursor: Cursor, lanes: Sequence[str], count_max: int = COUNT_MAX
) -> list[LaneStats]:
    """
    Count the jobs of *lanes*, and say what they wait for; in their order.

    One in which nothing waits, and of which no operator has said anything, is left out.

    Args:
        cursor: An open cursor.
        lanes: Names.
        count_max: How far to count; less with many lanes.
    """
    if not lanes:
        return []
    limit = min(count_max, max(ROWS_MAX // len(lanes), COUNT_MIN))
    rows = _read(cursor, STATS, {"lanes": list(lanes), "limit": limit})
    return [_stats(row, limit) for row in rows]


def place_of(cursor: Cursor, job: int, count_max: int = COUNT_MAX) -> Place | None:
    """Return where the job of this id stands in its lane; None: it does not wait."""
    asked = {"id": job, "limit": count_max, "lanes": LANES_COUNTED}
    rows = _read(cursor, PLACE, asked)
    if not rows:
        return None
    name, before, seconds, others = rows[0]
    stats = lane_stats(cursor, [name], count_max)
    if not stats:
        return None
    return Place(
        id=job,
        before=before,
        due_seconds=seconds,
        lane=stats[0],
        others=min(others, LANES_COUNTED),
    )


def failing_heads(cursor: Cursor, lanes: Sequence[str]) -> list[FailingHead]:
    """Return the jobs that have failed, and for which groups among *lanes* wait."""
    rows = _read(cursor, FAILING, {"lanes": list(lanes)})
    return [FailingHead(*row) for row in rows]


def _read(
    cursor: Cursor, statement: str, params: Mapping[str, Any]
) -> list[tuple[Any, ...]]:
    with along_index(cursor):
        cursor.execute(statement, params)
        return cursor.fetchall()


def _stats(row: Sequence[Any], limit: int) -> LaneStats:
    own = dict(zip(OF_LANE, row, strict=False))
    of_task, head = row[len(OF_LANE) : -HEAD_COLUMNS], row[-HEAD_COLUMNS:]
    burst, unclaimed, full = map(own.pop, ("burst", "unclaimed", "full_seconds"))
    turn_seconds = 0.0
    if own["spacing"] is not None and full is not None:
        # As sql/promote.sql: what nobody has claimed counts as just let through.
        full = max(full, unclaimed * own["spacing"])
        turn_seconds = max(full - (burst - 1) * own["spacing"], 0.0)
    return LaneStats(
        **{**own, "breaker_trips": own["breaker_trips"] or None},
        head=None if head[0] is None else Head(*head),
        turn_seconds=turn_seconds,
        task_pause=None if of_task[0] is None else TaskPause(*of_task),
        count_max=limit,
    )
