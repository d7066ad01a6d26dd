"""A run from its start to its end, on a real Spark."""

from __future__ import annotations

import json
import threading
import time
from dataclasses import replace

import psycopg
import pytest

from django_pgqueue.exceptions import PipelineBusy, SparkError, SparkOptionError
from django_pgqueue.models import PipelineRun
from django_pgqueue.pipeline import runs as pipelines
from django_pgqueue.spark import job as jobs
from django_pgqueue.spark import running as runs
from django_pgqueue.spark.dsn import DsnSource
from django_pgqueue.spark.jdbc.snapshot import Snapshot
from django_pgqueue.spark.job import pipeline_job
from django_pgqueue.spark.running import run_job
from tests.harness.factories import make_archived_job, make_job
from tests.harness.waiting import wait_for
from tests.spark.conftest import by_jdbc
from tests.spark.test_frames import MOVE

__all__ = ["by_jdbc"]

pytestmark = pytest.mark.spark

SECRET = "hunter2-planted"


@pytest.fixture(autouse=True)
def _own_jobs(monkeypatch):
    monkeypatch.setattr(jobs, "_jobs", dict(jobs._jobs))


def declare(function, **said):
    pipeline_job(name="own", **said)(function)


def spin(run):
    """Let executors count for longer than any test waits."""
    return run.session.range(0, 10**12, 1, 2).selectExpr(
        "sum(hash(sha2(cast(id AS string), 512)))"
    )


def test_a_job_reads_writes_and_counts(plan, tmp_path):
    """Tables of the queue come without secrets, and with the columns and the rows that
    are asked for."""
    for n in range(3):
        make_archived_job(task=f"t{n}", kwargs={"password": SECRET})
    make_job()
    told = []

    def split(run, *, folder="", which="t1"):
        """Split."""
        assert run.options["which"] == which
        columns = ("task", "id", "kwargs")
        one = run.read("archive", columns=columns, where=f"task = '{which}'")
        one.write.json(f"{folder}/one")
        rest, rows = run.counted(run.read("archive").where(f"task != '{which}'"))
        rest.write.partitionBy("task").parquet(f"{folder}/rest")
        run.rows_in += 1 + rows()
        return 1 + rows()

    declare(split)

    ended = run_job(plan("own", folder=str(tmp_path)), tell=told.append)

    assert ("succeeded", None) == (ended.state, ended.error)
    (one,) = [
        json.loads(line)
        for path in (tmp_path / "one").glob("*.json")
        for line in path.read_text().splitlines()
    ]
    assert ["task", "id", "kwargs"] == [*one]
    assert "t1" == one["task"]
    assert {"task=t0", "task=t2"} == {
        path.name for path in (tmp_path / "rest").glob("task=*")
    }
    assert SECRET not in repr([p.read_bytes() for p in tmp_path.rglob("*.*")])
    row = PipelineRun.objects.get()
    assert (3, 3) == (row.rows_in, row.rows_out) == (ended.rows_in, ended.rows_out)
    assert ("succeeded", "tests") == (row.state, row.asked_by)
    assert {"folder": str(tmp_path), "which": "t1"} == row.options
    assert row.ui_url.startswith("http://127.0.0.1:")
    assert row.started_at < row.finished_at
    assert "succeeded" == told[-1].phase


def test_a_job_that_moves_between_two_reads_of_a_snapshot_is_read_once(plan, by_jdbc):
    """Tables and queries see the queue as it was before; without it, as it is then."""
    make_job()
    seen = []

    def count(run):
        """Count."""
        with run.snapshot() as now:
            seen.append(run.read("jobs", columns=["id"], snapshot=now).count())
            with run.transaction() as cursor:
                cursor.execute(MOVE)
            for snapshot in (now, None):
                sql = "SELECT id FROM pgqueue_job"
                seen.append(run.query(sql, snapshot=snapshot).count())
                seen.append(run.read("archive", snapshot=snapshot).count())
        with pytest.raises(SparkError, match="The snapshot has ended"):
            run.read("archive", snapshot=now)

    declare(count)

    ended = run_job(replace(plan("own"), read_options={"dsnFile": by_jdbc.file}))

    assert ("succeeded", None) == (ended.state, ended.error)
    assert [1, 1, 0, 0, 1] == seen


