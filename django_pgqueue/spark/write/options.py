"""Options: what .option(…) of a write may say, checked before anything is written."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from django_pgqueue import bounds
from django_pgqueue.exceptions import InvalidOption, SparkOptionError, raised_as
from django_pgqueue.log.names import check_name
from django_pgqueue.log.start import EARLIEST
from django_pgqueue.options.marks import check_headers, check_tags
from django_pgqueue.spark.dsn import DsnSource
from django_pgqueue.spark.option_table import (
    WHERE,
    Option,
    Whole,
    Word,
    as_given,
    key_columns,
    moment,
    read,
)

# Of a write of messages; all others place jobs.
OF_MESSAGES = (
    *("topic", "receiver", "backfill", "headers", "runAt", "encoded", "perSecond"),
    *("name", "refusedPath", "payloadBytesMax", "stageSchema", "dsnEnv", "dsnFile"),
)

# What needs another one, and what cannot stand beside another one; with why.
NEEDS = (
    ("receiver", "topic", "whose messages the rows are."),
    ("backfill", "receiver", "whose history the rows are."),
)
APART = (
    *(
        ("receiver", name, "the messages stay what they were.")
        for name in ("headers", "runAt")
    ),
    *(
        ("encoded", name, "what comes as the queue has it stays so.")
        for name in ("headers", "tags")
    ),
    ("runAt", "perSecond", "drop one of them."),
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
    # Rows are messages of the topic in constants["name"]; to whom alone, None: to all
    # who subscribe to it or read it.
    receiver: str | None = None
    # It begins with history: up to which id that comes from the rows, and where it
    # begins, "earliest" or a moment.
    backfill: tuple[int, str] | None = None
    # JSON in columns is as tables of the queue have it.
    is_encoded: bool = False
    # How many are due a second; None: all at once.
    per_second: int | None = None
    # A second write of the same name is refused once the first has been committed.
    name: str | None = None
    # Where refused rows are written; None: one of them fails the write.
    refused_path: str | None = None
    # Of the arguments of a job, as JSON.
    payload_bytes_max: int = bounds.PAYLOAD_BYTES_DEFAULT
    # Where stages are made; None: beside the table of the jobs.
    stage_schema: str | None = None
    dsn: DsnSource = field(default_factory=DsnSource)

    @property
    def is_messages(self) -> bool:
        """Whether rows are messages, and no jobs."""
        return "name" in self.constants


def parse(options: Mapping[str, str]) -> WriteOptions:
    """
    Read the options of one write.

    Raises:
        SparkOptionError: An unknown option, or a value that cannot be; with the
            nearest known one.
    """
    given = read(WRITES, options)
    _check_together({str(name).casefold() for name in options})
    if "receiver" in given:
        given["is_encoded"] = True
    columns = [option.field for option in WRITES if option.of == COLUMN]
    constants = {name: str(given.pop(name)) for name in columns if name in given}
    return WriteOptions(
        constants=constants, name=given.pop("write_name", None), **given
    )


def _check_together(given: set[str]) -> None:
    """Raise SparkOptionError for options that say nothing together."""
    of_messages = {name.casefold() for name in OF_MESSAGES}
    wrong = sorted(given - of_messages)
    if "topic" in given and wrong:
        raise SparkOptionError(
            f"The options topic and {wrong[0]} cannot go together: messages are no "
            f"jobs. They take {', '.join(OF_MESSAGES)}."
        )
    for name, needed, why in NEEDS:
        if name in given and needed not in given:
            raise SparkOptionError(
                f"The option {name} needs the option {needed}: {why}"
            )
    for name, other, why in APART:
        if {name.casefold(), other.casefold()} <= given:
            raise SparkOptionError(
                f"The options {name} and {other} cannot go together: {why}"
            )


def problem_of(what: str, most: int) -> Callable[[str], str | None]:
    """Return what says why a name cannot be: it has 1 to *most* characters."""

    def problem(name: str) -> str | None:
        if 1 <= len(name) <= most and "\x00" not in name:
            return None
        return f"{what} has {len(name)} characters; its name has 1 to {most}"

    return problem


problem_of_task = problem_of("task", bounds.TASK_NAME_MAX)
problem_of_lane = problem_of("lane", bounds.LANE_CHARACTERS_MAX)


def problem_of_queue(name: str) -> str | None:
    """Return why no queue can have this name, or None."""
    if bounds.QUEUE_NAME.fullmatch(name):
        return None
    return (
        f"queue is {name[:80]!r}; a queue name has 1 to 63 characters: letters, "
        f"digits, '_', '.' and '-', the first no '.' or '-'"
    )


def _checked(check: Callable[[str], Any]) -> Callable[[str, str], Any]:
    """Return what takes a text as *check* does, whose errors then name the option."""

    def read_text(name: str, text: str) -> Any:
        with raised_as(SparkOptionError, f"The option {name}: "):
            return check(text)

    return read_text


def _named(problem_of: Callable[[str], str | None]) -> Callable[[str, str], str]:
    """Return what takes a text of which *problem_of* knows nothing bad."""

    def check(text: str) -> str:
        problem = problem_of(text)
        if problem is not None:
            raise InvalidOption(f"{problem}.")
        return text

    return _checked(check)


def _flag(name: str, text: str) -> bool:
    return Word(("true", "false"))(name, text.casefold()) == "true"


def _backfill(name: str, text: str) -> tuple[int, str]:
    removed_to, _, start = text.partition(" ")
    if start != EARLIEST:
        moment(name, start)
    return Whole(0, 2**63 - 1)(name, removed_to), start


def _lane_spacing(name: str, text: str) -> str:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not bounds.LANE_SPACING_MIN <= seconds <= bounds.LANE_SPACING_MAX:
        raise SparkOptionError(
            f"The option {name} is {text[:40]!r}; it must be seconds, "
            f"{bounds.LANE_SPACING_MIN:f} to {bounds.LANE_SPACING_MAX:,}."
        )
    return repr(seconds)


def _moment(name: str, text: str) -> str:
    return moment(name, text).isoformat()


def _tags(text: str) -> tuple[str, ...]:
    return check_tags([tag.strip() for tag in text.split(",")])


def _headers(text: str) -> dict[str, Any]:
    return dict(check_headers(json.loads(text)))


def _name(name: str, text: str) -> str:
    if not 1 <= len(text) <= NAME_CHARACTERS_MAX or not text.isprintable():
        raise SparkOptionError(
            f"The option {name} has {len(text)} characters; it must have 1 to "
            f"{NAME_CHARACTERS_MAX}, all printable."
        )
    return text


def _path(name: str, text: str) -> str:
    parts = urlsplit(text)
    if parts.password is not None:
        raise SparkOptionError(
            f"The option {name} has a password in it, and options are shown in "
            "Spark's UI: give the executors their credentials by their environment."
        )
    if not parts.scheme and not text.startswith("/"):
        raise SparkOptionError(
            f"The option {name} is {text[:80]!r}; it must be a whole path, or an "
            f"address such as file:///… or s3://…, that the driver and all executors "
            f"see."
        )
    return text.rstrip("/")


def _schema(name: str, text: str) -> str:
    if not text or len(text.encode()) > IDENTIFIER_BYTES_MAX or "\x00" in text:
        raise SparkOptionError(
            f"The option {name} is {text[:80]!r}; it must be the name of a "
            f"schema, of up to {IDENTIFIER_BYTES_MAX} bytes."
        )
    return text


# What all jobs of the write have, in the column of that name.
COLUMN = "column"

WRITES = (
    Option("task", "task", _named(problem_of_task), of=COLUMN),
    Option("topic", "name", _checked(check_name), of=COLUMN),
    Option("receiver", "receiver", as_given),
    Option("backfill", "backfill", _backfill),
    Option("queue", "queue", _named(problem_of_queue), of=COLUMN),
    Option(
        "priority",
        "priority",
        Whole(bounds.PRIORITY_MIN, bounds.PRIORITY_MAX),
        of=COLUMN,
    ),
    Option("runAt", "run_after", _moment, of=COLUMN),
    Option("expiresAt", "expires_at", _moment, of=COLUMN),
    Option("maxAttempts", "max_attempts", Whole(1, bounds.ATTEMPTS_MAX), of=COLUMN),
    Option("tags", "tags", _checked(_tags)),
    Option("headers", "headers", _checked(_headers)),
    Option("lane", "lane", _named(problem_of_lane), of=COLUMN),
    Option("laneBy", "lane_by", key_columns),
    Option(
        "laneCapacity", "lane_capacity", Whole(1, bounds.LANE_CAPACITY_MAX), of=COLUMN
    ),
    Option("laneSpacing", "lane_spacing", _lane_spacing, of=COLUMN),
    Option("laneBurst", "lane_burst", Whole(1, bounds.LANE_BURST_MAX), of=COLUMN),
    Option("lanePolicy", "lane_policy", Word(LANE_POLICIES), of=COLUMN),
    Option("argsColumn", "args_column", as_given),
    Option("kwargsColumn", "kwargs_column", as_given),
    Option("encoded", "is_encoded", _flag),
    Option("perSecond", "per_second", Whole(1, bounds.PER_SECOND_MAX)),
    Option("name", "write_name", _name),
    Option("refusedPath", "refused_path", _path),
    Option(
        "payloadBytesMax",
        "payload_bytes_max",
        Whole(PAYLOAD_BYTES_LEAST, PAYLOAD_BYTES_MOST),
    ),
    Option("stageSchema", "stage_schema", _schema),
    *WHERE,
)
