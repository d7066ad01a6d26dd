"""Claimer: when it looks, where, and for how many. Ticked by hand, on its own clock."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from unittest.mock import Mock

import psycopg
import pytest
from django.utils import timezone

from django_pgqueue.conf import parse
from django_pgqueue.models import Job, Lane, Queue
from django_pgqueue.models.columns import CLOCK
from django_pgqueue.postgres.connect import Link
from django_pgqueue.queues import claim as claims
from django_pgqueue.worker.claim import claimer as module
from django_pgqueue.worker.claim import floors, poller, rations, strays
from django_pgqueue.worker.claim.capacity import (
    MEMORY_JOBS,
    QUEUES_MAX,
    Capacity,
    QueueMix,
)
from django_pgqueue.worker.claim.claimer import (
    EXTRA_SECONDS,
    UNFLUSHED_JOBS_MAX,
    Claimer,
)
from django_pgqueue.worker.claim.floors import EXPECTED_MAX
from django_pgqueue.worker.claim.listener import Wakes
from django_pgqueue.worker.claim.poller import (
    CAP_SECONDS_MAX,
    EMPTY_WAKE_SECONDS_MAX,
    EMPTY_WAKES_FREE,
    HELD_SECONDS_MAX,
    RECHECK_SECONDS,
    SHARE_SECONDS,
    SLICE_QUEUES,
    SLICES_SECONDS,
)
from django_pgqueue.worker.claim.rations import DEAR_LOOKS, DEAR_SECONDS, RATION
from django_pgqueue.worker.claim.strays import Strays
from django_pgqueue.worker.lease import renewal
from django_pgqueue.worker.lease.renewal import ASK_AGAIN_SECONDS, Renewal
from django_pgqueue.worker.options import WorkerOptions
from tests.harness.factories import make_job, make_jobs
from tests.harness.waiting import wait_for
from tests.worker.conftest import WORKER

DAY = timedelta(days=1)
POLL = 5.0

# From one re-check to the next.
RECHECK_PAUSES = [0.015, 0.06, 0.25]


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
        self.strays = Strays(leases, worker=WORKER)
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
        for other in (floors, rations, renewal, strays):
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
            worker=WORKER,
            options=options,
            wakes=Wakes(options.plan, SimpleNamespace(set=lambda: None)),
            leases=self._leases,
            renewal=Renewal(self._leases, worker=WORKER),
            strays=self.strays,
            hand_back=self.handed_back.extend,
            mix=self.shown,
            capacity=lambda: Capacity(self.capacity, self.async_capacity),
            extra_capacity=lambda: self.extra_capacity,
            put=self._take,
        )
        self.wakes = self.claimer._wakes
        return self

    def _take(self, jobs, *, for_coroutines):
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


def test_without_capacity_nothing_is_asked(rig):
    """The executor says when there is some."""
    make_job()
    rig.capacity = 0

    assert (POLL, []) == rig.tick()
    assert not rig.claimer.link.is_open
    rig.capacity = 1
    assert 1 == rig.tick()[1][0].found


def test_a_wake_is_followed_although_enough_waits_to_start(rig):
    """What it announces may have to go first: a few are claimed beyond the capacity."""
    rig.tick()
    make_jobs(5)
    rig.capacity, rig.extra_capacity = 0, 3
    assert (POLL, []) == rig.tick()

    rig.wakes.flag("default")
    rig.tick()

    assert 3 == len(rig.put)


def test_wakes_are_followed_so_at_most_once_in_ten_milliseconds(rig):
    """A stream of them costs a hundred small claims a second."""
    rig.tick()
    make_jobs(5)
    rig.capacity, rig.extra_capacity = 0, 1
    for at, claimed in [(0, 1), (0.004, 1), (0.0099, 1), (0.0101, 2), (0.011, 2)]:
        rig.now = 2_000.0 + at
        rig.wakes.flag("default")
        pause, _ = rig.tick()
        assert claimed == len(rig.put), at

    assert 0 < pause < EXTRA_SECONDS == 0.01


def test_a_wake_waits_while_nothing_flows(rig):
    """Long jobs fill the threads: the flag is kept for when there is capacity."""
    rig.tick()
    make_jobs(1)
    rig.capacity = rig.extra_capacity = 0
    rig.wakes.flag("default")
    assert (POLL, []) == rig.tick()

    rig.capacity, rig.now = 1, rig.now + 0.02
    rig.tick()

    assert 1 == len(rig.put)


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
        lambda jobs, **kind: deeds.append("put") or take(jobs, **kind),
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


def test_a_look_that_claims_nothing_flushes_nothing(late_rig):
    """An idle worker writes nothing."""
    rig, deeds = late_rig

    rig.run_dry()
    rig.wakes.flag("default")
    rig.tick()

    assert {"put"} == set(deeds)


def test_leases_are_on_disk_before_the_next_look_though_there_is_no_pause(late_rig):
    """Bands that have more, or a round over many queues, keep none waiting for it."""
    rig, deeds = late_rig
    make_jobs(100)
    rig.capacity = 2

    pauses = [rig.tick()[0] for _ in range(3)]

    assert [0, 0, 0] == pauses
    assert ["put", "flush"] * 3 == deeds


def test_looks_of_one_round_start_no_more_than_a_few_unflushed(late_rig):
    """What one brings for threads counts with what the other brings for coroutines."""
    rig, deeds = late_rig
    rig.async_tasks.add("call")
    rig.shown.note("a", is_async=True)
    make_jobs(UNFLUSHED_JOBS_MAX)
    make_job(queue="a", task="call")

    rig.tick()

    assert ["put", "flush", "put"] == deeds


def test_no_more_is_claimed_than_can_start(rig):
    """The rest stays for others."""
    make_jobs(5)
    rig.capacity = 2

    rig.tick()

    assert 2 == len(rig.put) == Job.objects.running().count()


def test_a_worker_of_named_queues_asks_for_those_alone(rig):
    """In the order in which they were named."""
    make_job(queue="other")
    rig.serve("mail", "reports")

    rig.tick()

    assert ["mail", "reports"] == sorted(rig.looks[0].asked)
    assert [] == rig.put


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


def test_queues_take_turns_at_being_first(rig):
    """Where the limit is short, who is first is served first."""
    for queue in "abc":
        make_jobs(4, queue=queue)
    rig.capacity = 1

    for _ in range(6):
        rig.claimer.look_now()
        rig.tick()

    assert sorted("abcabc") == sorted(job.queue for job in rig.put)


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


def test_a_drain_after_a_wake_ends_with_a_full_look_too(rig):
    """At once, not when the next look had been due."""
    rig.run_dry()
    make_jobs(5)
    rig.capacity = 2
    rig.wakes.flag("default")
    rig.looks.clear()
    for _ in range(3):
        rig.tick()
    assert ["claim", "see", *["claim_from_floors"] * 2] == rig.kinds()
    assert 1 == rig.looks[-1].found
    make_job(visible_at=-DAY)

    rig.tick()

    assert ["see", "claim_from_floors"] == rig.kinds()[4:]
    assert 6 == len(rig.put)


def test_a_floor_is_the_latest_time_that_was_claimed(rig):
    """Of its own band."""
    times = [-timedelta(hours=3), -timedelta(hours=2), -timedelta(hours=1)]
    jobs = [make_job(visible_at=at) for at in times]
    rig.capacity = 2
    rig.tick()
    rig.tick()

    (band,) = rig.looks[2].asked
    assert ("default", 0, jobs[1].visible_at, 2) == band
    assert 1 == rig.looks[2].found


def test_what_commits_below_a_floor_is_found_when_the_drain_ends(rig):
    """An older visible_at, of a transaction that took its time."""
    make_jobs(4)
    rig.capacity = 2
    rig.tick()
    late = make_job(visible_at=-DAY)

    for _ in range(4):
        rig.tick()

    assert late.pk in {job.id for job in rig.put}


def test_lines_of_equal_priority_share_a_drain(rig):
    """A second queue that fills up meanwhile is not kept waiting for the first."""
    make_jobs(60, queue="deep")
    rig.capacity = 1
    rig.tick()
    make_jobs(60, queue="second")
    rig.wakes.flag("second")

    for _ in range(40):
        rig.now += SHARE_SECONDS / 5
        rig.tick()

    served = [job.queue for job in rig.put]
    assert served.count("second") > 10
    assert served.count("deep") > 10


def test_a_wake_in_the_middle_of_a_drain_is_heard(rig):
    """It may be for a job of higher priority."""
    make_jobs(10)
    rig.capacity = 2
    rig.tick()
    urgent = make_job(priority=50)
    rig.wakes.flag("default")

    rig.tick()

    assert urgent.pk == rig.put[2].id


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


def test_a_slice_that_takes_long_is_the_last_one_of_its_tick(rig):
    """Jobs are claimed between slices, so that nobody waits for the whole round."""
    make_queues(3 * SLICE_QUEUES)
    rig.takes = 2 * SLICES_SECONDS

    _, looks = rig.tick()

    assert ["see", "claim_from_floors"] == [look.kind for look in looks]
    assert 10 == len(rig.put)


def test_a_claim_takes_from_no_more_bands_than_there_is_capacity_for(rig):
    """So its cost is that of its rows."""
    make_queues(2 * SLICE_QUEUES)
    rig.capacity = 10

    rig.tick()

    (look,) = [look for look in rig.looks if look.kind == "claim_from_floors"]
    assert [1] * 10 == [band.limit for band in look.asked]


def test_a_wake_beside_many_queues_is_served_in_one_look(rig):
    """By its name: no round comes before it."""
    make_queues(5 * SLICE_QUEUES, visible_at=moments_ahead(DAY))
    rig.run_dry()
    job = make_job(queue="q0007")
    rig.wakes.flag("q0007")

    _, looks = rig.tick()

    assert [("claim", ["q0007"])] == [(look.kind, look.asked) for look in looks]
    assert [job.pk] == [claimed.id for claimed in rig.put]


def test_the_highest_priority_of_many_queues_is_found_within_a_round(rig):
    """Whichever slice it is in, and though others fill all capacity."""
    make_queues(4 * SLICE_QUEUES)
    urgent = make_job(queue="q0001", priority=9)
    rig.capacity = 1

    for _ in range(5):
        rig.tick()

    assert urgent.pk in {job.id for job in rig.put}


# Orders and caps ---------------------------------------------------------------------


def test_in_strict_order_a_claim_is_in_the_order_of_its_queues(rig):
    """Also where it brings jobs of several."""
    rig.serve("a", "b", order="strict")
    b = make_job(queue="b", priority=50)
    low, high = make_job(queue="a", priority=-1), make_job(queue="a", priority=1)

    for _ in range(3):
        rig.tick()

    assert [high.pk, low.pk, b.pk] == [job.id for job in rig.put]


def test_in_strict_order_what_a_cap_lets_in_beside_comes_after(rig):
    """One claim of two queues, though the later has the higher priority."""
    rig.serve("a:1", "b", order="strict")
    (b,) = make_jobs(1, queue="b", priority=50)
    a = make_jobs(2, queue="a")

    rig.tick()

    assert [a[0], b] == [job.id for job in rig.put]


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


def test_a_cap_counts_tasks_that_go_on_after_their_settle(rig, leases):
    """They run, though they have no lease any more."""
    make_jobs(3, queue="a")
    rig.serve("a:1")
    rig.tick()
    (job,) = rig.put
    leases.goes_on(job)
    leases.drop(job)

    rig.now += CAP_SECONDS_MAX
    rig.tick()
    assert 1 == len(rig.put)

    leases.ended(job)
    rig.now += CAP_SECONDS_MAX
    rig.tick()
    assert 2 == len(rig.put)


def test_waiting_for_a_cap_asks_the_database_nothing(rig):
    """
    Only what this process holds is counted, ten times a second. After a claim, others
    are looked at some times, and then no more before the poll.
    """
    make_jobs(3, queue="a")
    rig.serve("a:1")
    until = rig.now + 1
    while rig.now < until:
        rig.now += rig.tick()[0] + 0.001
    rig.looks.clear()

    pauses = []
    while sum(pauses) < 2.5 * POLL:
        pauses.append(rig.tick()[0])
        rig.now += pauses[-1]

    # The poll, for what else may have come.
    assert ["see", "see"] == rig.kinds()
    assert pauses[-1] == pytest.approx(CAP_SECONDS_MAX)


def test_a_queue_beside_a_cap_is_looked_at_again_after_it_ran_dry(rig):
    """What coalesced wakes leave out does not wait for the poll."""
    make_jobs(3, queue="a")
    make_job(queue="b")
    rig.serve("a:1", "b")
    for _ in range(10):
        rig.tick()
    assert ["a", "b"] == sorted(job.queue for job in rig.put)

    make_job(queue="b")  # Nobody says so.
    until = rig.now + 2 * SHARE_SECONDS
    while rig.now < until:
        rig.now += rig.tick()[0] + 0.001

    assert ["a", "b", "b"] == sorted(job.queue for job in rig.put)


def test_a_wake_for_a_queue_with_a_cap_brings_no_more_than_that(rig):
    """In one statement, when it is the only one."""
    rig.serve("a:2", "b")
    rig.run_dry()
    make_jobs(5, queue="a")
    rig.wakes.flag("a")

    _, looks = rig.tick()

    assert [("claim", 2)] == [(look.kind, look.limit) for look in looks]
    assert 2 == len(rig.put)


def test_several_queues_woken_at_once_keep_to_the_order(rig):
    """They are seen first, where priorities are not what decides."""
    rig.serve("a", "b", order="strict")
    rig.run_dry()
    rig.looks.clear()
    rig.capacity = 2
    make_jobs(2, queue="b", priority=50)
    make_jobs(2, queue="a")
    rig.wakes.flag("b")
    rig.wakes.flag("a")

    rig.tick()

    assert ["see", "claim_from_floors"] == rig.kinds()
    assert ["a", "a"] == [job.queue for job in rig.put]


def test_a_scheduled_job_is_not_put_off_by_a_stream_of_wakes(rig):
    """Its time is known, and kept."""
    make_job(queue="b", visible_at=timedelta(seconds=0.6))
    rig.run_dry()
    wait_for(Job.objects.due().exists, what="it is due")
    until = rig.now + 0.7
    while rig.now < until:
        make_job(queue="a")
        rig.wakes.flag("a")
        rig.tick()
        rig.now += 0.01

    assert "b" in {job.queue for job in rig.put}


# Running dry -------------------------------------------------------------------------


def test_after_running_dry_it_looks_three_times_and_then_waits_for_the_poll(rig):
    """What coalesced wakes and crashes before a NOTIFY leave out is found."""
    pauses = rig.run_dry()

    assert [*RECHECK_PAUSES, POLL] == pytest.approx(pauses, abs=0.4)
    assert (0.015, 0.075, 0.325) == RECHECK_SECONDS
    # A queue that nobody has named is not asked about.
    assert [] == rig.looks
    assert pytest.approx(RECHECK_PAUSES) == pauses[:3]


def test_rechecks_begin_anew_after_every_job(rig):
    """Its like may be on its way."""
    make_job()
    rig.run_dry()
    make_job()
    rig.wakes.flag("default")
    rig.now += 1

    assert pytest.approx(RECHECK_PAUSES) == rig.run_dry()[:3]


def test_a_job_is_waited_for_to_its_time(rig):
    """Not until the poll."""
    make_job(visible_at=timedelta(seconds=2))

    pauses = rig.run_dry()

    assert 1.0 < pauses[-1] <= 2.001


def test_a_job_far_away_is_not_waited_for_beyond_the_poll(rig):
    """The poll comes first."""
    make_job(visible_at=DAY)

    assert POLL >= rig.run_dry()[-1] > POLL - 0.5


def test_a_row_that_somebody_holds_is_looked_for_again(rig, other_cursor):
    """A claim that rolls back gives it back, and nobody notifies."""
    make_job()
    with other_cursor.connection.transaction():
        other_cursor.execute("SELECT id FROM pgqueue_job FOR UPDATE")
        for _ in range(10):
            pause, _ = rig.tick()
            assert pause <= HELD_SECONDS_MAX
            rig.now += pause
    assert [] == rig.put

    rig.tick()

    assert 1 == len(rig.put)


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


def test_a_retry_that_is_committed_during_the_last_look_is_waited_for(rig):
    """The look's snapshot is older than it, and no other look would come."""
    make_job(visible_at=DAY)
    rig.run_dry()
    retried = []

    def retry():
        retried.append(make_job().pk)
        rig.claimer.retry_in(0.1)

    rig.now += POLL
    rig.meanwhile = retry

    assert retried == rig.live(0.2)


