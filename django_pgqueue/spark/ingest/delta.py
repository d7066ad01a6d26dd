"""
Delta: a commit for each batch, which names the checkpoint and the batch's number.

The table keeps the highest number of each checkpoint with its commits. So a batch that
runs again is found there, and a new checkpoint has numbers of its own. A commit follows
from the very version that was looked at: of two runs that write a batch, be one of them
paused, Delta refuses the second; and one that an erasure of its topic has overtaken.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from django_pgqueue.extras import extra
from django_pgqueue.spark.export.delta import found_table, made_table
from django_pgqueue.spark.run import Run

# What is in the driver's memory at a time.
ROWS_MAX = 50_000

APPLICATION = "django_pgqueue.ingest"

# An erasure may come between, which a live run writes after.
TRIES = 3


class DeltaPlace:
    """A Delta table, of any file system that deltalake knows."""

    rows_max: int | None = ROWS_MAX

    def __init__(self, run: Run, target: str) -> None:
        self._run = run
        self._target = target
        self._delta = extra("deltalake")

    def is_empty(self, topics: Sequence[str]) -> bool:
        """Whether no message of these topics was ever put there."""
        table = found_table(self._target)
        return table is None or not any(
            part["topic"] in topics for part in table.partitions()
        )

    def positions(self) -> list[Any]:
        """Return topic, partition and highest id of what is there, as dicts."""
        dataset = self._delta.DeltaTable(self._target).to_pyarrow_dataset()
        table = dataset.to_table(columns=["topic", "partition", "id"])
        found = table.group_by(["topic", "partition"]).aggregate([("id", "max")])
        return [{**row, "id": row["id_max"]} for row in found.to_pylist()]

    def write(self, frame: Any, stream: str, number: int) -> int:
        """Commit a batch; return its messages, 0 if an earlier run wrote them."""
        application = f"{APPLICATION}.{stream}"
        found: Any = None
        for tries_left in reversed(range(TRIES)):
            table = found_table(self._target)
            if table is not None and _has(table, application, number):
                return 0
            if found is None:
                f = extra("pyspark.sql.functions")
                found = frame.withColumn("day", f.to_date("published_at")).toArrow()
            if not found.num_rows:
                return 0
            if table is None:
                table = made_table(self._target, found.schema, ["topic", "day"])
                if _has(table, application, number):
                    return 0
            # The commit follows from what was there while the run was live.
            with self._run.transaction(is_brief=True):
                pass
            try:
                self._commit(table, found, application, number)
                break
            except self._delta.exceptions.CommitFailedError:
                if not tries_left:
                    raise
        return int(found.num_rows)

    def _commit(self, table: Any, found: Any, application: str, number: int) -> None:
        topics = found.column("topic").unique().to_pylist()
        self._delta.write_deltalake(
            table,
            found,
            mode="append",
            partition_by=["topic", "day"],
            commit_properties=self._delta.CommitProperties(
                custom_metadata={"pgqueue.run": str(self._run.id)},
                app_transactions=[
                    self._delta.Transaction(application, number),
                    *fences(topics, self._run),
                ],
            ),
        )


def fences(topics: Iterable[str], run: Run) -> list[Any]:
    """
    Return what each batch of these topics names in its commit, and each erasure.

    Of two commits that name it and follow from one version, Delta refuses the second.
    """
    transaction = extra("deltalake").Transaction
    return [transaction(f"{APPLICATION}.of.{topic}", run.id) for topic in topics]


def _has(table: Any, application: str, number: int) -> bool:
    before = table.transaction_version(application)
    return before is not None and before >= number
