"""Rows of queries and files become jobs, spread over a window, once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest
from django.db import connection

from django_pgqueue.exceptions import SparkError, SparkOptionError
from django_pgqueue.management.spark_session import dsn_of
from django_pgqueue.models import ArchivedJob, Job, PipelineRun
from django_pgqueue.pipelines import run_pipeline
from django_pgqueue.spark.fanout import fan_out
from django_pgqueue.spark.job import find_job
from django_pgqueue.spark.jobs.fanout import _name as name_of
from django_pgqueue.spark.running import run_job
from django_pgqueue.spark.write.result import read_result
from django_pgqueue.tasks.raised import Reject
from django_pgqueue.testing import drain
from django_pgqueue.timetable.offset import offset
from tests.app.models import Order
from tests.harness.waiting import wait_for
from tests.harness.worker_process import REPOSITORY
from tests.pipeline.test_command import environment
from tests.scale.shapes import ROWS
from tests.spark.write.test_faults import descendants

pytestmark = pytest.mark.spark

__all__ = ["environment"]

TASK = "tests.app.tasks.make_order"
QUERY = "SELECT id, name FROM testapp_order"
NAMES = "SELECT name FROM testapp_order"
DAY = timedelta(days=1)

# Midnight to come, so that no window is over.
START = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0) + DAY

WRITES = "SELECT name, state, written FROM pgqueue_spark_write ORDER BY started_at"


@pytest.fixture(autouse=True)
def _no_writes(transactional_db: None) -> None:
    with connection.cursor() as cursor:
        cursor.execute("TRUNCATE pgqueue_spark_write")


def writes() -> list[Any]:
    """Return the journal."""
    with connection.cursor() as cursor:
        cursor.execute(WRITES)
        return cursor.fetchall()


def make_orders(count: int) -> None:
    Order.objects.bulk_create(Order(name=f"o{n}") for n in range(count))


def test_a_query_is_spread_over_a_window(run):
    """By task and key; the jobs are those that delay() stores, and no run adds more."""
    make_orders(500)
    asked = {
        "task": TASK,
        "query": QUERY.replace("id, ", ""),
        "key": "name",
        "over": "24h",
        "start": START.isoformat(),
        "tags": "fanned",
    }

    first = run("fanout", **asked)
    make_orders(501)
    again = run("fanout", **asked)

    jobs = {job.kwargs["name"]: job for job in Job.objects.all()}
    assert 500 == len(jobs) == Job.objects.count()
    assert all(
        START + offset(TASK, [name], DAY) == job.run_after for name, job in jobs.items()
    )
    assert {(TASK, "default", 0, 5)} == {
        (job.task, job.queue, job.priority, job.max_attempts) for job in jobs.values()
    }
    assert {"tags": ["fanned"]} == jobs["o7"].headers
    assert (500, 500, 0, 0) == (
        first.rows_in,
        first.rows_out,
        again.rows_in,
        again.rows_out,
    )
    (name,) = [name for name, _, _ in writes()]
    assert name.startswith(f"fanout make_order {START.isoformat()} ")
    assert (f"'{name}': 500 jobs.",) == first.notes
    (note,) = again.notes
    assert f"'{name}' was written already, at " in note
    assert note.endswith(" UTC: 500 jobs. Nothing was written again.")
    row = PipelineRun.objects.latest("id")
    assert [note] == row.progress["notes"]


def test_jobs_that_workers_have_run_are_not_stored_again(run):
    """On the same day the same command is the same fan-out; under a name, always."""
    make_orders(20)
    asked = {"task": "tests.app.tasks.noop", "query": QUERY, "divide_by": "id"}

    run("fanout", **asked)
    drain(max_jobs=8)
    run("fanout", **asked)
    named = run("fanout", name="another one", key="id", **asked)

    assert (8, 32) == (ArchivedJob.objects.count(), Job.objects.count())
    assert ("'another one': 20 jobs.",) == named.notes
    day = datetime.now(UTC)
    assert {f"fanout noop {day:%Y-%m-%d}", "another one"} == {
        name.rpartition(" ")[0] if name.startswith("fanout") else name
        for name, _, _ in writes()
    }


@pytest.mark.slow
def test_a_killed_fan_out_is_finished_by_the_next_run(environment, plan):
    """Each row is a job once, wherever the kill came."""
    make_orders(100)
    command = ["-m", "django", "pgqueue_pipeline", "run", "fanout"]
    options = {"task": TASK, "query": NAMES, "key": "name", "name": "night"}
    for name, value in options.items():
        command += ["-o", f"{name}={value}"]
    # Its driver waits before it makes jobs of what its tasks have written.
    with psycopg.connect(dsn_of("default")) as blocker:
        blocker.execute("LOCK TABLE pgqueue_job IN SHARE MODE")
        process = subprocess.Popen(
            [sys.executable, *command],
            cwd=REPOSITORY,
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            wait_for(lambda: writes() and waits_for_a_lock(), 90, "it wants to commit")
        finally:
            # Its Java process, and Spark's own Pythons, one of which commits.
            for pid in [process.pid, *descendants(process.pid)]:
                os.kill(pid, signal.SIGKILL)
            process.wait()
    with connection.cursor() as cursor:
        # As thirty seconds later.
        cursor.execute(
            "UPDATE pgqueue_pipeline_run SET lease_until = now() - '1s'::interval"
        )
        assert [("night", "open", None)] == writes()

    ended = run_job(plan("fanout", **options))

    assert ("succeeded", 100) == (ended.state, ended.rows_out), ended.error
    assert {f"o{n}" for n in range(100)} == {
        job.kwargs["name"] for job in Job.objects.all()
    }
    assert 100 == Job.objects.count()
    assert [("night", "rolled_back", None), ("night", "committed", 100)] == writes()


def waits_for_a_lock() -> bool:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation ="
            " 'pgqueue_job'::regclass"
        )
        return cursor.fetchone() == (1,)


@pytest.mark.parametrize(
    "options, problem",
    [
        ({"query": None}, "query, csv, json, parquet; given are none of them"),
        ({"csv": "/x.csv"}, "given are query and csv"),
        ({"task": None}, "The option task is needed, and has no default"),
        ({"task": "tests.app.tasks.make_ordr"}, f"Did you mean '{TASK}'"),
        ({"over": "367d"}, "more than nothing and at most 366 days"),
        ({"over": "soon"}, "over is 'soon', which is no duration"),
        ({"key": None}, "over needs key"),
        ({"key": "a,,b"}, "key is 'a,,b'; it must name 1 to 10 columns"),
        ({"start": "2026-11-22"}, "start is '2026-11-22'; .* with its offset"),
        ({"start": "midnight"}, "start is 'midnight'; it must be a time"),
        ({"repeated": "kep"}, "repeated is 'kep'. Did you mean 'keep'"),
        ({"queue": "no queue"}, "queue is 'no queue'"),
        ({"priority": "101"}, "priority is '101'; .* from -100 to 100"),
        ({"schema": "a int"}, "schema is for csv and json, and not for query"),
        ({"query": " "}, "query has 0 characters"),
    ],
)
def test_wrong_options_are_refused_before_spark_starts(plan, options, problem):
    """With the thing, the value and the way out."""
    right = {"task": TASK, "query": NAMES, "key": "name", "over": "1h"}
    given = {name: text for name, text in {**right, **options}.items() if text}

    refused = replace(plan("fanout", **given), sessions=no_spark)
    with pytest.raises(SparkOptionError, match=problem):
        run_job(refused)

    assert "failed" == PipelineRun.objects.get().state


def no_spark():
    raise AssertionError("Spark was asked for.")


@pytest.mark.parametrize(
    "options, problem",
    [
        (
            {"query": f"{NAMES} UNION ALL SELECT 'o1'"},
            r"in several rows.* o1 \(2 rows\)",
        ),
        ({"query": f"{NAMES} UNION ALL SELECT NULL"}, "name is NULL in 1 rows or more"),
        ({"query": QUERY}, r"do not fit the task: .*unexpected keyword argument 'id'"),
        ({"key": "nam"}, "'nam' is no column. Did you mean 'name'"),
        ({"start": "2020-01-01T00:00Z"}, r"window was over at 2020-01-01T01:00:00\+00"),
        ({"query": "SELECT name FROM nowhere"}, 'relation "nowhere" does not exist'),
        ({"query": f"{NAMES} -- \n, 1"}, "does not take the query: .*syntax error"),
    ],
)
def test_wrong_rows_are_refused_before_anything_is_stored(plan, options, problem):
    """The run fails with what is wrong, and the name is free."""
    make_orders(3)
    given = {"task": TASK, "query": NAMES, "key": "name", "over": "1h", **options}

    ended = run_job(plan("fanout", **given))

    assert "failed" == ended.state
    with pytest.raises(AssertionError, match=problem):
        raise AssertionError(ended.error)
    assert [] == writes()
    assert not Job.objects.exists()


def test_rows_of_one_key_can_be_kept(run):
    """A job for each, at the same moment; NULL is no key all the same."""
    make_orders(1)
    twice = f"{NAMES} UNION ALL {NAMES}"

    run("fanout", task=TASK, query=twice, key="name", over="1h", repeated="keep")

    first, second = Job.objects.values_list("run_after", "kwargs")
    assert first == second


def test_files_are_fanned_out(run, plan, spark, tmp_path):
    """CSV as texts unless a schema says else, JSON and Parquet as they are."""
    csv, json, parquet = (str(tmp_path / kind) for kind in ("csv", "json", "parquet"))
    Path(csv).write_text("id,name\n1,a\n2,\n")
    Path(json).write_text('{"id": 3, "name": "c"}\n')
    spark.sql("SELECT 4 AS id, 'd' AS name").write.parquet(parquet)
    task = "tests.app.tasks.noop"

    run("fanout", task=task, csv=csv)
    run("fanout", task=task, csv=csv, schema="id int, name string", key="id")
    run("fanout", task=task, json=json)
    run("fanout", task=task, parquet=parquet)
    wrong = run_job(plan("fanout", task=task, csv=csv, schema="id int, name int"))

    assert [
        {"id": "1", "name": "a"},
        {"id": "2", "name": None},
        {"id": 1, "name": "a"},
        {"id": 2, "name": None},
        {"id": 3, "name": "c"},
        {"id": 4, "name": "d"},
    ] == [job.kwargs for job in Job.objects.order_by("id")]
    assert "failed" == wrong.state
    assert "MALFORMED_RECORD" in wrong.error


def test_refused_rows_are_told_with_the_run(run, tmp_path):
    """How many, and why."""
    make_orders(4)
    path = tmp_path / "refused"
    sql = "SELECT id, CASE WHEN name = 'o1' THEN 'NaN' ELSE 1.5 END::float8 AS share"

    ended = run(
        "fanout",
        task="tests.app.tasks.noop",
        query=f"{sql} FROM testapp_order",
        refused_path=f"file://{path}",
        name="some refused",
    )

    (note,) = ended.notes
    assert note.startswith(
        "'some refused': 3 jobs, 1 rows refused (kwargs.share is nan"
    )
    assert 3 == ended.rows_out == Job.objects.count()
    assert [*path.glob("*.parquet")]


def test_any_dataframe_is_fanned_out(spark, transactional_db, dsn):
    """From Python: once under its name, and with the numbers."""
    frame = spark.range(50).selectExpr("id AS customer_id", "'q' AS queue")
    told = {"task": "shop.refresh", "key": "customer_id", "name": "from python"}

    nothing = fan_out(frame.limit(0), **told)
    first = fan_out(frame, over="1h", start=START, priority="7", **told)
    again = fan_out(frame, **told)

    assert ("rolled_back", 0) == (nothing.state, nothing.written)
    assert ("committed", 50, ["q"]) == (first.state, first.written, first.queues)
    assert first == again == read_result(dsn, "from python")
    assert {7: START + offset("shop.refresh", [7], timedelta(hours=1))} == {
        job.kwargs["customer_id"]: job.run_after
        for job in Job.objects.filter(kwargs__customer_id=7)
    }
    assert {("q", 7)} == {(job.queue, job.priority) for job in Job.objects.all()}


def test_a_name_that_is_being_written_is_left_alone(spark, transactional_db):
    """Nobody knows whether its driver is dead: a run does, a plain call does not."""
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO pgqueue_spark_write (id, name)"
            " VALUES (gen_random_uuid(), 'busy')"
        )

    with pytest.raises(SparkError, match=r"'busy' is open since .* roll it back"):
        fan_out(spark.range(1), task="a.b", name="busy")


def test_columns_and_options_that_say_the_same_are_refused(spark, transactional_db):
    """Before anything is read."""
    frame = spark.sql("SELECT 1 AS id, current_timestamp() AS run_at")

    for options, problem in (
        ({"over": "1h", "key": "id"}, "a column run_at, and the option over or start"),
        ({"start": START}, "a column run_at, and the option over or start"),
        ({"start": START, "runAt": START.isoformat()}, "start and runAt, not both"),
        ({"over": "1h"}, "over needs key"),
        ({"quueue": "x"}, "Unknown option 'quueue'. Did you mean 'queue'"),
    ):
        with pytest.raises(SparkOptionError, match=problem):
            fan_out(frame, task="a.b", name="x", **options)


def test_a_name_is_that_of_the_release_before():
    """Else whoever runs the same command after an upgrade stores all rows again."""
    given = {
        "task": "shop.tasks.refresh",
        "query": "SELECT id AS customer_id FROM shop_customer",
        "divide_by": "customer_id",
        "key": "customer_id",
        "over": "24h",
        "start": "2026-11-22T00:00Z",
    }
    asked = SimpleNamespace(options=find_job("fanout").read_options(given))

    assert "fanout refresh 2026-11-22T00:00Z 44ffe32eafa9" == name_of(asked)


def test_the_queue_does_not_run_it():
    """Whoever may edit jobs would choose the query, and the role's rights with it."""
    with pytest.raises(Reject, match=r"fanout is not for the queue: .*Declare one of"):
        run_pipeline("fanout", task=TASK, query=NAMES)


