"""django-tasks-db: db_worker, and enqueue() through Django's connection."""

from __future__ import annotations

import os
import time
from typing import Any

import django
from django.core.management import call_command

from tests.benchmarks.agent.program import Items, run

os.environ["DJANGO_SETTINGS_MODULE"] = f"{__spec__.parent}.settings"
django.setup()


def setup() -> None:
    """Make the tables."""
    call_command("migrate", verbosity=0)


class Producer:
    """A web process, for the queue."""

    def __init__(self) -> None:
        from django.db import transaction

        from tests.benchmarks.peers.django_tasks_db.tasks import nothing

        self._transaction = transaction
        self._task: Any = nothing

    def enqueue(self, items: Items, options: dict[str, Any]) -> None:
        """Call enqueue()."""
        for item in items:
            self._task.enqueue(**item)

    def bulk(self, items: Items, options: dict[str, Any]) -> None:
        """Call enqueue() in one transaction: there is no call for many."""
        with self._transaction.atomic():
            self.enqueue(items, options)

    def commit_one(self, items: Items, options: dict[str, Any]) -> int:
        """Call enqueue() in a transaction."""
        with self._transaction.atomic():
            self._task.enqueue(**items[0])
            return time.monotonic_ns()

    def commit_many(self, items: Items, options: dict[str, Any]) -> int:
        """As bulk()."""
        self.bulk(items, options)
        return time.monotonic_ns()


def work(options: dict[str, Any]) -> None:
    """Run one worker."""
    call_command("db_worker", startup_delay=False)


if __name__ == "__main__":
    run(setup=setup, producer=Producer, work=work)
