"""PostgreSQL's first process: what its pid file says, and whether it is true."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path


def pid_file_lines(home: Path) -> list[str]:
    """The lines of postmaster.pid; none without one."""
    try:
        raw = (home / "data" / "postmaster.pid").read_bytes()
    except FileNotFoundError:
        return []
    return os.fsdecode(raw).splitlines()


def postmaster_pid(home: Path) -> int | None:
    """The pid that postmaster.pid names; None without one. It may be anybody's."""
    lines = pid_file_lines(home)
    return int(lines[0]) if lines and lines[0].strip().isdecimal() else None


def pid_exists(pid: int) -> bool:
    """Say whether any process, a zombie included, has *pid*."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def serves(pid: int, data: Path) -> bool:
    """Say whether *pid* is a postmaster on *data*. In doubt it is."""
    command = _command_of(pid)
    if not command or Path(command[0]).name not in {"postgres", "postmaster"}:
        return False
    if "-D" not in command[:-1]:
        return True
    folder = Path(command[command.index("-D") + 1])
    return folder.resolve() == data.resolve() or not folder.is_absolute()


def _command_of(pid: int) -> list[str]:
    """The words of a process's command line; none of one that is dead or a zombie."""
    # Not /proc/<pid>/cwd, which root in a container may not read of other users.
    if not Path("/proc/self/cmdline").exists():
        return _command_by_ps(pid)
    try:
        raw = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return []
    return [os.fsdecode(word) for word in raw.split(b"\0")[:-1]]


def _command_by_ps(pid: int) -> list[str]:
    """As _command_of(), for macOS; exact for a postmaster's first three words only."""
    shown = subprocess.run(  # noqa: S603  # A number is all that varies.
        ["/bin/ps", "-ww", "-o", "command=", "-p", str(pid)],
        stdout=subprocess.PIPE,
        check=False,
    ).stdout
    # The spaces of a path are not told from others, but the options that start.py
    # puts behind the folder are known.
    program, minus_d, rest = os.fsdecode(shown.strip()).partition(" -D ")
    return [program, "-D", rest.split(" -c ")[0]] if minus_d else [program]
