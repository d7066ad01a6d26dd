"""What a streaming query is told on the driver, and what its tasks read."""

from __future__ import annotations

import json
import re
from itertools import chain

import pytest
from psycopg.conninfo import make_conninfo

from django_pgqueue.exceptions import MessagesLost, SparkError, SparkOptionError
from django_pgqueue.log.generations import repartition
from tests.spark.conftest import ROOT, require

pytestmark = pytest.mark.spark


@pytest.fixture(autouse=True)
def _pyspark():
    require("pyspark")


def limit(rows=None):
    from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

    return ReadAllAvailable() if rows is None else ReadMaxRows(rows)


def taken(reader, start, end):
    """Return the ids of one batch, in order; JSON in between, as Spark has it."""
    start, end = json.loads(json.dumps(start)), json.loads(json.dumps(end))
    return sorted(
        number
        for task in reader.partitions(start, end)
        for batch in reader.read(task)
        for number in batch.column("id").to_pylist()
    )


def drained(reader, start, rows=None):
    """Return the batches after *start* until there is none, and the last offset."""
    batches = []
    while (end := reader.latestOffset(start, limit(rows))) != start:
        batches.append(taken(reader, start, end))
        start = end
    return batches, start


def test_batches_have_each_message_once_and_no_more_than_their_limit(stream, publish):
    """Also where one partition has most of them; a batch is read again alike."""
    ids = publish(30) + publish(70, key="one")
    reader = stream(starting="earliest")
    start = reader.initialOffset()

    end = reader.latestOffset(start, limit(7))
    batches, last = drained(reader, start, 7)

    assert taken(reader, start, end) == taken(reader, start, end) == batches[0]
    assert ids == sorted(chain.from_iterable(batches))
    assert {7} == {len(batch) for batch in batches[:-1]}
    assert [] == drained(reader, last, 1)[0]
    assert [ids] == drained(reader, start)[0]


def test_what_an_open_publisher_holds_back_is_read_later_once(
    stream, publish, new_cursor
):
    """Also what others have published after it. Another topic goes on."""
    early = publish(3)
    mail = publish(1, "mail")
    reader = stream("orders,mail", starting="earliest")
    start = reader.initialOffset()
    open_ = new_cursor()
    with open_.connection.transaction():
        held = publish(2, on=open_)
        late = publish(3)
        mail += publish(2, "mail")

        batches, last = drained(reader, start)

        assert [early + mail] == batches

    assert [held + late] == drained(reader, last)[0]


def test_a_stream_starts_where_it_is_told_to(stream, publish, cursor):
    """At the end, at a time, or after an id; of one partition or of all."""
    first = publish(3, key="a")
    cursor.execute("SELECT clock_timestamp()")
    (now,) = cursor.fetchone()
    second = publish(3, key="a") + publish(3, key="b")

    def read(**given):
        reader = stream(**given)
        return drained(reader, reader.initialOffset())[0]

    assert [] == read()
    assert [second] == read(starting=now.isoformat())
    assert [second] == read(starting=json.dumps({"orders": first[-1]}))
    cursor.execute("SELECT partition FROM pgqueue_message WHERE id = %s", [first[0]])
    of_a = {str(cursor.fetchone()[0]): second[1]}
    assert [second[2:]] == read(starting=json.dumps({"orders": of_a}))


def test_a_role_with_the_documented_rights_reads_the_log(
    stream, publish, cursor, dsn, monkeypatch
):
    """From a time on, which asks for all that a stream or a read may ask for."""
    page = (ROOT / "docs/reference/spark.md").read_text()
    (told,) = re.findall(r"The role needs `SELECT` on (.*)\.\n", page)
    ids = publish(3)
    cursor.execute("CREATE ROLE log_reader LOGIN PASSWORD 'r'")
    try:
        for name in re.findall(r"`(\w+)`", told):
            cursor.execute(f"GRANT SELECT ON {name} TO log_reader")
        role = make_conninfo(dsn, user="log_reader", password="r")
        monkeypatch.setenv("PGQUEUE_DSN", role)
        reader = stream(starting="2026-01-01T00:00:00+00:00")

        assert [ids] == drained(reader, reader.initialOffset())[0]
    finally:
        cursor.execute("DROP OWNED BY log_reader")
        cursor.execute("DROP ROLE log_reader")


def test_a_time_passes_over_nothing_that_is_not_committed_yet(
    stream, publish, new_cursor
):
    """What an open transaction has published since then, and nobody sees."""
    publish(1, key="a")
    open_ = new_cursor()
    with open_.connection.transaction():
        open_.execute("SELECT clock_timestamp()")
        (now,) = open_.fetchone()
        held = publish(2, key="a", on=open_)
        seen = publish(2, key="a")
        start = stream(starting=now.isoformat()).initialOffset()

    assert [held + seen] == drained(stream(), start)[0]


def test_available_now_ends_with_what_there_was_when_it_began(stream, publish):
    """However much is published meanwhile."""
    before = publish(5)
    reader = stream(starting="earliest")
    start = reader.initialOffset()
    reader.prepareForTriggerAvailableNow()
    after = publish(5)

    batches, last = drained(reader, start, 2)

    assert before == sorted(chain.from_iterable(batches))
    assert [after] == drained(stream(), last)[0]


