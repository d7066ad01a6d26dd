"""`manage.py pgqueue schedules`: what it prints, what it does, its exit statuses."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from django_pgqueue.models import Job, Message, Schedule, Subscription, Tick
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


def test_the_list_as_json():
    """Times with their zone; no argument of a job, no secret."""
    row = make_declared(
        {"tz": "UTC"}, kwargs={"token": "s3cret"}, overridden_at=-HOUR, next_tick=HOUR
    )
    make_tick(row, outcome="overlap", missed=3)

    status, answer = told("schedules")

    (schedule,) = answer["schedules"]
    assert DONE == status
    assert ("nightly", "code", "active", ["tz"]) == (
        schedule["name"],
        schedule["source"],
        schedule["state"],
        schedule["changed_here"],
    )
    assert 5 == len(schedule["next_ticks"])
    assert schedule["next_ticks"] == sorted(schedule["next_ticks"])
    assert row.next_tick == datetime.fromisoformat(schedule["next_tick"])
    assert ("overlap", None, 3) == tuple(
        schedule["last"][name] for name in ("outcome", "job_id", "missed")
    )
    assert "s3cret" not in str(answer)


def test_without_schedules_it_says_so():
    """Status 0."""
    assert (DONE, "There is no schedule.\n") == run("schedules")[:2]
    assert (DONE, {"schedules": []}) == told("schedules")


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


def test_next_of_one_that_cannot_be_read():
    """Status 1, and why."""
    make_schedule(tz="Mars/Olympus")

    status, _, err = run("schedules", "next", "nightly")

    assert NOTHING == status
    assert "Mars/Olympus" in err


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

    assert (DONE, "Schedule nightly is paused: it has no ticks.\n") == run(
        "schedules", "pause", "nightly", "--reason", "night off"
    )[:2]
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


def test_names_cannot_play_with_the_terminal():
    """Whoever may add schedules chooses them."""
    make_schedule(name="\x1b[31mred", paused_at=-HOUR, paused_by="\x1b", error="\x1b")

    for arguments in (
        ["schedules"],
        ["schedules", "next", "\x1b[31mred"],
        ["schedules", "last", "\x1b[31mred"],
        ["schedules", "pause", "\x1b[31mred"],
        ["schedules", "pause", "\x1bred"],
        ["schedules", "resume", "\x1b[31mred"],
    ):
        assert "\x1b" not in "".join(run(*arguments)[1:])


def test_options_stand_behind_the_action_too():
    """--json, and Django's own."""
    make_schedule()

    out = run("schedules", "next", "nightly", "--json", "--no-color", "-v", "0")[1]
    assert out.startswith("{")
    assert run("schedules", "--json", "next", "nightly")[1].startswith("{")


# Schedules that publish --------------------------------------------------------------


def make_publishing(**columns):
    return make_schedule(
        task="",
        message_name="cronjobs.nightly",
        message_payload={"token": "s3cret"},
        message_key="k7",
        overlap="queue",
        **columns,
    )


def test_what_a_schedule_publishes_is_listed_and_not_what_is_in_it():
    """Its name stands after when it does; in the JSON, without payload and key."""
    row = make_publishing()
    make_tick(row, outcome="published", message_id=77)

    when = "0 3 * * * in Europe/Berlin, publishes cronjobs.nightly"
    line = run("schedules")[1].splitlines()[1]
    assert line.endswith(f"published  {when}")
    _, answer = told("schedules")
    (schedule,) = answer["schedules"]
    assert ("cronjobs.nightly", 77) == (
        schedule["message_name"],
        schedule["last"]["message_id"],
    )
    assert "s3cret" not in str(answer)
    assert "k7" not in str(answer)
    assert " 77 " in run("schedules", "last", "nightly")[1]


def test_a_message_is_published_by_hand():
    """It says which, and how many jobs came of it."""
    make_publishing()
    Subscription.objects.create(pattern="cronjobs", topic="cronjobs", task="t")

    status, out, _ = run("schedules", "run", "nightly")

    message = Message.objects.get()
    assert (
        f"Message {message.pk}, cronjobs.nightly, was published; its subscriptions "
        f"made 1 job.\n"
    ) == out
    assert DONE == status
    status, answer = told("schedules", "run", "nightly")
    assert (DONE, None) == (status, answer["job"])
    assert Message.objects.latest("id").pk == answer["message"]
