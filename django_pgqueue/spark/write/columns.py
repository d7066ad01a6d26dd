"""
Columns: which column of the DataFrame is what of a job.

A column that has the name of one of the job's own is that: task, queue, priority,
run_at, expires_at, max_attempts, dedup_key, lane, lane_capacity, lane_spacing,
lane_burst, lane_policy, tags, headers, args, kwargs. All others are keyword arguments,
unless there is a column of arguments; then there may be no others, so that nothing is
left out by accident.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from django_pgqueue.exceptions import SparkOptionError, did_you_mean
from django_pgqueue.extras import extra
from django_pgqueue.spark.write.json_text import problem_of_type
from django_pgqueue.spark.write.options import WriteOptions

# What a lane takes, by its column: the options.
OF_LANE = {
    "lane_capacity": "laneCapacity",
    "lane_spacing": "laneSpacing",
    "lane_burst": "laneBurst",
    "lane_policy": "lanePolicy",
}

# The added column of rows that are written aside.
REASON = "refused_reason"


@dataclass(frozen=True, slots=True)
class Columns:
    """Where each part of a job is found; None: nowhere in the DataFrame."""

    task: str | None
    queue: str | None
    priority: str | None
    run_at: str | None
    expires_at: str | None
    max_attempts: str | None
    dedup_key: str | None
    lane: str | None
    lane_capacity: str | None
    lane_spacing: str | None
    lane_burst: str | None
    lane_policy: str | None
    tags: str | None
    headers: str | None
    # A column that holds all positional or keyword arguments.
    args: str | None
    kwargs: str | None
    # Columns that are a keyword argument each.
    arguments: tuple[str, ...]


def plan(schema: Any, options: WriteOptions) -> Columns:
    """
    Return where each part of a job is found.

    Args:
        schema: A pyarrow.Schema.
        options: What the write was asked for.

    Raises:
        SparkOptionError: The columns and the options do not make a job.
    """
    names: list[str] = schema.names
    check_unique(names, options)
    found = {
        name: name if name in names else None
        for name in Columns.__dataclass_fields__
        if name not in ("args", "kwargs", "arguments")
    }
    args = _named("argsColumn", options.args_column, "args", names)
    kwargs = _named("kwargsColumn", options.kwargs_column, "kwargs", names)
    taken = {*filter(None, found.values()), args, kwargs}
    others = tuple(name for name in names if name not in taken)
    if others and (args or kwargs):
        raise SparkOptionError(
            f"The arguments are in {' and '.join(filter(None, (args, kwargs)))}, and "
            f"so {', '.join(others)} would be left out: drop it, or put it into the "
            f"struct."
        )
    columns = Columns(**found, args=args, kwargs=kwargs, arguments=others)
    _check_given_once(columns, options)
    _check_lane(columns, options)
    for name in options.lane_by:
        _check_key(schema, name)
    check_types(schema, columns)
    if options.is_encoded:
        _check_encoded(schema, columns)
    for name in filter(None, (*columns.arguments, args, kwargs)):
        problem = problem_of_type(schema.field(name).type)
        if problem is not None:
            raise SparkOptionError(f"Column {name} {problem}.")
    return columns


def check_types(schema: Any, columns: Any) -> None:
    """Raise SparkOptionError where a column that is a part of all has another type."""
    for part, is_right, wanted in _TYPES:
        column = getattr(columns, part, None)
        if column is not None and not is_right(schema.field(column).type):
            raise SparkOptionError(
                f"Column {column} is of the type {schema.field(column).type}; "
                f"it must be {wanted}."
            )


def _check_encoded(schema: Any, columns: Columns) -> None:
    """Raise SparkOptionError unless all JSON comes as the queue's tables have it."""
    for name in ("args", "kwargs", "headers"):
        column = getattr(columns, name)
        if column is not None and not _is_text(schema.field(column).type):
            raise SparkOptionError(
                f"Column {column} is of the type {schema.field(column).type}; with "
                f"encoded it must be a string of JSON, as the queue's tables have it."
            )
    if columns.arguments or columns.tags:
        raise SparkOptionError(
            f"Column {(columns.arguments or (columns.tags,))[0]} and the option "
            f"encoded cannot go together: arguments are in the columns args and "
            f"kwargs, and tags in the headers."
        )


def check_unique(names: list[str], options: WriteOptions) -> None:
    """Raise SparkOptionError where two columns have one name, or would have."""
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise SparkOptionError(f"There are two columns named {min(twice)}.")
    if REASON in names and options.refused_path is not None:
        raise SparkOptionError(
            f"Column {REASON} has the name of the one that refusedPath adds to "
            f"refused rows: drop or rename it."
        )


