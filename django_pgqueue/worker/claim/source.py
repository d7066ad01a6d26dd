"""Source: what a poller asks of the claimer."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Protocol

from django_pgqueue.queues.claim import Band, Claimed, Sight
from django_pgqueue.worker.claim.fair_share import Key


class Source(Protocol):
    """
    The claimer, to a poller.

    *for_coroutines* says for which kind of capacity the poller looks.
    """

    def queues_for(self, *, for_coroutines: bool) -> list[str]:
        """Return the queues to look at when all are meant."""

    def learn(self, names: set[str] | None) -> bool:
        """
        Get to know *names*; None: ask which queues there are.

        Returns:
            Whether all that are meant will be among queues_for() for a while.
        """

    def renew(self, *, anyway: bool) -> None:
        """Ask which queues there are, if that was long ago or *anyway*."""

    def served(self, names: set[str], *, for_coroutines: bool) -> list[str]:
        """Return those of *names* that may be claimed from; unheard ones too."""

    def limit(self, queues: Sequence[str], capacity: int) -> int:
        """Return how many a claim from all bands of *queues* may take; 0: see them."""

    def free(self, bands: Iterable[Key]) -> Mapping[str, int]:
        """Return how many more jobs each queue of *bands* may have that has a cap."""

    def short(self) -> Collection[str]:
        """Return the queues of the last claim that may have more than their limits."""

    def room_in(self, bands: Iterable[Key], seconds: float) -> float:
        """Return how long to wait for room in *bands*; *seconds* where nobody knows."""

    def see(self, queues: Sequence[str]) -> Sight:
        """Return the bands of *queues*, and what stands first in each."""

    def claim(
        self, queues: Sequence[str], limit: int, *, for_coroutines: bool
    ) -> list[Claimed]:
        """Lease what is due, without floors, and hand it over."""

    def claim_from_floors(
        self, bands: Sequence[Band], limit: int, *, for_coroutines: bool
    ) -> list[Claimed]:
        """Lease what is due in known bands, and hand it over."""
