"""`manage.py pgqueue doctor`: what it finds of topics, their log and their groups."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest

from django_pgqueue.findings import topics
from django_pgqueue.log.days import close_days, drop_day
from django_pgqueue.log.publish import publish
from django_pgqueue.models import LogDay, PipelineRun, Subscription, Topic
from django_pgqueue.pipeline.exports import note
from django_pgqueue.postgres.bulk import Items
from django_pgqueue.topics import consume
from tests.harness.factories import (
    make_group,
    make_message,
    make_position,
    make_run,
    make_topic,
)
from tests.harness.minutes import in_minutes
from tests.management.test_doctor import examined, make_worker, run
from tests.models.test_sql_files import SQL

DAY = timedelta(days=1)

# What the code declares that the doctor has imported.
HERE = SimpleNamespace(topic="orders", group="here")


def found(check):
    """Return the finding *check*."""
    return examined()[1][check]


def test_what_is_wrong_with_the_days_and_topics(transactional_db, cursor, log_days):
    """Too few days ahead, one that nobody has closed, and other partitions."""
    day = log_days(3)
    today = log_days(0)
    for ahead in range(2, 8):
        drop_day(cursor, today + ahead * DAY)
    make_topic(declared={"partitions": 32})
    make_topic(name="mail", declared={"partitions": 16})

    found = examined()[1]
    assert {
        "log_days": ("warning", 1, 2),
        "log_closed": ("warning", [str(day)], 10_800.0),
        "topics": ("warning", ["orders"], None),
    } == {
        name: tuple(found[name][key] for key in ("severity", "value", "limit"))
        for name in ("log_days", "log_closed", "topics")
    }
    assert "orders has 16, code says 32" in found["topics"]["what"]


def test_who_holds_readers_back(transactional_db, cursor, monkeypatch):
    """By its process, with the topic and for how long; and how many more."""
    monkeypatch.setattr(topics, "PUBLISHING_SECONDS_MAX", -1.0)
    make_topic()
    with cursor.connection.transaction():
        publish(cursor, "orders", [Items(json.dumps(["orders", None, 1, {}]), 1)])
        finding = found("log_horizon")
        pid = cursor.connection.info.backend_pid
    assert "warning" == finding["severity"]
    assert (
        f"process {pid}, idle in transaction, has published to orders"
        in (finding["what"])
    )
    assert finding["way_out"].endswith(f"pg_terminate_backend({pid}).")
    assert 0 <= finding["value"] < 60
    assert "ok" == found("log_horizon")["severity"]


def test_groups_that_are_about_to_lose_messages(transactional_db, log_days):
    """The oldest unread message has outlived 80 % of what its topic keeps."""
    for name, days_ago, retain in (
        ("week", 6, None),
        ("young", 5, None),
        ("kept", 6, DAY * 60),
        ("day", 2, DAY),
    ):
        log_days(days_ago)
        topic = make_topic(name=name, retain=retain)
        # Not noon: whether that is 80 % of a week ago depends on the time of day.
        published_at = datetime.now(UTC) - timedelta(days=days_ago)
        message = make_message(topic, days_ago, published_at=published_at)
        make_position(make_group(topic), position=message.pk - 1)
        make_position(make_group(topic, name="ahead"), position=message.pk)

    assert ["day/stats", "week/stats"] == sorted(found("groups_behind")["value"])


def test_groups_that_a_bound_of_bytes_will_soon_reach(
    transactional_db, cursor, log_days, settings
):
    """As the leader has measured it; and what cannot be kept within its bound."""
    settings.PGQUEUE = {"RETENTION": {"log": None, "log_bytes": "1TB"}}
    log_days(5)
    topic = make_topic(retain_bytes=10_000_000, log_bytes=9_000_000)
    message = make_message(topic, 5)
    make_position(make_group(topic), position=message.pk - 1)
    close_days(cursor)
    assert "ok" == found("groups_behind")["severity"]

    LogDay.objects.update(topic_bytes={str(topic.pk): 3_000_000})
    finding = found("groups_behind")
    assert ["orders/stats"] == finding["value"]
    assert "kept until its bound of bytes is reached" in finding["what"]
    assert "ok" == found("log_bytes")["severity"]

    Topic.objects.update(log_bytes=15_000_000)
    finding = found("log_bytes")
    assert ["orders"] == finding["value"]
    assert "orders has 12 MB of 10 MB" in finding["what"]


def test_what_waits_for_ingest_and_what_went_without_it(
    transactional_db, cursor, log_days, settings
):
    """Of topics that are ingested, or say that they wait."""
    settings.PGQUEUE = {"RETENTION": {"log": "7d", "wait_for_ingest": "3d"}}
    log_days(9)
    topic, other = make_topic(), make_topic(name="mail")
    old = make_message(topic, 9)
    make_message(other, 9)
    make_message(topic)
    assert "ok" == found("log_ingest")["severity"]

    note(cursor, "/srv/log", {"orders": old.pk - 1}, run=1)
    finding = found("log_ingest")
    assert ("warning", ["orders"]) == (finding["severity"], finding["value"])
    assert "orders waits for " in finding["what"]

    Topic.objects.filter(pk=topic.pk).update(removed_to=old.pk)
    finding = found("log_ingest")
    assert "error" == finding["severity"]
    assert "orders has lost some" in finding["what"]

    note(cursor, "/srv/log", {"orders": old.pk}, run=2)
    assert "ok" == found("log_ingest")["severity"]


def test_an_ingest_that_is_to_go_on_and_does_not(transactional_db, cursor):
    """Since any run has told how far it is; not if somebody stopped it."""
    make_topic()
    note(cursor, "/srv/log", {"orders": 1}, run=1)
    options = {"topic": "mail, orders", "path": "/srv/log/", "checkpoint": ""}
    options |= {"trigger": "1m"}
    row = make_run(
        job="ingest", options=options, started_at=timedelta(0), state="running"
    )
    assert "ok" == found("ingest_behind")["severity"]

    cursor.execute(
        "UPDATE pgqueue_ingest_position SET read_at = now() - interval '15m'"
    )
    finding = found("ingest_behind")
    assert "warning" == finding["severity"]
    assert "trigger=1m, is running" in finding["what"]
    for columns in ({"state": "cancelled"}, {"options": options | {"trigger": "1h"}}):
        PipelineRun.objects.filter(pk=row.pk).update(**columns)
        assert "ok" == found("ingest_behind")["severity"]
        PipelineRun.objects.filter(pk=row.pk).update(state="failed")


def test_halted_groups(transactional_db):
    """For how many partitions, why, and what the first one says."""
    group = make_group(make_topic())
    for partition in range(2):
        make_position(
            group,
            partition,
            halted_at=-timedelta(minutes=5),
            halted_for="retention",
            errors=[{"kind": "retention", "message": "7 messages were removed"}],
        )

    finding = found("groups_halted")
    assert ("error", ["orders/stats"]) == (finding["severity"], finding["value"])
    what = in_minutes(finding["what"])
    assert "orders/stats, 2 partitions, for retention, since 5 min." in what
    assert finding["what"].endswith("7 messages were removed")


def make_unread(name="stats", *, read=0, **columns):
    """Publish two messages, of which a group has read so many."""
    topic = make_topic(name=f"topic-of-{name}")
    first = make_message(topic, 0).pk
    make_message(topic, 0)
    make_position(make_group(topic, name=name, **columns), position=first - 1 + read)


def test_groups_whose_queue_no_living_worker_serves(transactional_db):
    """An error for each, with the command; not of those that read, or rest."""
    make_worker(queues=["default"])
    make_worker("gone", silent=timedelta(hours=1), queues=["mail"])
    make_unread(queue="mail")
    make_unread("served")
    make_unread("paused", queue="mail", paused_at=-DAY)
    make_unread("stale", queue="mail", last_declared_at=-8 * DAY)
    make_unread("idle", read=2, queue="mail")

    status, out = run("--json")
    (finding,) = [
        each
        for each in json.loads(out)["findings"]
        if each["check"] == "groups_unserved"
    ]
    assert (1, "error", 2, 0) == (
        status,
        finding["severity"],
        finding["value"],
        finding["limit"],
    )
    assert finding["what"].startswith("Group topic-of-stats/stats has 2 unread")
    assert finding["what"].endswith(" no living worker serves its queue mail.")
    assert "python manage.py pgqueue_worker --queues mail" == finding["way_out"]

    make_worker("new", queues=["ma*"])
    assert "ok" == found("groups_unserved")["severity"]


def test_groups_that_code_declares_no_more(transactional_db, monkeypatch):
    """For a week, as subscriptions; not one that the code here has."""
    monkeypatch.setattr(consume, "_declared", {("orders", "here"): HERE})
    topic = make_topic()
    make_group(topic, name="old", last_declared_at=-8 * DAY)
    make_group(topic, name="resting", last_declared_at=-8 * DAY, paused_at=-DAY)
    make_group(topic, name="here", last_declared_at=-8 * DAY)
    make_group(topic, name="young", last_declared_at=-6 * DAY)
    make_group(topic, name="never", last_declared_at=None)

    finding = found("groups_stale")
    assert ("warning", ["orders/old", "orders/resting"], 604_800.0) == (
        finding["severity"],
        finding["value"],
        finding["limit"],
    )
    assert "not declared for 7 days" in finding["what"]
    assert "orders/old, orders/resting" in finding["what"]
    assert "pgqueue groups forget TOPIC/GROUP" in finding["way_out"]


@pytest.fixture
def unchecked(cursor) -> Iterator[None]:
    """Any row of a subscription can be written, as before there was a check."""
    cursor.execute(
        "ALTER TABLE pgqueue_subscription DROP CONSTRAINT pgqueue_subscription_pattern"
    )
    yield
    cursor.execute((SQL / "subscription_pattern.sql").read_text("utf-8"))


def test_subscriptions_whose_pattern_is_none(transactional_db, unchecked):
    """Or that say besides what it does not mean; not those that say nothing besides."""
    make_worker()
    for pattern, columns in {
        "orders.*": {},
        "*.a": {"regex": None},
        "orders..x": {"regex": None, "topic": "orders"},
        "orders.y": {"regex": "((("},
        "orders.z": {"topic": "mail"},
    }.items():
        row = Subscription(task="t", pattern=pattern)
        row.topic = None if pattern[0] == "*" else "orders"
        row.regex = r"^orders\.[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$"
        for column, value in columns.items():
            setattr(row, column, value)
        row.save()
    off = Subscription(task="t", pattern="", disabled_at="2026-01-01T00:00Z")
    off.save()

    finding = found("patterns")
    assert "error" == finding["severity"]
    assert [f"orders{rest} → default (t)" for rest in ("..x", ".y", ".z")] == finding[
        "value"
    ]
