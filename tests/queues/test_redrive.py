"""Redrive a dead letter; make a waiting job due now."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

from django_pgqueue.models import DeadLetter, Job
from django_pgqueue.queues.claim import claim
from django_pgqueue.queues.dead_letters import holders, redrive, retry_now
from tests.harness.factories import LEASE, make_dead_letter, make_job, make_leased_job
from tests.harness.waiting import wait_until_blocked

HOUR = timedelta(hours=1)


def test_a_redriven_job_starts_again_at_its_first_attempt(cursor):
    """Attempt and crashes begin anew; id, errors and deliveries stay."""
    dead = make_dead_letter(
        attempt=5, crashes=2, deliveries=9, errors=[{"n": 1}], max_attempts=5
    )

    assert [(dead.pk, "default", None, None)] == redrive(cursor, [dead.pk])

    job = Job.objects.get(pk=dead.pk)
    assert (0, 0, 9, 5, [{"n": 1}]) == (
        job.attempt,
        job.crashes,
        job.deliveries,
        job.max_attempts,
        job.errors,
    )
    assert False is job.runs_alone
    assert 0 == DeadLetter.objects.count()
    (claimed,) = claim(cursor, queues=["default"], worker="a", limit=1, lease=LEASE)
    assert (1, 10) == (claimed.attempt, claimed.delivery)


def test_a_redriven_job_keeps_what_it_is(cursor):
    """Task, payload, headers, priority, lane and relations travel back."""
    values = {
        "queue": "mail",
        "task": "shop.send",
        "args": [1],
        "kwargs": {"a": 2},
        "headers": {"trace": "t"},
        "priority": 7,
        "enqueued_at": datetime(2020, 1, 1, tzinfo=UTC),
        "accumulate_key": "k",
        "lane": "l",
        "lane_capacity": 3,
        "progress": {"done": 1},
        "workflow_id": 1,
        "parent_id": 2,
        "message_id": 3,
        "schedule_id": 4,
    }
    dead = make_dead_letter(**values)

    redrive(cursor, [dead.pk])

    moved = Job.objects.values(*values).get()

    assert dead.deliveries == moved["headers"].pop("pgqueue.deliveries_before")
    assert values == moved


def test_a_dead_letter_whose_key_a_live_job_has_stays(cursor):
    """It is named with that job, and the others of the batch go."""
    dead, other = make_dead_letter(dedup_key="k"), make_dead_letter()
    job = make_job(dedup_key="k")

    assert [(other.pk, "default", None, None)] == redrive(cursor, [dead.pk, other.pk])
    assert {dead.pk: job.pk} == holders(cursor, [dead.pk, other.pk])


def test_a_redrive_waits_for_an_enqueue_that_has_not_committed(
    cursor, other_cursor, new_cursor
):
    """Only then it is known whether the key is free."""
    dead = make_dead_letter(dedup_key="k")
    with ThreadPoolExecutor(1) as pool:
        with other_cursor.connection.transaction():
            other_cursor.execute(
                "INSERT INTO pgqueue_job (task, dedup_key) VALUES ('x', 'k')"
            )
            redriven = pool.submit(redrive, cursor, [dead.pk])
            wait_until_blocked(new_cursor(), cursor)
        assert [] == redriven.result(10)
    assert 1 == DeadLetter.objects.count()


def test_dead_letters_can_be_sent_to_another_queue(cursor):
    """The answer says where each one is now, so that its workers are woken."""
    dead = [make_dead_letter(queue=queue) for queue in ("a", "b")]
    ids = [letter.pk for letter in dead]

    assert {(job_id, "repair", None, None) for job_id in ids} == set(
        redrive(cursor, ids, queue="repair")
    )
    assert 2 == Job.objects.filter(queue="repair").count()


def test_a_waiting_job_is_made_due_now(cursor):
    """One that is scheduled, and one in its back-off."""
    scheduled = make_job(run_after=HOUR)
    retrying = make_job(visible_at=HOUR, attempt=1, deliveries=1, queue="mail")

    assert {
        (scheduled.pk, "default", None, None),
        (retrying.pk, "mail", None, None),
    } == set(retry_now(cursor, [scheduled.pk, retrying.pk]))
    assert 2 == Job.objects.due().count()
    assert 1 == Job.objects.get(pk=retrying.pk).attempt


def test_a_job_that_waits_for_no_time_is_not_hurried(cursor):
    """A running one would run twice; a parked one would break its lane."""
    others = [make_leased_job("a"), make_job(visible_at=None), make_job()]
    before = list(Job.objects.order_by("pk").values())

    assert [] == retry_now(cursor, [job.pk for job in others])
    assert before == list(Job.objects.order_by("pk").values())


def test_a_job_that_is_being_claimed_is_passed_over(cursor, other_cursor):
    """The operator does not wait, and does not undo the claim."""
    job = make_job(run_after=HOUR)
    other_cursor.execute("SET lock_timeout = '1s'")

    with cursor.connection.transaction():
        cursor.execute("SELECT 1 FROM pgqueue_job FOR UPDATE")
        assert [] == retry_now(other_cursor, [job.pk])
