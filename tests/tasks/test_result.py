"""Result: what became of a job."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from django_pgqueue import JobNotFound
from django_pgqueue.models import ArchivedJob, DeadLetter, Job
from django_pgqueue.tasks.result import JobResult
from django_pgqueue.testing import drain
from tests.app.tasks import add, fails_once, noop
from tests.factories import (
    make_archived_job,
    make_dead_letter,
    make_job,
    make_leased_job,
)

pytestmark = pytest.mark.django_db

HOUR = timedelta(hours=1)


@pytest.mark.parametrize(
    "make, columns, expected",
    [
        (make_job, {}, "ready"),
        (make_job, {"visible_at": HOUR}, "scheduled"),
        (make_job, {"visible_at": HOUR, "attempt": 1, "deliveries": 1}, "retrying"),
        (make_job, {"attempt": 1, "deliveries": 1}, "ready"),
        (make_job, {"visible_at": None}, "parked"),
        (make_leased_job, {}, "running"),
        (make_leased_job, {"visible_at": -HOUR}, "ready"),
        (make_archived_job, {}, "succeeded"),
        (make_archived_job, {"state": "cancelled"}, "cancelled"),
        (make_archived_job, {"state": "expired"}, "expired"),
        (make_dead_letter, {}, "dead"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_a_job_has_one_status_wherever_its_row_is(make, columns, expected):
    """A lease that has lapsed makes its job ready again."""
    row = make(**columns)

    result = JobResult(row.pk)

    assert expected == result.status
    assert row == result.job


def test_what_is_known_is_read_once_until_refreshed():
    """One query; then none until refresh() asks for another."""
    result = add.delay(1, 2)
    with CaptureQueriesContext(connection) as queries:
        before = (result.status, result.attempt, result.result, result.errors)
    drain()

    assert ("ready", 0, None, []) == before
    assert 1 == len(queries)
    assert "ready" == result.status
    assert result is result.refresh()
    assert ("succeeded", 1, 3, None) == (
        result.status,
        result.attempt,
        result.result,
        result.reason,
    )


def test_a_dead_letter_tells_its_reason_and_its_errors():
    """One entry per failed attempt."""
    result = fails_once.delay("out of luck")
    drain()

    assert ("dead", "exhausted", None) == (result.status, result.reason, result.result)
    (entry,) = result.errors
    assert ("error", "tests.app.tasks.Unlucky", "out of luck", 1) == tuple(
        entry[name] for name in ("kind", "type", "message", "attempt")
    )


def test_a_job_is_followed_from_table_to_table():
    """The row that .job returns is the one of the moment."""
    done, dead = noop.delay(), fails_once.delay()
    assert {Job} == {type(done.job), type(dead.job)}
    drain()

    assert (ArchivedJob, DeadLetter) == (type(done.job), type(dead.job))


@pytest.mark.parametrize(
    "attribute", ["status", "attempt", "result", "reason", "errors"]
)
def test_a_job_that_is_nowhere_is_an_error(attribute):
    """The error names the id and why it may be gone."""
    with pytest.raises(JobNotFound, match=r"Job 5 is not in .*RETENTION") as caught:
        getattr(JobResult(5), attribute)

    assert 5 == caught.value.job_id
    assert JobResult(5).job is None


def test_results_of_one_job_are_equal():
    """So they can be kept in sets and compared in tests."""
    assert JobResult(5) == JobResult(5) != JobResult(6)
    assert 1 == len({JobResult(5), JobResult(5)})
    assert JobResult(5) != 5
    assert "<JobResult 5>" == repr(JobResult(5))
