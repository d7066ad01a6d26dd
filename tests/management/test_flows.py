"""`manage.py pgqueue flows`: workflows, the steps of one, and what is done with it."""

from __future__ import annotations

import json
import re

import pytest

from django_pgqueue import chain, chord, group
from django_pgqueue.models import ArchivedJob, DeadLetter, Job, Step, Workflow
from django_pgqueue.testing import drain
from tests.app.saga_tasks import FAILS, LOG, REJECTS, order
from tests.app.workflow_tasks import add, fails_at, give, see, total
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


def test_workflows_are_chosen_by_state_name_and_key():
    """By a part of the name, the whole key; more than one filter together."""
    first, other = failed(key="a"), failed(key="b")
    running = group(give.s(1), name="other").delay(key="a")

    def found(*words):
        status, value = told("flows", *words)
        ids = [row["id"] for row in value["workflows"]]
        assert (DONE if ids else NOTHING) == status
        return ids

    assert [other.id, first.id] == found("--state", "failed")
    assert [other.id, first.id] == found("--name", "IMP")
    assert [running.id, first.id] == found("--key", "a")
    assert [running.id] == found("--key", "a", "--state", "running")
    assert [] == found("--key", "none")
    assert [] == found("--name", "import", "--state", "running")
    _, _, err = run("flows", "--limit", "2")
    assert f"More: --before {other.id}" in err
    assert [first.id] == found("--limit", "2", "--before", other.id)


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


def test_the_steps_of_a_workflow_are_paged_and_chosen():
    """By state, by a part of the name, and after an id."""
    result = chord([give.s(n) for n in range(5)], total.s()).delay()
    drain(max_jobs=2)
    ids = [step.id for step in result.steps()]

    def found(*words):
        status, value = told("flows", result.id, *words)
        assert DONE == status
        return [row["id"] for row in value["steps"]], value["next"]

    assert (ids[:4], ids[3]) == found("--limit", "4")
    assert (ids[4:], None) == found("--limit", "4", "--after", ids[3])
    assert (ids[:2], None) == found("--state", "succeeded")
    assert (ids[5:], None) == found("--name", "TOTAL")
    assert ([], None) == found("--state", "dead")


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


def test_a_workflow_that_has_ended_is_started_anew():
    """With the results that it has; from a step, if one is said."""
    result = chain(give.s(1), fails_at.s(1)).delay()
    status, out, _ = run("flows", "restart", result.id)
    left = f"Workflow {result.id} was left as it is: only a chain, a group, a chord "
    assert NOTHING == status
    assert out.startswith(left)
    drain(raise_errors=False)

    status, out, _ = run("flows", "restart", result.id)
    first, second = Workflow.objects.order_by("id").values_list("id", flat=True)
    told = f"Workflow {first} was started anew, as workflow {second}.\n"
    assert (DONE, told) == (status, out)
    (kept, _) = Step.objects.filter(workflow_id=second).order_by("id")
    assert "succeeded" == kept.state

    (step, _) = Step.objects.filter(workflow_id=first).order_by("id")
    status, out, _ = run("flows", "restart", first, "--step", step.id, "--json")
    third = Workflow.objects.latest("id").id
    assert {"workflow": first, "restarted_as": third} == json.loads(out)
    (again, _) = Step.objects.filter(workflow_id=third).order_by("id")
    assert "started" == again.state
    status, _, err = run("flows", "restart", first, "--step", again.id)
    assert f"Workflow {first} has no step {again.id}." in err


def test_a_workflow_that_there_is_not_is_told():
    """It never was, or its retention has passed."""
    status, out, _ = run("flows", "cancel", "7")

    assert NOTHING == status
    assert "There is no workflow 7" in out


def test_the_job_of_a_step_that_was_undone_says_that_it_was_dead():
    """In `show`, as in `flows`, though its dead letter went to the archive."""
    REJECTS.add("charge")
    result = order.start(order_id=1, amount=2)
    drain(raise_errors=False)
    (dead,) = [step.id for step in result.steps() if step.state == "dead"]

    _, out, _ = run("show", str(dead))

    first, *_ = out.splitlines()
    by = f"set aside by saga {result.id}"
    assert f"Job {dead} is cancelled: dead (rejected), and {by}" == first
