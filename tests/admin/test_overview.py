"""The page of our app: what needs attention, and numbers that lead to their rows."""

from __future__ import annotations

import io
import json
import re
from datetime import timedelta
from html import unescape

import pytest
from django.core.management import call_command

from django_pgqueue.admin import acting
from django_pgqueue.admin import overview as page
from django_pgqueue.models import ConsumerGroup, Worker
from tests.admin.rows import make_each
from tests.harness.factories import (
    make_dead_letter,
    make_job,
    make_leased_job,
    make_schedule,
    make_stuck_saga,
    register,
)
from tests.log.rows import make_group, make_message, make_position

pytestmark = pytest.mark.django_db

URL = "/admin/pgqueue/"
HOUR = timedelta(hours=1)

# What each permission shows, by what stands on the page.
PARTS = {
    "view_job": "<dt>Ready</dt>",
    "view_deadletter": "<dt>Dead in 24 h</dt>",
    "view_worker": "<dt>Workers alive</dt>",
    "view_consumergroup": "<dt>Unread by groups</dt>",
    "view_schedule": "Next schedules",
}


def html_of(client):
    response = client.get(URL)
    assert 200 == response.status_code
    return unescape(response.content.decode())


def tile(html, label):
    """Return the number of a tile, and where it leads."""
    found = re.search(rf'<dt>{label}</dt><dd>(?:<a href="([^"]*)">)?([\d,+]+)', html)
    return found[2], found[1]


def make_counted():
    """Make a row of each state, of two queues."""
    make_job(queue="mail", visible_at=-HOUR)
    make_job(queue="mail", visible_at=-HOUR / 2)
    make_job(queue="slow", run_after=HOUR)
    make_leased_job("web-1", queue="mail", task="shop.tasks.import_rows")
    make_job(queue="slow", visible_at=HOUR, attempt=1, deliveries=1)
    make_job(queue="slow", lane="a")
    make_dead_letter(task="shop.tasks.charge", finished_at=-HOUR / 2)
    make_dead_letter(task="shop.tasks.charge", finished_at=-2 * HOUR)
    make_dead_letter(task="shop.tasks.notify", finished_at=-30 * HOUR)
    register("web-1")


def test_each_number_is_a_link_to_what_it_counts(admin_client):
    """The list behind a number has as many rows as it says."""
    make_counted()
    html = html_of(admin_client)

    expected = {
        "Ready": "2",
        "Running": "1",
        "Retrying": "1",
        "Scheduled": "1",
        "Parked": "1",
        "Dead in 24 h": "2",
        "Workers alive": "1",
    }
    for label, number in expected.items():
        shown, link = tile(html, label)
        assert number == shown, label
        rows = admin_client.get(link).context["cl"].result_list
        assert int(number) == len(rows), label
    assert re.search(r"oldest: 1 h, in <a[^>]*queue=mail&state=ready", html)
    assert re.search(r'in the last hour: <a href="[^"]*\?age=1h">1<', html)


def test_all_is_well(admin_client):
    """It is said so, as of when, and who looks at the rest."""
    register("web-1")

    html = html_of(admin_client)

    assert "All is well" in html
    assert 'pgqueue-attention"' not in html
    assert re.search(r'As of <time datetime="[^"]+">[^<]+ UTC</time>', html)
    assert "manage.py pgqueue doctor" in html


def test_findings_are_those_of_the_doctor(admin_client, cursor):
    """In its words, with its way out; each leads to a list that can be opened."""
    make_each("x")
    make_job(queue="nobody's", visible_at=-HOUR)
    Worker.objects.filter(queues=[]).update(queues=["default"])

    found = admin_client.get(URL).context["attention"]

    out = io.StringIO()
    with pytest.raises(SystemExit):
        call_command("pgqueue", "doctor", "--json", "--quiet", stdout=out)
    found_there = json.loads(out.getvalue())["findings"]
    # Ages go on meanwhile, names have an order of their own, and errors of halted
    # groups are not shown.
    told = {re.split(" for |:", each["what"])[0] for each in found_there}
    ours = {re.split(" for |:", each.what)[0] for _badge, each, _link in found}
    assert 3 <= len(ours)
    assert ours <= told
    assert any("nobody's" in each.what for _badge, each, _link in found)
    for _badge, each, shown in found:
        assert each.way_out
        link = unescape(re.search('href="([^"]+)"', shown)[1])
        assert 200 == admin_client.get(link).status_code, link


