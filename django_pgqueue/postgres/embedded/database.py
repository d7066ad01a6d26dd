"""The URL of a checkout's database: DATABASE_URL, or its embedded server."""

from __future__ import annotations

import atexit
import os
import threading
from pathlib import Path

from django_pgqueue.postgres.embedded.address import URL_PREFIX, url_of
from django_pgqueue.postgres.embedded.home import home_of
from django_pgqueue.postgres.embedded.server import EmbeddedServer, refuse_windows


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
