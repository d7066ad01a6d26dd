"""Workflows: what an end of a job reads, however large the tables are."""

from __future__ import annotations

import pytest

from django_pgqueue.postgres.connect import Link
from django_pgqueue.queues import workflows
from django_pgqueue.queues.enqueue import Placement
from django_pgqueue.queues.workflows import NewStep
from tests.harness.factories import make_archived_job

STEPS = 20_000

# Of the functions: the pages of a few rows, and of catalogs for their first plans.
BUFFERS_MAX = 400


def step(place, **options):
    placement = Placement(
        queue="default",
        task="tests.noop",
        priority=0,
        max_attempts=5,
        headers="{}",
    )
    return NewStep(name=f"s{place}", placement=placement, bytes_max=1_000, **options)


@pytest.fixture
def unanalysed(cursor):
    """Tables of which the planner knows nothing, until a test says so."""
    tables = "pgqueue_step", "pgqueue_workflow", "pgqueue_job"
    for table in tables:
        cursor.execute(f"ALTER TABLE {table} SET (autovacuum_enabled = off)")
    yield
    for table in tables:
        cursor.execute(f"ALTER TABLE {table} RESET (autovacuum_enabled)")


@pytest.mark.usefixtures("unanalysed")
def test_the_end_of_a_step_reads_what_comes_after_it(cursor):
    """Of 20,000 members one, and the one that waits for all of them; by a worker."""
    members = [step(n) for n in range(STEPS - 1)]
    body = step(STEPS - 1, after=range(STEPS - 1), takes="results")
    large = workflows.start(
        cursor,
        name="w",
        key=None,
        steps=[*members, body],
        ends=[STEPS - 1],
        is_list=False,
        kind="canvas",
    )
    small = workflows.start(
        cursor,
        name="w",
        key=None,
        steps=[step(0), step(1, after=[0], takes="result")],
        ends=[1],
        is_list=False,
        kind="canvas",
    )

    found = {}
    # As a settler's: its plans are made for any parameters.
    link = Link("default", name="tests: settler", steady=True)
    try:
        for name, first in (("large", large.first_id), ("small", small.first_id)):
            make_archived_job(id=first)
            found[name] = _buffers(link, first)
    finally:
        link.drop()

    assert {} == {name: n for name, n in found.items() if n > BUFFERS_MAX}, found


def _buffers(link, step):
    """Return the pages that the end of a step reads, once its plans are made."""
    for _ in range(2):
        with link.connection.transaction(force_rollback=True):
            cursor = link.connection.execute(
                "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON)"
                " SELECT pgqueue_steps_ended(ARRAY[%s::bigint], '{}')",
                [step],
            )
            plan = cursor.fetchone()[0][0]["Plan"]
    return plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]
