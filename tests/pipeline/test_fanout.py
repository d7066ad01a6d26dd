"""Rows of queries and files become jobs, spread over a window, once."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db import connection

from django_pgqueue.exceptions import SparkOptionError
from django_pgqueue.models import Job, PipelineRun
from django_pgqueue.spark.fanout import fan_out
from django_pgqueue.spark.running import run_job
from django_pgqueue.spark.write.result import read_result
from django_pgqueue.timetable.offset import offset
from tests.app.models import Order
from tests.pipeline.test_command import environment

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


@pytest.mark.parametrize(
    "options, problem",
    [
        ({"query": None}, "query, csv, json, parquet; given are none of them"),
        ({"task": None}, "The option task is needed, and has no default"),
        ({"task": "tests.app.tasks.make_ordr"}, f"Did you mean '{TASK}'"),
        ({"over": "soon"}, "over is 'soon', which is no duration"),
        ({"key": None}, "over needs key"),
        ({"start": "2026-11-22"}, "start is '2026-11-22'; .* with its offset"),
        ({"repeated": "kep"}, "repeated is 'kep'. Did you mean 'keep'"),
        ({"priority": "101"}, "priority is '101'; .* from -100 to 100"),
        ({"schema": "a int"}, "schema is for csv and json, and not for query"),
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


def test_a_dataframe_is_fanned_out_once_under_its_name(spark, transactional_db, dsn):
    """From Python; the second call returns the result of the first."""
    frame = spark.range(50).selectExpr("id AS customer_id", "'q' AS queue")
    options = {"task": "shop.refresh", "key": "customer_id", "name": "from python"}

    first = fan_out(frame, over="1h", start=START, priority="7", **options)
    again = fan_out(frame, **options)

    assert ("committed", 50, ["q"]) == (first.state, first.written, first.queues)
    assert first == again == read_result(dsn, "from python")
    assert {("q", 7)} == set(Job.objects.values_list("queue", "priority"))


def test_columns_and_options_that_say_the_same_are_refused(spark, transactional_db):
    """Before anything is read."""
    frame = spark.sql("SELECT 1 AS id, current_timestamp() AS run_at")

    for options, problem in (
        ({"over": "1h", "key": "id"}, "a column run_at, and the option over or start"),
        ({"start": START}, "a column run_at, and the option over or start"),
        ({"start": START, "runAt": START.isoformat()}, "start and runAt, not both"),
        ({"quueue": "x"}, "Unknown option 'quueue'. Did you mean 'queue'"),
    ):
        with pytest.raises(SparkOptionError, match=problem):
            fan_out(frame, task="a.b", name="x", **options)
