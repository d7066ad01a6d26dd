"""Claimer: when it looks, where, and for how many. Ticked by hand, on its own clock."""

from __future__ import annotations

from datetime import timedelta
from types import SimpleNamespace
from unittest.mock import Mock

import psycopg
import pytest
from django.utils import timezone

from django_pgqueue.conf import parse
from django_pgqueue.models import Job, Queue
from django_pgqueue.postgres.connect import Link
from django_pgqueue.postgres.wakeup import Wakeup
from django_pgqueue.queues import claim as claims
from django_pgqueue.queues import lanes
from django_pgqueue.worker.claim import claimer as module
from django_pgqueue.worker.claim import floors, poller, strays
from django_pgqueue.worker.claim.capacity import (
    Capacity,
    QueueMix,
)
from django_pgqueue.worker.claim.claimer import (
    UNFLUSHED_JOBS_MAX,
    Claimer,
)
from django_pgqueue.worker.claim.listener import Wakes
from django_pgqueue.worker.claim.poller import (
    CAP_SECONDS_MAX,
    DEAR_LOOKS,
    DEAR_SECONDS,
    EMPTY_WAKE_SECONDS_MAX,
    HELD_SECONDS_MAX,
    RATION,
    RECHECK_SECONDS,
    SLICE_QUEUES,
)
from django_pgqueue.worker.claim.strays import Strays
from django_pgqueue.worker.lease import leases as leases_module
from django_pgqueue.worker.lease.leases import ASK_AGAIN_SECONDS
from django_pgqueue.worker.options import WorkerOptions
from tests.harness.factories import make_job, make_jobs
from tests.worker.conftest import WORKER

DAY = timedelta(days=1)
POLL = 5.0


def moments_ahead(delta):
    """Return a time from now, for rows that are written without the database's."""
    return timezone.now() + delta


class Rig:
    """A claimer, the clock it reads, and a record of every look it took."""

    def __init__(self, link, leases, monkeypatch):
        self.now = 1_000.0
        self.capacity = 10
        self.extra_capacity = 0
        # Capacity for coroutines, and the tasks that are async.
        self.async_capacity = 100
        self.async_tasks: set[str] = set()
        self.shown = QueueMix()
        self.put: list = []
        self.handed_back: list = []
        self.strays = Strays(leases)
        self.looks: list = []
        # What the next looks do beside looking: take time, or fail.
        self.takes = 0.0
        self.fails: Exception | None = None
        # What others do once, while a look is under way that does not see it.
        self.meanwhile = None
        self._link, self._leases = link, leases
        clock = SimpleNamespace(monotonic=lambda: self.now)
        monkeypatch.setattr(module, "time", clock)
        monkeypatch.setattr(poller, "time", clock)
        for other in (floors, leases_module, strays):
            monkeypatch.setattr(other, "time", clock)
        for name in ("see", "claim", "claim_from_floors"):
            monkeypatch.setattr(
                claims, name, self._recorded(name, getattr(claims, name))
            )

    def serve(self, *queues, order=None, ageing_seconds=None):
        """Make the claimer of a worker with --queues, or of all."""
        settings = parse(
            {"POLL_INTERVAL_SECONDS": POLL, "AGEING_SECONDS": ageing_seconds}
        )
        options = WorkerOptions(settings=settings, queues=queues, queue_order=order)
        self.claimer = Claimer(
            self._link,
            options=options,
            wakes=Wakes(options.plan, Wakeup()),
            leases=self._leases,
            strays=self.strays,
            hand_back=self.handed_back.extend,
            mix=self.shown,
            capacity=lambda: Capacity(self.capacity, self.async_capacity),
            extra_capacity=lambda: self.extra_capacity,
            put=self._take,
        )
        self.wakes = self.claimer._wakes
        return self

    def _take(self, jobs, for_coroutines):
        """Note what was claimed, as the dispatcher does; nothing of it ever ends."""
        for job in jobs:
            is_async = job.task in self.async_tasks
            self.shown.note(job.queue, is_async=is_async)
        self.put += jobs

    def _recorded(self, kind, real):
        def look(cursor, queues=(), **options):
            self.now += 0.0 if kind == "claim_from_floors" else self.takes
            if self.fails is not None:
                error, self.fails = self.fails, None
                raise error
            if kind != "claim_from_floors":
                options["queues"] = queues
            found = real(cursor, **options)
            if self.meanwhile is not None:
                do, self.meanwhile = self.meanwhile, None
                do()
            asked = queues or options["bands"]
            count = len(found.bands if kind == "see" else found)
            look = {"asked": asked, "limit": options.get("limit"), "found": count}
            self.looks.append(SimpleNamespace(kind=kind, **look))
            return found

        return look

    def tick(self):
        """Tick once; return the pause it asks for and the looks it took."""
        before = len(self.looks)
        pause = self.claimer.tick()
        return pause, self.looks[before:]

    def look_dear(self, seconds, times):
        """Look at everything *times* times, each of which takes *seconds*."""
        self.takes = seconds
        for _ in range(times):
            self.claimer.look_now()
            self.tick()
        self.takes = 0.0
        self.looks.clear()

    def run_dry(self):
        """Tick until all re-checks are done; return the pauses in between."""
        pauses = []
        while True:
            pause, _ = self.tick()
            pauses.append(pause)
            if pause > RECHECK_SECONDS[-1]:
                return pauses
            self.now += pause
            assert len(pauses) < 50

    def live(self, seconds):
        """Tick as a worker does that nobody wakes; return what it claimed."""
        before, until = len(self.put), self.now + seconds
        while self.now < until:
            pause, _ = self.tick()
            self.now += min(pause, until - self.now)
        return [job.id for job in self.put[before:]]

    def kinds(self):
        return [look.kind for look in self.looks]


