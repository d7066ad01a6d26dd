"""The jobs that have ended."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.harness.factories import make_archived_job
from tests.harness.minutes import in_minutes

pytestmark = pytest.mark.django_db

URL = "/admin/pgqueue/archivedjob/"


def test_the_list_shows_how_jobs_ended(admin_client):
    """State, run time and worker of each, the latest id first."""
    make_archived_job(
        started_at=-timedelta(seconds=2, milliseconds=250),
        finished_at=timedelta(0),
        worker="web-1:42",
    )
    make_archived_job(state="expired", started_at=None, worker=None)

    response = admin_client.get(URL)

    html = response.content.decode()
    assert ["expired", "succeeded"] == [
        row.state for row in response.context["cl"].result_list
    ]
    assert ">2.25" in html
    assert "web-1:42" in html


def test_a_row_shows_its_result_and_times(admin_client):
    """JSON is laid out in lines."""
    result = {"rows": 7, "files": ["nightly.parquet", "nightly.csv"], "is_ok": [True]}
    row = make_archived_job(result=result, enqueued_at=-timedelta(minutes=3))

    html = admin_client.get(f"{URL}{row.pk}/change/").content.decode()

    assert "&quot;files&quot;: [\n    &quot;nightly.parquet&quot;,\n" in html
    assert "(3 min ago)" in in_minutes(html)
