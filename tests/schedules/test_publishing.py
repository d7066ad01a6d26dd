"""Schedules that publish: each tick a message, and a job of each subscription."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import psycopg
import pytest
from django.db import connections, transaction

from django_pgqueue import ScheduleError, cron, every, topic
from django_pgqueue.models import Job, Message, Schedule, Subscription, Tick
from django_pgqueue.schedules import issue as issuing
from django_pgqueue.schedules import operate
from django_pgqueue.schedules.declare import declared
from django_pgqueue.schedules.definition import Definition, define
from django_pgqueue.schedules.issue import issue
from django_pgqueue.schedules.sync import sync
from tests.schedules.conftest import NOON, issue_at, read

MINUTE = timedelta(minutes=1)
Raw = psycopg.Connection[Any]

cronjobs = topic("cronjobs")


def nightly(**said: Any) -> Definition:
    message = cronjobs.message("cronjobs.nightly", {"full": True}, key="k7")
    return define(
        name="nightly", publication=message, every_seconds=60, tz="UTC", **said
    )


@pytest.fixture
def made(transactional_db: None) -> Schedule:
    """A schedule of a user that publishes, due each minute from noon on."""
    return Schedule.objects.create(
        name="nightly", ticks_from=NOON, **nightly().values()
    )


@pytest.fixture
def handlers(transactional_db: None) -> None:
    """Two subscriptions that want the message, and one that wants others."""
    for queue, pattern, regex in (
        ("reports", "cronjobs", None),
        ("mail", "cronjobs.nightly", r"^cronjobs\.nightly$"),
        ("other", "cronjobs.hourly", r"^cronjobs\.hourly$"),
    ):
        Subscription.objects.create(
            pattern=pattern,
            topic="cronjobs",
            regex=regex,
            queue=queue,
            task="tests.on_cronjob",
        )


def test_a_tick_is_a_message_and_the_jobs_of_its_subscriptions(
    made: Schedule, handlers: None, raw: Raw
) -> None:
    """Each knows its tick; the tick knows the message."""
    (issued,) = issue_at(raw, NOON + MINUTE)

    message = Message.objects.get()
    assert ("cronjobs.nightly", "k7", {"full": True}) == (
        message.name,
        message.key,
        message.payload,
    )
    tick = Tick.objects.get()
    assert ("published", message.pk, None) == (
        tick.outcome,
        tick.message_id,
        tick.job_id,
    )
    said = {"pgqueue.tick": "2026-03-01T12:01:00+00:00"}
    assert said == message.headers
    jobs = Job.objects.order_by("queue")
    assert [("mail", message.pk, said), ("reports", message.pk, said)] == list(
        jobs.values_list("queue", "message_id", "headers")
    )
    assert (message.pk, 2, ("mail", "reports")) == (
        issued.message_id,
        issued.jobs,
        issued.wakes,
    )


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_rollback_takes_tick_message_and_jobs(
    made: Schedule, handlers: None, raw: Raw, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """Between tick and message, and after both: neither; the next try is whole."""
    row = read("nightly")
    publish = issuing.publish
    ticks: list[Any] = []

    def fail(*args: Any, **kwargs: Any) -> Any:
        if when == "after":
            publish(*args, **kwargs)
        ticks.append(raw.execute("SELECT count(*) FROM pgqueue_tick").fetchone())
        raise ZeroDivisionError

    with monkeypatch.context() as broken:
        broken.setattr(issuing, "publish", fail)
        with (
            pytest.raises(ZeroDivisionError),
            raw.transaction(),
            raw.cursor() as cursor,
        ):
            issue(cursor, row, NOON + MINUTE)
    assert [(1,)] == ticks
    counts = [model.objects.count() for model in (Tick, Message, Job)]
    assert ([0, 0, 0], None) == (counts, read("nightly").last_tick)

    issue_at(raw, NOON + MINUTE)
    assert [1, 1, 2] == [model.objects.count() for model in (Tick, Message, Job)]


# Declaring ---------------------------------------------------------------------------


@pytest.mark.usefixtures("declarations")
def test_a_message_is_declared_as_a_task_is() -> None:
    """It is given back, and the schedule is called as the message."""
    message = cronjobs.message("cronjobs.nightly", {"n": 1.5})
    assert message is cron("0 3 * * *", tz="Europe/Berlin")(message)
    every(minutes=5, name="often")(cronjobs.message({"n": None}, key=7))

    nightly, often = declared()
    assert ("cronjobs.nightly", "", "cronjobs.nightly", None, {"n": 1.5}, "queue") == (
        nightly.name,
        nightly.task,
        nightly.message_name,
        nightly.message_key,
        nightly.message_payload,
        nightly.overlap,
    )
    assert ("often", "cronjobs", "7", {"n": None}) == (
        often.name,
        often.message_name,
        often.message_key,
        often.message_payload,
    )


@pytest.mark.usefixtures("declarations")
def test_what_only_a_job_can_have_is_refused() -> None:
    """With what to say instead."""
    said: dict[str, Any]
    for said, text in (
        ({"overlap": "skip"}, "a message has no job that could still run"),
        ({"jitter": "5m"}, "jitter=300 and the message 'cronjobs': a message is publi"),
        ({"queue": "mail"}, "queue='mail' and the message"),
        ({"priority": 3}, "priority=3 and the message"),
        ({"args": {"a": 1}}, "args=.* and the message"),
    ):
        with pytest.raises(ScheduleError, match=text):
            cron("0 3 * * *", **said)(cronjobs.message({}))


@pytest.mark.usefixtures("declarations", "transactional_db")
@pytest.mark.parametrize("payload", [None, {"a": {"b": "c"}}], ids=str)
def test_what_code_declares_of_a_message_becomes_a_row(payload: Any) -> None:
    """And follows the code, until somebody changes it here."""
    cron("0 3 * * *", tz="UTC")(cronjobs.message("cronjobs.a", payload))

    def deploy() -> list[str]:
        with transaction.atomic(), connections["default"].cursor() as cursor:
            return sync(cursor, migrates=True).changed

    assert ["cronjobs.a"] == deploy()
    assert [] == deploy()
    row = read("cronjobs.a")
    assert ("cronjobs.a", payload, {}) == (
        row.message_name,
        row.message_payload,
        row.drift,
    )
    mine = define(
        name="cronjobs.a",
        publication=cronjobs.message("cronjobs.b", payload),
        expression="0 3 * * *",
        tz="UTC",
    )
    assert ["message_name"] == operate.change(mine, revision=row.revision, by="ada")
    assert {"message_name": ("cronjobs.a", "cronjobs.b")} == read("cronjobs.a").drift
    assert [] == deploy()
    assert operate.reset("cronjobs.a")
    assert {} == read("cronjobs.a").drift