# Nothing is left to the poll ---------------------------------------------------------


def test_a_queue_that_is_empty_for_a_moment_stays_known(rig):
    """Its next job may come without a wake, while another queue is met."""
    rig.run_dry()
    make_job(queue="a")
    rig.wakes.flag("a")
    rig.tick()
    Job.objects.all().delete()  # It is done.
    make_job(queue="brand-new")
    rig.wakes.flag("brand-new")
    rig.tick()

    unannounced = make_job(queue="a")

    assert [unannounced.pk] == rig.live(0.1)


def test_a_queue_whose_job_another_worker_took_stays_known(rig):
    """Its wake was all that this worker has seen of it."""
    rig.run_dry()
    rig.wakes.flag("a")
    rig.tick()
    make_job(queue="brand-new")
    rig.wakes.flag("brand-new")
    rig.tick()

    unannounced = make_job(queue="a")

    assert [unannounced.pk] == rig.live(0.1)


def test_a_queue_is_forgotten_some_time_after_its_last_job(rig):
    """So rounds do not look at all that there has ever been."""
    make_job(queue="a")
    rig.run_dry()
    assert ["a"] == rig.claimer.queues
    Job.objects.all().delete()

    rig.live(2 * POLL)

    assert [] == rig.claimer.queues


def test_made_up_names_are_known_up_to_a_limit(rig, monkeypatch):
    """Beyond it rounds ask which queues there are, instead of remembering."""
    monkeypatch.setattr(module, "EMPTY_QUEUES_MAX", 5)
    rig.run_dry()
    for number in range(30):
        rig.wakes.flag(f"noise{number}")
        rig.tick()
        rig.now += 0.001
    assert len(rig.claimer.queues) <= 5
    rig.wakes.flag("a")
    rig.now += EMPTY_WAKE_SECONDS_MAX
    rig.tick()

    unannounced = make_job(queue="a")

    assert [unannounced.pk] == rig.live(0.1)


