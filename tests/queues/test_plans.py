"""
Every statement of the storage is valid, and the hot ones stay cheap.

Statements are collected from the modules, so that a new one without an entry here
fails. Each is EXPLAINed against the migrated schema: a column name written in SQL
cannot drift. The hot ones are then run over large tables of every shape that a queue
can have.
"""

from __future__ import annotations

import importlib
import json
import pkgutil
import re
from datetime import UTC, date, datetime, timedelta

import psycopg
import pytest

import django_pgqueue.log
import django_pgqueue.pipeline
import django_pgqueue.postgres
import django_pgqueue.queues
from django_pgqueue.models import Permit, Queue
from django_pgqueue.pipeline import failures, task_hours
from django_pgqueue.postgres.connect import Link
from django_pgqueue.queues import claim as claims
from django_pgqueue.queues import lease as leases
from django_pgqueue.queues import settle as settles
from django_pgqueue.queues import task_spans
from django_pgqueue.queues.claim import Band, claim_from_floors
from django_pgqueue.queues.enqueue import MANY, ONE, insert, many
from django_pgqueue.queues.lanes import Floor, promotion
from django_pgqueue.queues.rules import ACCUMULATE, PLAIN, SPREAD
from django_pgqueue.queues.settle import Ended, ack
from django_pgqueue.queues.time_buckets import BUCKETS
from django_pgqueue.queues.unique import KEY, MANY_STORED, ONE_KEY, ONE_STORED, call
from django_pgqueue.schedules import store, ticks
from django_pgqueue.worker.claim.poller import SLICE_QUEUES, WAKE_QUEUES_MAX
from tests.harness.factories import LEASE, make_jobs, make_leased_job

ROWS = 100_000
# For a claim of ten rows, whatever else is in the table.
BUFFERS_MAX = 500
# Of a function whose statements are planned at its first calls in a session.
PLAN_BUFFERS = 250

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)

STATEMENT = re.compile(
    r"\s*(WITH|SELECT|INSERT|UPDATE|DELETE|CREATE|ALTER|DROP|SET|SHOW|LISTEN|NOTIFY)\b"
)
PLACEHOLDER = re.compile(r"%\((\w+)\)s")

LANE_CONTROLS = (
    *("HOLD", "PAUSE", "RESUME", "IS_GROUP", "SET_CAPACITY", "UNSET_CAPACITY"),
    *("FORGET", "RELEASE", "PAUSED", "TRIPPED", "POLICY", "SET_WEIGHT", "UNSET_WEIGHT"),
    "LET_BE_CLAIMED",
)

QUEUE_LIMITS = (
    *("HOLD", "ROOM", "TAKE_OVER", "PERMIT", "PAY", "SET_CONCURRENCY", "SET_RATE"),
)

OUTPUT = {
    "ids": [7],
    "deliveries": [1],
    "of_ids": [7],
    "of_deliveries": [1],
    "numbers": [1],
    "values": ["1"],
}

# Of a queue that the statement makes itself, or none.
PULLED = (
    *("DECLARE", "SEND", "SEND_MANY", "RECEIVE", "EXTEND", "ACK", "NACK", "REJECT"),
    "DUE_IN",
)
PULLING = {
    "queue": "pulled",
    "visibility": 60,
    "max_receives": 5,
    "changes": True,
    "payload": "{}",
    "payloads": "[1, 2]",
    "delay": 1,
    "lane": "a",
    "lanes": '["a", null]',
    "dedup_key": None,
    "headers": "{}",
    "priority": 0,
    "expires": 9,
    "limit": 10,
    "receiver": "me",
    "receipts": "7:1 8:2",
    "error": "no",
    "reason": "no",
}

WORKFLOWS = (
    *("RESULTS", "STEPS", "CLOSE", "LOCK", "COMPENSATE", "STUCK", "LAST_TO_END"),
    *("BATCHES_IN", "MEMBERS"),
)

# Plausible parameters, by the names that statements use.
VALUES = {
    "accumulate_key": "k",
    "again": LEASE,
    "accumulate_size": 500,
    "accumulate_within": LEASE,
    "args": "[]",
    "attempts": 10,
    "attempts_back": [0],
    "beside": 1,
    "but": [1],
    "by": "anna",
    "bys": "[]",
    "conflict": "skip",
    "channel": "pgqueue_public",
    "class": 1,
    "data": b"%PDF",
    "digest": "a",
    "digests": ["a"],
    "delay": None,
    "delays": [1.5],
    "delivery": 1,
    "deliveries": [1],
    "due": [NOON],
    "errors": ['{"kind": "error"}'],
    "expire_at": NOON,
    "expire_in": LEASE,
    "fingerprints": ["0" * 32],
    "floor": NOON,
    "functions": ["pgqueue_make_log_day(date)"],
    "acts": ["SELECT"],
    "actor": "user:7",
    "floors": [NOON],
    "have_run": [True],
    "headers": "{}",
    "hold": "queued",
    "id": 1,
    "ids": [1],
    "keep": timedelta(days=7),
    "jobs": 1,
    "key": "k",
    "kwargs": "{}",
    "just_now": LEASE,
    "lease": LEASE,
    "bands": 500,
    "limit": 10,
    "limits": [10],
    "locks": True,
    "max_attempts": 5,
    "max_wait": LEASE,
    "message": "signal 9",
    "name": "worker",
    "names": ["default"],
    "patience": "10ms",
    "period": LEASE,
    "pid": 42,
    "places": ["a place"],
    "priorities": [0],
    "priority": 0,
    "progress": "1",
    "queue": "default",
    "queues": ["default"],
    "ran": [0.1],
    "reason": "seen",
    "retain": LEASE,
    "schema": None,
    "reasons": ["exhausted"],
    "payloads": ["1,2"],
    "results": ["1"],
    "rows": 2_000,
    "run_at": NOON,
    "state": "succeeded",
    "tags": '["vip"]',
    "task": "shop.send",
    "term": LEASE,
    "threads": 8,
    "async_slots": 100,
    "token": "token",
    "unknown": [False],
    "version": "0.1",
    "within": LEASE,
    "worker": "worker",
    "workers": ["worker"],
    # Of pipeline runs.
    "error": None,
    "hostname": "web-1",
    "job": "metrics",
    "barred": [7, 8],
    "held": ["shop.call"],
    "cooldown": LEASE,
    "kept": 1_000,
    "kept_deliveries": [1],
    "kept_ids": [7],
    "lease_seconds": 30.0,
    "offset_microseconds": 7,
    "offsets": "{7}",
    "lane": "one",
    "lanes": '["one", null]',
    "lane_burst": 2,
    "lane_capacity": 3,
    "lane_spacing": 0.5,
    "lane_policy": None,
    "capacity": 3,
    "weight": 3,
    "wait": LEASE,
    # Of limits of queues.
    "alone": False,
    "at": NOON,
    "burst": 2,
    "concurrency": 3,
    "spacing": 0.5,
    "lasts": LEASE,
    "seconds": 86_400.0,
    "until": None,
    "back": LEASE,
    "after_id": 0,
    "options": "{}",
    "over_microseconds": 60_000_000,
    "queue_job": 7,
    "after": 0,
    "taken": [7],
    "rows_in": 1,
    "rows_out": 1,
    "run": 1,
    "is_whole": False,
    "since": NOON,
    "size": 500,
    "step": 3600,
    "ui_url": None,
    # Of schedules.
    "catch_up": "one",
    "declared": "{}",
    "due_at": NOON,
    "every_seconds": 60,
    "expression": None,
    "jitter_seconds": 0,
    "late": LEASE,
    "latest": NOON,
    "message_key": None,
    "message_name": None,
    "message_payload": None,
    "missed": 0,
    "new_times": True,
    "next": NOON,
    "once": True,
    "outcome": "enqueued",
    "overlap": "skip",
    "overridden": None,
    "revision": 0,
    "schedule": 1,
    "schedule_id": None,
    "schedules": [1],
    "seen": NOON,
    "source": "user",
    "tick": 1,
    "tz": "UTC",
    # Of exports.
    "checksum": "7",
    "content": "7",
    "day": date(2026, 1, 1),
    "files": "[]",
    "first": date(2026, 1, 1),
    "format": "parquet",
    "fresh": LEASE,
    "margin": LEASE,
    "number": 7,
    "replaced": "[]",
    "stream": "0b8d3b8e-98a4-4f0c-9a53-2f9a4d1a7c11",
    "table": "pgqueue_archived_job",
    "target": "/srv/export",
    # Of topics.
    "ago": LEASE,
    "batch": 500,
    "bytes": 1_000,
    "goes_on": True,
    "last": 7,
    "needed": 7,
    "tid": "(0,1)",
    "tids": ["(0,1)"],
    "before": NOON,
    "befores": [NOON],
    "bound": 1_000,
    "bounds": [1_000],
    "counts": True,
    "credit": timedelta(minutes=1),
    "days": [date(2026, 1, 1)],
    "default": LEASE,
    "disorder": 10.0,
    "entries": ["{}"],
    "fence": 1,
    "group": 1,
    "groups": [1],
    "halted": False,
    "high": 1_000,
    "highest": 1_000,
    "is_atomic": False,
    "keeps": False,
    "last_id": 1_000,
    "low": 0,
    "on_error": "skip",
    "partition": 0,
    "partitions": [0],
    "positions": [0],
    "published_at": NOON,
    "removed_to": 0,
    "scan": 1_000,
    "share": 0.8,
    "single_to": None,
    "start": "latest",
    "time": NOON,
    "to": 7,
    "topic": "clicks",
    "topic_id": 1,
    "topics": [1],
    "where": '{"country": "FR"}',
    "parent": "pgqueue_archived_job",
    # What postgres/limits.py sets.
    "bitmapscan": "off",
    "sort": "off",
    "incremental": "off",
    "jit": "off",
    "seqscan": "off",
    "timeout": "10s",
}

