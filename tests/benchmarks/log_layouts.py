"""
Layouts of a topic's log, beside one another: by day, by the hash of the key, plain.

    python -m tests.benchmarks.log_layouts [--runs 6] [--rows 50000]

Each run does everything once in each layout, in turns, in a database of its own; what
is printed are medians. docs/contributing/decisions/0042 says what follows.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import sys
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from datetime import time as datetime_time
from typing import Any

import django
import psycopg

DAYS = 8
PARTITIONS = 16
KEYS = 10_000
SINGLE, WRITERS = 2_000, 8
BULKS, BULK_ROWS = 10, 5_000
READS, BATCH = 300, 500
DELETE_ROWS = 10_000

# What the layouts cost, and not the disk.
LATE = "SET synchronous_commit = off"

COLUMNS = """
    id bigint NOT NULL DEFAULT nextval('log_ids'),
    published_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    topic_id integer NOT NULL, partition smallint NOT NULL,
    key text NOT NULL, payload jsonb NOT NULL
"""
TODAY = datetime.combine(datetime.now(UTC).date(), datetime_time(), UTC)


def _day(n: int) -> str:
    """Return the beginning of the day *n* days ago."""
    return f"'{(TODAY - timedelta(days=n)).isoformat()}'"


LAYOUTS = {
    "days": [
        (
            f"CREATE TABLE days ({COLUMNS}, PRIMARY KEY (id, published_at))"
            " PARTITION BY RANGE (published_at)"
        ),
        *(
            f"CREATE TABLE days_{n} PARTITION OF days"
            f" FOR VALUES FROM ({_day(n)}) TO ({_day(n - 1)})"
            for n in range(DAYS)
        ),
        "CREATE INDEX ON days (topic_id, partition, id)",
    ],
    # Of one partition of the log each, as far as the planner knows.
    "hash": [
        f"CREATE TABLE hash ({COLUMNS}, PRIMARY KEY (id, key)) PARTITION BY HASH (key)",
        *(
            f"CREATE TABLE hash_{n} PARTITION OF hash"
            f" FOR VALUES WITH (MODULUS {PARTITIONS}, REMAINDER {n})"
            for n in range(PARTITIONS)
        ),
        "CREATE INDEX ON hash (topic_id, id)",
        "CREATE INDEX ON hash (published_at)",
    ],
    "plain": [
        f"CREATE TABLE plain ({COLUMNS}, PRIMARY KEY (id))",
        "CREATE INDEX ON plain (topic_id, partition, id)",
        "CREATE INDEX ON plain (published_at)",
    ],
}
ROWS = f"""
INSERT INTO {{table}} (published_at, topic_id, partition, key, payload)
SELECT {{moment}}, 1, n %% {PARTITIONS}, 'k' || (n * 7919) %% {KEYS},
       jsonb_build_object('n', n, 'text', repeat('x', 150))
  FROM generate_series(1, %s) n
"""
ONE = """
INSERT INTO {table} (topic_id, partition, key, payload)
VALUES (1, %s, %s, '{{"n": 1, "text": "a payload of some length, as payloads are"}}')
"""
READ = {
    "days": """
        SELECT id, key, payload::text, published_at FROM days
         WHERE topic_id = 1 AND partition = %(p)s AND id > %(after)s
           AND published_at >= {since}
         ORDER BY id LIMIT %(batch)s""",
    "hash": """
        SELECT id, key, payload::text, published_at FROM hash_{p}
         WHERE topic_id = 1 AND id > %(after)s ORDER BY id LIMIT %(batch)s""",
    "plain": """
        SELECT id, key, payload::text, published_at FROM plain
         WHERE topic_id = 1 AND partition = %(p)s AND id > %(after)s
         ORDER BY id LIMIT %(batch)s""",
}
DELETE = """
DELETE FROM {table} WHERE (tableoid, ctid) IN (
    SELECT tableoid, ctid FROM {table}
     WHERE published_at < {end} LIMIT {rows})
"""
SIZE = """
SELECT sum(pg_total_relation_size(oid)) FROM pg_class
 WHERE relkind = 'r' AND relname ~ ('^' || %s || '(_[0-9]+)?$')
"""


def main() -> None:
    """Fill, measure, print."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.log_layouts")
    parser.add_argument("--runs", type=int, default=6)
    parser.add_argument("--rows", type=int, default=50_000, help="of each day")
    options = parser.parse_args()
    assert 1 <= options.runs < DAYS
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.settings")
    django.setup()
    from django_pgqueue.postgres.connect import connection_params

    # As psycopg does it by itself: prepared when it was sent five times.
    params = {**connection_params("default"), "prepare_threshold": 5}
    name = f"pgqueue_layouts_{uuid.uuid4().hex[:8]}"
    server = {**params, "dbname": "postgres", "autocommit": True}
    with psycopg.connect(**server) as admin:
        admin.execute(f'CREATE DATABASE "{name}"')
        try:
            _measure({**params, "dbname": name, "autocommit": True}, options)
        finally:
            admin.execute(f'DROP DATABASE "{name}" WITH (FORCE)')


