"""Purge: what its retention has outlived goes, in bounded batches."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta

from django_pgqueue.models import ArchivedJob, DeadLetter, Step, Workflow
from django_pgqueue.queues import purge as module
from django_pgqueue.queues.purge import DEAD_LETTERS, RESULTS, WORKFLOWS, batch
from tests.harness.factories import make_archived_job, make_dead_letter

HOUR = timedelta(hours=1)
MINUTE = timedelta(minutes=1)


def test_dead_letters_are_deleted_when_they_are_too_old(cursor):
    """Younger ones stay."""
    make_dead_letter(finished_at=-HOUR - MINUTE)
    young = make_dead_letter(finished_at=-HOUR + MINUTE)

    assert 1 == batch(cursor, DEAD_LETTERS, HOUR).rows
    assert [young] == list(DeadLetter.objects.all())


def test_a_batch_says_where_the_next_one_begins(cursor, monkeypatch):
    """From there on, it does not look at what is older."""
    monkeypatch.setattr(module, "PURGE_ROWS_MAX", 2)
    letters = [make_dead_letter(finished_at=-n * HOUR) for n in (5, 4, 3, 2)]

    purged = batch(cursor, DEAD_LETTERS, HOUR)
    assert (letters[1].finished_at, True) == (purged.floor, purged.is_full)
    older = make_dead_letter(finished_at=-6 * HOUR)
    purged = batch(cursor, DEAD_LETTERS, HOUR, floor=purged.floor)
    assert (2, letters[3].finished_at) == purged[:2]

    assert [older] == list(DeadLetter.objects.all())
    assert (1, older.finished_at) == batch(cursor, DEAD_LETTERS, HOUR)[:2]
    assert (0, None) == batch(cursor, DEAD_LETTERS, HOUR)[:2]


def test_results_are_dropped_and_their_rows_stay(cursor):
    """The archive keeps the job; only what it returned goes."""
    old = make_archived_job(result={"n": 1}, finished_at=-HOUR)
    young = make_archived_job(result={"n": 2})

    assert 1 == batch(cursor, RESULTS, MINUTE).rows
    assert {old.pk: None, young.pk: {"n": 2}} == dict(
        ArchivedJob.objects.values_list("pk", "result")
    )
    assert 0 == batch(cursor, RESULTS, MINUTE).rows


# Workflows ---------------------------------------------------------------------------

STORE_WORKFLOW = """
WITH stored AS (
    INSERT INTO pgqueue_workflow (name, kind, steps, state, finished_at)
    VALUES ('w', 'canvas', %(steps)s, %(state)s, now() - %(ago)s::interval)
    RETURNING id),
steps AS (
    INSERT INTO pgqueue_step (id, workflow_id, name, kind, after, next, waits, state)
    SELECT nextval('pgqueue_job_id_seq'), stored.id, 's', 'step', '{}', '{}', 0,
           'succeeded'
      FROM stored, generate_series(1, %(steps)s))
SELECT id FROM stored
"""


def make_workflow(cursor, steps, finished_ago, state="succeeded"):
    """Store one that ended so long ago."""
    params = {"steps": steps, "ago": finished_ago, "state": state}
    cursor.execute(STORE_WORKFLOW, params)
    return cursor.fetchone()[0]


def workflows():
    return list(Workflow.objects.order_by("id").values_list("id", flat=True))


def test_workflows_that_are_over_go_with_their_steps(cursor):
    """What is younger stays, and what runs, however old it is."""
    make_workflow(cursor, 3, HOUR + MINUTE)
    young = make_workflow(cursor, 2, HOUR - MINUTE)
    running = make_workflow(cursor, 1, None, "running")
    undoing = make_workflow(cursor, 1, HOUR + MINUTE, "compensating")

    assert 4 == batch(cursor, WORKFLOWS, HOUR).rows
    assert [young, running, undoing] == workflows()
    assert Counter({young: 2, running: 1, undoing: 1}) == Counter(
        Step.objects.values_list("workflow_id", flat=True)
    )


def test_a_batch_of_workflows_is_bounded_by_their_steps(cursor, monkeypatch):
    """A large one goes alone; the next batch begins where this one ended."""
    monkeypatch.setattr(module, "PURGE_ROWS_MAX", 5)
    ago = (5, 4, 3, 2)
    large, *small = (
        make_workflow(cursor, steps, n * HOUR)
        for n, steps in zip(ago, (9, 1, 1, 1), strict=True)
    )

    purged = batch(cursor, WORKFLOWS, HOUR)
    assert (10, True) == (purged.rows, purged.is_full)
    assert small == workflows()
    purged = batch(cursor, WORKFLOWS, HOUR, floor=purged.floor)
    assert (6, True) == (purged.rows, purged.is_full)
    assert [] == workflows()
    purged = batch(cursor, WORKFLOWS, HOUR, floor=purged.floor)
    assert (0, False) == (purged.rows, purged.is_full)
    assert large not in Step.objects.values_list("workflow_id", flat=True)


def test_a_workflow_that_is_being_reopened_is_passed_over(cursor, other_cursor):
    """The purge waits for no redrive, and a redrive finds its step."""
    reopened = make_workflow(cursor, 1, HOUR)
    make_workflow(cursor, 1, HOUR)
    other_cursor.execute("SET lock_timeout = '1s'")

    with cursor.connection.transaction():
        cursor.execute(
            "UPDATE pgqueue_workflow SET state = 'running', finished_at = NULL"
            " WHERE id = %s",
            [reopened],
        )
        assert 2 == batch(other_cursor, WORKFLOWS, MINUTE).rows
    assert 0 == batch(other_cursor, WORKFLOWS, MINUTE).rows
    assert [reopened] == workflows()
