"""Plain: what is written in one call is what the walk through every value writes."""

from __future__ import annotations

import enum
from collections import OrderedDict, namedtuple
from datetime import UTC, datetime
from decimal import Decimal

from django.utils.translation import gettext_lazy
from hypothesis import given
from hypothesis import strategies as st

from django_pgqueue.tasks import walk
from django_pgqueue.tasks.walk import TAG, plain_items, plain_text

Point = namedtuple("Point", "x y")


class Colour(enum.StrEnum):
    RED = "red"


class Shouted(str, enum.Enum):  # noqa: UP042 - Its text is another.
    """Its text is not its value."""

    HELLO = "hello"

    def __new__(cls, value):
        member = str.__new__(cls, value.upper())
        member._value_ = value
        return member


class Size(enum.IntEnum):
    SMALL = 1


class Doubled(dict):
    """Says other things than it holds."""

    def items(self):
        return [(key, value * 2) for key, value in super().items()]


def walked(value):
    """Return what looking at every value gives: the text, or None for an error."""
    try:
        return walk.ENCODER.encode(walk.walked(value, 0, walk.refused))
    except walk.Unfit:
        return None
    except ValueError:  # Of an int that Python does not write.
        return None


# All that the two could see differently: NUL and half characters, texts that look like
# what is searched for, huge and odd numbers, subclasses, keys that are no text.
TEXTS = st.text() | st.sampled_from(
    ["\x00", "\ud800", "\\u0000", "\\\x00", "1e+16", TAG, f'"{TAG}"', "\u2028", "é"]
)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | TEXTS
    | st.sampled_from([1e16, -1e16, 9999999999999998.0, 1e-7, -0.0])
    | st.integers(4_299, 4_301).map(lambda zeros: 10**zeros)
)
ODD = st.sampled_from(
    [Colour.RED, Shouted.HELLO, Size.SMALL, Point(1, "a"), Doubled(a=1), Decimal(1)]
) | st.sampled_from(
    [b"a", datetime(2050, 1, 1, tzinfo=UTC), gettext_lazy("x"), OrderedDict(a=1), {1}]
)
KEYS = TEXTS | st.integers() | st.none() | st.booleans() | st.just(Colour.RED)
VALUES = st.recursive(
    SCALARS | ODD,
    lambda inner: (
        st.lists(inner)
        | st.lists(inner).map(tuple)
        | st.dictionaries(TEXTS, inner)
        | st.dictionaries(KEYS, inner)
    ),
    max_leaves=8,
)


@given(VALUES)
def test_the_short_way_writes_what_the_long_way_writes(value):
    """The same text, or nothing, so that the long way is asked."""
    assert plain_text(value) in (None, walked(value))


FEW = st.lists(VALUES, max_size=3) | st.dictionaries(KEYS, VALUES, max_size=3)


@given(st.lists(FEW, min_size=1, max_size=4))
def test_items_together_are_what_they_are_alone(items):
    """With commas between, and never one that cannot travel."""
    together = plain_items(items)

    if together is not None:
        assert together == ",".join(map(walked, items))


def test_what_holds_itself_ends():
    """Also where it does so twice, which doubles at each level."""
    once, twice = [], {}
    once.append(once)
    twice.update(a=twice, b=twice)

    assert (None, None) == (plain_text(once), plain_text(twice))
