"""
Bad input: whatever callers and other programs may get wrong.

REFUSED is one of our exceptions, raised before any SQL; it names the path of the value
and leaves the caller's transaction usable. Values that may travel come back unchanged.
Rows that other programs insert end as one dead letter with a reason, while their
neighbours run.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections import namedtuple
from contextlib import contextmanager
from datetime import UTC, datetime, time, timedelta
from decimal import Decimal
from uuid import UUID

import pytest
from asgiref.sync import async_to_sync
from django.db import connection, connections, transaction
from django.db.models import Value
from django.test.utils import CaptureQueriesContext
from django.utils.translation import gettext_lazy

from django_pgqueue import (
    InvalidArgument,
    InvalidOption,
    PgQueueError,
)
from django_pgqueue.models import DeadLetter, Job
from django_pgqueue.tasks.payload import DEPTH_MAX, decode_value
from tests.acceptance.naughty import STRINGS
from tests.app import crash_tasks
from tests.app.models import Order
from tests.app.tasks import echo, noop
from tests.harness.waiting import wait_for
from tests.harness.worker_process import (
    REPOSITORY,
    enqueue,
    places,
    wait_until_final,
)

pytestmark = pytest.mark.smoke

in_transaction = pytest.mark.django_db
committed = pytest.mark.django_db(transaction=True)
two_databases = pytest.mark.django_db(databases=["default", "queue"], transaction=True)


@contextmanager
def refused(error, message):
    """Expect *error* before any SQL, and a transaction that goes on afterwards."""
    with transaction.atomic():
        before = Order.objects.create(name="before").pk
        with (
            CaptureQueriesContext(connection) as queries,
            pytest.raises(error, match=message) as caught,
        ):
            yield
        after = Order.objects.create(name="after").pk
    assert [] == queries.captured_queries
    assert isinstance(caught.value, PgQueueError)
    assert 2 == Order.objects.filter(pk__in=[before, after]).count()
    assert 0 == Job.objects.count()


# Values that cannot travel -----------------------------------------------------------


class Unprintable:
    """Its text and its repr both raise."""

    def __repr__(self):
        raise RuntimeError("no repr")

    __str__ = __repr__


class UnreadableList(list):
    """A list whose items cannot be read."""

    def __iter__(self):
        raise RuntimeError("no items")


class SecretStr:
    """Hides a secret from repr(), as libraries do."""

    def __init__(self, secret):
        self.secret = secret

    def __repr__(self):
        return "SecretStr('**********')"


Point = namedtuple("Point", "x y")


def nested(depth):
    value = []
    for _ in range(depth - 1):
        value = [value]
    return value


def circular():
    value = {}
    value["self"] = [value]
    return value


# What makes the value, and the reason that the error gives.
NOT_VALUES = {
    "nan": (lambda: math.nan, "is nan, which JSON cannot hold"),
    "nul": (lambda: "a\x00b", "holds a NUL character"),
    "5001-digits": (lambda: 10**5_000, "has more than 4,300 digits"),
    "set": (lambda: {1}, "is a builtins.set, which cannot be stored"),
    "unsaved-instance": (lambda: Order(name="x"), r"is an unsaved \w+\.Order"),
    "queryset": (Order.objects.all, r"is a QuerySet, .*values_list\('pk', flat=True\)"),
    "lazy-text": (lambda: gettext_lazy("Yes"), "is a lazy text, whose language"),
    "integer-key": (lambda: {1: "a", "1": "b"}, r"has the key 1; .*use str\(key"),
    "reserved-key": (lambda: {"__pgqueue__": 1}, "the key '__pgqueue__', which"),
    "circular": (circular, "is nested deeper than 100 levels, or holds it"),
    "60000-levels": (lambda: nested(60_000), "deeper than 100 levels"),
    "object": (object, "is a builtins.object, which cannot be stored as JSON"),
    "repr-raises": (Unprintable, r"is a .*\.Unprintable, which cannot be store"),
    "items-raise": (lambda: UnreadableList([1]), "cannot be read: RuntimeError"),
    # The type alone: the value would show the secret.
    "secret": (lambda: SecretStr("s3cret"), r"is a (?!.*s3cret).*\.SecretStr, which"),
}

# How a value comes to a job, and the path that the error gives it.
WAYS = {
    r"kwargs\.items\[3\]": lambda value: noop.delay(items=[0, 1, 2, value]),
    r"args\[1\]\.a": lambda value: noop.enqueue(0, {"a": value}),
    r"args\[0\]": lambda value: noop.apply_async([value]),
    r"item 1 kwargs\.items\[3\]": lambda value: noop.bulk(
        [(1,), {"items": [0, 1, 2, value]}]
    ),
    r"kwargs\['a b'\]": lambda value: noop.on_commit().delay(**{"a b": value}),
    r"headers\.a\[0\]": lambda value: noop.using(headers={"a": [value]}).delay(),
    r"fields\.items\[3\]": lambda value: noop.from_queryset(
        Order.objects.all(), items=Value([0, 1, 2, value])
    ),
    r"kwargs\.a": lambda value: async_to_sync(noop.adelay)(a=value),
}


@in_transaction
@pytest.mark.parametrize("path", WAYS)
def test_a_value_that_cannot_travel_is_refused(path):
    """The error gives its path and the reason, whichever way it comes."""
    for make, reason in NOT_VALUES.values():
        # An error that a value raises while it is read has no path inside.
        place = path if "cannot be read" not in reason else path.split("\\")[0]
        with refused(InvalidArgument, rf"^tests\.app\.tasks\.noop: {place}.*{reason}"):
            WAYS[path](make())


# Values that travel ------------------------------------------------------------------

# What is stored, and what comes back where that is not the same.
VALUES = {
    "both-forms-as-keys": ({"é": 1, "e\u0301": 2},),
    "4300-digits": (-(10**4_300) + 1,),
    "2-53-plus-1": (2**53 + 1,),
    "float-smallest": (5e-324,),
    "decimal": (Decimal("1.10"),),
    "datetime-max-aware": (datetime.max.replace(tzinfo=UTC),),
    "time": (time(2, 30, fold=1),),
    "timedelta": (timedelta(days=-1, microseconds=1),),
    "uuid": (UUID(int=2**128 - 1),),
    "bytes": (bytes(range(256)),),
    "namedtuple": (Point(1, (2,)), [1, [2]]),
    "99-levels": (nested(DEPTH_MAX - 1),),
    "empty": ({"": "", "a": [], "b": {}},),
    "naughty": (STRINGS,),
}


def is_same(expected, actual):
    """Return whether two values are equal, and of equal types all the way down."""
    if type(expected) is not type(actual) or expected != actual:
        return False
    if isinstance(expected, dict):
        return all(is_same(expected[key], actual[key]) for key in expected)
    if isinstance(expected, list):
        return all(map(is_same, expected, actual))
    if isinstance(expected, (datetime, time)):
        return (expected.fold, expected.utcoffset()) == (
            actual.fold,
            actual.utcoffset(),
        )
    return str(expected) == str(actual) if isinstance(expected, Decimal) else True


def stored():
    """Return the keyword argument "value" of each job, as its task would get it."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT kwargs::text FROM pgqueue_job ORDER BY id")
        return [decode_value(text)["value"] for (text,) in cursor.fetchall()]


