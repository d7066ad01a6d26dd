"""The page of a workflow in a real browser: it is seen to go on."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from django_pgqueue import chain
from django_pgqueue.admin import workflows
from django_pgqueue.testing import drain
from tests.app.workflow_tasks import add, give

pytestmark = pytest.mark.slow

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
