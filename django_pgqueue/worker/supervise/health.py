"""
Health: a small HTTP server that tells a platform how the worker is.

/livez   200 unless a restart would help: a process or a loop hangs, or processes die
         as soon as they start. The database does not matter.
/readyz  200 while every process is connected and takes jobs; 503 while it starts or
         stops and while the database is away, with the reasons.
/metrics with --metrics: what the worker has done, and what the database says of jobs,
         as Prometheus reads it.

It runs in a process of its own, which reads what the others write into shared memory,
so that neither a task that hogs its process nor a slow client is in anybody's way. It
answers GET and HEAD alone; but for /metrics, it tells no names of queues, tasks, hosts
or databases.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import signal
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator
from http import HTTPStatus
from multiprocessing.context import BaseContext
from typing import Any

from django_pgqueue.exceptions import InvalidOption
from django_pgqueue.worker.options import WorkerOptions
from django_pgqueue.worker.supervise.health_table import (
    HealthTable,
    Life,
    ProcessHealth,
    State,
)
from django_pgqueue.worker.tally import TallyBoard

logger = logging.getLogger("django_pgqueue.worker")

# A process that is silent, or a loop that hangs in Python code, for half of a lease is
# about to lose its jobs; within these.
SILENT_SECONDS_MIN, SILENT_SECONDS_MAX = 5.0, 60.0

# The supervisor may be waiting for a database that does not answer.
SUPERVISOR_SECONDS_MAX = 120.0

# Processes that died at their start, one after the other.
EARLY_DEATHS_MAX = 3

# A statement of a loop that takes longer: the database does not keep up.
WAITING_SECONDS_MAX = 10.0

# Of one request, and of one client.
REQUEST_BYTES_MAX = 4_096
REQUEST_SECONDS_MAX = 2.0

# What an answer to /metrics may take, for which the database is asked.
METRICS_SECONDS_MAX = 8.0

# Of all clients at once; the oldest goes when another one comes.
CLIENTS_MAX = 64

# A server process that died is started again after this pause.
RESTART_SECONDS = 1.0

ORPHAN_CHECK_SECONDS = 0.5

# Returns content type and body of /metrics, for an Accept header.
Metrics = Callable[[str], tuple[str, bytes]]


class Health:
    """The health server's process, kept by the supervisor."""

    def __init__(self, options: WorkerOptions, context: BaseContext) -> None:
        """
        Take the port, so that one that is taken is an error before anything starts.

        Raises:
            InvalidOption: It cannot be taken.
        """
        assert options.health_port is not None
        self.table = table = HealthTable(context, options.processes)
        # Of all processes, and of as many in which jobs run alone; None: nobody asks.
        self.board: TallyBoard | None = None
        self._metrics: Metrics | None = None
        if (answer := options.metrics) is not None:
            board = self.board = TallyBoard(2 * options.processes)
            self._metrics = lambda accept: answer(
                board.total(), process_states(table), accept
            )
        self._silent_seconds_max = min(
            max(options.settings.lease_seconds / 2, SILENT_SECONDS_MIN),
            SILENT_SECONDS_MAX,
        )
        self._context: Any = context
        self._process: Any = None
        self._start_at = 0.0
        self._socket = _bound(options.health_host, options.health_port)
        self.port: int = self._socket.getsockname()[1]

    @property
    def sentinels(self) -> list[Any]:
        """What becomes readable when the process ends."""
        return [] if self._process is None else [self._process.sentinel]

    def follow(self, *, is_stopping: bool) -> None:
        """Say that the supervisor lives; start the process when there is none."""
        self.table.note_supervisor(is_stopping=is_stopping)
        now = time.monotonic()
        if self._process is not None and self._process.exitcode is not None:
            self._process.join()
            logger.error("died       health server, status=%d", self._process.exitcode)
            self._process, self._start_at = None, now + RESTART_SECONDS
        if self._process is None and now >= self._start_at:
            self._process = self._context.Process(
                target=_serve,
                args=(
                    self._socket,
                    self.table,
                    self._silent_seconds_max,
                    self._metrics,
                ),
                name="pgqueue-health",
            )
            self._process.start()

    def leave_socket(self) -> None:
        """Close the port in a process that is not the health server."""
        self._socket.close()

    def close(self) -> None:
        """End the process, when the worker has ended."""
        self._socket.close()
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self._process = None


