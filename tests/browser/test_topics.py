"""Topics in a real browser, under a policy that allows files of the site alone."""

from __future__ import annotations

import re

from playwright.sync_api import expect

from django_pgqueue.models import Position
from tests.log.rows import make_group, make_message


def test_a_group_is_moved_from_its_topic(site):
    """What happens is told before, and the name of the group is asked for."""
    ids = [
        make_message(partition=n % 2, payload={"token": "s3cret"}).pk for n in range(6)
    ]
    make_group(positions=2)
    page = site.open("/admin/pgqueue/topic/")
    page.get_by_role("link", name="orders").click()
    page.get_by_role("link", name="stats").click()
    page.get_by_role("link", name="Seek…").click()

    page.get_by_label("latest: what is published from now on").check()
    page.get_by_role("button", name="Show what happens").click()
    expect(page.locator(".pgqueue-preview")).to_contain_text(
        "Messages that are read again: 0, skipped: 6."
    )
    page.get_by_role("button", name="Seek").click()
    expect(page.locator(".errorlist")).to_contain_text("Type orders/stats to say")
    assert {0} == set(Position.objects.values_list("position", flat=True))
    page.get_by_label("type the name of the group").fill("orders/stats")
    page.get_by_role("button", name="Seek").click()

    expect(page.locator(".messagelist")).to_contain_text("2 partitions read on")
    assert {ids[-1]} == set(Position.objects.values_list("position", flat=True))
    page.get_by_role("link", name="orders", exact=True).first.click()
    page.get_by_role("link", name=re.compile("^6$")).first.click()
    page.get_by_role("link", name=str(ids[2]), exact=True).click()
    expect(page.locator(".pgqueue-payload").first).to_contain_text("[redacted]")
    assert "s3cret" not in page.content()
