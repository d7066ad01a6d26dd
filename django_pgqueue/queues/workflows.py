"""
Workflows: steps that come after one another.

They are stored here, and advanced by the database, where the jobs of their steps end:
sql/steps_ended.sql.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from django_pgqueue.live_states import UNNEEDED, state_of_step
from django_pgqueue.postgres.cursor import Cursor, column, one_row, record, rows, value
from django_pgqueue.queues.enqueue import OF_LANE, Placement

# Locks: those of the function.
START = """
SELECT workflow, first_id, is_new, refused FROM pgqueue_start_workflow(
    %(name)s::text, %(key)s::text, %(steps)s::jsonb, %(ends)s::int[], %(is_list)s::bool,
    %(kind)s::text, %(is_open)s::bool, %(deadline)s::interval, %(version)s::text,
    %(parent)s::bigint)
"""

# Locks: those of the function.
ADD = "SELECT pgqueue_add_steps(%(workflow)s::bigint, %(steps)s::jsonb)"

# Locks: those of the function.
CLOSE = "SELECT pgqueue_close_workflow(%(workflow)s::bigint)"

# Locks: none. The batch that a job is of; none of another workflow.
BATCH_OF = """
SELECT w.id FROM pgqueue_step s JOIN pgqueue_workflow w ON w.id = s.workflow_id
 WHERE s.id = %(step)s AND w.kind = 'batch'
"""

# Locks: none.
WITH_KEY = """
SELECT w.id FROM pgqueue_workflow w
 WHERE w.name = %(name)s AND w.key = %(key)s AND w.kind = %(kind)s
"""

# Locks: none. By id, one after another.
FIND = """
SELECT w.id, w.name, w.key, w.kind, w.state, w.steps, w.active, w.succeeded,
       w.skipped, w.dead, w.cancelled, w.is_list, w.created_at, w.finished_at,
       w.cancel_requested_at, w.version, w.parent_id
  FROM pgqueue_workflow w WHERE w.id = ANY(%(ids)s::bigint[])
"""

# Locks: none.
RESULTS = """
SELECT e.id, s.result::text
  FROM pgqueue_workflow w
 CROSS JOIN LATERAL unnest(w.ends) WITH ORDINALITY AS e(id, place)
  JOIN pgqueue_step s ON s.id = e.id
 WHERE w.id = %(workflow)s ORDER BY e.place
"""

# Locks: none. The order of the steps is that in which they were told. A range of one:
# else the order is that of the id alone, whose index passes the steps of all before it.
STEPS = """
SELECT s.id, s.name, s.kind, s.task, s.compensates, s.state, s.result::text,
       s.error::text, s.started_at, s.finished_at,
       (SELECT w.state FROM pgqueue_workflow w WHERE w.id = %(workflow)s)
  FROM pgqueue_step s
 WHERE s.workflow_id BETWEEN %(workflow)s AND %(workflow)s AND s.id > %(after)s::bigint
 ORDER BY s.workflow_id, s.id LIMIT %(limit)s
"""

# Locks: the rows of the workflow and of the batches that it is in, until the end of the
# transaction, so that no settle starts a step meanwhile.
LOCK = "SELECT pgqueue_lock_workflows(ARRAY[%(workflow)s::bigint])"

# Locks: the rows of the workflows that these jobs are steps of, and of the batches that
# those are in.
LOCK_OF = """
SELECT pgqueue_lock_workflows(ARRAY(
    SELECT DISTINCT s.workflow_id FROM pgqueue_step s
     WHERE s.id = ANY(%(ids)s::bigint[])))
