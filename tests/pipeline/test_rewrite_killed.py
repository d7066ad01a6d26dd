"""
compact and erase whose driver is killed, or paused, at one step or another.

After each step the next run makes it whole. A driver that was paused goes on when that
one has ended.
"""

from __future__ import annotations

import shutil
from datetime import date

import pyarrow
import pytest
from deltalake import DeltaTable, write_deltalake
from pyarrow import parquet

from django_pgqueue.models import ArchivedJob, Erasure
from django_pgqueue.queues import partitions
from tests.pipeline.test_erase_messages import files_in, messages_in
from tests.pipeline.test_export import archived, ids, make, of_delta
from tests.pipeline.test_lake import in_pieces
from tests.pipeline.test_paused import (
    COMMIT,
    DAY,
    DELETE_PAGE,
    MOVE,
    OF_DAY,
    OF_RECEIPT,
    RECORD,
    _day,
    manifest,
    start_driver,
    take_over,
)
from tests.spark.conftest import require
from tests.spark.log.conftest import cursor, publish

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(300)]

__all__ = ["_day", "cursor", "in_pieces", "publish"]

ERASURES = "django_pgqueue.pipeline.erasures"
DECISIONS = "django_pgqueue.pipeline.ingest_rewrites"
REWRITES = "django_pgqueue.spark.ingest.rewrite:Rewrites"
IN_DELTA = "django_pgqueue.spark.ingest.files:InDelta"

FINISH = (f"{ERASURES}:finish", 1)

# The first call is for what others have left to do, and so there is a second one.
DECIDED = [(f"{DECISIONS}:decide", 2), (MOVE, 1)]
OF_FOLDER = [
    *((f"{DECISIONS}:take", 1), (f"{REWRITES}._schema", 1), *DECIDED),
    # Moved, and what it replaces is not deleted yet.
    ("django_pgqueue.spark.export.store:Store.remove", 1),
    *((f"{DECISIONS}:end", 1), (f"{DECISIONS}:take", 2)),
]
OF_COMMIT = [
    *(("deltalake:DeltaTable.delete", 1), (f"{IN_DELTA}._note_commits", 2)),
    ("deltalake:DeltaTable.vacuum", 1),
]
# Where it reads a file that it replaces; what it has written is of no version yet.
READS = ("", 0)
OF_OPTIMIZE = [
    *(("deltalake.table:TableOptimizer.compact", 1), READS),
    # It has committed.
    ("deltalake:DeltaTable.update_incremental", 1),
]
OF_LOG = [(f"{ERASURES}:delete_messages", 1), (f"{ERASURES}:set_messages", 1)]


@pytest.fixture(scope="module")
def driver(dsn, request):
    """A driver that starts no Spark: neither of the jobs asks for it."""
    require("deltalake")
    driver = start_driver(dsn, request)
    yield driver
    driver.close()


@pytest.mark.usefixtures("_day")
@pytest.mark.parametrize(
    "job, form, places",
    [
        ("compact", "parquet", OF_DAY),
        ("erase", "parquet", [(DELETE_PAGE, 2), *OF_RECEIPT, FINISH]),
        (
            "erase",
            "delta",
            [(COMMIT, 1), (RECORD, 1), (f"{ERASURES}:add_export", 1), FINISH],
        ),
    ],
)
def test_a_killed_driver_leaves_days_whole(
    run, driver, cursor, tmp_path, in_pieces, job, form, places
):
    """Each row is there once, the manifest lists just the files that there are, and
    receipts count each row of theirs once, whether its run was killed or not."""
    target, day = str(tmp_path), f"{DAY:%Y-%m-%d}"
    exported = {"path": target, "since": day, "until": day}
    asked = {"path": target}
    if job == "erase":
        asked = {"path": "kwargs.customer_id", "value": "42", "apply": "true"}
    for place, call in places:
        for n in range(9):
            make(DAY, queue=("mail", "b")[n % 2], kwargs={"customer_id": 42 + n % 3})
        run("export", **exported, format=form, again="true")
        theirs = ArchivedJob.objects.filter(kwargs__customer_id=42).count()
        driver.run(job, asked, place, call)
        driver.kill()
        take_over(cursor)

        run(job, **asked)
        # A day that the archive has, and that was being published, is written anew.
        run("export", **exported, format=form)

        found = manifest()
        there = ids(tmp_path) if form == "parquet" else of_delta(target)
        assert archived(DAY) == there, place
        assert ("exported", []) == (found.state, found.replaced), place
        assert len(there) == run("verify", path=target).rows_out, place
        if form == "parquet":
            assert files_in(tmp_path) == sorted(f["path"] for f in found.files), place
        if job == "erase":
            receipts = Erasure.objects.all()
            assert theirs == sum(each.archive_rows for each in receipts), place
            assert theirs == sum(
                day["rows"] for each in receipts for day in each.exports
            ), place
            receipts.delete()


