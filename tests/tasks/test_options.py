"""Options: what is allowed, and who wins where several have a say."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from django_pgqueue import InvalidOption, Retry, task
from django_pgqueue.conf import get_settings
from django_pgqueue.models import Job
from django_pgqueue.options.checks import check_queue, check_when
from django_pgqueue.options.marks import check_headers

HOUR = timedelta(hours=1)


def stored(result):
    return Job.objects.get(pk=result.id)


# Who wins ----------------------------------------------------------------------------


@pytest.fixture
def layers(settings, declared):
    """Settings for all, for the queue "mail", and two tasks, one of which says all."""
    settings.PGQUEUE = {
        "DEFAULTS": {"priority": 1, "retries": 1, "timeout": 1, "settle": "batched"},
        "QUEUES": {"mail": {"priority": 2, "retries": 2, "timeout": 2}},
    }

    @task(name="plain")
    def plain():
        pass

    @task(
        name="loud",
        queue="mail",
        priority=3,
        retries=3,
        timeout=3,
        settle="immediate",
    )
    def loud():
        pass

    return plain, loud


def resolved(task, queue):
    options = task.options.for_queue(queue, get_settings())
    seconds = options.timeout.total_seconds() if options.timeout else None
    return options.priority, options.retry.max_attempts, seconds, options.settle


def test_the_task_wins_over_the_queue_and_the_queue_over_the_settings(layers):
    """For each option by itself."""
    plain, loud = layers

    assert (1, 2, 1, "batched") == resolved(plain, "other")
    assert (2, 3, 2, "batched") == resolved(plain, "mail")
    assert (3, 4, 3, "immediate") == resolved(loud, "mail")


@pytest.mark.django_db
def test_the_call_wins_over_all(layers):
    """Its queue decides which queue's options are asked."""
    plain, loud = layers

    rows = [
        stored(result)
        for result in (
            plain.delay(),
            plain.using(queue="mail").delay(),
            loud.delay(),
            loud.using(queue="other").delay(),
            loud.using(queue="other", priority=0, retries=0).delay(),
            loud.apply_async(queue="x", priority=-100),
            plain.using(retries=Retry(max_attempts=9)).delay(),
        )
    ]

    assert [
        ("default", 1, 2),
        ("mail", 2, 3),
        ("mail", 3, 4),
        ("other", 3, 4),
        ("other", 0, 1),
        ("x", -100, 4),
        ("default", 1, 9),
    ] == [(row.queue, row.priority, row.max_attempts) for row in rows]


@pytest.mark.django_db
def test_using_again_replaces_what_is_said_and_keeps_the_rest(layers):
    """Headers are merged; the one before is not changed."""
    plain, _ = layers
    first = plain.using(priority=5, headers={"a": 1, "b": 1}, run_after="1h")
    second = first.using(queue="mail", headers={"b": 2}, run_after=0)

    one, two = stored(first.delay()), stored(second.delay())

    assert ("default", 5, {"a": 1, "b": 1}) == (one.queue, one.priority, one.headers)
    assert ("mail", 5, {"a": 1, "b": 2}) == (two.queue, two.priority, two.headers)
    assert abs(one.visible_at - one.enqueued_at - HOUR) < timedelta(seconds=5)
    assert two.visible_at - two.enqueued_at < timedelta(seconds=5)


# Values ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        "",
        "a b",
        "ä",
        ".a",
        "x" * 64,
        "a\x00",
        None,
    ],
    ids=lambda name: repr(name)[:12],
)
def test_other_queue_names_are_refused(name):
    """The error says what a name may be."""
    with pytest.raises(InvalidOption, match="a queue name has 1 to 63 characters"):
        check_queue(name)


@pytest.mark.parametrize(
    "value, message",
    [
        (-1, "run_after is -1; it must be zero or longer"),
        (1e12, "the longest is 3653 d"),
        (float("nan"), "run_after is nan; the longest is 3653 d"),
        ("-5m", "which is no duration"),
        (True, "which is no duration"),
        (datetime.max.replace(tzinfo=UTC), "in the years 1900 to 9000"),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_another_time_is_refused(value, message):
    """The error names the option, the value and the limit."""
    with pytest.raises(InvalidOption, match=message):
        check_when("run_after", value)


def test_headers_of_the_package_are_its_own():
    """pgqueue.* is written by nobody else."""
    for key in ("pgqueue.", "pgqueue.unknown_since", "pgqueue.deliveries_before"):
        with pytest.raises(InvalidOption, match=r"begin with 'pgqueue.' are reserved"):
            check_headers({key: 1})
    assert {"pgqueue": 1} == check_headers({"pgqueue": 1})
