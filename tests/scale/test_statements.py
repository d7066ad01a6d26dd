"""
Every statement costs what its batch costs, however large the tables are.

EXPLAIN (ANALYZE, BUFFERS) over a hundred thousand rows (PGQUEUE_SCALE_ROWS: a million)
of every shape that a queue can have, before the planner has ever looked at the tables
and right after it did.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest

from tests.harness.databases import lent
from tests.queues.test_plans import EXPLAINED, MADE, STATEMENTS, parameters
from tests.scale import shapes
from tests.scale.database import cursor_of_own_database
from tests.scale.plans import SCANNED_ROWS_MAX, explain, faults

pytestmark = [
    pytest.mark.slow,
    # At full size, a shape takes half a minute to fill and another to look at.
    pytest.mark.timeout(900),
]

ALIAS = "scale"
WORKER = "worker"
TEN = 10

# For a claim of ten rows, whatever else is in the table.
CLAIM_BUFFERS_MAX = 500

# Of a function whose statements are planned at its first calls in a session: the
# catalogs that the planner reads.
PLAN_BUFFERS = 500

# Of one row: found by its key, written, and entered into each index of its table.
ROW_BUFFERS = 25

# What a band (a priority of a queue), and a queue, may cost those who look at all.
BAND_BUFFERS = 12

# A thousand are many of a small table's rows: there a scan may well be cheaper.
STATS_LIMIT = shapes.ROWS // 1_000
PURGE_LIMIT = shapes.ROWS // 1_000

ACTORS = """
WITH waiting AS (
    INSERT INTO pgqueue_job (task) SELECT 'x' FROM generate_series(1, 20)
    RETURNING id),
future AS (
    INSERT INTO pgqueue_job (task, visible_at)
    SELECT 'x', clock_timestamp() + interval '1 hour' FROM generate_series(1, 10)
    RETURNING id),
calls AS (
    INSERT INTO pgqueue_job (task, accumulate_key, visible_at)
    SELECT 'shop.send', 'k', clock_timestamp() + interval '30 s'
      FROM generate_series(1, 20)),
leased AS (
    INSERT INTO pgqueue_job (task, visible_at, leased_by, leased_at, attempt,
                             deliveries)
    SELECT 'x', clock_timestamp() + interval '50 s', 'worker', clock_timestamp(), 1, 1
      FROM generate_series(1, 10)
    RETURNING id),
archived AS (
    INSERT INTO pgqueue_archived_job (id, task, state, attempt, deliveries, worker,
                                      finished_at)
    SELECT nextval(pg_get_serial_sequence('pgqueue_job', 'id')), 'x', 'succeeded', 1, 1,
           'worker', statement_timestamp() FROM generate_series(1, 10)
    RETURNING id),
dead AS (
    INSERT INTO pgqueue_dead_letter (id, task, reason, attempt, deliveries, worker,
                                     finished_at)
    SELECT nextval(pg_get_serial_sequence('pgqueue_job', 'id')), 'x', 'exhausted', 5, 5,
           'worker', statement_timestamp() FROM generate_series(1, 10)
    RETURNING id)
SELECT (SELECT array_agg(id) FROM waiting), (SELECT array_agg(id) FROM future),
       (SELECT array_agg(id) FROM leased), (SELECT array_agg(id) FROM archived),
       (SELECT array_agg(id) FROM dead)
