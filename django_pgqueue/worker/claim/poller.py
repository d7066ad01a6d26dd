"""
Poller: when to look for jobs, where, and from which floor on. For one kind of capacity.

There are two ways to look. A *round* sees the bands of all queues, a slice at a time,
and claims nothing by itself; what has something due is then drained from floors, in the
order that the plan wants. A wake that comes while nothing is drained claims from its
queue at once, in one statement. Rounds are made when a drain begins and ends, a few
times after every sign of work, at the poll, and now and then during a drain. A round
sees all that was committed before it began, of the queues that are known then.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Protocol

from django_pgqueue.queues.claim import Band, Claimed, Sight
from django_pgqueue.worker.claim.fair_share import FairShare, Key
from django_pgqueue.worker.claim.floors import Floors
from django_pgqueue.worker.claim.listener import NAMES_MAX


class Source(Protocol):
    """The claimer, to a poller."""

    def queues_for(self) -> list[str]:
        """Return the queues to look at when all are meant."""

    def learn(self, names: set[str] | None) -> bool:
        """
        Get to know *names*; None: ask which queues there are.

        Returns:
            Whether all that are meant will be among queues_for() for a while.
        """

    def renew(self, *, anyway: bool) -> None:
        """Ask which queues there are, if that was long ago or *anyway*."""

    def served(self, names: set[str]) -> list[str]:
        """Return those of *names* that may be claimed from; unheard ones too."""

    def limit(self, queues: Sequence[str], capacity: int) -> int:
        """Return how many a claim from all bands of *queues* may take; 0: see them."""

    def free(self, bands: Iterable[Key]) -> Mapping[str, int]:
        """Return how many more jobs each queue of *bands* may have that has a cap."""

    def short(self) -> Collection[str]:
        """Return the queues of the last claim that may have more than their limits."""

    def room_in(self, bands: Iterable[Key], seconds: float) -> float:
        """Return how long to wait for room in *bands*; *seconds* where nobody knows."""

    def see(self, queues: Sequence[str]) -> Sight:
        """Return the bands of *queues*, and what stands first in each."""

    def claim(self, queues: Sequence[str], limit: int) -> list[Claimed]:
        """Lease what is due, without floors, and hand it over."""

    def claim_from_floors(self, bands: Sequence[Band], limit: int) -> list[Claimed]:
        """Lease what is due in known bands, and hand it over."""


# A look that takes longer than this is dear, besides what its rows took.
DEAR_SECONDS = 0.01
ROW_SECONDS = 0.00005
DEAR_LOOKS = 3
RATION = 9.0


class Ration:
    """How soon one may look again: at all queues, or at one."""

    def __init__(self) -> None:
        self.not_before = 0.0
        # How many in a row were dear.
        self.dear = 0

    def note(self, is_dear: bool, took_seconds: float, poll_seconds: float) -> None:
        """Note a look."""
        self.dear = self.dear + 1 if is_dear else 0
        if self.dear >= DEAR_LOOKS:
            ration = min(took_seconds * RATION, poll_seconds)
            self.not_before = time.monotonic() + ration


# A round begins so long after a sign, if none comes after it: soon, for what came with
# it; when no producer is quiet any more (WAKE_INTERVAL_SECONDS_MAX); and for a crash
# between a commit and its NOTIFY, or a row that was locked and rolled back.
RECHECK_SECONDS = (0.015, 0.075, 0.325)

# A band has something due that no claim gets: somebody holds it. It is looked at again
# after so long, then less and less often.
HELD_SECONDS_MIN, HELD_SECONDS_MAX = 0.25, 1.0

# Wakes that find nothing make the next one wait: this long at first, doubling up to
# the longest. So a flood of foreign notifications costs few claims. But one claim often
# brings what two wakes told of, and another worker what one did: so a few in a row cost
# nothing, and a pause forgives all.
EMPTY_WAKES_FREE = 8
EMPTY_WAKE_SECONDS_MIN, EMPTY_WAKE_SECONDS_MAX = 0.008, 0.25
EMPTY_WAKES_FORGIVEN_SECONDS = 1.0

# While bands keep us busy, all are seen this often: others join in then.
SHARE_SECONDS = 0.1

# Queues seen in one statement, so that none is long however many there are; and how
# much of a tick goes into that before jobs are claimed again.
SLICE_QUEUES = 40
SLICES_SECONDS = 0.005

# Queues whose bands are claimed from by a wake without having been seen.
WAKE_QUEUES_MAX = 16

# Queues of whose bands those that were never met are asked for by a rationed wake.
UNKNOWN_QUEUES_MAX = 3

# Every queue that could be claimed from is at its cap: looked at again after so long
# at first, doubling. Nobody tells us when a job of one queue has been settled.
CAP_SECONDS_MIN, CAP_SECONDS_MAX = 0.001, 0.1

# Claims in one tick, so that a stop need not wait for more.
CLAIMS_MAX = 8


class Round:
    """A look at all queues, slice by slice."""

    def __init__(self, queues: list[str], requests: int) -> None:
        self.left = queues
        # What request() had counted when it began.
        self.requests = requests
        self.found = 0
        self.has_due = False
        self.next_at = math.inf
        self.took_seconds = 0.0
        self.is_dear = False


class Rechecks:
    """
    The rounds that are to come after a sign, by monotonic time. Pure.

    Producers leave out a wake that follows another one closely, and workers take jobs
    from one another. So every wake that is taken and every job that is found is a
    *sign* that more may have come: rounds follow it, of which one begins once nothing
    that it stood for can still be on its way. No later sign puts off a round that is
    due; else a stream of them would put it off for ever.
    """

    def __init__(self) -> None:
        self._at: list[float] = []
        # Until this round, nobody can say which queues the sign was about.
        self._any_until = -math.inf

    @property
    def at(self) -> float:
        """When the next round should begin."""
        return self._at[0] if self._at else math.inf

    @property
    def is_over(self) -> bool:
        """Whether none is to come."""
        return not self._at

    def expect(
        self, now: float, *, not_before: float = 0.0, is_any: bool = False
    ) -> None:
        """
        Note a sign.

        Args:
            now: The time of it.
            not_before: Of the first round, where rounds are dear or would find nothing.
            is_any: Whether it may be about queues that nobody has named.
        """
        first = max(now + RECHECK_SECONDS[0], not_before)
        if self._at:
            first = min(first, self._at[0])
        later = [now + seconds for seconds in RECHECK_SECONDS[1:]]
        self._at = [first, *(at for at in later if at > first)]
        if is_any:
            self._any_until = self._at[-1]

    def once(self, at: float) -> None:
        """Let one round begin at *at*, if none is to come."""
        if not self._at:
            self._at = [at]

    def begin(self, now: float) -> bool:
        """
        Note that a round begins.

        Returns:
            Whether it should ask which queues there are.
        """
        while self._at and self._at[0] <= now:
            del self._at[0]
        if self._any_until == -math.inf:
            return False
        if now >= self._any_until:
            self._any_until = -math.inf
        return True


class Poller:
    """Decides about looks; the claimer takes them."""

    def __init__(
        self,
        source: Source,
        fair_share: FairShare,
        poll_seconds: float,
    ) -> None:
        self._source = source
        self._fair_share = fair_share
        self._poll_seconds = poll_seconds
        self._flagged: set[str] = set()
        self._flagged_any = False
        self._floors = Floors()
        self._round: Round | None = None
        self._is_draining = False
        # Bands have something due, and all of them are at their caps: since the last
        # claim, and since the last look.
        self._is_blocked = False
        self._is_capped = False
        self._cap_seconds = CAP_SECONDS_MIN
        # A round should begin as soon as one may.
        self._is_wanted = True
        self._rechecks = Rechecks()
        # Monotonic times: when the next job is due; of the latest round that may not
        # be put off; of the next one while bands keep us busy.
        self._due_at = math.inf
        self._poll_at = 0.0
        self._share_at = 0.0
        # When jobs of ours become due, told by other threads; and until when pause()
        # has last said that nothing is to be done.
        self._due_times: deque[float] = deque()
        self._sleeps_until = math.inf
        self._round_not_before = 0.0
        self._held_looks = 0
        self._wake_not_before = 0.0
        self._empty_wakes = 0
        self._empty_at = 0.0
        self._ration = Ration()
        # Of queues that are dear to look at, as far as one can tell: of a dear look.
        self._rations: dict[str, Ration] = {}
        # How often request() was called; and, of the last round, that number when it
        # began and how many jobs were found.
        self._requests = 0
        self._last_round: tuple[int, int] | None = None

    def flag(self, names: Collection[str] | None) -> None:
        """Note the wakes of queues; None: of any."""
        if names is None or len(self._flagged) + len(names) > NAMES_MAX:
            self._flagged_any = True
        else:
            self._flagged.update(names)

    def due_by(self, at: float) -> bool:
        """
        Look at the monotonic time *at* at the latest; False: would have anyway.

        Any thread may call it, also during a look, whose snapshot may be older than
        what is told here.
        """
        self._due_times.append(at)
        # Asked after that was said; _pause() does it the other way round.
        return at < self._sleeps_until

    def start_over(self) -> None:
        """Look at everything next: what is known of flags and floors may be wrong."""
        self._round = None
        self._is_wanted = True
        self._is_draining = False
        self._floors.forget()
        # What was taken and is forgotten may have stood for more.
        self._rechecks.expect(time.monotonic(), is_any=True)

    def request(self) -> None:
        """Look at all queues at once; found_since_requested() says what came of it."""
        self._requests += 1
        self._round = None
        self._is_wanted = True

    def found_since_requested(self) -> int | None:
        """Return what a round that began after request() found; None: not yet."""
        if self._last_round is None or self._last_round[0] != self._requests:
            return None
        return self._last_round[1]

    def look(self, capacity: int) -> float:
        """Look for *capacity* jobs if there is a reason; return the wait until then."""
        queues = self._source.queues_for()
        self._floors.keep(set(queues))
        now = time.monotonic()
        self._take_due_times()
        # Before the wakes, so that no stream of them can starve it.
        if self._round is None and now >= self._round_at:
            if now >= self._ration.not_before:
                self._begin_round()
            elif now >= self._due_at:
                # From the floors, since nobody will wake us for it; and where there are
                # too many of those, as soon as the ration allows.
                self._due_at = math.inf
                self._is_wanted = True
                self._floors.expect(None)
        found = 0
        if self._is_flagged and (self._is_draining or now >= self._wake_not_before):
            found = self._look_where_flagged(capacity)
        self._go_on_round()
        if self._floors.busy and found < capacity:
            found += self._drain(capacity - found)
        self._conclude(found, capacity)
        return self._pause()

    @property
    def _is_flagged(self) -> bool:
        return self._flagged_any or bool(self._flagged)

    def _pause(self) -> float:
        if self._round is not None or self._is_draining:
            return 0.0
        until = max(self._round_at, self._ration.not_before)
        if self._is_flagged:
            until = min(until, self._wake_not_before)
        now = time.monotonic()
        if self._is_capped:
            room_in = self._source.room_in(self._floors.busy, self._cap_seconds)
            until = min(until, now + room_in)
            self._cap_seconds = min(2 * self._cap_seconds, CAP_SECONDS_MAX)
        self._sleeps_until = until
        self._take_due_times()
        return max(min(until, self._due_at) - now, 0.0)

    def _take_due_times(self) -> None:
        while self._due_times:
            self._due_at = min(self._due_at, self._due_times.popleft())

    def _expect_more(self, *, is_any: bool = False) -> None:
        """Note a sign that more may have come: rounds follow it."""
        now = time.monotonic()
        not_before = self._round_not_before
        if self._is_capped:
            # Others have run dry; what is at its cap goes on.
            not_before = max(not_before, now + SHARE_SECONDS)
        self._rechecks.expect(now, not_before=not_before, is_any=is_any)

    # Rounds ---------------------------------------------------------------------------

    @property
    def _round_at(self) -> float:
        if self._is_wanted:
            return 0.0
        at = self._share_at if self._is_draining else self._rechecks.at
        return min(at, self._due_at, self._poll_at)

    def _begin_round(self) -> None:
        now = time.monotonic()
        self._is_wanted = False
        is_any = self._rechecks.begin(now)
        if now >= self._wake_not_before:
            # What is flagged now is seen now. A new queue may be among it.
            self._take_flags()
        self._source.renew(anyway=is_any)
        self._round = Round(list(self._source.queues_for()), self._requests)
        self._due_at = math.inf

    def _go_on_round(self) -> None:
        """See as many slices as a tick has time for."""
        round_, until = self._round, time.monotonic() + SLICES_SECONDS
        if round_ is None:
            return
        while round_.left:
            some = round_.left[-SLICE_QUEUES:]
            del round_.left[-SLICE_QUEUES:]
            took, has_due, wait = self._see(some)
            round_.took_seconds += took
            round_.is_dear |= took > DEAR_SECONDS
            round_.has_due |= has_due
            if wait is not None:
                round_.next_at = min(round_.next_at, _moment_in(wait))
            if time.monotonic() >= until:
                return

    def _end_round(self, round_: Round) -> None:
        self._round = None
        now = time.monotonic()
        self._last_round = round_.requests, round_.found
        self._poll_at = now + self._poll_seconds
        self._share_at = now + min(SHARE_SECONDS, self._poll_seconds)
        if round_.is_dear or self._ration.dear:
            self._ration.note(round_.is_dear, round_.took_seconds, self._poll_seconds)
        self._round_not_before = now + round_.took_seconds * RATION
        self._due_at = min(self._due_at, round_.next_at)
        # Somebody holds it, and may give it back without telling us.
        is_held = round_.has_due and not (self._is_draining or self._is_capped)
        if is_held and self._rechecks.is_over:
            pause = HELD_SECONDS_MIN * 2**self._held_looks
            self._held_looks = min(self._held_looks + 1, 8)
            self._rechecks.once(now + min(pause, HELD_SECONDS_MAX))

    def _see(self, queues: Sequence[str]) -> tuple[float, bool, float | None]:
        """See bands; return the time that took, if any is due, and the wait for one."""
        started = time.monotonic()
        sight = self._source.see(queues)
        took = time.monotonic() - started
        self._note_cost(queues, took, 0)
        due, wait = self._floors.see(queues, sight)
        return took, bool(due), wait

    # Wakes ----------------------------------------------------------------------------

    def _take_flags(self) -> set[str] | None:
        """Lower the flags and return them; None: any queue may be meant."""
        flagged = None if self._flagged_any else self._flagged
        self._flagged, self._flagged_any = set(), False
        if flagged is None or flagged:
            # Whoever sent the next ones may have left them out; and what this one was
            # about may be in other hands already.
            is_any = not self._source.learn(flagged)
            self._expect_more(is_any=is_any)
        if flagged is None or len(flagged) > SLICE_QUEUES:
            # A round answers it, and counts as empty until it finds something.
            self._note_empty_wake()
        return flagged

    def _look_where_flagged(self, capacity: int) -> int:
        flagged = self._take_flags()
        if flagged is None or len(flagged) > SLICE_QUEUES:
            # A round, at once or when its ration allows; and the floors until then.
            self._is_wanted = True
            if time.monotonic() < self._ration.not_before:
                self._floors.expect(flagged)
            elif self._round is None:
                self._begin_round()
            return 0
        names = self._source.served(flagged)
        dear = []
        if self._rations:
            now = time.monotonic()
            dear = [
                name
                for name in names
                if name in self._rations and now < self._rations[name].not_before
            ]
        cheap = [name for name in names if name not in dear] if dear else names
        found = self._look_at(cheap, capacity) if cheap else 0
        if dear and found < capacity:
            found += self._look_at_dear(dear, capacity - found)
        if self._is_draining or self._floors.busy:
            return found
        if found:
            self._empty_wakes = 0
        else:
            self._note_empty_wake()
        return found

    def _note_empty_wake(self) -> None:
        now = time.monotonic()
        if now - self._empty_at > EMPTY_WAKES_FORGIVEN_SECONDS:
            self._empty_wakes = 0
        self._empty_at = now
        times = self._empty_wakes - EMPTY_WAKES_FREE
        self._empty_wakes = min(self._empty_wakes + 1, EMPTY_WAKES_FREE + 16)
        if times >= 0:
            pause = EMPTY_WAKE_SECONDS_MIN * 2**times
            self._wake_not_before = now + min(pause, EMPTY_WAKE_SECONDS_MAX)

    def _look_at(self, queues: Sequence[str], capacity: int) -> int:
        """See the bands of *queues*, or claim from them if nothing else is due."""
        limit = 0
        if not self._floors.busy and len(queues) <= WAKE_QUEUES_MAX:
            limit = self._source.limit(queues, capacity)
        if not limit:
            _, _, wait = self._see(queues)
            if wait is not None:
                self._due_at = min(self._due_at, _moment_in(wait))
            return 0
        started = time.monotonic()
        jobs = self._source.claim(queues, limit)
        self._note_cost(queues, time.monotonic() - started, len(jobs))
        has_more = len(jobs) >= limit
        self._floors.take_all(queues, jobs, has_more=has_more)
        if has_more:
            # A drain begins: it is time to see who else has something.
            self._share_at = 0.0
        return len(jobs)

    def _note_cost(self, queues: Sequence[str], took: float, rows: int) -> None:
        is_dear = took > DEAR_SECONDS + rows * ROW_SECONDS
        if not is_dear and not self._rations:
            return
        for queue in queues:
            if not is_dear:
                self._rations.pop(queue, None)
            elif len(self._rations) < NAMES_MAX:
                ration = self._rations.setdefault(queue, Ration())
                ration.note(True, took, self._poll_seconds)

    def _look_at_dear(self, queues: Sequence[str], capacity: int) -> int:
        """Claim from floors what a wake has come for, of whatever priority."""
        if self._floors.busy:
            self._floors.expect(set(queues))
            return 0
        found = 0
        for number, queue in enumerate(queues):
            left = capacity - found
            limit = self._source.limit([queue], left) if left > 0 else 0
            if not limit:
                self._floors.expect({queue})
                continue
            jobs = self._claim_from(self._floors.at_floors({queue}, limit), limit)
            if not jobs and number < UNKNOWN_QUEUES_MAX:
                jobs = self._claim_from(self._floors.unknown(queue, limit), limit)
            found += jobs
        return found

    def _claim_from(self, bands: Sequence[Band], limit: int) -> int:
        if not bands:
            return 0
        jobs = self._source.claim_from_floors(bands, limit)
        has_more = len(jobs) >= limit
        self._floors.take_all([], jobs, has_more=has_more)
        if has_more:
            self._floors.expect({band.queue for band in bands})
        return len(jobs)

    # Draining -------------------------------------------------------------------------

    def _drain(self, capacity: int) -> int:
        """Claim from the bands that have something, until *capacity* is full."""
        found = 0
        self._is_blocked = False
        for _ in range(CLAIMS_MAX):
            if found >= capacity or not self._floors.busy:
                break
            bands = self._fair_share.share(
                self._floors.busy,
                capacity - found,
                now=self._floors.now,
                free=self._source.free(self._floors.busy),
            )
            if not bands:
                self._is_blocked = True
                break
            jobs = self._source.claim_from_floors(bands, capacity - found)
            got = self._floors.take(bands, jobs, self._source.short())
            self._fair_share.took(bands, got)
            found += len(jobs)
        return found

    def _conclude(self, found: int, capacity: int) -> None:
        """Decide what comes next, from what was found."""
        was_busy = self._is_draining or self._is_capped
        is_busy = bool(self._floors.busy)
        self._is_capped = is_busy and self._is_blocked
        self._is_draining = is_busy and not self._is_blocked
        if found:
            # Its like may be on its way.
            self._expect_more()
            self._held_looks = 0
            self._cap_seconds = CAP_SECONDS_MIN
            self._empty_wakes = 0
        round_ = self._round
        if was_busy and not is_busy:
            # A drain ends with a round: rows may have come below its floors.
            self._expect_more()
            self._is_wanted |= round_ is None
        if round_ is not None:
            round_.found += found
            if not round_.left:
                self._end_round(round_)


def _moment_in(seconds: float) -> float:
    """Return when that is; a millisecond late rather than early: early finds none."""
    return time.monotonic() + seconds + 0.001
