"""
Files: what ingest has written to one place, as `compact` and `erase` change it.

In Parquet a folder's files are replaced by others, as rewrite.py does it. In Delta it
is Delta's own DELETE and OPTIMIZE, in commits of which Delta refuses one that meets
another.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import date
from typing import Any

from django_pgqueue.extras import extra
from django_pgqueue.pipeline import erasures, ingest
from django_pgqueue.pipeline.exports import Files
from django_pgqueue.spark.export.delta import actions_of
from django_pgqueue.spark.export.parquet import many
from django_pgqueue.spark.export.place import DayRefused
from django_pgqueue.spark.export.store import Store, for_arrow
from django_pgqueue.spark.export.theirs import Theirs
from django_pgqueue.spark.ingest.delta import fences
from django_pgqueue.spark.ingest.rewrite import DAY, Rewrites
from django_pgqueue.spark.run import Run

# Of two commits that name it and follow from one version, Delta refuses the second.
APPLICATION = "django_pgqueue.erase"
# What a commit of it says, with the id of its receipt.
OF_RECEIPT = "pgqueue.erasure"

# Ids that one DELETE names.
DELETE_IDS = 5_000


def ingested(run: Run, target: str) -> InParquet | InDelta:
    """Return what was ingested to *target*."""
    is_delta = Store(target).exists("_delta_log")
    return InDelta(run, target) if is_delta else InParquet(run, target)


def not_while_ingesting(run: Run, target: str) -> None:
    """
    Raise DayRefused if a run of ingest may have messages that are not in files yet.

    Call it when they have gone from the log: a run that begins afterwards has none, and
    one whose process is away for longer than its lease puts nothing there any more.
    """
    with run.transaction(is_brief=True) as cursor:
        other = ingest.live_ingest(cursor, target)
    if other is not None:
        raise DayRefused(
            f"Run {other} of ingest writes there, and may have read messages of theirs "
            f"before they went: let it end, or stop it with pgqueue_pipeline stop "
            f"ingest, and run erase again."
        )


class InParquet:
    """Files of a folder of Parquet."""

    def __init__(self, run: Run, target: str) -> None:
        self._run = run
        self._target = target
        self._rewrites = Rewrites(run, target)

    def counted(self, theirs: Theirs) -> int:
        """Return how many messages are *theirs*."""
        return sum(
            self._of(file, theirs)
            for files in self._rewrites.folders().values()
            for file in files
        )

    def erase(self, theirs: Theirs, receipt: int) -> int:
        """
        Rewrite files without messages that are *theirs*; return how many those were.

        Raises:
            DayRefused: A file cannot be rewritten now; others were.
        """
        not_while_ingesting(self._run, self._target)
        self._rewrites.tidy_up()
        stream = self._rewrites.forget_undecided()
        if stream is not None:
            raise DayRefused(
                f"A batch of the checkpoint {stream} is not in its place yet: run "
                f"ingest, which puts it there, and then erase again."
            )
        invert = extra("pyarrow.compute").invert
        rows = 0

        def with_theirs(files: Files) -> Files:
            return [file for file in files if self._of(file, theirs)]

        def with_it(cursor: Any, gone: int, files: Files) -> None:
            topic, day = _named(str(files[0]["path"]))
            place = {"target": self._target, "topic": topic, "day": day}
            erasures.add_ingested(cursor, receipt, place, rows=gone, files=len(files))

        for folder, files in self._rewrites.folders().items():
            if with_theirs(files):
                _kept, gone, _files = self._rewrites.replace(
                    folder,
                    with_theirs,
                    file_bytes=max(int(file["bytes"]) for file in files),
                    kept=lambda batch: batch.filter(invert(theirs.mask(batch))),
                    with_it=with_it,
                )
                rows += gone
        return rows

    def compact(self, first: date, last: date, file_bytes: int) -> int:
        """
        Rewrite many small files of a topic and day into few; return the messages.

        Raises:
            DayRefused: A file cannot be rewritten now.
        """
        self._rewrites.tidy_up()
        rows = 0
        for folder, files in self._rewrites.folders().items():
            topic, day = _named(f"{folder}/")
            if str(first) <= day <= str(last) and many(files, file_bytes):
                kept, _gone, old = self._rewrites.replace(
                    folder,
                    lambda files: many(files, file_bytes),
                    file_bytes=file_bytes,
                )
                if old:
                    self._run.note(f"{topic}, {day}: {len(old)} files were rewritten.")
                rows += kept
        return rows

    def _of(self, file: Mapping[str, Any], theirs: Theirs) -> int:
        """Return how many messages of a file are *theirs*."""
        batches = self._rewrites.read(file, theirs.columns)
        return sum(theirs.mask(batch).true_count for batch in batches)


class InDelta:
    """A Delta table, of any file system that deltalake knows."""

    def __init__(self, run: Run, target: str) -> None:
        self._run = run
        self._target = target
        self._delta = extra("deltalake")

    def counted(self, theirs: Theirs) -> int:
        """Return how many messages are *theirs*."""
        return sum(1 for _ in self._ids(self._table(), theirs))

    def erase(self, theirs: Theirs, receipt: int) -> int:
        """As InParquet.erase()."""
        not_while_ingesting(self._run, self._target)
        table = self._table()
        self._note_commits(table)
        # The commits below follow from what was there while the run was live.
        self._run.check()
        with self._run.transaction(is_brief=True):
            pass
        self._hold_off_lost(table)
        rows, ids = 0, list(self._ids(table, theirs))
        for start in range(0, len(ids), DELETE_IDS):
            some = ", ".join(map(str, ids[start : start + DELETE_IDS]))
            self._run.check()
            done = table.delete(
                f"id IN ({some})",
                commit_properties=self._delta.CommitProperties(
                    custom_metadata={OF_RECEIPT: str(receipt)},
                    app_transactions=[
                        self._delta.Transaction(APPLICATION, self._run.id)
                    ],
                ),
            )
            rows += int(done["num_deleted_rows"])
        self._note_commits(table)
        if rows != len(ids):
            raise DayRefused(
                f"Of {len(ids):,} messages, {rows:,} were deleted: run erase again."
            )
        # Only what was replaced: a run of ingest may have begun meanwhile.
        table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
        return rows

    def compact(self, first: date, last: date, file_bytes: int) -> int:
        """As InParquet.compact()."""
        table = self._table()
        before = actions_of(table)
        found = {action["partition.day"] for action in before}
        days = sorted(str(day) for day in found if first <= day <= last)
        if not days:
            return 0
        table.optimize.compact(
            partition_filters=[(DAY, "in", days)], target_size=file_bytes
        )
        table.update_incremental()
        there = {action["path"] for action in actions_of(table)}
        old = [action for action in before if action["path"] not in there]
        if old:
            self._run.note(f"{len(old)} files were rewritten.")
        return sum(int(action["num_records"] or 0) for action in old)

    def _hold_off_lost(self, table: Any) -> None:
        """
        Have Delta refuse what a lost run of ingest has read before.

        It may be frozen just before its commit, which follows from an older version.
        """
        topics = {part["topic"] for part in table.partitions()}
        table.create_write_transaction(
            [],
            "append",
            table.schema(),
            commit_properties=self._delta.CommitProperties(
                app_transactions=[
                    self._delta.Transaction(APPLICATION, self._run.id),
                    *fences(sorted(topics), self._run),
                ]
            ),
        )
        table.update_incremental()

    def _note_commits(self, table: Any) -> None:
        """Note in receipts what commits have deleted, also of a run that died there."""
        for commit in table.history():
            if OF_RECEIPT not in commit:
                continue
            metrics = commit["operationMetrics"]
            place = {"target": self._target, "version": commit["version"]}
            with self._run.transaction(is_brief=True) as cursor:
                erasures.add_ingested(
                    cursor,
                    int(commit[OF_RECEIPT]),
                    place,
                    rows=int(metrics["num_deleted_rows"]),
                    files=int(metrics["num_removed_files"]),
                )

    def _ids(self, table: Any, theirs: Theirs) -> Iterator[int]:
        dataset = table.to_pyarrow_dataset()
        for batch in dataset.to_batches(columns=["id", *theirs.columns]):
            self._run.check()
            yield from batch.filter(theirs.mask(batch)).column("id").to_pylist()

    def _table(self) -> Any:
        return self._delta.DeltaTable(for_arrow(self._target))


def _named(path: str) -> tuple[str, str]:
    """Return the topic and the day that the folders of a file name."""
    topic, day = path.split("/")[:2]
    return topic.partition("=")[2], day.partition("=")[2]
