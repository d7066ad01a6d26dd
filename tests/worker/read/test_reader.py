"""A reader of a group, a tick at a time."""

import time
from collections import Counter
from itertools import groupby

import psycopg
import pytest
from django.db import OperationalError, connections

from django_pgqueue import Retry
from django_pgqueue.conf import get_settings
from django_pgqueue.exceptions import SchemaError
from django_pgqueue.log import groups, positions
from django_pgqueue.log.generations import repartition
from django_pgqueue.models import DeadLetter, Message, Position
from django_pgqueue.postgres.connect import Link
from django_pgqueue.tasks import registry
from django_pgqueue.topics import consume, run_batch
from django_pgqueue.topics.sync import declaration_of
from django_pgqueue.worker.read import positions as bounds_module
from django_pgqueue.worker.read import reader as reader_module
from django_pgqueue.worker.read.positions import Bounds
from django_pgqueue.worker.read.reader import Reader
from django_pgqueue.worker.run.watchdog import Watchdog
from tests.harness.waiting import wait_for
from tests.log.log import make_topic, put

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _declarations(monkeypatch):
    """Nothing is declared but what the test declares, and the tasks of the suite."""
    monkeypatch.setattr(consume, "_declared", {})
    monkeypatch.setattr(registry, "tasks", dict(registry.tasks))


@pytest.fixture
def make_reader(cursor):
    """A function that declares a group and returns a reader of it, not started."""
    links, watchdogs = [], []

    def link(name, **options):
        links.append(Link("default", name=f"tests: {name}", **options))
        return links[-1]

    def make_reader(handler, *, worker="w/1", topic="clicks", **said):
        said = {"group": "g", "start": "earliest", "name": "tests.handler", **said}
        consume.consume(topic, **said)(handler)
        (consumer,) = consume.declared()
        with cursor.connection.transaction():
            groups.declare(cursor, declaration_of(consumer))
        watchdogs.append(Watchdog(lambda reader, error: None))
        watchdogs[-1].start()
        return Reader(
            link("reader", steady=True, flushes_later=True),
            name=worker,
            consumer=consumer,
            settings=get_settings(),
            bounds=Bounds(link("horizon")),
            watchdog=watchdogs[-1],
            counts=Counter(),
        )

    yield make_reader
    for each in watchdogs:
        each.stop()
    for each in links:
        each.drop()


class Clock:
    """time, whose monotonic() can be put forward: as if the process were frozen."""

    def __init__(self):
        self.ahead = 0.0

    def __getattr__(self, name):
        return getattr(time, name)

    def monotonic(self):
        return time.monotonic() + self.ahead


@pytest.fixture
def clock(monkeypatch):
    """The clock by which a reader knows how much of its lease is left."""
    made = Clock()
    monkeypatch.setattr(reader_module, "time", made)
    return made


@pytest.fixture
def freeze(monkeypatch, clock):
    """A function that freezes the process for a minute after one of its functions."""

    def freeze(module, name):
        whole = getattr(module, name)

        def frozen(*args, **said):
            result = whole(*args, **said)
            clock.ahead += 60
            monkeypatch.setattr(module, name, whole)
            return result

        monkeypatch.setattr(module, name, frozen)

    return freeze


@pytest.mark.parametrize(
    "said, module, name",
    [
        ({}, reader_module, "read"),
        ({"ack_policy": "reject_on_error"}, reader_module, "read"),
        ({"ack_policy": "first"}, reader_module, "read"),
        ({"atomic": True}, reader_module, "read"),
        # Within the handler's transaction, as where a connection took long to open.
        ({"atomic": True}, run_batch, "limit_transaction"),
    ],
)
def test_a_handler_is_not_called_after_its_lease(
    cursor, make_reader, freeze, said, module, name
):
    """
    Somebody else may have read on: its effects elsewhere would go back in time.

    It counts as lost, and is no failure of the messages: they come again.
    """
    make_topic()
    ids = put(cursor, 1, 2)
    seen = []

    def note(messages):
        seen.append([each.id for each in messages])

    reader = make_reader(note, lease="30s", **said)
    freeze(module, name)
    reader.tick()

    row = Position.objects.get()
    assert ([], 1, 0, None, 0, ids[1]) == (
        seen,
        reader._counts["stale"],
        row.position,
        row.leased_by,
        row.failures,
        row.single_to,
    )
    for _ in ids:
        reader.tick()
    assert ([[each] for each in ids], ids[1]) == (seen, Position.objects.get().position)


def test_a_reader_whose_log_fell_behind_says_so(cursor, make_reader):
    """It does not rest as if everything were read."""
    make_topic()
    ids = put(cursor, 1, 2, 3)
    reader = make_reader(nothing)
    reader.tick()
    assert ids[-1] == Position.objects.get().position
    cursor.execute("SELECT setval('pgqueue_message_id_seq', 1)")
    try:
        with pytest.raises(SchemaError, match="pgqueue doctor prints"):
            all(reader.tick() < 60 for _ in range(9))
    finally:
        cursor.execute("SELECT setval('pgqueue_message_id_seq', %s)", [ids[-1]])


