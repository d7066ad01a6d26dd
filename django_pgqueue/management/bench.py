"""The parts of pgqueue_bench: a scratch database, a worker on it, and the yardstick."""

from __future__ import annotations

import contextlib
import io
import json
import multiprocessing
import os
import secrets
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import psycopg
from django.conf import settings
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import connections
from django.db.migrations.executor import MigrationExecutor
from django.dispatch import Signal
from psycopg import sql

from django_pgqueue import signals
from django_pgqueue.conf import get_settings
from django_pgqueue.postgres.connect import connect

Connection = psycopg.Connection[tuple[Any, ...]]

PREFIX = "pgqueue_bench_"

# Locks: on the new name, and on template0, to which nobody can be connected.
CREATE = sql.SQL("CREATE DATABASE {} TEMPLATE template0")

# Locks: the database itself. FORCE ends the sessions of connected workers.
DROP = sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)")

# How often a waiting benchmark polls, which is also the error of its figures.
POLL_SECONDS = 0.005

# A worker without jobs polls for a third of a second before it is idle.
REST_SECONDS = 0.5

STOP_SECONDS = 10.0

END_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

# Locks: none, here and below. One index probe.
IS_LIVE = "SELECT EXISTS (SELECT FROM pgqueue_job WHERE id = %s)"

SUCCEEDED = """
SELECT count(*) FROM pgqueue_archived_job
 WHERE id BETWEEN %s AND %s AND state = 'succeeded'
"""

RESULTS = "SELECT id, result FROM pgqueue_archived_job"

# Locks: ACCESS EXCLUSIVE on each table, for the statement. Not DELETE: the rows of one
# run must not be dead rows in the next one.
EMPTY = """
TRUNCATE pgqueue_job, pgqueue_archived_job, pgqueue_dead_letter, pgqueue_yardstick
"""


def connect_plain() -> Connection:
    """Return a plain psycopg connection to the queue's database, in autocommit."""
    connection = connect(get_settings().database, name="pgqueue bench")
    # psycopg's own default, which connections of the queue do not have.
    connection.prepare_threshold = 5
    return connection


@contextlib.contextmanager
def scratch_database() -> Iterator[str]:
    """
    Create a database, move the queue there, and drop it when the block ends.

    Receivers of the package's signals are disconnected meanwhile, because they may
    write anywhere, and DEBUG is off, because it keeps every query in memory.
    """
    queue, name = get_settings(), f"{PREFIX}{secrets.token_hex(6)}"
    with contextlib.ExitStack() as stack:
        with connect_plain() as connection:
            connection.execute(CREATE.format(sql.Identifier(name)))
        stack.callback(drop, name)
        stack.callback(setattr, settings, "DEBUG", settings.DEBUG)
        settings.DEBUG = False
        for each in vars(signals).values():
            if isinstance(each, Signal):
                stack.callback(setattr, each, "receivers", each.receivers)
                each.receivers = []
        for alias in {queue.database, queue.listen_database or queue.database}:
            stack.callback(lead, alias, connections.settings[alias]["NAME"])
            lead(alias, name)
        with connect_plain() as connection:
            # A pooler may choose another database, whose tables would be emptied.
            if connection.execute("SELECT current_database()").fetchone() != (name,):
                raise CommandError(f"The connection does not lead to database {name}.")
            # Not the command migrate: its signals would run code of the project.
            executor = MigrationExecutor(connections[queue.database])
            executor.migrate(executor.loader.graph.leaf_nodes("pgqueue"))
            connection.execute(CREATE_YARDSTICK)
        yield name


def drop(name: str) -> None:
    """Remove a database, even while sessions are connected to it; absent is fine."""
    with connect_plain() as connection:
        connection.execute(DROP.format(sql.Identifier(name)))


def lead(alias: str, name: str) -> None:
    """Let an alias of DATABASES lead to another database, in every thread."""
    connection = connections[alias]
    connection.close()
    if getattr(connection, "pool", None):
        connection.close_pool()  # type: ignore[attr-defined]
    connections.settings[alias]["NAME"] = name


