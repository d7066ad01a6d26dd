"""
Session: a Spark session that the data source and the pipeline's jobs can work in.

On one machine it is a Java process beside this one; on a cluster, its driver. It takes
plain values: management/spark_session.py reads them from a project's settings.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

from django_pgqueue.exceptions import SparkError
from django_pgqueue.spark.dsn import DEFAULT_VARIABLE
from django_pgqueue.spark.extras import extra
from django_pgqueue.spark.java import java_home
from django_pgqueue.spark.redact import Redaction

DEFAULT_MASTER = "local[2]"
DEFAULT_MEMORY = "1g"

MASTER = re.compile(r"local(\[[\d*, ]+\])?|spark://.+|yarn|k8s://.+")
MEMORY = re.compile(r"[1-9]\d{0,6}[kmgt]b?", re.IGNORECASE)

# Up to 4.3, Spark keeps the conditions that it has pushed with what load() returns, and
# not with each query: once that was read with a condition, each later query without
# one, and each other use of it in the same query, is read with that condition too, and
# so lacks rows. So conditions are pushed only where each use has its own: see
# pushing_filters().
PUSHES_FILTERS = "spark.sql.python.filterPushdown.enabled"

# What every session has, unless it is told otherwise.
ALWAYS = {
    # Times are the database's: timestamptz, which is a moment in UTC.
    "spark.sql.session.timeZone": "UTC",
    PUSHES_FILTERS: "false",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # A bar that draws over what a command prints.
    "spark.ui.showConsoleProgress": "false",
}

# Where driver and executors are one process of this machine, nobody else has to reach
# it: not even its UI, which asks for no password.
LOOPBACK = "127.0.0.1"
LOCAL = {
    "spark.driver.bindAddress": LOOPBACK,
    "spark.driver.host": LOOPBACK,
    # Spark's 200 are for many machines: here most of a small job's time.
    "spark.sql.shuffle.partitions": "16",
}


def open_session(
    name: str,
    *,
    master: str | None = None,
    memory: str = DEFAULT_MEMORY,
    config: Mapping[str, str] | None = None,
    dsn: str | None = None,
    redaction: Redaction | None = None,
) -> Any:
    """
    Return a SparkSession in which format("pgqueue") works.

    A session that this process has already is returned with *config* and *redaction*
    applied; its master, memory and DSN are what they are.

    Args:
        name: The application, as Spark's UI shows it.
        master: local[N], spark://…, yarn or k8s://…; None: $SPARK_MASTER, else
            local[2].
        memory: Of the driver, which on one machine is all there is: "1g".
        config: Spark's own configuration, above what is set here.
        dsn: What the Java process finds in $PGQUEUE_DSN; None: what this process has
            there. It stands in no configuration. Executors on other machines need the
            variable, or a file, in an environment of their own.
        redaction: What is hidden; None: the default patterns, which need no word to
            Spark.

    Raises:
        MissingExtra: pyspark, pyarrow or the ADBC driver is not installed.
        SparkError: A wrong master or memory, or no Java.
    """
    for package in ("pyspark", "pyarrow", "adbc_driver_postgresql"):
        extra(package)
    master = _checked_master(master or os.environ.get("SPARK_MASTER") or DEFAULT_MASTER)
    if not MEMORY.fullmatch(memory):
        raise SparkError(f"The memory of Spark is {memory!r}; write '512m' or '1g'.")
    sql = extra("pyspark.sql")
    builder = sql.SparkSession.builder.appName(name).master(master)
    settings = {
        **ALWAYS,
        "spark.driver.memory": memory,
        **(LOCAL if is_local(master) else {}),
        **(config or {}),
    }
    for key, value in settings.items():
        builder = builder.config(key, value)
    with ExitStack() as stack:
        if extra("pyspark").SparkContext._gateway is None:
            stack.enter_context(_launching(master, dsn))
        session = builder.getOrCreate()
    if redaction is not None:
        session.dataSource.register(source(redaction))
    return session


def source(redaction: Redaction) -> type[Any]:
    """
    Return the data source with *redaction* in it.

    Spark pickles the class along with each plan, which so reaches executors that have
    neither settings nor an environment of ours.
    """
    from django_pgqueue.spark.source import PgQueueSource

    return type("PgQueueSource", (PgQueueSource,), {"redaction": redaction})


@contextmanager
def pushing_filters(session: Any) -> Iterator[None]:
    """
    Leave conditions to PostgreSQL, for queries that are right with it.

    Each of them reads what one load() has returned once, and with a condition.
    """
    before = session.conf.get(PUSHES_FILTERS)
    session.conf.set(PUSHES_FILTERS, "true")
    try:
        yield
    finally:
        session.conf.set(PUSHES_FILTERS, before)


def is_local(master: str) -> bool:
    """Whether driver and executors are one process."""
    return master.startswith("local")


def _checked_master(master: str) -> str:
    if not MASTER.fullmatch(master):
        raise SparkError(
            f"The master of Spark is {master!r}; it must be local[N], "
            f"spark://HOST:PORT, yarn or k8s://…: $SPARK_MASTER, or 'master' of "
            f"PGQUEUE['SPARK']."
        )
    return master


@contextmanager
def _launching(master: str, dsn: str | None) -> Iterator[None]:
    """Set what the Java process inherits, and take it back when that runs."""
    with java_home() as home:
        changes = {
            "JAVA_HOME": str(home),
            # Else Spark's workers are whatever `python3` is on PATH.
            "PYSPARK_PYTHON": os.environ.get("PYSPARK_PYTHON", sys.executable),
        }
        if dsn is not None:
            changes[DEFAULT_VARIABLE] = dsn
        if is_local(master):
            changes["SPARK_LOCAL_IP"] = os.environ.get("SPARK_LOCAL_IP", LOOPBACK)
        before = {key: os.environ.get(key) for key in changes}
        os.environ.update(changes)
        try:
            yield
        finally:
            for key, value in before.items():
                if value is None:
                    os.environ.pop(key, None)
                else:
                    os.environ[key] = value
