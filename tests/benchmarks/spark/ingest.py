"""
How quick the pipeline job ingest writes a backlog of the log to Parquet.

    python -m tests.benchmarks.spark.ingest [--rows 1000000] [--turns 3] [--json FILE]

A server and a Spark of the run's own. A run of 10,000 messages comes first, since a
Java is slow at first; each turn then reads the same backlog from its beginning, with a
checkpoint and a folder of its own, and what it has written is counted.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

from pyarrow import dataset

from django_pgqueue.spark.job import find_job
from django_pgqueue.spark.run import Plan, run_job
from django_pgqueue.spark.session import open_session
from tests.benchmarks.environments import REPOSITORY
from tests.benchmarks.machine import load, machine
from tests.benchmarks.spark.server import Place, migrated_server

MASTER, MEMORY = "local[2]", "2g"
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
    return int(dataset.dataset(path, format="parquet").count_rows())


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, and print a line for each turn."""
    import django_pgqueue.pipelines  # noqa: F401  # Declares the job.

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args(arguments)
    toplevel = REPOSITORY / "django_pgqueue" / "spark" / "toplevel"
    os.environ["PYTHONPATH"] = os.pathsep.join(map(str, (REPOSITORY, toplevel)))
    rates = []
    before = load()
    with migrated_server() as place, tempfile.TemporaryDirectory() as folder:
        session = open_session("ingest", master=MASTER, memory=MEMORY, dsn=place.dsn)
        session.sparkContext.setLogLevel("ERROR")
        fill(place, "warm", WARM_ROWS)
        ingest(place, session, "warm", Path(folder, "warm"))
        fill(place, "orders", asked.rows)
        for turn in range(asked.turns):
            path = Path(folder, str(turn))
            seconds = ingest(place, session, "orders", path)
            assert written(path) == asked.rows
            rates.append(asked.rows / seconds)
            print(  # noqa: T201
                f"turn {turn + 1}: {seconds:.1f} s, {rates[-1]:,.0f} messages/s",
                flush=True,
            )
        version = session.version
        session.stop()
    print(f"median: {median(rates):,.0f} messages/s")  # noqa: T201
    if asked.json:
        told = {
            "at": datetime.datetime.now(datetime.UTC).isoformat("T", "seconds"),
            "machine": machine(),
            "load": before,
            "PySpark": version,
            "rows": asked.rows,
            "messages_per_second": [round(rate) for rate in rates],
            "median": round(median(rates)),
        }
        asked.json.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
