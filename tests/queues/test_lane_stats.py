"""What waits in lanes, and for what."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest

from django_pgqueue.models import Lane
from django_pgqueue.models.columns import CLOCK
from django_pgqueue.postgres.limits import Plans, along_index, limit
from django_pgqueue.queues import lane_controls
from django_pgqueue.queues import lane_stats as stats
from django_pgqueue.queues.lanes import promote
from tests.harness.factories import make_job, make_jobs, make_leased_job

pytestmark = pytest.mark.django_db(transaction=True)

LATER = timedelta(hours=1)


def make_waiting(count, lane, capacity=None, **columns):
    """Insert jobs of *lane*, which the trigger parks; return their ids."""
    return make_jobs(count, lane=lane, lane_capacity=capacity, **columns)


def let_through(cursor, *lanes):
    """Let through what there is room for."""
    return promote(cursor, lanes).jobs


def run_one(cursor, job, minutes=4):
    """Give a job that was let through to a worker, some minutes ago."""
    cursor.execute(
        "UPDATE pgqueue_job SET leased_by = 'w', attempt = 1, deliveries = 1,"
        " visible_at = now() + interval '1 minute',"
        " leased_at = now() - make_interval(mins => %s) WHERE id = %s",
        [minutes, job],
    )


def only(cursor, *lanes):
    (lane,) = stats.lane_stats(cursor, lanes)
    return lane


def test_a_rate_says_when_the_next_one_goes(cursor):
    """By its bucket, and by what was let through and not claimed."""
    make_waiting(3, "api", 100_000, lane_spacing=60.0, lane_burst=2)
    fresh = only(cursor, "api")
    assert (60.0, 0.0, True) == (fresh.spacing, fresh.turn_seconds, fresh.has_room)
    assert 2 == let_through(cursor, "api")

    lane = only(cursor, "api")
    assert 20 < lane.turn_seconds <= 60
    assert (2, 1, True, False) == (
        lane.let_through, lane.waiting, lane.is_rate, lane.has_room
    )  # fmt: skip
    cursor.execute("UPDATE pgqueue_lane SET full_at = now() - interval '1 h'")
    assert 60 == only(cursor, "api").turn_seconds
    cursor.execute("UPDATE pgqueue_lane SET unclaimed = 0")
    assert only(cursor, "api").has_room


def test_a_group_says_who_runs_and_who_waits(cursor):
    """Its first runs, and the others wait for it."""
    first, *_ = make_waiting(3, "customer:17")
    let_through(cursor, "customer:17")
    run_one(cursor, first)

    lane = only(cursor, "customer:17")
    assert (None, 2, 1, 1) == (
        lane.capacity,
        lane.waiting,
        lane.let_through,
        lane.running,
    )
    assert not lane.has_room
    assert (first, "running") == (lane.head.id, lane.head.state)
    assert 240 <= lane.head.seconds < 300
    assert lane.due_seconds >= 0


def test_a_group_waits_for_its_first_though_it_is_not_due(cursor):
    """Others that are due stand behind it."""
    first = make_job(lane="g", run_after=LATER).pk
    make_waiting(2, "g")

    lane = only(cursor, "g")
    assert lane.has_room
    assert (first, first, "parked") == (lane.next_id, lane.head.id, lane.head.state)
    assert -3600 <= lane.due_seconds < -3500


def test_a_limit_says_who_has_run_for_longest(cursor):
    """Of those that are not due none is next before one that is."""
    first, second, third = make_waiting(3, "limit", 2)
    let_through(cursor, "limit")
    run_one(cursor, first, minutes=1)
    run_one(cursor, second, minutes=5)
    make_job(lane="limit", lane_capacity=2, run_after=LATER)

    lane = only(cursor, "limit")
    assert (2, 2, 2, 2) == (
        lane.capacity,
        lane.waiting,
        lane.let_through,
        lane.running,
    )
    assert (second, third) == (lane.head.id, lane.next_id)


def test_a_lease_that_has_lapsed_does_not_run(cursor):
    """Its job is ready, as everywhere."""
    first, _ = make_waiting(2, "g")
    let_through(cursor, "g")
    run_one(cursor, first)
    cursor.execute("UPDATE pgqueue_job SET visible_at = now() WHERE id = %s", [first])

    lane = only(cursor, "g")
    assert (0, "ready") == (lane.running, lane.head.state)


def test_a_lane_of_a_paused_task_says_so(cursor):
    """Of its own lane it is the pause of that; half-open, too."""
    make_jobs(1, task="shop.sync", lane="shop.sync:1", lane_capacity=5)
    make_jobs(1, task="shop.sync", lane="shop.sync", lane_capacity=5)
    names = ["shop.sync:1", "shop.sync"]
    Lane.objects.create(
        name="shop.sync",
        paused_at=CLOCK,
        paused_until=CLOCK - LATER,
        paused_by="breaker",
        breaker_trips=2,
    )

    of_key, of_task = stats.lane_stats(cursor, names)
    assert ("shop.sync", "breaker", 2) == (
        of_key.task_pause.task,
        of_key.task_pause.paused_by,
        of_key.task_pause.breaker_trips,
    )
    assert (False, False) == (of_key.is_paused, of_key.has_room)
    assert of_key.task_pause.seconds < 0
    assert (True, 2, None) == (
        of_task.is_paused,
        of_task.breaker_trips,
        of_task.task_pause,
    )

    Lane.objects.update(breaker_trips=0)
    assert [True, True] == [lane.has_room for lane in stats.lane_stats(cursor, names)]


def test_counts_stop_at_a_limit(cursor):
    """A lane with many jobs costs no more than that."""
    make_waiting(5, "g")

    (lane,) = stats.lane_stats(cursor, ["g"], count_max=3)
    assert 3 == lane.waiting
    assert lane.is_more(lane.waiting)
    assert not lane.is_more(lane.let_through)


def test_a_lane_in_which_nothing_waits_is_left_out(cursor):
    """Nor is it found."""
    make_waiting(1, "g")
    let_through(cursor, "g")

    assert [] == stats.lane_stats(cursor, ["g", "none"])
    assert [] == stats.lane_stats(cursor, [])
    assert [] == stats.find_lanes(cursor, limit=10, looks=10).lanes


def test_lanes_are_found_by_name_a_page_at_a_time(cursor):
    """Each once, however many jobs it has."""
    for name in ("b", "a", "c"):
        make_waiting(2, name)

    first = stats.find_lanes(cursor, limit=2, looks=10)
    assert (["a", "b"], "b", False) == (first.lanes, first.after, first.is_cut)
    second = stats.find_lanes(cursor, after="b", limit=2, looks=10)
    assert (["c"], None, False) == (second.lanes, second.after, second.is_cut)


def test_lanes_are_found_by_text_and_task(cursor):
    """Of the name in letters of either case; of the first job that waits."""
    make_waiting(1, "shop.Charge:17", task="shop.charge")
    make_waiting(1, "shop.charge:18", task="shop.old")
    make_waiting(1, "shop.charge:18", task="shop.charge")

    found = stats.find_lanes(cursor, limit=9, looks=9, text="CHARGE:1")
    assert ["shop.Charge:17", "shop.charge:18"] == sorted(found.lanes)
    found = stats.find_lanes(cursor, limit=9, looks=9, task="shop.charge")
    assert ["shop.Charge:17"] == found.lanes
    # No pattern.
    assert [] == stats.find_lanes(cursor, limit=9, looks=9, text="%").lanes


def test_a_look_ends_and_says_where_to_go_on(cursor):
    """Though nothing was found."""
    for name in ("a", "b", "c"):
        make_waiting(1, name)

    found = stats.find_lanes(cursor, limit=5, looks=2, text="c")
    assert ([], "b", True) == (found.lanes, found.after, found.is_cut)
    found = stats.find_lanes(cursor, after="b", limit=5, looks=2, text="c")
    assert (["c"], None) == (found.lanes, found.after)


def test_a_walk_meets_every_lane(cursor, monkeypatch):
    """In parts, and no more lanes than it may look at."""
    monkeypatch.setattr(stats, "LANES_LOOKED_AT_MAX", 2)
    for name in "abcde":
        make_waiting(1, name)

    parts = [part for part in stats.walk_lanes(cursor, looks=100) if part]
    assert [["a", "b"], ["c", "d"], ["e"]] == parts
    assert 3 == sum(map(len, stats.walk_lanes(cursor, looks=3)))


def test_a_place_in_a_group_goes_by_ids(cursor):
    """That one is due earlier changes nothing; a tried one that waits is set aside."""
    make_job(lane="g", run_after=LATER)
    make_job(lane="g", deliveries=1, run_after=LATER)
    last = make_job(lane="g").pk

    place = stats.place_of(cursor, last)
    assert (1, "g") == (place.before, place.lane.name)
    assert place.due_seconds >= 0


def test_a_place_in_a_limit_goes_by_time(cursor):
    """Who has been due for longer is first, whatever its id."""
    later = make_job(lane="limit", lane_capacity=2, run_after=LATER).pk
    first, second = make_waiting(2, "limit", 2)

    places = [stats.place_of(cursor, job).before for job in (first, second, later)]
    assert [0, 1, 2] == places


def test_a_place_in_a_fair_lane_tells_how_many_others_have_turns(cursor, monkeypatch):
    """Those of its queue, to a number; and it goes by the time of being due."""
    for name in ("a", "b", "c"):
        make_waiting(2, name, lane_policy="fair")
    make_waiting(2, "d", lane_policy="fair", queue="mail")
    make_waiting(2, "a limit", 3)
    first, second = make_waiting(2, "b", lane_policy="fair")
    cursor.execute(
        "UPDATE pgqueue_job SET lane_due_at = now() - interval '1 h' WHERE id = %s",
        [second],
    )

    places = [stats.place_of(cursor, job) for job in (first, second)]
    assert [(3, 2), (0, 2)] == [(place.before, place.others) for place in places]
    monkeypatch.setattr(stats, "LANES_COUNTED", 1)
    assert 1 == stats.place_of(cursor, first).others


def test_a_fair_lane_says_its_weight_and_has_no_room(cursor):
    """It lets nothing through by itself, whatever is due."""
    (job, _) = make_waiting(2, "a", lane_policy="fair")
    assert (None, True) == (only(cursor, "a").weight, only(cursor, "a").is_fair)
    lane_controls.set_weight(cursor, "a", 3)

    lane = only(cursor, "a")
    assert (3, False, job) == (lane.weight, lane.has_room, lane.next_id)
    assert (True, "parked") == (lane.head.is_fair, lane.head.state)


def test_a_lane_that_was_given_a_weight_is_found(cursor):
    """Also where nothing waits, in both directions."""
    lane_controls.set_weight(cursor, "b", 3)
    make_waiting(1, "a")

    for is_back in (False, True):
        found = stats.find_lanes(cursor, limit=10, looks=10, is_back=is_back)
        assert ["a", "b"] == sorted(found.lanes)
    assert (3, 0) == (only(cursor, "b").weight, only(cursor, "b").waiting)


def test_what_is_not_parked_has_no_place(cursor):
    """Nor has a job that there is not."""
    (job,) = make_waiting(1, "g")
    let_through(cursor, "g")

    assert stats.place_of(cursor, job) is None
    assert stats.place_of(cursor, make_leased_job().pk) is None
    assert stats.place_of(cursor, 2**62) is None


def test_a_paused_queue_is_told(cursor):
    """It may be why the first does not run."""
    make_waiting(2, "g", queue="mail")
    let_through(cursor, "g")
    assert not only(cursor, "g").head.is_paused
    cursor.execute("INSERT INTO pgqueue_queue (name, paused_at) VALUES ('mail', now())")

    assert only(cursor, "g").head.is_paused


def test_groups_that_wait_for_a_failing_job(cursor):
    """Not one whose first has not failed, no limit, and whatever errors hold."""
    error = {"type": "shop.Unlucky", "at": "2026-01-01T00:00:00+00:00"}
    for name, capacity, errors in (
        ("failing", None, [error, error]),
        ("fresh", None, []),
        ("limit", 2, [error]),
        ("odd", None, [1]),
    ):
        first, *_ = make_waiting(4, name, capacity)
        let_through(cursor, name)
        cursor.execute(
            "UPDATE pgqueue_job SET attempt = 2, deliveries = 2, errors = %s"
            " WHERE id = %s",
            [json.dumps(errors), first],
        )

    names = ["failing", "fresh", "limit", "odd"]
    found = {head.lane: head for head in stats.failing_heads(cursor, names)}
    assert {"failing", "odd"} == set(found)
    assert ("shop.Unlucky", error["at"], 2) == (
        found["failing"].error,
        found["failing"].first_at,
        found["failing"].attempt,
    )
    assert (None, None) == (found["odd"].error, found["odd"].first_at)


# Plans -------------------------------------------------------------------------------

ONE_KEY = """
INSERT INTO pgqueue_job (task, lane, lane_capacity, lane_policy)
SELECT 'x', 'one', {kind} FROM generate_series(1, {n})
"""
MANY_LANES = """
INSERT INTO pgqueue_job (task, lane, lane_capacity, lane_policy)
SELECT 'x', 'lane' || n % 5000, {kind} FROM generate_series(1, {n}) n
"""


def read_as_a_whole(plan):
    """Return the tables that a plan reads from end to end; that of queues is small."""
    found = {plan["Relation Name"]} if plan["Node Type"] == "Seq Scan" else set()
    return found.union(*map(read_as_a_whole, plan.get("Plans", ())))


@pytest.mark.parametrize("kind", ["NULL, NULL", "5, NULL", "NULL, 'fair'"])
@pytest.mark.parametrize("rows", [ONE_KEY, MANY_LANES], ids=["one key", "many lanes"])
def test_no_look_reads_more_than_it_counts(cursor, unanalysed, rows, kind):
    """
    A hundred thousand jobs wait, of one key or of many.

    The table was analysed when it was empty, so that the planner takes them for a few;
    or never; or as it is.
    """
    make_waiting(200, "g")
    cursor.execute("DELETE FROM pgqueue_job")
    cursor.execute("VACUUM (ANALYZE) pgqueue_job")
    cursor.execute(rows.format(n=100_000, kind=kind))

    assert_looks_read_little(cursor)
    unanalysed()
    assert_looks_read_little(cursor)
    cursor.execute("ANALYZE pgqueue_job")
    assert_looks_read_little(cursor)


def assert_looks_read_little(cursor):
    cursor.execute("SELECT max(id) FROM pgqueue_job")
    (last,) = cursor.fetchone()
    names = stats.find_lanes(cursor, limit=10, looks=10).lanes
    statements = {
        stats.FIND: {"after": "", "text": "l", "task": "x", "looks": 50, "limit": 50},
        stats.FIND_BACK: {"after": "", "text": "l", "task": "x", "looks": 50}
        | {"limit": 50},
        stats.STATS: {"lanes": names, "limit": 1_000},
        stats.PLACE: {"id": last, "limit": 1_000, "lanes": 100},
        stats.FAILING: {"lanes": names},
        lane_controls.IS_GROUP: {"lane": names[0]},
        lane_controls.POLICY: {"lane": names[0]},
        lane_controls.RELEASE: {"lane": names[0]},
    }

    for statement, params in statements.items():
        with cursor.connection.transaction(force_rollback=True):
            limit(cursor, seconds=10, plans=Plans.IN_ORDER)
            with along_index(cursor):
                cursor.execute(
                    f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {statement}", params
                )
                plan = cursor.fetchone()[0][0]["Plan"]
        read = plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]
        assert "pgqueue_job" not in read_as_a_whole(plan)
        assert read < 3_000, f"{statement}\n{json.dumps(plan, indent=1)}"
