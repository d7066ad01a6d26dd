"""Window: what ended of late."""

from __future__ import annotations

from django_pgqueue.worker.lanes.breakers import Window


def test_it_counts_what_ended_and_what_failed():
    """Of the last seconds."""
    window = Window(60)
    for number in range(10):
        window.note(1_000.0 + number, has_failed=number % 2 == 0)

    assert (10, 5) == window.counts(1_010.0)


def test_what_is_older_does_not_count():
    """It goes part by part: between all of the window and a part less is counted."""
    window = Window(60)
    window.note(0.0, has_failed=True)
    window.note(30.0, has_failed=False)

    assert (2, 1) == window.counts(56.9)
    assert (1, 0) == window.counts(60.0)
    assert (0, 0) == window.counts(90.0)
