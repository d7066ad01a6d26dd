"""Where a server is reached: its socket, and the URL that names it."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import quote

USER = "pgqueue"  # The superuser.
DATABASE = "pgqueue"
PORT = 5432  # Only names the socket's file; no TCP port is opened.
URL_PREFIX = f"postgres://{USER}@/{DATABASE}?host="


def socket_path(home: Path) -> Path:
    """The socket's file, which PostgreSQL names after the port."""
    return home / "socket" / f".s.PGSQL.{PORT}"


def url_of(home: Path) -> str:
    """The URL of the server in *home*, whether it runs or not."""
    return f"{URL_PREFIX}{quote(os.fsencode(home / 'socket'))}&port={PORT}"
