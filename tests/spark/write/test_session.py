"""A session that writes is one with a server that can."""

from __future__ import annotations

import pytest
from psycopg.conninfo import make_conninfo

from django_pgqueue.exceptions import SparkError
from django_pgqueue.spark.write.reap import reap
from django_pgqueue.spark.write.session import session

READ_ONLY = "-c default_transaction_read_only=on"


def test_a_standby_is_passed_over(dsn):
    """Of several servers, unless the DSN asks for another kind."""
    standby = make_conninfo(dsn, options=READ_ONLY)

    with pytest.raises(SparkError, match="read-only"), session(standby):
        pass
    with session(make_conninfo(standby, target_session_attrs="any")) as connection:
        assert ("on",) == connection.execute("SHOW transaction_read_only").fetchone()
    with session(dsn) as connection:
        assert ("off",) == connection.execute("SHOW transaction_read_only").fetchone()


def test_tables_that_are_not_there_are_told_with_the_way_out(dsn):
    """Those of a database that was not migrated, or of another search_path."""
    elsewhere = make_conninfo(dsn, options="-c search_path=nowhere")

    with pytest.raises(SparkError, match=r"pgqueue_spark_write.*migrate pgqueue"):
        reap(elsewhere)