def test_each_part_needs_the_permission_of_its_rows(staff):
    """Of what a user may not view, neither numbers nor findings nor links are there."""
    make_each("x")
    make_schedule(next_tick=HOUR)
    make_job(queue="nobody", visible_at=-HOUR)
    # A paused queue, and its page has a permission of its own.
    make_job(queue="mail", visible_at=-HOUR)

    for permission, part in PARTS.items():
        html = html_of(staff(permission))
        for each, text in PARTS.items():
            assert (each == permission) == (text in html), each
        model = permission.removeprefix("view_")
        links = set(re.findall(r'href="/admin/pgqueue/(\w+)/', html))
        assert {model} == links
        others = html_of(staff(*(PARTS.keys() - {permission})))
        assert part not in others
        assert f'href="/admin/pgqueue/{model}/' not in others


def entries(html):
    """Return the pages of our app in Django's list of them, each with its link."""
    app = html[html.index('<div class="app-pgqueue ') :]
    return re.findall(
        r'<th scope="row"[^>]*>\s*<a href="([^"]*)"[^>]*>([^<]+)</a>',
        app[: app.index("</table>")],
    )


@pytest.mark.parametrize("place", ["/admin/", f"{URL}job/"])
def test_the_index_of_the_admin_leads_to_it(admin_client, sidebar, place):
    """First among what the index, and the list beside any page, have of our app."""
    html = admin_client.get(place).content.decode()

    first, *others = entries(html)
    assert (f"{URL}?", "Overview") == first
    assert "Overview" not in [name for _, name in others]
    assert "Needs attention" in html_of(admin_client)
    # Not the overview, whose address begins that of each page.
    current = re.findall(r'<a href="([^"]*)" aria-current="page"', html)
    assert [place] == current or place == "/admin/"


@pytest.mark.django_db(transaction=True)
def test_a_database_that_takes_too_long_is_told(admin_client, monkeypatch, cursor):
    """And the pages stay within reach, with numbers that are asked for again later."""
    monkeypatch.setattr(acting, "STATEMENT_SECONDS_MAX", 1)
    monkeypatch.setattr(page, "STATEMENT_SECONDS_MAX", 1)

    with cursor.connection.transaction():
        cursor.execute("LOCK TABLE pgqueue_job IN ACCESS EXCLUSIVE MODE")
        html = html_of(admin_client)

    assert "The database took longer than 1 s" in html
    assert 'data-seconds="30"' in html
    assert f'href="{URL}job/"' in html
    assert "<dt>Ready</dt>" not in html


def test_lag_is_that_of_all_groups_together(admin_client):
    """Each group is told, the one with the oldest unread message first."""
    for n in range(3):
        make_message(key=str(n))
    for name in ("stats", "search"):
        make_position(make_group(name=name), 0)

    html = html_of(admin_client)

    assert "6" == tile(html, "Unread by groups")[0]
    unread = re.findall(
        r'<a href="/admin/pgqueue/consumergroup/(\d+)/change/">3<', html
    )
    assert {str(row.pk) for row in ConsumerGroup.objects.all()} == set(unread)
    # And there, from the messages of each partition.
    (link,) = re.findall(
        r'<a href="([^"]*)">3</a>',
        unescape(
            admin_client.get(f"{URL}consumergroup/{unread[0]}/change/").content.decode()
        ),
    )
    assert 3 == len(admin_client.get(link).context["cl"].result_list)
    assert re.search(r"/consumergroup/\d+/change/\"><span[^>]*>[^<]*stats<", html)


# Charts ------------------------------------------------------------------------------


def test_sagas_that_need_a_human_are_named_without_keys_to_who_may_not_see_them(staff):
    """Arguments make keys. The finding leads to the workflows that compensate."""
    saga = make_stuck_saga(name="order", key="ada@example.org")

    shown = html_of(staff("view_workflow"))
    assert f"not get on with undoing: order (saga {saga.id}" in shown
    assert "ada@example.org" not in shown
    assert 'href="/admin/pgqueue/workflow/?state=compensating"' in shown
    assert "order ada@example.org" in html_of(staff("view_workflow", "view_payload"))
    assert "undoing" not in html_of(staff("view_deadletter"))
