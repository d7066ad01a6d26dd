"""Canvas: chains, groups and chords, as their users say them."""

from __future__ import annotations

import pytest
from django.db import connection

from django_pgqueue import (
    InvalidArgument,
    InvalidOption,
    WorkflowFailed,
    chain,
    chord,
    group,
)
from django_pgqueue.models import DeadLetter, Job, Step, Workflow
from django_pgqueue.postgres.connect import Link
from django_pgqueue.tasks import operate
from django_pgqueue.tasks.workflow_result import WorkflowResult
from django_pgqueue.testing import drain
from django_pgqueue.worker.chores.overdue import REST_SECONDS, cancel_overdue
from tests.app.workflow_tasks import (
    SEEN,
    acked_first,
    add,
    fails,
    fails_at,
    fails_twice,
    give,
    leaves_nothing,
    pair,
    see,
    total,
)

pytestmark = pytest.mark.django_db


@pytest.fixture
def cursor_link():
    """What the leader has, on the connection of the test."""

    class OfTest(Link):
        connection = property(lambda self: raw_connection())

    return OfTest("default", name="test")


def raw_connection():
    connection.ensure_connection()
    return connection.connection


@pytest.fixture(autouse=True)
def _nothing_seen():
    SEEN.clear()
    yield
    SEEN.clear()


def run(canvas, **options) -> WorkflowResult:
    """Store a workflow, and run all of it in this thread."""
    result = canvas.delay(**options)
    drain(raise_errors=False)
    return result.refresh()


CANVASES = {
    "a chain passes each result on": (
        lambda: chain(give.s(1), add.s(10), add.s(100)),
        111,
    ),
    "a result of nothing": (lambda: chain(give.s(None), pair.s(2)), [None, 2]),
    "si takes nothing": (lambda: chain(give.s(1), give.si(5)), 5),
    "an empty group": (group, []),
    "a chord": (lambda: chord([give.s(1), give.s(2)], total.s()), 3),
    "a group after a task": (lambda: give.s(1) | group(add.s(1), add.s(2)), [2, 3]),
    "a task, a group, a task, a group, a task": (
        lambda: (
            give.s(1)
            | group(add.s(1), add.s(2))
            | total.s()
            | group(add.s(10), add.s(20))
            | total.s()
        ),
        15 + 25,
    ),
    "a chord in a chord": (
        lambda: chord([chord([give.s(1), give.s(2)], total.s()), give.s(4)], total.s()),
        7,
    ),
    "an empty group after a task": (lambda: give.s(1) | group() | total.s(), 0),
    "retries": (lambda: chain(give.s(1), fails_twice.s(), add.s(1)), 2),
}


@pytest.mark.parametrize("name", CANVASES)
def test_a_workflow_has_the_result_that_its_shape_says(name):
    """Whatever stands in what."""
    make, expected = CANVASES[name]

    result = run(make())

    assert "succeeded" == result.status
    assert expected == result.get()
    assert 1.0 == result.progress
    assert not Job.objects.exists()
    row = Workflow.objects.get()
    assert (0, row.steps, 0, 0) == (row.active, row.succeeded, row.dead, row.cancelled)
    assert row.finished_at is not None


def test_a_step_that_gives_up_ends_its_workflow_as_failed():
    """What comes after it never runs; get() says which step it was."""
    result = run(chain(give.s(1), fails.s(), add.s(1)))

    assert "failed" == result.status
    states = [step.state for step in result.steps()]
    assert ["succeeded", "dead", "waiting"] == states
    with pytest.raises(WorkflowFailed, match=r"is dead\. .*ValueError: no way"):
        result.get()


def test_on_error_is_called_once_all_others_have_ended():
    """It is told which steps have failed, and why."""
    members = [fails_at.s(n, 1) for n in range(3)]
    result = run(group(members, on_error=see.s()))

    [told] = SEEN
    assert (result.id, "group", 1) == (told["workflow"], told["name"], told["failed"])
    [step] = told["steps"]
    assert ("tests.app.workflow_tasks.fails_at", "dead") == (
        step["task"],
        step["state"],
    )
    assert "1 is bad" == step["error"]["message"]
    assert "failed" == result.status


def test_a_redriven_step_reopens_its_workflow():
    """It goes on from there to its end."""
    result = run(chain(give.s(1), fails_at.s(1), add.s(10)))
    [letter] = DeadLetter.objects.all()

    operate.edit(letter.id, args=[1, 5], kwargs=None)
    operate.retry([letter.id])

    assert "running" == result.refresh().status
    assert Workflow.objects.get().finished_at is None
    drain()
    assert 11 == result.get()
    row = Workflow.objects.get()
    assert (0, 3, 0, 0) == (row.active, row.succeeded, row.dead, row.cancelled)