@pytest.mark.slow
def test_many_rows_are_spread_over_a_day(run, spark, tmp_path):
    """From Parquet, each once, evenly; a second run reads none of them."""
    path = str(tmp_path / "customers")
    spark.range(1, ROWS + 1, 1, 4).selectExpr("id AS customer_id").write.parquet(path)
    asked = {
        "task": "tests.app.tasks.noop",
        "parquet": path,
        "key": "customer_id",
        "over": "24h",
        "start": START.isoformat(),
    }

    first = run("fanout", **asked)
    again = run("fanout", **asked)

    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*), count(DISTINCT kwargs), min(run_after) >= %(start)s,"
            " max(run_after) < %(start)s + interval '1 day' FROM pgqueue_job",
            {"start": START},
        )
        assert (ROWS, ROWS, True, True) == cursor.fetchone()
        cursor.execute(
            "SELECT sum((jobs - %(mean)s) ^ 2 / %(mean)s), count(*) FROM (SELECT"
            " count(*) AS jobs FROM pgqueue_job"
            " GROUP BY date_trunc('minute', run_after)) AS minutes",
            {"mean": ROWS / 1440},
        )
        square, minutes = cursor.fetchone()
    assert 1_440 == minutes
    assert 1_439 - 4 * 54 < square < 1_439 + 4 * 54
    assert (ROWS, 0) == (first.rows_out, again.rows_out)
