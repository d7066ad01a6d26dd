"""The pipeline job export: closed days to files, each row of them once."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyarrow import dataset

from django_pgqueue.models import ArchivedJob, Export
from django_pgqueue.queues import partitions
from tests.factories import make_archived_job

pytestmark = pytest.mark.spark

DAY = timedelta(days=1)
SECRET = "hunter2-planted"

TODAY = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
FIRST, SECOND = TODAY - 3 * DAY, TODAY - 2 * DAY


@pytest.fixture(autouse=True)
def _days(archive_days, cursor):
    with cursor.connection.transaction():
        for day in (FIRST, SECOND):
            partitions._make(cursor, day.date())


def make(at, **columns):
    return make_archived_job(
        finished_at=at, started_at=at - timedelta(seconds=1), **columns
    )


def fill():
    """Rows of two closed days and of today, in two queues."""
    for n in range(20):
        make(FIRST + n * timedelta(hours=1), queue=("mail", "default")[n % 2])
        make(SECOND + n * timedelta(minutes=1), queue="mail")
    make(
        FIRST,
        args=[{"api_key": SECRET}],
        kwargs={"password": SECRET, "größe": "ü|\x1f"},
    )
    make(
        SECOND + DAY - timedelta(microseconds=1), queue="mail", result={"token": SECRET}
    )
    make_archived_job(queue="today")


def ids(path, of=None):
    """Return the ids that a plain reader finds, in order."""
    found = dataset.dataset(path, format="parquet", partitioning="hive").to_table(
        columns=["id", "day"]
    )
    return sorted(
        row["id"]
        for row in found.to_pylist()
        if of is None or row["day"] == f"{of:%Y-%m-%d}"
    )


def archived(*days):
    rows = ArchivedJob.objects.filter(finished_at__lt=TODAY)
    if days:
        rows = [r for r in rows if r.finished_at.date() in {d.date() for d in days}]
    return sorted(row.id for row in rows)


def test_closed_days_are_exported_once(run, spark, tmp_path):
    """By day and queue, every column, without secrets; the manifest says what is where.
    A second run writes nothing."""
    fill()
    target = tmp_path / "archive"

    ended = run("export", path=f"{target}/")

    assert 42 == ended.rows_out
    assert archived() == ids(target)
    assert {
        f"day={FIRST:%Y-%m-%d}/queue=default",
        f"day={FIRST:%Y-%m-%d}/queue=mail",
        f"day={SECOND:%Y-%m-%d}/queue=mail",
    } == {str(path.relative_to(target)) for path in target.glob("day=*/queue=*")}
    assert SECRET.encode() not in b"".join(
        path.read_bytes() for path in target.rglob("*") if path.is_file()
    )
    first, second = Export.objects.filter(rows__gt=0).order_by("day")
    assert ("exported", 21, 21) == (first.state, first.rows, second.rows)
    assert str(target) == first.target
    for file in first.files:
        assert file["bytes"] == Path(target, file["path"]).stat().st_size
    before = list(Export.objects.order_by("id").values())
    frame = spark.read.parquet(str(target))
    assert {"day", "queue", "finished_at"} < set(frame.columns)

    again = run("export", path=str(target))

    assert 0 == again.rows_out
    assert before == list(Export.objects.order_by("id").values())
