"""Why a job waits in its lane, in words."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from django_pgqueue.operators.lanes import (
    does,
    kind,
    rate,
    sentence,
    waits_for,
)
from django_pgqueue.queues.lane_stats import Head, LaneStats, Place, TaskPause

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def make_head(
    job=4711, state="running", seconds=240.0, *, is_paused=False, is_fair=False
):
    return Head(job, "shop.charge", "mail", state, 3, 5, seconds, is_paused, is_fair)


def make_lane(capacity=None, **more):
    return LaneStats(
        **{
            "name": "c:17",
            "capacity": capacity,
            "waiting": 1,
            "let_through": 0,
            "running": 0,
            "next_id": 1,
            "due_seconds": 1.0,
            "head": None,
            **more,
        }
    )


def make_place(
    before=0,
    due=9.0,
    capacity=None,
    let_through=1,
    head=None,
    job=4720,
    count_max=100,
    others=0,
    **more,
):
    return Place(
        id=job,
        others=others,
        before=before,
        due_seconds=due,
        lane=make_lane(
            capacity,
            waiting=before + 1,
            let_through=let_through,
            running=let_through,
            head=head or make_head(),
            count_max=count_max,
            **more,
        ),
    )


def test_a_lane_is_a_group_or_a_limit():
    """A limit says of how many, and a rate how many in which time."""
    assert ["group", "limit of 1", "limit of 100,000"] == [
        kind(capacity, None) for capacity in (None, 1, 100_000)
    ]
    assert ["group, 1/s", "limit of 5, 40/s", "rate of 100/min", "rate of 20/h"] == [
        kind(None, 1.0),
        kind(5, 0.025),
        kind(100_000, 0.6),
        kind(100_000, 180.0),
    ]
    assert "0.03226/d" == rate(31 * 86_400.0)


def test_a_job_of_a_rate_waits_for_its_turn():
    """Where there is a place for it, and until the next may go."""
    said = {"capacity": 100_000, "spacing": 0.6}
    assert (
        "4th in line for rate c:17 (100/min), which lets the next through in 2 s"
    ) == sentence(make_place(before=3, turn_seconds=2.4, **said))
    assert "1st in line for its rate of 100/min, which has room: not let through" == (
        sentence(make_place(**said), is_named=False)
    )
    assert not make_lane(turn_seconds=0.1, **said).has_room
    assert "limit c:17 (5 at a time), behind job 4711" in sentence(
        make_place(capacity=5, let_through=5, spacing=0.6, turn_seconds=2.4)
    )


@pytest.mark.parametrize(
    "head,text",
    [
        (make_head(), "running for 4 min"),
        (
            make_head(state="retrying", seconds=-30.5),
            "attempt 4 of 5 in 30 s",
        ),
        (make_head(state="ready"), "ready for 4 min"),
        (
            make_head(state="ready", is_paused=True),
            "ready for 4 min, in the paused queue mail",
        ),
        (make_head(state="scheduled", seconds=-30.5), "due in 30 s"),
        (make_head(state="parked", seconds=-30.5), "due in 30 s"),
        (make_head(state="parked"), "due for 4 min, not let through"),
        (make_head(state="parked", is_fair=True), "due for 4 min, waits for its turn"),
        (
            make_head(state="parked", is_fair=True, is_paused=True),
            "due for 4 min, in the paused queue mail",
        ),
    ],
)
def test_what_a_job_does(head, text):
    """Or waits for."""
    assert text == does(head)


def test_a_lane_tells_why_its_first_job_waits():
    """A pause stands beside it, a rate has its time; else that is odd."""
    parked = make_head(state="parked")
    lanes = [
        make_lane(5, head=parked),
        make_lane(5, head=parked, paused_at=NOON),
        make_lane(5, head=parked, task_pause=TaskPause("t", None, None, None, 0)),
        make_lane(100_000, head=parked, spacing=180.0, turn_seconds=150.0),
        make_lane(5, head=parked, let_through=5, spacing=180.0, turn_seconds=150.0),
        make_lane(5, head=make_head(), paused_at=NOON),
        make_lane(5),
    ]

    assert [
        "due for 4 min, not let through",
        "due for 4 min",
        "due for 4 min",
        "due for 4 min, let through in 2 min 30 s",
        "due for 4 min, not let through",
        "running for 4 min",
        "",
    ] == list(map(waits_for, lanes))


@pytest.mark.parametrize(
    "place,text",
    [
        (make_place(1), "3rd in group c:17, behind job 4711, running for 4 min"),
        (
            make_place(0, head=make_head(4720, "parked", 5.0), let_through=0),
            "1st in group c:17, due for 5 s, not let through",
        ),
        (
            make_place(0, head=make_head(4720, "parked", -5.0), let_through=0),
            "1st in group c:17, due in 5 s",
        ),
        (
            make_place(1, head=make_head(state="parked", seconds=-5), let_through=0),
            "2nd in group c:17, behind job 4711, due in 5 s",
        ),
        (
            make_place(100, count_max=100),
            "after 100+ others in group c:17, behind job 4711, running for 4 min",
        ),
        (
            make_place(
                2,
                capacity=5,
                let_through=5,
                head=make_head(state="scheduled", seconds=-240.0),
            ),
            "3rd in line for limit c:17 (5 at a time), behind job 4711, due in 4 min",
        ),
        (
            make_place(2, capacity=5, let_through=4),
            "3rd in line for limit c:17 (5 at a time), which has room: not let through",
        ),
        (
            make_place(2, capacity=5, due=-7200.0),
            "due in 2 h, then in line for limit c:17 (5 at a time)",
        ),
    ],
)
def test_why_a_job_waits(place, text):
    """Which of its lane it is, behind whom, and what that one does."""
    assert text == sentence(place)


@pytest.mark.parametrize(
    "pause, text",
    [
        (
            TaskPause("shop.sync", "ada", "their API is down", 7_199.0, 0),
            "task shop.sync is paused for another 1 h 59 min by ada: their API is down",
        ),
        (TaskPause("shop.sync", None, None, None, 0), "task shop.sync is paused"),
        (
            TaskPause("shop.sync", "breaker", "9 of 9 attempts failed", 30.0, 1),
            (
                "task shop.sync is paused for another 30 s by breaker: "
                "9 of 9 attempts failed"
            ),
        ),
        (
            TaskPause("shop.sync", "breaker", "9 of 9 attempts failed", -1.0, 1),
            (
                "task shop.sync is half-open: its circuit breaker waits for a probe: "
                "9 of 9 attempts failed"
            ),
        ),
    ],
)
def test_a_job_of_a_paused_task_waits_for_that(pause, text):
    """Whatever room its lane has."""
    place = make_place(capacity=5, let_through=0, task_pause=pause)

    assert not place.lane.has_room
    assert f"1st in line for limit c:17 (5 at a time), {text}" == sentence(place)


def test_a_job_of_a_fair_lane_waits_for_its_turn():
    """With how many others; a pause is told before that."""
    fair = {"capacity": 100_000, "policy": "fair"}
    assert (
        "4th in line for lane c:17 (weight 3), which takes turns with 2 others"
    ) == sentence(make_place(before=3, others=2, weight=3, **fair))
    assert "1st in line for its lane, which takes turns with 100+ others" == sentence(
        make_place(others=100, **fair), is_named=False
    )
    assert sentence(make_place(others=1, **fair)).endswith("turns with 1 other")
    assert "1st in line for lane c:17, which is paused: why" == sentence(
        make_place(paused_at=NOON, pause_reason="why", **fair)
    )
    head = make_head(state="parked", is_paused=True, is_fair=True)
    assert "1st in line for lane c:17, in the paused queue mail" == sentence(
        make_place(head=head, **fair)
    )
