"""Three groups that read one topic, and note what they are given; for the soak."""

from __future__ import annotations

import os
import random
import time
from typing import Any

from django.db import connection

from django_pgqueue import consume
from tests.harness import ledger
from tests.log.soak.groups import LEASE_SECONDS, QUEUE, TOPIC

# So long a batch takes before and after its effect, at most: time to be killed in.
PAUSE_SECONDS = 0.02

EFFECT = "INSERT INTO soak_effect (id, pid) SELECT unnest(%s::bigint[]), %s"

OPTIONS: dict[str, Any] = {
    "start": "earliest",
    "queue": QUEUE,
    "lease": LEASE_SECONDS,
    # A killed process is no reason to give a message up.
    "retries": 50,
}


@consume(TOPIC, group="atomic", atomic=True, batch=100, **OPTIONS)
def atomic(messages: list[Any]) -> None:
    """Write what it is given in the transaction of the position."""
    _pause()
    with connection.cursor() as cursor:
        cursor.execute(EFFECT, [[message.id for message in messages], os.getpid()])
    _pause()


@consume(TOPIC, group="plain", batch=500, **OPTIONS)
def plain(messages: list[Any]) -> None:
    """Note what it is given outside of the database."""
    _note("plain", messages)


@consume(TOPIC, group="small", batch=5, **OPTIONS)
def small(messages: list[Any]) -> None:
    """As plain(), with batches that are often full."""
    _note("small", messages)


def _note(group: str, messages: list[Any]) -> None:
    _pause()
    ledger.write(group, messages[0].partition, note=[each.id for each in messages])
    _pause()


def _pause() -> None:
    time.sleep(random.random() * PAUSE_SECONDS)
