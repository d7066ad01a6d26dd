"""
Bad input: every row of the table of what callers, and other programs, may get wrong.

Rows 1 to 35 are calls. REJECT is one of our exceptions, before any SQL, that names the
path of the value, and leaves the caller's transaction usable. OK comes back as it was.
Rows 36 to 45 are written by SQL: what the tables refuse, and what a real worker makes
of the rest. DEAD is one dead letter with a reason, while its neighbours run.
"""

from __future__ import annotations

import enum
import functools
import io
import ipaddress
import json
import math
import os
import pathlib
import socket
import subprocess
import sys
import threading
import unicodedata
from collections import OrderedDict, namedtuple
from contextlib import contextmanager, suppress
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
from asgiref.sync import async_to_sync
from django.contrib.auth.models import User
from django.core.exceptions import SynchronousOnlyOperation
from django.core.files.base import ContentFile
from django.db import (
    DataError,
    IntegrityError,
    InternalError,
    connection,
    connections,
    transaction,
)
from django.db.migrations import RunPython
from django.db.migrations.state import ProjectState
from django.db.models import Value
from django.http import HttpRequest
from django.test.utils import CaptureQueriesContext
from django.utils.functional import SimpleLazyObject
from django.utils.safestring import mark_safe
from django.utils.translation import gettext_lazy

from django_pgqueue import (
    DeclarationError,
    DuplicateJob,
    EnqueueError,
    InvalidArgument,
    InvalidOption,
    PayloadTooLarge,
    PgQueueError,
    Reject,
    Retry,
    SettingsError,
    TopicError,
    UndecodablePayload,
    Unique,
    WrongDatabase,
    publish,
    task,
    topic,
)
from django_pgqueue.conf import get_settings
from django_pgqueue.models import DeadLetter, Job, Message, Topic
from django_pgqueue.tasks import registry
from django_pgqueue.tasks.payload import DEPTH_MAX, decode_value
from django_pgqueue.tasks.result import JobResult
from tests.acceptance.json_texts import DISPUTED, RIGHT, WRONG
from tests.acceptance.naughty import STRINGS
from tests.acceptance.webhooks import Webhooks
from tests.app import crash_tasks
from tests.app.lane_tasks import step
from tests.app.models import Order
from tests.app.tasks import add, echo, enqueues_itself, noop, with_options
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

# Rows about what does not exist yet. When it comes, the test that names it fails, and
# the row moves into the tables below.
LATER = {
    "row-33-secrets-are-encrypted": ("encrypt", "sensitive"),
}


@pytest.mark.parametrize("row", LATER)
def test_rows_of_what_does_not_exist_yet(row):
    """Encryption comes with its own table."""
    import inspect

    import django_pgqueue

    options = {
        *inspect.signature(task).parameters,
        *inspect.signature(noop.using).parameters,
        *django_pgqueue.__all__,
    }
    assert set() == options & set(LATER[row])


@pytest.fixture
def declared(monkeypatch):
    """What a test declares is forgotten after it."""
    monkeypatch.setattr(registry, "tasks", dict(registry.tasks))


def cases(names, rows):
    """Run a test with each row, whose first value names it."""
    return pytest.mark.parametrize(
        names,
        [pytest.param(*row, id=row[0]) if type(row) is tuple else row for row in rows],
    )


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


class Colour(enum.Enum):
    """Its members have no text and no number."""

    RED = (255, 0, 0)


class Size(enum.StrEnum):
    """Its members are text."""

    SMALL = "s"


class Level(enum.IntEnum):
    """Its members are numbers."""

    HIGH = 3


class Unprintable:
    """Neither its text nor its repr can be had."""

    def __repr__(self):
        raise RuntimeError("no repr")

    __str__ = __repr__


class UnreadableList(list):
    """It says that it is a list, and is none that can be read."""

    def __iter__(self):
        raise RuntimeError("no items")


class UnreadableZone(tzinfo):
    """Whoever asks it for an offset is sorry."""

    def utcoffset(self, _):
        raise RuntimeError("no offset")


class SecretStr:
    """As libraries wrap a secret, so that it is not shown."""

    def __init__(self, secret):
        self.secret = secret

    def __repr__(self):
        return "SecretStr('**********')"


Point = namedtuple("Point", "x y")


def nested(depth, kind=list):
    """Return *depth* lists, or dicts, inside one another."""
    value = kind()
    for _ in range(depth - 1):
        value = [value] if kind is list else {"a": value}
    return value


def circular():
    value = []
    value.append(value)
    return value


def circular_dict():
    value = {}
    value["self"] = [value]
    return value


def generator():
    yield 1


async def coroutine():
    """Be awaited by nobody."""


def closed_socket():
    opened = socket.socket()
    opened.close()
    return opened


def deleted_order():
    order = Order.objects.create(name="x")
    order.delete()
    return order