def test_a_cancel_reaches_what_has_not_started():
    """Jobs in the queue are cancelled, and what waits for them."""
    result = chain(group(give.s(1), give.s(2)), total.s()).delay()

    assert result.cancel()

    assert "cancelled" == result.status
    assert ["cancelled"] * 3 == [step.state for step in result.steps()]
    assert not Job.objects.exists()
    assert not result.cancel()


def test_a_job_that_somebody_deletes_is_cancelled():
    """By hand, in SQL: no workflow waits for ever."""
    result = chain(give.s(1), add.s(1)).delay()

    Job.objects.all().delete()

    assert "cancelled" == result.refresh().status


@pytest.mark.parametrize("task", [leaves_nothing, acked_first])
def test_a_result_that_is_not_stored_cannot_be_taken(task):
    """It is said before anything is stored, with the way out."""
    with pytest.raises(InvalidOption, match=r"takes the result .* Say .*add\.si"):
        chain(task.s(), add.s(1)).delay()
    assert not Workflow.objects.exists()


def test_arguments_that_do_not_fit_are_refused_before_anything_is_stored():
    """With what stands before them counted in."""
    with pytest.raises(InvalidArgument, match="too many positional"):
        chain(give.s(1), add.s(1, 2)).delay()
    with pytest.raises(InvalidArgument, match="missing"):
        chain(add.s(1)).delay()
    with pytest.raises(InvalidArgument, match="key is 7"):
        chain(give.s(1)).delay(key=7)
    assert not Workflow.objects.exists()


def test_a_key_starts_one_workflow():
    """The second answer is the first one, and nothing is stored."""
    first = chain(give.s(1), name="order").delay(key="42")
    second = chain(give.s(2), name="order").delay(key="42")
    other = chain(give.s(3), name="refund").delay(key="42")

    assert (first.id, False) == (second.id, second.created)
    assert first.created
    assert other.id != first.id
    assert 2 == Workflow.objects.count() == Job.objects.count()


def test_a_workflow_is_stored_in_the_transaction_of_its_caller(
    django_assert_num_queries,
):
    """By one query, however many steps it has."""
    canvas = chord([give.s(n) for n in range(100)], total.s())
    with django_assert_num_queries(1):
        canvas.delay()
    assert 101 == Step.objects.count()


def test_immediate_mode_runs_all_of_it(settings):
    """Each step as soon as the one before it has ended."""
    settings.PGQUEUE = {"MODE": "immediate"}

    result = chain(give.s(1), group(add.s(1), add.s(2)), total.s()).delay()

    assert 5 == result.get()


def test_a_restart_keeps_what_has_succeeded():
    """All else runs, in a new workflow, which has the key then."""
    broken = chain(give.s(1), fails_at.s(1), add.s(10))
    old = run(broken, key="k")
    assert "failed" == old.status
    Step.objects.filter(workflow_id=old.id, name__endswith="fails_at").update(
        job={
            **Step.objects.get(name__endswith="fails_at").job,
            "args": [None, 5],
        }
    )

    new = old.restart()
    assert ["succeeded", "started", "waiting"] == [step.state for step in new.steps()]
    drain()

    assert 11 == new.get()
    assert "failed" == old.refresh().status
    assert (old.id, "k") == tuple(
        Workflow.objects.values_list("restarted_from", "key").get(id=new.id)
    )
    assert Workflow.objects.get(id=old.id).key is None
    row = Workflow.objects.get(id=new.id)
    assert (0, 3, 0, 0) == (row.active, row.succeeded, row.dead, row.cancelled)


def test_a_restart_from_a_step_runs_what_comes_after_it():
    """And not what stands beside it."""
    old = run(
        chain(
            group(see.s("a"), chain(give.s(1), see.s())),
            group(see.si("b"), see.si("c")),
        )
    )
    seen, steps = list(SEEN), list(old.steps())
    SEEN.clear()
    new = old.restart(next(step.id for step in steps if step.task.endswith("give")))
    drain()

    assert ["a", 1, "b", "c"] == seen
    assert [1, "b", "c"] == SEEN
    assert [None, None] == new.get()


def test_a_deadline_cancels_and_calls_on_error(cursor_link):
    """The leader looks for it; what runs is asked to stop."""
    result = chain(give.s(1), on_error=see.s()).delay(deadline="1h")
    assert REST_SECONDS == cancel_overdue(cursor_link)
    assert "running" == result.refresh().status
    Workflow.objects.update(deadline_at="2026-01-01T00:00Z")

    cancel_overdue(cursor_link)
    assert "cancelled" == result.refresh().status
    drain()

    assert "chain" == SEEN[0]["name"]
    assert not Job.objects.exists()
    with pytest.raises(InvalidArgument, match="deadline"):
        chain(give.s(1)).delay(deadline="soon")
