"""What a page does with a Spark session is done with one."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db import connection

from django_pgqueue import task, topic
from django_pgqueue.models import Job
from django_pgqueue.spark import job as pipelines
from django_pgqueue.tasks import registry
from django_pgqueue.testing import drain
from django_pgqueue.topics import registry as topics
from tests.app.tasks import noop
from tests.docs import spark_reader
from tests.docs.samples import PAGES, Sample, name_of, samples_of
from tests.docs.spark_reader import is_pipeline_job, spark_samples
from tests.pipeline.conftest import plan, run
from tests.spark.conftest import _packages, by_jdbc, dsn, spark, start_spark

__all__ = ["_packages", "by_jdbc", "dsn", "plan", "run", "spark", "start_spark"]

pytestmark = pytest.mark.spark


def samples(page: Path) -> list[Sample]:
    """Return what a session is for."""
    needing = spark_samples(page)
    return [one for one in samples_of(page) if one in needing or is_pipeline_job(one)]


RUN = [page for page in PAGES if samples(page)]


@pytest.fixture
def customers(spark, transactional_db):
    """A table of the reader's own, of which samples tell queries."""
    with connection.cursor() as cursor:
        cursor.execute("TRUNCATE pgqueue_spark_write")
        cursor.execute(
            "CREATE TABLE shop_customer AS "
            "SELECT id, email, active, plan FROM (VALUES "
            "(7, 'ann@example.org', true, 'gold'), "
            "(8, 'bob@example.org', false, 'tin')) c (id, email, active, plan)"
        )
    yield
    for query in spark.streams.active:
        query.stop()
    with connection.cursor() as cursor:
        cursor.execute("DROP TABLE shop_customer")


@pytest.mark.parametrize("page", RUN, ids=name_of)
def test_the_samples_of_a_page_run_in_spark(
    page, spark, dsn, run, customers, tmp_path, monkeypatch, request
):
    """In their order; paths are below a folder of the test."""
    monkeypatch.setattr(topics, "_declared", {})
    monkeypatch.setattr(pipelines, "_jobs", dict(pipelines._jobs))
    monkeypatch.setattr(registry, "tasks", dict(registry.tasks))
    name = name_of(page)
    tomorrow = datetime.now(UTC) + timedelta(days=1)
    yesterday = tomorrow - timedelta(days=2)
    here = [
        *spark_reader.ELSEWHERE.get(name, []),
        ("{tomorrow}", f"{tomorrow:%Y-%m-%d}T00:00Z"),
        ("{yesterday}", f"{yesterday:%Y-%m-%d}"),
        ("{today}", f"{datetime.now(UTC):%Y-%m-%d}"),
        ("/srv/", f"{tmp_path}/"),
    ]
    if name == "docs/howto/offload-the-archive.md":
        request.getfixturevalue("archive_days")
    if any("snapshot(" in sample.source for sample in samples(page)):
        here.append(("{tcp}", request.getfixturevalue("by_jdbc").file))
    space: dict[str, Any] = {
        "Job": Job,
        "Path": Path,
        "drain": drain,
        "dsn": dsn,
        "next_month": f"{tomorrow + timedelta(days=31):%Y-%m}",
        "noop": noop,
        "run": run,
        "spark": spark,
        "task": task,
        "topic": topic,
    }

    def does(code: str) -> None:
        for there, path in here:
            code = code.replace(there, path)
        exec(compile(code, name, "exec"), space)  # noqa: S102

    does(spark_reader.HAS.get(name, ""))
    for sample in samples(page):
        does(sample.source)
    does(spark_reader.THEN.get(name, ""))
