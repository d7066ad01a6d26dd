"""
Run a command on a PostgreSQL server of its own: `make test POSTGRES=/usr/lib/…/15/bin`.

The server's data is new and goes away with it, since the binaries of one major version
refuse the data of another, and the checkout's data is of the embedded one's.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from django_pgqueue.postgres.embedded import EmbeddedServer


def main(binaries: str, *command: str) -> int:
    with tempfile.TemporaryDirectory(prefix="pgqueue-") as name:
        folder = Path(name)
        folder.chmod(0o755)  # As root, the server runs as a user who must enter it.
        os.environ["PGQUEUE_PG_BIN"] = binaries
        with EmbeddedServer(folder) as server:
            # The tests know the server by its address alone.
            del os.environ["PGQUEUE_PG_BIN"]
            status = run(command, os.environ | {"DATABASE_URL": server.url})
        # Its guard ends by itself, and writes until then.
        with (server.home / "guard").open() as guard:
            fcntl.flock(guard, fcntl.LOCK_EX)
        return status


def run(command: Sequence[str], environment: Mapping[str, str]) -> int:
    process = subprocess.Popen(command, env=environment)
    while True:
        try:
            return process.wait()
        except KeyboardInterrupt:  # The command has got it too, and ends.
            continue


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
