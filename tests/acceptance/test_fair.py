"""Fairness across keys, by real workers."""

from __future__ import annotations

from collections import Counter

from django.db import transaction

from django_pgqueue.models import Job
from tests.app import fair_tasks as tasks
from tests.harness.waiting import wait_for
from tests.harness.worker_process import wait_until_final


def tenants(the_ledger):
    """Return whose jobs have started, in their order."""
    return [entry.note for entry in the_ledger.entries("start")]


def test_a_key_with_one_job_does_not_wait_for_one_with_hundreds(
    start_worker, the_ledger
):
    """Though they were stored before it, and all threads are busy with them."""
    start_worker(threads=2)
    many = [job.id for job in tasks.shared.bulk([("many", 0.01)] * 500)]
    wait_for(lambda: len(tenants(the_ledger)) >= 10, what="ten jobs")
    one = tasks.shared.delay("one", 0.0)

    wait_until_final([one.id])
    before = tenants(the_ledger).index("one")
    assert before < 150
    with transaction.atomic():
        Job.objects.filter(pk__in=many, leased_by=None).delete()


def test_keys_have_equal_parts_and_all_of_it_is_done(start_worker, the_ledger):
    """Also in several processes; of the first half, each key has about as many."""
    with transaction.atomic():
        ids = [job.id for job in tasks.shared.bulk([("a", 0.002)] * 300)]
        ids += [job.id for job in tasks.shared.bulk([("b", 0.002)] * 300)]
    start_worker(processes=2, threads=4)

    wait_until_final(ids)
    started = Counter(tenants(the_ledger)[:300])
    assert 100 <= started["a"] <= 200
    assert 600 == len(tenants(the_ledger))


INSERT = """
INSERT INTO pgqueue_job (task, args, lane, lane_policy)
SELECT 'tests.app.fair_tasks.shared', '["a", 0.0]', 'mine', 'fair'
  FROM generate_series(1, 3)
RETURNING id
"""
