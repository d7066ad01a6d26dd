"""Registry: what code has declared of topics, by name."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django_pgqueue.exceptions import TopicError
from django_pgqueue.log.names import PARTITIONS_DEFAULT


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
