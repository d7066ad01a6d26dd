"""
contend: what the wake costs transactions that enqueue at the same time.

Sixteen processes, as a web server has them, each in a loop of `atomic()` and `delay()`.
Somebody listens. The other side is the same without a wake: no hook after the commit
and no NOTIFY.
"""

from __future__ import annotations

import json
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Self

from django.core.management.base import CommandError

from django_pgqueue.management.bench import yardstick
from django_pgqueue.management.bench.measure import Measure, Plan, Run, Turns, at_least
from django_pgqueue.management.bench.scratch import Scratch
from django_pgqueue.management.bench.subprocesses import start, stop
from django_pgqueue.postgres import wake

ENTRY = "django_pgqueue.management.bench.producers"

PRODUCERS = 16

STOP_CHECK_SECONDS = 0.2
LOG_CHARACTERS_SHOWN = 2_000


class Contend(Turns):
    """Product: with wake. The other side: without."""

    def __init__(self, scratch: Scratch, producers: Producers) -> None:
        super().__init__(scratch)
        self._producers = producers

    def product(self, jobs: int) -> Run:
        """Return transactions per second, each followed by a wake."""
        return Run([self._producers.enqueue(jobs, wakes=True)])

    def yardstick(self, jobs: int) -> Run:
        """Return transactions per second that wake nobody."""
        return Run([self._producers.enqueue(jobs, wakes=False)])


class Producers:
    """Processes that enqueue, for as long as the block lasts."""

    def __init__(self, scratch: Scratch) -> None:
        self._arguments = [scratch.place.as_text(), str(PRODUCERS)]

    def __enter__(self) -> Self:
        self._log = tempfile.TemporaryFile("w+")
        self._process = start(ENTRY, *self._arguments, log=self._log, talks=True)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        stop(self._process)
        self._log.close()

    def enqueue(self, jobs: int, *, wakes: bool) -> float:
        """
        Let all of them enqueue *jobs* jobs together; return transactions per second.

        Raises:
            CommandError: One of them failed.
        """
        asked, answers = self._process.stdin, self._process.stdout
        assert asked is not None
        assert answers is not None
        each = max(jobs // PRODUCERS, 1)
        try:
            asked.write(json.dumps({"jobs": each, "wakes": wakes}) + "\n")
            asked.flush()
            seconds = float(json.loads(answers.readline())["seconds"])
        except (OSError, ValueError) as error:
            self._log.seek(0)
            said = self._log.read()[-LOG_CHARACTERS_SHOWN:]
            raise CommandError(
                f"A process that enqueues ended. It said:\n{said}"
            ) from error
        return each * PRODUCERS / seconds


class Listening(threading.Thread):
    """Hears what is notified, and does nothing about it, as long as the block lasts."""

    def __init__(self, connection: yardstick.Connection) -> None:
        super().__init__(name="pgqueue-bench-listener", daemon=True)
        self._connection = connection
        self._stopping = threading.Event()

    def __enter__(self) -> Self:
        cursor = self._connection.cursor()
        wake.listen(cursor, [wake.channel(cursor)])
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stopping.set()
        self.join()

    def run(self) -> None:
        """Drain the connection until stopped."""
        while not self._stopping.is_set():
            for _ in self._connection.notifies(timeout=STOP_CHECK_SECONDS):
                pass


@contextmanager
def _opened(scratch: Scratch, plan: Plan) -> Iterator[Contend]:
    with (
        scratch.connect() as connection,
        Listening(connection),
        Producers(scratch) as producers,
    ):
        yield Contend(scratch, producers)


CONTEND = Measure(
    name="contend",
    what=f"{PRODUCERS} processes, each atomic() and delay() in a loop",
    unit="tx/s",
    jobs=4_800,
    goals=(at_least(0.85),),
    baseline="the same transactions without a wake",
    other_side="without wake",
    parts={"": _opened},
    warm_up_jobs=800,
)