# By row and input: what makes the value, and what is said about it.
NOT_VALUES = {
    "row-01-nan": (lambda: math.nan, "is nan, which JSON cannot hold"),
    "row-01-infinity": (lambda: math.inf, "is inf, which JSON cannot hold"),
    "row-01-minus-infinity": (lambda: -math.inf, "is -inf, which JSON cannot hold"),
    "row-02-nul": (lambda: "a\x00b", "holds a NUL character"),
    "row-02-nul-in-key": (lambda: {"a\x00b": 1}, r"holds a NUL character"),
    "row-03-lone-surrogate": (lambda: "\ud800", "holds a lone surrogate"),
    "row-03-low-surrogate": (lambda: "a\udfffb", "holds a lone surrogate"),
    "row-03-surrogate-in-key": (lambda: {"\udc00": 1}, "holds a lone surrogate"),
    "row-04-5001-digits": (lambda: 10**5_000, "has more than 4,300 digits"),
    "row-04-minus-4301-digits": (lambda: -(10**4_300), "has more than 4,300 digits"),
    "row-06-decimal-nan": (lambda: Decimal("NaN"), "is NaN, which is no number"),
    "row-06-decimal-snan": (lambda: Decimal("sNaN"), "is sNaN, which is no number"),
    "row-06-decimal-infinity": (lambda: Decimal("-Infinity"), "is -Infinity, which"),
    "row-07-time-in-a-zone": (
        lambda: time(12, tzinfo=ZoneInfo("Europe/Berlin")),
        "its offset depends on the date",
    ),
    "row-07-unreadable-zone": (
        lambda: datetime(2026, 1, 1, tzinfo=UnreadableZone()),
        "cannot be read: RuntimeError",
    ),
    "row-08-enum-of-tuples": (lambda: Colour.RED, "is <Colour.RED.*without a str or"),
    "row-08-path": (lambda: pathlib.Path("here"), r"is a pathlib\..*Path, which can"),
    "row-08-ip-address": (
        lambda: ipaddress.ip_address("10.0.0.1"),
        "is a ipaddress.IPv4Address, which cannot be stored",
    ),
    "row-08-memoryview": (lambda: memoryview(b"x"), "is a builtins.memoryview"),
    "row-08-bytearray": (lambda: bytearray(b"x"), "is a builtins.bytearray"),
    "row-08-set": (lambda: {1}, "is a builtins.set, which cannot be stored"),
    "row-08-frozenset": (lambda: frozenset({1}), "is a builtins.frozenset"),
    "row-08-complex": (lambda: 1j, "is a builtins.complex"),
    "row-08-range": (lambda: range(3), "is a builtins.range"),
    "row-09-unsaved-instance": (lambda: Order(name="x"), r"is an unsaved \w+\.Order"),
    "row-09-deleted-instance": (deleted_order, r"is an unsaved \w+\.Order: save it"),
    "row-09-queryset": (
        Order.objects.all,
        r"is a QuerySet, .*values_list\('pk', flat=True\)",
    ),
    "row-09-manager": (lambda: Order.objects, "pass its data or its primary key"),
    "row-09-model-class": (lambda: Order, "is a django.db.models.base.ModelBase"),
    "row-09-lazy-text": (lambda: gettext_lazy("Yes"), "is a lazy text, whose language"),
    "row-09-lazy-object": (
        lambda: SimpleLazyObject("x".upper),
        "is a django.utils.functional.SimpleLazyObject, which cannot be stored",
    ),
    "row-09-file": (
        lambda: ContentFile(b"x", name="x.txt"),
        "is a django.core.files.base.ContentFile, which cannot be stored",
    ),
    "row-09-request": (HttpRequest, "is a django.http.request.HttpRequest, which can"),
    "row-11-integer-key": (
        lambda: {1: "a", "1": "b"},
        r"has the key 1; .*use str\(key",
    ),
    "row-11-none-key": (lambda: {None: 1}, "has the key None; JSON keys are text"),
    "row-11-true-key": (lambda: {True: 1}, "has the key True; JSON keys are text"),
    "row-11-tuple-key": (lambda: {(1, 2): 1}, r"has the key \(1, 2\); JSON keys are"),
    "row-11-reserved-key": (lambda: {"__pgqueue__": 1}, "the key '__pgqueue__', which"),
    "row-12-circular-list": (circular, "is nested deeper than 100 levels, or holds it"),
    "row-12-circular-dict": (circular_dict, "is nested deeper than 100 levels, or hol"),
    "row-12-101-levels": (lambda: nested(DEPTH_MAX + 1), "deeper than 100 levels"),
    "row-12-1200-levels": (lambda: nested(1_200), "deeper than 100 levels"),
    "row-12-5000-levels": (lambda: nested(5_000, dict), "deeper than 100 levels"),
    "row-12-60000-levels": (lambda: nested(60_000), "deeper than 100 levels"),
    "row-14-object": (object, "is a builtins.object, which cannot be stored as JSON"),
    "row-14-lambda": (lambda: plain, "is a builtins.function"),
    "row-14-generator": (generator, "is a builtins.generator"),
    "row-14-class": (lambda: dict, "is a builtins.type"),
    "row-14-module": (lambda: math, "is a builtins.module"),
    "row-14-open-file": (io.StringIO, "is a _io.StringIO"),
    "row-14-socket": (closed_socket, "is a socket.socket"),
    "row-14-lock": (threading.Lock, "is a _thread.lock"),
    "row-14-task": (lambda: noop, "is a django_pgqueue.tasks.task.Task"),
    "row-14-connection": (lambda: connection, "ConnectionProxy|cannot be stored"),
    "row-14-exception": (lambda: ValueError("x"), "is a builtins.ValueError"),
    "row-15-repr-raises": (Unprintable, r"is a .*\.Unprintable, which cannot be store"),
    "row-15-key-repr-raises": (lambda: {Unprintable(): 1}, "has the key a Unprintable"),
    "row-15-items-raise": (lambda: UnreadableList([1]), "cannot be read: RuntimeError"),
    "row-33-secret": (lambda: SecretStr("s3cret"), r"is a .*\.SecretStr, which cannot"),
}

# How a value comes to a job, and where it then stands.
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
@pytest.mark.parametrize("case", NOT_VALUES)
def test_a_value_that_cannot_travel_is_refused(case):
    """REJECT: with the path and the reason, whichever way it comes."""
    make, message = NOT_VALUES[case]
    value = make()

    for path, store in WAYS.items():
        # What raises while it is read has no path inside.
        place = path if "cannot be read" not in message else path.split("\\")[0]
        with refused(InvalidArgument, rf"^tests\.app\.tasks\.noop: {place}.*{message}"):
            store(value)


@in_transaction
def test_row_14_a_coroutine_is_refused():
    """REJECT: by itself, since it must be closed."""
    value = coroutine()
    with refused(InvalidArgument, r"kwargs\.a is a builtins\.coroutine"):
        noop.delay(a=value)
    value.close()


@in_transaction
def test_row_33_what_is_refused_does_not_show_a_secret():
    """The error names the type alone."""
    with refused(InvalidArgument, r"^((?!s3cret).)*SecretStr((?!s3cret).)*$"):
        noop.delay(password=SecretStr("s3cret"))


@in_transaction
@cases(
    "case, size",
    [
        ("row-13-1-mb", 1_048_576),
        ("row-13-50-mb", 50 * 1_048_576),
        pytest.param(
            "row-13-300-mb", 300 * 1_048_576, marks=pytest.mark.slow, id="row-13-300-mb"
        ),
    ],
)
def test_row_13_what_is_too_large_is_refused(case, size):
    """REJECT: with the size and the limit; jsonb's own limit is never met."""
    text = "x" * size
    with refused(PayloadTooLarge, f"arguments take {size + 6:,} b.*1,048,576"):
        noop.bulk([(), (text,)])


# Values that travel ------------------------------------------------------------------

BERLIN = ZoneInfo("Europe/Berlin")

# By row and input: what is stored, and what comes back where that is not the same.
VALUES = {
    "row-03-astral": ("😀",),
    "row-03-nfc": (unicodedata.normalize("NFC", "é"),),
    "row-03-nfd": (unicodedata.normalize("NFD", "é"),),
    "row-03-both-forms-as-keys": ({"é": 1, "e\u0301": 2},),
    "row-03-right-to-left-override": ("\u202egnp.exe",),
    "row-04-4001-digits": (10**4_000,),
    "row-04-4300-digits": (-(10**4_300) + 1,),
    "row-05-2-53-plus-1": (2**53 + 1,),
    "row-05-2-63": (2**63,),
    "row-05-minus-2-63": (-(2**63),),
    "row-05-float-1e16": (1e16,),
    "row-05-float-smallest": (5e-324,),
    "row-05-float-largest": (-1.7976931348623157e308,),
    "row-05-float-whole": (3.0,),
    "row-06-decimal": (Decimal("1.10"),),
    "row-06-decimal-exponent": (Decimal("1E+400"),),
    "row-07-aware-datetime": (datetime(2026, 7, 1, 12, tzinfo=UTC),),
    "row-07-naive-datetime": (datetime(2026, 7, 1, 12),),  # noqa: DTZ001
    "row-07-naive-fold": (datetime(2026, 10, 25, 2, 30, fold=1),),  # noqa: DTZ001
    "row-07-datetime-max": (datetime.max,),  # noqa: DTZ901
    "row-07-datetime-max-aware": (datetime.max.replace(tzinfo=UTC),),
    "row-07-year-1": (datetime.min,),  # noqa: DTZ901
    "row-07-odd-offset": (
        datetime(2026, 1, 1, tzinfo=timezone(timedelta(seconds=-12_345))),
    ),
    "row-07-date": (date(2026, 2, 28),),
    "row-07-date-min": (date.min,),
    "row-07-time": (time(23, 59, 59, 999_999),),
    "row-07-time-fold": (time(2, 30, fold=1),),
    "row-07-time-with-offset": (time(12, tzinfo=UTC),),
    "row-07-timedelta": (timedelta(days=-1, microseconds=1),),
    "row-07-timedelta-max": (timedelta.max,),
    "row-08-uuid": (UUID(int=2**128 - 1),),
    "row-08-bytes": (bytes(range(256)),),
    "row-08-enum-of-text": (Size.SMALL, "s"),
    "row-08-enum-of-numbers": (Level.HIGH, 3),
    "row-10-tuple": ((1, (2,)), [1, [2]]),
    "row-10-namedtuple": (Point(1, 2), [1, 2]),
    "row-10-safe-text": (mark_safe("<b>"), "<b>"),
    "row-10-ordered-dict": (OrderedDict(a=1), {"a": 1}),
    "row-12-99-levels": (nested(DEPTH_MAX - 1),),
    "row-15-empty": ({"": "", "a": [], "b": {}},),
}


