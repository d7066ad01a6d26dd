"""The pipeline job metrics, beside a plain computation of the same in Python."""

from __future__ import annotations

import math
import random
from collections import defaultdict
from datetime import UTC, datetime, timedelta

import pytest
from django.db import connection

from django_pgqueue.models import ArchivedJob, DeadLetter, TaskHour
from django_pgqueue.pipeline import task_hours
from django_pgqueue.pipeline.task_hours import COUNTS
from django_pgqueue.postgres.day_tables import ARCHIVE
from django_pgqueue.queues.dead_letters import redrive
from tests.harness.factories import make_archived_job, make_dead_letter

HOUR = timedelta(hours=1)
PERCENTILES = (0.5, 0.95, 0.99)

# Yesterday: what ends later than now is not read.
DAY = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(
    days=1
)


@pytest.fixture(autouse=True)
def _partition_of_yesterday(cursor):
    with cursor.connection.transaction():
        ARCHIVE.make_day(cursor, DAY.date())
    yield
    ARCHIVE.remove(cursor, DAY.date())


def ended_at(random: random.Random) -> datetime:
    return DAY + timedelta(microseconds=random.randrange(int(6 * 3600e6)))


def errors_of(random: random.Random, before: int, deliveries: int, *, failed: bool):
    """Return one entry for each delivery before the last; perhaps for that too."""
    kinds = ("error", "error", "worker_lost")
    return [
        {
            "kind": "error" if n == deliveries else random.choice(kinds),
            "type": "builtins.ValueError",
            "message": "no",
            "traceback": "",
            "delivery": n,
            "ran_seconds": round(random.expovariate(1), 3),
            "at": "2026-01-01T00:00:00+00:00",
        }
        for n in range(1, deliveries + failed)
        if n > before or random.random() < 0.5
    ]


def random_jobs(random: random.Random, count: int) -> list[ArchivedJob | DeadLetter]:
    """Return unsaved rows of every kind."""
    rows = []
    for n in range(count):
        state = random.choices(
            ["succeeded", "dead", "cancelled", "expired"], [80, 10, 5, 5]
        )[0]
        before = random.choice([0, 0, 0, 0, 3])
        own = 0 if state == "expired" else random.choice([1, 1, 1, 2, 4])
        at = ended_at(random)
        ran = timedelta(seconds=random.lognormvariate(0, 3))
        waited = timedelta(seconds=random.lognormvariate(2, 4))
        run_after = random.choice([None, at - ran - waited / 2])
        columns = {
            "id": 10_000 + n,
            "queue": random.choice(["default", "mail"]),
            "task": random.choice(["shop.send", "shop.count", "shop.größe"]),
            "args": [],
            "kwargs": {},
            "headers": {"pgqueue.deliveries_before": before} if before else {},
            "priority": 0,
            "run_after": run_after,
            "enqueued_at": at - ran - waited,
            "attempt": own,
            "max_attempts": 5,
            "crashes": random.choice([0, 0, 1]),
            "deliveries": before + own,
            "started_at": at - ran if own else None,
            "finished_at": at,
            "errors": errors_of(random, before, before + own, failed=state == "dead"),
        }
        rows.append(
            DeadLetter(reason="exhausted", **columns)
            if state == "dead"
            else ArchivedJob(state=state, **columns)
        )
    return rows


def save(rows):
    ArchivedJob.objects.bulk_create([r for r in rows if isinstance(r, ArchivedJob)])
    DeadLetter.objects.bulk_create([r for r in rows if isinstance(r, DeadLetter)])


def percentile(values, mark):
    """As PostgreSQL's percentile_cont."""
    ordered = sorted(values)
    place = mark * (len(ordered) - 1)
    low, high = ordered[math.floor(place)], ordered[math.ceil(place)]
    return low + (high - low) * (place - math.floor(place))


def expected_hours(rows):
    """Compute what metrics should find, row by row."""
    groups = defaultdict(list)
    for row in rows:
        hour = row.finished_at.replace(minute=0, second=0, microsecond=0)
        groups[hour, row.queue, row.task].append(row)
    return {key: expected_hour(jobs) for key, jobs in groups.items()}


def expected_hour(jobs):
    found = dict.fromkeys(COUNTS, 0)
    waits, runs, seconds = [], [], 0.0
    for job in jobs:
        before = job.headers.get("pgqueue.deliveries_before", 0)
        found[getattr(job, "state", "dead")] += 1
        found["started"] += job.deliveries - before
        found["retried"] += max(job.attempt - 1, 0)
        found["crashed"] += job.crashes
        failures = [
            error
            for error in job.errors
            if error["kind"] == "error" and error["delivery"] > before
        ]
        found["failed"] += len(failures)
        if job.started_at:
            ran = (job.finished_at - job.started_at).total_seconds()
            runs.append(ran)
            seconds += ran
            if job.deliveries == 1:
                due = max(job.enqueued_at, job.run_after or job.enqueued_at)
                waits.append(max((job.started_at - due).total_seconds(), 0))
        seconds += sum(
            error["ran_seconds"]
            for error in failures
            if error["delivery"] < job.deliveries
        )
    for name, values in (("wait", waits), ("run", runs)):
        for mark in PERCENTILES:
            found[f"{name}_p{mark * 100:.0f}"] = (
                percentile(values, mark) if values else None
            )
    found["oldest_wait"] = max(waits, default=None)
    found["worker_seconds"] = seconds
    return found


