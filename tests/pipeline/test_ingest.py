"""The pipeline job ingest: messages of the log to a table, each of them once."""

from __future__ import annotations

import re
import shutil
from datetime import UTC, datetime

import pytest
from deltalake import DeltaTable

from django_pgqueue.exceptions import PipelineBusy, SparkOptionError
from django_pgqueue.models import PipelineRun
from django_pgqueue.pipeline import runs as pipelines
from django_pgqueue.spark.jobs import ingest
from django_pgqueue.spark.running import StopFlag, run_job
from django_pgqueue.spark.session import TIME_ZONE
from django_pgqueue.spark.store import Store
from tests.harness.waiting import wait_for
from tests.spark.log.conftest import cursor, publish
from tests.spark.one_session import ONE

pytestmark = pytest.mark.spark

__all__ = ["cursor", "publish"]

SECRET = "hunter2-planted"


def ids(path):
    """Return the ids that a plain reader of Delta finds, in order."""
    if not DeltaTable.is_deltatable(str(path)):
        return []
    table = DeltaTable(path).to_pyarrow_table(columns=["id"])
    return sorted(table.column("id").to_pylist())


def positions(cursor):
    """Return up to which id each topic is noted to be read."""
    cursor.execute(
        "SELECT t.name, p.read_to FROM pgqueue_ingest_position p"
        "  JOIN pgqueue_topic t ON t.id = p.topic_id ORDER BY t.name"
    )
    return cursor.fetchall()