def results(connection: Connection) -> dict[int, float]:
    """Return the results of jobs, by their ids."""
    return dict(connection.execute(RESULTS).fetchall())


def empty(connection: Connection) -> None:
    """Remove all jobs, and the rows of the yardstick."""
    connection.execute(EMPTY)


class Watch:
    """Waits for a worker, on a plain connection to the database of its jobs."""

    def __init__(self, connection: Connection, is_alive: Callable[[], bool]) -> None:
        self.connection = connection
        self._is_alive = is_alive

    def value(self, statement: str, *values: Any) -> Any:
        """Return the one value that a statement gives."""
        return self.connection.execute(statement, values).fetchall()[0][0]

    def rest(self) -> None:
        """Let the worker become idle, as it is when no job was due for a while."""
        time.sleep(REST_SECONDS)

    def wait_until_done(self, ids: Sequence[int]) -> None:
        """Wait until the jobs with these ids, which have no gap, have succeeded."""
        # The last job alone is cheap to ask for, and the others are seldom behind it.
        first, last = ids[0], ids[-1]
        self.wait_while(lambda: self.value(IS_LIVE, last))
        self.wait_while(lambda: self.value(SUCCEEDED, first, last) < len(ids))

    def wait_while(self, condition: Callable[[], bool]) -> None:
        """
        Ask every few milliseconds until the answer is no.

        Raises:
            CommandError: The worker died.
        """
        while condition():
            if not self._is_alive():
                raise CommandError("The worker process ended; see its lines above.")
            time.sleep(POLL_SECONDS)


@contextlib.contextmanager
def worker() -> Iterator[Watch]:
    """Run a worker process with eight threads while the block lasts."""
    connections.close_all()  # The process has no share in them.
    process = multiprocessing.get_context("fork").Process(target=_work)
    process.start()
    try:
        with connect_plain() as connection:
            yield Watch(connection, process.is_alive)
    finally:
        process.terminate()
        process.join(STOP_SECONDS)
        process.kill()
        process.join()


def _work() -> None:
    """Be the worker process, until it is told to stop or the benchmark is gone."""
    parent = os.getppid()

    def check(number: int, frame: Any) -> None:
        if os.getppid() != parent:
            os.kill(os.getpid(), signal.SIGTERM)

    os.setsid()  # Ctrl+C reaches the benchmark, which stops the worker.
    os.dup2(2, 1)  # Standard output is for the figures.
    signal.signal(signal.SIGALRM, check)
    signal.setitimer(signal.ITIMER_REAL, 1.0, 1.0)
    call_command("pgqueue_worker", threads=8, verbosity=0, stdout=io.StringIO())


