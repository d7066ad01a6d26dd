"""The picture of a workflow: which steps are one box, and where boxes stand."""

from __future__ import annotations

import time
from itertools import pairwise

import pytest

from django_pgqueue.admin.workflow_folds import (
    BOXES_PER_LAYER_MAX,
    LAYERS_MAX,
    MEMBERS_DRAWN_MAX,
    folded,
)
from django_pgqueue.admin.workflow_graph import BOX_WIDTH, graph
from django_pgqueue.queues.workflows import Alike
from tests.harness.waiting import patience


def step(number, name="give", *, next=(), state="succeeded", **said):  # noqa: A002
    """Return one step, as the database tells it."""
    columns = {"kind": "step", "has_task": True, "compensates": None, **said}
    times = {"started": 10.0, "finished": 12.5}
    if state in ("waiting", "started"):
        times["finished"] = None
    if state == "waiting":
        times["started"] = None
    return Alike(
        name=name,
        state=state,
        next=[*next],
        ids=[number],
        **{**columns, **times, **{k: v for k, v in said.items() if k in times}},
    )


def members(count, *, body, name="resize", state="succeeded", first=1):
    """Return equal members of a chord, as the database tells them: in one row."""
    ids = list(range(first, first + count))
    return step(0, name, next=[body], state=state)._replace(ids=ids)


def boxes(found):
    return [(fold.layer, fold.name, fold.count) for fold in folded(found).folds]


def test_a_chain_is_a_box_for_each_step_from_left_to_right():
    """Each right of the one before it, at the same height."""
    found = [step(1, "a", next=[2]), step(2, "b", next=[3]), step(3, "c")]

    assert [(0, "a", 1), (1, "b", 1), (2, "c", 1)] == boxes(found)
    assert [(0, 1), (1, 2)] == folded(found).lines
    drawn = graph(found, clock=20.0, here=None)
    assert 1 == len({box.y for box in drawn.boxes})
    lefts = [box.x for box in drawn.boxes]
    assert all(b - a > BOX_WIDTH for a, b in pairwise(lefts))
    assert 2 == len(drawn.paths)


def test_a_few_members_are_boxes_of_their_own():
    """Up to the limit; one more, and they are one."""
    few = [members(MEMBERS_DRAWN_MAX, body=99), step(99, "body")]
    many = [members(MEMBERS_DRAWN_MAX + 1, body=99), step(99, "body")]

    assert MEMBERS_DRAWN_MAX + 1 == len(boxes(few))
    assert [(0, "resize", MEMBERS_DRAWN_MAX + 1), (1, "body", 1)] == boxes(many)


def test_ten_thousand_members_are_one_box_whatever_their_states():
    """Which says how many are in each, the gravest first."""
    found = [
        members(9_900, body=20_000),
        members(98, body=20_000, state="started", first=10_000),
        members(2, body=20_000, state="dead", first=10_200),
        step(20_000, "publish", state="waiting"),
    ]

    drawn = graph(found, clock=20.0, here=None)

    one, body = drawn.boxes
    assert "10,000 \u00d7 resize" == one.name
    assert ["2 dead", "98 started", "9,900 succeeded", "10 s"] == [
        line.text for line in one.lines
    ]
    assert "pgqueue-dead" in one.css
    assert ["?q=resize&state=dead#pgqueue-steps"] == [
        line.url for line in one.lines if "dead" in line.text
    ]
    assert BOX_WIDTH - 20 == pytest.approx(sum(piece.width for piece in one.bar))
    assert "publish" == body.name
    assert 1 == len(drawn.paths)
    assert {"dead": 2, "started": 98, "waiting": 1, "succeeded": 9_900} == drawn.states
    assert "dead" == next(iter(drawn.states))


def test_chains_side_by_side_are_folded_step_by_step():
    """All first steps are one box, all second steps the next."""
    found = []
    for number in range(50):
        found += [
            step(2 * number + 1, "fetch", next=[2 * number + 2]),
            step(2 * number + 2, "store", next=[1_000]),
        ]
    found.append(step(1_000, "report"))

    assert [(0, "fetch", 50), (1, "store", 50), (2, "report", 1)] == boxes(found)
    assert [(0, 1), (1, 2)] == folded(found).lines


def test_steps_of_one_name_that_stand_elsewhere_are_other_boxes():
    """add after add is no member of a group."""
    found = [step(n, "add", next=[n + 1]) for n in range(1, 9)]

    assert [(n, "add", 1) for n in range(8)] == boxes(found)


def test_what_stands_side_by_side_is_folded_by_its_name_and_then_together():
    """However many names there are, a picture has some boxes."""
    by_name = [
        step(n, f"task {n % 4}", next=[1_000 + n % 13]) for n in range(1, 200)
    ] + [step(1_000 + n, f"end {n}") for n in range(13)]
    together = [step(n, f"task {n}") for n in range(1, 200)]

    assert {f"task {n}" for n in range(4)} == {
        name for layer, name, _ in boxes(by_name) if layer == 0
    }
    assert [(0, "", 199)] == boxes(together)
    assert "(several names)" in graph(together, clock=1.0, here=None).boxes[0].title
    for found in (by_name, together):
        layers = [layer for layer, *_ in boxes(found)]
        assert max(map(layers.count, layers)) <= BOXES_PER_LAYER_MAX


