"""From a group of dead letters to all of them redriven, as somebody on call does it."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from django_pgqueue.models import ArchivedJob, DeadLetter
from tests.harness.factories import make_dead_letter
from tests.harness.waiting import wait_for

pytestmark = pytest.mark.slow


def test_from_a_group_to_done(site, start_worker):
    """The page of the act tells when it is done, without being loaded again."""
    error = {"kind": "error", "type": "shop.Unreachable", "message": "no answer"}
    for _ in range(3):
        make_dead_letter(task="tests.app.tasks.noop", errors=[error])
    make_dead_letter(errors=[{**error, "type": "shop.Declined"}])

    page = site.open("/admin/pgqueue/deadletter/")
    page.get_by_role("link", name="Group the latest by error").click()
    row = page.get_by_role("row").filter(has_text="shop.Unreachable")
    row.get_by_role("link", name="Redrive all…").click()
    expect(page.get_by_text("3 rows:")).to_be_visible()
    page.get_by_label("Reason").fill("It answers again")
    page.get_by_label("type 3, the number of rows").fill("3")
    page.get_by_role("button", name="Redrive all").click()
    expect(page.get_by_text("0 / 3").last).to_be_visible()
    expect(page.get_by_text("No living worker does this")).to_be_visible()

    start_worker()

    expect(page.locator(".pgqueue-succeeded")).to_be_visible()
    expect(page.get_by_text("3 / 3").last).to_be_visible()
    expect(page.get_by_role("link", name="Stop")).to_have_count(0)
    wait_for(
        lambda: 3 == ArchivedJob.objects.filter(state="succeeded").count(),
        what="all have run",
    )
    assert "shop.Declined" == DeadLetter.objects.get().errors[-1]["type"]
    page.get_by_role("link", name="Back to the list").click()
    expect(page.get_by_role("cell", name="It answers again")).to_be_visible()
