"""
Compare the document that a project has committed with the one that its code makes now.

Payloads and arguments are compared field by field: a field was removed, a field was
added that is required, or a type changed. Consumers of a topic know the older schema,
and the topic's log has messages that were published with it. Jobs that wait were
stored by an older version of their task.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from django_pgqueue.contract.document import (
    MANY,
    MORE,
    QUEUE,
    TOPIC,
    project_document,
    text_of,
)
from django_pgqueue.contract.schemas import Schema, follow
from django_pgqueue.exceptions import InvalidOption
from django_pgqueue.tasks.payload import TAG

WRITE = "python manage.py pgqueue asyncapi"

ANYTHING = "anything"

# Words of JSON Schema that do not limit a value, or that have fields of their own.
NOT_OF_THE_TYPE = frozenset(
    {
        *("title", "description", "default", "examples", "deprecated", "$comment"),
        *("properties", "required", "additionalProperties", "items", "prefixItems"),
    }
)

# For a field that was removed, is required now, and has another type.
TOPIC_WAYS_OUT = (
    "Keep it until no consumer reads it, or publish to a new topic",
    "Messages in the log lack it: give it a default",
    "Consumers and the log know the old type: add a field beside it",
)
TASK_WAYS_OUT = (
    "Waiting jobs have it: keep it, with a default, until none of them does",
    "Waiting jobs lack it: give it a default",
    "Waiting jobs have the old type: allow both until none of them does",
)


class Break(NamedTuple):
    """A change that breaks consumers of a topic, or jobs that wait."""

    # "topic orders", or "task shop.tasks.send".
    subject: str
    problem: str
    way_out: str

    def __str__(self) -> str:
        return f"{self.subject}: {self.problem}. {self.way_out}."


class Comparison(NamedTuple):
    """The differences between a committed document and the code."""

    breaks: list[Break]
    # Whether both have the same text.
    is_current: bool


class Field(NamedTuple):
    """A field of a payload, or a parameter of a task."""

    type: str
    is_required: bool


def compare(path: str) -> Comparison:
    """
    Compare the document in a file with the one that code makes.

    Raises:
        InvalidOption: The file cannot be read, or does not hold such a document.
        DeclarationError, MissingExtra: See project_document().
    """
    before, now = _read(path), project_document()
    try:
        broken = breaks(before, now)
    except (AttributeError, KeyError, TypeError):
        raise InvalidOption(
            f"The contract {path!r} was not written by `pgqueue asyncapi`. "
            f"Write it: {WRITE} > {path}"
        ) from None
    return Comparison(broken, text_of(before) == text_of(now))


def _read(path: str) -> dict[str, Any]:
    try:
        document: dict[str, Any] = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise InvalidOption(
            f"The contract {path!r} cannot be read: {error}. Write it: {WRITE} > {path}"
        ) from None
    return document


def breaks(before: dict[str, Any], now: dict[str, Any]) -> list[Break]:
    """Return the breaking changes between two documents: topics first, by name."""
    return [*_topic_breaks(before, now), *_task_breaks(before, now)]


def _topic_breaks(before: dict[str, Any], now: dict[str, Any]) -> Iterator[Break]:
    channels = _channels(now, TOPIC)
    for name, channel in sorted(_channels(before, TOPIC).items()):
        subject = f"topic {name}"
        if not channel[MORE]["declared"]:
            continue
        if not channels.get(name, {}).get(MORE, {}).get("declared"):
            yield Break(
                subject,
                "it is no longer declared, and its consumers get nothing",
                "Declare it, and publish to both topics until no consumer reads it",
            )
            continue
        # All messages of a topic have the schema of the one with the topic's name.
        old = fields_of(before, channel["messages"][name]["payload"])
        new = fields_of(now, channels[name]["messages"][name]["payload"])
        for problem, way_out in _changes(old, new, TOPIC_WAYS_OUT):
            yield Break(subject, problem, way_out)


def _task_breaks(before: dict[str, Any], now: dict[str, Any]) -> Iterator[Break]:
    known: dict[str, Any] = {}
    for channel in _channels(now, QUEUE).values():
        for name, message in channel["messages"].items():
            known.update(dict.fromkeys([name, *message[MORE]["aliases"]], message))
    tasks: dict[str, Any] = {}
    for channel in _channels(before, QUEUE).values():
        tasks.update(channel["messages"])
    for name, task in sorted(tasks.items()):
        subject = f"task {name}"
        if name not in known:
            yield Break(
                subject,
                "it is no longer declared, and its waiting jobs end as dead letters",
                f"Name it in aliases=[{name!r}] of the task that runs them, or keep it "
                f"until no job waits",
            )
            continue
        old = fields_of(before, task["payload"])
        new = fields_of(now, known[name]["payload"])
        for problem, way_out in _changes(old, new, TASK_WAYS_OUT):
            yield Break(subject, f"parameter {problem}", way_out)
        first, places = task[MORE]["by_place"], known[name][MORE]["by_place"]
        if first != places[: len(first)] and MANY not in places[: len(first)]:
            yield Break(
                subject,
                f"the order of its parameters was {', '.join(first)}, and waiting jobs "
                f"may have arguments by position",
                "Keep the order, and add new parameters at the end",
            )


def _channels(document: dict[str, Any], kind: str) -> dict[str, Any]:
    return {
        channel["address"]: channel
        for channel in document["channels"].values()
        if channel[MORE]["kind"] == kind
    }


def _changes(
    before: dict[str, Field], now: dict[str, Field], ways_out: tuple[str, str, str]
) -> Iterator[tuple[str, str]]:
    """Return the fields that break, as a problem and a way out, parents first."""
    removed, required, changed = ways_out
    # Below one of these, nothing is compared: the parent is reported, or allowed any
    # value before, so that nothing was promised.
    ended = {path for path, field in before.items() if field.type == ANYTHING}
    if "" in ended:
        return
    for path, old in before.items():
        new = now.get(path)
        if _parent(path) in ended:
            ended.add(path)
        elif new is None:
            ended.add(path)
            yield f"{path} was removed", removed
        elif ANYTHING != old.type != new.type:
            ended.add(path)
            yield f"{path or 'payload'} was {old.type}, and is {new.type}", changed
        elif new.is_required and not old.is_required:
            yield f"{path} is required now", required
    for path, new in now.items():
        is_new = path not in before and _parent(path) in before.keys() - ended
        if is_new and new.is_required:
            yield f"{path} is required now", required


def _parent(path: str) -> str | None:
    return path.rpartition(".")[0] if path else None


def fields_of(document: dict[str, Any], schema: Schema) -> dict[str, Field]:
    """
    Return the fields of a schema by their paths, parents first.

    The path of a nested field is "address.city", that of the items of a list "tags.[]",
    that of the values of a mapping "prices.*"; the value itself is at "".
    """
    fields: dict[str, Field] = {}

    def add(schema: Any, path: str, *, is_required: bool, inside: set[str]) -> None:
        alternatives = _alternatives(document, schema)
        types = dict.fromkeys(_type(each) for _, each in alternatives)
        fields[path] = Field(" or ".join(types), is_required)
        for reference, each in alternatives:
            if reference in inside or _tag(each) is not None:
                continue  # A schema that contains itself is compared once.
            within = inside | {reference} if reference else inside
            for name, is_needed, part in _parts(each):
                below = f"{path}.{name}" if path else name
                add(part, below, is_required=is_needed, inside=within)

    add(schema, "", is_required=True, inside=set())
    return fields


def _parts(schema: Schema) -> Iterator[tuple[str, bool, Any]]:
    """Return the schemas directly inside: name, whether it is required, schema."""
    for name, part in schema.get("properties", {}).items():
        yield name, name in schema.get("required", ()), part
    for place, part in enumerate(schema.get("prefixItems", ())):
        yield str(place), True, part
    for word, name in (("items", "[]"), ("additionalProperties", "*")):
        if schema.get(word, False) is not False:
            yield name, False, schema[word]


def _alternatives(document: Any, schema: Any) -> list[tuple[str, Schema]]:
    """Return the schemas that a value may have, each with its reference, or ""."""
    reference = ""
    # pydantic does not write a reference that leads back to itself.
    while isinstance(schema, dict) and "$ref" in schema:
        reference = schema["$ref"]
        schema = follow(document, reference)
    if not isinstance(schema, dict):
        return [(reference, {})]
    several = schema.get("anyOf") or schema.get("oneOf")
    if several is None:
        return [(reference, schema)]
    return [one for each in several for one in _alternatives(document, each)]


def _type(schema: Schema) -> str:
    """Return the type of a value, for people, with everything that limits it."""
    if (tag := _tag(schema)) is not None:
        return str(tag)
    values = [schema["const"]] if "const" in schema else schema.get("enum")
    if values is not None:
        return " or ".join(map(repr, values))
    words = {word: schema[word] for word in sorted(schema.keys() - NOT_OF_THE_TYPE)}
    name = str(words.pop("type", ANYTHING))
    limits = ", ".join(f"{word} {value}" for word, value in words.items())
    return f"{name} ({limits})" if limits else name


def _tag(schema: Schema) -> Any:
    """Return the name of a type that is stored as an object, such as a datetime."""
    return schema.get("properties", {}).get(TAG, {}).get("const")