"""

# Locks: row locks on the batches in it, and on the steps of all. What is started is
# cancelled as jobs are, by the caller, who then sees the workflow end.
CANCEL = """
WITH asked AS (
    UPDATE pgqueue_workflow w
       SET cancel_requested_at = statement_timestamp(),
           is_overdue = %(is_overdue)s::bool
     WHERE w.state = 'running' AND w.cancel_requested_at IS NULL
       AND w.id = ANY(ARRAY(SELECT unnest(pgqueue_batches_in(%(workflow)s))))
       AND EXISTS (SELECT FROM pgqueue_workflow asked
                    WHERE asked.id = %(workflow)s AND asked.state = 'running'
                      AND asked.cancel_requested_at IS NULL)
    RETURNING w.id),
no_undo AS (
    UPDATE pgqueue_step s SET state = 'cancelled', finished_at = statement_timestamp()
      FROM asked
     WHERE s.workflow_id = asked.id AND s.kind = 'compensation'
       AND s.state = 'waiting' AND NOT %(compensate)s::bool),
left_out AS (
    UPDATE pgqueue_step s
       SET state = 'cancelled', finished_at = statement_timestamp()
      FROM asked
     WHERE s.workflow_id = asked.id AND s.kind = 'step' AND s.state = 'waiting'
    RETURNING s.workflow_id, s.task)
SELECT a.id, (SELECT count(l.task) FROM left_out l WHERE l.workflow_id = a.id)
  FROM asked a
"""
LEFT_OUT = """
UPDATE pgqueue_workflow w SET cancelled = w.cancelled + c.count
  FROM unnest(%(workflows)s::bigint[], %(counts)s::int[]) AS c(id, count)
 WHERE w.id = c.id
"""

# Locks: the rows of the workflows, which are locked already, and of their steps.
ADVANCE = "SELECT pgqueue_advance(%(workflows)s::bigint[], NULL, NULL, true)"

# Locks: the row of the workflow, until the end of the transaction; row locks on its
# steps. Compensations that are dead and have no dead letter: it was deleted, or there
# never was a job.
RESOLVE = """
WITH locked AS MATERIALIZED (
    SELECT w.id FROM pgqueue_workflow w
     WHERE w.id = %(workflow)s AND w.state = 'compensating' FOR NO KEY UPDATE)
UPDATE pgqueue_step s
   SET state = CASE WHEN %(again)s::bool THEN 'waiting' ELSE 'cancelled' END
  FROM locked
 WHERE s.workflow_id = locked.id AND s.kind = 'compensation' AND s.state = 'dead'
   AND NOT EXISTS (SELECT FROM pgqueue_dead_letter d WHERE d.id = s.id)
RETURNING s.id
"""
COMPENSATE = "SELECT pgqueue_compensate(ARRAY[%(workflow)s::bigint], true)"

# Locks: none. Those that a person has to see to.
STUCK = """
SELECT s.id FROM pgqueue_step s
 WHERE s.workflow_id = %(workflow)s AND s.kind = 'compensation' AND s.state = 'dead'
 ORDER BY s.id
"""

# Locks: none. Those that should have ended by now, the most overdue first.
OVERDUE = """
SELECT w.id FROM pgqueue_workflow w
 WHERE w.state = 'running' AND w.deadline_at <= statement_timestamp()
   AND w.cancel_requested_at IS NULL
 ORDER BY w.deadline_at LIMIT %(limit)s
"""

# Locks: none. Of those whose deadline has asked them to stop, the jobs that were not
# asked: somebody held their rows just then. Few workflows are in between.
UNASKED = """
SELECT s.id
  FROM (SELECT w.id FROM pgqueue_workflow w
         WHERE w.state = 'running' AND w.deadline_at <= statement_timestamp()
           AND w.cancel_requested_at IS NOT NULL
         ORDER BY w.deadline_at LIMIT %(workflows)s) w
 CROSS JOIN LATERAL (
       SELECT s.id FROM pgqueue_step s
        WHERE s.workflow_id BETWEEN w.id AND w.id AND s.state = 'started'
        ORDER BY s.workflow_id, s.id LIMIT %(limit)s) s
 CROSS JOIN LATERAL (
       SELECT FROM pgqueue_job j
        WHERE j.id = s.id AND j.cancel_requested_at IS NULL LIMIT 1) j
 LIMIT %(limit)s
