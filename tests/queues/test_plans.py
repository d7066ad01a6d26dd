"""
Every statement of the storage is valid, and costs what its batch costs.

Statements are collected from the modules. Each is EXPLAINed against the migrated
schema: a column name written in SQL cannot drift. Those that touch jobs, the archive or
dead letters are then run over large tables of every shape that a queue can have,
before the planner has ever looked at the tables and right after it did; BOUNDS has what
each may read. statements.json has their parameters, and those without a bound.
"""

from __future__ import annotations

import importlib
import json
import pkgutil
import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import psycopg
import pytest

import django_pgqueue.log
import django_pgqueue.pipeline
import django_pgqueue.postgres
import django_pgqueue.queues
from django_pgqueue.postgres.connect import Link
from django_pgqueue.queues.claim import Band, claim_from_floors
from django_pgqueue.queues.enqueue import MANY, ONE, insert, many
from django_pgqueue.queues.rules import ACCUMULATE, PLAIN, SPREAD
from django_pgqueue.queues.unique import KEY, MANY_STORED, ONE_KEY, ONE_STORED, call
from django_pgqueue.schedules import store, ticks
from django_pgqueue.worker.claim.poller import SLICE_QUEUES, WAKE_QUEUES_MAX
from tests.harness.databases import lent
from tests.harness.factories import LEASE, make_jobs
from tests.scale import shapes
from tests.scale.database import cursor_of_own_database
from tests.scale.plans import (
    ANALYZED,
    SCANNED_ROWS_MAX,
    buffers,
    explain,
    faults,
    nodes,
)

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
LONG_AGO = datetime(2000, 1, 1, tzinfo=UTC)

STATEMENT = re.compile(
    r"\s*(WITH|SELECT|INSERT|UPDATE|DELETE|CREATE|ALTER|DROP|SET|SHOW|LISTEN|NOTIFY)\b"
)
PLACEHOLDER = re.compile(r"%\((\w+)\)s")


def read(text):
    """Return the value that *text* stands for in statements.json."""
    kind, _, rest = text.partition(" ")
    if kind == "@NOON":
        return NOON + timedelta(seconds=float(rest or 0))
    if kind == "@SECONDS":
        return timedelta(seconds=float(rest))
    if kind == "@DATE":
        return date.fromisoformat(rest)
    return rest.encode() if kind == "@BYTES" else text


def decode(value):
    """Return what is meant by a value of statements.json."""
    if isinstance(value, list):
        return [decode(each) for each in value]
    if isinstance(value, dict):
        return {name: decode(each) for name, each in value.items()}
    return read(value) if isinstance(value, str) else value


DATA = json.loads(Path(__file__).with_name("statements.json").read_text("utf-8"))
# Plausible parameters, by the names that statements use; and of single statements.
VALUES, PLACED = decode(DATA["values"]), DATA["placed"]
SPECIAL = {name: decode(e["values"]) for e in DATA["special"] for name in e["of"]}
# EXPLAIN cannot show these: they are run by the tests of their own modules.
NOT_EXPLAINED = set(DATA["not_explained"])


def collect():
    """
    Return every statement of the storage by module and name.

    Those of log/ are called "log.read.READ": queues/ has modules of these names.
    """
    found = {}
    for package in (
        django_pgqueue.queues,
        django_pgqueue.pipeline,
        django_pgqueue.postgres,
        django_pgqueue.log,
    ):
        prefix = "log." if package is django_pgqueue.log else ""
        for info in pkgutil.iter_modules(package.__path__):
            module = importlib.import_module(f"{package.__name__}.{info.name}")
            found |= {f"{prefix}{info.name}.{n}": v for n, v in statements(module)}
    for module in (store, ticks):
        name = module.__name__.rpartition(".")[2]
        found |= {f"{name}.{each}": value for each, value in statements(module)}
    return found


def statements(module):
    """Yield each statement of a module, with its name."""
    for name, value in vars(module).items():
        if name.isupper() and isinstance(value, str) and STATEMENT.match(value):
            yield name, value


# Those that are made of parts, by their parts.
RULES = {"plain": PLAIN, "spread": SPREAD, "accumulate": ACCUMULATE}
MADE = {
    **{f"insert one, {name}": insert(ONE, rule) for name, rule in RULES.items()},
    **{f"insert many, {n}": insert(many(rule), rule) for n, rule in RULES.items()},
    **{
        f"insert many, {name}, in lanes": insert(
            many(RULES[name], has_lanes=True), RULES[name], has_lanes=True
        )
        for name in ("plain", "spread")
    },
    **{
        f"unique one, {name}": ONE_STORED.format(call=call(ONE, RULES[name], ONE_KEY))
        for name in ("plain", "spread")
    },
    **{
        f"unique many, {name}": MANY_STORED.format(call=call(MANY, RULES[name], KEY))
        for name in ("plain", "spread")
    },
}
STATEMENTS = collect() | MADE
EXPLAINED = set(STATEMENTS) - NOT_EXPLAINED


