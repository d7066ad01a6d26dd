"""compact, verify and erase: what becomes of days that export has written."""

from __future__ import annotations

import re
import shutil
from datetime import timedelta

import pyarrow
import pytest
from deltalake import DeltaTable, write_deltalake
from pyarrow import parquet

from django_pgqueue.exceptions import SparkOptionError
from django_pgqueue.models import (
    ArchivedJob,
    DeadLetter,
    Erasure,
    Export,
    PipelineRun,
)
from django_pgqueue.pipeline import exports
from django_pgqueue.postgres.day_tables import ARCHIVE
from django_pgqueue.spark.jobs.export import ArchiveDay
from django_pgqueue.spark.running import run_job
from django_pgqueue.worker.chores.purger import _Exported
from tests.harness.factories import make_dead_letter, make_job
from tests.pipeline.test_export import (
    FIRST,
    SECOND,
    _days,
    _text,
    archived,
    exported,
    fill,
    ids,
    make,
)

pytestmark = pytest.mark.spark

__all__ = ["_days"]

HOURS = [timedelta(hours=hour) for hour in range(6)]


def files_of(path, day):
    """Return the files of a day, by the table's log."""
    log = pyarrow.table(DeltaTable(path).get_add_actions(flatten=True))
    return [
        path / file["path"]
        for file in log.to_pylist()
        if file["partition.day"] == day.date()
    ]


def customers(day, queue="mail", **columns):
    """Rows of a day, of whom those of customer 42 are every third one."""
    return [
        make(
            day + hour,
            queue=queue,
            task="shop.tasks.send",
            kwargs={"customer_id": 42 if n % 3 == 0 else 7, "n": 42},
            **columns,
        )
        for n, hour in enumerate(HOURS)
    ]


# compact ------------------------------------------------------------------------------


def test_compact_rewrites_many_files_into_few(by_sql, cursor, tmp_path):
    """Each row is there once, and what is known of the days stays true: retention and
    verify agree. A second run does nothing."""
    fill()
    by_sql("export", path=str(tmp_path))
    table = DeltaTable(tmp_path).to_pyarrow_table()
    for mode, part in (("overwrite", 0), ("append", 1)):
        write_deltalake(tmp_path, table.take([*range(part, len(table), 2)]), mode=mode)
    assert 4 == len(files_of(tmp_path, FIRST))

    ended = by_sql("compact", path=str(tmp_path))

    assert 42 == ended.rows_out
    assert 2 == len(files_of(tmp_path, FIRST))
    assert archived() == ids(tmp_path)
    assert 42 == by_sql("verify", path=str(tmp_path)).rows_out
    assert 0 == by_sql("compact", path=str(tmp_path)).rows_out
    _, table = next(iter(exports.ended_days(cursor).items()))
    assert _Exported(cursor, str(tmp_path))(FIRST.date(), table)
    assert 0 == by_sql("export", path=str(tmp_path)).rows_out
    for options, problem in (
        ({"path": str(tmp_path), "file_mb": "0"}, "from 1 to 4,096"),
        ({"path": f"{tmp_path}/x"}, "There is no Delta table at"),
    ):
        with pytest.raises(SparkOptionError, match=problem):
            by_sql("compact", **options)


# verify -------------------------------------------------------------------------------


def test_verify_finds_what_differs(by_sql, plan, cursor, tmp_path):
    """A changed value, a row too many, a file that is gone. The day is exported again
    if the archive has it; otherwise its row says what is wrong until it is right."""
    fill()
    by_sql("export", path=str(tmp_path))
    table = DeltaTable(tmp_path)
    version = table.version()
    table.update({"attempt": "9"}, predicate=f"day = '{_text(FIRST)}'")
    row = table.to_pyarrow_table(filters=[("day", "=", SECOND.date())]).slice(0, 1)
    write_deltalake(tmp_path, row, mode="append")
    ARCHIVE.remove(cursor, SECOND.date())

    ended = run_job(plan("verify", path=str(tmp_path)))

    assert "failed" == ended.state
    assert 2 == len(re.findall(r"The table has 2[12] rows with the c", ended.error))
    assert 1 == ended.error.count("the next run of export replaces it")
    assert ("stale", "exported") == (exported(FIRST).state, exported(SECOND).state)
    assert "The table has 22 rows" in exported(SECOND).error
    by_sql("export", path=str(tmp_path))
    assert archived(FIRST) == ids(tmp_path, FIRST)

    DeltaTable(tmp_path).restore(version)
    assert 21 == by_sql("verify", path=str(tmp_path), since=_text(SECOND)).rows_out
    assert exported(SECOND).error is None
    for day in (FIRST, SECOND):
        files_of(tmp_path, day)[0].unlink()
    error = run_job(plan("verify", path=str(tmp_path))).error
    assert f"{SECOND.date()}: It cannot be read" in error
    assert 21 == by_sql("export", path=str(tmp_path)).rows_out
    assert 21 == by_sql("verify", path=str(tmp_path), until=_text(FIRST)).rows_out


# erase --------------------------------------------------------------------------------

THEIRS = {"path": "kwargs.customer_id", "value": "42"}


