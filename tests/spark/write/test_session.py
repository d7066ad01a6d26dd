"""A session that writes is one with a server that can."""

from __future__ import annotations

import pytest
from psycopg.conninfo import make_conninfo

from django_pgqueue.exceptions import SparkError
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
