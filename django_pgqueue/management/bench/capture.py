"""
capture: what it costs a statement that its rows are published, by changed row.

Statements of one row and of all rows, in one transaction, beside the same statements
without capture. And commits of one row each on eight connections: the trigger notifies
in the transaction (wakes="now"), beside none, which is what Django's writes have.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace as changed

from django.db import connections

from django_pgqueue.bounds import PAYLOAD_BYTES_DEFAULT
from django_pgqueue.log.captures import ACTS, Capture, replace
from django_pgqueue.management.bench import yardstick
from django_pgqueue.management.bench.measure import (
    Measure,
    Opener,
    Pair,
    Plan,
    Run,
    Sides,
)
from django_pgqueue.management.bench.scratch import Scratch
from django_pgqueue.models import Subscription

TABLE = "pgqueue_bench_captured"
CAPTURE = Capture(
    name=TABLE,
    on=ACTS,
    columns=("status", "total", "note"),
    without=(),
    when=None,
    wakes="on_commit",
    bytes_max=PAYLOAD_BYTES_DEFAULT,
)

# Of the statements of all rows, so many are run one by one.
SINGLE_SHARE = 0.1
WRITERS = 8

# Locks: ACCESS EXCLUSIVE on the new table, and on the old one.
MAKE = f"""
CREATE TABLE {TABLE} (
    id bigint PRIMARY KEY,
    status text NOT NULL,
    total numeric NOT NULL,
    note text NOT NULL,
    body text NOT NULL,
    updated_at timestamptz NOT NULL DEFAULT clock_timestamp())
"""
DROP = f"DROP TABLE {TABLE}"

# Locks: ACCESS EXCLUSIVE, for the statement; so no run has dead rows of another.
EMPTY = f"TRUNCATE {TABLE}"

# Locks: none that matter.
FILL = f"""
INSERT INTO {TABLE} (id, status, total, note, body)
SELECT n, 'new', n * 1.5, repeat('x', 60), repeat('y', 400)
  FROM generate_series(1, %s) n
"""

# Locks: row locks on what is changed, until the end of the transaction.
UPDATE_ONE = f"UPDATE {TABLE} SET status = 'paid' WHERE id = %s"
UPDATE_ALL = f"UPDATE {TABLE} SET status = 'paid'"


class Rows(ABC):
    """Statements, with a capture and without."""

    # What the cost is called: microseconds of each changed row.
    figure: str

    def __init__(self, scratch: Scratch, stack: ExitStack) -> None:
        self.scratch = scratch
        self.connection = stack.enter_context(scratch.connect())

    def pair(self, jobs: int) -> Pair:
        """Measure with a capture, then without."""
        with_it = self._measured(jobs, CAPTURE)
        without = self._measured(jobs, None)
        cost = (1 / with_it - 1 / without) * 1e6
        return Pair(Run([with_it], {self.figure: cost}), Run([without]))

    @abstractmethod
    def write(self, rows: int) -> int:
        """Change rows, and return how many."""

    def _measured(self, rows: int, capture: Capture | None) -> float:
        """Return rows per second."""
        refill(self.scratch, self.connection, rows)
        with captured(self.scratch, capture):
            started = time.perf_counter()
            written = self.write(rows)
            return written / (time.perf_counter() - started)


class One(Rows):
    """Of one row each, by its primary key, all in one transaction."""

    figure = "one_us"

    def write(self, rows: int) -> int:
        """Change a tenth of the rows one by one."""
        count = max(round(rows * SINGLE_SHARE), 1)
        with self.connection.transaction():
            for number in range(count):
                self.connection.execute(UPDATE_ONE, [number + 1])
        return count


class Many(Rows):
    """All in one statement."""

    figure = "many_us"

    def write(self, rows: int) -> int:
        """Change all rows."""
        self.connection.execute(UPDATE_ALL)
        return rows


class Now:
    """Commits of one row each, with a notification inside, and with none."""

    def __init__(self, scratch: Scratch, stack: ExitStack) -> None:
        self.scratch = scratch
        self.connections = [
            stack.enter_context(scratch.connect()) for _ in range(WRITERS)
        ]

    def pair(self, jobs: int) -> Pair:
        """Measure with wakes="now", then with "on_commit"."""
        now = self._measured(jobs, changed(CAPTURE, wakes="now"))
        return Pair(Run([now]), Run([self._measured(jobs, CAPTURE)]))

    def _measured(self, rows: int, capture: Capture) -> float:
        """Return commits per second."""
        each = max(round(rows * SINGLE_SHARE / WRITERS), 1)
        refill(self.scratch, self.connections[0], each * WRITERS)
        with captured(self.scratch, capture):
            threads = [
                threading.Thread(target=_commit, args=(connection, place * each, each))
                for place, connection in enumerate(self.connections)
            ]
            started = time.perf_counter()
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            return each * WRITERS / (time.perf_counter() - started)


def _commit(connection: yardstick.Connection, after: int, count: int) -> None:
    for number in range(count):
        connection.execute(UPDATE_ONE, [after + number + 1])


def refill(scratch: Scratch, connection: yardstick.Connection, rows: int) -> None:
    """Make all rows new, and no message."""
    scratch.empty()
    connection.execute(EMPTY)
    connection.execute(FILL, [rows])


@contextmanager
def captured(scratch: Scratch, capture: Capture | None) -> Iterator[None]:
    """Capture the table while the block lasts."""
    connection = connections[scratch.alias]
    with connection.schema_editor() as editor:
        replace(editor, TABLE, TABLE, before=(), capture=capture)
    yield
    if capture is not None:
        with connection.schema_editor() as editor:
            replace(editor, TABLE, TABLE, before=ACTS, capture=None)


def _opener(kind: type[One] | type[Many] | type[Now]) -> Opener:
    @contextmanager
    def opened(scratch: Scratch, plan: Plan) -> Iterator[Sides]:
        with ExitStack() as stack:
            with connections[scratch.alias].cursor() as cursor:
                cursor.execute(MAKE)
            # Somebody wants the messages.
            subscription = Subscription.objects.using(scratch.alias).create(
                pattern=TABLE, topic=TABLE, queue="q", task="pgqueue_bench"
            )
            yield kind(scratch, stack)
            subscription.delete()
        with connections[scratch.alias].cursor() as cursor:
            cursor.execute(DROP)

    return opened


PARTS: Mapping[str, type[One] | type[Many] | type[Now]] = {
    "one": One,
    "many": Many,
    "now": Now,
}

CAPTURED = Measure(
    name="capture",
    what='statements whose rows are published, of one row and of all; wakes="now"',
    unit="rows/s",
    jobs=10_000,
    baseline='no capture; of now: wakes="on_commit"',
    other_side="without",
    parts={name: _opener(kind) for name, kind in PARTS.items()},
)
