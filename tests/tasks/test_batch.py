"""Batch: jobs that are waited for together."""

from __future__ import annotations

import pytest
from django.db import transaction

from django_pgqueue import (
    InvalidArgument,
    WorkflowFailed,
    WrongState,
    batch,
    chain,
)
from django_pgqueue.models import DeadLetter, Job, Step, Workflow
from django_pgqueue.tasks import operate
from django_pgqueue.testing import drain
from tests.app.workflow_tasks import (
    SEEN,
    add,
    adds,
    fails_at,
    give,
    see,
)

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _nothing_seen():
    SEEN.clear()
    yield
    SEEN.clear()


def test_a_batch_is_stored_when_its_block_ends(django_assert_num_queries):
    """All of it by one query; its jobs run, and its progress is what has ended."""
    with django_assert_num_queries(1), batch("import-42") as b:
        b.add(give, 1)
        b.add(give.using(queue="other"), value=2)
        b.add_many(add, [(1, 2), {"left": 3, "right": 4}])
        with pytest.raises(RuntimeError, match="is not stored before"):
            _ = b.result

    assert 0.0 == b.progress
    drain(max_jobs=2)
    assert 0.5 == b.progress
    drain()
    assert (1.0, "succeeded") == (b.progress, b.result.status)
    assert [] == b.result.get()
    assert "batch" == Workflow.objects.get().kind


def test_an_error_in_the_block_stores_nothing():
    """Nor does a transaction that is rolled back."""

    def store(*, fails_inside: bool) -> None:
        with transaction.atomic():
            with batch() as b:
                b.add(give, 1)
                assert not fails_inside
            raise AssertionError

    for fails_inside in (True, False):
        with pytest.raises(AssertionError):
            store(fails_inside=fails_inside)
    assert not Workflow.objects.exists()
    assert not Job.objects.exists()


def test_callbacks_are_called_by_how_it_has_ended():
    """Each once; on_success also after a redrive."""
    callbacks = {
        "on_success": see.s("success"),
        "on_complete": see.si("complete"),
        "on_failure": see.si("failure"),
    }
    with batch("good", **callbacks) as b:
        b.add(give, 1)
    drain()
    assert ["complete", "success"] == sorted(SEEN)

    SEEN.clear()
    with batch("bad", **callbacks) as b:
        b.add(give, 1)
        b.add(fails_at, 1, 1)
    drain()
    assert ["complete", "failure"] == sorted(SEEN)
    with pytest.raises(WorkflowFailed, match="1 is bad"):
        b.result.get()

    SEEN.clear()
    letter = DeadLetter.objects.get()
    operate.edit(letter.id, args=[1, 2], kwargs=None)
    operate.retry([letter.id])
    drain()
    assert ["success"] == SEEN
    assert "succeeded" == b.result.refresh().status


def test_a_job_may_add_to_its_batch():
    """It cannot end meanwhile, whatever its jobs add."""
    with batch(on_success=see.s("end")) as b:
        b.add(adds, 3)
    drain()

    assert (sorted([3, 2, 1, 0, 0, 0, 0]), "end") == (sorted(SEEN[:-1]), SEEN[-1])
    assert 7 == Step.objects.filter(kind="step").count()
    assert "succeeded" == b.result.refresh().status


def test_an_open_batch_ends_once_it_is_closed():
    """However often all of its jobs have ended before."""
    b = batch("open", on_success=see.s("end"))
    b.add(give, 1)
    b.start()
    drain()
    assert "running" == b.result.refresh().status
    b.add(give, 2)
    drain()
    assert "running" == b.result.refresh().status

    assert b.close()
    assert not b.close()
    drain()

    assert ("succeeded", ["end"]) == (b.result.status, SEEN)
    with pytest.raises(WrongState, match="is succeeded: nothing can be"):
        b.add(give, 3)


def test_a_second_batch_of_a_key_is_the_first():
    """Its jobs are not stored."""
    for number in range(2):
        with batch("once") as b:
            b.add(see, number)
    drain()

    assert not b.result.created
    assert [0] == SEEN


