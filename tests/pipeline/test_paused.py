"""
A driver that was paused while it published, and goes on when another has taken over.

One driver is stopped at one place after the other, each time in a run that would
replace the day, or write the next batch; then a run of the test does the same, and the
driver goes on.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from deltalake import CommitProperties, DeltaTable, Transaction
from pyspark import __version__

from django_pgqueue.models import Export
from django_pgqueue.queues import partitions
from django_pgqueue.spark.export.store import Store
from django_pgqueue.spark.running import run_job
from tests.harness.process_tree import children, descendants, freeze, tell, waking
from tests.harness.waiting import patience, wait_for
from tests.harness.worker_process import REPOSITORY
from tests.pipeline.test_erase_messages import messages_in
from tests.pipeline.test_export import archived, ids, make, of_delta
from tests.pipeline.test_ingest import ids as ids_of_log
from tests.pipeline.test_lake import THEIRS, in_pieces
from tests.spark.conftest import quick_start, require
from tests.spark.log.conftest import backlog, cursor, held_halfway, publish

# Its first run waits for a Java process of its own.
pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(300)]

__all__ = ["backlog", "cursor", "in_pieces", "publish"]

DAY = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(
    2
)

PARQUET = "django_pgqueue.spark.export.parquet:ParquetPlace"
MOVE = "django_pgqueue.spark.export.store:Store.move"
DELETE_PAGE = "django_pgqueue.pipeline.erasures:delete_page"
RECORD = "django_pgqueue.pipeline.exports:record"
CLEANED = "django_pgqueue.pipeline.exports:cleaned"
BATCH = "django_pgqueue.spark.ingest.parquet:ParquetPlace"
TOUCH = "django_pgqueue.spark.export.store:Store.touch"
COMMIT = "deltalake:write_deltalake"

# What compact and erase do alike; and where the day, and erase's receipt, are decided.
OF_RECEIPT = [(RECORD, 1), (f"{PARQUET}.clean", 1)]
OF_DAY = [(f"{PARQUET}.publish", 1), (MOVE, 1), *OF_RECEIPT, (CLEANED, 1)]


class Paused:
    """The driver, as a process of its own."""

    def __init__(self, dsn: str, config: dict[str, str]) -> None:
        self._command = [sys.executable, "-m", "tests.pipeline.paused_driver"]
        self._command += [dsn, json.dumps(config)]
        self._process = self._start()
        self._is_held = False

    def _start(self) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self._command,
            cwd=REPOSITORY,
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join(
                    [
                        str(REPOSITORY),
                        str(REPOSITORY / "django_pgqueue/spark/toplevel"),
                    ]
                ),
            },
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def run(self, job: str, options: dict[str, Any], place: str, call: int = 1) -> None:
        """Begin a run, and return when it has stopped at *place*."""
        self.begin(job, options, place, call)
        wait_for(self._is_stopped, 240, f"the driver stops at {place}")
        self._is_held = True

    def run_into(self, job: str, options: dict[str, Any], file: Path) -> None:
        """Begin a run, and return when it has stopped where it opens *file*."""
        with leased(file) as is_wanted:
            self.begin(job, options)
            wait_for(is_wanted, 240, f"the driver opens {file}")
            self._process.send_signal(signal.SIGSTOP)
            wait_for(self._is_stopped, 30, "the driver stops")
        self._is_held = True

    def begin(
        self, job: str, options: dict[str, Any], place: str = MOVE, call: int = 0
    ) -> None:
        """Begin a run, which stops nowhere unless it is told to."""
        if self._is_held:
            # The test before has failed: others need not.
            self.go_on()
        if self._process.poll() is not None:
            self._process = self._start()
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([job, options, place, call]) + "\n")
        self._process.stdin.flush()

    def kill(self) -> None:
        """Kill -9 all that the driver is, its Java process and executors as well."""
        self._kill(descendants(self._process.pid))

    def _kill(self, pids: Iterable[int]) -> None:
        tell([*pids, self._process.pid], signal.SIGKILL)
        self._process.wait(30 * patience())
        for pipe in (self._process.stdin, self._process.stdout):
            # What is frozen has them, too, so they do not end.
            assert pipe is not None
            pipe.close()
        self._is_held = False

    def kill_pythons(self) -> None:
        """Kill -9 what its executors run; who starts those, and it, go on."""
        tell(self._pythons(), signal.SIGKILL)

    def kill_beside_frozen(self) -> list[int]:
        """Freeze its Java and what its executors run, and kill -9 it; return those.

        With that Java, since its end would end them: their group would be an orphan.
        """
        assert self._pythons()
        frozen = freeze(descendants(self._process.pid))
        self._kill([])
        return frozen

    def _pythons(self) -> list[int]:
        found = []
        for starter in descendants(self._process.pid):
            with suppress(FileNotFoundError, ProcessLookupError):
                if b"pyspark.daemon" in Path(f"/proc/{starter}/cmdline").read_bytes():
                    found += children(starter)
        assert found
        return found

    def go_on(self) -> list[Any]:
        """Let it go on, and return how its run has ended: its state and its error."""
        self._process.send_signal(signal.SIGCONT)
        self._is_held = False
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("answer "):
                told: list[Any] = json.loads(line.removeprefix("answer "))
                return told
        raise AssertionError("The driver has ended.")

    def go_on_until(self, is_there: Callable[[], bool]) -> None:
        """Let it go on, and return at a moment at which it, or its Java, waits."""
        self._process.send_signal(signal.SIGCONT)
        self._is_held = False
        wait_for(is_there, 240, "the driver is there")

    def close(self) -> None:
        """End it."""
        if self._process.poll() is not None:
            return
        self._process.send_signal(signal.SIGCONT)
        self._process.communicate(timeout=30 * patience())

    def _is_stopped(self) -> bool:
        assert self._process.poll() is None, "The driver has ended."
        flags = os.WSTOPPED | os.WNOHANG
        return os.waitid(os.P_PID, self._process.pid, flags) is not None


@pytest.fixture(scope="module")
def driver(dsn: str, request: pytest.FixtureRequest) -> Iterator[Paused]:
    """A driver of the pipeline that may be stopped."""
    require("deltalake")
    driver = start_driver(dsn, request)
    yield driver
    driver.close()


def start_driver(dsn: str, request: pytest.FixtureRequest) -> Paused:
    """Return a driver with a Java process of its own."""
    java = quick_start(request.config.cache.mkdir("spark"), __version__).split()
    config = {
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "1",
        # Two processes would write one archive of classes.
        "spark.driver.extraJavaOptions": " ".join(
            option for option in java if "AtExit" not in option
        ),
    }
    return Paused(dsn, config)


@contextmanager
def leased(file: Path) -> Iterator[Callable[[], bool]]:
    """
    Let whoever opens *file* wait in the kernel, which takes the lease away after 45 s.

    Yields:
        Whether somebody waits.
    """
    before = signal.signal(signal.SIGIO, signal.SIG_IGN)
    opened = os.open(file, os.O_RDONLY)
    try:
        fcntl.fcntl(opened, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        yield lambda: fcntl.fcntl(opened, fcntl.F_GETLEASE) != fcntl.F_WRLCK
    finally:
        os.close(opened)
        signal.signal(signal.SIGIO, before)


def is_active(cursor):
    cursor.execute(
        "SELECT count(*) FROM pg_stat_activity"
        " WHERE application_name = 'pgqueue pipeline'"
        " AND state = 'active' AND datname = current_database()"
    )
    return cursor.fetchone()[0]


def take_over(cursor):
    """Let the run of the paused driver be lost: its lease ends, and so do sessions that
    are idle in a transaction, as the server does it after a while."""
    # A beat may have been under way.
    wait_for(lambda: not is_active(cursor), 30, "the driver's statements end")
    cursor.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE application_name IN ('pgqueue pipeline', 'pgqueue spark: write')"
        " AND state = 'idle in transaction' AND datname = current_database()"
    )
    cursor.execute(
        "UPDATE pgqueue_pipeline_run SET lease_until = now() - interval '1s'"
        " WHERE state = 'running'"
    )


@pytest.fixture
def _day(archive_days, cursor):
    with cursor.connection.transaction():
        partitions.make_partition(cursor, DAY.date())


def manifest():
    return Export.objects.get(day=DAY.date())


@pytest.mark.usefixtures("_day")
@pytest.mark.parametrize(
    "places",
    [
        # The day is not there yet; then it is replaced.
        [(f"{PARQUET}.publish", 1), (f"{PARQUET}.publish", 1), (MOVE, 2)],
        [(MOVE, 1), (RECORD, 1), (f"{PARQUET}.clean", 1), (CLEANED, 1)],
    ],
)
def test_a_paused_driver_leaves_the_day_of_another_run(
    run, driver, cursor, tmp_path, places
):
    """Wherever it was stopped: its place taken, what the second run has published
    stands, the manifest lists just the files that there are, and no row comes twice."""
    day = f"{DAY:%Y-%m-%d}"
    given = {"path": str(tmp_path), "since": day, "until": day}
    for place, call in places:
        make(DAY, queue="mail")
        make(DAY, queue="default")
        driver.run("export", given, place, call)
        make(DAY, queue="late")
        take_over(cursor)

        expected = run("export", **given).rows_out

        state, error = driver.go_on()
        assert "lost" == state, (place, error)
        found = manifest()
        there = {
            str(path.relative_to(tmp_path)): path.stat().st_size
            for path in tmp_path.rglob("*.parquet")
        }
        listed = {file["path"]: file["bytes"] for file in found.files}
        assert listed == there, place
        assert ("exported", expected, []) == (found.state, found.rows, found.replaced)
        assert archived(DAY) == ids(tmp_path), place
        assert (tmp_path / f"day={DAY:%Y-%m-%d}" / "_SUCCESS").exists()
    assert 0 == run("export", **given).rows_out


@pytest.mark.usefixtures("_day")
@pytest.mark.parametrize(
    "job, given, others, places",
    [
        ("compact", {}, ["compact", "erase"], OF_DAY),
        (
            *("erase", {**THEIRS, "apply": True}, ["erase", "compact"]),
            [(DELETE_PAGE, 1), *OF_RECEIPT],
        ),
    ],
)
def test_a_paused_driver_rewrites_no_day_of_another_run(
    run, driver, cursor, tmp_path, in_pieces, job, given, others, places
):
    """Stopped at each step of compact and erase, while another run of it, and of the
    other one, does the same: each row is there once, the manifest lists just the files
    that there are, and counts and checksums are those of the files."""
    target, day = str(tmp_path), f"{DAY:%Y-%m-%d}"
    exported = {"path": target, "since": day, "until": day, "again": "true"}
    options = {"compact": {"path": target}, "erase": {**THEIRS, "apply": "true"}}
    for place, call in places:
        for n in range(9):
            make(DAY, queue=("mail", "b")[n % 2], kwargs={"customer_id": 42 + n % 3})
        run("export", **exported)
        driver.run(
            job,
            {**given, **({"path": target} if job == "compact" else {})},
            place,
            call,
        )
        take_over(cursor)

        for other in others:
            run(other, **options[other])

        state, error = driver.go_on()
        assert "lost" == state, (place, error)
        found = manifest()
        there = {
            str(path.relative_to(tmp_path)): path.stat().st_size
            for path in tmp_path.rglob("*.parquet")
        }
        assert there == {file["path"]: file["bytes"] for file in found.files}, place
        assert archived(DAY) == ids(tmp_path), place
        assert ("exported", []) == (found.state, found.replaced)
        assert len(archived(DAY)) == run("verify", path=target).rows_out, place


@pytest.mark.usefixtures("_day")
def test_a_paused_driver_does_not_commit_over_another_run(
    run, driver, cursor, tmp_path
):
    """In Delta: a commit that follows from an older version is refused."""
    day = f"{DAY:%Y-%m-%d}"
    given = {"path": str(tmp_path / "table"), "format": "delta"}
    given |= {"since": day, "until": day}
    for place in (COMMIT, COMMIT, RECORD):
        make(DAY, queue="mail")
        driver.run("export", given, place)
        make(DAY, queue="late")
        take_over(cursor)

        expected = run("export", **given).rows_out

        state, error = driver.go_on()
        assert "lost" == state, (place, error)
        assert archived(DAY) == of_delta(given["path"]), place
        found = manifest()
        assert ("exported", expected) == (found.state, found.rows)
        assert DeltaTable(given["path"]).version() == found.version


def test_a_paused_driver_writes_no_message_twice(
    run, plan, driver, cursor, publish, tmp_path, monkeypatch
):
    """Nor does it take files away that another run is moving to their places."""
    given = {"topic": "orders,mail", "path": str(tmp_path)}
    move, moving = Store.move, []

    def let_it_go_on(self, name, to):
        move(self, name, to)
        if not moving:
            moving.append(driver.go_on())

    expected = publish(1) + publish(1, "mail")
    run("ingest", **given)
    for place, call, trigger in (
        (f"{BATCH}._write", 1, "1s"),
        ("django_pgqueue.pipeline.ingest_batches:decide", 1, "available-now"),
        # Before the first one it would be where it decides, or here.
        (MOVE, 2, "1s"),
    ):
        expected += publish(1) + publish(1, "mail")
        driver.run("ingest", given | {"trigger": trigger}, place, call)
        take_over(cursor)
        moving.clear()

        with monkeypatch.context() as patch:
            patch.setattr(Store, "move", let_it_go_on)
            ended = run_job(plan("ingest", **given))
            if ended.state != "succeeded":
                # Spark has found both at one checkpoint, maybe before a file was moved;
                # the next run goes on.
                assert "CONCURRENT_STREAM_LOG_UPDATE" in ended.error
                run("ingest", **given)

        assert ["lost"] == [state for state, _ in moving], (place, moving)
        assert sorted(expected) == ids_of_log(tmp_path), place


def test_a_paused_driver_commits_no_batch_again(run, driver, cursor, publish, tmp_path):
    """In Delta: Spark's second attempt of the batch is in the table already."""
    given = {"topic": "orders", "path": str(tmp_path / "table"), "format": "delta"}
    expected = []
    for _ in range(2):
        expected += publish(2)
        driver.run("ingest", given, COMMIT)
        take_over(cursor)

        run("ingest", **given)

        assert "lost" == driver.go_on()[0]
        table = DeltaTable(given["path"]).to_pyarrow_table(columns=["id"])
        assert expected == sorted(table.column("id").to_pylist())


