"""
A world for one claimer: its clock, a table, producers that leave wakes out, others.

The claimer, its pollers, what it knows of bands and queues, its flags, and the pace at
which producers send wakes are the real ones. The rest happens in virtual time, from a
heap of events, and only while the claimer waits: for the server, or for a wake. So
everything that can come between two of its steps does, and a seed says what.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import psycopg

from django_pgqueue.conf import parse
from django_pgqueue.postgres import wake
from django_pgqueue.postgres.connect import ALWAYS
from django_pgqueue.postgres.wake import Pace
from django_pgqueue.queues import claim as claims
from django_pgqueue.queues.claim import Claimed, Known, KnownQueue, SeenBand, Sight
from django_pgqueue.worker.claim import claimer as claimer_module
from django_pgqueue.worker.claim import floors, poller
from django_pgqueue.worker.claim.capacity import Capacity, QueueMix
from django_pgqueue.worker.claim.claimer import Claimer
from django_pgqueue.worker.claim.listener import Wakes
from django_pgqueue.worker.claim.strays import Strays
from django_pgqueue.worker.lease.leases import Leases
from django_pgqueue.worker.options import WorkerOptions

POLL = 600.0
LEASE = timedelta(minutes=10)
EPOCH = datetime(2026, 11, 20, tzinfo=UTC)

# Ticks of the claimer without a step of the clock: it spins.
SPINS_MAX = 1_000


@dataclass(slots=True)
class Row:
    """A job."""

    id: int
    queue: str
    priority: int
    visible_at: float
    # When it was last announced, given back or due: what it is late from.
    ready_at: float
    is_held: bool = False  # Another session has locked it.
    is_ours: bool = False
    # Nobody promises to find it before the poll: its producer died over the wake.
    is_excused: bool = False
    retries: int = 0


@dataclass(slots=True, kw_only=True)
class Scene:
    """What happens in a world."""

    queues: list[str]
    served: tuple[str, ...] = ()
    order: str | None = None
    # Queues that only hold jobs of tomorrow, besides those above.
    resting: int = 0
    is_ever_new: bool = False
    bursts: int = 12
    burst_jobs: int = 5
    gaps: tuple[float, ...] = (0.002, 0.02, 0.06, 0.1, 0.5)
    priorities: tuple[int, ...] = (0,)
    producers: int = 1
    # How long producers are quiet after each wake; None: as ours are.
    quiet_seconds: float | None = None
    threads: int = 8
    runs_seconds: float = 0.005
    others: float = 0.0  # How many of the wakes another worker hears first.
    holds: float = 0.0  # How many jobs somebody locks for a while.
    retries: float = 0.0
    delays: float = 0.0
    slow: float = 0.0  # How many looks are slow, and by how much.
    slow_seconds: float = 0.0
    fails: float = 0.0
    noise: float = 0.0  # Wakes of strangers a second.
    async_queues: frozenset[str] = frozenset()


@dataclass(slots=True)
class Late:
    """A job that waited too long while there was capacity for it."""

    row: Row
    seconds: float
    found_at: float | None


@dataclass(slots=True)
class Story:
    """What came of a world."""

    started: int = 0
    late: list[Late] = field(default_factory=list)
    looks: int = 0
    announced: int = 0
    left_out: int = 0


class World:
    """One claimer, and what is around it."""

    def __init__(self, seed: int, scene: Scene, limit_seconds: float) -> None:
        self.random = random.Random(seed)
        self.scene = scene
        self.limit = limit_seconds
        self.now = 1_000.0
        self.events: list[tuple[float, int, Callable[[], None]]] = []
        self.order = itertools.count(1)
        self.rows: dict[str, dict[int, Row]] = {}
        self.known = set[str]()
        self.socket: list[str] = []
        self.paces = [Pace() for _ in range(scene.producers)]
        self.running = 0
        self.was_full = False
        # Seconds that the claimer could do nothing: no capacity, or no database.
        self.away = 0.0
        self.away_since: float | None = None
        self.ready_away: dict[int, float] = {}
        self.story = Story()
        self.spins = (0.0, 0)
        self.wakeup = VirtualWakeup()
        self.mix = QueueMix()
        for queue in scene.async_queues:
            self.mix.note(queue, is_async=True)
        settings = parse({"POLL_INTERVAL_SECONDS": POLL})
        options = WorkerOptions(
            settings=settings, queues=scene.served, queue_order=scene.order
        )
        self.leases = Leases(LEASE.total_seconds(), "model")
        self.wakes = Wakes(options.plan, self.wakeup)
        self.claimer = Claimer(
            VirtualLink(),
            options=options,
            wakes=self.wakes,
            leases=self.leases,
            strays=NoStrays(self.leases),
            hand_back=lambda jobs: None,
            mix=self.mix,
            capacity=self.capacity,
            put=self.put,
            listener=self,
        )
        self.plan = options.plan

    # Time -----------------------------------------------------------------------------

    def at(self, when: float, do: Callable[[], None]) -> None:
        """Let *do* happen at *when*."""
        heapq.heappush(self.events, (when, next(self.order), do))

    def after(self, seconds: float, do: Callable[[], None]) -> None:
        """Let *do* happen in *seconds*."""
        self.at(self.now + seconds, do)

    def live(self, seconds: float) -> None:
        """Let so many seconds go by."""
        until = self.now + seconds
        while self.events and self.events[0][0] <= until:
            self.now, _, do = heapq.heappop(self.events)
            do()
        self.now = until

    def wait(self, seconds: float, wakeup: VirtualWakeup) -> None:
        """Wait as a listener does: for a wake, for the wakeup, or for *seconds*."""
        until = self.now + seconds
        if self.claimer.failures and self.away_since is None:
            self.away_since = self.now
        while not (self.socket or wakeup.is_set()) and self.now < until:
            ahead = self.events[0][0] if self.events else until
            self.live(max(min(ahead, until) - self.now, 0.0))
        self.live(0.000_05)
        self.hear()

    def hear(self) -> None:
        """Hear what has come, as a listener does."""
        heard, self.socket = self.socket, []
        for queue in heard:
            self.wakes.flag(queue)

    def run(self, seconds: float) -> Story:
        """Let the claimer live for *seconds*; return what came of it."""
        self.after(seconds, self.claimer.stop)
        self.claimer._run()
        for rows in self.rows.values():
            for row in rows.values():
                if not (row.is_ours or row.is_held or row.visible_at > self.now):
                    self._note_start(row, found=False)
        return self.story

    # The server -----------------------------------------------------------------------

    @contextmanager
    def statement(self, rows: int = 0):
        """Take the time of a statement, whose snapshot is from its beginning."""
        scene = self.scene
        if self.away_since is not None and not self.is_full:
            self._is_back()
        fails = scene.fails and self.random.random() < scene.fails
        seconds = 0.000_2 + rows * 0.000_02 + self.random.random() * 0.000_3
        if scene.slow and self.random.random() < scene.slow:
            seconds += scene.slow_seconds * self.random.uniform(0.5, 1.0)
        self.story.looks += 1
        if fails:
            self.live(seconds)
            raise psycopg.OperationalError("the connection is gone")
        yield
        self.live(seconds)

    def moment(self, at: float) -> datetime:
        """Return *at* by the database's clock."""
        return EPOCH + timedelta(seconds=at)

    def known_now(self, cursor: Any) -> Known:
        """As claims.known()."""
        with self.statement():
            live = sorted(queue for queue, rows in self.rows.items() if rows)
            queues = [KnownQueue(name, name in self.known, False) for name in live]
            return Known(queues, [])

    def remember_queues(self, cursor: Any, names: Any) -> None:
        """As claims.remember_queues()."""
        with self.statement():
            self.known.update(names)

    def see(self, cursor: Any, queues: Any) -> Sight:
        """As claims.see()."""
        with self.statement(len(queues)):
            bands: dict[tuple[str, int], float] = {}
            for queue in queues:
                for row in self.rows.get(queue, {}).values():
                    key = queue, row.priority
                    bands[key] = min(row.visible_at, bands.get(key, row.visible_at))
            now = self.moment(self.now)
            seen = [SeenBand(*key, self.moment(at)) for key, at in bands.items()]
        return Sight(now, seen)

    def claim(
        self, cursor: Any, *, queues: Any, limit: int, **options: Any
    ) -> list[Claimed]:
        """As claims.claim()."""
        place = {queue: number for number, queue in enumerate(queues)}
        with self.statement(len(queues)):
            due = [row for queue in place for row in self._due(queue)]
            due.sort(key=lambda r: (-r.priority, place[r.queue], r.visible_at))
            return self._lease(due[:limit])

    def claim_from_floors(
        self, cursor: Any, *, bands: Any, limit: int, **options: Any
    ) -> list[Claimed]:
        """As claims.claim_from_floors()."""
        with self.statement(len(bands)):
            due: list[Row] = []
            for band in bands:
                some = [
                    row
                    for row in self._due(band.queue)
                    if row.priority == band.priority
                    and self.moment(row.visible_at) >= band.floor
                ]
                due += sorted(some, key=lambda row: row.visible_at)[: band.limit]
            return self._lease(due[:limit])

    def _due(self, queue: str) -> list[Row]:
        rows = self.rows.get(queue, {}).values()
        return [row for row in rows if row.visible_at <= self.now and not row.is_held]

    def _lease(self, rows: list[Row]) -> list[Claimed]:
        jobs = []
        for row in rows:
            jobs.append(
                Claimed(
                    id=row.id,
                    delivery=1,
                    task="model",
                    args="[]",
                    kwargs="{}",
                    headers="{}",
                    queue=row.queue,
                    priority=row.priority,
                    attempt=1,
                    max_attempts=3,
                    crashes=0,
                    runs_alone=False,
                    last_error=None,
                    enqueued_at=EPOCH,
                    accumulate_key=None,
                    lane=None,
                    lane_policy=None,
                    is_paced=False,
                    expired=None,
                    claimed_at=self.moment(self.now),
                    due_at=self.moment(row.visible_at),
                )
            )
            row.is_ours = True
            row.visible_at = self.now + LEASE.total_seconds()
            self._note_start(row, found=True)
        jobs.sort(key=lambda job: (-job.priority, job.due_at))
        return jobs

    def _note_start(self, row: Row, *, found: bool) -> None:
        self.story.started += found
        away = self.away - self.ready_away.get(row.id, 0.0)
        if self.away_since is not None:
            away += self.now - max(self.away_since, row.ready_at)
        seconds = self.now - row.ready_at - away
        if seconds > self.limit and not row.is_excused:
            self.story.late.append(Late(row, seconds, self.now if found else None))

    def _is_ready(self, row: Row, at: float) -> None:
        """Note from when on the job could be claimed."""
        row.ready_at = max(at, row.visible_at)
        away = self.away
        if self.away_since is not None:
            away += max(self.now - self.away_since, 0.0)
        self.ready_away[row.id] = away

    # The worker's other threads -------------------------------------------------------

    @property
    def is_full(self) -> bool:
        """Whether nothing more may start."""
        return self.running >= self.scene.threads

    def capacity(self) -> Capacity:
        """Return the capacity, as a dispatcher does."""
        self._look_for_spins()
        self.was_full = self.is_full
        if self.is_full and self.away_since is None:
            self.away_since = self.now
        free = max(self.scene.threads - self.running, 0)
        return Capacity(free, free)

    def put(self, jobs: list[Claimed], for_coroutines: bool) -> None:
        """Run jobs, as a dispatcher does."""
        for job in jobs:
            self.running += 1
            is_async = job.queue in self.scene.async_queues
            self.mix.note(job.queue, is_async=is_async)
            seconds = self.random.expovariate(1 / self.scene.runs_seconds)
            self.after(seconds, lambda job=job: self._settle(job))

    def _settle(self, job: Claimed) -> None:
        row = self.rows[job.queue].pop(job.id)
        self.leases.drop(job)
        if self.random.random() < self.scene.retries and row.retries < 3:
            delay = self.random.choice((0.001, 0.01, 0.1, 0.4))
            again = Row(
                job.id, job.queue, job.priority, self.now + delay, 0.0, retries=1
            )
            again.retries = row.retries + 1
            self.rows[job.queue][job.id] = again
            self._is_ready(again, self.now)
            told = self.random.random() * 0.002
            self.after(told, lambda: self.claimer.retry_in(delay))
        self.running -= 1
        if self.was_full:
            self.was_full = False
            self.wakeup.set()
        if not self.is_full and not self.claimer.failures:
            self._is_back()

    def _is_back(self) -> None:
        if self.away_since is not None:
            self.away += self.now - self.away_since
            self.away_since = None

    def _look_for_spins(self) -> None:
        at, times = self.spins
        self.spins = (at, times + 1) if at == self.now else (self.now, 0)
        assert times < SPINS_MAX, f"the claimer spins at {self.now}"

    # Producers and others -------------------------------------------------------------

    def begin(self) -> float:
        """Plan all that is to come; return how long that takes."""
        scene, chance = self.scene, self.random
        for number in range(scene.resting):
            self._insert(f"resting{number}", 0, 86_400.0)
        at = 0.5 * chance.random()
        for burst in range(scene.bursts):
            mean = chance.choice(scene.gaps)
            for number in range(chance.randint(1, scene.burst_jobs)):
                at += chance.random() * mean
                queue = chance.choice(scene.queues)
                if scene.is_ever_new and chance.random() < 0.3:
                    queue = f"new{burst}.{number}"
                self.after(at, lambda queue=queue: self._commit(queue))
            at += chance.choice((0.0, 0.05, 0.4, 1.0, 2.0))
        if scene.noise:
            for number in range(int(at * scene.noise)):
                name = chance.choice((f"noise{number}", scene.queues[0]))
                when = chance.random() * at
                self.after(when, lambda name=name: self._notify(name))
        return at

    def _insert(self, queue: str, priority: int, delay: float) -> Row:
        row_id = next(self.order)
        row = Row(row_id, queue, priority, self.now + delay, 0.0)
        self.rows.setdefault(queue, {})[row_id] = row
        self._is_ready(row, self.now)
        return row

    def _commit(self, queue: str) -> None:
        scene, chance = self.scene, self.random
        is_later = chance.random() < scene.delays
        delay = chance.choice((0.01, 0.1, 0.6)) if is_later else 0.0
        row = self._insert(queue, chance.choice(scene.priorities), delay)
        if chance.random() < scene.holds:
            self._hold(row)
        pace = chance.choice(self.paces)
        hook = chance.choice((0.0, 0.000_1, 0.002))
        self.after(hook, lambda: self._announce(pace, row))

    def _announce(self, pace: Pace, row: Row) -> None:
        """Send a wake right after the commit, or leave it out."""
        key, began = ("default", row.queue), self.now
        if not pace.is_due(key, began):
            self.story.left_out += 1
            return
        self.story.announced += 1
        took = self.random.choice((0.000_1, 0.000_3, 0.002, 0.004))
        self.after(took, lambda: pace.was_sent(key, began, self.now))
        self.after(self.random.random() * took, lambda: self._notify(row.queue))

    def _notify(self, queue: str) -> None:
        # Another worker may be quicker, and takes what there is.
        if self.random.random() < self.scene.others:
            for row in self._due(queue):
                del self.rows[queue][row.id]
        self.after(0.000_1, lambda: self.socket.append(queue))

    def _hold(self, row: Row) -> None:
        """Lock a row for a while, and roll back."""
        row.is_held = True

        def give_back() -> None:
            row.is_held = False
            self._is_ready(row, self.now)

        self.after(self.random.choice((0.001, 0.05, 0.3)), give_back)


