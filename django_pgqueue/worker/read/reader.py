"""
Reader: a thread that reads for one group, a batch of one partition at a time.

    the horizon, shared in the process
    claim a partition       with a lease and a fence; committed
    read a batch            up to the horizon, in order
    the handler             under the watchdog; atomic: with the position in one
                            transaction
    the position            a fenced write, on disk before the next batch; it renews
                            the lease, too, where the turn goes on

A partition has more: it is read for a turn of some batches, then the next one. Nothing
to claim: it waits for a wake, as long as a poll at most.
"""

from __future__ import annotations

import functools
import logging
import random
import time
from collections import Counter
from collections.abc import Callable
from contextvars import copy_context
from dataclasses import replace
from datetime import timedelta
from typing import Any

import psycopg

from django_pgqueue import telemetry
from django_pgqueue.conf import Settings
from django_pgqueue.exceptions import TaskTimeout, UndecodablePayload
from django_pgqueue.log import groups, positions
from django_pgqueue.log.groups import GroupRow
from django_pgqueue.log.positions import Claimed, Moved, Readable
from django_pgqueue.log.read import Batch, read
from django_pgqueue.postgres.connect import Link
from django_pgqueue.postgres.cursor import Cursor
from django_pgqueue.tasks.payload import decode_value
from django_pgqueue.topics.acked import NOTHING, NotAcked, split
from django_pgqueue.topics.consume import Consumer
from django_pgqueue.topics.run_batch import (
    AT_ONCE,
    After,
    Again,
    Ended,
    Halted,
    Skipped,
    decide,
    decide_before,
    run_batch,
)
from django_pgqueue.topics.write_after import write_after
from django_pgqueue.worker.read.positions import Bounds, KnownPositions
from django_pgqueue.worker.run.isolation import (
    clean_after_job,
    clean_connections,
    prepare_thread,
)
from django_pgqueue.worker.run.watchdog import Watchdog
from django_pgqueue.worker.service import Service

logger = logging.getLogger("django_pgqueue.worker")

# After the last batch it looks again so soon: a publisher sends one wake in some
# milliseconds, for all that it has published.
DRY_SECONDS = (0.015, 0.075)

# While somebody's transaction holds messages back: so soon, and then ever later.
HELD_SECONDS, HELD_SECONDS_MAX = 0.05, 1.0

# While others read what has to be read first, since the count of partitions changed.
BLOCKED_SECONDS = 0.1

NOTHING_LOOKED_AT = Readable([])

# How often its row is read, positions for new partitions are made, and quiet ones are
# moved on.
REFRESH_SECONDS = 30.0

# A partition's turn: so many batches, and none begins later than that after the first.
# A claim costs as much as the position's write; others wait no longer than that.
TURN_BATCHES_MAX, TURN_SECONDS = 10, 0.1

# The handler gets TaskTimeout by this share of the lease before it ends, one second at
# most: so that what follows can be written while the partition is ours.
MARGIN_SHARE, MARGIN_SECONDS_MAX = 0.1, 1.0


