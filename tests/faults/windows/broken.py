"""
Broken builds: settles that come late, or apart from what they belong to.

The measure must find each of them out, or its figures would say nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from tests.faults.broken import Edit
from tests.faults.windows.measure import Case


@dataclass(frozen=True, slots=True, kw_only=True)
class Broken:
    """A build, and what is measured of it."""

    title: str
    edits: tuple[Edit, ...]
    case: Case


# Longer than any kill waits for (MOMENT_SECONDS of measure.py): what has ended is
# unwritten whenever the process is killed. It alone has no awaited ack repeat more.
LATE = Edit(
    "worker/settle/settler.py",
    "        inbox, batch = self._inbox, self._batch\n",
    "        inbox, batch = self._inbox, self._batch\n        time.sleep(0.5)\n",
)
UNAWAITED = Edit(
    "worker/run/executor.py",
    'if prepared.options.settle == "immediate":',
    "if False:",
)

BUILDS = {
    "acks-late": Broken(
        title="what has ended waits for half a second before it is written",
        edits=(LATE,),
        case=Case(strength="batched", threads=4, job_seconds=0.002),
    ),
    "acks-unawaited": Broken(
        title="no thread waits for its ack, whatever the settle strength",
        edits=(LATE, UNAWAITED),
        case=Case(strength="immediate", threads=4),
    ),
    "acks-apart": Broken(
        title="the ack of an atomic task is written after its transaction",
        edits=(
            LATE,
            UNAWAITED,
            Edit(
                "tasks/atomic.py",
                "        performed.settled = control.ack_within(cursor, performed)\n",
                "        pass\n",
            ),
        ),
        case=Case(strength="atomic", threads=4),
    ),
}
