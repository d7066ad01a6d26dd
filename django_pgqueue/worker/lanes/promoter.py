"""
Promoter: lets jobs through whose lanes have room, after whoever made that so.

A loop with a connection of its own: a promotion waits for those of others, and neither
claims nor settles may. It starts with the first job of a lane; that of the leader runs
all the time, and does what nobody else has to answer for: jobs that are due by the
clock, and what a crash, or somebody's own SQL, left undone.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator
from datetime import datetime, timedelta
from typing import NamedTuple

from django_pgqueue.bounds import LANE_SEPARATOR, PULL_LANES
from django_pgqueue.postgres.connect import Link
from django_pgqueue.postgres.cursor import Cursor
from django_pgqueue.postgres.wake import wake
from django_pgqueue.queues import lanes
from django_pgqueue.queues.lanes import NO_FLOOR, Floor, Horizon, Promoted, Stored
from django_pgqueue.worker.service import Service

# Lanes remembered: those that were promoted last.
LANES_MAX = 1_000

# After which all of a lane is looked at again. By then what somebody's own SQL has put
# below a floor is found, such as a job with an id of his choice.
LASTS_SECONDS = 60.0

# The horizon is looked at after so many jobs, and not more often than that: it costs
# two statements, and what is above it is walked over.
LOOK_JOBS = 64
LOOK_SECONDS = 0.1

ID_MAX = 2**63 - 1


class Kept(NamedTuple):
    """A floor, and until when it is used, by the monotonic clock."""

    floor: Floor
    until: float


class Seen(NamedTuple):
    """What a promotion has seen of a floor; None: nothing."""

    promotion: int | None
    id: int | None
    due_at: datetime | None


class LaneFloors:
    """
    Floors of lanes: from where on each has something left, as one promoter has seen it.

    A promotion looks for the first parked job of a lane, and counts those that were let
    through. While somebody holds a snapshot, what has left the lane cannot be vacuumed,
    and both would walk over all of it, longer with each job. From its floor on, a
    promotion walks over what has left since the last one.
    """

    def __init__(self) -> None:
        self._kept: OrderedDict[str, Kept] = OrderedDict()
        self._horizon = Horizon()
        self._connection: object = None
        self._jobs = 0
        self._look_at = 0.0

    def of(self, cursor: Cursor, lanes: Collection[str]) -> list[Floor]:
        """
        Return the floor of each of *lanes*.

        Another connection than before has none: its server may have forgotten what the
        last one had committed.
        """
        if self._connection is not cursor.connection:
            self._kept.clear()
            self._horizon = Horizon()
            self._connection = cursor.connection
        return [self._floor(name) for name in lanes]

    def learn(self, cursor: Cursor, lanes: Collection[str], promoted: Promoted) -> None:
        """Take what a promotion from of() has seen; then look at the horizon."""
        # As it was known before the promotion: what commits later may be below.
        upto = self._horizon.upto
        until = time.monotonic() + LASTS_SECONDS
        empty = Seen(None, None, None) if upto is None else Seen(None, ID_MAX, upto.at)
        seen = dict(zip(promoted.floored, _seen_by(promoted), strict=True))
        for name in lanes:
            floor, lasts_until = self._kept.pop(name, Kept(NO_FLOOR, until))
            floor = _raised(floor, seen.get(name, empty), upto)
            self._kept[name] = Kept(floor, lasts_until)
        while len(self._kept) > LANES_MAX:
            self._kept.popitem(last=False)
        self._jobs += promoted.jobs
        now = time.monotonic()
        if self._jobs >= LOOK_JOBS and now >= self._look_at:
            self._horizon.look(cursor)
            self._jobs, self._look_at = 0, now + LOOK_SECONDS

    def _floor(self, name: str) -> Floor:
        kept = self._kept.get(name)
        if kept is None:
            return NO_FLOOR
        if kept.until < time.monotonic():
            del self._kept[name]
            return NO_FLOOR
        return kept.floor


def _seen_by(promoted: Promoted) -> Iterator[Seen]:
    return map(Seen, promoted.promotions, promoted.ids, promoted.dues)


def _raised(floor: Floor, seen: Seen, upto: Stored | None) -> Floor:
    """Return *floor* with what was seen from it on, no further than *upto*."""
    promotion, first_id, due_at = floor
    if seen.promotion is not None:
        promotion = seen.promotion
    if upto is not None and seen.id is not None:
        first_id = min(seen.id, upto.id + 1)
    if upto is not None and seen.due_at is not None:
        due_at = min(seen.due_at, upto.at)
    return Floor(promotion, first_id, due_at)


# How far back a look begins, at least.
BACK_SECONDS = 1.0

# Looks at what has become due take this share of the time at most, and so does going
# through all lanes.
LOOK_SHARE = 0.1
WALK_SHARE = 0.05

# The leader looks this often when nobody has told it of anything.
LEADER_SECONDS = 5.0

# After which what somebody had locked is tried again.
LOCKED_SECONDS = 0.05

REST_SECONDS = 60.0


class Promoter(Service):
    """Promotes lanes that have got jobs, and those that have lost some."""

    name = "promoter"

    def __init__(self, link: Link, *, on_promoted: Callable[[str], None]) -> None:
        super().__init__(link)
        # Told of each queue that has got due jobs.
        self._on_promoted = on_promoted
        self._lock = threading.Lock()
        self._idle = threading.Condition(self._lock)
        self._is_leading = False
        # Lanes to promote, and how far back others want us to look.
        self._lanes: set[str] = set()
        self._promoting: set[str] = set()
        self._back_seconds: float | None = None
        self._floors = LaneFloors()
        # When lanes with a rate let the next one through, by the monotonic clock.
        self._paced: dict[str, float] = {}
        # Lanes of jobs that somebody had locked, and when they are tried again.
        self._locked: set[str] = set()
        self._locked_at = 0.0
        self._looked_upto: datetime | None = None
        self._look_at = 0.0
        # No look is before: looks have their share of the time. By the monotonic clock.
        self._free_at = 0.0
        self._walk_at = 0.0
        self._after = ""
        self._forgot_after = ""
        # Tasks that go on, each with the last of its lanes that was looked at.
        self._resumed: dict[str, str] = {}
        # Walks through all of them that somebody waits for, and jobs let through: in
        # all, before the last was asked for, and from there until it was over.
        self._requests = self._answered = 0
        self._jobs = self._jobs_before = self._found = 0

    def freed(self, names: Collection[str]) -> None:
        """Promote lanes that jobs have left, or of which one with a rate has begun."""
        with self._lock:
            self._lanes.update(names)
        self.call()

    def hint(self, seconds: float = 0.0) -> None:
        """Look for lanes that have got jobs, stored up to *seconds* ago."""
        with self._lock:
            self._back_seconds = max(self._back_seconds or 0.0, seconds)
        self.call()

    def resumed(self, tasks: Collection[str]) -> None:
        """Promote all lanes of *tasks*, which are paused no more, if we lead."""
        if self._is_leading:
            with self._lock:
                self._resumed.update(zip(tasks, tasks, strict=True))
            self.freed(tasks)

    def set_leading(self, is_leading: bool) -> None:
        """Be told by the heartbeat whether this worker leads."""
        if is_leading and not self._is_leading:
            self._look_at = self._walk_at = 0.0
            self._is_leading = True
            self.call()
        self._is_leading = is_leading

    def wait_until_idle(self, seconds: float) -> bool:
        """Wait until every lane that jobs have left was promoted; False: it was not."""
        with self._lock:
            return self._idle.wait_for(
                lambda: not (self._lanes or self._promoting), seconds
            )

    def look_now(self) -> None:
        """Look at all lanes; found_since_requested() says what came of it."""
        with self._lock:
            self._requests += 1
            self._jobs_before = self._jobs
        self.call()

    def found_since_requested(self) -> int | None:
        """Return how many jobs were let through since look_now(); None: not yet."""
        return self._found if self._answered == self._requests else None

    def tick(self) -> float:
        """Promote what is to be promoted; then wait for the next reason."""
        now = time.monotonic()
        self._promote_freed(now)
        if self._resumed:
            self._walk_resumed()
        if now >= self._free_at and self._wants_look(now):
            self._look()
        if self._answered != self._requests:
            self._answer()
        elif self._is_leading and now >= self._walk_at:
            self._walk()
        return self._pause(time.monotonic())

    def _answer(self) -> None:
        """Walk through all lanes, from the first on, for whoever has asked."""
        requests, self._after = self._requests, ""
        while not self._walk():
            if self.stopping:
                return
        self._found = self._jobs - self._jobs_before
        self._answered = requests

    def _promote_freed(self, now: float) -> None:
        with self._lock:
            # What is freed from here on wants another promotion.
            names, self._lanes = self._lanes, set()
            self._promoting = names
        if self._locked and now >= self._locked_at:
            names, self._locked = names | self._locked, set()
        names |= {name for name, at in self._paced.items() if now >= at}
        try:
            self._promote(names, is_ours=True)
        except BaseException:
            with self._lock:
                self._lanes |= names
            raise
        finally:
            with self._lock:
                self._promoting = set()
                self._idle.notify_all()

    def _wants_look(self, now: float) -> bool:
        is_due = self._is_leading and now >= self._look_at
        return is_due or self._back_seconds is not None

    def _pause(self, now: float) -> float:
        until = now + REST_SECONDS
        if self._is_leading:
            until = min(until, max(self._look_at, self._free_at), self._walk_at)
        with self._lock:
            if self._lanes or self._resumed:
                return 0.0
            if self._back_seconds is not None:
                until = min(until, self._free_at)
        if self._locked:
            until = min(until, self._locked_at)
        until = min(until, *self._paced.values(), until)
        return max(until - now, 0.0)

    def _look(self) -> None:
        """Promote lanes with jobs that have become due since the last look."""
        began = time.monotonic()
        with self._lock:
            back, self._back_seconds = self._back_seconds or 0.0, None
        since, after, upto = self._looked_upto if self._is_leading else None, None, None
        try:
            while True:
                with self.link.steady_cursor() as cursor:
                    due = lanes.newly_due(
                        cursor,
                        since=since,
                        back=timedelta(seconds=BACK_SECONDS + back),
                        after=after,
                    )
                # When the first part was read: what came during the others is later.
                upto = upto or due.now
                self._promote(due.lanes)
                after = due.after
                if after is None or self.stopping:
                    break
        except BaseException:
            # Without a word: the pause that follows a failure is not to be cut short.
            with self._lock:
                self._back_seconds = max(self._back_seconds or 0.0, back)
            raise
        self._looked_upto = upto
        now = time.monotonic()
        self._free_at = now + (now - began) / LOOK_SHARE
        self._look_at = now + min(LEADER_SECONDS, due.next_seconds or LEADER_SECONDS)

    def _walk(self) -> bool:
        """Promote those of the next lanes that have room; return whether they end."""
        began = time.monotonic()
        with self.link.steady_cursor() as cursor:
            looked = lanes.with_room(cursor, after=self._after)
        self._promote(looked.lanes)
        is_through = looked.after is None
        if is_through:
            with self.link.steady_cursor() as cursor:
                _, self._forgot_after = lanes.forget(cursor, after=self._forgot_after)
        took = time.monotonic() - began
        self._after = looked.after or ""
        pause = LEADER_SECONDS if is_through else 0.0
        self._walk_at = began + took + max(took / WALK_SHARE, pause)
        return is_through

    def _walk_resumed(self) -> None:
        """
        Promote the next lanes of a task that goes on.

        Their names begin with its own, so they come after it; those that do not, or are
        in another order, the walk finds.
        """
        with self._lock:
            # Who asks for it again meanwhile has it walked through from the beginning.
            task, after = self._resumed.popitem()
        prefix, on = f"{task}{LANE_SEPARATOR}", after
        try:
            with self.link.steady_cursor() as cursor:
                looked = lanes.with_room(cursor, after=after)
            self._promote([name for name in looked.lanes if name.startswith(prefix)])
            on = looked.after or ""
        finally:
            if on == after or on.startswith(prefix):
                with self._lock:
                    self._resumed.setdefault(task, on)

    def _promote(self, names: Collection[str], *, is_ours: bool = False) -> None:
        """
        Promote lanes; of those with a rate, is_ours: their next turn is for us.

        None of pull queues: who receives takes from these himself, and may have their
        locks for as long as his transaction is open.
        """
        names = [name for name in names if not name.startswith(PULL_LANES)]
        for chunk in lanes.in_chunks(names):
            with self.link.steady_cursor() as cursor:
                floors = self._floors.of(cursor, chunk)
                done = lanes.promote(cursor, chunk, floors=floors)
            self._jobs += done.jobs
            for name in chunk:
                self._paced.pop(name, None)
            # Of what others have let through, they know the next turn.
            if is_ours or done.jobs or self._is_leading:
                now = time.monotonic()
                for name, seconds in zip(done.paced, done.next_seconds, strict=True):
                    self._paced[name] = now + seconds
            if done.locked:
                self._locked.update(done.locked)
                self._locked_at = time.monotonic() + LOCKED_SECONDS
            for queue in done.queues:
                self._on_promoted(queue)
            with self.link.cursor() as cursor:
                if done.queues:
                    wake(cursor, done.queues)
                self._floors.learn(cursor, chunk, done)
