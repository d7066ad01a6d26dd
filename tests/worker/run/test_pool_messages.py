"""What a worker process and its runners say to one another."""

from __future__ import annotations

import json
import pickle
import socket
import threading
import time
from datetime import timedelta

import pytest

from django_pgqueue import Reject, RemoteError, RetryLater
from django_pgqueue.tasks.outcome import Crashed, GaveUp, Performed, Retried
from django_pgqueue.tasks.raised import AskedAgain
from django_pgqueue.tasks.settlement import error_entry
from django_pgqueue.worker.run.pool_messages import (
    HEAD,
    Call,
    Channel,
    error_of,
    pack,
    unpack,
    word_of,
)
from tests.tasks.test_perform import claimed


@pytest.fixture
def channels():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield Channel(ours), Channel(theirs)


def raised(error):
    try:
        raise error
    except BaseException as caught:
        return caught


@pytest.fixture
def sent(channels):
    """Return what arrives of a message."""

    def sent(message):
        ours, theirs = channels
        ours.send(message)
        return theirs.receive()

    return sent


# Outcomes ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "outcome",
    [GaveUp("rejected"), Retried(timedelta(seconds=3)), Crashed("signal 9")],
)
def test_an_outcome_travels_as_it_is(sent, outcome):
    """With everything that is written of it."""
    performed = Performed(
        outcome, None, 1.5, "[1]", '"note"', True, '{"done": 1}', leaves_no_trace=True
    )
    performed.log = [(0.5, "half-way")]

    assert performed == unpack(sent(pack(performed)))


def test_a_stand_in_makes_the_entry_that_its_error_would_make(sent):
    """Class, message and traceback; and it is no instance of the class."""
    job = claimed()
    local = type("Local", (ValueError,), {"__qualname__": "f.<locals>.Local"})
    performed = Performed(GaveUp("exhausted"), raised(local("x\x00y" * 2_000)), 1.0)
    expected = json.loads(error_entry(job, performed, worker="w", waited=0))

    there = unpack(sent(pack(performed)))

    entry = json.loads(error_entry(job, there, worker="w", waited=0))
    assert expected == entry
    assert isinstance(there.error, RemoteError)
    assert not isinstance(there.error, ValueError)
    assert "Local" == type(there.error).__name__


@pytest.mark.parametrize("name", ["\udc80", "a\x00b", "x" * 100_000, ""])
def test_a_class_of_any_name_travels(sent, name):
    """One that no encoding has, or that no class can be given again."""
    odd = type("Odd", (ValueError,), {})
    odd.__qualname__ = odd.__module__ = name
    performed = Performed(GaveUp("exhausted"), raised(odd("x")), 1.0)

    there = unpack(sent(pack(performed)))

    entry = json.loads(error_entry(claimed(), there, worker="w", waited=0))
    assert "x" == entry["message"]
    assert entry["type"].encode()
    assert "\x00" not in entry["type"]


@pytest.mark.parametrize("error", [None, Reject("no"), RetryLater(90), AskedAgain()])
def test_a_word_of_a_task_travels(sent, error):
    """What its context was told, with its reason or its delay."""
    there = error_of(sent(word_of(error)))

    assert (type(error), str(error)) == (type(there), str(there))


# The channel -------------------------------------------------------------------------


def test_messages_arrive_whole_and_in_order(channels):
    """Small ones together, and one that is larger than every buffer."""
    ours, theirs = channels
    calls = [Call("a"), Call("b", "x" * 5_000_000), Call("c", None)]
    sender = threading.Thread(target=lambda: [ours.send(call) for call in calls])
    sender.start()

    received = [theirs.receive() for _ in calls]
    sender.join()

    assert calls == received


def test_a_half_message_is_kept_over_a_timeout():
    """The rest completes it."""
    text = pickle.dumps(Call("report", {"done": 1}))
    raw = HEAD.pack(len(text)) + text
    ours, theirs = socket.socketpair()
    with ours, theirs:
        channel = Channel(theirs)
        ours.sendall(raw[:10])
        with pytest.raises(TimeoutError, match="timed out"):
            channel.receive(time.monotonic() + 0.01)
        ours.sendall(raw[10:])

        assert Call("report", {"done": 1}) == channel.receive()


def test_the_end_of_the_other_side_is_told(channels):
    """To who receives, and to who sends; also when it comes from a thread of ours."""
    ours, theirs = channels
    theirs.hang_up()

    for attempt in (ours.receive, lambda: ours.send(Call("a")), theirs.receive):
        with pytest.raises(EOFError, match="The other process is gone"):
            attempt()