def test_a_round_over_several_ticks_is_followed_by_others(rig):
    """Though what it found was claimed in an earlier tick than its last."""
    make_queues(3 * SLICE_QUEUES, visible_at=moments_ahead(DAY))
    rig.run_dry()
    make_job(queue=rig.claimer.queues[-1])
    rig.takes = 1.2 * SLICES_SECONDS
    rig.claimer.look_now()
    while rig.claimer.found_since_requested() is None:
        rig.tick()
    assert 1 == rig.claimer.found_since_requested()

    unannounced = make_job(queue="q0001")

    assert [unannounced.pk] == rig.live(0.3)


def test_a_reconnect_in_the_midst_of_a_round_is_followed_by_another(rig):
    """What was notified meanwhile may be in a queue that this one has seen already."""
    make_queues(3 * SLICE_QUEUES, visible_at=moments_ahead(DAY))
    rig.run_dry()
    rig.now += POLL
    rig.takes = 1.2 * SLICES_SECONDS
    rig.tick()
    missed = make_job(queue=rig.looks[-1].asked[0])

    rig.wakes.flag_any()

    assert [missed.pk] == rig.live(0.1)


def test_a_look_that_failed_is_followed_by_others(rig):
    """The wake that it has lost may have stood for jobs that come without one."""
    make_job(queue="a", visible_at=DAY)
    rig.run_dry()
    rig.wakes.flag("a")
    rig.fails = psycopg.OperationalError("cut off")
    with pytest.raises(psycopg.OperationalError):
        rig.tick()
    rig.tick()

    unannounced = make_job(queue="a")

    assert [unannounced.pk] == rig.live(0.1)


