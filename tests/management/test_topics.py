"""`manage.py pgqueue topics | peek | groups | lag | seek`: what they print and do."""

from __future__ import annotations

import io
from datetime import UTC, datetime, timedelta

import pytest

from django_pgqueue.models import BulkAct, ConsumerGroup, Message, Position
from django_pgqueue.operators import bulk_acts
from tests.harness.minutes import in_minutes
from tests.log.rows import (
    make_group,
    make_message,
    make_position,
    make_subscription,
    make_topic,
)
from tests.management.test_doctor import make_worker
from tests.management.test_pgqueue import DONE, NOTHING, USAGE, run, told

pytestmark = pytest.mark.django_db

DAY = timedelta(days=1)
HOUR = timedelta(hours=1)
MINUTE = timedelta(minutes=1)
NOW = timedelta(0)


def fill(count=6, partitions=2, **columns):
    """Publish a message a minute, the last one just now; return the ids."""
    topic = make_topic(partitions=partitions).pk
    return [
        make_message(
            "orders.paid" if n % 2 else "orders.created",
            {"id": n, "api_token": "s3cret"},
            key=f"c{n % 3}",
            partition=n % partitions,
            topic_id=topic,
            published_at=-(count - 1 - n) * MINUTE,
            **columns,
        ).pk
        for n in range(count)
    ]


def table(out):
    """Return the lines of a table as lists of cells."""
    return [
        [cell.strip() for cell in line.split("  ") if cell.strip()]
        for line in in_minutes(out).splitlines()
    ]


def positions():
    rows = Position.objects.order_by("partition")
    return list(rows.values_list("position", flat=True))


# topics ------------------------------------------------------------------------------


def test_topics_are_listed(settings):
    """By name: how much, kept how long, who listens."""
    settings.PGQUEUE = {"RETENTION": {"log": None}}
    fill()
    make_topic("clicks", retain=3 * DAY)
    make_subscription("*.paid")
    make_subscription("orders", queue="other")
    make_group()

    status, out, _ = run("topics")

    assert DONE == status
    assert [
        [
            *("topic", "partitions", "kept", "size"),
            *("in 24 h", "subscriptions", "groups"),
        ],
        ["clicks", "16", "3 d", "0", "1", "0"],
        ["orders", "2", "for ever", "6", "2", "1"],
    ] == [[cell for cell in line if cell != "held back"] for line in table(out)]


def test_the_listeners_of_a_topic_are_listed():
    """With state, lag, queue and task; in JSON with what else is known."""
    ids = fill()
    make_subscription("orders.*", queue="billing", task="billing.on_order")
    make_subscription("orders", disabled_at=-HOUR, disabled_by="ada")
    make_subscription("*", queue="audit", last_declared_at=-8 * DAY)
    make_subscription("clicks", queue="stats")
    make_worker(queues=["stats"])
    group = make_group(queue="stats", task="stats.count")
    make_position(group, 0, position=ids[-1])

    status, out, _ = run("topics", "orders")
    _, answer = told("topics", "orders")

    assert DONE == status
    assert "7 d, as RETENTION says" in out
    assert [
        ["*", "stale", "audit", "tests.app.tasks.noop"],
        ["orders.*", "enabled", "billing", "billing.on_order"],
        ["orders", "disabled", "default", "tests.app.tasks.noop"],
        ["group stats", "waiting", "3", "stats", "stats.count"],
    ] == table(out)[-4:]
    (topic,) = answer["topics"]
    assert ("orders", 6, False, 604_800.0) == (
        topic["topic"],
        topic["messages_24h"],
        topic["is_partial"],
        topic["kept_seconds"],
    )
    assert ["stale", "enabled", "disabled"] == [
        each["state"] for each in topic["subscriptions"]
    ]
    assert datetime.fromisoformat(topic["subscriptions"][2]["disabled_at"])
    assert ["3"] == [each["lag"] for each in topic["groups"]]


# peek --------------------------------------------------------------------------------


def peeked(*arguments):
    """Return the status and the ids of what is shown."""
    status, answer = told("peek", "orders", *arguments)
    return status, [each["id"] for each in answer["messages"]], answer["next"]


def test_the_newest_messages_are_shown():
    """The oldest of them first, without secrets; nobody's position moves."""
    ids = fill(15)
    make_group()
    before = positions()

    status, out, _ = run("peek", "orders")
    lines = table(out)

    assert DONE == status
    assert ["id", "published", "name", "key", "partition", "payload"] == lines[0]
    assert ids[-10:] == [int(line[0]) for line in lines[1:]]
    assert ["now", "orders.created", "c2", "0"] == lines[-1][1:5]
    assert '{"id": 14, "api_token": "[redacted]"}' == lines[-1][5]
    assert "s3cret" not in out
    assert "s3cret" in run("peek", "orders", "--show-payload")[1]
    assert before == positions()


