"""An enqueue belongs to the caller's transaction, as a real worker sees it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest
from django.db import connection, transaction

from tests.app import crash_tasks
from tests.app.models import Order
from tests.harness.worker_process import enqueue, places, wait_until_final

pytestmark = pytest.mark.smoke


class Changed(Exception):
    """What rolls a test's transaction back."""


def elsewhere(function, *args, **kwargs):
    """Call it in another thread, so on another connection, and return its answer."""

    def call():
        try:
            return function(*args, **kwargs)
        finally:
            connection.close()

    with ThreadPoolExecutor(1) as pool:
        return pool.submit(call).result(30)


def test_a_job_is_not_run_before_its_transaction_commits(start_worker, the_ledger):
    """A job committed after it, on another connection, runs before it."""
    start_worker()

    with transaction.atomic():
        early = crash_tasks.record.delay().id
        late = elsewhere(enqueue, crash_tasks.record)
        elsewhere(wait_until_final, late)
        assert 0 == the_ledger.starts()[early]
    wait_until_final([early])

    assert [*late, early] == [entry.job for entry in the_ledger.entries("start")]


def test_a_job_of_a_rolled_back_transaction_never_was(start_worker, the_ledger):
    """Neither a row nor a run is left; the caller's own row is gone with it."""
    start_worker()

    with suppress(Changed), transaction.atomic():
        Order.objects.create(name="with a job")
        gone = crash_tasks.record.delay().id
        raise Changed
    after = enqueue(crash_tasks.record)
    wait_until_final(after)

    assert gone not in places()
    assert after == list(the_ledger.starts())
    assert not Order.objects.exists()


def test_a_savepoint_takes_its_jobs_with_it_and_the_others_wake_the_worker(
    start_worker, the_ledger
):
    """
    The first enqueue is in a savepoint that rolls back: the one after it is woken
    for all the same, though the worker's poll is ten minutes away.
    """
    start_worker()

    with transaction.atomic():
        with suppress(Changed), transaction.atomic():
            gone = crash_tasks.record.delay().id
            raise Changed
        with transaction.atomic():
            inner = crash_tasks.record.delay().id
        outer = crash_tasks.record.delay().id
    wait_until_final([inner, outer])

    assert gone not in places()
    assert {inner, outer} == set(the_ledger.starts())
