"""Work: what is measured, on either side, with the same rows."""

from __future__ import annotations

from typing import Any

from django_pgqueue import spark
from tests.benchmarks.spark.server import Place

TASK, QUEUE = "shop.tasks.send_receipt", "mail"

# Of each table there is in the read: 14 columns with JSON and times, or 5 narrow ones.
WIDE = (
    "id",
    "queue",
    "task",
    "args",
    "kwargs",
    "headers",
    "priority",
    "enqueued_at",
    "visible_at",
    "attempt",
    "max_attempts",
    "deliveries",
    "dedup_key",
    "errors",
)
NARROW = ("id", "queue", "task", "priority", "enqueued_at")

# 230 bytes a row. As many visible to all, so that no read pays for the first look.
FILL = f"""
INSERT INTO pgqueue_job (queue, task, kwargs, priority)
SELECT '{QUEUE}', '{TASK}',
       jsonb_build_object('order_id', n, 'name', 'customer ' || n, 'amount', n * 1.25),
       n %% 5
  FROM generate_series(1, %(rows)s) AS n
"""

PARTITIONS = 4
DRIVER = "org.postgresql.Driver"

# What Spark's guide says about the driver, and what is quickest here.
FETCH_ROWS, BATCH_ROWS = "10000", "10000"


def fill(place: Place, rows: int) -> None:
    """Make the table have *rows* jobs, and nothing else."""
    with place.connect() as connection:
        connection.execute("TRUNCATE pgqueue_job")
        connection.execute(FILL, {"rows": rows})
        connection.execute("VACUUM (FREEZE, ANALYZE) pgqueue_job")
        connection.execute("CHECKPOINT")


def empty(place: Place) -> None:
    """Make the table empty, and leave nothing to write to the disk."""
    with place.connect() as connection:
        connection.execute("TRUNCATE pgqueue_job")
        connection.execute("CHECKPOINT")


def count(place: Place) -> int:
    """Return how many jobs there are."""
    with place.connect() as connection:
        row = connection.execute("SELECT count(*) FROM pgqueue_job").fetchone()
    assert row is not None
    return int(row[0])


def read(
    session: Any, columns: tuple[str, ...], redact: tuple[str, ...] | None = None
) -> None:
    """Read all jobs by read(), into nothing."""
    frame = spark.read(
        session, "jobs", columns=columns, partitions=PARTITIONS, redact=redact
    )
    frame.write.format("noop").mode("overwrite").save()


def read_by_python(session: Any, columns: tuple[str, ...]) -> None:
    """Read all jobs by format("pgqueue"), into nothing."""
    frame = (
        session.read.format("pgqueue")
        .options(table="jobs", columns=",".join(columns), partitions=PARTITIONS)
        .load()
    )
    frame.write.format("noop").mode("overwrite").save()


def read_by_jdbc(session: Any, place: Place, columns: tuple[str, ...]) -> None:
    """Read all jobs by Spark's JDBC source, divided by id, into nothing."""
    frame = table_by_jdbc(session, place).select(*columns)
    frame.write.format("noop").mode("overwrite").save()


def table(session: Any) -> Any:
    """Return the jobs as read() has them, of which a query takes what it needs."""
    return spark.read(session, "jobs", partitions=PARTITIONS)


def table_by_python(session: Any) -> Any:
    """Return the jobs as format("pgqueue") has them."""
    options = {"table": "jobs", "partitions": PARTITIONS}
    return session.read.format("pgqueue").options(**options).load()


def table_by_jdbc(session: Any, place: Place) -> Any:
    """Return the jobs as Spark's JDBC source has them, divided by id."""
    with place.connect() as connection:
        ends = connection.execute("SELECT min(id), max(id) FROM pgqueue_job").fetchone()
    assert ends is not None
    return (
        _jdbc(session.read.format("jdbc"), place)
        .options(
            partitionColumn="id",
            lowerBound=ends[0],
            upperBound=ends[1] + 1,
            numPartitions=PARTITIONS,
            fetchsize=FETCH_ROWS,
        )
        .load()
    )


def write(session: Any, rows: int) -> None:
    """Make *rows* jobs by format("pgqueue")."""
    frame = session.range(0, rows, 1, PARTITIONS).selectExpr(
        "id AS order_id", "concat('customer ', id) AS name", "id * 1.25D AS amount"
    )
    frame.write.format("pgqueue").mode("append").options(task=TASK, queue=QUEUE).save()


def write_by_jdbc(session: Any, place: Place, rows: int) -> None:
    """Make *rows* jobs by Spark's JDBC sink: unchecked, and not all or nothing."""
    frame = session.range(0, rows, 1, PARTITIONS).selectExpr(
        f"'{TASK}' AS task",
        f"'{QUEUE}' AS queue",
        "to_json(named_struct('order_id', id, 'name', concat('customer ', id),"
        " 'amount', id * 1.25D)) AS kwargs",
    )
    writer = _jdbc(frame.write.format("jdbc").mode("append"), place).options(
        batchsize=BATCH_ROWS
    )
    writer.save()


def copy(place: Place, chunks: list[bytes]) -> None:
    """Make jobs of rows in COPY's format by one COPY, as psql does."""
    with place.connect() as connection, connection.cursor() as cursor:
        statement = "COPY pgqueue_job (task, queue, kwargs) FROM STDIN"
        with cursor.copy(statement) as target:
            for chunk in chunks:
                target.write(chunk)


def copy_rows(rows: int) -> list[bytes]:
    """Return what copy() takes: the same rows as of write(), in chunks."""
    return [
        "".join(map(_copy_row, range(first, min(first + 10_000, rows)))).encode()
        for first in range(0, rows, 10_000)
    ]


def _copy_row(n: int) -> str:
    kwargs = f'{{"order_id": {n}, "name": "customer {n}", "amount": {n * 1.25}}}'
    return f"{TASK}\t{QUEUE}\t{kwargs}\n"


def _jdbc(either: Any, place: Place) -> Any:
    return either.options(
        url=place.jdbc,
        dbtable="pgqueue_job",
        user=place.user,
        password=place.password,
        driver=DRIVER,
        stringtype="unspecified",  # jsonb takes a text then.
        reWriteBatchedInserts="true",
    )
