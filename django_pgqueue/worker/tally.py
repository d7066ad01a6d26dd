"""
Tally: what a worker process has done, as numbers in its memory.

A process counts as it settles. What it has counted is added to the spans of tasks in
the database every few seconds (chores/counting.py), for the charts of the admin. The
one that leads counts what clients of pull queues have ended, too, which it finds in the
database (the same file).

With --metrics, a process also writes all of its counts about once a second into its
place in memory that it shares with the supervisor, as one text. The health server adds
up the places. The process that takes a place goes on from what it finds
there: a restart or a crash takes nothing back, and a crash loses the last second.
"""

from __future__ import annotations

import json
import mmap
import struct
import zlib
from collections import Counter
from collections.abc import Mapping, Sequence

from django_pgqueue.bounds import PULL_TASK
from django_pgqueue.queues.claim import Claimed
from django_pgqueue.queues.task_spans import BUCKETS, OTHERS, Counted, place_of

# Queues and tasks that a process tells apart; those that come later are counted as one.
# Names are those of the code, so that seldom there are so many.
SERIES_MAX = 500
UNKNOWN = "(unknown)"

# A job whose latest delivery ended like this may have run before.
REPEATED = frozenset({"worker_lost", "lease_expired"})

# Of one text. SERIES_MAX names of 4 bytes a character, with their numbers, fit.
TEXT_BYTES_MAX = 1_048_576
HEAD = struct.Struct("=II")  # Length and checksum.

# A reader meets a half that is being written if it takes as long as a writer's pause.
TRIES_MAX = 10


class Series:
    """One task in one queue."""

    __slots__ = ("ends", "repeats", "runs", "seconds_run", "seconds_waited", "waits")

    def __init__(self) -> None:
        # Attempts by how they ended; "stale": somebody else's by then.
        self.ends: Counter[str] = Counter()
        self.repeats = 0
        # By bucket; see queues/task_spans.py.
        self.runs = [0] * BUCKETS
        self.waits = [0] * BUCKETS
        self.seconds_run = self.seconds_waited = 0.0

    def add(self, other: Series) -> None:
        """Add the numbers of another one."""
        self.ends.update(other.ends)
        self.repeats += other.repeats
        self.add_times(other.runs, other.seconds_run, other.waits, other.seconds_waited)

    def add_times(
        self,
        runs: Sequence[int],
        seconds_run: float,
        waits: Sequence[int],
        seconds_waited: float,
    ) -> None:
        """Add times, by bucket and summed up."""
        self.runs = list(map(sum, zip(self.runs, runs, strict=True)))
        self.waits = list(map(sum, zip(self.waits, waits, strict=True)))
        self.seconds_run += seconds_run
        self.seconds_waited += seconds_waited