# Statements whose parameters differ from those of their names above.
EMPTY = f"{{{','.join('0' * BUCKETS)}}}"
JSON_ITEMS = {"items": "[[], {}]"}
SPECIAL = {
    **{f"pull.{name}": PULLING for name in PULLED},
    "pull.WAITING": {"queues": ["default"], "limit": 10},
    "pull.LETTERS": {"queue": "default", "after": 0, "limit": 10},
    "lanes.PROMOTE": promotion(["one", "none"], floors=[Floor(1, 5, NOON), Floor()]),
    "fair.CLAIM_FAIR": {
        "queue": "default",
        "after": "",
        "spent": 0,
        "until": "",
        "lanes": 500,
        "looks": 500,
        "limit": 10,
        "passed": [1],
    },
    "lanes.WITH_ROOM": {"after": ""},
    "watch.SAID": {"after": NOON},
    "inbox.NOTE": {"external_id": "evt_1"},
    "mail_files.USE": {"jobs": [1]},
    "bulk_acts.CREATE": {
        "verb": "redrive",
        "filters": "{}",
        "per_second": 20,
        "counted": 1,
        "is_more": False,
        "top": 1,
        "shown_at": NOON,
        "position": 0,
    },
    "bulk_acts.PROGRESS": {"id": 1},
    "bulk_acts.FAIL": {"tries_max": 10, "pause": LEASE},
    "bulk_acts.NOTE": {
        "is_over": False,
        "pause": LEASE,
        "position": 1,
        "done": 1,
        "passed": 0,
        "error": "",
    },
    "lanes.FORGET": {"after": "", "rest": LEASE, "rest_unclaimed": LEASE},
    "lanes.NEWLY_DUE": {"since": NOON, "after": None},
    **{f"insert many, {name}, in lanes": JSON_ITEMS for name in ("plain", "spread")},
    **{
        f"insert many, {name}": JSON_ITEMS for name in ("plain", "spread", "accumulate")
    },
    **{
        f"unique one, {name}": {"by": '{"order_id": 7}'} for name in ("plain", "spread")
    },
    **{
        f"unique many, {name}": {"by": '"key"', **JSON_ITEMS}
        for name in ("plain", "spread")
    },
    "reprocess.LOOK": {"end": ".Unreachable", "error": "Unreachable", "max_age": LEASE},
    "workers.REGISTER": {"queues": "[]"},
    "exports.RECORD": {"rows": 1, "version": 1},
    "exports.CONTENT_OF_ROWS": {
        **{column: [1] for column in ("id", "attempt", "deliveries")},
        **{column: ["a"] for column in ("queue", "task", "state")},
        **{column: [NOON] for column in ("enqueued_at", "finished_at")},
    },
    "erasures.BEGIN": {"run": 1, "path": "kwargs.a", "task": "", "value_hash": "a"},
    "erasures.ADD_ROWS": {"erasure": 1, "archive": 1, "letters": 1},
    "erasures.ADD_EXPORT": {"erasure": 1, "day": "[{}]"},
    "erasures.HAS_EXPORT": {"erasure": 1, "day": "[{}]"},
    "erasures.SET_MESSAGES": {"erasure": 1, "messages": "{}"},
    "erasures.ADD_INGESTED": {"erasure": 1, "place": "{}", "rows": 1, "files": 1},
    "erasures.COUNT_SCHEDULED": {"path": ["a"], "value": "1"},
    **{
        f"ingest_rewrites.{name}": {"folder": "a", "put": "[]", "replaced": "[]"}
        for name in ("TAKE", "DECIDE", "END")
    },
    "erasures.FINISH": {"erasure": 1},
    "ticks.NOTE_JOB": {"job": 1},
    "ticks.OWN_JOB": {"job": 1},
    "ticks.NOTE_MESSAGE": {"message": 1},
    **{
        f"log.read.{name}": {"topic": 1}
        for name in ("READ", "READ_WHERE", "BARE", "BARE_WHERE")
    },
    **{
        f"log.retain.{name}": {"topic": 1}
        for name in ("HOLD_TOPIC", "HIGHEST", "BEHIND", "REMOVE_TO")
    },
    **{
        f"log.browse.{name}": {
            "topic": 1,
            "name": None,
            "part": "paid",
            "key": "c7",
            "above": -1,
            "below": 2**63 - 1,
            "rows": 50,
            "limit": 51,
        }
        for name in ("NEWEST", "OLDEST")
    },
    "log.backfill.EDGE": {"position": 0, "messages": 5_000, "since": "-infinity"},
    "log.backfill.FILL": {
        "position": 0,
        "jobs": 1_000,
        "last": 1_000,
        "to": 1_000,
        "final": 2_000,
        "since": "-infinity",
    },
    **{
        f"log.replay.{name}": {
            "since": "-infinity",
            "until": "infinity",
            "where": None,
            "name": "stats",
            "task": "shop.send",
            "position": 0,
            "last": 1_000,
            "to": 1_000,
            "jobs": 1_000,
            "headers": "{}",
        }
        for name in (
            *("INTO_SUBSCRIPTION", "COUNT_SUBSCRIPTION"),
            *("INTO_GROUP", "COUNT_GROUP"),
            *("INTO_QUEUE", "COUNT_QUEUE"),
        )
    },
    **{
        f"log.backfill_begin.{name}": {
            "name": "stats",
            "task": "shop.send",
            "kind": "group",
            "topic": "orders",
            "topic_id": 1,
            "target": "/srv/log",
            "start": "earliest",
            "position": 0,
        }
        for name in ("SUBSCRIPTION", "BEGIN", "GROUP", "READ_TO", "MADE_AT")
    },
    "log.backlogs.COUNT": {"tasks": ["shop.send"], "rows": [11]},
    "log.backlogs.NOTE": {"jobs": [11], "fulls": [True]},
    "log.backlogs.OLDEST": {"jobs": 10},
    "log.backlogs.RELEASE": {"position": 7},
    "log.declare.DECLARE": {
        "partitions": 16,
        "retain_bytes": None,
        "wait_for_ingest": LEASE,
    },
    "log.snapshots.HAS_OLDER": {"xid": 700},
    **{
        f"log.generations.{name}": {"first": 16, "partitions": 32}
        for name in ("CHANGE", "BEGIN")
    },
    "log.groups.DECLARE_AGAIN": {"topics": ["clicks"], "names": ["stats"]},
    "log.fetch.FETCH_MANY": {
        "times": [NOON],
        "first": NOON,
        "last": NOON,
        "bytes": 65_536,
        "total": 8_388_608,
    },
    **{
        f"log.subscriptions.{name}": {
            "source": "code",
            "pattern": "clicks.*",
            "patterns": ["clicks.*"],
            "tasks": ["shop.send"],
            "regex": None,
            "payload_filter": None,
            "ago": None,
            "lane_by": ["key"],
            "backlog_max": 100,
            "backlog_on_full": "pause",
        }
        for name in ("INSERT", "DECLARE", "DECLARE_AGAIN")
    },
    "log.ingest_lag.LAG": {"given_up": LEASE, "since": NOON, "places": 50},
    "log.ingest_lag.LEAST": {"given_up": LEASE},
    "log.doctor.BEHIND": {"firsts": [date(2026, 1, 1)]},
    "log.sizes.NOTE_DAY": {"bytes": "{}"},
    "log.sizes.NOTE_TOPICS": {"bytes": [1]},
    "log.sizes.FORGET_TOPIC": {"topic": "1"},
    "log.seek.BETWEEN": {"topic": 1, "lasts": [7]},
    "log.retain_backfills.LOST": {"topic": 1},
    "log.retain_backfills.NOTE": {"topic": 1, "entry": "{}"},
    "log.first_id.FIRST_ID": {
        "day": NOON,
        "moment": NOON,
        "end": NOON + timedelta(days=1),
    },
    "log.scheduled.STORE": {"items": '[["a.b", null, 1, {}, null, 7]]'},
    **{
        f"log.scheduled.{name}": {
            "ids": [-1],
            "delay": LEASE,
            "doublings": 6,
        }
        for name in ("PUBLISH", "PUT_OFF", "CANCEL")
    },
    "log.overview.COUNT": {"topics": [1], "first": 1},
    "log.overview.ENDS": {"topic": 1},
    "log.positions.FAIL": {"delay": LEASE},
    "log.pull.COMMIT": {"receipt": "1 1 7 pull:1/a"},
    "log.pull.READ": {"group": "clicks/stats"},
    "log.positions.SKIP": {"ran": 0.1},
    **{
        f"failures.{name}": {
            **{column: ["1"] for column in (*failures.COLUMNS, *failures.HOUR_COLUMNS)},
            **{column: [NOON] for column in ("hour", "first_seen", "last_seen")},
            "tasks": ["[]"],
        }
        for name in ("STORE", "STORE_HOURS")
    },
    **{
        f"{module}.{name}": {"until": NOON + timedelta(days=1)}
        for module, names in {
            "ended_jobs": ("COUNT_ARCHIVED", "COUNT_LETTERS", "PLACES_ARCHIVED"),
            "enqueued_hours": ("COUNT_WAITING", "COUNT_DEAD", "KNOWN"),
            "failed_jobs": ("ARCHIVED", "LETTERS"),
            "failures": ("LETTERS",),
        }.items()
        for name in names
    },
    "failures.NO_LETTERS": {"hours": [NOON]},
    "enqueued_hours.COUNT_ARCHIVED": {"until": NOON, "from": NOON, "to": NOON},
    "ended_jobs.MEASURE_ARCHIVED": {"hour": NOON, "first": "(0,1)", "last": "(9,9)"},
    "enqueued_hours.STORE": {
        **{name: [1] for name in ("enqueued", "waiting", "archived", "dead")},
        "hour": [NOON],
        "queue": ["default"],
        "task": ["shop.send"],
    },
    **{f"depth.{name}": {"rows": [51]} for name in ("COUNT", "NOTE")},
    "workflows.DEAD": {"workflow": 1},
    "workflows.OF_KEY": {"names": 1_000},
    "workflows.SHAPE": {"workflow": 1},
    "lane_stats.FAILING": {"lanes": ["one"]},
    "lane_stats.PLACE": {"lanes": 100},
    "lane_stats.STATS": {"lanes": ["one"]},
    **{
        f"lane_stats.{name}": {"after": "", "looks": 500, "text": "one", "task": None}
        for name in ("FIND", "FIND_BACK")
    },
    **{f"lane_controls.{name}": {"lanes": ["one"]} for name in LANE_CONTROLS},
    "failure_kinds.RECENT": {"rows": 10, "text": "card", "in_messages": True},
    "task_spans.ADD": {
        **{name: [1] for name in (*task_spans.COUNTS, *task_spans.SUMS)},
        **{name: [EMPTY] for name in task_spans.HISTOGRAMS},
        "tasks": ["shop.send"],
    },
    "task_spans.CHARTS": {"until": NOON + timedelta(hours=1), "points": 60},
    "workflows.START": {
        "name": "order",
        "steps": """[
            {"name": "a", "kind": "step", "after": [], "next": [1], "task": "shop.send",
             "job": {"queue": "default", "args": [], "kwargs": {}, "headers": {},
                     "priority": 0, "max_attempts": 5, "bytes_max": 9}},
            {"name": "(gather)", "kind": "step", "after": [0], "next": [],
             "takes": "results"}]""",
        "ends": [1],
        "is_list": False,
        "kind": "canvas",
        "is_open": False,
        "deadline": LEASE,
        "version": None,
        "parent": None,
    },
    "workflows.STARTED": {"workflows": [7]},
    "workflows.ENDED": {"ids": [7], "every": False},
    "workflows.ADVANCE": {"workflows": [7]},
    "workflows.UNDER_WAY": {"names": 1_000},
    "workflows.UNASKED": {"workflows": 100},
    "workflows.ADD": {"workflow": 7, "steps": "[]"},
    "workflows.WITH_KEY": {"kind": "batch"},
    "workflows.CANCEL": {"workflow": 7, "is_overdue": False, "compensate": True},
    "workflows.RESTART": {"workflow": 7, "step": 8},
    "workflows.RESOLVE": {"workflow": 7, "again": True},
    "workflows.BATCH_OF": {"step": 8},
    "output.APPEND": OUTPUT,
    "output.APPEND_LAST": OUTPUT,
    "output.READ": {"job": 7, "after": 0},
    "output.LATEST": {"job": 7, "characters": 100},
    "durable.READ": {"job": 7},
    "durable.STORE": {"job": 7, "place": 0, "kind": "step", "result": "1"},
    "durable.DONE": {"job": 7, "place": 0, "result": "1"},
    "durable.FIND_SIGNAL": {"job": 7},
    "durable.SEND": {"payload": "{}"},
    **{f"workflows.{name}": {"workflow": 7} for name in WORKFLOWS},
    "workflows.LEFT_OUT": {"workflows": [7], "counts": [2]},
    "task_hours.STORE": {
        **{column: [1] for column in task_hours.COLUMNS},
        "hour": [NOON],
        "queue": ["default"],
        "task": ["shop.send"],
    },
}

