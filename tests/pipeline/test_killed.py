"""
Drivers of the pipeline that are killed or paused at one step or another.

The driver is a process of its own that stops at a place that a test names. Then a run
of the test makes whole what the driver has begun. A driver that was paused goes on when
that run has ended, and must change nothing.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark import __version__

from django_pgqueue.models import ArchivedJob, Erasure, Export, Job, Subscription
from django_pgqueue.postgres.day_tables import ARCHIVE
from django_pgqueue.worker.chores.backlogs import Backfills
from tests.harness.process_tree import children, descendants, freeze, tell, waking
from tests.harness.waiting import patience, wait_for
from tests.harness.worker_process import REPOSITORY
from tests.pipeline.test_erase_messages import files_in
from tests.pipeline.test_export import archived, ids, make
from tests.pipeline.test_ingest import ids as ids_of_log
from tests.pipeline.test_lake import THEIRS
from tests.pipeline.test_replay import remove
from tests.pipeline.test_replay_here import listen
from tests.spark.conftest import quick_start, require
from tests.spark.log.conftest import backlog, cursor, held_halfway, publish
from tests.topics.conftest import _declarations, link

# The first run with Spark waits for a Java process of its own.
pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(300)]

__all__ = ["_declarations", "backlog", "cursor", "link", "publish"]

DAY = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(
    2
)

ERASURES = "django_pgqueue.pipeline.erasures"
RECORD = "django_pgqueue.pipeline.exports:record"
# Of a day, and of a batch.
REPLACE = "deltalake:write_deltalake"
COMMIT = "deltalake:DeltaTable.create_write_transaction"
OPTIMIZE = "deltalake.table:TableOptimizer.compact"
DELETE = "deltalake:DeltaTable.delete"
WRITE = "django_pgqueue.spark.write.result:write_named"

# The commit of a write waits for this.
COMMITS = "LOCK TABLE pgqueue_job IN SHARE MODE"

SESSION = """
SELECT state, wait_event_type FROM pg_stat_activity
 WHERE application_name = 'pgqueue spark: write' AND datname = current_database()
