"""The models of the shop of which the pages speak, where they do not define them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.apps import AppConfig, apps
from django.db import connection, models

LABEL = "shop"


class ShopConfig(AppConfig):
    """An app without files."""

    name = LABEL
    path = "."


@contextmanager
def installed() -> Iterator[None]:
    """Models of modules below ``shop`` are of an app while the block runs."""
    config = ShopConfig(LABEL, None)
    config.apps = apps
    config.models = apps.all_models[LABEL]
    apps.app_configs[LABEL] = config
    try:
        yield
    finally:
        del apps.app_configs[LABEL]
        del apps.all_models[LABEL]
        apps.clear_cache()


def forget(name: str) -> None:
    """Make room for another model of this name."""
    known = apps.all_models[LABEL]
    if name.lower() in known:
        with connection.cursor() as cursor:
            cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
        with connection.schema_editor() as editor:
            editor.delete_model(known.pop(name.lower()))
        apps.clear_cache()


def migrate() -> None:
    """Make the tables that are missing, in the test's transaction."""
    there = connection.introspection.table_names()
    with connection.schema_editor() as editor:
        for model in apps.all_models[LABEL].values():
            if model._meta.db_table not in there:
                editor.create_model(model)


def declare() -> dict[str, Any]:
    """Return the stand-ins, declared anew."""

    class Customer(models.Model):
        email = models.EmailField(default="ann@example.org")
        active = models.BooleanField(default=True)

        class Meta:
            app_label = LABEL

        def __str__(self) -> str:
            return self.email

    class Shop(models.Model):
        class Meta:
            app_label = LABEL

        def __str__(self) -> str:
            return f"shop {self.pk}"

    class Product(models.Model):
        shop = models.ForeignKey(Shop, models.CASCADE)

        class Meta:
            app_label = LABEL

        def __str__(self) -> str:
            return f"product {self.pk}"

    class Order(models.Model):
        number = models.CharField(max_length=20, default="")
        customer = models.ForeignKey(Customer, models.CASCADE, null=True)
        country = models.CharField(max_length=2, default="FR")
        state = models.CharField(max_length=20, default="new")
        paid = models.BooleanField(default=False)

        class Meta:
            app_label = LABEL

        def __str__(self) -> str:
            return self.number

    class Visit(models.Model):
        path = models.CharField(max_length=100)

        class Meta:
            app_label = LABEL

        def __str__(self) -> str:
            return self.path

    made = {each.__name__: each for each in (Customer, Order, Product, Shop, Visit)}
    for model in made.values():
        model.__module__ = f"{LABEL}.models"
    return made


MODELS = {"Customer", "Order", "Product", "Shop", "Visit"}
