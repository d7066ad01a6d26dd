"""The leader ends what a change of a topic's partitions has begun."""

import pytest

from django_pgqueue.log.generations import repartition
from django_pgqueue.log.positions import advance
from django_pgqueue.models import Generation, Position
from django_pgqueue.postgres.connect import Link
from django_pgqueue.worker.chores.overdue import (
    PAUSE_SECONDS,
    SOON_SECONDS,
    end_generations,
)
from tests.log.log import batch, make_group, make_topic, put, take

pytestmark = pytest.mark.django_db(transaction=True)


def test_positions_go_once_former_partitions_are_read(cursor):
    """It looks every few seconds until then; the last message takes the rest along."""
    make_topic()
    group = make_group(cursor)
    put(cursor, 1)
    with cursor.connection.transaction():
        repartition(cursor, "clicks", 2)
    link = Link("default", name="tests")
    try:
        assert SOON_SECONDS == end_generations(link)
        assert 3 == Position.objects.count()
        claimed = take(cursor, group)
        # In the midst of being read, it stays.
        assert SOON_SECONDS == end_generations(link)
        assert advance(cursor, claimed, batch(cursor, claimed).to)
        assert PAUSE_SECONDS == end_generations(link)
        assert {1, 2} == set(Position.objects.values_list("partition", flat=True))
        assert Generation.objects.exists()
        cursor.execute("DELETE FROM pgqueue_message")
        assert PAUSE_SECONDS == end_generations(link)
    finally:
        link.drop()
    assert not Generation.objects.exists()
