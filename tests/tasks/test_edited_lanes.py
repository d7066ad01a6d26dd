"""An edit that changes the key of a lane: where the job waits from then on."""

from __future__ import annotations

import pytest

from django_pgqueue import Limit, task
from django_pgqueue.exceptions import InvalidArgument
from django_pgqueue.models import DeadLetter, Job
from django_pgqueue.queues.lanes import promote
from django_pgqueue.tasks import operate
from tests.app import lane_tasks as tasks
from tests.harness.factories import make_dead_letter, make_job

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


@pytest.mark.parametrize(
    "make",
    [
        lambda: make_job(task=STEP, args=["a", 1], lane="by hand"),
        lambda: make_job(task=STEP, args=["a", 1]),
        lambda: make_job(task=STEP, args=[["no key"], 1], lane=f"{STEP}:a"),
        lambda: make_job(task="tests.unknown", args=["a", 1], lane="tests.unknown:a"),
        lambda: make_dead_letter(task=STEP, args=["a", 1], lane="by hand"),
    ],
    ids=["by hand", "none by hand", "no key before", "unknown", "letter by hand"],
)
def test_a_job_whose_arguments_did_not_say_its_lane_stays_in_it(make):
    """Somebody has put it there, or nobody here knows who."""
    row = make()

    operate.edit(row.pk, args=["b", 1])

    edited = type(row).objects.get(pk=row.pk)
    assert (row.lane, row.visible_at if isinstance(row, Job) else None) == (
        edited.lane,
        edited.visible_at if isinstance(row, Job) else None,
    )
    assert ["b", 1] == edited.args


def test_a_dead_letter_is_redriven_into_the_lane_of_its_new_arguments():
    """Its old one is left behind."""
    dead = make_dead_letter(task=STEP, args=["a", 1], lane=f"{STEP}:a")

    operate.edit(dead.pk, args=["b", 1])
    assert f"{STEP}:b" == DeadLetter.objects.get(pk=dead.pk).lane

    operate.redrive([dead.pk])
    assert f"{STEP}:b" == Job.objects.get(pk=dead.pk).lane


@pytest.mark.parametrize(
    "name, old, new, problem",
    [
        (STEP, ["a", 1], [1.5, 1], "customer is 1.5, a float; group= needs text"),
        ("tests.by_function", ["a"], ["bad"], "limit= fails with LookupError"),
        ("tests.by_function", ["a"], [["x"]], "a list; limit= needs text"),
    ],
)
def test_arguments_that_say_no_lane_are_refused(name, old, new, problem):
    """With the reason, and nothing is changed."""
    row = make_job(task=name, args=old, lane=f"{name}:a")

    with pytest.raises(InvalidArgument, match=problem):
        operate.edit(row.pk, args=new)

    edited = Job.objects.get(pk=row.pk)
    assert (old, f"{name}:a", []) == (edited.args, edited.lane, edited.errors)
