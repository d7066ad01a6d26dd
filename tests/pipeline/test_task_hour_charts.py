"""Sums of task hours: by span and by task, of a bounded number of rows."""

from __future__ import annotations

import pytest
from django.db import connection

from django_pgqueue.pipeline.task_hours import Sums, sums, together
from tests.harness.factories import hour_ago, make_task_hour

pytestmark = pytest.mark.django_db


def read(hours=24, **options):
    with connection.cursor() as cursor:
        return sums(cursor, since=hour_ago(hours), **{"step_seconds": 3_600, **options})


def epoch(hours):
    return int(hour_ago(hours).timestamp())


def test_spans_have_what_is_asked_for_and_tasks_have_all():
    """So that a filter can offer the others."""
    make_task_hour(1, queue="a", task="x", started=1)
    make_task_hour(1, queue="b", task="x", started=2)
    make_task_hour(2, queue="b", task="y", started=4)

    def started(**asked):
        found = read(**asked)
        assert {("a", "x"): 1, ("b", "x"): 2, ("b", "y"): 4} == {
            key: each.started for key, each in found.tasks.items()
        }
        return {span: each.started for span, each in found.spans.items()}

    assert {epoch(1): 3, epoch(2): 4} == started()
    assert {epoch(1): 2, epoch(2): 4} == started(queue="b")
    assert {epoch(1): 3} == started(task="x")
    assert {epoch(1): 1} == started(queue="a", task="x")
    assert {} == started(queue="a", task="y")


def test_a_span_that_was_not_read_as_a_whole_is_left_out():
    """Nor is its task's sum taken for all that there is: it says from when on."""
    for ago in (1, 2, 3, 4):
        make_task_hour(ago, task="a")
        make_task_hour(ago, task="b")

    found = read(limit=5)

    assert {epoch(1), epoch(2)} == {*found.spans}
    assert epoch(2) == found.since
    assert read(limit=9).since is None


def test_sums_are_put_together_by_what_holds_of_them():
    """Counts add up; of p95 the highest, of p50 the mean by deliveries."""
    one = Sums(started=3, succeeded=3, wait_p50=1.0, wait_p95=2.0, worker_seconds=1)
    other = Sums(started=1, failed=1, dead=1, wait_p50=5.0, wait_p95=9.0, run_p95=7.0)

    both = together([one, other, Sums(started=9)])

    assert (13, 3, 1, 1) == (both.started, both.succeeded, both.failed, both.dead)
    assert (2.0, 9.0) == (both.wait_p50, both.wait_p95)
    assert (None, 7.0) == (both.run_p50, both.run_p95)
    assert Sums() == together([])