def test_no_stream_of_wakes_puts_off_what_was_left_out(rig):
    """A job whose wake was left out is found while others come, and not after them."""
    make_job(queue="b", visible_at=DAY)
    rig.run_dry()
    unannounced = make_job(queue="b")
    for _ in range(20):
        make_job(queue="a")
        rig.wakes.flag("a")
        rig.tick()
        rig.now += 0.005

    assert unannounced.pk in {job.id for job in rig.put}


# Wakes and the poll ------------------------------------------------------------------


def test_a_wake_asks_for_its_queue_alone(rig):
    """The others have not said anything."""
    make_job(queue="a", visible_at=DAY)
    make_job(queue="b", visible_at=DAY)
    rig.run_dry()
    job = make_job(queue="b")
    rig.wakes.flag("b")

    _, looks = rig.tick()

    assert [["b"]] == [look.asked for look in looks]
    assert [job.pk] == [claimed.id for claimed in rig.put]


def test_a_worker_of_all_queues_learns_a_new_one_from_its_wake(rig):
    """And makes its row."""
    rig.run_dry()
    make_job(queue="brand-new")
    rig.wakes.flag("brand-new")

    rig.tick()

    assert ["brand-new"] == [job.queue for job in rig.put]
    assert Queue.objects.filter(name="brand-new").exists()


