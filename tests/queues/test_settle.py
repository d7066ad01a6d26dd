"""Settle: attempts end only for the worker whose delivery it still is."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from django_pgqueue.models import ArchivedJob, DeadLetter, Job
from django_pgqueue.postgres.day_tables import ARCHIVE
from django_pgqueue.queues.claim import claim
from django_pgqueue.queues.errors import ERRORS_MAX
from django_pgqueue.queues.lease import rescue
from django_pgqueue.queues.settle import (
    KEPT_COLUMNS,
    Ended,
    ack,
    applied,
    cancel,
    dead_letter,
    expire,
    note,
    retry,
)
from tests.harness.factories import (
    LEASE,
    make_archived_job,
    make_dead_letter,
    make_job,
    make_leased_job,
)
from tests.harness.waiting import wait_until_blocked

HOUR = timedelta(hours=1)
SECOND = timedelta(seconds=1)

VERBS = {
    "ack": ack,
    "cancel": cancel,
    "expire": expire,
    "dead_letter": dead_letter,
    "retry": retry,
}
every_verb = pytest.mark.parametrize("verb", VERBS.values(), ids=VERBS.keys())
every_move = pytest.mark.parametrize(
    "verb,model",
    [
        (ack, ArchivedJob),
        (cancel, ArchivedJob),
        (expire, ArchivedJob),
        (dead_letter, DeadLetter),
    ],
    ids=["ack", "cancel", "expire", "dead_letter"],
)


def ended(job, **fields):
    """What a worker says of a job it holds; a reason, in case it is a dead letter."""
    return Ended(job.pk, job.deliveries, **{"reason": "exhausted", **fields})


def error(text):
    return json.dumps({"kind": "error", "message": text})


def everything():
    """Return all rows of the three tables, to see that nothing has changed."""
    return [list(model.objects.values()) for model in (Job, ArchivedJob, DeadLetter)]


def clock(cursor):
    cursor.execute("SELECT clock_timestamp()")
    return cursor.fetchone()[0]


# The fence ---------------------------------------------------------------------------


@every_verb
def test_a_settle_is_refused_to_another_worker(cursor, verb):
    """The right id and delivery under another name change nothing."""
    job = make_leased_job("a", visible_at=-SECOND)
    before = everything()

    assert set() == verb(cursor, worker="b", ended=[ended(job)])
    assert before == everything()


@every_verb
@pytest.mark.parametrize("delivery", [2, 4])
def test_a_settle_is_refused_for_another_delivery(cursor, verb, delivery):
    """An older one was taken over, a later one never happened."""
    job = make_leased_job("a", attempt=3, deliveries=3)
    before = everything()

    assert set() == verb(
        cursor, worker="a", ended=[Ended(job.pk, delivery, reason="exhausted")]
    )
    assert before == everything()


@every_verb
def test_a_stale_settle_does_not_touch_its_neighbours(cursor, verb):
    """Of one batch, what is still ours is settled and answered; the rest is not."""
    ours, theirs, taken = (
        make_leased_job("a"),
        make_leased_job("b"),
        make_leased_job("a", attempt=2, deliveries=2),
    )
    batch = [ended(ours), ended(theirs), Ended(taken.pk, 1, reason="exhausted")]

    assert {ours.pk} == verb(cursor, worker="a", ended=batch)
    assert {theirs.pk: "b", taken.pk: "a"} == dict(
        Job.objects.exclude(leased_by=None).values_list("pk", "leased_by")
    )


@every_verb
def test_a_worker_whose_lease_was_taken_over_cannot_settle(cursor, other_cursor, verb):
    """Paused beyond its lease and woken again, it is refused; the new owner is not."""
    job = make_leased_job("paused", visible_at=-SECOND)
    (claimed,) = claim(
        other_cursor, queues=["default"], worker="new", limit=1, lease=LEASE
    )

    assert set() == verb(cursor, worker="paused", ended=[ended(job)])
    assert {job.pk} == ack(
        other_cursor, worker="new", ended=[Ended(claimed.id, claimed.delivery)]
    )


@every_verb
def test_a_lapsed_lease_that_nobody_took_is_still_ours(cursor, verb):
    """The settle comes late, but nobody else has run the job."""
    job = make_leased_job("a", visible_at=-HOUR)

    assert {job.pk} == verb(cursor, worker="a", ended=[ended(job)])


@every_verb
def test_a_settle_that_two_connections_send_is_applied_once(
    cursor, other_cursor, new_cursor, verb
):
    """The second waits for the first's commit and then finds nothing."""
    job = make_leased_job("a")

    with ThreadPoolExecutor(1) as pool:
        with cursor.connection.transaction():
            first = verb(cursor, worker="a", ended=[ended(job)])
            second = pool.submit(verb, other_cursor, worker="a", ended=[ended(job)])
            wait_until_blocked(new_cursor(), other_cursor)
        assert ({job.pk}, set()) == (first, second.result())


