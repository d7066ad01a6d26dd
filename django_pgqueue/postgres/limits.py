"""
Limits of one transaction: how long a statement may take, and which plans it may have.

For pages that people open: whoever closes a page that hangs leaves its query running,
opens it again, and so on until the database does nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from typing import NamedTuple

from django_pgqueue.postgres.cursor import Cursor, one_row

# Locks: none. The third argument: until the transaction ends. A shorter timeout, of
# the role say, stays; '0' is none. MATERIALIZED: read before it is changed.
LIMIT = """
WITH before AS MATERIALIZED (
    SELECT current_setting('statement_timeout') AS timeout,
           current_setting('enable_seqscan') AS seqscan,
           current_setting('enable_bitmapscan') AS bitmapscan,
           current_setting('jit') AS jit)
SELECT timeout, seqscan, bitmapscan, jit,
       set_config('statement_timeout',
                  CASE WHEN timeout <> '0'
                        AND timeout::interval < %(timeout)s::text::interval
                       THEN timeout ELSE coalesce(%(timeout)s::text, timeout) END,
                  true),
       set_config('enable_seqscan', coalesce(%(seqscan)s::text, seqscan), true),
       set_config('enable_bitmapscan', coalesce(%(bitmapscan)s::text, bitmapscan),
                  true),
       set_config('jit', 'off', true)
  FROM before
"""

RESTORE = """
SELECT set_config('statement_timeout', %(timeout)s, true),
       set_config('enable_seqscan', %(seqscan)s, true),
       set_config('enable_bitmapscan', %(bitmapscan)s, true),
       set_config('jit', %(jit)s, true)
"""

# Locks: none. MATERIALIZED: read before it is changed. Until the transaction ends.
UNSORTED = """
WITH before AS MATERIALIZED (
    SELECT current_setting('enable_sort') AS sort,
           current_setting('enable_incremental_sort') AS incremental)
SELECT sort, incremental, set_config('enable_sort', 'off', true),
       set_config('enable_incremental_sort', 'off', true)
  FROM before
"""
RESTORE_SORTS = """
SELECT set_config('enable_sort', %(sort)s, true),
       set_config('enable_incremental_sort', %(incremental)s, true)
"""


class Plans(Enum):
    """
    Which scans of a table the planner may choose.

    A statement that is bounded by the order of an index is planned otherwise before
    PostgreSQL has statistics of the table: as a scan and a sort of all of it.
    """

    ANY = dict[str, str]()  # As the server has them.
    # Along an index, in its order.
    IN_ORDER = {"enable_seqscan": "off", "enable_bitmapscan": "off"}
    # By an index that has no order, such as that of the tags.
    BY_INDEX = {"enable_seqscan": "off", "enable_bitmapscan": "on"}


class Before(NamedTuple):
    """What held before limit()."""

    timeout: str
    seqscan: str
    bitmapscan: str
    jit: str


def limit(cursor: Cursor, *, seconds: int | None, plans: Plans = Plans.ANY) -> Before:
    """
    Limit the statements of the open transaction, and return what held before.

    Args:
        cursor: A cursor inside of a transaction.
        seconds: What a statement may take; it fails with QueryCanceled then. None: as
            long as it may already.
        plans: Which scans they may use.
    """
    params = {
        "timeout": None if seconds is None else f"{seconds}s",
        "seqscan": plans.value.get("enable_seqscan"),
        "bitmapscan": plans.value.get("enable_bitmapscan"),
    }
    cursor.execute(LIMIT, params)
    return Before(*one_row(cursor)[: len(Before._fields)])


def restore(cursor: Cursor, before: Before) -> None:
    """Undo limit() inside of a transaction that goes on."""
    cursor.execute(RESTORE, before._asdict())


@contextmanager
def planned(cursor: Cursor, plans: Plans) -> Iterator[Cursor]:
    """Lend *cursor*, in a transaction, for statements that are planned so."""
    before = limit(cursor, seconds=None, plans=plans)
    yield cursor
    restore(cursor, before)


@contextmanager
def along_index(cursor: Cursor) -> Iterator[Cursor]:
    """
    Lend *cursor*, in a transaction with Plans.IN_ORDER, for statements without a sort.

    Such as end at a limit along one index: of a table that it takes for an empty one,
    the planner reads all by another index instead, and sorts that.
    """
    cursor.execute(UNSORTED)
    sort, incremental, *_ = one_row(cursor)
    yield cursor
    cursor.execute(RESTORE_SORTS, {"sort": sort, "incremental": incremental})