class VirtualWakeup:
    """As service.Wakeup; who waits is the world."""

    def __init__(self) -> None:
        self._is_set = False

    def set(self) -> None:
        """End the wait."""
        self._is_set = True

    def clear(self) -> None:
        """Let the next wait last."""
        self._is_set = False

    def is_set(self) -> bool:
        """Whether it was set."""
        return self._is_set

    def close(self) -> None:
        """Nothing is open."""


class NoStrays(Strays):
    """Of claims that fail here, none was committed."""

    def note(self) -> None:
        """Nothing is away."""


class VirtualLink:
    """A connection to a world."""

    is_open = is_idle = True
    has_late_flush = False
    turn = ALWAYS

    @contextmanager
    def cursor(self, **options: Any):
        """Yield what statements are given and do not use."""
        yield None

    steady_cursor = cursor

    def drop(self) -> None:
        """Nothing is open."""

    leave = drop


def play(monkeypatch: Any, seed: int, scene: Scene, limit_seconds: float) -> Story:
    """Let a world live, and return what came of it."""
    world = World(seed, scene, limit_seconds)
    clock = SimpleNamespace(monotonic=lambda: world.now)
    with monkeypatch.context() as patched:
        for module in (claimer_module, poller, floors):
            patched.setattr(module, "time", clock)
        for name in ("see", "claim", "claim_from_floors", "remember_queues"):
            patched.setattr(claims, name, getattr(world, name))
        patched.setattr(claims, "known", world.known_now)
        if scene.quiet_seconds is not None:
            patched.setattr(wake, "STREAM_SECONDS", 0.0)
            patched.setattr(wake, "WAKE_INTERVAL_SECONDS", scene.quiet_seconds)
        random.seed(seed)  # For pauses after a failure.
        seconds = world.begin()
        return world.run(seconds + limit_seconds + 2.0)
