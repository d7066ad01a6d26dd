"""Coroutines: slots, capacity and hand-backs of an event loop, driven by hand."""

from __future__ import annotations

import asyncio
import multiprocessing
import threading
import time
from types import SimpleNamespace

import pytest
from asgiref.sync import sync_to_async
from django.core.exceptions import SynchronousOnlyOperation

from django_pgqueue import task
from django_pgqueue.conf import parse
from django_pgqueue.tasks import registry
from django_pgqueue.tasks.outcome import GaveUp, Retried, Succeeded
from django_pgqueue.worker.claim.capacity import Capacity, QueueMix
from django_pgqueue.worker.lease.leases import Held, Leases, Slots
from django_pgqueue.worker.run import async_jobs as coroutine_module
from django_pgqueue.worker.run import coroutines as coroutines_module
from django_pgqueue.worker.run.async_jobs import Coroutine, LoopControl, LoopWatch
from django_pgqueue.worker.run.control import JobServices
from django_pgqueue.worker.run.coroutines import Coroutines
from django_pgqueue.worker.run.dispatcher import HELD_MAX, Dispatcher
from django_pgqueue.worker.settle.settler import Settlement
from tests.harness.waiting import wait_for
from tests.tasks.test_perform import claimed

SETTINGS = parse({})


class Settled:
    """Where outcomes go: noted, and committed when the test says so."""

    def __init__(self):
        self.all = []
        self.wakeups = 0
        self.holds = False
        self.on_put = lambda: None

    def put(self, settlement):
        self.put_soon(settlement)
        self.wake_up()

    def put_soon(self, settlement):
        self.on_put()
        self.all.append(settlement)
        if not self.holds:
            self.commit(settlement)

    def wake_up(self):
        self.wakeups += 1

    def has(self, job):
        return any(settlement.job is job for settlement in self.all)

    def commit(self, settlement):
        if settlement.done is not None:
            settlement.done()

    def commit_all(self):
        for settlement in self.all:
            self.commit(settlement)

    def wait_until_idle(self, seconds):
        return True

    def outcomes(self):
        return {
            s.job.id: None if s.performed is None else s.performed.outcome
            for s in list(self.all)
        }


class Rig:
    """A real event loop with its runner; the database is left out."""

    def __init__(self, count):
        self.settled = Settled()
        self.leases = Leases(60.0, "worker")
        self.slots = Slots(multiprocessing.get_context("fork"), 1 + count)
        self.freed = self.suspects = 0
        self.hard = []
        self.coroutines = Coroutines(
            count=count,
            first_slot=1,
            sync_threads=2,
            services=JobServices(
                settings=SETTINGS,
                installation="uuid",
                slots=self.slots,
                leases=self.leases,
                settler=self.settled,
                reporter=None,
                collector=None,
                on_capacity=self._on_capacity,
                on_suspect=self._on_suspect,
            ),
            grace_seconds=1.0,
            on_hard_timeout=lambda job, error: self.hard.append((job, error)),
        )
        self._ids = iter(range(1, 10_000))

    def _on_capacity(self):
        self.freed += 1

    def _on_suspect(self):
        self.suspects += 1

    def put(self, name, count=1, **fields):
        jobs = [claimed(name, id=next(self._ids), **fields) for _ in range(count)]
        self.leases.add(jobs, time.monotonic())
        self.coroutines.put(jobs)
        return jobs

    def wait(self):
        assert self.coroutines.join(time.monotonic() + 10)

    def outcomes(self):
        return self.settled.outcomes()


@pytest.fixture
def rig(monkeypatch):
    """A factory of rigs, each closed after the test."""
    # Jobs that wait behind others are handed back by one test alone.
    monkeypatch.setattr(coroutines_module, "SPOT_SECONDS", 600.0)
    rigs = []

    def rig(count=3):
        rigs.append(Rig(count))
        return rigs[-1]

    yield rig
    for made in rigs:
        made.settled.holds = False
        made.settled.commit_all()
        made.coroutines.interrupt()
        made.coroutines.join(time.monotonic() + 5)
        made.coroutines.close()