def _named(option: str, asked: str | None, usual: str, names: list[str]) -> str | None:
    if asked is None:
        return usual if usual in names else None
    if asked not in names:
        raise SparkOptionError(
            f"The option {option} names {asked!r}, which is no column."
            f"{did_you_mean(asked, names)}"
        )
    return asked


def _check_given_once(columns: Columns, options: WriteOptions) -> None:
    places = ("task", "queue", "priority", "run_at", "expires_at", "max_attempts")
    for name in (*places, "lane", *OF_LANE):
        constant = "run_after" if name == "run_at" else name
        if getattr(columns, name) and constant in options.constants:
            raise SparkOptionError(
                f"There is a column {name}, and an option for it: drop one of them. "
                f"An argument of that name goes into a struct column kwargs."
            )
    if columns.run_at and options.per_second:
        raise SparkOptionError(
            "There is a column run_at, and the option perSecond: drop one of them."
        )
    if columns.task is None and "task" not in options.constants:
        raise SparkOptionError(
            "Which task? Give the option task, or a column of that name."
        )


def _check_lane(columns: Columns, options: WriteOptions) -> None:
    said = [
        told
        for told, is_said in (
            ("a column lane", columns.lane),
            ("the option lane", "lane" in options.constants),
            ("the option laneBy", options.lane_by),
        )
        if is_said
    ]
    if len(said) > 1:
        raise SparkOptionError(
            f"There are {' and '.join(said)}: a job has one lane. Keep one of them."
        )
    if said and columns.dedup_key is not None:
        raise SparkOptionError(
            f"Column dedup_key and {said[0]} cannot go together: a job that stands for "
            f"others waits for nobody. Drop one of them."
        )
    for name, option in OF_LANE.items():
        if not said and (getattr(columns, name) or name in options.constants):
            raise SparkOptionError(
                f"There is a column {name} or an option {option}, and no lane: give "
                f"the option laneBy, lane or a column lane. An argument of that name "
                f"goes into a struct column kwargs."
            )


def _check_key(schema: Any, name: str) -> None:
    if name not in schema.names:
        raise SparkOptionError(
            f"The option laneBy names {name!r}, which is no column."
            f"{did_you_mean(name, schema.names)}"
        )
    types, kind = extra("pyarrow").types, schema.field(name).type
    if not (
        _is_text(kind)
        or types.is_integer(kind)
        or types.is_date(kind)
        or types.is_boolean(kind)
    ):
        raise SparkOptionError(
            f"The option laneBy names {name!r}, which is of the type {kind}; it must "
            f"be a string, a whole number, a date or a boolean: cast it to a string."
        )


def _is_text(kind: Any) -> bool:
    types = extra("pyarrow").types
    return bool(types.is_string(kind) or types.is_large_string(kind))


def _is_number(kind: Any) -> bool:
    return bool(extra("pyarrow").types.is_integer(kind))


def _is_real(kind: Any) -> bool:
    types = extra("pyarrow").types
    return bool(
        types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind)
    )


def _is_moment(kind: Any) -> bool:
    types = extra("pyarrow").types
    return bool(types.is_timestamp(kind) and kind.tz is not None)


def _is_list(kind: Any) -> bool:
    types = extra("pyarrow").types
    return bool(types.is_list(kind) or types.is_large_list(kind))


def _is_object(kind: Any) -> bool:
    types = extra("pyarrow").types
    return bool(types.is_struct(kind) or types.is_map(kind) or _is_text(kind))


def _is_array(kind: Any) -> bool:
    return _is_list(kind) or _is_text(kind)


def _is_tags(kind: Any) -> bool:
    return _is_list(kind) and _is_text(kind.value_type)


_TYPES: tuple[tuple[str, Callable[[Any], bool], str], ...] = (
    ("task", _is_text, "a string"),
    ("queue", _is_text, "a string"),
    ("priority", _is_number, "a whole number"),
    ("max_attempts", _is_number, "a whole number"),
    ("run_at", _is_moment, "a timestamp with a time zone: cast it to timestamp"),
    ("expires_at", _is_moment, "a timestamp with a time zone: cast it to timestamp"),
    ("dedup_key", _is_text, "a string"),
    ("lane", _is_text, "a string"),
    ("lane_capacity", _is_number, "a whole number"),
    ("lane_spacing", _is_real, "a number"),
    ("lane_burst", _is_number, "a whole number"),
    ("lane_policy", _is_text, "a string"),
    ("tags", _is_tags, "an array of strings"),
    ("headers", _is_object, "a struct, a map or a string of JSON"),
    ("args", _is_array, "an array or a string of JSON"),
    ("kwargs", _is_object, "a struct, a map or a string of JSON"),
    # Of messages.
    ("name", _is_text, "a string"),
    ("id", _is_number, "a whole number"),
    ("partition", _is_number, "a whole number"),
    ("published_at", _is_moment, "a timestamp with a time zone: cast it to timestamp"),
)
