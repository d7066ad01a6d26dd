"""A bulk act is done by whoever leads, at once, and each row once whoever dies."""

from __future__ import annotations

import os
import signal

import pytest
from django.db import connection

from django_pgqueue.models import ArchivedJob, BulkAct, DeadLetter, Worker
from django_pgqueue.operators import bulk_acts
from django_pgqueue.tasks import operate
from tests.harness.factories import make_dead_letter
from tests.harness.waiting import wait_for
from tests.harness.worker_process import places

pytestmark = pytest.mark.slow


def begin(**columns):
    asked = bulk_acts.asked_of("redrive", {})
    return operate.begin_act(
        "redrive", asked, bulk_acts.count("redrive", asked), by="ann", **columns
    )


def make_letters(count):
    """Store so many dead letters whose task does nothing."""
    first = make_dead_letter(task="tests.app.tasks.noop")
    columns = [
        field.column for field in DeadLetter._meta.fields if field.column != "id"
    ]
    names = ", ".join(columns)
    with connection.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO pgqueue_dead_letter (id, {names}) "
            f"SELECT nextval('pgqueue_job_id_seq'), {names} FROM pgqueue_dead_letter, "
            "generate_series(2, %s) WHERE id = %s",
            [count, first.pk],
        )


def ended(key):
    return BulkAct.objects.filter(pk=key, ended_at__isnull=False).first()


def test_the_leader_begins_when_it_is_asked(start_worker):
    """Long before it looks by itself; and what was redriven runs."""
    worker = start_worker()
    for count in (3, 6):
        # By the second, it has just looked, and looks again in ten seconds.
        make_letters(3)
        key = begin()
        act = wait_for(lambda key=key: ended(key), what="it has ended")
        wait_for(
            lambda count=count: (
                count == ArchivedJob.objects.filter(state="succeeded").count()
            ),
            what="all have run",
        )

    assert ("done", 3) == (act.state, act.done)
    waited = act.started_at - act.created_at
    assert waited.total_seconds() < bulk_acts.LOOK_SECONDS / 2
    assert worker.lines(rf"ended      bulk act={key} redrive by=ann")


def test_a_leader_that_is_killed_loses_and_repeats_nothing(start_worker):
    """Position and counts are those of the chunks that were committed."""
    make_letters(3_000)
    worker = start_worker("--queues", "none", pgqueue={"LEASE_SECONDS": 5})
    key = begin(per_second=200)
    wait_for(
        lambda: BulkAct.objects.get(pk=key).done >= 200, what="it is in the middle"
    )

    os.killpg(worker.pid, signal.SIGKILL)
    act = BulkAct.objects.get(pk=key)
    assert act.done == 3_000 - DeadLetter.objects.count()
    assert "running" == act.state
    BulkAct.objects.update(per_second=None)
    Worker.objects.all().delete()  # As when its term is over.
    start_worker("--queues", "none", pgqueue={"LEASE_SECONDS": 5})

    act = wait_for(lambda: ended(key), what="another one goes on")
    assert ("done", 3_000, 0) == (act.state, act.done, act.passed)
    assert {1} == {len(rows) for rows in places().values()}
    assert 0 == DeadLetter.objects.count()
