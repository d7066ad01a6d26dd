"""`manage.py pgqueue workers`: who is alive, and which jobs each of them holds."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest

from django_pgqueue.models import Worker
from tests.harness.factories import make_job, make_leased_job, register
from tests.harness.minutes import in_minutes
from tests.management.test_pgqueue import DONE, NOTHING, run, told

LONG_AGO = -timedelta(minutes=4, seconds=1)


@pytest.fixture(autouse=True)
def database(db):
    """The tables."""


def start(name, *, age=timedelta(0), silent=timedelta(0), leads=False, **columns):
    """Write the row of a worker that began, and was heard of, so long ago."""
    register(name, **columns)
    row = Worker.objects.get(name=name)
    if leads:
        row.leader_until = row.heartbeat_at + timedelta(minutes=1)
    row.started_at -= age
    row.heartbeat_at -= silent
    row.save()


def test_workers_have_a_line_each_the_longest_held_job_first():
    """With what the admin says of them; those without a job by their age."""
    start("late", age=timedelta(hours=1), queues=["mail", "slow"], hostname="web-7")
    start("first", age=timedelta(days=1), leads=True)
    start("gone", age=timedelta(hours=2), silent=timedelta(seconds=70))
    Worker.objects.filter(name="late").update(async_slots=100)
    start("short", age=timedelta(days=2))
    make_leased_job("late", leased_at=-timedelta(seconds=5))
    make_leased_job("short", leased_at=-timedelta(seconds=30))
    job = make_leased_job("late", task="shop.sync", leased_at=LONG_AGO)
    make_job()

    status, out, err = run("workers")
    assert (DONE, "") == (status, err)
    heads, late, short, first, gone = in_minutes(out).splitlines()
    assert short.startswith("short ")
    assert heads.startswith("worker ")
    assert heads.endswith(" task")
    assert re.fullmatch(
        r"first +alive, leads +host +4711 +all +8 +(now|\d+ s ago) +0", first
    )
    assert re.fullmatch(r"gone +silent +host .* 1 min ago +0", gone)
    assert re.fullmatch(
        r"late +alive +web-7 +4711 +mail, slow +8 \+ 100 async +(now|\d+ s ago) +"
        rf"2 +4 min +{job.pk} +shop\.sync",
        late,
    )


def test_one_worker_tells_its_facts_and_jobs():
    """The job that it has held longest comes first; those of others are not there."""
    start("w-1", hostname="web-7", queues=["mail"])
    late = make_leased_job("w-1", leased_at=-timedelta(seconds=90))
    first = make_leased_job("w-1", task="shop.sync", leased_at=LONG_AGO)
    make_leased_job("w-2")

    status, out, err = run("workers", "w-1")
    assert (DONE, "") == (status, err)
    head, *facts, _, _heads, one, two = in_minutes(out).splitlines()
    assert "Worker w-1 is alive" == head
    assert {("host", "web-7"), ("pid", "4711"), ("queues", "mail"), ("slots", "8")} <= {
        tuple(fact.split()) for fact in facts
    }
    assert re.fullmatch(rf" *{first.pk}  default  shop\.sync +4 min", one)
    assert re.fullmatch(rf" *{late.pk}  default  tests\.noop +1 min", two)

    status, found = told("workers", "w-1")
    assert DONE == status
    held = [job["id"] for job in found["worker"]["held"]]
    assert [first.pk, late.pk] == held


def test_a_worker_that_is_not_there_has_status_1():
    """With the nearest name; that no worker runs at all is no error of the command."""
    assert (DONE, "There is no worker.\n", "") == run("workers")
    start("web-1-4711.0-c07faf")

    status, out, err = run("workers", "web-1-4711.0-c07fab")
    assert (NOTHING, "") == (status, out)
    assert "No worker is called 'web-1-4711.0-c07fab'. Did you mean" in err
    assert (NOTHING, {"worker": None}) == told("workers", "web-2")
