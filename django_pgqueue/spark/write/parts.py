"""
Parts: what a job or a message is made of, and the column of the DataFrame that says it.

A column that has the name of a part is that. docs/reference/spark-write.md has the same
list, and a test holds one to the other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from django_pgqueue.bounds import (
    ATTEMPTS_DEFAULT,
    ATTEMPTS_MAX,
    KEY_CHARACTERS_MAX,
    LANE_BURST_MAX,
    LANE_CAPACITY_MAX,
    LANE_SPACING_MAX,
    LANE_SPACING_MIN,
    PRIORITY_DEFAULT,
    PRIORITY_MAX,
    PRIORITY_MIN,
    QUEUE_DEFAULT,
)
from django_pgqueue.extras import extra
from django_pgqueue.log import names as of_log
from django_pgqueue.spark.write.json_text import is_list, is_text
from django_pgqueue.spark.write.options import (
    LANE_POLICIES,
    problem_of_lane,
    problem_of_queue,
    problem_of_task,
)
from django_pgqueue.spark.write.texts import Texts, keys, moments, names, numbers

# Whether a type of Arrow's is right, and what is, in words.
Kind = tuple[Callable[[Any], bool], str]


def _is_whole(kind: Any) -> bool:
    return bool(extra("pyarrow").types.is_integer(kind))


def _is_real(kind: Any) -> bool:
    types = extra("pyarrow").types
    return bool(_is_whole(kind) or types.is_floating(kind) or types.is_decimal(kind))


def _is_moment(kind: Any) -> bool:
    return bool(extra("pyarrow").types.is_timestamp(kind) and kind.tz is not None)


def _is_object(kind: Any) -> bool:
    types = extra("pyarrow").types
    return bool(types.is_struct(kind) or types.is_map(kind) or is_text(kind))


def _is_lane_key(kind: Any) -> bool:
    types = extra("pyarrow").types
    return bool(
        is_text(kind)
        or _is_whole(kind)
        or types.is_date(kind)
        or types.is_boolean(kind)
    )


def _problem_of_policy(name: str) -> str | None:
    if name in LANE_POLICIES:
        return None
    return f"lane_policy is {name[:40]!r}; it must be one of {', '.join(LANE_POLICIES)}"


TEXT: Kind = (is_text, "a string")
WHOLE: Kind = (_is_whole, "a whole number")
REAL: Kind = (_is_real, "a number")
KEY: Kind = (
    lambda kind: is_text(kind) or _is_whole(kind),
    "a string or a whole number",
)
MOMENT: Kind = (_is_moment, "a timestamp with a time zone: cast it to timestamp")
TAGS: Kind = (
    lambda kind: is_list(kind) and is_text(kind.value_type),
    "an array of strings",
)
ARRAY: Kind = (
    lambda kind: is_list(kind) or is_text(kind),
    "an array or a string of JSON",
)
OBJECT: Kind = (_is_object, "a struct, a map or a string of JSON")
ANY: Kind = (lambda kind: True, "")
# Of the columns that laneBy names.
LANE_KEY: Kind = (
    _is_lane_key,
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
    Part("lane_capacity", "integer", WHOLE, numbers(1, LANE_CAPACITY_MAX)),
    Part(
        "lane_spacing",
        "float8",
        REAL,
        numbers(
            LANE_SPACING_MIN,
            LANE_SPACING_MAX,
            "float64",
            f"seconds, {LANE_SPACING_MIN:f} to {LANE_SPACING_MAX:,}",
        ),
    ),
    Part("lane_burst", "integer", WHOLE, numbers(1, LANE_BURST_MAX)),
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
    Part("queue", "text", TEXT, names(problem_of_queue), null=QUEUE_DEFAULT),
    Part("args", "jsonb", ARRAY),
    Part("kwargs", "jsonb", OBJECT),
    Part("headers", "jsonb", OBJECT),
    Part("tags", "jsonb", TAGS, column="headers"),
    Part(
        "priority",
        "smallint",
        WHOLE,
        numbers(PRIORITY_MIN, PRIORITY_MAX),
        null=str(PRIORITY_DEFAULT),
    ),
    Part(
        "max_attempts",
        "smallint",
        WHOLE,
        numbers(1, ATTEMPTS_MAX),
        null=str(ATTEMPTS_DEFAULT),
    ),
    Part("run_at", "timestamptz", MOMENT, moments, column="run_after"),
    Part("expires_at", "timestamptz", MOMENT, moments),
    Part("dedup_key", "text", TEXT, keys(KEY_CHARACTERS_MAX)),
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
