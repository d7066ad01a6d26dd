"""That measures measure what they say: on a scratch database, with real processes."""

from __future__ import annotations

import os
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta

import pytest

from django_pgqueue.management.bench import backlog, gauges, traced
from django_pgqueue.management.bench.contend import Producers
from django_pgqueue.management.bench.idle import cpu_seconds, resident_bytes
from django_pgqueue.management.bench.place import Place
from django_pgqueue.management.bench.scratch import PREFIX, Scratch
from django_pgqueue.management.bench.tasks import batched, payloads
from django_pgqueue.models import Job
from django_pgqueue.postgres import wake
from django_pgqueue.queues.claim import claim
from tests.harness.databases import lent
from tests.harness.notices import heard_until_now

ROWS = 300

BACKEND_XMIN = "SELECT backend_xmin IS NOT NULL FROM pg_stat_activity WHERE pid = %s"


@pytest.fixture(scope="module")
def scratch(django_db_setup, django_db_blocker) -> Iterator[Scratch]:
    """A scratch database, made once, and in use where a test says so."""
    beside = Scratch(Place(name=f"{PREFIX}{uuid.uuid4().hex[:8]}"), "default")
    with lent(beside.another(), django_db_blocker) as made:
        yield made


@pytest.fixture
def scratched(scratch, transactional_db) -> Iterator[Scratch]:
    """It is empty, and the alias leads to it meanwhile."""
    with scratch.in_use():
        scratch.empty()
        yield scratch


@pytest.mark.parametrize("wakes", [True, False])
def test_contend_differs_in_the_wake_alone(scratched, wakes):
    """The same jobs are committed; with wake somebody is notified, without nobody."""
    with scratched.connect() as listening:
        cursor = listening.cursor()
        wake.listen(cursor, [channel := wake.channel(cursor)])
        with Producers(scratched) as producers:
            assert producers.enqueue(64, wakes=wakes) > 0

        heard = heard_until_now(listening, channel)

    assert Job.objects.using(scratched.alias).count() == 64
    assert (set(heard) == {"default"}) is wakes
    assert (heard == []) is not wakes


@pytest.mark.parametrize(
    "sampled_in_hundred, flags", [(None, {}), (0, {"00": 300}), (100, {"01": 300})]
)
def test_traced_jobs_are_of_requests_of_which_some_are_sampled(
    transactional_db, settings, sampled_in_hundred, flags
):
    """A hundred of each; and tracing is as it was afterwards."""
    settings.PGQUEUE = before = {"DEFAULTS": {"priority": 5}}
    store = traced.in_requests(batched, sampled_in_hundred)
    store(payloads(300))

    headers = list(Job.objects.values_list("headers__trace__traceparent", flat=True))
    found = [parent.split("-") for parent in headers if parent is not None]
    assert flags == Counter(flag for _, _, _, flag in found)
    assert {100} >= set(Counter(trace for _, trace, _, _ in found).values())
    assert before == settings.PGQUEUE


def test_a_held_horizon_is_held_until_it_is_let_go(scratched):
    """The server keeps a snapshot for the session, from the start."""
    with scratched.connect() as holding, scratched.connect() as looking:
        pid = holding.info.backend_pid
        seen = []
        for act in (gauges.hold_horizon, gauges.let_go):
            act(holding.cursor())
            seen.append(looking.execute(BACKEND_XMIN, [pid]).fetchone())

    assert seen == [(True,), (False,)]


@pytest.mark.parametrize("shape", backlog.SHAPES)
def test_a_shape_is_what_its_name_says(scratched, shape):
    """So many rows; and which of them a claim of the queue would find."""
    with scratched.connect() as connection:
        cursor = connection.cursor()
        backlog.fill(cursor, shape, task="t", rows=ROWS)
        live = Job.objects.using(scratched.alias)
        due = claim(
            cursor,
            queues=[backlog.QUEUE],
            worker="w",
            limit=ROWS + 1,
            lease=timedelta(minutes=1),
        )

        assert len(due) == (ROWS if shape == "ready" else 0)
        assert live.count() == (0 if shape == "archived" else ROWS)
        assert live.filter(visible_at=None).count() == ROWS * (shape == "parked")
        elsewhere = live.exclude(queue=backlog.QUEUE).count()
        assert elsewhere == ROWS * (shape == "other_queue")
        archived = gauges.succeeded(cursor, 1, 100 * ROWS)
        assert archived == ROWS * (shape == "archived")


def test_buffers_are_counted_of_a_claim_that_claims(scratched):
    """The statement runs, and what it read is known."""
    with scratched.connect() as connection:
        cursor = connection.cursor()
        backlog.add_ready(cursor, task="t", rows=10)
        explaining = gauges.Explaining(cursor)
        claim(
            explaining,
            queues=[backlog.QUEUE],
            worker="w",
            limit=10,
            lease=timedelta(minutes=1),
        )

        assert explaining.rows == 10
        assert explaining.buffers >= 10
        assert gauges.is_leased(cursor)


def test_nothing_is_loaded_into_real_tables(cursor):
    """A load that lost its way is refused before its first row."""
    with pytest.raises(ValueError, match="is no scratch place"):
        backlog.fill(cursor, "ready", task="t", rows=10)
    assert not Job.objects.exists()


def test_a_process_is_read_from_the_system():
    """Processor time that rises with work, and memory of a plausible size."""
    before = cpu_seconds(os.getpid())
    until = time.process_time() + 0.05
    while time.process_time() < until:
        pass

    assert cpu_seconds(os.getpid()) - before >= 0.04
    assert 1_000_000 < resident_bytes(os.getpid()) < 10_000_000_000
