"""The group that is measured. Imported by the workers alone that are to read."""

from __future__ import annotations

from typing import Any

from django_pgqueue.management.bench.topics import LOG
from django_pgqueue.topics.consume import consume

READERS = 4
BATCH = 500


@consume(LOG, group="bench", batch=BATCH, readers=READERS, name="pgqueue_bench.reads")
def reads(messages: list[Any]) -> None:
    """Do nothing with messages that are there as Python values."""
