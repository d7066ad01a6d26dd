"""
Erase: one customer's jobs and messages, out of tables, the log and files.

The archive comes first: whoever exports a day afterwards does not find them there, and
whoever was exporting it before is waited for, since the day is his until he ends. Then
the files in which they are are rewritten as `compact` does it. The manifest counts and
sums up what stays, so that retention finds archive and manifest to agree.

The receipt says how many rows went from where, also if the run broke off: then another
one erases the rest, with a receipt of its own.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import Any

from django_pgqueue.exceptions import SparkError
from django_pgqueue.extras import extra
from django_pgqueue.pipeline import erasures, exports, ingest
from django_pgqueue.pipeline.erasures import ARCHIVE, LETTERS, LIVE, LOG, Page, Sought
from django_pgqueue.pipeline.exports import IDENTITY, Content, Details
from django_pgqueue.spark.export.day import (
    TAKEN,
    Lake,
    Unfinished,
    each_day,
    format_of,
    opened,
    replace_day,
)
from django_pgqueue.spark.export.place import DayRefused
from django_pgqueue.spark.export.rows import of_files
from django_pgqueue.spark.export.store import Store
from django_pgqueue.spark.export.sums import PREFIX, Sums
from django_pgqueue.spark.export.theirs import Theirs, sought
from django_pgqueue.spark.ingest.files import OF_RECEIPT, ingested
from django_pgqueue.spark.job import pipeline_job
from django_pgqueue.spark.run import Run

# What a commit of Delta says of a day that was erased from.
OF_DAY = "pgqueue.erased"


@pipeline_job(name="erase", in_queue=False, takes_out=(), hides=("value",))
def erase(
    run: Run, *, path: str = "", value: str = "", task: str = "", apply: bool = False
) -> int:
    """
    Erase the ended jobs, or the messages, of one customer, by a value that names him.

    Options: path, an argument such as kwargs.customer_id or args[0], or of messages a
    part of the payload such as payload.customer_id; value, his, as JSON or as text;
    task, only of this task; apply, do it: otherwise it only counts.
    """
    asked = sought(path, value, task, run.redaction)
    messages = _messages(run, asked)
    if not apply:
        return _preview(run, asked, messages)
    if run.sign is None:
        raise SparkError("The run has no key to sign a receipt with: use the command.")
    with run.transaction(is_brief=True) as cursor:
        receipt = erasures.begin(
            cursor,
            run=run.id,
            path=path,
            task=task,
            value_hash=run.sign(f"{path}\0{task}\0{asked.values()['value']}"),
        )
    rows = _from_tables(run, asked, messages, receipt)
    problems: dict[date, str] = {}
    for target in _targets(run):
        with opened(run, target, format_of(run, target)) as lake:
            theirs = _Days(lake, asked, messages, receipt)
            try:
                theirs.recover()
                rows += each_day(lake, theirs.due(), theirs.erase, "erased from")
            except Unfinished as error:
                rows += error.rows
                problems |= error.problems
            lake.place.forget()
    if problems:
        raise Unfinished(problems, rows, "erased, run it again")
    # After the jobs, which are found by them.
    rows += _from_log(run, messages, receipt)
    if asked.is_of_messages:
        rows += _from_ingested(run, asked, receipt, rows)
    with run.transaction(is_brief=True) as cursor:
        erasures.finish(cursor, receipt)
    run.note(f"Receipt {receipt}: {rows:,} rows are gone, those of files included.")
    _note_waiting(run, asked, messages)
    return rows


def _preview(run: Run, asked: Sought, messages: Messages) -> int:
    """Tell what would go; return 0, since nothing has."""
    with run.reading() as cursor:
        tables = erasures.day_tables(cursor, ARCHIVE)
        archive = sum(_counted(run, cursor, table, asked, messages) for table in tables)
        letters = _counted(run, cursor, LETTERS, asked, messages)
    run.note(
        f"Preview: {archive:,} rows of the archive and {letters:,} dead letters would "
        f"be erased. -o apply=true does it."
    )
    if asked.is_of_messages:
        rows = sum(map(len, messages.going.values()))
        run.note(f"Preview: {rows:,} messages of the log as well.")
    for target in _targets(run):
        with opened(run, target, format_of(run, target)) as lake:
            found = _Days(lake, asked, messages, 0)
            days = found.due()
            rows = sum(found.counted(day) for day in days)
        run.note(f"Preview: {rows:,} rows of {len(days)} days in {target} as well.")
    for target in _ingested(run) if asked.is_of_messages else ():
        rows = ingested(run, target).counted(Theirs.of_messages(asked))
        run.note(f"Preview: {rows:,} messages in {target} as well.")
    _note_waiting(run, asked, messages)
    return 0


def _note_waiting(run: Run, asked: Sought, messages: Messages) -> None:
    with run.reading() as cursor:
        live = _counted(run, cursor, LIVE, asked, messages)
    if live:
        run.note(
            f"{live:,} jobs of theirs have not ended, and stay: cancel them, or let "
            f"them end, and erase once more."
        )
    if messages.waiting:
        run.note(
            f"{len(messages.waiting):,} messages of theirs wait for a consumer group "
            f"or a job, and stay: let them be read, or skip them, and erase once more."
        )


def _counted(
    run: Run, cursor: Any, table: str, asked: Sought, messages: Messages
) -> int:
    pages = _pages(run, cursor, table, asked, messages.ids)
    return sum(page.rows for page in pages)


def _pages(
    run: Run, cursor: Any, table: str, asked: Sought, ids: Sequence[int]
) -> Iterator[Page]:
    after: int | None = 0
    while after is not None:
        run.check()
        page = erasures.count_page(cursor, table, asked, after=after, messages=ids)
        yield page
        after = page.last


def _from_tables(run: Run, asked: Sought, messages: Messages, receipt: int) -> int:
    """Delete rows of the archive and dead letters, and count them in the receipt."""
    with run.reading() as cursor:
        tables = erasures.day_tables(cursor, ARCHIVE)
    rows = 0
    for table in (*tables, LETTERS):
        counts = "letters" if table == LETTERS else "archive"
        after: int | None = 0
        while after is not None:
            with run.transaction(is_brief=True) as cursor:
                page = erasures.delete_page(
                    cursor, table, asked, after=after, messages=messages.ids
                )
                if page.rows:
                    erasures.add_rows(cursor, receipt, **{counts: page.rows})
            after = page.last
            rows += page.rows
            run.rows_out += page.rows
    return rows


@dataclass(frozen=True, slots=True)
class Messages:
    """
    The messages of theirs in the log.

    Attributes:
        ids: All of them.
        going: Those that nobody waits for, by the table of their day.
        waiting: The others: a group has not read them, or a job of them has not ended.
    """

    ids: Sequence[int]
    going: Mapping[str, Sequence[int]]
    waiting: frozenset[int]


def _messages(run: Run, asked: Sought) -> Messages:
    """Find the messages of theirs, a page of the log at a time."""
    if not asked.is_of_messages:
        return Messages((), {}, frozenset())
    found: dict[str, list[int]] = {}
    waiting: set[int] = set()
    with run.reading() as cursor:
        for table in erasures.day_tables(cursor, LOG):
            after: int | None = 0
            while after is not None:
                run.check()
                after, theirs, unread = erasures.find_messages(
                    cursor, table, asked, after=after
                )
                found.setdefault(table, []).extend(theirs)
                waiting.update(unread)
        ids = [id_ for some in found.values() for id_ in some]
        if ids:
            for page in _pages(run, cursor, LIVE, asked, ids):
                waiting.update(page.messages)
    going = {
        table: [id_ for id_ in some if id_ not in waiting]
        for table, some in found.items()
    }
    return Messages(ids, going, frozenset(waiting))


def _from_log(run: Run, messages: Messages, receipt: int) -> int:
    """Delete messages, and note in the receipt how many of each topic."""
    gone: dict[str, tuple[int, int, int]] = {}
    for table, ids in messages.going.items():
        for start in range(0, len(ids), erasures.DELETE_ROWS):
            some = ids[start : start + erasures.DELETE_ROWS]
            with run.transaction(is_brief=True) as cursor:
                now = erasures.delete_messages(cursor, table, some)
                for topic, (rows, first, last) in now.items():
                    count, low, high = gone.get(topic, (0, first, last))
                    gone[topic] = count + rows, min(low, first), max(high, last)
                erasures.set_messages(cursor, receipt, gone)
    return sum(rows for rows, _first, _last in gone.values())


def _from_ingested(run: Run, asked: Sought, receipt: int, before: int) -> int:
    """Take messages of theirs out of files of ingest; return how many those were."""
    problems: dict[str, str] = {}
    rows = 0
    for target in _ingested(run):
        try:
            rows += ingested(run, target).erase(Theirs.of_messages(asked), receipt)
        except DayRefused as error:
            problems[target] = str(error)
    if problems:
        raise Unfinished(problems, before + rows, "erased")
    return rows


def _ingested(run: Run) -> list[str]:
    """Return the places of ingest; a note tells of one that has nothing."""
    with run.reading() as cursor:
        targets = ingest.targets(cursor)
    for target in targets:
        if not Store(target).names(""):
            run.note(
                f"Nothing is at {target}, where ingest wrote: if its files are "
                f"elsewhere now, put them back, and run erase again."
            )
    return targets


def _targets(run: Run) -> list[str]:
    with run.reading() as cursor:
        return erasures.targets(cursor)


class _Days:
    """The days of one target in whose files a customer's rows are."""

    def __init__(
        self, lake: Lake, asked: Sought, messages: Messages, receipt: int
    ) -> None:
        self._lake = lake
        self._theirs = Theirs.of_jobs(asked, messages.ids)
        self._receipt = receipt

    def due(self) -> list[date]:
        """Return the days that have rows of theirs, or whose files cannot be read."""
        known = self._lake.known()
        return [day for day in known if known[day].rows and self._may_have(day)]

    def _may_have(self, day: date) -> bool:
        try:
            return bool(self.counted(day))
        except DayRefused:
            return True  # It is told when it should be erased from, after others.

    def counted(self, day: date) -> int:
        """Return how many rows of theirs the files of a day have."""
        with self._lake.run.reading() as cursor:
            details = exports.details(cursor, self._lake.target, day)
        return sum(self._found(day, details).values()) if details else 0

    def _found(self, day: date, details: Details) -> dict[int, int]:
        """
        Return how many rows are theirs, by the number of the file in *details*.

        Raises:
            DayRefused: The files cannot be read.
        """
        place, run, files = self._lake.place, self._lake.run, details.files
        found: dict[int, int] = {}
        rows, problem = 0, "nothing of it is there"
        try:
            for number, some in enumerate(
                [[file] for file in files] if place.replaces_files else [files]
            ):
                for batch in place.rows(day, some, self._theirs.columns):
                    run.check()
                    rows += batch.num_rows
                    theirs = self._theirs.mask(batch).true_count
                    if theirs:
                        found[number] = found.get(number, 0) + theirs
        except OSError as error:
            rows, problem = 0, str(error)
        if details.found.rows and not rows:
            target = self._lake.target
            raise DayRefused(
                f"Its files at {target} cannot be read: {problem}. Put them back, and "
                f"run erase again. If they are gone for good, forget them: "
                f"Export.objects.filter(target={target!r}, day='{day}').delete()"
            )
        return found

    def recover(self) -> None:
        """
        Note what commits have erased whose run died before it said so.

        The manifests of their days get new sums: nobody has those of what is gone.
        """
        run, target, place = self._lake.run, self._lake.target, self._lake.place
        for commit in place.said(OF_RECEIPT):
            receipt = int(commit[OF_RECEIPT])
            gone = {"target": target, **json.loads(commit[OF_DAY])}
            day = date.fromisoformat(gone["day"])
            with run.reading() as cursor:
                if erasures.has_export(cursor, receipt, gone):
                    continue
            with run.transaction(is_brief=True) as cursor:
                if not exports.take(cursor, target, day, run=run.id):
                    told = f"{TAKEN} Run erase again."
                    raise Unfinished({day: told}, 0, "erased")
            kept, sums = _Gone(run, self._theirs, sums_kept=True), Sums()
            for batch in place.rows(day, ()):
                kept.kept(batch)
                sums.add(batch)
            with run.transaction(is_brief=True) as cursor:
                exports.publish(cursor, target, day, run=run.id)
                exports.record(
                    cursor,
                    target,
                    day,
                    run=run.id,
                    found=Content(sums.rows, kept.of_kept.checksum),
                    content=sums.content,
                    files=place.look(day, (), sums.rows) or (),
                    version=int(commit["version"]),
                )
                erasures.add_export(cursor, receipt, gone)

    def erase(self, day: date) -> int:
        """Rewrite the files of a day without their rows; return how many those were."""
        lake = self._lake
        run, target, place = lake.run, lake.target, lake.place
        with run.transaction(is_brief=True) as cursor:
            if not exports.take(cursor, target, day, run=run.id):
                raise DayRefused(f"{TAKEN} Run erase again.")
            details = exports.details(cursor, target, day)
        if details is None:
            return 0
        found = self._found(day, details)
        is_known = _is_known(details)
        if place.replaces_files and is_known:
            files = [details.files[number] for number in found]
        else:
            files = [*details.files]
        kept = [file for file in details.files if file not in files]
        gone = _Gone(run, self._theirs, sums_kept=not is_known)
        told = {"day": str(day), "rows": sum(found.values()), "files": len(files)}
        place.says = {OF_RECEIPT: str(self._receipt), OF_DAY: json.dumps(told)}
        rows = of_files(run, place, day, files, details, gone.kept)

        def manifest() -> tuple[Content, str | None]:
            if not is_known:
                return gone.of_kept, rows.sums.content
            left = Sums.of(details.found.rows, details.content or "")
            left.take_away(gone.sums)
            return details.found.without(gone.content), left.content

        def with_it(cursor: Any, published: Any) -> None:
            erasures.add_export(cursor, self._receipt, {"target": target, **told})

        replace_day(lake, day, rows, manifest, kept=kept, with_it=with_it)
        return gone.sums.rows


