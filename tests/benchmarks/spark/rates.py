"""
Processor seconds of Spark and of PostgreSQL: how far a core goes.

    python -m tests.benchmarks.spark.rates [ROWS] [parquet | delta]

Without a format, rows are read and written by Spark; with one, the pipeline job export
writes a day of the archive. All of it runs on one machine with a server of its own.
Processor time hardly depends on what else the machine does.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import date
from pathlib import Path

from django_pgqueue.queues.partitions import make_partition
from django_pgqueue.spark.session import open_session
from tests.faults.server import Server
from tests.harness.process_tree import descendants
from tests.spark.conftest import ROOT

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

TICKS = os.sysconf("SC_CLK_TCK")


def main(rows: int, form: str | None) -> None:
    """Print a line for each way."""
    with Server() as server:
        environ = {**os.environ, "DATABASE_URL": server.url}
        environ |= {"DJANGO_SETTINGS_MODULE": "tests.settings"}
        subprocess.run([*DJANGO, "migrate", "-v0"], cwd=ROOT, env=environ, check=True)
        said = (server.home / "data" / "postmaster.pid").read_text()
        postmaster = int(said.split()[0])
        if form is None:
            measure_spark(server, rows, postmaster)
        else:
            measure_export(server, rows, form, environ, postmaster)


def measure_spark(server: Server, rows: int, postmaster: int) -> None:
    """Read all columns of jobs, and write as many jobs."""
    with server.connect() as connection:
        connection.execute(FILL, [rows])
        connection.execute("VACUUM ANALYZE pgqueue_job")
    # So that Spark's own Pythons find the data source in this checkout.
    path = os.pathsep.join([str(ROOT), str(ROOT / "django_pgqueue/spark/toplevel")])
    os.environ["PYTHONPATH"] = path
    spark = open_session("rates", dsn=server.url)

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
    report("read, all columns", rows, read, postmaster)
    report("write", rows, write, postmaster)
    spark.stop()


def measure_export(
    server: Server, rows: int, form: str, environ: dict[str, str], postmaster: int
) -> None:
    """Export a day, with verification."""
    with server.connect() as connection:
        make_partition(connection.cursor(), date.fromisoformat(DAY))
        connection.execute(FILL_DAY, {"rows": rows, "day": f"{DAY} 00:00+00"})
        connection.execute("VACUUM ANALYZE pgqueue_archived_job")
    with tempfile.TemporaryDirectory() as folder:
        options = (f"path={folder}", f"format={form}", f"since={DAY}", f"until={DAY}")
        command = [*DJANGO, "pgqueue_pipeline", "run", "export"]
        for option in options:
            command += ["-o", option]

        def export() -> None:
            subprocess.run(command, cwd=ROOT, env=environ, check=True)

        report(f"export to {form}", rows, export, postmaster)


def report(what: str, rows: int, act: Callable[[], None], postmaster: int) -> None:
    """Do it, and print what it took of either side."""
    began = time.monotonic()
    with spent([os.getpid()]) as ours, spent([postmaster]) as of_server:
        act()
    took = time.monotonic() - began
    million = rows / 1_000_000
    print(  # noqa: T201
        f"{what}: {took:.1f} s; processor per million rows: "
        f"{ours[0] / million:.1f} s, PostgreSQL's {of_server[0] / million:.1f} s",
        flush=True,
    )


@contextmanager
def spent(roots: list[int]) -> Iterator[list[float]]:
    """Yield a list that gets the processor seconds of these and all below them."""
    seconds: list[float] = []
    before = used(roots)
    yield seconds
    seconds.append(used(roots) - before)


def used(roots: list[int]) -> float:
    """Return what they have used so far, with children that they have waited for."""
    ticks = 0
    for pid in {*roots, *(child for root in roots for child in descendants(root))}:
        try:
            stat = Path(f"/proc/{pid}/stat").read_text()
        except FileNotFoundError:
            continue
        ticks += sum(map(int, stat.rpartition(")")[2].split()[11:15]))
    return ticks / TICKS


if __name__ == "__main__":
    given = sys.argv[1:]
    main(int(given[0]) if given else ROWS, given[1] if given[1:] else None)
