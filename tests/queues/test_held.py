"""Held tasks: their jobs wait, in whatever lane or in none, and others go on."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from functools import partial

import pytest

from django_pgqueue.models import Job, Lane
from django_pgqueue.models.columns import CLOCK
from django_pgqueue.queues import lanes
from django_pgqueue.queues.claim import (
    PARK_LIMIT,
    Band,
    KnownQueue,
    claim,
    claim_from_floors,
    known,
    park,
)
from django_pgqueue.queues.claim_one import claim_one
from django_pgqueue.queues.fair import Stand, claim_fair
from django_pgqueue.queues.gather import gather
from django_pgqueue.queues.lane_controls import release
from django_pgqueue.queues.queue_limits import claim_limited
from django_pgqueue.queues.settle import Ended, retry
from django_pgqueue.queues.suspects import claim_suspects, waiting
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

by_pause = pytest.mark.parametrize("begin", [hold, tripped])

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


@pytest.mark.parametrize("ends", [-SECOND, None])
def test_a_pause_of_a_task_may_end_by_itself(cursor, ends):
    """One without an end goes on."""
    Lane.objects.create(name=TASK, paused_at=CLOCK, paused_until=ends and CLOCK + ends)
    make_job(task=TASK, lane=f"{TASK}:1", lane_capacity=5)

    assert (ends is not None) == lanes.promote(cursor, [f"{TASK}:1"]).jobs
    found = lanes.with_room(cursor).lanes
    assert [] == found


def test_lanes_of_a_paused_task_have_no_room(cursor):
    """So nobody goes through them in vain; after the pause they have."""
    make_job(task=TASK, lane=f"{TASK}:1")
    hold()
    assert [] == lanes.with_room(cursor).lanes

    Lane.objects.all().delete()
    assert [f"{TASK}:1"] == lanes.with_room(cursor).lanes


def test_an_open_breaker_lets_nothing_through(cursor):
    """It is a pause like any other, until it ends."""
    hold(breaker_trips=1)
    make_jobs(3, task=TASK, lane=TASK, lane_capacity=100)

    assert 0 == lanes.promote(cursor, [TASK]).jobs


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


def test_a_lane_that_takes_turns_lets_a_probe_through_too(cursor):
    """And nothing else: its jobs have no turn until the breaker is closed."""
    first, _ = make_jobs(2, task=TASK, lane=f"{TASK}:1", lane_policy="fair")
    assert 0 == lanes.promote(cursor, [f"{TASK}:1"]).jobs
    tripped()

    assert 1 == lanes.promote(cursor, [f"{TASK}:1"]).jobs
    assert [first] == through()
    fair = {"stand": Stand(), "worker": "a", "limit": 5, "lease": LEASE}
    assert [] == claim_fair(cursor, "default", **fair).jobs


def test_a_probe_that_was_put_back_frees_its_place(cursor):
    """It waits for its next attempt in its lane, and another one tries."""
    tripped()
    first, second = make_jobs(2, task=TASK, lane=TASK, lane_capacity=5)
    lanes.promote(cursor, [TASK])
    Job.objects.filter(pk=first).update(visible_at=None, lane_due_at=CLOCK + HOUR)

    assert 1 == lanes.promote(cursor, [TASK]).jobs
    assert [second] == through()


@pytest.mark.parametrize("lane", [{}, {"lane_policy": "fair"}])
def test_a_probe_that_is_put_off_in_its_own_place_keeps_nobody_waiting(cursor, lane):
    """As by Snooze in a group, which it holds up: a job of another key tries."""
    tripped()
    first, second = (
        make_job(task=TASK, lane=f"{TASK}:{number}", **lane).pk for number in range(2)
    )
    names = [f"{TASK}:0", f"{TASK}:1"]
    lanes.promote(cursor, names)
    (job,) = claim_all(cursor)
    assert 0 == lanes.promote(cursor, names).jobs
    put_off = Ended(job.id, job.delivery, delay_seconds=3600, gives_attempt_back=True)
    retry(cursor, worker="a", ended=[put_off])

    assert 1 == lanes.promote(cursor, names).jobs
    assert second == Lane.objects.get().probe_id
    assert [first, second] == through()


def test_other_tasks_have_their_own_probes(cursor):
    """One promotion may let through one of each."""
    tripped()
    tripped("shop.send")
    first = make_job(task=TASK, lane=TASK, lane_capacity=9).pk
    make_job(task=TASK, lane=TASK, lane_capacity=9)
    other = make_job(task="shop.send", lane="shop.send:1").pk

    assert 2 == lanes.promote(cursor, [TASK, "shop.send:1"]).jobs
    assert [first, other] == through()
    probes = dict(Lane.objects.values_list("name", "probe_id"))
    assert {TASK: first, "shop.send": other} == probes


def test_promotions_of_two_lanes_at_once_let_one_probe_through(new_cursor):
    """Each holds the lock of its own lane, and the row of the task's for all."""
    names = [f"{TASK}:{number}" for number in range(2)]
    cursors = [new_cursor() for _ in names]
    start = threading.Barrier(len(names), timeout=30)

    def promote(number):
        start.wait()
        return lanes.promote(cursors[number], [names[number]]).jobs

    for _ in range(100):
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
def test_what_was_let_through_before_a_pause_is_claimed(cursor, claim_jobs):
    """As of any lane: a probe is such a job."""
    job = make_job(task=TASK, lane=TASK, lane_capacity=5)
    lanes.promote(cursor, [TASK])

    assert 0 == parks(cursor)
    assert [job.pk] == ids(claim_jobs(cursor))


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


