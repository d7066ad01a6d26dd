"""Durations and sizes: numbers with a unit, as people write them."""

from __future__ import annotations

import re
from datetime import timedelta

from django_pgqueue.bounds import RATE_JOBS_MAX
from django_pgqueue.exceptions import shown

DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d|w)", re.ASCII)
UNIT_SECONDS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}

RATE = re.compile(r"(\d{1,9})\s*/\s*(.+)", re.ASCII | re.DOTALL)

SIZE = re.compile(
    r"(\d{1,15}(?:\.\d{1,15})?)\s*(B|kB|MB|GB|TB|KiB|MiB|GiB|TiB)",
    re.ASCII | re.IGNORECASE,
)
UNIT_BYTES = {
    "b": 1,
    "kb": 1_000,
    "mb": 1_000_000,
    "gb": 1_000_000_000,
    "tb": 1_000_000_000_000,
    "kib": 1_024,
    "mib": 1_048_576,
    "gib": 1_073_741_824,
    "tib": 1_099_511_627_776,
}

# The longest duration accepted anywhere: ten years. Longer ones are typing errors,
# and PostgreSQL would refuse the sum of now and a few more of them.
DURATION_MAX = timedelta(days=3_653)

SECONDS_MAX = int(DURATION_MAX.total_seconds())

Duration = timedelta | int | float | str


def as_timedelta(value: Duration, *, name: str, zero: bool = True) -> timedelta:
    """
    Turn seconds, a timedelta or text such as "5m" into a timedelta.

    Args:
        value: Seconds as a number, a timedelta, or digits with one of the units
            ms, s, m, h, d, w.
        name: What the value is, for the error.
        zero: Whether a duration of zero is allowed.

    Raises:
        ValueError: Not a duration, negative, not finite, or beyond ten years.
    """
    try:
        repr(value)
    except Exception:
        # Of 5,000 digits, or of an object whose __repr__ raises.
        raise ValueError(
            f"{name} is a {type(value).__qualname__} that cannot be shown; the "
            f"longest duration is {DURATION_MAX.days} d."
        ) from None
    if isinstance(value, timedelta):
        result = value
    elif isinstance(value, str):
        match = DURATION.fullmatch(value.strip())
        if match is None:
            raise ValueError(
                f"{name} is {value!r}, which is no duration: write seconds, a "
                f"timedelta, or text such as '90s', '5m', '24h', '7d'."
            )
        result = _seconds(float(match[1]) * UNIT_SECONDS[match[2]], name, value)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        result = _seconds(value, name, value)
    else:
        raise ValueError(
            f"{name} is {value!r}, which is no duration: write seconds, a timedelta, "
            f"or text such as '90s', '5m', '24h', '7d'."
        )
    if result < timedelta(0) or (not zero and not result):
        raise ValueError(
            f"{name} is {value!r}; it must be {'zero or ' if zero else ''}longer "
            f"than zero."
        )
    if result > DURATION_MAX:
        raise ValueError(f"{name} is {value!r}; the longest is {DURATION_MAX.days} d.")
    return result


def as_rate(value: object, *, name: str) -> tuple[int, timedelta]:
    """
    Read a rate such as "100/m": how many, and in which time.

    Args:
        value: "N/period"; a period is a duration as text, or its unit alone.
        name: What it is, for the error.

    Raises:
        ValueError: It is no rate, N is not from 1 to RATE_JOBS_MAX, or the period is no
            duration longer than zero.
    """
    match = RATE.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None:
        raise ValueError(
            f"{name}={shown(value)}: it must be text 'N/period', such as '1/h' or "
            f"'10/15m'."
        )
    jobs, period = int(match[1]), match[2].strip()
    if not 1 <= jobs <= RATE_JOBS_MAX:
        raise ValueError(
            f"{name}={shown(value)}: 1 to {RATE_JOBS_MAX:,} jobs a period."
        )
    if period in UNIT_SECONDS:
        period = f"1{period}"
    return jobs, as_timedelta(period, name=f"the period of {name}", zero=False)


def as_bytes(text: str, *, name: str) -> int:
    """
    Read a size such as "512MB".

    Args:
        text: A number and one of the units B, kB, MB, GB, TB (powers of 1000), KiB,
            MiB, GiB, TiB (powers of 1024); in any case.
        name: What it is, for the error.

    Raises:
        ValueError: It is no size.
    """
    match = SIZE.fullmatch(text.strip())
    if match is None:
        raise ValueError(
            f"{name} is {text!r}, which is no size: write a number of bytes, or text "
            f"such as '512MB' (of 1000 kB), '512MiB' (of 1024 KiB), '2GB'."
        )
    return int(float(match[1]) * UNIT_BYTES[match[2].lower()])


def as_bytes_within(value: object, *, name: str, least: int, most: int) -> int:
    """
    Read a size that is a number of bytes, or text as as_bytes() reads it.

    Args:
        value: The number, or the text.
        name: What it is, for the error.
        least: The smallest that is accepted.
        most: The largest.

    Raises:
        ValueError: It is no size, or beyond these.
    """
    size = as_bytes(value, name=name) if isinstance(value, str) else value
    if isinstance(size, bool) or not isinstance(size, int) or not least <= size <= most:
        raise ValueError(
            f"{name} is {shown(value)}; it must be from {least:,} to {most:,} bytes, "
            f"or text such as '4MB'."
        )
    return size


def _seconds(seconds: float, name: str, value: object) -> timedelta:
    # Compared before anything else: a huge int has no float.
    if not -SECONDS_MAX <= seconds <= SECONDS_MAX:
        raise ValueError(f"{name} is {value!r}; the longest is {DURATION_MAX.days} d.")
    return timedelta(seconds=seconds)