def test_a_partition_that_came_later_is_read(stream, publish, cursor):
    """
    And one that a topic has no more.

    When its last message is gone, nothing of it can be lost any more.
    """
    publish(3)
    reader = stream(starting="earliest")
    _, last = drained(reader, reader.initialOffset())
    with cursor.connection.transaction():
        repartition(cursor, "orders", 8)
    more = publish(20)
    with cursor.connection.transaction():
        repartition(cursor, "orders", 1)
    most = publish(20)

    batches, last = drained(reader, last)
    assert [more + most] == batches
    fresh = stream(starting="earliest")
    (everything,) = drained(fresh, fresh.initialOffset())[0]
    assert 43 == len(everything)
    cursor.execute("DELETE FROM pgqueue_message WHERE id <= %s", [more[-1]])
    one = publish(1)
    batches, last = drained(reader, last)
    assert [one] == batches
    cursor.execute("UPDATE pgqueue_topic SET removed_to = %s", one)
    two = publish(1)
    assert [two] == drained(reader, last)[0]


def test_keys_keep_their_order_from_batch_to_batch_over_a_change(
    stream, publish, cursor
):
    """Also where a batch has fewer messages than there are partitions."""
    ids = publish(20)
    for count in (6, 3):
        with cursor.connection.transaction():
            repartition(cursor, "orders", count)
        ids += publish(20)
    cursor.execute("SELECT id, key FROM pgqueue_message")
    key_of = dict(cursor.fetchall())
    reader = stream(starting="earliest")

    batches, _ = drained(reader, reader.initialOffset(), 2)

    assert sorted(ids) == sorted(chain.from_iterable(batches))
    assert 1 <= min(map(len, batches))
    latest = {}
    for each in chain.from_iterable(batches):
        assert latest.get(key_of[each], 0) < each
        latest[key_of[each]] = each


def test_a_topic_that_is_added_begins_where_starting_says(stream, publish):
    """One that is left out of the option is an error."""
    publish(2)
    reader = stream(starting="earliest")
    _, last = drained(reader, reader.initialOffset())
    mail = publish(2, "mail")
    both = stream("orders,mail", starting="earliest")

    batches, end = drained(both, last)

    assert [mail] == [batch for batch in batches if batch]
    with pytest.raises(SparkError, match="does not name mail"):
        reader.latestOffset(end, limit())


def test_a_checkpoint_of_another_database_is_refused(stream, publish):
    """Its ids say nothing here."""
    publish(2)
    reader = stream(starting="earliest")
    last = reader.latestOffset(reader.initialOffset(), limit())
    other = {**last, "installation": "0b0e7bfa-0000-0000-0000-000000000000"}

    for step in (
        lambda: reader.latestOffset(other, limit()),
        lambda: reader.partitions(other, last),
    ):
        with pytest.raises(SparkError, match="is of the installation 0b0e7bfa"):
            step()


def test_what_retention_took_first_is_said(stream, publish, cursor):
    """A stream that has read it all is not concerned, whatever its partitions."""
    publish(20)
    reader = stream(starting="earliest")
    start = reader.initialOffset()
    batch = reader.latestOffset(start, limit(6))
    _, last = drained(reader, batch)
    planned = reader.partitions(batch, last)

    retain(cursor, "SELECT max(id) FROM pgqueue_message")

    assert last == reader.latestOffset(last, limit())
    more = publish(4)
    assert [more] == drained(reader, last)[0]
    told = "Retention has removed messages of 'orders'"
    with pytest.raises(MessagesLost, match=told):
        reader.latestOffset(batch, limit())
    with pytest.raises(MessagesLost, match=told):
        reader.partitions(batch, last)
    with pytest.raises(MessagesLost, match=told):
        [list(reader.read(task)) for task in planned]
    with pytest.raises(MessagesLost, match=told):
        drained(stream(starting='{"orders": 0}'), start)
    going_on = stream(starting="earliest", onDataLoss="continue")
    assert [more] == drained(going_on, batch)[0]


def retain(cursor, query):
    """Do what retention does: say it, then remove."""
    cursor.execute(query)
    (last,) = cursor.fetchone()
    cursor.execute("UPDATE pgqueue_topic SET removed_to = %s", [last])
    cursor.execute("DELETE FROM pgqueue_message WHERE id <= %s", [last])


@pytest.mark.parametrize(
    "given, told",
    [
        ({"topic": "orders.created"}, "A topic cannot be called"),
        ({"topic": "ordres"}, "There is no topic 'ordres'. Did you mean 'orders'"),
        ({"starting": "yesterday"}, "must be earliest, latest"),
        ({"starting": "2026-01-01T00:00:00"}, "a time with its offset"),
        ({"starting": '{"orders": -1}'}, "positions are whole numbers"),
        ({"starting": '{"mail": 1}'}, "which the option topic does not name"),
        ({"ending": "latest"}, "is for read, and not for readStream"),
        ({"onDataLoss": "ignore"}, "must be one of fail, continue"),
        ({"table": "archive"}, "Only the table log can be streamed"),
    ],
)
def test_a_wrong_option_is_refused(stream, publish, given, told):
    """Before anything is read."""
    publish(1)
    with pytest.raises(SparkOptionError, match=told):
        stream(**given).initialOffset()
