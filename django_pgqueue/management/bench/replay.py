"""
replay: messages per second that become jobs of a subscription once more.

By the chunks that the leader does, one after another, beside the INSERT of as many jobs
that one would write by hand: of messages between two ids, a commit for each chunk.
"""

from __future__ import annotations

import time

from django_pgqueue.log.replay import CHUNK_JOBS
from django_pgqueue.management.bench import yardstick, yardstick_log
from django_pgqueue.management.bench.measure import (
    Measure,
    Run,
    Turns,
    at_least,
    beside_connection,
)
from django_pgqueue.management.bench.scratch import Scratch
from django_pgqueue.management.bench.topics import LOG, payloads
from django_pgqueue.models import Subscription
from django_pgqueue.operators import bulk_acts

REPLAYED_MIN = 50_000

QUEUE, TASK = "default", "pgqueue_bench"

# Locks: none but of the rows that are new.
INSERT = """
INSERT INTO pgqueue_job (queue, task, args, message_id)
SELECT %(queue)s, %(task)s, jsonb_build_array(m.id, m.published_at), m.id
  FROM pgqueue_message m
 WHERE m.id >= %(first)s AND m.id < %(end)s ORDER BY m.id
"""


class Replays(Turns):
    """Product: replay() into a subscription. Yardstick: INSERT … SELECT."""

    def __init__(self, scratch: Scratch, connection: yardstick.Connection) -> None:
        super().__init__(scratch)
        self._connection = connection

    def product(self, jobs: int) -> Run:
        """Return messages per second, from the request to the last commit."""
        first = self._published(jobs)
        subscription = Subscription.objects.using(self.scratch.alias).create(
            pattern=LOG.name, topic=LOG.name, queue=QUEUE, task=TASK
        )
        started = time.perf_counter()
        asked = LOG.replay(to=f"subscription:{QUEUE}/{LOG.name}", since=first)
        while bulk_acts.step():
            pass
        rate = asked.progress().done / (time.perf_counter() - started)
        subscription.delete()
        return Run([rate])

    def yardstick(self, jobs: int) -> Run:
        """Return rows per second."""
        first = self._published(jobs)
        started = time.perf_counter()
        for start in range(first, first + jobs, CHUNK_JOBS):
            end = min(start + CHUNK_JOBS, first + jobs)
            params = {"queue": QUEUE, "task": TASK, "first": start, "end": end}
            self._connection.execute(INSERT, params)
        return Run([jobs / (time.perf_counter() - started)])

    def _published(self, jobs: int) -> int:
        ids = LOG.publish_many(payloads(jobs), key=yardstick_log.KEY)
        return ids[0]


REPLAY = Measure(
    name="replay",
    what="messages of a log once more, as jobs of a subscription, by one leader",
    unit="msg/s",
    jobs=100_000,
    goals=(at_least(REPLAYED_MIN, "median", "msg/s"),),
    parts=beside_connection(Replays),
)
