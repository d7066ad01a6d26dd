"""A run from its start to its end, on a real Spark."""

from __future__ import annotations

import json
import threading
import time
from dataclasses import replace

import psycopg
import pytest

from django_pgqueue.exceptions import SparkError
from django_pgqueue.models import PipelineRun
from django_pgqueue.pipeline import runs as pipelines
from django_pgqueue.spark import job as jobs
from django_pgqueue.spark import running as runs
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


def test_a_failed_run_keeps_its_error_options_and_notes_without_secrets(plan):
    """Another run may start at once."""

    def fail(run, *, password=""):
        for n in range(30):
            run.note(f"note {n}, password={SECRET}")
        raise ValueError(f"no login: password={SECRET}")

    declare(fail)

    ended = run_job(plan("own", password=SECRET))
    assert "failed" == run_job(plan("own")).state

    row = PipelineRun.objects.earliest("id")
    assert "ValueError: no login: password=[redacted]" == ended.error == row.error
    assert "[redacted]" == row.options["password"]
    assert 20 == len(ended.notes)
    assert "note 0, password=[redacted]" == ended.notes[0]
    assert list(ended.notes) == row.progress["notes"]

    jobs._jobs.pop("own")
    declare(lambda run: "a frame")
    assert "returned 'a frame'; it must return how many rows" in (
        run_job(plan("own")).error
    )


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


def test_a_run_that_is_told_to_stop_ends_within_seconds(plan, spark, cursor):
    """In the middle of Spark's work, whose progress its row has; nothing is written."""
    declare(lambda run: len(spin(run).collect()))
    thread, ended = in_thread(plan("own"))
    wait_for(lambda: spinning(spark), 30, "Spark works")

    def shown():
        row = PipelineRun.objects.filter(state="running").first()
        return row and row.ui_url and row.progress.get("tasks")

    wait_for(shown, 30, "tasks are in the row")
    progress = PipelineRun.objects.get().progress
    assert ("running", 0, 2) == tuple(
        progress[name] for name in ("phase", "tasks_done", "tasks")
    )
    asked_at = time.monotonic()
    pipelines.request_stop(cursor, "own", by="anna")
    thread.join(30)

    assert time.monotonic() - asked_at < 10
    assert ["cancelled"] == [each.state for each in ended]
    row = PipelineRun.objects.get()
    assert ("cancelled", None, 0) == (row.state, row.error, row.rows_out)
    assert not spinning(spark)


def test_a_run_that_cannot_move_its_lease_on_stops_itself(plan, spark, monkeypatch):
    """Another run may have begun once the lease is over, so a run whose database does
    not answer ends."""
    declare(lambda run: len(spin(run).collect()))
    answers, has_ended = pipelines.beat, threading.Event()
    is_away = threading.Event()

    def beat(*arguments, **named):
        if not is_away.is_set():
            return answers(*arguments, **named)
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