def test_a_long_chain_is_folded_in_pieces():
    """So many steps after one another are one box."""
    found = [step(n, "add", next=[n + 1]) for n in range(1, 1_001)]

    shape = boxes(found)

    assert len(shape) <= LAYERS_MAX
    assert 1_000 == sum(count for *_, count in shape)
    assert [(n, n + 1) for n in range(len(shape) - 1)] == folded(found).lines


def test_a_callback_stands_behind_all_others_and_is_called_so():
    """It comes after none of them alone."""
    found = [
        step(1, "a", next=[2]),
        step(2, "b"),
        step(3, "mail", kind="on_error", state="waiting"),
    ]

    drawn = graph(found, clock=1.0, here=None)

    assert "if it fails: mail" == drawn.boxes[2].name
    assert drawn.boxes[2].x > drawn.boxes[1].x
    assert 1 == len(drawn.paths)


def test_what_undoes_a_step_hangs_below_it():
    """In its column, joined to it, whichever was stored first."""
    found = [
        step(1, "reserve", next=[2]),
        step(2, "charge", next=[3]),
        step(3, "ship", state="dead"),
        step(4, "refund", kind="compensation", compensates=2, state="started"),
        step(5, "release", kind="compensation", compensates=1, state="waiting"),
    ]

    drawn = graph(found, clock=20.0, here=None)

    at = {box.name: box for box in drawn.boxes}
    for undo, done in (("undo: refund", "charge"), ("undo: release", "reserve")):
        assert at[done].x == at[undo].x
        assert at[done].y + at[done].height < at[undo].y
    assert at["reserve"].y == at["charge"].y == at["ship"].y
    assert 4 == len(drawn.paths)
    bottom = max(box.y + box.height for box in drawn.boxes)
    assert bottom <= drawn.height


def test_a_line_that_leads_further_passes_by_the_boxes_between():
    """It has a place of its own in their column."""
    found = [
        step(1, "a", next=[2, 4]),
        step(2, "b", next=[3]),
        step(3, "c", next=[4]),
        step(4, "d"),
    ]

    drawn = graph(found, clock=1.0, here=None)

    # a to b, b to c, c to d; a past b, past c, to d.
    assert 6 == len(drawn.paths)
    assert 2 == sum(f"h{BOX_WIDTH}" in path for path in drawn.paths)


def test_times_are_those_of_the_step():
    """What it took; of one that runs, for how long; of one that waits, nothing."""
    found = [
        step(1, "a", next=[2]),
        step(2, "b", next=[3], state="started"),
        step(3, "c", state="waiting"),
    ]

    texts = [box.lines[0].text for box in graph(found, clock=75.0, here=None).boxes]

    assert ["succeeded \u00b7 2.5 s", "started \u00b7 1 min 5 s", "waiting"] == texts


def test_a_step_that_is_asked_for_is_pointed_out():
    """The box that it is in, be it alone or one of many."""
    found = [members(100, body=200), step(200, "body")]

    for here, expected in (
        (50, [True, False]),
        (200, [False, True]),
        (999, [False] * 2),
    ):
        drawn = graph(found, clock=1.0, here=here)
        assert expected == ["pgqueue-here" in box.css for box in drawn.boxes]


def test_a_long_name_is_told_by_its_end_and_in_full_when_pointed_at():
    """What stands before the last dot says least."""
    name = "shop.orders.background.tasks.resize_the_image_of_a_product"

    (box,) = graph([step(1, name)], clock=1.0, here=None).boxes

    assert "resize_the_image_of_a_\u2026" == box.name
    assert name in box.title


def test_a_state_that_this_version_does_not_know_is_shown_as_it_is():
    """Rows of another version, while both run."""
    drawn = graph([step(1, state="resting")], clock=1.0, here=None)

    assert drawn.boxes[0].lines[0].text.startswith("resting")
    assert {"resting": 1} == drawn.states


def test_a_circle_is_drawn_all_the_same():
    """Somebody's own SQL; nothing hangs or fails."""
    found = [step(1, "a", next=[2]), step(2, "b", next=[1]), step(3, "c", next=[3])]

    assert 3 == len(graph(found, clock=1.0, here=None).boxes)


def test_no_workflow_has_no_boxes():
    """An empty one is an empty picture."""
    drawn = graph([], clock=1.0, here=None)

    assert ([], [], {}) == (drawn.boxes, drawn.paths, drawn.states)


def test_fifty_thousand_steps_are_folded_within_seconds():
    """The most that a workflow has, each with another next one."""
    found = []
    for number in range(25_000):
        found += [
            step(2 * number + 1, "fetch", next=[2 * number + 2]),
            step(2 * number + 2, "store", next=[100_000]),
        ]
    found.append(step(100_000, "report"))

    began = time.perf_counter()
    shape = boxes(found)

    assert time.perf_counter() - began < 3 * patience()
    assert [25_000, 25_000, 1] == [count for *_, count in shape]
