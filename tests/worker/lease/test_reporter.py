"""Reporter: progress and longer leases, written beside everything else."""

from __future__ import annotations

import json
import threading

import pytest

from django_pgqueue import LeaseLost
from django_pgqueue.models import Job
from django_pgqueue.worker.lease.reporter import Report, Reporter
from tests.harness.factories import make_job
from tests.harness.waiting import wait_for, wait_until_blocked
from tests.worker.conftest import WORKER


@pytest.fixture
def reporter(link):
    reporter = Reporter(link, worker=WORKER)
    yield reporter
    reporter.stop()
    reporter.join(10)


@pytest.fixture
def held(claim_all, leases):
    make_job()
    (job,) = claim_all()
    return leases.get(job)


def progress():
    return Job.objects.get().progress


def test_the_first_report_is_written_at_once(reporter, held):
    """So that people see that something happens."""
    reporter.report(Report(held), {"done": 1})

    wait_for(lambda: progress() == {"done": 1})


def test_later_ones_are_written_once_a_second_and_the_last_is_handed_back(
    reporter, held
):
    """It is written with the settle."""
    report = Report(held)
    reporter.report(report, {"done": 1})
    wait_for(lambda: progress() == {"done": 1})
    for done in range(2, 1_000):
        reporter.report(report, {"done": done})

    assert {"done": 999} == json.loads(reporter.take(report))
    assert None is reporter.take(report)
    assert {"done": 1} == progress()


def test_a_report_of_a_lost_job_is_not_written(reporter, held):
    """It is somebody else's now."""
    Job.objects.update(deliveries=2, leased_by="somebody")
    report = Report(held)
    reporter.report(report, {"done": 1})
    wait_for(lambda: report.due_at > 0, what="it was tried")

    assert None is reporter.take(report)
    assert None is progress()


def test_a_lease_is_extended_by_the_clock_of_the_database(reporter, held):
    """And our own end of it follows."""
    before = Job.objects.get().visible_at
    ours = held.valid_until

    reporter.extend(held, 600.0)

    assert 500 < (Job.objects.get().visible_at - before).total_seconds() < 601
    assert 500 < held.valid_until - ours < 601


def test_a_lost_lease_is_not_extended(reporter, held):
    """The task is told."""
    Job.objects.update(deliveries=2, leased_by="somebody")

    with pytest.raises(LeaseLost, match="delivery 1 has lost its lease"):
        reporter.extend(held, 600.0)


def test_a_row_that_somebody_keeps_locked_is_asked_for_again(
    reporter, held, link, other_cursor, cursor, in_thread
):
    """Until it is free; the heartbeat and the settler are not held up."""
    done = threading.Event()
    with other_cursor.connection.transaction():
        other_cursor.execute("SELECT id FROM pgqueue_job FOR UPDATE")
        in_thread(lambda: (reporter.extend(held, 600.0), done.set()))
        wait_for(lambda: link.is_open, what="it has connected")
        wait_until_blocked(cursor, link.connection)
        assert not done.is_set()

    assert done.wait(10)