def process_states(table: HealthTable) -> dict[str, int]:
    """Return how many processes are in each state, by its name in lower case."""
    counts = Counter(row.state for row in table.rows())
    return {state.name.lower(): counts[state] for state in State}


def unlivable(table: HealthTable, silent_seconds_max: float) -> list[str]:
    """Return what a restart of the worker would fix."""
    reasons = []
    silent = table.head().silent_seconds
    if silent > SUPERVISOR_SECONDS_MAX:
        reasons.append(f"supervisor: silent for {silent:.0f} s")
    for place, row in enumerate(table.rows()):
        reasons += [
            f"process {place}: {reason}" for reason in _hung(row, silent_seconds_max)
        ]
    return reasons


def unready(table: HealthTable, silent_seconds_max: float) -> list[str]:
    """Return why the worker is not taking jobs, or not all that it could."""
    reasons = unlivable(table, silent_seconds_max)
    if table.head().is_stopping:
        reasons.append("stopping")
    for place, row in enumerate(table.rows()):
        if row.state is State.RUNNING:
            reasons += [f"process {place}: {reason}" for reason in _cut_off(row)]
        else:
            reasons.append(f"process {place}: {row.state.name.lower()}")
    return reasons


def _hung(row: ProcessHealth, silent_seconds_max: float) -> Iterator[str]:
    if row.state is not State.RUNNING:
        # What starts may be waiting for the database, and what stops for its jobs: the
        # supervisor ends it when its grace is over.
        if row.early_deaths >= EARLY_DEATHS_MAX:
            yield f"died {row.early_deaths} times at its start"
        return
    if row.silent_seconds > silent_seconds_max:
        yield f"silent for {row.silent_seconds:.0f} s"
    for loop in row.loops:
        if loop.life is Life.ENDED:
            yield f"{loop.name} has ended"
        elif loop.stuck_seconds > silent_seconds_max:
            yield f"{loop.name} hangs for {loop.stuck_seconds:.0f} s"


def _cut_off(row: ProcessHealth) -> Iterator[str]:
    for loop in row.loops:
        if loop.failures:
            yield f"{loop.name} fails"
        elif loop.waiting_seconds > WAITING_SECONDS_MAX:
            yield f"{loop.name} waits for the database"


def _bound(host: str, port: int) -> socket.socket:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        server = socket.socket(family, kind, protocol)
        try:
            server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            server.bind(address)
            server.listen(CLIENTS_MAX)
        except OSError:
            server.close()
            raise
    except OSError as error:
        raise InvalidOption(
            f"--health-port {port} on {host} cannot be used: {error.strerror}. Choose "
            f"another port, or stop what has it."
        ) from error
    return server


# The process --------------------------------------------------------------------------


def _serve(
    server: socket.socket,
    table: HealthTable,
    silent_seconds_max: float,
    metrics: Metrics | None,
) -> None:
    # A stop is told by the supervisor, through the table: until the worker has ended,
    # there is an answer.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM, signal.SIGINT})
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_Server(table, silent_seconds_max, metrics).run(server))


