"""
Renewal: makes leases last, and tells those that are locked from those that are lost.

The heartbeat renews what is old. The claimer renews what has run out, before it claims:
after an outage longer than a lease it would else be the first to take its own jobs.
"""

from __future__ import annotations

import logging
import time
from datetime import timedelta

import psycopg

from django_pgqueue.postgres.connect import Link
from django_pgqueue.queues import lease
from django_pgqueue.worker.lease.leases import Held, Leases
from django_pgqueue.worker.service import Portion

logger = logging.getLogger("django_pgqueue.worker")

# Rows renewed in one statement.
RENEW_ROWS_MAX = 1_000

# A lease that was not renewed is asked for again this soon.
ASK_AGAIN_SECONDS = 0.5


class Renewal:
    """Renews leases of a process, on the link of whoever asks."""

    def __init__(self, leases: Leases, *, worker: str) -> None:
        self._leases = leases
        self._worker = worker
        self._portion = Portion(RENEW_ROWS_MAX)

    def renew(self, link: Link, old: list[Held]) -> bool:
        """Renew *old* leases; True when some must be asked for again."""
        # All of them, however many: the next time may be too late for short leases.
        ask_again = False
        rows = min(self._portion.rows, RENEW_ROWS_MAX)
        for start in range(0, len(old), rows):
            some = old[start : start + rows]
            try:
                ask_again |= self._renew_some(link, some)
            except psycopg.errors.QueryCanceled:
                self._portion.shrink(len(some))
                raise
        return ask_again

    def _renew_some(self, link: Link, old: list[Held]) -> bool:
        lease_seconds = self._leases.lease_seconds
        sent_at = time.monotonic()
        with link.cursor() as cursor:
            renewed = lease.renew(
                cursor,
                worker=self._worker,
                leases=_ids(old),
                lease=timedelta(seconds=lease_seconds),
            )
        for held in old:
            if held.job.id in renewed:
                held.renewed_at = sent_at
                held.valid_until = max(held.valid_until, sent_at + lease_seconds)
                held.missing_since = None
        missing = [held for held in old if held.job.id not in renewed]
        return bool(missing) and self._look_after(link, missing)

    def _look_after(self, link: Link, missing: list[Held]) -> bool:
        """Say which leases are lost; True when some others were not renewed."""
        with link.cursor() as cursor:
            ours = lease.still_held(cursor, worker=self._worker, leases=_ids(missing))
        now = time.monotonic()
        ask_again = False
        for held in missing:
            if self._leases.get(held.job) is not held:
                continue  # Settled meanwhile.
            if held.job.id in ours:
                # Only locked, by whomever. However long that lasts, it is not lost.
                held.missing_since = None
                ask_again = True
            elif self._is_lost(held, now):
                self._lose(held)
            else:
                ask_again = True
        return ask_again

    def _is_lost(self, held: Held, now: float) -> bool:
        # The settler may have written its outcome, and not have the answer yet. Then
        # the lease is dropped in a moment.
        if held.missing_since is None:
            held.missing_since = now
        waited = now - held.missing_since
        return now >= held.valid_until and waited >= ASK_AGAIN_SECONDS

    def _lose(self, held: Held) -> None:
        self._leases.lose(held)
        logger.warning(
            "lost       job=%d task=%s delivery=%d: its lease was taken over while it "
            "runs here",
            held.job.id,
            held.job.task,
            held.job.delivery,
        )


def _ids(leases: list[Held]) -> list[tuple[int, int]]:
    return [(held.job.id, held.job.delivery) for held in leases]
