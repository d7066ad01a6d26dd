"""Procrastinate: an asynchronous app, as its documentation advises."""

from __future__ import annotations

import time
from typing import Any

import procrastinate
import psycopg

from tests.benchmarks.agent.program import Items, run
from tests.benchmarks.agent.tally import note as tally

# An empty conninfo leaves everything to libpq's environment variables.
app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=""))


@app.task(name="nothing")
async def nothing(order_id: int, note: str) -> None:
    """Do nothing."""
    tally(order_id)


async def setup() -> None:
    """Make its tables."""
    async with app.open_async():
        await app.schema_manager.apply_schema_async()


class Producer:
    """Defers; its own pool for single calls, a connection for transactions."""

    def __init__(self) -> None:
        self._connection: psycopg.AsyncConnection[Any] | None = None

    async def enqueue(self, items: Items, options: dict[str, Any]) -> None:
        """Call defer_async()."""
        await self._open()
        for item in items:
            await nothing.defer_async(**item)

    async def bulk(self, items: Items, options: dict[str, Any]) -> None:
        """Call batch_defer_async()."""
        await self._open()
        await nothing.batch_defer_async(*items)

    async def commit_one(self, items: Items, options: dict[str, Any]) -> int:
        """Defer on a connection of ours, then commit."""
        connection = await self._open()
        async with connection.transaction():
            await nothing.configure(connection=connection).defer_async(**items[0])
            return time.monotonic_ns()

    async def commit_many(self, items: Items, options: dict[str, Any]) -> int:
        """Defer a batch on a connection of ours, then commit."""
        connection = await self._open()
        async with connection.transaction():
            deferrer = nothing.configure(connection=connection)
            await deferrer.batch_defer_async(*items)
        return time.monotonic_ns()

    async def _open(self) -> psycopg.AsyncConnection[Any]:
        if self._connection is None:
            await app.open_async()
            self._connection = await psycopg.AsyncConnection.connect(autocommit=True)
        return self._connection


def work(options: dict[str, Any]) -> None:
    """Run a worker until a signal."""
    app.run_worker(concurrency=options["concurrency"])


if __name__ == "__main__":
    run(setup=setup, producer=Producer, work=work)