@pytest.fixture
def rig(link, leases, monkeypatch):
    return Rig(link, leases, monkeypatch).serve()


# What a look does --------------------------------------------------------------------


def test_the_first_look_is_at_all_queues(rig, leases):
    """What it finds is leased and put into the buffer, in run order."""
    low, high = make_job(queue="a"), make_job(queue="b", priority=5)

    rig.tick()

    assert [high.pk, low.pk] == [job.id for job in rig.put]
    assert {"a", "b"} == set(rig.looks[0].asked)
    assert {1_000.0} == {held.claimed_at for held in leases.all()}
    assert 2 == len(leases) == Job.objects.running().count()


def test_a_lane_with_a_rate_is_told_of_its_claims(rig, cursor):
    """At once, so that its bucket fills from the claim on."""
    told = []
    rig.claimer.on_paced = told.append
    make_job(lane="a", lane_capacity=100, lane_spacing=60.0, lane_burst=1)
    make_job(lane="b")
    lanes.promote(cursor, ["a", "b"])

    rig.tick()

    assert 2 == len(rig.put)
    assert [{"a"}] == told


def test_a_wake_is_followed_although_enough_waits_to_start(rig):
    """What it announces may have to go first: a few are claimed beyond the capacity."""
    rig.tick()
    make_jobs(5)
    rig.capacity, rig.extra_capacity = 0, 3
    assert (POLL, []) == rig.tick()

    rig.wakes.flag("default")
    rig.tick()

    assert 3 == len(rig.put)


@pytest.fixture
def late_rig(transactional_db, leases, monkeypatch):
    """A rig whose link flushes later, and what it did, in order."""
    link = Link("default", name="tests: late", steady=True, flushes_later=True)
    rig = Rig(link, leases, monkeypatch).serve("default", "a")
    deeds = []
    take, flush = rig.claimer._put, link.flush
    monkeypatch.setattr(
        rig.claimer,
        "_put",
        lambda *claimed: deeds.append("put") or take(*claimed),
    )
    monkeypatch.setattr(link, "flush", lambda: deeds.append("flush") or flush())
    yield rig, deeds
    link.drop()


