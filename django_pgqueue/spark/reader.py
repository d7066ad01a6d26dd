"""
Reader: one task's rows, page by page, as Arrow batches.

A page is one short statement: the rows after the last id, in the order of the primary
key. It is fetched to its end before Spark gets the first batch of it, so that the
database waits neither for Spark nor for the pace. Meanwhile the next one is fetched,
unless there is a pace to keep. A page of large rows is broken off when it fills the
memory that it may take.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from django_pgqueue.extras import arrow
from django_pgqueue.spark.connect import Session
from django_pgqueue.spark.redact import Redaction, Redactor
from django_pgqueue.spark.slices import Slice
from django_pgqueue.spark.tables import Column, Table, arrow_type

# Rows of a page: some tenths of a second at full speed.
PAGE_ROWS_MAX = 50_000

# Bytes of a page in Arrow's layout, kept in memory until Spark has taken them. A task
# keeps two pages: one for Spark, and the one that is being fetched.
PAGE_BYTES_MAX = 33_554_432


class Pace:
    """
    One task's pace.

    Args:
        rows_per_second: Of this task; None: no limit.
        clock: Seconds, monotonic.
    """

    def __init__(
        self,
        rows_per_second: float | None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._rate = rows_per_second
        self._clock = clock
        # When the next page may be read, by the clock.
        self._free_at = clock()
        # At most what a second may have, so that a slow read is no row of bursts.
        self.page_rows = PAGE_ROWS_MAX
        if rows_per_second is not None:
            self.page_rows = max(1, min(PAGE_ROWS_MAX, int(rows_per_second)))

    def took(self, rows: int) -> float:
        """Count *rows* that were read; return the seconds until more may be."""
        if self._rate is None:
            return 0.0
        # Time that Spark took to swallow a page is no credit: there are no bursts.
        now = self._clock()
        self._free_at = max(self._free_at, now) + rows / self._rate
        return self._free_at - now

    def was_too_large(self, rows: int) -> None:
        """Ask for no more than *rows* again: so many were PAGE_BYTES_MAX."""
        self.page_rows = max(1, min(self.page_rows, rows))


# Locks: ACCESS SHARE on the table, for one page.
# The order is that of the primary key, of one day's partition in the archive, so that a
# page costs what it returns.
PAGE = """
SELECT {columns}
  FROM {relation}
 WHERE id >= {first} AND {condition}
 ORDER BY id LIMIT {limit}
"""


def read(
    session: Session,
    table: Table,
    columns: tuple[Column, ...],
    task: Sequence[Slice],
    *,
    redaction: Redaction,
    rows_per_second: float | None,
    wait: Callable[[float], None] = time.sleep,
) -> Iterator[Any]:
    """
    Yield the rows of *task* as pyarrow.RecordBatch.

    Args:
        columns: What Spark gets, in this order.
        task: The slices that are this task's.
        rows_per_second: Of this task; None: no limit.
        wait: Called with the seconds until the next page may be read.
    """
    page = _Page(session, table, columns, redaction)
    pace = Pace(rows_per_second)
    pages = _pages(page, task, pace)
    for batches in pages if rows_per_second is not None else _ahead(pages):
        pause = pace.took(sum(batch.num_rows for batch in batches))
        yield from batches
        if pause > 0:
            wait(pause)


def _pages(page: _Page, task: Sequence[Slice], pace: Pace) -> Iterator[list[Any]]:
    for part in task:
        first: int | None = part.first_id
        while first is not None:
            batches, first = page.read(part, first, pace)
            yield batches


def _ahead(pages: Iterator[list[Any]]) -> Iterator[list[Any]]:
    """Fetch each page in a thread, while Spark takes the one before."""
    with ThreadPoolExecutor(1, "pgqueue page") as pool:
        fetched = pool.submit(next, pages, None)
        while (batches := fetched.result()) is not None:
            fetched = pool.submit(next, pages, None)
            yield batches


class _Page:
    """What all pages of one task have in common."""

    def __init__(
        self,
        session: Session,
        table: Table,
        columns: tuple[Column, ...],
        redaction: Redaction,
    ) -> None:
        self._session = session
        self._table = table
        self._columns = columns
        self._redactor = Redactor(redaction)
        self._schema = arrow_schema(columns)
        # The id is what pages go by, and some arguments are secret in one task only.
        wanted = {"id"}
        if any(self._redactor.needs_task(column.name) for column in columns):
            wanted.add("task")
        missing = wanted - {column.name for column in columns}
        self._fetched = columns + tuple(c for c in table.columns if c.name in missing)

    def read(self, part: Slice, first: int, pace: Pace) -> tuple[list[Any], int | None]:
        """
        Read one page from the id *first* on.

        Returns its batches, and where the next page begins; None: the slice is read.
        """
        asked = pace.page_rows
        statement = PAGE.format(
            columns=", ".join(column.sql for column in self._fetched),
            relation=self._table.relation,
            first=first,
            condition=part.condition(self._table),
            limit=asked,
        )
        batches: list[Any] = []
        rows = size = 0
        last = first
        stream = self._session.batches(statement)
        for batch in stream:
            if batch.num_rows == 0:
                continue
            rows += batch.num_rows
            size += batch.nbytes
            last = batch.column("id")[-1].as_py()
            batches.append(self._shown(batch))
            if size > PAGE_BYTES_MAX and rows < asked:
                stream.close()
                self._session.reopen()
                pace.was_too_large(rows)
                break
        else:
            if rows < asked:
                return batches, None
        return batches, last + 1 if last < part.last_id else None

    def _shown(self, batch: Any) -> Any:
        """Return *batch* as Spark wants it, without secrets."""
        tasks = batch.column("task") if "task" in batch.schema.names else None
        arrays = []
        for column in self._columns:
            values = batch.column(column.name)
            if column.is_json:
                of = tasks if self._redactor.needs_task(column.name) else None
                values = self._redactor.masked(column.name, values, of)
            arrays.append(values)
        return arrow.RecordBatch.from_arrays(arrays, schema=self._schema)


def arrow_schema(columns: tuple[Column, ...]) -> Any:
    """Return the Arrow schema that Spark expects for *columns*, to the letter."""
    return arrow.schema([(c.name, arrow_type(c.type)) for c in columns])