# Moves between the tables ------------------------------------------------------------


@every_move
def test_a_job_keeps_what_it_is_when_it_moves(cursor, verb, model):
    """Every shared column arrives unchanged, and the row is in one table only."""
    values = {
        "queue": "mail",
        "task": "shop.send",
        "args": [1, {"a": None}],
        "kwargs": {"b": "ü"},
        "headers": {"trace": "t"},
        "priority": 7,
        "expires_at": datetime(2050, 1, 1, tzinfo=UTC),
        "enqueued_at": datetime(2020, 1, 1, tzinfo=UTC),
        "attempt": 2,
        "max_attempts": 9,
        "crashes": 1,
        "deliveries": 4,
        "dedup_key": "k",
        "accumulate_key": "a",
        "lane_capacity": 3,
        "lane_spacing": 0.5,
        "lane_burst": 2,
        "lane_policy": "skip",
        "progress": {"done": 1},
        "workflow_id": 1,
        "parent_id": 2,
        "message_id": 3,
        "schedule_id": 4,
    }
    job = make_leased_job("a", **values)
    # The trigger parks what is inserted with these two.
    Job.objects.update(lane="l", run_after=datetime(2021, 1, 1, tzinfo=UTC))
    kept = KEPT_COLUMNS.split(", ")
    before = Job.objects.values(*kept).get()

    verb(cursor, worker="a", ended=[ended(job)])

    assert before == model.objects.values(*kept).get()
    assert None not in before.values()
    assert 0 == Job.objects.count()


def test_an_acked_job_is_archived_with_its_result(cursor):
    """A result is JSON; none is NULL, which is not the JSON null."""
    first, second, third = (make_leased_job("a") for _ in range(3))

    ack(
        cursor,
        worker="a",
        ended=[
            ended(first, result='{"n": [1, "ü"]}'),
            ended(second, result="null"),
            ended(third),
        ],
    )

    cursor.execute("SELECT state, result::text FROM pgqueue_archived_job ORDER BY id")
    assert [
        ("succeeded", '{"n": [1, "ü"]}'),
        ("succeeded", "null"),
        ("succeeded", None),
    ] == cursor.fetchall()


def test_a_dead_letter_has_its_reason_and_every_error(cursor):
    """The errors of earlier attempts, and the last one at the end."""
    job = make_leased_job("a", errors=[{"kind": "error", "message": "first"}])

    dead_letter(
        cursor, worker="a", ended=[ended(job, reason="rejected", error=error("last"))]
    )

    row = DeadLetter.objects.get(pk=job.pk)
    assert "rejected" == row.reason
    assert ["first", "last"] == [entry["message"] for entry in row.errors]


def test_each_job_of_a_batch_gets_what_is_its_own(cursor):
    """Results, reasons, errors and times do not cross over."""
    jobs = [make_leased_job("a") for _ in range(20)]

    ack(
        cursor,
        worker="a",
        ended=[
            ended(job, result=str(job.pk), ran_seconds=float(n))
            for n, job in enumerate(jobs)
        ],
    )

    assert [(job.pk, job.pk, timedelta(seconds=n)) for n, job in enumerate(jobs)] == [
        (row.pk, row.result, row.finished_at - row.started_at)
        for row in ArchivedJob.objects.order_by("pk")
    ]


