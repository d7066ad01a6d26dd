"""A pipeline job of a project's own, from what it reads to what it writes."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest
from django.db import connection

from django_pgqueue.models import Job, PipelineRun
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