@either_claim
def test_what_an_operator_releases_is_tried_again(cursor, claim_jobs):
    """Though its task is paused: he wants to see whether it works."""
    (job,) = make_jobs(1, task=TASK, lane=f"{TASK}:7", deliveries=1, attempt=1)
    hold()
    with cursor.connection.transaction():
        assert job == release(cursor, f"{TASK}:7").job

    assert 0 == parks(cursor)
    assert [job] == ids(claim_jobs(cursor))


def test_a_parked_job_keeps_its_turn(cursor):
    """In the lane of its task; no lease, attempt or delivery."""
    job = make_job(task=TASK, visible_at=-HOUR)

    assert 1 == parks(cursor)
    row = Job.objects.get(pk=job.pk)
    assert (TASK, 100_000, None) == (row.lane, row.lane_capacity, row.visible_at)
    assert job.visible_at == row.lane_due_at
    assert (0, 0, 0) == (row.attempt, row.deliveries, row.crashes)
    assert (None, None) == (row.leased_by, row.leased_at)


def test_a_parked_job_is_let_through_when_its_task_goes_on(cursor):
    """Then it is claimed as any other."""
    job = make_job(task=TASK)
    assert 1 == parks(cursor)

    assert 1 == lanes.promote(cursor, [TASK]).jobs
    assert [(job.pk, 1, 1)] == [
        (claimed.id, claimed.attempt, claimed.delivery)
        for claimed in claim_all(cursor, held=())
    ]


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


def test_a_parked_job_keeps_its_key(cursor):
    """One that has it only while it waits still waits."""
    job = make_job(task=TASK, dedup_key="k", queued_key="k")

    assert 1 == parks(cursor)
    assert "k" == Job.objects.get(pk=job.pk).dedup_key


