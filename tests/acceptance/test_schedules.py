"""Schedules: real workers issue ticks, also after the one that did has died."""

from __future__ import annotations

import signal
from datetime import UTC, datetime, timedelta

from django.db import connection, transaction

from django_pgqueue.models import ArchivedJob, Schedule, Tick, Worker
from django_pgqueue.schedules import operate
from django_pgqueue.schedules.definition import define
from django_pgqueue.schedules.sync import tell_workers
from tests.harness.waiting import wait_for
from tests.harness.worker_process import group_exists

SECOND = timedelta(seconds=1)

DECLARED = {"TASK_MODULES": ["tasks", "crash_tasks", "schedule_tasks"]}


def make_schedule(name, *, task="tests.app.tasks.noop", every_seconds=1, **more):
    """Make a schedule of a user, as the admin does: with a hint after the commit."""
    with transaction.atomic():
        made = Schedule.objects.create(
            name=name, task=task, every_seconds=every_seconds, **more
        )
        tell_workers(connection)
    return made


def wait_for_ticks(name, count, timeout=20.0):
    """Return the ticks of a schedule in their order, once there are so many."""

    def ticks():
        schedules = Schedule.objects.filter(name=name).values_list("id")
        found = list(Tick.objects.filter(schedule_id__in=schedules).order_by("due_at"))
        return found if len(found) >= count else None

    return wait_for(ticks, timeout, f"{count} ticks of {name!r}")


def leader():
    """Return the worker that leads, or None."""
    now = datetime.now(UTC)
    return Worker.objects.filter(leader_until__gt=now).order_by("leader_until").first()


def test_what_the_code_declares_is_run_each_second(start_worker, the_ledger):
    """Eight processes declare it at once: one row, a tick each second, a job each."""
    worker = start_worker(processes=8, threads=1, pgqueue=DECLARED)
    ticks = wait_for_ticks("each second", 4)
    first = ticks[0].due_at
    assert [tick.due_at - first for tick in ticks[:4]] == [n * SECOND for n in range(4)]
    wait_for(lambda: len(the_ledger.entries("tick")) >= 4, what="their jobs run")
    told = [entry.note for entry in the_ledger.entries("tick")]
    assert sorted(told)[:4] == [str(first + n * SECOND) for n in range(4)]
    assert len(set(told)) == len(told)
    assert sorted(Schedule.objects.values_list("name", flat=True)) == [
        "each night",
        "each second",
    ]
    assert len(worker.lines("declared   schedule=")) == 2
    assert worker.lines("failed ") == []
    assert worker.stop() == 0


def test_a_message_of_a_schedule_runs_its_handler_once_for_each_tick(
    start_worker, the_ledger
):
    """With two workers; the handler knows the tick, and what code declares is a row."""
    declared = {"TASK_MODULES": ["tasks", "cronjob_tasks"]}
    workers = [start_worker(threads=2, pgqueue=declared) for _ in range(2)]
    nightly = Schedule.objects.get(name="cronjobs.nightly")
    assert ("", "code", {"full": True}, "k") == (
        nightly.task,
        nightly.source,
        nightly.message_payload,
        nightly.message_key,
    )
    make_schedule(
        "each second",
        task="",
        message_name="cronjobs.poll",
        message_payload=[1],
        catch_up="all(1000)",
        overlap="queue",
    )
    ticks = wait_for_ticks("each second", 4)
    wait_for(lambda: len(the_ledger.entries("cronjob")) >= 4, what="handlers run")
    told = sorted(entry.note for entry in the_ledger.entries("cronjob"))
    assert [f"cronjobs.poll [1] {tick.due_at}" for tick in ticks[:4]] == told[:4]
    assert len(set(told)) == len(told)
    assert [0, 0] == [worker.stop() for worker in workers]


def test_when_the_leader_is_killed_another_one_stands_in(start_worker):
    """Ticks continue although the dead leader's term, of 25 s, is not over."""
    workers = [start_worker(threads=1) for _ in range(2)]
    make_schedule("each second", catch_up="all(1000)", overlap="queue")
    before = wait_for_ticks("each second", 2)
    led = wait_for(leader, what="somebody leads")
    (killed,) = [each for each in workers if led.name in each.names()]
    killed.signal_group(signal.SIGKILL)
    wait_for(lambda: not group_exists(killed.pid), what="it is gone")
    count = Tick.objects.count()
    ticks = wait_for_ticks("each second", count + 1)
    assert leader().name == led.name  # By its row, it still leads.
    first = before[0].due_at
    assert [tick.due_at - first for tick in ticks] == [
        n * SECOND for n in range(len(ticks))
    ]


def test_workers_heed_at_once_what_people_do(start_worker):
    """A schedule that is made has ticks, a paused one none; a run by hand is run."""
    start_worker(threads=1)
    definition = define(name="mine", task="tests.app.tasks.noop", every_seconds=1)

    operate.add(definition, by="ada")
    wait_for_ticks("mine", 2)
    operate.pause("mine", by="ada", reason="enough")
    before = wait_for_ticks("mine", 2)
    issued = operate.run_now("mine", by="ada")

    wait_for(
        lambda: ArchivedJob.objects.filter(pk=issued.job_id).exists(),
        what="the job that was asked for is run",
    )
    # More than a second after the pause, nothing but that one was added.
    by_hand = Tick.objects.get(job_id=issued.job_id)
    wait_for(lambda: datetime.now(UTC) > by_hand.due_at + 2 * SECOND, what="two ticks")
    assert [*before, by_hand] == wait_for_ticks("mine", 3)
    assert ("ada", "enqueued") == (by_hand.asked_by, by_hand.outcome)