def _is_known(details: Details) -> bool:
    """Whether the manifest has the checksums of this release, and counts each file."""
    return (
        (details.content or "").startswith(PREFIX)
        and details.found.checksum.startswith(exports.PREFIX)
        and all("rows" in file for file in details.files)
    )


@dataclass
class _Gone:
    """Takes their rows out of batches, and sums them up, or those that stay."""

    run: Run
    theirs: Theirs
    sums_kept: bool
    sums: Sums = field(default_factory=Sums, init=False)
    content: Content = field(default=Content(0, exports.checksum_of(0)), init=False)
    of_kept: Content = field(default=Content(0, exports.checksum_of(0)), init=False)

    def kept(self, batch: Any) -> Any:
        """Return what stays of *batch*."""
        from_them = self.theirs.mask(batch)
        kept = batch
        if from_them.true_count:
            theirs = batch.filter(from_them)
            self.sums.add(theirs)
            self.content = self.content.with_rows(self._content(theirs))
            kept = batch.filter(extra("pyarrow.compute").invert(from_them))
        if self.sums_kept:
            self.of_kept = self.of_kept.with_rows(self._content(kept))
        return kept

    def _content(self, rows: Any) -> Content:
        names = IDENTITY.split(", ")
        values = {name: rows.column(name).to_pylist() for name in names}
        with self.run.reading() as cursor:
            return exports.content_of_rows(cursor, values)