"""

# Locks: those of the function.
RESTART = "SELECT pgqueue_restart_workflow(%(workflow)s::bigint, %(step)s::bigint)"

# Locks: none.
STARTED = """
SELECT s.id FROM pgqueue_step s
 WHERE s.workflow_id = ANY(%(workflows)s::bigint[]) AND s.state = 'started'
 ORDER BY s.id
"""

# Locks: none. From one name and version to the next, along their index; of each no
# more rows are counted than the limit.
UNDER_WAY = """
WITH RECURSIVE found AS (
    (SELECT w.name, w.version FROM pgqueue_workflow w
      WHERE w.finished_at IS NULL AND w.version IS NOT NULL
      ORDER BY w.name, w.version LIMIT 1)
    UNION ALL
    SELECT next.name, next.version FROM found f CROSS JOIN LATERAL (
           SELECT w.name, w.version FROM pgqueue_workflow w
            WHERE w.finished_at IS NULL AND w.version IS NOT NULL
              AND (w.name, w.version) > (f.name, f.version)
            ORDER BY w.name, w.version LIMIT 1) next)
SELECT f.name, f.version, (
       SELECT count(*) FROM (
              SELECT FROM pgqueue_workflow w
               WHERE w.finished_at IS NULL AND w.version = f.version AND w.name = f.name
               LIMIT %(limit)s) w)
  FROM found f LIMIT %(names)s
"""

# Locks: none. Of what get() returns the list, or the jobs of a batch; a range of one as
# in STEPS. What gathers nothing, for a group of none, is no member.
MEMBERS = """
SELECT m.id FROM pgqueue_workflow w CROSS JOIN LATERAL (
       SELECT e.id, e.place
         FROM unnest(w.ends) WITH ORDINALITY AS e(id, place)
         JOIN pgqueue_step s ON s.id = e.id AND s.id = ANY(w.ends)
        WHERE w.is_list OR s.task IS NOT NULL
       UNION ALL
       SELECT s.id, s.id FROM pgqueue_step s
        WHERE w.kind = 'batch' AND s.workflow_id BETWEEN w.id AND w.id
          AND s.kind = 'step' AND s.task IS NOT NULL) m
 WHERE w.id = %(workflow)s ORDER BY m.place
"""

# Locks: none.
ENDED = """
SELECT s.id FROM pgqueue_step s
 WHERE s.id = ANY(%(ids)s::bigint[])
   AND (s.state NOT IN ('waiting', 'started') OR %(every)s::bool)
 ORDER BY s.finished_at, s.id
"""

# Locks: none.
OUTCOMES = """
SELECT s.id, s.name, s.state, s.result::text, s.error::text FROM pgqueue_step s
 WHERE s.id = ANY(%(ids)s::bigint[])
"""

# Locks: none.
BATCHES_IN = "SELECT pgqueue_batches_in(%(workflow)s)"

# Locks: none. Walks back from the last step along the index.
LAST_TO_END = """
SELECT s.id FROM pgqueue_step s
 WHERE s.workflow_id BETWEEN %(workflow)s AND %(workflow)s
   AND s.state IN ('waiting', 'started')
 ORDER BY s.workflow_id DESC, s.id DESC LIMIT %(limit)s
"""

# Locks: none. The jobs that the end of some steps has started: of the same workflows,
# and of the batches that these are in.
STARTED_BESIDE = """
WITH RECURSIVE beside(id) AS (
    SELECT e.workflow_id FROM pgqueue_step e WHERE e.id = ANY(%(ids)s::bigint[])
    UNION
    SELECT w.parent_id FROM beside b CROSS JOIN LATERAL (
           SELECT w.parent_id FROM pgqueue_workflow w WHERE w.id = b.id LIMIT 1) w
     WHERE w.parent_id IS NOT NULL)
