"""assert_enqueued() and assert_not_enqueued(): what they match, and what they say."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from uuid import UUID

import pytest
from django.test import TestCase

from django_pgqueue import task
from django_pgqueue.models import Job
from django_pgqueue.testing import (
    assert_enqueued,
    assert_not_enqueued,
)
from tests.app.tasks import add, noop

pytestmark = pytest.mark.django_db

HOUR = timedelta(hours=1)
NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)


@pytest.fixture
def send():
    """A task with every kind of parameter but the variable ones."""

    @task(name="shop.tasks.send")
    def send(order_id, template="plain", *, force=False, items=()):
        """Do nothing."""

    return send


class AsAUserWritesIt(TestCase):
    """In a plain TestCase, after the code that is tested."""

    def test_by_the_words_of_the_call(self):
        """By place or by name, whatever the call did."""
        add.delay(1, right=2)

        assert_enqueued(add, 1, 2)
        assert_enqueued(add, left=1, right=2)
        assert_enqueued(add)
        assert_not_enqueued(add, 2)
        assert_not_enqueued(noop)


# What matches ------------------------------------------------------------------------


def test_the_jobs_that_match_are_returned(send):
    """As they were enqueued, in order."""
    first, _, third = [send.delay(n % 2) for n in (1, 2, 3)]

    found = assert_enqueued(send, 1)

    assert [first.id, third.id] == [job.pk for job in found]
    assert all(isinstance(job, Job) for job in found)


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        "text",
        1.5,
        1e300,
        [1, [2]],
        (1, 2),
        {"a": {"b": 1}},
        NOON,
        date(2030, 1, 1),
        HOUR,
        Decimal("1.50"),
        UUID(int=7),
        b"bytes",
    ],
    ids=repr,
)
def test_a_value_matches_itself_as_it_travels(send, value):
    """Whatever an argument may be."""
    send.delay(value)

    assert_enqueued(send, value)
    assert_not_enqueued(send, "another")


def test_options_of_the_job(send):
    """All that using() can say, in the same words."""
    send.using(
        queue="mail", priority=5, retries=1, headers={"a": 1, "b": 2}, tags=["x", "y"]
    ).delay(1)

    assert_enqueued(
        send,
        1,
        queue="mail",
        priority=5,
        max_attempts=2,
        headers={"a": 1},
        tags=["y"],
        run_after=None,
        expires=None,
    )
    assert_enqueued(send, tags="x", priority__gte=5, priority__lt=6)
    for wrong in (
        {"queue": "default"},
        {"priority__gt": 5},
        {"max_attempts": 5},
        {"headers": {"a": 2}},
        {"headers": {"c": None}},
        {"tags": ["x", "z"]},
        {"run_after__gte": NOON},
    ):
        assert_not_enqueued(send, **wrong)


@pytest.mark.parametrize("name", ["run_after", "expires"])
def test_times_are_moments_or_durations(send, name):
    """A duration counts from the enqueue; a naive moment is in the current zone."""
    send.using(**{name: "1h"}).delay("relative")
    send.using(**{name: NOON}).delay("absolute")

    (relative,) = assert_enqueued(send, **{name: "1h"})
    (absolute,) = assert_enqueued(send, **{name: NOON})
    assert ["relative"] == relative.args
    assert ["absolute"] == absolute.args
    assert_enqueued(send, "absolute", **{name: NOON.replace(tzinfo=None)})
    assert_enqueued(send, **{f"{name}__gte": HOUR, f"{name}__lte": 3600}, count=1)
    assert_enqueued(send, **{f"{name}__gt": "59m"}, count=2)
    assert_not_enqueued(send, **{name: "2h"})
    assert_not_enqueued(send, **{f"{name}__lt": "50m"})


def test_the_number_can_be_asked(send):
    """Exactly so many."""
    send.delay(1)
    send.delay(1)

    assert_enqueued(send, 1, count=2)
    assert [] == assert_enqueued(send, 2, count=0)
    with pytest.raises(AssertionError, match=r"^2 jobs of .* enqueued, where 1 should"):
        assert_enqueued(send, 1, count=1)
    with pytest.raises(
        AssertionError, match=r"^No such job .* enqueued, where 3 should"
    ):
        assert_enqueued(send, 3, count=3)


# What they say -----------------------------------------------------------------------


def message(*args, **kwargs):
    with pytest.raises(AssertionError, match="enqueued") as caught:
        assert_enqueued(*args, **kwargs)
    return str(caught.value)


def test_the_message_lists_what_was_enqueued_the_nearest_first(send):
    """Each with what is different about it, down to the place."""
    far = send.delay(1, items=[1])
    near = send.using(queue="mail").delay(42, items=[{"a": 1}, {"b": 2}])
    noop.delay()

    assert f"""\
No such job of shop.tasks.send was enqueued.

  expected  send(order_id=42, items=[{{'a': 1}}, {{'b': 3}}])  queue='mail'

enqueued instead, the nearest first:
  job {near.id}: send(order_id=42, template='plain', force=False, \
items=[{{'a': 1}}, {{'b': 2}}])  queue='mail'
      items[1]['b'] is 2, not 3
  job {far.id}: send(order_id=1, template='plain', force=False, items=[1])
      order_id is 1, not 42
      items has length 1, not 2: [1], not [{{'a': 1}}, {{'b': 3}}]
      queue is 'default', not 'mail'

of other tasks: tests.app.tasks.noop (1)""" == message(
        send, 42, items=[{"a": 1}, {"b": 3}], queue="mail"
    )


def test_a_job_that_waits_for_a_commit_is_told_of(send):
    """A TestCase never commits, and that is the usual reason."""
    send.on_commit().delay(1)
    noop.on_commit().delay(1)

    said = message(send, 1)
    assert "1 on_commit().delay() of it waits for a commit" in said
    assert "captureOnCommitCallbacks(execute=True)" in said


def test_a_job_that_should_not_be_there_is_shown(send):
    """With all that is known of it."""
    job = send.using(queue="mail", priority=3, tags=["vip"]).delay(1)

    with pytest.raises(AssertionError) as caught:
        assert_not_enqueued(send, 1)
    assert (
        f"1 job of shop.tasks.send was enqueued:\n\n  job {job.id}: send(order_id=1, "
        f"template='plain', force=False, items=[])  queue='mail'  priority=3  "
        f"tags=['vip']" == str(caught.value)
    )

    noop.delay()
    with pytest.raises(
        AssertionError, match=r"^Jobs were enqueued: shop.*, tests.*noop"
    ):
        assert_not_enqueued()


# What is refused ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "args, kwargs, problem",
    [
        ((1, 2, 3), {}, "shop.tasks.send cannot be called so: too many positional"),
        ((1,), {"order_id": 1}, "multiple values for argument 'order_id'"),
        ((), {"ordr_id": 1}, "'ordr_id' is no parameter.*Did you mean 'order_id'"),
        ((), {"que": "mail"}, "'que' is no parameter.*Did you mean 'queue'"),
        ((), {"queue__gte": 1}, "'queue__gte' is no parameter"),
        ((), {"run_after": "soon"}, "run_after is 'soon', which is no duration"),
        ((), {"run_after__gte": None}, "run_after__gte=None"),
        ((), {"headers": "a"}, "headers='a': it must be a dict"),
    ],
)
def test_what_could_never_match_is_an_error(send, args, kwargs, problem):
    """Rather than a test that can only fail, or pass."""
    for check in (assert_enqueued, assert_not_enqueued):
        with pytest.raises(TypeError, match=problem):
            check(send, *args, **kwargs)
