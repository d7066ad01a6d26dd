"""Slots: which job each thread runs, in memory that outlives its process."""

from __future__ import annotations

import multiprocessing
import os
import signal

from django_pgqueue.worker.lease.leases import Slots

FORK = multiprocessing.get_context("fork")
BIGINT_MAX = 2**63 - 1


def test_a_slot_holds_the_job_of_its_thread():
    """And nothing when the thread is idle."""
    slots = Slots(FORK, 3)
    assert [] == slots.running()

    slots.enter(0, 10, 1)
    slots.enter(2, BIGINT_MAX, 7)
    assert [(10, 1), (BIGINT_MAX, 7)] == slots.running()

    slots.leave(0)
    assert [(BIGINT_MAX, 7)] == slots.running()

    slots.enter(2, 11, 2)
    slots.leave(1)
    assert [(11, 2)] == slots.running()


def die_running(slots):
    """Enter two jobs, settle one, and be killed."""
    slots.enter(0, 5, 1)
    slots.enter(1, 6, 2)
    slots.leave(0)
    os.kill(os.getpid(), signal.SIGKILL)


def test_the_parent_reads_what_a_killed_child_was_running():
    """The memory is the parent's."""
    slots = Slots(FORK, 2)
    child = FORK.Process(target=die_running, args=(slots,))
    child.start()
    child.join(10)

    assert -signal.SIGKILL == child.exitcode
    assert [(6, 2)] == slots.running()


def stop_and_exit(slots):
    """End as a worker that was told to."""
    slots.note_stop()
    os._exit(0)


def test_a_stop_is_told_apart_from_an_exit_with_its_status():
    """A job may end its process with any status."""
    told, untold = Slots(FORK, 1), Slots(FORK, 1)
    for target, slots in ((stop_and_exit, told), (os._exit, untold)):
        child = FORK.Process(target=target, args=(slots if slots is told else 0,))
        child.start()
        child.join()
        assert 0 == child.exitcode

    assert (True, False) == (told.has_stopped, untold.has_stopped)
