"""The states of live jobs: what SQL says of a row, Django says too."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import connection

from django_pgqueue.models import Job
from django_pgqueue.models.job import LiveState, live_state
from django_pgqueue.queues.find import find
from tests.harness.factories import make_job, make_leased_job

pytestmark = pytest.mark.django_db

HOUR = timedelta(hours=1)


def test_a_state_is_the_same_in_sql_and_in_django():
    """As a column, as a filter, and in the statements of storage."""
    expected = {
        make_job(visible_at=None).pk: "parked",
        make_job(visible_at=None, attempt=1, deliveries=1).pk: "parked",
        make_job(visible_at=-HOUR).pk: "ready",
        make_job(visible_at=-HOUR, attempt=1, deliveries=1).pk: "ready",
        make_leased_job(visible_at=-HOUR).pk: "ready",
        make_leased_job().pk: "running",
        make_job(visible_at=HOUR, attempt=1, deliveries=1).pk: "retrying",
        make_job(visible_at=HOUR).pk: "scheduled",
    }

    with connection.cursor() as cursor:
        stored = find(cursor, list(expected))
    shown = dict(Job.objects.annotate(state=live_state()).values_list("pk", "state"))
    filtered = {
        pk: state
        for state in LiveState.values
        for pk in Job.objects.in_state(state).values_list("pk", flat=True)
    }

    assert expected == {pk: row.status for pk, row in stored.items()}
    assert expected == shown == filtered
    assert set(LiveState.values) == set(expected.values())
