"""Message: what a handler is given."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any


@dataclass(frozen=True, slots=True)
class Message:
    """A published message, as it stands in its topic's log."""

    # Rises in the order of publishing, over all topics, with gaps.
    id: int
    topic: str
    # The topic's, or that with further words: "orders.created".
    name: str
    payload: Any
    # Messages of one key keep their order; None: of no key.
    key: str | None = None
    headers: Mapping[str, Any] = field(default_factory=dict)
    # By the database's clock, in UTC. Every handler is given one: only a message that
    # was made by hand, and so is of no log, may have None.
    published_at: datetime = None  # type: ignore[assignment]
    # In which part of its topic's log it stands.
    partition: int = 0