class Reader(Service):
    """Reads for one group, until it is told to stop."""

    name = "reader"

    def __init__(
        self,
        link: Link,
        *,
        name: str,
        consumer: Consumer,
        settings: Settings,
        bounds: Bounds,
        watchdog: Watchdog,
        counts: Counter[str],
    ) -> None:
        super().__init__(link)
        self.name = f"reader-{consumer}"
        self.consumer = consumer
        # Who the partitions are leased to: "<worker>/<number>".
        self.worker = name
        # What it holds now, and since when by time.monotonic(), for the watchdog.
        self.held: Claimed | None = None
        self._settings = settings
        self._bounds = bounds
        self._watchdog = watchdog
        self._counts = counts
        self._group: GroupRow | None = None
        self._refresh_at = 0.0
        self._known = KnownPositions(settings.poll_interval_seconds)
        # Batches that are left of a turn, and until when one may begin.
        self._turn = (0, 0.0)
        # The last position that was moved.
        self._moved: Moved | None = None
        # Whether the answer to a claim, or to what renews it, was lost.
        self._may_hold = False
        self._dry = 0
        # What the last claim was chosen from.
        self._looked = NOTHING_LOOKED_AT
        self._held_seconds = HELD_SECONDS
        self._is_prepared = False
        # How often somebody has asked whether there is nothing to read, and the last
        # of those askings which a look has answered with no.
        self.requests = 0
        self.found_nothing = -1
        self._woken_at = 0.0
        # How many messages it asks for, since large ones come in smaller batches.
        self._limit = consumer.batch
        # The last hint after which it looks again some times.
        self._answered_at = 0.0

    @property
    def shown_as(self) -> str:
        """One word for all of them."""
        return "reader"

    @property
    def task(self) -> str:
        """The name of the handler's task."""
        return self.consumer.task.name

    def hint(self) -> None:
        """Look soon: messages were published. Any thread may call it."""
        self._woken_at = time.monotonic()
        self.wake.set()

    def look_now(self) -> None:
        """Answer once more whether there is nothing to read."""
        self.requests += 1
        self.wake.set()

    def tick(self) -> float:
        """Read a partition for a turn; return how long to wait for the next one."""
        requests = self.requests
        if self._woken_at != self._answered_at:
            # Another reader may be quicker, and then be busy with what it got; and the
            # next message may come without a hint.
            self._answered_at, self._dry = self._woken_at, 0
        group = self._row()
        if self._may_hold:
            self._release(group)
        # Until it is known what became of this round.
        self._may_hold = True
        bounds = self._bounds.now(self._woken_at)
        bound = bounds.of(group.topic_id)
        claimed = self._claim(group, bound)
        if claimed is None and requests > self.found_nothing:
            # Somebody wants to know: what is remembered may be old.
            self._known.forget()
            claimed = self._claim(group, bound)
        if claimed is None:
            self._may_hold = False
            self.found_nothing = requests
            return self._idle(group.topic_id in bounds.held)
        self._dry, self._held_seconds = 0, HELD_SECONDS
        self._may_hold = self._read_on(group, claimed, bound)
        return 0.0

    def _read_on(self, group: GroupRow, claimed: Claimed, bound: int) -> bool:
        """Read a partition for a turn; return whether it may still be leased to us."""
        self._turn = (TURN_BATCHES_MAX, time.monotonic() + TURN_SECONDS)
        self.held = claimed
        try:
            # For the whole turn: what the claim has said of the group is true of what
            # there was up to its bound. What came since may be in other partitions.
            with self.link.cursor() as cursor:
                end = positions.end_of(
                    cursor, group.id, group.topic_id, claimed, bound, self._looked
                )
            while True:
                self.held, self._moved = claimed, None
                is_done = self._serve(group, claimed, end)
                moved = self._moved if is_done else None
                if moved is None:
                    self._known.lost(claimed.id)
                    return not is_done
                if moved.kept is None:
                    self._known.gave_back(claimed.id, moved.tid, moved.position)
                    return False
                claimed = moved.kept
                batches, until = self._turn
                self._turn = (batches - 1, until)
        finally:
            self.held = None

    def _row(self) -> GroupRow:
        """Return the group's row, and see to its positions now and then."""
        now = time.monotonic()
        if self._group is None or now >= self._refresh_at:
            if not self._is_prepared:
                prepare_thread()
                self._is_prepared = True
            with self.link.cursor() as cursor:
                group = groups.find(cursor, self.consumer.topic, self.consumer.group)
                groups.complete(cursor, group.id)
                bound = self._bounds.now().of(group.topic_id)
                low = positions.lowest(cursor, group.id)
                days = self._bounds.days(anew=True).closed
                if low is not None and days and low <= days[-1][1]:
                    positions.forward(cursor, group.id, bound=bound)
            self._group = group
            self._known.forget()
            self._refresh_at = now + REFRESH_SECONDS
        return self._group

    def _release(self, group: GroupRow) -> None:
        """Give back what was leased to us in an answer that never came."""
        with self.link.cursor() as cursor:
            found = positions.release(cursor, group.id, self.worker)
        self._known.forget()
        self._may_hold = False
        if found:
            telemetry.released(self.consumer, found)

    def _claim(self, group: GroupRow, bound: int) -> Claimed | None:
        known = self._known
        self._looked = NOTHING_LOOKED_AT
        now = self._leased_at = time.monotonic()
        with self.link.cursor() as cursor:
            if known.is_old(now, self._woken_at):
                seen = positions.look(cursor, group.id)
                positions.refuse_beyond(group, seen)
                known.saw(seen, now)
            since = self._bounds.days().since(known.lowest)
            while not known.is_dry(bound) and (free := known.free):
                self._looked = positions.readable(cursor, group.id, free, bound)
                free = self._looked.known
                if not free:
                    # Others read on, and then there is more, up to the same bound.
                    return None
                found = positions.claim_known(
                    cursor,
                    free,
                    worker=self.worker,
                    lease=self.consumer.lease,
                    bound=bound,
                    since=since,
                )
                if found is None:
                    if not known.is_merging:
                        known.found_nothing(bound)
                    return None
                if found.claimed is not None:
                    known.took(found.claimed)
                    return found.claimed
                known.lost(found.id)
        return None

    def _idle(self, is_held: bool) -> float:
        """Return how long to wait when there is nothing to claim."""
        if self._dry < len(DRY_SECONDS):
            self._dry += 1
            return DRY_SECONDS[self._dry - 1]
        pause = self._settings.poll_interval_seconds
        if self._looked.is_blocked:
            pause = min(pause, BLOCKED_SECONDS)
        elif is_held:
            pause = min(pause, self._held_seconds)
            self._held_seconds = min(2 * self._held_seconds, HELD_SECONDS_MAX)
        seconds = self._known.wait_seconds(time.monotonic(), self._woken_at)
        return pause if seconds is None else max(min(pause, seconds), 0.001)

    def _serve(self, group: GroupRow, claimed: Claimed, bound: int) -> bool:
        """Read and hand over a batch; return whether it is known what was written."""
        if claimed.lapsed_by is not None:
            telemetry.lapsed(self.consumer, claimed)
        if claimed.failures and self._is_put_aside(group, claimed, bound):
            return True
        batch = self._read_bounded(group, claimed, bound)
        if not batch.messages:
            # Nothing of what was looked at is wanted.
            self._advance(claimed, batch, False)
            return True
        if batch.error is not None:
            # It comes to no handler; on_error says what becomes of it.
            after = self._after(claimed, batch, batch.error)
            return self._write(claimed, batch, after, batch.error)
        with self.not_busy():
            ended = copy_context().run(self._call, claimed, batch)
        if ended.acked is not None:
            return self._settle_acked(claimed, batch, ended, ended.acked)
        return self._settle(claimed, batch, ended)

    def _settle_acked(
        self, claimed: Claimed, batch: Batch, ended: Ended, acked: int
    ) -> bool:
        """Move the position past what was acked; what is left comes again."""
        done, rest = split(batch, acked)
        error = ended.error
        if error is None and not acked:
            error = NotAcked(NOTHING)
        is_failure = error is not None and bool(rest.messages)
        if acked:
            if not self._advance(claimed, done, is_failure):
                self._lost(claimed)
                return False
            self._consumed(claimed, done, ended)
            claimed = (self._moved and self._moved.kept) or claimed
        if error is None:
            return True
        if not rest.messages:
            telemetry.failed_after_ack(self.consumer, claimed, error)
            return True
        return self._settle(claimed, rest, replace(ended, error=error))

    def _is_put_aside(self, group: GroupRow, claimed: Claimed, bound: int) -> bool:
        """
        Whether what comes next is not to be read as it is; then that is written.

        Its payloads are not looked at: one of them may be what took a reader down.
        """
        ahead = self._read(group, claimed, bound, is_bare=True)
        if not ahead.messages:
            return False
        before = decide_before(
            self.consumer,
            messages=len(ahead.messages),
            failures=claimed.failures,
            has_lapsed=claimed.lapsed_by is not None,
        )
        if before is None:
            return False
        self._write(claimed, ahead, before, None)
        return True

    def _read(
        self,
        group: GroupRow,
        claimed: Claimed,
        bound: int,
        *,
        is_bare: bool = False,
    ) -> Batch:
        single_to = claimed.single_to
        is_single = _is_single(claimed)
        limit = self.consumer.batch if is_bare else self._limit
        # A payload may refer to a model's row, which is fetched as it is read.
        clean_connections()
        with self.link.cursor(binary=True) as cursor:
            return read(
                cursor,
                topic=group.topic,
                topic_id=group.topic_id,
                partition=claimed.partition,
                after=claimed.position,
                bound=min(bound, single_to) if is_single and single_to else bound,
                limit=1 if is_single else limit,
                max_bytes=self.consumer.batch_bytes,
                is_bare=is_bare,
                since=self._bounds.days().since(claimed.position),
                where=self.consumer.where,
                decode=decode_value,
            )

    def _read_bounded(self, group: GroupRow, claimed: Claimed, bound: int) -> Batch:
        """
        Read a batch, and remember how many messages one may have.

        The server makes text of all that it is asked for, so it is asked for twice what
        has passed the limit of bytes, and for half of what was too much for itself.
        """
        try:
            batch = self._read(group, claimed, bound)
        except psycopg.Error as error:
            is_alone = _is_single(claimed) or self._limit == 1
            self._limit = max(self._limit // 2, 1)
            if not (is_alone and isinstance(error, UNSENDABLE)):
                raise
            bare = self._read(group, claimed, bound, is_bare=True)
            first = bare.messages[0]
            problem = UndecodablePayload(f"The server cannot send it: {error}")
            return Batch([first], first.id, True, problem)
        most = 2 * (len(batch.messages) if batch.is_cut else self._limit)
        self._limit = min(most, self.consumer.batch)
        return batch

    def _call(self, claimed: Claimed, batch: Batch) -> Ended:
        """Call the handler, under the watchdog."""
        consumer = self.consumer
        lease = consumer.lease.total_seconds()
        margin = min(lease * MARGIN_SHARE, MARGIN_SECONDS_MAX)

        def left() -> float:
            # A position that is moved first renews the lease.
            return self._leased_at + lease - margin - time.monotonic()

        def guard(call: Callable[[], Any]) -> Any:
            seconds = timedelta(seconds=max(left(), 0.001))
            return self._watchdog.watch(self, seconds, call)

        try:
            return run_batch(
                consumer,
                claimed,
                batch.messages,
                settings=self._settings,
                moves=functools.partial(self._advance, claimed, batch),
                moves_within=functools.partial(self._move, claimed, batch),
                lease_seconds=left,
                guard=guard,
            )
        finally:
            clean_after_job()

    def _advance(self, claimed: Claimed, batch: Batch, keeps: bool) -> bool:
        with self.link.cursor() as cursor:
            is_ours = self._move(claimed, batch, cursor, keeps)
        if self._moved is not None and self._moved.kept is not None:
            # What is given back at a stop.
            self.held = self._moved.kept
        self.link.flush()
        return is_ours

    def _move(
        self, claimed: Claimed, batch: Batch, cursor: Cursor, keeps: bool = False
    ) -> bool:
        """Move the position past a batch, and renew the lease if the turn goes on."""
        at = time.monotonic()
        self._moved = positions.advance(
            cursor,
            claimed,
            batch.to,
            keeps=keeps,
            goes_on=self._goes_on(batch),
            lease=self.consumer.lease,
        )
        if self._moved is not None and self._moved.kept is not None:
            self._leased_at = at
        return self._moved is not None

    def _goes_on(self, batch: Batch) -> bool:
        """Whether the partition is read further before another one."""
        batches, until = self._turn
        return (
            batch.has_more
            and batches > 1
            and not self.stopping
            and time.monotonic() < until
        )

    def _settle(self, claimed: Claimed, batch: Batch, ended: Ended) -> bool:
        """Write what follows the call, and tell of it; return as _serve()."""
        if ended.is_late:
            self._late(claimed, batch)
            return True
        if not ended.is_ours:
            self._lost(claimed)
            return False
        error = ended.error
        if isinstance(error, TaskTimeout) and not error.args:
            error.args = (timeout_words(self.consumer),)
        if error is None or ended.was_acked:
            if error is not None:
                telemetry.failed_after_ack(self.consumer, claimed, error)
            if ended.was_acked and not self.consumer.is_atomic:
                self._free_unless_it_goes_on(batch)
            self._consumed(claimed, batch, ended)
            return True
        if not ended.has_begun:
            # The database could not even begin: it is no failure of the messages.
            again = Again(BEGIN_AGAIN, counts=False, is_failure=False)
            return self._write(claimed, batch, again, error)
        after = self._after(claimed, batch, error)
        return self._write(claimed, batch, after, error, ended.ran_seconds)

    def _after(self, claimed: Claimed, batch: Batch, error: BaseException) -> After:
        return decide(
            self.consumer,
            messages=len(batch.messages),
            failures=claimed.failures,
            error=error,
            random=random.random,
        )

    def _consumed(self, claimed: Claimed, batch: Batch, ended: Ended) -> None:
        self._counts["consumed"] += len(batch.messages)
        telemetry.consumed(
            self.consumer,
            claimed,
            count=len(batch.messages),
            ran_seconds=ended.ran_seconds,
        )

    def _free_unless_it_goes_on(self, batch: Batch) -> None:
        """Give back what was kept for the function alone."""
        moved = self._moved
        if moved is None or moved.kept is None or self._goes_on(batch):
            return
        with self.link.cursor() as cursor:
            positions.free(cursor, moved.kept)
        # Where its row is now is not known.
        self._moved = None

    def _write(
        self,
        claimed: Claimed,
        batch: Batch,
        after: After,
        error: BaseException | None,
        ran_seconds: float = 0.0,
    ) -> bool:
        """
        Write what follows a batch that is not done, and tell of it.

        Returns:
            False: the partition was not ours any more; or a COMMIT without an answer
            has moved it and renewed its lease.
        """
        # What a transaction that was rolled back had moved.
        self._moved = None
        waited = timedelta(seconds=time.monotonic() - self._leased_at)
        with self.link.cursor() as cursor:
            written = write_after(
                cursor,
                claimed,
                batch,
                after,
                error,
                at=claimed.claimed_at + waited,
                ran_seconds=ran_seconds,
            )
        self.link.flush()
        if not written.is_ours:
            self._lost(claimed)
            return False
        first = batch.messages[0]
        if isinstance(after, Again) and after.is_failure:
            self._counts["failed"] += 1
            telemetry.batch_failed(
                self.consumer,
                claimed,
                messages=batch.messages,
                error=error,
                delay_seconds=after.delay.total_seconds(),
                one_by_one=after.one_by_one,
            )
        elif isinstance(after, Halted):
            self._counts["halted"] += 1
            telemetry.halted(self.consumer, claimed, first, error=error)
        elif isinstance(after, Skipped):
            self._counts["dead"] += 1
            telemetry.message_dead(
                self.consumer,
                claimed,
                first,
                dead=written.dead,
                reason=after.reason,
                error=error,
            )
        return True

    def _late(self, claimed: Claimed, batch: Batch) -> None:
        """
        Give back what came too late for a call; it is no failure of the messages.

        One by one, since to read fewer takes less long; unless somebody else has it.
        """
        self._counts["stale"] += 1
        telemetry.batch_late(self.consumer, claimed)
        again = Again(
            AT_ONCE,
            one_by_one=len(batch.messages) > 1,
            counts=False,
            is_failure=False,
        )
        with self.link.cursor() as cursor:
            write_after(cursor, claimed, batch, again, None, at=claimed.claimed_at)
        self.link.flush()

    def _lost(self, claimed: Claimed) -> None:
        self._counts["stale"] += 1
        telemetry.position_stale(self.consumer, claimed)


BEGIN_AGAIN = timedelta(seconds=5)

# What the server says of one message whose text is longer than it can make.
UNSENDABLE = (psycopg.errors.ProgramLimitExceeded, psycopg.errors.InternalError_)


def _is_single(claimed: Claimed) -> bool:
    """Whether messages are handed over one by one, since one of them has failed."""
    return claimed.single_to is not None and claimed.single_to > claimed.position


def timeout_words(consumer: Consumer) -> str:
    """Say that a batch took longer than its lease."""
    seconds = consumer.lease.total_seconds()
    return (
        f"{consumer.task.name} took longer for a batch than the lease of {seconds:g} s "
        f"of the group {consumer}. Give it a smaller batch, or a longer lease."
    )