def is_same(expected, actual):
    """Whether two values are equal, and of equal types all the way down."""
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
    if isinstance(expected, float):
        return math.copysign(1, expected) == math.copysign(1, actual)
    return str(expected) == str(actual) if isinstance(expected, Decimal) else True


def stored(*ids):
    """Return the keyword argument "value" of each job, as its task would get it."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT kwargs::text FROM pgqueue_job WHERE id = ANY(%s) OR %s ORDER BY id",
            [list(ids), not ids],
        )
        return [decode_value(text)["value"] for (text,) in cursor.fetchall()]


@in_transaction
@pytest.mark.parametrize("case", VALUES)
def test_a_value_comes_back_as_it_was(case):
    """OK: with its type, whichever way it comes; what changes is documented."""
    value, *other = VALUES[case]
    expected = other[0] if other else value
    Order.objects.create(name="one row")

    noop.delay(value=value)
    noop.bulk([{"value": value}])
    noop.from_queryset(Order.objects.all(), value=Value(value))

    found = stored()
    assert 3 == len(found)
    assert all(is_same(expected, actual) for actual in found), found


def test_values_come_back_from_a_real_worker(start_worker):
    """OK: as an argument, and as the result of the task that got it."""
    results = {case: echo.delay(VALUES[case][0]) for case in VALUES}
    start_worker()

    for case, result in results.items():
        value, *other = VALUES[case]
        expected = other[0] if other else value
        assert is_same(expected, result.get(timeout=30)), case


@in_transaction
def test_row_07_an_aware_datetime_keeps_its_offset_and_not_its_zone():
    """OK: the second of two equal readings in autumn is the same moment."""
    moment = datetime(2026, 10, 25, 2, 30, tzinfo=BERLIN, fold=1)

    noop.delay(value=moment)

    (found,) = stored()
    assert moment.astimezone(UTC) == found.astimezone(UTC)
    assert timedelta(hours=1) == found.utcoffset()


@in_transaction
@pytest.mark.parametrize(
    "wrap",
    [lambda user: user, lambda user: SimpleLazyObject(lambda: user)],
    ids=["row-09-saved-instance", "row-09-request-user"],
)
def test_row_09_a_saved_instance_is_a_reference(wrap):
    """OK: model, primary key and database are stored, and the row is fetched."""
    user = User.objects.create(username="ada")

    noop.delay(value=wrap(user))
    User.objects.update(username="grace")

    (found,) = stored()
    assert (User, user.pk, "grace") == (type(found), found.pk, found.username)


def test_row_09_a_deleted_instance_is_a_dead_letter(start_worker):
    """DEAD: rejected, and its neighbours run."""
    gone, kept = Order.objects.create(name="gone"), Order.objects.create(name="kept")
    jobs = [echo.delay(order).id for order in (gone, kept)]
    gone.delete()
    start_worker()

    final = wait_until_final(jobs)
    assert [("dead", "rejected"), ("archive", "succeeded")] == [
        (final[job].table, final[job].state) for job in jobs
    ]


# Calls that cannot be right ----------------------------------------------------------


@task(takes_context=True)
def contextual(ctx, *args, **kwargs):
    """Take a context and anything."""


QUEUE_NAMES = {
    "empty": "",
    "blank": " ",
    "64-characters": "x" * 64,
    "200-characters": "x" * 200,
    "10000-characters": "x" * 10_000,
    "inner-blank": "a b",
    "slash": "a/b",
    "dots": "../x",
    "semicolon": "a;drop",
    "placeholder": "%s",
    "quote": 'a"b',
    "unicode": "ä",
    "digit-of-another-script": "a\u0665",
    "star": "*",
    "comma": "a,b",
    "leading-dash": "-a",
    "trailing-newline": "a\n",
    "nul": "a\x00b",
    "surrogate": "\ud800",
    "bytes": b"a",
    "number": 5,
    "list": ["a"],
    "unprintable": Unprintable(),
}
PRIORITIES = {
    "text": "5",
    "half": 1.5,
    "nan": math.nan,
    "2-15": 2**15,
    "minus-2-15": -(2**15) - 1,
    "2-31": 2**31,
    "minus-2-31": -(2**31) - 1,
    "101": 101,
    "true": True,
    "5000-digits": 10**5_000,
    "decimal": Decimal(5),
}
TIMES = {
    "infinity": "infinity",
    "iso-text": "2030-01-01",
    "empty": "",
    "number-of-another-script": "\u0665m",
    "minus-1": -1,
    "minus-1-day": timedelta(days=-1),
    "1e12": 1e12,
    "10-million-days": timedelta(days=10**7),
    "5000-digits": 10**5_000,
    "nan": math.nan,
    "true": True,
    "year-9999": datetime(9999, 12, 31, tzinfo=UTC),
    "year-1": datetime(1, 1, 1, tzinfo=UTC),
    "naive-year-9999": datetime.max,  # noqa: DTZ901
    "naive-year-1": datetime.min,  # noqa: DTZ901
    "date": date(2030, 1, 1),
    "unreadable-zone": datetime(2030, 1, 1, tzinfo=UnreadableZone()),
    "unprintable": Unprintable(),
}
KEYS = {
    "empty": "",
    "10-kb": "k" * 10_000,
    "nul": "a\x00b",
    "surrogate": "\ud800",
    "bytes": b"a",
    "half": 1.5,
    "true": True,
    "list": ["a"],
    "dict": {"a": 1},
    "lazy": gettext_lazy("a"),
    "19-digits": 10**18,
    "5000-digits": 10**5_000,
    "unprintable": Unprintable(),
}
PERIODS = {
    "minus-1": -1,
    "zero": 0,
    "nan": math.nan,
    "text": "an hour",
    "1e12": 1e12,
    "unprintable": Unprintable(),
}
HEADERS = {
    "list": ["a"],
    "text": "a",
    "integer-key": {1: 1},
    "empty-key": {"": 1},
    "none-key": {None: 1},
    "reserved": {"pgqueue.unknown_since": 1},
    "tags": {"tags": ["a"]},
    "trace": {"trace": "t"},
    "request-id": {"request_id": "r"},
    "unprintable-key": {Unprintable(): 1},
}

NOT_CALLS = {
    "row-16-too-few": (lambda: add.delay(1), InvalidArgument, "missing.*'right'"),
    "row-16-too-many": (lambda: add.delay(1, 2, 3), InvalidArgument, "too many posit"),
    "row-16-unknown-keyword": (
        lambda: add.delay(1, rigth=2),
        InvalidArgument,
        "missing a required argument: 'right'|unexpected keyword argument 'rigth'",
    ),
    "row-16-twice": (lambda: add.delay(1, 2, left=3), InvalidArgument, "multiple val"),
    **{
        f"row-16-keyword-{name}": (
            functools.partial(lambda name: add.delay(1, 2, **{name: 3}), name),
            InvalidArgument,
            f"unexpected keyword argument '{name}'",
        )
        for name in (
            "self",
            "context",
            "queue",
            "delay",
            "args",
            "kwargs",
            "task",
            "a b",
        )
    },
    "row-16-name-of-the-context": (
        lambda: contextual.delay(ctx=1),
        InvalidArgument,
        "multiple values for argument 'ctx'",
    ),
    "row-16-apply-async-text": (
        lambda: add.apply_async("ab"),
        InvalidArgument,
        "args is a str; it must be a list or a tuple",
    ),
    "row-16-apply-async-pairs": (
        lambda: add.apply_async((), [("left", 1)]),
        InvalidArgument,
        "kwargs is a list; it must be a dict",
    ),
    "row-16-apply-async-integer-key": (
        lambda: noop.apply_async((), {1: 2}),
        InvalidArgument,
        "arguments do not fit: .*must be str",
    ),
    "row-16-bulk": (
        lambda: add.bulk([(1, 2), {"left": 1}]),
        InvalidArgument,
        "item 1 arguments do not fit: missing",
    ),
    "row-16-from-queryset": (
        lambda: add.from_queryset(Order.objects.all(), left="pk"),
        InvalidArgument,
        "arguments do not fit: missing",
    ),
    **{
        f"row-17-queue-{name}": (
            functools.partial(lambda queue: noop.using(queue=queue).delay(), queue),
            InvalidOption,
            "a queue name has 1 to 63 characters",
        )
        for name, queue in QUEUE_NAMES.items()
    },
    **{
        f"row-19-priority-{name}": (
            functools.partial(lambda p: noop.using(priority=p).delay(), priority),
            InvalidOption,
            "priority=.*a whole number from -100 to 100",
        )
        for name, priority in PRIORITIES.items()
    },
    **{
        f"row-20-run-after-{name}": (
            functools.partial(lambda when: noop.using(run_after=when).delay(), when),
            InvalidOption,
            "run_after",
        )
        for name, when in TIMES.items()
    },
    **{
        f"row-20-expires-{name}": (
            functools.partial(lambda when: noop.apply_async(expires=when), when),
            InvalidOption,
            "expires",
        )
        for name, when in TIMES.items()
    },
    **{
        f"row-21-retries-{value!r:.10}": (
            functools.partial(lambda value: noop.using(retries=value).delay(), value),
            InvalidOption,
            "retries=|max_attempts=",
        )
        for value in (-1, 10**9, 32_767, True, "5", 1.5, [])
    },
    **{
        f"row-23-key-{name}": (
            functools.partial(lambda k: noop.using(throttle="1/h", key=k).delay(), key),
            InvalidOption,
            "key",
        )
        for name, key in KEYS.items()
    },
    **{
        f"row-23-period-{name}": (
            functools.partial(lambda p: Unique(period=p), period),
            DeclarationError,
            "period",
        )
        for name, period in PERIODS.items()
    },
    "row-26-integer": (lambda: noop.bulk(5), InvalidArgument, "items"),
    "row-26-text": (lambda: noop.bulk("ab"), InvalidArgument, "item 0 is a str"),
    "row-26-valid-and-invalid": (
        lambda: noop.bulk([*((n,) for n in range(100)), (object(),)]),
        InvalidArgument,
        r"item 100 args\[0\] is a builtins\.object",
    ),
    "row-26-generator-that-raises": (
        lambda: noop.bulk((1 / n,) for n in (1, 0)),
        ZeroDivisionError,
        "division by zero",
    ),
    **{
        f"row-32-headers-{name}": (
            functools.partial(lambda h: noop.using(headers=h).delay(), headers),
            InvalidOption,
            "headers",
        )
        for name, headers in HEADERS.items()
    },
}


@in_transaction
@pytest.mark.parametrize("case", NOT_CALLS)
def test_a_call_that_cannot_be_right_is_refused(case):
    """REJECT: before any SQL; the error names the argument or the option."""
    call, error, message = NOT_CALLS[case]
    if error is ZeroDivisionError:
        # The caller's own: it passes, and nothing is stored.
        with (
            CaptureQueriesContext(connection) as queries,
            pytest.raises(error, match=message),
        ):
            call()
        assert [] == queries.captured_queries
        return
    with refused(error, message):
        call()


# Calls that are right ----------------------------------------------------------------


@in_transaction
@pytest.mark.parametrize(
    "name", ["self", "context", "queue", "delay", "args", "kwargs"]
)
def test_row_16_a_task_may_have_any_parameter(name):
    """OK: where its function takes it, no name is taken by ours."""
    result = noop.delay(**{name: 1})
    bulk = noop.bulk([{name: 2}])
    Order.objects.create()
    noop.from_queryset(Order.objects.all(), **{name: Value(3)})

    assert [{name: 1}, {name: 2}, {name: 3}] == [
        job.kwargs for job in Job.objects.order_by("pk")
    ]
    assert {1} == {len({result}), len(bulk)}


@in_transaction
def test_row_18_a_queue_need_not_be_configured():
    """OK: any valid name; its row is made at first use."""
    assert "a.b-C_9" == noop.using(queue="a.b-C_9").delay().job.queue


@in_transaction
def test_row_19_no_priority_is_the_tasks():
    """OK: None says nothing."""
    assert 10 == with_options.using(priority=None).delay(1).job.priority


@in_transaction
@cases(
    "case, when, expected",
    [
        ("row-20-in-1970", datetime(1970, 1, 1, tzinfo=UTC), "now"),
        ("row-20-naive", datetime(1970, 1, 1), "now"),  # noqa: DTZ001
        ("row-20-zero", 0, "now"),
        (
            "row-20-gap",
            datetime(2030, 3, 31, 2, 30),  # noqa: DTZ001
            datetime(2030, 3, 31, 1, 30, tzinfo=UTC),
        ),
        (
            "row-20-overlap",
            datetime(2030, 10, 27, 2, 30, fold=1),  # noqa: DTZ001
            datetime(2030, 10, 27, 1, 30, tzinfo=UTC),
        ),
    ],
)
def test_row_20_a_time_that_has_passed_is_now(settings, case, when, expected):
    """OK: and one that a clock skips, or shows twice, is as Django takes it."""
    settings.TIME_ZONE = "Europe/Berlin"

    job = noop.using(run_after=when).delay().job

    if expected == "now":
        assert abs(job.visible_at - job.enqueued_at) < timedelta(seconds=5)
    else:
        assert expected == job.visible_at


@in_transaction
@cases(
    "case, retries, attempts",
    [
        ("row-21-none", None, 5),
        ("row-21-0", 0, 1),
        ("row-21-1", 1, 2),
        ("row-21-most", 32_766, 32_767),
        ("row-21-policy", Retry(max_attempts=1), 1),
    ],
)
def test_row_21_a_job_has_at_least_one_attempt(case, retries, attempts):
    """OK: retries come after it."""
    assert attempts == noop.using(retries=retries).delay().job.max_attempts


@cases(
    "case, timeout",
    [
        ("row-22-0", 0),
        ("row-22-minus-1", -1),
        ("row-22-infinite", math.inf),
        ("row-22-nan", math.nan),
        ("row-22-text", "soon"),
        ("row-22-eleven-years", timedelta(days=4_018)),
        ("row-22-5000-digits", 10**5_000),
    ],
)
def test_row_22_a_timeout_is_a_duration(settings, declared, case, timeout):
    """REJECT: when the task is declared, and in the settings."""
    with pytest.raises(DeclarationError, match="@task: "):
        task(name="t", timeout=timeout)(lambda: None)
    settings.PGQUEUE = {"DEFAULTS": {"timeout": timeout}}
    with pytest.raises((SettingsError, ValueError)):
        get_settings()


@pytest.mark.parametrize("lease", [0, -1, math.inf, "25h", 0.5, None, True])
def test_row_22_a_lease_is_from_a_second_to_a_day(settings, lease):
    """REJECT: before a worker starts, and before a job is stored."""
    settings.PGQUEUE = {"LEASE_SECONDS": lease}
    with pytest.raises(SettingsError, match="LEASE_SECONDS"):
        get_settings()


@in_transaction
def test_row_24_the_same_key_with_other_arguments_is_told_apart():
    """The existing job is returned, with a flag; or it is an error, by the rule."""
    once = noop.using(unique=Unique(), key="k")
    refusing = noop.using(unique=Unique(conflict="error"), key="k")
    first = once.delay(1)

    second = once.delay(2)

    assert (first.id, False, "skipped") == (second.id, second.created, second.conflict)
    with pytest.raises(DuplicateJob, match=f"job {first.id} has the same dedup key"):
        refusing.delay(2)
    assert [1] == Job.objects.get().args


# Keys of groups ----------------------------------------------------------------------


@in_transaction
@cases(
    "case, key, ends_with",
    [
        ("row-25-none", None, None),
        ("row-25-empty", "", "step:"),
        ("row-25-emoji", "👩‍👩‍👧", "step:👩‍👩‍👧"),
        ("row-25-separator", "a:b", "step:a:b"),
    ],
)
def test_row_25_a_group_has_any_text(case, key, ends_with):
    """None waits for nobody."""
    step.delay(key, 1)

    job = Job.objects.get()
    assert ends_with is None or job.lane.endswith(ends_with)
    assert (job.lane is None) == (job.visible_at is not None) == (key is None)


@in_transaction
def test_row_25_long_keys_are_told_apart():
    """Of 4 kB, the end is hashed."""
    step.delay("x" * 4_096, 1)
    step.delay("x" * 4_095 + "y", 1)

    first, second = Job.objects.values_list("lane", flat=True)
    assert 255 == len(first) == len(second)
    assert first != second


@in_transaction
def test_row_25_naughty_keys_are_the_same_by_every_way():
    """By a call, of many, and by rows of a query; or they are refused."""
    order = Order.objects.create(name="x")
    rows = Order.objects.filter(pk=order.pk)
    lanes = {}
    for text in STRINGS:
        try:
            first = step.delay(text, 1).id
        except InvalidArgument:
            continue
        second = step.bulk([(text, 2)])[0].id
        step.from_queryset(rows, customer=Value(text), number="pk")
        found = {*Job.objects.filter(pk__gte=first).values_list("lane", flat=True)}
        assert 1 == len(found), text
        assert second > first
        lanes[text] = found.pop()
    assert len(lanes) == len({*lanes.values()}) > 200


# Bulk --------------------------------------------------------------------------------


@in_transaction
@cases(
    "case, items, count",
    [
        ("row-26-empty", [], 0),
        ("row-26-one", [(1,)], 1),
        ("row-26-duplicates", [(1,), (1,), (1,)], 3),
        ("row-26-generator", None, 7),
        ("row-26-tuple", ((1,), [2], {"a": 3}), 3),
    ],
)
def test_row_26_a_bulk_is_any_iterable(case, items, count):
    """OK: one job per item; empty is no query."""
    given = ((n,) for n in range(7)) if items is None else items
    with CaptureQueriesContext(connection) as queries:
        results = noop.bulk(given)

    assert count == len(results) == Job.objects.count()
    assert bool(count) == bool(queries.captured_queries)


@in_transaction
@pytest.mark.slow
def test_row_26_a_bulk_of_a_hundred_thousand():
    """OK: in chunks, all or nothing, in the order of the items."""
    results = noop.bulk((n,) for n in range(100_000))

    ids = [result.id for result in results]
    assert 100_000 == len(set(ids))
    assert ids == sorted(ids)
    assert [[0], [99_999]] == [
        JobResult(job_id).job.args for job_id in (ids[0], ids[-1])
    ]


# Where from --------------------------------------------------------------------------


def count():
    return Job.objects.count()


@committed
def test_row_27_autocommit_stores_at_once(cursor):
    """OK: another connection sees the job."""
    noop.delay()
    cursor.execute("SELECT count(*) FROM pgqueue_job")
    assert (1,) == cursor.fetchone()


@committed
def test_row_27_in_a_transaction_a_job_shares_its_fate():
    """OK: and in a savepoint the savepoint's."""
    with transaction.atomic():
        noop.delay(1)
        with transaction.atomic():
            noop.delay(2)
            noop.bulk([(3,)])
            noop.from_queryset(Order.objects.all(), a="pk")
            transaction.set_rollback(True)
    with transaction.atomic():
        noop.delay(4)
        transaction.set_rollback(True)

    assert [[1]] == list(Job.objects.values_list("args", flat=True))


