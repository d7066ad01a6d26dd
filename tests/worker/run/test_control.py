"""Control: an atomic ack of a task that keeps no archive."""

from __future__ import annotations

from datetime import timedelta

import pytest

from django_pgqueue import WrongState
from django_pgqueue.conf import parse
from django_pgqueue.models import ArchivedJob, Job
from django_pgqueue.tasks.outcome import Performed, Retried, Succeeded
from django_pgqueue.worker.lease.reporter import Reporter
from django_pgqueue.worker.run.control import Control, JobServices
from tests.harness.factories import make_job
from tests.worker.conftest import WORKER

DONE = Performed(Succeeded(), None, 0.5, leaves_no_trace=True)


@pytest.fixture
def control(leases, claim_all, link):
    """The control of a job whose ack was begun."""
    make_job()
    (job,) = claim_all()
    services = JobServices(
        settings=parse({}),
        installation="uuid",
        slots=None,
        leases=leases,
        settler=None,
        reporter=Reporter(link, worker=WORKER),
        collector=None,
        on_capacity=None,
        on_suspect=None,
    )
    return Control(services, leases.get(job), None)


def ack_in_vain(control, cursor, performed):
    """Write the ack of an atomic task in a transaction that rolls back."""
    with cursor.connection.transaction(force_rollback=True):
        control.ack_within(cursor, performed)


@pytest.mark.parametrize("was_committed", [True, False])
def test_a_commit_without_an_answer_is_found_without_an_archive(
    control, cursor, was_committed
):
    """The row is away, or it is still there."""
    if was_committed:
        assert control.ack_within(cursor, DONE)
    else:
        ack_in_vain(control, cursor, DONE)

    assert was_committed is control.is_applied()
    assert was_committed is not Job.objects.exists()
    assert not ArchivedJob.objects.exists()


def test_a_row_that_is_away_proves_nothing_where_there_is_an_archive(control, cursor):
    """Somebody has deleted it, and no ack is anywhere."""
    ack_in_vain(control, cursor, Performed(Succeeded(), None, 0.5))
    Job.objects.all().delete()

    assert not control.is_applied()


def test_what_was_emitted_survives_a_transaction_that_rolls_back(
    control, cursor, monkeypatch
):
    """It is handed to the settle that follows."""
    monkeypatch.setattr(Reporter, "call", lambda self: None)
    control.emit([(1, "1")])
    ack_in_vain(control, cursor, Performed(Succeeded(), None, 0.5))

    settlement = control.close(Performed(Retried(timedelta(0))))

    assert [(1, "1")] == settlement.performed.emitted
    with pytest.raises(WrongState, match="until the job is settled"):
        control.emit([(2, "2")])
