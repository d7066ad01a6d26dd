"""The pipeline job export: closed days to files, each row of them once."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime, timedelta

import pytest
from deltalake import DeltaTable

from django_pgqueue.exceptions import SparkOptionError
from django_pgqueue.models import ArchivedJob, Export, PipelineRun, TaskHour
from django_pgqueue.pipeline import exports
from django_pgqueue.postgres.day_tables import ARCHIVE
from django_pgqueue.spark.jobs import export
from django_pgqueue.spark.jobs.export import day_schema
from django_pgqueue.spark.running import run_job
from tests.harness.factories import make_archived_job
from tests.pipeline.test_command import environment
from tests.pipeline.test_metrics import counted

pytestmark = pytest.mark.spark

__all__ = ["environment"]

DAY = timedelta(days=1)
SECRET = "hunter2-planted"

TODAY = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
FIRST, SECOND = TODAY - 3 * DAY, TODAY - 2 * DAY


@pytest.fixture(autouse=True)
def _days(archive_days, cursor):
    with cursor.connection.transaction():
        for day in (FIRST, SECOND):
            ARCHIVE.make_day(cursor, day.date())


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
    """Return the ids that a plain reader of Delta finds, in order."""
    rows = DeltaTable(path).to_pyarrow_table(columns=["id", "day"]).to_pylist()
    return sorted(row["id"] for row in rows if of is None or row["day"] == of.date())


def archived(*days):
    rows = ArchivedJob.objects.filter(finished_at__lt=TODAY)
    if days:
        rows = [r for r in rows if r.finished_at.date() in {d.date() for d in days}]
    return sorted(row.id for row in rows)


def test_closed_days_are_exported_once(by_sql, tmp_path):
    """By day and queue, without secrets; a row of each day says what is there. A second
    run writes nothing."""
    fill()
    target = tmp_path / "archive of jobs"

    ended = by_sql("export", path=f"{target}/")

    assert 42 == ended.rows_out
    assert archived() == ids(target)
    table = DeltaTable(target)
    assert ["day", "queue"] == table.metadata().partition_columns
    assert SECRET.encode() not in b"".join(
        path.read_bytes() for path in target.rglob("*") if path.is_file()
    )
    first, second = Export.objects.filter(rows__gt=0).order_by("day")
    assert ("exported", 21, 21) == (first.state, first.rows, second.rows)
    assert (str(target), table.version()) == (first.target, second.version)
    before = noted()

    again = by_sql("export", path=str(target))

    assert 0 == again.rows_out
    assert before == noted()


def noted():
    """Return what is known of days, except when their files were seen."""
    names = {field.name for field in Export._meta.fields} - {"checked_at"}
    return list(Export.objects.order_by("id").values(*names))


def exported(day):
    return Export.objects.get(day=day.date())


def test_a_late_row_is_exported_with_its_day(run, tmp_path):
    """The day is replaced as a whole, and others are left alone."""
    fill()
    run("export", path=str(tmp_path))
    other = exported(SECOND).exported_at
    late = make(FIRST, queue="late")

    ended = run("export", path=str(tmp_path))

    assert 22 == ended.rows_out
    assert late.id in ids(tmp_path, FIRST)
    assert archived() == ids(tmp_path)
    assert (22, other) == (exported(FIRST).rows, exported(SECOND).exported_at)

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
    """A table that lacks one gets it; an empty day is only a row of the database."""
    row = make(SECOND, queue="7", result={"a": 1}, run_after=SECOND - DAY)
    older = day_schema().remove(day_schema().get_field_index("lane_policy"))
    DeltaTable.create(str(tmp_path), older, partition_by=["day", "queue"])

    run("export", path=str(tmp_path), since=_text(FIRST), until=_text(SECOND))

    assert (0, "exported") == (exported(FIRST).rows, exported(FIRST).state)
    read = spark.read.format("pgqueue").option("table", "archive").load()
    (expected,) = read.where(read.id == row.id).collect()
    files = DeltaTable(tmp_path).file_uris()
    found = spark.read.option("basePath", str(tmp_path)).schema(read.schema)
    assert [expected] == found.parquet(*files).select(*read.columns).collect()
    schema = DeltaTable(tmp_path).to_pyarrow_dataset().schema
    assert "timestamp[us, tz=UTC]" == str(schema.field("finished_at").type)


@pytest.mark.parametrize(
    "options, problem",
    [
        ({}, "has no path: set PGQUEUE"),
        ({"path": "archive"}, "must begin with /"),
        ({"path": "/" + 900 * "x"}, "has 901 characters"),
        ({"path": "/a%20b"}, "takes no %"),
        ({"path": "/a", "since": "yesterday"}, "a day such as 2026-11-21"),
        ({"path": "/a", "since": "2026-11-21", "until": "2026-11-20"}, "before since"),
        ({"path": "nowhere://a/b"}, "can be written to nowhere://a/b"),
    ],
)
def test_wrong_options_are_refused(plan, options, problem):
    """Before anything is written, and most of them before Spark starts."""
    with suppress(SparkOptionError):
        run_job(plan("export", **options))

    run = PipelineRun.objects.get()
    assert "failed" == run.state
    assert problem in run.error
    assert not Export.objects.exists()


def test_what_others_have_written_is_not_replaced(run, tmp_path):
    """Two installations do not take a day from one another; nor does one that has lost
    what it knew, unless it is told to."""
    fill()
    run("export", path=str(tmp_path), until=_text(FIRST))
    theirs = ids(tmp_path)
    Export.objects.all().delete()
    make(FIRST)

    for _ in range(2):
        with pytest.raises(AssertionError, match="no run of ours has written it"):
            run("export", path=str(tmp_path), until=_text(FIRST))

    assert theirs == ids(tmp_path)
    run("export", path=str(tmp_path), again="true")
    assert archived() == ids(tmp_path)


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
    count = exports.count

    def more(cursor, table):
        return count(cursor, table) + (f"{FIRST:%Y%m%d}" in table)

    with monkeypatch.context() as patch:
        patch.setattr(exports, "count", more)
        with pytest.raises(AssertionError, match=r"Rows differ: PostgreSQL has 22"):
            run("export", path=str(tmp_path))

    assert archived(SECOND) == ids(tmp_path)
    assert exported(FIRST).rows is None
    assert not exports.known(cursor, str(tmp_path))[FIRST.date()].is_exported
    assert exported(FIRST).error.startswith("Rows differ: PostgreSQL has 22")
    run("export", path=str(tmp_path))
    assert archived() == ids(tmp_path)


ENQUEUED = "UPDATE pgqueue_archived_job SET enqueued_at = finished_at"


def test_what_is_counted_is_the_archive_and_the_exports_together(
    by_sql, cursor, tmp_path
):
    """A day that retention has dropped is read from its files, if it was not counted
    before; one that is in both counts once. No job of it is missing. Spark is not
    needed, and where the files are gone both jobs say so."""
    fill()
    failed = {"kind": "error", "delivery": 1, "message": 'a "b",\n\\N'}
    make(FIRST, deliveries=2, errors=[failed], lane="", headers={"tags": ['"1",\n']})
    cursor.execute(ENQUEUED)
    by_sql("metrics")
    expected = counted()
    assert 3 < len(expected)
    assert 43 == by_sql("conservation", lookback="5d").rows_in
    by_sql("export", path=str(tmp_path))
    by_sql("export", path=f"{tmp_path}-2", since=_text(SECOND))
    ARCHIVE.remove(cursor, FIRST.date())
    assert 0 == by_sql("metrics", full="true").rows_out
    TaskHour.objects.all().delete()

    ended = by_sql("metrics")

    assert expected == counted()
    assert len(expected) == ended.rows_out
    assert 0 == by_sql("metrics", full="true").rows_out
    assert "0 are nowhere" in by_sql("conservation", lookback="5d").notes[0]
    tmp_path.rename(f"{tmp_path}-elsewhere")
    TaskHour.objects.all().delete()
    gone = r"cannot be read there: .*\. Put it back, or leave it out"
    with pytest.raises(AssertionError, match=gone):
        by_sql("metrics")
    with pytest.raises(AssertionError, match=gone):
        by_sql("conservation", lookback="5d")


# Runs that do not come to their end --------------------------------------------------