@pytest.mark.parametrize("form, place", [("parquet", TOUCH), ("delta", COMMIT)])
def test_a_paused_driver_brings_back_nothing_that_was_erased(
    run, driver, cursor, publish, tmp_path, form, place
):
    """What it read before the erasure it puts nowhere after it, though no other run has
    written since and nothing of theirs was there."""
    given = {"topic": "orders", "path": str(tmp_path / "log"), "format": form}
    kept = publish(2)
    run("ingest", **given)
    publish(2, payload={"customer": 42})
    driver.run("ingest", given, place)
    take_over(cursor)

    run("erase", path="payload.customer", value="42", apply="true")

    assert "lost" == driver.go_on()[0]
    assert kept == messages_in(given["path"], form)
    kept += publish(1)
    run("ingest", **given)
    assert kept == messages_in(given["path"], form)


def test_a_live_driver_commits_after_an_erasure(driver, cursor, publish, tmp_path):
    """Which has come between: its batch is refused once, and is there once."""
    given = {"topic": "orders", "path": str(tmp_path / "log"), "format": "delta"}
    expected = publish(2)
    driver.run("ingest", given, COMMIT)
    fence = [Transaction("django_pgqueue.ingest.of.orders", 1)]
    table = DeltaTable(given["path"])
    table.create_write_transaction(
        *([], "append", table.schema()),
        commit_properties=CommitProperties(app_transactions=fence),
    )

    assert ["succeeded", None] == driver.go_on()
    assert expected == messages_in(given["path"], "delta")


def test_a_killed_driver_and_a_killed_python_lose_nothing(
    run, driver, cursor, new_cursor, backlog, publish, tmp_path
):
    """kill -9 in the middle of a batch: of an executor's Python, which ends the run;
    and of the driver, while its Java and that Python are frozen. The next run writes
    each message once, and those that wake up add nothing."""
    given = {"topic": "orders", "path": str(tmp_path), "trigger": "1s"}
    rows = backlog(160_000)

    driver.begin("ingest", given)
    with held_halfway(new_cursor(), tmp_path):
        driver.kill_pythons()
    state, error = driver.go_on()
    assert "failed" == state, error
    assert [] == ids_of_log(tmp_path)

    driver.begin("ingest", given)
    with held_halfway(new_cursor(), tmp_path):
        frozen = driver.kill_beside_frozen()
    with waking(frozen):
        take_over(cursor)
        del given["trigger"]
        run("ingest", **given)

    found = ids_of_log(tmp_path)
    assert rows == len(found) == len(set(found))
