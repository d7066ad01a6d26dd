"""
Session: notices what a connection is made to keep beyond its transaction.

SET, a session's advisory lock, a temporary table, LISTEN, a prepared statement, an
open cursor: whoever uses the connection next would inherit it. To ask the server costs
a round trip; this reads the beginning of each statement as it is sent, in about a
microsecond. Whatever is not known to be harmless counts as a change.

Not seen: what a function of the server does on its own, such as a PL/pgSQL function
that calls set_config() or pg_advisory_lock().
"""

from __future__ import annotations

import functools
import re
from typing import Any

from psycopg.pq import TransactionStatus

from django_pgqueue.postgres.cursor import Cursor

MARK = "pgqueue_watch"

# Locks: none. Only after a job that used cursors of the server, for one round trip.
CLOSE_ALL = "CLOSE ALL"

# What leaves nothing behind in the session, behind any comment or parenthesis.
HARMLESS = re.compile(
    r"(?:\s+|\(|/\*.*?\*/|--[^\n]*\n)*"
    r"(?:SELECT|INSERT|UPDATE|DELETE|MERGE|WITH|VALUES|TABLE|EXPLAIN|SHOW"
    r"|BEGIN|START|COMMIT|END|ROLLBACK|ABORT|SAVEPOINT|RELEASE|LOCK|COPY|FETCH|MOVE"
    r"|CLOSE|NOTIFY|UNLISTEN|TRUNCATE|ANALYZE|VACUUM|REFRESH"
    r"|SET\s+(?:LOCAL|CONSTRAINTS|TRANSACTION))\b",
    re.IGNORECASE | re.DOTALL,
)
# Functions that change the session; looked for in lower case. Locks of a transaction
# are called pg_advisory_xact_lock.
HARMFUL = ("set_config", "advisory_lock", "dblink_connect")
INTO_TEMPORARY = re.compile(r"\binto\s+(?:local\s+|global\s+)?temp")

# Longer ones are data rather than code; their beginning says what they are.
CHARACTERS_READ_MAX = 20_000

# The ORM sends the same statements over and over. Longer ones are not remembered.
REMEMBERED_MAX = 1_000
REMEMBERED_CHARACTERS_MAX = 4_000


class Watch:
    """What was noticed on one connection."""

    __slots__ = ("begun", "change", "named_cursors", "settings")

    def __init__(self, raw: Any) -> None:
        self.begun = 0  # Transactions.
        self.change: str | None = None  # The beginning of the statement.
        self.named_cursors = 0  # Django's count of them, when they were closed last.
        self.settings = _settings(raw)

    def what_is_left(self, raw: Any) -> str | None:
        """Say what the session keeps; None: nothing that was noticed."""
        if self.change is not None:
            return self.change
        return None if _settings(raw) == self.settings else "psycopg's own settings"


def watch(raw: Any) -> Watch:
    """
    Notice from now on what is sent through cursors of *raw*, and return the notes.

    Args:
        raw: A psycopg connection; twice is as good as once.
    """
    found: Watch | None = getattr(raw, MARK, None)
    if found is None:
        found = Watch(raw)
        setattr(raw, MARK, found)
        raw.cursor_factory = _watching(raw.cursor_factory)
    return found


def close_cursors(raw: Any) -> None:
    """Close the cursors of the server that outlive transactions (WITH HOLD)."""
    raw.execute(CLOSE_ALL)


def changes_session(statement: str) -> bool:
    """Whether *statement* may change what outlives its transaction."""
    if len(statement) <= REMEMBERED_CHARACTERS_MAX:
        return _remembered(statement)
    return _changes(statement[:CHARACTERS_READ_MAX])


@functools.lru_cache(REMEMBERED_MAX)
def _remembered(statement: str) -> bool:
    return _changes(statement)


def _changes(text: str) -> bool:
    if ";" in text:
        return any(_changes(part) for part in text.split(";") if part.strip())
    if HARMLESS.match(text) is None:
        return True
    lower = text.lower()
    return any(word in lower for word in HARMFUL) or (
        " temp" in lower and INTO_TEMPORARY.search(lower) is not None
    )


def _settings(raw: Any) -> tuple[Any, ...]:
    return (
        raw.autocommit,
        raw.isolation_level,
        raw.read_only,
        raw.deferrable,
        raw.row_factory,
        raw.prepare_threshold,
    )


def _note(cursor: Cursor, query: Any) -> None:
    raw = cursor.connection
    found: Watch | None = getattr(raw, MARK, None)
    if found is None:
        return
    if not raw.autocommit and raw.pgconn.transaction_status == TransactionStatus.IDLE:
        found.begun += 1
    if found.change is None:
        text = _text(query, raw)
        if changes_session(text):
            found.change = " ".join(text.split())[:60]


def _text(query: Any, raw: Any) -> str:
    if isinstance(query, str):
        return query
    if isinstance(query, bytes):
        return query.decode(errors="replace")
    if hasattr(query, "as_string"):
        return str(query.as_string(raw))
    return "a template"  # Python 3.14's: what it becomes is not known here.


@functools.cache
def _watching(factory: type[Any]) -> type[Any]:
    """Return *factory* with cursors that note what they send."""

    class Watching(factory):  # type: ignore[misc]
        def execute(self, query: Any, *args: Any, **options: Any) -> Any:
            _note(self, query)
            return super().execute(query, *args, **options)

        def executemany(self, query: Any, *args: Any, **options: Any) -> Any:
            _note(self, query)
            return super().executemany(query, *args, **options)

        def stream(self, query: Any, *args: Any, **options: Any) -> Any:
            _note(self, query)
            return super().stream(query, *args, **options)

        def copy(self, statement: Any, *args: Any, **options: Any) -> Any:
            _note(self, statement)
            return super().copy(statement, *args, **options)

    Watching.__name__ = Watching.__qualname__ = factory.__name__
    return Watching