@pytest.fixture
def declare(monkeypatch):
    """A function that declares an async task for this test."""
    monkeypatch.setattr(registry, "tasks", dict(registry.tasks))

    def declare(function, **options):
        task(name=f"test.{function.__name__}", **options)(function)
        return f"test.{function.__name__}"

    return declare


@pytest.fixture
def gated(declare):
    """A task that waits until the test sets the event, and who has started it."""
    started, opened = [], threading.Event()

    async def gated_task():
        started.append(threading.current_thread().name)
        while not opened.is_set():  # noqa: ASYNC110
            await asyncio.sleep(0.005)

    return SimpleNamespace(
        name=declare(gated_task), started=started, open=opened.set, is_open=opened
    )


async def nothing():
    """Return at once."""


# Slots and capacity ------------------------------------------------------------------


def test_a_running_job_has_a_slot_that_outlives_the_process(rig, gated):
    """Marked before it runs, with its delivery; free when it is settled."""
    made = rig(3)
    jobs = made.put(gated.name, 5, delivery=4)
    wait_for(lambda: len(gated.started) == 3, what="three run")

    assert {(job.id, 4) for job in jobs[:3]} == set(made.slots.running())
    assert {"pgqueue-loop"} == set(gated.started)
    assert 0 == made.coroutines.capacity()
    gated.open()
    made.wait()

    assert [] == made.slots.running()
    assert {job.id: Succeeded() for job in jobs} == made.outcomes()
    assert made.freed > 0


def test_with_settle_immediate_a_slot_is_held_until_the_ack_is_committed(rig, declare):
    """The loop does not wait: other jobs run meanwhile."""
    made = rig(2)
    made.settled.holds = True
    jobs = made.put(declare(nothing), 3)
    wait_for(lambda: len(made.settled.all) == 2, what="two have ended")

    assert {(job.id, 1) for job in jobs[:2]} == set(made.slots.running())
    made.settled.commit(made.settled.all[0])
    wait_for(lambda: len(made.settled.all) == 3, what="the third runs")
    made.settled.commit_all()
    made.wait()


def test_short_jobs_are_claimed_ahead_and_long_ones_are_not(rig, declare, gated):
    """As far as they can start within a tenth of a second."""
    made = rig(2)
    made.put(declare(nothing), 20)
    made.wait()
    assert 2 < made.coroutines.capacity()
    for _ in range(100):
        made.coroutines._prefetch.took(3.0)

    assert 2 == made.coroutines.capacity()
    made.put(gated.name)
    assert 1 == made.coroutines.capacity()
    gated.open()


def test_the_sync_calls_of_a_job_have_one_thread_and_two_jobs_have_two(rig, declare):
    """Whoever calls: the job itself, or an asyncio task that it has started."""
    threads = []

    async def calls():
        ident = sync_to_async(threading.get_ident)
        mine = {await ident(), await asyncio.create_task(ident())}
        threads.append(mine)
        while len(threads) < 2:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
        mine.add(await ident())

    made = rig(2)
    made.put(declare(calls), 2)
    made.wait()

    assert [1, 1] == [len(mine) for mine in threads]
    assert 2 == len(threads[0] | threads[1])


def test_a_stop_hands_back_what_has_not_started(rig, gated):
    """What runs may finish."""
    made = rig(2)
    jobs = made.put(gated.name, 5)
    wait_for(lambda: len(gated.started) == 2, what="two run")

    made.coroutines.stop()
    wait_for(lambda: len(made.settled.all) == 3, what="three are back")

    assert {job.id: None for job in jobs[2:]} == made.outcomes()
    gated.open()
    made.wait()
    assert {Succeeded()} == {made.outcomes()[job.id] for job in jobs[:2]}


# Alone -------------------------------------------------------------------------------


