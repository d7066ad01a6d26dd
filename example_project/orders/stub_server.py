"""
The stub of the partners: a bank and a parcel service, which fail at random.

    python -m example_project.orders.stub_server --port 8008

As real ones do, it recognises a repeat by its Idempotency-Key. Of all requests, a share
fails: half of these before anything is done (503), half after it was done, without an
answer. Besides, it declines a share of charges and shipments for good (402, 422): by
the key, so that a repeat is declined as well.

    POST /charges, /shipments           201 {"id": "charge-1"}
    DELETE /charges/ID, /shipments/ID   200 {"id": "charge-1"}; again: 200, nothing done
    GET /                               all of them, and how often each was asked for
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import socket
import sys
import threading
import zlib
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

DECLINES = {"charges": (402, "card declined"), "shipments": (422, "no such address")}


class Books:
    """
    What was asked for, and what of it is in effect.

    Attributes:
        made: By id: order, whether it was taken back, and how often it was asked for.
    """

    def __init__(self) -> None:
        self.made: dict[str, dict[str, Any]] = {}
        self._by_key: dict[str, str] = {}
        self._lock = threading.Lock()

    def make(self, kind: str, key: str, order: int) -> str:
        """Return the id of what the key stands for, which is made if it is new."""
        with self._lock:
            new = f"{kind.rstrip('s')}-{len(self._by_key) + 1}"
            found = self._by_key.setdefault(key, new)
            entry = self.made.setdefault(
                found, {"kind": kind, "order": order, "taken_back": False, "asked": 0}
            )
            entry["asked"] += 1
            return found

    def take_back(self, made: str) -> bool:
        """Take something back; False: there is no such thing."""
        with self._lock:
            if made in self.made:
                self.made[made]["taken_back"] = True
            return made in self.made


class StubServer(ThreadingHTTPServer):
    """Serves a listening socket until its with block ends."""

    daemon_threads = True

    def __init__(
        self,
        listener: socket.socket,
        *,
        fails: float = 0.0,
        declines: float = 0.0,
        seed: int = 0,
    ) -> None:
        """
        Args:
            listener: It listens already.
            fails: The share of requests that fail, from 0 to 1.
            declines: The share of charges, and of shipments, that are declined.
            seed: Of what fails at random.
        """
        super().__init__(listener.getsockname(), Handler, bind_and_activate=False)
        self.socket.close()
        self.socket = listener
        self.books = Books()
        self.declines = declines
        self.logs = False
        # Called once something was made or taken back, before the answer.
        self.before_answer: Callable[[str], None] = lambda path: None
        self._fails = fails
        self._random = random.Random(seed)

    @property
    def url(self) -> str:
        """Where it is."""
        return f"http://127.0.0.1:{self.socket.getsockname()[1]}"

    def is_failing(self) -> bool:
        """Whether this one fails, half as often as requests do: it is asked twice."""
        return self._random.random() < self._fails / 2

    def is_declined(self, kind: str, key: str) -> bool:
        """Whether what the key stands for is declined for good."""
        return zlib.crc32(f"{kind} {key}".encode()) / 2**32 < self.declines

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of clients that were killed."""

    def __enter__(self) -> StubServer:
        threading.Thread(target=self.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()


class Handler(BaseHTTPRequestHandler):
    """One request."""

    server: StubServer

    def do_GET(self) -> None:
        self._answer(200, self.server.books.made)

    def do_POST(self) -> None:
        kind, key = self.path.strip("/"), self.headers["Idempotency-Key"]
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.server.is_failing():
            self._answer(503, {"error": "busy"})
        elif self.server.is_declined(kind, key):
            code, why = DECLINES[kind]
            self._answer(code, {"error": why})
        else:
            self._done(201, self.server.books.make(kind, key, body["order"]))

    def do_DELETE(self) -> None:
        made = self.path.rpartition("/")[2]
        if self.server.is_failing():
            self._answer(503, {"error": "busy"})
        elif not self.server.books.take_back(made):
            self._answer(404, {"error": f"there is no {made}"})
        else:
            self._done(200, made)

    def log_message(self, *message: Any) -> None:
        """Log it, where this is a process of its own."""
        if self.server.logs:
            super().log_message(*message)

    def _done(self, code: int, made: str) -> None:
        self.server.before_answer(self.path)
        if self.server.is_failing():
            self.close_connection = True  # Without a word.
        else:
            self._answer(code, {"id": made})

    def _answer(self, code: int, body: Any) -> None:
        text = json.dumps(body).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)


def listening_socket(port: int = 0) -> socket.socket:
    """Return a socket that listens on 127.0.0.1; port 0: a free one."""
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    listener.listen(128)
    return listener


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--port", type=int, default=8008)
    where.add_argument("--fd", type=int, help="a listening socket")
    parser.add_argument("--fails", type=float, default=0.3, help="a share; 0.3")
    parser.add_argument("--declines", type=float, default=0.2, help="a share; 0.2")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    listener = (
        listening_socket(given.port)
        if given.fd is None
        else socket.socket(fileno=given.fd)
    )
    server = StubServer(listener, fails=given.fails, declines=given.declines)
    server.logs = True
    server.serve_forever()


if __name__ == "__main__":
    main()