def test_values_come_back_from_a_real_worker(start_worker):
    """As an argument, and as the result of the task that got it."""
    results = {case: echo.delay(VALUES[case][0]) for case in VALUES}
    start_worker(pgqueue={"RESULT_BYTES_MAX": 1_000_000})

    for case, result in results.items():
        assert is_same(VALUES[case][-1], result.get(timeout=30)), case


# Calls that cannot be right ----------------------------------------------------------

QUEUE_NAMES = ["", "x" * 64, "a b", "%s", "*", "a\n", "\ud800", 5]
PRIORITIES = ["5", 1.5, math.nan, 101, -(2**31) - 1, True, Decimal(5)]
TIMES = ["infinity", -1, 1e12, math.nan, True, 10**5_000, Unprintable()]
KEYS = ["", "k" * 10_000, "a\x00b", b"a", 1.5, True, ["a"], 10**18, Unprintable()]
HEADERS = [["a"], {1: 1}, {"": 1}, {"pgqueue.unknown_since": 1}, {"tags": ["a"]}]
RETRIES = [-1, 32_767, True, "5", 1.5]

NOT_OPTIONS = {
    "queue": (QUEUE_NAMES, "a queue name has 1 to 63 characters"),
    "priority": (PRIORITIES, "priority=.*a whole number from -100 to 100"),
    "run_after": (TIMES, "run_after"),
    "expires": (TIMES, "expires"),
    "retries": (RETRIES, "retries=|max_attempts="),
    "key": (KEYS, "key"),
    "headers": (HEADERS, "headers"),
}


