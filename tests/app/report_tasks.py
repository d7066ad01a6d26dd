"""Sample tasks that fail, and a Sentry that writes to a file of the test."""

from __future__ import annotations

import asyncio
import json
import logging
import os
from pathlib import Path
from typing import Any

from django_pgqueue import Retry, task
from tests.app import tasks

# The variable that names the file.
EVENTS = "PGQUEUE_TEST_SENTRY"


@task(retries=Retry(max_attempts=2, backoff="constant", base=0.05, jitter="none"))
def charges(card: str, password: str) -> None:
    """Fail twice, with what should not be told."""
    try:
        raise KeyError("card")
    except KeyError as error:
        raise tasks.Unlucky(f"password={password}") from error


@task
def says(word: str) -> None:
    """Write a line of its own."""
    logging.getLogger("shop").info("said %s", word)


@task
async def says_async(word: str) -> None:
    """Write it in an event loop, and in a thread of that."""
    await asyncio.to_thread(logging.getLogger("shop").info, "said %s", word)


def with_tags(event: dict[str, Any], hint: dict[str, Any]) -> dict[str, Any]:
    """As in docs/howto/trace-and-report.md."""
    record = hint.get("log_record")
    for name in ("task", "queue", "job_id"):
        if hasattr(record, name):
            event.setdefault("tags", {})[name] = str(getattr(record, name))
    return event


def start_sentry(path: str) -> None:
    """Send events to a file."""
    import sentry_sdk
    from sentry_sdk.transport import Transport

    class ToFile(Transport):
        def capture_envelope(self, envelope: Any) -> None:
            event = envelope.get_event()
            if event is not None:
                with Path(path).open("a") as file:
                    file.write(json.dumps(event, default=str) + "\n")

    sentry_sdk.init(
        dsn="https://key@sentry.invalid/1", transport=ToFile, before_send=with_tags
    )


if EVENTS in os.environ:
    start_sentry(os.environ[EVENTS])