def test_what_is_acked_by_hand_is_done_in_order_and_the_rest_comes_again(
    cursor, make_reader
):
    """At once where some were; a gap ends what is done; no ack is a failure."""
    ids = put(cursor, *range(5))
    came, acks = [], [[0, 1, 3], [0], [], None]

    def note(messages):
        came.append([each.payload for each in messages])
        said = acks.pop(0)
        if said is None:
            messages.ack()
        for place in said or ():
            messages.ack(messages[place])

    reader = make_reader(note, ack_policy="manual", retries=Retry(base=0))
    read_all(reader)

    assert [[0, 1, 2, 3, 4], [2, 3, 4], [3, 4], [3, 4]] == came
    row = Position.objects.exclude(position=0).get()
    assert (ids[-1], 0, None) == (row.position, row.failures, row.leased_by)
    assert 5 == reader._counts["consumed"]


def test_what_was_acked_before_it_raised_stays_done(cursor, make_reader):
    """The first that was not has failed; the last of its attempts is a dead letter."""
    put(cursor, "good", "bad", "later")
    came = []

    async def note(messages):
        for each in messages:
            came.append(each.payload)
            if each.payload == "bad":
                raise ValueError(each.payload)
            messages.ack(each.id)

    reader = make_reader(note, ack_policy="manual", retries=Retry(base=0))
    read_all(reader)

    assert ["good", "bad", "bad"] == came[:3]
    assert (1, 1, "later") == (came.count("good"), came.count("later"), came[-1])
    letter = DeadLetter.objects.get()
    assert ("exhausted", "tests.handler") == (letter.reason, letter.task)


def nothing(messages):
    """Take a batch."""


def read_all(reader, ticks=100):
    """Let a reader read until it has found nothing."""
    for _ in range(ticks):
        reader.look_now()
        reader.tick()
        if reader.found_nothing == reader.requests:
            return
    raise AssertionError(f"there was something to read {ticks} times")


def test_large_messages_come_in_batches_that_fit(cursor, make_reader, monkeypatch):
    """And the server is not asked for the text of many more than fit."""
    make_topic()
    ids = put(cursor, *[{"x": "x" * 100_000}] * 60)
    asked, seen = [], []
    whole = reader_module.read

    def noted(*args, **said):
        asked.append(said["limit"])
        return whole(*args, **said)

    def note(messages):
        seen.append([each.id for each in messages])

    monkeypatch.setattr(reader_module, "read", noted)
    read_all(make_reader(note, batch=50, batch_bytes="1MB"))
    assert ids == [each for some in seen for each in some]
    assert {9} == {len(some) for some in seen[:-1]}
    assert {18} == set(asked[1:-1])


def test_a_batch_that_takes_readers_down_is_not_read_again(
    cursor, make_reader, monkeypatch
):
    """Its messages come one by one, and the one that does it is put aside unread."""
    make_topic()
    ids = put(cursor, "small", "large", "small")
    seen = []
    whole = reader_module.read

    def deadly(*args, **said):
        batch = whole(*args, **said)
        if "large" in [each.payload for each in batch.messages]:
            raise SystemExit("out of memory")
        return batch

    def note(messages):
        seen.append([each.id for each in messages])

    monkeypatch.setattr(reader_module, "read", deadly)
    make = {"batch": 10, "retries": Retry(max_attempts=3)}
    deaths = 0
    for number in range(9):
        try:
            read_all(make_reader(note, worker=f"w{number}/1", **make))
        except SystemExit:
            deaths += 1
            positions.lose(cursor, [f"w{number}"])
    assert [ids[:1], ids[2:]] == seen
    assert (ids[1], "lease_expired") == DeadLetter.objects.values_list(
        "message_id", "reason"
    ).get()
    assert 1 + 3 == deaths


@pytest.mark.parametrize("error", ["statement_timeout", "unsendable"])
def test_what_is_too_much_for_the_server_is_asked_for_in_parts(
    cursor, make_reader, monkeypatch, error
):
    """And one message that it cannot send at all is a dead letter."""
    make_topic()
    ids = put(cursor, *range(9))
    seen = []
    whole = reader_module.read

    def bounded(cursor, **said):
        if not said["is_bare"]:
            if error == "statement_timeout" and said["limit"] > 2:
                raise psycopg.errors.QueryCanceled
            if error == "unsendable" and said["after"] < ids[0] <= said["bound"]:
                raise psycopg.errors.ProgramLimitExceeded
        return whole(cursor, **said)

    def note(messages):
        seen.extend(each.id for each in messages)

    monkeypatch.setattr(reader_module, "read", bounded)
    reader = make_reader(note, batch=9)
    for _ in range(20):
        try:
            read_all(reader)
            break
        except psycopg.Error:
            Position.objects.update(leased_until=None, leased_by=None)
    dead = [*DeadLetter.objects.values_list("message_id", "reason")]
    assert {
        "statement_timeout": (ids, []),
        "unsendable": (ids[1:], [(ids[0], "undecodable")]),
    }[error] == (seen, dead)


