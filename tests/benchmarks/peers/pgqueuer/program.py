"""PgQueuer: a worker on one asyncpg connection, as its documentation advises."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import pgqueuer
import uvloop
from pgqueuer.db import AsyncpgDriver
from pgqueuer.models import Job
from pgqueuer.queries import Queries

from tests.benchmarks.agent.program import Items, run
from tests.benchmarks.agent.tally import note

ENTRYPOINT = "nothing"


async def setup() -> None:
    """Make its tables, with the autovacuum settings that it advises."""
    connection = await asyncpg.connect()
    queries = Queries(AsyncpgDriver(connection))
    await queries.install()
    await queries.optimize_autovacuum()
    await connection.close()


class Producer:
    """Enqueues on one connection."""

    def __init__(self) -> None:
        self._connection: asyncpg.Connection[Any] | None = None

    async def enqueue(self, items: Items, options: dict[str, Any]) -> None:
        """Call enqueue()."""
        queries = Queries(AsyncpgDriver(await self._open()))
        for item in items:
            await queries.enqueue(ENTRYPOINT, json.dumps(item).encode())

    async def bulk(self, items: Items, options: dict[str, Any]) -> None:
        """Call enqueue() with lists."""
        queries = Queries(AsyncpgDriver(await self._open()))
        payloads: list[bytes | None] = [json.dumps(item).encode() for item in items]
        await queries.enqueue([ENTRYPOINT] * len(items), payloads, [0] * len(items))

    async def commit_one(self, items: Items, options: dict[str, Any]) -> int:
        """Enqueue, then commit."""
        connection = await self._open()
        async with connection.transaction():
            await self.enqueue(items, options)
            return time.monotonic_ns()

    async def commit_many(self, items: Items, options: dict[str, Any]) -> int:
        """Enqueue lists, then commit."""
        connection = await self._open()
        async with connection.transaction():
            await self.bulk(items, options)
        return time.monotonic_ns()

    async def _open(self) -> asyncpg.Connection[Any]:
        if self._connection is None:
            self._connection = await asyncpg.connect()
        return self._connection


@asynccontextmanager
async def factory() -> AsyncIterator[pgqueuer.PgQueuer]:
    """Make what `pgq run` runs."""
    connection = await asyncpg.connect()
    manager = pgqueuer.PgQueuer(AsyncpgDriver(connection))

    @manager.entrypoint(ENTRYPOINT)
    async def nothing(job: Job) -> None:
        note(json.loads(job.payload or b"")["order_id"])

    yield manager
    await connection.close()


def work(options: dict[str, Any]) -> None:
    """Do what `pgq run` does, until a signal."""
    uvloop.run(pgqueuer.run(factory, batch_size=options["batch"]))


if __name__ == "__main__":
    run(setup=setup, producer=Producer, work=work)