class Tally:
    """What one process has done. One thread counts, another one may read."""

    def __init__(self) -> None:
        self.series: dict[tuple[str, str], Series] = {}
        self.claimed = 0
        self.messages: Counter[str] = Counter()

    def note(
        self, job: Claimed, end: str, ran_seconds: float | None, *, is_known: bool
    ) -> None:
        """
        Count an attempt.

        Args:
            job: As it was claimed.
            end: How it ended, in a word.
            ran_seconds: None: it never started.
            is_known: Whether its task is declared.
        """
        series = self.series.get((job.queue, job.task))
        if series is None:
            series = self._new(job.queue, job.task if is_known else UNKNOWN)
        series.ends[end] += 1
        # A clock of the database that is put back takes nothing from a sum.
        waited = max((job.claimed_at - job.due_at).total_seconds(), 0.0)
        series.waits[place_of(waited)] += 1
        series.seconds_waited += waited
        if ran_seconds is not None:
            series.runs[place_of(ran_seconds)] += 1
            series.seconds_run += ran_seconds
        if job.last_error in REPEATED:
            series.repeats += 1

    def note_pulled(self, queue: str, counted: Counted) -> None:
        """Count what clients have ended in a pull queue; it stands in spans already."""
        series = self._new(queue, PULL_TASK)
        series.ends.update(
            succeeded=counted.succeeded,
            retried=counted.tried_again,
            dead=counted.dead,
            cancelled=counted.cancelled,
            expired=counted.expired,
        )
        series.add_times(
            counted.runs, counted.run_seconds, counted.waits, counted.wait_seconds
        )

    def _new(self, queue: str, task: str) -> Series:
        key = queue, task
        if key not in self.series and len(self.series) >= SERIES_MAX - 1:
            # Apart: what is of pull queues stands in the spans already.
            key = OTHERS, PULL_TASK if task == PULL_TASK else OTHERS
        return self.series.setdefault(key, Series())

    def add(self, other: Tally) -> None:
        """Add the numbers of another one."""
        for key, series in other.series.items():
            self.series.setdefault(key, Series()).add(series)
        self.claimed += other.claimed
        self.messages.update(other.messages)

    def encode(self, *, claimed: int, messages: Mapping[str, int]) -> bytes:
        """
        Return it as text, with what others count.

        Args:
            claimed: Jobs that this process has claimed.
            messages: What its readers have done, by kind.
        """
        series = [
            [*key, *(getattr(each, name) for name in Series.__slots__)]
            for key, each in list(self.series.items())
        ]
        totals = self.messages + Counter(messages)
        told = [series, self.claimed + claimed, totals]
        return json.dumps(told, ensure_ascii=False, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, text: bytes) -> Tally:
        """Return what encode() was given; of nothing, an empty one."""
        tally = cls()
        if not text:
            return tally
        rows, tally.claimed, messages = json.loads(text)
        tally.messages = Counter(messages)
        for queue, task, *numbers in rows:
            series = tally.series[queue, task] = Series()
            for name, value in zip(Series.__slots__, numbers, strict=True):
                setattr(series, name, value)
            series.ends = Counter(series.ends)
        return tally


class Board:
    """
    Memory that processes share, a text in each place.

    The supervisor makes it before it starts any process.

    A place has two halves. What is written goes into the one that nobody reads, and
    then that one is shown, so that a process that is killed meanwhile spoils nothing.
    Memory is taken for what was written alone.
    """

    def __init__(self, places: int, bytes_max: int = TEXT_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self.half_bytes = HEAD.size + bytes_max
        self._memory = [mmap.mmap(-1, 1 + 2 * self.half_bytes) for _ in range(places)]

    def write(self, place: int, text: bytes) -> None:
        """
        Show *text* in *place*. Of one process at a time.

        Raises:
            ValueError: It is longer than the places are.
        """
        if len(text) > self._bytes_max:
            raise ValueError(
                f"the text of place {place} takes {len(text):,} bytes; the limit is "
                f"{self._bytes_max:,}"
            )
        memory = self._memory[place]
        half = 1 - memory[0]
        at = 1 + half * self.half_bytes
        HEAD.pack_into(memory, at, len(text), zlib.crc32(text))
        memory[at + HEAD.size : at + HEAD.size + len(text)] = text
        memory[0] = half

    def read(self, place: int) -> bytes:
        """Return what is shown in *place*; empty: nothing was written there."""
        memory = self._memory[place]
        for _ in range(TRIES_MAX):
            at = 1 + memory[0] * self.half_bytes
            length, checksum = HEAD.unpack_from(memory, at)
            text = memory[at + HEAD.size : at + HEAD.size + length]
            if zlib.crc32(text) == checksum:
                return text
        return b""


class TallyBoard(Board):
    """The counts of all processes."""

    def total(self) -> Tally:
        """Return what all processes have done, those that have ended too."""
        total = Tally()
        for place in range(len(self._memory)):
            total.add(Tally.decode(self.read(place)))
        return total


class TallyPlace:
    """What one process counts, after those that had its place; and where it shows."""

    def __init__(self, board: TallyBoard, place: int) -> None:
        self._board = board
        self._place = place
        self.tally = Tally.decode(board.read(place))

    def show(self, *, claimed: int, messages: Mapping[str, int]) -> None:
        """Let others see it; args as of Tally.encode()."""
        text = self.tally.encode(claimed=claimed, messages=messages)
        self._board.write(self._place, text)
