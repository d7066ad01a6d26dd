"""The report: workers for a wait, promises, what became slow, and what it costs."""

from __future__ import annotations

import math
import random
from datetime import UTC, datetime, timedelta

import pytest

from django_pgqueue.exceptions import SettingsError
from django_pgqueue.models import LabelHour
from django_pgqueue.pipeline.capacity import capacity, need
from django_pgqueue.pipeline.objectives import budgets
from django_pgqueue.pipeline.queue_hours import QueueHour
from tests.harness.factories import hour_ago, make_task_hour
from tests.management.test_pgqueue import DONE, NOTHING, USAGE, run, told
from tests.test_conf import value_of

NOON = datetime(2026, 11, 25, 12, tzinfo=UTC)


def hour(started=100, seconds=1.0, failed=0, p95=0.1, at=NOON):
    return QueueHour(at, started, started, failed, p95, started * seconds)


# Capacity ---------------------------------------------------------------------------


def simulated_late_share(load, threads, run_seconds, wait_seconds, jobs=60_000):
    """Return the share of jobs that waits longer, of jobs that come at random."""
    chance = random.Random(7)
    free = [0.0] * threads
    now = late = 0.0
    for _ in range(jobs):
        now += chance.expovariate(load / run_seconds)
        first = min(range(threads), key=free.__getitem__)
        start = max(now, free[first])
        late += start - now > wait_seconds
        free[first] = start + chance.expovariate(1 / run_seconds)
    return late / jobs


@pytest.mark.parametrize("load, wait", [(0.3, 5.0), (2.7, 1.0), (11.2, 0.5)])
def test_the_threads_are_those_that_a_simulation_needs(load, wait):
    """So many hold the wait for 95 %, and one fewer does not."""
    found = need(hour(started=round(load * 3_600 / 2), seconds=2.0), wait)

    enough = simulated_late_share(found.load, found.threads, 2.0, wait)
    assert enough <= 0.05 + 0.01
    assert math.isclose(enough, found.late_share, abs_tol=0.012)
    if found.threads - 1 > found.load:
        fewer = simulated_late_share(found.load, found.threads - 1, 2.0, wait)
        assert fewer > 0.05 - 0.01
        assert math.isclose(fewer, found.late_share_before, abs_tol=0.05)
    else:
        assert 1 == found.late_share_before


def test_the_busiest_hour_has_the_most_work():
    """Not the most jobs; and 19 of 20 hours need no more than the usual one."""
    hours = [hour(seconds=n, at=NOON + timedelta(hours=n)) for n in range(1, 21)]
    found = capacity([*hours, hour(started=0), hour(started=900, seconds=0.1)], 5.0)

    assert NOON + timedelta(hours=20) == found.busiest.hour
    assert NOON + timedelta(hours=19) >= found.usual.hour
    assert found.usual.threads <= found.busiest.threads
    assert capacity([hour(started=0)], 5.0) is None


# Objectives -------------------------------------------------------------------------


def test_a_budget_is_what_may_fail():
    """Half of it is left where half as many failed; the last day burns it faster."""
    old = [hour(1_000, at=NOON + timedelta(hours=n)) for n in range(24)]
    new = [
        hour(1_000, failed=1, at=NOON + timedelta(days=2, hours=n)) for n in range(24)
    ]
    [budget] = budgets([*old, *new], wait=None, success=0.999)

    assert (48_000, 24) == (budget.jobs, budget.bad)
    assert math.isclose(0.5, budget.left, abs_tol=1e-9)
    assert math.isclose(1.0, budget.burn_rate, abs_tol=1e-9)
    assert budget.is_kept


@pytest.mark.parametrize("target, jobs", [(0.9, 10), (0.8, 5), (0.9999, 30_000)])
def test_a_promise_is_kept_where_all_fail_that_may(target, jobs):
    """Just as many: nothing is left of the budget, and one more breaks it."""
    may = round((1 - target) * jobs)
    [spent] = budgets([hour(jobs, failed=may)], wait=None, success=target)
    [broken] = budgets([hour(jobs, failed=may + 1)], wait=None, success=target)

    assert (True, 0, 1) == (spent.is_kept, spent.left, spent.burn_rate)
    assert not broken.is_kept


def test_an_hour_with_a_longer_wait_is_late_as_a_whole():
    """One without a measured wait is in time."""
    hours = [hour(98), hour(1, p95=31.0), hour(1, p95=None)]
    [budget] = budgets(hours, wait=timedelta(seconds=30), success=None)

    assert (100, 1) == (budget.jobs, budget.bad)
    assert budget.is_kept
    [budget] = budgets(
        [*hours, hour(2, p95=31.0)], wait=timedelta(seconds=30), success=None
    )
    assert not budget.is_kept


