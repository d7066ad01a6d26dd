"""
Rations: until when looks have to wait that have become dear.

Several dear looks in a row mean that vacuum is held back, rather than that one waited
for a lock or a busy processor. They are then rationed to a tenth of the loop's time,
though never fewer than one in a poll interval, until one is cheap again.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

from django_pgqueue.worker.claim.listener import NAMES_MAX

# A look that takes longer than this is dear, besides what its rows took.
DEAR_SECONDS = 0.01
ROW_SECONDS = 0.00005
DEAR_LOOKS = 3
RATION = 9.0


class Ration:
    """Of rounds, which are looks at all queues."""

    def __init__(self) -> None:
        self.not_before = 0.0
        # How many in a row were dear.
        self.dear = 0

    def note(self, is_dear: bool, took_seconds: float, poll_seconds: float) -> None:
        """Note a look."""
        self.dear = self.dear + 1 if is_dear else 0
        if self.dear >= DEAR_LOOKS:
            ration = min(took_seconds * RATION, poll_seconds)
            self.not_before = time.monotonic() + ration


class QueueRations(dict[str, Ration]):
    """Of queues that are dear to look at, as far as one can tell: of a dear look."""

    def note(
        self,
        queues: Sequence[str],
        is_dear: bool,
        took_seconds: float,
        poll_seconds: float,
    ) -> None:
        """Note a look at *queues*."""
        for queue in queues:
            if not is_dear:
                self.pop(queue, None)
            elif len(self) < NAMES_MAX:
                ration = self.setdefault(queue, Ration())
                ration.note(True, took_seconds, poll_seconds)

    def not_before(self, queue: str) -> float:
        """Return until when a look at *queue* has to wait; in the past: it has not."""
        ration = self.get(queue)
        return -math.inf if ration is None else ration.not_before
