"""
A Delta table of the lake, by `deltalake`: days of the archive, or messages of the log.

A commit is one step, for readers and for crashes. Delta refuses a commit of which
another one has overtaken the version that it follows from, if both name the same
application transaction, change the same files, or one of them is fence()'s. So a run
loads the log, sees in the database that it is live, reads what it is to write, and
commits: whoever was paused meanwhile, or has read rows that were erased since, is
refused.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Any

from django_pgqueue.bounds import EXPORT_CHARACTERS_MAX, EXPORT_TARGET
from django_pgqueue.exceptions import SparkError, SparkOptionError
from django_pgqueue.extras import arrow, compute, extra
from django_pgqueue.pipeline import runs as pipelines
from django_pgqueue.pipeline.erasures import PAYLOAD, Sought
from django_pgqueue.redaction.values import redact_json
from django_pgqueue.spark.redact import Redaction
from django_pgqueue.spark.run import Run
from django_pgqueue.spark.store import Store, for_arrow

DAY = "day"

# Megabytes (2**20 bytes) of a file; one that has grown so large is followed by another.
FILE_MB = 256

# A commit that is refused is tried so often, each time with what was read anew.
TRIES = 3

# The folders in which a table of ours has its files; others may be beside them.
OF_TABLE = re.compile(
    r"(files/[0-9a-f]{32}|day=[^/]+/queue=[^/]+|topic=[^/]+/day=[^/]+)/", re.ASCII
)

# Ids that one DELETE names.
DELETE_IDS = 5_000

# What a commit of an erasure says: its receipt, and the day that rows are gone from.
RECEIPT, ERASED_DAY = "pgqueue.erasure", "pgqueue.erased_day"


def checked_target(path: str) -> str:
    """
    Return *path* as rows have it: without slashes at its end.

    Raises:
        SparkOptionError: There is none, it is not from the root, or Delta takes none
            like it.
    """
    if not path:
        raise SparkOptionError(
            "The run has no path: set PGQUEUE['EXPORT'], or give -o path=/srv/export."
        )
    if not EXPORT_TARGET.match(path):
        raise SparkOptionError(
            f"The path is {path!r}; it must begin with / or be a URI such as "
            f"s3a://bucket/jobs."
        )
    if len(path) > EXPORT_CHARACTERS_MAX:
        raise SparkOptionError(
            f"The path has {len(path):,} characters; the limit is "
            f"{EXPORT_CHARACTERS_MAX:,}."
        )
    if "%" in path:
        raise SparkOptionError(f"The path is {path!r}; a Delta table takes no %.")
    return path.rstrip("/")


def checked_days(since: str, until: str) -> tuple[date, date]:
    """
    Return the first and the last day that the options say; "": there is no such end.

    Raises:
        SparkOptionError: One is no day, or the last is before the first.
    """
    first, last = _day("since", since, date.min), _day("until", until, date.max)
    if last < first:
        raise SparkOptionError(
            f"The option until is {until!r}, before since, which is {since!r}: no day "
            f"is meant."
        )
    return first, last


def _day(name: str, text: str, otherwise: date) -> date:
    try:
        return date.fromisoformat(text) if text else otherwise
    except ValueError:
        raise SparkOptionError(
            f"The option {name} is {text!r}; it must be a day such as 2026-11-21."
        ) from None


class LakeTable:
    """The Delta table at *target*, whose log is loaded once and then followed."""

    def __init__(self, run: Run, target: str) -> None:
        self.run = run
        self.target = target
        self.store = Store(target)
        self._delta = extra("deltalake")
        self._uri = for_arrow(target)
        self._loaded: Any = None
        self._dataset: tuple[int, Any] = (-1, None)

    @property
    def refused(self) -> type[Exception]:
        """What a commit raises that another one has overtaken."""
        error: type[Exception] = self._delta.exceptions.CommitFailedError
        return error

    def latest(self) -> Any:
        """Return the deltalake.DeltaTable, as it is now; None: there is none."""
        if self._loaded is not None:
            self._loaded.update_incremental()
        elif self._delta.DeltaTable.is_deltatable(self._uri):
            self._loaded = self._delta.DeltaTable(self._uri)
        return self._loaded

    def existing(self) -> Any:
        """
        Return it as latest() does.

        Raises:
            SparkOptionError: There is none.
        """
        table = self.latest()
        if table is None:
            raise SparkOptionError(
                f"There is no Delta table at {self.target}: run export or ingest, or "
                f"name another path."
            )
        return table

    def made(self, schema: Any, partition_by: Sequence[str]) -> Any:
        """
        Return it as latest() does; it is made first, or gets the columns that it lacks.

        Raises:
            SparkError: The table is another one.
        """
        table = self.latest()
        if table is None:
            self._delta.DeltaTable.create(
                self._uri, schema, mode="ignore", partition_by=[*partition_by]
            )
            table = self.latest()
        if table.metadata().partition_columns != [*partition_by]:
            raise SparkError(
                f"The Delta table at {self.target} has other rows: it is divided by "
                f"{', '.join(table.metadata().partition_columns) or 'nothing'}. Take "
                f"another path."
            )
        names = {field.name for field in table.schema().fields}
        fields = self._delta.Schema.from_arrow(schema).fields
        lacking = [field for field in fields if field.name not in names]
        if lacking:
            table.alter.add_columns(lacking)
        return table

    # What latest() has found --------------------------------------------------------

    def files(self) -> list[dict[str, Any]]:
        """Return path, `size_bytes`, `num_records` and partition of each file."""
        if self._loaded is None:
            return []
        added = self._loaded.get_add_actions(flatten=True)
        files: list[dict[str, Any]] = arrow.table(added).to_pylist()
        return files

    def rows_by_day(self) -> dict[date, int]:
        """Return how many rows each day has, by the log."""
        rows: defaultdict[date, int] = defaultdict(int)
        for file in self.files():
            rows[file["partition.day"]] += file["num_records"] or 0
        return rows

    def broken_days(self) -> set[date]:
        """Return the days of which the log names files that are not there."""
        there = self.store.files("")
        return {
            file["partition.day"]
            for file in self.files()
            if there.get(file["path"]) != file["size_bytes"]
        }

    def batches(self, day: date, columns: Sequence[str]) -> Iterator[Any]:
        """Yield the rows of a day as pyarrow.RecordBatch of *columns*."""
        if self._loaded is None:
            return
        version = self._loaded.version()
        if self._dataset[0] != version:
            # With Arrow's own file system: that of deltalake lets Python crash at its
            # end, once a file was not there.
            dataset = self._loaded.to_pyarrow_dataset(filesystem=self.store.filesystem)
            self._dataset = version, dataset
        of_day = extra("pyarrow.dataset").field(DAY) == day
        for batch in self._dataset[1].to_batches(columns=[*columns], filter=of_day):
            self.run.check()
            if batch.num_rows:
                yield batch

    # What changes it ----------------------------------------------------------------

    def commit_properties(self, transactions: Mapping[str, int]) -> Any:
        """Return what a commit names: this run, and transactions by application."""
        return self._delta.CommitProperties(
            custom_metadata={"pgqueue.run": str(self.run.id)},
            app_transactions=[
                self._delta.Transaction(name, version)
                for name, version in transactions.items()
            ],
        )

    def compact(self, first: date, last: date, file_bytes: int) -> int:
        """Rewrite small files of each day into few; return their rows."""
        table = self.existing()
        before = self.files()
        found = {file["partition.day"] for file in before}
        days = sorted(str(day) for day in found if first <= day <= last)
        if not days:
            return 0
        table.optimize.compact(
            partition_filters=[(DAY, "in", days)], target_size=file_bytes
        )
        self.latest()
        there = {file["path"] for file in self.files()}
        old = [file for file in before if file["path"] not in there]
        if old:
            self.run.note(f"{len(old)} files were rewritten.")
        # What was replaced a week ago; a younger file may be read.
        table.vacuum(dry_run=False)
        return sum(int(file["num_records"] or 0) for file in old)

    def fence(self, receipt: int) -> None:
        """
        Have Delta refuse the commits of all who have read before; each change of the
        table's properties does that. What dead runs have left is deleted.
        """
        table = self.existing()
        left = self.store.files("")
        with self.run.reading() as cursor:
            others = {*pipelines.live_runs(cursor)} - {self.run.id}
        table.alter.set_table_properties(
            {RECEIPT: str(receipt)}, raise_if_not_exists=False
        )
        self.latest()
        there = {file["path"] for file in self.files()}
        # Whoever has written them can commit them no more; one that is live has them
        # open.
        for path in () if others else left:
            if OF_TABLE.match(path) and path not in there:
                self.store.remove(path)

    def find(self, day: date, theirs: Theirs) -> list[int]:
        """Return the ids of rows of a day that are *theirs*."""
        return [
            id_
            for batch in self.batches(day, ["id", *theirs.columns])
            for id_ in batch.filter(theirs.mask(batch)).column("id").to_pylist()
        ]

    def erase(self, day: date, ids: Sequence[int], receipt: int) -> None:
        """Delete rows of a day, by commits that name a receipt."""
        for start in range(0, len(ids), DELETE_IDS):
            some = ", ".join(map(str, ids[start : start + DELETE_IDS]))
            self.run.check()
            self._loaded.delete(
                f"{DAY} = '{day}' AND id IN ({some})",
                commit_properties=self._delta.CommitProperties(
                    custom_metadata={RECEIPT: str(receipt), ERASED_DAY: str(day)}
                ),
            )
        self.latest()

    def forget(self) -> None:
        """Delete the files that commits have replaced: nobody can read them again."""
        self._loaded.vacuum(
            retention_hours=0, enforce_retention_duration=False, dry_run=False
        )

    def erased(self) -> Iterator[tuple[int, dict[str, Any], dict[str, Any]]]:
        """Yield receipt, place and metrics of commits of erasures, the newest first."""
        for commit in self._loaded.history():
            if ERASED_DAY in commit:
                place = {
                    "target": self.target,
                    "day": commit[ERASED_DAY],
                    "version": commit["version"],
                }
                yield int(commit[RECEIPT]), place, commit["operationMetrics"]


# Theirs -----------------------------------------------------------------------------
# What the files have in JSON is compared as PostgreSQL compares jsonb: 42 is 42.0, and
# neither is "42".

PATH = re.compile(
    r"(args(?=\[)|kwargs(?=\.)|payload(?=[.\[]))((?:\.[A-Za-z_][\w-]*|\[\d{1,4}\])+)",
    re.ASCII,
)
STEP = re.compile(r"\.([A-Za-z_][\w-]*)|\[(\d+)\]", re.ASCII)

PATH_CHARACTERS_MAX = 200

# A text of which JSON has just one spelling.
PLAIN = re.compile(r"[A-Za-z0-9 _.,:@+-]+", re.ASCII)

MISSING = object()


def sought(path: str, value: str, task: str, redaction: Redaction) -> Sought:
    """
    Return what the options say.

    Raises:
        SparkOptionError: One of them is wrong, or the files do not have the value.
    """
    found = PATH.fullmatch(path) if len(path) <= PATH_CHARACTERS_MAX else None
    if found is None:
        raise SparkOptionError(
            f"The option path is {path[:PATH_CHARACTERS_MAX]!r}; it must be an "
            f"argument such as kwargs.customer_id, or args[0] with a task, or of "
            f"messages a part of the payload such as payload.customer_id; of at most "
            f"{PATH_CHARACTERS_MAX} characters."
        )
    if not value:
        raise SparkOptionError(
            "The option value is empty; it must be the customer's, as JSON or as text."
        )
    if found[1] == "args" and not task:
        raise SparkOptionError(
            f"The option path is {path}, which means something else in each task: say "
            f"whose with -o task=shop.tasks.send."
        )
    if found[1] == PAYLOAD and task:
        raise SparkOptionError(
            f"The option path is {path}, which is of messages, and the option task is "
            f"of jobs: leave it out, or name an argument."
        )
    steps = tuple(key or index for key, index in STEP.findall(found[2]))
    asked = Sought(found[1], steps, _value(value), task)
    if not isinstance(asked.value, (str, int, float)) or isinstance(asked.value, bool):
        raise SparkOptionError(
            "The option value must be a text or a number, which a customer has alone."
        )
    _check_shown(path, asked, redaction)
    return asked


def _value(text: str) -> Any:
    try:
        # NaN is no JSON.
        return json.loads(text, parse_constant=int)
    except ValueError:
        return text


def _check_shown(path: str, asked: Sought, redaction: Redaction) -> None:
    """Raise SparkOptionError where files have [redacted] in place of the value."""
    whole: Any = asked.value
    for step in reversed(asked.path):
        # Those before are of no matter.
        whole = [*[None] * int(step), whole] if step.isdigit() else {step: whole}
    places = redaction.places.get(asked.task, ()) if asked.column == "args" else ()
    shown = redact_json(json.dumps(whole), redaction.patterns, secret_places=places)
    if json.loads(shown) != whole:
        raise SparkOptionError(
            f"What {path} has is a secret, so exported files do not have it: name "
            f"another argument of the same jobs."
        )


@dataclass(frozen=True, slots=True)
class Theirs:
    """
    Finds rows of one customer in batches of files.

    Attributes:
        value: What they have.
        column: In which column.
        paths: And where in its JSON; at one of them.
        task: "": of any.
        messages: Jobs of these are theirs too.
    """

    value: Any
    column: str
    paths: Sequence[Sequence[str]]
    task: str = ""
    messages: Sequence[int] = ()

    @property
    def columns(self) -> list[str]:
        """What a batch must have."""
        return [
            self.column,
            *(["task"] if self.task else []),
            *(["message_id"] if self.messages else []),
        ]

    @classmethod
    def of_jobs(cls, asked: Sought, messages: Sequence[int] = ()) -> Theirs:
        """Return what finds jobs, also those of some *messages*."""
        column, paths = asked.in_jobs
        return cls(asked.value, column, paths, task=asked.task, messages=messages)

    @classmethod
    def of_messages(cls, asked: Sought) -> Theirs:
        """Return what finds messages."""
        return cls(asked.value, PAYLOAD, [asked.path])

    def mask(self, batch: Any) -> Any:
        """Return which rows of a pyarrow.RecordBatch are theirs."""
        texts = batch.column(self.column).cast(arrow.string())
        found = compute.is_valid(texts)
        if (literal := _literal(self.value)) is not None:
            found = compute.match_substring(texts, literal)
            found = compute.fill_null(found, False)
        if self.task:
            tasks = batch.column("task").cast(arrow.string())
            found = compute.and_(found, compute.equal(tasks, self.task))
        if compute.any(found).as_py():
            of_suspects = [
                self._is_theirs(text) for text in texts.filter(found).to_pylist()
            ]
            found = compute.replace_with_mask(
                found, found, arrow.array(of_suspects, arrow.bool_())
            )
        if self.messages:
            wanted = arrow.array(self.messages, arrow.int64())
            of_theirs = compute.is_in(batch.column("message_id"), value_set=wanted)
            found = compute.or_(found, of_theirs)
        return found

    def _is_theirs(self, text: str) -> bool:
        whole: Any = json.loads(text, parse_float=Decimal)
        return any(self._has(whole, path) for path in self.paths)

    def _has(self, found: Any, path: Sequence[str]) -> bool:
        for step in path:
            found = _below(found, step)
        value = self.value
        if isinstance(value, str) or isinstance(found, (str, bool)):
            return type(found) is type(value) and bool(found == value)
        return isinstance(found, (int, Decimal)) and found == Decimal(repr(value))


def _below(found: Any, step: str) -> Any:
    if isinstance(found, dict):
        return found.get(step, MISSING)
    if isinstance(found, list) and step.isdigit() and int(step) < len(found):
        return found[int(step)]
    return MISSING


def _literal(value: Any) -> str | None:
    """Return what each text with *value* has in it; None: that is not known."""
    if isinstance(value, str):
        return value if PLAIN.fullmatch(value) else None
    return str(value) if isinstance(value, int) and abs(value) < 10**15 else None
