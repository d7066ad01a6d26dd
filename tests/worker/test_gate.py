"""Gate: a job that may end its process runs alone in it."""

from __future__ import annotations

import contextlib
import itertools
import threading

import pytest

from django_pgqueue.worker.gate import Gate
from tests.waiting import wait_for


class Visitor:
    """Goes through the gate in a thread of its own, and stays until told to leave."""

    def __init__(self, in_thread, enter, log=None, name=""):
        self.inside = threading.Event()
        self.may_leave = threading.Event()
        self._enter, self._log, self._name = enter, log, name
        self.thread = in_thread(self._run)

    def _run(self):
        with self._enter():
            if self._log is not None:
                self._log.append(self._name)
            self.inside.set()
            assert self.may_leave.wait(10)

    def leave(self):
        self.may_leave.set()
        self.thread.join(10)


@contextlib.contextmanager
def shared_by(gate, key):
    """Share the gate; wait while it is closed, as jobs do by being claimed again."""
    wait_for(lambda: gate.enter(key), what="the gate is open")
    try:
        yield
    finally:
        gate.leave(key)


keys = itertools.count()


def sharing(gate):
    """Return what a Visitor enters, each with a key of its own."""
    return lambda: shared_by(gate, next(keys))


@pytest.fixture
def gate():
    return Gate()


def waiting(gate):
    """Wait until somebody waits to be alone."""
    wait_for(lambda: gate._waiting_alone, what="somebody waits to be alone")


def test_many_share_it(gate, in_thread):
    """Nobody waits for anybody."""
    visitors = [Visitor(in_thread, sharing(gate)) for _ in range(3)]

    assert all(visitor.inside.wait(10) for visitor in visitors)
    assert not gate.is_closed
    for visitor in visitors:
        visitor.leave()


def test_who_is_alone_waits_for_all_that_share(gate, in_thread):
    """And is in only when the last one has left."""
    first, second = Visitor(in_thread, sharing(gate)), Visitor(in_thread, sharing(gate))
    assert first.inside.wait(10)
    assert second.inside.wait(10)
    alone = Visitor(in_thread, gate.alone)
    waiting(gate)

    assert gate.is_closed
    first.leave()
    assert not alone.inside.is_set()
    second.leave()
    assert alone.inside.wait(10)
    assert gate.is_closed
    alone.leave()
    assert not gate.is_closed


def test_who_is_alone_keeps_all_others_out(gate, in_thread):
    """Those that share and those that would be alone too."""
    alone = Visitor(in_thread, gate.alone)
    assert alone.inside.wait(10)
    shared, second = Visitor(in_thread, sharing(gate)), Visitor(in_thread, gate.alone)
    waiting(gate)

    assert not shared.inside.is_set()
    assert not second.inside.is_set()
    alone.leave()
    assert second.inside.wait(10)
    assert not shared.inside.is_set()
    second.leave()
    assert shared.inside.wait(10)
    shared.leave()


def test_who_waits_to_be_alone_goes_before_newcomers(gate, in_thread):
    """Else those that share, one after another, would keep it waiting for ever."""
    log = []
    shared = Visitor(in_thread, sharing(gate))
    assert shared.inside.wait(10)
    alone = Visitor(in_thread, gate.alone, log, "alone")
    waiting(gate)
    newcomer = Visitor(in_thread, sharing(gate), log, "newcomer")
    newcomer.may_leave.set()
    alone.may_leave.set()
    shared.leave()
    newcomer.thread.join(10)

    assert ["alone", "newcomer"] == log


def test_an_exception_opens_the_gate_again(gate):
    """A job that fails leaves nothing closed."""
    with pytest.raises(ZeroDivisionError), gate.alone():
        raise ZeroDivisionError

    assert not gate.is_closed
    with gate.alone():
        assert gate.is_closed
    assert gate.enter(1)


def test_who_finds_it_closed_has_not_entered(gate):
    """So it keeps nobody waiting."""
    with gate.alone():
        assert not gate.enter(1)

    with gate.alone():
        assert gate.is_closed
