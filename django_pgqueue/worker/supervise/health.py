"""
Health: a small HTTP server that reports to a platform how the worker is.

/livez   200 unless a restart would help: a process or a loop hangs, or processes die
         as soon as they start. The database does not matter.
/readyz  200 while every process is connected and takes jobs; 503 while it starts or
         stops and while the database is away, with the reasons.
/metrics with --metrics: what the worker has done, and what the database says of jobs,
         as Prometheus reads it.

It runs in threads of the supervisor. Each process writes about once a second how it is
into memory that it shares with the supervisor, so a task that hogs its process and a
process that is frozen show by their silence. Times are those of the monotonic clock,
which is one for all processes of a machine.
"""

from __future__ import annotations

import json
import logging
import signal
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from enum import IntEnum
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from typing import Any, NamedTuple

from django_pgqueue.exceptions import InvalidOption
from django_pgqueue.worker.options import WorkerOptions
from django_pgqueue.worker.service import Service
from django_pgqueue.worker.tally import Board, TallyBoard

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

# How long a client may say nothing.
REQUEST_SECONDS_MAX = 2.0

# What an answer to /metrics may take, for which the database is asked.
METRICS_SECONDS_MAX = 8.0

# Of all clients at once; the oldest goes when another one comes.
CLIENTS_MAX = 64

# What a process says of its loops, of which there are seven kinds.
REPORT_BYTES_MAX = 4_096

# A terminal sends these to the whole group; processes ignore them, and wait for the
# supervisor's TERM.
TERMINAL_SIGNALS = frozenset({signal.SIGINT, signal.SIGHUP, signal.SIGQUIT})
STOP_SIGNALS = TERMINAL_SIGNALS | {signal.SIGTERM}


class State(IntEnum):
    """What a process is doing."""

    VACANT = 0  # There is none in this place.
    STARTING = 1
    RUNNING = 2
    STOPPING = 3


class LoopHealth(NamedTuple):
    """One loop, as its process last saw it; of several with one name the worst."""

    has_ended: bool
    failures: int  # In a row.
    stuck_seconds: float  # In one round, in Python code.
    waiting_seconds: float  # In one round, for the database.


class HealthPlace:
    """Where one process writes how it is."""

    def __init__(self, board: Board, place: int) -> None:
        self._board = board
        self._place = place

    def note(self, state: State, services: Iterable[Service] = ()) -> None:
        """Write what this process is doing, and how its loops are."""
        loops: dict[str, LoopHealth] = {}
        for service in services:
            own = _health_of(service)
            other = loops.get(service.shown_as, own)
            worst = [max(values) for values in zip(own, other, strict=True)]
            loops[service.shown_as] = LoopHealth._make(worst)
        text = json.dumps([state, time.monotonic(), loops])
        self._board.write(self._place, text.encode())


