"""Sample subscriptions whose messages wait for one another."""

from __future__ import annotations

from django_pgqueue import JobContext, Message, Retry, subscribe
from tests.app.lane_tasks import _run

SOON = Retry(max_attempts=20, backoff="constant", base=0.05, jitter="full")


@subscribe("visits.*", group="key", start="earliest", retries=SOON, takes_context=True)
def on_visit(context: JobContext, message: Message) -> None:
    """One at a time for a key, and one of ten attempts fails."""
    _run(context, message.key or "", message.payload["number"], 0.1)
