"""spark.read.format("pgqueue"), on a real Spark and a real PostgreSQL."""

from __future__ import annotations

import json
import urllib.request
from datetime import UTC, datetime, timedelta

import pytest
from django.db import connection

from django_pgqueue.models.topic import Message
from django_pgqueue.spark import frames
from django_pgqueue.spark.redact import Redaction
from django_pgqueue.spark.session import source
from django_pgqueue.spark.tables import TABLES
from tests.harness.factories import (
    make_archived_job,
    make_dead_letter,
    make_job,
    make_jobs,
    make_leased_job,
)
from tests.spark.conftest import PASSWORD

pytestmark = [pytest.mark.spark, pytest.mark.smoke]

SECRET = "hunter2-planted"

STORE = "SELECT ids FROM pgqueue_store_messages(%s, %s)"
NOON = datetime(2026, 1, 1, 12, 0, 0, 123456, tzinfo=UTC)


def store_message(topic, payload, key=None, headers=None, name=None):
    """Publish one message, and return its id."""
    item = [name or topic, key, payload, headers or {}]
    with connection.cursor() as cursor:
        cursor.execute(STORE, [topic, json.dumps([item])])
        ((number,),) = cursor.fetchone()
    return number


def fetch(url):
    assert url.startswith("http://127.0.0.1:")
    with urllib.request.urlopen(url, timeout=30) as answer:  # noqa: S310
        return answer.read().decode()


def values_of(row):
    """Return a row of Django as Spark has it: JSON as PostgreSQL writes it."""
    return {
        field.column: getattr(row, field.attname) for field in row._meta.concrete_fields
    }


def as_read(row):
    """Return a row of Spark with its JSON read."""
    read = row.asDict()
    for name in ("args", "kwargs", "headers", "errors", "progress", "result"):
        if read.get(name) is not None:
            read[name] = json.loads(read[name])
    return {
        name: value.astimezone(UTC) if isinstance(value, datetime) else value
        for name, value in read.items()
    }


@pytest.mark.parametrize("table", [name for name in TABLES if name != "log"])
def test_every_column_of_every_table_arrives(read, table):
    """With its value, its type and its NULL."""
    columns = {
        "queue": "mäil",
        "args": [1, "é", None, {"a": 1.5}],
        "kwargs": {"order_id": 7},
        "headers": {"tags": ["vip"]},
        "priority": -100,
        "run_after": NOON,
        "expires_at": NOON + timedelta(days=400),
        "dedup_key": f"key-{table}",
        "accumulate_key": "index",
        "workflow_id": 2**62,
    }
    row = {
        "jobs": make_leased_job,
        "archive": make_archived_job,
        "dead_letters": make_dead_letter,
    }[table](**columns)

    (found,) = read(table).collect()

    assert values_of(row) == as_read(found)


def test_the_log_is_read_up_to_its_horizon(read, new_cursor):
    """Of all topics or of some, from a time or a position, each message once; with its
    value, its type and its NULL."""
    item = {"a": [1, "é", None]}
    first = store_message("orders", item, "c7", {"tags": ["vip"]}, "orders.created")
    mail = [store_message("mail", n) for n in range(5)]
    with new_cursor().connection.transaction() as open_:
        open_.connection.execute(STORE, ["orders", '[["orders", null, 1, {}]]'])
        store_message("orders", 2)

        everything = read("log", partitions="3")
        (order,) = read("log", topic="orders").collect()

        assert [first, *mail] == sorted(row.id for row in everything.collect())
    assert 8 == read("log", columns="id").count()
    assert (first, "orders", "orders.created", "c7", {"tags": ["vip"]}, item) == (
        order.id,
        order.topic,
        order.name,
        order.key,
        json.loads(order.headers),
        json.loads(order.payload),
    )
    message = Message.objects.get(id=first)
    assert message.published_at == order.published_at.astimezone(UTC)
    assert message.partition == order.partition
    part = read(
        "log",
        topic="mail",
        starting=f'{{"mail": {mail[0]}}}',
        ending=f'{{"mail": {mail[3]}}}',
    )
    assert mail[1:4] == sorted(row.id for row in part.collect())
    rest = read("log", starting=order.published_at.astimezone(UTC).isoformat())
    assert 8 == rest.count()
    assert 5 == rest.where("topic = 'mail' AND key IS NULL").count()
    assert 0 == read("log", ending="earliest").count()


# Servers have collations of people's languages if they were built with ICU, as Debian's
# are; that of the wheel has none.
IN_WORDS = "SELECT 1 FROM pg_collation WHERE collname = 'en-x-icu'"
COLLATE = (
    'ALTER TABLE pgqueue_job ALTER COLUMN dedup_key TYPE varchar(255) COLLATE "{}"'
)

# In an order of people's languages a < B < ä, and by bytes B < a < ä.
WORDS = ["B", "a", "ä", "Z", "z", "ß", "_", "10", "9", "", "a b", "A"]