"""


@dataclass(frozen=True)
class Bound:
    """What a statement is asked for, and the most that it may read."""

    ids: str = ""  # Which of the actors.
    buffers: int = 0
    per_queue: int = 0
    scanned: int = SCANNED_ROWS_MAX
    params: tuple[tuple[str, object], ...] = ()


def ten(actors, **params):
    return Bound(actors, buffers=TEN * ROW_BUFFERS, params=tuple(params.items()))


def one(actors, **params):
    return Bound(actors, buffers=3 * ROW_BUFFERS, params=tuple(params.items()))


def batch(rows, per_row, **params):
    return Bound(buffers=rows * per_row + 200, params=tuple(params.items()))


RARE = Bound(
    buffers=100 + 3 * shapes.ROWS // shapes.RARE, params=(("tags", '["rare"]'),)
)

BOUNDS = {
    "cancel.CANCEL": Bound("waiting", buffers=20 * ROW_BUFFERS),
    "cancel.CANCEL (running)": ten("leased"),
    "claim.CLAIM": Bound(buffers=CLAIM_BUFFERS_MAX),
    "claim.CLAIM_FROM_FLOORS": Bound(buffers=CLAIM_BUFFERS_MAX),
    "claim.KNOWN_QUEUES": Bound(buffers=100, per_queue=BAND_BUFFERS),
    "claim.SEE": Bound(buffers=100),
    "claim_one.CLAIM_ONE": one("waiting"),
    "dead_letters.DELETE": ten("dead"),
    "dead_letters.SET_ASIDE": ten("dead"),
    "doctor.LAPSED": Bound(buffers=CLAIM_BUFFERS_MAX, per_queue=2 * BAND_BUFFERS),
    "doctor.NEW_DEAD_LETTERS": one("dead"),
    "reprocess.AGAIN": one("dead"),
    "doctor.TASKS": one("waiting"),
    "edit.EDIT_DEAD_LETTER": one("dead"),
    "edit.EDIT_JOB": one("waiting"),
    "edit.LOCK_DEAD_LETTER": one("dead"),
    "edit.LOCK_JOB": one("waiting"),
    "edit.MOVE_DEAD_LETTER": one("dead"),
    "edit.MOVE_JOB": one("waiting"),
    "enqueue.STORE": one("waiting"),
    "find.FIND": ten("dead"),
    "find.READ": one("dead"),
    "find.LIVE": ten("waiting"),
    "gather.GATHER": ten("waiting"),
    "lanes.FORGET": Bound(buffers=CLAIM_BUFFERS_MAX),
    "fair.CLAIM_FAIR": Bound(buffers=CLAIM_BUFFERS_MAX + PLAN_BUFFERS),
    "lanes.LANES_OF": ten("waiting"),
    "lanes.NEWLY_DUE": Bound(buffers=CLAIM_BUFFERS_MAX),
    "lanes.PROMOTE": Bound(buffers=CLAIM_BUFFERS_MAX + PLAN_BUFFERS),
    "lanes.WITH_ROOM": Bound(buffers=CLAIM_BUFFERS_MAX),
    "lease.CANCEL_REQUESTS": ten("leased"),
    "lease.EXTEND": one("leased"),
    "lease.HELD": ten("leased"),
    "lease.LEASED": one("leased"),
    "lease.PROGRESS": one("leased"),
    "lease.RELEASE": ten("leased"),
    "lease.RENEW": ten("leased"),
    "lease.RESCUE": Bound(
        "leased", buffers=CLAIM_BUFFERS_MAX, per_queue=2 * BAND_BUFFERS
    ),
    "leased.LEASED": Bound(
        buffers=CLAIM_BUFFERS_MAX, per_queue=2 * BAND_BUFFERS, params=(("rows", 100),)
    ),
    "purge.DEAD_LETTERS": batch(PURGE_LIMIT, 8, limit=PURGE_LIMIT),
    "purge.RESULTS": batch(
        PURGE_LIMIT, ROW_BUFFERS, limit=PURGE_LIMIT, keep=timedelta(0)
    ),
    "redrive.HOLDERS": ten("dead"),
    "redrive.REDRIVE": ten("dead"),
    "redrive.REDRIVE_KEYED": ten("dead"),
    "redrive.RETRY_NOW": ten("future"),
    "retake.RETAKE": ten("waiting", have_run=[True] * TEN),
    "settle.APPLIED": ten("leased"),
    "settle.APPLIED_AWAY": ten("archived"),
    "settle.ARCHIVE": ten("leased"),
    "settle.ARCHIVE_PLAIN": ten("leased"),
    "settle.AWAY": ten("archived"),
    "settle.DEAD_LETTER": ten("leased"),
    "settle.FORGET": ten("leased"),
    "settle.NOTE": ten("archived"),
    "settle.RETRY": ten("leased"),
    "stats.BANDS": batch(3 * 3 * STATS_LIMIT, 1, limit=STATS_LIMIT),
    "stats.NAMES": Bound(buffers=100, per_queue=2 * BAND_BUFFERS),
    # Every tenth dead letter is of this queue, so ten times as many may be met.
    "stats.QUEUES": Bound(
        buffers=STATS_LIMIT + 1_000,
        scanned=20 * STATS_LIMIT,
        params=(("limit", STATS_LIMIT), ("queues", ["q1"])),
    ),
    **{name: one("waiting") for name in MADE},
    # Several statements, each with the pages of its own plan.
    **{
        name: Bound("waiting", buffers=2 * ROW_BUFFERS + 100)
        for name in MADE
        if name.startswith("unique one")
    },
    "tagged.TAGGED_ARCHIVED": RARE,
    "tagged.TAGGED_DEAD_LETTERS": RARE,
    "tagged.TAGGED_JOBS": RARE,
    "ticks.BUSY": one("waiting"),
    "ticks.LATEST": one("waiting"),
    "ticks.OWN_JOB": one("waiting"),
    "workflows.START": Bound(buffers=PLAN_BUFFERS + 8 * ROW_BUFFERS),
}

# Those that never touch the three tables, or only their catalogue. Those of pipelines
# have tables of their own, with a row a run, an hour, a kind of error or a day; so have
# those of schedules and of bulk acts. What a chunk reads is bounded in test_costs.py.
# The log is filled by tests/log/test_log_plans.py.
SMALL_MODULES = {
    "apart",
    "bulk_acts",
    "clock",
    "connect",
    "counters",
    "day_tables",
    "exports",
    "failure_kinds",
    "failures",
    "health",
    "inbox",
    "ingest_batches",
    "erasures",
    "ingest_positions",
    "ingest_rewrites",
    "lane_horizon",
    "limits",
    "log",
    "partitions",
    "pause",
    "repeat",
    "rights",
    "runs",
    "server",
    "store",
    # Hours of tasks, the latest as far as a limit.
    "task_hour_charts",
    "task_hours",
    "waited",
    "wake",
    "workers",
}
SMALL = {
    # Of a table of its own, along its indexes: bounded in queues/test_output.py.
    *(f"output.{name}" for name in ("APPEND", "APPEND_LAST", "READ", "LATEST")),
    "output.PURGE",
    # Planned along indexes by who runs them, and bounded so in test_lane_stats.py.
    *(f"lane_stats.{name}" for name in ("FIND", "FIND_BACK", "STATS", "PLACE")),
    "lane_stats.FAILING",
    # Of few rows; RELEASE is planned so, too, and bounded in test_lane_controls.py.
    *(f"lane_controls.{name}" for name in ("HOLD", "PAUSE", "RESUME", "IS_GROUP")),
    *(f"lane_controls.{name}" for name in ("SET_CAPACITY", "UNSET_CAPACITY")),
    *(f"lane_controls.{name}" for name in ("FORGET", "RELEASE", "PAUSED", "TRIPPED")),
    *(f"lane_controls.{name}" for name in ("POLICY", "SET_WEIGHT", "UNSET_WEIGHT")),
    "lane_controls.LET_BE_CLAIMED",
    # By keys: as many rows as a queue has places, or a task's lane.
    *(f"queue_limits.{name}" for name in ("HOLD", "ROOM", "TAKE_OVER", "PERMIT")),
    *(f"queue_limits.{name}" for name in ("PAY", "SET_CONCURRENCY", "SET_RATE")),
    *(f"breakers.{name}" for name in ("OPEN", "OPEN_AGAIN", "CLOSE")),
    # While tasks are held; 100,000 jobs of one are parked in queues/test_held.py.
    *(f"claim.{name}_BESIDE_HELD" for name in ("CLAIM", "CLAIM_FROM_FLOORS")),
    "claim.PARK",
    "claim.PARK_LAPSED",
    # Planned along indexes by who runs them, and bounded so in test_depth.py.
    *(f"depth.{name}" for name in ("COUNT", "NOTE", "READ")),
    # Likewise, and in test_reprocess.py.
    *("reprocess.LOOK", "reprocess.NO_SORT"),
    "claim.REMEMBER_QUEUES",
    *(f"ticks.{name}" for name in ("DUE", "NEXT", "OVERDUE", "ADVANCE", "RECKON")),
    *(f"ticks.{name}" for name in ("INSERT", "NOTE_JOB", "PURGE", "COMING")),
    "ticks.NOTE_MESSAGE",
    # Functions that plan along indexes, bounded in pull/test_sql.py; and what is walked
    # along the index of claims, and that of dead letters of a queue and a task.
    *(f"pull.{name}" for name in ("SEND", "SEND_MANY", "RECEIVE", "EXTEND", "ACK")),
    *(f"pull.{name}" for name in ("NACK", "REJECT", "DUE_IN", "DECLARE", "WAITING")),
    *("pull.LETTERS", "pull.HAS_PULL_QUEUES"),
    "doctor.WORKERS",
    # Of sagas that compensate alone, along an index of them.
    "doctor.STUCK_SAGAS",
    # A row an alert; LOOK is bounded in test_watch.py.
    *(f"watch.{name}" for name in ("LOOK", "SAID", "STANDING", "NOW")),
    # By keys, or a batch along an index.
    *(f"mail_files.{name}" for name in ("HOLD", "STORE", "USE", "FETCH", "DUE")),
    *("mail_files.PURGE", "mail_files.PURGE_USES"),
    # A row for a task and minute, of a few hours; CHARTS is one of the overview's
    # statements, bounded in test_costs.py.
    *(f"task_spans.{name}" for name in ("ADD", "CHARTS", "PURGE")),
    # Of a table of their own, bounded in pull/test_ends.py; and a row per queue.
    *("pull_ends.HAS_PULL_QUEUES", "pull_ends.MOVE"),
    "purge.DEDUP_WINDOWS",
    "purge.WORKERS",
    # Of two tables of their own, bounded in queues/test_workflows.py.
    *("purge.WORKFLOWS", "purge.BY_INDEX"),
    *(f"workflows.{name}" for name in ("FIND", "RESULTS", "STEPS", "CANCEL")),
    *(f"workflows.{name}" for name in ("LEFT_OUT", "STARTED", "STARTED_BESIDE")),
    *(f"workflows.{name}" for name in ("ADD", "CLOSE", "BATCH_OF", "WITH_KEY")),
    *(f"workflows.{name}" for name in ("OVERDUE", "RESTART", "ADVANCE", "RESOLVE")),
    *(f"workflows.{name}" for name in ("COMPENSATE", "STUCK", "LAST_TO_END")),
    *(f"workflows.{name}" for name in ("DEAD", "OF_KEY", "SHAPE", "ENDED", "MEMBERS")),
    *(f"workflows.{name}" for name in ("LOCK", "LOCK_OF", "BATCHES_IN", "UNDER_WAY")),
    *(f"workflows.{name}" for name in ("OUTCOMES", "UNASKED")),
    *(f"durable.{name}" for name in ("READ", "STORE", "DONE", "FIND_SIGNAL", "SEND")),
    *(f"durable.{name}" for name in ("WAKE", "PURGE_STEPS", "PURGE_SIGNALS")),
    "enqueue.PIN",
    # Of the pipeline, which reads all of a day, in an hour's or a part's statements:
    # bounded in pipeline/test_ended_jobs.py.
    *(f"ended_jobs.{name}" for name in ("COUNT_ARCHIVED", "COUNT_LETTERS")),
    *(f"ended_jobs.{name}" for name in ("PLACES_ARCHIVED", "MEASURE_ARCHIVED")),
    "ended_jobs.MAKE_DEPARTED",
    *(f"failed_jobs.{name}" for name in ("WAITING", "ARCHIVED", "LETTERS")),
    *(f"enqueued_hours.COUNT_{name}" for name in ("WAITING", "ARCHIVED", "DEAD")),
    *(f"enqueued_hours.{name}" for name in ("KNOWN", "STORE", "MISSING", "HAS_ANY")),
    "enqueued_hours.FORGET_HOURS",
}


def of_ten(ids, rows):
    """Return parameters of the length of *ids*, by the names that statements use."""
    count = len(ids)
    return {
        "ids": ids,
        "id": ids[0] if ids else 1,
        "deliveries": [1] * count,
        "results": ["1"] * count,
        "errors": ['{"kind": "error"}'] * count,
        "reasons": ["exhausted"] * count,
        "ran": [0.1] * count,
        "delays": [1.5] * count,
        "attempts_back": [0] * count,
        "unknown": [False] * count,
        "due": [datetime(2026, 1, 1, tzinfo=UTC)] * count,
        "limit": TEN,
        # Where a worker that is draining would look on.
        "floors": [datetime(2020, 1, 1, tzinfo=UTC)],
        "keep": timedelta(seconds=rows),
        "worker": WORKER,
    }


@pytest.fixture(scope="module")
def scale(django_db_setup, django_db_blocker):
    """A cursor on a database of its own."""
    with lent(cursor_of_own_database(ALIAS), django_db_blocker) as cursor:
        yield cursor


def look(cursor, shape):
    """Return the faults of every statement's plan, by its name."""
    cursor.execute(ACTORS)
    names = ("waiting", "future", "leased", "archived", "dead")
    actors = dict(zip(names, cursor.fetchone(), strict=True))
    queues = shapes.QUEUES if shape == "a thousand queues" else TEN
    found = {}
    for name, bound in BOUNDS.items():
        statement = name.partition(" (")[0]
        params = parameters(statement)
        own = of_ten(actors.get(bound.ids, []), shapes.ROWS) | dict(bound.params)
        if isinstance(params, dict):
            params |= {key: own[key] for key in params if key in own}
        plan = explain(cursor, STATEMENTS[statement], params)
        wrong = faults(
            plan,
            buffers_max=bound.buffers + queues * bound.per_queue,
            scanned_max=bound.scanned,
        )
        if wrong:
            found[name] = [*wrong, json.dumps(plan)]
    return found


def test_every_statement_has_a_bound_or_is_small():
    """A new one is added here."""
    known = {name.partition(" (")[0] for name in BOUNDS} | SMALL
    large = {
        name
        for name in EXPLAINED | set(MADE)
        if name.partition(".")[0] not in SMALL_MODULES
    }

    assert set() == large - known


@pytest.mark.parametrize("shape", shapes.SHAPES)
def test_no_statement_grows_with_the_table(scale, shape, django_db_blocker):
    """No Seq Scan, no large Sort, few buffers: never analysed, and freshly so."""
    shapes.fill(scale, shape)
    with django_db_blocker.unblock():
        never = look(scale, shape)
        shapes.analyse(scale)
        freshly = look(scale, shape)

    assert ({}, {}) == (never, freshly)