@committed
def test_row_27_in_a_hook_of_on_commit():
    """OK: the transaction is over, so it is stored at once."""
    with transaction.atomic():
        transaction.on_commit(noop.delay)
        assert 0 == count()
    assert 1 == count()


@committed
@pytest.mark.parametrize(
    "store",
    [
        noop.delay,
        lambda: noop.bulk([()]),
        lambda: noop.from_queryset(Order.objects.all(), a="pk"),
        async_to_sync(noop.adelay),
    ],
    ids=["delay", "bulk", "from_queryset", "adelay"],
)
def test_row_27_in_an_aborted_transaction_the_error_is_djangos(store):
    """TransactionManagementError, as of every other query."""
    with transaction.atomic():
        try:
            with connection.cursor() as cursor, transaction.atomic():
                cursor.execute("SELECT 1 / 0")
        except DataError:
            transaction.set_rollback(True)
        with pytest.raises(transaction.TransactionManagementError):
            store()
    assert 0 == count()


@two_databases
def test_row_27_a_transaction_on_a_second_alias_is_refused():
    """REJECT: the job would not roll back with it."""
    with transaction.atomic("queue"), pytest.raises(WrongDatabase):
        noop.delay()
    with transaction.atomic("queue"):
        noop.on_commit().delay()
    assert 1 == count()


