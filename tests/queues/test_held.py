"""Held tasks: their jobs wait, in whatever lane or in none, and others go on."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest

from django_pgqueue.models import Job, Lane
from django_pgqueue.models.columns import CLOCK
from django_pgqueue.queues import lanes
from django_pgqueue.queues.claim import (
    Band,
    claim,
    claim_from_floors,
    park,
)
from tests.harness.factories import LEASE, make_job, make_jobs, make_leased_job

HOUR = timedelta(hours=1)
SECOND = timedelta(seconds=1)
LONG_AGO = datetime(2000, 1, 1, tzinfo=UTC)

TASK = "shop.call"


def hold(task=TASK, *, ends=HOUR, **columns):
    """Pause a task, as an operator or a breaker would; for *ends* from now on."""
    Lane.objects.create(
        name=task, paused_at=CLOCK, paused_until=CLOCK + ends, **columns
    )


def tripped(task=TASK):
    """Let the breaker of a task wait for its probe."""
    hold(task, ends=-SECOND, breaker_trips=1)


def through(**columns):
    """Return the jobs that no lane holds, the first first."""
    rows = Job.objects.filter(visible_at__isnull=False, **columns)
    return [*rows.order_by("pk").values_list("pk", flat=True)]


def claim_all(cursor, limit=10, *, held=(TASK,)):
    return claim(
        cursor, queues=["default"], worker="a", limit=limit, lease=LEASE, held=held
    )


def claim_band(cursor, limit=10, *, held=(TASK,), floor=LONG_AGO):
    bands = [Band("default", 0, floor)]
    return claim_from_floors(
        cursor, bands=bands, worker="a", limit=limit, lease=LEASE, held=held
    )


def ids(claimed):
    return [job.id for job in claimed]


either_claim = pytest.mark.parametrize(
    "claim_jobs", [claim_all, claim_band], ids=["claim", "claim_from_floors"]
)


# What promotions let through ----------------------------------------------------------


def test_while_a_task_is_paused_no_lane_of_it_lets_a_job_through(cursor):
    """Neither that of its name nor those of its keys; others do."""
    hold()
    for lane in (TASK, f"{TASK}:1", f"{TASK}:2"):
        make_job(task=TASK, lane=lane, lane_capacity=5)
    other = make_job(task="shop.send", lane="shop.send:1", lane_capacity=5)

    names = [TASK, f"{TASK}:1", f"{TASK}:2", "shop.send:1"]
    assert 1 == lanes.promote(cursor, names).jobs
    assert [other.pk] == through()


def test_a_half_open_breaker_lets_one_job_through_at_a_time(cursor):
    """The probe, from whichever lane; the next one when it is gone."""
    tripped()
    first, _ = make_jobs(2, task=TASK, lane=f"{TASK}:1", lane_capacity=5)
    second = make_job(task=TASK, lane=f"{TASK}:2", lane_capacity=5).pk
    names = [f"{TASK}:1", f"{TASK}:2"]

    assert 1 == lanes.promote(cursor, names).jobs
    assert [first] == through()
    assert first == Lane.objects.get().probe_id
    assert 0 == lanes.promote(cursor, names).jobs
    assert 0 == lanes.promote(cursor, names[1:]).jobs

    Job.objects.filter(pk=first).delete()
    assert 1 == lanes.promote(cursor, names[1:]).jobs
    assert [second] == through()
    assert second == Lane.objects.get().probe_id


def test_a_probe_that_was_put_back_frees_its_place(cursor):
    """It waits for its next attempt in its lane, and another one tries."""
    tripped()
    first, second = make_jobs(2, task=TASK, lane=TASK, lane_capacity=5)
    lanes.promote(cursor, [TASK])
    Job.objects.filter(pk=first).update(visible_at=None, lane_due_at=CLOCK + HOUR)

    assert 1 == lanes.promote(cursor, [TASK]).jobs
    assert [second] == through()


def test_promotions_of_two_lanes_at_once_let_one_probe_through(new_cursor):
    """Each holds the lock of its own lane, and the row of the task's for all."""
    names = [f"{TASK}:{number}" for number in range(2)]
    cursors = [new_cursor() for _ in names]
    start = threading.Barrier(len(names), timeout=30)

    def promote(number):
        start.wait()
        return lanes.promote(cursors[number], [names[number]]).jobs

    for _ in range(25):
        tripped()
        for name in names:
            make_jobs(2, task=TASK, lane=name, lane_capacity=5)
        with ThreadPoolExecutor(len(names)) as pool:
            assert 1 == sum(pool.map(promote, range(len(names))))
        assert through() == [Lane.objects.get().probe_id]
        Job.objects.all().delete()
        Lane.objects.all().delete()


# What claims pass over, and who parks it ----------------------------------------------


def parks(cursor, **options):
    return park(cursor, queues=["default"], held=[TASK], **options)


@either_claim
def test_a_claim_passes_jobs_of_a_held_task(cursor, claim_jobs):
    """It brings the others behind them, as many as it was asked for."""
    make_jobs(20, task=TASK, visible_at=-HOUR)
    others = make_jobs(3, visible_at=-SECOND)

    assert others[:2] == ids(claim_jobs(cursor, limit=2))
    assert {(0, 0, None)} == {
        (job.attempt, job.deliveries, job.lane) for job in Job.objects.filter(task=TASK)
    }


@either_claim
@pytest.mark.parametrize("lapsed", [False, True])
def test_the_first_of_a_group_is_not_tried_again(cursor, claim_jobs, lapsed):
    """Once it is due: it is parked in its group, and the first again afterwards."""
    lane = {"task": TASK, "lane": f"{TASK}:7"}
    failed, second = (make_job(**lane, attempt=1, deliveries=1) for _ in range(2))
    lease = {"leased_by": "worker", "leased_at": CLOCK - HOUR} if lapsed else {}
    Job.objects.filter(pk=failed.pk).update(
        visible_at=CLOCK - SECOND, lane_due_at=None, **lease
    )
    hold()

    assert [] == ids(claim_jobs(cursor))
    assert 1 == parks(cursor)
    row = Job.objects.get(pk=failed.pk)
    assert (f"{TASK}:7", None, None) == (row.lane, row.lane_capacity, row.visible_at)
    assert (None, 1 - lapsed, int(lapsed)) == (row.leased_by, row.attempt, row.crashes)
    assert [] == through()
    Lane.objects.all().delete()
    assert 1 == lanes.promote(cursor, [f"{TASK}:7"]).jobs
    assert [failed.pk] == through()
    assert second.pk > failed.pk


def test_a_lapsed_lease_of_a_held_task_counts_its_crash(cursor):
    """It gives its attempt back, as one that is claimed would."""
    job = make_leased_job(
        "dead", task=TASK, visible_at=-SECOND, attempt=2, deliveries=2
    )

    assert 1 == parks(cursor)
    row = Job.objects.get(pk=job.pk)
    assert (1, 2, 1) == (row.attempt, row.deliveries, row.crashes)
    assert (None, TASK) == (row.leased_by, row.lane)
    assert ("lease_expired", "dead") == (row.errors[0]["kind"], row.errors[0]["worker"])