def test_erase_takes_a_customer_out_of_everything(by_sql, cursor, tmp_path):
    """Of archive, dead letters and files, also of days that only files have. The
    receipt has counts and no value; retention and verify agree with what stays; a
    preview and a second run change nothing."""
    rows = [*customers(FIRST), *customers(SECOND), *customers(SECOND, "other")]
    make(FIRST, kwargs={"customer_id": "42"}, queue="mail")
    make(SECOND, kwargs={"customer_id": True, "x": [42]}, queue="untouched")
    letter = make_dead_letter(kwargs={"customer_id": 42})
    live = make_job(kwargs={"customer_id": 42})
    by_sql("export", path=str(tmp_path))
    ARCHIVE.remove(cursor, FIRST.date())
    before = ids(tmp_path)
    (some, *_) = files_of(tmp_path, SECOND)
    left_behind = some.with_name("part-0.parquet")
    shutil.copy(some, left_behind)
    gone = [row.id for n, row in enumerate(rows) if n % 6 % 3 == 0]

    told = by_sql("erase", **THEIRS)

    assert 0 == told.rows_out
    assert "4 rows of the archive and 1 dead letters" in told.notes[0]
    assert "6 rows of 2 days" in told.notes[1]
    assert "1 jobs of theirs have not ended" in told.notes[2]
    assert before == ids(tmp_path)
    assert not Erasure.objects.exists()

    ended = by_sql("erase", **THEIRS, apply="true")

    assert 11 == ended.rows_out
    left = sorted(set(before) - set(gone))
    assert left == ids(tmp_path)
    assert not ArchivedJob.objects.filter(id__in=gone).exists()
    assert not DeadLetter.objects.filter(id=letter.id).exists()
    live.refresh_from_db()
    receipt = Erasure.objects.get()
    assert (4, 1, "tests") == (
        receipt.archive_rows,
        receipt.dead_letter_rows,
        receipt.asked_by,
    )
    assert {_text(FIRST): 2, _text(SECOND): 4} == {
        day["day"]: day["rows"] for day in receipt.exports
    }
    assert receipt.finished_at is not None
    assert {"[redacted]"} == {
        row.options["value"] for row in PipelineRun.objects.filter(job="erase")
    }
    # Files of older versions are gone, too, and what a run has left that died.
    assert not left_behind.exists()
    for path in tmp_path.rglob("*.parquet"):
        table = parquet.read_table(path, columns=["id"], partitioning=None)
        assert not {*gone} & {*table.column("id").to_pylist()}
    assert len(left) == by_sql("verify", path=str(tmp_path)).rows_out
    assert (len(archived(SECOND)), "exported") == (
        exported(SECOND).rows,
        exported(SECOND).state,
    )
    table = exports.ended_days(cursor)[SECOND.date()]
    assert _Exported(cursor, str(tmp_path))(SECOND.date(), table)
    assert 0 == by_sql("export", path=str(tmp_path)).rows_out

    again = by_sql("erase", **THEIRS, apply="true")

    assert 0 == again.rows_out
    assert left == ids(tmp_path)


def test_erase_names_files_that_are_gone(by_sql, plan, tmp_path):
    """An export was moved, or its disk is not there: whose rows it has, nobody knows.
    Others are erased from, and who forgets the days is not asked again."""
    customers(FIRST)
    for name in ("old", "present", "torn"):
        by_sql("export", path=f"{tmp_path}/{name}", until=_text(FIRST))
    shutil.rmtree(tmp_path / "old")
    files_of(tmp_path / "torn", FIRST)[0].unlink()

    for asked, rows in (({}, 0), ({"apply": "true"}, 4)):
        ended = run_job(plan("erase", **THEIRS, **asked))
        assert f"{tmp_path}/old: Its files cannot be read" in ended.error
        assert "Export.objects.filter" in ended.error
        assert f"{tmp_path}/torn, {_text(FIRST)}: Its files cannot" in ended.error
        assert rows == ended.rows_out

    assert archived() == ids(tmp_path / "present")
    assert Erasure.objects.get().finished_at is None
    Export.objects.filter(target=f"{tmp_path}/old").delete()
    DeltaTable(tmp_path / "torn").repair()
    by_sql("erase", **THEIRS, apply="true")
    assert Erasure.objects.latest("id").finished_at is not None


@pytest.mark.parametrize(
    "options, problem",
    [
        ({"path": "customer_id"}, "an argument such as kwargs.customer_id"),
        ({"path": "kwargs.a..b", "value": "1"}, "an argument such as"),
        ({"path": "kwargs.customer_id"}, "value is empty"),
        ({"path": "args[0]", "value": "42"}, "say whose with -o task="),
        ({"path": "kwargs.a", "value": "null"}, "a text or a number"),
        ({"path": "kwargs.a", "value": "true"}, "a text or a number"),
        ({"path": "kwargs.password", "value": "x"}, "is a secret"),
    ],
)
def test_wrong_options_of_erase_are_refused(run, options, problem):
    """Before anything is read."""
    with pytest.raises(SparkOptionError, match=re.escape(problem)):
        run("erase", **options)


def test_an_export_that_meets_an_erasure_reads_the_day_again(
    by_sql, tmp_path, monkeypatch
):
    """It has read their rows before they were deleted: Delta refuses its commit."""
    customers(FIRST)
    path, erased = str(tmp_path), []
    by_sql("export", path=path, until=_text(FIRST))
    customers(FIRST)
    batches = ArchiveDay.batches

    def before_an_erasure(day):
        yield from batches(day)
        if not erased:
            erased.append(by_sql("erase", **THEIRS, apply="true").rows_out)

    monkeypatch.setattr(ArchiveDay, "batches", before_an_erasure)
    assert 8 == by_sql("export", path=path, until=_text(FIRST)).rows_out
    assert [6] == erased
    assert archived() == ids(tmp_path)
