"""Tasks that operators pause: no worker begins a job of theirs, in whatever lane."""

from __future__ import annotations

import pytest

from django_pgqueue.models import Job, Lane
from django_pgqueue.tasks import operate_queues as operate
from tests.app.tasks import echo, noop
from tests.harness.waiting import wait_for
from tests.harness.worker_process import wait_until_final

pytestmark = pytest.mark.slow

ECHO = "tests.app.tasks.echo"
STEP = "tests.app.lane_tasks.step"

# How often the row of each job was written while it was live.
COUNT_WRITES = """
CREATE TABLE written (job bigint);
CREATE FUNCTION note_write() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN INSERT INTO written VALUES (NEW.id); RETURN NULL; END $$;
CREATE TRIGGER note_write AFTER UPDATE ON pgqueue_job
    FOR EACH ROW EXECUTE FUNCTION note_write();
"""
COUNT_NO_MORE = """
DROP TRIGGER note_write ON pgqueue_job;
DROP FUNCTION note_write();
DROP TABLE written;
"""
MOST_WRITES = """
SELECT count(*), coalesce(max(times), 0)
  FROM (SELECT count(*) AS times FROM written JOIN pgqueue_job ON id = job
         GROUP BY job) writes
"""


def parked(lane=ECHO):
    return Job.objects.filter(lane=lane, visible_at__isnull=True)


def test_jobs_of_a_paused_task_wait_and_others_go_on(start_worker):
    """
    Running workers hear of it at once, and again when it is over.

    At once is a moment later: of what is enqueued just then, some may run.
    """
    start_worker(processes=2)
    wait_until_final([echo.delay(1).id])
    assert operate.pause(ECHO, by="ada", reason="their API is down")
    meanwhile = [echo.delay(number).id for number in range(20)]
    wait_for(
        lambda: not Job.objects.filter(pk__in=meanwhile, visible_at__isnull=False),
        what="each of them parked, or done",
    )
    waiting = [echo.delay(number).id for number in range(20)]
    wait_until_final([noop.delay().id for _ in range(20)])

    wait_for(
        lambda: 20 == parked().filter(pk__in=waiting).count(),
        what="all of them parked",
    )
    rows = Job.objects.filter(pk__in=waiting)
    assert {(0, 0)} == set(rows.values_list("attempt", "deliveries"))
    assert operate.resume(ECHO)
    wait_until_final(meanwhile)
    found = wait_until_final(waiting, timeout=5)
    assert {("succeeded", 1)} == {(p.state, p.deliveries) for p in found.values()}
    assert not Lane.objects.exists()


@pytest.fixture
def writes(cursor):
    """A function: how many jobs were written while live, and the most for one."""
    cursor.execute(COUNT_WRITES)
    yield lambda: cursor.execute(MOST_WRITES).fetchone()
    cursor.execute(COUNT_NO_MORE)
