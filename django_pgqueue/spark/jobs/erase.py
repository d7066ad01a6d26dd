"""
Erase: one customer's jobs and messages, out of tables, the log and the lake.

Tables and the log come first, and then fence() has Delta refuse whoever has read them
before: so nobody brings back what is gone. Then rows of theirs are deleted from the
files by Delta's DELETE, whose commits name the receipt. The row of an exported day
counts and sums up what stays, so that retention finds archive and lake to agree.

The receipt says how many rows went from where, also if the run broke off: then another
one erases the rest, with a receipt of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

from django_pgqueue.exceptions import SparkError
from django_pgqueue.pipeline import erasures, exports
from django_pgqueue.pipeline.erasures import ARCHIVE, LETTERS, LIVE, LOG, Page, Sought
from django_pgqueue.spark.job import pipeline_job
from django_pgqueue.spark.jobs.export import Unfinished, content_of
from django_pgqueue.spark.lake.table import LakeTable, Theirs, sought
from django_pgqueue.spark.run import Run

# Columns of a receipt for what has gone from the lake: days of jobs, and messages.
EXPORTS, INGESTED = "exports", "ingested"


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
    problems: dict[str, str] = {}
    for lake in _exported(run):
        theirs = Theirs.of_jobs(asked, messages.ids)
        rows += _from_lake(EXPORTS, lake, theirs, receipt, problems)
    if not problems:
        # After the jobs, which are found by them.
        rows += _from_log(run, messages, receipt)
        for lake in _ingested(run, asked):
            theirs = Theirs.of_messages(asked)
            rows += _from_lake(INGESTED, lake, theirs, receipt, problems)
    if problems:
        raise Unfinished(problems, rows, "erased, run it again")
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
    problems: dict[str, str] = {}
    for lake in _exported(run):
        if not _is_gone(EXPORTS, lake, problems):
            found = _found(lake, Theirs.of_jobs(asked, messages.ids), problems)
            rows = sum(map(len, found.values()))
            where = f"{len(found)} days in {lake.target}"
            run.note(f"Preview: {rows:,} rows of {where} as well.")
    for lake in _ingested(run, asked):
        if not _is_gone(INGESTED, lake, problems):
            found = _found(lake, Theirs.of_messages(asked), problems)
            rows = sum(map(len, found.values()))
            run.note(f"Preview: {rows:,} messages in {lake.target} as well.")
    _note_waiting(run, asked, messages)
    if problems:
        raise Unfinished(problems, 0, "counted")
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
        page = erasures.page(cursor, table, asked, after=after, messages=ids)
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


def _exported(run: Run) -> list[LakeTable]:
    """Return the tables that days were exported to."""
    with run.reading() as cursor:
        return [LakeTable(run, target) for target in exports.targets(cursor)]


def _ingested(run: Run, asked: Sought) -> list[LakeTable]:
    """Return the tables that messages were ingested to, if messages are sought."""
    if not asked.is_of_messages:
        return []
    with run.reading() as cursor:
        return [LakeTable(run, target) for target in exports.ingest_targets(cursor)]


def _found(
    lake: LakeTable, theirs: Theirs, problems: dict[str, str]
) -> dict[date, list[int]]:
    """Return the ids of rows of theirs by day; what cannot be read is a problem."""
    found: dict[date, list[int]] = {}
    for day in sorted(lake.rows_by_day()):
        try:
            ids = lake.find(day, theirs)
        except (OSError, ValueError) as error:
            problems[f"{lake.target}, {day}"] = (
                f"Its files cannot be read: {error}. Put them back, and run erase "
                f"again. If they are gone for good: "
                f"deltalake.DeltaTable({lake.target!r}).repair()"
            )
            continue
        if ids:
            found[day] = ids
    return found


def _is_gone(column: str, lake: LakeTable, problems: dict[str, str]) -> bool:
    """Whether there is no table any more; say so."""
    target = lake.target
    if lake.latest() is not None:
        return False
    if column == EXPORTS:
        problems[target] = (
            f"Its files cannot be read: there is no Delta table. Put them back, and "
            f"run erase again. If they are gone for good, forget them: "
            f"Export.objects.filter(target={target!r}).delete()"
        )
    else:
        lake.run.note(
            f"Nothing is at {target}, where ingest wrote: if its files are elsewhere "
            f"now, put them back, and run erase again."
        )
    return True


def _from_lake(
    column: str,
    lake: LakeTable,
    theirs: Theirs,
    receipt: int,
    problems: dict[str, str],
) -> int:
    """Take rows of theirs out of a table; return how many those were."""
    if _is_gone(column, lake, problems):
        return 0
    _note_commits(column, lake)
    lake.fence(receipt)
    found = _found(lake, theirs, problems)
    for day, ids in found.items():
        lake.erase(day, ids, receipt)
    _note_commits(column, lake)
    lake.forget()
    rows = sum(map(len, found.values()))
    lake.run.rows_out += rows
    return rows


def _note_commits(column: str, lake: LakeTable) -> None:
    """Note in receipts what commits have deleted, also of a run that died there."""
    run, target = lake.run, lake.target
    counted: set[date] = set()
    for receipt, place, metrics in lake.erased():
        day = date.fromisoformat(place["day"])
        with run.reading() as cursor:
            if erasures.has_files(cursor, receipt, column, place):
                continue
        content = None
        if column == EXPORTS and day not in counted:
            # What the day has from now on, by which retention goes.
            content = content_of(run, lake, day)
            counted.add(day)
        with run.transaction(is_brief=True) as cursor:
            erasures.add_files(
                cursor,
                receipt,
                column,
                place,
                rows=int(metrics["num_deleted_rows"]),
                files=int(metrics["num_removed_files"]),
            )
            if content is not None:
                exports.recount(cursor, target, day, content)