# Statements whose parameters have places instead of names.
PLACED = {
    "counters.NAME": ["pgqueue_job", "id"],
    "log.publish.STORE": ["orders", '[["orders", null, {}, {}]]'],
    "log.publish.STORE_ONE": ["orders", None, "{}", "{}"],
    "enqueue.STORE": ["default", "shop.send", "[]", "{}", "{}", 0, 5],
}

# Every statement that EXPLAIN can show.
EXPLAINED = {
    *(f"breakers.{name}" for name in ("CLOSE", "OPEN", "OPEN_AGAIN")),
    "cancel.CANCEL",
    "claim.CLAIM",
    "claim.CLAIM_BESIDE_HELD",
    "claim.CLAIM_FROM_FLOORS",
    "claim.CLAIM_FROM_FLOORS_BESIDE_HELD",
    "claim.KNOWN_QUEUES",
    "claim.PARK",
    "claim.PARK_LAPSED",
    "claim.REMEMBER_QUEUES",
    "claim.SEE",
    "claim_one.CLAIM_ONE",
    "connect.BACKEND_PID",
    "clock.NOW",
    *(f"counters.{name}" for name in ("NAME", "OF_EPOCH")),
    *(f"day_tables.{name}" for name in ("ATTACHED", "LEFT_OVER", "PENDING", "TODAY")),
    "day_tables.PATIENCE",
    "rights.RIGHTS",
    "apart.PATIENCE",
    "dead_letters.DELETE",
    "dead_letters.SET_ASIDE",
    "doctor.LAPSED",
    *("depth.COUNT", "depth.NOTE", "depth.READ"),
    "doctor.NEW_DEAD_LETTERS",
    "doctor.STUCK_SAGAS",
    "doctor.TASKS",
    "doctor.WORKERS",
    "edit.EDIT_DEAD_LETTER",
    "edit.EDIT_JOB",
    "edit.LOCK_DEAD_LETTER",
    "edit.LOCK_JOB",
    *("edit.MOVE_DEAD_LETTER", "edit.MOVE_JOB"),
    *("enqueue.STORE", "enqueue.PIN", "gather.GATHER"),
    *(f"erasures.{name}" for name in ("DAY_TABLES", "BEGIN", "ADD_ROWS")),
    *(
        f"erasures.{name}"
        for name in ("SET_MESSAGES", "COUNT_SCHEDULED", "ADD_INGESTED")
    ),
    *(f"ingest_rewrites.{name}" for name in ("TAKE", "DECIDE", "END", "LEFT")),
    *("ingest_rewrites.TARGETS", "ingest_rewrites.LIVE_INGEST"),
    "ingest_rewrites.LOSE_INGEST",
    *(f"erasures.{name}" for name in ("HAS_EXPORT", "ADD_EXPORT", "FINISH", "TARGETS")),
    *(f"exports.{name}" for name in ("ENDED", "WRITERS", "TAKE", "KNOWN", "DEPARTED")),
    *(f"exports.{name}" for name in ("BEGIN", "PUBLISH", "RECORD", "FAIL", "SPOIL")),
    *(f"exports.{name}" for name in ("RESTORE", "DETAILS", "DOUBT", "CONTENT_OF_ROWS")),
    *(f"exports.{name}" for name in ("FILES", "UNCHECKED", "REPLACED", "LISTED")),
    *("exports.SEEN", "exports.CLEANED", "exports.LATEST_TARGET"),
    *(f"ingest_batches.{name}" for name in ("LATEST", "DECIDE")),
    "ingest_positions.NOTE",
    *(f"ended_jobs.{name}" for name in ("COUNT_ARCHIVED", "COUNT_LETTERS")),
    *(f"ended_jobs.{name}" for name in ("PLACES_ARCHIVED", "MEASURE_ARCHIVED")),
    *("ended_jobs.MAKE_DEPARTED", "runs.LATEST_SUCCESS"),
    *(f"enqueued_hours.COUNT_{name}" for name in ("WAITING", "ARCHIVED", "DEAD")),
    *(f"enqueued_hours.{name}" for name in ("KNOWN", "STORE", "MISSING", "HAS_ANY")),
    "enqueued_hours.FORGET_HOURS",
    *(f"failed_jobs.{name}" for name in ("WAITING", "ARCHIVED", "LETTERS")),
    *(f"failures.{name}" for name in ("STORE", "STORE_HOURS", "NO_LETTERS", "SUM_UP")),
    *("failures.FORGET", "failures.FORGET_HOURS", "failures.LETTERS"),
    *("find.FIND", "find.LIVE"),
    "find.READ",
    "health.CLOCK",
    "health.CONNECTIONS",
    "health.HORIZON",
    "health.INVALID_INDEXES",
    "health.NOTIFICATIONS",
    "health.PATIENCE",
    "health.PREPARED",
    "health.VACUUM",
    "lease.CANCEL_REQUESTS",
    "lease.EXTEND",
    "lease.PROGRESS",
    "lease.RELEASE",
    "lease.RENEW",
    "lease.HELD",
    "lease.LEASED",
    "lease.RESCUE",
    "fair.CLAIM_FAIR",
    *(f"lane_controls.{name}" for name in LANE_CONTROLS),
    *(f"queue_limits.{name}" for name in QUEUE_LIMITS),
    *(f"lane_stats.{name}" for name in ("FAILING", "FIND", "FIND_BACK")),
    *(f"lane_stats.{name}" for name in ("PLACE", "STATS")),
    "leased.LEASED",
    "limits.LIMIT",
    "limits.RESTORE",
    "limits.RESTORE_SORTS",
    "limits.UNSORTED",
    *(f"bulk_acts.{name}" for name in ("CREATE", "DUE", "TAKE", "NOTE", "FAIL")),
    *("bulk_acts.STOP", "bulk_acts.PURGE", "bulk_acts.PROGRESS"),
    *(f"mail_files.{name}" for name in ("HOLD", "STORE", "USE", "FETCH")),
    *(f"mail_files.{name}" for name in ("PURGE_USES", "DUE", "PURGE")),
    "partitions.MAKE",
    "pause.PAUSE",
    "pause.RESUME",
    *(f"pull.{name}" for name in (*PULLED, "WAITING", "LETTERS", "HAS_PULL_QUEUES")),
    "purge.BY_INDEX",
    "purge.DEAD_LETTERS",
    "purge.DEDUP_WINDOWS",
    "purge.RESULTS",
    "purge.WORKERS",
    "purge.WORKFLOWS",
    "redrive.HOLDERS",
    "redrive.REDRIVE",
    "redrive.REDRIVE_KEYED",
    "redrive.RETRY_NOW",
    "reprocess.AGAIN",
    "reprocess.LOOK",
    "reprocess.NO_SORT",
    *(f"store.{name}" for name in ("LOCK", "SHOWN", "ALL", "ONE", "TAKE", "NOW")),
    *(f"store.{name}" for name in ("INSERT", "CHANGE", "DECLARE", "WITHDRAW")),
    *(f"store.{name}" for name in ("PAUSE", "RESUME", "DELETE")),
    *(f"repeat.{name}" for name in ("REPEAT", "FORGET_CALLS")),
    "retake.RETAKE",
    "server.FACTS",
    "server.INSTALLATION",
    "server.MISSING_INDEXES",
    "settle.APPLIED",
    "settle.APPLIED_AWAY",
    "settle.ARCHIVE_PLAIN",
    "settle.AWAY",
    "settle.FORGET",
    "settle.ARCHIVE",
    "settle.DEAD_LETTER",
    "settle.NOTE",
    "settle.RETRY",
    "stats.BANDS",
    "stats.NAMES",
    "stats.QUEUES",
    "tagged.TAGGED_ARCHIVED",
    *(f"runs.{name}" for name in ("LOSE", "START", "FORGET_OLD", "LIVE", "BEAT")),
    *(f"runs.{name}" for name in ("HOLD", "FINISH", "STOP", "LATEST", "STATE")),
    *("runs.OF_QUEUE_JOB", "runs.LIVE_RUNS", "runs.LOSE_LATE"),
    *("runs.ALONE", "runs.LOSE_ONE", "runs.OF_PROCESS"),
    *(f"inbox.{name}" for name in ("NOTE", "PURGE")),
    *(f"log.scheduled.{name}" for name in ("STORE", "NEXT", "NEXT_FREE", "OVERDUE")),
    *(f"log.scheduled.{name}" for name in ("PREPARE", "DUE", "PUBLISH", "PUT_OFF")),
    "log.scheduled.CANCEL",
    "log.doctor.SCHEDULED",
    *(f"ticks.{name}" for name in ("DUE", "NEXT", "OVERDUE", "ADVANCE", "RECKON")),
    *(f"ticks.{name}" for name in ("INSERT", "BUSY", "NOTE_JOB", "LATEST", "PURGE")),
    *("ticks.COMING", "ticks.NOTE_MESSAGE", "ticks.OWN_JOB"),
    *(f"task_hours.{name}" for name in ("STORE", "COUNTED", "LAST", "FORGET_HOURS")),
    *(f"task_hour_charts.{name}" for name in ("SUMS", "EXTENT")),
    *(f"task_spans.{name}" for name in ("ADD", "CHARTS", "PURGE")),
    *("pull_ends.HAS_PULL_QUEUES", "pull_ends.MOVE"),
    *(f"failure_kinds.{name}" for name in ("RECENT", "TREND", "CLOCK")),
    "tagged.TAGGED_DEAD_LETTERS",
    "tagged.TAGGED_JOBS",
    *(f"log.backfill.{name}" for name in ("OPEN", "HOLD_TOPICS", "EDGE", "FILL")),
    *(f"workflows.{name}" for name in ("DEAD", "OF_KEY", "SHAPE")),
    *(f"log.backlogs.{name}" for name in ("BOUNDED", "COUNT", "NOTE", "OLDEST")),
    *(f"log.backlogs.{name}" for name in ("TRY_LOCK", "HOLD", "RELEASE", "FULL")),
    "log.backlogs.FILL_AGAIN",
    "log.snapshots.HAS_OLDER",
    *(f"log.generations.{name}" for name in ("TAKE", "TAKE_BY_ID", "GENERATIONS")),
    *(f"log.generations.{name}" for name in ("NUMBERS", "CHANGE", "BEGIN", "NOTE")),
    *(f"log.generations.{name}" for name in ("OPEN", "CLOSE", "CLOSED", "FINISH")),
    *(f"log.generations.{name}" for name in ("IS_CHANGING", "DROP", "FORMER")),
    *("log.generations.MAKE_POSITIONS", "log.merge.UNREAD"),
    *(f"log.browse.{name}" for name in ("NEWEST", "OLDEST")),
    *(f"log.captures.{name}" for name in ("FIND_ALL", "HAS_FUNCTION", "SET_ACTOR")),
    *("log.closed_days.CLOSED", "log.closed_days.READ_BY"),
    *(f"log.days.{name}" for name in ("MAKE", "FIRST_OPEN", "HIGHEST", "HAS_DAYS")),
    *(f"log.days.{name}" for name in ("PATIENCE", "CLOSE")),
    *(f"log.days.{name}" for name in ("FORGET", "FORGET_OTHERS")),
    "log.days.GUARDED",
    *(f"log.declare.{name}" for name in ("CHANGES", "DECLARE")),
    *(f"log.fetch.{name}" for name in ("FETCH", "FETCH_MANY")),
    *(f"log.doctor.{name}" for name in ("BEHIND", "HALTED", "NAMES")),
    *("log.doctor.BOUNDED", "log.doctor.OTHER_PARTITIONS", "log.doctor.UNINGESTED"),
    "log.doctor.STALLED_INGEST",
    "log.doctor.FORMER",
    *(f"log.groups.{name}" for name in ("MAKE_TOPIC", "TOPIC", "DECLARE", "ONE")),
    "log.groups.ALL",
    *(f"log.groups.{name}" for name in ("COMPLETE", "SHOWN", "PAUSE", "RESUME")),
    *(f"log.backfill_begin.{name}" for name in ("SUBSCRIPTION", "BEGIN", "GROUP")),
    *(f"log.backfill_begin.{name}" for name in ("READ_TO", "MADE_AT")),
    *(f"log.groups.{name}" for name in ("FORGET", "AGO", "DECLARE_AGAIN")),
    *(f"log.horizon.{name}" for name in ("HORIZONS", "HOLDERS")),
    *("log.lag.LAG", "log.ingest_lag.LAG", "log.ingest_lag.LEAST"),
    "log.first_id.FIRST_ID",
    *(f"log.overview.{name}" for name in ("COUNT", "ENDS", "DAYS")),
    *(f"log.publish.{name}" for name in ("STORE", "STORE_ONE", "JOBS", "ADMIT")),
    *(f"log.positions.{name}" for name in ("LOOK", "CLAIM", "CLAIM_BY_ID", "FREE")),
    *(f"log.positions.{name}" for name in ("ADVANCE", "ADVANCE_BY_ID", "FAIL")),
    *(f"log.positions.{name}" for name in ("HALT", "SKIP", "RESUME", "LOST")),
    *(f"log.positions.{name}" for name in ("FORWARD", "LOWEST", "RELEASE")),
    *(f"log.positions.{name}" for name in ("LOSE", "HURRY")),
    *(f"log.pull.{name}" for name in ("READ", "COMMIT", "EXTEND", "FAILURES")),
    *(f"log.read.{name}" for name in ("READ", "READ_WHERE", "BARE", "BARE_WHERE")),
    *(f"log.replay.{name}" for name in ("INTO_SUBSCRIPTION", "COUNT_SUBSCRIPTION")),
    *(f"log.replay.{name}" for name in ("INTO_GROUP", "COUNT_GROUP")),
    *(f"log.replay.{name}" for name in ("INTO_QUEUE", "COUNT_QUEUE", "PULL_QUEUES")),
    *(f"log.retain.{name}" for name in ("TOPICS", "HOLD_TOPIC")),
    *(f"log.retain.{name}" for name in ("HIGHEST", "BEHIND", "TAKE_POSITIONS")),
    *(f"log.retain.{name}" for name in ("LOST", "LAST_LOST", "HALT", "REMOVE_TO")),
    *(f"log.retain.{name}" for name in ("INLINE_JOBS", "INLINE_DEAD_LETTERS")),
    *(f"log.retain_backfills.{name}" for name in ("LOST", "NOTE", "BEHIND")),
    "log.retain_backfills.LOST_LATELY",
    *(
        f"log.seek.{name}"
        for name in (
            *("GROUP", "GROUP_TO_SEEK", "PARTITIONS"),
            *("BEFORE", "FIRST", "BETWEEN"),
        )
    ),
    *(f"log.sizes.{name}" for name in ("NOTED", "NOTE_DAY", "FORGET_TOPIC")),
    "log.sizes.NOTE_TOPICS",
    *(f"log.seek.{name}" for name in ("SEEK", "FENCE_OTHERS", "OLDEST")),
    *(f"log.subscriptions.{name}" for name in ("LOCK", "SHOWN", "ALL")),
    *(f"log.subscriptions.{name}" for name in ("INSERT", "DECLARE", "DISABLE")),
    *(f"log.subscriptions.{name}" for name in ("DECLARE_AGAIN", "ENABLE", "DELETE")),
    *("lane_horizon.STORED", "lane_horizon.WRITERS"),
    *(f"watch.{name}" for name in ("LOOK", "NOW", "SAID", "STANDING")),
    *(
        f"lanes.{name}"
        for name in ("FORGET", "LANES_OF", "NEWLY_DUE", "PROMOTE", "WITH_ROOM")
    ),
    *("waited.ANNOUNCE", "waited.ENDED_CHANNEL", "waited.TELL"),
    "wake.CHANNEL",
    "wake.NOTIFY",
    "wake.NOTIFY_CHANNEL",
    "workers.FORGET",
    "workers.HEARTBEAT",
    "workers.LEAD",
    "workers.LOCK",
    "workers.REGISTER",
    *(f"workflows.{name}" for name in ("START", "FIND", *WORKFLOWS)),
    *("workflows.LEFT_OUT", "workflows.STARTED_BESIDE", "workflows.CANCEL"),
    *("workflows.STARTED", "workflows.ADVANCE", "workflows.UNDER_WAY"),
    *("workflows.ENDED", "workflows.OUTCOMES", "workflows.UNASKED"),
    "workflows.LOCK_OF",
    *(f"workflows.{name}" for name in ("ADD", "BATCH_OF", "WITH_KEY", "OVERDUE")),
    *("workflows.RESTART", "workflows.RESOLVE"),
    *(f"durable.{name}" for name in ("READ", "STORE", "DONE", "FIND_SIGNAL", "SEND")),
    *(f"output.{name}" for name in ("APPEND", "APPEND_LAST", "READ", "LATEST")),
    "output.PURGE",
    *(f"durable.{name}" for name in ("WAKE", "PURGE_STEPS", "PURGE_SIGNALS")),
}

