"""This project: pgqueue_worker, and delay() and bulk() through Django's connection."""

from __future__ import annotations

import os
import time
from typing import Any

import django
from django.core.management import call_command

from tests.benchmarks.agent.program import Items, run

os.environ["DJANGO_SETTINGS_MODULE"] = f"{__spec__.parent}.settings"
django.setup()

DEFAULT = {"task": "immediate"}


def setup() -> None:
    """Make the tables."""
    call_command("migrate", verbosity=0)


class Producer:
    """A web process, for the queue."""

    def __init__(self) -> None:
        from django.db import transaction

        from tests.benchmarks.peers.django_pgqueue import tasks

        self._transaction = transaction
        self._tasks: dict[str, Any] = {
            "immediate": tasks.immediate,
            "batched": tasks.batched,
        }

    def enqueue(self, items: Items, options: dict[str, Any]) -> None:
        """Call delay()."""
        task = self._task(options)
        for item in items:
            task.delay(**item)

    def bulk(self, items: Items, options: dict[str, Any]) -> None:
        """Call bulk()."""
        self._task(options).bulk(items)

    def commit_one(self, items: Items, options: dict[str, Any]) -> int:
        """Call delay() in a transaction."""
        with self._transaction.atomic():
            self._task(options).delay(**items[0])
            return time.monotonic_ns()

    def commit_many(self, items: Items, options: dict[str, Any]) -> int:
        """Call bulk() in a transaction."""
        clocks: list[int] = []
        with self._transaction.atomic():
            # Registered first, so it runs between the commit and the wake.
            self._transaction.on_commit(lambda: clocks.append(time.monotonic_ns()))
            self._task(options).bulk(items)
        return clocks[0]

    def transactions(self, items: Items, options: dict[str, Any]) -> None:
        """Call delay() in a transaction each, and wake workers only if *wakes*."""
        from django_pgqueue.tasks import enqueuer

        if not options["wakes"]:
            before, enqueuer.wake_after_commit = enqueuer.wake_after_commit, _no_wake
        for item in items:
            with self._transaction.atomic():
                self._task({}).delay(**item)
        if not options["wakes"]:
            enqueuer.wake_after_commit = before

    def _task(self, options: dict[str, Any]) -> Any:
        return self._tasks[{**DEFAULT, **options}["task"]]


def _no_wake(*args: object, **kwargs: object) -> None:
    """Wake nobody."""


def work(options: dict[str, Any]) -> None:
    """Run one worker process."""
    call_command("pgqueue_worker", processes=1, threads=options["threads"])


if __name__ == "__main__":
    run(setup=setup, producer=Producer, work=work)
