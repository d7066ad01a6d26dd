"""Workflows in the admin: the list, the picture, the steps, and what can be done."""

from __future__ import annotations

from datetime import timedelta
from html import unescape

import pytest
from django.contrib.admin.models import LogEntry

from django_pgqueue import chain, group
from django_pgqueue.models import ArchivedJob, DeadLetter, Job, Step, Workflow
from django_pgqueue.testing import drain
from tests.app.saga_tasks import CANCELS, FAILS, LOG, REJECTS, order
from tests.app.workflow_tasks import add, fails_at, give, see, total

pytestmark = pytest.mark.django_db

ADMIN = "/admin/pgqueue"
LIST = f"{ADMIN}/workflow/"
CONFIRMED = {"confirmed": "1"}
HOUR = timedelta(hours=1)


@pytest.fixture(autouse=True)
def _clean():
    for kept in (LOG, FAILS, REJECTS, CANCELS):
        kept.clear()
    yield
    for kept in (LOG, FAILS, REJECTS, CANCELS):
        kept.clear()


def failed():
    """Return a workflow that has failed in its second step, and called see()."""
    result = chain(
        give.s(7), fails_at.s(7), add.s(1), on_error=see.s(), name="import"
    ).delay()
    drain(raise_errors=False)
    return result


def page_of(client, result, query=""):
    """Return the page of a workflow."""
    answer = client.get(f"{LIST}{result.id}/change/{query}")
    assert 200 == answer.status_code
    return unescape(answer.content.decode())


def listed(client, query=""):
    """Return the ids in the list, and its page."""
    answer = client.get(f"{LIST}{query}")
    assert 200 == answer.status_code
    rows = answer.context["cl"].result_list
    return [row.pk for row in rows], unescape(answer.content.decode())


def steps_of(client, result, query=""):
    """Return the ids of the steps that the page of a workflow lists."""
    answer = client.get(f"{LIST}{result.id}/change/{query}")
    return [row.pk for row in answer.context["cl"].result_list]


def do(client, result, name):
    """Press a button of the page, and confirm; return what is told."""
    url = f"{LIST}{result.id}/{name}/"
    answer = client.post(url, CONFIRMED, follow=True)
    return " ".join(str(each) for each in answer.context["messages"])


# The list ----------------------------------------------------------------------------


def test_the_list_tells_how_far_each_is(admin_client):
    """The latest first, with its state, its progress and its key."""
    first = chain(give.s(1), add.s(1)).delay(key="order-7")
    second = chain(give.s(1), add.s(1), name="import").delay()
    drain(max_jobs=1)

    ids, html = listed(admin_client)

    assert [second.id, first.id] == ids
    assert '<progress value="1" max="2">' in html
    assert "1 of 2" in html
    assert "0 of 2" in html
    assert "order-7" in html
    assert 2 == html.count("pgqueue-badge pgqueue-running")


def test_keys_are_for_those_who_may_see_payloads(staff):
    """Arguments make them: they are neither shown nor found."""
    result = group(give.s(1)).delay(key="ada@example.org")
    without = staff("view_workflow")
    alone = staff("view_workflow", "view_payload")

    for client, is_shown in ((without, False), (alone, True)):
        assert is_shown == ("ada@example.org" in listed(client)[1])
        assert is_shown == ("ada@example.org" in page_of(client, result))
        assert is_shown == bool(listed(client, "?q=ada@example.org")[0])
        assert [result.id] == listed(client, f"?q={result.id}")[0]


# The page of one ---------------------------------------------------------------------


def test_the_page_draws_the_steps_and_lists_them(admin_client):
    """A box for each; the number of each leads to its job, wherever that is."""
    result = chain(
        give.s(7), group(fails_at.s(7), add.s(1)), total.s(), on_error=see.s()
    ).delay()
    drain(max_jobs=2, raise_errors=False)
    one, dead, started, waiting, callback = steps_of(admin_client, result)

    html = page_of(admin_client, result)

    assert 5 == html.count("<rect")
    assert f"{ADMIN}/archivedjob/{one}/change/" in html
    assert f"{ADMIN}/deadletter/{dead}/change/" in html
    assert f"{ADMIN}/job/{started}/change/" in html
    for other in (waiting, callback):
        assert f'href="?q={other}#pgqueue-steps"' in html
        assert f"/{other}/change/" not in html
    assert "2 of 4" in html
    assert "if it fails" in html


def test_a_job_leads_to_its_workflow_and_its_step_there(admin_client):
    """From the queue, the archive and the dead letters."""
    result = failed()
    chain(give.s(1)).delay()
    tables = {"job": Job, "archivedjob": None, "deadletter": DeadLetter}
    job = Job.objects.get()
    ids = [step.id for step in result.steps()]
    places = {
        "job": (job.pk, job.workflow_id),
        "archivedjob": (ids[0], result.id),
        "deadletter": (ids[1], result.id),
    }
    assert tables.keys() == places.keys()

    for table, (key, workflow) in places.items():
        html = admin_client.get(f"{ADMIN}/{table}/{key}/change/").content.decode()
        url = f"{LIST}{workflow}/change/?q={key}"
        assert f'<a href="{url}">{workflow}</a>' in html
        there = admin_client.get(url)
        assert [key] == [row.pk for row in there.context["cl"].result_list]
        assert 1 == there.content.decode().count("pgqueue-here")


