"""
Consumer groups never skip: real workers that come, go, die and freeze, while others
publish in transactions of every shape, and the count of partitions changes.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connections

from django_pgqueue.log.generations import repartition
from django_pgqueue.models import ConsumerGroup, DeadLetter, Message, Position
from django_pgqueue.postgres.connect import connect
from tests.harness import seeds
from tests.harness.waiting import wait_for
from tests.harness.worker_process import is_alive
from tests.log.soak.groups import (
    INSTALL,
    LEASE_SECONDS,
    QUEUE,
    REMOVE,
    TOPIC,
    Fault,
    Taken,
    judge_group,
    taken_of,
)
from tests.log.soak.publishers import INSTALL as INSTALL_PUBLISHERS
from tests.log.soak.run import Soak, start_publishers, url_of

# 100,000 is full size.
MESSAGES = int(os.environ.get("PGQUEUE_SOAK_MESSAGES", "5000"))
IS_FULL = MESSAGES >= 100_000
SEED = seeds.seed(seeds.FAULTS)

GROUPS = ("atomic", "plain", "small")
# Processes that read from the beginning to the end; each reads for every group.
WORKERS, PROCESSES = 2, 2

# And so many besides, who come and go.
JOINED_MAX = 2

# Something happens so often; in turn. At full size, somebody comes or goes every 5 s.
FAULT_SECONDS = 1.0
HARM = ("kill", "pause", "join", "kill", "leave")
# And every other time, the topic gets another count of partitions.
COUNTS = (24, 5, 32, 8, 16)
PAUSE_SECONDS = LEASE_SECONDS + 1.2

# So long for somebody who is in the midst of a batch.
VICTIM_SECONDS_MAX = 3.0

# After the last message, and the last fault.
LAG_SECONDS = 30.0

PGQUEUE = {
    "TASK_MODULES": ["soak_tasks"],
    "POLL_INTERVAL_SECONDS": 0.5,
    "LEASE_SECONDS": 5,
}

# Who holds a partition of that group now: the process ids of workers.
HOLDERS = """
SELECT DISTINCT w.pid FROM pgqueue_worker w JOIN pgqueue_position p
    ON split_part(p.leased_by, '/', 1) = w.name AND p.leased_until > clock_timestamp()
  JOIN pgqueue_consumer_group g ON g.id = p.group_id AND g.name = %s
"""

BEHIND = """
SELECT count(*)
  FROM pgqueue_position p JOIN pgqueue_consumer_group g ON g.id = p.group_id
 WHERE EXISTS (SELECT FROM pgqueue_message m
                WHERE m.topic_id = g.topic_id AND m.partition = p.partition
                  AND m.id > p.position)
