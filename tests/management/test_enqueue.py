"""`manage.py pgqueue enqueue`: one job of a declared task, or the reason for none."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from django_pgqueue import task
from django_pgqueue.models import Job
from django_pgqueue.tasks import registry
from tests.harness.factories import make_job
from tests.management.test_pgqueue import DONE, NOTHING, USAGE, run, told

ADD = "tests.app.tasks.add"
ONCE = "tests.app.tasks.once"


@pytest.fixture(autouse=True)
def database(db):
    """The tables."""


@pytest.fixture
def declare(monkeypatch):
    """A factory of tasks, which are forgotten after the test."""
    monkeypatch.setattr(registry, "tasks", dict(registry.tasks))

    def declare(**options):
        @task(name="shop.sync", **options)
        def sync(shop=0, how=""):
            """Do nothing."""

        return sync.name

    return declare


def test_a_job_of_a_task_is_stored():
    """With its arguments; the line says which job it is, and where."""
    status, out, err = run("enqueue", ADD, "--args", "[1]", "--kwargs", '{"right": 2}')

    job = Job.objects.get()
    assert (DONE, f"Job {job.pk} of {ADD}, in queue default.\n", "") == (
        status,
        out,
        err,
    )
    assert (ADD, [1], {"right": 2}) == (job.task, job.args, job.kwargs)


def test_the_command_line_wins_over_the_task():
    """Queue, priority, time and tags; the queue is one that there is, or is forced."""
    make_job(queue="slow")
    begun = datetime.now(UTC)

    status, found = told(
        *("enqueue", ADD, "--args", "[1, 2]", "--queue", "slow", "--priority", "-5"),
        *("--run-after", "2h", "--tag", "vip", "--tag", "eu"),
    )
    job = Job.objects.get(task=ADD)
    expected = {"id": job.pk, "task": ADD, "created": True, "conflict": None}
    assert (DONE, expected) == (status, found)
    assert ("slow", -5, ["vip", "eu"]) == (job.queue, job.priority, job.headers["tags"])
    assert timedelta(hours=1) < job.visible_at - begun < timedelta(hours=3)

    _, found = told(
        *("enqueue", ADD, "--args", "[1, 2]", "--queue", "new", "--force"),
        *("--run-after", "2030-01-31T12:00+01:00"),
    )
    job = Job.objects.get(pk=found["id"])
    assert ("new", datetime(2030, 1, 31, 11, tzinfo=UTC)) == (job.queue, job.visible_at)


REFUSED = (
    (["--args", "[1"], "'[1' is no JSON: "),
    (["--args", '{"left": 1}'], "is no JSON array, such as [42]"),
    (["--kwargs", "null"], "is no JSON object"),
    (["--args", "[" * 200_000], "is no JSON: "),
    (["--args", f"[{'9' * 5_000}]"], "is no JSON: "),
    ([], "arguments do not fit: missing a required argument: 'left'"),
    (["--args", '[1, "\\ud800"]'], "args[1]"),
    (["--args", f'[1, "{"x" * 1_100_000}"]'], "bytes as JSON; the limit is"),
    (["--priority", "101"], "priority=101: it must be a whole number from -100"),
    (["--priority", "high"], "priority='high': it must be a whole number"),
    (["--run-after", "soon"], "'soon' is no time"),
    (["--run-after", "0001-01-01"], "it must be in the years 1900 to 9000"),
    (["--tag", ""], "a tag is text of 1 to"),
    (["--key", "k"], "key needs unique, debounce or throttle"),
)


def test_what_does_not_fit_is_refused_before_any_sql(django_assert_num_queries):
    """With the reason, and status 2."""
    with django_assert_num_queries(0):
        for words, problem in REFUSED:
            status, out, err = run("enqueue", ADD, *words)
            assert (USAGE, "") == (status, out), words
            assert problem in err


def test_a_second_call_is_told_which_job_stands_for_it():
    """A task that is unique has one job, whoever enqueues; status 1."""
    first = told("enqueue", ONCE)[1]["id"]

    status, out, _ = run("enqueue", ONCE)
    assert NOTHING == status
    assert f"No job was stored: job {first} of {ONCE} has the same dedup key" in out
    expected = {"id": first, "task": ONCE, "created": False, "conflict": "skipped"}
    assert (NOTHING, expected) == told("enqueue", ONCE)
    assert [first] == list(Job.objects.values_list("id", flat=True))