# Retry -------------------------------------------------------------------------------


def test_a_retried_job_is_nobodys_until_its_delay_is_over(cursor):
    """It burns its attempt, keeps its delivery and is visible after the delay."""
    job = make_leased_job("a", attempt=2, deliveries=5)
    before = clock(cursor)

    retry(cursor, worker="a", ended=[ended(job, delay_seconds=3600, error=error("x"))])

    after = clock(cursor)
    row = Job.objects.get(pk=job.pk)
    assert (None, None, 2, 5) == (
        row.leased_by,
        row.leased_at,
        row.attempt,
        row.deliveries,
    )
    assert before + HOUR <= row.visible_at <= after + HOUR
    assert ["x"] == [entry["message"] for entry in row.errors]
    assert 1 == Job.objects.retrying().count()


def test_a_snoozed_job_gets_its_attempt_back(cursor):
    """And leaves no error behind; the next claim is the same attempt."""
    job = make_leased_job("a", attempt=2, deliveries=2)

    retry(
        cursor,
        worker="a",
        ended=[ended(job, delay_seconds=0, gives_attempt_back=True)],
    )
    row = Job.objects.get(pk=job.pk)
    (claimed,) = claim(cursor, queues=["default"], worker="b", limit=1, lease=LEASE)

    assert (1, []) == (row.attempt, row.errors)
    assert (2, 3) == (claimed.attempt, claimed.delivery)


def test_a_retry_of_a_job_that_was_asked_to_stop_does_not_wait(cursor):
    """It is due at once, so that a claim finds it and settles it as cancelled."""
    asked = make_leased_job("a", cancel_requested_at=-SECOND)
    other = make_leased_job("a")

    retry(
        cursor,
        worker="a",
        ended=[ended(asked, delay_seconds=3600), ended(other, delay_seconds=3600)],
    )

    assert [asked.pk] == list(Job.objects.due().values_list("pk", flat=True))
    assert Job.objects.get(pk=asked.pk).cancel_requested_at is not None


def test_a_request_that_commits_while_a_retry_waits_is_seen(
    cursor, other_cursor, new_cursor
):
    """The retry was late by a moment: it is settled all the same, and due at once."""
    job = make_leased_job("a")
    batch = [ended(job, delay_seconds=3600)]

    with ThreadPoolExecutor(1) as pool:
        with other_cursor.connection.transaction():
            other_cursor.execute("UPDATE pgqueue_job SET cancel_requested_at = now()")
            settled = pool.submit(retry, cursor, worker="a", ended=batch)
            wait_until_blocked(new_cursor(), cursor)
        assert {job.pk} == settled.result()
    assert 1 == Job.objects.due().count()


# Errors are bounded ------------------------------------------------------------------


@every_verb
def test_errors_are_bounded_and_the_first_stays(cursor, verb):
    """Above the limit the second entry goes: the first failure is often the telling."""
    errors = [{"message": str(n)} for n in range(ERRORS_MAX)]
    job = make_leased_job("a", errors=errors)

    verb(cursor, worker="a", ended=[ended(job, error=error("new"))])

    (kept,) = [
        row.errors
        for model in (Job, ArchivedJob, DeadLetter)
        for row in model.objects.all()
    ]
    assert ERRORS_MAX == len(kept)
    assert ["0", "2", "new"] == [kept[n]["message"] for n in (0, 1, -1)]


# The outcome of a settle is unknown --------------------------------------------------


@every_verb
def test_a_settle_whose_answer_was_lost_is_found_to_be_applied(cursor, verb):
    """In the archive, among the dead letters, or waiting for its next attempt."""
    job = make_leased_job("a")
    verb(cursor, worker="a", ended=[ended(job, delay_seconds=3600)])

    assert {job.pk} == applied(cursor, [(job.pk, 1)])


