"""django.tasks on this queue: its promises, kept by the same rows and workers."""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta

import django
import pytest
from asgiref.sync import async_to_sync
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from django_pgqueue import JobResult, Unique
from django_pgqueue.backends import tasks as backend_module
from django_pgqueue.backends.declared import JobTask, PgQueueTask
from django_pgqueue.backends.django_api import (
    InvalidTask,
    TaskResultDoesNotExist,
    TaskResultStatus,
    task_backends,
    task_enqueued,
    task_finished,
    task_started,
)
from django_pgqueue.backends.results import STATUSES
from django_pgqueue.backends.tasks import PgQueueBackend
from django_pgqueue.exceptions import InvalidArgument, PayloadTooLarge
from django_pgqueue.models import ArchivedJob, DeadLetter, Job
from django_pgqueue.tasks import depth
from django_pgqueue.tasks.registry import find_task
from django_pgqueue.testing import drain
from tests.app import tasks as own_tasks
from tests.app.standard_tasks import (
    add_later,
    elsewhere,
    multiply,
    note,
    raises,
    tell_attempt,
)
from tests.harness.factories import make_job

BACKEND = "django_pgqueue.backends.tasks.PgQueueBackend"

if django.VERSION >= (6, 0):
    from django.tasks.exceptions import TaskResultMismatch

    LOGGER = "django.tasks"
else:
    from django_tasks.exceptions import TaskResultMismatch

    LOGGER = "django_tasks"


@pytest.fixture(autouse=True)
def _forget():
    """Nothing is known of how full queues are."""
    depth.gauges.clear()
    yield
    depth.gauges.clear()


@pytest.fixture
def heard():
    """(signal, status) of each signal of django.tasks, with its result."""
    events = []

    def hear(name):
        def receiver(sender, task_result, **kwargs):
            events.append((name, sender, task_result.status, task_result))

        return receiver

    receivers = {}
    for name, signal in (
        ("enqueued", task_enqueued),
        ("started", task_started),
        ("finished", task_finished),
    ):
        receivers[signal] = hear(name)
        signal.connect(receivers[signal])
    yield events
    for signal, receiver in receivers.items():
        signal.disconnect(receiver)


def plain(x):
    """A function at module level, to be declared by tests."""


def fails(why):
    """Another one."""
    raise ValueError(why)


async def plain_async(x):
    """A coroutine function at module level."""


def takes_other(job, x):
    """Its first parameter is not called context."""


def test_a_declared_task_is_one_of_ours_too():
    """A worker finds it under module.qualname, beside the tasks declared our way."""
    found = find_task("tests.app.standard_tasks.multiply")
    assert isinstance(found, JobTask)
    assert multiply.func is found.function
    assert isinstance(multiply, PgQueueTask)


@pytest.mark.django_db
def test_enqueue_stores_what_the_task_says():
    """Queue, priority, arguments and run_after end in the row; the id is the row's."""
    later = timezone.now() + timedelta(hours=2)
    result = note.using(run_after=later).enqueue("tea")
    job = Job.objects.get()
    assert str(job.id) == result.id
    assert ("standard", 7, ["tea"], {}, later) == (
        job.queue,
        job.priority,
        job.args,
        job.kwargs,
        job.run_after,
    )
    assert TaskResultStatus.READY == result.status
    assert ("default", [], []) == (result.backend, result.errors, result.worker_ids)
    assert {} == job.headers


@pytest.mark.django_db
def test_what_a_skipped_call_returns_is_what_stands_for_it():
    """The other job's arguments and time, not those of the call."""
    task = backend_module.task(plain, unique=Unique(by=()))
    first, second = task.enqueue(1), task.enqueue(2)

    assert first == second == task.get_result(first.id)
    assert [1] == second.args


def logged(caplog, how):
    """Run a task that succeeds and one that fails; return what was logged of them."""
    failing = backend_module.task(fails, retries=0)
    with caplog.at_level(logging.DEBUG, logger=LOGGER):
        results = [multiply.enqueue(1, 2), failing.enqueue("no luck")]
        if how == "drain":
            drain()
    return results, [record for record in caplog.records if record.name == LOGGER]


@pytest.mark.django_db
def test_enqueue_is_part_of_the_callers_transaction():
    """What rolls back was never enqueued."""
    with transaction.atomic():
        multiply.enqueue(1, 2)
        transaction.set_rollback(True)
    assert 0 == Job.objects.count()


@pytest.mark.django_db
def test_aenqueue_stores_a_job_too():
    """Async code enqueues with await, and reads the result with await."""

    async def enqueue():
        result = await multiply.aenqueue(3, right=4)
        again = await multiply.aget_result(result.id)
        await result.arefresh()
        return result, again

    result, again = async_to_sync(enqueue)()
    assert result.id == again.id
    assert ([3], {"right": 4}) == (again.args, again.kwargs)


