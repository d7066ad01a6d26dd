"""Messages of the log, and a stream's reader without a Spark that calls it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from django_pgqueue.spark import options
from django_pgqueue.spark.redact import Redaction
from tests.harness.waiting import wait_for
from tests.spark.conftest import require

PARTITIONS = 4


@pytest.fixture
def cursor(new_cursor: Any) -> Any:
    """A cursor in autocommit."""
    return new_cursor()


@pytest.fixture
def publish(cursor: Any) -> Callable[..., list[int]]:
    """
    ``publish(3)`` stores messages of the topic orders, and returns their ids.

    The first message of a topic makes it, with four partitions.
    """

    def publish(
        count: int = 1,
        topic: str = "orders",
        *,
        key: str | None = None,
        on: Any = None,
        payload: Any = None,
    ) -> list[int]:
        cursor.execute(
            "INSERT INTO pgqueue_topic (name, partitions) VALUES (%s, %s)"
            " ON CONFLICT DO NOTHING",
            [topic, PARTITIONS],
        )
        items = [
            (topic, str(n) if key is None else key, payload or {"n": n}, {})
            for n in range(count)
        ]
        sql = on or cursor
        sql.execute(
            "SELECT ids FROM pgqueue_store_messages(%s, %s)", [topic, json.dumps(items)]
        )
        ids: list[int] = sql.fetchone()[0]
        return ids

    return publish


@pytest.fixture
def backlog(cursor: Any, publish: Callable[..., list[int]]) -> Callable[[int], int]:
    """``backlog(100_000)`` stores so many messages of orders; how many there are."""

    def backlog(count: int) -> int:
        publish(1)
        cursor.execute(
            "INSERT INTO pgqueue_message (topic_id, partition, name, key, payload)"
            " SELECT t.id, n %% 4, 'orders', n::text, '{}'"
            "   FROM pgqueue_topic t, generate_series(2, %s) n WHERE t.name = 'orders'",
            [count],
        )
        return count

    return backlog


@contextmanager
def held_halfway(cursor: Any, path: Path, tasks: int = 1) -> Iterator[None]:
    """Keep the tasks that write a batch below *path* from reading their next page."""

    def writing() -> int:
        return len({file.parts[-4] for file in path.rglob("_temporary/**/*.parquet")})

    wait_for(lambda: writing() >= tasks, 60, "a batch is written")
    with cursor.connection.transaction():
        cursor.execute("LOCK TABLE pgqueue_message IN ACCESS EXCLUSIVE MODE")
        assert writing() >= tasks, "It was too quick."
        yield


@pytest.fixture
def stream(dsn: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Any]]:
    """``stream(topic="orders")`` is what Spark's driver would call."""
    require("pyspark", "pyarrow", "adbc_driver_postgresql")
    from django_pgqueue.spark.log.stream import LogStreamReader

    monkeypatch.setenv("PGQUEUE_DSN", dsn)
    opened: list[Any] = []

    def stream(topic: str = "orders", /, **given: str) -> Any:
        asked = options.parse({"table": "log", "topic": topic, **given}, streams=True)
        made = LogStreamReader(asked, asked.table.columns, Redaction())
        opened.append(made)
        return made

    yield stream
    for made in opened:
        made.stop()
