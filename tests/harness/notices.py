"""What a connection has heard until now, without a wait for what may never come."""

from __future__ import annotations

import uuid

from psycopg import Connection


def heard_until_now(listening: Connection, channel: str) -> list[str]:
    """
    Return the payloads that *listening* has heard of all commits until now.

    It sends a marker to *channel*, and reads up to it: PostgreSQL delivers
    notifications in the order of their commits.
    """
    marker = f"marker-{uuid.uuid4()}"
    listening.execute("SELECT pg_notify(%s, %s)", [channel, marker])
    heard = []
    for notify in listening.notifies(timeout=60):
        if notify.payload == marker:
            return heard
        heard.append(notify.payload)
    raise AssertionError(f"the marker was not heard; heard {heard}")