def test_a_cancelled_batch_takes_nothing_more():
    """Also an open one; it ends at once."""
    b = batch("stop").start()
    b.add(give, 1)
    assert b.result.cancel()

    assert "cancelled" == b.result.status
    with pytest.raises(WrongState, match="cancelled"):
        b.add(give, 2)


# Batches in batches -------------------------------------------------------------------


def test_a_batch_ends_with_those_in_it():
    """Each has callbacks of its own; the jobs of all count for the one around them."""
    with batch("all", on_success=see.s("all")) as b:
        b.add(give, 1)
        with b.batch(on_success=see.s("first")) as first:
            first.add_many(give, [(1,), (2,)])
            with first.batch(on_complete=see.s("deep")) as deep:
                deep.add(give, 3)
            with pytest.raises(RuntimeError, match="block around it ends"):
                _ = deep.result
        with b.batch() as second:
            second.add(give, 4)

    rows = [each.result.refresh()._read() for each in (b, first, deep, second)]
    assert [5, 3, 1, 1] == [row.steps for row in rows]
    drain(max_jobs=2)
    assert 0.4 == b.progress
    drain()

    assert ["all", "deep", "first"] == sorted(SEEN)
    every = list(Workflow.objects.order_by("id"))
    assert {("succeeded", 0)} == {(each.state, each.active) for each in every}
    assert [5, 3, 1, 1] == [each.succeeded for each in every]
    assert every[0].finished_at >= every[1].finished_at >= every[2].finished_at


def test_what_fails_in_a_batch_fails_the_one_around_it():
    """Whose on_failure says what; a redrive opens both again."""
    with batch(on_failure=see.s(), on_success=see.s("outer")) as b:
        b.add(give, 1)
        with b.batch(on_failure=see.si("inner"), on_success=see.si("good")) as inner:
            inner.add(fails_at, 1, 1)
    drain()

    assert {"failed"} == set(Workflow.objects.values_list("state", flat=True))
    (told,) = (each for each in SEEN if isinstance(each, dict))
    assert ([b.result.id, 1], "1 is bad") == (
        [told["workflow"], told["failed"]],
        told["steps"][0]["error"]["message"],
    )
    with pytest.raises(WorkflowFailed, match="1 is bad"):
        b.result.get()

    SEEN.clear()
    letter = DeadLetter.objects.get()
    operate.edit(letter.id, args=[1, 2], kwargs=None)
    operate.retry([letter.id])
    rows = Workflow.objects.values_list("state", "finished_at")
    assert [("running", None)] * 2 == list(rows)
    drain()
    assert ["good", "outer"] == sorted(SEEN)
    assert {("succeeded", 0, 0)} == set(
        Workflow.objects.values_list("state", "active", "dead")
    )


def test_whoever_cancels_a_batch_cancels_those_in_it():
    """At whatever depth, also an open one of no job; not those around it."""
    with batch() as b:
        b.add(give, 1)
        middle = b.batch().start()
        middle.add(give, 2)
        with middle.batch() as deep:
            deep.add(chain(give.s(3), give.s()))
        empty = middle.batch().start()
    assert middle.result.cancel()

    assert not Job.objects.exclude(workflow_id=b.result.id).exists()
    for each in (middle, deep, empty):
        assert "cancelled" == each.result.refresh().status
    assert "running" == b.result.refresh().status
    with pytest.raises(WrongState, match="cancelled: no batch can be stored"):
        middle.batch().start()
    drain()
    assert ("cancelled", 1.0) == (b.result.refresh().status, b.progress)


def test_a_second_batch_of_a_key_is_the_first_if_it_is_in_the_same():
    """So a job that runs again makes none anew; elsewhere the key is refused."""
    outer, other = batch("outer").start(), batch("other").start()
    for _ in range(2):
        with outer.batch("part") as part:
            part.add(see, 1)
    assert (False, 1) == (part.result.created, Job.objects.count())
    with pytest.raises(InvalidArgument, match=f"not in batch {other.result.id}"):
        other.batch("part").start()

    with batch("outer") as again, again.batch() as unkept:
        unkept.add(see, 2)
    assert (outer.result.id, 3) == (again.result.id, Workflow.objects.count())
