"""
Messages: the rows of a batch as messages of a topic, checked as publish() checks.

A column payload holds what is published; without one, all other columns make an object.
With the option receiver, the rows are messages that a log has had, with their ids and
times, and get jobs alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from django_pgqueue.exceptions import SparkOptionError, TopicError, did_you_mean
from django_pgqueue.extras import extra
from django_pgqueue.log.names import KEY_CHARACTERS_MAX, check_name, topic_of
from django_pgqueue.spark.write.columns import (
    REASON,
    Columns,
    check_types,
    check_unique,
    plan,
)
from django_pgqueue.spark.write.json_text import json_objects, problem_of_type
from django_pgqueue.spark.write.options import WriteOptions
from django_pgqueue.spark.write.rows import (
    Checked,
    Reasons,
    Rows,
    headers_of_all,
    is_text,
    json_texts,
    moment_texts,
    name_texts,
    number_texts,
    places_of,
    refuse_too_large,
)

# What a message of a log has, and a job of it refers to.
OF_LOG = ("id", "name", "key", "payload", "headers", "published_at", "partition")

# Ids and numbers of partitions, as the database has them.
ID_MAX, PARTITION_MAX = 2**63 - 1, 2**15 - 1


@dataclass(frozen=True, slots=True)
class MessageColumns:
    """Where each part of a message is found; None: nowhere in the DataFrame."""

    payload: str | None
    name: str | None
    key: str | None
    headers: str | None
    run_at: str | None
    id: str | None
    published_at: str | None
    partition: str | None
    # Columns that are a field of the payload each.
    fields: tuple[str, ...]
    # Messages have no tags.
    tags: None = None


def plan_messages(schema: Any, options: WriteOptions) -> MessageColumns:
    """
    Return where each part of a message is found.

    Args:
        schema: A pyarrow.Schema.
        options: What the write was asked for, with a topic.

    Raises:
        SparkOptionError: The columns and the options do not make a message.
    """
    names: list[str] = schema.names
    check_unique(names, options)
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
    fields = tuple(name for name in names if name not in known)
    if fields and "payload" in names:
        raise SparkOptionError(
            f"The payload is in a column, and so {', '.join(fields)} would be left "
            f"out: drop it, or put it into the payload.{did_you_mean(fields[0], known)}"
        )
    if not fields and "payload" not in names:
        raise SparkOptionError("There is no column payload, and none to make it of.")
    found: dict[str, Any] = {
        name: name if name in names and name in known else None
        for name in MessageColumns.__dataclass_fields__
        if name not in ("fields", "tags")
    }
    columns = MessageColumns(**found, fields=fields)
    if columns.run_at and ("run_after" in options.constants or options.per_second):
        raise SparkOptionError(
            "There is a column run_at, and an option runAt or perSecond: drop one of "
            "them."
        )
    check_types(schema, columns)
    key = columns.key and schema.field(columns.key).type
    if key and not (is_text(key) or extra("pyarrow").types.is_integer(key)):
        raise SparkOptionError(
            f"Column key is of the type {key}; it must be a string or a whole number."
        )
    for name in filter(None, (*fields, columns.payload, columns.headers)):
        kind = schema.field(name).type
        if options.is_encoded and not is_text(kind):
            raise SparkOptionError(
                f"Column {name} is of the type {kind}; with encoded it must be a "
                f"string of JSON, as the queue's tables have it."
            )
        problem = problem_of_type(kind)
        if problem is not None:
            raise SparkOptionError(f"Column {name} {problem}.")
    return columns


def plan_any(schema: Any, options: WriteOptions) -> Columns | MessageColumns:
    """Return which column is what, of jobs or of messages; raise SparkOptionError."""
    if options.is_messages:
        return plan_messages(schema, options)
    return plan(schema, options)


class Messages(Rows):
    """Makes messages of the rows of one write."""

    def __init__(self, columns: MessageColumns, options: WriteOptions) -> None:
        self._columns: Any = columns
        self._options = options
        self._reason = REASON
        has_headers = columns.headers or options.headers
        used = {
            "name": columns.name,
            "key": columns.key,
            "payload": True,
            "headers": has_headers,
            "run_after": columns.run_at,
            "id": columns.id,
            "published_at": columns.published_at,
            "partition": columns.partition,
        }
        self.constants = dict(options.constants)
        if columns.name:
            del self.constants["name"]
        if has_headers and not columns.headers:
            self.constants["headers"] = headers_of_all(options)
        self.names = tuple(
            name for name in used if used[name] or name in self.constants
        )
        self.varying = tuple(name for name in self.names if name not in self.constants)
        self._copied = self.names
        self._lead = ""

    def check(self, batch: Any) -> Iterator[Checked]:
        """As of jobs; which queues get any is found out when they are published."""
        for checked in super().check(batch):
            yield replace(checked, queues=frozenset())

    def _parts(self, batch: Any, reasons: Reasons) -> dict[str, Any]:
        columns = self._columns
        parts: dict[str, Any] = dict(self.constants)
        if columns.name:
            parts["name"] = name_texts(
                batch.column("name"), "name", self._problem_of_name, None, reasons
            )
        if columns.key:
            parts["key"] = _keys(batch.column("key"), reasons)
        if columns.run_at:
            parts["run_after"] = moment_texts(batch.column("run_at"), "run_at", reasons)
        for name, high in (("id", ID_MAX), ("partition", PARTITION_MAX)):
            if getattr(columns, name):
                _refuse_nulls(batch.column(name), name, reasons)
                parts[name] = number_texts(
                    batch.column(name), name, 0, high, 0, reasons
                )
        if columns.published_at:
            values = batch.column("published_at")
            _refuse_nulls(values, "published_at", reasons)
            parts["published_at"] = moment_texts(values, "published_at", reasons)
        if "headers" in self.varying:
            parts["headers"] = self._headers(batch, reasons)
        if columns.payload:
            parts["payload"] = self._whole(batch, "payload", None, "payload", reasons)
        else:
            texts = [
                json_texts(batch.column(name), f"payload.{name}", reasons)
                for name in columns.fields
            ]
            parts["payload"] = json_objects(columns.fields, texts)
        sized = [parts["payload"]]
        if "headers" in self.varying:
            sized.append(parts["headers"])
        refuse_too_large(
            sized, "payload and headers take", self._options.payload_bytes_max, reasons
        )
        return parts

    def _problem_of_name(self, name: str) -> str | None:
        try:
            check_name(name, topic_of(self._options.constants["name"]))
        except TopicError as error:
            return str(error).rstrip(".")
        return None


def _keys(values: Any, reasons: Reasons) -> Any:
    arrow, compute = extra("pyarrow"), extra("pyarrow.compute")
    if not is_text(values.type):
        return values.cast(arrow.string())
    fit = json_texts(values, "key", reasons)
    values = compute.if_else(fit.is_null(), None, values)
    lengths = compute.utf8_length(values)
    wrong = compute.or_(
        compute.less(lengths, 1), compute.greater(lengths, KEY_CHARACTERS_MAX)
    )
    for place in places_of(wrong):
        reasons.setdefault(
            place,
            f"key has {lengths[place].as_py():,} characters; a key has 1 to "
            f"{KEY_CHARACTERS_MAX:,}, and NULL is a message without one",
        )
    return values


def _refuse_nulls(values: Any, name: str, reasons: Reasons) -> None:
    if values.null_count:
        for place in places_of(values.is_null()):
            reasons.setdefault(place, f"{name} is NULL")
