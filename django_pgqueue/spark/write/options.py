"""
Options: what .option(…) of a write may say, checked before anything is written.

As for reading, there is none for a DSN.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from urllib.parse import urlsplit

from django_pgqueue.bounds import (
    ATTEMPTS_MAX,
    LANE_BURST_MAX,
    LANE_CAPACITY_MAX,
    LANE_CHARACTERS_MAX,
    LANE_SPACING_MAX,
    LANE_SPACING_MIN,
    PAYLOAD_BYTES_DEFAULT,
    PRIORITY_MAX,
    PRIORITY_MIN,
    QUEUE_NAME,
    TASK_NAME_MAX,
    TIME_MAX,
    TIME_MIN,
)
from django_pgqueue.exceptions import SparkOptionError
from django_pgqueue.spark.dsn import DsnSource
from django_pgqueue.spark.options import check_names, dsn_source, number, optional
from django_pgqueue.spark.spread import key_columns
from django_pgqueue.spark.write.marks import check_headers, check_tags

KNOWN = (
    "task",
    "queue",
    "priority",
    "runAt",
    "expiresAt",
    "maxAttempts",
    "tags",
    "headers",
    "lane",
    "laneBy",
    "laneCapacity",
    "laneSpacing",
    "laneBurst",
    "lanePolicy",
    "argsColumn",
    "kwargsColumn",
    "name",
    "refusedPath",
    "payloadBytesMax",
    "stageSchema",
    "dsnEnv",
    "dsnFile",
)

LANE_POLICIES = ("skip", "dead-letter", "fair")

# jsonb's own limit for one string; as PGQUEUE["PAYLOAD_BYTES_MAX"] has it.
PAYLOAD_BYTES_LEAST, PAYLOAD_BYTES_MOST = 128, 268_435_455

NAME_CHARACTERS_MAX = 100
IDENTIFIER_BYTES_MAX = 63


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """What one write was asked for."""

    # What all its jobs have, by the column of pgqueue_job, as text for COPY.
    constants: Mapping[str, str] = field(default_factory=dict)
    tags: tuple[str, ...] = ()
    headers: Mapping[str, Any] = field(default_factory=dict)
    # Columns of the DataFrame whose values make each row's lane, after its task.
    lane_by: tuple[str, ...] = ()
    # None: the columns args and kwargs where the DataFrame has them.
    args_column: str | None = None
    kwargs_column: str | None = None
    # A second write of the same name is refused once the first has been committed.
    name: str | None = None
    # Where refused rows are written; None: one of them fails the write.
    refused_path: str | None = None
    # Of the arguments of a job, as JSON.
    payload_bytes_max: int = PAYLOAD_BYTES_DEFAULT
    # Where stages are made; None: beside the table of the jobs.
    stage_schema: str | None = None
    dsn: DsnSource = field(default_factory=DsnSource)


def parse(options: Mapping[str, str]) -> WriteOptions:
    """
    Read the options of one write.

    Raises:
        SparkOptionError: An unknown option, or a value that cannot be; with the
            nearest known one.
    """
    given = {str(key).casefold(): value for key, value in options.items()}
    check_names(given, KNOWN)
    constants = {
        column: optional(given, option.casefold(), read)
        for option, column, read in (
            ("task", "task", _task),
            ("queue", "queue", _queue),
            ("priority", "priority", _priority),
            ("maxAttempts", "max_attempts", _max_attempts),
            ("runAt", "run_after", lambda text: _moment("runAt", text)),
            ("expiresAt", "expires_at", lambda text: _moment("expiresAt", text)),
            ("lane", "lane", _lane),
            ("laneCapacity", "lane_capacity", _lane_capacity),
            ("laneSpacing", "lane_spacing", _lane_spacing),
            ("laneBurst", "lane_burst", _lane_burst),
            ("lanePolicy", "lane_policy", _lane_policy),
        )
    }
    return WriteOptions(
        constants={key: text for key, text in constants.items() if text is not None},
        tags=optional(given, "tags", _tags) or (),
        headers=optional(given, "headers", _headers) or {},
        lane_by=optional(given, "laneby", lambda text: key_columns(text, "laneBy"))
        or (),
        args_column=given.get("argscolumn"),
        kwargs_column=given.get("kwargscolumn"),
        name=optional(given, "name", _name),
        refused_path=optional(given, "refusedpath", _path),
        payload_bytes_max=optional(given, "payloadbytesmax", _payload_bytes)
        or PAYLOAD_BYTES_DEFAULT,
        stage_schema=optional(given, "stageschema", _schema),
        dsn=dsn_source(given),
    )


def problem_of_task(name: str) -> str | None:
    """Return why no task can have this name, or None."""
    if 1 <= len(name) <= TASK_NAME_MAX and "\x00" not in name:
        return None
    return f"task has {len(name)} characters; its name has 1 to {TASK_NAME_MAX}"


def problem_of_queue(name: str) -> str | None:
    """Return why no queue can have this name, or None."""
    if QUEUE_NAME.fullmatch(name):
        return None
    return (
        f"queue is {name[:80]!r}; a queue name has 1 to 63 characters: letters, "
        f"digits, '_', '.' and '-', the first no '.' or '-'"
    )


def problem_of_lane(name: str) -> str | None:
    """Return why no lane can have this name, or None."""
    if 1 <= len(name) <= LANE_CHARACTERS_MAX and "\x00" not in name:
        return None
    return f"lane has {len(name)} characters; its name has 1 to {LANE_CHARACTERS_MAX}"


def problem_of_policy(name: str) -> str | None:
    """Return why a lane has no such policy, or None."""
    if name in LANE_POLICIES:
        return None
    return f"lane_policy is {name[:40]!r}; it must be one of {', '.join(LANE_POLICIES)}"


def _lane(text: str) -> str:
    return _checked("lane", text, problem_of_lane(text))


def _lane_policy(text: str) -> str:
    return _checked("lanePolicy", text, problem_of_policy(text))


def _lane_capacity(text: str) -> str:
    return str(number("laneCapacity", text, 1, LANE_CAPACITY_MAX))


def _lane_burst(text: str) -> str:
    return str(number("laneBurst", text, 1, LANE_BURST_MAX))


def _lane_spacing(text: str) -> str:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not LANE_SPACING_MIN <= seconds <= LANE_SPACING_MAX:
        raise SparkOptionError(
            f"The option laneSpacing is {text[:40]!r}; it must be seconds, "
            f"{LANE_SPACING_MIN:f} to {LANE_SPACING_MAX:,}."
        )
    return repr(seconds)


def _task(text: str) -> str:
    return _checked("task", text, problem_of_task(text))


def _queue(text: str) -> str:
    return _checked("queue", text, problem_of_queue(text))


def _checked(name: str, text: str, problem: str | None) -> str:
    if problem is not None:
        raise SparkOptionError(f"The option {name}: {problem}.")
    return text


def _priority(text: str) -> str:
    return str(number("priority", text, PRIORITY_MIN, PRIORITY_MAX))


def _max_attempts(text: str) -> str:
    return str(number("maxAttempts", text, 1, ATTEMPTS_MAX))


def _payload_bytes(text: str) -> int:
    return number("payloadBytesMax", text, PAYLOAD_BYTES_LEAST, PAYLOAD_BYTES_MOST)


def _moment(name: str, text: str) -> str:
    try:
        moment = datetime.fromisoformat(text)
        is_good = moment.tzinfo is not None and TIME_MIN <= moment <= TIME_MAX
    except (ValueError, OverflowError):
        is_good = False
    if not is_good:
        raise SparkOptionError(
            f"The option {name} is {text[:40]!r}; it must be a time of the years 1900 "
            f"to 9000 with its offset, such as 2026-03-01T09:00:00+00:00."
        )
    return moment.isoformat()


def _tags(text: str) -> tuple[str, ...]:
    tags = [tag.strip() for tag in text.split(",")]
    problem = check_tags(tags)
    if problem is not None:
        raise SparkOptionError(f"The option tags: {problem}.")
    return tuple(dict.fromkeys(tags))


def _headers(text: str) -> dict[str, Any]:
    try:
        headers = json.loads(text)
    except ValueError:
        headers = None
    problem = "it must be a JSON object"
    if isinstance(headers, dict):
        found = check_headers(headers)
        if found is None:
            return headers
        problem = found
    raise SparkOptionError(f"The option headers: {problem}.")


def _name(text: str) -> str:
    if not 1 <= len(text) <= NAME_CHARACTERS_MAX or not text.isprintable():
        raise SparkOptionError(
            f"The option name has {len(text)} characters; it must have 1 to "
            f"{NAME_CHARACTERS_MAX}, all printable."
        )
    return text


def _path(text: str) -> str:
    parts = urlsplit(text)
    if parts.password is not None:
        raise SparkOptionError(
            "The option refusedPath has a password in it, and options are shown in "
            "Spark's UI: give the executors their credentials by their environment."
        )
    if not parts.scheme and not text.startswith("/"):
        raise SparkOptionError(
            f"The option refusedPath is {text[:80]!r}; it must be a whole path, or an "
            f"address such as file:///… or s3://…, that the driver and all executors "
            f"see."
        )
    return text.rstrip("/")


def _schema(text: str) -> str:
    if not text or len(text.encode()) > IDENTIFIER_BYTES_MAX or "\x00" in text:
        raise SparkOptionError(
            f"The option stageSchema is {text[:80]!r}; it must be the name of a "
            f"schema, of up to {IDENTIFIER_BYTES_MAX} bytes."
        )
    return text
