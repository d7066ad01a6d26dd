"""
Ingest: how quick the pipeline job writes a backlog of the log to a table.

A backlog of 10,000 messages comes first, since a Java is slow at first; each turn then
reads the same backlog from its beginning, with a checkpoint and a folder of its own,
and what it has written is counted.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from django_pgqueue.spark.job import find_job
from django_pgqueue.spark.run import Plan
from django_pgqueue.spark.running import run_job
from tests.benchmarks.spark.server import Place

WARM_ROWS = 10_000

# 220 bytes a message, in 16 partitions and one day.
FILL = """
INSERT INTO pgqueue_message (topic_id, partition, name, key, payload)
SELECT t.id, n %% 16, t.name || '.created', 'c' || n %% 5000,
       jsonb_build_object('order_id', n, 'name', 'customer ' || n, 'amount', n * 1.25)
  FROM pgqueue_topic t, generate_series(1, %(rows)s) AS n
 WHERE t.name = %(topic)s
"""


def fill(place: Place, topic: str, rows: int) -> None:
    """Store *rows* messages of a topic of its own."""
    with place.connect() as connection:
        connection.execute("INSERT INTO pgqueue_topic (name) VALUES (%s)", [topic])
        connection.execute(FILL, {"topic": topic, "rows": rows})
        connection.execute("VACUUM (ANALYZE) pgqueue_message")
        connection.execute("CHECKPOINT")


def ingest(place: Place, session: Any, topic: str, path: Path) -> float:
    """Write the topic's backlog to *path*; return the seconds of the run."""

    @contextmanager
    def sessions() -> Iterator[Any]:
        yield session

    job = find_job("ingest")
    plan = Plan(
        job=job,
        options=job.read_options({"topic": topic, "path": str(path)}),
        dsn=place.dsn,
        sessions=sessions,
    )
    began = time.perf_counter()
    ended = run_job(plan)
    assert ended.error is None, ended.error
    return time.perf_counter() - began


def written(path: Path) -> int:
    """Return how many messages a plain reader finds."""
    from deltalake import DeltaTable

    return int(DeltaTable(path).to_pyarrow_dataset().count_rows())


def turns(
    place: Place, session: Any, rows: int, count: int, say: Callable[[str], None]
) -> dict[str, list[float]]:
    """Ingest *rows* messages *count* times; return the seconds of each turn."""
    seconds = []
    fill(place, "warm", WARM_ROWS)
    fill(place, "orders", rows)
    with tempfile.TemporaryDirectory() as folder:
        ingest(place, session, "warm", Path(folder, "warm"))
        for turn in range(count):
            path = Path(folder, str(turn))
            seconds.append(round(ingest(place, session, "orders", path), 3))
            if written(path) != rows:
                raise AssertionError(f"ingest: {written(path):,} messages, not {rows}")
            say(f"ingest {turn + 1}: {rows / seconds[-1]:,.0f} messages/s")
    return {"seconds": seconds}
