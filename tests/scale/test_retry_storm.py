"""
Ten thousand jobs fail in one moment: how their retries come back.

Their delays are drawn by the policy and written by the settle; what is counted is the
moments at which the rows become due.
"""

from __future__ import annotations

import pytest

from django_pgqueue.options.retry import Retry
from django_pgqueue.queues.settle import Ended, retry

pytestmark = pytest.mark.slow

JOBS = 10_000
BATCH = 1_000

LEASED = """
INSERT INTO pgqueue_job (task, leased_by, leased_at, attempt, deliveries, visible_at)
SELECT 'x', 'w', statement_timestamp(), 1, 1, statement_timestamp() + interval '1 hour'
  FROM generate_series(1, %s)
RETURNING id
"""
BY_SECOND = """
SELECT max(jobs) FROM (
    SELECT count(*) AS jobs FROM pgqueue_job
     GROUP BY floor(extract(epoch FROM visible_at - transaction_timestamp()))) s
"""


@pytest.mark.parametrize(
    "policy, share_max",
    [
        pytest.param(Retry(), 0.25, id="the default, over five seconds"),
        pytest.param(Retry(base=30), 0.05, id="over thirty seconds"),
        pytest.param(Retry(base=60, jitter="equal"), 0.05, id="the latter half of 60"),
    ],
)
def test_jobs_that_failed_together_do_not_come_back_together(cursor, policy, share_max):
    """No second of their first back-off gets more than its share."""
    cursor.execute(LEASED, [JOBS])
    ids = [job for (job,) in cursor.fetchall()]
    error = ConnectionError("the dependency is down")

    with cursor.connection.transaction():
        for start in range(0, JOBS, BATCH):
            ended = [
                Ended(job, 1, delay_seconds=policy.delay(1, error).total_seconds())
                for job in ids[start : start + BATCH]
            ]
            assert BATCH == len(retry(cursor, worker="w", ended=ended))
        cursor.execute(BY_SECOND)
        (highest,) = cursor.fetchone()

    assert highest <= JOBS * share_max
