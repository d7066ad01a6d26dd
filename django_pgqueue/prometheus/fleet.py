"""
Fleet: what the database says of all jobs, groups and workers, for whoever scrapes.

Read by the functions of the admin's first page, whose counts stop somewhere; at most
once in READ_SECONDS, however often it is asked for, and in a thread and a connection of
its own, so that a database that does not answer keeps nobody waiting for long.
"""

from __future__ import annotations

import logging
import threading
import time

from django_pgqueue.findings.overview import Overview
from django_pgqueue.postgres.limited import limited
from django_pgqueue.postgres.limits import Plans
from django_pgqueue.tasks import database

logger = logging.getLogger("django_pgqueue")

READ_SECONDS = 5.0

# How long an answer waits for the database.
PATIENCE_SECONDS = 5.0

# What one statement may take.
STATEMENT_SECONDS_MAX = 5


class _Reading:
    """One look at the database, under way or over."""

    def __init__(self) -> None:
        self.is_over = threading.Event()
        self.found: Overview | None = None
        self.good_until = 0.0


class Fleet:
    """What the database said last. Any thread may ask."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._latest: _Reading | None = None

    def look(self) -> Overview | None:
        """Return what the database says, or has said lately; None: it does not."""
        with self._lock:
            reading = self._latest
            if reading is None or (
                reading.is_over.is_set() and reading.good_until <= time.monotonic()
            ):
                reading = self._latest = _Reading()
                threading.Thread(
                    target=_read, args=(reading,), name="pgqueue-fleet", daemon=True
                ).start()
        return reading.found if reading.is_over.wait(PATIENCE_SECONDS) else None


def _read(reading: _Reading) -> None:
    from django.db import connections

    from django_pgqueue.conf import get_settings

    try:
        alias = get_settings().database
        with (
            limited(alias, seconds=STATEMENT_SECONDS_MAX, plans=Plans.IN_ORDER),
            database.cursor() as cursor,
        ):
            reading.found = Overview(cursor)
    except Exception as error:
        # Whatever it is, those who scrape are told that there are no numbers.
        logger.warning("metrics    the database was not read: %s", error)
    finally:
        connections.close_all()
        reading.good_until = time.monotonic() + READ_SECONDS
        reading.is_over.set()


FLEET = Fleet()
