"""Runs of the pipeline in a real browser: asked for, seen to go on, and stopped."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db.models.functions import Now
from playwright.sync_api import expect

from django_pgqueue.admin import pipeline_runs
from django_pgqueue.models import Job, PipelineRun
from tests.browser.pages import register
from tests.harness.factories import make_live_run, make_run, make_task_hour

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
    expect(page.locator("#pgqueue-notes")).to_contain_text("1 run is asked for")
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
    expect(page.locator("#pgqueue-notes")).not_to_contain_text("asked for")

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


def test_a_hidden_tab_asks_nothing(site):
    """And catches up at once when it is looked at again."""
    run = make_live_run(lease_until=timedelta(hours=1))
    site.page.clock.install()
    page = site.open(f"{LIST}{run.pk}/change/")
    count = """() => {
        const real = window.fetch;
        window.asked = 0;
        window.fetch = (...given) => { window.asked += 1; return real(...given); };
    }"""
    hide = """(is_hidden) => {
        const hidden = {value: is_hidden, configurable: true};
        Object.defineProperty(document, "hidden", hidden);
        document.dispatchEvent(new Event("visibilitychange"));
    }"""

    advance(run, tasks_done=5)
    page.clock.run_for(1_000)
    expect(page.locator("#pgqueue-facts")).to_contain_text("5 of 12 tasks")
    page.evaluate(hide, True)
    page.evaluate(count)
    page.clock.run_for(60_000)
    assert 0 == page.evaluate("window.asked")
    advance(run, tasks_done=11)
    page.evaluate(hide, False)

    expect(page.locator("#pgqueue-facts")).to_contain_text("11 of 12 tasks")


def test_charts_say_what_they_show(site):
    """Each picture has a name, its parts tell their numbers, and a table has all."""
    make_task_hour(0, succeeded=4_711, started=4_711)
    page = site.open("/admin/pgqueue/taskhour/")

    picture = page.get_by_role("img", name="Throughput, jobs an hour")
    expect(picture).to_be_visible()
    bar = picture.locator("rect.pgqueue-good").bounding_box()
    area = picture.bounding_box()
    assert bar["height"] > area["height"] / 2
    assert area["x"] < bar["x"] < area["x"] + area["width"]
    spot = picture.locator("rect.pgqueue-spot title").last
    assert "succeeded: 4,711" in spot.text_content()
    page.get_by_text("The charts as a table").click()
    expect(page.get_by_role("cell", name="4,711").first).to_be_visible()
    page.get_by_role("link", name="tests.noop").click()
    expect(page.get_by_text("its percentiles are exact")).to_be_visible()
