"""compact, verify and erase: what becomes of files that export has written."""

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
from django_pgqueue.spark import reader
from django_pgqueue.spark.export import parquet as parquet_module
from django_pgqueue.spark.export.store import Store
from django_pgqueue.spark.running import run_job
from django_pgqueue.worker.chores.purger import _Exported
from tests.harness.factories import make_dead_letter, make_job
from tests.pipeline.test_export import (
    FIRST,
    SECOND,
    _days,
    _text,
    archived,
    fill,
    ids,
    make,
    manifest,
    of_delta,
)
from tests.spark.conftest import require

pytestmark = pytest.mark.spark

__all__ = ["_days"]

HOURS = [timedelta(hours=hour) for hour in range(6)]


def files_of(day):
    return [file["path"] for file in manifest(day).files]


@pytest.fixture
def in_pieces(monkeypatch):
    """Let an export write a file for every few rows."""

    with monkeypatch.context() as patch:
        patch.setattr(reader, "PAGE_ROWS_MAX", 4)
        patch.setattr(parquet_module, "GROUP_ROWS", 4)
        patch.setattr(parquet_module, "OPEN_FILES_MAX", 1)
        yield patch


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


# Sums ---------------------------------------------------------------------------------


# compact ------------------------------------------------------------------------------


def test_compact_rewrites_many_files_into_few(run, cursor, in_pieces, tmp_path):
    """Rows, count and checksums are those of before, retention agrees, and so does
    verify. Queues of one file keep it, and a second run does nothing."""
    fill()
    make(SECOND, queue="default")
    run("export", path=str(tmp_path))
    in_pieces.undo()
    before = manifest(FIRST)
    (kept,) = (path for path in files_of(SECOND) if "queue=default" in path)
    assert 4 < len(before.files)

    ended = run("compact", path=str(tmp_path))

    assert 42 == ended.rows_out
    assert kept in files_of(SECOND)
    after = manifest(FIRST)
    assert 2 == len(after.files)
    for name in ("rows", "checksum", "content", "state"):
        assert getattr(before, name) == getattr(after, name)
    assert archived() == ids(tmp_path)
    there = {str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*.parquet")}
    assert {*files_of(FIRST), *files_of(SECOND)} == there
    assert 43 == run("verify", path=str(tmp_path)).rows_out
    assert 0 == run("compact", path=str(tmp_path)).rows_out
    _, table = next(iter(exports.ended_days(cursor).items()))
    assert _Exported(cursor, str(tmp_path))(FIRST.date(), table)
    with pytest.raises(SparkOptionError, match="from 1 to 4,096"):
        run("compact", path=str(tmp_path), file_mb="0")


def test_delta_gets_new_columns_and_is_compacted(run, tmp_path):
    """A table that a release before has made lacks some: its days have NULL there, and
    a run adds them. Small files of a day become one for each queue."""
    require("deltalake")
    fill()
    target = str(tmp_path)
    run("export", path=target, format="delta", until=_text(FIRST))
    table = DeltaTable(target).to_pyarrow_table().drop_columns(["lane_policy"])
    for mode, part in (("overwrite", 0), ("append", 1)):
        rows = table.take([*range(part, len(table), 2)])
        schema = "overwrite" if mode == "overwrite" else None
        write_deltalake(
            target, rows, mode=mode, schema_mode=schema, partition_by=["day", "queue"]
        )

    run("export", path=target, format="delta")

    assert "lane_policy" in DeltaTable(target).to_pyarrow_dataset().schema.names
    assert archived() == of_delta(target)
    assert 4 == len(files_of(FIRST))
    assert 21 == run("compact", path=target).rows_out
    assert 2 == len(files_of(FIRST))
    assert 42 == run("verify", path=target).rows_out


# verify -------------------------------------------------------------------------------


def damaged(path):
    """Change a value of the file *path*, which stays as long as it was."""
    table = parquet.read_table(path, partitioning=None)
    column = table.column("attempt")
    other = pyarrow.array([9] * len(column), column.type)
    changed = table.set_column(
        table.schema.get_field_index("attempt"), "attempt", other
    )
    parquet.write_table(changed, path)


def test_verify_finds_what_differs(run, plan, cursor, tmp_path):
    """A changed value, a file that is gone, one too many. The day is exported again if
    the archive has it; otherwise the manifest says what is wrong until it is right."""
    fill()
    run("export", path=str(tmp_path))
    first, second = files_of(FIRST)[0], files_of(SECOND)[0]
    for path in (first, second):
        whole = (tmp_path / path).read_bytes()
        damaged(tmp_path / path)
        size = (tmp_path / path).stat().st_size
        found = manifest(FIRST if path == first else SECOND)
        found.files = [
            {**f, "bytes": size} if f["path"] == path else f for f in found.files
        ]
        found.save()
    ARCHIVE.remove(cursor, SECOND.date())

    ended = run_job(plan("verify", path=str(tmp_path)))

    assert "failed" == ended.state
    assert 2 == len(re.findall(r"The files have the checksum a1:", ended.error))
    assert 1 == ended.error.count("the next run of export replaces it")
    assert ("stale", "exported") == (manifest(FIRST).state, manifest(SECOND).state)
    assert "checksum" in manifest(SECOND).error
    run("export", path=str(tmp_path))
    assert archived(FIRST) == ids(tmp_path, FIRST)

    (tmp_path / second).write_bytes(whole)
    found = manifest(SECOND)
    found.files = [
        {**f, "bytes": len(whole)} if f["path"] == second else f for f in found.files
    ]
    found.save()
    assert 42 == run("verify", path=str(tmp_path)).rows_out
    assert manifest(SECOND).error is None

    stray = (tmp_path / second).with_name("other.parquet")
    stray.write_bytes(whole)
    ended = run_job(plan("verify", path=str(tmp_path)))
    assert "other.parquet" in ended.error
    stray.unlink()
    (tmp_path / second).unlink()
    assert exports.GONE in run_job(plan("verify", path=str(tmp_path))).error


# erase --------------------------------------------------------------------------------

THEIRS = {"path": "kwargs.customer_id", "value": "42"}


@pytest.mark.parametrize("form", ["parquet", "delta"])
def test_erase_takes_a_customer_out_of_everything(run, cursor, tmp_path, form):
    """Of archive, dead letters and files, also of days that only files have. The
    receipt has counts and no value; retention and verify agree with what stays; a
    preview and a second run change nothing."""
    require("deltalake")
    found = ids if form == "parquet" else of_delta
    rows = [*customers(FIRST), *customers(SECOND), *customers(SECOND, "other")]
    make(FIRST, kwargs={"customer_id": "42"}, queue="mail")
    make(SECOND, kwargs={"customer_id": True, "x": [42]}, queue="untouched")
    letter = make_dead_letter(kwargs={"customer_id": 42})
    live = make_job(kwargs={"customer_id": 42})
    run("export", path=str(tmp_path), format=form)
    ARCHIVE.remove(cursor, FIRST.date())
    before = found(tmp_path)
    gone = [row.id for n, row in enumerate(rows) if n % 6 % 3 == 0]

    told = run("erase", **THEIRS)

    assert 0 == told.rows_out
    assert "4 rows of the archive and 1 dead letters" in told.notes[0]
    assert "6 rows of 2 days" in told.notes[1]
    assert "1 jobs of theirs have not ended" in told.notes[2]
    assert before == found(tmp_path)
    assert not Erasure.objects.exists()

    ended = run("erase", **THEIRS, apply="true")

    assert 11 == ended.rows_out
    left = sorted(set(before) - set(gone))
    assert left == found(tmp_path)
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
    # Files of older versions are gone, too.
    for path in tmp_path.rglob("*.parquet"):
        table = parquet.read_table(path, columns=["id"], partitioning=None)
        assert not {*gone} & {*table.column("id").to_pylist()}
    assert len(left) == run("verify", path=str(tmp_path)).rows_out
    table = exports.ended_days(cursor)[SECOND.date()]
    assert _Exported(cursor, str(tmp_path))(SECOND.date(), table)
    assert 0 == run("export", path=str(tmp_path), format=form).rows_out

    again = run("erase", **THEIRS, apply="true")

    assert 0 == again.rows_out
    assert left == found(tmp_path)


def test_erase_names_files_that_are_gone(run, plan, tmp_path):
    """An export was moved, or its disk is not there: whose rows it has, nobody knows.
    Others are erased from, and who forgets the manifest is not asked again."""
    customers(FIRST)
    for name in ("old", "present"):
        run("export", path=f"{tmp_path}/{name}", until=_text(FIRST))
    shutil.rmtree(tmp_path / "old")

    for asked, rows in (({}, 0), ({"apply": "true"}, 4)):
        ended = run_job(plan("erase", **THEIRS, **asked))
        assert f"files at {tmp_path}/old cannot be read" in ended.error
        assert "Export.objects.filter" in ended.error
        assert rows == ended.rows_out

    assert archived() == ids(tmp_path / "present")
    assert Erasure.objects.get().finished_at is None
    Export.objects.filter(target=f"{tmp_path}/old", day=FIRST.date()).delete()
    run("erase", **THEIRS, apply="true")
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


def test_a_day_that_a_live_run_has_is_left_to_it(
    run, plan, cursor, in_pieces, tmp_path
):
    """compact and erase say so, and change nothing; when its lease is over, they go
    on, and what it still does is refused."""
    customers(FIRST)
    run("export", path=str(tmp_path))
    other = PipelineRun.objects.create(
        job="export", hostname="elsewhere", pid=1, lease_until=FIRST + 400 * HOURS[5]
    )
    target, day = str(tmp_path), FIRST.date()
    assert exports.begin(cursor, target, day, form="parquet", run=other.id)
    assert exports.publish(cursor, target, day, run=other.id)
    mine = Store(target)
    mine.touch(f"_pgqueue/run-{other.id}/x.parquet")
    mine.touch(f"day={day}/queue=mail/run-{other.id}-0.parquet")

    assert "Another run is writing it" in (
        run_job(plan("erase", **THEIRS, apply="true")).error
    )
    assert mine.exists(f"_pgqueue/run-{other.id}/x.parquet")
    assert mine.exists(f"day={day}/queue=mail/run-{other.id}-0.parquet")

    PipelineRun.objects.filter(id=other.id).update(lease_until=FIRST)
    run("erase", **THEIRS, apply="true")

    assert not mine.names(f"_pgqueue/run-{other.id}")
    assert not mine.exists(f"day={day}/queue=mail/run-{other.id}-0.parquet")
    assert archived(FIRST) == ids(tmp_path)
    assert not exports.publish(cursor, target, day, run=other.id)
