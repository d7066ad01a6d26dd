"""A server of these tests' own, which may be crashed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.faults.server import Server
from tests.harness.waiting import wait_for
from tests.spark.conftest import ROOT, require

# Where a driver waits before it decides what becomes of its write.
HOLD = """
CREATE FUNCTION hold() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(4711);
    RETURN NEW;
END $$;
CREATE TRIGGER hold BEFORE UPDATE ON pgqueue_spark_write FOR EACH ROW
    WHEN (NEW.state IS DISTINCT FROM OLD.state) EXECUTE FUNCTION hold();
"""
HELD = """
SELECT count(*) FROM pg_locks
 WHERE locktype = 'advisory' AND objid = 4711 AND NOT granted
"""


@pytest.fixture(scope="package")
def server() -> Iterator[Server]:
    """A migrated server."""
    require("pyspark", "pyarrow", "adbc_driver_postgresql")
    with Server() as server:
        subprocess.run(
            [sys.executable, "-m", "django", "migrate", "-v0"],
            cwd=ROOT,
            env={
                **os.environ,
                "DATABASE_URL": server.url,
                "DJANGO_SETTINGS_MODULE": "tests.settings",
                "PYTHONPATH": str(ROOT),
            },
            check=True,
            timeout=100,
        )
        with server.connect() as connection:
            connection.execute(HOLD)
        yield server


@pytest.fixture(scope="package")
def dsn_file(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with the server's DSN, as a secret is mounted."""
    path = tmp_path_factory.mktemp("secret") / "dsn"
    path.write_text(server.url)
    return path


@pytest.fixture
def database(server: Server) -> Iterator[Any]:
    """A connection in autocommit; what the test leaves is removed."""
    with server.connect() as connection:
        yield connection
    with server.connect() as connection:
        # Whoever is left of the test, and holds a lock, is told of.
        connection.execute("SET lock_timeout = '20s'")
        for stage in stages(connection):
            connection.execute(f"DROP TABLE {stage}")
        connection.execute("TRUNCATE pgqueue_job, pgqueue_spark_write")


@pytest.fixture
def write(spark: Any, dsn_file: Path, database: Any) -> Callable[..., None]:
    """``write(frame, task="a.b")`` appends it as jobs; options by their names."""

    def write(frame: Any, **options: Any) -> None:
        writer = frame.write.format("pgqueue").mode("append")
        writer.options(dsnFile=str(dsn_file), **options).save()

    return write


class Held:
    """Drivers wait before they decide, until this is released."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection = connection
        connection.execute("SELECT pg_advisory_lock(4711)")

    def wait(self, database: psycopg.Connection[Any]) -> None:
        """Wait until a driver is there."""
        wait_for(
            lambda: database.execute(HELD).fetchone() == (1,), 60, "a driver decides"
        )

    def release(self) -> None:
        """Let it go on."""
        self._connection.close()


@pytest.fixture
def held(server: Server, database: Any) -> Iterator[Held]:
    """No driver decides before held.release()."""
    held = Held(server.connect())
    yield held
    held.release()


def stages(connection: psycopg.Connection[Any]) -> list[str]:
    """Return the names of all stages that there are."""
    rows = connection.execute(
        "SELECT oid::regclass::text FROM pg_class WHERE relname LIKE 'pgqueue_stage_%'"
        " AND relkind = 'r'"
    )
    return [name for (name,) in rows]


def journal(connection: psycopg.Connection[Any], columns: str) -> list[Any]:
    """Return *columns* of all writes."""
    return connection.execute(
        f"SELECT {columns} FROM pgqueue_spark_write ORDER BY started_at"
    ).fetchall()


def jobs(connection: psycopg.Connection[Any], columns: str = "kwargs") -> list[Any]:
    """Return *columns* of all jobs."""
    return connection.execute(
        f"SELECT {columns} FROM pgqueue_job ORDER BY id"
    ).fetchall()
