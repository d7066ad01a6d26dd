"""`manage.py pgqueue flows`: workflows, the steps of one, and what is done with it."""

from __future__ import annotations

import re

import pytest

from django_pgqueue import chain, group
from django_pgqueue.models import ArchivedJob, DeadLetter, Job, Step
from django_pgqueue.testing import drain
from tests.app.saga_tasks import FAILS, LOG, REJECTS, order
from tests.app.workflow_tasks import add, fails_at, give, see
from tests.management.test_pgqueue import DONE, NOTHING, run, told


@pytest.fixture(autouse=True)
def database(db):
    """The tables."""


def failed(**options):
    """Return a workflow that has failed in its second step, and called see()."""
    result = chain(
        give.s(7), fails_at.s(7), add.s(1), on_error=see.s(), name="import"
    ).delay(**options)
    drain(raise_errors=False)
    return result


def test_workflows_have_a_line_each_the_newest_first():
    """Its state, how many of its steps have ended, its times and its key."""
    first = failed(key="order-7")
    second = group(give.s(1), give.s(2)).delay()

    status, out, err = run("flows")

    assert (DONE, "") == (status, err)
    head, *lines = out.splitlines()
    assert ["id", "state", "name", "steps", "took", "started", "key"] == head.split()
    assert re.fullmatch(rf" *{second.id}  running +group +0 of 2 .*", lines[0])
    assert re.fullmatch(rf" *{first.id}  failed +import +2 of 3 .* order-7", lines[1])


def test_one_workflow_is_told_with_its_steps():
    """What each is, when it ran, and what it died of."""
    result = failed(key="order-7")
    steps = list(result.steps())
    step = Step.objects.get(state="dead")
    step.error = {"type": "shop.Declined", "message": "password=s3cret"}
    step.save(update_fields=["error"])

    status, out, err = run("flows", result.id)

    assert (DONE, "") == (status, err)
    assert out.startswith(f"Workflow {result.id} is failed\n")
    assert re.search("name +import\n", out)
    assert re.search("key +order-7\n", out)
    assert re.search("steps that ended +2 of 3\n", out)
    lines = out.splitlines()[-4:]
    for line, step, state in zip(
        lines, steps, ("succeeded", "dead", "waiting", "succeeded"), strict=True
    ):
        assert re.match(rf" *{step.id}  {state} ", line)
    assert lines[1].endswith("Declined: password=[redacted]")
    assert "s3cret" not in run("flows", result.id, "--json")[1]
    assert "see (on_error)" in lines[3]


def test_a_workflow_is_cancelled():
    """What waits never runs; the second time there is nothing to do."""
    result = chain(give.s(1), add.s(1)).delay()

    status, out, _ = run("flows", "cancel", result.id)

    assert (DONE, f"Workflow {result.id} is cancelled.\n") == (status, out)
    assert "cancelled" == result.refresh().status
    status, out, _ = run("flows", "cancel", result.id)
    assert NOTHING == status
    assert "it has ended" in out


def test_dead_steps_are_retried():
    """The workflow runs again, and nothing that has succeeded does."""
    result = failed()
    (letter,) = DeadLetter.objects.values_list("id", flat=True)

    status, value = told("flows", "retry", result.id)

    assert (DONE, [letter]) == (status, value["retried"])
    assert [letter] == list(Job.objects.values_list("id", flat=True))
    assert "running" == result.refresh().status
    status, out, _ = run("flows", "retry", result.id)
    assert NOTHING == status
    assert "no dead step" in out
    drain(raise_errors=False)
    DeadLetter.objects.all().delete()
    _, _, err = run("flows", "retry", result.id)
    assert f"Without a dead letter that can be redriven: {letter}." in err


def test_a_saga_goes_on_when_its_compensation_was_done_by_hand():
    """Who said so, and why, is with the job."""
    for kept in (LOG, FAILS, REJECTS):
        kept.clear()
    FAILS["ship"] = -1
    REJECTS.add("refund")
    result = order.start(order_id=7, amount=5)
    drain(retries=True, raise_errors=False)
    (letter,) = DeadLetter.objects.values_list("id", flat=True)

    status, out, _ = run("flows", "resolve", result.id, "--reason", "by phone")

    assert (DONE, f"Workflow {result.id} goes on: job {letter} was set aside.\n") == (
        status,
        out,
    )
    error = ArchivedJob.objects.get(pk=letter).errors[-1]
    assert "by phone" == error["message"]
    assert "command line" in error["by"]
    status, out, _ = run("flows", "resolve", result.id)
    assert (NOTHING, f"Workflow {result.id} waits for nobody.\n") == (status, out)
    FAILS.clear()
    REJECTS.clear()