def parameters(name, **own):
    """Return the parameters that the statement *name* asks for."""
    if name in PLACED:
        return PLACED[name]
    values = VALUES | SPECIAL.get(name, {}) | own
    return {key: values[key] for key in PLACEHOLDER.findall(STATEMENTS[name])}


def explain_generic(cursor, statement, params, *, how="FORMAT JSON"):
    """Return the root of the plan that is made without knowing the parameters."""
    names = list(dict.fromkeys(PLACEHOLDER.findall(statement)))
    prepared = PLACEHOLDER.sub(
        lambda match: f"${names.index(match[1]) + 1}", statement
    ).replace("%%", "%")
    execute = psycopg.sql.SQL(f"EXPLAIN ({how}) EXECUTE hot")
    if names:
        values = psycopg.sql.SQL(", ").join(params[name] for name in names)
        execute += psycopg.sql.SQL("({})").format(values)
    cursor.execute("SET plan_cache_mode = force_generic_plan")
    cursor.execute(f"PREPARE hot AS {prepared}")
    try:
        with cursor.connection.transaction(force_rollback=True):
            cursor.execute(execute)
            return cursor.fetchone()[0][0]["Plan"]
    finally:
        cursor.execute("DEALLOCATE hot")
        cursor.execute("RESET plan_cache_mode")


def test_every_statement_is_valid_against_the_schema(cursor):
    """Tables, columns, types and functions exist as they are written."""
    wrong = {}
    for name in sorted(EXPLAINED):
        try:
            assert explain(cursor, STATEMENTS[name], parameters(name), "FORMAT JSON")
        except (psycopg.Error, KeyError) as error:
            wrong[name] = repr(error)

    assert {} == wrong


# What they read -----------------------------------------------------------------------

WORKER = "worker"
TEN = 10

# Of each shape.
ROWS = 20_000

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
STATS_LIMIT = 100
PURGE_LIMIT = 100

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
    RETURNING id),
limited AS (INSERT INTO pgqueue_queue (name) VALUES ('default') ON CONFLICT DO NOTHING),
permits AS (
    INSERT INTO pgqueue_permit (job_id, queue, delivery)
    SELECT id, 'default', 1 FROM leased)
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
    rows: int | None = None  # That it finds; None: it depends on the shape.
    params: tuple[tuple[str, object], ...] = ()


def ten(actors, **params):
    return Bound(actors, buffers=TEN * ROW_BUFFERS, params=tuple(params.items()))


def one(actors, **params):
    return Bound(actors, buffers=3 * ROW_BUFFERS, params=tuple(params.items()))


def batch(rows, per_row, **params):
    return Bound(buffers=rows * per_row + 200, params=tuple(params.items()))


def claim_of(rows, **params):
    bound = CLAIM_BUFFERS_MAX
    return Bound(buffers=bound, rows=rows, params=tuple(params.items()))


RARE = Bound(buffers=130, params=(("tags", '["rare"]'),))