def test_messages_are_chosen():
    """By name, key, partition; from an id, a time or an end on."""
    ids = fill(12)
    time = (datetime.now(UTC) - 3.5 * MINUTE).isoformat()

    assert (DONE, ids[-2:], None) == peeked("--limit", 2)
    assert (DONE, ids[1::2], None) == peeked("--name", "orders.paid")
    assert (DONE, ids[2::3], None) == peeked("--key", "c2")
    assert (DONE, ids[5::6], None) == peeked("--key", "c2", "--partition", 1)
    assert (DONE, ids[4:7], ids[7]) == peeked("--from", ids[4], "--limit", 3)
    assert (DONE, ids[-4:], None) == peeked("--from", time)
    assert (DONE, ids[-4:], None) == peeked("--from", "210s")
    assert (DONE, ids[:2], ids[2]) == peeked("--from", "earliest", "--limit", 2)
    assert (DONE, ids[-2:], None) == peeked("--from", "latest", "--limit", 2)
    assert (NOTHING, [], None) == peeked("--name", "orders")
    assert (NOTHING, [], None) == peeked("--name", "paid")
    assert (
        "their names begin with 'orders'" in run("peek", "orders", "--name", "paid")[2]
    )
    assert (NOTHING, [], None) == peeked("--partition", 2)
    assert "it has 0 to 1" in run("peek", "orders", "--partition", 2)[2]
    assert (
        f"More: --from {ids[7]}\n"
        == run(*("peek", "orders", "--from", ids[4], "--limit", 3))[2]
    )


# groups ------------------------------------------------------------------------------


def test_groups_are_listed():
    """With state, lag, age, halted partitions; who paused one and why."""
    ids = fill()
    group = make_group(name="b", queue="stats")
    make_position(group, 0, position=ids[-1], halted_at=NOW, halted_for="error")
    make_group(name="a", paused_at=NOW, paused_by="ada", pause_reason="rebuilt")

    status, out, _ = run("groups")
    _, answer = told("groups", "list")

    assert DONE == status
    task = "tests.app.tasks.noop"
    assert [
        [
            *("orders/a", "paused", "6", "5 min", "2", "default", task),
            "paused by ada: rebuilt",
        ],
        ["orders/b", "halted", "3", "4 min", "2", "1", "stats", task],
    ] == table(out)[1:]
    paused, halted = answer["groups"]
    assert ("a", "paused", 6, []) == (
        *(paused["group"], paused["state"], paused["unread"]),
        paused["halted"],
    )
    assert ("halted", [0], False) == (
        *(halted["state"], halted["halted"]),
        halted["is_partial"],
    )


def test_a_group_is_paused_and_resumed():
    """Twice has status 1, and who and why stay."""
    make_group()
    name = "orders/stats"

    assert (
        DONE,
        "Group orders/stats is paused; what is being read is finished.\n",
    ) == (run("groups", "pause", name, "--reason", "night")[:2])
    row = ConsumerGroup.objects.get()
    assert row.paused_by.endswith("(command line)")
    status, out, _ = run("groups", "pause", name, "--reason", "x")
    assert NOTHING == status
    assert "was paused already by" in out
    assert "night; that stays." in out
    assert (DONE, {"group": name, "resumed": True}) == told("groups", "resume", name)
    assert (NOTHING, "Group orders/stats was not paused.\n") == (
        run("groups", "resume", name)[:2]
    )
    assert (DONE, {"group": name, "paused": True}) == told("groups", "pause", name)


def test_a_group_is_forgotten_once_it_is_paused():
    """Before that, somebody may read; afterwards there is no such group."""
    group = make_group()
    make_position(group, 0)
    name = "orders/stats"

    status, out, _ = run("groups", "forget", name)
    assert NOTHING == status
    assert "is not paused, so it was left as it is: pause it first." in out
    assert 1 == ConsumerGroup.objects.count()
    run("groups", "pause", name)
    assert (DONE, {"group": name, "forgotten": True}) == told("groups", "forget", name)
    assert (0, 0) == (ConsumerGroup.objects.count(), Position.objects.count())
    assert NOTHING == run("groups", "forget", name)[0]


def test_halted_partitions_are_read_on():
    """All or one; where retention has removed what was not read, it says so."""
    group = make_group(positions=4)
    name = "orders/stats"
    for partition in (1, 3):
        make_position(group, partition, halted_at=NOW, halted_for="error")

    assert (DONE, {"group": name, "read_on": [3], "lost": None}) == told(
        *("groups", "read-on", name, "--partition", 3)
    )
    assert (DONE, "Group orders/stats reads on, in partition 1.\n") == (
        run("groups", "read-on", name)[:2]
    )
    assert (NOTHING, "Group orders/stats has no halted partition.\n") == (
        run("groups", "read-on", name)[:2]
    )
    assert (
        "no halted partition 9."
        in (run("groups", "read-on", name, "--partition", 9)[1])
    )
    make_position(group, 2, halted_at=NOW, halted_for="retention")
    status, out, err = run("groups", "read-on", name)
    assert (NOTHING, "") == (status, out)
    assert "Seek to 'earliest'" in err
    assert Position.objects.get(partition=2).halted_at is not None