def test_no_stream_of_wakes_starves_the_poll(rig):
    """All queues are looked at once in every poll interval."""
    make_job(queue="a", visible_at=DAY)
    make_job(queue="b", visible_at=DAY)
    rig.run_dry()
    rig.looks.clear()
    at = []
    while rig.now < 1_060:
        rig.wakes.flag("a")
        pause, looks = rig.tick()
        at += [rig.now for look in looks if "b" in look.asked]
        rig.now += min(pause, 0.01) or 0.001

    gaps = [later - earlier for earlier, later in itertools.pairwise(at)]
    assert 10 <= len(at)
    assert max(gaps) < POLL + 0.1


def test_no_stream_of_jobs_starves_the_poll(rig):
    """A queue that keeps us busy does not hide one that nobody woke us for."""
    make_job(queue="a", visible_at=DAY)
    make_job(queue="b", visible_at=DAY)
    rig.run_dry()
    unannounced = make_job(queue="b")
    for _ in range(12):
        make_job(queue="a")
        rig.wakes.flag("a")
        rig.tick()
        rig.now += 0.5

    assert unannounced.pk in {job.id for job in rig.put}


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


def test_a_flood_of_names_costs_few_looks(rig):
    """A wake a millisecond, each with more names than one look sees, for a second."""
    make_job(queue="a", visible_at=DAY)
    rig.run_dry()
    rig.looks.clear()

    for flood in range(1_000):
        for name in range(SLICE_QUEUES + 1):
            rig.wakes.flag(f"made-up-{flood}-{name}")
        rig.tick()
        rig.now += 0.001

    assert 1 <= len(rig.looks) < 60


