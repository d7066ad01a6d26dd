"""The report: what the command tells, on a page."""

from __future__ import annotations

import pytest

from tests.harness.factories import make_task_hour

pytestmark = pytest.mark.django_db


def test_the_page_shows_what_the_command_tells(staff, settings):
    """To those who may see metrics; a wait that is none is told beside its field."""
    settings.PGQUEUE = {
        "QUEUES": {"mail": {"objective": {"success": 0.99}}},
    }
    make_task_hour(
        2, queue="mail", task="<b>send</b>", started=7_200, worker_seconds=9e3
    )
    client = staff("view_taskhour")

    html = client.get("/admin/pgqueue/taskhour/").content.decode()
    assert "/admin/pgqueue/taskhour/report/" in html
    html = client.get("/admin/pgqueue/taskhour/report/?wait=1m").content.decode()
    assert "2.5 threads busy" in html
    assert "99% succeed" in html
    assert "&lt;b&gt;send&lt;/b&gt;" in html
    assert "<b>send" not in html
    html = client.get("/admin/pgqueue/taskhour/report/?wait=soon").content.decode()
    assert "no duration" in html
    assert 403 == staff("view_job").get("/admin/pgqueue/taskhour/report/").status_code


def test_the_hour_under_way_has_costs_and_no_capacity(staff):
    """It is not whole; the page says that it is left out."""
    make_task_hour(0, task="shop.send")

    html = staff("view_taskhour").get("/admin/pgqueue/taskhour/report/")
    html = html.content.decode()
    assert "the one that is under way is left out" in html
    assert "shop.send" in html
