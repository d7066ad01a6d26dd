"""As completed: results as their jobs end."""

from __future__ import annotations

import pytest
from asgiref.sync import async_to_sync
from django.db import connection, connections
from django.test.utils import CaptureQueriesContext

from django_pgqueue import ResultTimeout
from django_pgqueue.models import Job
from django_pgqueue.tasks import as_completed as module
from django_pgqueue.tasks import waiting
from django_pgqueue.tasks.as_completed import as_completed
from django_pgqueue.tasks.result import JobResult
from django_pgqueue.testing import drain
from tests.app.tasks import add, noop
from tests.harness.waiting import wait_for

pytestmark = pytest.mark.django_db

committed = pytest.mark.django_db(transaction=True)


def sync(results, timeout=None):
    """Return what for gives."""
    return list(as_completed(results, timeout))


def asynchronous(results, timeout=None):
    """Return what async for gives."""

    async def collect():
        return [result async for result in as_completed(results, timeout)]

    return async_to_sync(collect)()


both = pytest.mark.parametrize("collect", [sync, asynchronous])


@both
def test_what_bulk_returns_is_given_when_it_has_ended(collect):
    """Each result once, and as it was passed; it knows what has become of the job."""
    results = add.bulk([(n, 1) for n in range(5)])
    drain()

    given = collect(results)
    assert set(map(id, results)) == set(map(id, given))
    with CaptureQueriesContext(connection) as queries:
        assert [1, 2, 3, 4, 5] == sorted(result.get() for result in given)
    assert 0 == len(queries)


@both
def test_thousands_are_looked_at_together(collect, monkeypatch):
    """One look for all that are in the queue, and one for what has left it."""
    monkeypatch.setattr(module, "IDS_MAX", 1_000)
    results = noop.bulk([{}] * 2_500)
    Job.objects.all().delete()

    with CaptureQueriesContext(connection) as queries:
        assert 2_500 == len(collect(results))
    assert 6 == len(queries)


@both
def test_after_the_timeout_the_rest_is_an_error(collect):
    """It names some of them; those that have ended are given before."""
    done = noop.delay()
    drain()
    waiting = [noop.delay() for _ in range(7)]
    given = []
    ids = ", ".join(str(result.id) for result in waiting[:5])

    with pytest.raises(ResultTimeout, match=f"7 of 8 jobs have not ended .*: {ids}, …"):
        given.extend(iter_until_raise(collect, [done, *waiting], given))
    assert [done] == given or collect is asynchronous
    with pytest.raises(ResultTimeout, match=f"1 of 1 jobs .*: {waiting[0].id}\\."):
        collect(waiting[:1], "30ms")


def iter_until_raise(collect, results, given):
    if collect is asynchronous:
        return collect(results, 0)
    for result in as_completed(results, 0):
        given.append(result)
    return ()


# Waiting -----------------------------------------------------------------------------


@pytest.fixture
def only_told(monkeypatch):
    """Who is told looks once after his announcement, and then not for an hour."""
    monkeypatch.setattr(waiting, "_ears", {})
    monkeypatch.setattr(waiting, "TOLD_PAUSES_SECONDS", ())
    monkeypatch.setattr(waiting, "TOLD_PAUSE_SECONDS_MAX", 3_600.0)


def cancel_one_by_one(results, given):
    """Cancel each once those before it were given."""
    try:
        ears = waiting._ears
        wait_for(
            lambda: any(w.hears for ear in [*ears.values()] for w in list(ear._waits)),
            what="somebody waits",
        )
        for place, result in enumerate(results):
            wait_for(lambda at=place: len(given) == at, what=f"{place} were given")
            JobResult(result.id).cancel()
    finally:
        connections.close_all()


@committed
@pytest.mark.usefixtures("only_told")
@pytest.mark.parametrize("is_async", [False, True])
def test_each_is_given_as_soon_as_it_is_told(is_async, in_thread):
    """In the order in which they end, and not in that of the list."""
    results = noop.bulk([{}] * 5)
    order, given = [results[n] for n in (3, 0, 4, 1, 2)], []
    in_thread(cancel_one_by_one, order, given)

    if is_async:

        async def collect():
            async for result in as_completed(results, "1h"):
                given.append(result)  # noqa: PERF401  # One by one.

        async_to_sync(collect)()
    else:
        for result in as_completed(results, "1h"):
            given.append(result)  # noqa: PERF402  # One by one.

    assert order == given
    assert {"cancelled"} == {result.status for result in given}
    assert [[]] == [list(ear._waits) for ear in waiting._ears.values()]


@committed
def test_a_redriven_job_has_not_ended(monkeypatch):
    """It was a dead letter for a moment, between one look and the next."""
    result = noop.delay()
    monkeypatch.setattr(module, "live", lambda cursor, ids: set())

    with pytest.raises(ResultTimeout, match="1 of 1"):
        sync([result], "30ms")