def test_a_few_empty_wakes_put_off_no_other(rig):
    """Another worker has taken what they told of; the next job is for this one."""
    make_job(queue="a", visible_at=DAY)
    rig.run_dry()
    for _ in range(EMPTY_WAKES_FREE):
        rig.wakes.flag("a")
        rig.tick()
        rig.now += 0.002
    job = make_job(queue="a")
    rig.wakes.flag("a")

    rig.tick()

    assert [job.pk] == [claimed.id for claimed in rig.put]


def test_a_wake_that_finds_a_job_ends_the_back_off(rig):
    """The next one is served at once."""
    make_job(queue="a", visible_at=DAY)
    rig.run_dry()
    for _ in range(2 * EMPTY_WAKES_FREE):
        rig.wakes.flag("a")
        rig.tick()
        rig.now += EMPTY_WAKE_SECONDS_MAX
    make_job(queue="a")
    rig.wakes.flag("a")
    rig.tick()
    assert 1 == len(rig.put)
    make_job(queue="a")
    rig.wakes.flag("a")

    rig.tick()

    assert 2 == len(rig.put)


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


def test_a_dear_look_that_finds_nothing_keeps_the_floors(rig):
    """Else the wakes of the ration would wait for its end."""
    make_job()
    rig.look_dear(10 * DEAR_SECONDS, DEAR_LOOKS)
    job = make_job()
    rig.wakes.flag("default")
    rig.now += 0.01

    rig.tick()

    assert ["claim_from_floors"] == rig.kinds()
    assert job.pk == rig.put[-1].id


@pytest.mark.parametrize(
    "seconds, times", [(DEAR_SECONDS / 2, 10), (10 * DEAR_SECONDS, DEAR_LOOKS - 1)]
)
def test_cheap_looks_and_a_few_dear_ones_are_not_rationed(rig, seconds, times):
    """One may have waited for a lock, or for a busy processor."""
    make_job(visible_at=DAY)
    rig.look_dear(seconds, times)
    make_job()
    rig.wakes.flag("default")

    rig.tick()

    assert ["claim"] == rig.kinds()
    assert 1 == len(rig.put)


def test_a_cheap_look_ends_the_ration(rig):
    """The next dear one is the first again."""
    make_job(visible_at=DAY)
    rig.look_dear(10 * DEAR_SECONDS, DEAR_LOOKS)
    rig.now += POLL
    rig.look_dear(0.0, 1)
    rig.look_dear(10 * DEAR_SECONDS, 1)
    make_job()
    rig.wakes.flag("default")

    rig.tick()

    assert ["claim"] == rig.kinds()


def test_however_dear_there_is_a_full_look_in_a_poll_interval(rig):
    """A tenth of the time would be less."""
    make_job(visible_at=DAY)
    rig.look_dear(3.0, DEAR_LOOKS)
    rig.now += POLL - 0.1
    rig.tick()
    assert [] == rig.looks

    rig.now += 0.2
    rig.tick()

    assert ["see"] == rig.kinds()


def test_a_rationed_wake_brings_a_job_of_a_priority_that_was_never_met(rig):
    """All bands that its queue could have are looked at, from the last look on."""
    make_job(visible_at=DAY)
    rig.look_dear(10 * DEAR_SECONDS, DEAR_LOOKS)
    job = make_job(priority=77)
    rig.wakes.flag("default")

    rig.tick()

    assert {"claim_from_floors"} == set(rig.kinds())
    assert [job.pk] == [claimed.id for claimed in rig.put]


def test_a_rationed_wake_brings_what_was_committed_a_little_late(rig):
    """Floors are taken with a margin then."""
    make_job()
    rig.look_dear(10 * DEAR_SECONDS, DEAR_LOOKS)
    late = make_job(visible_at=-timedelta(seconds=0.5))
    rig.wakes.flag("default")

    rig.tick()

    assert [late.pk] == [claimed.id for claimed in rig.put[1:]]


