"""
A TCP proxy between a worker and PostgreSQL, for what a network does to connections.

It knows each connection by the application_name in its first packet, so that a test
can harm the listener's, say, and no other. Two harms: *mute* swallows what the server
says while the connection stays open; *cut* lets one more statement through, waits for
the server's whole answer, drops it and closes.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import Any, Self

from django.db import connections

PIECE = 65_536

READY_FOR_QUERY = b"Z\x00\x00\x00\x05I"


class Passage:
    """One connection of the client with its twin to the server."""

    def __init__(self, client: socket.socket, server: socket.socket) -> None:
        self.client = client
        self.server = server
        self.startup = b""  # The first packet; application_name is in it.
        self.muted = False
        self.cut_next: bytes | None = None  # Part of the statement to be cut at.
        self.cutting = False
        self.swallowed = b""

    def close(self) -> None:
        for end in (self.client, self.server):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()


class Proxy:
    """Listens on a free port of 127.0.0.1; use it as a context manager."""

    def __init__(self, alias: str = "default") -> None:
        settings = connections[alias].settings_dict
        # The embedded server's socket is named in OPTIONS.
        where = {**settings["OPTIONS"], "HOST": settings["HOST"]}
        self._host = str(where["HOST"] or where.get("host") or "/tmp")  # noqa: S108
        self._port = int(settings["PORT"] or where.get("port") or 5432)
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._lock = threading.Lock()
        self._passages: list[Passage] = []
        self.cut_done = threading.Event()

    @property
    def database(self) -> dict[str, Any]:
        """Changes to an entry of DATABASES that lead through the proxy."""
        port = self._listening.getsockname()[1]
        # No TLS, or the proxy could not read the names.
        options = {"sslmode": "disable", "gssencmode": "disable"}
        return {"HOST": "127.0.0.1", "PORT": port, "OPTIONS": options}

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *args: object) -> None:
        self._listening.close()
        for passage in self.passages():
            passage.close()

    def passages(self, name: bytes = b"") -> list[Passage]:
        """Return the connections whose application_name starts with *name*."""
        with self._lock:
            mark = b"application_name\0" + name
            return [p for p in self._passages if not name or mark in p.startup]

    def mute(self, name: bytes) -> int:
        """Swallow what the server says on these from now on; return how many."""
        found = self.passages(name)
        for passage in found:
            passage.muted = True
        return len(found)

    def cut_at(self, name: bytes, statement: bytes) -> int:
        """Let *statement* through on these, and drop its answer and the connection."""
        found = self.passages(name)
        for passage in found:
            passage.cut_next = statement
        return len(found)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
                server = self._connect()
            except OSError:
                return
            passage = Passage(client, server)
            with self._lock:
                self._passages.append(passage)
            for pump in (self._to_server, self._to_client):
                threading.Thread(target=pump, args=(passage,), daemon=True).start()

    def _connect(self) -> socket.socket:
        if not self._host.startswith("/"):
            return socket.create_connection((self._host, self._port))
        server = socket.socket(socket.AF_UNIX)
        server.connect(f"{self._host}/.s.PGSQL.{self._port}")
        return server

    def _to_server(self, passage: Passage) -> None:
        with contextlib.suppress(OSError):
            while data := passage.client.recv(PIECE):
                passage.startup = passage.startup or data
                if passage.cut_next is not None and passage.cut_next in data:
                    passage.cutting = True
                passage.server.sendall(data)
        self._end(passage)

    def _to_client(self, passage: Passage) -> None:
        with contextlib.suppress(OSError):
            while data := passage.server.recv(PIECE):
                if passage.cutting:
                    passage.swallowed += data
                    # The server is idle again: the transaction is committed.
                    if passage.swallowed.endswith(READY_FOR_QUERY):
                        break
                elif not passage.muted:
                    passage.client.sendall(data)
        self._end(passage)

    def _end(self, passage: Passage) -> None:
        passage.close()
        with self._lock, contextlib.suppress(ValueError):
            self._passages.remove(passage)
        if passage.cutting:
            self.cut_done.set()
