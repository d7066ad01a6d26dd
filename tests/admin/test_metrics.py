"""Metrics: what tasks did, as charts and tables."""

from __future__ import annotations

from html import unescape

import pytest

from tests.harness.factories import make_task_hour

pytestmark = pytest.mark.django_db

URL = "/admin/pgqueue/taskhour/"


def page(client, query="", **context):
    """Return the page's text and what it was made of."""
    response = client.get(f"{URL}{query}")
    assert 200 == response.status_code
    return unescape(response.content.decode()), response.context


def chart(context, key):
    return next(chart for chart in context["charts"] if chart.key == key)


def spoken(chart):
    """Return what is told about the spans that have anything to tell."""
    told = [spot["text"].split("\n") for spot in chart.spots]
    return {lines[0]: lines[1:] for lines in told if len(lines) > 1}


def test_an_empty_page_says_what_to_run(admin_client):
    """The exact command, and a link for those who may run it here."""
    html, context = page(admin_client)

    assert "Nothing has been counted yet" in html
    assert "python manage.py pgqueue_pipeline run metrics" in html
    assert 'href="/admin/pgqueue/pipelinerun/run/?job=metrics"' in html
    assert [] == context["charts"]


def test_what_ended_is_stacked_by_the_hour(admin_client):
    """Succeeded, failed and tried again, dead: of all tasks and queues together."""
    make_task_hour(1, succeeded=90, started=100, failed=9, crashed=1, dead=2)
    make_task_hour(1, task="shop.mail", succeeded=30, started=30)
    make_task_hour(3, succeeded=7, started=7)

    html, context = page(admin_client)

    shown = chart(context, "throughput")
    assert [
        ["succeeded: 7", "failed, tried again: 0", "dead: 0"],
        ["succeeded: 120", "failed, tried again: 8", "dead: 2"],
    ] == list(spoken(shown).values())
    assert [120, 8, 2] == [part.values[-2] for part in shown.series]
    # One bar of one part, and one of three.
    assert 4 == len(shown.bars)
    assert "jobs an hour" in html
    assert "Highest: 130 an hour." in html


def test_tasks_stand_in_a_table(admin_client):
    """All queues of a task in one line; the busiest first, each a link to its own."""
    make_task_hour(1, started=4, succeeded=2, failed=1, crashed=1, dead=1)
    make_task_hour(2, queue="mail", started=4, succeeded=4, run_p95=60.0)
    make_task_hour(1, task="shop.mail", started=100, succeeded=100)

    html, context = page(admin_client, "?period=7d")

    assert ["shop.mail", "tests.noop"] == [task for task, *_line in context["tasks"]]
    _task, sums, share, _query = context["tasks"][1]
    assert ("25.0%", 60.0) == (share, sums.run_p95)
    for number in ("7", "25.0%", "1", "1 min", "40 s"):
        assert f'<td class="pgqueue-number">{number}</td>' in html
    assert 'href="?period=7d&task=tests.noop"' in html
