"""PGQUEUE["DATABASE"]: the admin shows the rows of that database, and no others."""

from __future__ import annotations

import pytest
from django.contrib.admin.models import LogEntry

from django_pgqueue.models import DeadLetter, Job, PipelineRun, Schedule, Tick
from tests.harness.factories import (
    make_archived_job,
    make_dead_letter,
    make_failure,
    make_job,
    make_run,
    make_schedule,
    make_task_hour,
    make_tick,
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


def test_redrive_moves_in_that_database_and_logs_in_the_default_one(admin_client):
    """The log of Django's admin stays where its users are."""
    row = make_dead_letter(using="queue")

    admin_client.post(f"/admin/pgqueue/deadletter/{row.pk}/redrive/")

    assert Job.objects.using("queue").filter(pk=row.pk).exists()
    assert not DeadLetter.objects.using("queue").exists()
    assert str(row.pk) == LogEntry.objects.using("default").get().object_id


def test_a_job_that_has_moved_is_looked_for_in_that_database(admin_client):
    """From the queue to the archive."""
    row = make_archived_job(using="queue", id=9_000_003)
    make_dead_letter(using="default", id=9_000_003)

    response = admin_client.get(f"/admin/pgqueue/job/{row.pk}/change/")

    assert f"/admin/pgqueue/archivedjob/{row.pk}/change/" == response.url


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


def test_schedules_are_those_of_the_queue(admin_client):
    """Shown, run and made there; noted in the default database."""
    for using in ("queue", "default"):
        row = make_schedule(using=using, name=f"in.the.{using}", id=9_000_004)
        make_tick(row, using=using, job_id=1, asked_by=f"by.the.{using}")
    url = "/admin/pgqueue/schedule/"

    html = admin_client.get(url).content.decode()
    detail = admin_client.get(f"{url}9000004/change/").content.decode()
    admin_client.post(f"{url}9000004/run-now/", {"confirmed": 1})
    form = admin_client.get(f"{url}new/").context["form"]
    data = {name: form[name].value() or "" for name in form.fields}
    data |= {"name": "new", "task": "tests.app.tasks.noop", "every": "5m", "save": 1}
    admin_client.post(f"{url}new/", data)

    assert "in.the.queue" in html
    assert "in.the.default" not in html
    assert "by.the.queue" in detail
    assert "by.the.default" not in detail
    assert 1 == Job.objects.using("queue").count()
    assert [2, 1] == [Tick.objects.using(u).count() for u in ("queue", "default")]
    assert [2, 1] == [Schedule.objects.using(u).count() for u in ("queue", "default")]
    assert 2 == LogEntry.objects.using("default").count()