@pytest.mark.parametrize(
    "objective, words",
    [
        ({}, "promises nothing"),
        ({"success": 1}, "0.5 to below 1"),
        ({"success": "99"}, "must be a number"),
        ({"wait": "soon"}, "no duration"),
        ({"waits": "5s"}, "unknown key 'waits'. Did you mean 'wait'"),
    ],
)
def test_what_cannot_be_promised_is_refused(objective, words):
    """With the key, the value and the limit."""
    with pytest.raises(SettingsError, match=words):
        value_of("QUEUES", {"mail": {"objective": objective}})


# The command ------------------------------------------------------------------------


@pytest.mark.django_db
def test_capacity_tells_the_arithmetic(settings):
    """Of each queue, for the wait that is asked for, that it promises, or 5 s."""
    settings.PGQUEUE = {
        "QUEUES": {"mail": {"objective": {"wait": "1m"}}},
    }
    make_task_hour(2, queue="mail", started=7_200, worker_seconds=9_000.0)
    make_task_hour(3, queue="slow", started=10, worker_seconds=10.0)

    status, out, _ = run("report", "capacity")
    assert DONE == status
    assert (
        "7,200 starts of 1.25 s are 2 h 30 min of work in an hour: 2.5 threads" in out
    )
    assert "longer than 1 min; with one fewer, work would only grow." in out
    _, found = told("report", "capacity", "--queue", "mail", "--wait", "500ms")
    [queue] = found["queues"]
    assert ("mail", 0.5, 5) == (
        queue["queue"],
        queue["wait_seconds"],
        queue["busiest"]["threads"],
    )
    assert NOTHING == run("report", "capacity", "--queue", "none")[0]
    assert USAGE == run("report", "capacity", "--days", "0")[0]


@pytest.mark.parametrize(
    "about, option",
    [("objectives", ("--wait", "2s")), ("capacity", ("--by", "tag"))],
)
def test_an_option_of_another_report_is_refused(about, option):
    """It would change nothing."""
    status, _, problem = run("report", about, *option)

    assert USAGE == status
    assert f"{option[0]} is for" in problem


@pytest.mark.django_db
def test_a_broken_promise_is_status_1(settings):
    """So that a check can be made of it."""
    settings.PGQUEUE = {
        "QUEUES": {"mail": {"objective": {"success": 0.99}}},
    }
    make_task_hour(2, queue="mail", succeeded=98, dead=0, expired=0)
    assert DONE == run("report", "objectives")[0]
    make_task_hour(3, queue="mail", succeeded=0, dead=2)

    status, out, _ = run("report", "objectives")
    assert NOTHING == status
    assert "99% succeed" in out
    assert "98.000%" in out
    [found] = told("report", "objectives")[1]["objectives"]
    assert (False, 2, 100) == (found["is_kept"], found["bad"], found["jobs"])


@pytest.mark.django_db
def test_what_takes_longer_than_usual_is_told():
    """A task twice as slow as it was; not one that varies as much, nor a rare one."""
    for ago in range(30, 90):
        make_task_hour(
            ago, task="steady", started=50, run_p50=1.0 + ago % 3 * 0.01, run_p95=2.0
        )
        make_task_hour(
            ago, task="varies", started=50, run_p50=1.0 + ago % 3, run_p95=9.0
        )
        make_task_hour(ago, task="rare", started=1, run_p50=1.0, run_p95=1.0)
    for ago in range(1, 20):
        make_task_hour(ago, task="steady", started=50, run_p50=2.5, run_p95=2.1)
        make_task_hour(ago, task="varies", started=50, run_p50=3.5, run_p95=9.0)
    make_task_hour(2, task="rare", started=1, run_p50=9.0, run_p95=9.0)

    found = told("report", "durations")[1]["durations"]
    assert [("steady", "p50", 2.5)] == [
        (each["task"], each["mark"], each["lately"]) for each in found
    ]
    assert "steady" in run("report", "durations")[1]


@pytest.mark.django_db
def test_costs_are_by_task_tag_and_lane(settings):
    """In worker time, and in money where an hour of a thread has a price."""
    settings.PGQUEUE = {"WORKER_HOUR_PRICE": 0.5}
    make_task_hour(1, task="cheap", succeeded=10, worker_seconds=1_800.0)
    make_task_hour(2, task="dear", succeeded=5, worker_seconds=7_200.0)
    of = {"hour": hour_ago(1), "queue": "default", "kind": "lane"}
    LabelHour.objects.create(**of, label="", jobs=9, worker_seconds=9.0)
    LabelHour.objects.create(**of, label="tenant:7", jobs=3, worker_seconds=3.0)

    found = told("report", "costs")[1]["costs"]
    assert [("dear", 5, 1.0), ("cheap", 10, 0.25)] == [
        (each["name"], each["jobs"], each["price"]) for each in found
    ]
    found = told("report", "costs", "--by", "lane")[1]["costs"]
    assert ["tenant:7", None] == [each["name"] for each in found]
    assert NOTHING == run("report", "costs", "--by", "tag")[0]
