"""What loops of a process share: whose connections are closed by whom."""

from __future__ import annotations

import multiprocessing
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import connections

from django_pgqueue.conf import parse
from django_pgqueue.models import BulkAct
from django_pgqueue.operators.bulk_acts import BulkActs
from django_pgqueue.worker.lease.leases import Slots
from django_pgqueue.worker.options import WorkerOptions
from django_pgqueue.worker.supervise.loops import Loops
from django_pgqueue.worker.supervise.process import Process
from django_pgqueue.worker.tally import Tally
from tests.worker.conftest import WORKER


@pytest.fixture
def loops(transactional_db):
    """Those of a process, none of which has started."""
    options = WorkerOptions(settings=parse({}), bulk_acts=BulkActs())
    slots = Slots(multiprocessing, 1)
    process = Process(options, WORKER, slots)
    loops = Loops(
        process,
        options,
        WORKER,
        slots,
        installation="tests",
        summons=None,
        is_quarantine=False,
        tally=Tally(),
    )
    yield loops
    loops.coroutines.close()
    process._woken.close()


def test_who_leads_no_more_closes_the_connection_of_bulk_acts(loops, other_cursor):
    """In the middle of an act, of which another one does a chunk."""
    act = BulkAct.objects.create(verb="redrive", counted=1, top=1)
    other_cursor.execute("BEGIN")
    lock = "SELECT FROM pgqueue_bulk_act WHERE id = %s FOR UPDATE"
    other_cursor.execute(lock, [act.pk])

    def tick(is_leading):
        loops.leader.set_leading(is_leading)
        loops.leader.tick()
        return connections["default"].connection is not None

    # One thread, whose connections they are.
    with ThreadPoolExecutor(1) as leader:
        assert leader.submit(tick, True).result()
        assert not leader.submit(tick, False).result()
