"""Rates: how many jobs of a lane are let through in a time, and when the next is."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from importlib.resources import files

from django.db.models import F

from django_pgqueue.models import Job, Lane
from django_pgqueue.queues import lanes
from django_pgqueue.queues.claim import claim
from django_pgqueue.queues.lease import release
from django_pgqueue.queues.settle import Ended, retry
from tests.harness.factories import make_jobs
from tests.harness.waiting import wait_until_blocked

LEASE = timedelta(seconds=10)

# Of what a test asks for in seconds: how long it takes itself.
SLACK_SECONDS = 40.0


def paced(count, spacing=60.0, burst=1, **columns):
    """Store jobs of one lane with a rate that is a limit of many besides."""
    said = {"lane": "a", "lane_capacity": 100, **columns}
    return make_jobs(count, lane_spacing=spacing, lane_burst=burst, **said)


def passes(seconds):
    """Let time pass for the lane's bucket."""
    Lane.objects.update(full_at=F("full_at") - timedelta(seconds=seconds))


def claim_all(cursor):
    """Claim what was let through, and tell the lane, as a worker does."""
    claimed = claim(cursor, queues=["default"], worker="w", limit=100, lease=LEASE)
    assert all(job.is_paced for job in claimed)
    lanes.promote(cursor, ["a"])
    return [job.id for job in claimed]


def through(cursor):
    return lanes.promote(cursor, ["a"]).jobs


def test_jobs_of_a_rate_come_one_by_one(cursor):
    """The next one when its time has come, and the promotion says when."""
    first, second, third = paced(3)
    promoted = lanes.promote(cursor, ["a"])
    assert (1, [], []) == (promoted.jobs, promoted.paced, promoted.next_seconds)

    assert [first] == claim_all(cursor)
    again = lanes.promote(cursor, ["a"])
    assert (0, ["a"]) == (again.jobs, again.paced)
    assert 60 - SLACK_SECONDS < again.next_seconds[0] <= 60
    passes(60 - SLACK_SECONDS)
    assert 0 == through(cursor)
    passes(SLACK_SECONDS)
    assert 1 == through(cursor)
    assert [second] == claim_all(cursor)
    assert [third] == [
        *Job.objects.filter(visible_at=None).values_list("pk", flat=True)
    ]


def test_a_burst_starts_at_once_and_then_one_by_one(cursor):
    """After a pause of any length, no more than the burst."""
    ids = paced(10, burst=3)
    assert 3 == through(cursor)
    assert ids[:3] == claim_all(cursor)
    assert 0 == through(cursor)

    passes(60.1)
    assert 1 == through(cursor)
    claim_all(cursor)
    passes(100_000)
    assert 3 == through(cursor)


def test_a_new_rate_counts_from_now(cursor):
    """Also after a slower one, or a clock that was put back."""
    paced(1, spacing=600.0)
    through(cursor)
    claim_all(cursor)
    paced(2, spacing=1.0)

    (seconds,) = lanes.promote(cursor, ["a"]).next_seconds
    passes(1.1)

    assert (1, True) == (through(cursor), seconds < 1.1)


def test_what_was_not_claimed_counts_as_if_just_let_through(cursor):
    """All of it may start together, however long it has waited for a worker."""
    paced(10, burst=3)
    assert 3 == through(cursor)
    passes(100_000)
    waiting = lanes.promote(cursor, ["a"])
    # A claim is to come before the next one: there is no time to wait for.
    assert (0, []) == (waiting.jobs, waiting.paced)

    claim_all(cursor)
    assert 0 == through(cursor)
    passes(60.1)
    assert 1 == through(cursor)


