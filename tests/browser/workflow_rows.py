"""Workflows of a shop in every state that people meet, and the pages that show them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from tests.harness.factories import make_workflow

MINUTE = timedelta(minutes=1)
ADMIN = "/admin/pgqueue/workflow"


def step(name: str, state: str = "waiting", *after: int, **columns: Any) -> Any:
    """Return the columns of a step, with the times that its state has."""
    times: dict[str, Any] = {}
    if state != "waiting":
        times["started_at"] = -9 * MINUTE
    if state not in ("waiting", "started"):
        times["finished_at"] = -8 * MINUTE
    task = f"shop.tasks.{name}"
    told = {"name": task, "task": task, "state": state, "after": after}
    return {**told, **times, **columns}


def make_workflow_rows() -> list[int]:
    """Make one of each kind; return their ids."""
    payload = {
        "job": {"args": [4711], "kwargs": {"api_token": "s3cret"}, "queue": "media"},
        "result": {"path": "media/a", "token": "s3cret"},
    }
    many = [step("resize_the_image", "succeeded", 0, **payload) for _ in range(60)]
    rows = [
        make_workflow(
            [
                step("fetch_the_product", "succeeded"),
                *many,
                step("resize_the_image", "started", 0),
                step("publish", "waiting", *range(1, 62)),
                step("tell_the_seller", kind="on_error"),
            ],
            name="product images",
            key="product-4711",
        ),
        make_workflow(
            [
                step("reserve", "succeeded"),
                step("charge", "succeeded", 0),
                step(
                    "ship",
                    "dead",
                    1,
                    error={
                        "type": "shop.errors.OutOfStock",
                        "message": "none left, token=s3cret",
                        "reason": "exhausted",
                    },
                ),
                step("release", kind="compensation", compensates=0),
                step("refund", "dead", kind="compensation", compensates=1),
            ],
            name="order",
            kind="saga",
            state="compensating",
            finished_at=-8 * MINUTE,
        ),
        make_workflow(
            [
                step("load", "succeeded"),
                step("(gather)", "succeeded", 0, task=None, job=None),
                step("check", "skipped", 1),
                step("store", "expired", 2),
                step("report", "cancelled", 3),
            ],
            name="nightly",
            kind="flow",
            state="cancelled",
            finished_at=-8 * MINUTE,
            cancelled=2,
        ),
        make_workflow(name="nothing", state="succeeded", finished_at=-MINUTE),
    ]
    return [row.pk for row in rows]


def workflow_paths(keys: list[int]) -> list[str]:
    """Return the paths of every page that shows these workflows, and of their acts."""
    return [
        f"{ADMIN}/",
        *(f"{ADMIN}/{key}/change/" for key in keys),
        f"{ADMIN}/{keys[0]}/change/?state=succeeded",
        f"{ADMIN}/{keys[0]}/cancel/",
        f"{ADMIN}/{keys[1]}/retry-dead/",
        f"{ADMIN}/{keys[1]}/resolve/",
        f"{ADMIN}/{keys[1]}/history/",
    ]
