"""
Bulk: many rows in one statement, as one JSON array.

A list of 5,000 texts costs psycopg, which quotes each, more time than all the rest. And
Django writes parameters into the statement, which costs a large one half as much again
as without: so it is sent beside it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import psycopg

# Rows, and characters of arguments, per statement. Larger ones gain nothing and hold
# the caller longer; the server needs about ten times the characters as memory.
BULK_ROWS_MAX = 5_000
BULK_CHARACTERS_MAX = 8_388_608

# From so many on, a text had better not be within the statement; below, one message
# with all that belongs to it is quicker than several.
BULK_CURSOR_CHARACTERS = 32_768


class Items(NamedTuple):
    """The arguments of some jobs that are stored in one call."""

    # For each job a JSON array (positional arguments) or object (keyword arguments);
    # commas between.
    text: str
    jobs: int
    # Where in its window each job is due, in microseconds; empty: that is sampled, or
    # there is no window.
    offsets: Sequence[int] = ()
    # The lane of each job; empty: they wait for nobody.
    lanes: Sequence[str | None] = ()


def chunks(items: Sequence[Items], rows_max: int) -> Iterator[list[Items]]:
    """Yield what one statement stores: up to *rows_max* and BULK_CHARACTERS_MAX."""
    chunk: list[Items] = []
    rows = characters = 0
    for part in items:
        if chunk and (
            rows + part.jobs > rows_max
            or characters + len(part.text) > BULK_CHARACTERS_MAX
        ):
            yield chunk
            chunk, rows, characters = [], 0, 0
        chunk.append(part)
        rows += part.jobs
        characters += len(part.text)
    if chunk:
        yield chunk


def as_array(chunk: Sequence[Items]) -> str:
    """Return the arguments of all jobs as one JSON array."""
    return f"[{','.join(part.text for part in chunk)}]"


def bulk_cursor(connection: Any) -> Any:
    """
    Return a cursor of Django's that sends parameters beside the statement.

    It logs, wraps errors and is wrapped like connection.cursor(), whose parameters are
    written into the statement unless OPTIONS has server_side_binding.
    """
    connection.ensure_connection()
    connection.validate_thread_sharing()
    cursor = psycopg.Cursor(connection.connection)
    if connection.queries_logged:
        return connection.make_debug_cursor(cursor)
    return connection.make_cursor(cursor)


def may_prepare(connection: Any) -> bool:
    """
    Whether statements can be prepared on a connection of Django's.

    Django forbids it unless OPTIONS has a "prepare_threshold", since behind a pooler
    the next statement may go to another session.
    """
    connection.ensure_connection()
    return connection.connection.prepare_threshold is not None
