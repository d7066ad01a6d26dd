"""Sample subscriptions, for workers that are told to import this module."""

from __future__ import annotations

from typing import Any

from django_pgqueue import JobContext, Message, subscribe
from tests.app.models import Order
from tests.app.tasks import Unlucky


@subscribe(
    "parcels.*",
    queue="parcels",
    start="earliest",
    retries=0,
    timeout="60s",
    tags=["parcel"],
    takes_context=True,
)
def on_parcel(context: JobContext, message: Message) -> dict[str, Any]:
    """Tell what it was given; fail for a broken one until somebody fixes it."""
    is_fixed = Order.objects.filter(name="fixed").exists()
    if message.payload.get("broken") and not is_fixed:
        raise Unlucky(message.name)
    return {
        "name": message.name,
        "payload": message.payload,
        "tags": list(context.tags),
        "attempt": context.attempt,
    }


@subscribe("*.sent", queue="watch", where={"country": "FR"})
@subscribe("parcels", queue="log")
async def on_any(message: Message) -> list[Any]:
    """Tell which one it was given."""
    return [message.id, message.topic, message.key]