@contextlib.contextmanager
def signals_as_interrupts() -> Iterator[None]:
    """Let signals end the block like Ctrl+C; a second one cannot stop the clean-up."""

    def interrupt(number: int, frame: Any) -> None:
        for each in END_SIGNALS:
            signal.signal(each, signal.SIG_IGN)
        raise KeyboardInterrupt

    # SIGINT too: a shell that starts this in the background has it ignored.
    before = {number: signal.signal(number, interrupt) for number in END_SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


# The yardstick is the queue that one would write by hand in an afternoon: a table with
# the columns that a job cannot do without, one index beside its key, and a statement
# for each thing to do. It has no fence, no error history, no archive, no crash recovery
# and no threads: the distance between it and the product is what those cost.

QUEUE, TASK, WORKER = "default", "pgqueue_bench.nothing", "yardstick"

# How long a consumer waits for a notification before it checks whether to stop.
STOP_CHECK_SECONDS = 0.2

# Locks: ACCESS EXCLUSIVE on the new table.
CREATE_YARDSTICK = """
CREATE TABLE pgqueue_yardstick (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    queue text NOT NULL,
    task text NOT NULL,
    args jsonb NOT NULL,
    kwargs jsonb NOT NULL,
    priority smallint NOT NULL DEFAULT 0,
    attempt smallint NOT NULL DEFAULT 0,
    enqueued_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    visible_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    leased_by text);
CREATE INDEX ON pgqueue_yardstick (queue, priority DESC, visible_at)
"""

# Locks: at its commit, the cluster-wide lock of NOTIFY, across the fsync.
INSERT_AND_NOTIFY = """
WITH new AS (
    INSERT INTO pgqueue_yardstick (queue, task, args, kwargs)
    VALUES (%s, %s, '[]', %s::jsonb) RETURNING id, queue)
SELECT id, pg_notify('pgqueue_yardstick', queue) FROM new
"""

# Locks: none that another insert waits for.
INSERT_MANY = """
INSERT INTO pgqueue_yardstick (queue, task, args, kwargs)
SELECT %s, %s, '[]', item::jsonb FROM unnest(%s::text[]) AS item
RETURNING id
"""

# Locks: row locks on the claimed rows, for the statement. The limit is a parameter:
# with a number in its place, another plan is made, which takes twice as long.
CLAIM = """
WITH candidate AS MATERIALIZED (
    SELECT id FROM pgqueue_yardstick
     WHERE queue = %s AND visible_at <= statement_timestamp()
     ORDER BY priority DESC, visible_at LIMIT %s FOR UPDATE SKIP LOCKED)
UPDATE pgqueue_yardstick AS y
   SET visible_at = statement_timestamp() + interval '60 s',
       attempt = y.attempt + 1, leased_by = %s
  FROM candidate WHERE y.id = candidate.id
RETURNING y.id, y.kwargs, y.task, y.args, y.attempt, y.enqueued_at
"""

# Locks: row locks on the deleted rows, for the statement.
DELETE = "DELETE FROM pgqueue_yardstick WHERE id = ANY(%s)"

LISTEN = "LISTEN pgqueue_yardstick"


def insert(connection: Connection, payload: Any) -> int:
    """Insert and notify in one statement; return the id."""
    values = [QUEUE, TASK, json.dumps(payload)]
    row = connection.execute(INSERT_AND_NOTIFY, values).fetchone()
    assert row is not None
    return int(row[0])


def publish(connection: Connection, payload: Any) -> tuple[int, float]:
    """Insert and notify; return the id, and when the COMMIT was about to be sent."""
    with connection.transaction():
        return insert(connection, payload), time.monotonic()


def bulk(connection: Connection, payloads: Iterable[Any]) -> None:
    """Insert all in one statement."""
    items = [json.dumps(payload) for payload in payloads]
    connection.execute(INSERT_MANY, [QUEUE, TASK, items]).fetchall()


def drain(connection: Connection, work: Callable[[int, Any], object]) -> None:
    """Claim 100, call *work* with each id and payload, delete, until all are gone."""
    while rows := connection.execute(CLAIM, [QUEUE, 100, WORKER]).fetchall():
        for row_id, payload, *_ in rows:
            work(row_id, payload)
        connection.execute(DELETE, [[row[0] for row in rows]])


@contextlib.contextmanager
def consumer() -> Iterator[dict[int, float]]:
    """LISTEN and drain in a thread; give when the work on each row began, by its id."""
    started_at: dict[int, float] = {}
    stopping = threading.Event()

    def start(row_id: int, payload: Any) -> None:
        started_at.setdefault(row_id, time.monotonic())

    def consume() -> None:
        with connect_plain() as listening, connect_plain() as claiming:
            listening.execute(LISTEN)
            while not stopping.is_set():
                for _ in listening.notifies(timeout=STOP_CHECK_SECONDS, stop_after=1):
                    drain(claiming, start)

    thread = threading.Thread(target=consume, daemon=True)
    thread.start()
    try:
        yield started_at
    finally:
        stopping.set()
        thread.join()
