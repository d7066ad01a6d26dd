"""Runs of the pipeline in a real browser: asked for, seen to go on, and stopped."""

from __future__ import annotations

import pytest
from django.db.models.functions import Now
from playwright.sync_api import expect

from django_pgqueue.admin import pipeline_runs
from django_pgqueue.models import Job, PipelineRun
from tests.harness.factories import make_live_run, make_run, register

pytestmark = pytest.mark.slow

LIST = "/admin/pgqueue/pipelinerun/"


@pytest.fixture(autouse=True)
def every_second(monkeypatch):
    """Pages with a live run ask again after a second, and not after five."""
    monkeypatch.setattr(pipeline_runs, "LIVE_SECONDS", 1)


def advance(run, *, tasks_done, **columns):
    """Write what the process of a run writes every two seconds."""
    progress = {"phase": "reading", "tasks": 12, "tasks_done": tasks_done}
    PipelineRun.objects.filter(pk=run.pk).update(progress=progress, **columns)


def test_a_run_is_asked_for_seen_to_go_on_and_stopped(site):
    """The list and the page of the run show it by themselves; nothing is reloaded."""
    register("web-1")
    old = make_run(job="failures")
    page = site.open(LIST)

    page.get_by_role("link", name="Run…").click()
    page.get_by_role("link", name="metrics", exact=True).click()
    page.get_by_label("lookback").fill("7d")
    page.get_by_role("button", name="Run").click()
    expect(page.locator(".messagelist")).to_contain_text("A run of metrics was asked")
    expect(page.locator("#pgqueue-notes")).to_contain_text("1 run is requested")
    assert {"lookback": "7d"} == Job.objects.get().kwargs
    box = page.locator(f'input[name="_selected_action"][value="{old.pk}"]')
    box.check()

    # A worker takes it.
    Job.objects.all().delete()
    run = make_live_run()
    rows = page.locator("#result_list")
    expect(rows).to_contain_text("3 of 12 tasks")
    advance(run, tasks_done=9)
    expect(rows).to_contain_text("9 of 12 tasks")
    assert box.is_checked()
    expect(page.locator("#pgqueue-notes")).not_to_contain_text("requested")

    page.get_by_role("link", name=str(run.pk), exact=True).click()
    advance(run, tasks_done=11, rows_in=7_777)
    expect(page.locator("#pgqueue-facts")).to_contain_text("11 of 12 tasks")
    expect(page.locator("#pgqueue-facts")).to_contain_text("7,777")
    page.get_by_role("link", name="Stop").click()
    page.get_by_role("button", name="Stop").click()
    expect(page.locator("#result_list")).to_contain_text("asked to stop")
    assert "ada" == PipelineRun.objects.get(pk=run.pk).cancel_requested_by

    site.open(f"{LIST}{run.pk}/change/")
    PipelineRun.objects.filter(pk=run.pk).update(
        state="cancelled", finished_at=Now(), error="Stopped: by hand"
    )
    expect(page.locator("#pgqueue-title")).to_contain_text("cancelled")
    expect(page.locator("#pgqueue-error")).to_contain_text("Stopped: by hand")
    expect(page.get_by_role("link", name="Run again")).to_be_visible()
    expect(page.locator("#pgqueue-live")).to_have_count(0)