def test_payloads_are_for_those_who_may_see_them(staff):
    """Arguments, results, and what an error says; its class is for all."""
    result = chain(give.s("an argument"), name="said").delay()
    drain()
    broken = failed()
    without = staff("view_workflow")
    alone = staff("view_workflow", "view_payload")

    for client, is_shown in ((without, False), (alone, True)):
        html = page_of(client, result)
        assert (2 if is_shown else 0) == html.count("an argument")
        html = page_of(client, broken)
        assert "builtins.ValueError" in html
        assert is_shown == ("7 is bad" in html)


# Acts --------------------------------------------------------------------------------


def test_what_has_not_started_is_cancelled(admin_client):
    """It asks first; who did it is in the history, and in what jobs tell."""
    result = chain(give.s(1), add.s(1)).delay()
    url = f"{LIST}{result.id}/cancel/"

    assert b"never run" in admin_client.get(url).content
    assert "running" == result.refresh().status
    assert "1 cancelled." == do(admin_client, result, "cancel")

    assert "cancelled" == result.refresh().status
    assert "Cancelled." == LogEntry.objects.get().change_message
    assert f"{LIST}{result.id}/cancel/" not in page_of(admin_client, result)
    assert "left: ended" in do(admin_client, result, "cancel")


def test_dead_steps_are_retried(admin_client):
    """Their dead letters go back; that of the callback that was called stays."""
    result = chain(fails_at.s(7, 7), on_error=fails_at.si(1, 1)).delay()
    drain(raise_errors=False)
    letter, callback = DeadLetter.objects.order_by("pk").values_list("pk", flat=True)

    assert "Redriven dead steps: 1." == do(admin_client, result, "retry-dead")

    assert [letter] == list(Job.objects.values_list("pk", flat=True))
    assert [callback] == list(DeadLetter.objects.values_list("pk", flat=True))
    assert "running" == result.refresh().status
    entry = LogEntry.objects.get()
    assert "Dead steps that went back to their queues: 1." == entry.change_message
    assert f"{LIST}{result.id}/retry-dead/" not in page_of(admin_client, result)
    assert "without a dead step" in do(admin_client, result, "retry-dead")


def test_a_dead_compensation_is_retried_and_the_dead_step_of_its_saga_is_not(
    admin_client,
):
    """A step that was retried would be done after the saga was undone."""
    FAILS["ship"] = -1
    REJECTS.add("refund")
    result = order.start(order_id=7, amount=5)
    drain(retries=True, raise_errors=False)
    dead = Step.objects.get(kind="compensation", state="dead")

    assert "Redriven dead steps: 1" in do(admin_client, result, "retry-dead")
    assert [dead.pk] == list(Job.objects.values_list("pk", flat=True))
    assert f"{LIST}{result.id}/retry-dead/" not in page_of(admin_client, result)
    REJECTS.clear()
    drain(retries=True)
    assert "compensated" == result.refresh().status


def test_a_saga_that_needs_a_human_says_so_and_is_let_go_on(admin_client):
    """Its compensation was done by hand: why, and who said so, is with its job."""
    FAILS["ship"] = -1
    REJECTS.add("refund")
    result = order.start(order_id=7, amount=5)
    drain(retries=True, raise_errors=False)
    dead = Step.objects.get(kind="compensation", state="dead")
    assert f"{ADMIN}/deadletter/{dead.pk}/change/" in page_of(admin_client, result)

    assert "compensating, needs a human" in page_of(admin_client, result)
    assert "compensating, needs a human" in listed(admin_client)[1]

    url = f"{LIST}{result.id}/resolve/"
    form = {**CONFIRMED, "reason": "refunded by hand"}
    answer = admin_client.post(url, form, follow=True)

    assert ["1 resumed."] == [str(each) for each in answer.context["messages"]]
    (error, *_) = reversed(ArchivedJob.objects.get(pk=dead.pk).errors)
    assert ("admin", "refunded by hand") == (error["by"], error["message"])
    drain(retries=True)
    assert "compensated" == result.refresh().status
    answer = admin_client.post(url, form, follow=True)
    assert ["1 left: not waiting for anyone."] == [
        str(e) for e in answer.context["messages"]
    ]


def test_a_workflow_is_started_anew_from_a_step(admin_client):
    """A link beside each step fills in which; one of another workflow is refused."""
    result = chain(give.s(1), give.s(), give.s()).delay()
    drain()
    first, second, _third = Step.objects.order_by("id")
    link = f"{LIST}{result.id}/restart/?step={second.id}"
    assert link in page_of(admin_client, result)
    form = admin_client.get(link).content.decode()
    assert f'name="step" value="{second.id}"' in form
    said = admin_client.get(f"{LIST}{result.id}/restart/?step=%22%3E<b>&confirmed=1")
    assert b'value="&quot;&gt;&lt;b&gt;"' in said.content
    assert 1 == Workflow.objects.count()

    url = f"{LIST}{result.id}/restart/"
    answer = admin_client.post(url, {**CONFIRMED, "step": "7e9"})
    assert b"Enter a whole number." in answer.content
    answer = admin_client.post(url, {**CONFIRMED, "step": first.id + 99}, follow=True)
    assert f"has no step {first.id + 99}" in answer.content.decode()
    assert 1 == Workflow.objects.count()

    answer = admin_client.post(link, {**CONFIRMED, "step": second.id}, follow=True)
    assert "1 started anew." in answer.content.decode()
    anew = Workflow.objects.exclude(pk=result.id).get()
    states = Step.objects.filter(workflow_id=anew.pk).order_by("id")
    assert ["succeeded", "started", "waiting"] == [each.state for each in states]
