"""Patterns in the database: what they select, what invalid ones do, what many cost."""

from __future__ import annotations

import json
import random

import pytest
from django.db import IntegrityError, connection, transaction

from django_pgqueue.log.names import Pattern
from django_pgqueue.log.publish import publish, publish_one
from django_pgqueue.models import Job, Subscription
from django_pgqueue.postgres.bulk import Items
from tests.log.rows import make_subscription

SELECTED = """
SELECT pgqueue_pattern_selects(%(pattern)s, %(name)s),
       %(pattern)s = ANY (pgqueue_patterns_of(%(name)s))
"""

# For names of more words the table is asked, as another test does.
WORDS_MAX = 6


def routed(name: str) -> list[str]:
    """Publish a message, by itself and with others; return which queues got a job."""
    with connection.cursor() as cursor:
        one = publish_one(cursor, name, None, "{}", "{}")
        items = [Items(json.dumps([name, None, {}, {}]), 1)] * 2
        many = publish(cursor, name.partition(".")[0], items)
    found = [
        sorted(Job.objects.filter(message_id=each).values_list("queue", flat=True))
        for each in (*one.ids, *many.ids)
    ]
    assert found[0] == found[1] == found[2]
    assert (len(found[0]), 2 * len(found[0])) == (one.jobs, many.jobs)
    assert set(found[0]) == one.queues == many.queues
    return found[0]


@pytest.mark.django_db
def test_the_database_selects_as_python_does():
    """Every name of up to six words over a small alphabet, by many patterns."""
    draw = random.Random(13)
    with connection.cursor() as cursor:
        for _ in range(1_500):
            name = ".".join(draw.choices("ab", k=draw.randint(1, WORDS_MAX)))
            pattern = ".".join(draw.choices("ab*", k=draw.randint(1, WORDS_MAX)))
            expected = Pattern.parse(pattern).matches(name)
            cursor.execute(SELECTED, {"pattern": pattern, "name": name})
            assert (expected, expected) == cursor.fetchone(), (pattern, name)


@pytest.mark.django_db
def test_a_name_of_many_words_finds_its_subscriptions():
    """Where its patterns are too many to be written down, the table is asked."""
    name = "orders." + ".".join("abcdefghij")
    wanted = ["*", "*.a.*", "orders", "orders.*", name, name.replace(".e.", ".*.")]
    others = ["*.a", "mail.*", "orders.a", "orders.b.*", name + ".*", name + ".k"]
    for number, pattern in enumerate([*wanted, *others]):
        make_subscription(pattern, queue=f"q{number:02}")

    assert [f"q{number:02}" for number in range(len(wanted))] == routed(name)


@pytest.mark.django_db
@pytest.mark.parametrize(
    "pattern, topic",
    [
        ("orders..x", "orders"),
        ("orders.(x", "orders"),
        ("orders\n", "orders"),
        ("", None),
        ("orders.x", None),
        ("orders.x", "mail"),
        ("*.x", "orders"),
    ],
)
def test_what_no_publish_would_find_is_refused(pattern, topic):
    """Where it is written; one that is disabled may stay, so that it can be."""
    with (
        pytest.raises(IntegrityError, match="pgqueue_subscription_pattern"),
        transaction.atomic(),
    ):
        Subscription.objects.create(pattern=pattern, topic=topic, task="t")
    Subscription.objects.create(
        pattern=pattern, topic=topic, task="t", disabled_at="2026-01-01T00:00Z"
    )
