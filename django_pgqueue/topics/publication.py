"""Publication: a message that is checked and encoded, and not published yet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from django_pgqueue.exceptions import PayloadTooLarge
from django_pgqueue.log.names import check_key, check_name, topic_of
from django_pgqueue.options.checks import When, check_when
from django_pgqueue.options.marks import check_headers
from django_pgqueue.tasks import payload as payloads

EMPTY = "{}"


@dataclass(frozen=True, slots=True)
class Publication:
    """What publish() stores. Topic.message() makes one."""

    name: str
    key: str | None
    # JSON text, within PGQUEUE["PAYLOAD_BYTES_MAX"] together.
    payload_text: str
    headers_text: str = EMPTY
    # When it is published: at a moment, or so long from then on; None: at once.
    run_at: datetime | None = None
    delay: timedelta | None = None

    @property
    def topic(self) -> str:
        """The topic that it is published to."""
        return topic_of(self.name)

    @property
    def is_later(self) -> bool:
        """Whether it has a moment of its own."""
        return self.run_at is not None or self.delay is not None

    def item(self) -> str:
        """Return it as log/publish.py takes it, or log/scheduled.py: a JSON array."""
        name, key = payloads.ENCODER.encode([self.name, self.key])[1:-1].split(",", 1)
        when = ""
        if self.run_at is not None:
            when = f',"{self.run_at.isoformat()}"'
        elif self.delay is not None:
            when = f",null,{self.delay.total_seconds()}"
        return f"[{name},{key},{self.payload_text},{self.headers_text}{when}]"


def publication(
    name: str,
    payload: Any,
    *,
    key: object,
    headers: Mapping[str, Any] | None,
    payload_bytes_max: int,
    run_after: When | None = None,
) -> Publication:
    """
    Return a message, checked.

    Args:
        name: As it is called.
        payload: Any value that can travel as a task's argument.
        key: A text or an int; None: it has no order.
        headers: As those of a job.
        payload_bytes_max: Of payload and headers together, as UTF-8 JSON.
        run_after: When it is published, as of a job; None: at once.

    Raises:
        TopicError: The name or the key cannot be.
        InvalidArgument: A value cannot travel.
        InvalidOption: The headers are no dict, or have a reserved key; or run_after is
            neither a moment nor a duration.
        PayloadTooLarge: Both together are too large.
    """
    check_name(name)
    text = payloads.encode_at(name, "payload", payload)
    headers_text = EMPTY
    if headers:
        headers_text = payloads.encode_at(name, "headers", dict(check_headers(headers)))
    size = len(text.encode()) + len(headers_text.encode())
    if size > payload_bytes_max:
        raise PayloadTooLarge(
            task=name,
            payload_bytes=size,
            payload_bytes_max=payload_bytes_max,
            what="payload and headers",
        )
    made = Publication(name, check_key(key), text, headers_text)
    if run_after is None:
        return made
    run_at, delay = check_when("run_after", run_after)
    return replace(made, run_at=run_at, delay=delay)