def test_a_wake_for_a_cheap_queue_is_not_rationed(rig):
    """Only those that were looked at beside what is dear."""
    make_job(visible_at=DAY)
    rig.look_dear(10 * DEAR_SECONDS, DEAR_LOOKS)
    job = make_job(queue="other")
    rig.wakes.flag("other")

    rig.tick()

    assert ["claim"] == rig.kinds()
    assert [job.pk] == [claimed.id for claimed in rig.put]


def test_a_job_that_falls_due_during_a_ration_starts_at_its_time(rig):
    """From the floor of its band, since nobody wakes us for it."""
    job = make_job(visible_at=DAY)
    rig.look_dear(3.0, DEAR_LOOKS)
    retry(rig, job, 0.3)
    rig.now += 0.31

    rig.tick()

    assert ["claim_from_floors"] == rig.kinds()
    assert 1 == len(rig.put)


def test_a_job_that_falls_due_is_not_forgotten_during_a_ration(rig):
    """Of too many bands to try each: it is looked for as soon as a round may be."""
    for number in range(EXPECTED_MAX):
        make_job(priority=number, visible_at=DAY)
    job = make_job(priority=-1, visible_at=DAY)
    rig.look_dear(5 * DEAR_SECONDS, DEAR_LOOKS)
    rig.now += POLL  # Else a re-check would find it.
    rig.look_dear(5 * DEAR_SECONDS, 1)
    retry(rig, job, 0.3)

    assert [job.pk] == rig.live(5 * DEAR_SECONDS * RATION + 0.01)


def retry(rig, job, seconds):
    """Let a job of ours be due again, and tell of it, as the settler does."""
    Job.objects.filter(pk=job.pk).update(visible_at=timezone.now())
    rig.claimer.retry_in(seconds)


# Being asked -------------------------------------------------------------------------


def test_who_asks_for_a_look_hears_what_came_of_it(rig):
    """Of one that began after the question."""
    make_job()
    rig.tick()
    assert 1 == rig.claimer.found_since_requested()

    rig.claimer.look_now()
    assert rig.claimer.found_since_requested() is None
    assert rig.claimer.wake.is_set()
    rig.tick()
    assert 0 == rig.claimer.found_since_requested()


def test_without_any_queue_a_look_finds_nothing(rig):
    """And still answers who asked."""
    rig.claimer.look_now()
    rig.tick()

    assert 0 == rig.claimer.found_since_requested()
    assert [] == rig.looks


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


def test_a_worker_without_async_jobs_has_one_poller(rig):
    """The other one is never asked, however much capacity there is for coroutines."""
    make_jobs(30)
    rig.capacity = 0

    assert (POLL, []) == rig.tick()
    assert not rig.claimer.link.is_open


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


def test_coroutines_are_claimed_for_while_no_thread_is_idle(two):
    """And threads while no coroutine could start."""
    make_calls(3)
    make_jobs(3)
    two.capacity = 0
    two.claimer.look_now()
    two.tick()
    assert [["calls"]] == [look.asked for look in two.looks if look.kind == "see"]

    two.looks.clear()
    two.capacity, two.async_capacity = 5, 0
    two.claimer.look_now()
    two.tick()
    assert [["default"]] == [look.asked for look in two.looks if look.kind == "see"]
    assert 6 == len(two.put)


def test_each_poller_drains_from_its_own_floors(two):
    """Nothing of a band is missed when only the other kind had capacity."""
    make_calls(7)
    make_jobs(7)
    two.capacity, two.async_capacity = 2, 3
    two.wakes.flag_any()

    for _ in range(8):
        two.tick()
        two.now += 0.001

    assert 14 == len(two.put)
    for look in two.looks:
        if look.kind == "claim_from_floors":
            assert 1 == len({band.queue for band in look.asked})


def test_what_waited_for_a_thread_is_found_when_there_is_one(two):
    """A wake that came while no thread was idle is not lost to the other poller."""
    job = make_job()
    two.capacity = 0
    two.wakes.flag("default")
    for _ in range(3):
        two.tick()
        two.now += 0.01
    assert [] == two.put

    two.capacity = 1
    two.tick()

    assert [job.pk] == [claimed.id for claimed in two.put]


