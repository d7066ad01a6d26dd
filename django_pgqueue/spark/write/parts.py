"""
Parts: what a job or a message is made of, and the column of the DataFrame that says it.

A column that has the name of a part is that. docs/reference/spark-write.md has the same
list, and a test holds one to the other.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from django_pgqueue import bounds
from django_pgqueue.exceptions import SparkOptionError, did_you_mean
from django_pgqueue.log import names as of_log
from django_pgqueue.spark.write.options import (
    LANE_POLICIES,
    WriteOptions,
    problem_of_lane,
    problem_of_queue,
    problem_of_task,
)
from django_pgqueue.spark.write.texts import (
    Texts,
    is_text,
    keys,
    moments,
    names,
    numbers,
    problem_of_type,
)

# What the right types are called by Arrow, and what they are, in words.
Kind = tuple[str, str]


def _problem_of_policy(name: str) -> str | None:
    if name in LANE_POLICIES:
        return None
    return f"lane_policy is {name[:40]!r}; it must be one of {', '.join(LANE_POLICIES)}"


STRING, INTEGER = r"(large_)?string", r"u?int\d+"
TEXT: Kind = (STRING, "a string")
WHOLE: Kind = (INTEGER, "a whole number")
REAL: Kind = (rf"{INTEGER}|halffloat|float|double|decimal\d+\(.*", "a number")
KEY: Kind = (f"{STRING}|{INTEGER}", "a string or a whole number")
MOMENT: Kind = (
    r"timestamp\[\w+, tz=.*",
    "a timestamp with a time zone: cast it to timestamp",
)
TAGS: Kind = (rf"(large_)?list<[^:]*: {STRING}\b.*", "an array of strings")
ARRAY: Kind = (rf"(large_)?list<.*|{STRING}", "an array or a string of JSON")
OBJECT: Kind = (f"(struct|map)<.*|{STRING}", "a struct, a map or a string of JSON")
ANY: Kind = (".*", "")
# Of the columns that laneBy names.
LANE_KEY: Kind = (
    rf"{STRING}|{INTEGER}|date\d+\[.*|bool",
    "a string, a whole number, a date or a boolean: cast it to a string",
)


@dataclass(frozen=True, slots=True)
class Part:
    """
    A part of a job or a message.

    Attributes:
        name: What its column is called.
        sql: Its type in PostgreSQL.
        kind: What its column must be.
        texts: Makes texts of it; None: it is JSON.
        null: What a NULL is; None: NULL.
        is_needed: A NULL is refused.
        column: That of PostgreSQL, where it is called otherwise.
    """

    name: str
    sql: str
    kind: Kind
    texts: Texts | None = None
    null: str | None = None
    is_needed: bool = False
    column: str = ""

    @property
    def stored(self) -> str:
        """The column of PostgreSQL that has it."""
        return self.column or self.name


LANE_PARTS = (
    Part("lane_capacity", "integer", WHOLE, numbers(1, bounds.LANE_CAPACITY_MAX)),
    Part(
        "lane_spacing",
        "float8",
        REAL,
        numbers(
            bounds.LANE_SPACING_MIN,
            bounds.LANE_SPACING_MAX,
            "float64",
            f"seconds, {bounds.LANE_SPACING_MIN:f} to {bounds.LANE_SPACING_MAX:,}",
        ),
    ),
    Part("lane_burst", "integer", WHOLE, numbers(1, bounds.LANE_BURST_MAX)),
    Part("lane_policy", "text", TEXT, names(_problem_of_policy)),
)
# What a lane takes, by its column: the options.
OF_LANE = {
    "lane_capacity": "laneCapacity",
    "lane_spacing": "laneSpacing",
    "lane_burst": "laneBurst",
    "lane_policy": "lanePolicy",
}


def _by_name(*parts: Part) -> Mapping[str, Part]:
    return {part.name: part for part in parts}


JOB = _by_name(
    Part("task", "text", TEXT, names(problem_of_task), is_needed=True),
    Part("queue", "text", TEXT, names(problem_of_queue), null=bounds.QUEUE_DEFAULT),
    Part("args", "jsonb", ARRAY),
    Part("kwargs", "jsonb", OBJECT),
    Part("headers", "jsonb", OBJECT),
    Part("tags", "jsonb", TAGS, column="headers"),
    Part(
        "priority",
        "smallint",
        WHOLE,
        numbers(bounds.PRIORITY_MIN, bounds.PRIORITY_MAX),
        null=str(bounds.PRIORITY_DEFAULT),
    ),
    Part(
        "max_attempts",
        "smallint",
        WHOLE,
        numbers(1, bounds.ATTEMPTS_MAX),
        null=str(bounds.ATTEMPTS_DEFAULT),
    ),
    Part("run_at", "timestamptz", MOMENT, moments, column="run_after"),
    Part("expires_at", "timestamptz", MOMENT, moments),
    Part("dedup_key", "text", TEXT, keys(bounds.KEY_CHARACTERS_MAX)),
    Part("lane", "text", TEXT, names(problem_of_lane)),
    *LANE_PARTS,
)

# The name is checked with the topic, in rows.py.
MESSAGE = _by_name(
    Part("name", "text", TEXT, is_needed=True),
    Part("key", "text", KEY, keys(of_log.KEY_CHARACTERS_MAX)),
    Part("payload", "jsonb", ANY),
    Part("headers", "jsonb", OBJECT),
    Part("run_at", "timestamptz", MOMENT, moments, column="run_after"),
    Part("id", "bigint", WHOLE, numbers(0, 2**63 - 1), is_needed=True),
    Part("published_at", "timestamptz", MOMENT, moments, is_needed=True),
    Part("partition", "smallint", WHOLE, numbers(0, 2**15 - 1), is_needed=True),
)

# What a message of a log has, and a job of it refers to.
OF_LOG = ("id", "name", "key", "payload", "headers", "published_at", "partition")

# Columns of PostgreSQL, with their types.
JOB_TYPES = {part.stored: part.sql for part in JOB.values()}
MESSAGE_TYPES = {part.stored: part.sql for part in MESSAGE.values()}


# Columns ----------------------------------------------------------------------------
# A column that has the name of a part, in parts.py, is that. All others are keyword
# arguments, or fields of the payload, unless there is a column of all these; then there
# may be no others, so that nothing is left out by accident.

# The added column of rows that are written aside.
REASON = "refused_reason"


@dataclass(frozen=True, slots=True)
class Columns:
    """Where each part of a job or a message is found in the DataFrame."""

    # The column of a part, by the part's name.
    found: Mapping[str, str]
    # Columns that are a keyword argument, or a field of the payload, each.
    fields: tuple[str, ...]


def plan(schema: Any, options: WriteOptions) -> Columns:
    """
    Return where each part of a job or a message is found in a pyarrow.Schema.

    Raises:
        SparkOptionError: The columns and the options do not make jobs, or messages.
    """
    names: list[str] = schema.names
    _check_unique(names, options)
    found = (
        _of_messages(names, options)
        if options.is_messages
        else _of_jobs(names, options)
    )
    fields = tuple(name for name in names if name not in found.values())
    whole = [found[name] for name in ("args", "kwargs", "payload") if name in found]
    if fields and whole:
        raise SparkOptionError(
            f"With the column {' and '.join(whole)}, {', '.join(fields)} would be left "
            f"out: drop it, or put it in there.{did_you_mean(fields[0], list(found))}"
        )
    if options.is_messages and not fields and not whole:
        raise SparkOptionError("There is no column payload, and none to make it of.")
    _check_given_once(found, options)
    if not options.is_messages:
        _check_lane(found, options)
        for name in options.lane_by:
            _column_of("laneBy", name, names)
            _check_kind(schema, name, LANE_KEY)
    parts = MESSAGE if options.is_messages else JOB
    for name, column in found.items():
        _check_kind(schema, column, parts[name].kind)
    json = [found[n] for n in ("args", "kwargs", "payload", "headers") if n in found]
    if options.is_encoded:
        _check_encoded(schema, json, (*fields, *{"tags"} & found.keys()))
    for name in (*fields, *json):
        problem = problem_of_type(schema.field(name).type)
        if problem is not None:
            raise SparkOptionError(f"Column {name} {problem}.")
    return Columns(found, fields)


def arrow_schema(schema: Any) -> Any:
    """Return a pyspark StructType as Spark hands it to a writer."""
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(schema, timezone="UTC")


def _of_jobs(names: list[str], options: WriteOptions) -> dict[str, str]:
    found = {name: name for name in JOB if name in names}
    for part, option, column in (
        ("args", "argsColumn", options.args_column),
        ("kwargs", "kwargsColumn", options.kwargs_column),
    ):
        if column is not None:
            found[part] = _column_of(option, column, names)
    if "task" not in found and "task" not in options.constants:
        raise SparkOptionError(
            "Which task? Give the option task, or a column of that name."
        )
    return found


def _of_messages(names: list[str], options: WriteOptions) -> dict[str, str]:
    known = ["payload", "name", "key", "headers", "run_at"]
    if "payload" in names:
        known.append("id")
    if options.receiver is not None:
        known = list(OF_LOG)
        missing = [name for name in known if name not in names]
        if missing:
            raise SparkOptionError(
                f"The option receiver is for messages of a log, as the table log and "
                f"the files of the pipeline job ingest have them: there is no column "
                f"{', '.join(missing)}."
            )
    return {name: name for name in known if name in names}


def _check_unique(names: list[str], options: WriteOptions) -> None:
    """Raise SparkOptionError where two columns have one name, or would have."""
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise SparkOptionError(f"There are two columns named {min(twice)}.")
    if REASON in names and options.refused_path is not None:
        raise SparkOptionError(
            f"Column {REASON} has the name of the one that refusedPath adds to "
            f"refused rows: drop or rename it."
        )


def _column_of(option: str, name: str, names: list[str]) -> str:
    if name not in names:
        raise SparkOptionError(
            f"The option {option} names {name!r}, which is no column."
            f"{did_you_mean(name, names)}"
        )
    return name


def _check_kind(schema: Any, name: str, kind: Kind) -> None:
    pattern, wanted = kind
    found = str(schema.field(name).type)
    if not re.fullmatch(pattern, found, re.DOTALL):
        raise SparkOptionError(
            f"Column {name} is of the type {found}; it must be {wanted}."
        )


def _check_encoded(schema: Any, json: Iterable[str], others: Iterable[str]) -> None:
    """Raise SparkOptionError unless all JSON comes as the queue's tables have it."""
    for name in json:
        if not is_text(schema.field(name).type):
            raise SparkOptionError(
                f"Column {name} is of the type {schema.field(name).type}; with "
                f"encoded it must be a string of JSON, as the queue's tables have it."
            )
    for name in others:
        raise SparkOptionError(
            f"Column {name} and the option encoded cannot go together: arguments are "
            f"in the columns args and kwargs, what is published in payload, and tags "
            f"in the headers."
        )


