"""erase, of messages: out of the log, with their jobs, and out of tables of ingest."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from deltalake import DeltaTable
from django.db import connection
from pyarrow import dataset

from django_pgqueue import topic
from django_pgqueue.exceptions import SparkError
from django_pgqueue.models import (
    ArchivedJob,
    DeadLetter,
    EnqueuedHour,
    Erasure,
    Job,
    Message,
)
from django_pgqueue.pipeline import erasures
from django_pgqueue.postgres.day_tables import ARCHIVE
from django_pgqueue.spark.running import run_job
from tests.harness.factories import (
    make_archived_job,
    make_dead_letter,
    make_job,
)
from tests.pipeline.test_ingest import ids as ids_of_log
from tests.spark.log.conftest import cursor, publish, stream
from tests.spark.log.test_stream import drained

pytestmark = pytest.mark.spark

__all__ = ["cursor", "publish", "stream"]

THEIRS = {"path": "payload.customer", "value": "42"}


def theirs(publish, count=1):
    return publish(count, payload={"customer": 42}, key="k")


def others(publish, count=1):
    return publish(count, payload={"customer": "42", "n": 42}, key="k")


def reference(message_id):
    """Return the arguments of a job of a message, as publishing stores them."""
    at = Message.objects.get(pk=message_id).published_at.isoformat()
    return [{"__pgqueue__": "message", "value": [message_id, at]}]


def copied(depth=0):
    """Return those of a job whose message retention has removed."""
    whole = {"id": 1, "payload": {"customer": 42}}
    args = [{"__pgqueue__": "message", "value": whole}]
    return [args] if depth else args


def test_messages_go_with_the_jobs_that_are_of_them(by_sql, publish, cursor):
    """Archived jobs and dead letters by their message, or by the copy that retention
    has given them. What a group has not read, what a job waits for, and what is to be
    published later stays, and is counted. A preview changes nothing."""
    read, of_job, unread = theirs(publish, 3)
    (kept,) = others(publish)
    group = topic("orders").group("totals")
    assert group.create(start="earliest")
    cursor.execute("UPDATE pgqueue_position SET position = %s", [of_job])
    topic("orders").publish({"customer": 42}, run_after="1h")
    live = make_job(args=reference(of_job), message_id=of_job)
    make_archived_job(args=reference(read), message_id=read)
    make_archived_job(args=copied(), message_id=1)
    make_dead_letter(args=reference(read), message_id=read)
    make_dead_letter(args=copied(depth=1), message_id=1)
    stays = [
        make_archived_job(args=reference(kept), message_id=kept),
        make_archived_job(kwargs={"customer": 42}),
    ]
    waiting = [
        "2 jobs of theirs have not ended",
        "2 messages of theirs wait for a consumer group or a job",
    ]

    told = by_sql("erase", **THEIRS)

    assert "2 rows of the archive and 2 dead letters" in told.notes[0]
    assert "1 messages of the log" in told.notes[1]
    assert waiting == [note.partition(",")[0] for note in told.notes[2:]]
    assert (4, 4) == (Message.objects.count(), ArchivedJob.objects.count())

    ended = by_sql("erase", **THEIRS, apply="true")

    assert 5 == ended.rows_out
    assert waiting == [note.partition(",")[0] for note in ended.notes[1:]]
    assert {of_job, unread, kept} == set(Message.objects.values_list("id", flat=True))
    assert {row.pk for row in stays} == set(
        ArchivedJob.objects.values_list("id", flat=True)
    )
    assert not DeadLetter.objects.exists()
    live.refresh_from_db()
    receipt = Erasure.objects.get()
    assert (2, 2) == (receipt.archive_rows, receipt.dead_letter_rows)
    assert {
        "orders": {"rows": 1, "first_id": read, "last_id": read}
    } == receipt.messages
    assert receipt.finished_at is not None

    Job.objects.all().delete()
    batch = group.receive()
    assert [unread, kept] == [message.id for message in batch]
    batch.commit()
    assert 2 == by_sql("erase", **THEIRS, apply="true").rows_out
    assert [kept] == list(Message.objects.values_list("id", flat=True))
    assert {"idle"} == {each.state for each in group.lag()}


def test_what_is_erased_is_not_missing(by_sql, cursor, archive_days):
    """In the hours of conservation there are fewer jobs, and none of them is lost."""
    # What was enqueued three hours ago may have been so yesterday.
    with cursor.connection.transaction():
        ARCHIVE.make_day(cursor, datetime.now(UTC).date() - timedelta(days=1))
    make_archived_job(kwargs={"customer": 42}, queue="mail", task="shop.mail")
    make_archived_job(kwargs={"customer": 7}, queue="mail", task="shop.mail")
    make_dead_letter(kwargs={"customer": 42}, queue="mail", task="shop.mail")
    cursor.execute(
        "UPDATE pgqueue_archived_job SET enqueued_at = now() - interval '3h';"
        "UPDATE pgqueue_dead_letter SET enqueued_at = now() - interval '3h'"
    )
    by_sql("conservation")

    by_sql("erase", path="kwargs.customer", value="42", apply="true")
    by_sql("conservation")

    hour = EnqueuedHour.objects.get()
    assert (1, 1, 0) == (hour.enqueued, hour.archived, hour.dead)


def test_a_run_that_broke_off_goes_on_and_counts_each_message_once(
    by_sql, plan, publish, monkeypatch
):
    """Messages go last: the jobs that are of them are found until then."""
    monkeypatch.setattr(erasures, "DELETE_ROWS", 2)
    ids = theirs(publish, 5)
    make_archived_job(args=reference(ids[4]), message_id=ids[4])
    delete, calls = erasures.delete_messages, []

    def broken(*arguments):
        calls.append(arguments)
        if len(calls) == 2:
            raise OSError("gone")
        return delete(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(erasures, "delete_messages", broken)
        assert "gone" in run_job(plan("erase", **THEIRS, apply="true")).error
    assert not ArchivedJob.objects.exists()
    assert 3 == Message.objects.count()

    by_sql("erase", **THEIRS, apply="true")

    assert [(2, False), (3, True)] == [
        (receipt.messages["orders"]["rows"], receipt.finished_at is not None)
        for receipt in Erasure.objects.order_by("id")
    ]


def test_a_stream_goes_on_where_the_message_that_it_has_seen_last_is_erased(
    by_sql, publish, stream, cursor
):
    """Its checkpoint names that message: a receipt says that the log had it. One that
    somebody has deleted by SQL is still an error."""
    theirs(publish, 3)
    before = stream(starting="earliest")
    offset = before.initialOffset()
    _batches, offset = drained(before, offset)
    by_sql("erase", **THEIRS, apply="true")
    (latest,) = others(publish)

    batches, offset = drained(stream(starting="earliest"), offset)

    assert [[latest]] == batches
    with connection.cursor() as plain:
        plain.execute("DELETE FROM pgqueue_message")
    others(publish)
    with pytest.raises(SparkError, match="was neither erased nor"):
        drained(stream(starting="earliest"), offset)


# Tables of ingest ---------------------------------------------------------------------


def files_in(target):
    """Return the files of messages, also those that no version names."""
    return sorted(
        str(path.relative_to(target))
        for path in target.rglob("*.parquet")
        if not path.relative_to(target).parts[0].startswith("_")
    )


@pytest.mark.slow
def test_tables_of_ingest_lose_what_is_erased_and_become_few(run, publish, tmp_path):
    """ingest goes on as if nothing was: each other message is there once. The receipt
    counts what has gone from files, and older versions are gone too. compact leaves a
    file for each topic and day, and then has nothing to do."""
    target = tmp_path / "log"
    given = {"topic": "orders,mail", "path": str(target)}
    kept = others(publish, 2)
    gone = theirs(publish, 2) + publish(1, "mail", payload={"customer": 42})
    run("ingest", **given)
    gone += theirs(publish, 1)
    kept += others(publish, 1) + publish(1, "mail")
    run("ingest", **given)
    before = files_in(target)
    assert sorted(kept + gone) == ids_of_log(target)

    assert f"4 messages in {target}" in run("erase", **THEIRS).notes[2]
    assert before == files_in(target)
    ended = run("erase", **THEIRS, apply="true")

    assert 8 == ended.rows_out
    assert sorted(kept) == ids_of_log(target)
    receipt = Erasure.objects.get()
    assert 4 == sum(place["rows"] for place in receipt.ingested)
    assert {str(target)} == {place["target"] for place in receipt.ingested}
    found = dataset.dataset(
        [target / path for path in files_in(target)], format="parquet"
    ).to_table(columns=["id"])
    assert sorted(kept) == sorted(found.column("id").to_pylist())
    assert 0 == run("erase", **THEIRS, apply="true").rows_out

    kept += others(publish, 1)
    run("ingest", **given)
    assert sorted(kept) == ids_of_log(target)
    assert len(kept) >= run("compact", path=str(target)).rows_out > 0
    assert sorted(kept) == ids_of_log(target)
    assert 2 == len(DeltaTable(target).file_uris())
    assert 0 == run("compact", path=str(target)).rows_out
    run("ingest", **given)
    assert sorted(kept) == ids_of_log(target)


@pytest.mark.slow
def test_an_ingest_that_meets_an_erasure_reads_its_batch_again(
    run, publish, tmp_path, monkeypatch
):
    """It has read their messages before they were deleted, and written their file:
    Delta refuses the commit, and nothing of them is left there."""
    target = tmp_path / "log"
    given = {"topic": "orders", "path": str(target)}
    kept = others(publish, 2)
    run("ingest", **given)
    theirs(publish, 2)
    kept += others(publish, 1)
    commit, erased = DeltaTable.create_write_transaction, []

    def after_an_erasure(*arguments, **named):
        if not erased:
            erased.append(run("erase", **THEIRS, apply="true").rows_out)
        return commit(*arguments, **named)

    monkeypatch.setattr(DeltaTable, "create_write_transaction", after_an_erasure)
    assert 1 == run("ingest", **given).rows_out
    assert [2] == erased
    assert sorted(kept) == ids_of_log(target)
    assert 2 == len(files_in(target))
