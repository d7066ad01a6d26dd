"""
topics: publishing one by one and in bulk, what subscriptions add to it, and reading.

The yardstick is the topic that one would write by hand: yardstick_log.py. The measure
is as good as the worse of publishing in bulk and reading; what the others cost is
shown.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from django.db import connections, transaction

from django_pgqueue.management.bench import gauges, yardstick, yardstick_log
from django_pgqueue.management.bench.measure import (
    Measure,
    Opener,
    Plan,
    Run,
    Turns,
    at_least,
)
from django_pgqueue.management.bench.scratch import Scratch
from django_pgqueue.management.bench.worker import Worker
from django_pgqueue.models import Subscription
from django_pgqueue.topics.consume import consume
from django_pgqueue.topics.topic import topic

LOG = topic(yardstick_log.NAME)

PUBLISHED_MIN, READ_MIN = 50_000, 100_000

# With it, a payload takes about 100 bytes as JSON.
NOTE = "x" * 60
CUSTOMERS = 1_000

# For each message of a bulk publish, so many are read; and this share is published one
# by one, with a commit each.
READ_TIMES = 5
SINGLE_SHARE = 0.05

READERS = 4
BATCH = 500


def payloads(count: int) -> list[dict[str, Any]]:
    """Return the payloads of *count* messages."""
    return [
        {"order_id": n, yardstick_log.KEY: f"c{n % CUSTOMERS}", "note": NOTE}
        for n in range(count)
    ]


def declare_group() -> None:
    """Declare the group that reads; only workers that are to read have it."""

    @consume(
        LOG, group="bench", batch=BATCH, readers=READERS, name="pgqueue_bench.reads"
    )
    def reads(messages: list[Any]) -> None:
        """Do nothing with messages that are there as Python values."""


class Single(Turns):
    """Product: publish() in a loop. Yardstick: INSERT in a loop."""

    def __init__(self, scratch: Scratch, connection: yardstick.Connection) -> None:
        super().__init__(scratch)
        self._connection = connection

    def product(self, jobs: int) -> Run:
        """Return messages per second."""
        items = payloads(_share(jobs))
        started = time.perf_counter()
        for item in items:
            LOG.publish(item, key=item[yardstick_log.KEY])
        return Run([len(items) / (time.perf_counter() - started)])

    def yardstick(self, jobs: int) -> Run:
        """Return rows per second."""
        return self._insert(self._connection.cursor, jobs)

    def _insert(self, cursors: Callable[[], Any], jobs: int) -> Run:
        items = payloads(_share(jobs))
        return Run([len(items) / yardstick_log.publish(cursors, items)])


class SingleByDjango(Single):
    """Product: as Single. Yardstick: the same INSERT, through Django's connection."""

    def yardstick(self, jobs: int) -> Run:
        """Return rows per second."""
        return self._insert(connections[self.scratch.alias].cursor, jobs)


class Bulk(Turns):
    """Product: publish_many(). Yardstick: INSERT … SELECT, and a row per receiver."""

    def __init__(
        self, scratch: Scratch, connection: yardstick.Connection, subscriptions: int
    ) -> None:
        super().__init__(scratch)
        self._connection = connection
        self._subscriptions = subscriptions

    def product(self, jobs: int) -> Run:
        """Return messages per second."""
        items = payloads(jobs)
        started = time.perf_counter()
        LOG.publish_many(items, key=yardstick_log.KEY)
        rate = jobs / (time.perf_counter() - started)
        return Run([rate], {} if self._subscriptions else {"published": rate})

    def yardstick(self, jobs: int) -> Run:
        """Return rows per second."""
        seconds = yardstick_log.publish_many(
            self._connection, payloads(jobs), subscriptions=self._subscriptions
        )
        return Run([jobs / seconds])


class Read(Turns):
    """Product: a group of a real worker. Yardstick: SELECT, UPDATE, one thread."""

    def __init__(
        self, scratch: Scratch, connection: yardstick.Connection, worker: Worker
    ) -> None:
        super().__init__(scratch)
        self._connection = connection
        self._worker = worker

    def product(self, jobs: int) -> Run:
        """Return messages per second, from the commit of all of them."""
        alias = self.scratch.alias
        self._worker.rest()
        committed_at: list[float] = []
        with transaction.atomic(using=alias):
            # Registered first, so it runs between the commit and the wake.
            transaction.on_commit(
                lambda: committed_at.append(time.monotonic()), using=alias
            )
            items = payloads(jobs * READ_TIMES)
            first_id, *_ = LOG.publish_many(items, key=yardstick_log.KEY)
            with connections[alias].cursor() as cursor:
                ends = gauges.ends(cursor, first_id)
        seconds = self._worker.wait_until_read(ends, since=committed_at[0])
        rate = len(items) / seconds
        return Run([rate], {"read": rate})

    def yardstick(self, jobs: int) -> Run:
        """Return rows per second."""
        items = payloads(jobs * READ_TIMES)
        yardstick_log.publish_many(self._connection, items)
        seconds = yardstick_log.read(self._connection, lambda rows: None)
        return Run([len(items) / seconds])


def _share(jobs: int) -> int:
    return max(round(jobs * SINGLE_SHARE), 1)


def _single(kind: type[Single]) -> Opener:
    @contextmanager
    def opened(scratch: Scratch, plan: Plan) -> Iterator[Single]:
        with scratch.connect() as connection:
            yield kind(scratch, connection)

    return opened


def _bulk(subscriptions: int) -> Opener:
    @contextmanager
    def opened(scratch: Scratch, plan: Plan) -> Iterator[Bulk]:
        rows = Subscription.objects.using(scratch.alias)
        for n in range(subscriptions):
            rows.create(
                pattern=LOG.name, topic=LOG.name, queue=f"q{n}", task="pgqueue_bench"
            )
        with scratch.connect() as connection:
            yield Bulk(scratch, connection, subscriptions)
        rows.all().delete()

    return opened


@contextmanager
def _read(scratch: Scratch, plan: Plan) -> Iterator[Read]:
    with (
        scratch.connect() as connection,
        Worker(scratch, threads=1, reads=True) as worker,
    ):
        # It reads what is published from now on.
        worker.wait_while(lambda: not gauges.has_positions(worker.cursor))
        yield Read(scratch, connection, worker)


TOPICS = Measure(
    name="topics",
    what="publish one by one, in bulk with 0, 1, 5 subscriptions; read, 4 readers",
    unit="msg/s",
    jobs=20_000,
    goals=(
        at_least(0.7),
        at_least(PUBLISHED_MIN, "published", "msg/s"),
        at_least(READ_MIN, "read", "msg/s"),
    ),
    parts={
        "single": _single(Single),
        "single_django": _single(SingleByDjango),
        "bulk": _bulk(0),
        "bulk_1": _bulk(1),
        "bulk_5": _bulk(5),
        "read": _read,
    },
    counted=("bulk", "read"),
)
