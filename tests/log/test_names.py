"""Names of topics and messages, and patterns."""

import re
import sys

import pytest

from django_pgqueue.exceptions import TopicError
from django_pgqueue.log.names import (
    REGEX_CHARACTERS_MAX,
    Pattern,
    check_key,
    check_name,
    check_topic,
)
from django_pgqueue.models import Subscription

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


def test_postgresql_reads_patterns_as_python_does(cursor):
    """By words, and by the expression that a row has for queries of others."""
    for text, name, expected in MATCHES:
        pattern = Pattern.parse(text)
        cursor.execute(
            "SELECT pgqueue_pattern_selects(%(text)s, %(name)s),"
            " %(text)s = ANY (pgqueue_patterns_of(%(name)s)),"
            " (%(topic)s::text IS NULL OR %(topic)s = split_part(%(name)s,'.',1))"
            " AND (%(regex)s::text IS NULL OR %(name)s ~ %(regex)s)",
            {
                "text": text,
                "topic": pattern.topic,
                "regex": pattern.regex,
                "name": name,
            },
        )
        assert (expected, expected, expected) == cursor.fetchone(), (text, name)


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


@pytest.mark.parametrize(
    "bad", ["", ".", "a.", ".a", "a..b", "a b", "ä", "a\n", "a" * 64, 5, None, "a.*b"]
)
def test_what_is_no_name_is_refused(bad):
    """As a topic, as a message's name and as a pattern, with the value."""
    for check in (check_topic, check_name, Pattern.parse):
        with pytest.raises(TopicError, match=re.escape(repr(bad)[:20])):
            check(bad)


def test_a_pattern_is_refused_where_its_row_could_not_hold_it(cursor):
    """With the limit and the way out; the longest ones that are taken fit their column,
    and PostgreSQL reads them."""
    column = Subscription._meta.get_field("regex").max_length
    assert REGEX_CHARACTERS_MAX == column
    told = r"has 124 words.* 2,003 characters; the limit is 2,000\. .*at the end"
    with pytest.raises(TopicError, match=told):
        Pattern.parse(".".join(["*"] * 124))
    with pytest.raises(TopicError, match="256 characters; the limit is 255"):
        Pattern.parse("a." * 127 + "aa")

    long = Pattern.parse(".".join(["*"] * 123)).regex
    assert 1_987 == len(long)
    cursor.execute("SELECT %s ~ %s", [".".join(["a"] * 123), long])
    assert (True,) == cursor.fetchone()


def test_a_message_is_called_as_its_topic():
    """Or with more words after it; the error shows the name that would do."""
    assert "orders.paid" == check_name("orders.paid", "orders")
    with pytest.raises(TopicError, match=r"'orders\.paid'"):
        check_name("paid", "orders")
    with pytest.raises(TopicError, match="without dots"):
        check_topic("orders.created")


@pytest.mark.parametrize("bad", ["", "x" * 1_001, "a\x00", "\ud800", 1.5, True, b"k"])
def test_what_is_no_key_is_refused(bad):
    """PostgreSQL could not store it, or two values would be one key."""
    with pytest.raises(TopicError, match="key="):
        check_key(bad)


@pytest.mark.parametrize("sign", [1, -1])
def test_an_int_that_is_too_long_for_a_key_is_refused(sign):
    """With its digits, the limit and the way out, also where Python would not write it
    down; the longest one that can be is its digits."""
    told = r"5,001 digits.* limit is 1,000 .* a hash"
    with pytest.raises(TopicError, match=told):
        check_key(sign * 10**5_000)
    with pytest.raises(TopicError, match=r"1,00\d characters.* limit is 1,000 .* hash"):
        check_key(sign * 10**1_000)
    assert str(sign * 10**998) == check_key(sign * 10**998)


def test_what_python_writes_no_further_is_no_key():
    """Where a project has set its limit of digits below ours, that one is named."""
    before = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(640)
    try:
        with pytest.raises(TopicError, match=r"700 digits.* limit is 640 "):
            check_key(10**699)
    finally:
        sys.set_int_max_str_digits(before)


def test_a_key_is_text():
    """An int is its digits; none is none."""
    assert ("7", "a", None) == (check_key(7), check_key("a"), check_key(None))
