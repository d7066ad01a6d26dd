"""
Many processes that enqueue the same keys at once, each in an order of its own.

    python -m tests.acceptance.unique_race bulk 8 400

Run by test_unique.py with the settings of workers. Prints what came of it as JSON.
"""

from __future__ import annotations

import json
import multiprocessing
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import django

BULK_ITEMS = 20
TRANSACTION_CALLS = 10

# PostgreSQL looks for a deadlock after a second; with eight processes on two processors
# that is all that this would measure.
LOOK_SOONER = "SET deadlock_timeout = '20ms'"


def bulk(keys: list[int]) -> Iterator[Any]:
    """Enqueue twenty at a time."""
    task = a_task()
    for start in range(0, len(keys), BULK_ITEMS):
        yield from task.bulk([[key, 0] for key in keys[start : start + BULK_ITEMS]])


def transactions(keys: list[int]) -> Iterator[Any]:
    """Enqueue ten in a transaction, each by itself; run it again as documented."""
    from django.db import transaction

    from django_pgqueue import TransactionAborted

    task = a_task()
    for start in range(0, len(keys), TRANSACTION_CALLS):
        while True:
            try:
                with transaction.atomic():
                    done = [
                        task.delay(key, 0)
                        for key in keys[start : start + TRANSACTION_CALLS]
                    ]
            except TransactionAborted as error:
                yield error
                time.sleep(random.uniform(0, 0.05))
                continue
            yield from done
            break


def late(keys: list[int]) -> Iterator[Any]:
    """Enqueue as transactions(), where a job of each key has been due for an hour."""
    return transactions(keys)


WAYS: dict[str, Callable[[list[int]], Iterator[Any]]] = {
    way.__name__: way for way in (bulk, transactions, late)
}


def a_task() -> Any:
    """Return the task with its rule."""
    from django_pgqueue import Unique
    from tests.app.tasks import add

    return add.using(unique=Unique(by="left"))


def race(way: str, keys: int, seed: int, start: Any, counted: Any) -> None:
    """Enqueue all keys in a random order, with all others; count what came of it."""
    from django.db import DatabaseError, connection

    try:
        with connection.cursor() as cursor:
            cursor.execute(LOOK_SOONER)
    except DatabaseError:
        pass  # The user of the tests' database may not: it takes longer then.
    mine = list(range(keys))
    random.Random(seed).shuffle(mine)
    start.wait()
    counts: Counter[str] = Counter()
    for told in WAYS[way](mine):
        if isinstance(told, Exception):
            counts[type(told).__name__] += 1
        else:
            counts["created" if told.created else told.conflict] += 1
    counted.put(counts)


def store_late(keys: int) -> None:
    """Store a job of each key, as if it had been due for an hour."""
    from datetime import timedelta

    from django.db import connection
    from django.db.models import F

    from django_pgqueue.models import Job

    a_task().bulk([[key, 0] for key in range(keys)])
    Job.objects.update(visible_at=F("visible_at") - timedelta(hours=1))
    connection.close()  # Nobody inherits it.


def main(way: str, processes: int, keys: int) -> None:
    """Run the race and print the counts."""
    django.setup()
    if way == "late":
        store_late(keys)
    fork = multiprocessing.get_context("fork")
    start, counted = fork.Barrier(processes), fork.Queue()
    racers = [
        fork.Process(target=race, args=(way, keys, seed, start, counted), daemon=True)
        for seed in range(processes)
    ]
    for racer in racers:
        racer.start()
    counts: Counter[str] = sum((counted.get(timeout=120) for _ in racers), Counter())
    for racer in racers:
        racer.join()
    print(json.dumps(counts))  # noqa: T201


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
