"""Schedules in a real browser, under a policy that allows files of the site alone."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from django_pgqueue.models import Job, Schedule

pytestmark = pytest.mark.slow


def test_a_schedule_is_made_run_and_paused(site):
    """What is wrong is told at its field; the preview stores nothing."""
    page = site.open("/admin/pgqueue/schedule/")
    page.get_by_role("link", name="New schedule…").click()

    page.get_by_label("Name").fill("evening")
    # The browser offers tasks and zones while one writes, without a script.
    assert 400 < page.locator("#pgqueue-zones option").count()
    page.get_by_label("Task").fill("tests.app.tasks.noop")
    page.get_by_label("Time zone").fill("Europe/Berln")
    page.get_by_label("Cron expression").fill("0 18 * * 1-5")
    page.get_by_role("button", name="Preview").click()
    expect(page.locator(".errorlist")).to_contain_text("Did you mean 'Europe/Berlin'?")
    page.get_by_label("Time zone").fill("Europe/Berlin")
    page.get_by_role("button", name="Preview").click()
    expect(page.locator(".pgqueue-preview")).to_contain_text(
        "0 18 * * 1-5 in Europe/Berlin"
    )
    assert not Schedule.objects.exists()
    page.get_by_role("button", name="Save").click()
    expect(page.locator(".messagelist")).to_contain_text("evening was made")

    page.get_by_role("link", name="Run now").click()
    page.get_by_role("button", name="Run now").click()
    expect(page.locator("#result_list")).to_contain_text("ready")
    assert Schedule.objects.get().pk == Job.objects.get().schedule_id
    page.get_by_role("link", name="evening").click()
    page.get_by_role("link", name="Pause").click()
    page.get_by_label("Reason").fill("night off")
    page.get_by_role("button", name="Pause").click()
    expect(page.locator("#result_list")).to_contain_text("by ada: night off")
