"""What a person does to jobs: retry, redrive, cancel, edit, set aside, pause."""

from __future__ import annotations

import datetime as dt
from datetime import timedelta
from decimal import Decimal

import pytest
from django.db import IntegrityError, connection, transaction
from django.test.utils import override_settings

from django_pgqueue.exceptions import (
    InvalidArgument,
    InvalidOption,
    JobNotFound,
    PayloadTooLarge,
    WrongState,
)
from django_pgqueue.models import ArchivedJob, DeadLetter, Job, Queue
from django_pgqueue.queues.partitions import drop_partition
from django_pgqueue.tasks import operate
from django_pgqueue.tasks.payload import decode
from tests.app.models import Order
from tests.harness.factories import (
    make_archived_job,
    make_dead_letter,
    make_job,
    make_leased_job,
)
from tests.harness.ids import told

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


def test_a_redrive_takes_dead_letters_alone(heard):
    """A job that waits is not theirs to hurry."""
    waiting, dead = make_job(visible_at=HOUR), make_dead_letter(queue="mail")

    assert [dead.pk] == operate.redrive([waiting.pk, dead.pk])
    assert 1 == Job.objects.scheduled().count()
    assert ["mail"] == heard()


def test_a_redrive_can_go_to_another_queue(heard):
    """All of them, and that queue is woken."""
    ids = [make_dead_letter(queue=name).pk for name in ("a", "b")]

    assert ids == sorted(operate.redrive(ids, queue="slow"))
    assert {"slow"} == set(Job.objects.values_list("queue", flat=True))
    assert ["slow"] == heard()


def test_claims_are_told_of_jobs_that_take_turns(heard):
    """Nobody lets them through; of others in lanes, those who do are told."""
    lane = {"lane": "a", "lane_policy": "fair", "lane_capacity": 9}
    waiting = make_job(queue="mail", run_after=HOUR, **lane)
    dead = make_dead_letter(queue="slow", **lane)

    assert [waiting.pk, dead.pk] == operate.retry([waiting.pk, dead.pk])
    assert ["!fair:mail", "!fair:slow"] == sorted(heard())


def test_nothing_is_woken_for_nothing(heard):
    """No id, or none that fits."""
    make_leased_job()

    assert ([], []) == (operate.retry([]), operate.redrive([1, 2]))
    assert [] == heard()


def test_a_row_that_the_queue_refuses_moves_nothing():
    """Somebody wrote it by hand; the transaction of the caller stays usable."""
    good, bad = make_dead_letter(), make_dead_letter(max_attempts=0)

    with transaction.atomic():
        with pytest.raises(IntegrityError, match="attempt_counts"):
            operate.redrive([good.pk, bad.pk])
        assert 2 == DeadLetter.objects.count()


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


def test_a_cancel_of_what_waits_wakes_nobody(heard):
    """There is nothing to look at."""
    operate.cancel([make_job().pk])

    assert [] == heard()


def test_a_cancel_rolls_back_with_its_caller(heard):
    """The job is as it was, and nobody was woken."""
    job, running = make_job(), make_leased_job()

    with transaction.atomic():
        operate.cancel([job.pk, running.pk])
        transaction.set_rollback(True)

    assert 2 == Job.objects.filter(cancel_requested_at=None).count()
    assert [] == heard()


@pytest.mark.parametrize("is_open", [False, True], ids=["alone", "in a transaction"])
@pytest.mark.parametrize("what", ["cancel", "set_aside"])
def test_a_day_that_the_archive_lacks_is_made(cursor, what, is_open):
    """The leader was away for a week, or there is none."""
    row = make_job() if what == "cancel" else make_dead_letter()
    cursor.execute("SELECT (now() AT TIME ZONE 'UTC')::date")
    drop_partition(cursor, cursor.fetchone()[0])

    if is_open:
        with transaction.atomic():
            getattr(operate, what)([row.pk])
    else:
        getattr(operate, what)([row.pk])

    assert "cancelled" == ArchivedJob.objects.get(pk=row.pk).state


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


def test_a_dead_letter_is_edited_and_redriven():
    """Then it runs with what it was given, under another idempotency key."""
    dead = make_dead_letter(task=ADD, args=["x", 1])

    operate.edit(dead.pk, args=[2, 1])
    operate.redrive([dead.pk])

    job = Job.objects.get(pk=dead.pk)
    assert ([2, 1], 1) == (job.args, job.headers["pgqueue.edits"])


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


def test_the_arguments_of_an_unknown_task_can_be_edited():
    """Its code may be deployed later; nothing is known of its signature."""
    job = make_dead_letter(task="gone.task", reason="unknown_task")

    operate.edit(job.pk, args=[1, 2, 3])

    assert [1, 2, 3] == DeadLetter.objects.get().args


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


def test_a_value_that_holds_itself_is_refused():
    """And no recursion ends the process."""
    job = make_job(task="tests.app.tasks.noop")
    loop = []
    loop.append(loop)

    with pytest.raises(InvalidArgument, match="nested deeper than 100 levels"):
        operate.edit(job.pk, args=loop)


