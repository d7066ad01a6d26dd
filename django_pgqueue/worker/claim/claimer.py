"""
Claimer: asks for as many jobs as can start soon.

The sixth hop of a job's life. It waits for notifications itself, on the connection that
the listener has made; one sets a flag, and this loop goes by the flags at its own pace.

Threads are capacity for some jobs and coroutines for others, so there are two pollers:
one for the queues that have shown nothing but async jobs lately, one for all others. A
worker without such a queue never asks the second.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import psycopg

from django_pgqueue.postgres.connect import Link
from django_pgqueue.postgres.cursor import Cursor
from django_pgqueue.queues import claim as claims
from django_pgqueue.queues.claim import Band, Claimed, Sight
from django_pgqueue.queues.fair import claim_fair
from django_pgqueue.worker.claim.capacity import Capacity, QueueMix
from django_pgqueue.worker.claim.fair_share import FairShare, Key, run_order
from django_pgqueue.worker.claim.listener import Listener, Wakes
from django_pgqueue.worker.claim.message_prefetch import MARK, bring_messages
from django_pgqueue.worker.claim.poller import SLICE_QUEUES, Poller
from django_pgqueue.worker.claim.queue_limits import QueueLimits
from django_pgqueue.worker.claim.strays import Strays
from django_pgqueue.worker.claim.turns import (
    CALLS_MAX,
    Turn,
    limits_of,
    part_of,
    stand_ins,
)
from django_pgqueue.worker.lease.leases import ASK_AGAIN_SECONDS, Leases
from django_pgqueue.worker.options import WorkerOptions
from django_pgqueue.worker.queue_plan import PRIORITY, STRICT
from django_pgqueue.worker.service import Portion, Service, nothing

NO_CAPS: Mapping[str, int] = {}

# A queue stays known for so long after it was woken, claimed from or seen with a job,
# though it is empty for a moment: its next job may come without a wake. A round that
# begins half as long after the list was made asks for it first.
KNOWN_SECONDS = 2.0

# Of these, besides those that had a job when the database was asked last, so many are
# kept, as one look sees. A stranger's made-up names then cost no more than that; where
# more come, rounds ask first which queues there are.
EMPTY_QUEUES_MAX = SLICE_QUEUES

# While enough waits to start, a wake is looked after no sooner than this after another:
# what it announces may have to go first.
EXTRA_SECONDS = 0.01

# So few jobs are handed over first, and their leases made safe on the server's disk
# right after. More of them wait for their threads longer than for the disk, and a crash
# of the server would have all of them run again.
UNFLUSHED_JOBS_MAX = 4

# While tasks are held, it is asked this often whether there is something to park.
PARK_SECONDS = 0.1

# What has been notified is read this often while jobs are claimed without a pause.
HEAR_SECONDS = 0.005


# Takes what was claimed, in run order; and whether that was for coroutines.
Put = Callable[[list[Claimed], bool], None]


class Claimer(Service):
    """Leases jobs and hands them to those who run them."""

    name = "claimer"

    def __init__(
        self,
        link: Link,
        *,
        options: WorkerOptions,
        wakes: Wakes,
        leases: Leases,
        strays: Strays,
        hand_back: Callable[[list[Claimed]], None],
        mix: QueueMix,
        capacity: Callable[[], Capacity],
        extra_capacity: Callable[[], int] = lambda: 0,
        put: Put,
        listener: Listener | None = None,
    ) -> None:
        super().__init__(link)
        self.wake = self._wakeup = wakes.wakeup
        self._listener = listener
        self._heard_at = 0.0
        # Told of lanes with a rate, of which jobs were claimed.
        self.on_paced: Callable[[set[str]], None] = nothing
        # Of queues with lanes that take turns.
        self._turns = wakes.turns
        # Told of the tasks that are held, as often as they are asked for.
        self.on_held: Callable[[list[str]], None] = nothing
        # And of those that are not any more.
        self.on_resumed: Callable[[set[str]], None] = nothing
        # Jobs whose leases the server may not have on disk.
        self._unflushed = 0
        self._lease = options.lease
        self.plan = options.plan
        self.mix = mix
        # Served and not paused, as the database last said; and those that are paused.
        self.queues: list[str] = []
        self.paused: set[str] = set()
        # Tasks that are held, likewise: see queues/held.py.
        self.held: list[str] = []
        self._park_at = 0.0
        # When each queue that nobody has named was met last; and how many had a job
        # when the database was asked last, and when that was. By the monotonic clock.
        self._met_at: dict[str, float] = {}
        self._live = 0
        self._refreshed_at = -math.inf
        # Mixed queues are left alone while no coroutine could start.
        self.left_out: frozenset[str] = frozenset()
        self.limits = QueueLimits(
            options.settings.queue_limits,
            poll_seconds=options.settings.poll_interval_seconds,
        )
        self._wakes = wakes
        self._leases = leases
        self._renew_at = 0.0
        self._strays = strays
        self._hand_back = hand_back
        self._capacity = capacity
        self._portion = Portion(claims.CLAIM_LIMIT_MAX)
        self._extra_capacity = extra_capacity
        self._extra_at = 0.0
        self._put = put
        self._rank = run_order(self.plan, options.settings.ageing_seconds)
        self._poll_seconds = options.settings.poll_interval_seconds
        self._queues_due_at = 0.0
        self._pure: frozenset[str] = mix.pure
        self._for_threads, self._for_coroutines = (
            Poller(
                self,
                FairShare(self.plan, options.settings.ageing_seconds),
                self._poll_seconds,
            )
            for _ in range(2)
        )
        # For which of them it looks.
        self._is_for_coroutines = False

    def retry_in(self, seconds: float) -> None:
        """Note that a job of ours becomes visible again in *seconds*."""
        at = time.monotonic() + seconds
        is_sooner = [poller.due_by(at) for poller in self._pollers()]
        if any(is_sooner):
            self.wake.set()

    def settled(self, queues: Iterable[str]) -> None:
        """Note that jobs of *queues* were settled: there may be room for others."""
        if self.limits.settled(queues):
            self.wake.set()

    def ask_again(self) -> None:
        """Ask what is paused before the next claim. Any thread may call it."""
        self._queues_due_at = 0.0
        self.wake.set()

    def look_now(self) -> None:
        """Look at all queues at once; found_since_requested() says what came of it."""
        self._queues_due_at = 0.0
        for poller in (self._for_threads, self._for_coroutines):
            poller.request()
        self.wake.set()

    def found_since_requested(self) -> int | None:
        """Return what looks that began after look_now() found; None: not yet."""
        found = 0
        for poller in self._pollers():
            answer = poller.found_since_requested()
            if answer is None:
                return None
            found += answer
        return found

    def tick(self) -> float:
        """Claim once for each kind of capacity, where there is a reason to look."""
        try:
            if time.monotonic() >= self._strays.due_at:
                self._take_back_strays()
            pause = self._look()
            self._flush()
            return min(pause, max(self._strays.due_at - time.monotonic(), 0.0))
        except Exception:
            # The flags that this look took are gone with it, and its floors may be
            # wrong by now: the next try looks at everything.
            self._queues_due_at = 0.0
            for poller in self._pollers():
                poller.start_over()
            raise

    def _flush(self) -> None:
        """Make leases safe that may not be on the server's disk."""
        if self._unflushed:
            self.link.flush()
            # Only now: one that was cancelled is tried again.
            self._unflushed = 0

    def _take_back_strays(self) -> None:
        if self._strays.take_back(self.link):
            # No floor knows of what was put back.
            for poller in self._pollers():
                poller.start_over()

    def _rest(self, pause: float) -> None:
        if self._listener is None:
            super()._rest(pause)
        elif pause > 0:
            self._listener.wait(pause, self._wakeup)
        elif time.monotonic() - self._heard_at >= HEAR_SECONDS:
            self._heard_at = time.monotonic()
            self._listener.hear()

    def _end(self) -> None:
        self._strays.finish(self.link)
        super()._end()
        self._wakeup.close()

    def _look(self) -> float:
        capacity, now = self._capacity_now(), time.monotonic()
        if capacity.threads <= 0 and self._wakes.pending:
            wait = self._extra_at - now
            if wait > 0:
                return wait
            capacity = capacity._replace(threads=self._extra_capacity())
            self._extra_at = now + EXTRA_SECONDS
        if capacity.threads <= 0 and (capacity.coroutines <= 0 or not self._pure):
            return self._poll_seconds
        if now >= self._queues_due_at:
            self.refresh_queues()
        self._share_flags()
        pause = self._poll_seconds
        threads = self._threads_capacity(capacity)
        if threads > 0:
            self._is_for_coroutines = False
            pause = min(pause, self._for_threads.look(threads))
        self._follow_mix()
        if self._pure:
            # Asked again: the first look may have brought async jobs, too.
            coroutines = self._capacity_now().coroutines
            if coroutines > 0:
                self._is_for_coroutines = True
                pause = min(pause, self._for_coroutines.look(coroutines))
                self._follow_mix()
        return max(min(pause, self._queues_due_at - time.monotonic()), 0.0)

    def _capacity_now(self) -> Capacity:
        """Return how many more jobs could start soon, and may be claimed at once."""
        capacity, rows = self._capacity(), self._portion.rows
        if max(capacity) <= rows:
            return capacity
        return Capacity(min(capacity.threads, rows), min(capacity.coroutines, rows))

    def _pollers(self) -> tuple[Poller, ...]:
        if self._pure:
            return self._for_threads, self._for_coroutines
        return (self._for_threads,)

    def _threads_capacity(self, capacity: Capacity) -> int:
        """Return the limit of a look for threads, which may bring async jobs too."""
        mixed = self.mix.mixed
        left_out = mixed if capacity.coroutines <= 0 else frozenset()
        if self.left_out - left_out:
            # Nobody has looked at these for a while.
            self._for_threads.start_over()
        self.left_out = left_out
        if mixed and not left_out:
            return min(capacity.threads, capacity.coroutines)
        return capacity.threads

    def _follow_mix(self) -> None:
        """Start over when a queue went from one poller to the other."""
        pure = self.mix.pure
        if pure is not self._pure:
            self._pure = pure
            self._for_threads.start_over()
            self._for_coroutines.start_over()
            self.wake.set()

    def _share_flags(self) -> None:
        if not self._wakes.pending:
            return
        names = self._wakes.take()
        if names is None or not self._pure:
            for poller in self._pollers():
                poller.flag(names)
        else:
            self._for_threads.flag(names - self._pure)
            self._for_coroutines.flag(names & self._pure)

    def refresh_queues(self) -> None:
        """Ask which queues there are, and which of them and which tasks are paused."""
        # Who asks for it again meanwhile is heard below.
        self._queues_due_at = math.inf
        with self.link.cursor() as cursor:
            queues, held, held_seconds = claims.known(cursor)
            paused = {queue.name for queue in queues if queue.is_paused}
            met = [queue for queue in queues if self.plan.serves(queue.name)]
            new = [queue.name for queue in met if not queue.has_row]
            if new:
                claims.remember_queues(cursor, new)
        now = time.monotonic()
        self._met_at = {
            name: at for name, at in self._met_at.items() if now - at < KNOWN_SECONDS
        }
        self._met_at.update(dict.fromkeys((queue.name for queue in met), now))
        self._live = len(met)
        for name in self.paused - paused:
            # Nobody wakes us for a pause that ends by itself.
            self._wakes.flag(name)
        if resumed := set(self.held).difference(held):
            # Of their lanes that take turns, nobody else tells.
            for poller in self._pollers():
                poller.due_by(now)
            self.on_resumed(resumed)
        self.paused, self.held = paused, held
        if (turns := {queue.name for queue in met if queue.has_turns}) or self._turns:
            self._turns.known(turns)
        self.limits.know(queue.name for queue in queues if queue.is_limited)
        self.on_held(held)
        self._list_queues()
        self._refreshed_at = now
        ends = [queue.pause_seconds for queue in queues if queue.pause_seconds]
        ends += [held_seconds] if held_seconds else []
        pause = min(self._poll_seconds, *ends, self._poll_seconds)
        self._queues_due_at = min(self._queues_due_at, now + pause)

    def _list_queues(self) -> None:
        served = dict.fromkeys([*self.plan.named, *self._met_at])
        self.queues = [name for name in served if name not in self.paused]

    def queues_for(self) -> list[str]:
        """Return the queues of a poller: served, not paused, not left out."""
        pure = self.mix.pure
        if self._is_for_coroutines:
            return [name for name in self.queues if name in pure]
        if not pure and not self.left_out:
            return self.queues
        others = pure | self.left_out
        return [name for name in self.queues if name not in others]

    def served(self, names: set[str]) -> list[str]:
        """Return those of *names* that a poller may claim from."""
        queues = self.queues_for()
        ours = [name for name in queues if name in names]
        if self.limits:
            for name in ours:
                self.limits.woken(name)
            closed = self.limits.closed(ours)
            ours = [name for name in ours if name not in closed]
        if self._is_for_coroutines or not self.plan.is_open:
            return ours
        unheard = names.difference(self.queues, self.paused)
        unheard = set(filter(self.plan.serves, unheard))
        if unheard:
            # Names never seen before: new queues, or somebody's noise. Asked before
            # the next look.
            self._queues_due_at = 0.0
        return [*ours, *unheard]

    def limit(self, queues: Sequence[str], capacity: int) -> int:
        """
        Return how many a claim from all bands of *queues* may take.

        Zero: none, or it would not keep to the plan, whose order and caps are not those
        of that statement.
        """
        is_one = len(queues) == 1
        if not is_one and self.plan.order != PRIORITY:
            return 0
        if self.limits and any(queue in self.limits for queue in queues):
            # What such a claim brings says nothing of what there is.
            return 0
        if not self.plan.has_caps:
            return capacity
        free = self.free((queue, 0) for queue in queues)
        if not free:
            return capacity
        return max(0, min(capacity, *free.values())) if is_one else 0

    def free(self, bands: Iterable[Key]) -> Mapping[str, int]:
        """
        Return how many more jobs each queue of *bands* may have that has a cap.

        All that this process holds counts: what runs, what waits to, and what has run
        and is not settled. A queue whose limit leaves no room now has a cap of zero.
        """
        closed: Mapping[str, int] = NO_CAPS
        if self.limits:
            bands = list(bands)
            closed = self.limits.closed({queue for queue, _ in bands})
        if not self.plan.has_caps:
            return closed
        caps = {queue: self.plan.cap(queue) for queue in {queue for queue, _ in bands}}
        held = Counter(held.job.queue for held in self._leases.apart())
        held.update(job.queue for job in self._leases.settled())
        free = {queue: cap - held[queue] for queue, cap in caps.items() if cap}
        return {**free, **closed}

    def short(self) -> Collection[str]:
        """Return the queues of the last claim that may have more than their limits."""
        return self.limits.short

    def room_in(self, bands: Iterable[Key], seconds: float) -> float:
        """Return how long to wait for room in *bands*; *seconds* where nobody knows."""
        if not self.limits:
            return seconds
        return self.limits.opens_in({queue for queue, _ in bands}, seconds)

    def see(self, queues: Sequence[str]) -> Sight:
        """Return the bands of *queues*, and what stands first in each."""
        with self.link.cursor() as cursor:
            sight = claims.see(cursor, queues)
        return self._turns.seen(queues, sight) if self._turns else sight

    def claim(self, queues: Sequence[str], limit: int) -> list[Claimed]:
        """Lease what is due, without floors, and hand it over."""
        statement = partial(claims.claim, queues=queues)
        return self._claim_in_turn(statement, queues, limit)

    def claim_from_floors(self, bands: Sequence[Band], limit: int) -> list[Claimed]:
        """Lease what is due in known bands, and hand it over."""
        jobs: list[Claimed] = []
        if self.limits:
            bands, limited = self.limits.split(bands)
            for queue, own in limited.items():
                wanted = min(limit - len(jobs), sum(band.limit for band in own))
                if wanted > 0:
                    statement = self.limits.limited(
                        queue, partial(claims.claim_from_floors, bands=own)
                    )
                    jobs += self._claim_in_turn(statement, None, wanted, own)
        if bands and limit > len(jobs):
            statement = partial(claims.claim_from_floors, bands=bands)
            left = limit - len(jobs)
            jobs += self._claim_in_turn(statement, None, left, bands)
        return jobs

    def _claim_in_turn(
        self,
        statement: Callable[..., list[Claimed]],
        queues: Sequence[str] | None,
        limit: int,
        bands: Sequence[Band] = (),
    ) -> list[Claimed]:
        """
        Claim from lanes that take turns, if any may have jobs, and all others.

        Args:
            statement: Claims the others.
            queues: All bands of these; None: *bands*.
            limit: Of the jobs.
            bands: With the limit of each.
        """
        if not self._turns:
            return self._claim(statement, limit)
        names = queues or [*dict.fromkeys(band.queue for band in bands)]
        jobs: list[Claimed] = []
        limits = limits_of(bands, limit)

        def claim_fair(*, is_first: bool) -> None:
            for queue in names:
                left = limit - len(jobs)
                if limits is not None:
                    left = min(left, limits[queue])
                if left <= 0 or queue in self.limits.short:
                    continue
                if (turn := self._turns.of(queue)) is None:
                    continue
                if is_first:
                    left = part_of(turn, left, is_limited=queue in self.limits)
                fair = self._claim_fair(queue, turn, left)
                if limits is not None:
                    limits[queue] -= len(fair)
                if fair:
                    jobs.extend(stand_ins(queue, len(fair), fair[0], bands))

        claim_fair(is_first=True)
        # Of what there was no room for, nobody is asked, or was.
        if len(jobs) < limit and not self.limits.short.issuperset(names):
            others = self._claim(statement, limit - len(jobs))
            asked = (queue for queue in names if queue not in self.limits.short)
            self._turns.note_others(asked, others)
            jobs += others
        # What others have left over.
        claim_fair(is_first=False)
        return jobs

    def _claim_fair(self, queue: str, turn: Turn, limit: int) -> list[Claimed]:
        """Lease jobs of lanes that take turns, and hand them over."""

        def statement(cursor: Cursor, **own: Any) -> list[Claimed]:
            # The lanes of held tasks have no turn.
            own.pop("held", None)
            # Before the claim: who flags it meanwhile is heard.
            turn.has_more = False
            if turn.stand.until is None:
                turn.due_at = math.inf
            own["passed"] = turn.to_pass()
            came = claim_fair(cursor, queue, stand=turn.stand, **own)
            turn.stand, turn.has_more = came.stand, turn.has_more or came.has_more
            turn.pass_by(came.passed)
            if came.next_seconds is not None:
                turn.due_at = min(turn.due_at, time.monotonic() + came.next_seconds)
                self.retry_in(came.next_seconds)
            return came.jobs

        chosen: Callable[..., list[Claimed]] = statement
        if queue in self.limits:
            chosen = self.limits.limited(queue, statement)
        jobs: list[Claimed] = []
        for _ in range(CALLS_MAX):
            if len(jobs) >= limit or self._turns.of(queue) is None:
                break
            try:
                jobs += self._claim(chosen, limit - len(jobs))
            except BaseException:
                turn.has_more = True
                raise
            if queue in self.limits.short:
                # Of what there was no room for, nobody was asked.
                turn.has_more = True
                break
        return jobs

    def _claim(
        self, statement: Callable[..., list[Claimed]], limit: int
    ) -> list[Claimed]:
        barred = self._barred()
        sent_at = time.monotonic()
        try:
            with self.link.steady_cursor(binary=True) as cursor:
                jobs = statement(
                    cursor,
                    worker=self._leases.worker,
                    limit=limit,
                    lease=self._lease,
                    barred=barred,
                    held=self.held,
                )
        except BaseException as error:
            self._strays.note_if_lost(self.link, error)
            if isinstance(error, psycopg.errors.QueryCanceled):
                self._portion.shrink(limit)
            raise
        jobs = self._hand_over(jobs, sent_at)
        if self.held and time.monotonic() >= self._park_at:
            self._park(barred)
        return jobs

    def _park(self, barred: Sequence[int]) -> None:
        """Take jobs of held tasks out of the way; look again while there are some."""
        began = time.monotonic()
        with self.link.steady_cursor() as cursor:
            parked = claims.park(
                cursor, queues=self.queues, held=self.held, barred=barred
            )
        now = time.monotonic()
        if parked:
            for poller in self._pollers():
                poller.due_by(now)
        else:
            self._park_at = now + max(PARK_SECONDS, 10 * (now - began))

    def _barred(self) -> list[int]:
        """Renew what has run out here; return the jobs that a claim must not get."""
        leases, now = self._leases, time.monotonic()
        lapsed = leases.lapsed(now)
        if lapsed and now >= self._renew_at:
            # Before the claim, and not in the heartbeat's own time: it could be later.
            leases.renew(self.link, lapsed)
            self._renew_at = now + ASK_AGAIN_SECONDS
            lapsed = leases.lapsed(now)
        if not lapsed and not leases.lost():
            return []
        return [held.job.id for held in (*lapsed, *leases.lost())]

    def _hand_over(self, jobs: list[Claimed], sent_at: float) -> list[Claimed]:
        if self.plan.order == STRICT:
            # Claims are in the order of priority.
            jobs.sort(key=self._rank)
        if self.link.has_late_flush:
            self._unflushed += len(jobs)
        self._remember({job.queue for job in jobs})
        if paced := {job.lane for job in jobs if job.is_paced and job.lane}:
            self.on_paced(paced)
        if any(MARK in job.args for job in jobs):
            jobs = bring_messages(self.link, jobs)
        refused = self._leases.add(jobs, sent_at)
        if refused:
            # Leased anew after we had asked what runs out, and before we claimed.
            self._hand_back(refused)
            jobs = [job for job in jobs if job not in refused]
        if self._unflushed > UNFLUSHED_JOBS_MAX:
            try:
                self._flush()
            except BaseException:
                # The server may have forgotten who holds them: nothing is started.
                self._hand_back(jobs)
                raise
        self._put(jobs, self._is_for_coroutines)
        return jobs

    def learn(self, names: set[str] | None) -> bool:
        """Get to know *names*; None: ask which queues there are."""
        if names is None or not names.issubset(self.queues):
            self.refresh_queues()
        return names is not None and self._remember(names)

    def renew(self, *, anyway: bool) -> None:
        """Ask which queues there are, if that was long ago or *anyway*."""
        age = time.monotonic() - self._refreshed_at
        if self.plan.is_open and (anyway or age >= KNOWN_SECONDS / 2):
            self.refresh_queues()

    def _remember(self, names: set[str]) -> bool:
        """Keep *names* known for a while; False: they are too many, maybe noise."""
        if not self.plan.is_open:
            return True
        names = set(filter(self.plan.serves, names))
        new = names.difference(self._met_at)
        if new and len(self._met_at) + len(new) > self._live + EMPTY_QUEUES_MAX:
            return False
        self._met_at.update(dict.fromkeys(names, time.monotonic()))
        if new:
            self._list_queues()
        return True