BOUNDS = {
    "cancel.CANCEL": Bound("waiting", buffers=20 * ROW_BUFFERS),
    "cancel.CANCEL (running)": ten("leased"),
    "claim.CLAIM": claim_of(TEN),
    "claim.CLAIM (many queues)": claim_of(
        TEN, queues=[f"q{n}" for n in range(WAKE_QUEUES_MAX)]
    ),
    "claim.CLAIM_BESIDE_HELD": claim_of(TEN),
    "claim.CLAIM_FROM_FLOORS": claim_of(TEN),
    "claim.CLAIM_FROM_FLOORS (many queues)": claim_of(
        TEN,
        queues=[f"q{n}" for n in range(TEN)],
        priorities=[0] * TEN,
        floors=[NOON] * TEN,
        limits=[1] * TEN,
    ),
    "claim.CLAIM_FROM_FLOORS_BESIDE_HELD": claim_of(TEN),
    "claim.KNOWN_QUEUES": Bound(buffers=100, per_queue=BAND_BUFFERS),
    "claim.PARK": Bound(buffers=100, per_queue=6),
    "claim.PARK_LAPSED": Bound(buffers=CLAIM_BUFFERS_MAX),
    "claim.SEE": Bound(buffers=100),
    "claim.SEE (many queues)": Bound(
        buffers=CLAIM_BUFFERS_MAX,
        params=(("queues", [f"q{n}" for n in range(SLICE_QUEUES)]),),
    ),
    "claim_one.CLAIM_ONE": one("waiting"),
    "dead_letters.DELETE": ten("dead"),
    "dead_letters.SET_ASIDE": ten("dead"),
    "doctor.LAPSED": Bound(buffers=CLAIM_BUFFERS_MAX, per_queue=2 * BAND_BUFFERS),
    "doctor.NEW_DEAD_LETTERS": one("dead"),
    "doctor.STUCK_SAGAS": Bound(buffers=CLAIM_BUFFERS_MAX, rows=0),
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
    "workers.LEASED": Bound(
        buffers=CLAIM_BUFFERS_MAX, per_queue=2 * BAND_BUFFERS, params=(("rows", 100),)
    ),
    "output.APPEND": ten("leased"),
    "purge.DEAD_LETTERS": batch(PURGE_LIMIT, 8, limit=PURGE_LIMIT),
    # A Seq Scan of few rows that were never analysed is as cheap.
    "purge.RESULTS": Bound(
        buffers=PURGE_LIMIT * ROW_BUFFERS + 200,
        scanned=ROWS,
        params=(("limit", PURGE_LIMIT), ("keep", timedelta(0))),
    ),
    "queue_limits.ROOM": Bound(buffers=CLAIM_BUFFERS_MAX, rows=1),
    "queue_limits.TAKE_OVER": Bound(buffers=CLAIM_BUFFERS_MAX, rows=0),
    "dead_letters.HOLDERS": ten("dead"),
    "dead_letters.REDRIVE": ten("dead"),
    "dead_letters.REDRIVE_KEYED": ten("dead"),
    "dead_letters.RETRY_NOW": ten("future"),
    "unique.RETAKE": ten("waiting", have_run=[True] * TEN),
    "settle.APPLIED": ten("leased"),
    "settle.APPLIED_AWAY": ten("archived"),
    "settle.ARCHIVE": ten("leased"),
    "settle.ARCHIVE_PLAIN": ten("leased"),
    "settle.AWAY": ten("archived"),
    "settle.DEAD_LETTER": ten("leased"),
    "settle.FORGET": ten("leased"),
    "settle.HELD_UP": ten("leased"),
    "settle.HOLDERS": ten("leased"),
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
    "suspects.CLAIM_SUSPECTS": Bound(buffers=CLAIM_BUFFERS_MAX),
    "suspects.WAITING": Bound(buffers=CLAIM_BUFFERS_MAX),
    "find.TAGGED_ARCHIVED": RARE,
    "find.TAGGED_DEAD_LETTERS": RARE,
    "find.TAGGED_JOBS": RARE,
    "ticks.BUSY": one("waiting"),
    "ticks.LATEST": one("waiting"),
    "ticks.OWN_JOB": one("waiting"),
    "workflows.START": Bound(buffers=PLAN_BUFFERS + 8 * ROW_BUFFERS),
}


# Sent by a worker's claimer and settler, whose plans are made without the parameters.
# Where few jobs are live, a Seq Scan of them is right.
GENERIC = ("claim.CLAIM", "claim.SEE", "settle.", "lease.", "suspects.")
FEW_LIVE = "99 % archived or dead"


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
    with lent(cursor_of_own_database("scale"), django_db_blocker) as cursor:
        yield cursor


def look(cursor, shape):
    """Return the faults of every statement's plan, by its name."""
    cursor.execute("TRUNCATE pgqueue_permit")
    cursor.execute(ACTORS)
    names = ("waiting", "future", "leased", "archived", "dead")
    actors = dict(zip(names, cursor.fetchone(), strict=True))
    has_queues = shape == "a thousand queues"
    queues = shapes.QUEUES if has_queues else TEN
    found = {}
    for name, bound in BOUNDS.items():
        statement, _, special = name.partition(" (")
        if special == "many queues)" and not has_queues:
            continue
        own = of_ten(actors.get(bound.ids, []), ROWS) | dict(bound.params)
        params = parameters(statement, **own)
        plan = explain(cursor, STATEMENTS[statement], params)
        wrong = faults(
            plan,
            buffers_max=bound.buffers + queues * bound.per_queue,
            scanned_max=bound.scanned,
        )
        if bound.rows is not None and plan["Actual Rows"] != bound.rows:
            wrong.append(f"{plan['Actual Rows']} rows, not {bound.rows}")
        if statement.startswith(GENERIC) and shape != FEW_LIVE:
            generic = explain_generic(cursor, STATEMENTS[statement], params)
            wrong += [
                f"a Seq Scan of {node['Relation Name']} in the generic plan"
                for node in nodes(generic)
                if node["Node Type"] == "Seq Scan"
                and node["Relation Name"] == "pgqueue_job"
            ]
        if wrong:
            found[name] = [*wrong, json.dumps(plan)]
    return found


