"""
Fair share: from which bands the next claim takes, and how many jobs of each. Pure.

Who goes first is said by the plan. Among those that may go, each queue gets its share
of the claim; what does not come out even is owed, so that claims of a single job are
fair, too. And one of so many starts is kept for the band that has waited longest and
would be passed over: a job of low priority is late behind others, but not for ever.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from django_pgqueue.queues.claim import Band, Claimed
from django_pgqueue.worker.queue_plan import STRICT, WEIGHTED, QueuePlan

# One of so many starts goes to the longest-waiting band that is passed over, once its
# oldest job has waited for AGEING_SECONDS.
AGED_STARTS = 20

# A band: one priority of one queue.
Key = tuple[str, int]
Rank = tuple[int, int]

# Before all others; and more than there are priorities.
AGED_RANK = -(10**9)
PLACE_RANKS = 1_000


def run_order(
    plan: QueuePlan, ageing_seconds: float | None
) -> Callable[[Claimed], int]:
    """
    Return the function that says which of the jobs claimed ahead goes first: the lower.

    A job that has waited long is not overtaken any more by those that are claimed after
    it; else what was let in for its age would wait behind them.
    """
    ageing = timedelta.max if ageing_seconds is None else timedelta(0, ageing_seconds)
    is_strict, is_weighted = plan.order == STRICT, plan.order == WEIGHTED

    def rank(job: Claimed) -> int:
        if job.claimed_at - job.due_at >= ageing:
            return AGED_RANK
        if is_weighted:
            return 0
        place = plan.place(job.queue) if is_strict else 0
        return place * PLACE_RANKS - job.priority

    return rank


class FairShare:
    """Who is next, and what is owed to whom."""

    def __init__(self, plan: QueuePlan, ageing_seconds: float | None) -> None:
        self._plan = plan
        self._ageing = None if ageing_seconds is None else timedelta(0, ageing_seconds)
        # Starts owed, by queue: above zero it has had less than its share.
        self._owed: dict[str, float] = {}
        # Starts since one went to who had waited longest.
        self._starts = AGED_STARTS
        # Of the latest claim: the band that has waited longest, if it was let in; and
        # the queues that have shared it.
        self._aged: Key | None = None
        self._sharing: set[str] = set()

    def share(
        self,
        bands: Mapping[Key, datetime],
        capacity: int,
        *,
        now: datetime | None,
        free: Mapping[str, int],
    ) -> list[Band]:
        """
        Return the bands to claim from, each with its limit, in order.

        Their limits come to *capacity*, or to less where caps allow no more. Empty:
        every queue is at its cap.

        Args:
            bands: The bands that have something due, and where to start in each.
            capacity: Jobs wanted, from 1 on.
            now: By the database's clock; None: unknown, nobody is aged.
            free: Of each queue with a cap, how many more jobs it may have.
        """
        self._aged = None
        self._sharing.clear()
        if len(bands) == 1:
            ((queue, priority), floor) = next(iter(bands.items()))
            limit = min(capacity, free.get(queue, capacity))
            return [Band(queue, priority, floor, limit)] if limit > 0 else []
        ranks = self._ranks(bands, free)
        if not ranks:
            return []
        left = dict(free)
        limits: dict[Key, int] = {}
        self._give_to_aged(bands, capacity, now, left, limits, ranks[min(ranks)])
        capacity -= sum(limits.values())
        for rank in sorted(ranks):
            if capacity <= 0:
                break
            queues = ranks[rank]
            for queue, limit in self._split(queues, capacity, left).items():
                if limit:
                    key = queue, queues[queue]
                    limits[key] = limits.get(key, 0) + limit
                    capacity -= limit
                    if queue in left:
                        left[queue] -= limit
        return [
            Band(queue, priority, bands[queue, priority], limit)
            for (queue, priority), limit in limits.items()
        ]

    def took(self, bands: Sequence[Band], got: Mapping[Key, int]) -> None:
        """Note what came of a claim from *bands*."""
        total = sum(got.values())
        for queue, priority, _, limit in bands:
            count = got.get((queue, priority), 0)
            if (queue, priority) == self._aged:
                self._starts -= min(count * AGED_STARTS, self._starts)
            elif count < limit:
                # It has no more: nothing is owed to who asks for nothing.
                self._owed.pop(queue, None)
            elif queue in self._sharing:
                self._owed[queue] -= count
        self._starts = min(self._starts + total, max(AGED_STARTS, total))

    def _ranks(
        self, bands: Iterable[Key], free: Mapping[str, int]
    ) -> dict[Rank, dict[str, int]]:
        """Return the bands by rank, lower first: of each queue its highest priority."""
        plan = self._plan
        is_strict, is_weighted = plan.order == STRICT, plan.order == WEIGHTED
        ranks: dict[Rank, dict[str, int]] = {}
        for queue, priority in bands:
            if free.get(queue, 1) <= 0:
                continue
            rank = (
                plan.place(queue) if is_strict else 0,
                0 if is_weighted else -priority,
            )
            queues = ranks.setdefault(rank, {})
            if queue not in queues or priority > queues[queue]:
                queues[queue] = priority
        return ranks

    def _give_to_aged(
        self,
        bands: Mapping[Key, datetime],
        capacity: int,
        now: datetime | None,
        left: dict[str, int],
        limits: dict[Key, int],
        first: Mapping[str, int],
    ) -> None:
        """Keep what is owed to the longest-waiting of those that are passed over."""
        if now is None or self._ageing is None or self._starts < AGED_STARTS:
            return
        since, key = min(
            (
                (floor, key)
                for key, floor in bands.items()
                if first.get(key[0]) != key[1] and left.get(key[0], 1) > 0
            ),
            default=(now, None),
        )
        if key is None or now - since < self._ageing:
            return
        limit = min(self._starts // AGED_STARTS, capacity, left.get(key[0], capacity))
        self._aged = key
        limits[key] = limit
        if key[0] in left:
            left[key[0]] -= limit

    def _split(
        self, queues: Iterable[str], capacity: int, free: Mapping[str, int]
    ) -> dict[str, int]:
        """Divide *capacity* among queues of one rank by weight, and what is owed."""
        names = [queue for queue in queues if free.get(queue, 1) > 0]
        if len(names) == 1:
            return {names[0]: min(capacity, free.get(names[0], capacity))}
        self._sharing.update(names)
        owed = self._owed
        for queue, share in self._shares(names, capacity, free).items():
            owed[queue] = min(owed.get(queue, 0.0) + share, float(capacity))
        limits: dict[str, int] = {}
        left = capacity
        names.sort(key=owed.__getitem__, reverse=True)
        for queue in names:
            limit = max(0, min(int(owed[queue]), left, free.get(queue, capacity)))
            limits[queue] = limit
            left -= limit
        if left:
            # What does not come out even; those it is owed to most go first.
            names.sort(key=lambda queue: limits[queue] - owed[queue])
            for queue in names:
                if left and limits[queue] < free.get(queue, capacity):
                    limits[queue] += 1
                    left -= 1
            for queue in names:
                more = min(left, free.get(queue, capacity) - limits[queue])
                limits[queue] += more
                left -= more
        return limits

    def _shares(
        self, names: Sequence[str], capacity: int, free: Mapping[str, int]
    ) -> dict[str, float]:
        """Return the share of each queue; what caps leave over goes to the others."""
        is_weighted = self._plan.order == WEIGHTED
        weights = {q: self._plan.weight(q) if is_weighted else 1 for q in names}
        shares: dict[str, float] = {}
        left = float(capacity)
        while weights:
            each = left / sum(weights.values())
            full = [q for q in weights if free.get(q, capacity) < each * weights[q]]
            if not full:
                return shares | {q: each * weight for q, weight in weights.items()}
            for queue in full:
                shares[queue] = float(free[queue])
                left -= free[queue]
                del weights[queue]
        return shares