def counted():
    """What the model has, by its key, without the times of computing."""
    rows = {}
    for row in TaskHour.objects.values():
        key = (row.pop("hour"), row.pop("queue"), row.pop("task"))
        del row["id"], row["computed_at"]
        rows[key] = row
    return rows


def approximately(hours):
    """Durations keep three digits: half a percent."""
    return {
        key: {
            name: pytest.approx(value, rel=0.0051, abs=1e-6)
            if isinstance(value, float)
            else value
            for name, value in hour.items()
        }
        for key, hour in hours.items()
    }


def test_hours_are_those_of_a_plain_computation(by_sql):
    """Of every state, with retries, crashes, redrives, waits and runs of any length."""
    seed = random.randrange(10**6)
    rows = random_jobs(random.Random(seed), 1_500)
    save(rows)

    ended = by_sql("metrics")

    expected = expected_hours(rows)
    assert approximately(expected) == counted(), f"seed {seed}"
    assert len(expected) == ended.rows_out
    # Read twice: what to count, then the rows of those hours.
    assert 2 * len(rows) == ended.rows_in


@pytest.mark.parametrize("kind", [ArchivedJob, DeadLetter])
def test_late_rows_are_counted_and_nothing_else_is_computed_again(by_sql, kind):
    """An hour that has more rows than were counted is computed anew; others stay."""
    rows = random_jobs(random.Random(1), 200)
    late = [row for row in rows if isinstance(row, kind) and row.finished_at.hour == 3][
        :3
    ]
    save([row for row in rows if row not in late])
    by_sql("metrics")
    before = dict(TaskHour.objects.values_list("id", "computed_at"))
    assert late

    save(late)
    ended = by_sql("metrics")

    assert approximately(expected_hours(rows)) == counted()
    of_hour = [row for row in rows if row.finished_at.hour == 3]
    again = TaskHour.objects.filter(hour=DAY + 3 * HOUR)
    assert again.count() == ended.rows_out
    assert len(rows) + len(of_hour) == ended.rows_in
    others = TaskHour.objects.exclude(hour=DAY + 3 * HOUR)
    assert {(r.id, r.computed_at) for r in others} <= set(before.items())


def test_what_retention_has_dropped_stays_counted(by_sql):
    """Rows that are gone take nothing away, also when others of their hour come."""
    at = DAY + 2 * HOUR
    make_archived_job(finished_at=at, started_at=at)
    letters = [make_dead_letter(finished_at=at, started_at=at) for _ in range(2)]
    by_sql("metrics")

    with connection.cursor() as cursor:
        assert 2 == len(redrive(cursor, [letter.id for letter in letters]))
    make_archived_job(finished_at=at, started_at=at)
    by_sql("metrics")

    assert [(2, 2)] == list(TaskHour.objects.values_list("succeeded", "dead"))


def test_hours_older_than_keep_are_forgotten(by_sql):
    """And not counted again."""
    make_archived_job()
    at = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
    TaskHour.objects.create(hour=at - timedelta(days=3), queue="q", task="t")
    make_dead_letter(finished_at=at - timedelta(days=3))

    by_sql("metrics", keep="2d", full="true")

    assert ["tests.noop"] == list(TaskHour.objects.values_list("task", flat=True))


def test_a_run_that_breaks_off_has_counted_its_days(by_sql, cursor, monkeypatch):
    """Each is written at its end; the next run counts those that are left."""
    make_archived_job(finished_at=DAY + 2 * HOUR)
    make_archived_job()
    store, stored = task_hours.store, []

    def store_once(*given):
        if stored:
            raise RuntimeError("It broke off.")
        stored.append(given)
        return store(*given)

    with monkeypatch.context() as patched:
        patched.setattr(task_hours, "store", store_once)
        with pytest.raises(AssertionError, match="It broke off"):
            by_sql("metrics")
    assert [DAY + 2 * HOUR] == list(TaskHour.objects.values_list("hour", flat=True))

    assert 1 == by_sql("metrics").rows_out

    assert 2 == TaskHour.objects.count()


def test_what_sql_has_written_otherwise_counts_for_nothing(by_sql):
    """Errors that are no list, numbers that are texts: the job itself is counted."""
    strange = [{}, 7, [1, None], [{"kind": "error", "delivery": "2"}]]
    for errors in strange:
        make_archived_job(
            errors=errors,
            headers={"pgqueue.deliveries_before": "x"},
            deliveries=1,
            finished_at=DAY + HOUR,
        )
    make_archived_job(
        errors=[
            {"kind": "error", "delivery": n, "ran_seconds": seconds}
            for n, seconds in enumerate(["1", 1e300, -1, 2.5], start=1)
        ],
        headers={"pgqueue.deliveries_before": 1e300},
        deliveries=9,
        finished_at=DAY + 2 * HOUR,
    )

    by_sql("metrics")

    rows = TaskHour.objects.order_by("hour").values_list("succeeded", "failed")
    assert [(len(strange), 0), (1, 0)] == list(rows)
