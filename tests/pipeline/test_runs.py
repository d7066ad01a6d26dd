"""Runs of pipeline jobs: one live at a time, told apart when its process dies."""

from __future__ import annotations

import threading

import pytest

from django_pgqueue.models import PipelineRun
from django_pgqueue.pipeline import runs as pipelines
from django_pgqueue.pipeline.runs import Live, Started
from tests.harness.waiting import wait_until_blocked

pytestmark = pytest.mark.django_db(transaction=True)


def start(cursor, job="metrics", **changes):
    values = {
        "options": {"days": 7},
        "by": "anna",
        "queue_job": None,
        "hostname": "web-1",
        "pid": 42,
        **changes,
    }
    with cursor.connection.transaction():
        return pipelines.start(cursor, job, **values)


def beat(cursor, run):
    reached = {"rows_in": 7, "rows_out": 0, "ui_url": None}
    return pipelines.beat(cursor, run, progress={"phase": "x"}, **reached)


def finish(cursor, run, state="succeeded", *, ui_url=None):
    return pipelines.finish(
        cursor,
        run,
        state=state,
        rows_in=7,
        rows_out=1,
        progress={},
        error=None,
        ui_url=ui_url,
    )


def states():
    return list(PipelineRun.objects.order_by("id").values_list("job", "state"))


def test_a_job_has_one_live_run(cursor):
    """A second one is told whose it is; another job, or a later run, is let in."""
    first = start(cursor)
    assert isinstance(first, Started)

    live = start(cursor, by="bob")
    other = start(cursor, "failures")
    assert finish(cursor, first.id)
    next_one = start(cursor)

    assert Live(first.id, "web-1", 42, None) == live
    assert isinstance(other, Started)
    assert isinstance(next_one, Started)
    assert [
        ("metrics", "succeeded"),
        ("failures", "running"),
        ("metrics", "running"),
    ] == (states())


def test_runs_of_a_job_share_no_place(cursor):
    """Who needs others is let in; who names none needs the whole job."""
    first = start(cursor, places=("a", "b"))

    found = [start(cursor, places=each) for each in (("c", "b"), ("c",), ())]
    assert isinstance(found[1], Started)
    assert [(first.id, "b"), (first.id, None)] == [
        (each.id, each.place) for each in (found[0], found[2])
    ]

    finish(cursor, first.id)
    whole = start(cursor)
    assert (found[1].id, None) == (whole.id, whole.place)
    finish(cursor, found[1].id)
    whole = start(cursor)
    assert isinstance(whole, Started)
    assert Live(whole.id, "web-1", 42, None) == start(cursor, places=("a",))


def test_of_two_that_start_at_once_one_gets_it(cursor, other_cursor, new_cursor):
    """The second waits for the first one's transaction, and then finds its run."""
    found = []
    with cursor.connection.transaction():
        first = start(cursor, places=("b", "c"))
        thread = threading.Thread(
            target=lambda: found.append(start(other_cursor, places=("a", "b")))
        )
        thread.start()
        wait_until_blocked(new_cursor(), other_cursor)
    thread.join(10)

    assert [first.id] == [live.id for live in found]
    assert [("metrics", "running")] == states()


def test_a_run_whose_process_died_is_lost_and_another_may_start(cursor):
    """It can neither beat, nor hold, nor finish any more."""
    dead = start(cursor, lease_seconds=-1)
    assert "lost" == pipelines.state_of(cursor, dead.id)

    second = start(cursor)

    assert isinstance(second, Started)
    assert [("metrics", "lost"), ("metrics", "running")] == states()
    assert beat(cursor, dead.id) is None
    assert not pipelines.hold(cursor, dead.id)
    assert not finish(cursor, dead.id)
    lost = PipelineRun.objects.get(id=dead.id)
    assert lost.lease_until == lost.finished_at
    assert "Its process ended without a word." == lost.error


def test_a_run_that_was_away_goes_on_if_nobody_took_its_place(cursor):
    """Its next beat makes it live again."""
    run = start(cursor, lease_seconds=-1)

    assert beat(cursor, run.id) is False

    assert "running" == pipelines.state_of(cursor, run.id)
    assert isinstance(start(cursor), Live)


def test_a_request_to_stop_is_heard_at_the_next_beat(cursor):
    """And nothing more is committed; the first who asked is named."""
    run = start(cursor)
    assert beat(cursor, run.id) is False
    assert pipelines.hold(cursor, run.id)

    assert (run.id, False) == pipelines.request_stop(cursor, "metrics", by="bob")
    assert (run.id, False) == pipelines.request_stop(cursor, "metrics", by="eve")

    assert beat(cursor, run.id) is True
    assert not pipelines.hold(cursor, run.id)
    assert finish(cursor, run.id, "cancelled")
    assert "bob" == PipelineRun.objects.get(id=run.id).cancel_requested_by
    assert pipelines.request_stop(cursor, "metrics", by="eve") is None


def test_nobody_takes_the_place_of_a_run_that_writes(cursor, other_cursor, new_cursor):
    """A starter waits for the transaction, however late the lease is."""
    run = start(cursor, lease_seconds=-1)
    found = []
    with cursor.connection.transaction():
        assert pipelines.hold(cursor, run.id)
        thread = threading.Thread(target=lambda: found.append(start(other_cursor)))
        thread.start()
        wait_until_blocked(new_cursor(), other_cursor)
        assert beat(cursor, run.id) is False
    thread.join(10)

    assert [run.id] == [live.id for live in found]


def test_the_latest_runs_of_each_job_are_listed(cursor, monkeypatch):
    """Newest first; a dead one as lost. Older ones than are kept go away."""
    monkeypatch.setattr(pipelines, "RUNS_KEPT_MAX", 3)
    for _ in range(5):
        finish(cursor, start(cursor).id)
    start(cursor, lease_seconds=-1)
    start(cursor, "failures")

    found = pipelines.latest(cursor, job=None, limit=2)
    of_one = pipelines.latest(cursor, job="metrics", limit=10)

    assert [("failures", "running"), ("metrics", "lost"), ("metrics", "succeeded")] == [
        (row["job"], row["state"]) for row in found
    ]
    assert ["lost", "succeeded", "succeeded"] == [row["state"] for row in of_one]
    assert {"days": 7} == of_one[0]["options"]
