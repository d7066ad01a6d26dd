"""Members: those of a group or a batch, given as they end."""

from __future__ import annotations

import pytest
from asgiref.sync import async_to_sync
from django.db import connection
from django.test.utils import CaptureQueriesContext

from django_pgqueue import (
    JobFailed,
    ResultTimeout,
    as_completed,
    batch,
    chain,
    group,
)
from django_pgqueue.tasks import workflow_result as module
from django_pgqueue.testing import drain
from tests.app.workflow_tasks import add, fails_at, give

pytestmark = pytest.mark.django_db


def sync(result, timeout="1m"):
    """Return what for gives."""
    return list(as_completed(result, timeout))


def asynchronous(result, timeout="1m"):
    """Return what async for gives."""

    async def collect():
        return [member async for member in as_completed(result, timeout)]

    return async_to_sync(collect)()


both = pytest.mark.parametrize("collect", [sync, asynchronous])


@both
def test_members_come_in_the_order_of_their_ends(collect):
    """With their places, also those that have failed; results are known then."""
    later, soon = give.using(priority=-1), give.using(priority=5)
    parts = [later.s("last"), chain(give.s(1), add.s(1)), soon.s("first")]
    result = group(*parts, fails_at.s(1, 1)).delay()
    drain(max_jobs=1)
    first = next(iter(as_completed(result, 1)))
    assert ("first", 2) == (first.get(), first.index)
    drain()

    found = collect(result)
    with CaptureQueriesContext(connection) as queries:
        values = [each.get() for each in found if each.status == "succeeded"]
    assert ("first", "last", 0) == (values[0], values[-1], len(queries))
    assert {2, "first", "last"} == {*values}
    assert [0, 1, 2, 3] == sorted(each.index for each in found)
    (bad,) = (each for each in found if each.status == "dead")
    with pytest.raises(JobFailed, match="1 is bad"):
        bad.get()


@both
def test_a_list_of_results_and_a_batch_have_members_too(collect):
    """Of a group within a chain those of the last group; of a batch all of its jobs."""
    result = chain(give.s(1), group(add.s(n) for n in range(3))).delay()
    with batch() as b:
        b.add_many(give, [(n,) for n in range(4)])
        with b.batch() as inner:
            inner.add(give, 9)
    drain()

    assert [(0, 1), (1, 2), (2, 3)] == sorted(
        (each.index, each.get()) for each in collect(result)
    )
    assert [0, 1, 2, 3] == sorted(each.get() for each in collect(b.result))
    assert [] == collect(group().delay())


@both
def test_what_never_runs_is_given_at_the_end(collect):
    """So that a loop over a workflow that has failed comes to its end."""
    result = chain(fails_at.s(1, 1), group(give.s(), give.s())).delay()
    drain()

    found = collect(result, None)
    assert [(0, "waiting"), (1, "waiting")] == [(e.index, e.status) for e in found]
    with pytest.raises(JobFailed, match="is waiting"):
        found[0].get()


@both
def test_thousands_are_looked_at_together(collect, monkeypatch):
    """Three queries, and one for every so many of their results."""
    monkeypatch.setattr(module, "RESULTS_READ", 40)
    with batch() as b:
        b.add_many(give, [(n,) for n in range(120)])
    drain(max_jobs=90)

    with CaptureQueriesContext(connection) as queries, pytest.raises(ResultTimeout):
        collect(b.result, 0)
    assert 3 + 3 == len(queries)
    drain()
    assert 120 == len({each.get() for each in collect(b.result)})