def test_leases_of_a_few_are_on_disk_right_after_their_jobs_were_handed_over(late_rig):
    """Not before: the jobs need not wait for it."""
    rig, deeds = late_rig
    make_jobs(UNFLUSHED_JOBS_MAX)

    rig.tick()

    assert UNFLUSHED_JOBS_MAX == len(rig.put)
    assert ["put", "flush"] == deeds


def test_leases_of_many_are_on_disk_before_their_jobs_are_handed_over(late_rig):
    """A crash of the server does not have all that were claimed ahead run again."""
    rig, deeds = late_rig
    make_jobs(UNFLUSHED_JOBS_MAX + 1)

    rig.tick()

    assert UNFLUSHED_JOBS_MAX + 1 == len(rig.put)
    assert ["flush", "put"] == deeds


def test_what_cannot_be_made_safe_is_handed_back_and_not_started(late_rig):
    """The server that crashed may have forgotten whose they are."""
    rig, _ = late_rig
    make_jobs(UNFLUSHED_JOBS_MAX + 1)
    rig.claimer.link.flush = Mock(side_effect=psycopg.OperationalError("gone"))

    with pytest.raises(psycopg.OperationalError, match="gone"):
        rig.tick()

    assert [] == rig.put
    assert UNFLUSHED_JOBS_MAX + 1 == len(rig.handed_back)


def test_a_paused_queue_is_left_and_found_again_when_resumed(rig):
    """Within a poll interval, whatever its wakes say."""
    make_job(queue="a")
    make_job(queue="b")
    paused = Queue.objects.create(name="a", paused_at="2026-11-20T00:00:00Z")

    rig.tick()
    rig.wakes.flag("a")
    rig.now += 1
    rig.tick()
    assert ["b"] == [job.queue for job in rig.put]
    assert all("a" not in look.asked for look in rig.looks)

    paused.paused_at = None
    paused.save()
    rig.now += POLL
    rig.tick()
    assert ["b", "a"] == [job.queue for job in rig.put]


# Draining ----------------------------------------------------------------------------


def test_a_drain_starts_at_floors_and_ends_with_a_full_look(rig):
    """A short answer from the floors may have missed what committed below them."""
    make_jobs(5, visible_at=-DAY)
    rig.capacity = 2

    pauses = [rig.tick()[0] for _ in range(4)]

    kinds = ["see", *["claim_from_floors"] * 3, "see"]
    assert kinds == rig.kinds()
    assert [1, 2, 2, 1, 1] == [look.found for look in rig.looks]
    assert pytest.approx([0, 0, 0, RECHECK_SECONDS[0]]) == pauses


def test_what_commits_below_a_floor_is_found_when_the_drain_ends(rig):
    """An older visible_at, of a transaction that took its time."""
    make_jobs(4)
    rig.capacity = 2
    rig.tick()
    late = make_job(visible_at=-DAY)

    for _ in range(4):
        rig.tick()

    assert late.pk in {job.id for job in rig.put}


# Many queues -------------------------------------------------------------------------


def make_queues(count, **columns):
    """Make a job in each of so many queues."""
    Job.objects.bulk_create(
        Job(task="tests.noop", queue=f"q{n:04}", **columns) for n in range(count)
    )


def test_many_queues_are_seen_slice_by_slice(rig):
    """Each once in a round, however many; then it is over until the poll."""
    make_queues(3 * SLICE_QUEUES - 1, visible_at=moments_ahead(DAY))
    rig.tick()
    while rig.claimer.found_since_requested() is None:
        rig.tick()

    slices = [look.asked for look in rig.looks]
    assert [SLICE_QUEUES - 1, SLICE_QUEUES, SLICE_QUEUES] == sorted(map(len, slices))
    assert 3 * SLICE_QUEUES - 1 == len({name for some in slices for name in some})


# Orders and caps ---------------------------------------------------------------------


