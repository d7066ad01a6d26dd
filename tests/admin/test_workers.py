"""Workers: who is alive, who leads, and which jobs each of them holds."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest

from django_pgqueue.models import Worker
from tests.harness.factories import make_job, make_leased_job, register

pytestmark = pytest.mark.django_db

URL = "/admin/pgqueue/worker/"


def beat(name, *, ago, leads=timedelta(0)):
    row = Worker.objects.get(name=name)
    row.heartbeat_at -= ago
    row.leader_until = row.started_at + leads if leads else None
    row.save()


@pytest.mark.parametrize("lease", [30, 300])
def test_the_list_marks_the_silent_and_the_leader(admin_client, settings, lease):
    """Silent is who was not heard of for a minute, as the doctor has it."""
    settings.PGQUEUE = {"LEASE_SECONDS": lease}
    for name in ("alive", "leads", "silent"):
        register(name)
    beat("alive", ago=timedelta(seconds=50))
    beat("leads", ago=timedelta(0), leads=timedelta(minutes=1))
    beat("silent", ago=timedelta(seconds=70))

    html = admin_client.get(URL).content.decode()

    rows = html.split("<tbody>")[1].split("</tr>")
    silent, alive, leads = (
        next(row for row in rows if f">{name}</span></a>" in row)
        for name in ("silent", "alive", "leads")
    )
    assert "pgqueue-dead" in silent
    assert "pgqueue-ready" in alive
    assert "alive, leads" in leads


def test_a_worker_shows_the_jobs_that_it_holds(admin_client):
    """With links, the one that it has held longest first; no others."""
    register("w-1")
    late = make_leased_job("w-1", leased_at=-timedelta(seconds=5))
    first = make_leased_job("w-1", queue="mail", leased_at=-timedelta(seconds=59))
    extended = make_leased_job("w-1", priority=7, visible_at=timedelta(minutes=55))
    make_leased_job("w-2")
    make_job()

    response = admin_client.get(f"{URL}w-1/change/")

    held = [job.pk for job in (first, late, extended)]
    assert held == [job.id for job in response.context["held"]]
    links = re.findall(r"/admin/pgqueue/job/(\d+)/change/", response.content.decode())
    assert held == list(map(int, links))
    assert not response.context["held_more"]
