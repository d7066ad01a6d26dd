"""The picture of a workflow: where the boxes of its steps are, and what they say."""

from __future__ import annotations

from itertools import pairwise

from django_pgqueue.admin.workflow_graph import BOX_WIDTH, graph
from django_pgqueue.queues.workflows import Alike


def step(number, name="give", *, next=(), state="succeeded", **columns):  # noqa: A002
    """Return one step, as the database reports it."""
    kept = {"kind": "step", "has_task": True, "compensates": None, "ids": [number]}
    times = {
        "started": None if state == "waiting" else 10.0,
        "finished": None if state in ("waiting", "started") else 12.5,
    }
    return Alike(name=name, state=state, next=[*next], **{**kept, **times, **columns})


def drawn(steps, here=None):
    found = graph(steps, clock=75.0, here=here)
    return found, {box.name: box for box in found.boxes}


def test_a_chain_goes_from_left_to_right_at_one_height():
    """With what each took; one that runs, for how long; one that waits, nothing."""
    found, _ = drawn(
        [
            step(1, "shop.background.tasks.load_the_file", next=[2]),
            step(2, "b", next=[3], state="started"),
            step(3, "c", state="waiting"),
        ],
        here=2,
    )

    assert ["load_the_file", "b", "c"] == [box.name for box in found.boxes]
    assert "shop.background.tasks.load_the_file" in found.boxes[0].title
    assert ["succeeded · 2.5 s", "started · 1 min 5 s", "waiting"] == [
        box.text for box in found.boxes
    ]
    assert 1 == len({box.y for box in found.boxes})
    assert all(a.x + BOX_WIDTH < b.x for a, b in pairwise(found.boxes))
    assert 2 == len(found.paths)
    assert ["pgqueue-here" in box.css for box in found.boxes] == [False, True, False]
    assert "?q=2#pgqueue-steps" == found.boxes[1].url


def test_members_are_side_by_side_and_lines_pass_by_what_is_between():
    """A line that leads further has a place of its own in each column it passes."""
    members = step(0, "resize", next=[9], ids=list(range(1, 5)))
    found, _ = drawn([members, step(9, "publish")])
    assert 4 == len({box.y for box in found.boxes[:4]})
    assert 1 == len({box.x for box in found.boxes[:4]})

    found, _ = drawn(
        [
            step(1, "a", next=[2, 4]),
            step(2, "b", next=[3]),
            step(3, "c", next=[4]),
            step(4, "d"),
        ]
    )
    # a to b, b to c, c to d; a past b, past c, to d.
    assert 6 == len(found.paths)
    assert 2 == sum(f"h{BOX_WIDTH}" in path for path in found.paths)


def test_what_undoes_a_step_hangs_below_it_and_callbacks_come_last():
    """Whichever was stored first."""
    found, at = drawn(
        [
            step(1, "reserve", next=[2]),
            step(2, "charge", next=[3]),
            step(3, "ship", state="dead"),
            step(4, "refund", kind="compensation", compensates=2, state="started"),
            step(5, "release", kind="compensation", compensates=1, state="waiting"),
            step(6, "mail", kind="on_error", state="waiting"),
        ]
    )

    for undo, done in (("undo: refund", "charge"), ("undo: release", "reserve")):
        assert at[done].x == at[undo].x
        assert at[done].y + at[done].height < at[undo].y
    assert at["reserve"].y == at["charge"].y == at["ship"].y
    assert at["if it fails: mail"].x > at["ship"].x
    assert 4 == len(found.paths)
    assert max(box.y + box.height for box in found.boxes) <= found.height
    assert max(box.x + box.width for box in found.boxes) <= found.width
