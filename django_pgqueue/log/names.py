"""
Names: of topics, of messages, and the patterns that select messages.

A topic is called "orders". A message of it is called as its topic, or has further
words after dots: "orders.created". A pattern selects by these words:

    orders            every message of the topic, whatever its name
    orders.created    messages of that name
    orders.*          every message of the topic that has a further word, or several
    orders.*.failed   one word in the middle
    *.created         the same of every topic
    *                 everything
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from django_pgqueue.exceptions import TopicError, check_whole

TOPIC_CHARACTERS_MAX = 63
MESSAGE_NAME_CHARACTERS_MAX = 255
KEY_CHARACTERS_MAX = 1_000
# Of a pattern, as the row of a subscription holds it.
REGEX_CHARACTERS_MAX = 2_000
PARTITIONS_DEFAULT = 16
PARTITIONS_MAX = 256
# The highest number of a partition: each change of the count begins new ones. The one
# after it is a smallint, too.
PARTITION_MAX = 32_766

WORD = r"[A-Za-z0-9_-]+"
TOPIC = re.compile(rf"{WORD}\Z")
NAME = re.compile(rf"{WORD}(\.{WORD})*\Z")
PATTERN = re.compile(rf"(\*|{WORD})(\.(\*|{WORD}))*\Z")

SHORTER_KEY = "Publish with a shorter key, such as a hash of it."

WORDS = "letters, digits, '_' and '-'"


def check_topic(name: object) -> str:
    """
    Return *name* if a topic can be called so.

    Raises:
        TopicError: It is no text of 1 to 63 letters, digits, "_" and "-".
    """
    if not isinstance(name, str) or not TOPIC.match(name):
        raise TopicError(
            f"A topic cannot be called {name!r}: write {WORDS}, without dots; what "
            f"comes after a dot is of a message's name."
        )
    if len(name) > TOPIC_CHARACTERS_MAX:
        raise TopicError(
            f"The topic {name!r} has {len(name)} characters; the limit is "
            f"{TOPIC_CHARACTERS_MAX}."
        )
    return name


def check_partitions(partitions: object, said: str) -> int:
    """
    Return *partitions* if a topic can have so many.

    Args:
        partitions: How many.
        said: How it was said, for the error.

    Raises:
        TopicError: It is no whole number from 1 to PARTITIONS_MAX.
    """
    return check_whole(said, partitions, PARTITIONS_MAX, TopicError)


def check_name(name: object, topic: str | None = None) -> str:
    """
    Return *name* if a message can be called so, and one of *topic* if that is given.

    Raises:
        TopicError: It has other characters, empty words or more than 255 characters,
            or does not begin with the topic.
    """
    if not isinstance(name, str) or not NAME.match(name):
        raise TopicError(
            f"A message cannot be called {name!r}: write words of {WORDS} with dots "
            f"between, such as 'orders.created'."
        )
    if len(name) > MESSAGE_NAME_CHARACTERS_MAX:
        raise TopicError(
            f"The message name {name[:60]!r}… has {len(name)} characters; the limit is "
            f"{MESSAGE_NAME_CHARACTERS_MAX}."
        )
    check_topic(topic_of(name))
    if topic is not None and topic_of(name) != topic:
        raise TopicError(
            f"A message of the topic {topic!r} cannot be called {name!r}: its name "
            f"begins with the topic's, as in {f'{topic}.{name}'!r}."
        )
    return name


def check_key(key: object) -> str | None:
    """
    Return *key* as text; None stays None: such messages have no order.

    Raises:
        TopicError: It is no text and no int, is empty, longer than 1,000 characters,
            or holds a NUL character or a lone surrogate.
    """
    if key is None:
        return None
    if isinstance(key, bool) or not isinstance(key, (str, int)):
        raise TopicError(
            f"key={key!r}: a message's key is a text or an int; those of one key keep "
            f"their order."
        )
    text = _digits(key) if isinstance(key, int) else key
    if not text:
        raise TopicError(
            f"key='': a key has 1 to {KEY_CHARACTERS_MAX:,} characters; key=None is a "
            f"message without one."
        )
    if len(text) > KEY_CHARACTERS_MAX:
        raise TopicError(
            f"key={text[:40]!r}…: it has {len(text):,} characters; the limit is "
            f"{KEY_CHARACTERS_MAX:,} of them. {SHORTER_KEY}"
        )
    if "\x00" in text or (not text.isascii() and _has_surrogate(text)):
        raise TopicError(
            f"key={text[:40]!r}: it holds a NUL character or a lone surrogate, which "
            f"PostgreSQL cannot store."
        )
    return text


def are_plain_keys(keys: Sequence[str]) -> bool:
    """Whether check_key() would return every one of some texts, seen at a glance."""
    lengths = {*map(len, keys)}
    if not lengths or not 0 < min(lengths) <= max(lengths) <= KEY_CHARACTERS_MAX:
        return False
    text = "".join(keys)
    return text.isascii() and "\x00" not in text


def topic_of(name: str) -> str:
    """Return the topic of the messages that are called *name*."""
    return name.partition(".")[0]


@dataclass(frozen=True, slots=True)
class Pattern:
    """Which messages a subscription wants, by their names."""

    text: str
    # The one topic that it can match; None: any.
    topic: str | None
    # What names it matches, for PostgreSQL and Python; None: every one of the topic.
    regex: str | None

    @classmethod
    def parse(cls, text: object) -> Pattern:
        """
        Return what *text* selects.

        Raises:
            TopicError: It is no pattern, has more than 255 characters, or so many words
                ``*`` that its regular expression has more than 2,000.
        """
        if not isinstance(text, str) or not PATTERN.match(text):
            raise TopicError(
                f"{text!r} is no pattern: write a topic ('orders'), a message's name "
                f"('orders.created'), or '*' for any word ('orders.*', '*.created')."
            )
        if len(text) > MESSAGE_NAME_CHARACTERS_MAX:
            raise TopicError(
                f"The pattern {text[:60]!r}… has {len(text):,} characters; the limit "
                f"is {MESSAGE_NAME_CHARACTERS_MAX}, which no message's name exceeds."
            )
        words = text.split(".")
        if words[0] != "*":
            check_topic(words[0])
        if len(words) == 1:
            return cls(text, None if text == "*" else text, None)
        parts = [WORD if word == "*" else re.escape(word) for word in words]
        if words[-1] == "*":
            parts[-1] = rf"{WORD}(\.{WORD})*"
        topic = None if words[0] == "*" else words[0]
        regex = "^" + r"\.".join(parts) + "$"
        if len(regex) > REGEX_CHARACTERS_MAX:
            raise TopicError(
                f"The pattern {text[:60]!r}… has {words.count('*')} words '*', and its "
                f"regular expression {len(regex):,} characters; the limit is "
                f"{REGEX_CHARACTERS_MAX:,}. Write fewer of them: one at the end stands "
                f"for all words that follow."
            )
        return cls(text, topic, regex)

    def matches(self, name: str) -> bool:
        """Whether a message of this name is selected."""
        if self.topic is not None and topic_of(name) != self.topic:
            return False
        return self.regex is None or re.match(self.regex, name) is not None

    def overlaps(self, other: Pattern) -> bool:
        """Whether some message's name is selected by both."""
        mine, theirs = self._words(), other._words()
        return _meet(mine, theirs)

    def _words(self) -> list[str]:
        """Return its words; "**" at the end: any number of further ones, or none."""
        words = self.text.split(".")
        if words == ["*"]:
            return ["*", "**"]
        if len(words) == 1:
            return [*words, "**"]
        if words[-1] == "*":
            return [*words, "**"]
        return words


def _meet(mine: list[str], theirs: list[str]) -> bool:
    if not mine or not theirs:
        return mine in ([], ["**"]) and theirs in ([], ["**"])
    if mine[0] == "**":
        return len(theirs) == 0 or theirs[0] == "**" or _meet(mine, theirs[1:])
    if theirs[0] == "**":
        return _meet(theirs, mine)
    is_same = mine[0] == theirs[0] or "*" in (mine[0], theirs[0])
    return is_same and _meet(mine[1:], theirs[1:])


def _digits(key: int) -> str:
    """Return *key* as text; raise TopicError where Python would not write it down."""
    try:
        return str(key)
    except ValueError:
        # By its bits, which are counted at once.
        digits = int(key.bit_length() * math.log10(2)) + 1
        limit = min(KEY_CHARACTERS_MAX, sys.get_int_max_str_digits())
        raise TopicError(
            f"The key is an int of about {digits:,} digits; the limit is {limit:,} of "
            f"them. {SHORTER_KEY}"
        ) from None


def _has_surrogate(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False
