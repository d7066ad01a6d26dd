"""The pipeline job failures: errors by kind and hour."""

from __future__ import annotations

import random
from collections import Counter
from datetime import UTC, datetime, timedelta

from django.db import connection

from django_pgqueue.models import DeadLetter, Failure, FailureHour, Job
from django_pgqueue.operators.error_groups import letters_of
from django_pgqueue.pipeline.ended_jobs import Failed
from django_pgqueue.queues.dead_letters import redrive
from django_pgqueue.redaction.fingerprint import fingerprint
from django_pgqueue.spark.jobs.failures import errors_of
from tests.harness.factories import make_archived_job, make_dead_letter, make_job

SECRET = "hunter2-planted"
NOW = datetime.now(UTC).replace(minute=30, second=0, microsecond=0)


def error(delivery=1, message="Order 7 is gone", at=NOW, **changes):
    return {
        "kind": "error",
        "type": "shop.Gone",
        "message": message,
        "traceback": '  File "/srv/shop/tasks.py", line 7, in send\n',
        "delivery": delivery,
        "at": at.isoformat(),
        **changes,
    }


def trend():
    rows = FailureHour.objects.filter(count__gt=0)
    hours = rows.values_list("fingerprint", "hour", "count")
    return {(name, hour): count for name, hour, count in hours}


def test_errors_of_one_kind_are_one_failure(by_sql):
    """Wherever their jobs are; with the latest one as its sample."""
    early = NOW - timedelta(hours=2)
    dead = make_dead_letter(
        task="a", errors=[error(1, at=early), error(2, "Order 8 is gone")]
    )
    make_archived_job(task="b", errors=[error(1, "Order 9 is gone", at=early)])
    waiting = make_job(
        task="c", errors=[error(1, "Order 10 is gone", NOW + timedelta(seconds=1))]
    )
    make_job()

    by_sql("failures")

    (found,) = Failure.objects.all()
    assert fingerprint(error()).digest == found.fingerprint
    assert "shop.Gone: Order <n> is gone" == str(found)
    assert "shop/tasks.py in send" == found.place
    assert (4, 3, 1) == (found.count, found.jobs, found.dead_letters)
    assert ["a", "b", "c"] == found.tasks
    assert (early, NOW + timedelta(seconds=1)) == (found.first_seen, found.last_seen)
    assert (waiting.id, "Order 10 is gone") == (
        found.sample_job_id,
        found.sample_message,
    )
    hour = NOW.replace(minute=0)
    assert {
        (found.fingerprint, hour): 2,
        (found.fingerprint, hour - timedelta(hours=2)): 2,
    } == trend()
    assert dead.id != waiting.id


def test_trends_are_those_of_a_plain_computation(by_sql):
    """Over random errors of random jobs."""
    rng = random.Random(3)
    expected = Counter()
    for _ in range(60):
        errors = [
            error(
                n,
                rng.choice(["Order {} is late", "no user '{}'", "at {}"]).format(
                    rng.randrange(99)
                ),
                NOW - timedelta(minutes=rng.randrange(600)),
                type=rng.choice(["a.A", "b.B"]),
            )
            for n in range(1, rng.randrange(1, 5))
        ]
        make = rng.choice([make_archived_job, make_dead_letter, make_job])
        make(errors=errors)
        if not errors and make is make_dead_letter:
            letter = DeadLetter.objects.latest("finished_at")
            errors = [{"kind": "exhausted", "at": letter.finished_at.isoformat()}]
        for each in errors:
            at = datetime.fromisoformat(each["at"])
            hour = at.replace(minute=0, second=0, microsecond=0)
            expected[fingerprint(each).digest, hour] += 1

    by_sql("failures")

    assert expected == trend()
    assert sum(expected.values()) == sum(f.count for f in Failure.objects.all())


def test_what_has_happened_stays_counted_when_its_job_goes(by_sql):
    """Dead letters alone are what there is now."""
    letter = make_dead_letter(errors=[error(1)])
    purged = make_dead_letter(errors=[error(1)])
    other = make_dead_letter(errors=[error(1, type="b.B")])
    by_sql("failures")

    purged.delete()
    other.delete()
    with connection.cursor() as cursor:
        redrive(cursor, [letter.id])
    by_sql("failures")

    assert {("shop.Gone", 2, 0), ("b.B", 1, 0)} == {
        (f.error_class, f.count, f.dead_letters) for f in Failure.objects.all()
    }


def test_failures_older_than_keep_are_forgotten(by_sql):
    """With their hours."""
    make_job(errors=[error(1, at=NOW - timedelta(days=3))])
    make_job(errors=[error(1, type="b.B")])

    by_sql("failures", keep="2d")

    assert ["b.B"] == [f.error_class for f in Failure.objects.all()]
    assert 1 == FailureHour.objects.count()


def test_secrets_are_in_no_result(by_sql):
    """What is planted in messages and tracebacks is masked before it is grouped."""
    row = make_dead_letter(
        args=[SECRET],
        kwargs={"password": SECRET},
        errors=[
            error(
                message=f"login failed: password={SECRET} for 7",
                traceback=f'  File "/a/b.py", line 7, in f\n    token = "{SECRET}"\n',
            )
        ],
    )

    by_sql("failures")

    (found,) = Failure.objects.values()
    assert "login failed: password=[redacted] for <n>" == found["message"]
    assert "[redacted]" in found["sample_traceback"]
    assert SECRET not in repr(found)
    # The admin knows it again: it masks as the reader does.
    assert [row.pk] == letters_of(DeadLetter.objects.all(), found["fingerprint"])


def test_any_errors_are_read():
    """Whatever SQL has put there."""
    for text in ("null", "{}", "[1, null]", "[", "7", None):
        assert [] == list(errors_of(Failed(1, "t", text, None, NOW), ()))
    text = '[{"kind": "error", "at": "x", "delivery": "y"}]'
    (found,) = errors_of(Failed(1, "t", text, None, NOW), ())
    assert (NOW.timestamp(), 0) == (found.at, found.delivery)
    assert not found.is_last_of_dead


LONG_AGO = NOW - timedelta(hours=20)


def test_a_job_that_goes_on_failing_is_counted_once_more_by_its_errors(by_sql):
    """A later run counts the new error, and neither the old one nor the job again."""
    job = make_job(task="a", errors=[error(1, at=LONG_AGO)])
    by_sql("failures")
    Job.objects.filter(id=job.id).delete()
    make_dead_letter(id=job.id, errors=[error(1, at=LONG_AGO), error(2)])

    by_sql("failures")

    (found,) = Failure.objects.all()
    assert (2, 1, 1) == (found.count, found.jobs, found.dead_letters)
    assert (LONG_AGO, NOW) == (found.first_seen, found.last_seen)
    assert [1, 1] == list(trend().values())


def test_dead_letters_of_long_ago_are_counted_anew_when_they_go(by_sql):
    """A run reads those of the hours that have fewer, and no other job of long ago."""
    letters = [
        make_dead_letter(errors=[error(1, at=LONG_AGO)], finished_at=LONG_AGO)
        for _ in range(3)
    ]
    earlier = LONG_AGO - timedelta(hours=2)
    make_dead_letter(errors=[error(1, at=earlier)], finished_at=earlier)
    assert 4 == by_sql("failures").rows_in
    letters[0].delete()

    ended = by_sql("failures")

    assert 2 == ended.rows_in
    (found,) = Failure.objects.all()
    assert (4, 4, 3) == (found.count, found.jobs, found.dead_letters)
    assert 0 == by_sql("failures").rows_in
    assert 3 == by_sql("failures", full="true").rows_in