@pytest.mark.slow
def test_messages_are_written_once_whatever_dies(
    run, plan, publish, new_cursor, tmp_path, monkeypatch
):
    """By topic and day, without secrets, also where a run dies before or after it has
    committed a batch; what a publisher holds back comes later. A checkpoint that is
    gone is said, with what goes on after what is there."""
    target = tmp_path / "log"
    given = {"topic": "orders,mail", "path": f"{target}/"}
    orders, mail = publish(8), publish(2, "mail", payload={"token": SECRET})
    open_ = new_cursor()
    with open_.connection.transaction():
        held = publish(2, on=open_)
        ended = run("ingest", **given, max_rows_per_batch=6)

    assert (10, 10) == (ended.rows_in, ended.rows_out)
    assert orders + mail == ids(target)
    table = DeltaTable(target)
    assert ["topic", "day"] == table.metadata().partition_columns
    assert {"orders", "mail"} == {part["topic"] for part in table.partitions()}
    written = list(target.rglob("*.parquet"))
    assert SECRET.encode() not in b"".join(path.read_bytes() for path in written)
    assert [f"orders: read up to id {held[0] - 1:,} in all of 4 partitions."] == [
        note for note in ended.notes if note.startswith("orders")
    ]

    noted = dict(positions(open_))
    assert orders[-1] <= noted["orders"] < held[0] <= noted["mail"]

    more = publish(3) + publish(2, "mail")
    commit = DeltaTable.create_write_transaction

    def dies(*arguments, **named):
        raise OSError("It dies.")

    def dies_afterwards(*arguments, **named):
        commit(*arguments, **named)
        raise OSError("It dies.")

    for broken, there in (
        (dies, orders + mail),
        (dies_afterwards, orders + mail + held + more),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(DeltaTable, "create_write_transaction", broken)
            assert "It dies." in run_job(plan("ingest", **given)).error
        assert sorted(there) == ids(target)
    # A topic that is new to the checkpoint comes with a batch that has no messages.
    latest = publish(1) + publish(1, "stock")
    given["topic"] = "orders,mail,stock"
    run("ingest", **given)
    everything = sorted(orders + mail + held + more + latest)
    assert everything == ids(target)

    shutil.rmtree(target / "_pgqueue_ingest")
    last = publish(2)
    refused = run_job(plan("ingest", **given))
    assert "they would be written twice" in refused.error
    starting = re.search(r"starting='(.*?)'", refused.error)[1]
    run("ingest", **given, starting=starting)
    assert everything + last == ids(target)


@pytest.mark.slow
def test_a_batch_that_the_driver_does_not_see_is_not_taken_for_whole(
    run, plan, publish, tmp_path, monkeypatch
):
    """As where executors write to a folder of their own: the run fails before any of
    it is committed, and the next one writes all."""
    given = {"topic": "orders", "path": str(tmp_path)}
    expected = publish(3)
    listed, lost = Store.files, []

    def files(self, name):
        for file in [*(tmp_path / name).rglob("*.parquet")][: not lost]:
            file.unlink()
            lost.append(file)
        return listed(self, name)

    with monkeypatch.context() as patch:
        patch.setattr(Store, "files", files)
        ended = run_job(plan("ingest", **given))

    assert "Spark has written 3 messages, and" in ended.error
    assert "must see the same folder" in ended.error
    assert [] == ids(tmp_path)
    run("ingest", **given)
    assert expected == ids(tmp_path)


@pytest.mark.parametrize(
    "given, told",
    [
        ({"path": "/x"}, "option topic is ''"),
        ({"topic": "orders"}, "has no path"),
        ({"topic": "orders", "path": "x"}, "must begin with /"),
        ({"topic": "orders", "path": "/x", "starting": "now"}, "must be earliest"),
        ({"topic": "orders", "path": "/x", "trigger": "soon"}, "trigger is 'soon'"),
        ({"topic": "orders", "path": "/x", "trigger": "2h"}, "of 1 s to 3,600 s"),
    ],
)
def test_a_wrong_option_is_refused_before_spark_starts(plan, given, told):
    """And nothing is done."""
    with pytest.raises(SparkOptionError, match=told):
        run_job(plan("ingest", **given))


@pytest.mark.slow
def test_a_day_is_one_of_utc_whatever_the_zone_of_the_session(
    run, plan, publish, start_spark, tmp_path
):
    """So retention, replay and erase find what was published then."""
    publish(1)
    now = datetime.now(UTC)
    session = ONE.get(start_spark)
    # Where it is another day now.
    zone = "Etc/GMT-14" if now.hour >= 12 else "Etc/GMT+12"
    before = session.conf.get(TIME_ZONE)
    session.conf.set(TIME_ZONE, zone)
    try:
        run("ingest", topic="orders", path=str(tmp_path))
    finally:
        session.conf.set(TIME_ZONE, before)

    (part,) = DeltaTable(tmp_path).partitions()
    assert part["day"] in {f"{day}" for day in (now.date(), datetime.now(UTC).date())}


@pytest.mark.slow
def test_a_run_with_a_trigger_goes_on_until_it_is_stopped(
    run, plan, publish, new_cursor, tmp_path, monkeypatch
):
    """It tells how far it is, also when nothing comes; asked to stop in the middle of a
    batch, it commits that one, and the next run has nothing to do."""
    given = {"topic": "orders", "path": str(tmp_path)}
    sql = new_cursor()
    first, second, last = publish(3), [], []
    written = ingest._written

    def asked_meanwhile(lake, frame, folder):
        actions = written(lake, frame, folder)
        if last:
            pipelines.request_stop(new_cursor(), "ingest", by="anna")
            wait_for(lake.run._stop_after.is_set, what="the run has heard of it")
        return actions

    def look(snapshot):
        found = ids(tmp_path)
        if found == first and not second:
            second.extend(publish(2))
        told = dict(positions(sql)).get("orders", 0)
        if second and found == first + second and told >= second[-1] and not last:
            row = PipelineRun.objects.get()
            assert ("running", "1s") == (row.state, row.options["trigger"])
            assert row.rows_out <= 5
            assert 1 == len(snapshot.notes)
            last.extend(publish(1))

    with monkeypatch.context() as patch:
        patch.setattr(ingest, "_written", asked_meanwhile)
        goes_on = plan("ingest", **given, trigger="1s")
        ended = run_job(goes_on, tell=look, beat_seconds=0.2)

    everything = first + second + last
    assert ("cancelled", None, 6, 6) == (
        ended.state,
        ended.error,
        ended.rows_in,
        ended.rows_out,
    )
    assert everything == ids(tmp_path)
    again = run("ingest", **given)
    assert 0 == again.rows_in
    assert everything == ids(tmp_path)


@pytest.mark.slow
def test_two_topics_are_ingested_side_by_side(run, plan, publish, tmp_path):
    """Into one place, by a checkpoint for each. A topic that a live run writes there,
    or its checkpoint, is refused to another one, which is told whose it is."""
    orders, mail, beside = publish(3), publish(2, "mail"), []
    given, other = {"path": str(tmp_path)}, str(tmp_path / "_pgqueue_ingest" / "mail")
    stop = StopFlag()

    def look(snapshot):
        if beside or ids(tmp_path) != orders:
            return
        for refused, told in (
            ({"topic": "mail, orders", "checkpoint": other}, "topic orders at"),
            ({"topic": "mail"}, "the checkpoint .*_pgqueue_ingest/checkpoint"),
        ):
            with pytest.raises(PipelineBusy, match=f"both need {told}"):
                run_job(plan("ingest", **given, **refused))
        beside.append(run("ingest", **given, topic="mail", checkpoint=other))
        stop.set()

    goes_on = plan("ingest", **given, topic="orders", trigger="1s")
    ended = run_job(goes_on, stop=stop, tell=look)

    assert ("cancelled", 3) == (ended.state, ended.rows_out)
    assert [2] == [each.rows_out for each in beside]
    assert sorted(orders + mail) == ids(tmp_path)