# Those that it cannot: they are run by the tests of their own modules.
UTILITY = {
    # Parts of those of MADE.
    *("enqueue_rows.MADE", "enqueue_rows.COUNTED", "rules.WAITING"),
    *("unique.ONE_STORED", "unique.MANY_STORED"),
    "connect.FLUSH",
    "connect.FLUSH_LATER",
    "connect.IN_ORDER",
    "connect.IN_ORDER_ONCE",
    "connect.STEADY",
    "connect.STEADY_ONCE",
    "connect.ISOLATION",
    *(f"day_tables.{name}" for name in ("ATTACH", "DETACH", "FINISH", "DROP")),
    "connect.READ_COMMITTED",
    # Of a sequence that is named when they are run.
    *(f"counters.{name}" for name in ("SEQUENCE", "SET_SEQUENCE", "SET_EPOCH")),
    # Of what others are made.
    *(f"log.read.{name}" for name in ("PLAIN", "BOUNDED", "CONTAINING", "WHERE")),
    *(f"log.backfill.{name}" for name in ("FOUND", "JOBS", "REACHED")),
    *(
        f"log.replay.{name}"
        for name in ("SUBSCRIPTION", "GROUP", "QUEUE", "REPLAYS", "COUNTS")
    ),
    # Of a stage that is named when they are run: tests/spark/write.
    *(f"log.replay.{name}" for name in ("GIVEN", "REPLAYS_GIVEN")),
    *(f"log.positions.{name}" for name in ("CLAIMS", "ADVANCES")),
    # Of a table that is named when they are run.
    *(f"log.captures.{name}" for name in ("CREATE", "DROP", "TRY")),
    *(f"ended_jobs.{name}" for name in ("COUNT_ROWS", "FIND_PLACES", "MEASURE_HOUR")),
    *("ended_jobs.MEASURED", "ended_jobs.MEASURE_LABELS", "costs.COSTS"),
    # Of a table that a transaction makes for itself.
    *(f"ended_jobs.{name}_DEPARTED" for name in ("COUNT", "PLACES", "MEASURE")),
    *(f"ended_jobs.{name}_DEPARTED" for name in ("SORT", "LABELS")),
    "ended_jobs.ONE_SNAPSHOT",
    *("exports.CONTENT", "exports.CONTENT_BEFORE", "exports.COUNT"),
    # tests/pipeline/test_erasures.py has the plans of these.
    *("erasures.PAGE", "erasures.COUNT_PAGE", "erasures.DELETE_PAGE"),
    *("erasures.FIND_MESSAGES", "erasures.DELETE_MESSAGES"),
    *(f"log.retain.{name}" for name in ("PRESENT", "DELETE")),
    *("log.days.UNGUARD", "log.sizes.SAMPLE"),
    "task_spans.LATE",
    *(f"suspects.{name}" for name in ("WAITING", "CLAIM_SUSPECTS")),
    *(f"log.positions.{name}" for name in ("LIMIT", "LIMIT_ALL")),
    "wake.LISTEN",
}


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


