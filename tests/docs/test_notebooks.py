"""The notebooks of the example run, cell after cell, and tell what they say."""

from __future__ import annotations

import runpy
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from django.db import connection

from django_pgqueue.management import spark_session as sessions
from tests.harness.factories import make_archived_job
from tests.pipeline.conftest import plan, run
from tests.spark.conftest import _packages, dsn, spark, start_spark
from tests.spark.log.conftest import cursor, publish

__all__ = ["_packages", "cursor", "dsn", "plan"]
__all__ += ["publish", "run", "spark", "start_spark"]

pytestmark = pytest.mark.spark

NOTEBOOKS = Path(__file__).parents[2] / "example_project" / "notebooks"

NOW = datetime.now(UTC)


@pytest.fixture
def notebook(spark, monkeypatch):
    """``notebook("name")`` runs it in the session of the tests; its names."""
    monkeypatch.setattr(sessions, "spark_session", lambda *_: spark)

    def notebook(name):
        return runpy.run_path(str(NOTEBOOKS / f"{name}.py"))

    return notebook


def rows(frame):
    """Return what a DataFrame has."""
    return [tuple(row) for row in frame.collect()]


@pytest.fixture
def _orders(transactional_db):
    """The tables of the shop, with three orders of two customers."""
    with connection.cursor() as sql:
        sql.execute(
            "CREATE TABLE orders_product AS SELECT 1 AS id, 'tea' AS name, 500 AS cents"
        )
        sql.execute(
            "CREATE TABLE orders_order AS SELECT * FROM (VALUES"
            " (1, 1, 'ann@example.org'), (2, 1, 'ann@example.org'),"
            " (3, 1, 'bob@example.org')) o (id, product_id, email)"
        )
    yield
    with connection.cursor() as sql:
        sql.execute("DROP TABLE orders_product, orders_order")


@pytest.mark.usefixtures("_orders")
def test_the_notebooks_run(notebook, run, publish, cursor, tmp_path, monkeypatch):
    """Jobs are joined with the customers of their orders, and messages with a file of
    contracts; rows that match nothing are in no sum."""
    for order, seconds in ((1, 10), (2, 30), (3, 90)):
        for step in ("charge", "ship"):
            make_archived_job(
                task=f"orders.saga.{step}",
                kwargs={"order_id": order},
                deliveries=2 if step == "ship" else 1,
                enqueued_at=NOW - timedelta(seconds=seconds + 5),
                started_at=NOW - timedelta(seconds=seconds),
                finished_at=NOW,
            )
    make_archived_job(task="orders.saga.refund", kwargs={"charge": "c-1"})
    make_archived_job(task="postoffice.tasks.send_email", kwargs={"order_id": 1})

    told = notebook("cost_per_customer")

    assert [
        ("bob@example.org", 2, 1, 180.0, 0.2),
        ("ann@example.org", 4, 2, 80.0, 0.0889),
    ] == rows(told["costs"])
    assert [("ann@example.org", 2, 1000, 34.0)] == rows(told["slow"])

    for domain, recipients in (("example.org", 3), ("example.com", 1)):
        publish(1, "mail", payload={"domain": domain, "recipients": recipients})
    # The names that the post office publishes under.
    cursor.execute("UPDATE pgqueue_message SET name = 'mail.sent'")
    run("ingest", topic="mail", path=str(tmp_path / "log"))
    monkeypatch.setenv("MESSAGES", str(tmp_path / "log"))

    told = notebook("mails_by_contract")

    bills = told["spark"].read.parquet(told["BILLS"]).orderBy("customer")
    assert [
        ("Example Networks", "tin", 0, 0, 0),
        ("Example Society", "gold", 1, 0, 6),
    ] == rows(bills.drop("day"))
    assert [("example.com", 1)] == rows(told["strangers"])
