"""
Processor seconds of Spark and of PostgreSQL: how far a core goes.

    python -m tests.benchmarks.spark.rates [ROWS] [export]

Rows are read and written by Spark; or else the pipeline job export writes a day of the
archive. All of it runs on one machine with a server of its own.
Processor time hardly depends on what else the machine does.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import date

from django_pgqueue.postgres.day_tables import ARCHIVE
from django_pgqueue.spark.session import open_session
from tests.benchmarks.environments import REPOSITORY
from tests.benchmarks.spark.processors import seconds_of
from tests.benchmarks.spark.server import Place, migrated_server

ROWS = 1_000_000
DAY = "2026-01-02"
DJANGO = [sys.executable, "-m", "django"]

FILL = """
INSERT INTO pgqueue_job (task, queue, kwargs)
SELECT 'shop.tasks.send', 'mail',
       jsonb_build_object('order_id', n, 'note', md5(n::text))
  FROM generate_series(1, %s) AS n
"""

FILL_DAY = """
INSERT INTO pgqueue_archived_job (id, queue, task, args, kwargs, run_after, enqueued_at,
       attempt, max_attempts, crashes, deliveries, state, result, started_at,
       finished_at, worker)
SELECT n, (ARRAY['mail', 'default', 'orders'])[1 + n %% 3], 'shop.tasks.t' || n %% 7,
       jsonb_build_array(n), jsonb_build_object('order_id', n, 'note', md5(n::text)),
       at, at, 1, 5, 0, 1, 'succeeded', jsonb_build_object('ok', n), at,
       at + interval '1s', 'host-1:4711'
  FROM (SELECT n, %(day)s::timestamptz + n * (interval '23h' / %(rows)s) AS at
          FROM generate_series(1, %(rows)s) AS n) AS r
"""


def main(rows: int, *, exports: bool) -> None:
    """Print a line for each way."""
    with migrated_server() as place:
        (measure_export if exports else measure_spark)(place, rows)


def measure_spark(place: Place, rows: int) -> None:
    """Read all columns of jobs, and write as many jobs."""
    with place.connect() as connection:
        connection.execute(FILL, [rows])
        connection.execute("VACUUM ANALYZE pgqueue_job")
    # So that Spark's own Pythons find the data source in this checkout.
    path = os.pathsep.join(
        [str(REPOSITORY), str(REPOSITORY / "django_pgqueue/spark/toplevel")]
    )
    os.environ["PYTHONPATH"] = path
    spark = open_session("rates", dsn=place.dsn)

    def read() -> None:
        frame = spark.read.format("pgqueue").option("partitions", 4).load()
        frame.write.format("noop").mode("overwrite").save()

    def write(rows: int = rows) -> None:
        frame = spark.range(0, rows, 1, 4).selectExpr(
            "id AS order_id", "md5(cast(id AS string)) AS note"
        )
        writer = frame.write.format("pgqueue").mode("append")
        writer.options(task="shop.tasks.send").save()

    # A Java is slow at first.
    read()
    write(rows // 10)
    report("read, all columns", rows, read, place.postmaster)
    report("write", rows, write, place.postmaster)
    spark.stop()


def measure_export(place: Place, rows: int) -> None:
    """Export a day, with verification."""
    with place.connect() as connection:
        ARCHIVE.make_day(connection.cursor(), date.fromisoformat(DAY))
        connection.execute(FILL_DAY, {"rows": rows, "day": f"{DAY} 00:00+00"})
        connection.execute("VACUUM ANALYZE pgqueue_archived_job")
    environ = {
        **os.environ,
        "DATABASE_URL": place.url,
        "DJANGO_SETTINGS_MODULE": "tests.settings",
    }
    with tempfile.TemporaryDirectory() as folder:
        options = (f"path={folder}", f"since={DAY}", f"until={DAY}")
        command = [*DJANGO, "pgqueue_pipeline", "run", "export"]
        for option in options:
            command += ["-o", option]

        def export() -> None:
            subprocess.run(command, cwd=REPOSITORY, env=environ, check=True)

        report("export", rows, export, place.postmaster)


def report(what: str, rows: int, act: Callable[[], None], postmaster: int) -> None:
    """Do it, and print what it took of either side."""
    began = time.monotonic()
    before = [seconds_of(pid) for pid in (os.getpid(), postmaster)]
    act()
    took = time.monotonic() - began
    after = [seconds_of(pid) for pid in (os.getpid(), postmaster)]
    ours, of_server = (
        (late - early) / rows * 1_000_000
        for early, late in zip(before, after, strict=True)
    )
    print(  # noqa: T201
        f"{what}: {took:.1f} s; processor per million rows: "
        f"{ours:.1f} s, PostgreSQL's {of_server:.1f} s",
        flush=True,
    )


if __name__ == "__main__":
    given = sys.argv[1:]
    main(int(given[0]) if given else ROWS, exports="export" in given)
