"""The overview in a real browser: it renews itself, and says so when it cannot."""

from __future__ import annotations

from datetime import timedelta

import pytest
from playwright.sync_api import expect

from tests.harness.factories import make_dead_letter, make_job, make_jobs, register

pytestmark = pytest.mark.slow

URL = "/admin/pgqueue/"
# Milliseconds until the page asks again, and as a hidden tab, ever.
NEXT, LONG = 5_000, 60_000

COUNT = """() => {
    const real = window.fetch;
    window.asked = 0;
    window.fetch = (...given) => { window.asked += 1; return real(...given); };
}"""
HIDE = """(is_hidden) => {
    const hidden = {value: is_hidden, configurable: true};
    Object.defineProperty(document, "hidden", hidden);
    document.dispatchEvent(new Event("visibilitychange"));
}"""


def opened(site):
    """Return the overview, whose clock stands still until it is told to run."""
    site.page.clock.install()
    return site.open(URL)


def ready(page):
    return page.locator(".pgqueue-tiles div").first.locator("dd > a")


def test_it_renews_itself_and_keeps_the_focus(site):
    """Also that of a link whose number has changed; what is chosen is left alone."""
    register("web-1")
    make_job()
    page = opened(site)
    expect(ready(page)).to_have_text("1")
    ready(page).focus()

    make_jobs(2)
    page.clock.run_for(NEXT)
    expect(ready(page)).to_have_text("3")
    expect(ready(page)).to_be_focused()

    page.evaluate("getSelection().selectAllChildren(document.querySelector('dl'))")
    make_jobs(2)
    with page.expect_response(f"**{URL}"):
        page.clock.run_for(NEXT)
    expect(ready(page)).to_have_text("3")
    page.evaluate("getSelection().removeAllRanges()")
    page.clock.run_for(NEXT)
    expect(ready(page)).to_have_text("5")


def test_a_renewal_that_failed_is_told(site):
    """Until one succeeds; the numbers from before stay."""
    make_job()
    page = opened(site)
    told = page.locator("#pgqueue-live-failed")
    expect(told).to_be_hidden()

    page.route(f"**{URL}", lambda route: route.abort())
    page.clock.run_for(NEXT)
    expect(told).to_be_visible()
    expect(ready(page)).to_have_text("1")
    page.unroute(f"**{URL}")
    make_job()
    page.clock.run_for(NEXT)

    expect(ready(page)).to_have_text("2")
    expect(told).to_be_hidden()
    # The browser says on its console that it could not have the page.
    assert all("ERR_FAILED" in each for each in site.wrong)
    site.wrong.clear()


def test_a_database_that_is_too_slow_leaves_the_numbers(site):
    """A page without numbers does not take their place."""
    make_job()
    page = opened(site)
    slow = '<div id="pgqueue-overview" data-pgqueue-renew data-pgqueue-too-slow></div>'

    page.route(
        f"**{URL}", lambda route: route.fulfill(body=slow, content_type="text/html")
    )
    page.clock.run_for(NEXT)

    expect(page.locator("#pgqueue-live-failed")).to_be_visible()
    expect(ready(page)).to_have_text("1")


def test_a_hidden_tab_asks_nothing_for_it(site):
    """And catches up at once when it is looked at again."""
    page = opened(site)
    page.evaluate(COUNT)
    page.evaluate(HIDE, True)

    make_job()
    page.clock.run_for(LONG)
    assert 0 == page.evaluate("window.asked")
    page.evaluate(HIDE, False)

    expect(ready(page)).to_have_text("1")


def test_it_can_be_read_without_a_script_and_by_its_headings(site):
    """Each part has a heading; each table has heads; links are reached by Tab."""
    make_dead_letter(task="shop.tasks.charge", finished_at=-timedelta(minutes=5))
    page = site.open(URL)

    for title in ("Needs attention", "Dead, by task", "Running for longest"):
        heading = page.get_by_role("heading", name=title, exact=True)
        assert heading.is_visible(), title
        assert page.get_by_role("region", name=title, exact=True).is_visible(), title
    row = page.get_by_role("rowheader", name="shop.tasks.charge")
    assert row.is_visible()
    assert page.get_by_role("columnheader", name="24 h").is_visible()
    context = page.context.browser.new_context(
        java_script_enabled=False, storage_state=page.context.storage_state()
    )
    plain = context.new_page()
    plain.goto(site.url + URL)
    expect(plain.locator(".pgqueue-tiles")).to_contain_text("Dead in 24 h")
    context.close()
