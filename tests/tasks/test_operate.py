"""What a person does to jobs: retry, redrive, cancel, edit, set aside, pause."""

from __future__ import annotations

import datetime as dt
from datetime import timedelta
from decimal import Decimal

import pytest
from django.db import connection, transaction

from django_pgqueue.exceptions import (
    InvalidArgument,
    WrongState,
)
from django_pgqueue.models import ArchivedJob, DeadLetter, Job, Queue
from django_pgqueue.tasks import operate
from django_pgqueue.tasks.payload import decode
from tests.app.models import Order
from tests.harness.factories import (
    make_archived_job,
    make_dead_letter,
    make_job,
    make_leased_job,
)

HOUR = timedelta(hours=1)
SECOND = timedelta(seconds=1)

ADD = "tests.app.tasks.add"

pytestmark = pytest.mark.django_db(transaction=True)


# Retry and redrive --------------------------------------------------------------------


def test_a_retry_makes_waiting_jobs_due_and_redrives_dead_letters(heard):
    """Their queues are woken after the commit; all else is passed over."""
    waiting = make_job(queue="a", visible_at=HOUR)
    dead = make_dead_letter(queue="b")
    others = [
        make_job(queue="c"),
        make_leased_job(queue="c"),
        make_job(queue="c", visible_at=None),
        make_archived_job(queue="c"),
    ]

    done = operate.retry([waiting.pk, dead.pk, *(row.pk for row in others), 2**62])

    assert [waiting.pk, dead.pk] == done
    assert {waiting.pk, dead.pk, others[0].pk} == set(
        Job.objects.due().values_list("pk", flat=True)
    )
    assert ["a", "b"] == sorted(heard())


# Cancel -------------------------------------------------------------------------------


def test_a_cancel_archives_what_waits_and_asks_what_runs(heard):
    """Workers hear of the request, and look which of their jobs it is about."""
    waiting, running, ended = make_job(), make_leased_job(), make_archived_job()

    answer = operate.cancel([waiting.pk, running.pk, ended.pk], by="anna")

    assert ([waiting.pk], [running.pk], []) == (
        answer.cancelled,
        answer.requested,
        answer.locked,
    )
    assert "anna" == ArchivedJob.objects.get(pk=waiting.pk).errors[0]["by"]
    assert ["!cancel"] == heard()


def test_workers_hear_of_a_lane_that_a_job_leaves_or_comes_back_to(heard):
    """Those behind it do not wait for the leader to find out."""
    waiting, dead = make_job(lane="a"), make_dead_letter(lane="b")

    operate.cancel([waiting.pk])
    assert ["!lane:a"] == heard()
    operate.retry([dead.pk])
    assert ["!lanes"] == heard()


# Edit ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "columns",
    [{}, {"visible_at": HOUR}, {"visible_at": None}, {"attempt": 1, "deliveries": 1}],
    ids=["ready", "scheduled", "parked", "retrying"],
)
def test_a_waiting_job_gets_other_arguments(columns):
    """Both parts, or one of them, while the other stays."""
    job = make_job(task=ADD, args=[1], kwargs={"right": 2}, **columns)

    operate.edit(job.pk, kwargs={"right": 3}, by="anna")
    row = Job.objects.get()
    assert ([1], {"right": 3}) == (row.args, row.kwargs)
    assert ("edited", "anna") == (row.errors[0]["kind"], row.errors[0]["by"])

    operate.edit(job.pk, args=[4])
    operate.edit(job.pk, args=(5, 6), kwargs={})
    row.refresh_from_db()
    assert ([5, 6], {}) == (row.args, row.kwargs)


def test_values_are_those_of_a_call_or_those_that_are_stored():
    """The admin shows what is stored, and a person changes one part of it."""
    order = Order.objects.create()
    job = make_job(task="tests.app.tasks.noop")
    values = {
        "day": dt.date(2026, 1, 2),
        "price": Decimal("1.50"),
        "order": order,
        "nested": [{"at": dt.time(1)}],
        "large": 1e300,
    }

    operate.edit(job.pk, kwargs=values)
    stored = Job.objects.get().kwargs
    assert {"__pgqueue__": "date", "value": "2026-01-02"} == stored["day"]
    operate.edit(job.pk, kwargs=stored)

    assert stored == Job.objects.get().kwargs
    job = Job.objects.values_list("kwargs", flat=True).get()
    assert values == decode("[]", operate.payload.ENCODER.encode(job))[1]


