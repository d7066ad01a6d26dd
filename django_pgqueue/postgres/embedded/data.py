"""
The cluster in data/: made by initdb, checked, and healed. All under ``lock``.

And who lives in it: what the pid file of PostgreSQL's first process, the postmaster,
says, and whether it is true.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from django_pgqueue.exceptions import EmbeddedServerError
from django_pgqueue.postgres.embedded.binaries import Binaries
from django_pgqueue.postgres.embedded.home import DATABASE, USER
from django_pgqueue.postgres.embedded.programs import (
    make_folder_of_server_user,
    run_as_server_user,
)

# The second is for systems without C.UTF-8, such as older macOS.
LOCALES = ("C.UTF-8", "C")


def prepare_data(home: Path, binaries: Binaries, server_fd: int) -> None:
    """Make data/ fit to start on; *server_fd* holds ``server`` for what runs here."""
    data = home / "data"
    if not os.access(data, os.F_OK):
        _create_data(home, binaries, server_fd)
    found = (data / "PG_VERSION").read_text().strip()
    if found != str(binaries.major):
        raise EmbeddedServerError(
            f"{data} was made by PostgreSQL {found}, but the binaries in "
            f"{binaries.folder} are PostgreSQL {binaries.major}. Set PGQUEUE_PG_BIN "
            f"to the binaries of PostgreSQL {found}, or move {data} away to start "
            f"with an empty database."
        )
    _heal(home)


def _create_data(home: Path, binaries: Binaries, server_fd: int) -> None:
    # The rename is what makes it count: an initdb that was killed leaves data.new/.
    new = home / "data.new"
    if os.access(new, os.F_OK):
        shutil.rmtree(new)
    make_folder_of_server_user(new)
    _run_initdb(binaries, new, server_fd)
    created = run_as_server_user(
        [binaries.folder / "postgres", "--single", "-D", new, "postgres"],
        input=f"CREATE DATABASE {DATABASE};\n",
        pass_fds=(server_fd,),
    )
    if created.returncode != 0:
        raise EmbeddedServerError(f"CREATE DATABASE failed in {new}: {created.stdout}")
    new.rename(home / "data")


def _run_initdb(binaries: Binaries, new: Path, server_fd: int) -> None:
    # The passed descriptor holds ``server``: should this process be killed, the next
    # one waits for the initdb left behind before it clears the folder.
    command: list[Path | str] = [binaries.folder / "initdb", "-D", new]
    command += ["-U", USER, "--auth=trust"]
    for locale in LOCALES:
        made = run_as_server_user(
            [*command, "--encoding=UTF8", f"--locale={locale}"], pass_fds=(server_fd,)
        )
        if made.returncode == 0:
            return
        if "invalid locale name" not in made.stdout:
            break
    raise EmbeddedServerError(f"initdb failed in {new}:\n{made.stdout}")


def _heal(home: Path) -> None:
    """
    Remove what would keep PostgreSQL from starting although nothing lives in data/.

    PostgreSQL takes any living process with the pid in postmaster.pid for a server. A
    file whose pid is dead is left to PostgreSQL, which also looks for shared memory.
    """
    pid_file = home / "data" / "postmaster.pid"
    pid = postmaster_pid(home)
    if pid is not None and serves(pid, home / "data"):
        raise EmbeddedServerError(
            f"Process {pid} is a PostgreSQL server on {home / 'data'} that was started "
            f"by hand. Stop it, or set DATABASE_URL to its address."
        )
    if pid is None or pid_exists(pid):
        pid_file.unlink(missing_ok=True)
    # The socket has a lock file of its own, with the same pid in it.
    for left_over in (home / "socket").glob(".s.PGSQL.*"):
        left_over.unlink()


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