@pytest.mark.django_db
def test_a_succeeded_job_has_a_return_value():
    """After its run the result says so: value, times in order, one attempt."""
    result = multiply.enqueue(6, 7)
    with pytest.raises(ValueError, match="not finished"):
        _ = result.return_value
    assert drain() == 1
    result.refresh()
    assert (TaskResultStatus.SUCCESSFUL, 42) == (result.status, result.return_value)
    assert result.is_finished
    assert result.enqueued_at <= result.started_at <= result.finished_at
    assert result.last_attempted_at == result.started_at
    assert 1 == result.attempts
    assert [] == result.errors


@pytest.mark.django_db
def test_a_dead_job_has_failed_with_every_error():
    """One error and one worker for each attempt; no return value."""
    result = raises.enqueue("always")
    Job.objects.update(max_attempts=2)
    for _ in range(2):
        drain()
        Job.objects.update(visible_at=timezone.now() - timedelta(seconds=1))
    result.refresh()
    assert (TaskResultStatus.FAILED, 2) == (result.status, result.attempts)
    assert 2 == len(result.errors)
    assert result.finished_at is not None
    with pytest.raises(ValueError, match="failed"):
        _ = result.return_value


@pytest.mark.django_db
def test_an_async_task_runs():
    """A coroutine function is declared, enqueued and run as any other."""
    result = add_later.enqueue(20, 22)
    drain()
    result.refresh()
    assert 42 == result.return_value


@pytest.mark.django_db
def test_the_context_is_djangos_and_ours():
    """context.attempt and context.task_result are Django's; context.job is ours."""
    result = tell_attempt.enqueue("x")
    drain()
    result.refresh()
    attempt, told_id, key, name = result.return_value
    assert (1, result.id, "x") == (attempt, told_id, name)
    assert key.endswith(f"-{result.id}")


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    "status,columns",
    [
        ("scheduled", {"visible_at": datetime(2999, 1, 1, tzinfo=UTC)}),
        ("ready", {}),
        (
            "retrying",
            {
                "visible_at": datetime(2999, 1, 1, tzinfo=UTC),
                "attempt": 1,
                "deliveries": 1,
            },
        ),
        ("parked", {"visible_at": None}),
        (
            "running",
            {
                "visible_at": datetime(2999, 1, 1, tzinfo=UTC),
                "attempt": 1,
                "deliveries": 1,
                "leased_by": "host-1.0-abc",
                "leased_at": datetime(2020, 1, 1, tzinfo=UTC),
            },
        ),
    ],
)
def test_live_states_are_ready_or_running(status, columns):
    """What waits for whatever reason is READY; what is leased is RUNNING."""
    job_id = make_job(task="tests.app.standard_tasks.multiply", **columns).pk
    result = task_backends["default"].get_result(str(job_id))
    assert STATUSES[status] == result.status
    assert status == result.job.status
    if status == "running":
        assert ["host-1.0-abc"] == result.worker_ids
        assert datetime(2020, 1, 1, tzinfo=UTC) == result.started_at


@pytest.mark.django_db
@pytest.mark.parametrize("result_id", ["", "12345", "abc", str(2**63), "٣"])
def test_an_unknown_id_does_not_exist(result_id):
    """Whatever is asked for, the answer is Django's own exception."""
    with pytest.raises(TaskResultDoesNotExist, match="not in the queue"):
        task_backends["default"].get_result(result_id)


@pytest.mark.django_db
def test_a_result_belongs_to_its_task():
    """Another task's id is a mismatch; a job of our own decorator is none of these."""
    with pytest.raises(TaskResultMismatch, match="multiply"):
        raises.get_result(multiply.enqueue(1, 2).id)
    own = own_tasks.add.delay(1, 2)
    with pytest.raises(TaskResultDoesNotExist, match=r"no task of django\.tasks"):
        task_backends["default"].get_result(str(own.id))


@pytest.mark.parametrize(
    "change,problem",
    [
        ({"priority": 101}, "priority"),
        ({"priority": 1.5}, "priority"),
        ({"run_after": datetime(2030, 1, 1)}, "aware"),  # noqa: DTZ001
        ({"queue_name": "a b"}, "1 to 63 characters"),
    ],
)
def test_what_cannot_be_enqueued_is_no_valid_task(change, problem):
    """The mistake is found when using() is called."""
    with pytest.raises(InvalidTask, match=problem):
        multiply.using(**change)


