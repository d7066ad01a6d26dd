"""Lanes that operators pause, resize and release, by real workers."""

from __future__ import annotations

import pytest

from django_pgqueue.models import Job
from django_pgqueue.tasks import operate_queues as operate
from tests.acceptance.test_lanes import most_at_once
from tests.app import lane_tasks as tasks
from tests.harness.worker_process import wait_until_final

pytestmark = pytest.mark.slow

STEP = "tests.app.lane_tasks.step"


def lane_of(job):
    return Job.objects.get(pk=job.id).lane


def test_a_group_never_runs_two_whoever_releases(start_worker, the_ledger):
    """Without a pause between releases, while one of ten attempts fails."""
    start_worker(processes=2)
    ids = [
        job.id
        for job in tasks.flaky_step.bulk(
            [{"customer": "c", "number": n} for n in range(100)]
        )
    ]
    lane = Job.objects.filter(pk__in=ids).values_list("lane", flat=True)[0]

    passed = 0
    while Job.objects.exists():
        passed += operate.release(lane).put_off is not None
    wait_until_final(ids)
    assert 0 < passed
    assert {"c": 1} == most_at_once(the_ledger)