@pytest.fixture
def count(monkeypatch):
    """A function that counts calls of one of positions'."""

    def count(name):
        calls = []
        whole = getattr(positions, name)

        def counted(*args, **said):
            calls.append(time.monotonic())
            return whole(*args, **said)

        monkeypatch.setattr(positions, name, counted)
        return calls

    return count


@pytest.mark.parametrize("said", [{}, {"atomic": True}, {"ack_policy": "first"}])
def test_a_partition_is_read_for_a_turn(cursor, make_reader, count, monkeypatch, said):
    """Of ten batches; then the next one has its turn, and none is claimed for each."""
    monkeypatch.setattr(reader_module, "TURN_SECONDS", 60.0)
    make_topic(partitions=2)
    ids = [*put(cursor, *range(45), key="a"), *put(cursor, *range(45), key="c")]
    assert 2 == Message.objects.values("partition").distinct().count()
    seen = []

    def note(messages):
        seen.append((messages[0].partition, [each.id for each in messages]))

    claims = count("claim_known")
    reader = make_reader(note, batch=2, **said)
    read_all(reader)
    assert sorted(ids) == sorted(each for _, some in seen for each in some)
    turns = [(each, len([*some])) for each, some in groupby(seen, lambda one: one[0])]
    first, second = turns[0][0], turns[1][0]
    assert [(first, 10), (second, 10)] * 2 == turns[:4]
    assert len(claims) <= 9
    assert {(None, 0)} == set(Position.objects.values_list("leased_by", "failures"))


@pytest.mark.parametrize("name", ["claim_known", "advance"])
def test_what_was_leased_in_a_lost_answer_is_given_back(
    cursor, make_reader, monkeypatch, name, caplog
):
    """At once, and it is no failure: nobody has died."""
    make_topic()
    ids = put(cursor, 1, 2, 3)
    seen = []
    whole = getattr(positions, name)

    def lost(*args, **said):
        whole(*args, **said)
        monkeypatch.setattr(positions, name, whole)
        raise psycopg.OperationalError("the connection is lost")

    def note(messages):
        seen.append([each.id for each in messages])

    reader = make_reader(note, batch=1)
    monkeypatch.setattr(positions, name, lost)
    with pytest.raises(psycopg.OperationalError, match="is lost"):
        reader.tick()
    assert Position.objects.get().leased_by == "w/1"
    read_all(reader)
    assert ([[each] for each in ids], 0, None) == (
        seen,
        reader._counts["failed"],
        Position.objects.get().errors,
    )
    assert "released   group=clicks/g partitions=0" in caplog.text


def test_a_commit_without_an_answer_is_not_taken_for_a_failure(
    cursor, make_reader, monkeypatch
):
    """It moved the position and kept the partition: what is next is not held up."""
    make_topic()
    ids = put(cursor, 1, 2)
    seen = []

    def note(messages):
        seen.append([each.id for each in messages])

    whole = connections["default"]._commit

    def lost(*args, **said):
        whole(*args, **said)
        monkeypatch.undo()
        raise OperationalError("the connection is lost")

    reader = make_reader(note, batch=1, atomic=True)
    monkeypatch.setattr(connections["default"], "_commit", lost)
    reader.tick()
    read_all(reader)
    assert ([[each] for each in ids], None, 0) == (
        seen,
        Position.objects.get().retry_at,
        Position.objects.get().failures,
    )


def test_a_turn_reads_nothing_that_came_after_a_change_of_the_count(
    cursor, other_cursor, make_reader, monkeypatch
):
    """The claim has not seen it: a later message of a key may be where it reads on."""
    monkeypatch.setattr(reader_module, "TURN_SECONDS", 60.0)
    monkeypatch.setattr(bounds_module, "BOUND_SECONDS", 0.0)
    make_topic()
    put(cursor, 1, 2, 3)
    other_cursor.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
    other_cursor.execute("SELECT 1")
    seen = []

    def note(messages):
        if not seen:
            with cursor.connection.transaction():
                repartition(cursor, "clicks", 2)
            put(cursor, "new")
            put(other_cursor, "late")
            other_cursor.execute("COMMIT")
        seen.append([each.payload for each in messages])

    reader = make_reader(note, batch=2)

    def is_read():
        reader.tick()
        return len(seen) == 4

    wait_for(is_read, 10, "all is read")
    assert [[1, 2], [3], ["new"], ["late"]] == seen
