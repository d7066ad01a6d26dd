"""
The data pipeline: what moves or digests queue data in bulk, on Spark.

Nothing here imports Django, models or settings, so that an executor needs this package,
pyarrow and the ADBC driver (to write, psycopg), and nothing else. What a Django project
has set is read in management/spark_session.py and handed in as plain values.

    session.py    a Spark session: master, memory, time zone, what the source needs
    java.py       a Java that Spark runs on, found by running it
    jvm.py        what PySpark has no public name for, of its Java process
    dsn.py        where the database is; never in an option, a plan or an error
    tables.py     the tables, their columns and types: a contract with a version
    source.py     the data source: spark.read.format("pgqueue")
    option_table.py
                  what an option is, and how a table of them is read
    options.py    those of a read
    slices.py     which rows each task reads, fixed once for all of them
    query.py      the columns of an SQL query, and how it is divided
    frames.py     read(), and the rows of a query, as DataFrames
    jdbc/         what it reads by: Spark's own JDBC source, where its driver is
    connect.py    a session of the database, through ADBC
    reader.py     one task's rows, page by page, as Arrow batches
    pace.py       how many rows a page has, and how long to wait after it
    redact.py     secrets of a batch, masked before they leave the reader
    log/          the log of topics, at once or as a stream
    write/        rows of a DataFrame to jobs
    toplevel/     the module by which Spark finds the source

And the pipeline, whose jobs are functions of their run:

    job.py          how a pipeline job is declared, found and told its options
    destinations.py
                    where a job of the queue may let it write
    run.py          a run, from its start to its end; its row is pipeline/runs.py
    enqueue.py      rows that become jobs
    errors.py       what went wrong in Spark, in short
    fanout.py       rows of any DataFrame to jobs, spread over a window
    spread.py       the moment of each row within a window
    replay/         messages and jobs once more, from the database or from files
    jobs/           those of the package, each by its name
    submit.py       the same by spark-submit

The command that starts pipeline jobs is management's.
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