SELECT s.id FROM pgqueue_step s
 WHERE s.state = 'started' AND s.workflow_id = ANY(ARRAY(SELECT id FROM beside))
 ORDER BY s.id
"""

# Locks: none. Callbacks are not among them: they have been called.
DEAD = """
SELECT s.id FROM pgqueue_step s
 WHERE s.workflow_id = %(workflow)s AND s.state = 'dead' AND s.kind = 'step'
 ORDER BY s.id LIMIT %(limit)s
"""

# Locks: none. The index has names before keys, so the key is looked for under each
# name: from one to the next, not over the rows between them.
OF_KEY = """
WITH RECURSIVE names AS (
    (SELECT w.name, 1 AS number FROM pgqueue_workflow w ORDER BY w.name LIMIT 1)
    UNION ALL
    SELECT (SELECT w.name FROM pgqueue_workflow w
             WHERE w.name > n.name ORDER BY w.name LIMIT 1), n.number + 1
      FROM names n WHERE n.name IS NOT NULL AND n.number < %(names)s)
SELECT found.id FROM names n
 CROSS JOIN LATERAL (
       SELECT w.id FROM pgqueue_workflow w
        WHERE w.name = n.name AND w.key = %(key)s LIMIT 1) AS found
 ORDER BY found.id
"""

# Locks: none. The arrays of what comes next are read, and not those of what was before:
# they say the same, and the last of 10,000 members need not be told of each.
SHAPE = """
SELECT s.name, s.kind, s.task IS NOT NULL, s.state, s.next, s.compensates,
       array_agg(s.id),
       extract(epoch FROM min(s.started_at))::float8,
       extract(epoch FROM max(s.finished_at))::float8
  FROM pgqueue_step s WHERE s.workflow_id = %(workflow)s
 GROUP BY s.name, s.kind, s.task IS NOT NULL, s.state, s.next, s.compensates
