"""The pipeline job export: closed days to files, each row of them once."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyarrow import dataset

from django_pgqueue.models import ArchivedJob, Export
from django_pgqueue.queues import partitions
from django_pgqueue.runs import exports
from django_pgqueue.spark.jobs import export
from django_pgqueue.spark.run import run_job
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


def manifest(day):
    return Export.objects.get(day=day.date())


def test_a_late_row_is_exported_with_its_day(run, tmp_path):
    """The day is replaced as a whole, and others are left alone."""
    fill()
    run("export", path=str(tmp_path))
    other = manifest(SECOND).exported_at
    late = make(FIRST, queue="late")

    ended = run("export", path=str(tmp_path))

    assert 22 == ended.rows_out
    assert late.id in ids(tmp_path, FIRST)
    assert archived() == ids(tmp_path)
    assert (22, other) == (manifest(FIRST).rows, manifest(SECOND).exported_at)
    assert {"day="} == {path.name[:4] for path in tmp_path.iterdir()}

    # Rows that somebody has deleted from the archive stay in the files, unless he
    # says otherwise.
    ArchivedJob.objects.filter(id=late.id).delete()
    with pytest.raises(AssertionError, match=r"22 were exported.*again=true"):
        run("export", path=str(tmp_path))
    assert late.id in ids(tmp_path)
    assert (
        21
        == run("export", path=str(tmp_path), again="true", until=_text(FIRST)).rows_out
    )
    assert archived() == ids(tmp_path)


def _text(day):
    return f"{day:%Y-%m-%d}"


def test_the_columns_are_those_of_the_contract(run, spark, tmp_path):
    """With times as moments that every reader of Parquet knows, and empty days as
    manifests alone."""
    row = make(SECOND, queue="7", result={"a": 1}, run_after=SECOND - DAY)

    run("export", path=str(tmp_path), since=_text(FIRST), until=_text(SECOND))

    assert ["day=" + _text(SECOND)] == sorted(path.name for path in tmp_path.iterdir())
    assert (0, "exported") == (manifest(FIRST).rows, manifest(FIRST).state)
    read = spark.read.format("pgqueue").option("table", "archive").load()
    (expected,) = read.where(read.id == row.id).collect()
    files = spark.read.schema(read.schema).parquet(str(tmp_path))
    assert [expected] == files.select(*read.columns).collect()
    (part,) = tmp_path.rglob("*.parquet")
    schema = dataset.dataset(part).schema
    assert "timestamp[us, tz=UTC]" == str(schema.field("finished_at").type)
    assert (part.parent.parent / "_SUCCESS").exists()


@pytest.mark.parametrize(
    "options, problem",
    [
        ({}, "has no path: set PGQUEUE"),
        ({"path": "archive"}, "must begin with /"),
        ({"path": "/" + 900 * "x"}, "has 901 characters"),
        ({"path": "/a", "format": "csv"}, "'csv'; it must be parquet or delta"),
        ({"path": "/a", "since": "yesterday"}, "a day such as 2026-11-21"),
        ({"path": "nowhere://a/b"}, "Spark cannot use nowhere://a/b"),
    ],
)
def test_wrong_options_are_refused(plan, options, problem):
    """Before anything is written."""
    ended = run_job(plan("export", **options))

    assert "failed" == ended.state
    assert problem in ended.error
    assert not Export.objects.exists()


def test_a_target_has_one_format(run, tmp_path, cursor):
    """Days of two formats in one folder would be read by nobody."""
    exports.begin(cursor, str(tmp_path), FIRST.date(), form="delta", run=1)

    with pytest.raises(AssertionError, match="has days in the format delta"):
        run("export", path=str(tmp_path))


def test_a_day_with_an_open_writer_waits(run, tmp_path, monkeypatch, new_cursor):
    """Whoever could still write rows of it: a statement that began before its end, also
    one that was prepared. Not who began later, and not who only reads."""
    fill()
    monkeypatch.setattr(export, "OPEN_SECONDS_MAX", 0.1)
    late, reading = new_cursor(), new_cursor()
    reading.execute("BEGIN")
    reading.execute("SELECT count(*) FROM pgqueue_archived_job")
    late.execute("BEGIN")
    late.execute("UPDATE pgqueue_archived_job SET worker = worker WHERE id = 0")
    assert {False} == {
        w.is_over(TODAY.date()) for w in exports.writers(reading).values()
    }

    # Its transaction began today, after both days.
    assert 42 == run("export", path=str(tmp_path)).rows_out
    reading.execute("ROLLBACK")

    monkeypatch.setattr(exports.Writer, "is_over", lambda self, day: False)
    make(FIRST)
    with pytest.raises(AssertionError, match=r"not closed: process \d+ of the server"):
        run("export", path=str(tmp_path))
    late.execute("PREPARE TRANSACTION 'pgqueue_late'")
    try:
        with pytest.raises(AssertionError, match="a prepared transaction may still"):
            run("export", path=str(tmp_path))
    finally:
        late.execute("ROLLBACK PREPARED 'pgqueue_late'")
    assert 22 == run("export", path=str(tmp_path)).rows_out


def test_what_differs_from_the_database_is_not_published(
    run, tmp_path, cursor, monkeypatch
):
    """Other days are; the next run does it again."""
    fill()
    content = exports.content

    def more(cursor, table):
        found = content(cursor, table)
        return replace(found, rows=22) if f"{FIRST:%Y%m%d}" in table else found

    with monkeypatch.context() as patch:
        patch.setattr(exports, "content", more)
        with pytest.raises(AssertionError, match=r"Rows and checksum differ.*rows=22"):
            run("export", path=str(tmp_path))

    assert archived(SECOND) == ids(tmp_path)
    assert ("writing", None) == (manifest(FIRST).state, manifest(FIRST).rows)
    assert manifest(FIRST).error.startswith("Rows and checksum differ: PostgreSQL:")
    run("export", path=str(tmp_path))
    assert archived() == ids(tmp_path)
