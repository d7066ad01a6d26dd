"""Flow: graphs of steps, as their users say them."""

from __future__ import annotations

import pytest

from django_pgqueue import InvalidArgument, InvalidOption, flow, group
from django_pgqueue.models import Step, Workflow
from django_pgqueue.testing import drain
from tests.app.workflow_tasks import (
    SEEN,
    add,
    give,
    leaves_nothing,
    pair,
    see,
    total,
)

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _nothing_seen():
    SEEN.clear()
    yield
    SEEN.clear()


def run(wf, **options):
    result = wf.start(**options)
    drain()
    return result.refresh()


def test_steps_run_after_those_that_they_name():
    """A step as an argument is its result, by place and by name."""
    wf = flow("diamond")
    first = wf.step(give, 1)
    left = wf.step(add, first, 10)
    right = wf.step(add, 100, right=first)
    wf.step(pair, left, second=right)

    result = run(wf)

    assert [11, 101] == result.get()
    assert ("flow", "diamond") == (Workflow.objects.get().kind, result.name)


def test_after_waits_and_takes_nothing():
    """The order is kept, whatever each returns."""
    wf = flow("ordered")
    first = wf.step(see, 1)
    second = wf.step(see, 2, after=[first])
    wf.step(see, 3, after=[first, second])

    run(wf)

    assert [1, 2, 3] == SEEN


@pytest.mark.parametrize(
    "value, condition, runs",
    [
        ("free", lambda step: step.result == "free", True),
        ("paid", lambda step: step.result == "free", False),
        ("paid", lambda step: step.result != "free", True),
        (None, lambda step: step.result == None, True),  # noqa: E711
        (7, lambda step: step.result == None, False),  # noqa: E711
        (None, lambda step: step.result != None, False),  # noqa: E711
        (7, lambda step: step.result != None, True),  # noqa: E711
        (7, lambda step: step.result < None, False),
        (None, lambda step: step.result.is_in([7, None]), True),
        ([7], lambda step: step.result.is_in([[7, 8]]), False),
        ({"a": 7}, lambda step: step.result.is_in([{"a": 7, "b": 8}]), False),
        ({"a": [{"b": 7}]}, lambda step: step["a"][0]["b"] == 7, True),
        ({"a": 7}, lambda step: step["b"] == 7, False),
        ({"a": 7}, lambda step: step["b"] != 7, True),
        (7, lambda step: step.result > 6, True),
        (7, lambda step: step.result >= 7.5, False),
        (10, lambda step: step.result < 9, False),
        ("7", lambda step: step.result > 6, False),
        (7, lambda step: step.result.is_in([6, 7]), True),
        (8, lambda step: step.result.is_in([6, 7]), False),
        (7, lambda step: [step.result > 6, step.result < 8], True),
        (9, lambda step: [step.result > 6, step.result < 8], False),
    ],
)
def test_a_step_whose_condition_does_not_hold_is_skipped(value, condition, runs):
    """What comes after it runs, with null for its result."""
    wf = flow("conditional")
    first = wf.step(give, value)
    second = wf.step(give, "ran", when=condition(first))
    wf.step(pair, second, "end")

    result = run(wf)

    assert ["ran" if runs else None, "end"] == result.get()
    row = Workflow.objects.get()
    assert (3 - (not runs), int(not runs)) == (row.succeeded, row.skipped)
    assert 1.0 == result.progress


def test_parts_are_steps():
    """A group of a flow has the list of its results; it takes nothing of others."""
    wf = flow("parts")
    first = wf.step(see, 0)
    both = wf.step(group(give.s(1), give.s(2)), after=[first])
    wf.step(total, both)

    assert 3 == run(wf).get()


def test_a_flow_is_a_step_of_another():
    """Its steps come after what that step waits for; its last result is taken."""
    inner = flow("inner")
    one = inner.step(give, 1)
    inner.step(add, one, 1)
    outer = flow("outer")
    first = outer.step(see, "first")
    sub = outer.step(inner, after=[first])
    outer.step(add, sub, 10)

    result = run(outer)

    assert 12 == result.get()
    first_row, *others = Step.objects.order_by("id")
    assert all(first_row.finished_at <= row.started_at for row in others)


def test_what_is_no_step_is_refused_when_it_is_said():
    """Before anything is stored."""
    wf, other = flow("one"), flow("other")
    mine, theirs = wf.step(give, 1), other.step(give, 1)

    with pytest.raises(InvalidArgument, match="one: after holds a step of another"):
        wf.step(give, theirs)
    with pytest.raises(InvalidArgument, match="it must be a step"):
        wf.step(give, 1, after=[7])
    with pytest.raises(InvalidArgument, match="it must be a task or a part"):
        wf.step(7)
    with pytest.raises(InvalidArgument, match="it must be a comparison"):
        wf.step(give, 1, when=[mine])
    with pytest.raises(InvalidArgument, match="NUL"):
        wf.step(give, 1, name="a\0")
    with pytest.raises(InvalidArgument, match="NUL"):
        _ = mine["a\0"] == 1
    told = flow("told", on_error=see.s())
    for part in (group(give.s(1), on_error=see.s()), told):
        with pytest.raises(InvalidArgument, match="has an on_error of its own"):
            wf.step(part)
    with pytest.raises(TypeError, match="not known before it runs"):
        bool(mine.result == 1)
    with pytest.raises(InvalidArgument, match="steps are none"):
        flow("empty").start()
    with pytest.raises(InvalidArgument, match="flow: name is ''"):
        flow("")
    assert not Workflow.objects.exists()


def test_what_does_not_fit_is_refused_before_anything_is_stored():
    """Arguments, and results that are not stored."""
    wf = flow("bad")
    wf.step(add, 1)
    with pytest.raises(InvalidArgument, match="missing"):
        wf.start()
    wf = flow("bad")
    wf.step(give, wf.step(leaves_nothing))
    with pytest.raises(InvalidOption, match="archive=False"):
        wf.start()
    assert not Workflow.objects.exists()


def test_a_flow_without_an_end_is_refused_before_anything_is_stored():
    """One that is a step of itself, however deep; and one that holds an empty one."""
    outer, inner, empty = flow("outer"), flow("inner"), flow("outer")
    outer.step(give, 1)
    outer.step(inner)
    inner.step(outer)
    with pytest.raises(InvalidArgument, match="outer: steps hold the flow itself"):
        outer.start()
    empty.step(flow("empty"))
    with pytest.raises(InvalidArgument, match="empty: steps are none"):
        empty.start()
    assert not Workflow.objects.exists()
