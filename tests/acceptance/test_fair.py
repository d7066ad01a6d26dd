"""Fairness across keys, by real workers."""

from __future__ import annotations

from collections import Counter

import pytest
from django.db import connection, transaction

from django_pgqueue.models import Job, Lane
from tests.app import fair_tasks as tasks
from tests.harness.waiting import wait_for
from tests.harness.worker_process import wait_until_final

STRICT = ["--queues=turns,plain", "--queue-order=strict"]


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


def test_a_weight_gives_more_turns(start_worker, the_ledger):
    """
    Three of one for each of the other, within a claim: where it takes one job, as on a
    busy machine, what is leased of both already counts as well.
    """
    with transaction.atomic():
        Lane.objects.create(name="tests.app.fair_tasks.shared:b", weight=3)
        ids = [job.id for job in tasks.shared.bulk([("a", 0.002)] * 200)]
        ids += [job.id for job in tasks.shared.bulk([("b", 0.002)] * 200)]
    start_worker(threads=2)

    wait_until_final(ids)
    started = Counter(tenants(the_ledger)[:160])
    # 2.0 to 2.7 were seen; without a weight it is 1.
    assert started["b"] >= 1.5 * started["a"]


def test_a_scheduled_job_starts_when_it_is_due(start_worker):
    """No other worker, nor the next poll, is needed for that."""
    start_worker()
    wait_until_final([tasks.shared.delay("a", 0.0).id])
    later = tasks.shared.using(run_after="1s").delay("b", 0.0)

    final = wait_until_final([later.id])
    assert "succeeded" == final[later.id].state


INSERT = """
INSERT INTO pgqueue_job (task, args, lane, lane_policy)
SELECT 'tests.app.fair_tasks.shared', '["a", 0.0]', 'mine', 'fair'
  FROM generate_series(1, 3)
RETURNING id
"""


def test_what_somebody_inserts_is_found(start_worker):
    """By the poll; nobody has told of it."""
    start_worker(pgqueue={"POLL_INTERVAL_SECONDS": 0.2})
    with connection.cursor() as cursor:
        cursor.execute(INSERT)
        ids = [job_id for (job_id,) in cursor.fetchall()]

    final = wait_until_final(ids)
    assert {"succeeded"} == {place.state for place in final.values()}


def test_jobs_without_a_key_are_done_beside(start_worker, the_ledger):
    """None takes no turn, and a backlog of either is no end of the other."""
    with transaction.atomic():
        ids = [job.id for job in tasks.shared.bulk([("a", 0.001)] * 200)]
        ids += [job.id for job in tasks.shared.bulk([(None, 0.001)] * 200)]
    start_worker(threads=2)

    wait_until_final(ids)
    started = Counter(tenants(the_ledger)[:200])
    assert min(started.values()) >= 40


def test_a_failure_is_retried(start_worker):
    """By its back-off, and not at its lane's turn."""
    start_worker()
    job = tasks.fails_once.delay("a")

    final = wait_until_final([job.id])
    assert ("succeeded", 2) == (final[job.id].state, final[job.id].attempt)


@pytest.mark.parametrize(
    "plan", [["--queues=turns=2,plain=1"], STRICT, ["--queues=turns:1,plain"]]
)
def test_each_order_of_queues_serves_them(start_worker, plan):
    """By weight, strictly or with a cap, as any other queue of the worker."""
    with transaction.atomic():
        turns, plain = (tasks.shared.using(queue=name) for name in ("turns", "plain"))
        ids = [job.id for job in turns.bulk([("a", 0.0)] * 50)]
        ids += [job.id for job in plain.bulk([("b", 0.0)] * 50)]
    start_worker(*plan)

    final = wait_until_final(ids)
    assert {"succeeded"} == {place.state for place in final.values()}