class Layout:
    """One layout, and what is measured of it."""

    def __init__(
        self, params: dict[str, Any], connection: psycopg.Connection[Any], name: str
    ) -> None:
        self._params = params
        self._connection = connection
        self.name = name
        self._one = ONE.format(table=name)
        self._ids = _ids_of_today(connection, name)

    def run(self, run: int) -> Iterator[tuple[str, float]]:
        """Do everything once; give what was measured."""
        yield "publish one, 1 writer (messages/s)", SINGLE / _seconds(self._single)
        together = SINGLE / _seconds(self._at_once)
        yield f"publish one, {WRITERS} writers (messages/s)", together
        yield "publish in bulk (messages/s)", BULKS * BULK_ROWS / _seconds(self._bulks)
        reading = _seconds(lambda: self._read(random.Random(run)))
        yield f"read a batch of {BATCH} (ms)", reading / READS * 1_000
        removing = _seconds(lambda: self._remove(DAYS - 1 - run))
        yield "remove the oldest day (ms)", removing * 1_000

    def _single(self) -> None:
        for n in range(SINGLE):
            self._connection.execute(self._one, [n % PARTITIONS, f"k{n}"])

    def _at_once(self) -> None:
        def write(number: int) -> None:
            with psycopg.connect(**self._params) as mine:
                mine.execute(LATE)
                for n in range(SINGLE // WRITERS):
                    mine.execute(self._one, [n % PARTITIONS, f"k{number}-{n}"])

        with ThreadPoolExecutor(WRITERS) as pool:
            list(pool.map(write, range(WRITERS)))

    def _bulks(self) -> None:
        for _ in range(BULKS):
            bulk = ROWS.format(table=self.name, moment="now()")
            self._connection.execute(bulk, [BULK_ROWS])

    def _read(self, draw: random.Random) -> None:
        low, high = self._ids
        for _ in range(READS):
            p = draw.randrange(PARTITIONS)
            after = draw.randrange(low, low + (high - low) // 4)
            statement = READ[self.name].replace("{p}", str(p))
            rows = self._connection.execute(
                statement.replace("{since}", _day(1)),
                {"p": p, "after": after, "batch": BATCH},
            ).fetchall()
            assert len(rows) == BATCH

    def _remove(self, day: int) -> None:
        if self.name == "days":
            self._connection.execute(
                f"ALTER TABLE days DETACH PARTITION days_{day} CONCURRENTLY"
            )
            self._connection.execute(f"DROP TABLE days_{day}")
            return
        statement = DELETE.format(table=self.name, end=_day(day - 1), rows=DELETE_ROWS)
        while self._connection.execute(statement).rowcount:
            pass


def _measure(params: dict[str, Any], options: argparse.Namespace) -> None:
    with psycopg.connect(**params) as connection:
        _fill(connection, options.rows)
        connection.execute(LATE)
        layouts = [Layout(params, connection, name) for name in LAYOUTS]
        _say("filled")
        found: dict[tuple[str, str], list[float]] = defaultdict(list)
        for run in range(options.runs):
            random.Random(run).shuffle(layouts)
            for layout in layouts:
                for what, value in layout.run(run):
                    found[what, layout.name].append(value)
        _show(connection, found, options)


def _fill(connection: psycopg.Connection[Any], rows: int) -> None:
    connection.execute("CREATE SEQUENCE log_ids")
    for layout, statements in LAYOUTS.items():
        for statement in statements:
            connection.execute(statement)
        for n in reversed(range(DAYS)):
            moment = f"timestamptz {_day(n)} + (n %% 1000) * interval '1 s'"
            connection.execute(ROWS.format(table=layout, moment=moment), [rows])
    connection.execute("VACUUM ANALYZE")


def _ids_of_today(connection: psycopg.Connection[Any], layout: str) -> tuple[int, int]:
    row = connection.execute(
        f"SELECT min(id), max(id) FROM {layout} WHERE published_at >= {_day(0)}"
    ).fetchone()
    assert row is not None
    return row


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _seconds(act: Callable[[], None]) -> float:
    started = time.perf_counter()
    act()
    return time.perf_counter() - started


def _show(
    connection: psycopg.Connection[Any],
    found: dict[tuple[str, str], list[float]],
    options: argparse.Namespace,
) -> None:
    _say(f"medians of {options.runs} runs, {options.rows:,} messages a day")
    _say("| | " + " | ".join(LAYOUTS) + " |")
    for what in dict.fromkeys(what for what, _layout in found):
        told = [f"{statistics.median(found[what, each]):,.4g}" for each in LAYOUTS]
        _say(f"| {what} | " + " | ".join(told) + " |")
    sizes = []
    for layout in LAYOUTS:
        (size,) = connection.execute(SIZE, [layout]).fetchone() or (0,)
        sizes.append(f"{size / 1_000_000:,.0f}")
    _say("| bytes afterwards (MB) | " + " | ".join(sizes) + " |")


if __name__ == "__main__":
    main()
