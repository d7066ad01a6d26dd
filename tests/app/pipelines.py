"""A pipeline job as a project has it: a query, files, jobs and options."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from django_pgqueue.exceptions import SparkOptionError
from django_pgqueue.spark.job import pipeline_job
from django_pgqueue.spark.run import Run


@pipeline_job(chooses=("folder",), takes_out=())
def price_orders(
    run: Run, *, folder: str = "", day: str = "", over: str = "1h", least: int = 0
) -> int:
    """Make each order again that has a price; the others are kept in a file."""
    if not folder or not day:
        raise SparkOptionError("Give the options folder and day.")
    orders = run.query("SELECT id, name FROM testapp_order", divide_by="id")
    prices = run.session.read.csv(
        f"{folder}/prices.csv", header=True, schema="name string, price int"
    )
    priced = orders.join(prices, "name", "left")
    made = run.enqueue(
        priced.where(priced.price >= least).select("name"),
        "tests.app.tasks.make_order",
        name=f"to make {day}",
        key="name",
        over=over,
        start=f"{day}T00:00Z",
    )
    unpriced, rows = run.counted(priced.where(priced.price.isNull()))
    unpriced.select("id", "name").write.mode("overwrite").json(f"{folder}/unpriced")
    return made + rows()


@pipeline_job(takes_out=())
def wait_to_be_stopped(run: Run) -> None:
    """Do nothing, until it is stopped."""
    while True:
        run.check()
        time.sleep(0.05)


@pipeline_job(takes_out=())
def follow_a_plan(run: Run, *, folder: str = "") -> None:
    """Do what the first file of a folder is called, which is taken away before."""
    first = min(Path(folder).iterdir(), default=None)
    if first is None:
        return
    first.unlink()
    what = first.name.partition("-")[2]
    if what == "fail":
        raise ValueError("It was planned.")
    if what == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    changes = {
        "freeze": "lease_until = now() - interval '1s'",
        "stop": "cancel_requested_at = now()",
    }
    if what in changes:
        with run.transaction() as cursor:
            cursor.execute(
                f"UPDATE pgqueue_pipeline_run SET {changes[what]} WHERE id = %s",
                [run.id],
            )
    if what == "freeze":
        os.kill(os.getpid(), signal.SIGSTOP)
    while what != "succeed":
        run.check()
        time.sleep(0.05)
