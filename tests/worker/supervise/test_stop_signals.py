"""Stop signals: their handlers wake, whatever the main thread does at that moment."""

from __future__ import annotations

import subprocess
import sys

from django_pgqueue.postgres.wakeup import Wakeup
from django_pgqueue.spark.stop_flag import StopFlag

# Signals in a storm, faster than the loop turns: each interrupts it at another step,
# and now and then the handler of the one before.
STORM = """
import signal, sys, time
import django
django.setup()
from django_pgqueue.conf import parse
from django_pgqueue.worker.supervise import process as module
from django_pgqueue.worker.options import WorkerOptions
from django_pgqueue.worker.lease.leases import Slots
import multiprocessing

process = module.Process(
    WorkerOptions(settings=parse({})), "storm", Slots(multiprocessing, 1)
)
stops = 0

def handler(number, frame):
    global stops
    stops += 1
    process._on_term(number, frame)

signal.signal(signal.SIGALRM, handler)
signal.setitimer(signal.ITIMER_REAL, 0.0001, 0.0001)
until = time.monotonic() + 1.0
while time.monotonic() < until:
    # What its main thread does, with the calls that others make besides.
    process._woken.wait(0.00005)
    process._woken.clear()
    process.recycle()
signal.setitimer(signal.ITIMER_REAL, 0)
print("went on" if stops > 200 and process._stop_requested else stops)
"""


def test_a_storm_of_stops_does_not_block_the_main_thread():
    """It would wait for ever for a lock of its own."""
    done = subprocess.run(
        [sys.executable, "-c", STORM],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )

    assert ("went on", 0) == (done.stdout.strip(), done.returncode), done.stderr


def test_a_handler_wakes_while_its_own_thread_holds_the_lock(in_thread):
    """As one does that interrupts the main thread in a set(), or in a close()."""
    wakeup = Wakeup()
    wakeup.wait(0)
    wakeup._sleeps = True

    def interrupted():
        with wakeup._lock:
            wakeup.set()

    thread = in_thread(interrupted)
    thread.join(10)

    assert not thread.is_alive()
    wakeup._sleeps = False
    wakeup.close()


def test_a_flag_is_set_once_and_for_all():
    """By anybody, a handler that interrupts another one included."""
    flag = StopFlag()
    assert not flag.is_set()

    flag.set()
    flag.set()

    assert flag.is_set()