"""

# Of Placement, what a step's job is stored with; the times as texts.
PLACED = ("queue", "priority", "max_attempts", "lane", *OF_LANE)


class Comparison(NamedTuple):
    """Of the result of a step, or of what stands at a path in it, with a value."""

    step: int  # Its place.
    path: Sequence[str]
    op: str  # "==", "!=", "<", "<=", ">", ">=" or "in".
    value: Any  # Of JSON.


@dataclass(frozen=True, slots=True, kw_only=True)
class NewStep:
    """
    A step that is to be stored.

    Attributes:
        name: What people call it.
        placement: Where and when its job is stored; None: it has none, and gathers.
        args: A JSON array as text, with a place for what it takes.
        kwargs: A JSON object as text.
        after: The places of the steps before it, in the order of their results.
        takes: What comes first among its arguments.
        kind: "step", "compensation", or a callback: "on_error", "on_success" or
            "on_complete".
        bytes_max: How large its arguments may be, with what they are filled with.
        fills: Arguments, by place or name, and the places of the steps whose results
            they are.
        condition: All of them must hold, or it is skipped.
        compensates: The place of the step that it undoes.
    """

    name: str
    placement: Placement | None
    args: str = "[]"
    kwargs: str = "{}"
    after: Sequence[int] = ()
    takes: str | None = None
    kind: str = "step"
    bytes_max: int = 0
    fills: Mapping[int | str, int] = field(default_factory=dict)
    condition: Sequence[Comparison] = ()
    compensates: int | None = None


class Started(NamedTuple):
    """A workflow that was stored, or the one that had its key."""

    workflow: int | None  # None: it was refused.
    first_id: int | None  # Of its steps, whose ids follow one another; None: not new.
    is_new: bool | None
    refused: str | None  # The batch that it is to be in: "ended", or too "deep".


class Row(NamedTuple):
    """A workflow as its row has it."""

    id: int
    name: str
    key: str | None
    kind: str
    state: str
    steps: int
    active: int
    succeeded: int
    skipped: int
    dead: int
    cancelled: int
    is_list: bool
    created_at: datetime
    finished_at: datetime | None
    cancel_requested_at: datetime | None
    version: str | None
    parent_id: int | None


# The state of a step that never starts, as people read it.
NOT_NEEDED = "not needed"


class StepRow(NamedTuple):
    """A step as its row has it; but for NOT_NEEDED, of which that says waiting."""

    id: int
    name: str
    kind: str
    task: str | None
    compensates: int | None  # The id of the step that it undoes.
    state: str
    result: str | None  # JSON text.
    error: str | None  # JSON text.
    started_at: datetime | None
    finished_at: datetime | None


class Alike(NamedTuple):
    """Steps that differ in their times and places alone, and go on to the same ones."""

    name: str
    kind: str
    has_task: bool
    state: str
    next: list[int]
    compensates: int | None
    ids: list[int]
    started: float | None  # The first of them, in seconds since 1970.
    finished: float | None  # The last of them.


class UnderWay(NamedTuple):
    """How many sagas of a name have not ended that began with the same steps."""

    name: str
    version: str
    runs: int


def start(
    cursor: Cursor,
    *,
    name: str,
    key: str | None,
    steps: Sequence[NewStep],
    ends: Sequence[int],
    is_list: bool,
    kind: str,
    is_open: bool = False,
    deadline: timedelta | None = None,
    version: str | None = None,
    parent: int | None = None,
) -> Started:
    """
    Store a workflow, and the jobs of those steps that wait for none: one round trip.

    Args:
        cursor: Django's or psycopg's; the caller commits.
        name: Of the workflow.
        key: Of several with the same name and key only the first is stored. None: each.
        steps: In any order.
        ends: The places of the steps whose results are the result.
        is_list: Whether that is a list of them.
        kind: "canvas", "batch", "flow" or "saga".
        is_open: Whether steps may be added from outside, until close().
        deadline: It is cancelled if it has not ended after so long.
        version: By which declaration it is made.
        parent: The batch that it is in.
    """
    cursor.execute(
        START,
        {
            "name": name,
            "key": key,
            "steps": _all_as_json(steps),
            "ends": list(ends),
            "is_list": is_list,
            "kind": kind,
            "is_open": is_open,
            "deadline": deadline,
            "version": version,
            "parent": parent,
        },
    )
    return Started(*one_row(cursor))


def add(cursor: Cursor, workflow: int, steps: Sequence[NewStep]) -> int | None:
    """
    Add steps to a batch that is running; return the id of the first.

    None: It has ended, was cancelled, or is not there.
    """
    first: int | None = value(cursor, ADD, workflow=workflow, steps=_all_as_json(steps))
    return first


def close(cursor: Cursor, workflow: int) -> bool:
    """Close a batch, so that it ends with its jobs; False: it was closed before."""
    return bool(value(cursor, CLOSE, workflow=workflow))


def batch_of(cursor: Cursor, job_id: int) -> int | None:
    """Return the batch that a job is of; None: of none."""
    return record(int, cursor, BATCH_OF, step=job_id)


def with_key(cursor: Cursor, name: str, key: str, kind: str) -> int | None:
    """Return the workflow of a kind with this name and key; None: there is none."""
    return record(int, cursor, WITH_KEY, name=name, key=key, kind=kind)


def _all_as_json(steps: Sequence[NewStep]) -> str:
    following: list[list[int]] = [[] for _ in steps]
    for place, step in enumerate(steps):
        for before in step.after:
            following[before].append(place)
    told = [_as_json(step, after) for step, after in zip(steps, following, strict=True)]
    return f"[{','.join(told)}]"


def _as_json(step: NewStep, following: Sequence[int]) -> str:
    head = json.dumps(
        {
            "name": step.name,
            "kind": step.kind,
            "after": list(step.after),
            "next": list(following),
            "takes": step.takes,
            "fills": [{"to": to, "step": place} for to, place in step.fills.items()],
            "condition": [each._asdict() for each in step.condition],
            "compensates": step.compensates,
        }
    )
    if step.placement is None:
        return head
    at = step.placement
    job: dict[str, Any] = {name: getattr(at, name) for name in PLACED}
    times = {
        "run_at": _moment(at.run_at),
        "delay": _interval(at.delay),
        "expire_at": _moment(at.expire_at),
        "expire_in": _interval(at.expire_in),
    }
    placed = json.dumps({**job, **times, "bytes_max": step.bytes_max})
    return (
        f'{head[:-1]},"task":{json.dumps(at.task)},"job":{placed[:-1]},'
        f'"args":{step.args},"kwargs":{step.kwargs},"headers":{at.headers}}}}}'
    )


def _moment(at: datetime | None) -> str | None:
    return None if at is None else at.isoformat()


def _interval(length: timedelta | None) -> str | None:
    return None if length is None else f"{length.total_seconds():f} s"


def find(cursor: Cursor, ids: Sequence[int]) -> dict[int, Row]:
    """Return what is known of the workflows *ids*; those that are gone are left out."""
    cursor.execute(FIND, {"ids": list(ids)})
    return {row[0]: Row(*row) for row in cursor.fetchall()}


def results(cursor: Cursor, workflow: int) -> list[str | None]:
    """Return the results of the last steps of a workflow as JSON texts, in order."""
    cursor.execute(RESULTS, {"workflow": workflow})
    return [result for _, result in cursor.fetchall()]


def steps(
    cursor: Cursor, workflow: int, *, after: int = 0, limit: int = 1_000
) -> list[StepRow]:
    """Return the steps of a workflow, those with an id above *after*."""
    params = {"workflow": workflow, "after": after, "limit": limit}
    cursor.execute(STEPS, params)
    found = []
    for *columns, within in cursor.fetchall():
        step = StepRow(*columns)
        is_unneeded = state_of_step(step.state, step.kind, within=within) == UNNEEDED
        found.append(step._replace(state=NOT_NEEDED) if is_unneeded else step)
    return found


def lock_of(cursor: Cursor, ids: Sequence[int]) -> None:
    """
    Lock the workflows that the jobs *ids* are steps of, until the transaction ends.

    For whoever ends or moves them by several statements: each locks the workflows of
    its own jobs, in the order of their ids, and the next one's may be lower.
    """
    cursor.execute(LOCK_OF, {"ids": list(ids)})


def cancel(
    cursor: Cursor, workflow: int, *, compensate: bool = True, is_overdue: bool = False
) -> list[int] | None:
    """
    Cancel what has not started, and return the ids of the jobs of what has.

    Of a batch, those of the batches in it as well.

    Args:
        cursor: In a transaction that the caller commits once it has cancelled these.
        workflow: Its id.
        compensate: Whether a saga undoes what it has done.
        is_overdue: Whether its deadline does it, and nobody.

    Returns:
        None: There is no such workflow, it has ended, or was asked to stop before.
    """
    params = {
        "workflow": workflow,
        "compensate": compensate,
        "is_overdue": is_overdue,
    }
    cursor.execute(LOCK, {"workflow": workflow})
    cursor.execute(CANCEL, params)
    asked = dict(cursor.fetchall())
    if not asked:
        return None
    if any(asked.values()):
        counts = {"workflows": list(asked), "counts": list(asked.values())}
        cursor.execute(LEFT_OUT, counts)
    started = column(cursor, STARTED, workflows=list(asked))
    if not started or len(asked) > 1:
        # An open batch: no end of a job will end it.
        cursor.execute(ADVANCE, {"workflows": list(asked)})
    return started


def stuck(cursor: Cursor, workflow: int) -> list[int]:
    """Return the compensations of a saga that are dead, and hold it up."""
    return column(cursor, STUCK, workflow=workflow)


def last_to_end(cursor: Cursor, workflow: int, limit: int) -> list[int]:
    """Return the steps of a workflow that have not ended, those said last first."""
    return column(cursor, LAST_TO_END, workflow=workflow, limit=limit)


def resolve(cursor: Cursor, workflow: int, *, again: bool) -> list[int]:
    """
    Let a saga go on whose compensation is dead, and has no dead letter any more.

    Args:
        cursor: The caller commits.
        workflow: Its id.
        again: Whether it is tried again; False: it was done by hand.

    Returns:
        The ids of these compensations.
    """
    found = column(cursor, RESOLVE, workflow=workflow, again=again)
    if found:
        cursor.execute(COMPENSATE, {"workflow": workflow})
    return found


def overdue(cursor: Cursor, limit: int) -> list[int]:
    """Return workflows whose deadline has passed, the most overdue first."""
    return column(cursor, OVERDUE, limit=limit)


def unasked(cursor: Cursor, *, workflows: int, limit: int) -> list[int]:
    """
    Return jobs that a deadline has not asked to stop, since somebody held their rows.

    Args:
        cursor: On any connection to the database.
        workflows: So many are looked at, the most overdue first.
        limit: So many jobs of each, and in all.
    """
    return column(cursor, UNASKED, workflows=workflows, limit=limit)


def restart(cursor: Cursor, workflow: int, step: int | None) -> int | None:
    """
    Start a workflow anew, with the results that it has; return the new one.

    Args:
        cursor: The caller commits.
        workflow: Its id.
        step: The id of a step that runs again, with all that comes after it. None: only
            what has not succeeded.

    Returns:
        None: It has not ended, is a saga or a batch, or is not there.
    """
    found: int | None = value(cursor, RESTART, workflow=workflow, step=step)
    return found


def started_beside(cursor: Cursor, ids: Sequence[int]) -> list[int]:
    """Return the jobs of what has started in the workflows of steps, and above."""
    return column(cursor, STARTED_BESIDE, ids=list(ids))


def dead(cursor: Cursor, workflow: int, *, limit: int) -> list[int]:
    """Return the dead steps of a workflow that it could go on from; see DEAD."""
    return column(cursor, DEAD, workflow=workflow, limit=limit)


def of_key(cursor: Cursor, key: str, *, names: int = 1_000) -> list[int]:
    """Return the workflows with this *key*, one for each of so many *names* at most."""
    return column(cursor, OF_KEY, key=key, names=names)


def members(cursor: Cursor, workflow: int) -> list[int]:
    """Return the steps whose results are a workflow's; of a batch all of its jobs."""
    return column(cursor, MEMBERS, workflow=workflow)


