"""
Run tests on new PostgreSQL servers: `make test POSTGRES=/usr/lib/postgresql/15/bin`.

    on_postgres.py FOLDER PROCESSES COMMAND [ARGUMENT…]

One server for each process of the tests, for some end other sessions of their server.
Their data goes away with them, since the binaries of one major version refuse the data
of another, and the checkout's data is of the embedded one's. So nothing is synced.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from django_pgqueue.postgres.embedded import EmbeddedServer
from django_pgqueue.postgres.embedded.start import PARAMETERS


def main(binaries: str, processes: str, *command: str) -> int:
    with tempfile.TemporaryDirectory(prefix="pgqueue-") as name:
        folder = Path(name)
        folder.chmod(0o755)  # As root, the server runs as a user who must enter it.
        os.environ["PGQUEUE_PG_BIN"] = binaries
        PARAMETERS["fsync"] = "off"
        with ExitStack() as stack:
            servers = [
                stack.enter_context(EmbeddedServer(folder / str(number)))
                for number in range(max(1, int(processes)))
            ]
            # The tests know the servers by their addresses alone.
            del os.environ["PGQUEUE_PG_BIN"]
            urls = [server.url for server in servers]
            told = {"DATABASE_URL": urls[0], "PGQUEUE_TEST_SERVERS": " ".join(urls)}
            status = run(command, os.environ | told)
        # Their guards end by themselves, and write until then.
        for server in servers:
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