def test_a_job_that_is_to_run_alone_is_handed_back_and_told(rig, declare):
    """A claim has found that out by its lapsed lease; others go on beside."""
    ran = []

    async def alone():
        ran.append("alone")

    async def other():
        ran.append("other")

    made = rig(5)
    (job,) = made.put(declare(alone), runs_alone=True)
    (beside,) = made.put(declare(other))
    made.wait()

    assert ["other"] == ran
    assert {job.id: None, beside.id: Succeeded()} == made.outcomes()
    assert 1 == made.suspects


# Interrupts --------------------------------------------------------------------------


def test_an_interrupt_gives_the_attempt_back(rig, gated):
    """A stop of the worker is no failure of the job."""
    made = rig()
    (job,) = made.put(gated.name)
    wait_for(lambda: gated.started, what="it runs")

    made.coroutines.interrupt()
    made.wait()

    outcome = made.outcomes()[job.id]
    assert isinstance(outcome, Retried)
    assert outcome.gives_attempt_back


def test_the_end_of_a_cancelled_sync_call_is_waited_for(rig, declare):
    """It cannot be interrupted, and must not run beside the next attempt."""
    opened, ended = threading.Event(), threading.Event()

    async def calls():
        await sync_to_async(slow)()

    def slow():
        opened.wait(10)
        ended.set()

    made = rig()
    made.put(declare(calls, timeout=0.05), max_attempts=1)
    wait_for(made.coroutines.running, what="it runs")
    (running,) = made.coroutines.running()
    wait_for(lambda: running.calls and running.calls._is_over, what="its time is up")
    settled_after = []
    made.settled.on_put = lambda: settled_after.append(ended.is_set())
    opened.set()
    made.wait()

    assert [True] == settled_after
    assert [GaveUp("timeout")] == list(made.outcomes().values())


def test_sync_calls_after_the_end_of_a_job_are_refused(rig, declare, monkeypatch):
    """Their connection is another job's by then."""
    monkeypatch.setattr(coroutine_module, "LEFT_SECONDS", 0.05)
    errors = []

    async def lingers():
        while True:
            try:
                await asyncio.sleep(0.05)
                await sync_to_async(int)()
            except asyncio.CancelledError:
                pass
            except RuntimeError as error:
                errors.append(str(error))
                return

    async def leaves():
        asyncio.get_running_loop().create_task(lingers())
        await asyncio.sleep(0)

    made = rig()
    made.put(declare(leaves))
    made.wait()

    wait_for(lambda: errors, what="it was refused")
    assert "The job is over" in errors[0]


# Sync calls --------------------------------------------------------------------------


# The context in the loop -------------------------------------------------------------


@pytest.mark.parametrize("word", ["extend", "say"])
def test_what_waits_is_refused_in_the_loop_alone(word):
    """In a thread it is right; the error names what to await."""
    control = LoopControl(None, SimpleNamespace(job=claimed()), None)
    control.has_word = True  # Whatever gets through fails with something else.

    async def call():
        getattr(control, word)(None)

    with pytest.raises(SynchronousOnlyOperation, match="await a"):
        asyncio.run(call())
    with pytest.raises(Exception, match="its context can be used until"):
        getattr(control, word)(None)


# The watch ---------------------------------------------------------------------------


class Watched:
    """A loop whose time is the test's, with coroutines that have hard timeouts."""

    def __init__(self, monkeypatch):
        self.now = 100.0
        self.expired = []
        self.current = None
        monkeypatch.setattr(
            coroutine_module, "time", SimpleNamespace(monotonic=lambda: self.now)
        )
        monkeypatch.setattr(
            coroutine_module.asyncio, "current_task", lambda loop: self.current
        )
        self.answers = []
        loop = SimpleNamespace(call_soon_threadsafe=self.answers.append)
        self.watch = LoopWatch(
            loop, list, lambda job, error: self.expired.append((job.id, str(error)))
        )

    def coroutine(self, number, hard_at=None):
        held = Held(claimed(f"task.{number}", id=number), 0.0, 60.0)
        made = Coroutine(held.job, held, number, None, 0.0)
        made.task = object()
        made.hard_at = hard_at
        return made

    def look(self, *coroutines):
        self.watch._look_once(list(coroutines))

    def answer(self):
        self.answers.pop()()


