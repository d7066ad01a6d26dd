"""
Schemas: what payloads and arguments are as JSON, by the hints and schemas of code.

They say what is stored, so that another language can write it and read it: where a
value travels as an object, such as a datetime among a task's arguments, its schema is
that of the object.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any, NamedTuple

from django_pgqueue.extras import extra
from django_pgqueue.log.message import Message
from django_pgqueue.tasks.declared import DeclaredTask
from django_pgqueue.tasks.payload import TAG
from django_pgqueue.topics.registry import Declared, field_hints, is_model

Schema = dict[str, Any]

SCHEMAS = "#/components/schemas/"

NO_KEY = re.compile(r"[^A-Za-z0-9_.-]")

# How the values are written that JSON has no type for; see tasks/payload.py.
TEXT = {"type": "string"}
STORED: dict[str, Schema] = {
    "datetime": {"type": "string", "format": "date-time"},
    "date": {"type": "string", "format": "date"},
    "time": {"type": "string", "format": "time"},
    "timedelta": {
        "type": "array",
        "items": {"type": "integer"},
        "minItems": 3,
        "maxItems": 3,
        "description": "Days, seconds, microseconds.",
    },
    "decimal": TEXT,
    "uuid": {"type": "string", "format": "uuid"},
    "bytes": {"type": "string", "contentEncoding": "base64"},
    "message": {"type": "object"},
}


class Read(NamedTuple):
    """A schema, and those that it refers to, by their keys in the document."""

    schema: Schema
    parts: dict[str, Schema]


def payload_of(topic: Declared) -> Read:
    """
    Return what the payloads of a topic are; without a schema, anything.

    Raises:
        MissingExtra: pydantic is not installed.
        DeclarationError: pydantic makes nothing of the hints.
    """
    schema, prefix = topic.schema, f"topic.{topic.name}"
    if schema is None:
        return Read({}, {})
    if not is_model(schema):
        return _read(field_hints(schema).adapter.json_schema, prefix, _generator())
    write = getattr(schema, "model_json_schema", None)
    # Another class with the two methods of a model has none.
    return Read({}, {}) if write is None else _read(write, prefix, None)


def arguments_of(task: DeclaredTask) -> Read:
    """
    Return what the keyword arguments of a task's job are.

    Raises:
        MissingExtra: pydantic is not installed.
        DeclarationError: The hints cannot be read.
    """
    if task.options.accumulate is not None:
        return Read({"type": "object"}, {})
    read = _read(task.hints.adapter.json_schema, f"task.{task.name}", _generator())
    rest = [each for each in task.parameters.own if each.kind is each.VAR_KEYWORD]
    read.schema.pop("description", None)
    for each in task.parameters.own:
        if each.kind in (each.VAR_POSITIONAL, each.VAR_KEYWORD):
            read.schema.get("properties", {}).pop(each.name, None)
    read.schema["additionalProperties"] = bool(rest)
    return read


def _read(write: Any, prefix: str, generator: Any) -> Read:
    """Call *write*, and lead its references to parts of the document."""
    words: dict[str, Any] = {"ref_template": "#/{model}"}
    if generator is None:
        # What stands in the log is what the model writes.
        words |= {"mode": "serialization", "by_alias": False}
    else:
        words["schema_generator"] = generator
    schema: Schema = write(**words)
    parts = schema.pop("$defs", {})
    keys = {f"#/{name}": component(f"{prefix}.{name}") for name in parts}
    schema = _led(schema, keys)
    schema.pop("title", None)
    return Read(
        schema,
        {keys[f"#/{name}"]: _led(part, keys) for name, part in parts.items()},
    )


def component(name: str) -> str:
    """Return a name that AsyncAPI takes as the key of a component."""
    return NO_KEY.sub(lambda found: f"-{ord(found[0]):x}-", name)


def _led(schema: Any, keys: dict[str, str]) -> Any:
    if isinstance(schema, list):
        return [_led(each, keys) for each in schema]
    if not isinstance(schema, dict):
        return schema
    led = {}
    for word, value in schema.items():
        if word == "$ref" and value in keys:
            led[word] = to_schema(keys[value])
        elif word == "discriminator":
            # Of OpenAPI, as an object; its mapping leads nowhere in this document.
            continue
        else:
            led[word] = _led(value, keys)
    return led


@cache
def _generator() -> Any:
    """Return what writes the schema of hints, of what is stored."""
    json_schema = extra("pydantic.json_schema")

    def stored(tag: str) -> Any:
        def write(self: Any, schema: Any) -> Schema:
            return _tagged(tag)

        return write

    class Generator(json_schema.GenerateJsonSchema):  # type: ignore[misc, name-defined]
        """Of values as the queue stores them."""

        datetime_schema = stored("datetime")
        date_schema = stored("date")
        time_schema = stored("time")
        timedelta_schema = stored("timedelta")
        decimal_schema = stored("decimal")
        uuid_schema = stored("uuid")
        bytes_schema = stored("bytes")

        def field_title_should_be_set(self, schema: Any) -> bool:
            """Leave out titles that say the name once more."""
            return False

        def is_instance_schema(self, schema: Any) -> Schema:
            """Write a model as what leads to its row."""
            from django.db.models import Model

            if isinstance(schema["cls"], type) and issubclass(schema["cls"], Model):
                return _of_model(schema["cls"])
            return {}

        def dataclass_schema(self, schema: Any) -> Any:
            """Write a message as what leads to it."""
            if schema["cls"] is Message:
                return _tagged("message")
            return super().dataclass_schema(schema)

        def handle_invalid_for_json_schema(self, schema: Any, info: str) -> Schema:
            """Say nothing of what JSON Schema has no words for."""
            return {}

    return Generator


def _tagged(tag: str) -> Schema:
    return {
        "type": "object",
        "properties": {TAG: {"const": tag}, "value": dict(STORED[tag])},
        "required": [TAG, "value"],
    }


def _of_model(model: Any) -> Schema:
    return {
        "type": "object",
        "properties": {
            TAG: {"const": "model"},
            "value": {"const": model._meta.label_lower},
            "pk": {},
            "db": {"type": "string"},
        },
        "required": [TAG, "value", "pk", "db"],
    }


def to_schema(key: str) -> str:
    """Return the reference to a schema of the components."""
    return f"{SCHEMAS}{key}"


def follow(document: Any, reference: str) -> Any:
    """Return the schema that a reference leads to; None: there is none."""
    return document["components"]["schemas"].get(reference.removeprefix(SCHEMAS))