def test_a_cap_counts_what_this_process_holds(rig, leases):
    """Until it is settled; then the next ones come, at once."""
    make_jobs(6, queue="a")
    make_jobs(3, queue="b")
    rig.serve("a:2", "b")
    for _ in range(6):
        rig.tick()
    assert ["a", "a", "b", "b", "b"] == sorted(job.queue for job in rig.put)

    for job in [job for job in rig.put if job.queue == "a"]:
        leases.drop(job)
    pause, _ = rig.tick()
    assert 7 == len(rig.put)
    assert pause <= CAP_SECONDS_MAX


# Running dry -------------------------------------------------------------------------


def test_a_retry_of_ours_is_looked_for_when_it_is_due(rig):
    """Nobody will notify us of it."""
    rig.run_dry()
    rig.now += 0.1
    rig.claimer.wake.clear()

    rig.claimer.retry_in(3_600)
    assert not rig.claimer.wake.is_set()
    rig.claimer.retry_in(1.5)
    assert rig.claimer.wake.is_set()
    assert pytest.approx(1.5) == rig.tick()[0]


# Nothing is left to the poll ---------------------------------------------------------


# Wakes and the poll ------------------------------------------------------------------


def test_empty_wakes_back_off(rig):
    """Ten seconds of 10 000 foreign notifications a second cost few claims."""
    make_job(queue="a", visible_at=DAY)
    rig.run_dry()
    rig.looks.clear()
    end = rig.now + 10
    while rig.now < end:
        rig.wakes.flag("a")
        rig.tick()
        rig.now += 0.001

    assert 10 / EMPTY_WAKE_SECONDS_MAX <= len(rig.looks) < 150


def test_a_wake_that_was_taken_in_a_look_that_failed_is_not_lost(rig):
    """The next look is at everything, without floors."""
    make_job(queue="a", visible_at=DAY)
    make_job(queue="b", visible_at=DAY)
    rig.run_dry()
    job = make_job(queue="a")
    rig.wakes.flag("a")
    rig.fails = psycopg.OperationalError("cut off")
    with pytest.raises(psycopg.OperationalError):
        rig.tick()

    _, (look, _) = rig.tick()

    assert ("see", {"a", "b"}) == (look.kind, set(look.asked))
    assert [job.pk] == [claimed.id for claimed in rig.put]


# Dear looks --------------------------------------------------------------------------


def test_dear_looks_are_rationed_and_wakes_served_from_the_floors(rig):
    """A tenth of the loop's time, while vacuum is held back."""
    for _ in range(DEAR_LOOKS):
        make_job()
        rig.look_dear(10 * DEAR_SECONDS, 1)
    free_at = rig.now + 10 * DEAR_SECONDS * RATION
    job = make_job()
    rig.wakes.flag("default")
    rig.now += 0.01

    rig.tick()

    assert ["claim_from_floors"] == rig.kinds()
    assert job.pk == rig.put[-1].id
    while rig.now < free_at - 0.02:
        rig.wakes.flag("default")
        rig.tick()
        rig.now += 0.01
    assert {"claim_from_floors"} == set(rig.kinds())
    rig.now = free_at + 0.01
    rig.tick()
    assert "see" in rig.kinds()


# Being asked -------------------------------------------------------------------------


# Two kinds of capacity ---------------------------------------------------------------


@pytest.fixture
def two(rig):
    """A rig whose queue "calls" has shown an async job, and "default" a sync one."""
    rig.async_tasks.add("call")
    make_job(queue="calls", task="call")
    make_job()
    rig.tick()
    rig.run_dry()
    rig.looks.clear()
    rig.put.clear()
    return rig


def make_calls(count, **fields):
    return [make_job(queue="calls", task="call", **fields) for _ in range(count)]


def test_a_queue_of_async_jobs_alone_is_claimed_for_coroutines(two):
    """As many as those have capacity for; threads do not matter."""
    calls = make_calls(30)
    make_jobs(30)
    two.capacity, two.async_capacity = 2, 20
    two.wakes.flag("calls")
    two.wakes.flag("default")

    two.tick()

    asked = {tuple(look.asked): (look.limit, look.found) for look in two.looks}
    assert {("default",): (2, 2), ("calls",): (20, 20)} == asked
    assert {job.pk for job in calls[:20]} < {job.id for job in two.put}