def _check_given_once(found: Mapping[str, str], options: WriteOptions) -> None:
    """Raise SparkOptionError for a column that an option says as well."""
    for name in found:
        constant = "run_after" if name == "run_at" else name
        # The option topic says whose messages the names are.
        if constant in options.constants and name != "name":
            whole = "payload" if options.is_messages else "kwargs"
            raise SparkOptionError(
                f"There is a column {name}, and an option for it: drop one of them. "
                f"An argument of that name goes into a struct column {whole}."
            )
    if "run_at" in found and options.per_second:
        raise SparkOptionError(
            "There is a column run_at, and the option perSecond: drop one of them."
        )


def _check_lane(found: Mapping[str, str], options: WriteOptions) -> None:
    said = [
        told
        for told, is_said in (
            ("a column lane", "lane" in found),
            ("the option lane", "lane" in options.constants),
            ("the option laneBy", options.lane_by),
        )
        if is_said
    ]
    if len(said) > 1:
        raise SparkOptionError(
            f"There are {' and '.join(said)}: a job has one lane. Keep one of them."
        )
    if said and "dedup_key" in found:
        raise SparkOptionError(
            f"Column dedup_key and {said[0]} cannot go together: a job that stands for "
            f"others waits for nobody. Drop one of them."
        )
    for name, option in OF_LANE.items():
        if not said and (name in found or name in options.constants):
            raise SparkOptionError(
                f"There is a column {name} or an option {option}, and no lane: give "
                f"the option laneBy, lane or a column lane. An argument of that name "
                f"goes into a struct column kwargs."
            )
