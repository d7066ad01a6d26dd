"""Large results: what cannot be gathered ends its workflow, and no settle fails."""

from __future__ import annotations

import pytest
from django.db import connection

from django_pgqueue import chain, chord, group
from django_pgqueue.models import Step, Workflow
from django_pgqueue.testing import drain
from tests.app.workflow_tasks import SEEN, give, see, total

pytestmark = pytest.mark.django_db

# Two are more than a list of results may have.
HALF = 26_000_000

LET_SUCCEED = """
UPDATE pgqueue_step SET result = to_jsonb(repeat('x', %s)) WHERE state = 'succeeded'
"""


@pytest.fixture(autouse=True)
def _nothing_seen():
    SEEN.clear()
    yield
    SEEN.clear()


@pytest.mark.parametrize("body", ["group", "task"])
def test_results_that_are_too_large_together_fail_the_workflow(body):
    """Each is small enough. on_error is told; the settle of the last one is written."""
    members = [give.si(1), give.si(2), give.si(3)]
    if body == "group":
        canvas = chain(group(members), group(see.s(), see.s()), on_error=see.s())
    else:
        canvas = chord(members, total.s(), on_error=see.s())
    result = canvas.delay()
    drain(max_jobs=2)
    with connection.cursor() as cursor:
        cursor.execute(LET_SUCCEED, [HALF])
    drain()

    assert ("failed", 3) == (result.refresh().status, Workflow.objects.get().succeeded)
    assert (
        "more than 50,000,000 bytes" in Step.objects.get(state="dead").error["message"]
    )
    [failure] = SEEN
    assert 1 == failure["failed"]
    assert 0 <= result.progress <= 1
