"""What the tests of the worker's loops share: claimed jobs, links, waiting threads."""

from __future__ import annotations

import time

import pytest

from django_pgqueue.postgres.connect import Link
from django_pgqueue.queues.claim import claim
from django_pgqueue.worker.lease.leases import Leases
from tests.harness.factories import LEASE

WORKER = "worker"


@pytest.fixture
def link(transactional_db):
    """A loop's own connection, closed after the test."""
    link = Link("default", name="tests: loop")
    yield link
    link.drop()


@pytest.fixture
def leases():
    """The leases of a process, each of 60 seconds."""
    return Leases(60.0, WORKER)


@pytest.fixture
def claim_all(cursor, leases):
    """A function that claims what is due, as the claimer of this process does."""

    def claim_all(limit=100, worker=WORKER, queues=("default",)):
        asked_at = time.monotonic()
        jobs = claim(cursor, queues=queues, worker=worker, limit=limit, lease=LEASE)
        if worker == WORKER:
            leases.add(jobs, asked_at)
        return jobs

    return claim_all
