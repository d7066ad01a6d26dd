"""Products, and the orders of them."""

from __future__ import annotations

from django.db import models
from django.db.models.functions import Now

EMAIL_MAX = 254  # Characters: what a forward-path of SMTP has room for.


class Product(models.Model):
    """What can be ordered, and how many of it are left."""

    name = models.CharField(max_length=100, unique=True)
    cents = models.PositiveIntegerField()
    stock = models.PositiveIntegerField()

    class Meta:
        ordering = ["pk"]

    def __str__(self) -> str:
        return self.name

    @property
    def price(self) -> str:
        """For people."""
        return f"{self.cents / 100:,.2f}"


class Order(models.Model):
    """
    One piece of a product, for somebody.

    How far it is stands in its saga: a second status here could only contradict it.
    """

    product = models.ForeignKey(Product, models.PROTECT)
    email = models.EmailField(max_length=EMAIL_MAX)
    # The id of its saga, which was stored with this row in one transaction.
    saga = models.BigIntegerField(null=True, blank=True)
    created_at = models.DateTimeField(db_default=Now())

    def __str__(self) -> str:
        return f"order {self.pk}"


class Reservation(models.Model):
    """One piece that was put aside for an order; deleted when it is given back."""

    order = models.OneToOneField(Order, models.CASCADE, primary_key=True)

    def __str__(self) -> str:
        return f"reservation of {self.order}"