def test_a_claim_while_a_promotion_looks_counts_from_when_it_was(
    cursor, other_cursor, new_cursor
):
    """Not from when the promotion began, by so much the next job would be early."""
    gate = new_cursor()
    path = files("django_pgqueue") / "sql" / "promote.sql"
    looks = "moment := coalesce(in_moment, clock_timestamp());\n"
    slow = path.read_text("utf-8").replace("pgqueue_promote(", "pg_temp.slow(")
    assert 1 == slow.count(looks)
    other_cursor.execute(
        slow.replace(looks, f"{looks}PERFORM pg_advisory_xact_lock(9, 9);")
    )
    paced(2)
    assert 1 == through(cursor)
    passes(100_000)

    with ThreadPoolExecutor() as pool:
        with gate.connection.transaction():
            gate.execute("SELECT pg_advisory_xact_lock(9, 9)")
            asked = pool.submit(
                other_cursor.execute, "SELECT jobs FROM pg_temp.slow(ARRAY['a'])"
            )
            wait_until_blocked(gate, other_cursor)
            claim(cursor, queues=["default"], worker="w", limit=100, lease=LEASE)
        assert (0,) == asked.result().fetchone()

    (claimed_at,) = Job.objects.filter(lane="a", visible_at__isnull=False).values_list(
        "leased_at", flat=True
    )
    assert Lane.objects.get().full_at >= claimed_at + timedelta(seconds=60)


def test_a_claim_that_nobody_was_told_of_costs_one_turn(cursor):
    """As when its process died; never one job too many."""
    paced(2)
    assert 1 == through(cursor)
    claim(cursor, queues=["default"], worker="w", limit=100, lease=LEASE)
    passes(100_000)

    assert 0 == through(cursor)
    passes(60.1)
    assert 1 == through(cursor)


def test_a_lane_whose_bucket_is_full_is_forgotten(cursor):
    """Ten minutes later: it is as good as new."""
    paced(1)
    assert 1 == through(cursor)
    claim_all(cursor)
    passes(60.0)
    assert (0, "") == lanes.forget(cursor)
    passes(lanes.REST.total_seconds())
    assert (1, "") == lanes.forget(cursor)


def test_a_rate_holds_beside_a_limit(cursor):
    """A job goes when both let it."""
    ids = paced(5, burst=3, lane_capacity=2)
    found = []
    for job_id in ids[:3]:
        found.append(through(cursor))
        claim_all(cursor)
        Job.objects.filter(pk=job_id).delete()

    assert [2, 1, 0] == found


def test_a_rate_holds_beside_an_order(cursor):
    """A retry has its turn again, and nobody overtakes it meanwhile."""
    first, second = paced(2, lane_capacity=None)
    assert 1 == through(cursor)
    claim_all(cursor)
    passes(100_000)
    assert 0 == through(cursor)
    again = Ended(id=first, delivery=1, delay_seconds=60)
    retry(cursor, worker="w", ended=[again])
    assert Job.objects.get(pk=first).visible_at is None
    assert 0 == through(cursor)

    Job.objects.filter(pk=first).update(lane_due_at=F("enqueued_at"))
    assert 1 == through(cursor)
    assert [first] == claim_all(cursor)
    Job.objects.filter(pk=first).delete()
    assert 0 == through(cursor)
    passes(60.1)
    assert 1 == through(cursor)
    assert [second] == claim_all(cursor)


def test_what_goes_back_has_its_turn_again(cursor):
    """Handed back, or lapsed: another start counts as another one."""
    ids = paced(2, burst=2)
    assert 2 == through(cursor)
    claimed = claim(cursor, queues=["default"], worker="w", limit=100, lease=LEASE)
    lanes.promote(cursor, ["a"])

    first, second = claimed
    release(cursor, worker="w", leases=[(first.id, 1, first.due_at)])
    Job.objects.filter(pk=second.id).update(visible_at=second.due_at)
    assert [] == claim(cursor, queues=["default"], worker="v", limit=9, lease=LEASE)

    back, lapsed = Job.objects.order_by("pk")
    assert [back.pk, lapsed.pk] == ids
    assert (None, None) == (back.visible_at, back.leased_by)
    assert (None, None, 1) == (lapsed.visible_at, lapsed.leased_by, lapsed.crashes)
    assert "lease_expired" == lapsed.errors[-1]["kind"]
    assert 0 == lapsed.attempt
    assert 0 == through(cursor)
    passes(120.1)
    assert 2 == through(cursor)