def ended(cursor: Cursor, ids: Sequence[int], *, every: bool) -> list[int]:
    """Return which steps of *ids* have ended, in that order; or *every* one."""
    return column(cursor, ENDED, ids=list(ids), every=every)


def outcomes(
    cursor: Cursor, ids: Sequence[int]
) -> dict[int, tuple[str, str, str | None, str | None]]:
    """Return name, state, result and error, JSON as texts, of the steps *ids*."""
    cursor.execute(OUTCOMES, {"ids": list(ids)})
    return {
        step: (name, state, *rest) for step, name, state, *rest in cursor.fetchall()
    }


def batches_in(cursor: Cursor, workflow: int) -> list[int]:
    """Return a workflow and the batches in it, each after the one that it is in."""
    return list(value(cursor, BATCHES_IN, workflow=workflow))


def under_way(
    cursor: Cursor, *, limit: int = 10_000, names: int = 1_000
) -> list[UnderWay]:
    """
    Return how many sagas have not ended, by name and version.

    Args:
        cursor: On any connection to the database.
        limit: So many are counted of each.
        names: So many names and versions are told.
    """
    return rows(UnderWay, cursor, UNDER_WAY, limit=limit, names=names)


def shape(cursor: Cursor, workflow: int) -> list[Alike]:
    """Return all steps of a workflow, and what comes after what."""
    return rows(Alike, cursor, SHAPE, workflow=workflow)
