"""
Turn: what is measured of one peer in one run, in this order.

1. enqueue and bulk, with no worker up. The tables are emptied after each.
2. For each configuration, one worker process: it is warmed up with some jobs, then
   *latency*, one job at a time; then *drain*: the worker is idle, all jobs commit at
   once, and the time runs from that commit until the last one is done with in the
   database. Processor time of the worker and of its backends is taken around it.
3. A second worker process beside the first, warmed up likewise: *drain_two*.

A turn counts only if every job that was enqueued for a worker ran, and ran once.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.benchmarks import cpu
from tests.benchmarks.database import Connection, Database, backends
from tests.benchmarks.environments import Environment
from tests.benchmarks.peer import Configuration, Peer
from tests.benchmarks.processes import FailedError, Producer, Worker

# Before anything counts: connections are open, code and plans are warm.
WARM_UP_JOBS = 100

POLL_SECONDS = 0.004

Figures = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """How much of a full measure is taken; less than all is a trial."""

    share: float = 1.0
    # For workers to become idle, as they are when nothing was due for a while.
    rest_seconds: float = 1.0
    # After which jobs that are not done hang.
    patience_seconds: float = 120.0

    def of(self, jobs: int) -> int:
        """Return how many jobs stand for *jobs*."""
        return max(10, round(jobs * self.share))


class Turn:
    """One peer, on a fresh database of its own."""

    def __init__(
        self,
        peer: Peer,
        environment: Environment,
        database: Database,
        folder: Path,
        sizes: Sizes,
        say: Callable[[str], None],
    ) -> None:
        self._peer = peer
        self._environment = environment
        self._variables = database.environment
        self._database = database
        self._folder = folder
        self.sizes = sizes
        self._say = say
        self._numbers = 1

    def measure(self, configurations: tuple[Configuration, ...]) -> Figures:
        """
        Return ``enqueue`` and ``bulk`` in jobs/s, and ``workers`` by configuration.

        Raises:
            FailedError: A process ended, a job hangs, is lost, or ran twice.
        """
        log = self._folder / f"{self._peer.name}-producer.log"
        with (
            self._database.connect() as connection,
            Producer(self._environment, log=log, variables=self._variables) as producer,
        ):
            figures = self._enqueues(producer, connection)
            figures["workers"] = {
                configuration.name: self._worker(configuration, producer, connection)
                for configuration in configurations
            }
        return figures

    def _enqueues(self, producer: Producer, connection: Connection) -> Figures:
        figures: Figures = {}
        sizes = {
            "enqueue": self.sizes.of(self._peer.enqueue_jobs),
            "bulk": self.sizes.of(self._peer.bulk_jobs),
        }
        for do, count in sizes.items():
            producer.order(do, 1, WARM_UP_JOBS, {})
            self._empty(connection)
            answer = producer.order(do, 1, count, {})
            figures[do] = count / answer["seconds"]
            self._say(f"{self._peer.title}: {do} {figures[do]:,.0f}/s")
            self._empty(connection)
        return figures

    def _empty(self, connection: Connection) -> None:
        connection.execute(f"TRUNCATE {', '.join(self._peer.tables)} CASCADE")

    def _worker(
        self,
        configuration: Configuration,
        producer: Producer,
        connection: Connection,
    ) -> Figures:
        self._empty(connection)
        others = backends(connection)
        crew = Crew(self, configuration, producer, connection, others)
        try:
            return self._with_crew(crew, configuration)
        finally:
            crew.stop()

    def _with_crew(self, crew: Crew, configuration: Configuration) -> Figures:
        jobs = self.sizes.of(configuration.jobs)
        crew.hire()
        latencies = crew.latencies(self.sizes.of(configuration.latencies))
        drain = crew.drain(jobs)
        crew.hire()
        two = crew.drain(jobs)
        crew.verify()
        self._say(
            f"{self._peer.title}, {configuration.name}: "
            f"drain {drain['rate']:,.0f}/s, two {two['rate']:,.0f}/s, "
            f"latency {sorted(latencies)[len(latencies) // 2]:.2f} ms"
        )
        return {
            "latencies": [round(value, 3) for value in latencies],
            "drain": drain["rate"],
            "worker_cpu": drain["worker_cpu"],
            "server_cpu": drain["server_cpu"],
            "drain_two": two["rate"],
        }

    def take_numbers(self, count: int) -> int:
        """Return the first of *count* numbers that no job has."""
        first = self._numbers
        self._numbers += count
        return first

    def start_worker(self, configuration: Configuration, place: int) -> Worker:
        """Start a worker process."""
        slug = "".join(c if c.isalnum() else "-" for c in configuration.name)
        return Worker(
            self._environment,
            configuration.options,
            log=self._folder / f"{self._peer.name}-{slug}-{place}.log",
            variables={**self._variables, **configuration.environment},
        )

    def count_unsettled(self, connection: Connection) -> int:
        """Return how many jobs are not done with."""
        row = connection.execute(self._peer.unsettled).fetchone()
        assert row is not None
        count: int = row[0]
        return count


class Crew:
    """The workers of one configuration, and the jobs that they were given."""

    def __init__(
        self,
        turn: Turn,
        configuration: Configuration,
        producer: Producer,
        connection: Connection,
        others: set[int],
    ) -> None:
        self._turn = turn
        self._configuration = configuration
        self._producer = producer
        self._connection = connection
        self._others = others  # Backends that serve no worker.
        self._workers: list[Worker] = []
        self._given: list[int] = []

    def hire(self) -> None:
        """Start one worker more; return once it has run jobs and all are idle."""
        worker = self._turn.start_worker(self._configuration, len(self._workers) + 1)
        self._workers.append(worker)
        until = time.monotonic() + self._turn.sizes.patience_seconds
        while not worker.count():
            self._give("commit_many", WARM_UP_JOBS)
            self._wait_until_settled()
            if time.monotonic() > until:
                raise worker.failed("took no job")

    def stop(self) -> None:
        """End all of them."""
        for worker in self._workers:
            worker.stop()

    def latencies(self, count: int) -> list[float]:
        """Return milliseconds from COMMIT to the first line of the task."""
        (worker,) = self._workers
        time.sleep(self._turn.sizes.rest_seconds)
        return [self._latency(worker) for _ in range(count)]

    def drain(self, jobs: int) -> Figures:
        """Return jobs/s, and processor seconds per 1,000 jobs."""
        time.sleep(self._turn.sizes.rest_seconds)
        used_by_workers = self._workers_cpu()
        used_by_server = self._server_cpu()
        committed_at = self._give("commit_many", jobs)
        settled_at = self._wait_until_settled()
        seconds = (settled_at - committed_at) / 1e9
        now_by_server = self._server_cpu()
        server_cpu = None
        if used_by_server is not None and now_by_server is not None:
            server_cpu = (now_by_server - used_by_server) * 1_000 / jobs
        return {
            "rate": jobs / seconds,
            "worker_cpu": (self._workers_cpu() - used_by_workers) * 1_000 / jobs,
            "server_cpu": server_cpu,
        }

    def verify(self) -> None:
        """
        Compare what was given with what ran.

        Raises:
            FailedError: Jobs are lost, or ran twice.
        """
        ran = Counter(number for worker in self._workers for number, _ in worker.ran())
        lost = set(self._given) - ran.keys()
        again = [number for number, times in ran.items() if times > 1]
        if lost or again:
            raise FailedError(
                f"{self._configuration.name}: of {len(self._given)} jobs, {len(lost)} "
                f"did not run and {len(again)} ran more than once."
            )

    def _latency(self, worker: Worker) -> float:
        time.sleep(random.uniform(*self._configuration.pause_seconds))
        committed_at = self._give("commit_one", 1)
        until = time.monotonic() + self._turn.sizes.patience_seconds
        while (started_at := worker.started_at(self._given[-1])) is None:
            self._look(until)
        return (started_at - committed_at) / 1e6

    def _give(self, do: str, count: int) -> int:
        first = self._turn.take_numbers(count)
        self._given += range(first, first + count)
        answer = self._producer.order(do, first, count, self._configuration.options)
        clock: int = answer["clock"]
        return clock

    def _wait_until_settled(self) -> int:
        """Return when all that was given is seen to be done with: nanoseconds."""
        until = time.monotonic() + self._turn.sizes.patience_seconds
        # First by the tallies, which costs the server nothing.
        while sum(worker.count() for worker in self._workers) < len(self._given):
            self._look(until)
        while self._turn.count_unsettled(self._connection):
            self._look(until)
        return time.monotonic_ns()

    def _look(self, until: float) -> None:
        for worker in self._workers:
            worker.check()
        if time.monotonic() > until:
            count = sum(worker.count() for worker in self._workers)
            raise self._workers[-1].failed(
                f"hangs: of {len(self._given)} jobs, {count} have run"
            )
        time.sleep(POLL_SECONDS)

    def _workers_cpu(self) -> float:
        return sum(worker.cpu_seconds() for worker in self._workers)

    def _server_cpu(self) -> float | None:
        return cpu.of_backends(backends(self._connection) - self._others)