class Health:
    """The health server, and what it goes by."""

    def __init__(self, options: WorkerOptions) -> None:
        """
        Take the port, so that one that is taken is an error before anything starts.

        Raises:
            InvalidOption: It cannot be taken.
        """
        assert options.health_port is not None
        self.board = Board(options.processes, REPORT_BYTES_MAX)
        # Of all processes, and of as many in which jobs run alone; None: nobody asks.
        self.tallies: TallyBoard | None = None
        if options.metrics is not None:
            self.tallies = TallyBoard(2 * options.processes)
        self._answer = options.metrics
        self._places = range(options.processes)
        self._silent_seconds_max = min(
            max(options.settings.lease_seconds / 2, SILENT_SECONDS_MIN),
            SILENT_SECONDS_MAX,
        )
        # What the supervisor says: when it looked around last, whether it stops, how
        # many processes in each place died at their start, and when one was last there.
        self._seen_at = time.monotonic()
        self._is_stopping = False
        self._early_deaths = dict.fromkeys(self._places, 0)
        # Held while the database is asked, so that no process is forked meanwhile.
        self._asking = threading.Lock()
        self._server = _bound(options.health_host, options.health_port, self)
        self._thread = threading.Thread(
            target=self._server.serve_forever, name="pgqueue-health", daemon=True
        )
        self.port: int = self._server.server_address[1]

    def follow(self, *, is_stopping: bool, early_deaths: dict[int, int]) -> None:
        """Note that the supervisor lives, and what it knows; serve from now on."""
        self._seen_at, self._is_stopping = time.monotonic(), is_stopping
        self._early_deaths = {place: early_deaths[place] for place in self._places}
        if self._thread.ident is None:
            # A stop signal is for the thread that can handle it.
            signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
            self._thread.start()
            signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)

    def clear(self, place: int) -> None:
        """Forget the process that was in *place*."""
        self.board.write(place, b"")

    @contextmanager
    def quiet(self) -> Iterator[None]:
        """Let no thread of the server have a connection to the database meanwhile."""
        has_lock = self._asking.acquire(timeout=METRICS_SECONDS_MAX)
        try:
            yield
        finally:
            if has_lock:
                self._asking.release()

    def leave_sockets(self) -> None:
        """Close in a process that was forked what is the server's."""
        self._server.socket.close()
        for client in list(self._server.clients):
            client.close()

    def close(self) -> None:
        """End the server, when the worker has ended."""
        if self._thread.ident is not None:
            self._server.shutdown()
        self._server.server_close()

    @property
    def has_metrics(self) -> bool:
        """Whether there is /metrics."""
        return self._answer is not None

    def metrics(self, accept: str) -> tuple[str, bytes]:
        """Return content type and body of /metrics, for an Accept header."""
        assert self._answer is not None
        assert self.tallies is not None
        states = Counter(self._report(place)[0] for place in self._places)
        by_name = {state.name.lower(): states[state] for state in State}
        with self._asking:
            return self._answer(self.tallies.total(), by_name, accept)

    def unlivable(self) -> list[str]:
        """Return what a restart of the worker would fix."""
        reasons = []
        silent = time.monotonic() - self._seen_at
        if silent > SUPERVISOR_SECONDS_MAX:
            reasons.append(f"supervisor: silent for {silent:.0f} s")
        for place in self._places:
            reasons += [f"process {place}: {reason}" for reason in self._hung(place)]
        return reasons

    def unready(self) -> list[str]:
        """Return why the worker is not taking jobs, or not all that it could."""
        reasons = self.unlivable()
        if self._is_stopping:
            reasons.append("stopping")
        for place in self._places:
            state, _, loops = self._report(place)
            if state is not State.RUNNING:
                reasons.append(f"process {place}: {state.name.lower()}")
            for name, loop in loops.items():
                if loop.failures:
                    reasons.append(f"process {place}: {name} fails")
                elif loop.waiting_seconds > WAITING_SECONDS_MAX:
                    reasons.append(f"process {place}: {name} waits for the database")
        return reasons

    def _hung(self, place: int) -> Iterator[str]:
        state, silent_seconds, loops = self._report(place)
        if state is not State.RUNNING:
            # What starts may be waiting for the database, and what stops for its jobs:
            # the supervisor ends it when its grace is over.
            if self._early_deaths[place] >= EARLY_DEATHS_MAX:
                yield "does not start: it died, or hung, each time"
            return
        if silent_seconds > self._silent_seconds_max:
            yield f"silent for {silent_seconds:.0f} s"
        for name, loop in loops.items():
            if loop.has_ended:
                yield f"{name} has ended"
            elif loop.stuck_seconds > self._silent_seconds_max:
                yield f"{name} hangs for {loop.stuck_seconds:.0f} s"

    def _report(self, place: int) -> tuple[State, float, dict[str, LoopHealth]]:
        """Return the state of a process, for how long it is silent, and its loops."""
        text = self.board.read(place)
        if not text:
            return State.VACANT, 0.0, {}
        state, at, loops = json.loads(text)
        by_name = {name: LoopHealth(*values) for name, values in loops.items()}
        return State(state), time.monotonic() - at, by_name


