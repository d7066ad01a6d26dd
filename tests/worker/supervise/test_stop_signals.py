"""Stop signals: their handlers wake, whatever the main thread does at that moment."""

from __future__ import annotations

from django_pgqueue.postgres.wakeup import Wakeup


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
