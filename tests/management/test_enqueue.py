"""`manage.py pgqueue enqueue`: one job of a declared task, or the reason for none."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from django_pgqueue import Unique, task
from django_pgqueue.models import Job
from django_pgqueue.tasks import registry
from tests.harness.factories import make_job
from tests.management.test_pgqueue import DONE, NOTHING, USAGE, run, told

ADD = "tests.app.tasks.add"
ONCE = "tests.app.tasks.once"


@pytest.fixture(autouse=True)
def database(transactional_db):
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


def test_the_job_has_what_its_task_says():
    """Its queue, priority and attempts, as by delay()."""
    _, out, _ = run("enqueue", "tests.app.tasks.with_options", "--args", "[7]")

    job = Job.objects.get()
    assert ("mail", 10, 3) == (job.queue, job.priority, job.max_attempts)
    assert out.endswith(", in queue mail.\n")


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


def test_a_queue_that_there_is_not_is_asked_for():
    """With the one that may have been meant; nothing is stored."""
    status, out, err = run("enqueue", ADD, "--args", "[1, 2]", "--queue", "mial")

    assert (1, "") == (status, out)
    assert "No queue is called 'mial'. Did you mean 'mail'?" in err
    assert "--force" in err
    assert not Job.objects.exists()


def test_a_task_that_nobody_declares_is_not_enqueued():
    """It says which one may be meant."""
    status, out, err = run("enqueue", "tests.app.tasks.ad")

    assert (1, "") == (status, out)
    assert "No task is declared as 'tests.app.tasks.ad'. Did you mean" in err
    assert not Job.objects.exists()


@pytest.mark.parametrize(
    "words, problem",
    [
        (["--args", "[1"], "'[1' is no JSON: "),
        (["--args", '{"left": 1}'], "is no JSON array, such as [42]"),
        (["--kwargs", "[1]"], "is no JSON object, such as"),
        (["--kwargs", "null"], "is no JSON object"),
        (["--args", "[" * 200_000], "is no JSON: "),
        (["--args", f"[{'9' * 5_000}]"], "is no JSON: "),
        ([], "arguments do not fit: missing a required argument: 'left'"),
        (["--args", "[1, 2, 3]"], "do not fit: too many positional arguments"),
        (["--args", "[1, 2]", "--kwargs", '{"left": 3}'], "multiple values for"),
        (["--kwargs", '{"left": 1, "rihgt": 2}'], "do not fit: "),
        (["--args", '[1, "\\ud800"]'], "args[1]"),
        (["--args", "[1, NaN]"], "args[1]"),
        (["--args", f'[1, "{"x" * 1_100_000}"]'], "bytes as JSON; the limit is"),
        (["--args", "[]", "--queue", "mail"], "do not fit"),
        (["--priority", "101"], "priority=101: it must be a whole number from -100"),
        (["--priority", "high"], "priority='high': it must be a whole number"),
        (["--priority", "9" * 5_000], "it must be a whole number"),
        (["--run-after", "soon"], "'soon' is no time"),
        (["--run-after", "0001-01-01"], "it must be in the years 1900 to 9000"),
        (["--queue", "a b"], "a queue name has 1 to 63 characters"),
        (["--tag", ""], "a tag is text of 1 to"),
        (["--key", "k"], "key needs unique, debounce or throttle"),
    ],
)
def test_what_does_not_fit_is_refused_before_any_sql(words, problem):
    """With the reason, and status 2."""
    with CaptureQueriesContext(connection) as queries:
        status, out, err = run("enqueue", ADD, *words)

    assert (USAGE, "") == (status, out)
    assert problem in err
    assert [] == queries.captured_queries
    assert not Job.objects.exists()


def test_a_second_call_is_told_which_job_stands_for_it():
    """A task that is unique has one job, whoever enqueues; status 1."""
    first = told("enqueue", ONCE)[1]["id"]

    status, out, _ = run("enqueue", ONCE)
    assert NOTHING == status
    assert f"No job was stored: job {first} of {ONCE} has the same dedup key" in out
    expected = {"id": first, "task": ONCE, "created": False, "conflict": "skipped"}
    assert (NOTHING, expected) == told("enqueue", ONCE)
    assert [first] == list(Job.objects.values_list("id", flat=True))


def test_a_key_takes_the_place_of_arguments():
    """Each has a job of its own."""
    first, second, again = (
        told("enqueue", ONCE, "--key", key)[1]["id"] for key in ("a", "b", "a")
    )

    assert first == again != second
    assert 2 == Job.objects.count()


@pytest.mark.parametrize(
    "options, status, words",
    [
        ({"unique": Unique(by=(), conflict="replace")}, DONE, "has these arguments"),
        ({"unique": Unique(by=(), conflict="reschedule")}, DONE, "has this time now"),
        ({"debounce": "1m", "by": ()}, DONE, "and runs later"),
        ({"throttle": "1/h", "by": ()}, NOTHING, "the last that its period takes"),
    ],
)
def test_what_a_second_call_does_is_told(declare, options, status, words):
    """Status 1 where it has changed nothing."""
    name = declare(**options)
    first = told("enqueue", name, "--args", "[1]")[1]["id"]

    ended, out, _ = run("enqueue", name, "--args", "[2]")
    assert status == ended
    assert f"No job was stored: job {first} of shop.sync " in out
    assert words in out
    assert 1 == Job.objects.count()


def test_a_key_that_may_not_be_taken_twice_names_its_job(declare):
    """Unique(conflict="error"): status 1, and nothing is stored."""
    name = declare(unique=Unique(by=(), conflict="error"))
    first = told("enqueue", name)[1]["id"]

    status, out, err = run("enqueue", name)
    assert (NOTHING, "") == (status, out)
    assert f"job {first} has the same dedup key" in err
    assert 1 == Job.objects.count()


def test_a_full_queue_takes_no_job(settings):
    """As by delay(): status 1, with its limit."""
    settings.PGQUEUE = {"QUEUES": {"default": {"depth_max": 1, "on_full": "refuse"}}}
    make_job()

    status, out, err = run("enqueue", ADD, "--args", "[1, 2]")
    assert (NOTHING, "") == (status, out)
    assert "queue 'default' is full" in err
    assert 1 == Job.objects.count()


def test_a_job_goes_with_the_transaction_around_the_command():
    """A caller that rolls back has enqueued nothing."""
    with transaction.atomic():
        assert DONE == run("enqueue", ADD, "--args", "[1, 2]")[0]
        transaction.set_rollback(True)

    assert not Job.objects.exists()