def test_what_is_not_there_is_told_with_the_nearest_name():
    """Status 1."""
    make_group()

    for command in (
        ("groups", "pause", "orders/stat"),
        ("lag", "orders/stat"),
        ("seek", "orders/stat", "--to", "latest", "--yes"),
        ("peek", "order"),
    ):
        status, out, err = run(*command)
        assert (NOTHING, "") == (status, out)
        assert "Did you mean 'orders" in err
        assert NOTHING == told(*command)[0]


# lag ---------------------------------------------------------------------------------


def test_lag_is_told_by_partition():
    """Position, messages, age, who reads."""
    ids = fill()
    group = make_group()
    make_position(group, 0, position=ids[2], leased_by="web-1", leased_until=MINUTE)
    make_group("clicks", "others", positions=1)

    status, out, _ = run("lag", "orders/stats")
    _, answer = told("lag")

    assert DONE == status
    assert [
        ["orders/stats", "0", "reading", str(ids[2]), "1", "1 min", "web-1"],
        ["orders/stats", "1", "waiting", "0", "3", "4 min"],
    ] == table(out)[1:]
    others, stats = answer["groups"]
    assert ("clicks", "others", 0, None) == (
        *(others["topic"], others["group"], others["unread"]),
        others["oldest_seconds"],
    )
    assert (4, [1, 3]) == (
        stats["unread"],
        [each["unread"] for each in stats["partitions"]],
    )
    assert 230 < stats["oldest_seconds"] < 290
    assert "reading" == stats["partitions"][0]["state"]


def test_scripts_learn_of_too_much_lag_by_the_status():
    """1 if any group has more unread messages, over its partitions, than --max."""
    fill(6)
    make_group(name="a")
    done = make_group(name="b", positions=1)
    make_position(done, 0, position=Message.objects.order_by("-pk")[0].pk)

    assert DONE == run("lag", "--max", 6)[0]
    status, _, err = run("lag", "--max", 5)
    assert NOTHING == status
    assert "Group orders/a has 6 unread messages; the limit is 5.\n" == err
    assert DONE == run("lag", "orders/b", "--max", 0)[0]
    status, answer = told("lag", "orders/a", "--max", 0)
    assert (NOTHING, 6) == (status, answer["groups"][0]["unread"])


# seek --------------------------------------------------------------------------------


class Terminal(io.StringIO):
    """Somebody who answers."""

    def isatty(self):
        return True


@pytest.mark.parametrize("reply, is_done", [("y\n", True), ("", False)])
def test_a_seek_tells_what_it_will_do_and_asks(monkeypatch, reply, is_done):
    """How many messages are read again or skipped."""
    ids = fill()
    group = make_group()
    make_position(group, 0, position=ids[5])
    monkeypatch.setattr("sys.stdin", Terminal(reply))

    status, out, err = run("seek", "orders/stats", "--to", ids[2])

    assert (DONE if is_done else NOTHING) == status
    assert "1 message would be read again, 1 skipped. Seek orders/stats? [y/N]" in err
    assert ([ids[2]] * 2 if is_done else [ids[5], 0]) == positions()
    assert is_done == ("reads on from there, in 2 partitions." in out)


# replay ------------------------------------------------------------------------------


def mail():
    """Make a subscription of all orders."""
    return make_subscription(
        pattern="orders", topic="orders", queue="mail", task="shop.mail"
    )


INTO = ("--to", "subscription:mail/orders")


def test_a_replay_is_counted_confirmed_and_stopped(monkeypatch):
    """Nothing is done before it is meant; the leader does it."""
    ids = fill(partitions=1)
    mail()
    asks = ("replay", "orders", *INTO, "--since", ids[1], "--until", ids[4])

    status, out, _ = run(*asks, "--dry-run")
    assert DONE == status
    assert "4 messages would be replayed into subscription:mail/orders/sh" in out
    monkeypatch.setattr("sys.stdin", io.StringIO())
    status, _, err = run(*asks)
    assert (USAGE, 0) == (status, BulkAct.objects.count())
    assert "give --yes" in err
    status, answer = told(*asks, "--yes", "--per-second", 2, "--reason", "lost mails")
    assert (DONE, 4) == (status, answer["messages"])
    bulk_acts.step()
    number = str(answer["replay"])
    line = run("acts", "show", number)[1].splitlines()[1]
    assert [number, "replay", "running", "2", "4"] == line.split()[:5]
    assert DONE == run("acts", "stop", number)[0]
    assert ("lost mails", "stopped") == BulkAct.objects.values_list(
        "reason", "state"
    ).get()
