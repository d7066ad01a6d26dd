"""
The data pipeline: what moves or digests queue data in bulk, on Spark.

Nothing here imports Django, models or settings, so that an executor needs this package,
pyarrow and the ADBC driver (to write, psycopg), and nothing else. What a Django project
has set is read in management/spark_session.py and handed in as plain values.

Rows come by frames.py, which is Spark's own JDBC source where its driver is (jdbc/), or
by source.py, which is format("pgqueue"), page by page. The log of topics, also as a
stream, is in log/, and rows that become jobs or messages in write/. tables.py is the
contract, options.py what .option(…) may say.

A pipeline job is a function: job.py declares it, run.py is what it gets, running.py
runs it, and jobs/ has those of the package. What they write, read and replay is in
export/, ingest/ and replay/. The command that starts them is management's.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from django_pgqueue.spark.dsn import DsnSource
    from django_pgqueue.spark.frames import read
    from django_pgqueue.spark.jdbc.snapshot import Snapshot, snapshot

__all__ = ["DsnSource", "Snapshot", "read", "snapshot"]

# Imported when they are asked for: they bring a driver of the database.
_HOMES = {
    "DsnSource": "dsn",
    "Snapshot": "jdbc.snapshot",
    "read": "frames",
    "snapshot": "jdbc.snapshot",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
