"""The page of a workflow in a real browser: it is seen to go on."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from django_pgqueue import chain, chord
from django_pgqueue.admin import workflows
from django_pgqueue.testing import drain
from tests.app.workflow_tasks import add, fails_at, give, total

LIST = "/admin/pgqueue/workflow/"


@pytest.fixture(autouse=True)
def every_second(monkeypatch):
    """Pages of one that runs ask again after a second, and not after five."""
    monkeypatch.setattr(workflows, "LIVE_SECONDS", 1)


def test_a_workflow_is_seen_to_go_on(site):
    """Facts, picture and steps, while what was opened and scrolled to stays so."""
    result = chain(*(give.si(n) for n in range(12)), name="nightly").delay()
    page = site.open(f"{LIST}{result.id}/change/")
    rows = page.locator("#result_list tbody tr")
    expect(rows.nth(0)).to_contain_text("started")
    rows.nth(11).locator("summary").click()
    page.locator(".pgqueue-graph").evaluate("box => box.scrollLeft = 400")

    drain(max_jobs=3)

    expect(page.locator("#pgqueue-facts")).to_contain_text("3 of 12")
    expect(page.locator("#pgqueue-states")).to_contain_text("3 succeeded")
    expect(page.locator("#pgqueue-graph .pgqueue-succeeded")).to_have_count(3)
    expect(rows.nth(3)).to_contain_text("started")
    expect(rows).to_have_count(12)
    expect(rows.nth(11).locator("details")).to_have_attribute("open", "")
    assert 400 == page.locator(".pgqueue-graph").evaluate("box => box.scrollLeft")
    drain()
    expect(page.locator("#pgqueue-title")).to_contain_text("succeeded")
    expect(page.locator("#pgqueue-live")).to_have_count(0)


def test_from_a_box_to_its_steps_and_to_a_job(site):
    """By the number of dead members to their rows, and on to a dead letter."""
    members = [fails_at.s(n, -1 if n % 8 else n) for n in range(20)]
    result = chord([*members, give.s(1)], total.s()).delay()
    drain(raise_errors=False)
    page = site.open(f"{LIST}{result.id}/change/")

    page.locator("#pgqueue-graph").get_by_text("3 dead", exact=True).click()

    rows = page.locator("#result_list tbody tr")
    expect(rows).to_have_count(3)
    expect(page.locator("#pgqueue-steps")).to_be_in_viewport()
    expect(rows.nth(1)).to_contain_text("is bad")
    rows.nth(1).locator("th a").click()
    expect(page).to_have_url(
        f"{site.url}/admin/pgqueue/deadletter/{{}}/change/".format(
            [step.id for step in result.steps() if step.state == "dead"][1]
        )
    )
    page.get_by_role("link", name=str(result.id), exact=True).click()
    expect(page.locator(".pgqueue-here")).to_have_count(1)


def test_a_wide_picture_scrolls_inside_of_its_box_on_a_telephone(site):
    """The page itself is no wider than the window."""
    result = chain(*(add.si(n, n) for n in range(9))).delay()
    site.page.set_viewport_size({"width": 390, "height": 800})
    page = site.open(f"{LIST}{result.id}/change/")

    width, shown = page.locator(".pgqueue-graph").evaluate(
        "box => [box.scrollWidth, box.clientWidth]"
    )
    assert width > 1_500
    assert shown < 390
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
