"""
Floors: which bands have something due, and from where on a claim may look in each.

A *floor* is the earliest visible_at that may still be found in a band. A claim that
starts there does not walk over what is finished. It misses what becomes visible below:
a transaction that commits late, a claim that rolls back. So bands are seen anew, from
their beginning, all the time; and where that is dear, floors are taken with a margin.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime, timedelta

from django_pgqueue.bounds import PRIORITY_MAX, PRIORITY_MIN
from django_pgqueue.queues.claim import Band, Claimed, Sight
from django_pgqueue.worker.claim.fair_share import Key

# Bands and queues remembered; beyond it all are forgotten, and seen anew.
BANDS_MAX = 10_000

# How far below its floor a band is looked at where seeing it anew is dear: for what
# commits so much later than it was inserted.
MARGIN = timedelta(seconds=1)

# Bands taken for busy without having been seen; of more, a round is quicker.
EXPECTED_MAX = 64


class Floors:
    """What one poller knows of bands."""

    def __init__(self) -> None:
        # Those with something due, and the floor of each.
        self.busy: dict[Key, datetime] = {}
        self._floors: dict[Key, datetime] = {}
        # When all bands of a queue were seen, or taken empty.
        self._seen_at: dict[str, datetime] = {}
        # The database's time at a monotonic one.
        self._clock: tuple[datetime, float] | None = None

    @property
    def now(self) -> datetime | None:
        """The time by the database's clock; None: it has not been asked."""
        if self._clock is None:
            return None
        then, at = self._clock
        return then + timedelta(seconds=time.monotonic() - at)

    def see(self, queues: Collection[str], sight: Sight) -> tuple[int, float | None]:
        """
        Take what was seen of *queues*.

        Returns:
            How many bands have something due, and in how many seconds the next job of
            another one becomes visible; None: none will.
        """
        now = sight.now
        self._clock = now, time.monotonic()
        names = set(queues)
        for key in [key for key in self.busy if key[0] in names]:
            del self.busy[key]
        self._remember_seen(queues, now)
        self._remember({(band.queue, band.priority): now for band in sight.bands})
        count, upcoming = 0, None
        for queue, priority, visible_at in sight.bands:
            if visible_at <= now:
                self.busy[queue, priority] = visible_at
                count += 1
            elif upcoming is None or visible_at < upcoming:
                upcoming = visible_at
        return count, None if upcoming is None else (upcoming - now).total_seconds()

    def take(
        self,
        bands: Sequence[Band],
        jobs: Sequence[Claimed],
        short: Collection[str] = (),
    ) -> dict[Key, int]:
        """
        Take what a claim from *bands* has brought; return how many of each.

        Args:
            bands: With the limit of each.
            jobs: What came of it.
            short: Queues that may have more, though there are fewer than asked for.
        """
        if len(bands) == 1:
            (band,) = bands
            got = {(band.queue, band.priority): len(jobs)}
            last = {(band.queue, band.priority): jobs[-1].due_at} if jobs else {}
        else:
            got, last = {}, {}
            for job in jobs:
                key = job.queue, job.priority
                got[key] = got.get(key, 0) + 1
                # In a band, jobs are in the order of due_at.
                last[key] = job.due_at
        self._remember(last)
        for queue, priority, _, limit in bands:
            key = queue, priority
            if key in last and (got[key] >= limit or queue in short):
                self.busy[key] = last[key]
            elif queue not in short:
                self.busy.pop(key, None)
        return got

    def take_all(
        self, queues: Sequence[str], jobs: Sequence[Claimed], *, has_more: bool
    ) -> None:
        """Take what a claim from all bands of *queues* has brought."""
        now = self.now
        if now is not None and not has_more:
            self._remember_seen(queues, now)
        last = {(job.queue, job.priority): job.due_at for job in jobs}
        self._remember(last)
        if has_more:
            self.busy.update(last)

    def at_floors(self, queues: Collection[str] | None, limit: int) -> list[Band]:
        """
        Return the bands that are known of *queues*, with a margin.

        Args:
            queues: Names; None: of all.
            limit: Of each band.
        """
        keys = (key for key in self._floors if queues is None or key[0] in queues)
        return [
            Band(*key, self._floor(key) - MARGIN, limit)
            for key in sorted(keys, key=lambda key: -key[1])
        ]

    def unknown(self, queue: str, limit: int) -> list[Band]:
        """Return every band of *queue* that has never been met, with a margin."""
        seen_at = self._seen_at.get(queue)
        if seen_at is None:
            return []
        return [
            Band(queue, priority, seen_at - MARGIN, limit)
            for priority in range(PRIORITY_MAX, PRIORITY_MIN - 1, -1)
            if (queue, priority) not in self._floors
        ]

    def expect(self, queues: Collection[str] | None) -> None:
        """Take bands of *queues* (None: of all) for busy that have not been seen."""
        bands = self.at_floors(queues, 1)
        if len(bands) <= EXPECTED_MAX:
            for band in bands:
                self.busy.setdefault((band.queue, band.priority), band.floor)

    def keep(self, queues: Collection[str]) -> None:
        """Drop the busy bands of all others."""
        for key in [key for key in self.busy if key[0] not in queues]:
            del self.busy[key]

    def forget(self) -> None:
        """Know nothing."""
        self.busy.clear()
        self._floors.clear()
        self._seen_at.clear()

    def _floor(self, key: Key) -> datetime:
        """Return from where on the band may have something that is due."""
        if key in self.busy:
            return self.busy[key]
        # What there was when its queue was seen has been taken since.
        return max(self._floors[key], self._seen_at.get(key[0], self._floors[key]))

    def _remember(self, floors: dict[Key, datetime]) -> None:
        if len(self._floors) + len(floors) > BANDS_MAX:
            self._floors.clear()
        self._floors.update(floors)

    def _remember_seen(self, queues: Iterable[str], now: datetime) -> None:
        if len(self._seen_at) > BANDS_MAX:
            self._seen_at.clear()
            self._floors.clear()
        self._seen_at.update(dict.fromkeys(queues, now))
