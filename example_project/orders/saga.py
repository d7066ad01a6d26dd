"""
The saga of an order: reserve, charge, ship, notify; and what undoes each.

Every step may run twice, and counts once:

- what a step writes into this database is one transaction with its ack (atomic);
- what it asks of others carries a key that is the same through every attempt.

Charging and shipping are tried until there is an answer. "No" is an answer: Reject, and
the saga undoes what was done before. Silence is none: whoever gave up on silence could
not say whether there is something to undo.
"""

from __future__ import annotations

from django.db.models import F
from postoffice.acceptance import accept
from postoffice.drafts import Draft

from django_pgqueue import JobContext, Reject, Retry, saga
from orders.models import Order, Product, Reservation
from orders.partners import call

# About a day.
UNTIL_ANSWERED = Retry(max_attempts=150, base="0.2s", cap="10m")

place_order = saga("place-order")


@place_order.step(compensate="release", atomic=True)
def reserve(order_id: int) -> None:
    """Put one piece aside; the row of the product is locked meanwhile."""
    order = Order.objects.get(pk=order_id)
    product = Product.objects.select_for_update().get(pk=order.product_id)
    if not product.stock:
        raise Reject(f"{product} is sold out")
    Reservation.objects.create(order=order)
    Product.objects.filter(pk=product.pk).update(stock=F("stock") - 1)


@place_order.compensation(atomic=True)
def release(order_id: int) -> None:
    """Give the piece back."""
    order = Order.objects.get(pk=order_id)
    Reservation.objects.get(pk=order_id).delete()
    Product.objects.filter(pk=order.product_id).update(stock=F("stock") + 1)


@place_order.step(
    compensate="refund", takes_context=True, timeout="60s", retries=UNTIL_ANSWERED
)
def charge(ctx: JobContext, order_id: int) -> str:
    """Charge the card; return the id of the charge."""
    order = Order.objects.select_related("product").get(pk=order_id)
    key = ctx.idempotency_key
    answer = call(
        "POST", "/charges", key=key, order=order.pk, cents=order.product.cents
    )
    return str(answer["id"])


@place_order.compensation(timeout="60s")
def refund(charge: str) -> None:
    """Give the money back; a second time changes nothing."""
    call("DELETE", f"/charges/{charge}")


@place_order.step(
    compensate="cancel_shipment",
    takes_context=True,
    timeout="60s",
    retries=UNTIL_ANSWERED,
)
def ship(ctx: JobContext, order_id: int) -> str:
    """Hand the parcel over; return the id of the shipment."""
    answer = call("POST", "/shipments", key=ctx.idempotency_key, order=order_id)
    return str(answer["id"])


@place_order.compensation(timeout="60s")
def cancel_shipment(ship: str) -> None:
    """Call the parcel back; a second time changes nothing."""
    call("DELETE", f"/shipments/{ship}")


@place_order.step(atomic=True)
def notify(order_id: int, ship: str) -> int:
    """Let the post office accept a mail, in one transaction with the ack."""
    order = Order.objects.select_related("product").get(pk=order_id)
    mail = Draft(
        subject=f"Your order {order.pk}",
        to=[order.email],
        cc=[],
        bcc=[],
        body=f"{order.product} is on its way: parcel {ship}.",
    )
    (mail_id,) = accept([mail])
    return mail_id
