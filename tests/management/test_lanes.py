"""`manage.py pgqueue lanes`, and what `show` says of a job that waits in one."""

from __future__ import annotations

import re

import pytest
from django.db import connection

from django_pgqueue.queues.lanes import promote
from tests.harness.factories import make_jobs
from tests.harness.minutes import in_minutes
from tests.management.test_pgqueue import DONE, NOTHING, run, told

RUNS = """
UPDATE pgqueue_job
   SET leased_by = 'web-1', attempt = 1, deliveries = 1,
       visible_at = now() + interval '1 minute',
       leased_at = now() - interval '4 minutes'
 WHERE id = %s
"""


@pytest.fixture(autouse=True)
def database(db):
    """The tables."""


def make_lane(name, count, capacity=None, **columns):
    """Insert jobs of a lane and let the first through; return their ids."""
    ids = make_jobs(count, lane=name, lane_capacity=capacity, **columns)
    with connection.cursor() as cursor:
        promote(cursor, [name])
    return ids


def start(job):
    """Let a worker run a job, since four minutes."""
    with connection.cursor() as cursor:
        cursor.execute(RUNS, [job])


def test_lanes_have_a_line_for_each_in_which_jobs_wait():
    """With how many wait and run, since when, and whom they wait for."""
    first, *_ = make_lane("shop.charge:17", 4, task="shop.charge")
    start(first)
    ready, *_ = make_lane("shop.sync:3", 7, 5, task="shop.sync")
    make_lane("nobody waits", 1)

    status, out, err = run("lanes")
    assert (DONE, "") == (status, err)
    _, group, limit = in_minutes(out).splitlines()
    group_line = (
        rf"shop.charge:17  group +3  1 of 1 +1 +\d+ s +{first}  running for 4 min"
    )
    limit_line = rf"shop.sync:3 +limit +2  5 of 5 +0 +0 s +{ready}  ready for \d+ s"
    assert re.fullmatch(group_line, group)
    assert re.fullmatch(limit_line, limit)


def names(*arguments):
    return [lane["name"] for lane in told("lanes", *arguments)[1]["lanes"]]


# What is done with one ---------------------------------------------------------------


def test_a_lane_is_paused_and_resumed():
    """By whom and why is told to the second, and by the list, `show` and in JSON."""
    first, second, *_ = make_lane("shop.sync:3", 3, 2)
    status, out, err = run(
        "lanes", "pause", "shop.sync:3", "--reason", "key expired", "--until", "2h"
    )
    assert (DONE, "") == (status, err)
    assert "Lane shop.sync:3 is paused; what was let through goes on.\n" == out

    why = r"paused for another 1 h 59 min by \S+ \(command line\): key expired"
    status, out, _ = run("lanes", "pause", "shop.sync:3")
    assert NOTHING == status
    assert re.fullmatch(
        r"Lane shop.sync:3 was paused already by \S+ .*: key expired; that stays.\n",
        out,
    )
    assert re.search(rf"  {first}  {why}; ready for", run("lanes")[1])
    _, out, _ = run("show", second + 1)
    assert re.search(rf"1st in line for limit shop.sync:3 .*, which is {why}\n", out)
    (lane,) = told("lanes")[1]["lanes"]
    assert "key expired" == lane["pause_reason"]

    resumed = {"lane": "shop.sync:3", "resumed": True}
    assert (DONE, resumed) == told("lanes", "resume", "shop.sync:3")
    status, out, _ = run("lanes", "resume", "shop.sync:3")
    assert (NOTHING, "Lane shop.sync:3 was not paused.\n") == (status, out)


def test_a_limit_takes_another_number():
    """In the list with what its jobs say; default takes it back."""
    make_lane("shop.sync:3", 9, 2)

    assert (DONE, "Lane shop.sync:3 takes 5 at a time.\n", "") == run(
        "lanes", "capacity", "shop.sync:3", 5
    )
    assert re.search(r" 2 of 5 \(2\) ", run("lanes")[1])
    changed = {"lane": "shop.sync:3", "capacity": 5, "changed": False}
    assert (NOTHING, changed) == told("lanes", "capacity", "shop.sync:3", 5)
    assert DONE == run("lanes", "capacity", "shop.sync:3", "default")[0]
    assert re.search(r" 2 of 2 ", run("lanes")[1])


def test_a_release_tells_what_it_let_through_or_why_not():
    """A group says whom it waits for."""
    first, second, _ = make_lane("g", 3)
    status, out, _ = run("lanes", "release", "g")
    assert NOTHING == status
    assert re.fullmatch(
        "Lane g: nothing was let through: a group never has more at once than it "
        rf"takes. It waits for job {first}, ready for \d+ s.\n",
        out,
    )

    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE pgqueue_job SET visible_at = now() + interval '5 min',"
            " attempt = 1, deliveries = 1 WHERE id = %s",
            [first],
        )
    released = {"lane": "g", "released": second, "put_off": first}
    assert (DONE, released) == told("lanes", "release", "g")
    assert "no job of it is due" in run("lanes", "release", "none")[1]


# show --------------------------------------------------------------------------------


def test_show_says_why_a_job_waits():
    """In one sentence; in JSON too."""
    first, _, third = make_lane("customer:17", 3)
    start(first)

    why = f"3rd in group customer:17, behind job {first}, running for 4 min"
    _, out, _ = run("show", third)
    assert f"Job {third} is parked: {why}" == in_minutes(out.splitlines()[0])
    assert re.search(r"^  lane +customer:17, group$", out, re.MULTILINE)
    assert why == in_minutes(told("show", third)[1]["job"]["waits"])
