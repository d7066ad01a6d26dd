"""Workflows in the admin: the list, the picture, the steps, and what can be done."""

from __future__ import annotations

from html import unescape

import pytest

from django_pgqueue import chain, chord, group
from django_pgqueue.models import DeadLetter, Job, Step, Workflow
from django_pgqueue.testing import drain
from tests.app.workflow_tasks import add, fails, fails_at, give, see, total

pytestmark = pytest.mark.django_db

LIST = "/admin/pgqueue/workflow/"


def page_of(client, result, query=""):
    """Return the page of a workflow."""
    answer = client.get(f"{LIST}{result.id}/change/{query}")
    assert 200 == answer.status_code
    return unescape(answer.content.decode())


def test_the_list_tells_how_far_each_is(admin_client):
    """The latest first, with its state, its progress and its key."""
    first = chain(give.s(1), add.s(1)).delay(key="order-7")
    second = chain(give.s(1), add.s(1), name="import").delay()
    drain(max_jobs=1)

    answer = admin_client.get(LIST)

    rows = answer.context["cl"].result_list
    assert [second.id, first.id] == [row.pk for row in rows]
    html = answer.content.decode()
    assert "1 of 2" in html
    assert "0 of 2" in html
    assert "order-7" in html
    assert "pgqueue-running" in html


def test_the_page_draws_the_steps_and_lists_them(admin_client):
    """A box for each, the second one right of the first."""
    result = chain(give.s(1), add.s(1)).delay()
    drain(max_jobs=1)

    html = page_of(admin_client, result)

    assert 2 == html.count("<rect")
    assert "succeeded" in html
    ids = [step.id for step in result.steps()]
    assert f"/admin/pgqueue/archivedjob/{ids[0]}/change/" in html
    assert f"/admin/pgqueue/job/{ids[1]}/change/" in html
