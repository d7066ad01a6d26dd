"""
Stream: spark.readStream.format("pgqueue") over the log of topics.

A batch is what lies between two offsets, in each partition of each topic. Both are in
the checkpoint before it is read, and what lies between is the same whenever that is:
no end is above the horizon. So a batch that Spark runs again has the same messages.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from django_pgqueue.exceptions import SparkError
from django_pgqueue.log.generations import numbers_of
from django_pgqueue.log.horizon import Horizons, horizons
from django_pgqueue.spark import reader
from django_pgqueue.spark.connect import Session
from django_pgqueue.spark.log import offsets
from django_pgqueue.spark.log.offsets import (
    Mark,
    Offset,
    Place,
    Topic,
    TopicOffset,
    check_primary,
    topics,
)
from django_pgqueue.spark.log.read import (
    Range,
    counted,
    first_day,
    in_order,
    limited,
    tasks,
)
from django_pgqueue.spark.options import ReadOptions
from django_pgqueue.spark.redact import Redaction
from django_pgqueue.spark.tables import Column

# Between two looks of a stream that found nothing: Spark would ask every 10 ms.
LOOK_SECONDS = 0.2

# Locks: ACCESS SHARE, one look at the primary key. Its time as PostgreSQL writes it.
MARK = """
SELECT to_char(m.published_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') AS at
  FROM pgqueue_message m WHERE m.id = {id}
"""


T = TypeVar("T")


class LogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One streaming query: planned on the driver, a batch at a time."""

    def __init__(
        self, asked: ReadOptions, columns: tuple[Column, ...], redaction: Redaction
    ) -> None:
        assert asked.topics is not None
        self._asked = asked
        self._names = asked.topics
        self._columns = columns
        self._redaction = redaction
        # Of Trigger.AvailableNow: where the query ends.
        self._target: Horizons | None = None
        self._session: Session | None = None
        self._installation = ""
        self._empty_at: float | None = None
        # The horizons and the offset after which nothing was found.
        self._found_nothing: tuple[Horizons, Offset] | None = None
        self._newest: dict[str, Any] | None = None

    # What Spark calls on the driver.

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Return where a new checkpoint begins."""
        return self._again(self._initial)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return how many messages a batch has at most."""
        return ReadMaxRows(self._asked.max_rows_per_batch)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Fix where the query ends: at the horizons of this moment."""
        self._target = self._again(self._horizons)

    def latestOffset(  # noqa: N802
        self, start: dict[str, Any], limit: ReadLimit
    ) -> dict[str, Any]:
        """Return where the next batch ends; *start*: there is none."""
        self._pause()
        rows_max = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        end = self._again(lambda: self._latest(Offset.read(start), rows_max))
        self._empty_at = time.monotonic() if end == start else None
        return end

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """Return how far it could be, for Spark's reports of progress."""
        return self._newest

    def partitions(
        self, start: dict[str, Any], end: dict[str, Any]
    ) -> Sequence[InputPartition]:
        """Divide a batch among tasks."""
        return self._again(lambda: self._plan(Offset.read(start), Offset.read(end)))

    def stop(self) -> None:
        """End the session."""
        session, self._session = self._session, None
        if session is not None:
            session.close()

    # What Spark calls on executors.

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield the messages of one task as Arrow batches."""
        slices, rows_per_second, positions, installation = partition.value
        asked = self._asked
        with Session(asked.dsn.read(), table=asked.table.name) as session:
            found = check_primary(session.cursor())
            if found != installation:
                raise SparkError(
                    f"This executor reads the installation {found}, and the driver "
                    f"{installation}: give both the same DSN."
                )
            yield from reader.read(
                session,
                asked.table,
                self._columns,
                slices,
                redaction=self._redaction,
                rows_per_second=rows_per_second,
            )
            offsets.check_still_kept(session, positions, asked.on_data_loss)

    # One step each, with the session of the driver.

    def _initial(self) -> dict[str, Any]:
        bounds = self._horizons()
        found = topics(self._sql.cursor(), self._names)
        offset = Offset(
            self._installation,
            {
                name: self._begin(topic, bounds.of(topic.id))
                for name, topic in found.items()
            },
        )
        return offset.dump()

    def _begin(self, topic: Topic, horizon: int) -> TopicOffset:
        place = self._asked.starting or Place(word=offsets.LATEST)
        cursor = self._sql.cursor()
        numbers = numbers_of(cursor, topic.id)
        positions = offsets.begin_positions(cursor, place, topic, numbers, horizon)
        read_to = max(horizon, *positions.values()) if positions else horizon
        return TopicOffset(topic.id, read_to, positions)

    def _latest(self, start: Offset, rows_max: int | None) -> dict[str, Any]:
        bounds = self._horizons()
        if self._found_nothing == (bounds, start):
            return start.dump()
        # Marks first: retention raises removed_to before it removes anything.
        marks = offsets.marked(self._sql, start)
        found = self._checked(start, bounds, marks)
        read = {
            name: start.topics[name].raised(topic.removed_to)
            if name in start.topics
            # New to the checkpoint: a batch without messages notes where it begins.
            else self._begin(topic, bounds.of(topic.id))
            for name, topic in found.items()
        }
        ends = self._target or bounds
        ranges = [
            Range(topic.id, number, after, max(ends.of(topic.id), after))
            for name, topic in found.items()
            if name in start.topics
            # With those that have no message any more: who never moves on in them would
            # seem to have lost what retention removes of others.
            for numbers in [numbers_of(self._sql.cursor(), topic.id)]
            for number in sorted({*numbers, *read[name].positions})
            for after in [read[name].position(number)]
        ]
        since = first_day(self._sql.cursor(), ranges)
        walked = (
            counted(self._sql, ranges, since)
            if rows_max is None
            else limited(self._sql, ranges, rows_max, since)
        )
        topics_at = {
            name: self._moved(
                read[name],
                in_order(_of(ranges, topic), _of(walked, topic), topic.numbers),
                ends.of(topic.id),
            )
            for name, topic in found.items()
        }
        self._newest = Offset(
            self._installation,
            {name: at.raised(bounds.of(at.id)) for name, at in topics_at.items()},
        ).dump()
        end = Offset(self._installation, topics_at)
        self._found_nothing = (bounds, end) if end == start else None
        return end.dump()

    def _moved(
        self, before: TopicOffset, walked: Sequence[Range], end: int
    ) -> TopicOffset:
        """Return where a topic is after *walked*; as before, if nothing was found."""
        if not any(each.rows for each in walked):
            return before
        seen = max(each.seen for each in walked if each.seen is not None)
        # None: retention was quicker, which the next step finds out.
        found = self._sql.rows(MARK.format(id=seen))
        mark = Mark(seen, found[0]["at"]) if found else before.mark
        return TopicOffset(
            before.id,
            max(before.read_to, end),
            {**before.positions, **{each.partition: each.upto for each in walked}},
            mark,
        )

    def _plan(self, start: Offset, end: Offset) -> list[InputPartition]:
        bounds = self._horizons()
        for offset in (start, end):
            self._checked(offset, bounds, offsets.marked(self._sql, offset))
        ranges = [
            Range(topic.id, number, before.position(number), topic.position(number))
            for name, topic in end.topics.items()
            for before in [start.topics.get(name)]
            if before is not None
            for number in sorted({*before.positions, *topic.positions})
        ]
        ranges = [each for each in ranges if each.upto > each.after]
        since = first_day(self._sql.cursor(), ranges)
        asked = self._asked
        divided = tasks(counted(self._sql, ranges, since), asked.tasks_max, since)
        rate = asked.rate_of(divided)
        return [
            InputPartition((task, rate, _positions(task, ranges), self._installation))
            for task in divided
        ]

    def _checked(
        self, offset: Offset, bounds: Horizons, marks: Mapping[int, bool]
    ) -> dict[str, Topic]:
        """Return the topics; raise unless *offset* is of this log and can be met."""
        offsets.check_installation(offset, self._installation)
        gone = sorted(set(offset.topics) - set(self._names))
        if gone:
            raise SparkError(
                f"The checkpoint has the topics {', '.join(offset.topics)}, and the "
                f"option topic does not name {', '.join(gone)}: name them too, or "
                f"begin a new checkpoint."
            )
        found = topics(self._sql.cursor(), self._names)
        offsets.check_log(offset, found, bounds.highest, marks)
        for name, read in offset.topics.items():
            offsets.check_kept(
                name, read.lowest, found[name].removed_to, self._asked.on_data_loss
            )
        return found

    def _horizons(self) -> Horizons:
        return horizons(self._sql.cursor())

    @property
    def _sql(self) -> Session:
        assert self._session is not None
        return self._session

    def _again(self, step: Callable[[], T]) -> T:
        """Do one step; once more in a new session if the first one broke off."""
        if self._session is not None:
            try:
                return step()
            except SparkError:
                if self._is_alive():
                    raise
                self.stop()
        asked = self._asked
        self._session = Session(asked.dsn.read(), table=asked.table.name)
        self._installation = check_primary(self._sql.cursor())
        return step()

    def _is_alive(self) -> bool:
        try:
            return self._sql.rows("SELECT 1 AS alive") == [{"alive": 1}]
        except SparkError:
            return False

    def _pause(self) -> None:
        if self._empty_at is not None and self._target is None:
            time.sleep(max(0.0, self._empty_at + LOOK_SECONDS - time.monotonic()))


def _of(ranges: Sequence[Range], topic: Topic) -> list[Range]:
    return [each for each in ranges if each.topic_id == topic.id]


def _positions(task: Sequence[Any], ranges: Sequence[Range]) -> dict[int, int]:
    """Return, for each topic of a task, after which id its messages begin."""
    positions: dict[int, int] = {}
    for part in task:
        after = min(
            each.after
            for each in ranges
            if (each.topic_id, each.partition) == (part.topic_id, part.partition)
        )
        positions[part.topic_id] = min(after, positions.get(part.topic_id, after))
    return positions