class HealthServer(ThreadingHTTPServer):
    """Serves each client in a thread of its own, and not too many at once."""

    daemon_threads = True
    request_queue_size = CLIENTS_MAX

    def __init__(self, address: Any, family: socket.AddressFamily, health: Any) -> None:
        self.address_family = family
        self.health: Health = health
        self.clients: dict[socket.socket, None] = {}
        super().__init__(address, HealthHandler)

    def server_bind(self) -> None:
        """Bind, without asking a name server for the name of the host."""
        TCPServer.server_bind(self)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a client; the oldest goes if there are too many."""
        if len(self.clients) >= CLIENTS_MAX:
            with suppress(OSError, StopIteration, RuntimeError):
                next(iter(self.clients)).shutdown(socket.SHUT_RDWR)
        self.clients[request] = None
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """Close a connection, which ends it also where a fork has a copy of it."""
        self.clients.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Do nothing: the client went, or was too slow."""


class HealthHandler(BaseHTTPRequestHandler):
    """
    Answers GET and HEAD.

    Except in /metrics there are no names of queues, tasks, hosts or databases.
    """

    server: HealthServer
    protocol_version = "HTTP/1.1"
    timeout = REQUEST_SECONDS_MAX

    def do_GET(self) -> None:
        """Answer a path with what there is."""
        path, health = self.path.split("?", 1)[0], self.server.health
        if path == "/metrics" and health.has_metrics:
            try:
                kind, body = health.metrics(self.headers.get("Accept", ""))
            except Exception:
                logger.exception("failed     health server: /metrics")
                status = HTTPStatus.INTERNAL_SERVER_ERROR
                self._answer(status, {"status": "failed; see the worker's log"})
                return
            self._send(HTTPStatus.OK, kind, body)
            return
        judges: dict[str, Callable[[], list[str]]] = {
            "/livez": health.unlivable,
            "/readyz": health.unready,
        }
        if path not in judges:
            status = HTTPStatus.NOT_FOUND
            self._answer(status, {"status": "there are /livez and /readyz"})
        elif reasons := judges[path]():
            status = HTTPStatus.SERVICE_UNAVAILABLE
            self._answer(status, {"status": "unavailable", "reasons": reasons})
        else:
            self._answer(HTTPStatus.OK, {"status": "ok"})

    do_HEAD = do_GET  # noqa: N815

    def send_error(
        self, code: int, message: str | None = None, explain: str | None = None
    ) -> None:
        """Refuse what is no request for us."""
        if code == HTTPStatus.NOT_IMPLEMENTED:
            status = HTTPStatus.METHOD_NOT_ALLOWED
            self._answer(status, {"status": "only GET and HEAD"}, Allow="GET, HEAD")
        else:
            self._answer(HTTPStatus.BAD_REQUEST, {"status": "bad request"})

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Do not log each request."""

    def _answer(self, status: HTTPStatus, answer: object, **headers: str) -> None:
        body = json.dumps(answer).encode() + b"\n"
        self._send(status, "application/json", body, **headers)

    def _send(self, status: HTTPStatus, kind: str, body: bytes, **headers: str) -> None:
        # One that is refused for its version is answered all the same.
        self.request_version = "HTTP/1.1"
        self.send_response_only(status)
        for name, value in {
            "Content-Type": kind,
            "Content-Length": str(len(body)),
            "Cache-Control": "no-store",
            **headers,
            "Connection": "close",
        }.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


def _health_of(service: Service) -> LoopHealth:
    busy_seconds = service.busy_seconds()
    is_waiting = busy_seconds > 0 and service.link.is_waiting
    return LoopHealth(
        not service.is_alive,
        service.failures,
        0.0 if is_waiting else busy_seconds,
        busy_seconds if is_waiting else 0.0,
    )


def _bound(host: str, port: int, health: Health) -> HealthServer:
    try:
        family, _, _, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        return HealthServer(address, family, health)
    except OSError as error:
        raise InvalidOption(
            f"--health-port {port} on {host} cannot be used: {error.strerror}. Choose "
            f"another port, or stop what has it."
        ) from error
