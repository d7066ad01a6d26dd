"""
Offset: the moment of a job within a window, from its task and key alone.

It is a number made of SHA-256, so it is the same on every run and machine, in Python,
in PostgreSQL (queues/enqueue_rows.py) and in Spark (spark/fanout.py). Two tasks have
different offsets for the same key, so that their fan-outs do not coincide.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from hashlib import sha256

# A year: what is due later than that is a schedule, and no fan-out.
OVER_DAYS_MAX = 366

# Values that make one key.
KEY_VALUES_MAX = 10

# Between the texts that are hashed: a character that keys do not have.
SEPARATOR = "\x1f"

# Hexadecimal digits of the hash: 60 bits, which fit in a bigint.
DIGITS = 15

MICROSECOND = timedelta(microseconds=1)


def offset(task: str, key: Sequence[object], over: timedelta) -> timedelta:
    """
    Return how long after the start of a window a job is due: 0 or more, below *over*.

    Args:
        task: The name of the task.
        key: What the job is about: texts, whole numbers, dates, booleans.
        over: The window.
    """
    texts = [_text(value) for value in key]
    return offset_microseconds(task, texts, over // MICROSECOND) * MICROSECOND


def offset_microseconds(task: str, texts: Sequence[str], over_microseconds: int) -> int:
    """Return the same in microseconds, of values that are texts already."""
    digest = sha256(SEPARATOR.join((task, *texts)).encode()).hexdigest()
    return int(digest[:DIGITS], 16) % over_microseconds


def _text(value: object) -> str:
    """Return *value* as Spark casts it to a string."""
    return str(value).lower() if isinstance(value, bool) else str(value)
