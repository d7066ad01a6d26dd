"""The admin in a real browser, under a policy that allows files of the site alone."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
from django.contrib.admin.utils import quote
from playwright.sync_api import expect

from django_pgqueue.models import DeadLetter, Job
from tests.admin.rows import make_each
from tests.admin.test_pages import paths
from tests.harness.factories import (
    make_dead_letter,
    make_job,
)

pytestmark = pytest.mark.slow

# Either of them would show itself if it worked.
EVIL = "'\"><svg/onload=alert(1)></script><script>alert(2)</script>"


def test_nothing_that_data_says_is_run_or_breaks_out(site):
    """Lists and rows of all nouns with an attack in every field: all stay text."""
    keys = make_each(EVIL)
    for noun, rows in keys.items():
        url = f"/admin/pgqueue/{noun}/"
        for path in (url, f"{url}{quote(rows[0])}/change/"):
            page = site.open(path)

            assert "/admin/login/" not in page.url
            assert 0 == page.locator("[onclick], [onload], [onerror]").count(), path
            assert 0 == page.locator('img[src="x"], svg[onload]').count(), path
            assert 0 == page.locator('a[href^="javascript:" i]').count(), path
            assert page.locator("#content").is_visible(), path
            assert [] == site.wrong, path


def test_pages_fit_the_window_and_can_be_read(site):
    """
    No page is wider than the window, and text differs from its background.

    Breadcrumbs have Django's own style, and rows of lists a few lines. In the window of
    a desk and of a phone, light and dark.
    """
    found = paths(make_each("x" * 60))
    # Of each noun the list, a row and the last page, mostly a form.
    some = [page for each in found.values() for page in (*each[:2], each[-1])]
    for path in ["/admin/pgqueue/", *some]:
        page = site.open(path)

        page.evaluate(AT_ONCE)
        for width in (390, 1280):
            page.set_viewport_size({"width": width, "height": 800})
            assert width == page.evaluate("window.innerWidth")
            too_wide = page.evaluate(
                "document.documentElement.scrollWidth"
                " - document.documentElement.clientWidth"
            )
            assert 0 >= too_wide, (path, width)
            assert [] == page.evaluate(TALL_ROWS), (path, width)
            assert [] == page.evaluate(PLAIN_BREADCRUMBS), (path, width)
            for scheme in ("light", "dark"):
                page.emulate_media(color_scheme=scheme)
                assert [] == page.evaluate(UNREADABLE), (path, width, scheme)


TALL_ROWS = """
() => [...document.querySelectorAll("#result_list tbody tr")]
    .filter(row => row.offsetHeight > 165).map(row => row.innerText)
"""

PLAIN_BREADCRUMBS = """
() => [...document.querySelectorAll(".breadcrumbs")]
    .filter(way => getComputedStyle(way).backgroundColor === "rgba(0, 0, 0, 0)"
        || getComputedStyle(way).color === getComputedStyle(document.body).color)
    .map(way => way.outerHTML)
"""

# Buttons would fade from one colour into the other.
AT_ONCE = """
() => {
  const sheet = new CSSStyleSheet();
  sheet.replaceSync("* { transition: none !important }");
  document.adoptedStyleSheets = [sheet];
}
"""

# Badges, buttons and payloads whose text has less contrast with its background than
# 3 : 1, by the formula of WCAG.
UNREADABLE = r"""
() => {
  const parts = (c) => c.match(/[\d.]+/g).map(Number);
  const light = ([r, g, b]) => [r, g, b].map((v) => v / 255)
    .map((v) => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = (node) => {
    for (; node; node = node.parentElement) {
      const [r, g, b, a = 1] = parts(getComputedStyle(node).backgroundColor);
      if (a > 0.5) return [r, g, b];
    }
    return [255, 255, 255];
  };
  return [...document.querySelectorAll(
      ".pgqueue-badge, .pgqueue-payload, .button, .closelink, input[type=submit],"
      + ".pgqueue-well, .pgqueue-way-out, .pgqueue-told, .pgqueue-as-of,"
      + ".pgqueue-warning, .pgqueue-tag, .pgqueue-facts td, .pgqueue-meta span")]
    .filter((node) => node.getClientRects().length && node.textContent + node.value)
    .map((node) => {
      const a = light(parts(getComputedStyle(node).color));
      const b = light(behind(node));
      const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
      return [ratio, node.className, node.textContent || node.value];
    })
    .filter(([ratio]) => ratio < 3);
}
"""


def test_ticked_rows_are_set_aside_with_a_reason(site):
    """The menu of the list, the page that asks why, and the message."""
    letters = [make_dead_letter() for _ in range(3)]
    page = site.open("/admin/pgqueue/deadletter/")

    for letter in letters[:2]:
        page.locator(f'input[name="_selected_action"][value="{letter.pk}"]').check()
    page.get_by_label("Action:").select_option(label="Set aside")
    page.locator(".actions button[type=submit]").first.click()
    page.get_by_label("Reason").fill("customer left")
    page.get_by_role("button", name="Set aside").click()

    expect(page.locator(".messagelist")).to_contain_text("2 set aside")
    assert [letters[2].pk] == list(DeadLetter.objects.values_list("pk", flat=True))


def test_a_job_is_cancelled_after_a_question(site):
    """The red button asks first; "No" leads back, and the job is still there."""
    job = make_job(run_after=timedelta(hours=1))
    page = site.open(f"/admin/pgqueue/job/{job.pk}/change/")

    page.get_by_role("link", name="Cancel").click()
    page.get_by_role("link", name=re.compile("take me back")).click()
    assert Job.objects.filter(pk=job.pk).exists()
    site.open(f"/admin/pgqueue/job/{job.pk}/cancel/")
    page.get_by_role("button", name="Cancel").click()

    expect(page.locator(".messagelist")).to_contain_text("1 cancelled.")
    assert not Job.objects.filter(pk=job.pk).exists()
