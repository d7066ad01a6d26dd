"""A consumer group, asked and moved by its name."""

import pytest
from asgiref.sync import async_to_sync

from django_pgqueue import TopicError, publish, topic
from django_pgqueue.models import ConsumerGroup
from tests.log.log import make_group, make_topic, put

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_group_is_asked_by_its_name(cursor):
    """Its lag, where it is, and whether it is paused."""
    make_topic(partitions=2)
    make_group(cursor)
    ids = put(cursor, *range(5))
    group = topic("clicks").group("g")

    assert (5, 0) == (sum(each.unread for each in group.lag()), 0)
    assert 2 == max(each.unread for each in async_to_sync(group.alag)(limit=2))
    assert {ids[-1]} == {each.now for each in group.seek("latest")}
    assert {"idle"} == {each.state for each in group.lag()}
    assert (True, False) == (group.pause(by="anna", reason="deploy"), group.pause())
    assert "anna" == ConsumerGroup.objects.get().paused_by
    assert (True, False) == (group.resume(), group.resume())
    assert [] == group.read_on()
    moved = async_to_sync(group.aseek)(ids[1], partition=0)
    assert [(0, ids[-1], ids[1])] == [tuple(each) for each in moved]


def test_a_group_that_is_none_is_refused(cursor):
    """The error names those that are; a count has to be one."""
    make_topic()
    make_group(cursor, name="stats")
    publish("clicks", {})

    with pytest.raises(TopicError, match="no consumer group 'x'; it has 'stats'"):
        topic("clicks").group("x").lag()
    with pytest.raises(TopicError, match=r"lag\(limit=0\)"):
        topic("clicks").group("stats").lag(limit=0)
    with pytest.raises(TopicError, match="cannot be called 'a b'"):
        topic("clicks").group("a b")
