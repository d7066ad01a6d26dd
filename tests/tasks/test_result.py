"""Result: what became of a job."""

from __future__ import annotations

import threading
from datetime import timedelta

import pytest
from asgiref.sync import async_to_sync
from django.db import connection, connections, transaction
from django.test.utils import CaptureQueriesContext

from django_pgqueue import (
    InvalidArgument,
    JobFailed,
    JobNotFound,
    ResultTimeout,
    UndecodablePayload,
    WrongState,
)
from django_pgqueue.models import Job
from django_pgqueue.queues.find import FIND
from django_pgqueue.tasks.payload import encode_value
from django_pgqueue.tasks.result import JobResult
from django_pgqueue.testing import drain
from tests.app.models import Order
from tests.app.tasks import add, fails_once, noop, rejects, runs_for
from tests.harness.factories import (
    make_archived_job,
    make_dead_letter,
    make_job,
    make_leased_job,
)

pytestmark = pytest.mark.django_db

HOUR = timedelta(hours=1)


@pytest.mark.parametrize(
    "make, columns, expected",
    [
        (make_job, {}, "ready"),
        (make_job, {"visible_at": HOUR}, "scheduled"),
        (make_job, {"visible_at": HOUR, "attempt": 1, "deliveries": 1}, "retrying"),
        (make_job, {"attempt": 1, "deliveries": 1}, "ready"),
        (make_job, {"visible_at": None}, "parked"),
        (make_leased_job, {}, "running"),
        (make_leased_job, {"visible_at": -HOUR}, "ready"),
        (make_archived_job, {}, "succeeded"),
        (make_archived_job, {"state": "cancelled"}, "cancelled"),
        (make_archived_job, {"state": "expired"}, "expired"),
        (make_dead_letter, {}, "dead"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_a_job_has_one_status_wherever_its_row_is(make, columns, expected):
    """A lease that has lapsed makes its job ready again."""
    row = make(**columns)

    result = JobResult(row.pk)

    assert expected == result.status
    assert row == result.job


def test_a_dead_letter_tells_its_reason_and_its_errors():
    """One entry per failed attempt."""
    result = fails_once.delay("out of luck")
    drain()

    assert ("dead", "exhausted", None) == (result.status, result.reason, result.result)
    (entry,) = result.errors
    assert ("error", "tests.app.tasks.Unlucky", "out of luck", 1) == tuple(
        entry[name] for name in ("kind", "type", "message", "attempt")
    )


@pytest.mark.parametrize(
    "attribute", ["status", "attempt", "result", "reason", "errors"]
)
def test_a_job_that_is_nowhere_is_an_error(attribute):
    """The error names the id and why it may be gone."""
    with pytest.raises(JobNotFound, match=r"Job 5 is not in .*RETENTION") as caught:
        getattr(JobResult(5), attribute)

    assert 5 == caught.value.job_id
    assert JobResult(5).job is None


# Waiting for a result ----------------------------------------------------------------

committed = pytest.mark.django_db(transaction=True)


def get(result, *args, **kwargs):
    return result.get(*args, **kwargs)


def aget(result, *args, **kwargs):
    return async_to_sync(result.aget)(*args, **kwargs)


both = pytest.mark.parametrize("get", [get, aget])


@pytest.fixture
def drain_elsewhere():
    """Start a thread that waits until the test has looked once, and drains."""
    looked = threading.Event()
    threads = []

    def drain_then():
        looked.wait(10)
        try:
            drain()
        finally:
            connections.close_all()

    def note(execute, sql, *args):
        answer = execute(sql, *args)
        if sql == FIND:
            looked.set()
        return answer

    with connection.execute_wrapper(note):
        threads.append(threading.Thread(target=drain_then))
        threads[0].start()
        yield
        looked.set()
        threads[0].join()


@committed
@both
@pytest.mark.usefixtures("drain_elsewhere")
def test_get_waits_for_a_worker(get):
    """And returns what the task returned; no transaction is open meanwhile."""
    result = add.delay(1, 2)

    assert 3 == get(result, timeout=20)
    assert "succeeded" == result.status
    assert not connection.in_atomic_block


@both
def test_get_of_what_has_ended_asks_once(get):
    """Also inside of a transaction, since there is nothing to wait for."""
    one, nothing = add.delay(1, 2), noop.delay()
    drain()

    with transaction.atomic(), CaptureQueriesContext(connection) as queries:
        assert (3, None) == (get(one), get(nothing, timeout=0))
    assert 2 == len(queries)


@both
@pytest.mark.parametrize(
    "make, columns, status, reason",
    [
        (make_dead_letter, {"reason": "rejected"}, "dead", "rejected"),
        (make_archived_job, {"state": "cancelled"}, "cancelled", None),
        (make_archived_job, {"state": "expired"}, "expired", None),
    ],
    ids=["dead", "cancelled", "expired"],
)
def test_get_raises_for_a_job_that_will_never_succeed(
    get, make, columns, status, reason
):
    """It tells the status and the reason."""
    row = make(**columns)

    with pytest.raises(JobFailed, match=f"Job {row.pk} is {status}") as caught:
        get(JobResult(row.pk))

    assert (row.pk, status, reason) == (
        caught.value.job_id,
        caught.value.status,
        caught.value.reason,
    )


@both
def test_get_waits_no_longer_than_told(get):
    """The time is a duration; zero is one look."""
    result = noop.delay()

    with CaptureQueriesContext(connection) as queries:
        with pytest.raises(ResultTimeout, match=f"Job {result.id} is ready; .*ctor"):
            get(result, timeout=0)
        assert 1 == len(queries)
        with pytest.raises(ResultTimeout):
            get(result, timeout="60ms")
    # 10 ms, 15 ms, 22 ms, …: ever less often.
    assert 3 <= len(queries) <= 6
    for wrong in (-1, "soon", float("nan"), True):
        with pytest.raises(ValueError, match="timeout is"):
            get(result, timeout=wrong)


@committed
@both
def test_get_refuses_to_wait_for_itself(get):
    """A worker sees the job after the commit that get() would hold up."""
    with transaction.atomic():
        result = noop.delay()
        with pytest.raises(WrongState, match="a transaction is open on 'default'"):
            get(result, timeout=60)


def test_a_result_whose_row_is_gone_cannot_be_read():
    """The error is none that another task would be rejected by."""
    order = Order.objects.create(name="x")
    row = make_archived_job()
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE pgqueue_archived_job SET result = %s WHERE id = %s",
            [encode_value(order), row.pk],
        )
    result = JobResult(row.pk)

    assert order == result.result
    order.delete()
    for read in (lambda: result.result, result.get):
        with pytest.raises(UndecodablePayload, match=f"job {row.pk} .* is gone"):
            read()


# What can be done to a job -----------------------------------------------------------


def test_a_running_job_is_asked_to_stop():
    """It goes on running until it looks."""
    row = make_leased_job()
    result = JobResult(row.pk)

    assert result.cancel() is True
    assert "running" == result.status
    assert Job.objects.get(pk=row.pk).cancel_requested_at is not None


def test_a_dead_letter_is_edited_and_retried():
    """With other arguments it succeeds, under the same id."""
    result = rejects.delay("bad address")
    drain()
    assert "dead" == result.status

    edited = result.edit(args=["good address"])
    assert edited is result
    with pytest.raises(InvalidArgument, match="arguments do not fit"):
        result.edit(kwargs={"why": 1, "how": 2})
    assert result.retry() is True

    assert "ready" == result.status
    assert ["good address"] == result.job.args


def test_each_method_has_a_twin_for_async_code():
    """They join the transaction that Django has open."""

    async def acts():
        result = await add.using(run_after="1h").adelay(1, 2)
        await result.aedit(args=[3, 4])
        assert await result.aretry() is True
        assert "ready" == (await result.arefresh()).status
        other = await runs_for.adelay(0)
        assert await other.acancel() is True
        return result

    result = async_to_sync(acts)()
    drain()

    assert 7 == result.get()