@committed
def test_row_27_a_read_only_database_says_so():
    """The error is the database's, and the transaction is as after any error."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET TRANSACTION READ ONLY")
        with pytest.raises(InternalError, match="read-only transaction"):
            noop.delay()
        transaction.set_rollback(True)
    assert 0 == count()


@committed
def test_row_27_async_code_without_a_twin_is_djangos_error():
    """SynchronousOnlyOperation; adelay() is the way."""

    async def call():
        with pytest.raises(SynchronousOnlyOperation):
            noop.delay()
        await noop.adelay()

    async_to_sync(call)()
    assert 1 == count()


@committed
def test_row_27_each_thread_has_its_own_connection():
    """OK: a job stored in a thread does not belong to another one's transaction."""

    def store():
        noop.delay()
        connection.close()

    with transaction.atomic():
        thread = threading.Thread(target=store)
        thread.start()
        thread.join()
        transaction.set_rollback(True)
    assert 1 == count()


@committed
def test_row_27_in_a_migration():
    """OK: the job commits with the migration."""

    def forwards(apps, editor):
        noop.using(queue="migrated").delay()

    with connection.schema_editor() as editor:
        RunPython(forwards).database_forwards(
            "app", editor, ProjectState(), ProjectState()
        )

    assert ["migrated"] == list(Job.objects.values_list("queue", flat=True))