def test_a_mixed_queue_waits_while_no_coroutine_could_start(two):
    """Others do not; and it is looked at as soon as one could."""
    make_job(queue="calls")
    two.wakes.flag("calls")
    two.tick()
    two.looks.clear()
    late = make_calls(1)[0]
    two.async_capacity = 0
    two.wakes.flag("calls")
    make_job()
    two.wakes.flag("default")
    for _ in range(5):
        two.tick()
        two.now += 0.3
    assert all("calls" not in look.asked for look in two.looks)

    two.async_capacity = 1
    two.tick()

    assert late.pk == two.put[-1].id


# After an outage ---------------------------------------------------------------------

LEASE_SECONDS = 60.0


def lapse(*jobs):
    """Let leases run out by the database's clock."""
    past = timezone.now() - timedelta(seconds=1)
    Job.objects.filter(pk__in=[job.pk for job in jobs]).update(visible_at=past)


def test_what_runs_here_is_renewed_before_anything_is_claimed(rig, leases):
    """A lease that ran out while the database was away is not taken by its worker."""
    running = make_job()
    rig.tick()
    (job,) = rig.put
    rig.now += LEASE_SECONDS + 1
    lapse(running)
    other = make_job()

    rig.claimer.look_now()
    rig.tick()

    assert [running.pk, other.pk] == [job.id for job in rig.put]
    running.refresh_from_db()
    assert (1, 0) == (running.deliveries, running.crashes)
    assert running.visible_at > timezone.now()
    assert rig.now + LEASE_SECONDS == leases.get(job).valid_until


def test_a_row_that_is_locked_meanwhile_is_not_claimed_either(
    rig, leases, other_cursor
):
    """It could be free again between the renewal and the claim."""
    running = make_job()
    rig.tick()
    rig.now += LEASE_SECONDS + 1
    lapse(running)
    with other_cursor.connection.transaction():
        other_cursor.execute("SELECT id FROM pgqueue_job FOR UPDATE")
        rig.claimer.look_now()
        rig.tick()

    # Free, and not asked for again yet.
    rig.claimer.look_now()
    rig.tick()
    running.refresh_from_db()
    assert 1 == running.deliveries
    rig.now += ASK_AGAIN_SECONDS
    rig.claimer.look_now()
    rig.tick()

    running.refresh_from_db()
    assert (1, 1) == (running.deliveries, len(rig.put))
    assert running.visible_at > timezone.now()


def test_a_job_that_was_lost_is_claimed_again_when_it_has_ended_here(rig, leases):
    """Another worker took it and died, while its first run goes on here."""
    make_job()
    rig.tick()
    (job,) = rig.put
    leases.lose(leases.get(job))
    Job.objects.update(
        leased_by=None, deliveries=2, visible_at=timezone.now() - timedelta(seconds=1)
    )
    rig.claimer.look_now()
    rig.tick()
    assert 1 == len(rig.put)

    leases.drop(job)
    rig.now += HELD_SECONDS_MAX
    rig.claimer.look_now()
    rig.tick()

    assert [(job.id, 1), (job.id, 3)] == [(job.id, job.delivery) for job in rig.put]


def test_what_is_claimed_and_still_runs_here_is_handed_back(rig, leases):
    """The process was stopped right before its claim was sent."""
    make_jobs(2)
    rig.tick()
    first, second = rig.put
    Job.objects.filter(pk=first.id).update(
        leased_by=None, visible_at=timezone.now() - timedelta(seconds=1)
    )
    rig.claimer.look_now()
    rig.tick()

    assert [first, second] == rig.put
    assert [(first.id, 2)] == [(job.id, job.delivery) for job in rig.handed_back]
    assert leases.get(first).is_lost
    # Until it is back, and as long as it runs here, no claim brings it.
    Job.objects.filter(pk=first.id).update(
        leased_by=None, visible_at=timezone.now() - timedelta(seconds=1)
    )
    rig.claimer.look_now()
    rig.tick()
    assert 1 == len(rig.handed_back)