def collate_keys(cursor, name):
    """Order the column dedup_key by a collation, where the server has those of ICU."""
    if cursor.execute(IN_WORDS).fetchone() is not None:
        cursor.execute(COLLATE.format(name))


def test_each_query_of_a_dataframe_has_its_own_conditions(read):
    """Also a later one without any, and two in one query."""
    ids = make_jobs(30)
    rows = read(columns="id")
    few, fewer = rows.where(f"id < {ids[10]}"), rows.where(f"id < {ids[5]}")

    assert 10 == few.count()
    assert 30 == rows.count()
    assert 15 == few.unionByName(fewer).count()
    assert 35 == fewer.unionByName(rows).count()
    assert 5 == few.join(fewer, "id").count()


def test_a_replica_is_named_by_its_variable_or_its_file(read, dsn, tmp_path):
    """Its DSN stands in no option."""
    make_job()
    file = tmp_path / "dsn"
    file.write_text(dsn)

    assert read(dsnEnv="PGQUEUE_ELSEWHERE").count() == 1
    assert read(dsnFile=str(file)).count() == 1
    with pytest.raises(Exception, match=r"\$PGQUEUE_NOWHERE is empty or not set"):
        read(dsnEnv="PGQUEUE_NOWHERE").count()


def test_secrets_are_in_no_parquet(read, tmp_path):
    """Wherever a job may carry one; what is beside them is there."""
    carried = {
        "args": [{"nested": [{"api_key": SECRET}]}, "kept-value"],
        "kwargs": {"accessToken": SECRET, "X-Api-Key": {"a": SECRET}},
        "headers": {"authorization": SECRET},
        "errors": [
            {"kind": "error", "message": f"password={SECRET}", "traceback": ""},
            {"message": f"could not reach postgres://anna:{SECRET}@db/shop"},
        ],
    }
    make_job(**carried, progress={"secret": SECRET})
    make_archived_job(**carried, result={"cookie": SECRET})
    make_dead_letter(**carried)

    store_message("orders", {"card": {"api_key": SECRET}, "keep": "kept-value"})

    for table in TABLES:
        read(table).write.option("compression", "none").parquet(str(tmp_path / table))

    written = [file.read_bytes() for file in tmp_path.rglob("*.parquet")]
    assert len(written) >= 4
    assert [] == [data for data in written if SECRET.encode() in data]
    assert all(b"kept-value" in data for data in written)


def test_a_session_says_what_is_hidden(spark, transactional_db):
    """Its patterns, and the parameters of the tasks that its project declares."""
    make_job(task="shop.login", args=["anna", SECRET], kwargs={"iban": SECRET})
    other = spark.newSession()
    other.dataSource.register(
        source(Redaction(("iban",), {"shop.login": (False, True)}))
    )

    (row,) = (
        other.read.format("pgqueue")
        .schema("args string, kwargs string")
        .load()
        .collect()
    )

    assert ('["anna", "[redacted]"]', '{"iban": "[redacted]"}') == tuple(row)


def test_the_password_is_in_no_plan_and_in_no_page(spark, read, by_jdbc, tmp_path):
    """Not in explain(), nor in what the UI's REST API tells of a query or an error."""
    make_job()
    both = [read().where("id > 0"), frames.read(spark, "jobs", dsn=by_jdbc)]
    plans = " ".join(rows._jdf.queryExecution().toString() for rows in both)
    assert [1, 1] == [len(rows.collect()) for rows in both]
    away = tmp_path / "away"
    away.write_text(f"host=127.0.0.1 port=1 password={PASSWORD}")
    with pytest.raises(Exception, match="session with PostgreSQL cannot be") as failed:
        read(dsnFile=str(away)).count()

    ui = spark.sparkContext.uiWebUrl
    application = spark.sparkContext.applicationId
    told = {"plans": plans, "error": str(failed.value)}
    for page in (
        f"/api/v1/applications/{application}/sql?details=true&planDescription=true",
        f"/api/v1/applications/{application}/environment",
        f"/api/v1/applications/{application}/jobs",
        f"/api/v1/applications/{application}/stages?details=true",
        f"/api/v1/applications/{application}/executors",
        "/environment/",
        "/SQL/",
    ):
        told[page] = fetch(f"{ui}{page}")

    assert "pgqueue" in told[next(page for page in told if "/sql?" in page)]
    assert [] == [place for place, text in told.items() if PASSWORD in text]


def test_no_process_of_spark_has_django(spark, read):
    """They could not: an import of it fails there, and all these tests read."""
    make_job()

    def look(_):
        import sys

        try:
            import django  # noqa: F401
        except ImportError as error:
            return str(error), "django_pgqueue.models" in sys.modules
        return "Django", True

    assert read(columns="id").count() == 1
    context = spark.sparkContext
    said = context.parallelize(range(2), 2).map(look).collect()

    assert {("A process of Spark has imported Django.", False)} == set(said)
