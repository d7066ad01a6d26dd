"""
Pytest plugin: the fixture ``pgqueue``, the mark ``pgqueue`` and readable failures.

    def test_checkout(pgqueue):
        checkout(cart)
        pgqueue.assert_enqueued(send_receipt, order_id=7)
        assert pgqueue.drain() == 1

    @pytest.mark.pgqueue(mode="immediate")
    def test_mail(mailoutbox): ...

Pytest imports this module in every run, with Django or without, so it imports nothing
of either before a test asks for it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from datetime import datetime

    from django_pgqueue.testing import Captured, Clock

MODES = ("normal", "immediate")

MARK = (
    "pgqueue(mode='normal', raise_errors=False): use the database, and run jobs as "
    "PGQUEUE['MODE'] would: 'immediate' runs each when it is enqueued"
)


class PgQueue:
    """The testing kit of one test: what django_pgqueue.testing has, from its start."""

    def __init__(self, stack: ExitStack) -> None:
        from django_pgqueue import testing

        self._stack = stack
        self._testing = testing
        captured = stack.enter_context(testing.capture())
        self._captured: Captured = captured
        # Of the jobs since the test began.
        self.assert_enqueued = captured.assert_enqueued
        self.assert_not_enqueued = captured.assert_not_enqueued
        self.capture = testing.capture
        self.crash_once = testing.crash_once
        self.drain = testing.drain
        self.immediate = testing.immediate
        self.redeliver = testing.redeliver

    @property
    def enqueued(self) -> Captured:
        """The jobs that were enqueued since the test began, as they were then."""
        return self._captured.refresh()

    def freeze(self, at: datetime | str | None = None) -> Clock:
        """As testing.freeze, until the end of the test; returns the clock."""
        return self._stack.enter_context(self._testing.freeze(at))


def pytest_configure(config: pytest.Config) -> None:
    """Declare the mark."""
    config.addinivalue_line("markers", MARK)


@pytest.fixture
def pgqueue(request: pytest.FixtureRequest) -> Iterator[PgQueue]:
    """The testing kit of django_pgqueue; lets the test use the database."""
    mode, raise_errors = _marked(request)
    _use_database(request)
    from django_pgqueue.testing.draining import moded

    with ExitStack() as stack:
        stack.enter_context(moded(mode, raise_errors=raise_errors))
        yield PgQueue(stack)


@pytest.fixture(autouse=True)
def _pgqueue_mark(request: pytest.FixtureRequest) -> None:
    """Heed the mark in tests that do not ask for the fixture."""
    if request.node.get_closest_marker("pgqueue") is not None:
        request.getfixturevalue("pgqueue")


def pytest_assertrepr_compare(op: str, left: object, right: object) -> list[str] | None:
    """Show what ran when a count of drain() is not what was expected."""
    draining = sys.modules.get("django_pgqueue.testing.draining")
    if draining is None:
        return None
    for side in (left, right):
        if isinstance(side, draining.Drained):
            shown = [f"{left!r} {op} {right!r}", *(f"  {run}" for run in side.runs)]
            return shown if side.runs else [*shown, "  nothing was due"]
    return None


def _use_database(request: pytest.FixtureRequest) -> None:
    try:
        request.getfixturevalue("db")
    except pytest.FixtureLookupError:
        raise pytest.UsageError(
            "The fixture pgqueue needs pytest-django, which brings the test database: "
            "install pytest-django."
        ) from None


def _marked(request: pytest.FixtureRequest) -> tuple[str | None, bool]:
    """Return the mode that the mark asks for, and whether errors are raised."""
    mark = request.node.get_closest_marker("pgqueue")
    options = {} if mark is None else dict(mark.kwargs)
    mode = options.pop("mode", None)
    raise_errors = bool(options.pop("raise_errors", False))
    if options or (mark is not None and mark.args):
        raise pytest.UsageError(f"The mark is {MARK.partition(':')[0]}.")
    if mode not in (None, *MODES):
        raise pytest.UsageError(
            f"pgqueue(mode={mode!r}): it must be {' or '.join(map(repr, MODES))}."
        )
    return mode, raise_errors
