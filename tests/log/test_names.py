"""Names of topics and messages, and patterns."""

import pytest

from django_pgqueue.exceptions import TopicError
from django_pgqueue.log.names import (
    Pattern,
    check_name,
    check_topic,
)

MATCHES = [
    ("orders", "orders", True),
    ("orders", "orders.created", True),
    ("orders", "orders.a.b", True),
    ("orders", "orders2", False),
    ("orders.created", "orders.created", True),
    ("orders.created", "orders.created.x", False),
    ("orders.created", "orders", False),
    ("orders.*", "orders", False),
    ("orders.*", "orders.created", True),
    ("orders.*", "orders.created.x", True),
    ("orders.*.failed", "orders.mail.failed", True),
    ("orders.*.failed", "orders.failed", False),
    ("orders.*.failed", "orders.a.b.failed", False),
    ("*.created", "orders.created", True),
    ("*.created", "orders.created.x", False),
    ("*", "orders", True),
    ("*", "orders.a.b", True),
    ("*.*", "orders", False),
    ("a-b.*", "a-b.c", True),
    ("a-b.*", "axb.c", False),
]


@pytest.mark.parametrize("pattern, name, expected", MATCHES)
def test_a_pattern_selects_by_words(pattern, name, expected):
    """By whole words; a star at the end stands for all that follow, one at least."""
    assert expected == Pattern.parse(pattern).matches(name)


@pytest.mark.parametrize(
    "one, other, expected",
    [
        ("orders", "orders.created", True),
        ("orders", "orders", True),
        ("orders", "mail", False),
        ("orders", "orders.*", True),
        ("orders.*", "*.created", True),
        ("orders.*", "mail.*", False),
        ("orders.created", "orders.paid", False),
        ("orders.created", "orders.created.x", False),
        ("*", "mail.sent", True),
        ("*.created", "orders.*.created", False),
        ("a.*.c", "a.b.*", True),
        ("a.*.c", "a.*.d", False),
        ("a.*", "a", True),
        ("*.*", "a", True),
    ],
)
def test_patterns_that_can_meet_overlap(one, other, expected):
    """Whichever is asked: whether one name can be selected by both."""
    first, second = Pattern.parse(one), Pattern.parse(other)
    assert (expected, expected) == (first.overlaps(second), second.overlaps(first))


def test_a_message_is_called_as_its_topic():
    """Or with more words after it; the error shows the name that would do."""
    assert "orders.paid" == check_name("orders.paid", "orders")
    with pytest.raises(TopicError, match=r"'orders\.paid'"):
        check_name("paid", "orders")
    with pytest.raises(TopicError, match="without dots"):
        check_topic("orders.created")
