"""PGQUEUE["DATABASE"]: the admin shows the rows of that database, and no others."""

from __future__ import annotations

import pytest
from django.contrib.admin.models import LogEntry

from django_pgqueue.models import Job, PipelineRun
from tests.harness.factories import (
    make_archived_job,
    make_dead_letter,
    make_failure,
    make_job,
    make_run,
    make_task_hour,
)

pytestmark = pytest.mark.django_db(databases=["default", "queue"])

MAKERS = {
    "job": make_job,
    "archivedjob": make_archived_job,
    "deadletter": make_dead_letter,
}


@pytest.fixture(autouse=True)
def queue_database(settings):
    settings.PGQUEUE = {"DATABASE": "queue"}
    # The admin names the alias itself, so it does not depend on a router.
    settings.DATABASE_ROUTERS = []


@pytest.mark.parametrize("page", MAKERS)
def test_rows_come_from_the_database_of_the_queue(admin_client, page):
    """Those of the default database are not shown."""
    here = MAKERS[page](using="queue", task="in.the.queue", id=9_000_001)
    there = MAKERS[page](using="default", task="in.the.default", id=9_000_002)
    url = f"/admin/pgqueue/{page}/"

    html = admin_client.get(url).content.decode()

    assert "in.the.queue" in html
    assert "in.the.default" not in html
    assert 200 == admin_client.get(f"{url}{here.pk}/change/").status_code
    assert 302 == admin_client.get(f"{url}{there.pk}/change/").status_code


def test_what_the_pipeline_found_is_that_of_the_queue(admin_client):
    """Charts, failures and runs; a run is enqueued there, and noted in the default."""
    for using in ("queue", "default"):
        make_task_hour(1, using=using, task=f"in.the.{using}", failed=1)
        make_failure({"type": f"in.the.{using}"}, using=using)
        make_run(using=using, job="metrics", asked_by=f"in.the.{using}")
        make_dead_letter(using=using, errors=[{"kind": "error", "type": "x"}])

    for page in ("taskhour", "failure", "pipelinerun"):
        html = admin_client.get(f"/admin/pgqueue/{page}/").content.decode()
        assert "in.the.queue" in html, page
        assert "in.the.default" not in html, page
    run = PipelineRun.objects.using("queue").get()
    admin_client.post(
        f"/admin/pgqueue/pipelinerun/{run.pk}/run-again/", {"confirmed": 1}
    )

    assert ["metrics"] == Job.objects.using("queue").get().args
    assert not Job.objects.using("default").exists()
    assert str(run.pk) == LogEntry.objects.using("default").get().object_id