"""


class Harm:
    """Kills, freezes, adds and takes away readers, and notes whom."""

    def __init__(self, start: Any, workers: list[Any]) -> None:
        self.faults: list[Fault] = []
        self.joined: list[Any] = []
        self._start = start
        self._workers = workers
        self._draw = random.Random(SEED)
        self._groups = itertools.cycle(GROUPS)
        self._counts = itertools.cycle(COUNTS)
        self._connection = connect("default", name="tests: harm")
        self._frozen: list[threading.Timer] = []
        self._paused: set[int] = set()

    def happen(self, kind: str) -> None:
        """Let one thing happen, if there is somebody to whom it can."""
        getattr(self, f"_{kind}")()

    @property
    def readers(self) -> list[Any]:
        """Those that have started."""
        started = [each for each in self.joined if each.lines(r"started    worker=")]
        return [*self._workers, *started]

    def heal(self) -> None:
        """Return when nobody is frozen any more."""
        for timer in self._frozen:
            timer.join()
        self._connection.close()

    def _living(self) -> set[int]:
        pids = {pid for worker in self._workers for pid in worker.children()}
        return pids - self._paused

    def _holding(self, group: str) -> set[int]:
        with self._connection.cursor() as cursor:
            rows = cursor.execute(HOLDERS, [group]).fetchall()
        return self._living() & {pid for (pid,) in rows}

    def _kill(self) -> None:
        pids = sorted(self._holding(next(self._groups)) or self._living())
        if pids:
            pid, now = self._draw.choice(pids), time.monotonic()
            os.kill(pid, signal.SIGKILL)
            self.faults.append(Fault("kill", pid, now, now))

    def _pause(self) -> None:
        """Freeze one that is in the midst of a batch, until its lease is over."""
        group, until = next(self._groups), time.monotonic() + VICTIM_SECONDS_MAX
        while True:
            pids = sorted(self._holding(group) or self._living())
            if not pids:
                return
            pid, begun = self._draw.choice(pids), time.monotonic()
            os.kill(pid, signal.SIGSTOP)
            if begun > until or pid in self._holding(group):
                break
            os.kill(pid, signal.SIGCONT)
        self._paused.add(pid)

        def go_on() -> None:
            self.faults.append(Fault("pause", pid, begun, time.monotonic()))
            if is_alive(pid):
                os.kill(pid, signal.SIGCONT)
            self._paused.discard(pid)

        timer = threading.Timer(PAUSE_SECONDS, go_on)
        timer.start()
        self._frozen.append(timer)

    def _join(self) -> None:
        up = [each for each in self.joined if each.popen.poll() is None]
        if len(up) < JOINED_MAX:
            self.joined.append(self._start(processes=1, wait=False))

    def repartition(self) -> None:
        """Let the topic have the next count of partitions."""
        with self._connection.transaction(), self._connection.cursor() as cursor:
            repartition(cursor, TOPIC, next(self._counts))

    def _leave(self) -> None:
        up = [each for each in self.readers[WORKERS:] if each.popen.poll() is None]
        if up:
            up[0].signal(signal.SIGTERM)


@pytest.fixture
def accounts(transactional_db: None) -> Iterator[Any]:
    """What the soak keeps in the database beside the log."""
    with connections["default"].cursor() as cursor:
        cursor.execute(INSTALL)
        cursor.execute(INSTALL_PUBLISHERS)
        yield cursor
        cursor.execute(REMOVE)
        cursor.execute("DROP FUNCTION soak_publish_twice")


@pytest.mark.slow
@pytest.mark.seed(seeds.FAULTS)
@pytest.mark.timeout(1_200)
def test_three_groups_read_everything_whoever_dies(
    start_worker, the_ledger, accounts, tmp_path
):
    """
    None skipped; repeats only of batches that were cut off; each key in its order.

    The effects of the atomic group happen exactly once. No position goes back, and
    nothing is left to read soon after the end.
    """

    def start(**said: Any) -> Any:
        return start_worker("--queues", QUEUE, threads=1, pgqueue=PGQUEUE, **said)

    workers = [start(processes=PROCESSES, wait=False) for _ in range(WORKERS)]
    for worker in workers:
        worker.wait_for_lines(r"started    worker=", PROCESSES, timeout=60)
    harm = Harm(start, workers)
    soak = Soak(
        messages=MESSAGES,
        seed=SEED,
        topics=(TOPIC,),
        slow_seconds=2.0 if IS_FULL else 0.5,
        # A transaction that has notified cannot be prepared.
        prepares=False,
    )
    books = tmp_path / "books"
    with books.open("w") as file:
        publishing = start_publishers(soak, url_of("default"), file)
    for n, kind in enumerate(itertools.cycle(HARM)):
        if n >= len(HARM) and publishing.poll() is not None:
            break
        harm.happen(kind)
        if n % 2:
            harm.repartition()
        time.sleep(FAULT_SECONDS)
    harm.heal()
    assert 0 == publishing.wait()
    ended = time.monotonic()

    def is_all_read() -> bool:
        accounts.execute(BEHIND)
        return accounts.fetchone() == (0,)

    wait_for(is_all_read, LAG_SECONDS, "the lag of every group is zero")
    lag_seconds = time.monotonic() - ended
    readers = harm.readers
    for worker in readers:
        if worker.popen.poll() is None:
            worker.signal(signal.SIGTERM)
    assert {0} == {worker.wait(60) for worker in readers}

    keys = dict(Message.objects.values_list("id", "key"))
    accounts.execute("SELECT id, pid FROM soak_effect ORDER BY n")
    effects = [Taken(pid, 0.0, [each]) for each, pid in accounts.fetchall()]
    verdicts = {"atomic": judge_group(keys, effects, [])} | {
        group: judge_group(keys, taken_of(the_ledger.entries(group)), harm.faults)
        for group in ("plain", "small")
    }
    _tell(verdicts, harm, lag_seconds)
    assert [(name, []) for name in GROUPS] == [
        (name, verdict.found) for name, verdict in verdicts.items()
    ]
    assert 0 == verdicts["atomic"].repeated
    booked = {row[0] for book in json.loads(books.read_text()) for row in book}
    assert booked == keys.keys()
    assert MESSAGES <= len(keys)
    accounts.execute("SELECT * FROM soak_step_back")
    assert [] == accounts.fetchall()
    # Who was killed may keep the lease of a partition that has nothing to read.
    killed = {fault.pid for fault in harm.faults if fault.kind == "kill"}
    held = Position.objects.exclude(leased_by=None).values_list("leased_by", flat=True)
    assert {pid_of(name.split("/")[0], readers) for name in held} <= killed
    assert len(GROUPS) == ConsumerGroup.objects.count()
    assert not DeadLetter.objects.exists()
    # Else nothing has happened to anybody, and this has proved nothing.
    assert {"kill", "pause"} == {fault.kind for fault in harm.faults}
    assert harm.joined
    assert any(worker.lines("lapsed  ") for worker in readers)


def pid_of(name: str, workers: list[Any]) -> int:
    """Return the process id of the one that started under that name."""
    started = (worker.lines(rf"started    worker={name} ") for worker in workers)
    (line,) = itertools.chain.from_iterable(started)
    return int(line.rpartition("pid=")[2])


def _tell(verdicts: dict[str, Any], harm: Harm, lag_seconds: float) -> None:
    """Print the figures: with -s, or when it fails."""
    repeated = {name: verdict.repeated for name, verdict in verdicts.items()}
    kinds = [fault.kind for fault in harm.faults]
    print(  # noqa: T201
        f"{verdicts['plain'].messages:,} messages, {kinds.count('kill')} kills, "
        f"{kinds.count('pause')} pauses, {len(harm.joined)} joined; repeated "
        f"{repeated}; lag zero after {lag_seconds:.1f} s"
    )


def test_the_judge_of_groups_finds_what_went_wrong():
    """Skipped, from nowhere, out of order, and again without a reason."""
    keys = {1: "a", 2: "b", 3: "a", 4: "b", 5: None, 6: None}
    batches = [Taken(10, 1.0, [1, 3]), Taken(11, 2.0, [4, 2]), Taken(10, 3.0, [3, 9])]

    verdict = judge_group(keys, batches, [])

    assert ([5, 6], [9]) == (verdict.skipped, verdict.unexpected)
    assert ([3], [2], 1) == (verdict.unexplained, verdict.disordered, verdict.repeated)