@pytest.fixture
def watched(monkeypatch):
    return Watched(monkeypatch)


def test_a_block_is_told_once_and_the_next_one_again(watched, caplog):
    """With the name of the task that is in the loop."""
    one = watched.coroutine(1)
    watched.current = one.task
    for _ in range(2):
        watched.look(one)
        for _ in range(8):
            watched.now += 0.25
            watched.look(one)
        watched.answer()
        watched.now += 0.25

    told = [m for m in caplog.messages if m.startswith("blocked ")]
    assert 2 == len(told)
    assert all("job=1 task=task.1" in message for message in told)


def test_a_hard_timeout_in_a_loop_that_moves_is_the_tasks_own(watched):
    """It swallowed its CancelledError."""
    one, other = watched.coroutine(1, hard_at=100.0), watched.coroutine(2)

    watched.look(one, other)

    ((job, message),) = watched.expired
    assert 1 == job
    assert "its process was replaced" in message
    assert one.hard_at is None


def test_a_hard_timeout_in_a_blocked_loop_is_who_blocks_it(watched):
    """Whose asyncio task is in there; or one that this has started."""
    late, blocker = watched.coroutine(1, hard_at=102.0), watched.coroutine(2)
    watched.current = object()
    blocker.started.add(watched.current)
    watched.look(late, blocker)
    watched.now = 103.0

    watched.look(late, blocker)

    ((job, message),) = watched.expired
    assert 2 == job
    assert "task.2 kept the event loop busy for 3 s" in message


# The dispatcher ----------------------------------------------------------------------


class Takes:
    """Threads or coroutines with a capacity that the test sets."""

    def __init__(self):
        self.free = self.count = 10
        self.jobs = []

    def capacity(self):
        return self.free

    def put(self, jobs):
        self.jobs += jobs


@pytest.fixture
def dispatched():
    """A dispatcher, and where its jobs go."""
    threads, coroutines, settled, mix = Takes(), Takes(), Settled(), QueueMix()
    leases, told = Leases(60.0, "worker"), []
    services = SimpleNamespace(
        settler=settled,
        leases=leases,
        on_capacity=lambda: told.append("capacity"),
        hand_back=lambda jobs: [settled.put(Settlement(job, None)) for job in jobs],
    )
    made = Dispatcher(threads, coroutines, services, mix)
    return SimpleNamespace(
        capacity=made.capacity,
        put=made.put,
        leases=leases,
        told=told,
        threads=threads,
        coroutines=coroutines,
        settled=settled,
        mix=mix,
    )


def test_each_job_goes_where_its_task_runs(dispatched, declare):
    """And its queue is remembered for it."""
    calls = claimed(declare(nothing), id=1, queue="calls")
    plain = claimed("tests.app.tasks.noop", id=2, queue="plain")

    dispatched.put([calls, plain], for_coroutines=False)

    assert ([calls], [plain]) == (dispatched.coroutines.jobs, dispatched.threads.jobs)
    assert {"calls"} == dispatched.mix.pure


def test_no_more_is_claimed_than_a_process_may_hold(dispatched):
    """What has run and is not written counts; a write tells the claimer of capacity."""
    threads = dispatched.threads.count
    held = [claimed("a", id=number) for number in range(HELD_MAX + threads)]
    dispatched.leases.add(held, 0.0)

    assert Capacity(0, 0) == dispatched.capacity()
    dispatched.settled.on_written()
    assert ["capacity"] == dispatched.told

    for each in held[:3]:
        dispatched.leases.drop(each)
    assert Capacity(3, 3) == dispatched.capacity()
