"""Context: the job as its task sees it."""

from __future__ import annotations

import dataclasses

import pytest

from django_pgqueue.queues.redrive import redrive
from django_pgqueue.tasks.context import JobContext, inline_context
from django_pgqueue.testing import drain
from tests.app.tasks import tells_context
from tests.factories import make_dead_letter


@pytest.mark.django_db
def test_a_task_sees_its_job():
    """Id, attempts, queue, headers and the key that names it to other systems."""
    result = tells_context.using(
        queue="mail", retries=2, headers={"trace": "t", "n": [1]}
    ).delay()
    drain()

    seen = result.result
    assert {
        "id": result.id,
        "attempt": 1,
        "max_attempts": 3,
        "queue": "mail",
        "headers": {"trace": "t", "n": [1]},
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


def test_a_context_cannot_be_changed():
    """It says what is, and does nothing."""
    context: JobContext = inline_context("t")

    with pytest.raises(dataclasses.FrozenInstanceError):
        context.attempt = 5
