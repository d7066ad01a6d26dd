"""
Place: where everything is measured, and how this process is led there.

For the benchmark and for its workers, which are processes of their own.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from typing import Any

from django.conf import settings
from django.db import connections
from django.dispatch import Signal

from django_pgqueue import signals
from django_pgqueue.conf import get_settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A scratch database or, if the role may make none, a schema."""

    name: str
    is_schema: bool = False
    # DATABASES entries of the embedded server, where the project has no database.
    server: Mapping[str, Any] | None = None

    @property
    def kind(self) -> str:
        """Return what it is, for people."""
        return "schema" if self.is_schema else "database"

    def settings(self, told: Mapping[str, Any]) -> dict[str, Any]:
        """Return an entry of DATABASES that leads here instead of to its own tables."""
        changed = {**told, **(self.server or {})}
        if not self.is_schema:
            return {**changed, "NAME": self.name}
        # The last of two -c counts. Nothing but the schema: a table that is missing in
        # it is an error, and not one of the project's.
        options = dict(changed.get("OPTIONS") or {})
        before = options.get("options", "")
        options["options"] = f"{before} -c search_path={self.name}".strip()
        return {**changed, "OPTIONS": options}

    def as_text(self) -> str:
        """Return it as one argument of a command line."""
        return json.dumps(asdict(self))

    @classmethod
    def from_text(cls, text: str) -> Place:
        """Read what as_text() wrote."""
        return cls(**json.loads(text))


@contextmanager
def isolated(place: Place) -> Iterator[None]:
    """
    Point the queue's aliases at *place*, until the block ends.

    Receivers of the package's signals are away meanwhile, since they may write
    anywhere; and DEBUG is off, since it keeps every query in memory.
    """
    with ExitStack() as stack:
        stack.enter_context(changed(settings, "DEBUG", False))
        for signal in vars(signals).values():
            if isinstance(signal, Signal):
                stack.enter_context(changed(signal, "receivers", []))
        for alias in queue_aliases():
            stack.enter_context(_led_to(place, alias))
        yield


def queue_aliases() -> set[str]:
    """Return the aliases that enqueue, claim and listen."""
    told = get_settings()
    return {told.database, told.listen_database or told.database}


@contextmanager
def changed(owner: Any, name: str, value: Any) -> Iterator[None]:
    """Let an attribute have another value until the block ends."""
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


@contextmanager
def _led_to(place: Place, alias: str) -> Iterator[None]:
    # The dict that every thread's connection of this alias reads, as the test runner
    # of Django changes it too.
    told = connections.settings[alias]
    before = dict(told)
    _change(alias, place.settings(before))
    try:
        yield
    finally:
        _change(alias, before)


def _change(alias: str, settings: dict[str, Any]) -> None:
    connection, told = connections[alias], connections.settings[alias]
    connection.close()
    if getattr(connection, "pool", None):
        connection.close_pool()  # type: ignore[attr-defined]
    if told["ENGINE"] != settings["ENGINE"]:
        del connections[alias]
    told.update(settings)