"""


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

    def begin(
        self, job: str, options: dict[str, Any], place: str = COMMIT, call: int = 0
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
        assert not select.select([self._process.stdout], [], [], 0)[0], self.go_on()
        flags = os.WSTOPPED | os.WNOHANG
        return os.waitid(os.P_PID, self._process.pid, flags) is not None


@pytest.fixture(scope="module")
def driver(dsn: str, request: pytest.FixtureRequest) -> Iterator[Paused]:
    """A driver of the pipeline that may be stopped."""
    require("deltalake")
    java = quick_start(request.config.cache.mkdir("spark"), __version__).split()
    config = {
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "1",
        # Two processes would write one archive of classes.
        "spark.driver.extraJavaOptions": " ".join(
            option for option in java if "AtExit" not in option
        ),
    }
    driver = Paused(dsn, config)
    yield driver
    driver.close()


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
        ARCHIVE.make_day(cursor, DAY.date())


def interrupt(driver, how, cursor):
    """Kill the driver, or leave it paused; its place may be taken then."""
    if how == "killed":
        driver.kill()
    take_over(cursor)


def assert_lost(driver, how):
    """Let a paused driver go on: it has lost its run."""
    if how == "paused":
        state, error = driver.go_on()
        assert "lost" == state, error


# Days of the archive -----------------------------------------------------------------


@pytest.mark.usefixtures("_day")
def test_a_day_is_exported_once(by_sql, driver, cursor, tmp_path):
    """The table, the row of the day and the archive agree after the next run, which a
    paused driver does not change."""
    day, path = f"{DAY:%Y-%m-%d}", str(tmp_path / "days")
    given = {"path": path, "since": day, "until": day}
    for how, place in (("paused", REPLACE), ("killed", REPLACE), ("killed", RECORD)):
        make(DAY, queue="mail")
        make(DAY, queue="default")
        driver.run("export", given, place)
        interrupt(driver, how, cursor)
        make(DAY, queue="late")

        expected = by_sql("export", **given).rows_out

        assert_lost(driver, how)
        found = Export.objects.get(day=DAY.date())
        assert ("exported", expected) == (found.state, found.rows)
        assert archived(DAY) == ids(path), place
        assert DeltaTable(path).version() == found.version
    assert 0 == by_sql("export", **given).rows_out


@pytest.mark.usefixtures("_day")
def test_a_killed_erase_is_finished_by_the_next_run(by_sql, driver, cursor, tmp_path):
    """Each other row is there once, and receipts count each row of theirs once."""
    target, day = str(tmp_path), f"{DAY:%Y-%m-%d}"
    for place, call in (
        (f"{ERASURES}:delete_page", 2),
        (DELETE, 1),
        (f"{ERASURES}:add_files", 1),
        (f"{ERASURES}:finish", 1),
    ):
        for n in range(9):
            make(DAY, queue=("mail", "b")[n % 2], kwargs={"customer_id": 42 + n % 3})
        by_sql("export", path=target, since=day, until=day, again="true")
        theirs = ArchivedJob.objects.filter(kwargs__customer_id=42).count()
        driver.run("erase", {**THEIRS, "apply": "true"}, place, call)
        interrupt(driver, "killed", cursor)

        by_sql("erase", **THEIRS, apply="true")

        there = ids(tmp_path)
        assert archived(DAY) == there, place
        assert "exported" == Export.objects.get(day=DAY.date()).state, place
        assert len(there) == by_sql("verify", path=target).rows_out, place
        receipts = Erasure.objects.all()
        assert theirs == sum(each.archive_rows for each in receipts), place
        assert theirs == sum(
            day["rows"] for each in receipts for day in each.exports
        ), place
        receipts.delete()


# Messages of the log -----------------------------------------------------------------


def ingested(target, first):
    """Write what ingest would: of each of two topics three files, with two messages of
    theirs. Return the ids of the others."""
    shutil.rmtree(target, ignore_errors=True)
    others = []
    for topic in ("mail", "orders"):
        for number in range(3):
            rows = [
                {"id": first + n, "payload": f'{{"customer": {42 if n == 1 else 7}}}'}
                for n in range(4 if number < 2 else 1)
            ]
            first += len(rows)
            others += [row["id"] for row in rows if "42" not in row["payload"]]
            table = pyarrow.Table.from_pylist(rows)
            for name, value in (("topic", topic), ("day", date(2026, 11, 22))):
                column = pyarrow.array([value] * len(rows))
                table = table.append_column(name, column)
            write_deltalake(target, table, mode="append", partition_by=["topic", "day"])
    return others


@pytest.mark.parametrize(
    "how, job, place",
    [
        ("killed", "compact", OPTIMIZE),
        ("paused", "erase", DELETE),
        ("killed", "erase", "deltalake:DeltaTable.vacuum"),
    ],
)
def test_tables_of_ingest_are_made_whole_by_the_next_run(
    by_sql, driver, publish, cursor, tmp_path, job, place, how
):
    """Each message that stays is there once, and receipts count what has gone from the
    log and from files once."""
    target = tmp_path / "log"
    theirs = {"path": "payload.customer", "value": "42", "apply": "true"}
    asked = {"path": str(target)} if job == "compact" else theirs
    others = ingested(target, 1)
    publish(2, payload={"customer": 42})
    cursor.execute(
        "INSERT INTO pgqueue_ingest_position (topic_id, target, read_to, run_id)"
        " SELECT id, %s, 0, 1 FROM pgqueue_topic ON CONFLICT DO NOTHING",
        [str(target)],
    )
    driver.run(job, asked, place)
    interrupt(driver, how, cursor)

    by_sql("compact", path=str(target))
    by_sql("erase", **theirs)

    if how == "paused":
        assert "succeeded" != driver.go_on()[0]
    assert others == ids(target)
    assert len(DeltaTable(target).file_uris()) == len(files_in(target))
    receipts = Erasure.objects.all()
    assert 4 == sum(gone["rows"] for each in receipts for gone in each.ingested)
    of_log = [each.messages["orders"]["rows"] for each in receipts if each.messages]
    assert 2 == sum(of_log)


def test_a_paused_ingest_writes_no_message_twice(
    run, driver, cursor, publish, tmp_path
):
    """Its batch is another run's by then: Delta refuses its commit."""
    given = {"topic": "orders", "path": str(tmp_path / "log")}
    expected = publish(2)
    run("ingest", **given)
    expected += publish(2)
    driver.run("ingest", given, COMMIT)
    take_over(cursor)

    run("ingest", **given)

    assert "lost" == driver.go_on()[0]
    assert expected == ids_of_log(given["path"])
    assert 0 == run("ingest", **given).rows_out