@in_transaction
@pytest.mark.parametrize("option", NOT_OPTIONS)
def test_an_option_that_cannot_be_right_is_refused(option):
    """The error names the option."""
    values, message = NOT_OPTIONS[option]
    others = {"throttle": "1/h"} if option == "key" else {}
    for value in values:
        with refused(InvalidOption, message):
            noop.using(**others, **{option: value}).delay()


# Where from --------------------------------------------------------------------------


PROGRAM = """
from django_pgqueue import task
@task(name="tests.app.tasks.noop")
def noop(*args): ...
noop.delay("import")

import atexit, os, threading
from django.db import connections
connections.close_all()
child = os.fork()
if not child:
    noop.delay("child")
    os._exit(0)
assert 0 == os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
thread = threading.Thread(target=noop.delay, args=("thread",), daemon=True)
thread.start()
thread.join()
atexit.register(noop.delay, "exit")
"""


@committed
def test_a_job_is_stored_at_odd_moments_of_a_process():
    """Before Django is set up, after a fork, in a thread, while Python exits."""
    names = {alias: connections[alias].settings_dict["NAME"] for alias in connections}
    settings = {
        "databases": {alias: {"NAME": name} for alias, name in names.items()},
        "pgqueue": {},
    }
    done = subprocess.run(
        # Django warns of queries before its start is over, and runs them.
        [sys.executable, "-W", "ignore::RuntimeWarning", "-c", PROGRAM],
        cwd=REPOSITORY,
        env={
            **os.environ,
            "DJANGO_SETTINGS_MODULE": "tests.worker_settings",
            "PYTHONPATH": str(REPOSITORY),
            "PGQUEUE_TEST_WORKER": json.dumps(settings),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert (0, "") == (done.returncode, done.stderr)

    assert [["import"], ["child"], ["thread"], ["exit"]] == list(
        Job.objects.order_by("pk").values_list("args", flat=True)
    )


# Rows that other programs insert ------------------------------------------------------


def insert(cursor, **columns):
    """Insert a job from columns as SQL text; return its id."""
    columns = {"task": "'tests.app.tasks.noop'", **columns}
    cursor.execute(
        f"INSERT INTO pgqueue_job ({', '.join(columns)}) "
        f"VALUES ({', '.join(columns.values())}) RETURNING id"
    )
    return cursor.fetchone()[0]


ECHO = {"task": "'tests.app.tasks.echo'"}
ONCE = {**ECHO, "max_attempts": "1"}
EXHAUSTED, UNDECODABLE = ("dead", "exhausted"), ("dead", "undecodable")
UNKNOWN, SUCCEEDED = ("dead", "unknown_task"), ("archive", "succeeded")

# Rows that the tables accept, and where each ends.
ROWS = {
    "no-arguments": ({}, SUCCEEDED),
    "too-few": (ONCE, EXHAUSTED),
    "1e5000": ({**ECHO, "args": "'[1e5000]'"}, UNDECODABLE),
    "in-headers": ({"headers": """'{"a": 1e5000}'"""}, UNDECODABLE),
    "os-system": (
        {"task": "'os.system'", "args": """'["touch /tmp/never"]'"""},
        UNKNOWN,
    ),
    "attempts-used-up": ({"attempt": "9", "deliveries": "9"}, EXHAUSTED),
    "crashes-used-up": ({"crashes": "9", "deliveries": "9"}, ("dead", "worker_lost")),
    "lapsed-lease": (
        {
            "leased_by": "'gone'",
            "leased_at": "now() - interval '1h'",
            "visible_at": "now() - interval '1min'",
            "attempt": "1",
            "deliveries": "1",
        },
        SUCCEEDED,
    ),
    "tag-unknown": (
        {**ECHO, "args": """'[{"__pgqueue__": "pickle", "value": "gASV"}]'"""},
        UNDECODABLE,
    ),
}

# JSON that parsers read in different ways: where it ends depends on Python's version.
DISPUTED = [
    '{"a":1,"\\u0061":2}',
    "1e400",
    "0." + "1" * 5_000,
    "1" + "0" * 5_000 + "e-5000",
    "9" * 4_301,
    "[" * 3_000 + "]" * 3_000,
    '"\\ufffe"',
    '{"__pgqueue__":{"__pgqueue__":"uuid","value":"x"}}',
    '{"__pgqueue__":"model","value":"auth.user","pk":{},"db":"default"}',
    '{"__pgqueue__":"time","value":"12:00","fold":7}',
]


def test_a_row_that_cannot_run_is_dead_alone(start_worker):
    """It has a reason; its neighbours run, in the same process."""
    jobs, neighbours = {}, []
    with connection.cursor() as cursor:
        for case, (columns, _) in ROWS.items():
            neighbours += enqueue(crash_tasks.record)
            jobs[case] = insert(cursor, **columns)
        for text in DISPUTED:
            jobs[text] = insert(cursor, **ONCE, args=f"'[{text}]'")
    worker = start_worker(pgqueue={"UNKNOWN_TASK_GRACE_SECONDS": 0})

    final = wait_until_final([*jobs.values(), *neighbours], 60)

    ends = {case: (final[job].table, final[job].state) for case, job in jobs.items()}
    assert {case: end for case, (_, end) in ROWS.items()} == {
        case: ends[case] for case in ROWS
    }
    assert {"undecodable", "rejected", "exhausted", "succeeded"} >= {
        ends[text][1] for text in DISPUTED
    }
    assert {SUCCEEDED} == {(final[job].table, final[job].state) for job in neighbours}
    assert 1 == len(worker.names())
    errors = dict(DeadLetter.objects.values_list("pk", "errors"))
    for case in ("too-few", "1e5000", "os-system"):
        assert errors[jobs[case]][-1]["message"], case


@pytest.mark.parametrize(
    "change",
    [
        "DELETE FROM pgqueue_job WHERE id = %s",
        "UPDATE pgqueue_job SET leased_by = NULL, visible_at = NULL WHERE id = %s",
    ],
    ids=["deleted", "lease-cleared"],
)
def test_a_change_by_an_operator_wins(start_worker, the_ledger, gate, cursor, change):
    """The worker reports that its outcome was not applied, and goes on."""
    worker = start_worker()
    (job,) = enqueue(crash_tasks.record_through_gate, gate=str(gate))
    wait_for(lambda: the_ledger.entries("start"), what="it runs")
    cursor.execute(change, [job])
    gate.touch()
    wait_for(lambda: the_ledger.entries("end"), what="it has ended")

    worker.wait_for_lines(rf"stale.*job={job}\b|job={job}\b.*stale")
    after = enqueue(crash_tasks.record)
    final = wait_until_final(after)
    assert {"archive"} == {place.table for place in final.values()}
    rows = places().get(job, [])
    assert (0 if "DELETE" in change else 1) == len(rows)
    assert all(row.table == "live" for row in rows)
