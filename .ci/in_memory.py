"""
Run tests with their files in memory, where the machine has enough: `make test`.

    in_memory.py COMMAND [ARGUMENT…]

What tests write need not outlive them: temporary files, and the data of their servers.
On a disk that costs up to a third of their time. The folder goes away with them.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

MEMORY = Path("/dev/shm")  # noqa: S108  # A folder of its own is made there.
GIB = 2**30

# The servers of two processes have come to less than 1 GiB.
FOLDER_MIN = 4 * GIB
AVAILABLE_MIN = 8 * GIB


def main(*command: str) -> int:
    if not has_enough(MEMORY):
        return run(command, os.environ)
    with tempfile.TemporaryDirectory(prefix="pgqueue-tests-", dir=MEMORY) as name:
        folder = Path(name)
        folder.chmod(0o755)  # As root, servers run as a user who must enter it.
        told = {"TMPDIR": name, "PGQUEUE_TEST_FOLDER": name}
        status = run(command, os.environ | told)
        wait_for_guards(folder.glob("*/.pgqueue"))
        return status


def has_enough(memory: Path, meminfo: Path = Path("/proc/meminfo")) -> bool:
    """Whether there is such a folder, and neither it nor the machine would be full."""
    if not memory.is_dir() or not os.access(memory, os.W_OK):
        return False
    (available,) = re.findall(r"MemAvailable: +(\d+) kB", meminfo.read_text())
    is_free = shutil.disk_usage(memory).free >= FOLDER_MIN
    return is_free and int(available) * 1024 >= AVAILABLE_MIN


def run(command: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run a command to its end, whoever interrupts it, and return its status."""
    process = subprocess.Popen(command, env=environment)
    while True:
        try:
            return process.wait()
        except KeyboardInterrupt:  # The command has got it too, and ends.
            continue


def wait_for_guards(homes: Iterable[Path]) -> None:
    """Wait until the guards of embedded servers have ended; they write until then."""
    for home in homes:
        with (home / "guard").open("a") as guard:
            fcntl.flock(guard, fcntl.LOCK_EX)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