def test_a_paused_driver_brings_back_nothing_that_was_erased(
    run, driver, cursor, publish, tmp_path
):
    """What it read before the erasure it puts nowhere after it, though no other run has
    written since and nothing of theirs was there."""
    given = {"topic": "orders", "path": str(tmp_path / "log")}
    kept = publish(2)
    run("ingest", **given)
    publish(2, payload={"customer": 42})
    driver.run("ingest", given, COMMIT)
    take_over(cursor)

    run("erase", path="payload.customer", value="42", apply="true")

    # Its batch is read again, and has nothing then.
    assert driver.go_on()[0] in ("succeeded", "lost")
    assert kept == ids_of_log(given["path"])
    kept += publish(1)
    run("ingest", **given)
    assert kept == ids_of_log(given["path"])


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


# Writes to the queue -----------------------------------------------------------------


def test_a_killed_or_paused_replay_makes_each_job_once(
    run, publish, cursor, new_cursor, link, driver, tmp_path
):
    """It is killed while its commit waits; or its Java and Python are frozen then, wake
    up and add nothing; or it is paused before it writes, and goes on when another run
    has taken its place."""
    cursor.execute("TRUNCATE pgqueue_spark_write")
    ids = publish(20)
    run("ingest", topic="orders", path=str(tmp_path))
    remove(cursor, ids[-1])
    asked = {"topic": "orders", "to": "subscription:mail/orders", "name": "one"}
    asked |= {"source": str(tmp_path), "since": "earliest"}

    def fill(interrupt):
        """Return how often each message of one subscription became a job."""
        Job.objects.all().delete()
        Subscription.objects.all().delete()
        cursor.execute("TRUNCATE pgqueue_spark_write")
        listen()
        interrupt()
        backfills = Backfills()
        while Subscription.objects.filter(backfill_position__isnull=False).exists():
            backfills(link)
        return Counter(Job.objects.values_list("message_id", flat=True))

    def pause():
        driver.run("replay", asked, WRITE)
        take_over(cursor)
        run("replay", **asked)
        assert "succeeded" != driver.go_on()[0]

    def die(*, is_frozen):
        driver.run("replay", asked, WRITE)
        holder = new_cursor()
        holder.execute("BEGIN")
        holder.execute(COMMITS)
        driver.go_on_until(lambda: is_in("Lock"))
        if not is_frozen:
            driver.kill()
        with waking(driver.kill_beside_frozen() if is_frozen else []):
            holder.execute("ROLLBACK")
            wait_for(lambda: not is_in("active"), 60, "its statement ends")
            if is_frozen:
                assert is_in("idle in transaction")
            else:
                wait_for(lambda: not is_in("idle in transaction"), 60, "it has ended")
            take_over(cursor)
            run("replay", **asked)

    def is_in(what):
        return what in (cursor.execute(SESSION).fetchone() or ())

    expected = dict.fromkeys(ids, 1)
    assert expected == fill(pause)
    assert expected == fill(lambda: die(is_frozen=True))
    assert expected == fill(lambda: die(is_frozen=False))
