"""Job log: what a task writes down about an attempt, and where it stands afterwards."""

from __future__ import annotations

import pytest

from django_pgqueue.tasks import job_log
from django_pgqueue.tasks.job_log import (
    LINE_CHARACTERS_MAX,
    LINES_MAX,
    LOG_BYTES_MAX,
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


def test_what_is_noted_beside_a_success_stands_with_its_log():
    """That the result was too large, say."""
    result = writes_a_log.delay("too large")
    drain()

    (entry,) = result.errors
    assert "result" == entry["kind"]
    assert entry["message"].startswith("The result is not stored")
    assert of_attempt(1) == texts(entry)


def test_an_attempt_that_snoozes_leaves_no_log():
    """It may do so for years."""
    result = writes_a_log.delay("snooze")
    drain()

    assert ([], "scheduled") == (result.errors, result.status)


def test_who_writes_nothing_leaves_nothing():
    """Not even an empty log."""
    assert JobLog().lines() is None


def test_called_inline_the_log_is_kept_nowhere():
    """There is no job."""
    assert writes_a_log() is None


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


def test_a_line_has_its_time():
    """Seconds since the attempt began."""
    clock = Clock()
    log = JobLog(clock)
    clock.now += 1.23456
    log.add("here")

    assert [(1.235, "here")] == log.lines()


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


def test_of_long_lines_fewer_stay():
    """Both halves have as many bytes; a long line is cut."""
    log = JobLog()
    for _ in range(50):
        log.add("ü" * 5_000)

    kept = [text for _, text in log.lines() if "left out" not in text]
    assert {LINE_CHARACTERS_MAX} == {len(text) for text in kept}
    assert LOG_BYTES_MAX // 2 < sum(len(text.encode()) for text in kept)
    assert LOG_BYTES_MAX >= sum(len(text.encode()) for text in kept)


def test_the_order_is_that_in_which_lines_were_written(monkeypatch):
    """A short line after one that had no room is not put before it."""
    monkeypatch.setattr(job_log, "LOG_BYTES_MAX", 20)
    log = JobLog()
    for text in ("aaaaaa", "bbbbbb", "c"):
        log.add(text)

    assert ["aaaaaa", "bbbbbb", "c"] == [text for _, text in log.lines()]


def test_what_postgresql_cannot_store_is_shown_escaped():
    """NUL, and half of a character."""
    log = JobLog()
    log.add("a\x00b\ud800")

    assert [r"a\x00b\ud800"] == [text for _, text in log.lines()]
