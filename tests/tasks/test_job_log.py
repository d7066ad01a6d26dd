"""Job log: what a task writes down about an attempt, and where it stands afterwards."""

from __future__ import annotations

import pytest

from django_pgqueue.tasks.output import (
    LINES_MAX,
    JobLog,
)
from django_pgqueue.testing import drain
from tests.app.tasks import writes_a_log

pytestmark = pytest.mark.django_db

LINES = ["attempt {}, token=s3cret", "100% done"]


def texts(entry):
    """Return the lines of an entry; each has the seconds before it."""
    assert all(isinstance(seconds, float) for seconds, _ in entry["log"])
    return [text for _, text in entry["log"]]


def of_attempt(number):
    return [line.format(number) for line in LINES]


def test_the_log_of_an_attempt_that_succeeds_is_an_entry_by_itself():
    """It stands in the archive, and is no error."""
    result = writes_a_log.delay()
    drain()

    assert result.get() is None
    (entry,) = result.errors
    assert ("log", 1, 1) == tuple(entry[n] for n in ("kind", "attempt", "delivery"))
    assert of_attempt(1) == texts(entry)


def test_the_log_of_an_attempt_that_fails_stands_with_its_error():
    """Each attempt has its own."""
    result = writes_a_log.delay("fail")
    drain(retries=True, raise_errors=False)

    assert "dead" == result.status
    assert ["error", "error"] == [entry["kind"] for entry in result.errors]
    assert [of_attempt(1), of_attempt(2)] == [texts(each) for each in result.errors]


def test_of_many_lines_the_first_and_the_latest_stay():
    """And how many are left out is said between them."""
    log = JobLog()
    for number in range(1_000):
        log.add(str(number))

    kept = [text for _, text in log.lines()]
    half = LINES_MAX // 2
    assert [*map(str, range(half))] == kept[:half]
    assert "… 800 lines are left out …" == kept[half]
    assert [*map(str, range(1_000 - half, 1_000))] == kept[half + 1 :]
