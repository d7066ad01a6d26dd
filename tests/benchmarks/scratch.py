"""Scratch: a database of this queue for the measures, and processes that work on it."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import django
from django.core.management import CommandError, call_command
from django.db import connections, transaction

from django_pgqueue.management import bench
from tests.benchmarks.database import Connection, Database, Server, server
from tests.benchmarks.environments import Environment
from tests.benchmarks.processes import Producer, Program

PYTHON = (sys.executable, "-m")
SETTINGS = "tests.benchmarks.peers.django_pgqueue.settings"
PROGRAM = "tests.benchmarks.peers.django_pgqueue.program"

TABLES = (
    *("pgqueue_job", "pgqueue_archived_job", "pgqueue_dead_letter"),
    *("pgqueue_workflow", "pgqueue_step", "pgqueue_message"),
)

LIVE = "SELECT count(*) FROM pgqueue_job WHERE id BETWEEN %s AND %s"


class Worker(bench.Watch):
    """
    A worker process, and what is waited for of it.

    Attributes:
        pid: The supervisor's.
    """

    pid: int

    def drained(
        self,
        store: Callable[[list[dict[str, Any]]], Sequence[Any]],
        jobs: int,
        *,
        archived: bool = True,
    ) -> float:
        """Store *jobs* jobs in one commit; return how many are done per second."""
        items = payloads(jobs)
        self.rest()
        with committed_at() as at:
            ids = [result.id for result in store(items)]
        if archived:
            self.wait_until_done(ids)
        else:
            self.wait_while(lambda: self.value(LIVE, ids[0], ids[-1]) > 0)
        return jobs / (time.monotonic() - at[0])


class Scratch:
    """
    The database of the measures, to which Django leads in this process.

    Attributes:
        rows: Of each backlog.
        seconds: Of each run that has no jobs.
        say: Prints a line of progress.
    """

    def __init__(
        self,
        used: Server,
        template: Database,
        folder: Path,
        rows: int,
        seconds: float,
        say: Callable[[str], None],
    ) -> None:
        self.rows = rows
        self.seconds = seconds
        self.say = say
        self._server = used
        self._folder = folder
        self._started = 0
        self.tables = [*TABLES]  # Emptied before each side of a pair.
        self._template = template
        self._lead(template)
        call_command("migrate", verbosity=0)
        connections.close_all()
        self._lead(used.make("own", self._template.name))
        self.plain = self.connect()
        self.plain.execute(bench.CREATE_YARDSTICK)
        self.tables.append("pgqueue_yardstick")

    def connect(self) -> Connection:
        """Return a plain psycopg connection to the database in use, in autocommit."""
        return bench.connect_plain()

    def empty(self) -> None:
        """Remove all jobs and messages, and the rows of the yardsticks."""
        with connections["default"].cursor() as cursor:
            cursor.execute(f"TRUNCATE {', '.join(self.tables)}")

    def add_yardstick(self, create: str, *tables: str) -> None:
        """Create tables of a yardstick, unless they are there."""
        if tables[0] not in self.tables:
            self.plain.execute(create)
            self.tables += tables

    @contextmanager
    def another(self, name: str) -> Iterator[Callable[[], Any]]:
        """Make a second database; give what leads here while a block lasts."""
        own, made = self.database, self._server.make(name, self._template.name)

        @contextmanager
        def in_use() -> Iterator[None]:
            self._lead(made)
            try:
                yield
            finally:
                self._lead(own)

        yield in_use
        self._server.drop(made)

    @contextmanager
    def worker(self, *options: str, threads: int = 8, **more: str) -> Iterator[Worker]:
        """
        Run a worker process on the database in use while the block lasts.

        Args:
            options: Of pgqueue_worker.
            threads: Likewise.
            more: Variables of its environment.
        """
        words = ("pgqueue_worker", f"--threads={threads}", "--force", *options)
        program = self._program(Program, Environment((*PYTHON, "django"), {}), *words)
        with program(more) as process, self.connect() as connection:
            worker = Worker(connection, lambda: process.process.poll() is None)
            worker.pid = process.process.pid
            try:
                yield worker
            except CommandError as error:
                raise process.failed("has ended, or hangs") from error

    @contextmanager
    def producer(self) -> Iterator[Producer]:
        """Run a process that enqueues when told to; see agent/program.py."""
        program = self._program(Producer, Environment((*PYTHON, PROGRAM), {}))
        with program({}) as process:
            yield process

    def _program(self, kind: Any, environment: Environment, *words: str) -> Any:
        self._started += 1
        log = self._folder / f"{words[0] if words else 'producer'}-{self._started}.log"

        def start(more: dict[str, str]) -> Any:
            variables = {
                **self.database.environment,
                "DJANGO_SETTINGS_MODULE": SETTINGS,
                **more,
            }
            return kind(environment, *words, log=log, variables=variables)

        return start

    def _lead(self, database: Database) -> None:
        self.database = database
        bench.lead("default", database.name)


@contextmanager
def scratch(rows: int, seconds: float, say: Callable[[str], None]) -> Iterator[Scratch]:
    """Make the database, set Django up to work in it, and leave nothing of it."""
    with (
        server() as used,
        tempfile.TemporaryDirectory(prefix="pgqueue-bench-") as folder,
    ):
        template = used.make("template")
        os.environ.update(template.environment, DJANGO_SETTINGS_MODULE=SETTINGS)
        django.setup()
        try:
            made = Scratch(used, template, Path(folder), rows, seconds, say)
            with made.plain:
                yield made
        finally:
            connections.close_all()


@contextmanager
def committed_at() -> Iterator[list[float]]:
    """Be a transaction; give the monotonic time right after its commit."""
    at: list[float] = []
    with transaction.atomic():
        # Registered first, so it runs between the commit and the wake.
        transaction.on_commit(lambda: at.append(time.monotonic()))
        yield at


def payloads(count: int) -> list[dict[str, Any]]:
    """Return the arguments of *count* jobs: as JSON, about 100 bytes each."""
    return [{"order_id": n, "note": "x" * 72} for n in range(count)]