def parameters(name):
    """Return the parameters that the statement *name* asks for."""
    if name in PLACED:
        return PLACED[name]
    values = VALUES | SPECIAL.get(name, {})
    return {key: values[key] for key in PLACEHOLDER.findall(STATEMENTS[name])}


def explain(cursor, statement, params, *, how="FORMAT JSON"):
    """Return the plan's root; what the statement changes is rolled back."""
    with cursor.connection.transaction(force_rollback=True):
        cursor.execute(f"EXPLAIN ({how}) {statement}", params)
        return cursor.fetchone()[0][0]["Plan"]


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


def nodes(plan):
    yield plan
    for child in plan.get("Plans", ()):
        yield from nodes(child)


def seq_scans(plan):
    return [
        node["Relation Name"]
        for node in nodes(plan)
        if node["Node Type"] == "Seq Scan" and node["Relation Name"] == "pgqueue_job"
    ]


def buffers(plan):
    return plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]


# Every statement ---------------------------------------------------------------------


def test_every_statement_has_an_entry():
    """A new one is added to this module, and so is explained or run."""
    assert EXPLAINED | UTILITY == set(STATEMENTS) - set(MADE)


def test_every_statement_is_valid_against_the_schema(cursor):
    """Tables, columns, types and functions exist as they are written."""
    wrong = {}
    for name in sorted(EXPLAINED | set(MADE)):
        try:
            assert explain(cursor, STATEMENTS[name], parameters(name))
        except psycopg.Error as error:
            wrong[name] = str(error)

    assert {} == wrong


