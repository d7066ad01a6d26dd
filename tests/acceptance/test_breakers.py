"""Circuit breakers of real workers: a provider is down, and comes back."""

from __future__ import annotations

import pytest

from django_pgqueue.models import Lane
from django_pgqueue.tasks import operate_queues as operate
from tests.app.lane_tasks import calls_provider
from tests.app.tasks import noop
from tests.harness.waiting import wait_for
from tests.harness.worker_process import wait_until_final

pytestmark = pytest.mark.slow

TASK = calls_provider.name


@pytest.fixture
def provider(tmp_path):
    return tmp_path / "provider"


def enqueue(provider, jobs=20):
    calls = calls_provider.bulk([{"provider": str(provider)}] * jobs)
    return [job.id for job in calls]


def has_tripped(times):
    return Lane.objects.filter(name=TASK, breaker_trips__gte=times).exists()


def started(the_ledger):
    return len(the_ledger.entries("start"))


def test_a_task_waits_while_its_provider_is_down(start_worker, the_ledger, provider):
    """One attempt each cool-down, which doubles; then everything ends, once."""
    start_worker(processes=2)
    ids = enqueue(provider)
    wait_for(lambda: has_tripped(2), what="a probe that failed")
    before = started(the_ledger)
    wait_until_final([noop.delay().id])
    wait_for(lambda: has_tripped(3), what="another one")
    assert before + 1 == started(the_ledger)

    lane = Lane.objects.get()
    assert "the probe failed, ConnectionError: refused, password=" in lane.pause_reason
    assert "hunter2" not in lane.pause_reason
    provider.touch()
    found = wait_until_final(ids)
    assert {"succeeded"} == {place.state for place in found.values()}
    assert not Lane.objects.exists()


def test_an_operator_closes_a_breaker(start_worker, the_ledger, provider):
    """All go on at once; while the provider is down, it opens anew."""
    start_worker()
    ids = enqueue(provider)
    wait_for(lambda: has_tripped(3), what="two probes that failed")
    assert operate.resume(TASK)
    wait_for(lambda: has_tripped(1), what="an open breaker")
    assert "attempts failed within 60 s" in Lane.objects.get().pause_reason
    provider.touch()
    wait_until_final(ids)
