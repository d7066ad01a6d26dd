"""
What the reader of a page has beside a Spark session, and looks at afterwards.

As in reader.py, but committed: executors have connections of their own. What a page
takes from another place is put here by ``ELSEWHERE``.
"""

from __future__ import annotations

from pathlib import Path

from tests.docs.samples import Sample, name_of, needing, samples_of

HAS = {
    "docs/howto/fan-out-a-million-jobs.md": """
@task(name="shop.tasks.refresh")
def refresh(customer_id): ...
""",
    "docs/howto/join-with-business-tables.md": """
from tests.harness.factories import make_archived_job

make_archived_job(task="shop.tasks.bill", kwargs={"customer_id": 7})
make_archived_job(task="shop.tasks.refresh", kwargs={"customer_id": 8})
""",
    "docs/howto/offload-the-archive.md": """
from datetime import datetime
from django.db import connection
from tests.harness.factories import make_archived_job

with connection.cursor() as cursor:
    cursor.execute("SELECT pgqueue_make_archive_day('{yesterday}')")
make_archived_job(queue="7", finished_at=datetime.fromisoformat("{yesterday}T09:00Z"))
run("export", path="/srv/export/jobs")
""",
    "docs/howto/read-with-spark.md": """
noop.delay()
drain()
noop.delay()
""",
    "docs/howto/stream-a-topic.md": """
topic("orders").publish("orders.created", {"customer_id": "before"})
run("ingest", topic="orders", path="/srv/log")
upserted = []

def upsert(frame, number): upserted.extend(frame.collect())
""",
    "docs/howto/write-with-spark.md": """
orders = spark.createDataFrame([(7, "ann@example.org")], "order_id int, email string")
orders.selectExpr("*", "now() + interval 1 day AS due_at").write.parquet("/srv/orders")
""",
    "docs/reference/pipeline.md": """
customers = spark.createDataFrame([(7, 1), (8, 2)], "customer_id int, rank int")

@task(name="shop.tasks.bill")
def bill(customer_id, price): ...
""",
    "docs/reference/spark-write.md": """
made = spark.createDataFrame([(7,)], "order_id int")
writer = made.write.format("pgqueue").mode("append").option("name", "orders 2026-03-01")
writer.option("task", "shop.tasks.send_receipt").save()
made.write.parquet("/srv/rows")
rows = spark.readStream.schema("order_id int").parquet("/srv/rows")
""",
    "docs/reference/spark.md": """
topic("orders").publish("orders.created", {"id": 1})
noop.delay()
drain()
""",
}

# What the session does not find on this machine, and when the page was written.
ELSEWHERE = {
    "docs/howto/offload-the-archive.md": [("2026-11-21", "{yesterday}")],
    "docs/howto/stream-a-topic.md": [("2026-11-22", "{today}")],
    "docs/howto/read-with-spark.md": [
        ("REPLICA_DSN", "PGQUEUE_ELSEWHERE"),
        ("/run/secrets/replica-dsn", "{tcp}"),
        ('"day.parquet"', '"/srv/day"'),
        ("2026-11-20", "2020-01-01"),
        ("2026-11-21", "2222-01-01"),
    ],
    "docs/howto/write-with-spark.md": [('"orders.parquet"', '"/srv/orders"')],
    "docs/reference/pipeline.md": [
        ("refresh 2026-11-22", "refresh"),
        ("2026-11-22T00:00Z", "{tomorrow}"),
    ],
    "docs/reference/spark.md": [
        ("snapshot(spark)", 'snapshot(spark, DsnSource(file="{tcp}"))'),
        ("import read, snapshot", "import DsnSource, read, snapshot"),
    ],
}

THEN = {
    "docs/howto/fan-out-a-million-jobs.md": """
run("refresh_customers")
assert [{"customer_id": 7}, {"customer_id": 8}] == sorted(
    (job.kwargs for job in Job.objects.all()), key=str
)
""",
    "docs/howto/join-with-business-tables.md": """
(cost,) = spark.read.parquet("/srv/reports/cost").collect()
assert "gold" == cost.plan
""",
    "docs/howto/offload-the-archive.md": """
assert 1 == jobs.count()
assert ["7"] == [job.queue for job in jobs.collect()]
""",
    "docs/howto/read-with-spark.md": """
assert 1 == spark.read.parquet("/srv/day").count() == slow.count()
assert dead.isEmpty()
""",
    "docs/howto/stream-a-topic.md": """
query.processAllAvailable()
topic("orders").publish("orders.created", {"customer_id": 7})
query.processAllAvailable()
query.stop()
assert [("7", 1)] == [tuple(row) for row in upserted]
""",
    "docs/howto/write-with-spark.md": """
assert [("mail", {"email": "ann@example.org", "order_id": 7})] == [
    (job.queue, job.kwargs) for job in Job.objects.filter(task__endswith="receipt")
]
assert ["reminder-7"] == [
    job.dedup_key for job in Job.objects.filter(task__endswith="remind")
]
""",
    "docs/reference/pipeline.md": """
assert 2 == result.written == Job.objects.filter(queue="slow").count()
Path("/srv/data").mkdir()
Path("/srv/data/plans.csv").write_text("plan,price\\ngold,9\\n")
run("bills", month=next_month, folder="/srv/data")
assert [{"customer_id": 7, "price": 9}] == [
    job.kwargs for job in Job.objects.filter(task="shop.tasks.bill")
]
assert 1 == spark.read.parquet("/srv/data/unknown").count()
""",
    "docs/reference/spark-write.md": """
query.processAllAvailable()
query.stop()
assert "committed" == result.state
assert 2 == Job.objects.count()
""",
    "docs/reference/spark.md": """
assert orders.isStreaming
""",
}

# Names that these pages take from a session.
NAMES = {
    "docs/reference/pipeline.md": {"customers"},
    "docs/reference/spark-write.md": {"read_result", "rows"},
    "docs/reference/spark.md": {"day"},
}


def spark_samples(page: Path) -> list[Sample]:
    """Return those of *page* that cannot run without a session."""
    names = {"spark", "spark_session"} | NAMES.get(name_of(page), set())
    return needing(samples_of(page), names)


def is_pipeline_job(sample: Sample) -> bool:
    """Whether it declares one; that needs no session, and to run it does."""
    return "@pipeline_job" in sample.source
