"""Context: the job as its task sees it."""

from __future__ import annotations

import asyncio
import dataclasses

import pytest

from django_pgqueue import Reject, RetryLater, WrongState
from django_pgqueue.queues.dead_letters import redrive
from django_pgqueue.tasks.context import JobControl, inline_context
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
    return JobControl()


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
