"""What people ask of a log: pages of it, a time's place in it, how much there is."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import connection

from django_pgqueue.log import browse as browses
from django_pgqueue.log.browse import Wanted, browse
from django_pgqueue.log.seek import preview_seek
from django_pgqueue.models import Message, Position, Topic
from tests.log.rows import make_group, make_message, make_position, make_topic

pytestmark = pytest.mark.django_db


@pytest.fixture
def cursor(db):
    with connection.cursor() as cursor:
        yield cursor


def fill(count, *, topic="orders", partitions=4):
    """Publish to partitions of very different sizes; return the ids."""
    make_topic(topic, partitions=partitions)
    return [
        make_message(
            f"{topic}.paid" if n % 3 else f"{topic}.created",
            key=f"c{n % 5}",
            partition=0 if n % 8 < 5 else n % partitions,
        ).pk
        for n in range(count)
    ]


def wanted(topic="orders", **said):
    row = Topic.objects.get(name=topic)
    return Wanted(topic_id=row.pk, **{"partitions": range(row.partitions), **said})


def pages(cursor, limit, *, is_oldest_first=False, **said):
    """Return the ids of all pages one after another."""
    found, place = [], {}
    while True:
        page = browse(
            cursor,
            wanted(**said, **place),
            limit=limit,
            is_oldest_first=is_oldest_first,
        )
        found += page.ids
        end = page.ids[-1] if len(page.ids) == limit else page.end
        if end is None:
            return found
        place = {"above" if is_oldest_first else "below": end}


@pytest.mark.parametrize("limit", [1, 7, 50, 200])
def test_pages_have_each_message_once_and_in_order(cursor, limit):
    """From both ends, however uneven the partitions are; of no other topic."""
    ids = fill(60)
    fill(5, topic="clicks")

    assert ids[::-1] == pages(cursor, limit)
    assert ids == pages(cursor, limit, is_oldest_first=True)


def test_pages_are_narrowed(cursor, monkeypatch):
    """By name, a part of it, key and partition: each once, in small looks too."""
    ids = fill(60)
    rows = {row.pk: row for row in Message.objects.all()}

    for rows_max in (30_000, 12, 4):
        monkeypatch.setattr(browses, "LOOK_ROWS_MAX", rows_max)
        for said, fits in (
            ({"name": "orders.paid"}, lambda row: row.name == "orders.paid"),
            ({"name_part": "CREA"}, lambda row: "crea" in row.name),
            ({"key": "c3"}, lambda row: row.key == "c3"),
            ({"key": "c3", "partitions": [2]}, lambda row: row.partition == 2),
            ({"key": "none"}, lambda row: False),
            ({"name": "orders", "partitions": []}, lambda row: False),
        ):
            expected = [key for key in ids if fits(rows[key])]
            expected = [
                key
                for key in expected
                if rows[key].key == said.get("key", rows[key].key)
            ]
            for limit in (2, 100):
                assert expected[::-1] == pages(cursor, limit, **said), said
                assert expected == pages(cursor, limit, is_oldest_first=True, **said), (
                    said
                )


# What a seek would do ----------------------------------------------------------------


@pytest.mark.parametrize(
    "where, partition, foreseen",
    [
        ("earliest", None, (15, 0)),
        ("latest", None, (0, 15)),
        ("latest", 1, (0, 5)),
        ("id", None, (5, 0)),
        ("time", None, (0, 5)),
    ],
)
def test_a_preview_counts_what_a_seek_reads_again_or_skips(
    cursor, where, partition, foreseen
):
    """Over all partitions; nothing is changed."""
    make_topic(partitions=3)
    rows = [
        make_message(partition=n % 3, published_at=-(30 - n) * timedelta(minutes=1))
        for n in range(30)
    ]
    group = make_group()
    for each in range(3):
        make_position(group, each, position=rows[14].pk)
    to = {"id": rows[9].pk, "time": rows[20].published_at}.get(where, where)
    before = list(Position.objects.order_by("pk").values())

    preview = preview_seek(cursor, group.pk, to, partition=partition)

    assert (*foreseen, False) == preview
    assert before == list(Position.objects.order_by("pk").values())
