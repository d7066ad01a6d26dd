"""The yardstick: the functions of management/bench.py in processes of their own."""

from __future__ import annotations

import time
from typing import Any

import psycopg

from django_pgqueue.management import bench
from tests.benchmarks.agent.program import Items, run
from tests.benchmarks.agent.tally import note

CHANNEL = "pgqueue_yardstick"
NOTIFY = "SELECT pg_notify(%s, %s)"

# A table that autovacuum met when it was empty is expected to have one row. The claim
# would then look through all of it for each of the batch: a thousand jobs a second.
BY_INDEX = "SET enable_seqscan = off"


def setup() -> None:
    """Make its table."""
    with psycopg.connect(autocommit=True) as connection:
        connection.execute(bench.CREATE_YARDSTICK)


class Producer:
    """Inserts and notifies."""

    def __init__(self) -> None:
        self._connection = psycopg.connect(autocommit=True)

    def enqueue(self, items: Items, options: dict[str, Any]) -> None:
        """Insert and notify in one statement each."""
        for item in items:
            bench.insert(self._connection, item)

    def bulk(self, items: Items, options: dict[str, Any]) -> None:
        """Insert all in one statement."""
        bench.bulk(self._connection, items)

    def commit_one(self, items: Items, options: dict[str, Any]) -> int:
        """Insert and notify, then commit."""
        _, commits_at = bench.publish(self._connection, items[0])
        return round(commits_at * 1e9)

    def commit_many(self, items: Items, options: dict[str, Any]) -> int:
        """Insert all and notify once, then commit."""
        with self._connection.transaction():
            bench.bulk(self._connection, items)
            self._connection.execute(NOTIFY, [CHANNEL, bench.QUEUE])
        return time.monotonic_ns()


def work(options: dict[str, Any]) -> None:
    """LISTEN, and claim until nothing is left."""
    listening = psycopg.connect(autocommit=True)
    claiming = psycopg.connect(autocommit=True)
    claiming.execute(BY_INDEX)
    listening.execute(bench.LISTEN)
    while True:
        bench.drain(claiming, lambda _, payload: note(payload["order_id"]))
        for _ in listening.notifies(stop_after=1):
            pass


if __name__ == "__main__":
    run(setup=setup, producer=Producer, work=work)
