"""`manage.py pgqueue schedules`: what it prints, what it does, its exit statuses."""

from __future__ import annotations

from datetime import timedelta

import pytest

from django_pgqueue.models import Job, Schedule, Tick
from tests.harness.factories import (
    make_archived_job,
    make_declared,
    make_schedule,
    make_tick,
)
from tests.management.test_pgqueue import DONE, NOTHING, run, told

pytestmark = pytest.mark.django_db

HOUR = timedelta(hours=1)


def test_schedules_are_listed_by_name():
    """State, next and last tick, state of the last job, and expression."""
    job = make_archived_job()
    row = make_declared(name="b nightly", next_tick=2.005 * HOUR, overridden_at=-HOUR)
    make_tick(row, job_id=job.pk, due_at=-3 * HOUR)
    make_schedule(name="a poll", every_seconds=15, paused_at=-HOUR, paused_by="ada")
    make_schedule(name="c", tz="Mars/Olympus", expression="x", error="bad")

    status, out, _ = run("schedules")

    head, *lines = out.splitlines()
    assert DONE == status
    assert head.split() == ["name", "state", "next", "last", "job", "when"]
    assert [
        ["a poll", "paused", "every 15 s"],
        [
            *("b nightly", "active", "in 2 h", "3 h ago", "succeeded"),
            "0 3 * * * in Europe/Berlin",
        ],
        ["c", "faulty", "x in Mars/Olympus"],
    ] == [[cell.strip() for cell in line.split("  ") if cell.strip()] for line in lines]
    assert (status, out) == run("schedules", "list")[:2]


def test_next_ticks_by_two_clocks():
    """Five, or as many as are asked for."""
    make_schedule(expression="0 0 1 1 *", tz="Asia/Tokyo")

    status, out, _ = run("schedules", "next", "nightly", "--count", "2")
    _, answer = told("schedules", "next", "nightly")

    assert DONE == status
    lines = out.splitlines()
    assert "nightly: 0 0 1 1 * in Asia/Tokyo" == lines[0]
    assert 4 == len(lines)
    assert "01-01 00:00:00 JST" in lines[2]
    assert "12-31 15:00:00" in lines[2]
    assert 5 == len(answer["ticks"])
    first = answer["ticks"][0]
    assert first["due_at"].endswith("-12-31T15:00:00+00:00")
    assert first["by_its_clock"].endswith("-01-01T00:00:00+09:00")
    assert (None, 1) == (first["shift"], first["collapsed"])


def test_last_ticks():
    """The latest first, with the job and what has become of it."""
    row = make_schedule()
    job = make_archived_job(started_at=-timedelta(seconds=42))
    make_tick(row, job_id=job.pk, due_at=-HOUR, ticked_at=-HOUR, missed=7)
    make_tick(row, outcome="overlap")

    status, out, _ = run("schedules", "last", "nightly")
    one = told("schedules", "last", "nightly", "--count", "1")

    assert DONE == status
    lines = out.splitlines()
    assert "overlap" in lines[1]
    assert f"{job.pk}  succeeded  42 s" in lines[2]
    assert lines[2].rstrip().endswith("7")
    assert ["overlap"] == [tick["outcome"] for tick in one[1]["ticks"]]
    make_schedule(name="new")
    assert (NOTHING, "Schedule new has had no tick yet.\n") == run(
        "schedules", "last", "new"
    )[:2]


def test_run_enqueues_a_job():
    """And names it; its tick says who asked."""
    make_schedule(paused_at=-HOUR, queue="reports")

    status, out, _ = run("schedules", "run", "nightly")

    job = Job.objects.get()
    assert (DONE, f"Job {job.pk} was enqueued in queue reports.\n") == (status, out)
    assert Tick.objects.get().asked_by.endswith("(command line)")
    assert told("schedules", "run", "nightly")[1]["job"] > job.pk


def test_pause_and_resume():
    """Status 1 where nothing was changed."""
    make_schedule(next_tick=HOUR)

    assert (
        DONE,
        "Schedule nightly is paused; jobs that were enqueued go on.\n",
    ) == run("schedules", "pause", "nightly", "--reason", "night off")[:2]
    row = Schedule.objects.get()
    assert "night off" == row.pause_reason
    assert row.paused_by.endswith("(command line)")
    status, out, _ = run("schedules", "pause", "nightly")
    assert NOTHING == status
    assert "was paused already by" in out
    assert "night off; that stays." in out
    assert (DONE, {"schedule": "nightly", "resumed": True}) == told(
        "schedules", "resume", "nightly"
    )
    assert Schedule.objects.get().paused_at is None
    assert NOTHING == run("schedules", "resume", "nightly")[0]


def test_an_unknown_name_is_told_with_the_nearest():
    """Status 1; nothing is done."""
    make_schedule()

    status, _, err = run("schedules", "run", "nigthly")

    assert NOTHING == status
    assert "No schedule is called 'nigthly'. Did you mean 'nightly'?" in err
    assert (NOTHING, {"schedule": None}) == told("schedules", "run", "x")
    assert not Job.objects.exists()