PROGRAMS = {
    "row-27-at-import-time": """
from django_pgqueue import task
@task(name="tests.app.tasks.noop")
def noop(*args): ...
noop.delay("import")
noop.bulk([("import",)])
""",
    "row-27-after-fork": """
import django; django.setup()
import os
from django.db import connections
from tests.app.tasks import noop
noop.delay("parent")
connections.close_all()
child = os.fork()
if not child:
    noop.delay("child")
    os._exit(0)
assert 0 == os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
noop.delay("parent")
""",
    "row-27-during-shutdown": """
import django; django.setup()
import atexit
from tests.app.tasks import noop
atexit.register(noop.delay, "exit")
""",
    "row-27-in-a-daemon-thread": """
import django; django.setup()
import threading
from tests.app.tasks import noop
thread = threading.Thread(target=noop.delay, args=("thread",), daemon=True)
thread.start()
thread.join()
""",
}
STORED = {
    "row-27-at-import-time": [["import"], ["import"]],
    "row-27-after-fork": [["parent"], ["child"], ["parent"]],
    "row-27-during-shutdown": [["exit"]],
    "row-27-in-a-daemon-thread": [["thread"]],
}


@committed
@pytest.mark.parametrize("case", PROGRAMS)
def test_row_27_in_odd_moments_of_a_process(case):
    """OK: before Django is set up, after a fork, in a thread, while it ends."""
    names = {alias: connections[alias].settings_dict["NAME"] for alias in connections}
    told = {
        "databases": {alias: {"NAME": name} for alias, name in names.items()},
        "pgqueue": {},
    }
    done = subprocess.run(
        # Django warns of queries before its start is over, and does them.
        [sys.executable, "-W", "ignore::RuntimeWarning", "-c", PROGRAMS[case]],
        cwd=REPOSITORY,
        env={
            **os.environ,
            "DJANGO_SETTINGS_MODULE": "tests.worker_settings",
            "PYTHONPATH": str(REPOSITORY),
            "PGQUEUE_TEST_WORKER": json.dumps(told),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert (0, "") == (done.returncode, done.stderr)

    assert STORED[case] == list(
        Job.objects.order_by("pk").values_list("args", flat=True)
    )


def test_row_28_a_task_may_enqueue_itself(start_worker):
    """OK: one job after the other, and never one inside the other."""
    first = enqueues_itself.delay(30)
    start_worker()
    wait_for(
        lambda: 31 == sum(rows[0].state == "succeeded" for rows in places().values()),
        30,
        "all 31 have run",
    )

    depths = {JobResult(job).result for job in places()}
    assert {first.result} == depths


# Declared ----------------------------------------------------------------------------


class Shop:
    """Has methods."""

    def method(self):
        """Be bound."""


def plain():
    """Be a function."""


@cases(
    "case, function, message",
    [
        ("row-29-lambda", lambda: 1, "must be defined at module level"),
        ("row-29-method", Shop.method, "is a method"),
        ("row-29-bound-method", Shop().method, "def or async def, not <bound method"),
        ("row-29-class", Shop, "def or async def, not <class"),
        ("row-29-partial", functools.partial(plain), "def or async def, not functools"),
        ("row-29-task", noop, "def or async def, not <Task"),
        ("row-29-built-in", len, "def or async def, not <built-in"),
        ("row-29-generator", generator, "is a generator"),
        ("row-29-text", "plain", "def or async def, not 'plain'"),
        ("row-29-unprintable", Unprintable(), "def or async def, not a Unprintable"),
    ],
)
def test_row_29_a_task_is_a_function_at_module_level(declared, case, function, message):
    """REJECT: a worker could not find the others by their import path."""
    with pytest.raises(DeclarationError, match=message):
        task(function)


def test_row_29_a_plain_function_cannot_be_enqueued():
    """It has no delay(): Python's own error."""
    with pytest.raises(AttributeError, match="delay"):
        plain.delay()


def test_row_30_a_name_is_taken_once(declared):
    """REJECT: at import, with both places."""
    task(name="row-30")(plain)
    with pytest.raises(DeclarationError, match=r"called 'row-30': .*plain and .*noop"):
        task(name="row-30")(noop.function)
    with pytest.raises(DeclarationError, match="called 'row-30'"):
        task(name="row-30-b", aliases=["row-30"])(noop.function)


@in_transaction
@pytest.mark.parametrize("name", ["pg_catalog", "select", "Orders", "a" * 63, "-", "1"])
def test_row_31_a_topic_is_called_so(name):
    """OK: a name is data, and never part of a statement."""
    message_id = publish(f"{name}.x", 1)
    assert (name, f"{name}.x") == (
        Topic.objects.get().name,
        Message.objects.get(id=message_id).name,
    )


@in_transaction
@pytest.mark.parametrize(
    "name", ['a"b', "a" * 64, "", "a b", "ü", "a\x00", "a'--", None]
)
def test_row_31_a_topic_cannot_be_called_so(name):
    """REJECT: before a statement is sent, with the name."""
    with pytest.raises(TopicError, match=r"cannot be called|characters"):
        topic(name)
    with pytest.raises(TopicError, match=r"cannot be called|characters"):
        publish(name, 1)
    assert not Topic.objects.exists()


@in_transaction
def test_row_34_naughty_strings_as_topics_and_keys():
    """A name is refused or fine; a key comes back as it is, or is refused."""
    for text in STRINGS:
        with suppress(TopicError):
            publish(text, 1)
        try:
            message_id = publish("naughty", text, key=text)
        except (TopicError, InvalidArgument):
            continue
        stored = Message.objects.get(id=message_id)
        assert (text, text) == (stored.key, stored.payload)


@committed
def test_row_30_a_job_under_an_old_name_runs(start_worker):
    """OK: as long as its alias is declared; see tests/app/tasks.py."""
    job = Job.objects.create(task="tests.app.tasks.old_echo", args=["x"]).pk
    start_worker()

    assert "x" == JobResult(job).get(timeout=20)


# Row 34: naughty texts ---------------------------------------------------------------


def test_row_34_there_are_some_hundreds():
    """And no two of them are equal."""
    assert 400 <= len(STRINGS) == len(set(STRINGS))


@in_transaction
def test_row_34_naughty_texts_as_values_are_the_same():
    """OK: as an argument, as a value, as a key, as the name of a parameter."""
    texts = [text for text in STRINGS if text != "__pgqueue__"]

    results = [
        *noop.bulk([text] for text in STRINGS),
        *noop.bulk({text: text} for text in texts),
        *noop.bulk([{text: [text]}] for text in texts),
        noop.delay(dict(zip(texts, texts, strict=True))),
    ]

    assert [
        *[([text], {}) for text in STRINGS],
        *[([], {text: text}) for text in texts],
        *[([{text: [text]}], {}) for text in texts],
        ([dict(zip(texts, texts, strict=True))], {}),
    ] == list(Job.objects.order_by("pk").values_list("args", "kwargs"))
    assert len(results) == 3 * len(texts) + 2


def test_row_34_naughty_texts_come_back_from_a_real_worker(start_worker):
    """OK: in the results, and none of them is lost from the errors."""
    kept = echo.delay(STRINGS)
    bulk = [echo.delay(text) for text in STRINGS[::10]]
    start_worker(pgqueue={"RESULT_BYTES_MAX": 1_000_000})

    assert STRINGS == kept.get(timeout=30)
    assert STRINGS[::10] == [result.get(timeout=30) for result in bulk]


@in_transaction
@cases(
    "case, store, read",
    [
        (
            "row-34-queue",
            lambda text: noop.using(queue=text).delay(),
            lambda job: job.queue,
        ),
        (
            "row-34-tag",
            lambda text: noop.using(tags=[text]).delay(),
            lambda job: job.headers["tags"][0],
        ),
        (
            "row-34-header-key",
            lambda text: noop.using(headers={text: 1}).delay(),
            lambda job: next(iter(job.headers)),
        ),
        (
            "row-34-header-value",
            lambda text: noop.using(headers={"a": text}).delay(),
            lambda job: job.headers["a"],
        ),
        (
            "row-34-task-name",
            lambda text: task(name=text)(lambda: None).delay(),
            lambda job: job.task,
        ),
        (
            "row-34-duration",
            lambda text: noop.using(run_after=text).delay(),
            None,
        ),
    ],
)
def test_row_34_a_naughty_name_is_refused_or_kept(declared, case, store, read):
    """REJECT or OK: never another error, and never another name."""
    refusals = 0
    for text in [*STRINGS, "\x00", "\ud800", "a\x00"]:
        try:
            # Nothing that reaches the database may fail there: it would raise here.
            job = store(text).job
        except (EnqueueError, DeclarationError):
            refusals += 1
        else:
            assert read is None or text == read(job)
    assert 0 < refusals < len(STRINGS) + 3 or read is None


# Row 35: webhooks --------------------------------------------------------------------


@in_transaction
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_row_35_documents_of_webhooks_come_back_deep_equal(seed):
    """OK: numbers keep their types, texts their characters, keys their spelling."""
    documents = Webhooks(seed).documents(150)

    noop.bulk({"value": document} for document in documents)

    found = stored()
    assert len(documents) == len(found)
    for document, actual in zip(documents, found, strict=True):
        assert is_same(without_minus_zero(document), actual), document


def without_minus_zero(value):
    """Return *value* as jsonb keeps it: it knows no -0.0 (row 42)."""
    if isinstance(value, dict):
        return {key: without_minus_zero(item) for key, item in value.items()}
    if isinstance(value, list):
        return [without_minus_zero(item) for item in value]
    return 0.0 if isinstance(value, float) and value == 0 else value


def test_row_35_documents_come_back_from_a_real_worker(start_worker):
    """OK: through an argument and a result."""
    documents = without_minus_zero(Webhooks(4).documents(60))
    results = echo.bulk([document] for document in documents)
    start_worker()

    for document, result in zip(documents, results, strict=True):
        assert is_same(document, result.get(timeout=30))


# Rows written by SQL -----------------------------------------------------------------


def insert(cursor, **columns):
    """Insert a job from columns as SQL text; return its id."""
    columns = {"task": "'tests.app.tasks.noop'", **columns}
    cursor.execute(
        f"INSERT INTO pgqueue_job ({', '.join(columns)}) "
        f"VALUES ({', '.join(columns.values())}) RETURNING id"
    )
    return cursor.fetchone()[0]


TIME_COLUMNS = ("run_after", "visible_at", "expires_at", "enqueued_at", "leased_at")

# What the tables refuse, whoever writes it.
NOT_ROWS = {
    "row-36-args-null": {"args": "'null'"},
    "row-36-args-text": {"args": "'\"x\"'"},
    "row-36-args-number": {"args": "'1'"},
    "row-36-args-object": {"args": "'{}'"},
    "row-36-args-sql-null": {"args": "NULL"},
    "row-36-kwargs-array": {"kwargs": "'[]'"},
    "row-36-kwargs-null": {"kwargs": "'null'"},
    "row-36-headers-array": {"headers": "'[]'"},
    **{
        f"row-39-{column}-{time.replace(' ', '-')}": {column: f"'{time}'"}
        for column in TIME_COLUMNS
        for time in ("infinity", "-infinity", "0044-03-15 BC", "10001-01-01")
    },
    "row-40-task-empty": {"task": "''"},
    "row-40-task-10-kb": {"task": f"'{'x' * 10_000}'"},
    "row-40-task-null": {"task": "NULL"},
    "row-41-attempt-minus-1": {"attempt": "-1"},
    "row-41-deliveries-minus-1": {"deliveries": "-1"},
    "row-41-crashes-minus-1": {"crashes": "-1"},
    "row-41-no-attempts": {"max_attempts": "0"},
    "row-41-fewer-deliveries-than-attempts": {"attempt": "3", "deliveries": "2"},
    "row-41-leased-and-parked": {"leased_by": "'w'", "visible_at": "NULL"},
    "row-41-priority-101": {"priority": "101"},
    "row-44-queue-64-characters": {"queue": f"'{'q' * 64}'"},
    "row-44-queue-empty": {"queue": "''"},
    "row-44-args-no-json": {"args": "'[1'"},
    "row-44-priority-text": {"priority": "'high'"},
}


@in_transaction
@pytest.mark.parametrize("case", NOT_ROWS)
def test_a_row_that_no_worker_could_run_is_refused(case):
    """By a constraint or a type, with the error of the database."""
    with (
        pytest.raises((IntegrityError, DataError)),
        transaction.atomic(),
        connection.cursor() as cursor,
    ):
        insert(cursor, **NOT_ROWS[case])
    assert 0 == count()


DEEP = "[" * 3_000 + "]" * 3_000
ECHO = {"task": "'tests.app.tasks.echo'"}
ONCE = {**ECHO, "max_attempts": "1"}

# What they let through, and where it ends; None: where Python's version has a say.
ROWS = {
    "row-36-no-arguments": ({}, ("archive", "succeeded")),
    "row-36-too-few": (ONCE, ("dead", "exhausted")),
    "row-36-too-many": ({**ONCE, "args": "'[1, 2]'"}, ("dead", "exhausted")),
    "row-36-unknown-key": (
        {**ONCE, "kwargs": """'{"value": 1, "x": 2}'"""},
        ("dead", "exhausted"),
    ),
    "row-37-1e5000": ({**ECHO, "args": "'[1e5000]'"}, ("dead", "undecodable")),
    "row-37-5000-digits": (
        {**ECHO, "args": f"'[{'9' * 5_000}]'"},
        ("dead", "undecodable"),
    ),
    "row-37-in-kwargs": (
        {**ECHO, "kwargs": """'{"value": 1e5000}'"""},
        ("dead", "undecodable"),
    ),
    "row-37-in-headers": ({"headers": """'{"a": 1e5000}'"""}, ("dead", "undecodable")),
    "row-38-3000-levels": ({**ECHO, "args": f"'[{DEEP}]'"}, None),
    "row-40-unknown": ({"task": "'no.such.task'"}, ("dead", "unknown_task")),
    "row-40-os-system": (
        {"task": "'os.system'", "args": """'["touch /tmp/never"]'"""},
        ("dead", "unknown_task"),
    ),
    "row-40-eval": (
        {"task": "'builtins.eval'", "args": """'["1/0"]'"""},
        ("dead", "unknown_task"),
    ),
    "row-40-dots": ({"task": "'a..b'"}, ("dead", "unknown_task")),
    "row-40-blank": ({"task": "' '"}, ("dead", "unknown_task")),
    "row-40-other-case": (
        {"task": "'tests.app.tasks.NOOP'"},
        ("dead", "unknown_task"),
    ),
    "row-40-a-module-function": (
        {"task": "'tests.app.tasks.Order'"},
        ("dead", "unknown_task"),
    ),
    "row-41-attempts-used-up": (
        {"attempt": "9", "deliveries": "9"},
        ("dead", "exhausted"),
    ),
    "row-41-crashes-used-up": (
        {"crashes": "9", "deliveries": "9"},
        ("dead", "worker_lost"),
    ),
    "row-41-lapsed-lease": (
        {
            "leased_by": "'gone'",
            "leased_at": "now() - interval '1h'",
            "visible_at": "now() - interval '1min'",
            "attempt": "1",
            "deliveries": "1",
        },
        ("archive", "succeeded"),
    ),
    "row-42-tag-unknown": (
        {**ECHO, "args": """'[{"__pgqueue__": "pickle", "value": "gASV"}]'"""},
        ("dead", "undecodable"),
    ),
    "row-42-tag-without-value": (
        {**ECHO, "args": """'[{"__pgqueue__": "datetime"}]'"""},
        ("dead", "undecodable"),
    ),
    "row-44-queue-with-capitals": ({"queue": "'Mail'"}, ("archive", "succeeded")),
    "row-44-queue-with-blank": ({"queue": "'mail '"}, ("archive", "succeeded")),
}


def test_a_row_that_cannot_run_is_dead_alone(start_worker):
    """DEAD with a reason: its neighbours run, in the same process, and none twice."""
    jobs, neighbours = {}, []
    with connection.cursor() as cursor:
        for case, (columns, _) in ROWS.items():
            neighbours += enqueue(crash_tasks.record)
            jobs[case] = insert(cursor, **columns)
    worker = start_worker(pgqueue={"UNKNOWN_TASK_GRACE_SECONDS": 0})

    final = wait_until_final([*jobs.values(), *neighbours], 60)

    ends = {case: (final[job].table, final[job].state) for case, job in jobs.items()}
    expected = {case: end for case, (_, end) in ROWS.items() if end}
    assert expected == {case: ends[case] for case in expected}
    assert ends["row-38-3000-levels"] in [
        ("dead", "undecodable"),
        ("archive", "succeeded"),
    ]
    assert {("archive", "succeeded")} == {
        (final[job].table, final[job].state) for job in neighbours
    }
    assert 1 == len(worker.names())
    told = dict(DeadLetter.objects.values_list("pk", "errors"))
    # What gave up before it ran has its reason; what failed also says how.
    for case in ("row-36-too-few", "row-37-1e5000", "row-40-eval"):
        assert told[jobs[case]][-1]["message"], case


@cases(
    "case, text, expected",
    [
        ("row-42-duplicate-keys", '{"a": 1, "a": 2}', {"a": 2}),
        ("row-42-minus-zero", "-0", 0),
        ("row-42-minus-zero-float", "-0.0", 0.0),
        ("row-42-trailing-zero", "1.10", 1.1),
        ("row-42-1e400", "1e400", 10**400),
        ("row-42-1e-400", "1e-400", 0.0),
        ("row-42-whole-float", "1.0", 1.0),
        ("row-42-float-with-exponent", "1.0e3", 1000),
    ],
)
@in_transaction
def test_row_42_numbers_and_keys_are_as_jsonb_keeps_them(case, text, expected):
    """Documented in schema.md: the last key, no minus zero, no exponents."""
    with connection.cursor() as cursor:
        job = insert(cursor, kwargs=f"""'{{"value": {text}}}'""")

    (found,) = stored(job)
    assert is_same(expected, found)


@cases(
    "case, change",
    [
        ("row-43-deleted", "DELETE FROM pgqueue_job WHERE id = %s"),
        (
            "row-43-lease-cleared",
            "UPDATE pgqueue_job SET leased_by = NULL, visible_at = NULL WHERE id = %s",
        ),
        (
            "row-43-deliveries-changed",
            "UPDATE pgqueue_job SET deliveries = deliveries + 1 WHERE id = %s",
        ),
    ],
)
def test_row_43_what_an_operator_changes_wins(
    start_worker, the_ledger, gate, cursor, case, change
):
    """The worker's outcome is not applied; it says so, and goes on."""
    worker = start_worker()
    (job,) = enqueue(crash_tasks.record_through_gate, gate=str(gate))
    wait_for(lambda: the_ledger.entries("start"), what="it runs")
    cursor.execute(change, [job])
    gate.touch()
    wait_for(lambda: the_ledger.entries("end"), what="it has ended")

    (line,) = worker.wait_for_lines(rf"stale.*job={job}\b|job={job}\b.*stale")
    after = enqueue(crash_tasks.record)
    final = wait_until_final(after)
    assert {"archive"} == {place.table for place in final.values()}
    rows = places().get(job, [])
    assert (0 if "deleted" in case else 1) == len(rows), line
    assert all(row.table == "live" for row in rows)


# Row 45: JSON as others write it -----------------------------------------------------


@in_transaction
@pytest.mark.parametrize("text", RIGHT, ids=lambda text: f"row-45-right-{text!r:.30}")
def test_row_45_right_json_is_accepted(text):
    """And read as Python reads it."""
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO pgqueue_job (task, kwargs) VALUES"
            " ('x', jsonb_build_object('value', %s::jsonb)) RETURNING id",
            [text],
        )
        job = cursor.fetchone()[0]

    assert json.loads(text) == stored(job)[0]


@in_transaction
@pytest.mark.parametrize("text", WRONG, ids=lambda text: f"row-45-wrong-{text!r:.30}")
def test_row_45_wrong_json_is_refused(text):
    """By the database, when it is inserted."""
    with (
        pytest.raises(DataError),
        transaction.atomic(),
        connection.cursor() as cursor,
    ):
        cursor.execute("INSERT INTO pgqueue_job (task, args) VALUES ('x', %s)", [text])


def test_row_45_disputed_json_costs_no_worker(start_worker):
    """Each job ends, as a result or as a dead letter, and the process goes on."""
    jobs = []
    with connection.cursor() as cursor:
        for text in DISPUTED:
            cursor.execute(
                "INSERT INTO pgqueue_job (task, args, max_attempts) VALUES"
                " ('tests.app.tasks.echo', jsonb_build_array(%s::jsonb), 1)"
                " RETURNING id",
                [text],
            )
            jobs += cursor.fetchone()
    neighbours = enqueue(crash_tasks.record, 5)
    worker = start_worker()

    final = wait_until_final([*jobs, *neighbours], 60)

    assert {"undecodable", "rejected", "exhausted", "succeeded"} >= {
        final[job].state for job in jobs
    }
    assert {"succeeded"} == {final[job].state for job in neighbours}
    assert 1 == len(worker.names())


@in_transaction
def test_row_45_what_cannot_be_read_is_one_of_our_errors():
    """Nothing else comes out of decode()."""
    for text in DISPUTED:
        with suppress(UndecodablePayload, Reject):
            decode_value(text)
