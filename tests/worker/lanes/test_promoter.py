"""Promoter: no lane is forgotten, whatever happens meanwhile."""

from __future__ import annotations

import time
from datetime import timedelta

import psycopg
import pytest

from django_pgqueue.models import Job
from django_pgqueue.postgres.connect import Link
from django_pgqueue.queues import lanes
from django_pgqueue.worker.lanes import promoter as module
from django_pgqueue.worker.lanes.promoter import Promoter
from tests.harness.factories import make_job, make_jobs

SECOND = timedelta(seconds=1)


@pytest.fixture
def promoted():
    """The queues that the promoter has told of."""
    return []


@pytest.fixture
def promoter(transactional_db, promoted, monkeypatch):
    """One whose loop does not run: a test calls tick()."""
    link = Link("default", name="promoter", steady=True, flushes_later=True)
    made = Promoter(link, on_promoted=promoted.append)
    monkeypatch.setattr(made, "start", lambda: None)
    yield made
    link.drop()


def let_through():
    rows = Job.objects.filter(visible_at__isnull=False)
    return [*rows.order_by("pk").values_list("pk", flat=True)]


def test_lanes_that_jobs_have_left_are_promoted(promoter, promoted):
    """And whoever may run what comes next is told of its queue."""
    first = make_job(lane="a", queue="mail")
    promoter.freed(["a", "empty"])
    promoter.tick()

    assert [first.pk] == let_through()
    assert ["mail"] == promoted
    assert promoter.wait_until_idle(0)


def test_a_lane_that_is_left_during_its_promotion_is_promoted_again(
    promoter, monkeypatch
):
    """What was counted by then may have gone since."""
    asked = []

    def promote(cursor, names, floors):
        asked.append(names)
        if len(asked) == 1:
            promoter.freed(["a"])
            assert not promoter.wait_until_idle(0)
        return lanes.Promoted(0, [], [])

    monkeypatch.setattr(module.lanes, "promote", promote)
    promoter.freed(["a"])
    assert 0 == promoter.tick()
    promoter.tick()

    assert [["a"], ["a"]] == asked


def test_a_promotion_that_fails_is_tried_again(promoter, monkeypatch):
    """The lanes are kept until then."""
    first = make_job(lane="a")
    with monkeypatch.context() as patch:
        patch.setattr(lanes, "PROMOTE", "SELECT 1/0 FROM (SELECT %(lanes)s::text[]) x")
        promoter.freed(["a"])
        with pytest.raises(psycopg.errors.DivisionByZero):
            promoter.tick()
    promoter.tick()

    assert [first.pk] == let_through()


def test_a_hint_finds_what_was_stored_a_while_ago(promoter):
    """As many seconds back as it says; what is older is the leader's."""
    job = make_job(lane="a")
    Job.objects.update(lane_due_at=job.enqueued_at - 5 * SECOND)
    promoter.hint()
    promoter.tick()
    assert [] == let_through()

    promoter._free_at = 0.0
    promoter.hint(6)
    promoter.tick()
    assert [job.pk] == let_through()


def test_the_leader_finds_what_is_older(promoter):
    """It goes through all lanes."""
    job = make_job(lane="a")
    Job.objects.update(lane_due_at="2001-01-01T00:00:00Z")
    promoter.set_leading(True)
    promoter.tick()

    assert [job.pk] == let_through()


def test_the_leader_wakes_up_for_the_next_job_by_the_clock(promoter):
    """It rests until then, and five seconds at most."""
    promoter.set_leading(True)
    assert 4 < promoter.tick() <= 5

    make_job(lane="a", run_after=2 * SECOND)
    promoter.hint()
    promoter._free_at = 0.0
    assert 0 < promoter.tick() <= 2


def test_all_lanes_of_a_task_that_goes_on_are_promoted_at_once(promoter, monkeypatch):
    """However many there are; and none of another task, which are for the walk."""
    monkeypatch.setattr(lanes, "LANES_LOOKED_AT_MAX", 10)
    monkeypatch.setattr(lanes.with_room, "__kwdefaults__", {"after": "", "limit": 10})
    promoter.set_leading(True)
    promoter.tick()
    jobs = [make_job(lane=f"shop.call:{number}").pk for number in range(35)]
    make_job(lane="shop.calls:1")
    own = make_job(lane="shop.call").pk
    Job.objects.update(lane_due_at="2001-01-01T00:00:00Z")

    promoter.resumed({"shop.call", "shop.other"})
    ticks = 0
    while promoter.tick() == 0.0:
        ticks += 1

    assert sorted([*jobs, own]) == let_through()
    assert ticks < 7


def test_a_locked_head_is_asked_for_again(promoter, cursor):
    """Soon, and without a word from anybody."""
    first, _ = make_jobs(2, lane="a")
    with cursor.connection.transaction():
        cursor.execute("SELECT FROM pgqueue_job WHERE id = %s FOR UPDATE", [first])
        promoter.freed(["a"])
        assert promoter.tick() <= module.LOCKED_SECONDS
        assert [] == let_through()
    promoter._locked_at = time.monotonic()
    promoter.tick()

    assert [first] == let_through()
