"""Consumers: the readers of one worker process, and what they share."""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable

from django_pgqueue.exceptions import TaskTimeout
from django_pgqueue.log import positions
from django_pgqueue.postgres.connect import Link
from django_pgqueue.topics.consume import Consumer
from django_pgqueue.worker.options import WorkerOptions
from django_pgqueue.worker.read.positions import Bounds
from django_pgqueue.worker.read.reader import Reader, timeout_words
from django_pgqueue.worker.run.watchdog import Watchdog

logger = logging.getLogger("django_pgqueue.worker")

# A thread that cannot be stopped is left behind, and another one reads in its place. So
# many of them, and the process is replaced.
STUCK_READERS_MAX = 3


class Consumers:
    """Starts, wakes and stops readers; there are none where no group is declared."""

    def __init__(
        self,
        *,
        worker: str,
        options: WorkerOptions,
        link: Callable[[str], Link],
        on_spoiled: Callable[[], None],
    ) -> None:
        """
        Make the readers of what is declared.

        Args:
            worker: The process's name.
            options: The worker's.
            link: Makes a connection of a loop.
            on_spoiled: Called when too many threads could not be stopped.
        """
        self._worker = worker
        self._settings = options.settings
        self._link = link
        self._on_spoiled = on_spoiled
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._stuck: list[Reader] = []
        self._stopping = False
        self.counts: Counter[str] = Counter()
        self._bounds = Bounds(link("horizon"))
        self._watchdog = Watchdog(self._on_hard)
        self.readers = [
            self._reader(consumer)
            for consumer in options.consumers
            for _ in range(consumer.readers)
        ]

    def start(self) -> None:
        """Start the readers."""
        if self.readers:
            self._watchdog.start()
        for reader in self.readers:
            reader.start()

    def hint(self, topic: str) -> None:
        """Look soon: something was published to *topic*; empty: perhaps to any."""
        for reader in list(self.readers):
            if not topic or reader.consumer.topic == topic:
                reader.hint()

    def look_now(self) -> None:
        """Let each reader answer once more whether there is nothing to read."""
        for reader in list(self.readers):
            reader.look_now()

    @property
    def found_nothing(self) -> bool:
        """Whether each has looked in vain since look_now()."""
        return all(each.found_nothing == each.requests for each in list(self.readers))

    def stop(self) -> None:
        """Let each reader end after its batch; does not wait."""
        self._stopping = True
        for reader in list(self.readers):
            reader.stop()

    def join(self, until: float) -> bool:
        """Wait for the readers until the monotonic time *until*; False: some run."""
        ended = [reader.join(until - time.monotonic()) for reader in list(self.readers)]
        return all(ended) and not self._stuck

    def close(self) -> None:
        """
        Give back what is still being read, and tidy up.

        A stop is no failure of what is read; whoever reads it here is refused.
        """
        held = [
            claimed
            for reader in [*self.readers, *self._stuck]
            if (claimed := reader.held) is not None
        ]
        if held:
            link = self._link("stop")
            try:
                with link.cursor() as cursor:
                    for claimed in held:
                        positions.free(cursor, claimed)
            except Exception as error:
                logger.info(
                    "row of a group stays leased by worker=%s: %s", self._worker, error
                )
            finally:
                link.drop()
        self._watchdog.stop()
        self._bounds.drop()

    def _reader(self, consumer: Consumer) -> Reader:
        number = next(self._numbers)
        return Reader(
            self._link(f"reader {number}"),
            name=f"{self._worker}/{number}",
            consumer=consumer,
            settings=self._settings,
            bounds=self._bounds,
            watchdog=self._watchdog,
            counts=self.counts,
        )

    def _on_hard(self, reader: Reader, error: TaskTimeout) -> None:
        """Let another thread read in the place of one that cannot be stopped."""
        logger.error(
            "stuck      group=%s reader=%s: %s It did not react, so another thread "
            "reads in its place",
            reader.consumer,
            reader.worker,
            timeout_words(reader.consumer),
        )
        with self._lock:
            reader.stop()
            self._stuck.append(reader)
            self.readers.remove(reader)
            if not self._stopping:
                other = self._reader(reader.consumer)
                other.start()
                self.readers.append(other)
        if len(self._stuck) >= STUCK_READERS_MAX:
            self._on_spoiled()