def ingested(target, form, first):
    """Write what ingest would: of each of two topics three files, with two messages of
    theirs. Return the ids of the others."""
    shutil.rmtree(target, ignore_errors=True)
    others = []
    for topic in ("mail", "orders"):
        for number in range(3):
            rows = [
                {"id": first + n, "payload": f'{{"customer": {42 if n == 1 else 7}}}'}
                for n in range(4 if number < 2 else 1)
            ]
            first += len(rows)
            others += [row["id"] for row in rows if "42" not in row["payload"]]
            table = pyarrow.Table.from_pylist(rows)
            if form == "delta":
                for name, value in (("topic", topic), ("day", date(2026, 11, 22))):
                    column = pyarrow.array([value] * len(rows))
                    table = table.append_column(name, column)
                write_deltalake(
                    target, table, mode="append", partition_by=["topic", "day"]
                )
                continue
            folder = target / f"topic={topic}" / "day=2026-11-22"
            folder.mkdir(parents=True, exist_ok=True)
            parquet.write_table(table, folder / f"0a1b2c3d-{number:06d}-part-0.parquet")
    return others


@pytest.mark.parametrize(
    "how, job, form, places",
    [
        ("killed", "compact", "parquet", OF_FOLDER),
        ("paused", "compact", "parquet", OF_FOLDER),
        # Otherwise as compact does it; with a receipt.
        ("killed", "erase", "parquet", [*OF_LOG, *DECIDED]),
        ("paused", "erase", "parquet", DECIDED),
        ("killed", "compact", "delta", OF_OPTIMIZE),
        ("paused", "compact", "delta", OF_OPTIMIZE),
        ("killed", "erase", "delta", OF_COMMIT),
        ("paused", "erase", "delta", OF_COMMIT),
    ],
)
def test_files_of_ingest_are_made_whole_by_the_next_run(
    run, driver, publish, cursor, tmp_path, job, form, places, how
):
    """Each message that stays is there once, nothing is left aside or half decided, and
    receipts count what has gone from the log and from files once."""
    target = tmp_path / "log"
    asked = {"path": "payload.customer", "value": "42", "apply": "true"}
    if job == "compact":
        asked = {"path": str(target)}
    for at, (place, call) in enumerate(places):
        others = ingested(target, form, 1_000 * at + 1)
        publish(2, payload={"customer": 42})
        cursor.execute(
            "INSERT INTO pgqueue_ingest_position (topic_id, target, read_to, run_id)"
            " SELECT id, %s, 0, 1 FROM pgqueue_topic ON CONFLICT DO NOTHING",
            [str(target)],
        )
        if (place, call) == READS:
            driver.run_into(job, asked, target / files_in(target)[-1])
        else:
            driver.run(job, asked, place, call)
        if how == "killed":
            driver.kill()
        take_over(cursor)

        run(job, **asked)
        if job == "compact":
            run("erase", path="payload.customer", value="42", apply="true")
        elif form == "parquet":
            run("compact", path=str(target))

        if how == "paused":
            state, error = driver.go_on()
            assert "lost" == state, (place, error)
        assert others == messages_in(target, form), place
        cursor.execute("SELECT count(*) FROM pgqueue_ingest_rewrite")
        assert cursor.fetchone() == (0,), place
        if form == "delta" and job == "compact":
            broken_off = {"retention_hours": 0, "enforce_retention_duration": False}
            DeltaTable(target).vacuum(**broken_off, full=True, dry_run=False)
            assert others == messages_in(target, form), place
        if form == "parquet" or job == "compact":
            assert 2 == len(files_in(target)), place
        aside = target / "_pgqueue_ingest"
        if how == "killed":
            assert not [path for path in aside.rglob("*") if path.is_file()], place
        receipts = Erasure.objects.all()
        gone = [gone["rows"] for each in receipts for gone in each.ingested]
        assert 4 == sum(gone), place
        of_log = [each.messages["orders"]["rows"] for each in receipts if each.messages]
        assert 2 == sum(of_log), place
        if form == "delta":
            there = DeltaTable(target).file_uris()
            assert len(there) == len(files_in(target)), place
        receipts.delete()


@pytest.mark.usefixtures("_day")
def test_a_day_of_files_alone_is_summed_up_where_its_commit_was_not_noted(
    run, driver, cursor, tmp_path
):
    """In Delta, of a run that was killed between its commit and the manifest: the next
    one notes in the receipt of the first what the commit has taken away."""
    target, day = str(tmp_path), f"{DAY:%Y-%m-%d}"
    for n in range(6):
        make(DAY, queue="mail", kwargs={"customer_id": 42 + n % 3})
    run("export", path=target, since=day, until=day, format="delta")
    partitions.drop_partition(cursor, DAY.date())
    asked = {"path": "kwargs.customer_id", "value": "42", "apply": "true"}
    driver.run("erase", asked, RECORD)
    driver.kill()
    take_over(cursor)

    run("erase", **asked)

    first, second = Erasure.objects.order_by("id")
    assert [2] == [gone["rows"] for gone in first.exports]
    assert ([], None) == (second.exports, first.finished_at)
    assert ("exported", 4) == (manifest().state, manifest().rows)
    assert 4 == len(of_delta(target)) == run("verify", path=target).rows_out
