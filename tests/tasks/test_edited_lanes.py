"""An edit that changes the key of a lane: where the job waits from then on."""

from __future__ import annotations

import pytest

from django_pgqueue import Limit, task
from django_pgqueue.models import Job
from django_pgqueue.queues.lanes import promote
from django_pgqueue.tasks import operate
from tests.app import lane_tasks as tasks

STEP = "tests.app.lane_tasks.step"

pytestmark = pytest.mark.django_db(transaction=True)


def keyed(customer):
    if customer == "bad":
        raise LookupError("no such customer")
    return customer


@task(name="tests.by_function", limit=Limit(5, key=keyed))
def by_function(customer): ...


def test_an_edited_job_moves_to_the_lane_of_its_new_arguments(heard):
    """By its id it is before those that came later; workers look at both lanes."""
    job = tasks.step.delay("a", 1)
    later = tasks.step.delay("b", 2)
    heard()

    operate.edit(job.id, args=["b", 1])

    row = Job.objects.get(pk=job.id)
    assert (f"{STEP}:b", None) == (row.lane, row.visible_at)
    assert {f"!lane:{STEP}:a", f"!lane:{STEP}:b"} == set(heard())
    assert [job.id, later.id] == [
        *Job.objects.filter(lane=row.lane).order_by("pk").values_list("pk", flat=True)
    ]


def test_a_job_that_was_let_through_gives_its_place_back(cursor):
    """The next one of its old lane goes, and it waits behind who is in the new one."""
    job, next_job = tasks.step.delay("a", 1), tasks.step.delay("a", 2)
    other = tasks.step.delay("b", 3)
    promote(cursor, [f"{STEP}:a", f"{STEP}:b"])

    operate.edit(job.id, args=["b", 1])

    promote(cursor, [f"{STEP}:a", f"{STEP}:b"])
    visible = Job.objects.filter(visible_at__isnull=False).values_list("pk", flat=True)
    assert {next_job.id, other.id} == set(visible)
