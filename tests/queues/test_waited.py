"""Waited: what is told of jobs that somebody waits for, and to whom."""

from __future__ import annotations

import pytest
from django.db import connection, transaction

from django_pgqueue.postgres.wake import listen
from django_pgqueue.queues.waited import (
    announce,
    channel,
    ids_of,
    tell,
    tell_after_commit,
)
from django_pgqueue.tasks import operate
from tests.app.tasks import noop
from tests.harness.notices import heard_until_now

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def told(other_cursor):
    """A function that returns what was told of ends since it was last called."""
    listen(other_cursor, [name := channel(other_cursor)])
    return lambda: heard_until_now(other_cursor.connection, name)


def test_an_announcement_is_for_workers_and_an_end_is_not(heard, told, other_cursor):
    """They have a channel each; what is heard has the ids."""
    announce(other_cursor, [1, 22])
    tell(other_cursor, [22])

    assert (["!wait:1,22"], ["22"]) == (heard(), told())
    assert ({1, 22}, {22}) == (ids_of("!wait:1,22"), ids_of("22"))


def test_a_cancelled_job_is_told_of_after_the_commit(told):
    """And what had ended already is not."""
    jobs = [noop.delay().id for _ in range(3)]
    operate.cancel(jobs[:1])
    told()
    with transaction.atomic():
        operate.cancel(jobs)
        before = told()

    assert ([], [",".join(map(str, jobs[1:]))]) == (before, told())


def test_no_end_is_told_inside_of_a_transaction_by_hand(told):
    """It would take the cluster-wide lock of a NOTIFY at the caller's commit."""
    with transaction.atomic(), connection.cursor() as ours:
        ours.execute("SELECT 1")
        tell_after_commit(connection, [1])
        (_, hook, _), connection.run_on_commit = connection.run_on_commit[0], []
        hook()

    assert [] == told()
