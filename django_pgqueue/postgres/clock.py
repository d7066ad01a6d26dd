"""
Clock: what time the server says it is, and SQL that is told another time.

Everything in this package goes by the server's clock. A test that wants it to stand
still cannot stop the server's, but it can say the moment in the SQL that it sends.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime

from django_pgqueue.postgres.cursor import Cursor, value

# Locks: none.
NOW = "SELECT statement_timestamp()"

# What asks for the time. Not inside of quotes, as the name of a column.
ASKS = re.compile(
    r"(?<![\w.\"'])(?:pg_catalog\.)?"
    r"(?:(?:statement_timestamp|clock_timestamp|transaction_timestamp|now)\s*\(\s*\)"
    r"|(?P<keyword>current_timestamp|current_date)(?![\w\"'(]))",
    re.IGNORECASE,
)

# Statements that read and write rows. Others would keep a moment for good, as the
# default of a column does.
READS_OR_WRITES = re.compile(
    r"[\s(]*(?:WITH|SELECT|INSERT|UPDATE|DELETE|MERGE|VALUES)\b", re.IGNORECASE
)


def server_now(cursor: Cursor) -> datetime:
    """Return the server's time, in UTC."""
    now: datetime = value(cursor, NOW)
    return now.astimezone(UTC)


def with_moment(sql: str, moment: datetime) -> str:
    """Return the statement *sql* with every question for the time answered."""
    if not READS_OR_WRITES.match(sql):
        return sql
    literal = f"'{moment.astimezone(UTC).isoformat()}'::timestamptz"

    def answer(found: re.Match[str]) -> str:
        is_date = (found["keyword"] or "").lower() == "current_date"
        return f"({literal})::date" if is_date else f"({literal})"

    return ASKS.sub(answer, sql)
