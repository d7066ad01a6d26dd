"""Floors of lanes: a promotion that knows what has left finds what others would."""

from __future__ import annotations

from datetime import timedelta

import pytest

from django_pgqueue.models import Job, Lane
from django_pgqueue.models.columns import CLOCK
from django_pgqueue.queues import lanes
from django_pgqueue.queues.claim import claim, park
from django_pgqueue.queues.dead_letters import redrive
from django_pgqueue.queues.settle import Ended, dead_letter, retry
from django_pgqueue.worker.lanes import promoter as module
from django_pgqueue.worker.lanes.promoter import LaneFloors
from tests.harness.factories import LEASE, make_job, make_jobs
from tests.harness.plans import Explaining

pytestmark = pytest.mark.django_db(transaction=True)

HOUR = timedelta(hours=1)
TASK = "shop.call"
# From its first query on, nothing that anybody deletes can be vacuumed away.
HOLD = "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM pg_class"
GROUP = {"lane": "a"}
LIMIT = {"lane": "a", "lane_capacity": 1}
BOTH = pytest.mark.parametrize("kind", [GROUP, LIMIT], ids=["group", "limit"])


@pytest.fixture(autouse=True)
def _looks_at_the_horizon_each_time(monkeypatch):
    monkeypatch.setattr(module, "LOOK_JOBS", 0)
    monkeypatch.setattr(module, "LOOK_SECONDS", 0.0)


@pytest.fixture
def promote(cursor):
    """Promote a lane as a worker does; return the ids of what was let through."""
    floors = LaneFloors()

    def promote(lane="a"):
        before = through(lane)
        done = lanes.promote(cursor, [lane], floors=floors.of(cursor, [lane]))
        floors.learn(cursor, [lane], done)
        return sorted({*through(lane)} - {*before})

    promote.floors = floors
    return promote


def through(lane="a"):
    rows = Job.objects.filter(lane=lane, visible_at__isnull=False)
    return [*rows.order_by("pk").values_list("pk", flat=True)]


def run(cursor, promote, count, lane="a"):
    """Promote and end *count* jobs, one by one."""
    for _ in range(count):
        (job,) = promote(lane)
        cursor.execute("DELETE FROM pgqueue_job WHERE id = %s", [job])


def pages(cursor, floors):
    """Return how many pages a promotion from *floors* reads; it is taken back."""
    explaining = Explaining(cursor)
    with cursor.connection.transaction(force_rollback=True):
        explaining.execute(lanes.PROMOTE, lanes.promotion(["a"], floors=floors))
    return explaining.buffers


def leased(cursor, job):
    """Claim the one job that is due; return what a settle is to say of it."""
    claimed = claim(cursor, queues=["default"], worker="w", limit=1, lease=LEASE)
    assert [job] == [each.id for each in claimed]
    return claimed[0]


def ended(job, **said):
    return Ended(job.id, job.delivery, error='{"kind": "failed"}', **said)


def set_aside(cursor, job, seconds=3600.0):
    """Let a claimed job fail, and wait for its next attempt."""
    retry(cursor, worker="w", ended=[ended(job, delay_seconds=seconds)])


# What it spares -----------------------------------------------------------------------


@pytest.mark.slow
def test_a_promotion_reads_no_more_for_what_has_left(cursor, other_cursor, promote):
    """While nothing can be vacuumed; without floors, it does."""
    cursor.execute("SET plan_cache_mode = force_generic_plan")
    make_jobs(602, **GROUP)
    other_cursor.execute(HOLD)
    run(cursor, promote, 20)
    few = pages(cursor, promote.floors.of(cursor, ["a"]))
    run(cursor, promote, 580)

    assert pages(cursor, promote.floors.of(cursor, ["a"])) <= few + 5
    assert pages(cursor, []) > few + 20


