"""
Failures: what goes wrong, by kind and hour.

The errors of dead letters, of the archive and of jobs that wait for their next attempt,
each counted once wherever its job is by now. PostgreSQL gives the jobs that have
errors, and nothing of the others; Spark is not needed.

An error was counted by the run that came after it. So a run counts the hours since the
latest one anew, and some before, for what was committed late; of earlier ones it reads
the dead letters of those hours alone that have more or fewer than they had.

Secrets of messages and tracebacks are masked before anything is kept.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from django_pgqueue.pipeline import ended_jobs, runs
from django_pgqueue.pipeline import failures as stored
from django_pgqueue.pipeline.ended_jobs import HOUR, Failed
from django_pgqueue.postgres.day_tables import ARCHIVE
from django_pgqueue.redaction.fingerprint import (
    Fingerprint,
    failed_entries,
    fingerprint,
)
from django_pgqueue.redaction.values import redact
from django_pgqueue.spark.job import pipeline_job
from django_pgqueue.spark.jobs.metrics import hour_of
from django_pgqueue.spark.option_table import duration
from django_pgqueue.spark.run import Run
from django_pgqueue.spark.slices import midnight

# Characters of a failure's sample.
SAMPLE_CHARACTERS_MAX = 10_000

# Many errors have the same traceback: the latest ones are masked once.
TRACEBACKS_KNOWN_MAX = 500

# What of an error is looked at, besides its traceback.
TOLD = ("kind", "type", "message")

# Jobs between two looks whether the run was told to stop.
CHECK_EVERY = 1_000


@pipeline_job(name="failures", takes_out=())
def failures(
    run: Run, *, lookback: str = "6h", full: bool = False, keep: str = "90d"
) -> int:
    """
    Group all errors by class, message and place, and count them by the hour: Failure.

    Options: lookback, how far before the latest run errors are looked for that were
    committed late; full, look through all that there is; keep, how long hours are kept.
    """
    kept = duration("keep", keep)
    back = duration("lookback", lookback)
    first = hour_of(run.started_at - kept) + HOUR
    # What ends from here on is for the next run.
    until = hour_of(run.started_at) + HOUR
    with run.reading() as cursor:
        latest = None if full else runs.latest_success(cursor, "failures", "lookback")
        since = first if latest is None else max(first, hour_of(latest - back))
        found = Found(since, run.patterns)
        connection = cursor.connection
        waits = _told(run, ended_jobs.failed_waiting(connection))
        waiting = {job.id for job in waits if found.add(job)}
        begin = max(since, _first_day(cursor, since))
        for jobs in (
            ended_jobs.failed_archived(connection, begin, until),
            ended_jobs.failed_letters(connection, since, until),
        ):
            for job in _told(run, jobs):
                # What moved while it was read is counted where it was first.
                if job.id not in waiting:
                    found.add(job)
        changed = _changed(cursor, first, since)
        for hour in changed:
            for job in _told(
                run, ended_jobs.failed_letters(connection, hour, hour + HOUR)
            ):
                found.add_letter(job)
    with run.transaction() as cursor:
        return stored.store(
            cursor,
            found.rows(),
            found.hours(),
            since=since,
            letters_of=changed,
            keep=kept,
        )


def _told(run: Run, jobs: Iterable[Failed]) -> Iterator[Failed]:
    """Yield *jobs* that have errors, and say how many those were."""
    for number, job in enumerate(jobs):
        if number % CHECK_EVERY == 0:
            run.check()
        if job.errors != "[]" or job.reason is not None:
            run.rows_in += 1
            yield job


def _first_day(cursor: Any, since: datetime) -> datetime:
    """Return when the first day of the archive began; *since*: it has none."""
    days = ARCHIVE.attached(cursor)
    return midnight(days[0]) if days else since


def _changed(cursor: Any, since: datetime, until: datetime) -> list[datetime]:
    """Return the hours that have other dead letters than they had at the last run."""
    before = Counter(stored.letters(cursor, since, until))
    now = Counter(ended_jobs.letters(cursor, since, until))
    return [hour for hour in sorted(before | now) if before[hour] != now[hour]]


@dataclass(slots=True)
class _Kind:
    """All errors of one fingerprint that were found."""

    of: Fingerprint
    tasks: set[str] = field(default_factory=set)
    first: float = float("inf")
    # When the latest happened, and to which job.
    last: tuple[float, int] = (float("-inf"), 0)
    sample: tuple[str, str] = ("", "")


@dataclass(frozen=True, slots=True)
class Found:
    """What was found: failures, and their hours from *since* on."""

    since: datetime
    patterns: Sequence[str]
    _kinds: dict[str, _Kind] = field(default_factory=dict)
    # By fingerprint and hour.
    _errors: Counter[tuple[str, datetime]] = field(default_factory=Counter)
    _jobs: Counter[tuple[str, datetime]] = field(default_factory=Counter)
    _letters: Counter[tuple[str, datetime]] = field(default_factory=Counter)

    def add(self, job: Failed) -> bool:
        """Count the errors of a job; return whether it has any of these hours."""
        begin, counted = self.since.timestamp(), False
        # By fingerprint, when each of the job's errors of that kind happened.
        of_kind: dict[str, dict[tuple[int, float], None]] = {}
        for error in errors_of(job, self.patterns):
            digest = error.of.digest
            of_kind.setdefault(digest, {})[error.delivery, error.at] = None
            if error.at >= begin or error.is_last_of_dead:
                self._note(digest, job, error)
                counted = True
            if error.is_last_of_dead:
                self._letters[digest, hour_of(job.at)] += 1
        for digest, errors in of_kind.items():
            times = sorted(at for _, at in errors)
            for at in times:
                if at >= begin:
                    self._errors[digest, _hour(at)] += 1
            if times[0] >= begin:
                self._jobs[digest, _hour(times[0])] += 1
        return counted

    def add_letter(self, job: Failed) -> None:
        """Count a dead letter of an hour whose errors are counted already."""
        for error in errors_of(job, self.patterns):
            if error.is_last_of_dead:
                digest = error.of.digest
                self._note(digest, job, error)
                self._letters[digest, hour_of(job.at)] += 1

    def rows(self) -> Iterator[tuple[Any, ...]]:
        """Yield the values of pipeline.failures.COLUMNS."""
        for digest, kind in self._kinds.items():
            tasks = sorted(kind.tasks)[: stored.TASKS_MAX]
            yield (
                *(digest, kind.of.error_class, kind.of.message, kind.of.place),
                json.dumps(tasks, ensure_ascii=False),
                *(_moment(kind.first), _moment(kind.last[0]), kind.last[1]),
                *kind.sample,
            )

    def hours(self) -> Iterator[tuple[Any, ...]]:
        """Yield the values of pipeline.failures.HOUR_COLUMNS."""
        for digest, hour in sorted({*self._errors, *self._letters}):
            key = digest, hour
            yield (*key, self._errors[key], self._jobs[key], self._letters[key])

    def _note(self, digest: str, job: Failed, error: Error) -> None:
        kind = self._kinds.get(digest)
        if kind is None:
            kind = self._kinds[digest] = _Kind(error.of)
        kind.tasks.add(job.task)
        kind.first = min(kind.first, error.at)
        if (error.at, job.id) >= kind.last:
            kind.last = error.at, job.id
            kind.sample = error.message, error.traceback


@dataclass(frozen=True, slots=True)
class Error:
    """
    One error of a job.

    Attributes:
        of: Its fingerprint.
        delivery: The delivery that it ended; 0: it does not say.
        at: Seconds since 1970.
        is_last_of_dead: Whether a dead letter died of it.
        message, traceback: Without secrets, and not longer than a sample may be.
    """

    of: Fingerprint
    delivery: int
    at: float
    is_last_of_dead: bool
    message: str
    traceback: str


def errors_of(job: Failed, patterns: Sequence[str]) -> Iterator[Error]:
    """
    Yield what is known of each error of a job, and of a dead letter without one.

    One that does not say when it happened did when the job ended.
    """
    failed = failed_entries(job.errors, job.reason)
    for entry in failed:
        shown = _masked(entry, tuple(patterns))
        yield Error(
            fingerprint(shown),
            _whole(entry.get("delivery")),
            _at(entry.get("at"), job.at.timestamp()),
            job.reason is not None and entry is failed[-1],
            _sample(shown.get("message")),
            _sample(shown.get("traceback")),
        )


def _masked(entry: dict[str, Any], patterns: tuple[str, ...]) -> dict[str, Any]:
    told = {name: entry[name] for name in TOLD if name in entry}
    shown: dict[str, Any] = redact(told, patterns)
    traceback = entry.get("traceback")
    if isinstance(traceback, str):
        shown["traceback"] = _masked_traceback(traceback, patterns)
    return shown


@lru_cache(TRACEBACKS_KNOWN_MAX)
def _masked_traceback(text: str, patterns: tuple[str, ...]) -> Any:
    return redact({"traceback": text}, patterns)["traceback"]


def _at(text: object, otherwise: float) -> float:
    """Return when it happened; *otherwise* where the entry does not say."""
    try:
        said = datetime.fromisoformat(text if isinstance(text, str) else "")
        return said.replace(tzinfo=said.tzinfo or UTC).timestamp()
    except (OverflowError, ValueError):
        return otherwise


def _hour(at: float) -> datetime:
    return hour_of(_moment(at))


def _moment(epoch: float) -> datetime:
    return datetime.fromtimestamp(epoch, UTC)


def _whole(value: object) -> int:
    if isinstance(value, int) and 0 <= value < 2**31:
        return value
    return 0


def _sample(value: object) -> str:
    text = value if isinstance(value, str) else ""
    if len(text) > SAMPLE_CHARACTERS_MAX:
        # The end says where it happened.
        text = f"… {text[-SAMPLE_CHARACTERS_MAX:]}"
    return text.replace("\x00", "\\x00").encode(errors="backslashreplace").decode()