# The hot ones ------------------------------------------------------------------------

ONE_AFTER_ANOTHER = """
INSERT INTO pgqueue_job (task, visible_at)
SELECT 'x', clock_timestamp() - interval '1 hour' + n * interval '1 ms'
  FROM generate_series(1, {n}) n
"""
DUE = """
INSERT INTO pgqueue_job (task, priority)
SELECT 'x', n % 3 FROM generate_series(1, {n}) n
"""
FUTURE = """
INSERT INTO pgqueue_job (task, visible_at)
SELECT 'x', clock_timestamp() + interval '1 hour' FROM generate_series(1, {n})
"""
PARKED = """
INSERT INTO pgqueue_job (task, lane) SELECT 'x', 'one' FROM generate_series(1, {n})
"""
QUEUES = """
INSERT INTO pgqueue_job (task, queue) SELECT 'x', 'q' || n % 1000
  FROM generate_series(1, {n}) n
"""

# What fills the table.
SHAPES = {
    "due": DUE,
    "future": FUTURE,
    "parked in one lane": PARKED,
    "a thousand queues": QUEUES,
}
# The most buffers, those for each band (a priority of a queue) that the statement has
# to look at, and the rows that there are to find; None: it depends on the shape.
HOT = {
    "claim.CLAIM": (BUFFERS_MAX, 0, 10),
    "claim.CLAIM_BESIDE_HELD": (BUFFERS_MAX, 0, 10),
    "claim.CLAIM_FROM_FLOORS": (BUFFERS_MAX, 0, 10),
    "claim.CLAIM_FROM_FLOORS_BESIDE_HELD": (BUFFERS_MAX, 0, 10),
    "claim.PARK": (100, 6, 0),
    "claim.PARK_LAPSED": (BUFFERS_MAX, 0, 0),
    "claim.SEE": (100, 0, None),
    "claim.KNOWN_QUEUES": (100, 6, None),
    "settle.ARCHIVE": (BUFFERS_MAX, 0, 10),
    "settle.RETRY": (BUFFERS_MAX, 0, 10),
    "settle.DEAD_LETTER": (BUFFERS_MAX, 0, 10),
    "suspects.WAITING": (BUFFERS_MAX, 0, None),
    "suspects.CLAIM_SUSPECTS": (BUFFERS_MAX, 0, None),
    "lease.RENEW": (BUFFERS_MAX, 0, 10),
    "lease.RELEASE": (BUFFERS_MAX, 0, 10),
    "lease.LEASED": (BUFFERS_MAX, 0, 0),
    "lease.RESCUE": (BUFFERS_MAX, 12, 10),
    "lease.CANCEL_REQUESTS": (BUFFERS_MAX, 0, 0),
    "cancel.CANCEL": (BUFFERS_MAX, 0, 10),
    "doctor.STUCK_SAGAS": (BUFFERS_MAX, 0, 0),
    "output.APPEND": (BUFFERS_MAX, 0, 10),
    "queue_limits.ROOM": (BUFFERS_MAX, 0, 1),
    "queue_limits.TAKE_OVER": (BUFFERS_MAX, 0, 0),
    "lanes.NEWLY_DUE": (BUFFERS_MAX, 0, 1),
    "lanes.WITH_ROOM": (BUFFERS_MAX, 0, 1),
    "lanes.PROMOTE": (BUFFERS_MAX + PLAN_BUFFERS, 0, 1),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_hot_statements_use_indexes_whatever_the_table_holds(cursor, unanalysed, shape):
    """
    No sequential scan, and few buffers for ten rows; nor with a generic plan.

    As long as the table was never analysed, or when it was empty; and after ANALYZE.
    A worker of a thousand queues sees them slice by slice; a claim has a band for each
    row.
    """
    is_due, has_queues = shape == "due", shape == "a thousand queues"
    if is_due:
        cursor.execute("ANALYZE pgqueue_job")
    cursor.execute(SHAPES[shape].format(n=ROWS))
    make_jobs(20, visible_at=timedelta(0))
    held = [make_leased_job("worker", priority=n % 2).pk for n in range(10)]
    Queue.objects.create(name="default")
    for job in held:
        Permit.objects.create(job_id=job, queue="default", delivery=1)
    ten = {
        "ids": held,
        "deliveries": [1] * 10,
        "results": ["1"] * 10,
        "errors": ['{"kind": "error"}'] * 10,
        "reasons": ["exhausted"] * 10,
        "ran": [0.1] * 10,
        "delays": [1.5] * 10,
        "attempts_back": [0] * 10,
        "unknown": [False] * 10,
        "due": [NOON] * 10,
        "floors": [NOON],
    }
    bands = 1_000 if has_queues else 3

    def look():
        assert {} == dear(cursor, ten, bands)
        if has_queues:
            assert_looks_read_little(cursor)

    if is_due:
        look()
        unanalysed()
    look()
    cursor.execute("ANALYZE pgqueue_job")
    look()


def dear(cursor, ten, bands):
    """Return the hot statements that read too much, or find something else."""
    wrong = {}
    for name, (buffers_max, buffers_per_band, rows) in HOT.items():
        params = parameters(name)
        params |= {key: ten[key] for key in params if key in ten}
        plan = explain(
            cursor, STATEMENTS[name], params, how="ANALYZE, BUFFERS, FORMAT JSON"
        )
        if seq_scans(plan) or buffers(plan) > buffers_max + bands * buffers_per_band:
            wrong[name] = (buffers(plan), json.dumps(plan, indent=1))
        if rows is not None and rows != plan["Actual Rows"]:
            wrong[f"{name} (rows)"] = plan["Actual Rows"]
        generic = explain_generic(cursor, STATEMENTS[name], params)
        if seq_scans(generic):
            wrong[f"{name} (generic)"] = json.dumps(generic, indent=1)
    return wrong


# What a worker of a thousand queues sends, at most: statements for ten rows each.
MANY = {
    "claim.SEE": {"queues": [f"q{n}" for n in range(SLICE_QUEUES)]},
    "claim.CLAIM": {"queues": [f"q{n}" for n in range(WAKE_QUEUES_MAX)]},
    "claim.CLAIM_FROM_FLOORS": {
        "queues": [f"q{n}" for n in range(10)],
        "priorities": [0] * 10,
        "floors": [NOON] * 10,
        "limits": [1] * 10,
    },
}


def assert_looks_read_little(cursor):
    found = {}
    for name, params in MANY.items():
        plan = explain(
            cursor,
            STATEMENTS[name],
            parameters(name) | params,
            how="ANALYZE, BUFFERS, FORMAT JSON",
        )
        assert [] == seq_scans(plan)
        assert [] == seq_scans(
            explain_generic(cursor, STATEMENTS[name], parameters(name) | params)
        )
        found[name] = (plan["Actual Rows"], buffers(plan))

    assert [SLICE_QUEUES, 10, 10] == [rows for rows, _ in found.values()]
    assert {} == {name: n for name, (_, n) in found.items() if n > BUFFERS_MAX}


# Comparisons of a join that come to nothing, at most, for each row of a batch.
WASTE_MAX = 2
FILL_ONE_QUEUE = """
INSERT INTO pgqueue_job (task, queue)
SELECT 'tests.noop', 'default' FROM generate_series(1, %s)
"""


@pytest.mark.parametrize("rows", [3_000, 20_000])
def test_a_batch_is_not_compared_row_by_row_in_a_table_that_was_empty(cursor, rows):
    """Vacuumed when everything was done, then filled: the planner expects one row."""
    cursor.execute("TRUNCATE pgqueue_job")
    make_jobs(200)
    cursor.execute("DELETE FROM pgqueue_job")
    cursor.execute("VACUUM (ANALYZE) pgqueue_job")
    link = Link("default", name="tests: steady", steady=True)
    try:
        hot = link.cursor()
        cursor.execute(FILL_ONE_QUEUE, [rows])
        claimed = claim_from_floors(
            cursor,
            bands=[Band("default", 0, datetime(2000, 1, 1, tzinfo=UTC))],
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
            "floors": [datetime(2000, 1, 1, tzinfo=UTC)],
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
            params = parameters(name)
            params |= {key: batch[key] for key in params if key in batch}
            plan = explain(hot, STATEMENTS[name], params, how="ANALYZE, FORMAT JSON")
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
    few = {"floors": [datetime(2000, 1, 1, tzinfo=UTC)], "limits": [10], "limit": 10}
    link = Link("default", name="tests: claimer", steady=True, in_order=True)
    try:
        hot = link.cursor()
        read = {}
        for name in CLAIMS:
            params = parameters(name)
            params |= {key: few[key] for key in params if key in few}
            if name == "claim.PARK":
                params["held"] = ["tests.noop"]
            plan = explain_generic(
                hot, STATEMENTS[name], params, how="ANALYZE, BUFFERS, FORMAT JSON"
            )
            read[name] = buffers(plan)
            found = {
                node["Actual Rows"]
                for node in nodes(plan)
                if node.get("Subplan Name") == "CTE candidate"
            }
            assert {10} == found, name
    finally:
        link.drop()

    assert {} == {name: n for name, n in read.items() if n > BUFFERS_MAX}


@pytest.mark.slow
def test_draining_does_not_walk_over_what_it_has_finished(cursor, other_cursor):
    """
    Under a transaction that holds back vacuum, a claim from its floor stays flat.

    The dead index entries of finished jobs stay until that transaction ends; the
    claim without a floor reads them all.
    """
    batch = 1_000
    cursor.execute(ONE_AFTER_ANOTHER.format(n=20 * batch))
    other_cursor.connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
    floor = datetime(2000, 1, 1, tzinfo=UTC)

    with other_cursor.connection.transaction():
        other_cursor.execute("SELECT count(*) FROM pgqueue_job")
        for _ in range(18):
            claimed = claim_from_floors(
                cursor,
                bands=[Band("default", 0, floor)],
                worker="worker",
                limit=batch,
                lease=LEASE,
            )
            floor = claimed[-1].due_at
            ack(
                cursor,
                worker="worker",
                ended=[Ended(job.id, job.delivery) for job in claimed],
            )
        how = "ANALYZE, BUFFERS, FORMAT JSON"
        floored = explain(
            cursor,
            claims.CLAIM_FROM_FLOORS,
            parameters("claim.CLAIM_FROM_FLOORS") | {"floors": [floor]},
            how=how,
        )
        unfloored = explain(cursor, claims.CLAIM, parameters("claim.CLAIM"), how=how)

    assert (10, 10) == (floored["Actual Rows"], unfloored["Actual Rows"])
    assert buffers(floored) <= BUFFERS_MAX < buffers(unfloored)


def test_the_statements_of_this_module_are_those_that_run():
    """The constants that are explained are the ones that the functions execute."""
    assert STATEMENTS["claim.CLAIM"] is claims.CLAIM
    assert STATEMENTS["lease.RENEW"] is leases.RENEW
    assert STATEMENTS["settle.ARCHIVE"] is settles.ARCHIVE