def test_some_are_parked_at_a_time_and_each_once(cursor):
    """Beside others, as long as one of them is the first of its band."""
    held = make_jobs(PARK_LIMIT // 2 + 10, task=TASK, visible_at=-HOUR)
    make_jobs(PARK_LIMIT, visible_at=-SECOND)
    make_job(task=TASK, priority=7)

    assert len(held) + 1 == parks(cursor)
    assert 0 == parks(cursor)


def test_what_is_not_for_a_claim_is_not_parked(cursor, other_cursor):
    """Not due, running, alone, barred, of another queue, or in somebody's hands."""
    make_job(task=TASK, visible_at=HOUR)
    make_leased_job(task=TASK)
    make_job(task=TASK, runs_alone=True)
    make_job(task=TASK, queue="other")
    barred = make_job(task=TASK, visible_at=-SECOND).pk
    assert 0 == parks(cursor, barred=[barred])

    with other_cursor.connection.transaction():
        other_cursor.execute("SELECT FROM pgqueue_job FOR UPDATE")
        assert 0 == parks(cursor)
    assert 1 == parks(cursor)


@pytest.mark.parametrize("waits", ["newest", "running"])
def test_what_is_parked_loosens_no_limit_of_its_tasks_lane(cursor, waits):
    """The newest parked job says what a lane takes, and now that is one of these."""
    said = {"lane_capacity": 2, "lane_spacing": 60.0, "lane_burst": 3}
    limited = make_jobs(5, task=TASK, lane=TASK, **said)
    if waits == "running":
        lanes.promote(cursor, [TASK])
        assert limited[:2] == ids(claim_all(cursor))
        Job.objects.filter(visible_at__isnull=True).delete()
    plain = make_job(task=TASK)

    assert 1 == parks(cursor)
    row = Job.objects.get(pk=plain.pk)
    assert said == {name: getattr(row, name) for name in said}
    lanes.promote(cursor, [TASK])
    assert limited[:2] == through(lane=TASK)


def test_what_is_parked_beside_a_group_is_no_part_of_it(cursor):
    """It waits for nobody, and two of the group are never let through at once."""
    make_jobs(2, task=TASK, lane=TASK)
    make_jobs(3, task=TASK)

    assert 3 == parks(cursor)
    assert 3 == lanes.promote(cursor, [TASK]).jobs
    assert {100_000} == {
        job.lane_capacity for job in Job.objects.exclude(visible_at=None)
    }
    assert 0 == lanes.promote(cursor, [TASK]).jobs


def claim_one_place(cursor, *, alone=False, barred=(), held=()):
    """Claim from a queue with one place."""
    statement = partial(claim, queues=["default"], barred=barred)
    if alone:
        statement = partial(claim_suspects, queues=["default"])
    with cursor.connection.transaction():
        return claim_limited(
            cursor,
            statement,
            queue="default",
            concurrency=1,
            spacing=None,
            burst=1,
            worker="a",
            limit=10,
            lease=LEASE,
            alone=alone,
            barred=barred,
            held=held,
        ).jobs


@pytest.mark.parametrize("alone", [False, True])
@by_pause
def test_a_lapsed_lease_of_a_held_task_leaves_its_place(cursor, begin, alone):
    """Nobody takes its job over; it is parked, and the next one gets the place."""
    job = make_job(task=TASK)
    assert [job.pk] == ids(claim_one_place(cursor))
    begin()
    other = make_job(visible_at=-HOUR, runs_alone=alone)
    Job.objects.filter(pk=job.pk).update(visible_at=CLOCK - SECOND, runs_alone=alone)
    assert [] == ids(claim_one_place(cursor, barred=[job.pk], held=[TASK]))

    held = () if alone else [TASK]
    assert [other.pk] == ids(claim_one_place(cursor, alone=alone, held=held))
    row = Job.objects.get(pk=job.pk)
    assert (TASK, None, None) == (row.lane, row.visible_at, row.leased_by)
    assert (0, 1, 1) == (row.attempt, row.deliveries, row.crashes)


def test_known_says_which_tasks_are_held(cursor):
    """Paused ones, and those whose breaker waits for its probe; no queues they are."""
    hold("paused")
    Lane.objects.create(name="for ever", paused_at=CLOCK)
    hold("over", ends=-SECOND)
    tripped("tripped")
    Lane.objects.create(name="resized", capacity=3)
    make_job()

    queues, held, seconds = known(cursor)
    assert {"paused", "for ever", "tripped"} == set(held)
    assert 3_590 < seconds <= 3_600
    assert [KnownQueue("default", has_row=False, is_paused=False)] == queues


# Claims of few jobs -------------------------------------------------------------------


@by_pause
def test_who_claims_one_job_gets_none_of_a_held_task(cursor, begin):
    """It stays where it is."""
    job = make_job(task=TASK)
    begin()

    assert claim_one(cursor, job.pk, worker="a", lease=LEASE) is None
    Lane.objects.all().delete()
    assert job.pk == claim_one(cursor, job.pk, worker="a", lease=LEASE).id


@by_pause
def test_suspects_of_a_held_task_wait(cursor, begin):
    """Also in the crowd of another one."""
    make_job(task=TASK, runs_alone=True)
    begin()
    lease = {"queues": ["default"], "worker": "a", "limit": 5, "lease": LEASE}

    assert [] == waiting(cursor)
    assert [] == claim_suspects(cursor, **lease)
    Lane.objects.all().delete()
    assert 1 == len(claim_suspects(cursor, **lease))


def test_a_run_takes_no_more_calls_once_its_task_is_held(cursor):
    """They are other jobs, which have not begun."""
    make_jobs(2, task=TASK, accumulate_key="k", visible_at=-SECOND)
    (job,) = claim_all(cursor, limit=1, held=())
    hold()
    told = {"within": SECOND, "worker": "a", "limit": 5, "lease": LEASE}

    assert [] == gather(cursor, job, **told)
    Lane.objects.all().delete()
    assert 1 == len(gather(cursor, job, **told))


# In lanes that take turns ------------------------------------------------------------


@either_claim
def test_a_retry_that_has_had_its_turn_waits_in_its_lane(cursor, claim_jobs):
    """It is visible, since no lane lets it through; a probe is, too, and goes on."""
    own = {"task": TASK, "lane": "a", "lane_policy": "fair", "deliveries": 1}
    retrying, probe = make_jobs(2, **own)
    Job.objects.update(visible_at=CLOCK, lane_due_at=None)
    hold(breaker_trips=1, probe_id=probe)

    assert [probe] == ids(claim_jobs(cursor))
    assert 1 == park(cursor, queues=["default"], held=[TASK])
    row = Job.objects.get(pk=retrying)
    assert ("a", "fair", None) == (row.lane, row.lane_policy, row.visible_at)
    Lane.objects.all().delete()
    own = {"worker": "a", "limit": 9, "lease": LEASE}
    assert [retrying] == ids(claim_fair(cursor, "default", stand=Stand(), **own).jobs)
