"""
Processor seconds per million rows, of Spark and of PostgreSQL: how far a core goes.

    python -m tests.spark.rates [ROWS]

Read and written on one machine, with a server of its own; processor time hardly depends
on what else the machine does.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from django_pgqueue.spark.session import open_session
from tests.faults.server import Server
from tests.spark.cluster.cluster import descendants
from tests.spark.conftest import ROOT

ROWS = 1_000_000

FILL = """
INSERT INTO pgqueue_job (task, queue, kwargs)
SELECT 'shop.tasks.send', 'mail',
       jsonb_build_object('order_id', n, 'note', md5(n::text))
  FROM generate_series(1, %s) AS n
"""

TICKS = os.sysconf("SC_CLK_TCK")


def main(rows: int) -> None:
    """Print a line for each way."""
    with Server() as server:
        environ = {**os.environ, "DATABASE_URL": server.url}
        environ |= {"DJANGO_SETTINGS_MODULE": "tests.settings"}
        migrate = [sys.executable, "-m", "django", "migrate", "-v0"]
        subprocess.run(migrate, cwd=ROOT, env=environ, check=True)
        with server.connect() as connection:
            connection.execute(FILL, [rows])
            connection.execute("VACUUM ANALYZE pgqueue_job")
        said = (server.home / "data" / "postmaster.pid").read_text()
        postmaster = int(said.split()[0])
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


def report(what: str, rows: int, act: Callable[[], None], postmaster: int) -> None:
    """Do it, and print what it took of either side."""
    with spent([os.getpid()]) as of_spark, spent([postmaster]) as of_server:
        act()
    million = rows / 1_000_000
    print(  # noqa: T201
        f"{what}: Spark {of_spark[0] / million:.1f} s, "
        f"PostgreSQL {of_server[0] / million:.1f} s of processor per million rows",
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
    main(int(sys.argv[1]) if len(sys.argv) > 1 else ROWS)