@pytest.mark.slow
@pytest.mark.smoke
@pytest.mark.parametrize("shape", shapes.SHAPES)
def test_no_statement_grows_with_the_table(scale, shape, django_db_blocker):
    """No Seq Scan, no large Sort, few buffers: never analysed, and freshly so."""
    shapes.fill(scale, shape, ROWS)
    with django_db_blocker.unblock():
        never = look(scale, shape)
        shapes.analyse(scale)
        freshly = look(scale, shape)

    assert ({}, {}) == (never, freshly)


def test_every_statement_has_a_bound_or_a_reason():
    """A new one is added to BOUNDS, or to statements.json with why it is cheap."""
    known = {name.partition(" (")[0] for name in BOUNDS}
    known |= {name for names in DATA["unbounded"].values() for name in names}
    left = {name for name in EXPLAINED if not {name, name.split(".")[0]} & known}

    assert set() == left


# Comparisons of a join that come to nothing, at most, for each row of a batch.
WASTE_MAX = 2
FILL_ONE_QUEUE = """
INSERT INTO pgqueue_job (task, queue)
SELECT 'tests.noop', 'default' FROM generate_series(1, %s)
"""


@pytest.mark.slow
@pytest.mark.smoke
def test_a_batch_is_not_compared_row_by_row_in_a_table_that_was_empty(cursor):
    """Vacuumed when everything was done, then filled: the planner expects one row."""
    cursor.execute("TRUNCATE pgqueue_job")
    make_jobs(200)
    cursor.execute("DELETE FROM pgqueue_job")
    cursor.execute("VACUUM (ANALYZE) pgqueue_job")
    link = Link("default", name="tests: steady", steady=True)
    try:
        hot = link.cursor()
        cursor.execute(FILL_ONE_QUEUE, [ROWS])
        claimed = claim_from_floors(
            cursor,
            bands=[Band("default", 0, LONG_AGO)],
            worker="worker",
            limit=1_000,
            lease=LEASE,
        )
        batch = {
            "ids": [job.id for job in claimed],
            "deliveries": [1] * 1_000,
            "ran": [0.5] * 1_000,
            "results": [None] * 1_000,
            "errors": [None] * 1_000,
            "due": [job.due_at for job in claimed],
            "floors": [LONG_AGO],
            "limits": [1_000],
            "limit": 1_000,
        }
        wasted = {}
        for name in (
            "claim.CLAIM",
            "claim.CLAIM_FROM_FLOORS",
            "settle.ARCHIVE",
            "settle.ARCHIVE_PLAIN",
            "settle.FORGET",
            "lease.RELEASE",
            "lease.RENEW",
        ):
            plan = explain(hot, STATEMENTS[name], parameters(name, **batch))
            assert 1_000 == plan["Actual Rows"], name
            waste = sum(
                node.get("Rows Removed by Join Filter", 0) for node in nodes(plan)
            )
            if waste > WASTE_MAX * 1_000:
                wasted[name] = waste
    finally:
        link.drop()

    assert {} == wasted


# What a worker's claimer sends.
CLAIMS = (
    "claim.CLAIM",
    "claim.CLAIM_BESIDE_HELD",
    "claim.CLAIM_FROM_FLOORS",
    "claim.CLAIM_FROM_FLOORS_BESIDE_HELD",
    "claim.PARK",
)
PARK_ALL = "UPDATE pgqueue_job SET lane = task, visible_at = NULL"


@pytest.mark.slow
@pytest.mark.smoke
@pytest.mark.parametrize("before", [PARK_ALL, ""], ids=["parked", "due"])
def test_claims_read_what_they_claim_in_a_table_that_was_empty(cursor, before):
    """Vacuumed when everything was done, then filled: no plan sorts all that is due."""
    cursor.execute("TRUNCATE pgqueue_job")
    cursor.execute(FILL_ONE_QUEUE, [200])
    if before:
        cursor.execute(before)
        cursor.execute("VACUUM (ANALYZE) pgqueue_job")
    cursor.execute("DELETE FROM pgqueue_job")
    if not before:
        cursor.execute("VACUUM (ANALYZE) pgqueue_job")
    cursor.execute(FILL_ONE_QUEUE, [50_000])
    few = {"floors": [LONG_AGO], "limits": [10], "limit": 10}
    link = Link("default", name="tests: claimer", steady=True, in_order=True)
    try:
        hot = link.cursor()
        read = {}
        for name in CLAIMS:
            held = ["tests.noop"] if name == "claim.PARK" else []
            params = parameters(name, **few, held=held)
            plan = explain_generic(hot, STATEMENTS[name], params, how=ANALYZED)
            read[name] = buffers(plan)
            found = {
                node["Actual Rows"]
                for node in nodes(plan)
                if node.get("Subplan Name") == "CTE candidate"
            }
            assert {10} == found, name
    finally:
        link.drop()

    assert {} == {name: n for name, n in read.items() if n > CLAIM_BUFFERS_MAX}
