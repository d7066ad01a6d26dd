"""Topics of a shop, who listens to them, and the pages that show both."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from tests.log.rows import (
    make_group,
    make_inbox_entry,
    make_message,
    make_position,
    make_scheduled,
    make_subscription,
    make_topic,
)

DAY = timedelta(days=1)
HOUR = timedelta(hours=1)
MINUTE = timedelta(minutes=1)
ADMIN = "/admin/pgqueue"


def make_topic_rows() -> dict[str, list[Any]]:
    """Make one of each kind that people meet; return their keys by page."""
    orders = make_topic(
        "orders",
        partitions=4,
        retain=60 * DAY,
        schema="shop.events.OrderEvent",
        declared={
            "partitions": 16,
            "retain_seconds": (60 * DAY).total_seconds(),
            "schema": "shop.events.OrderEvent",
        },
        last_declared_at=-2 * HOUR,
        removed_to=3,
    )
    make_topic("clicks")
    messages = [
        make_message(
            "orders.created.by_a_customer" if n % 5 == 0 else "orders.paid",
            {"id": n, "lines": [{"sku": "A-1", "count": 2}] * 3, "api_token": "s3cret"},
            key=f"customer-{n % 7}" if n % 4 else None,
            headers={"trace": "00-4bf9-00f0-01"},
            partition=n % 4,
            published_at=-n * 13 * MINUTE,
        ).pk
        for n in reversed(range(60))
    ]
    make_message("clicks", {"path": "/"}, key="c" * 900)
    subscriptions = [
        make_subscription(
            "orders.*.failed",
            task="billing.tasks.on_a_payment_that_has_failed_for_whatever_reason",
            queue="billing",
            payload_filter={"country": "FR", "total": {"currency": "EUR"}},
            start="2026-11-01T00:00:00+00:00",
            backfill_position=messages[20],
            backfill_xid=1,
        ),
        make_subscription("orders", queue="mail", task="mail.tasks.on_order"),
        make_subscription(
            "*.created",
            queue="audit",
            task="audit.tasks.note",
            last_declared_at=-30 * DAY,
        ),
        make_subscription(
            "clicks",
            source="user",
            queue="stats",
            task="stats.tasks.count",
            disabled_at=-HOUR,
            disabled_by="ada",
            disabled_reason="twice as many as the provider allows, until Monday",
            last_declared_at=None,
        ),
    ]
    stats = make_group(
        "orders",
        "stats_of_all_the_orders",
        task="stats.tasks.count_orders",
        queue="stats",
        on_error="halt",
        payload_filter={"country": "FR"},
        is_atomic=True,
    )
    error = {
        "kind": "error",
        "type": "shop.payments.CardDeclined",
        "message": "declined, code=51, token=abc123",
        "traceback": 'Traceback (most recent call last):\n  File "/srv/shop/tasks.py", '
        "line 41, in count\n    total += order['total']\nKeyError: 'total'\n",
        "worker": "web-1:4711:ab12",
        "at": "2026-11-20T20:10:00+00:00",
        "ran_seconds": 1.25,
    }
    make_position(stats, 0, position=messages[40], errors=[error] * 3, failures=5)
    make_position(
        stats,
        1,
        position=messages[30],
        errors=[error],
        failures=5,
        halted_at=-HOUR,
        halted_for="error",
    )
    make_position(
        stats,
        2,
        position=messages[0],
        leased_by="web-1-4711.0-c07faf",
        leased_until=MINUTE,
    )
    make_position(stats, 3, position=messages[9], retry_at=MINUTE, failures=2)
    groups = [
        stats,
        make_group(
            "orders",
            "search",
            paused_at=-HOUR,
            paused_by="ada",
            pause_reason="the index is rebuilt, until the end of the week, they say",
        ),
        make_group("clicks", "counts"),
    ]
    scheduled = [
        make_scheduled(
            "orders.reminder",
            {"id": 7, "api_token": "s3cret"},
            key="customer-7",
            run_after=3 * DAY,
        ),
        make_scheduled(
            "orders.reminder",
            {"id": 8},
            run_after=-HOUR,
            due_at=MINUTE,
            failures=3,
            error="CheckViolation: new row for relation pgqueue_job, token=abc123",
        ),
    ]
    make_inbox_entry("paypal", "w" * 500)
    return {
        "scheduledmessage": [row.pk for row in scheduled],
        "inboxentry": [make_inbox_entry("stripe", "evt_1PqXY2").pk],
        "topic": [orders.pk],
        "message": messages,
        "subscription": [row.pk for row in subscriptions],
        "consumergroup": [row.pk for row in groups],
    }


def topic_paths(keys: dict[str, list[Any]]) -> list[str]:
    """Return the paths of each kind of page that shows these rows."""
    filling, _plain, stale, disabled = keys["subscription"]
    group = f"{ADMIN}/consumergroup/{keys['consumergroup'][0]}"
    return [
        *(f"{ADMIN}/{page}/" for page in keys),
        f"{ADMIN}/topic/{keys['topic'][0]}/change/",
        f"{ADMIN}/topic/{keys['topic'][0]}/replay/",
        *(
            f"{ADMIN}/scheduledmessage/{key}/change/"
            for key in keys["scheduledmessage"]
        ),
        f"{ADMIN}/scheduledmessage/{keys['scheduledmessage'][0]}/cancel/",
        f"{ADMIN}/inboxentry/{keys['inboxentry'][0]}/change/",
        f"{ADMIN}/message/?topic=orders&key=customer-1",
        f"{ADMIN}/message/{keys['message'][1]}/change/",
        *(f"{ADMIN}/subscription/{key}/change/" for key in (filling, stale, disabled)),
        f"{ADMIN}/subscription/{filling}/disable/",
        f"{ADMIN}/subscription/{stale}/remove/",
        f"{group}/change/",
        f"{group}/history/",
        f"{group}/pause/",
        f"{group}/read-on/",
        f"{group}/seek/",
    ]
