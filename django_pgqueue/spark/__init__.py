"""
The data pipeline: what moves or digests queue data in bulk, on Spark.

Nothing here imports Django, models or settings, so that an executor needs this package,
pyarrow and the ADBC driver (to write, psycopg), and nothing else. What a Django project
has set is read in management/spark_session.py and handed in as plain values.

frames.py reads tables and queries with Spark's own JDBC source where the driver is
installed (jdbc/). source.py is format("pgqueue"), which reads page by page. log/ reads
the log of topics, also as a stream, and write/ turns rows into jobs or messages.
tables.py is the contract, and options.py lists what .option(…) accepts.

A pipeline job is a function: job.py declares it, run.py is what it receives, running.py
runs it, and jobs/ holds the jobs of the package. lake/ is their Delta tables, and
replay.py brings messages and jobs back. The command that starts them is in management/.
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
