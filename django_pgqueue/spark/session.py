"""
Session: a Spark session that the data source and the pipeline's jobs can work in.

On one machine it is a Java process beside this one; on a cluster, its driver. It takes
plain values: management/spark_session.py reads them from a project's settings.
"""

from __future__ import annotations

import os
import re
import socket
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

from django_pgqueue.exceptions import SparkError
from django_pgqueue.extras import extra
from django_pgqueue.spark.dsn import DEFAULT_VARIABLE
from django_pgqueue.spark.java import is_running, java_home
from django_pgqueue.spark.jdbc.driver import jars
from django_pgqueue.spark.redact import Redaction

DEFAULT_MASTER = "local[2]"
DEFAULT_MEMORY = "1g"

MASTER = re.compile(r"local(\[[\d*, ]+\])?|spark://.+|yarn|k8s://.+|sc://.+")

# Where a server of Spark Connect listens, unless it is told otherwise.
CONNECT_PORT = 15002
CONNECT_SECONDS_MAX = 10

# What a client of Spark Connect imports.
OF_CONNECT = ("pandas", "grpc", "grpc_status", "google.rpc", "zstandard")
MEMORY = re.compile(r"[1-9]\d{0,6}[kmgt]b?", re.IGNORECASE)

TIME_ZONE = "spark.sql.session.timeZone"
# Else conditions on times are handed to a database in the zone of the driver's Java,
# which has an hour twice in autumn.
MOMENTS_IN_SESSION = "spark.sql.datetime.java8API.enabled"

# What every session has, unless it is told otherwise.
ALWAYS = {
    # Times are the database's: timestamptz, which is a moment in UTC.
    TIME_ZONE: "UTC",
    MOMENTS_IN_SESSION: "true",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
}

# Where the driver is a Java of ours: a bar that draws over what a command prints.
QUIET = {"spark.ui.showConsoleProgress": "false"}

# Where driver and executors are one process of this machine, nobody else has to reach
# it: not even its UI, which asks for no password.
LOOPBACK = "127.0.0.1"
LOCAL = {
    "spark.driver.bindAddress": LOOPBACK,
    "spark.driver.host": LOOPBACK,
    # Spark's 200 are for many machines: here most of a small job's time.
    "spark.sql.shuffle.partitions": "16",
}


_redactions: WeakKeyDictionary[Any, Redaction] = WeakKeyDictionary()


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
        master: local[N], spark://…, yarn, k8s://…, or sc://… for Spark Connect;
            None: $SPARK_MASTER, else local[2].
        memory: Of the driver, which on one machine is all there is: "1g". A server of
            Spark Connect has its own.
        config: Spark's own configuration, above what is set here.
        dsn: What the Java process finds in $PGQUEUE_DSN; None: what this process has
            there. It stands in no configuration. Executors on other machines, and a
            server of Spark Connect, need the variable, or a file, in an environment of
            their own.
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
    # The driver is a server elsewhere, which is spoken to by Spark Connect.
    if master.startswith("sc://"):
        session = _connected(name, master, config or {})
    else:
        session = _started(name, master, memory, config or {}, dsn)
    if redaction is not None:
        session.dataSource.register(source(redaction))
        _redactions[session] = redaction
    return session


def _started(
    name: str, master: str, memory: str, config: Mapping[str, str], dsn: str | None
) -> Any:
    """Return the session of a driver that is a Java process of this one's."""
    builder = extra("pyspark.sql").SparkSession.builder.appName(name).master(master)
    settings = {
        **ALWAYS,
        **QUIET,
        "spark.driver.memory": memory,
        **(LOCAL if is_local(master) else {}),
        **config,
        **jars(config),
    }
    with ExitStack() as stack:
        if not is_running():
            stack.enter_context(_launching(master, dsn))
        return builder.config(map=settings).getOrCreate()


def _connected(name: str, address: str, config: Mapping[str, str]) -> Any:
    """Return a session of a server of Spark Connect, which answers."""
    for package in OF_CONNECT:
        extra(package)
    _check_reachable(address)
    builder = extra("pyspark.sql").SparkSession.builder.appName(name).remote(address)
    session = builder.config(map={**ALWAYS, **config}).getOrCreate()
    version = str(session.version)
    ours = extra("pyspark").__version__
    if version.split(".")[:2] != ours.split(".")[:2]:
        raise SparkError(
            f"The server of Spark Connect has Spark {version} and this environment "
            f"pyspark {ours}: data sources need the same series on both sides."
        )
    return session


def source(redaction: Redaction) -> type[Any]:
    """
    Return the data source with *redaction* in it.

    Spark pickles the class along with each plan, which so reaches executors that have
    neither settings nor an environment of ours.
    """
    from django_pgqueue.spark.source import PgQueueSource

    return type("PgQueueSource", (PgQueueSource,), {"redaction": redaction})


def redaction_in(session: Any) -> Redaction:
    """Return what open_session() was told to hide in *session*, or what is default."""
    return _redactions.get(session, Redaction())


def is_local(master: str) -> bool:
    """Whether driver and executors are one process."""
    return master.startswith("local")


def _check_reachable(address: str) -> None:
    """Say at once what Spark's client would try for minutes."""
    # The rest of an address may hold a token.
    place = urlsplit(address.partition(";")[0].rstrip("/"))
    try:
        where = (place.hostname or "", place.port or CONNECT_PORT)
        socket.create_connection(where, CONNECT_SECONDS_MAX).close()
    except (OSError, ValueError) as error:
        raise SparkError(
            f"No server of Spark Connect can be reached at {place.geturl()}: {error}. "
            f"SPARK_MASTER, or 'master' of PGQUEUE['SPARK'], has its address, "
            f"sc://HOST:{CONNECT_PORT}."
        ) from None


def _checked_master(master: str) -> str:
    if not MASTER.fullmatch(master):
        raise SparkError(
            f"The master of Spark is {master!r}; it must be local[N], "
            f"spark://HOST:PORT, yarn, k8s://… or sc://HOST:PORT: $SPARK_MASTER, or "
            f"'master' of PGQUEUE['SPARK']."
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
