"""
One use of the server of a checkout: start or join it, and leave it again.

database_url() is that of a whole process, unless DATABASE_URL leads elsewhere.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
from pathlib import Path
from types import TracebackType

from django_pgqueue.exceptions import EmbeddedServerError
from django_pgqueue.postgres.embedded.flocks import locked, open_lock, share
from django_pgqueue.postgres.embedded.home import (
    URL_PREFIX,
    home_of,
    make_home,
    url_of,
)
from django_pgqueue.postgres.embedded.start import ensure_running
from django_pgqueue.postgres.embedded.stop import ensure_guarded, stop_if_unused


class EmbeddedServer:
    """
    One use of the server of one checkout, from start() to stop().

    Any number of uses, in one process or in many, share the server; the first starts
    it and the last stops it.
    """

    def __init__(self, base_dir: Path | str) -> None:
        refuse_windows()
        self.home = home_of(base_dir)
        self._held: list[int] = []  # File descriptors of ``users`` and ``watched``.

    @property
    def url(self) -> str:
        """
        A URL that psycopg and django-environ both understand; the same at every start.

        The socket's folder stands in the query because django-environ does not decode
        a host of the form %2Fpath.
        """
        return url_of(self.home)

    def start(self) -> EmbeddedServer:
        """
        Start the server or join it; return when it accepts connections.

        Raises:
            EmbeddedServerError: Nothing is left behind; the text says why.
        """
        if self._held:
            return self
        try:
            make_home(self.home)
            with locked(self.home / "lock"):
                self._enter()
        except OSError as error:
            raise EmbeddedServerError(
                f"The embedded PostgreSQL server in {self.home} cannot be started: "
                f"{error}. Make the folder usable, or set DATABASE_URL."
            ) from error
        return self

    def stop(self) -> None:
        """
        Leave the server; it stops if nobody else uses it.

        The connections of its last user are closed by the server. In a forked child
        this gives up the child's share only.

        Raises:
            EmbeddedServerError: It is still running: signals had no effect.
        """
        if not self._held:
            return
        try:
            with locked(self.home / "lock"):
                self._leave()
        except FileNotFoundError:
            self._let_go()  # The home was deleted; PostgreSQL notices by itself.

    def __enter__(self) -> EmbeddedServer:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def _enter(self) -> None:
        # Neither waits: an exclusive lock on ``users`` is taken under ``lock`` only,
        # and the guard lets go of ``watched`` at once.
        for name in ("users", "watched"):
            self._held.append(open_lock(self.home / name))
            share(self._held[-1])
        try:
            ensure_running(self.home)
            ensure_guarded(self.home)
        except BaseException:  # Ctrl+C as well.
            self._leave()
            raise

    def _leave(self) -> None:
        self._let_go()
        stop_if_unused(self.home)

    def _let_go(self) -> None:
        # Closed, not unlocked: a forked child shares the lock and keeps it.
        while self._held:
            os.close(self._held.pop())


def refuse_windows() -> None:
    if sys.platform == "win32":
        raise EmbeddedServerError(
            "The embedded PostgreSQL server runs on Linux and macOS only. On Windows, "
            "set DATABASE_URL to a PostgreSQL server of your own."
        )


def database_url(base_dir: Path | str) -> str:
    """
    Return the URL of this checkout's database, and start its server if need be.

    A DATABASE_URL in the environment wins, and then nothing is started. Otherwise this
    process uses the embedded server until it exits, and DATABASE_URL is set for its
    child processes. A child that calls this too, with the URL it was given, becomes a
    user of its own: the server then outlives the parent for as long as the child needs.

    Args:
        base_dir: The checkout. Two checkouts have two servers.

    Raises:
        EmbeddedServerError: No binaries, or the server does not start. It says what to
            do, and shows the end of the server's log.
    """
    given = os.environ.get("DATABASE_URL", "")
    if given and not given.startswith(URL_PREFIX):
        return given
    refuse_windows()
    home = home_of(base_dir)
    if given and given != url_of(home):
        return given  # The embedded server of another checkout.

    with _used_lock:
        if home not in _used:
            server = EmbeddedServer(base_dir)
            server.start()
            atexit.register(server.stop)
            _used[home] = server
    os.environ["DATABASE_URL"] = url_of(home)
    return url_of(home)


_used: dict[Path, EmbeddedServer] = {}  # By database_url(), until this process exits.
_used_lock = threading.Lock()