@pytest.mark.parametrize(
    "make",
    [
        lambda: make_leased_job("a"),
        lambda: make_leased_job("b", attempt=2, deliveries=2),
        lambda: make_archived_job(attempt=2, deliveries=2),
        lambda: make_dead_letter(attempt=2, deliveries=2),
        lambda: make_job(attempt=2, deliveries=2),
    ],
    ids=["still ours", "taken over", "archived by another", "dead by another", "later"],
)
def test_a_settle_that_was_not_applied_is_not_claimed_to_be(cursor, make):
    """The row is still leased with our delivery, or carries somebody's later one."""
    assert set() == applied(cursor, [(make().pk, 1)])


@every_verb
def test_a_commit_that_is_still_on_its_way_is_waited_for(
    cursor, other_cursor, new_cursor, verb
):
    """A plain look would miss it, and the job would be settled twice."""
    job = make_leased_job("a")

    with ThreadPoolExecutor(1) as pool:
        with cursor.connection.transaction():
            verb(cursor, worker="a", ended=[ended(job)])
            answer = pool.submit(applied, other_cursor, [(job.pk, 1)])
            wait_until_blocked(new_cursor(), other_cursor)
        assert {job.pk} == answer.result()


# Beside other writers ----------------------------------------------------------------


def test_a_settle_and_a_rescue_never_both_win(cursor, other_cursor):
    """Whoever locks the row first has it; the other takes nothing."""
    job = make_leased_job("a")

    with cursor.connection.transaction():
        acked = ack(cursor, worker="a", ended=[ended(job)])
        (met,) = rescue(
            other_cursor,
            worker="a",
            running=[(job.pk, 1)],
            lease=LEASE,
            message="died",
        )

    assert ({job.pk}, True) == (acked, met.is_locked)
    assert 0 == Job.objects.count()


# A missing partition -----------------------------------------------------------------


@pytest.fixture
def no_partition_for_today(cursor):
    """Drop today's day of the archive, as if nobody had made it."""
    cursor.execute("SELECT (statement_timestamp() AT TIME ZONE 'UTC')::date")
    (today,) = cursor.fetchone()
    ARCHIVE.remove(cursor, today)
    yield today
    with cursor.connection.transaction():
        ARCHIVE.make(cursor)


@pytest.mark.parametrize("verb", [ack, expire], ids=["ack", "expire"])
def test_a_missing_partition_is_made_and_the_settle_repeated(
    cursor, no_partition_for_today, verb
):
    """The settle raises and changes nothing; once its day is made, it goes through."""
    job = make_leased_job("a")
    before = everything()

    with pytest.raises(psycopg.errors.CheckViolation, match="no partition"):
        verb(cursor, worker="a", ended=[ended(job)])
    assert before == everything()
    with cursor.connection.transaction():
        made = ARCHIVE.make(cursor)

    assert [no_partition_for_today] == made
    assert {job.pk} == verb(cursor, worker="a", ended=[ended(job)])


# A note to what was acked before it ran ----------------------------------------------


def test_a_job_that_was_acked_first_can_be_given_its_failure(cursor):
    """State and times stay: the job was over when its task began."""
    job = make_leased_job("a", errors=[{"kind": "error", "message": "old"}])
    ack(cursor, worker="a", ended=[ended(job)])
    before = ArchivedJob.objects.values().get()

    assert {job.pk} == note(cursor, worker="a", ended=[ended(job, error=error("x"))])

    after = ArchivedJob.objects.values().get()
    assert ["old", "x"] == [entry["message"] for entry in after.pop("errors")]
    before.pop("errors")
    assert before == after


def test_a_note_is_fenced(cursor):
    """Another worker, another delivery, or a job that is not archived: nothing."""
    archived = make_archived_job(worker="a")
    live = make_leased_job("a")
    before = everything()
    failure = error("x")

    assert set() == note(cursor, worker="b", ended=[Ended(archived.pk, 1)])
    assert set() == note(
        cursor, worker="a", ended=[Ended(archived.pk, 2, error=failure)]
    )
    assert set() == note(cursor, worker="a", ended=[Ended(live.pk, 1, error=failure)])
    assert set() == note(cursor, worker="a", ended=[])
    assert before == everything()
