"""
How long the export of a day takes, and what it costs PostgreSQL and us.

    python -m tests.pipeline.export_rate [ROWS] [FORMAT]

With a server of its own, beside what else the machine does: processor time hardly
depends on that.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from datetime import date

from django_pgqueue.queues.partitions import make_partition
from tests.faults.server import Server
from tests.spark.conftest import ROOT
from tests.spark.rates import spent

ROWS = 2_000_000
DAY = "2026-01-02"

FILL = """
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


def main(rows: int, form: str) -> None:
    """Print a line."""
    with Server() as server, tempfile.TemporaryDirectory() as folder:
        environ = {**os.environ, "DATABASE_URL": server.url}
        environ |= {"DJANGO_SETTINGS_MODULE": "tests.settings"}
        django = [sys.executable, "-m", "django"]
        subprocess.run([*django, "migrate", "-v0"], cwd=ROOT, env=environ, check=True)
        with server.connect() as connection:
            make_partition(connection.cursor(), date.fromisoformat(DAY))
            connection.execute(FILL, {"rows": rows, "day": f"{DAY} 00:00+00"})
            connection.execute("VACUUM ANALYZE pgqueue_archived_job")
        said = (server.home / "data" / "postmaster.pid").read_text()
        export = [*django, "pgqueue_pipeline", "run", "export", "-o", f"path={folder}"]
        export += ["-o", f"format={form}", "-o", f"since={DAY}", "-o", f"until={DAY}"]
        began = time.monotonic()
        with (
            spent([os.getpid()]) as ours,
            spent([int(said.split()[0])]) as of_server,
        ):
            subprocess.run(export, cwd=ROOT, env=environ, check=True)
        took = time.monotonic() - began
    print(  # noqa: T201
        f"{rows:,} rows to {form}: {took:.1f} s; processor: {ours[0]:.1f} s, "
        f"PostgreSQL's {of_server[0]:.1f} s",
        flush=True,
    )


if __name__ == "__main__":
    given = sys.argv[1:]
    main(int(given[0]) if given else ROWS, given[1] if given[1:] else "parquet")
