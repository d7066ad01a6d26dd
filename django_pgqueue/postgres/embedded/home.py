"""The folder where the server of a checkout lives, and how it is reached there."""

from __future__ import annotations

import contextlib
import hashlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

from django_pgqueue.exceptions import EmbeddedServerError
from django_pgqueue.postgres.embedded.programs import run_as_server_user

USER = "pgqueue"  # The superuser.
DATABASE = "pgqueue"
PORT = 5432  # Only names the socket's file; no TCP port is opened.
URL_PREFIX = f"postgres://{USER}@/{DATABASE}?host="
SOCKET_PATH_BYTES_MAX = 100  # macOS takes 103, Linux 107.


def socket_path(home: Path) -> Path:
    """The socket's file, which PostgreSQL names after the port."""
    return home / "socket" / f".s.PGSQL.{PORT}"


def url_of(home: Path) -> str:
    """The URL of the server in *home*, whether it runs or not."""
    return f"{URL_PREFIX}{quote(os.fsencode(home / 'socket'))}&port={PORT}"


def home_of(base_dir: Path | str) -> Path:
    """Return the folder where the server of *base_dir* lives; creates nothing."""
    base_dir = Path(base_dir).resolve()
    local = base_dir / ".pgqueue"
    if _is_usable(local):
        return local

    digest = hashlib.sha256(os.fsencode(base_dir)).hexdigest()[:16]
    for cache in _caches():
        home = cache / "pgqueue" / digest
        if _is_usable(home):
            return home
    raise EmbeddedServerError(
        f"No folder for the embedded PostgreSQL server of {base_dir}: neither {local} "
        f"nor {home} is writable, enterable, and fit for a socket (a path of at most "
        f"{SOCKET_PATH_BYTES_MAX} bytes, without a comma). Set XDG_CACHE_HOME to a "
        f"folder that is, or set DATABASE_URL."
    )


def _caches() -> Iterator[Path]:
    named = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if named.is_absolute():
        yield named
    macos = sys.platform == "darwin"
    if os.geteuid() == 0:  # Root's own cache lies in a folder closed to other users.
        yield Path("/Library/Caches" if macos else "/var/cache")
    else:
        yield Path("~/Library/Caches" if macos else "~/.cache").expanduser()


def _is_usable(home: Path) -> bool:
    path = os.fsencode(socket_path(home))
    if len(path) > SOCKET_PATH_BYTES_MAX or b"," in path:
        return False  # To libpq, a comma separates one host from the next.
    existing = home
    while not os.access(existing, os.F_OK):
        existing = existing.parent
    if existing == home and home.stat().st_uid != os.geteuid():
        return False  # Made by root for a checkout of ours, or the other way round.
    if not os.access(existing, os.W_OK | os.X_OK):
        return False
    if os.geteuid() != 0:
        return True
    # Asked of the system and not computed from modes, which miss access lists.
    test = ["/bin/sh", "-c", 'test -x "$1"', "sh", str(existing)]
    probe = run_as_server_user(test)
    return probe.returncode == 0


def make_home(home: Path) -> None:
    """Make the folder; others cannot list it, but may pass through if it is root's."""
    for folder in reversed([home, *home.parents]):
        if not os.access(folder, os.F_OK):
            with contextlib.suppress(FileExistsError):  # Another process was quicker.
                folder.mkdir()
                # Set apart from mkdir, which a umask would narrow.
                folder.chmod(0o711 if os.geteuid() == 0 else 0o700)
    (home / ".gitignore").write_text("*\n")