def test_what_is_not_given_stays_to_the_digit():
    """Also what Python would write otherwise, and what refers to a row that is gone."""
    gone = {"__pgqueue__": "model", "value": "testapp.order", "pk": 0, "db": "default"}
    job = make_job(task="tests.app.tasks.noop", kwargs={"order": gone})
    with connection.cursor() as cursor:
        cursor.execute("""UPDATE pgqueue_job SET args = '[1.10, 1e30]'""")

    operate.edit(job.pk, kwargs={"order": None})
    with connection.cursor() as cursor:
        cursor.execute("SELECT args::text FROM pgqueue_job")
        assert ("[1.10, 1" + 30 * "0" + "]",) == cursor.fetchone()

    Job.objects.update(kwargs={"order": gone})
    operate.edit(job.pk, args=[])
    assert {"order": gone} == Job.objects.get().kwargs


MISFITS = {
    "nothing": ({}, r"^job \d+: arguments are not given"),
    "args a dict": ({"args": {}}, r"args is a dict; it must be a list or a tuple"),
    "args a text": ({"args": "ab"}, r"args is a str; it must be a list"),
    "kwargs a list": ({"kwargs": []}, r"kwargs is a list; it must be a dict"),
    "too many": ({"args": [1, 2, 3]}, r"tests.app.tasks.add: arguments do not fit"),
    "too few": ({"args": [1]}, r"missing a required argument: 'right'"),
    "unknown name": ({"args": [1, 2], "kwargs": {"x": 1}}, r"keyword argument 'x'"),
    "a set": ({"args": [1, {"a": {2}}]}, r"args\[1\]\.a is a builtins\.set"),
    "a number too large": ({"args": [1, float("inf")]}, r"args\[1\] is inf"),
    "no such tag": (
        {"args": [1, {"__pgqueue__": "x"}]},
        r"args\[1\] cannot be read: .*unknown type 'x'",
    ),
    "a tag that is no JSON": (
        {"kwargs": {"a": [{"__pgqueue__": {1}}]}},
        r"kwargs\.a\[0\] cannot be read",
    ),
    "a row that is gone": (
        {
            "args": [
                {
                    "__pgqueue__": "model",
                    "value": "testapp.order",
                    "pk": 0,
                    "db": "default",
                }
            ]
        },
        r"args\[0\] cannot be read: testapp.order with primary key 0 is gone",
    ),
}


@pytest.mark.parametrize("given,problem", MISFITS.values(), ids=MISFITS.keys())
def test_arguments_that_do_not_fit_are_refused(given, problem):
    """By name, and the row and the caller's transaction are as they were."""
    job = make_job(task=ADD, args=[1, 2])

    with transaction.atomic():
        with pytest.raises(InvalidArgument, match=problem):
            operate.edit(job.pk, **given)
        assert 1 == Job.objects.filter(args=[1, 2], errors=[]).count()


@pytest.mark.parametrize(
    "name,value", [("args", "[1e5000]"), ("kwargs", '{"a": 1e5000}')]
)
def test_stored_arguments_that_cannot_be_read_are_given_anew(name, value):
    """That is how such a dead letter is fixed."""
    dead = make_dead_letter(task="tests.app.tasks.noop", reason="undecodable")
    with connection.cursor() as cursor:
        cursor.execute(f"UPDATE pgqueue_dead_letter SET {name} = %s::jsonb", [value])
    other = {"args": {"kwargs": {}}, "kwargs": {"args": []}}[name]

    with pytest.raises(InvalidArgument, match=f"{name} cannot be read.*give it anew"):
        operate.edit(dead.pk, **other)
    operate.edit(dead.pk, args=[1], kwargs={})

    assert [1] == DeadLetter.objects.get().args


@pytest.mark.parametrize(
    "make,columns,problem",
    [
        (make_leased_job, {}, "is running: its arguments are in use"),
        (make_leased_job, {"visible_at": -SECOND}, "is running: its arguments"),
        (make_archived_job, {}, "is succeeded: it has ended"),
        (make_archived_job, {"state": "cancelled"}, "is cancelled: it has ended"),
    ],
    ids=["running", "lapsed", "succeeded", "cancelled"],
)
def test_a_job_in_another_state_is_not_edited(make, columns, problem):
    """The error says which state, and what to do."""
    row = make(task=ADD, args=[1, 2], **columns)

    with pytest.raises(WrongState, match=f"^Job {row.pk} {problem}"):
        operate.edit(row.pk, args=[3, 4])
    assert [1, 2] == type(row).objects.get().args


# Pause and resume ---------------------------------------------------------------------


def test_a_queue_is_paused_once_and_resumed_once(heard):
    """Workers are woken when there is something to do again."""
    paused = [
        operate.pause("bank", by=name, reason="down") for name in ("anna", "bert")
    ]
    assert [True, False] == paused
    assert "anna" == Queue.objects.get().paused_by
    assert [] == heard()

    assert [True, False] == [operate.resume("bank") for _ in range(2)]
    assert None is Queue.objects.get().paused_at
    assert ["bank"] == heard()