class _Server:
    def __init__(
        self, table: HealthTable, silent_seconds_max: float, metrics: Metrics | None
    ) -> None:
        self._table = table
        self._metrics = metrics
        self._silent_seconds_max = silent_seconds_max
        self._clients: dict[asyncio.Task[None], None] = {}

    async def run(self, server: socket.socket) -> None:
        parent = os.getppid()
        listening = await asyncio.start_server(
            self._accept, sock=server, limit=REQUEST_BYTES_MAX
        )
        async with listening:
            while os.getppid() == parent:  # noqa: ASYNC110 # No event tells its end.
                await asyncio.sleep(ORPHAN_CHECK_SECONDS)

    async def _accept(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        task = asyncio.current_task()
        assert task is not None
        if len(self._clients) >= CLIENTS_MAX:
            next(iter(self._clients)).cancel()
        self._clients[task] = None
        try:
            async with asyncio.timeout(REQUEST_SECONDS_MAX):
                head = await _head(reader)
            async with asyncio.timeout(METRICS_SECONDS_MAX):
                answer = await self._answer(head)
            async with asyncio.timeout(REQUEST_SECONDS_MAX):
                writer.write(answer)
                await writer.drain()
        except (TimeoutError, OSError, asyncio.IncompleteReadError):
            pass  # It went, or was too slow.
        finally:
            del self._clients[task]
            # No waiting for a client that does not read.
            if writer.transport.get_write_buffer_size():
                writer.transport.abort()
            else:
                writer.close()

    async def _answer(self, head: bytes | None) -> bytes:
        words = (head or b"").split(b"\r\n", 1)[0].split(b" ")
        if len(words) != 3 or not words[2].startswith(b"HTTP/1."):
            return _response(HTTPStatus.BAD_REQUEST, {"status": "bad request"})
        method, target = words[0], words[1].split(b"?", 1)[0]
        if method not in (b"GET", b"HEAD"):
            return _response(
                HTTPStatus.METHOD_NOT_ALLOWED,
                {"status": "only GET and HEAD"},
                "Allow: GET, HEAD\r\n",
            )
        if target == b"/metrics" and self._metrics is not None:
            assert head is not None
            return await self._numbers(self._metrics, head, is_head=method == b"HEAD")
        judges = {b"/livez": unlivable, b"/readyz": unready}
        if target not in judges:
            answer: dict[str, Any] = {"status": "there are /livez and /readyz"}
            return _response(HTTPStatus.NOT_FOUND, answer, is_head=method == b"HEAD")
        reasons = judges[target](self._table, self._silent_seconds_max)
        status = HTTPStatus.SERVICE_UNAVAILABLE if reasons else HTTPStatus.OK
        answer = {"status": "unavailable" if reasons else "ok"}
        if reasons:
            answer["reasons"] = reasons
        return _response(status, answer, is_head=method == b"HEAD")

    async def _numbers(self, metrics: Metrics, head: bytes, *, is_head: bool) -> bytes:
        fields = (line.partition(b":") for line in head.split(b"\r\n")[1:])
        accept = {name.lower(): value for name, _, value in fields}.get(b"accept", b"")
        try:
            kind, body = await asyncio.to_thread(metrics, accept.decode("latin-1"))
        except Exception:
            logger.exception("failed     health server: /metrics")
            answer = {"status": "failed; see the worker's log"}
            return _response(HTTPStatus.INTERNAL_SERVER_ERROR, answer, is_head=is_head)
        return _plain_response(HTTPStatus.OK, kind, body, is_head=is_head)


async def _head(reader: asyncio.StreamReader) -> bytes | None:
    """Return the head of a request; None: it is too long."""
    try:
        return await reader.readuntil(b"\r\n\r\n")
    except asyncio.LimitOverrunError:
        return None


def _response(
    status: HTTPStatus, answer: dict[str, Any], more: str = "", *, is_head: bool = False
) -> bytes:
    body = json.dumps(answer).encode() + b"\n"
    return _plain_response(status, "application/json", body, more, is_head=is_head)


def _plain_response(
    status: HTTPStatus, kind: str, body: bytes, more: str = "", *, is_head: bool = False
) -> bytes:
    head = (
        f"HTTP/1.1 {status.value} {status.phrase}\r\n"
        f"Content-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
        f"Cache-Control: no-store\r\n{more}Connection: close\r\n\r\n"
    )
    return head.encode() + (b"" if is_head else body)
