"""A pipeline job as a project has it: two sources, two sinks, options."""

from __future__ import annotations

from typing import Any

from django_pgqueue.spark.job import pipeline_job
from django_pgqueue.spark.places import Files, Jobs, Query


@pipeline_job(
    sources={
        "orders": Query("SELECT id, name FROM testapp_order", divide_by="id"),
        "prices": Files(
            "csv",
            "{folder}/prices.csv",
            options={"header": "true"},
            schema="name string, price int",
        ),
    },
    sinks={
        "to_make": Jobs(
            "tests.app.tasks.make_order",
            name="to make {day}",
            key="name",
            over="{over}",
            start="{day}T00:00Z",
        ),
        "unpriced": Files("json", "{folder}/unpriced"),
    },
)
def price_orders(
    orders: Any,
    prices: Any,
    *,
    folder: str | None = None,
    day: str | None = None,
    over: str = "1h",
    least: int = 0,
) -> dict[str, Any]:
    """Make each order again that has a price; the others are kept in a file."""
    priced = orders.join(prices, "name", "left")
    return {
        "to_make": priced.where(priced.price >= least).select("name"),
        "unpriced": priced.where(priced.price.isNull()).select("id", "name"),
    }
