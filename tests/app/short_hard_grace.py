"""Workers that load this module wait for two seconds, not 15, after a timeout."""

from __future__ import annotations

from django_pgqueue.worker.run import async_jobs, coroutines, watchdog
from django_pgqueue.worker.supervise import supervisor

for module in (async_jobs, coroutines, watchdog, supervisor):
    module.HARD_GRACE_SECONDS = 2.0  # type: ignore[attr-defined]