def test_a_snapshot_is_not_of_another_database_and_keeps_no_pace(plan, by_jdbc):
    """A read says so before Spark begins, or before it reads."""
    seen = []

    def paced(run):
        """Read slowly."""
        for read in (run.snapshot, lambda: run.read("jobs", snapshot=held)):
            with pytest.raises(SparkOptionError, match="A snapshot is read as fast"):
                read()
            seen.append(run)

    def elsewhere(run):
        """Read where the snapshot is not."""
        with pytest.raises(SparkError, match="of another DSN than the read"):
            run.read("jobs", snapshot=held)
        seen.append(run)

    held = Snapshot("00000003-0000001B-1", DsnSource(variable="ELSEWHERE"))
    declare(paced)
    pace = {"dsnFile": by_jdbc.file, "maxRowsPerSecond": "1000"}

    assert "succeeded" == run_job(replace(plan("own"), read_options=pace)).state

    jobs._jobs.pop("own")
    declare(elsewhere)
    assert "succeeded" == run_job(plan("own")).state
    assert 3 == len(seen)


def test_a_job_that_asks_for_no_spark_starts_none(plan):
    """A session takes seconds and hundreds of megabytes."""

    def count(run):
        with run.transaction() as cursor:
            cursor.execute("SELECT count(*) FROM pgqueue_job")
            run.rows_in += 1
        return 1

    declare(count)

    def sessions():
        raise AssertionError("Spark was asked for.")

    ended = run_job(replace(plan("own"), sessions=sessions))

    assert ("succeeded", 1, 1) == (ended.state, ended.rows_in, ended.rows_out)
    assert PipelineRun.objects.get().ui_url is None


def test_an_error_ends_the_run_with_its_text(plan):
    """Without its secrets; the job may be run again at once."""

    def fail(run, *, folder=""):
        raise ValueError(f"no login: password={SECRET}")

    declare(fail)

    ended = run_job(plan("own", folder="/nowhere"))
    again = run_job(plan("own"))

    assert "failed" == ended.state == again.state
    assert "ValueError: no login: password=[redacted]" == ended.error
    assert ended.error == PipelineRun.objects.get(id=ended.run).error


def test_options_that_are_secret_are_not_noted(plan):
    """By their names, as everywhere."""

    def fail(run, *, folder="", password=""):
        raise ValueError

    declare(fail)

    run_job(plan("own", password=SECRET))

    assert "[redacted]" == PipelineRun.objects.get().options["password"]


@pytest.mark.parametrize("returned", ["a frame", True, 1.5])
def test_a_job_must_return_its_rows(plan, returned):
    """One that returns what it has read fails, with that."""
    declare(lambda run: returned)

    ended = run_job(plan("own"))

    assert f"returned {returned!r}; it must return how many rows" in ended.error


def test_errors_of_spark_are_told_without_their_traces(plan, spark, tmp_path):
    """Those of Java by their causes, and those of ours as they were raised."""
    (tmp_path / "in.csv").write_text("one\n")

    def copy(run, *, folder=""):
        wrong = run.session.read.csv(folder, schema="n int", mode="FAILFAST")
        wrong.write.json(f"{folder}/x")

    declare(copy)
    java = run_job(plan("own", folder=str(tmp_path)))
    query = "SELECT 1 / (n - 1) AS n FROM generate_series(1, 2) AS n"
    ours = run_job(plan("fanout", task="tests.app.tasks.noop", query=query))

    assert "MALFORMED_RECORD" in java.error
    assert "\n" not in java.error
    assert ours.error.startswith("SparkError: The session with PostgreSQL broke off: ")
    assert ours.error.endswith("ERROR: division by zero")


def test_notes_are_told_without_secrets(plan):
    """In the row and at the end; some twenty of them."""

    def noting(run):
        for n in range(30):
            run.note(f"note {n}, password={SECRET}")

    declare(noting)

    ended = run_job(plan("own"))

    assert 20 == len(ended.notes)
    assert "note 0, password=[redacted]" == ended.notes[0]
    assert list(ended.notes) == PipelineRun.objects.get().progress["notes"]


def test_how_tables_are_read_is_said_to_change_nothing_where_none_is(plan):
    """As for a job that asks PostgreSQL for sums; one that reads is told nothing."""

    def sums(run, *, reads=False):
        if reads:
            run.query("SELECT 1 AS n").collect()

    declare(sums)
    given = {"dsnEnv": "PGQUEUE_DSN"}
    idle = run_job(replace(plan("own"), read_options=given))
    reader = run_job(replace(plan("own", reads=True), read_options=given))

    assert ("dsnEnv changed nothing: own reads no table by them.",) == idle.notes
    assert ((), None) == (reader.notes, reader.error)


