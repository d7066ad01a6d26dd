"""
Places: where the rows of pipeline jobs come from and go to.

Besides these, anything with a read(run) is a source, and anything with a
write(run, frame) is a sink.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from django_pgqueue.spark.tables import TABLES


@dataclass(frozen=True, slots=True)
class QueueTable:
    """
    A source: a table of the queue, read by format("pgqueue").

    Attributes:
        table: "jobs", "archive" or "dead_letters".
        columns: Those that are fetched; None: all.
        options: Further options of the data source.
    """

    table: str
    columns: Sequence[str] | None = None
    options: Mapping[str, str] = field(default_factory=dict)

    def read(self, run: Any) -> Any:
        """Return its rows; how fast and from which server, the run says."""
        reader = run.session.read.format("pgqueue").option("table", self.table)
        known = {column.name: column for column in TABLES[self.table].columns}
        if self.columns is not None:
            reader = reader.schema(
                ", ".join(f"{name} {known[name].type}" for name in self.columns)
            )
        return reader.options(**{**self.options, **run.read_options}).load()


@dataclass(frozen=True, slots=True)
class Files:
    """
    A source or a sink: files in a format of Spark's.

    Attributes:
        format: "parquet", "json", "csv", "orc" …
        path: A folder. Options of the job stand in it by their names: "{folder}/late".
        mode: Of a sink. "overwrite" replaces what is there, so that a run can be
            repeated; "append" adds to it, and a run that failed and is run again may
            have added twice.
        partition_by: Of a sink: columns that become folders.
        options: Those of the format.
    """

    format: str
    path: str
    mode: str = "overwrite"
    partition_by: Sequence[str] = ()
    options: Mapping[str, str] = field(default_factory=dict)

    def read(self, run: Any) -> Any:
        """Return the rows of the files."""
        reader = run.session.read.format(self.format).options(**self.options)
        return reader.load(self._path(run))

    def write(self, run: Any, frame: Any) -> int:
        """Write the rows; Spark shows the files when all of them are written."""
        counted, rows = run.counted(frame)
        writer = counted.write.format(self.format).options(**self.options)
        if self.partition_by:
            writer = writer.partitionBy(*self.partition_by)
        writer.mode(self.mode).save(self._path(run))
        return int(rows())

    def _path(self, run: Any) -> str:
        return self.path.format(**run.options)