@pytest.mark.parametrize("given", [{"args": ["x" * 600]}, {"kwargs": {"a": "ü" * 300}}])
def test_arguments_that_are_too_large_are_refused(given):
    """Together with the part that stays."""
    job = make_job(
        task="tests.app.tasks.noop", args=["y" * 500], kwargs={"b": "y" * 500}
    )

    with (
        override_settings(PGQUEUE={"PAYLOAD_BYTES_MAX": 1_024}),
        pytest.raises(PayloadTooLarge, match="the limit is 1,024"),
    ):
        operate.edit(job.pk, **given)


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


def test_stored_arguments_of_the_wrong_kind_are_given_anew():
    """The table of dead letters takes them from SQL."""
    dead = make_dead_letter(task="tests.app.tasks.noop", args=7)

    with pytest.raises(InvalidArgument, match="args is stored as a int; give it anew"):
        operate.edit(dead.pk, kwargs={})


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


@pytest.mark.parametrize("job_id", [2**62, 2**64, -1])
def test_a_job_that_is_nowhere_is_not_edited(job_id):
    """Nor is one whose id no job can have."""
    with pytest.raises(JobNotFound, match=f"^Job {job_id} is not in"):
        operate.edit(job_id, args=[])


def test_a_job_that_somebody_holds_is_not_edited(cursor):
    """It is asked for again for an eighth of a second, and then left alone."""
    job = make_job(task=ADD, args=[1, 2])

    with cursor.connection.transaction():
        cursor.execute("SELECT 1 FROM pgqueue_job FOR UPDATE")
        with pytest.raises(WrongState, match="is ready: somebody else holds its row"):
            operate.edit(job.pk, args=[3, 4])


# Dead letters that nobody will fix ---------------------------------------------------


def test_a_dead_letter_is_set_aside_by_somebody_for_a_reason():
    """It goes to the archive; others are passed over."""
    dead, job = make_dead_letter(), make_job()

    assert [dead.pk] == operate.set_aside([dead.pk, job.pk], by="anna", reason="seen")

    row = ArchivedJob.objects.get()
    assert ("cancelled", "anna", "seen") == (
        row.state,
        row.errors[0]["by"],
        row.errors[0]["message"],
    )


def test_a_dead_letter_is_deleted_for_good():
    """Live and archived jobs are not."""
    dead, job, archived = make_dead_letter(), make_job(), make_archived_job()

    assert [dead.pk] == operate.delete_dead_letters([dead.pk, job.pk, archived.pk])
    assert (0, 1, 1) == (
        DeadLetter.objects.count(),
        Job.objects.count(),
        ArchivedJob.objects.count(),
    )


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


# Bad input ----------------------------------------------------------------------------

TAKE_IDS = {
    "retry": operate.retry,
    "redrive": operate.redrive,
    "cancel": lambda ids: operate.cancel(ids).cancelled,
    "set_aside": operate.set_aside,
    "delete_dead_letters": operate.delete_dead_letters,
}
every_verb = pytest.mark.parametrize("verb", TAKE_IDS.values(), ids=TAKE_IDS.keys())


@every_verb
@pytest.mark.parametrize("ids", ["12", b"12", ["12"], [None], [True], [1.0]], ids=repr)
def test_ids_that_are_no_ints_are_refused_before_sql(
    verb, ids, django_assert_num_queries
):
    """The error shows the value."""
    with (
        django_assert_num_queries(0),
        pytest.raises(TypeError, match="ids must be ints, not"),
    ):
        verb(ids)


@every_verb
def test_ids_that_no_job_can_have_are_passed_over(verb):
    """They are larger than the column, or negative."""
    assert [] == verb([2**63, 2**64, -1, 0])


@every_verb
def test_ids_may_come_twice_and_from_any_iterable(verb):
    """Each row is moved once."""
    row = (
        make_job(visible_at=HOUR) if verb is TAKE_IDS["cancel"] else make_dead_letter()
    )

    assert [row.pk] == verb(iter([row.pk, row.pk]))


@pytest.mark.parametrize(
    "call,problem",
    [
        (lambda: operate.cancel([1], by="x" * 151), "by has 151 characters; the limit"),
        (lambda: operate.cancel([1], by=None), "by=None: it must be text"),
        (lambda: operate.edit(1, args=[], by="\x00"), "by: value holds a NUL"),
        (lambda: operate.set_aside([1], reason="x" * 2_001), "limit is 2,000"),
        (
            lambda: operate.set_aside([1], by="\ud800"),
            "by: value holds a lone",
        ),
        (lambda: operate.pause("a", reason="\x00"), "reason: value holds a NUL"),
        (lambda: operate.pause("a b"), "a queue name has 1 to 63"),
        (lambda: operate.resume(""), "a queue name has 1 to 63"),
        (lambda: operate.redrive([1], queue="x" * 64), "a queue name has 1 to 63"),
    ],
    ids=told,
)
def test_texts_that_cannot_be_stored_are_refused_before_sql(
    call, problem, django_assert_num_queries
):
    """The error names the argument and the limit."""
    with django_assert_num_queries(0), pytest.raises(InvalidOption, match=problem):
        call()


def test_what_happens_at_once_with_a_claim_is_passed_over(cursor):
    """Nobody waits: the row is the claim's."""
    row = make_dead_letter()

    with cursor.connection.transaction():
        cursor.execute("SELECT 1 FROM pgqueue_dead_letter FOR UPDATE")
        assert [] == operate.redrive([row.pk])
        assert [] == operate.delete_dead_letters([row.pk])
        assert [] == operate.set_aside([row.pk])
