"""A stream's offsets, when its database is dumped and restored."""

from __future__ import annotations

import os
import shutil
import subprocess
from itertools import chain
from pathlib import Path

import psycopg
import pytest
from django.db import connection
from psycopg import sql
from psycopg.conninfo import make_conninfo

from django_pgqueue.exceptions import EmbeddedServerError, SparkError
from django_pgqueue.testing.embedded import find_binaries
from tests.spark.log.test_stream import drained, limit

pytestmark = pytest.mark.spark


def program(name):
    """Return where one of PostgreSQL's own programs is; skip the test without it."""
    try:
        beside = find_binaries().folder / name
    except EmbeddedServerError:
        beside = Path()
    found = str(beside) if beside.is_file() else shutil.which(name)
    if found is None:
        if os.environ.get("PGQUEUE_REQUIRE_ALL") == "1":
            pytest.fail(f"{name} is not installed (PGQUEUE_REQUIRE_ALL=1)")
        pytest.skip(f"{name} is not installed")
    return found


@pytest.fixture
def restored(dsn, cursor, tmp_path):
    """``restored()`` dumps the database, and returns the DSN of a copy of it."""
    name = f"{connection.settings_dict['NAME']}_restored"
    copy = make_conninfo(dsn, dbname=name)
    drop = sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(
        sql.Identifier(name)
    )

    def restored():
        file = str(tmp_path / "dump")
        dump = [program("pg_dump"), "-Fc", "--dbname", dsn, "--file", file]
        subprocess.run(dump, check=True, timeout=100, capture_output=True)
        cursor.execute(drop)
        cursor.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        # An older server than the program's does not know each setting of the dump.
        restore = [program("pg_restore"), "--no-owner", "--dbname", copy, file]
        subprocess.run(restore, check=False, timeout=100, capture_output=True)
        return copy

    yield restored
    cursor.execute(drop)


def test_offsets_survive_a_dump_and_its_restore(stream, publish, restored, monkeypatch):
    """The stream goes on in the copy, each message once. A copy that is older than the
    checkpoint is refused, whatever is published there, and says what to do."""
    ids = publish(20)
    reader = stream(starting="earliest")
    start = reader.initialOffset()
    middle = reader.latestOffset(start, limit(8))
    copy = restored()
    publish(2)
    _, beyond = drained(reader, middle)
    reader.stop()

    monkeypatch.setenv("PGQUEUE_DSN", copy)
    with psycopg.connect(copy, autocommit=True) as other:
        with pytest.raises(SparkError, match="What is published now gets ids"):
            drained(stream(), beyond)
        more = publish(5, on=other.cursor())
        with pytest.raises(
            SparkError, match="neither erased nor removed by retention: an older dump"
        ):
            drained(stream(), beyond)
        batches, _ = drained(stream(), middle)
        first, _ = drained(stream(), start)

    assert [ids + more] == first
    read = sorted(chain.from_iterable(batches))
    assert (len(ids) - 8 + len(more), more) == (len(read), read[-len(more) :])
    assert len(set(read)) == len(read)