@pytest.mark.slow
@BOTH
@pytest.mark.parametrize("analysed", ["when empty", "when full"])
@pytest.mark.parametrize("left", ["due", "later"])
def test_only_what_is_left_of_a_lane_is_read(cursor, promote, kind, analysed, left):
    """From floors at its end, or while the rest is for later; on any plan."""
    cursor.execute("SET plan_cache_mode = force_generic_plan")
    if analysed == "when empty":
        cursor.execute("ANALYZE pgqueue_job")
    at = {"lane": "a", "run_after": HOUR} if left == "later" else {"lane": "a"}
    cursor.execute(
        "INSERT INTO pgqueue_job (task, lane, lane_capacity, run_after)"
        " SELECT 'x', 'a', %s, clock_timestamp() + %s FROM generate_series(1, 20000)",
        [kind.get("lane_capacity"), at.get("run_after")],
    )
    if analysed == "when full":
        cursor.execute("ANALYZE pgqueue_job")
    cursor.execute("SELECT max(id), max(lane_due_at) FROM pgqueue_job")
    last_id, last_due = cursor.fetchone()
    floors = {
        "due": [lanes.Floor(1, last_id, last_due)],
        "later": [],
    }
    promote()
    pages(cursor, floors[left])

    assert pages(cursor, floors[left]) < 60


# What may be below --------------------------------------------------------------------


def test_what_commits_late_is_first_in_its_group(cursor, other_cursor, promote):
    """Its id was drawn before those that were let through meanwhile."""
    make_jobs(3, **GROUP)
    run(cursor, promote, 3)
    with other_cursor.connection.transaction():
        other_cursor.execute(
            "INSERT INTO pgqueue_job (task, lane) VALUES ('late', 'a') RETURNING id"
        )
        (late,) = other_cursor.fetchone()
        made = make_jobs(4, **GROUP)
        run(cursor, promote, 3)
        (running,) = promote()
    later = make_job(**GROUP)
    Job.objects.filter(pk=running).delete()

    assert made[-1] == running
    assert [late] == promote()
    Job.objects.filter(pk=late).delete()
    assert [later.pk] == promote()


def test_a_failed_job_of_a_limit_is_found_again(cursor, promote):
    """It was parked for its next attempt, and is due for it."""
    first = make_jobs(4, **LIMIT)[0]
    assert [first] == promote()
    set_aside(cursor, leased(cursor, first), seconds=0.0)
    floors = promote.floors.of(cursor, ["a"])
    run(cursor, promote, 3)

    assert promote.floors.of(cursor, ["a"]) != floors
    assert [first] == promote()


def test_a_job_that_a_pause_has_parked_is_found_when_it_ends(cursor, promote):
    """Though it was in no lane before."""
    held = make_job(task=TASK)
    run(cursor, promote, len(make_jobs(3, task=TASK, lane=TASK)), TASK)
    pause = Lane.objects.create(name=TASK, paused_at=CLOCK)
    assert 1 == park(cursor, queues=["default"], held=[TASK])
    assert [] == promote(TASK)
    pause.delete()

    assert [held.pk] == promote(TASK)


@BOTH
def test_what_others_have_let_through_counts(cursor, other_cursor, promote, kind):
    """Though its id is below the floor."""
    first, *_ = make_jobs(4, **kind)
    assert [first] == promote()
    dead_letter(
        cursor, worker="w", ended=[ended(leased(cursor, first), reason="exhausted")]
    )
    run(cursor, promote, 2)
    redrive(cursor, [first])
    assert 1 == lanes.promote(other_cursor, ["a"]).jobs
    (last,) = through()
    assert last == first or kind is LIMIT

    assert [] == promote()


# What becomes of floors ---------------------------------------------------------------


def test_what_somebody_stores_below_a_floor_is_found_once_it_has_lasted(
    cursor, promote, monkeypatch
):
    """Such as a job with an id of his own choice."""
    first = make_jobs(3, **GROUP)[0]
    run(cursor, promote, 3)
    cursor.execute(
        "INSERT INTO pgqueue_job (id, task, lane) VALUES (%s, 'x', 'a')", [first]
    )
    assert [] == promote()

    monkeypatch.setattr(module.time, "monotonic", lambda: 1e9)
    assert [first] == promote()


def test_numbers_from_before_a_failover_say_nothing(cursor, promote):
    """Behind a pooler, the connection may outlive the server."""
    make_jobs(3, **GROUP)
    run(cursor, promote, 1)
    (running,) = promote()
    cursor.execute("SELECT setval('pgqueue_promotion', 1, false)")
    cursor.execute("UPDATE pgqueue_job SET promotion = 0 WHERE id = %s", [running])

    assert [] == promote()
