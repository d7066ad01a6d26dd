"""Worker: the handle on a worker process, and on what it has done."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self

from django.core.management.base import CommandError

from django_pgqueue.management.bench import gauges
from django_pgqueue.management.bench.scratch import Scratch
from django_pgqueue.management.bench.subprocesses import start, stop

ENTRY = "django_pgqueue.management.bench.worker_process"

# The error of the time that is measured. Looking takes 4 % of a core from those who are
# measured: so nobody looks before this part of the shortest time so far has passed.
POLL_SECONDS = 0.005
BLIND = 0.5

# After it ran dry, a worker looks again for a third of a second; an idle one does not.
REST_SECONDS = 0.5

# No job has left the queue for as long: none will.
PATIENCE_SECONDS = 60.0
LOG_CHARACTERS_SHOWN = 2_000


class Worker:
    """
    A worker on a scratch place that is in use, for as long as the block lasts.

    Attributes:
        cursor: On a plain connection to that place, for whoever waits.
    """

    def __init__(
        self,
        scratch: Scratch,
        *,
        threads: int,
        processes: int = 1,
        queues: Sequence[str] = (),
        async_slots: int = 0,
        reads: bool = False,
        metrics: bool = False,
        trace: str = "",
    ) -> None:
        self._scratch = scratch
        self._arguments = [
            scratch.place.as_text(),
            str(threads),
            str(processes),
            ",".join(queues),
            str(async_slots),
            "reads" if reads else "",
            "metrics" if metrics else "",
            trace,
        ]

    def __enter__(self) -> Self:
        self._connection = self._scratch.connect()
        self.cursor = self._connection.cursor()
        # Its lines belong to nobody's standard output; they are shown if it fails.
        self._log = tempfile.TemporaryFile("w+")
        self._shortest: dict[int, float] = {}  # Seconds, by the number of jobs.
        try:
            self._process = start(ENTRY, *self._arguments, log=self._log)
        except BaseException:
            self._connection.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        stop(self._process)
        self._connection.close()
        self._log.close()

    @property
    def pid(self) -> int:
        """The supervisor's."""
        return self._process.pid

    def rest(self) -> None:
        """Let the worker become idle, as it is when nothing was due for a while."""
        time.sleep(REST_SECONDS)

    def wait_until_done(
        self, first_id: int, last_id: int, *, since: float, archived: bool = True
    ) -> float:
        """
        Wait until all jobs from the first id to the last have succeeded.

        Args:
            first_id: Of the jobs, whose ids have no gap.
            last_id: Likewise.
            since: The monotonic time of their commit.
            archived: Whether they are in the archive then.

        Returns:
            The seconds from their commit until that was seen.

        Raises:
            CommandError: The worker died, or a job failed or hangs.
        """
        count = last_id - first_id + 1
        self._be_blind(count, since)
        # The last one alone is cheap to ask for, and the others are seldom behind it.
        self.wait_while(lambda: gauges.is_live(self.cursor, last_id))
        if archived:
            self.wait_while(
                lambda: gauges.succeeded(self.cursor, first_id, last_id) < count
            )
        else:
            self.wait_while(lambda: gauges.live(self.cursor, first_id, last_id) > 0)
        return self._seen(count, since)

    def wait_until_one_is_done(self, job_id: int, *, count: int, since: float) -> float:
        """
        Wait until one job has succeeded, which is not stored before others have ended.

        Args:
            job_id: Of that one.
            count: How many jobs there are, together with the others.
            since: The monotonic time of their commit.

        Returns:
            The seconds from their commit until that was seen.

        Raises:
            CommandError: The worker died, or a job failed or hangs.
        """
        self._be_blind(count, since)
        self.wait_while(lambda: not gauges.succeeded(self.cursor, job_id, job_id))
        return self._seen(count, since)

    def wait_until_read(self, ends: Sequence[gauges.End], *, since: float) -> float:
        """
        Wait until every partition of the log was read up to its end.

        Args:
            ends: As gauges.ends() has returned them.
            since: The monotonic time of their commit.

        Returns:
            The seconds from their commit until that was seen.

        Raises:
            CommandError: The worker died, or reads no further.
        """
        count = sum(end.messages for end in ends)
        self._be_blind(count, since)
        self.wait_while(lambda: gauges.is_behind(self.cursor, ends))
        return self._seen(count, since)

    def _be_blind(self, count: int, since: float) -> None:
        blind = since + self._shortest.get(count, 0.0) * BLIND - time.monotonic()
        time.sleep(max(blind, 0.0))

    def _seen(self, count: int, since: float) -> float:
        seconds = time.monotonic() - since
        self._shortest[count] = min(seconds, self._shortest.get(count, seconds))
        return seconds

    def wait_while(self, condition: Callable[[], bool]) -> None:
        """
        Ask every few milliseconds until the answer is no.

        Raises:
            CommandError: The worker died, or the answer stays yes.
        """
        until, left = time.monotonic() + PATIENCE_SECONDS, None
        while condition():
            if self._process.poll() is not None:
                raise CommandError(f"The worker process ended.{self._output()}")
            if time.monotonic() > until:
                before, left = left, gauges.all_live(self.cursor)
                if before == left:
                    raise CommandError(
                        f"No job was done for {PATIENCE_SECONDS:g} s.{self._output()}"
                    )
                until = time.monotonic() + PATIENCE_SECONDS
            time.sleep(POLL_SECONDS)

    def _output(self) -> str:
        self._log.seek(0)
        return f" It said:\n{self._log.read()[-LOG_CHARACTERS_SHOWN:]}"
