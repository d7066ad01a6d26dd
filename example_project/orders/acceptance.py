"""Acceptance: an order and its saga commit together, or neither does."""

from __future__ import annotations

from django.db import transaction

from orders.models import Order, Product
from orders.saga import place_order


def accept_order(product: Product, email: str) -> Order:
    """Store an order, and the saga that carries it out or undoes it."""
    with transaction.atomic():
        order = Order.objects.create(product=product, email=email)
        saga = place_order.start(order_id=order.pk, key=f"order-{order.pk}")
        order.saga = saga.id
        order.save(update_fields=["saga"])
    return order
