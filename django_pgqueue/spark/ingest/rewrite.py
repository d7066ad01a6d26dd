"""
Rewrite: files of ingest are replaced by others, beside an ingest that goes on.

    _pgqueue_ingest/rewrites/topic=orders/day=2026-11-22/run-12-0.parquet
    topic=orders/day=2026-11-22/run-12-0.parquet

New ones are written aside, and then moved to their places.

Files have no manifest, so the database says which of a folder are to replace which
others, and only a live run says so. A name has the run in it, a file is moved once, and
what is deleted are names that were decided against: a run that was paused, and goes on
when others have rewritten the folder, moves nothing there.

A file of which ingest has the source still aside is not touched: it may be moved once
more.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from typing import Any

from django_pgqueue.exceptions import PipelineStopped
from django_pgqueue.extras import extra
from django_pgqueue.pipeline import ingest
from django_pgqueue.pipeline import runs as pipelines
from django_pgqueue.pipeline.exports import Files
from django_pgqueue.pipeline.ingest import Decided
from django_pgqueue.spark.export.parquet import OF_RUN, read, schema_of, written
from django_pgqueue.spark.export.place import DayRefused
from django_pgqueue.spark.export.rows import Rewritten
from django_pgqueue.spark.export.store import Store
from django_pgqueue.spark.ingest.parquet import ASIDE, BATCH, MESSAGES, place_of
from django_pgqueue.spark.run import Run

REWRITES = f"{ASIDE}/rewrites"

# Below ASIDE: a batch that is not in its place, in the folder of a run; of earlier
# versions, without one.
OF_BATCH = re.compile(
    rf"(?P<stream>[0-9a-f-]{{36}})/{BATCH}(?P<number>\d+)/(?:{OF_RUN}(?P<run>\d+)/)?"
    r"(?P<name>.*)"
)

DAY = "day"


class Rewrites:
    """The files of ingest at one place."""

    def __init__(self, run: Run, target: str) -> None:
        self._run = run
        self._target = target
        self._store = Store(target)

    def tidy_up(self) -> None:
        """Finish what runs that are over have decided; remove what they have not."""
        aside = self._store.files(REWRITES)
        with self._run.reading() as cursor:
            live = pipelines.live_runs(cursor)
            left = ingest.left(cursor, self._target)
        decided = {name for put in left.values() for name in put}
        for name in aside:
            run = int(re.sub(r".*/run-(\d+)-[^/]*", r"\1", name))
            if name not in decided and run not in live:
                self._store.remove(f"{REWRITES}/{name}")
        for folder in left:
            with suppress(DayRefused):
                self._take(folder)
                self._end(folder)

    def folders(self) -> dict[str, Files]:
        """Return the files that are in their places for good, by their folder."""
        topics = [name for name in self._store.names("") if name.startswith("topic=")]
        folders: defaultdict[str, list[Mapping[str, Any]]] = defaultdict(list)
        for file in self._settled(topics):
            folders[str(file["path"]).rpartition("/")[0]].append(file)
        return {**folders}

    def _settled(self, tops: Sequence[str]) -> list[Mapping[str, Any]]:
        """Return those below some folders."""
        found = {
            f"{top}/{path}": size
            for top in tops
            for path, size in self._store.files(top).items()
        }
        # Afterwards: what was there then, and has no source now, is not moved again.
        sources = {
            place_of(match["stream"], int(match["number"]), match["name"])
            for match in self._batches()
            if MESSAGES.fullmatch(match["name"])
        }
        return [
            {"path": path, "bytes": size}
            for path, size in sorted(found.items())
            if MESSAGES.fullmatch(path) and path not in sources
        ]

    def read(self, file: Any, columns: Sequence[str] | None = None) -> Iterator[Any]:
        """Yield the rows of a file, or some columns."""
        for batch in read(self._store, str(file["path"]), columns, by=DAY):
            self._run.check()
            yield batch

    def forget_undecided(self) -> str | None:
        """
        Remove batches that can never be in their places, of runs that are over.

        Returns:
            The stream of a batch that is decided and not in its place; None: there is
            none.
        """
        waits = None
        with self._run.reading() as cursor:
            live = pipelines.live_runs(cursor)
            for match in self._batches():
                latest = ingest.latest(cursor, match["stream"])
                run = match["run"] and int(match["run"])
                number = int(match["number"])
                if run is None or (
                    latest is not None and (latest.number, latest.run) == (number, run)
                ):
                    if MESSAGES.fullmatch(match["name"]):
                        waits = match["stream"]
                elif run not in live:
                    self._store.remove(f"{ASIDE}/{match[0]}")
        return waits

    def replace(
        self,
        folder: str,
        choose: Callable[[Files], Files],
        *,
        file_bytes: int,
        kept: Callable[[Any], Any] = lambda batch: batch,
        with_it: Callable[[Any, int, Files], None] = lambda cursor, gone, files: None,
    ) -> tuple[int, int, Files]:
        """
        Write what is kept of some files of a folder into others, in their place.

        Args:
            choose: Returns which of its files.
            file_bytes: A file that has grown so large is followed by another.
            kept: Returns what stays of a batch.
            with_it: What else is written in the transaction that decides; it gets a
                cursor, the rows that are gone, and the files.

        Returns:
            The rows that are kept, those that are gone, and the files that were
            replaced.

        Raises:
            DayRefused: Another run has the folder, or what was written differs.
        """
        run = self._run
        self._take(folder)
        files = choose(self._settled([folder]))
        if not files:
            self._end(folder)
            return 0, 0, ()
        top = folder.rpartition("/")[0]
        given = chain.from_iterable(map(self.read, files))
        rows = Rewritten(run, self._schema(files), given, kept)
        aside = f"{REWRITES}/{top}"
        names = written(run, self._store, aside, rows, file_bytes=file_bytes, by=DAY)
        put = [f"{top}/{name}" for name in sorted(names)]
        gone = rows.rows_read - rows.sums.rows
        decided = Decided(put, [str(file["path"]) for file in files])
        with run.transaction(is_brief=True) as cursor:
            if not ingest.decide_rewrite(
                cursor, self._target, folder, decided, run=run.id
            ):
                raise PipelineStopped("Another run has taken up the folder.")
            with_it(cursor, gone, files)
        self._finish(decided)
        self._end(folder)
        return rows.sums.rows, gone, files

    def _schema(self, files: Files) -> Any:
        """Return the columns of some files, and the day."""
        arrow = extra("pyarrow")
        of_files = [schema_of(self._store, str(file["path"])) for file in files]
        return arrow.unify_schemas(of_files).append(arrow.field(DAY, arrow.string()))

    def _take(self, folder: str) -> None:
        """Take a folder, and finish what another run has decided there."""
        with self._run.transaction(is_brief=True) as cursor:
            decided = ingest.take(cursor, self._target, folder, run=self._run.id)
        if decided is None:
            raise DayRefused(
                f"Another run is rewriting {folder}; left to the next one."
            )
        self._finish(decided)
        with self._run.transaction(is_brief=True) as cursor:
            ingest.decide_rewrite(
                cursor, self._target, folder, Decided(), run=self._run.id
            )

    def _finish(self, decided: Decided) -> None:
        """Move the new files to their places, and delete the old ones."""
        for name in decided.put:
            # Of a run that has died, some are moved; an object store copies first.
            if not self._store.exists(name):
                self._store.move(f"{REWRITES}/{name}", name)
            self._store.remove(f"{REWRITES}/{name}")
        for name in decided.replaced:
            self._store.remove(name)

    def _end(self, folder: str) -> None:
        with self._run.transaction(is_brief=True) as cursor:
            ingest.end(cursor, self._target, folder, run=self._run.id)

    def _batches(self) -> list[re.Match[str]]:
        """Return the files of batches that are aside."""
        matches = map(OF_BATCH.fullmatch, self._store.files(ASIDE))
        return [match for match in matches if match is not None]
