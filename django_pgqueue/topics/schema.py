"""
Schema: the class that a topic's payloads are checked against.

A dataclass is checked for its fields' names; a pydantic model, or whatever has its two
methods, validates the values as well.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from django_pgqueue.exceptions import TopicError, shown


def check_schema(topic: str, schema: Any) -> Any:
    """
    Return *schema* if payloads can be checked against it; None is none.

    Raises:
        TopicError: It is neither a dataclass nor has model_validate and model_dump.
    """
    if schema is None or _is_dataclass(schema) or _is_model(schema):
        return schema
    raise TopicError(
        f"topic({topic!r}, schema={shown(schema)}): it must be a dataclass, or a class "
        f"with model_validate() and model_dump(), as pydantic's are."
    )


def to_payload(name: str, schema: Any, value: Any) -> Any:
    """
    Return *value* as the JSON types that are stored.

    Args:
        name: Of the message, for the error.
        schema: As check_schema() has returned it.
        value: An instance of the schema, or what one can be made from.

    Raises:
        TopicError: The value does not fit the schema; the message says why.
    """
    if schema is None:
        return value
    try:
        made = value if isinstance(value, schema) else from_payload(schema, value)
        if _is_model(schema):
            return made.model_dump(mode="json")
    except Exception as error:
        raise TopicError(
            f"{name}: the payload does not fit {schema.__qualname__}: {error}"
        ) from error
    return dataclasses.asdict(made)


def from_payload(schema: Any, payload: Any) -> Any:
    """Return an instance of *schema* made from a payload; raises what that raises."""
    if _is_model(schema):
        return schema.model_validate(payload)
    if not isinstance(payload, dict):
        raise TypeError(f"it must be an object, not {shown(payload)}")
    return schema(**payload)


def _is_dataclass(schema: Any) -> bool:
    return isinstance(schema, type) and dataclasses.is_dataclass(schema)


def _is_model(schema: Any) -> bool:
    return isinstance(schema, type) and all(
        callable(getattr(schema, method, None))
        for method in ("model_validate", "model_dump")
    )
