"""A pipeline job of a project's own, from what it reads to what it writes."""

from __future__ import annotations

import dataclasses
import json
from datetime import UTC, datetime, timedelta

import pytest
from django.db import connection

from django_pgqueue.exceptions import SparkOptionError
from django_pgqueue.models import Job, PipelineRun
from django_pgqueue.spark.running import run_job
from django_pgqueue.timetable.offset import offset
from tests.app.models import Order

pytestmark = pytest.mark.spark

TASK = "tests.app.tasks.make_order"


@pytest.fixture(autouse=True)
def _no_writes(transactional_db: None) -> None:
    with connection.cursor() as cursor:
        cursor.execute("TRUNCATE pgqueue_spark_write")


def test_a_job_of_a_query_and_a_file(run, plan, tmp_path):
    """A query and a file become jobs and a file; a second run stores no job again."""
    Order.objects.bulk_create(
        Order(name=name) for name in ("ink", "pen", "glue", "nib")
    )
    (tmp_path / "prices.csv").write_text("name,price\nink,9\npen,2\nnib,5\n")
    day = datetime.now(UTC) + timedelta(days=1)
    asked = {"folder": str(tmp_path), "day": f"{day:%Y-%m-%d}", "least": "3"}

    first = run("price_orders", **asked)
    again = run("price_orders", **asked)

    midnight = day.replace(hour=0, minute=0, second=0, microsecond=0)
    assert {
        name: midnight + offset(TASK, [name], timedelta(hours=1))
        for name in ("ink", "nib")
    } == {job.kwargs["name"]: job.run_after for job in Job.objects.all()}
    (glue,) = [
        json.loads(line)
        for path in (tmp_path / "unpriced").glob("*.json")
        for line in path.read_text().splitlines()
    ]
    assert "glue" == glue["name"]
    name = f"to make {day:%Y-%m-%d}"
    assert (f"'{name}': 2 jobs.",) == first.notes
    assert 1 == len(again.notes)
    assert (3, 1) == (first.rows_out, again.rows_out)
    assert {TASK} == set(Job.objects.values_list("task", flat=True))
    assert 2 == PipelineRun.objects.filter(job="price_orders").count()


def test_a_job_that_refuses_its_options_starts_no_spark(plan):
    """The caller is told, and the run has failed with that."""
    with pytest.raises(SparkOptionError, match="options folder and day"):
        run_job(dataclasses.replace(plan("price_orders"), sessions=no_spark))

    (row,) = PipelineRun.objects.all()
    assert "failed" == row.state
    assert "Give the options folder and day." in row.error


def no_spark():
    raise AssertionError("Spark was asked for.")


def test_a_query_cannot_be_slowed_down(plan):
    """It would hold its snapshot all the while. No Spark is started for it."""
    slow = dataclasses.replace(
        plan("fanout", task=TASK, query="SELECT 1 AS name"),
        read_options={"maxRowsPerSecond": "10"},
        sessions=no_spark,
    )

    with pytest.raises(SparkOptionError, match="maxRowsPerSecond cannot be kept"):
        run_job(slow)
