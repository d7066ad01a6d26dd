"""Watch: a chore of the leader that looks for what is wrong, and tells of it."""

from __future__ import annotations

import logging
from datetime import datetime

from django_pgqueue import signals, telemetry
from django_pgqueue.postgres.connect import Link
from django_pgqueue.postgres.limits import Plans
from django_pgqueue.queues import watch

logger = logging.getLogger("django_pgqueue.worker")

INTERVAL_SECONDS = 60.0

# One look may take so long.
LOOK_SECONDS_MAX = 10


class Watch:
    """
    Looks once a minute, and sends a signal for each alert that has changed.

    Also for what others have found: pg_cron, or somebody's command.
    """

    def __init__(self) -> None:
        self._said_upto: datetime | None = None

    def __call__(self, link: Link) -> float:
        """Look and tell; return how many seconds until the next time."""
        if self._said_upto is None:
            # What was said before is told already, or nobody led.
            with link.cursor() as cursor:
                self._said_upto = watch.now(cursor)
        with link.transaction(LOOK_SECONDS_MAX, Plans.IN_ORDER) as cursor:
            watch.look(cursor)
        with link.cursor() as cursor:
            alerts, self._said_upto = watch.said_after(cursor, self._said_upto)
        for alert in alerts:
            _tell(alert)
        return INTERVAL_SECONDS


def _tell(alert: watch.Alert) -> None:
    level = logging.INFO if alert.change == "ends" else logging.WARNING
    logger.log(
        level,
        "alert      %s kind=%s subject=%s: %s",
        alert.change,
        *alert[:2],
        alert.detail,
    )
    telemetry.send(signals.alert_changed, None, **alert._asdict())