# The lost answer ---------------------------------------------------------------------


@pytest.fixture
def lossy(transactional_db, leases, monkeypatch):
    """A rig whose claims are committed as they are answered; and its link."""
    link = Link("default", name="tests: lossy", steady=True)
    yield Rig(link, leases, monkeypatch).serve(), link
    link.drop()


def lose_answer(monkeypatch, link, name="claim_from_floors"):
    """Let the next claim be committed, and its answer be lost with the connection."""
    real, is_first = getattr(claims, name), [True]

    def claim(cursor, **options):
        jobs = real(cursor, **options)
        if jobs and is_first:
            is_first.clear()
            link.drop()
            raise psycopg.OperationalError("server closed the connection unexpectedly")
        return jobs

    monkeypatch.setattr(claims, name, claim)


def test_jobs_of_a_claim_without_an_answer_are_handed_back(lossy, monkeypatch):
    """As if never claimed: no crash, and no lease that nobody works off."""
    ids = make_jobs(3)
    rig, link = lossy
    lose_answer(monkeypatch, link)
    with pytest.raises(psycopg.OperationalError, match="closed the connection"):
        rig.tick()
    assert 3 == Job.objects.running().count()

    rig.tick()

    assert sorted(ids) == sorted(job.id for job in rig.put)
    assert {(2, 1, 0)} == {(job.delivery, job.attempt, job.crashes) for job in rig.put}


def test_a_statement_that_commits_late_is_looked_after(rig):
    """A dead client's claim may still be under way: again and again, for a lease."""
    rig.strays.note()
    looks = []
    pauses = []
    while rig.strays.is_pending:
        pause, _ = rig.tick()
        if rig.now == 1_000.0:
            # It has just committed.
            make_job(
                leased_by=WORKER,
                deliveries=1,
                attempt=1,
                visible_at=timedelta(seconds=30),
            )
        looks.append(rig.now)
        pauses.append(pause)
        rig.now += max(min(rig.strays.due_at - rig.now, 1_000), 0.001)

    assert [0, 1, 3, 7, 15, 31, 63] == [round(at - 1_000.0) for at in looks]
    assert [1, 1] == [job.attempt for job in (*rig.put, Job.objects.get())]
    assert all(pause <= 2**n for n, pause in enumerate(pauses))


def test_a_worker_that_stops_hands_back_what_it_never_heard_of(lossy, monkeypatch):
    """Now, and once more when the claim is a second old: nobody comes after it."""
    make_jobs(3)
    rig, link = lossy
    lose_answer(monkeypatch, link)
    with pytest.raises(psycopg.OperationalError, match="closed the connection"):
        rig.tick()
    slept = []
    monkeypatch.setattr(strays.time, "sleep", slept.append, raising=False)

    rig.claimer._end()

    assert {None} == set(Job.objects.values_list("leased_by", flat=True))
    assert ([1.0], False) == (slept, rig.strays.is_pending)


# Statements that take too long -------------------------------------------------------


def test_a_claim_that_is_cancelled_for_its_time_takes_fewer_jobs(rig, monkeypatch):
    """The role has a statement_timeout: half as many, until they are quick enough."""
    make_jobs(40)
    rig.capacity = 32
    asked = []
    real = claims.claim_from_floors

    def claim_from_floors(cursor, *, limit, **options):
        asked.append(limit)
        if limit > 5:
            raise psycopg.errors.QueryCanceled("statement timeout")
        return real(cursor, limit=limit, **options)

    monkeypatch.setattr(claims, "claim_from_floors", claim_from_floors)
    for _ in range(3):
        with pytest.raises(psycopg.errors.QueryCanceled, match="statement timeout"):
            rig.tick()
    rig.tick()

    assert [32, 16, 8, 4] == asked[:4]
    assert len(rig.put) >= 4
    assert not rig.strays.is_pending