def test_a_live_run_keeps_others_out(plan, cursor):
    """Who runs it is said."""
    pipelines.start(
        cursor, "metrics", options={}, by="", queue_job=None, hostname="web-1", pid=42
    )

    with pytest.raises(PipelineBusy, match=r"process 42 on web-1.*stop metrics"):
        run_job(plan("metrics"))


def in_thread(plan, **changes):
    ended = []
    thread = threading.Thread(
        target=lambda: ended.append(run_job(plan, beat_seconds=0.2, **changes))
    )
    thread.start()
    return thread, ended


def spinning(spark):
    """Whether Spark works on a task."""
    tracker = spark.sparkContext.statusTracker()
    return bool(tracker.getActiveStageIds())


@pytest.mark.parametrize("how", ["request", "signal"])
def test_a_run_that_is_told_to_stop_ends_within_seconds(plan, spark, cursor, how):
    """In the middle of Spark's work; nothing is written."""
    declare(lambda run: len(spin(run).collect()))
    stop = threading.Event()
    thread, ended = in_thread(plan("own"), stop=stop)
    wait_for(lambda: spinning(spark), 30, "Spark works")

    asked_at = time.monotonic()
    if how == "request":
        pipelines.request_stop(cursor, "own", by="anna")
    else:
        stop.set()
    thread.join(30)

    assert time.monotonic() - asked_at < 10
    assert ["cancelled"] == [each.state for each in ended]
    row = PipelineRun.objects.get()
    assert ("cancelled", None, 0) == (row.state, row.error, row.rows_out)
    assert not spinning(spark)


def test_a_run_that_lost_its_place_writes_nothing(plan, spark, cursor):
    """Another one's row stays as it is."""
    declare(lambda run: len(spin(run).collect()))
    thread, ended = in_thread(plan("own"), lease_seconds=-1)
    wait_for(lambda: spinning(spark), 30, "Spark works")

    other = pipelines.start(
        cursor, "own", options={}, by="", queue_job=None, hostname="web-2", pid=7
    )
    thread.join(30)

    assert ["lost"] == [each.state for each in ended]
    assert {"lost", "running"} == set(
        PipelineRun.objects.values_list("state", flat=True)
    )
    assert "running" == pipelines.state_of(cursor, other.id)


@pytest.mark.parametrize("how", ["error", "silence"])
def test_a_run_that_cannot_move_its_lease_on_stops_itself(
    plan, spark, monkeypatch, how
):
    """Once that is over, another one may have begun: after errors of the database, and
    where that does not answer at all."""
    declare(lambda run: len(spin(run).collect()))
    answers, has_ended = pipelines.beat, threading.Event()
    is_away = threading.Event()

    def beat(*arguments, **named):
        if not is_away.is_set():
            return answers(*arguments, **named)
        if how == "error":
            raise psycopg.OperationalError("The server has closed the connection.")
        has_ended.wait(60)
        raise psycopg.OperationalError("It was cancelled.")

    monkeypatch.setattr(pipelines, "beat", beat)
    thread, ended = in_thread(plan("own"), lease_seconds=2)
    wait_for(lambda: spinning(spark), 60, "Spark works")
    is_away.set()
    thread.join(60)
    has_ended.set()

    assert [("lost", runs.AWAY)] == [(each.state, each.error) for each in ended]
    assert not spinning(spark)
    # Nobody has said so in the database, which was away.
    assert "running" == PipelineRun.objects.get().state


def test_the_row_tells_how_far_a_run_is(plan, spark, cursor):
    """Its phase, Spark's tasks and its UI."""
    declare(lambda run: len(spin(run).collect()))
    stop = threading.Event()
    thread, _ = in_thread(plan("own"), stop=stop)

    def told():
        row = PipelineRun.objects.filter(state="running").first()
        return row and row.ui_url and row.progress.get("tasks")

    wait_for(told, 30, "tasks are in the row")
    row = PipelineRun.objects.get()
    stop.set()
    thread.join(30)

    assert "running" == row.progress["phase"]
    assert (0, 2) == (row.progress["tasks_done"], row.progress["tasks"])
