"""Context: the job as its task sees it."""

from __future__ import annotations

import asyncio
import dataclasses

import pytest

from django_pgqueue import Reject, RetryLater, WrongState
from django_pgqueue.queues.dead_letters import redrive
from django_pgqueue.tasks.context import Inline, inline_context
from django_pgqueue.tasks.raised import AskedAgain
from django_pgqueue.testing import drain
from tests.app.tasks import tells_context
from tests.harness.factories import make_dead_letter


@pytest.mark.django_db
def test_a_task_sees_its_job():
    """Id, attempts, queue, headers and the key that names it to other systems."""
    result = tells_context.using(
        queue="mail", retries=2, headers={"site": "t", "n": [1]}
    ).delay()
    drain()

    seen = result.result
    assert {
        "id": result.id,
        "attempt": 1,
        "max_attempts": 3,
        "queue": "mail",
        "headers": {"site": "t", "n": [1]},
    } == {name: seen[name] for name in seen if name != "idempotency_key"}
    installation, _, job_id = seen["idempotency_key"].rpartition("-")
    assert str(result.id) == job_id
    assert 36 == len(installation)


@pytest.mark.django_db
def test_all_jobs_of_an_installation_share_the_beginning_of_their_keys():
    """And no two jobs share a key."""
    results = [tells_context.delay() for _ in range(2)]
    drain()

    keys = [result.result["idempotency_key"] for result in results]
    assert 1 == len({key.rpartition("-")[0] for key in keys})
    assert 2 == len(set(keys))


@pytest.mark.django_db
def test_a_redriven_job_keeps_its_key(cursor):
    """Another system recognises what it has seen before."""
    first = tells_context.delay()
    drain()
    uuid = first.result["idempotency_key"].rpartition("-")[0]
    dead = make_dead_letter(task=tells_context.name)
    redrive(cursor, [dead.pk])
    drain()

    from django_pgqueue.models import ArchivedJob

    row = ArchivedJob.objects.get(pk=dead.pk)
    assert f"{uuid}-{dead.pk}" == row.result["idempotency_key"]


def test_called_inline_a_task_gets_a_context_without_a_job():
    """Id 0, the first and last attempt, a key that no job has."""
    seen = tells_context()

    assert (0, 1, 1, "", {}) == tuple(
        seen[name] for name in ("id", "attempt", "max_attempts", "queue", "headers")
    )
    assert seen["idempotency_key"].startswith("inline-")
    assert seen["idempotency_key"] != tells_context()["idempotency_key"]


@pytest.mark.parametrize(
    "attempt, expected", [(1, False), (2, False), (3, True), (4, True)]
)
def test_a_task_knows_its_last_attempt(attempt, expected):
    """After which a failure is a dead letter."""
    context = dataclasses.replace(inline_context("t"), attempt=attempt, max_attempts=3)

    assert expected is context.is_last_attempt


# What is said through it -------------------------------------------------------------


@pytest.fixture
def control():
    return Inline()


@pytest.fixture
def context(control):
    return dataclasses.replace(inline_context("t"), control=control)


def test_progress_is_kept(context, control):
    """What is not said is left out."""
    context.progress(3, total=10.5, note="rows")
    assert {"done": 3, "total": 10.5, "note": "rows"} == control.progress

    context.progress(4)
    assert {"done": 4} == control.progress


@pytest.mark.parametrize(
    "said, error, match",
    [
        ({"done": "3"}, TypeError, r"progress\(done=str\): it must be a number"),
        ({"done": True}, TypeError, r"progress\(done=bool\)"),
        ({"done": float("nan")}, ValueError, r"from -10\^15 to 10\^15"),
        ({"done": float("inf")}, ValueError, r"progress\(done=…\)"),
        ({"done": 10**400}, ValueError, r"progress\(done=…\)"),
        ({"done": 1, "total": "x"}, TypeError, r"progress\(total=str\)"),
        ({"done": 1, "note": 5}, TypeError, r"progress\(note=int\): it must be text"),
    ],
)
def test_progress_that_makes_no_sense_is_refused(context, control, said, error, match):
    """Before anything is kept."""
    with pytest.raises(error, match=match):
        context.progress(**said)
    assert control.progress is None


def test_a_note_is_cut_and_what_postgresql_cannot_store_is_shown_escaped(
    context, control
):
    """It may come from anywhere, such as the name of a file."""
    context.progress(1, note="a\x00b\ud800" + "x" * 1_000)

    assert "a\\x00b\\ud800" + "x" * 496 == control.progress["note"]


@pytest.mark.parametrize(
    "duration, match",
    [
        (0, "longer than zero"),
        (-1, "longer than zero"),
        ("soon", "no duration"),
        ("2d", "the longest is one day"),
    ],
)
def test_an_extension_that_makes_no_sense_is_refused(context, duration, match):
    """A lost host would keep its job from everybody for that long."""
    with pytest.raises(ValueError, match=match):
        context.extend(duration)


def test_without_a_job_there_is_no_lease_and_no_cancel(context):
    """So that a task can be called as it is."""
    context.extend()
    context.extend("24h")

    assert not context.cancelled


@pytest.mark.parametrize(
    "say, meant",
    [
        (lambda context: context.ack(), type(None)),
        (lambda context: context.reject("no"), Reject),
        (lambda context: context.retry(), AskedAgain),
        (lambda context: context.retry("5m"), RetryLater),
    ],
    ids=["ack", "reject", "retry", "retry later"],
)
def test_a_word_means_what_raising_would(context, control, say, meant):
    """And is said once."""
    say(context)

    assert control.has_word
    assert meant is type(control.word)
    with pytest.raises(WrongState, match="until the job is settled, once"):
        context.ack()


@pytest.mark.parametrize("policy", ["on_success", "first", "reject_on_error"])
@pytest.mark.parametrize("word", ["ack", "reject", "retry"])
def test_a_word_is_for_manual_alone(context, control, policy, word):
    """Another policy speaks for the job."""
    context = dataclasses.replace(context, ack_policy=policy)

    with pytest.raises(WrongState, match=rf"{word}\(\) is for tasks .* is '{policy}'"):
        getattr(context, word)()
    assert not control.has_word


def test_each_method_has_a_twin_for_async_code(context, control):
    """With an a before its name."""

    async def run():
        await context.aextend(5)
        await context.aprogress(1)
        await context.alog("%d left", 3)
        await context.areject("no")
        with pytest.raises(WrongState, match="once"):
            await context.aack()
        with pytest.raises(WrongState, match="once"):
            await context.aretry(5)

    asyncio.run(run())

    assert {"done": 1} == control.progress
    assert ["3 left"] == [text for _, text in context.lines.lines()]
    assert "no" == control.word.why
