"""Registry: what code has declared of topics, by name."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from django_pgqueue.exceptions import TopicError, shown
from django_pgqueue.log.names import PARTITIONS_DEFAULT

if TYPE_CHECKING:
    from django_pgqueue.tasks.hints import FieldHints


@dataclass(frozen=True, slots=True)
class Declared:
    """What code says of a topic."""

    name: str
    schema: Any = None
    partitions: int = PARTITIONS_DEFAULT
    # None: as PGQUEUE["RETENTION"]["log"] says.
    retain: timedelta | None = None
    # Whether values of a dataclass are looked at; None: as PGQUEUE["DEFAULTS"] says.
    check_types: bool | None = None
    # How many bytes of messages it may have; None: any number.
    retain_bytes: int | None = None
    # None: as PGQUEUE["RETENTION"]["wait_for_ingest"] says.
    wait_for_ingest: timedelta | None = None

    @property
    def schema_name(self) -> str | None:
        """The path of the class, for people."""
        if self.schema is None:
            return None
        return f"{self.schema.__module__}.{self.schema.__qualname__}"[:255]


_declared: dict[str, Declared] = {}


def declare(declared: Declared) -> None:
    """
    Remember what is said of a topic.

    Raises:
        TopicError: Something else was said of it before.
    """
    before = _declared.setdefault(declared.name, declared)
    if _values(before) != _values(declared):
        raise TopicError(
            f"topic({declared.name!r}) is declared twice: with {_told(before)} and "
            f"with {_told(declared)}. Declare it in one place, and import it, "
            f"or write topic({declared.name!r}) alone, elsewhere."
        )
    # A module that is imported anew has another class of the same name.
    _declared[declared.name] = declared


def declared() -> list[Declared]:
    """Return the topics that code declares, by name."""
    return [_declared[name] for name in sorted(_declared)]


def find(topic: str) -> Declared | None:
    """Return what code declares of a topic; None: nothing."""
    return _declared.get(topic)


def schema_of(topic: str) -> Any:
    """Return what the payloads of a topic are checked against; None: nothing."""
    declared = _declared.get(topic)
    return None if declared is None else declared.schema


def _values(declared: Declared) -> dict[str, Any]:
    return {
        "partitions": declared.partitions,
        "retain": declared.retain,
        "retain_bytes": declared.retain_bytes,
        "wait_for_ingest": declared.wait_for_ingest,
        "schema": declared.schema_name,
        "check_types": declared.check_types,
    }


def _told(declared: Declared) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in _values(declared).items())


# Schema -------------------------------------------------------------------------------
# Schema: the class that a topic's payloads are checked against.
#
# A dataclass is checked for its fields' names, and with check_types for their types; a
# pydantic model, or whatever has its two methods, validates the values as well.


def check_schema(topic: str, schema: Any) -> Any:
    """
    Return *schema* if payloads can be checked against it; None is none.

    Raises:
        TopicError: It is neither a dataclass nor has model_validate and model_dump.
    """
    if schema is None or is_dataclass(schema) or is_model(schema):
        return schema
    raise TopicError(
        f"topic({topic!r}, schema={shown(schema)}): it must be a dataclass, or a class "
        f"with model_validate() and model_dump(), as pydantic's are."
    )


# Topics whose dataclasses are kept as pydantic reads them: bounded memory.
SCHEMAS_REMEMBERED_MAX = 1_000


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
        if is_model(schema):
            return made.model_dump(mode="json")
    except Exception as error:
        raise TopicError(
            f"{name}: the payload does not fit {schema.__qualname__}: {error}"
        ) from error
    return dataclasses.asdict(made)


def check_types(name: str, schema: Any, payload: Any, redact: Collection[str]) -> None:
    """
    Check that a payload's values are what the type hints of its dataclass say.

    Args:
        name: Of the message, for the error.
        schema: As check_schema() has returned it; a model checks by itself.
        payload: What to_payload() has returned.
        redact: Patterns of names whose values are not to be shown.

    Raises:
        TopicError: One is not; the message has the value, unless REDACT hides it.
        DeclarationError: pydantic makes nothing of the hints.
        MissingExtra: pydantic is not installed.
    """
    if not is_dataclass(schema) or is_model(schema):
        return
    misfit = field_hints(schema).misfit(payload, redact)
    if misfit is not None:
        raise TopicError(
            f"{name}: the payload does not fit {schema.__qualname__}: {misfit.path} "
            f"{misfit.problem}. Publish what the hint says, change the hint, or "
            f"declare the topic with check_types=False."
        )


@lru_cache(maxsize=SCHEMAS_REMEMBERED_MAX)
def field_hints(schema: Any) -> FieldHints:
    """Return the type hints of a dataclass."""
    from django_pgqueue.tasks.hints import FieldHints

    return FieldHints(schema)


def from_payload(schema: Any, payload: Any) -> Any:
    """Return an instance of *schema* made from a payload; raises what that raises."""
    if is_model(schema):
        return schema.model_validate(payload)
    if not isinstance(payload, dict):
        raise TypeError(f"it must be an object, not {shown(payload)}")
    return schema(**payload)


def is_dataclass(schema: Any) -> bool:
    """Whether a schema is a dataclass."""
    return isinstance(schema, type) and dataclasses.is_dataclass(schema)


def is_model(schema: Any) -> bool:
    """Whether a schema is a pydantic model, or has the two methods of one."""
    return isinstance(schema, type) and all(
        callable(getattr(schema, method, None))
        for method in ("model_validate", "model_dump")
    )
