"""Without access to the jobs' database, each part of the kit says the way out."""

from __future__ import annotations

import pytest
from django.test import SimpleTestCase, override_settings

from django_pgqueue.testing import (
    assert_enqueued,
    assert_not_enqueued,
    capture,
    crash_once,
    drain,
    freeze,
    redeliver,
)
from tests.app.tasks import noop


def captures():
    with capture():
        pass


def freezes():
    with freeze():
        pass


PARTS = {
    "assert_enqueued": lambda: assert_enqueued(noop),
    "assert_not_enqueued": assert_not_enqueued,
    "capture": captures,
    "crash_once": lambda: crash_once(noop),
    "drain": drain,
    "freeze": freezes,
    "redeliver": lambda: redeliver(noop),
}


@pytest.mark.parametrize("part", PARTS)
def test_with_pytest_the_mark_or_the_fixture_is_missing(part):
    """Both are named."""
    expected = r"database 'default'.*@pytest\.mark\.django_db, or .*fixture pgqueue"
    with pytest.raises(RuntimeError, match=expected):
        PARTS[part]()


@override_settings(PGQUEUE={"DATABASE": "queue"})
def test_another_database_is_named():
    """Since Django's test cases allow the default one alone."""
    with pytest.raises(
        RuntimeError, match=r"'queue'.*databases=\[.default., .queue.\]"
    ):
        drain()


class WithUnittest(SimpleTestCase):
    """A SimpleTestCase has no database."""

    def test_every_part(self):
        """The error names the class that has one."""
        for name, part in PARTS.items():
            with (
                self.subTest(name),
                pytest.raises(RuntimeError, match=r"test\.TestCase"),
            ):
                part()


@pytest.mark.django_db
def test_other_errors_are_left_as_they_are():
    """Those of the tested code."""
    with pytest.raises(AssertionError, match="nothing was enqueued at all"):
        assert_enqueued(noop)