def test_what_cannot_be_declared_is_no_valid_task():
    """A nested function, a context by another name, a queue that is not served."""

    def nested():
        pass

    with pytest.raises(InvalidTask, match="module level"):
        backend_module.task(nested)
    with pytest.raises(InvalidTask, match="context"):
        backend_module.task(takes_other, takes_context=True)
    with pytest.raises(InvalidTask, match="not valid for backend"):
        backend_module.task(plain, backend="mail", queue_name="other")
    with pytest.raises(InvalidTask, match="settle"):
        backend_module.task(plain, atomic=True, settle="batched")
    with pytest.raises(InvalidTask, match="retries"):
        backend_module.task(plain, retries=-1)


@pytest.mark.django_db
@pytest.mark.parametrize(
    "args,kwargs,error,problem",
    [
        ((datetime(2030, 1, 1, tzinfo=UTC), 2), {}, TypeError, "datetime"),
        ((object(), 2), {}, TypeError, "object"),
        ((1,), {}, InvalidArgument, "missing"),
        ((1, 2), {"extra": 1}, InvalidArgument, "extra"),
        (("a\x00b", 2), {}, InvalidArgument, r"args\[0\]"),
        ((float("nan"), 2), {}, InvalidArgument, r"args\[0\]"),
        (("x" * 2_000_000, 2), {}, PayloadTooLarge, "1,048,576"),
    ],
)
def test_bad_arguments_are_refused_before_sql(args, kwargs, error, problem):
    """Nothing is sent, and the caller's transaction stays usable."""
    with (
        CaptureQueriesContext(connection) as queries,
        pytest.raises(error, match=problem),
    ):
        multiply.enqueue(*args, **kwargs)
    assert 0 == len(queries)


@pytest.mark.django_db
def test_options_of_the_decorator_win_over_those_of_the_backend():
    """OPTIONS are defaults; what a task says holds for it."""
    by_backend = backend_module.task(plain, backend="mail", queue_name="mail")
    by_backend.enqueue(1)
    assert 3 == Job.objects.get().max_attempts
    assert ["letters"] == Job.objects.get().headers["tags"]
    Job.objects.all().delete()
    own = backend_module.task(plain, backend="mail", queue_name="mail", retries=6)
    own.enqueue(1)
    job = Job.objects.get()
    assert 7 == job.max_attempts
    assert "mail" == own.get_result(str(job.id)).backend


@pytest.mark.django_db
@pytest.mark.skipif(django.VERSION < (6, 1), reason="6.1 passes options to backends")
def test_djangos_own_decorator_takes_our_options():
    """From Django 6.1 on no other decorator is needed."""
    from django.tasks import task

    assert 4 == task(retries=4)(plain_async).retries


@pytest.mark.django_db
def test_signals_tell_of_each_step(heard):
    """Enqueued, started, finished; the sender is the backend's class."""
    result = multiply.enqueue(6, 7)
    drain()
    assert [
        ("enqueued", PgQueueBackend, TaskResultStatus.READY),
        ("started", PgQueueBackend, TaskResultStatus.RUNNING),
        ("finished", PgQueueBackend, TaskResultStatus.SUCCESSFUL),
    ] == [event[:3] for event in heard]
    assert {result.id} == {event[3].id for event in heard}
    assert 42 == heard[2][3].return_value


@pytest.mark.django_db
def test_a_retry_is_not_the_end(heard):
    """Finished is told once, when the job is dead, with the last error."""
    raises.enqueue("twice")
    Job.objects.update(max_attempts=2)
    drain()
    assert ["enqueued", "started"] == [event[0] for event in heard]
    Job.objects.update(visible_at=timezone.now() - timedelta(seconds=1))
    drain()
    name, _, status, result = heard[-1]
    assert ("finished", TaskResultStatus.FAILED) == (name, status)
    assert "Unlucky: twice" in result.errors[0].traceback
    assert 2 == result.attempts


@pytest.mark.django_db(transaction=True)
def test_one_worker_runs_tasks_declared_either_way(start_worker):
    """The same queues, the same process; also a task declared for another backend."""
    results = [
        multiply.enqueue(6, 7),
        add_later.enqueue(1, 2),
        elsewhere.using(backend="default").enqueue("moved"),
        tell_attempt.enqueue("x"),
    ]
    own = own_tasks.add.delay(1, 2)
    assert 0 == start_worker("--drain").wait()
    for result in results:
        result.refresh()
    assert {TaskResultStatus.SUCCESSFUL} == {result.status for result in results}
    assert [42, 3, None] == [result.return_value for result in results[:3]]
    assert results[3].id == results[3].return_value[1]
    assert 3 == JobResult(own.id).result
    worker = ArchivedJob.objects.get(pk=results[0].id).worker
    assert [worker] == results[0].worker_ids
    assert 0 == DeadLetter.objects.count()
