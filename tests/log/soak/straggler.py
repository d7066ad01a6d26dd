"""
Straggler: a publisher that commits what readers without a horizon have gone past.

So they skip it for certain, however busy the machine is: a run in which they skip
nothing would say nothing about those that ask for the horizon.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tests.log.soak.publishers import Publisher
from tests.log.soak.readers import Reader


class Straggler(Publisher):
    """
    In the process of the readers; each of its transactions has something in each topic.

    Args:
        number: The first that the publishers leave free.
        naive: Of each topic, in their order, the reader without a horizon.
    """

    # Those after which there is always something in the log.
    _steps = (
        Publisher._single,
        Publisher._bulk,
        Publisher._in_sql,
        Publisher._exception,
        Publisher._released,
    )

    def __init__(
        self, number: int, told: dict[str, Any], naive: Sequence[Reader]
    ) -> None:
        super().__init__(number, told)
        self._naive = dict(zip(told["topics"], naive, strict=True))

    def begin(self) -> None:
        """Publish, and commit nothing."""
        self._begin()
        for topic in self._topics:
            self._step(topic)

    def commit(self, is_over: Callable[[], bool]) -> None:
        """Commit once all have gone past it, or will not: nobody publishes any more."""
        for topic, reader in self._naive.items():
            lowest = min(entry[0] for entry in self._open if entry[1] == topic)
            reader.wait_past(lowest, is_over)
        self._end("COMMIT")
