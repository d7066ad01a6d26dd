"""The admin in a real browser, under a policy that allows files of the site alone."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.auth.models import User
from playwright.sync_api import expect

from django_pgqueue.models import DeadLetter, Job, Lane, Queue
from tests.browser.pages import lane_paths, make_rows, paths, register
from tests.harness.factories import (
    make_archived_job,
    make_dead_letter,
    make_job,
    make_leased_job,
)

# All of them in one text, for every place at once: any that worked would show itself.
EVIL = (
    "\"><h1 onclick=alert(1)>'><svg/onload=alert(2)><img src=x onerror=alert(3)>"
    "</script><script>alert(4)</script></textarea><style>*{display:none}</style>"
    "{{ 7|add:7 }}{% load i18n %}${alert(5)}\u202e`-alert(6)-`"
)
# A link with this address would be the attack.
ADDRESS = "javascript:alert(7)//"


def evil_columns(text: str, **columns: Any) -> dict[str, Any]:
    """Return columns of a job with *text* in each that takes text, and in each key."""
    entry = dict.fromkeys(
        (
            "kind",
            "type",
            "message",
            "traceback",
            "worker",
            "by",
            "at",
            "attempt",
            "delivery",
            "ran_seconds",
        ),
        text,
    )
    return {
        "queue": text[:63],
        "task": text[:255],
        "args": [text, {text: [text]}],
        "kwargs": {text: text, "api_token": text},
        "headers": {text: text, "tags": [text[:63], ADDRESS]},
        "progress": {"done": 1, "total": 2, "note": text},
        "errors": [entry, {**entry, "kind": "set_aside"}, text, {text: text}],
        "dedup_key": f"{text} {columns}"[:255],
        **columns,
    }


@pytest.mark.parametrize("text", [EVIL, ADDRESS + EVIL], ids=["markup", "address"])
def test_nothing_that_data_says_is_run_or_breaks_out(site, text):
    """Every page with a row of which every field is an attack: all stay text."""
    worker = text[:100]
    jobs = [
        make_job(**evil_columns(text)),
        make_leased_job(worker, **evil_columns(text, priority=1)),
        make_job(**evil_columns(text, lane=text[:255])),
    ]
    archived = [
        make_archived_job(**evil_columns(text, result={text: text}, worker=worker))
    ]
    letters = [make_dead_letter(**evil_columns(text, worker=worker))]
    Queue.objects.create(
        name=text[:63],
        paused_by=text[:150],
        pause_reason=text,
        paused_at="2026-01-01 00:00Z",
    )
    register(worker, hostname=text[:255], queues=[text])
    for row in (jobs[0], letters[0], archived[0]):
        LogEntry.objects.log_actions(User.objects.get().pk, [row], CHANGE, text)
    make_job(lane=text[:255], lane_capacity=3)
    Lane.objects.create(
        name=text[:255],
        paused_by=text[:150],
        pause_reason=text,
        paused_at="2026-01-01 00:00Z",
    )
    found = paths(jobs, archived, letters, [text[:63]], [worker])
    found += [*lane_paths([text[:255]] * 2), "/admin/pgqueue/"]
    search = [f"{path}?q={EVIL[:40]}&tag=%3Cimg%20src%3Dx%3E" for path in found[2:3]]

    for path in [*found, *search]:
        page = site.open(path)

        assert "/admin/login/" not in page.url
        assert 0 == page.locator("[onclick], [onload], [onerror]").count(), path
        assert 0 == page.locator('img[src="x"], svg[onload]').count(), path
        assert 0 == page.locator('a[href^="javascript:" i]').count(), path
        assert page.locator("#content, #content-main").first.is_visible(), path
        assert [] == site.wrong, path


@pytest.mark.slow
def test_pages_fit_the_window_and_can_be_read(site):
    """
    No page is wider than the window, and text differs from what is behind it.

    Breadcrumbs have Django's own style, and rows of lists a few lines. In the window of
    a desk and of a phone.
    """
    for path in make_rows():
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
    .filter(row => row.offsetHeight > 115).map(row => row.innerText)
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


def test_a_dead_letter_is_edited_and_redriven(site):
    """From the list to the form and back: its secret is not shown, and not lost."""
    letter = make_dead_letter(
        task="shop.charge", kwargs={"amount": "19.90", "api_token": "s3cret"}
    )
    page = site.open("/admin/pgqueue/deadletter/")

    page.get_by_role("link", name=str(letter.pk), exact=True).click()
    page.get_by_role("link", name="Edit arguments").click()
    field = page.get_by_label("Keyword arguments")
    field.fill("{")
    page.get_by_role("button", name="Save and redrive").click()
    expect(page.locator(".errorlist").first).to_be_visible()
    field.fill('{"amount": "21.50", "api_token": "s3cret"}')
    page.get_by_role("button", name="Save and redrive").click()

    expect(page.locator(".messagelist")).to_contain_text("back in its queue")
    job = Job.objects.get(pk=letter.pk)
    assert {"amount": "21.50", "api_token": "s3cret"} == job.kwargs


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

    expect(page.locator(".messagelist")).to_contain_text(
        "2 dead letters were set aside"
    )
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

    expect(page.locator(".messagelist")).to_contain_text("1 job was cancelled")
    assert not Job.objects.filter(pk=job.pk).exists()


def test_a_queue_is_paused_and_resumed(site):
    """With a reason that the list shows to the next who looks."""
    Queue.objects.create(name="mail")
    page = site.open("/admin/pgqueue/queue/mail/change/")

    page.get_by_role("link", name="Pause").click()
    page.get_by_label("Reason").fill("provider is down")
    page.get_by_role("button", name="Pause").click()
    expect(page.locator("#result_list")).to_contain_text("by ada: provider is down")
    page.get_by_role("link", name="mail", exact=True).click()
    page.get_by_role("button", name="Resume").click()

    expect(page.locator(".messagelist")).to_contain_text("open again")
    assert Queue.objects.get().paused_at is None
