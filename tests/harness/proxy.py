"""
A TCP proxy between a process and PostgreSQL, for what a network does to connections.

It knows each connection by the application_name in its first packet, so that a test
can harm the listener's, say, and no other. Its harms:

- *mute* swallows what the server says while the connection stays open;
- *cut* lets one more statement through, waits for the server's whole answer, drops it
  and closes: the client never learns what became of it;
- *drop* closes before one more statement reaches the server;
- *hole* forwards nothing, of old connections and of new ones, until it is closed;
- *reset* ends connections with RST, as a firewall does that lost its table.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from typing import Any, Self

from django.db import connections

PIECE = 65_536

READY_FOR_QUERY = b"Z\x00\x00\x00\x05I"

# A statement that says so has the next COMMIT of its connection cut, or dropped.
CUT_NEXT_COMMIT = b"/* cut the next COMMIT */"
DROP_NEXT_COMMIT = b"/* drop the next COMMIT */"

# With this, close() sends RST and not FIN.
AT_ONCE = struct.pack("ii", 1, 0)


class Passage:
    """One connection of the client with its twin to the server."""

    def __init__(self, client: socket.socket, server: socket.socket) -> None:
        self.client = client
        self.server = server
        self.startup = b""  # The first packet; application_name is in it.
        self.muted = False
        self.has_lost = False  # Something of the server's was swallowed.
        self.cut_next: bytes | None = None  # Part of the statement to be cut at.
        self.drop_next: bytes | None = None  # Part of one that should not arrive.
        self.cutting = False
        self.swallowed = b""

    def is_called(self, name: bytes) -> bool:
        """Whether its application_name starts with *name*; it does with none."""
        return not name or b"application_name\0" + name in self.startup

    def close(self) -> None:
        for end in (self.client, self.server):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def reset(self) -> None:
        """End it as a firewall does: an error for both sides, not an end."""
        for end in (self.client, self.server):
            with contextlib.suppress(OSError):
                if end.family != socket.AF_UNIX:
                    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, AT_ONCE)
        self.close()


class Proxy:
    """
    Listens on a free port of 127.0.0.1; use it as a context manager.

    Args:
        alias: The database that it leads to.
        server: (host or folder of the socket, port), instead of an alias.
    """

    def __init__(
        self, alias: str = "default", *, server: tuple[str, int] | None = None
    ) -> None:
        self._host, self._port = server or _address_of(alias)
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._lock = threading.Lock()
        self._passages: list[Passage] = []
        # Names whose connections, old and new, forward nothing; and those whose
        # answers are swallowed. An empty name is everybody's.
        self._changed = threading.Condition()
        self._holes: set[bytes] = set()
        self._deaf: set[bytes] = set()
        self.cut_done = threading.Event()

    @property
    def port(self) -> int:
        """The port that it listens on."""
        port: int = self._listening.getsockname()[1]
        return port

    @property
    def database(self) -> dict[str, Any]:
        """Changes to an entry of DATABASES that lead through the proxy."""
        # No TLS, or the proxy could not read the names.
        options = {"sslmode": "disable", "gssencmode": "disable"}
        return {"HOST": "127.0.0.1", "PORT": self.port, "OPTIONS": options}

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *args: object) -> None:
        self._listening.close()
        self.close_hole()
        for passage in self.passages():
            passage.close()

    def passages(self, name: bytes = b"") -> list[Passage]:
        """Return the connections whose application_name starts with *name*."""
        with self._lock:
            return [p for p in self._passages if p.is_called(name)]

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

    def open_hole(self, name: bytes = b"", *, one_way: bool = False) -> int:
        """
        Forward nothing from now on; return the number of connections in it.

        *name*: only of connections whose application_name starts so. *one_way*:
        requests still pass, and their answers are lost.
        """
        with self._changed:
            (self._deaf if one_way else self._holes).add(name)
        return len(self.passages(name))

    @property
    def has_hole(self) -> bool:
        """Whether anything is being swallowed."""
        return bool(self._holes or self._deaf)

    def close_hole(self) -> None:
        """
        Forward again what waited; connections that have lost something are reset.

        TCP never goes on behind a gap, so a stream with one must not either.
        """
        with self._changed:
            self._holes.clear()
            self._deaf.clear()
            self._changed.notify_all()
        for passage in self.passages():
            if passage.has_lost:
                passage.reset()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            try:
                server = self._connect()
            except OSError:
                client.close()  # The server is down; the proxy stays.
                continue
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
                self._wait_in_hole(passage)
                if not self._prepare_harm(passage, data):
                    break
                passage.server.sendall(data)
        self._end(passage)

    def _prepare_harm(self, passage: Passage, data: bytes) -> bool:
        """Note what this statement asks for; False: it must not reach the server."""
        if passage.cut_next is not None and passage.cut_next in data:
            passage.cutting = True
        if passage.drop_next is not None and passage.drop_next in data:
            return False
        if CUT_NEXT_COMMIT in data:
            passage.cut_next = b"COMMIT"
        if DROP_NEXT_COMMIT in data:
            passage.drop_next = b"COMMIT"
        return True

    def _to_client(self, passage: Passage) -> None:
        with contextlib.suppress(OSError):
            while data := passage.server.recv(PIECE):
                self._wait_in_hole(passage)
                if passage.cutting:
                    passage.swallowed += data
                    # The server is idle again: the transaction is committed.
                    if passage.swallowed.endswith(READY_FOR_QUERY):
                        break
                elif passage.muted or any(map(passage.is_called, self._deaf)):
                    passage.has_lost = True
                else:
                    passage.client.sendall(data)
        self._end(passage)

    def _wait_in_hole(self, passage: Passage) -> None:
        with self._changed:
            self._changed.wait_for(lambda: not any(map(passage.is_called, self._holes)))

    def _end(self, passage: Passage) -> None:
        passage.close()
        with self._lock, contextlib.suppress(ValueError):
            self._passages.remove(passage)
        if passage.cutting:
            self.cut_done.set()


def _address_of(alias: str) -> tuple[str, int]:
    settings = connections[alias].settings_dict
    # The embedded server's socket is named in OPTIONS.
    where = {**settings["OPTIONS"], "HOST": settings["HOST"]}
    host = str(where["HOST"] or where.get("host") or "/tmp")  # noqa: S108
    return host, int(settings["PORT"] or where.get("port") or 5432)
