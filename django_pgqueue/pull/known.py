"""Known: the pull queues that code declares or the database has, for who names one."""

from __future__ import annotations

from django_pgqueue.conf import get_settings
from django_pgqueue.models import Queue
from django_pgqueue.pull.queue import PullQueue
from django_pgqueue.queues.pull import DeclaredQueue
from django_pgqueue.tasks import pull_queues


def known_names() -> list[str]:
    """Return the names of all pull queues, in order."""
    stored = Queue.objects.using(get_settings().database).filter(kind="pull")
    declared = {each.name for each in pull_queues.declared()}
    return sorted(declared.union(stored.values_list("name", flat=True)))


def known_queue(name: str) -> PullQueue | None:
    """
    Return the pull queue of this *name*, as code declares it or else as it is stored.

    None: there is none; unlike queue(), this makes none.
    """
    for declared in pull_queues.declared():
        if declared.name == name:
            return PullQueue(declared)
    stored = Queue.objects.using(get_settings().database)
    if not stored.filter(name=name, kind="pull").exists():
        return None
    return PullQueue(DeclaredQueue(name=name))