def test_a_mixed_queue_is_claimed_for_what_both_kinds_can_start(two):
    """Its next jobs may all be of one kind."""
    make_job(queue="calls")
    two.wakes.flag("calls")
    two.tick()
    two.now += 1
    make_calls(9)
    two.capacity, two.async_capacity = 4, 3
    two.claimer.look_now()

    two.tick()

    (seen, look) = two.looks[1:]
    assert {"calls", "default"} == set(seen.asked)
    assert 3 == look.limit


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


def test_a_queue_is_taken_for_async_again_after_a_thousand_async_jobs(two):
    """The memory of a queue is that long."""
    for kind, expected in [(False, set()), (True, {"calls"})]:
        for _ in range(MEMORY_JOBS):
            two.shown.note("calls", is_async=kind)
        assert expected == two.shown.pure
    two.shown.note("calls", is_async=False)

    assert (set(), {"calls"}) == (two.shown.pure, two.shown.mixed)


def test_a_queue_that_changes_pollers_is_looked_at_at_once(two):
    """Whatever the new one had found there last."""
    two.shown.note("calls", is_async=False)
    job = make_calls(1)[0]
    two.tick()
    two.now += 0.001

    two.tick()

    assert [job.pk] == [claimed.id for claimed in two.put]


def test_who_asks_hears_of_both_kinds(two):
    """A drained worker leaves when both found nothing."""
    make_calls(1)
    two.claimer.look_now()
    two.capacity = 0
    two.tick()
    assert two.claimer.found_since_requested() is None

    two.capacity = 1
    two.tick()
    assert 1 == two.claimer.found_since_requested()
    two.claimer.look_now()
    two.tick()
    assert 0 == two.claimer.found_since_requested()


def test_no_stream_of_async_jobs_starves_the_others(two):
    """Each poller keeps its own poll."""
    sync = make_job(visible_at=-DAY)
    two.async_capacity = 1
    for _ in range(12):
        make_calls(2)
        two.wakes.flag("calls")
        two.tick()
        two.now += 0.5

    assert sync.pk in {job.id for job in two.put}


def test_queues_remembered_have_a_limit(rig):
    """Beyond it all are learnt anew."""
    for number in range(QUEUES_MAX + 1):
        rig.shown.note(f"q{number}", is_async=True)

    assert {f"q{QUEUES_MAX}"} == rig.shown.pure


def test_a_queue_that_is_paused_during_a_drain_is_left_at_once(rig):
    """Its floor is kept, and not used."""
    make_jobs(10, queue="a")
    rig.capacity = 2
    rig.tick()
    Queue.objects.filter(name="a").update(paused_at="2026-11-20T00:00:00Z")
    rig.claimer.refresh_queues()

    rig.tick()

    assert 2 == len(rig.put)


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


def test_what_is_held_is_not_handed_back(lossy, leases, monkeypatch):
    """Only what nobody here knows of, by its delivery; and nobody else's."""
    rig, link = lossy
    make_jobs(2)
    rig.tick()
    before = list(Job.objects.order_by("pk").values_list("pk", "visible_at"))
    theirs = make_job(leased_by="other", deliveries=1, visible_at=timedelta(seconds=30))
    make_job()
    lose_answer(monkeypatch, link, "claim")
    rig.wakes.flag("default")
    with pytest.raises(psycopg.OperationalError, match="closed the connection"):
        rig.tick()

    rig.tick()

    assert 3 == len(rig.put) == len(leases)
    after = Job.objects.filter(pk__in=[pk for pk, _ in before]).order_by("pk")
    assert before == list(after.values_list("pk", "visible_at"))
    theirs.refresh_from_db()
    assert "other" == theirs.leased_by


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


def test_an_answer_that_says_no_has_leased_nothing(rig):
    """Nothing has to be looked for."""
    make_job()
    rig.fails = psycopg.errors.QueryCanceled("canceling statement due to user request")
    with pytest.raises(psycopg.errors.QueryCanceled, match="user request"):
        rig.tick()

    assert not rig.strays.is_pending


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


def test_a_pause_of_a_task_that_ends_by_itself_is_noticed_then(rig):
    """And not at the next poll, which may be far away; the promoter hears of it."""
    resumed = []
    # Who serves all queues asks at each round.
    rig.serve("mail").claimer._on_resumed = resumed.append
    length = timedelta(seconds=0.2)
    Lane.objects.create(name="shop.call", paused_at=CLOCK, paused_until=CLOCK + length)
    rig.tick()
    assert ["shop.call"] == rig.claimer.held

    until = Lane.objects.get().paused_until
    wait_for(lambda: until <= datetime.now(UTC), what="its end")
    rig.now += 0.2
    rig.tick()

    assert [] == rig.claimer.held
    assert [{"shop.call"}] == resumed
